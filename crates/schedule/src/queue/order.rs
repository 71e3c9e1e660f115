//! The value of `schedule.order`: a queue policy, as text its tag.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use allrail_core::FieldError;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{ALL, QueuePolicy, named};
use crate::error::ScheduleError;

/// A queue policy of the list. Two are the same if their tags are.
#[derive(Clone, Copy)]
pub struct Order(pub(super) &'static dyn QueuePolicy);

impl Order {
    /// Every order, in the order of the docs.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().copied().map(Self)
    }

    /// The order that runs while chunks are scheduled.
    #[must_use]
    pub fn while_planning(self) -> Self {
        self.0.fixed_by().first().copied().unwrap_or(self)
    }

    /// The orders under which a schedule is run to fix that of its dimensions.
    #[must_use]
    pub fn fixed_by(self) -> Vec<Self> {
        match self.0.fixed_by() {
            [] => vec![self],
            others => others.to_vec(),
        }
    }
}

impl Default for Order {
    /// First come, first served: what a network does that nobody has told anything.
    fn default() -> Self {
        Self::FIFO
    }
}

impl Deref for Order {
    type Target = dyn QueuePolicy;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl PartialEq for Order {
    fn eq(&self, other: &Self) -> bool {
        self.tag() == other.tag()
    }
}

impl Eq for Order {}

impl Hash for Order {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.tag().hash(state);
    }
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.tag())
    }
}

impl Serialize for Order {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.tag())
    }
}

impl<'de> Deserialize<'de> for Order {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        named(&name).map_err(|error| match error {
            ScheduleError::Field(FieldError { value, why, hint, .. }) => {
                D::Error::custom(format!("`{value}`: {why}; {hint}"))
            }
            other => D::Error::custom(other),
        })
    }
}

impl JsonSchema for Order {
    fn schema_name() -> Cow<'static, str> {
        "Order".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let tags: Vec<&str> = ALL.iter().map(|policy| policy.tag()).collect();
        json_schema!({ "type": "string", "enum": tags })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_its_tag_in_files() {
        for policy in ALL {
            let text = format!("\"{}\"", policy.tag());
            let order: Order = serde_json::from_str(&text).expect("a known order");
            assert_eq!(serde_json::to_string(&order).expect("text"), text);
            assert!(!order.while_planning().keeps_to_plans(), "{text} is never fixed");
        }
        let error = serde_json::from_str::<Order>("\"alphabetical\"").expect_err("unknown");
        assert!(error.to_string().contains("`smallest_first`"), "{error}");
    }
}
