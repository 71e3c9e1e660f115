//! Max-min fair sharing, incrementally. It knows resources and flows, nothing of networks.
//!
//! A resource has a capacity. A flow uses some of them: at rate `x` it takes `weight · x` of each. All
//! rates rise together from 0; when a resource is full, its flows stop rising, at its *level*; the
//! others go on. The result is max-min fair: nobody can have more without taking from someone who
//! has no more.
//!
//! What a change can affect follows from the filling. Up to the lowest rate of those that leave, and
//! up to the lowest level at which a resource of those that come may now be full, it goes as before.
//! So [`Solver::update`] starts again at that level, with the flows that had at least as much, and of
//! these only with those that a chain of shared resources joins to a change. Flows of equal size that
//! start together end in the order of their rates, fastest first, and an end then touches next to
//! nothing. Whatever changes at one instant is one update.
//!
//! Beside it, [`oracle`](super::oracle) fills everything anew; a property test compares the two.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// A resource, and how much of it a flow takes for each unit of its rate.
pub type Entry = (u32, f64);

/// Rates and levels closer than this are one: rounding must not leave a flow out.
const MARGIN: f64 = 1e-9;
/// A rate that moves by less stays as it is.
const STILL: f64 = 1e-12;

#[derive(Clone, Debug)]
struct Flow {
    entries: Arc<[Entry]>,
    /// Infinite until the first update.
    rate: f64,
    /// The last filling that it was part of.
    filling: u64,
    frozen: bool,
}

#[derive(Clone, Debug, Default)]
struct Resource {
    capacity: f64,
    /// Flows, with their weights.
    flows: Vec<(u32, f64)>,
    /// Of the filling: what is left of the capacity, and who still rises.
    left: f64,
    rising: f64,
    count: u32,
    /// The last filling that it was part of.
    filling: u64,
    /// The last filling for which its new level was looked at.
    looked_at: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Solver {
    resources: Vec<Resource>,
    flows: Vec<Flow>,
    unused: Vec<u32>,
    /// Come since the last update.
    fresh: Vec<u32>,
    /// Resources that flows have left since.
    left: Vec<u32>,
    /// The lowest rate of those that left.
    lowest: f64,
    filling: u64,
    changed: Vec<u32>,
}

impl Solver {
    /// Resources of these capacities, all positive.
    #[must_use]
    pub fn new(capacities: &[f64]) -> Self {
        let resource = |&capacity| Resource { capacity, ..Resource::default() };
        Self {
            resources: capacities.iter().map(resource).collect(),
            flows: Vec::new(),
            unused: Vec::new(),
            fresh: Vec::new(),
            left: Vec::new(),
            lowest: f64::INFINITY,
            filling: 0,
            changed: Vec::new(),
        }
    }

    /// A flow over these resources, each named once, with positive weights. Its rate is known after
    /// the next update.
    ///
    /// # Panics
    /// It uses no resource.
    pub fn add(&mut self, entries: Arc<[Entry]>) -> u32 {
        assert!(!entries.is_empty(), "a flow uses a resource");
        let id = self.unused.pop().unwrap_or(self.flows.len() as u32);
        for &(resource, weight) in &*entries {
            self.resources[resource as usize].flows.push((id, weight));
        }
        let flow = Flow { entries, rate: f64::INFINITY, filling: 0, frozen: false };
        if id as usize == self.flows.len() {
            self.flows.push(flow);
        } else {
            self.flows[id as usize] = flow;
        }
        self.fresh.push(id);
        id
    }

    /// Takes a flow away; its number is free for another.
    pub fn remove(&mut self, id: u32) {
        let flow = &self.flows[id as usize];
        for &(resource, _) in &*flow.entries {
            let flows = &mut self.resources[resource as usize].flows;
            let place = flows.iter().position(|&(other, _)| other == id);
            flows.swap_remove(place.expect("a flow is listed by its resources"));
        }
        if flow.rate.is_finite() {
            self.lowest = self.lowest.min(flow.rate);
            self.left.extend(flow.entries.iter().map(|&(resource, _)| resource));
        } else {
            self.fresh.retain(|&other| other != id);
        }
        self.unused.push(id);
    }

    /// The rate of a flow, as of the last update.
    #[must_use]
    pub fn rate(&self, id: u32) -> f64 {
        self.flows[id as usize].rate
    }

    /// The flows whose rates the last update changed.
    #[must_use]
    pub fn changed(&self) -> &[u32] {
        &self.changed
    }

    /// Shares anew.
    pub fn update(&mut self) {
        self.changed.clear();
        self.filling += 1;
        let level = self.level();
        let mut heap = self.reach(level);
        self.fill(level, &mut heap);
        self.lowest = f64::INFINITY;
    }

