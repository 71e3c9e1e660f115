//! The algorithm of each dimension: named, or left to be chosen ([`crate::choose`]).

use std::fmt;

use allrail_core::{FieldError, counted};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::error::ScheduleError;

/// The word for what is chosen.
pub const AUTO: &str = "auto";

/// The algorithm of one dimension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Choice {
    /// It is chosen.
    Auto,
    /// The one with this tag.
    Named(String),
}

impl Choice {
    /// Its name, unless it is chosen.
    #[must_use]
    pub fn named(self) -> Option<String> {
        match self {
            Self::Auto => None,
            Self::Named(name) => Some(name),
        }
    }
}

impl From<String> for Choice {
    fn from(text: String) -> Self {
        if text == AUTO { Self::Auto } else { Self::Named(text) }
    }
}

impl From<Choice> for String {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Auto => AUTO.to_owned(),
            Choice::Named(name) => name,
        }
    }
}

/// The algorithms of all dimensions: `auto`, or a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum Algorithms {
    /// All are chosen.
    Auto,
    /// One for each dimension of the fabric.
    Each(Vec<Choice>),
}

/// How files have it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Word(String),
    Each(Vec<Choice>),
}

impl TryFrom<Written> for Algorithms {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Word(word) if word == AUTO => Ok(Self::Auto),
            Written::Word(word) => {
                Err(format!("`{word}` is no list of algorithms, one per dimension, nor `{AUTO}`"))
            }
            Written::Each(each) => Ok(Self::Each(each)),
        }
    }
}

impl From<Algorithms> for Written {
    fn from(algorithms: Algorithms) -> Self {
        match algorithms {
            Algorithms::Auto => Self::Word(AUTO.to_owned()),
            Algorithms::Each(each) => Self::Each(each),
        }
    }
}

impl JsonSchema for Algorithms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DimensionAlgorithms".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "const": AUTO }, { "type": "array", "items": { "type": "string" } }] })
    }
}

impl<S: Into<String>> FromIterator<S> for Algorithms {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        Self::Each(names.into_iter().map(|name| Choice::from(name.into())).collect())
    }
}

impl<S: Into<String>> From<Vec<S>> for Algorithms {
    fn from(names: Vec<S>) -> Self {
        names.into_iter().collect()
    }
}

impl fmt::Display for Algorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str(AUTO),
            Self::Each(each) => {
                let names: Vec<String> = each.iter().cloned().map(String::from).collect();
                f.write_str(&names.join(", "))
            }
        }
    }
}

impl Algorithms {
    /// The algorithm of each of `count` dimensions.
    ///
    /// # Errors
    /// A list that is not as long.
    pub fn each(&self, count: usize) -> Result<Vec<Choice>, ScheduleError> {
        match self {
            Self::Auto => Ok(vec![Choice::Auto; count]),
            Self::Each(each) if each.len() == count => Ok(each.clone()),
            Self::Each(each) => Err(ScheduleError::Field(FieldError::new(
                "schedule.algorithms",
                self,
                format!(
                    "it names {}, the fabric has {count}",
                    counted(each.len(), "algorithm"),
                    count = counted(count, "dimension")
                ),
                "give one algorithm per dimension, innermost first",
            ))),
        }
    }

    /// Whether any is left to be chosen.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self {
            Self::Auto => true,
            Self::Each(each) => each.contains(&Choice::Auto),
        }
    }

    /// The names that are given.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        let each = match self {
            Self::Auto => &[][..],
            Self::Each(each) => each,
        };
        each.iter().filter_map(|choice| match choice {
            Choice::Auto => None,
            Choice::Named(name) => Some(name.as_str()),
        })
    }

    /// Whether a plan with these names is one of theirs.
    #[must_use]
    pub fn allow(&self, names: &[String]) -> bool {
        match self {
            Self::Auto => true,
            Self::Each(each) => {
                let fits = |(choice, name): (&Choice, &String)| match choice {
                    Choice::Auto => true,
                    Choice::Named(own) => own == name,
                };
                each.len() == names.len() && each.iter().zip(names).all(fits)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_say_auto_or_a_list() {
        let read = |text: &str| serde_json::from_str::<Algorithms>(text);
        assert_eq!(read(r#""auto""#).expect("a word"), Algorithms::Auto);
        let each = read(r#"["ring", "auto"]"#).expect("a list");
        assert_eq!(each.to_string(), "ring, auto");
        assert_eq!(serde_json::to_string(&each).expect("text"), r#"["ring","auto"]"#);
        assert!(each.is_open() && !read(r#"["ring"]"#).expect("a list").is_open());
        assert!(read(r#""ring""#).is_err() && read("3").is_err());
        let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        assert!(each.allow(&names(["ring", "direct"])));
        assert!(!each.allow(&names(["direct", "ring"])));
    }
}
