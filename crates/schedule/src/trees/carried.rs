//! Trees as data: who sends whose data to whom, over which arcs, and how often.

use std::error::Error;
use std::fmt;

/// Trees of one shape, from one root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The member whose data it carries.
    pub root: u32,
    /// Of the root's [`Forest::copies`], how many.
    pub multiplicity: u128,
    /// From a member that has the data to one that has not, in the order in which they can be sent.
    pub edges: Vec<Edge>,
}

/// One step of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// A member that has the data.
    pub from: u32,
    /// The member that gets it.
    pub to: u32,
    /// The arcs of the network between them, past nodes that pass on, and how many of the copies take them.
    pub paths: Vec<Path>,
}

/// Arcs of a network, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// How many copies take it.
    pub multiplicity: u128,
    /// Its arcs.
    pub arcs: Vec<u32>,
}

/// Trees of all roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forest {
    /// Into how many equal parts each member's share is divided.
    pub copies: u128,
    /// How many parts an arc carries for each unit of its capacity: at most `numerator / denominator` times as many.
    pub per_unit: [u128; 2],
    /// The trees, root by root.
    pub trees: Vec<Tree>,
}

/// Why there are no trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTrees {
    /// A member has no other, or cannot be reached.
    Apart,
    /// What enters a node that only passes on is not what it can send on.
    Lopsided(u32),
}

impl fmt::Display for NoTrees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apart => f.write_str("members cannot reach each other"),
            Self::Lopsided(node) => {
                write!(f, "node {node} receives at another rate than it sends, and only passes on")
            }
        }
    }
}

impl Error for NoTrees {}
