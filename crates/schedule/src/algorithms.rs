//! The algorithm of each dimension: named, or chosen for each collective by its size.
//!
//! `auto` leaves it to be chosen. On a dimension that says which algorithm was measured to be the fastest
//! (`fastest` of a fabric file) that one is taken, by the bytes of the collective that reach the dimension:
//! those of its buffer, which a reduce-scatter on each dimension before it has divided. Elsewhere the
//! schedule is made with each algorithm in turn, first with one and the same on all dimensions that are
//! open, then with another on one of them for as long as that ends earlier, and run as the planner runs it
//! ([`crate::evaluate`]); what ends first is taken, of equals the usual one, then the one of fewest steps, then the first of the
//! list. So a collective alone is never later in `dims` than with any one name on all of these dimensions. Under a policy
//! whose planning is expensive, the choice is made under `baseline`.
//!
//! What is chosen is part of the plan, so every world and the runtime carry out the same.
//!
//! Not modelled: what it costs to talk with many at once (see `allrail_collective::model`), for which the model
//! may prefer `direct` on a large switch to what is measured there; a caller may ask for more than a better time
//! ([`Preference`]). A measured algorithm that does not do the stages of a schedule (a tree, where several
//! dimensions share an all-reduce) leaves the dimension to the model.

use std::fmt;

use allrail_collective::model::topology_aware;
use allrail_collective::{Algorithm, Operation, algorithm};
use allrail_core::{Bytes, DimensionId, counted};
use allrail_fabric::{Fabric, Fastest};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::error::ScheduleError;
use crate::planner::{Request, finish};

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
            Self::Each(each) => Err(ScheduleError::Field {
                field: "schedule.algorithms".to_owned(),
                value: self.to_string(),
                why: format!(
                    "it names {}, the fabric has {count}",
                    counted(each.len(), "algorithm"),
                    count = counted(count, "dimension")
                ),
                hint: "give one algorithm per dimension, innermost first".to_owned(),
            }),
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

/// What is asked of an algorithm beside a better time than the usual one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preference {
    /// It is taken below so many tenths of the usual one's time.
    pub tenths: u32,
    /// Whether it may do an all-reduce without being able to do its halves.
    pub whole: bool,
}

impl Default for Preference {
    /// Nothing more.
    fn default() -> Self {
        Self { tenths: 10, whole: true }
    }
}

/// Refuses what a fabric says was the fastest, where there is no such collective or algorithm.
///
/// # Errors
/// Names the field.
pub(crate) fn check_measured(fabric: &Fabric) -> Result<(), ScheduleError> {
    for (d, dimension) in fabric.dimensions.iter().enumerate() {
        for (name, points) in &dimension.fastest {
            let field = format!("fabric.dimensions[{d}].fastest.{name}");
            let known = |tags: Vec<&str>| format!("use one of `{}`", tags.join("`, `"));
            let wrong = |value: &str, why: String, hint: String| ScheduleError::Field {
                field: field.clone(),
                value: value.to_owned(),
                why,
                hint,
            };
            let Some(operation) = Operation::ALL.into_iter().find(|one| one.tag() == name) else {
                let hint = known(Operation::ALL.iter().map(|one| one.tag()).collect());
                return Err(wrong(name, "it is not a collective".to_owned(), hint));
            };
            for Fastest { algorithm: tag, .. } in points {
                let all = || algorithm::ALL.iter().map(|one| one.tag()).collect();
                let found = algorithm::named(tag)
                    .map_err(|error| wrong(tag, error.to_string(), known(all())))?;
                if let Err(error) = algorithm::check(found, operation, dimension.size) {
                    let hint = "name one that does".to_owned();
                    return Err(wrong(tag, error.to_string(), hint));
                }
            }
        }
    }
    Ok(())
}

