//! `minimal` and `ideal`: which paths there are, for [`balance`] to share messages out over.
//!
//! The first column of a commodity is ECMP's splitting, which often is the best already.

use allrail_fabric::graph::paths::{Paths, Ways};
use allrail_fabric::graph::trunk::Trunk;

use super::balance::{Column, Commodity, Oracle, balance};
use super::detours::Detours;
use super::symmetry::Symmetry;

const UNUSED: u32 = u32::MAX;

/// Messages between two hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Demand {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) messages: f64,
}

/// The best splitting found.
pub(super) struct Split {
    /// No splitting loads the most loaded link less.
    pub(super) bound: f64,
    /// As demanded; links are places in `links`.
    pub(super) commodities: Vec<Commodity>,
    /// Classes of arcs.
    pub(super) links: Vec<u32>,
}

/// See the module. It keeps tables over calls.
#[derive(Clone, Debug)]
pub(super) struct Best {
    detours: Option<Detours>,
    places: Vec<u32>,
    shares: Vec<f64>,
}

impl Best {
    /// With `detours`, also paths by way of any one node.
    pub(super) fn new(
        trunk: &Trunk,
        paths: &mut Paths,
        symmetry: &Symmetry,
        detours: bool,
    ) -> Self {
        Self {
            detours: detours.then(|| Detours::new(trunk, paths, &symmetry.classes)),
            places: vec![UNUSED; symmetry.capacities.len()],
            shares: Vec::new(),
        }
    }

    /// Splits what is demanded between different hosts; loads up to `floor` are all the same.
    pub(super) fn split(
        &mut self,
        trunk: &Trunk,
        paths: &mut Paths,
        symmetry: &Symmetry,
        demands: &[Demand],
        floor: f64,
    ) -> Split {
        let mut links: Vec<u32> = Vec::new();
        if self.detours.is_some() {
            links.extend(0..symmetry.capacities.len() as u32);
            (0..).zip(&mut self.places).for_each(|(number, place)| *place = number);
        }
        let mut commodities = Vec::with_capacity(demands.len());
        let mut all_ways = Vec::with_capacity(demands.len());
        let mut sums: Vec<f64> = vec![0.0; links.len()];
        for demand in demands {
            let mut ways = paths.ways(trunk, demand.from, demand.to);
            let latency = ways.longest(|arc| trunk.arcs()[arc as usize].latency);
            let mut column =
                Column { entries: Vec::new(), share: 1.0, latency, ..Column::default() };
            let cables = |arc: u32| trunk.arcs()[arc as usize].cables;
            ways.evenly(&mut self.shares, cables, |arc, share| {
                let class = symmetry.classes[arc as usize];
                let place = &mut self.places[class as usize];
                if *place == UNUSED {
                    *place = links.len() as u32;
                    links.push(class);
                    sums.push(0.0);
                }
                if sums[*place as usize] == 0.0 {
                    column.entries.push((*place, 0.0));
                }
                sums[*place as usize] += share;
            });
            for (link, weight) in &mut column.entries {
                *weight = std::mem::take(&mut sums[*link as usize]);
            }
            for arc in ways.arcs_mut() {
                *arc = self.places[symmetry.classes[*arc as usize] as usize];
            }
            all_ways.push(ways);
            commodities.push(Commodity { demand: demand.messages, columns: vec![column] });
        }
        for &class in &links {
            self.places[class as usize] = UNUSED;
        }
        let capacities: Vec<f64> =
            links.iter().map(|&class| symmetry.capacities[class as usize]).collect();
        let mut latencies = vec![0; links.len()];
        let mut local = vec![0; symmetry.capacities.len()];
        (0..).zip(&links).for_each(|(place, &class)| local[class as usize] = place);
        for (arc, &class) in trunk.arcs().iter().zip(&symmetry.classes) {
            let place = local[class as usize];
            if links.get(place as usize) == Some(&class) {
                latencies[place as usize] = arc.latency;
            }
        }
        let bound = match &mut self.detours {
            Some(detours) => {
                let mut oracle = ByWay { detours, demands, latencies: &latencies };
                balance(&capacities, floor, &mut commodities, &mut oracle)
            }
            None => {
                let mut oracle =
                    Shortest { ways: &all_ways, costs: Vec::new(), latencies: &latencies };
                balance(&capacities, floor, &mut commodities, &mut oracle)
            }
        };
        Split { bound, commodities, links }
    }
}

fn latency(path: &[u32], latencies: &[u64]) -> u64 {
    path.iter().map(|&link| latencies[link as usize]).sum()
}

struct Shortest<'a> {
    ways: &'a [Ways],
    costs: Vec<(f64, u32)>,
    latencies: &'a [u64],
}

impl Oracle for Shortest<'_> {
    fn cheapest(&mut self, commodity: usize, prices: &[f64], path: &mut Vec<u32>) -> (f64, u64) {
        let cost = self.ways[commodity].cheapest(prices, &mut self.costs, path);
        (cost, latency(path, self.latencies))
    }
}

struct ByWay<'a> {
    detours: &'a mut Detours,
    demands: &'a [Demand],
    latencies: &'a [u64],
}

impl Oracle for ByWay<'_> {
    fn prices(&mut self, prices: &[f64]) {
        self.detours.set_prices(prices);
    }

    fn cheapest(&mut self, commodity: usize, prices: &[f64], path: &mut Vec<u32>) -> (f64, u64) {
        let Demand { from, to, .. } = self.demands[commodity];
        let cost = self.detours.cheapest(prices, from, to, path);
        (cost, latency(path, self.latencies))
    }
}
