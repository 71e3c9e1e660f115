//! A rank's decisions made again, from what was recorded: its engine alone, without threads, sockets or a clock.
//!
//! An engine is a pure function of what it is told. So what a node has [recorded](crate::Node::records), told to an
//! engine that was made alike, must bring the same actions; where it does not, something that was not recorded has
//! decided, and that is a mistake in allrail (or the records are of another job).

use std::fmt;

use allrail_engine::engine::{self, Action, Engine};

use crate::plans;
use crate::record::{Record, What};
use crate::{Registered, RuntimeError, Settings};

/// Where a replay is not what was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Differs {
    /// Index of the record that the engine was told.
    pub record: usize,
    /// What it was told, or why it did not take it.
    pub told: String,
    /// What was recorded after it.
    pub recorded: Vec<Action>,
    /// What the engine wants now.
    pub wants: Vec<Action>,
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { record, told, recorded, wants } = self;
        write!(f, "record {record}, {told}: it wanted {recorded:?}, and now {wants:?}")
    }
}

/// An engine as a node that is [bound](crate::Node::bind) has one, with its tensors, not started.
///
/// # Errors
/// As the node's.
pub fn engine(
    settings: &Settings,
    tensors: impl IntoIterator<Item = Registered>,
) -> Result<Engine, RuntimeError> {
    let (engine, plans) = plans::decider(settings)?;
    let mut engine = Engine::new(engine, plans)?;
    for tensor in tensors {
        engine.register(tensor.registration()?)?;
    }
    Ok(engine)
}

/// Tells an engine what was recorded, from the first record of a job on, and compares what it wants. How many
/// actions were the same.
///
/// # Errors
/// The first place where it decides otherwise.
pub fn replay(engine: &mut Engine, records: &[Record]) -> Result<usize, Box<Differs>> {
    let mut same = 0;
    let mut wants = Vec::new();
    // Up to where what the engine wanted was compared.
    let mut compared = 0;
    for (place, Record { at, what }) in records.iter().enumerate() {
        let taken = match what {
            What::Told(event) => engine.on(*at, event.clone(), &mut wants),
            What::Called { name, operation, root, dtype, elements, priority, signature } => {
                let call = engine::Call {
                    operation: *operation,
                    root: *root,
                    dtype: dtype.name(),
                    shape: &[*elements],
                    width: dtype.width(),
                    priority: *priority,
                    signature: *signature,
                };
                let made = match name {
                    None => engine.call(*at, &call, &mut wants),
                    Some(name) => engine.call_named(*at, (name, &call), &mut wants),
                };
                made.map(|_| ())
            }
            What::Settled => {
                engine.settle(&mut wants);
                Ok(())
            }
            What::Waits { .. } | What::Waited { .. } => continue,
            What::Wants(_) if place < compared => continue,
            // Nothing that the engine was told has brought this.
            What::Wants(_) => Ok(()),
        };
        let first = place + usize::from(!matches!(what, What::Wants(_)));
        let after = records[first..].iter().map_while(|one| match &one.what {
            What::Wants(action) => Some(action),
            _ => None,
        });
        if taken.is_err() || !wants.iter().eq(after.clone()) {
            let told = match taken {
                Ok(()) => format!("{what:?}"),
                Err(broken) => format!("{what:?}, which is refused ({broken})"),
            };
            let recorded = after.cloned().collect();
            return Err(Box::new(Differs { record: place, told, recorded, wants }));
        }
        (same, compared) = (same + wants.len(), first + wants.len());
        wants.clear();
    }
    Ok(same)
}
