//! How a topology is drawn: where its nodes stand, what they are called, and a smaller one of its kind.
//!
//! The picture itself is made in Python (`output/report/layout.py`), by the shape that a topology names here.

use serde::Serialize;
use serde_json::Value;

/// What a picture of a topology needs beside its graph. The default stands switches in layers above the
/// NPUs, which does for any graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drawing {
    /// Where nodes stand.
    pub picture: Picture,
    /// What nodes are called, NPUs first; their numbers where `None`.
    pub names: Option<Vec<String>>,
    /// The keys that make it as small as a network of its kind can be read; `None` if it cannot be made
    /// smaller. Some may have the value that they have already.
    pub smaller: Option<Vec<(&'static str, Value)>>,
}

/// Where nodes stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "stand")]
pub enum Picture {
    /// NPUs below, each switch as high as it is far from the nearest NPU.
    #[default]
    InLayers,
    /// NPUs in rows, columns and levels; cables that are long go round the edge.
    AroundEdges {
        /// NPUs along each dimension.
        shape: Vec<u32>,
        /// NPUs of a board along each dimension; one where it is empty.
        board: Vec<u32>,
    },
    /// Switches in rows, columns and levels, each with its NPUs around it.
    AtSwitches {
        /// Switches along each dimension.
        shape: Vec<u32>,
        /// NPUs at each.
        npus_per_switch: u32,
    },
    /// NPUs on boards in rows and columns, their switches at the margins.
    OnBoards {
        /// Rows and columns of NPUs of a board.
        board: [u32; 2],
        /// Boards in a row and in a column.
        grid: [u32; 2],
        /// Boards that are not there, by their place in their row and in their column.
        failed: Vec<[u32; 2]>,
        /// What a reader has to know.
        note: &'static str,
    },
    /// Groups of switches on a circle, their NPUs around them.
    InGroups {
        /// How many.
        groups: u32,
    },
}
