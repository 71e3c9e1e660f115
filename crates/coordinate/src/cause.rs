//! Why one rank ends the job of all: what every other rank hears, and says in the same words.
//!
//! A coordinator's own reasons to stop (silence, a stall, a breach of its rules) are its
//! [`Reason`](super::Reason)s. What goes wrong outside of the talk is a cause: whoever drives a rank says it
//! once, and it travels as [`Payload::Stop`](super::Payload::Stop). It names ranks by their place in the
//! group, and a tensor by its name: where ranks registered different tensors, numbers mean different ones.
//! Its texts are bounded, so that a stop stays one small message.
//!
//! ```
//! use allrail_schedule::OperationName;
//! use allrail_coordinate::cause::{About, Cause};
//! let about = About { operation: OperationName::default(), tensor: Some("weight".to_owned()) };
//! let cause = Cause::Failed { by: 3, about, why: "a link is down".to_owned() };
//! assert!(cause.to_string().starts_with("rank 3 cannot carry on operation 0/0/"));
//! assert!(cause.to_string().ends_with(" on `weight`: a link is down"));
//! ```

use std::fmt;

use allrail_schedule::operation::OperationName;
use serde::{Deserialize, Serialize};

/// The longest text in a cause, in bytes.
pub const MOST_CAUSE: usize = 512;

/// An operation, and the tensor that it is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Which.
    pub operation: OperationName,
    /// Of a call without a name, and of a key that nobody registered: none.
    pub tensor: Option<String>,
}

impl About {
    /// As short as people need it: the tensor, or the number of the call.
    fn called(&self) -> String {
        match (&self.tensor, self.operation.key.number_of_call()) {
            (Some(tensor), _) => format!("`{tensor}`"),
            (None, Some(count)) => format!("call {count}"),
            (None, None) => format!("operation {}", self.operation),
        }
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, tensor } = self;
        write!(f, "operation {operation}")?;
        match (tensor, operation.key.number_of_call()) {
            (Some(tensor), _) => write!(f, " on `{tensor}`"),
            (None, Some(count)) => write!(f, " (call {count})"),
            (None, None) => Ok(()),
        }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Cause {
    /// A rank is no longer there.
    #[error("rank {rank} is lost")]
    Lost {
        /// Which.
        rank: u32,
    },
    /// An operation could not be carried on.
    #[error("rank {by} cannot carry on {about}: {why}")]
    Failed {
        /// At this rank.
        by: u32,
        /// Which.
        about: About,
        /// Why.
        why: String,
    },
    /// A frame that no operation of its receiver can have sent for.
    #[error("rank {from} has sent rank {by} a frame of {about} that cannot be: {what}")]
    Frame {
        /// Who sent it.
        from: u32,
        /// Who got it.
        by: u32,
        /// By the frame's name.
        about: About,
        /// What is wrong with it.
        what: String,
    },
    /// Something was said that no rank can have to say, or that was changed on the way.
    #[error("what rank {from} says cannot be understood")]
    Word {
        /// Who said it.
        from: u32,
    },
    /// Ranks submitted different things under one name.
    #[error("ranks do not submit the same tensor `{tensor}`: {what}")]
    Mismatch {
        /// The tensor.
        tensor: String,
        /// Which ranks, and what differs.
        what: String,
    },
    /// Something else broke at a rank.
    #[error("rank {by} cannot go on: {what}")]
    Rank {
        /// Which.
        by: u32,
        /// What.
        what: String,
    },
    /// Two ranks have different operations under one name.
    #[error("{} differs between ranks: {what}", about.called())]
    Differs {
        /// Who sent a frame of it.
        from: u32,
        /// Who got it.
        by: u32,
        /// By its name.
        about: About,
        /// What each of them does.
        what: String,
    },
}

/// The beginning of a text, as far as it may travel.
fn cut(text: &mut String) {
    const MORE: &str = " …";
    if text.len() > MOST_CAUSE {
        let mut end = MOST_CAUSE - MORE.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(MORE);
    }
}

impl Cause {
    /// With its texts cut to [`MOST_CAUSE`]: as it is told, and as the one who tells it keeps it.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.texts_mut().into_iter().flatten().for_each(cut);
        self
    }

    fn texts_mut(&mut self) -> [Option<&mut String>; 2] {
        match self {
            Self::Lost { .. } | Self::Word { .. } => [None, None],
            Self::Failed { about, why: what, .. }
            | Self::Frame { about, what, .. }
            | Self::Differs { about, what, .. } => [about.tensor.as_mut(), Some(what)],
            Self::Mismatch { tensor, what } => [Some(tensor), Some(what)],
            Self::Rank { what, .. } => [Some(what), None],
        }
    }

    /// Its texts.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let texts = match self {
            Self::Lost { .. } | Self::Word { .. } => [None, None],
            Self::Failed { about, why: what, .. }
            | Self::Frame { about, what, .. }
            | Self::Differs { about, what, .. } => [about.tensor.as_deref(), Some(what.as_str())],
            Self::Mismatch { tensor, what } => [Some(tensor.as_str()), Some(what.as_str())],
            Self::Rank { what, .. } => [Some(what.as_str()), None],
        };
        texts.into_iter().flatten()
    }

    /// The ranks that it names, each by its place in the group.
    pub fn ranks(&self) -> impl Iterator<Item = u32> + use<> {
        let ranks = match self {
            Self::Lost { rank } | Self::Word { from: rank } => [Some(*rank), None],
            Self::Frame { from, by, .. } | Self::Differs { from, by, .. } => {
                [Some(*from), Some(*by)]
            }
            Self::Failed { by, .. } | Self::Rank { by, .. } => [Some(*by), None],
            Self::Mismatch { .. } => [None, None],
        };
        ranks.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_letters() {
        for long in ["x".repeat(2 * MOST_CAUSE), "…".repeat(MOST_CAUSE)] {
            let cause = Cause::Mismatch { tensor: long.clone(), what: long };
            let Cause::Mismatch { tensor, what } = cause.bounded() else { panic!("the same") };
            for text in [tensor, what] {
                assert!(text.len() <= MOST_CAUSE && text.len() > MOST_CAUSE - 4, "{}", text.len());
                assert!(text.ends_with(" …"));
            }
        }
        let short = Cause::Lost { rank: 1 };
        assert_eq!(short.clone().bounded(), short);
    }
}
