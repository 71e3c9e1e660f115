//! What a step graph says of the tensors of one scheduler, for policies that look beyond sizes and places.
//!
//! Times are those of one rank that computes and waits for nothing. Whoever has the graph fills it in
//! (`allrail_simulate::training::facts`); a job on real processes has none.

use allrail_core::Time;

/// How much of it a policy looks at: what is not asked for is not worked out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outlook {
    /// Nothing: sizes and places are enough.
    #[default]
    Nothing,
    /// What is known of tensors.
    Tensors,
    /// What is computed next, too.
    Computing,
}

/// What is known of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepFacts {
    /// Of each tensor, in the order of the scheduler's list.
    pub tensors: Vec<TensorFacts>,
    /// What the next iteration computes, by what it waits for: no two wait for the same tensors.
    pub computing: Vec<Computing>,
}

/// What is known of a tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorFacts {
    /// Its name in the graph.
    pub name: String,
    /// The place of its layer in the forward pass, 0 first.
    pub place: u32,
    /// When the backward pass has made it, from the begin of the iteration.
    pub ready: Time,
    /// When the next iteration needs it, from the begin of that.
    pub needed: Time,
    /// How long its exchange takes alone, about: the bytes of the busiest dimension over its bandwidth.
    pub alone: Time,
}

/// Computing of the next iteration that waits for the same tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Computing {
    /// How long all of it takes.
    pub time: Time,
    /// The tensors, ascending: all that come before it, directly or not.
    pub waits_for: Vec<u32>,
}

impl StepFacts {
    /// A chain of layers, as where no graph is known: each computes for `time` and waits for its own
    /// tensors and those of all layers before it.
    #[must_use]
    pub fn chain(places: impl IntoIterator<Item = u32>, time: Time) -> Self {
        let places: Vec<u32> = places.into_iter().collect();
        let mut layers = places.clone();
        layers.sort_unstable();
        layers.dedup();
        let computing = layers.iter().map(|layer| Computing {
            time,
            waits_for: (0..).zip(&places).filter(|(_, p)| *p <= layer).map(|(i, _)| i).collect(),
        });
        let computing = computing.collect();
        let tensors = places.iter().map(|place| TensorFacts {
            place: *place,
            needed: time.checked_mul(u64::from(*place)).unwrap_or(Time::MAX),
            alone: time,
            ..TensorFacts::default()
        });
        Self { tensors: tensors.collect(), computing }
    }
}
