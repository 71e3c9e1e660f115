//! Graph fabrics as networks of a training step: the network model, and where the job's ranks are.
//!
//! One of the fabric's alike planes is simulated, with its share of every message. A job has fewer
//! ranks than the fabric has NPUs, or as many; [`crate::scenario::Placement`] says on which it runs.

use std::sync::Arc;

use allrail_core::{Bytes, FieldError, Rank, Time};
use allrail_fabric::graph::Graph;
use allrail_fabric::topologies::GraphTopology;
use allrail_network::flows::{Flows, Splitting};
use allrail_network::packets::Settings;
use allrail_network::{NetworkModel, OnePlane, Submission, Transfer};
use allrail_workload::SlowLinks;

use crate::SimulateError;
use crate::on_graph::{GraphModel, OnGraph};
use crate::scenario::{MessageSettings, Placement};
use crate::traffic::check_size;
use crate::training::communicator::ranks::Latency;

/// A graph fabric, built.
pub struct GraphNetwork {
    /// What it is.
    pub topology: Arc<dyn GraphTopology>,
    /// One plane.
    pub graph: Arc<Graph>,
    /// How many are alike.
    pub planes: u64,
}

impl GraphNetwork {
    /// Builds a fabric.
    ///
    /// # Errors
    /// What was left out has cut it in parts; its tables of paths do not fit into memory.
    pub fn new(topology: Arc<dyn GraphTopology>) -> Result<Self, SimulateError> {
        let graph = Arc::new(topology.simulated()?);
        check_size(&*topology, &graph)?;
        let planes = topology.counts().planes;
        Ok(Self { topology, graph, planes })
    }

    /// Gives slow cables their bandwidth; returns what a result should say of them.
    ///
    /// # Errors
    /// Dimensions are named, and cables have none.
    pub(crate) fn slow_down(&mut self, drawn: &SlowLinks) -> Result<String, SimulateError> {
        if drawn.names_dimensions() {
            return Err(FieldError::new(
                "workload.slow_links.dimensions",
                self.topology.tag(),
                "in this network model a topology's cables are slow, and they are of no dimension",
                "leave it out, or use `network_model: dims`",
            )
            .into());
        }
        let all = self.graph.cables().len();
        let slow = |cable: usize| drawn.cable(cable as u64);
        let of = |cable, whole| if slow(cable) { drawn.bandwidth(whole) } else { whole };
        self.graph = Arc::new(Graph::clone(&self.graph).with_bandwidths(of));
        let count = (0..all).filter(|cable| slow(*cable)).count();
        let factor = drawn.factor();
        Ok(format!("slow cables, with {factor} of their bandwidth: {count} of {all} in a plane"))
    }

    /// An empty network of a model.
    ///
    /// # Errors
    /// No routing fits, or a setting is out of range.
    pub(crate) fn network_model(
        &self,
        model: &dyn GraphModel,
        paths: Splitting,
        packets: &Settings,
        seed: u64,
    ) -> Result<Box<dyn NetworkModel>, SimulateError> {
        let (topology, graph) = (&*self.topology, &self.graph);
        let network_model =
            model.build(&OnGraph { topology, graph, paths, packets, seed })?.network_model;
        Ok(Box::new(OnePlane { network_model, planes: self.planes }))
    }

    /// What a result should say of it; `apart`: the NPUs of the job are not the first ones.
    #[must_use]
    pub fn notes(
        &self,
        placement: &Placement,
        apart: bool,
        settings: &MessageSettings,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        if self.planes > 1 {
            notes.push(format!("one of {} alike planes is simulated", self.planes));
        }
        notes.extend(self.topology.simulated_as().map(str::to_owned));
        notes.push(match placement {
            Placement::InOrder if apart => "ranks are on the NPUs of the job, in order".to_owned(),
            Placement::Shuffled if apart => {
                "ranks are on the NPUs of the job, in an order drawn by the seed".to_owned()
            }
            Placement::InOrder => "rank r is on NPU r".to_owned(),
            Placement::Scattered => "ranks are on NPUs drawn from all by the seed".to_owned(),
            Placement::Shuffled => {
                "ranks are on the first NPUs, in an order drawn by the seed".to_owned()
            }
            Placement::Npus(_) => "ranks are on listed NPUs".to_owned(),
        });
        if settings.overhead > Time::ZERO {
            notes.push(format!("every message waits {} at its ends", settings.overhead));
        }
        if settings.steady {
            notes.push(
                "alike steps of a collective are one message each: exact while nothing disturbs \
                 them"
                    .to_owned(),
            );
        }
        notes
    }

    /// How long messages are under way in `flows` beside their bytes: found by messages of none.
    #[must_use]
    pub fn latency(&self, splitting: Splitting) -> Latency<'static> {
        let mut network_model = Flows::new(&self.graph, splitting);
        let mut now = Time::ZERO;
        Box::new(move |from, to| {
            let transfer = Transfer::Message {
                dimension: allrail_core::DimensionId(0),
                source: Rank(from.0),
                destination: Rank(to.0),
                bytes: Bytes::default(),
            };
            network_model.submit(now, Submission { transfer, tag: 0, sent_tag: None });
            let before = now;
            while let Some((time, _)) = network_model.next_event(Time::MAX) {
                now = time;
            }
            now - before
        })
    }
}
