//! What every topology says of itself: its parts, its measures, its graph, and what planners see of it.

use std::any::Any;

use allrail_core::FieldError;
use serde::Serialize;

use super::drawing::Drawing;
use crate::graph::Graph;
use crate::placement::Floor;
use crate::routing::{Adaptive, Routing};
use crate::{Dimension, Wiring};

/// What a network is made of, over all planes, counted as `HammingMesh` (SC'22, Appendix) does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// NPUs that were bought; failed ones are among them.
    pub npus: u64,
    /// Switches.
    pub switches: u64,
    /// Active optical cables.
    pub aoc: u64,
    /// Direct attach copper cables.
    pub dac: u64,
    /// Traces on boards.
    pub pcb: u64,
    /// Planes, all alike.
    pub planes: u64,
    /// Ports of one NPU in one plane, those to its board included.
    pub ports: u64,
}

impl Counts {
    /// These counts of one plane, taken for `planes` planes on the same NPUs.
    pub(super) fn of_planes(mut self, planes: u32) -> Self {
        self.planes = u64::from(planes);
        for count in [&mut self.switches, &mut self.aoc, &mut self.dac, &mut self.pcb] {
            *count *= self.planes;
        }
        self
    }
}

/// Rows and columns of NPUs that are numbered along dimensions: the first counts rows.
pub(super) fn grid_of(shape: &[u32]) -> Option<[u32; 2]> {
    let (rows, columns) = shape.split_first()?;
    Some([*rows, columns.iter().product()])
}

/// The rule of a topology, or the one for any graph where the graph is not whole.
pub(super) fn or_adaptive(
    rule: Option<impl Routing + 'static>,
    graph: &Graph,
) -> Result<Box<dyn Routing>, FieldError> {
    match rule {
        Some(rule) => Ok(Box::new(rule)),
        None => Ok(Box::new(Adaptive::new(graph)?)),
    }
}

/// Who sums what passes through a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summing {
    /// Switches; NPUs hang below them.
    Switches,
    /// Switches, and the routers of NPUs, through which others' data goes on boards and tori.
    Routers,
}

/// A network whose parameters are known. Callers validate it before they ask anything else;
/// [`super::read`] has done so. What one topology alone can do is asked of it by its type ([`Any`]).
pub trait GraphTopology: Any + Send + Sync {
    /// The tag in fabric files.
    fn tag(&self) -> &'static str;

    /// Checks every parameter.
    ///
    /// # Errors
    /// Names the first parameter that is out of range or does not fit the others, with a hint.
    fn validate(&self) -> Result<(), FieldError>;

    /// What it is made of.
    fn counts(&self) -> Counts;

    /// The largest distance between two NPUs in cables by the topology's formula; `None` where there
    /// is none. `show` prints it beside what breadth-first search finds.
    fn diameter_formula(&self) -> Option<u32>;

    /// The largest flow between the two halves of one plane, in cables; `None` where it cannot be
    /// halved or has no closed form. It is not the bisection: other halves may have less between
    /// them.
    fn half_plane_cut_links(&self) -> Option<u64>;

    /// One plane as a graph.
    ///
    /// # Errors
    /// What was left out has cut it in parts.
    fn build(&self) -> Result<Graph, FieldError>;

    /// One plane as network models simulate it: [`GraphTopology::build`]'s graph, unless what is simulated is
    /// not what is costed ([`GraphTopology::simulated_as`] says so then).
    ///
    /// # Errors
    /// As [`GraphTopology::build`].
    fn simulated(&self) -> Result<Graph, FieldError> {
        self.build()
    }

    /// One sentence for results where the simulated graph is not the costed one.
    fn simulated_as(&self) -> Option<&'static str> {
        None
    }

    /// Of one plane's nodes that are no NPUs, those that come with the NPUs' boards and are not priced:
    /// [`Counts::switches`] does not have them.
    fn on_board(&self) -> u64 {
        0
    }

    /// Who sums what passes through, if anybody does.
    fn reduces(&self) -> Option<Summing> {
        None
    }

    /// How packets find their way through [`GraphTopology::simulated`]'s graph.
    ///
    /// # Errors
    /// No rule fits the graph: its paths are too long, or need too many virtual channels.
    fn routing(&self, graph: &Graph) -> Result<Box<dyn Routing>, FieldError> {
        Ok(Box::new(Adaptive::new(graph)?))
    }

    /// The dimensions that planners see, the innermost first, with NPUs numbered as in the graph.
    ///
    /// The bandwidth of a dimension is what an NPU has on it, over all planes, while the others are
    /// idle. Where dimensions share an NPU's ports (`fat_tree`, `hyperx`) a plan that uses several
    /// at once is promised too much; the network model `flows` on the graph tells.
    ///
    /// # Errors
    /// The topology has none: why, in one sentence.
    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        Err(format!("a `{}` is not a product of dimensions", self.tag()))
    }

    /// What planners see where it is no product of dimensions: some that count over cables
    /// ([`crate::wiring`]), with NPUs numbered as in the graph.
    ///
    /// # Errors
    /// As [`GraphTopology::simulated`].
    fn wired(&self) -> Result<Vec<Dimension>, FieldError> {
        Ok(vec![Dimension::over_cables(Wiring::of_npus(self.simulated()?, self.counts().planes))])
    }

    /// Whether all of [`GraphTopology::dimensions`] leave an NPU by the same cables, so that together they
    /// have no more than one of them.
    fn shares_ports(&self) -> bool {
        false
    }

    /// Whether the best splitting of traffic over paths takes ways round: where minimal paths alone leave
    /// most links unused.
    fn takes_detours(&self) -> bool {
        false
    }

    /// Rows and columns of its NPUs, if they are numbered as a grid, row by row.
    fn grid(&self) -> Option<[u32; 2]> {
        None
    }

    /// The boards that jobs are placed on; `None` where it has none.
    fn floor(&self) -> Option<Floor> {
        None
    }

    /// How it is drawn.
    fn drawing(&self) -> Drawing {
        Drawing::default()
    }
}
