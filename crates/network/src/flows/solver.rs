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
//! Flows over the same entries (the same [`Arc`]) have the same rate, and are one to the filling: a *bundle*, with
//! their number as a factor of its weights. An update costs what its bundles do, however many flows they have.
//!
//! Beside it, [`oracle`](super::oracle) fills everything anew; a property test compares the two.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

/// A resource, and how much of it a flow takes for each unit of its rate.
pub type Entry = (u32, f64);

/// Rates and levels closer than this are one: rounding must not leave a flow out.
const MARGIN: f64 = 1e-9;
/// A rate that moves by less stays as it is.
const STILL: f64 = 1e-12;

#[derive(Clone, Debug)]
struct Bundle {
    entries: Arc<[Entry]>,
    /// How many flows it has.
    flows: f64,
    /// Infinite until the first update.
    rate: f64,
    /// The last filling that it was part of.
    filling: u64,
    frozen: bool,
}

#[derive(Clone, Debug, Default)]
struct Resource {
    capacity: f64,
    /// Bundles, with the weight of each of their flows.
    bundles: Vec<(u32, f64)>,
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
    bundles: Vec<Bundle>,
    /// The bundle over entries at each address; it keeps them there.
    known: HashMap<usize, u32>,
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
            bundles: Vec::new(),
            known: HashMap::new(),
            unused: Vec::new(),
            fresh: Vec::new(),
            left: Vec::new(),
            lowest: f64::INFINITY,
            filling: 0,
            changed: Vec::new(),
        }
    }

    /// A flow over these resources, each named once, with positive weights. Its rate is known after
    /// the next update. Returns the number of its bundle, which is that of all flows over these very entries.
    ///
    /// # Panics
    /// It uses no resource.
    pub fn add(&mut self, entries: Arc<[Entry]>) -> u32 {
        assert!(!entries.is_empty(), "a flow uses a resource");
        let address = entries.as_ptr().addr();
        if let Some(&id) = self.known.get(&address) {
            self.bundles[id as usize].flows += 1.0;
            self.fresh.push(id);
            return id;
        }
        let id = self.unused.pop().unwrap_or(self.bundles.len() as u32);
        self.known.insert(address, id);
        for &(resource, weight) in &*entries {
            self.resources[resource as usize].bundles.push((id, weight));
        }
        let bundle = Bundle { entries, flows: 1.0, rate: f64::INFINITY, filling: 0, frozen: false };
        if id as usize == self.bundles.len() {
            self.bundles.push(bundle);
        } else {
            self.bundles[id as usize] = bundle;
        }
        self.fresh.push(id);
        id
    }

    /// Takes a flow of a bundle away; with its last one, the number is free for another bundle.
    pub fn remove(&mut self, id: u32) {
        let bundle = &mut self.bundles[id as usize];
        if bundle.rate.is_finite() {
            self.lowest = self.lowest.min(bundle.rate);
            self.left.extend(bundle.entries.iter().map(|&(resource, _)| resource));
        }
        bundle.flows -= 1.0;
        if bundle.flows > 0.0 {
            return;
        }
        for &(resource, _) in &*bundle.entries {
            let bundles = &mut self.resources[resource as usize].bundles;
            let place = bundles.iter().position(|&(other, _)| other == id);
            bundles.swap_remove(place.expect("a bundle is listed by its resources"));
        }
        self.known.remove(&bundle.entries.as_ptr().addr());
        self.fresh.retain(|&other| other != id);
        self.unused.push(id);
    }

    /// The rate of each flow of a bundle, as of the last update.
    #[must_use]
    pub fn rate(&self, id: u32) -> f64 {
        self.bundles[id as usize].rate
    }

    /// The bundles whose rates the last update changed. A flow that came to a bundle may have found it at its rate.
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
            let bundle = &mut self.bundles[id as usize];
            if bundle.filling == self.filling {
                return false;
            }
            let resources = &self.resources;
            let alone = |&(resource, _): &Entry| resources[resource as usize].bundles.len() == 1;
            if !bundle.entries.iter().all(alone) {
                return true;
            }
            let limits = bundle.entries.iter().map(|&(resource, weight)| {
                resources[resource as usize].capacity / (weight * bundle.flows)
            });
            bundle.rate = limits.fold(f64::INFINITY, f64::min);
            (bundle.filling, bundle.frozen) = (self.filling, true);
            self.changed.push(id);
            false
        });
        for &id in &fresh {
            for &(number, _) in &*self.bundles[id as usize].entries {
                let resource = &mut self.resources[number as usize];
                if resource.looked_at != self.filling {
                    resource.looked_at = self.filling;
                    level = level.min(full_at(resource, &self.bundles));
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
        let Self { resources, bundles, filling, .. } = self;
        let mut queue = std::mem::take(&mut self.left);
        queue.retain(|&number| {
            let resource = &mut resources[number as usize];
            let known = resource.filling == *filling;
            // Who got a rate above is not to be filled.
            let settled = match resource.bundles[..] {
                [] => true,
                [(bundle, _)] => bundles[bundle as usize].filling == *filling,
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
            for place in 0..resources[resource].bundles.len() {
                let bundle = &mut bundles[resources[resource].bundles[place].0 as usize];
                if bundle.filling == *filling || bundle.rate < level {
                    continue;
                }
                (bundle.filling, bundle.frozen) = (*filling, false);
                for &(other, _) in &*bundle.entries {
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
            weigh(resource, bundles, *filling);
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
                weigh(resource, &self.bundles, self.filling);
                full = resource.left / resource.rising;
            }
            if full > key * (1.0 + MARGIN) {
                heap.push(Reverse((full.to_bits(), number)));
                continue;
            }
            now = now.max(full);
            for place in 0..self.resources[number as usize].bundles.len() {
                let id = self.resources[number as usize].bundles[place].0;
                let bundle = &mut self.bundles[id as usize];
                if bundle.filling != self.filling || bundle.frozen {
                    continue;
                }
                bundle.frozen = true;
                for &(other, weight) in &*bundle.entries {
                    let (other, weight) =
                        (&mut self.resources[other as usize], weight * bundle.flows);
                    other.left -= weight * now;
                    other.rising -= weight;
                    other.count -= 1;
                }
                let still = (now - bundle.rate).abs() <= STILL * now;
                if !still {
                    bundle.rate = now;
                    self.changed.push(id);
                }
            }
        }
    }
}

/// The level at which a resource is full if flows below it keep their rates; no more than the true one.
fn full_at(resource: &Resource, bundles: &[Bundle]) -> f64 {
    let mut level = 0.0;
    loop {
        let (mut left, mut rising) = (resource.capacity, 0.0);
        for &(bundle, weight) in &resource.bundles {
            let Bundle { rate, flows, .. } = bundles[bundle as usize];
            if rate < level {
                left -= weight * flows * rate;
            } else {
                rising += weight * flows;
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
fn weigh(resource: &mut Resource, bundles: &[Bundle], filling: u64) {
    (resource.left, resource.rising, resource.count) = (resource.capacity, 0.0, 0);
    for &(bundle, weight) in &resource.bundles {
        let bundle = &bundles[bundle as usize];
        let weight = weight * bundle.flows;
        if bundle.filling == filling && !bundle.frozen {
            resource.rising += weight;
            resource.count += 1;
        } else {
            resource.left -= weight * bundle.rate;
        }
    }
}
