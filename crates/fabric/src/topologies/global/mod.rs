//! What joins the boards of a mesh: a network of switches over a number of ends, one file a kind, one
//! line in [`Global`].
//!
//! A `Network` is planned from the ends that it has to hold and the ports of a switch; ends that fit
//! one switch get one, whatever the kind. It knows its switches and cables before it is built, and says
//! at which switch each end hangs: ends that follow each other hang together.

mod dragonfly;
mod slim_fly;
mod tree;

use allrail_core::FieldError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tree::Tree;
use crate::graph::{Builder, NodeId, Wire};

/// Which network joins boards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Global {
    /// A fat tree of up to three levels.
    #[default]
    FatTree,
    /// Groups of switches, all-to-all within and between groups.
    Dragonfly,
    /// Two switches between any two ends at most (MMS graphs).
    SlimFly,
}

impl Global {
    /// Plans the network of this kind over `ends` ends; `None` if switches of `radix` ports cannot hold
    /// them.
    pub(super) fn plan(self, ends: u64, radix: u32, taper: f64) -> Option<Box<dyn Network>> {
        if ends <= u64::from(radix) {
            return Some(Box::new(Tree::lowest(ends, radix, 0.0)?));
        }
        match self {
            Self::FatTree => Some(Box::new(Tree::lowest(ends, radix, taper)?)),
            Self::Dragonfly => Some(Box::new(dragonfly::Groups::plan(ends, radix)?)),
            Self::SlimFly => Some(Box::new(slim_fly::SlimFly::plan(ends, radix)?)),
        }
    }
}

/// Cables between switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Inner {
    pub(super) aoc: u64,
    pub(super) dac: u64,
}

/// A network of switches, planned but not built.
pub(super) trait Network {
    /// How many switches.
    fn switches(&self) -> u64;

    /// The cables between them.
    fn inner(&self) -> Inner;

    /// Cables between the two ends that are farthest apart, at most.
    fn span(&self) -> u32;

    /// The tree that it is, if it is one: then packets go up and down, and it has a half-plane cut.
    fn as_tree(&self) -> Option<&Tree> {
        None
    }

    /// Which of the switches that [`Network::build`] returns holds an end.
    fn leaf_of(&self, end: u64) -> usize;

    /// Adds its switches and the cables between them; returns those that hold ends.
    fn build(&self, to: &mut Builder, wire: Wire) -> Result<Vec<NodeId>, FieldError>;
}