/// The algorithm of every dimension of a request: as `said`, and chosen where that is `auto`.
///
/// # Errors
/// A name that is wrong; nothing fits: says why the usual ones do not.
pub fn choose(
    request: &Request,
    said: &Algorithms,
    preference: Preference,
) -> Result<Vec<String>, ScheduleError> {
    let said = said.each(request.fabric.dimensions.len())?;
    let spanned = request.spanned();
    let parts = request.stage_operations();
    let mut open = Vec::new();
    let mut usual = Vec::with_capacity(said.len());
    for (id, choice) in request.fabric.ids().zip(said) {
        let dimension = request.fabric.dimension(id);
        let otherwise = topology_aware(dimension.kind, request.operation);
        usual.push(match choice {
            Choice::Named(name) => name,
            Choice::Auto if !spanned.contains(&id) => otherwise.to_owned(),
            Choice::Auto => match measured(request, id, &spanned, parts) {
                Some(name) => name.to_owned(),
                None => {
                    open.push(id);
                    otherwise.to_owned()
                }
            },
        });
    }
    if open.is_empty() {
        return Ok(usual);
    }
    let mut search = Search::new(request, usual, preference)?;
    let mut candidates: Vec<&dyn Algorithm> = algorithm::ALL
        .iter()
        .copied()
        .filter(|one| {
            let does = |part| one.operations().contains(part);
            parts.iter().all(does) || preference.whole && does(&request.operation)
        })
        .collect();
    candidates.sort_by_key(|one| {
        let sizes = open.iter().map(|id| request.fabric.dimension(*id).size);
        sizes.map(|size| steps(*one, parts, request.operation, size)).sum::<u64>()
    });
    let candidates: Vec<&str> = candidates.into_iter().map(Algorithm::tag).collect();
    for tag in &candidates {
        search.attempt(&open, tag);
    }
    while open.len() > 1 {
        let before = search.best.clone();
        for id in &open {
            for tag in &candidates {
                search.attempt(&[*id], tag);
            }
        }
        if search.best == before {
            break;
        }
    }
    search.best.map(|(_, names)| names)
}

/// The steps of the parts that an algorithm does, or of the whole.
fn steps(one: &dyn Algorithm, parts: &[Operation], whole: Operation, ranks: u32) -> u64 {
    let does = |part: &Operation| algorithm::check(one, *part, ranks).is_ok();
    let cost = |part: &Operation| u64::from(one.cost(*part, ranks).steps);
    match parts.iter().filter(|part| does(part)).map(cost).sum() {
        0 if does(&whole) => cost(&whole),
        sum => sum,
    }
}

/// What was measured to be the fastest for the bytes of a collective that reach a dimension, if it does what
/// the schedule asks of it.
fn measured<'a>(
    request: &'a Request,
    id: DimensionId,
    spanned: &[DimensionId],
    parts: &[Operation],
) -> Option<&'a str> {
    let size = |id: &DimensionId| u64::from(request.fabric.dimension(*id).size);
    let halves = [Operation::ReduceScatter, Operation::AllGather];
    let divided = parts.iter().any(|part| halves.contains(part));
    let before: u64 = spanned.iter().take_while(|other| **other != id).map(size).product();
    let bytes = Bytes::new(request.size.count() / if divided { before } else { 1 });
    let name = request.fabric.dimension(id).fastest(request.operation.tag(), bytes)?;
    let algorithm = algorithm::named(name).ok()?;
    let does = |part| algorithm.operations().contains(part);
    (parts.iter().all(does) || spanned.len() == 1 && does(&request.operation)).then_some(name)
}

/// The best so far.
struct Search {
    request: Request,
    tenths: u32,
    usual: Vec<String>,
    /// When it ends, in tenths, and its names; why the usual ones do not go, until others do.
    best: Result<(u128, Vec<String>), ScheduleError>,
}

impl Search {
    fn new(
        request: &Request,
        usual: Vec<String>,
        preference: Preference,
    ) -> Result<Self, ScheduleError> {
        let mut request = request.clone();
        if request.plugins.named(&request.policy)?.is_expensive() {
            "baseline".clone_into(&mut request.policy);
        }
        name(&mut request, &usual);
        let time = time(&request);
        let best = time.map(|time| (time * u128::from(preference.tenths), usual.clone()));
        Ok(Self { request, tenths: preference.tenths, usual, best })
    }

    /// The best with `tag` on some dimensions, if that is better.
    fn attempt(&mut self, on: &[DimensionId], tag: &str) {
        let mut names = self.best.as_ref().map_or(&self.usual, |(_, names)| names).clone();
        for id in on {
            tag.clone_into(&mut names[id.index()]);
        }
        // An all-reduce that ends in a whole one is for who names its algorithm.
        name(&mut self.request, &names);
        let last = self.request.spanned().last().copied();
        if self.request.ends_whole() && last.is_some_and(|id| on.contains(&id)) {
            return;
        }
        // One that does not go there is none.
        let Ok(time) = time(&self.request) else { return };
        let counted = time * u128::from(if names == self.usual { self.tenths } else { 10 });
        if self.best.as_ref().is_ok_and(|(least, _)| *least <= counted) {
            return;
        }
        self.best = Ok((counted, names));
    }
}

fn name(request: &mut Request, names: &[String]) {
    request.algorithms = Some(names.to_vec().into());
}

/// When the schedule ends, in picoseconds.
fn time(request: &Request) -> Result<u128, ScheduleError> {
    finish(request).map(|time| u128::from(time.as_ps()))
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