    /// Where the filling starts again. Flows that share nothing get their rates here.
    fn level(&mut self) -> f64 {
        let (mut level, mut fresh) = (self.lowest, std::mem::take(&mut self.fresh));
        fresh.retain(|&id| {
            let flow = &mut self.flows[id as usize];
            let alone = |&(resource, _): &Entry| self.resources[resource as usize].flows.len() == 1;
            if !flow.entries.iter().all(alone) {
                return true;
            }
            let limits = flow.entries.iter();
            flow.rate = limits
                .map(|&(resource, weight)| self.resources[resource as usize].capacity / weight)
                .fold(f64::INFINITY, f64::min);
            (flow.filling, flow.frozen) = (self.filling, true);
            self.changed.push(id);
            false
        });
        for &id in &fresh {
            for &(number, _) in &*self.flows[id as usize].entries {
                let resource = &mut self.resources[number as usize];
                if resource.looked_at != self.filling {
                    resource.looked_at = self.filling;
                    level = level.min(full_at(resource, &self.flows));
                    self.left.push(number);
                }
            }
        }
        fresh.clear();
        self.fresh = fresh;
        level * (1.0 - MARGIN)
    }

    /// Finds the flows of at least `level` that a change may reach, and sets them rising; returns
    /// the resources that they use, by the level at which each would be full.
    fn reach(&mut self, level: f64) -> BinaryHeap<Reverse<(u64, u32)>> {
        let Self { resources, flows, filling, .. } = self;
        let mut queue = std::mem::take(&mut self.left);
        queue.retain(|&number| {
            let resource = &mut resources[number as usize];
            let known = resource.filling == *filling;
            // Who got a rate above is not to be filled.
            let settled = match resource.flows[..] {
                [] => true,
                [(flow, _)] => flows[flow as usize].filling == *filling,
                _ => false,
            };
            if !known && !settled {
                resource.filling = *filling;
            }
            !known && !settled
        });
        let mut head = 0;
        while let Some(&number) = queue.get(head) {
            head += 1;
            let resource = number as usize;
            for place in 0..resources[resource].flows.len() {
                let flow = &mut flows[resources[resource].flows[place].0 as usize];
                if flow.filling == *filling || flow.rate < level {
                    continue;
                }
                (flow.filling, flow.frozen) = (*filling, false);
                for &(other, _) in &*flow.entries {
                    if resources[other as usize].filling != *filling {
                        resources[other as usize].filling = *filling;
                        queue.push(other);
                    }
                }
            }
        }
        let mut keys = Vec::with_capacity(queue.len());
        for number in queue.drain(..) {
            let resource = &mut resources[number as usize];
            weigh(resource, flows, *filling);
            if resource.count > 0 {
                keys.push(Reverse(((resource.left / resource.rising).max(0.0).to_bits(), number)));
            }
        }
        self.left = queue;
        BinaryHeap::from(keys)
    }

    /// Raises what rises until all of it is frozen. A resource's level only rises while others
    /// freeze, so a key that is out of date is too low, and is put back.
    fn fill(&mut self, level: f64, heap: &mut BinaryHeap<Reverse<(u64, u32)>>) {
        let mut now = if level.is_finite() { level } else { 0.0 };
        while let Some(Reverse((key, number))) = heap.pop() {
            let key = f64::from_bits(key);
            let resource = &mut self.resources[number as usize];
            if resource.count == 0 {
                continue;
            }
            let mut full = resource.left / resource.rising;
            if full <= key * (1.0 + MARGIN) {
                // Sums that were only subtracted from may have drifted.
                weigh(resource, &self.flows, self.filling);
                full = resource.left / resource.rising;
            }
            if full > key * (1.0 + MARGIN) {
                heap.push(Reverse((full.to_bits(), number)));
                continue;
            }
            now = now.max(full);
            for place in 0..self.resources[number as usize].flows.len() {
                let id = self.resources[number as usize].flows[place].0;
                let flow = &mut self.flows[id as usize];
                if flow.filling != self.filling || flow.frozen {
                    continue;
                }
                flow.frozen = true;
                for &(other, weight) in &*flow.entries {
                    let other = &mut self.resources[other as usize];
                    other.left -= weight * now;
                    other.rising -= weight;
                    other.count -= 1;
                }
                let still = (now - flow.rate).abs() <= STILL * now;
                if !still {
                    flow.rate = now;
                    self.changed.push(id);
                }
            }
        }
    }
}

/// The level at which a resource is full if flows below it keep their rates; no more than the true one.
fn full_at(resource: &Resource, flows: &[Flow]) -> f64 {
    let mut level = 0.0;
    loop {
        let (mut left, mut rising) = (resource.capacity, 0.0);
        for &(flow, weight) in &resource.flows {
            let rate = flows[flow as usize].rate;
            if rate < level {
                left -= weight * rate;
            } else {
                rising += weight;
            }
        }
        let next = left / rising;
        if next <= level * (1.0 + MARGIN) {
            return level;
        }
        level = next;
    }
}

/// Sums a resource up: what those that do not rise have left, and who rises.
fn weigh(resource: &mut Resource, flows: &[Flow], filling: u64) {
    (resource.left, resource.rising, resource.count) = (resource.capacity, 0.0, 0);
    for &(flow, weight) in &resource.flows {
        let flow = &flows[flow as usize];
        if flow.filling == filling && !flow.frozen {
            resource.rising += weight;
            resource.count += 1;
        } else {
            resource.left -= weight * flow.rate;
        }
    }
}
