//! Flows to one node from all that have something to give, until it has enough.
//!
//! What is asked for is mostly near, so the search goes backwards from the sink and ends at the nearest nodes that can
//! give (Dinitz's algorithm, level by level); what it touched is put back afterwards. A search costs what it touches,
//! not the network.

use super::network::Network;

/// What a node can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supply {
    /// This much, in scaled units.
    Limited(u128),
    /// Whatever is asked for.
    Unlimited,
}

const FAR: u32 = u32::MAX;

/// A network whose arcs have `scale` times their capacity, and what its nodes can give.
pub(crate) struct Flow<'n> {
    network: &'n Network,
    scale: u128,
    supplies: Vec<Supply>,
    /// What each arc and each node has left in this flow.
    left: Vec<u128>,
    spare: Vec<u128>,
    touched: Vec<u32>,
    drawn: Vec<u32>,
    /// Steps from the sink, for the nodes in `reached`.
    level: Vec<u32>,
    reached: Vec<u32>,
    /// How many of a node's arcs the walk has done with.
    tried: Vec<u32>,
}

impl<'n> Flow<'n> {
    pub(crate) fn new(network: &'n Network, supplies: Vec<Supply>) -> Self {
        let nodes = network.nodes();
        let mut flow = Self {
            network,
            scale: 1,
            supplies,
            left: Vec::new(),
            spare: vec![0; nodes],
            touched: Vec::new(),
            drawn: Vec::new(),
            level: vec![FAR; nodes],
            reached: Vec::new(),
            tried: vec![0; nodes],
        };
        flow.rescale(1);
        for node in 0..nodes as u32 {
            flow.give(node, flow.supplies[node as usize]);
        }
        flow
    }

    /// Gives every arc `scale` times its capacity.
    pub(crate) fn rescale(&mut self, scale: u128) {
        self.scale = scale;
        let network = self.network;
        self.left = (0..network.arcs()).map(|arc| network.capacity(arc) * scale).collect();
    }

    /// Sets what a node can give.
    pub(crate) fn give(&mut self, node: u32, supply: Supply) {
        self.supplies[node as usize] = supply;
        self.spare[node as usize] = match supply {
            Supply::Limited(most) => most,
            Supply::Unlimited => u128::MAX,
        };
    }

    /// How much of `wanted` reaches `sink`. Where it is less, [`Flow::cut_off`] is the set that keeps the rest out.
    pub(crate) fn reach(&mut self, sink: u32, wanted: u128) -> u128 {
        self.put_back();
        let mut got = 0;
        while got < wanted {
            let Some(depth) = self.search(sink) else { break };
            got += self.augment(sink, depth, wanted - got);
        }
        got
    }

    /// After [`Flow::reach`] got less than was wanted: the nodes from which something more could have come, the sink
    /// among them. What enters them is full, and what they can give is given.
    pub(crate) fn cut_off(&self) -> &[u32] {
        &self.reached
    }

    fn put_back(&mut self) {
        for arc in self.touched.drain(..) {
            self.left[arc as usize] = self.network.capacity(arc) * self.scale;
        }
        for node in self.drawn.drain(..) {
            if let Supply::Limited(most) = self.supplies[node as usize] {
                self.spare[node as usize] = most;
            }
        }
    }

    /// The distance of the nearest node that can give.
    fn search(&mut self, sink: u32) -> Option<u32> {
        for node in self.reached.drain(..) {
            self.level[node as usize] = FAR;
            self.tried[node as usize] = 0;
        }
        self.level[sink as usize] = 0;
        self.reached.push(sink);
        let mut nearest = None;
        let mut at = 0;
        while at < self.reached.len() {
            let node = self.reached[at];
            let level = self.level[node as usize];
            if nearest.is_some_and(|nearest| level > nearest) {
                break;
            }
            if self.spare[node as usize] > 0 {
                nearest = nearest.or(Some(level));
            }
            if nearest.is_none() {
                for &arc in self.network.leaving(node) {
                    let before = self.network.head(arc) as usize;
                    if self.left[(arc ^ 1) as usize] > 0 && self.level[before] == FAR {
                        self.level[before] = level + 1;
                        self.reached.push(before as u32);
                    }
                }
            }
            at += 1;
        }
        nearest
    }

    /// Draws up to `wanted` from nodes `depth` steps from the sink.
    fn augment(&mut self, sink: u32, depth: u32, wanted: u128) -> u128 {
        let mut got = 0;
        // The arcs from where the walk is to the sink, the last one first.
        let mut path: Vec<u32> = Vec::new();
        let mut node = sink;
        loop {
            if self.level[node as usize] == depth && self.spare[node as usize] > 0 {
                let room = path.iter().map(|arc| self.left[*arc as usize]).min();
                let more =
                    room.unwrap_or(u128::MAX).min(self.spare[node as usize]).min(wanted - got);
                self.draw(node, &path, more);
                got += more;
                if got == wanted {
                    return got;
                }
                // On from the first arc, seen from the sink, that is full.
                let full = path.iter().position(|arc| self.left[*arc as usize] == 0);
                if let Some(full) = full {
                    path.truncate(full);
                    node = path.last().map_or(sink, |arc| self.network.tail(*arc));
                }
                if self.level[node as usize] < depth || self.spare[node as usize] > 0 {
                    continue;
                }
            } else if let Some(arc) = self.step(node, depth) {
                path.push(arc);
                node = self.network.tail(arc);
                continue;
            }
            // A dead end: back, and past the arc that led here.
            let Some(arc) = path.pop() else { return got };
            node = self.network.head(arc);
            self.tried[node as usize] += 1;
        }
    }

    /// An arc with room into `node` from one step farther.
    fn step(&mut self, node: u32, depth: u32) -> Option<u32> {
        let level = self.level[node as usize];
        if level >= depth {
            return None;
        }
        let leaving = self.network.leaving(node);
        while let Some(&arc) = leaving.get(self.tried[node as usize] as usize) {
            let before = self.network.head(arc) as usize;
            if self.left[(arc ^ 1) as usize] > 0 && self.level[before] == level + 1 {
                return Some(arc ^ 1);
            }
            self.tried[node as usize] += 1;
        }
        None
    }

    fn draw(&mut self, node: u32, path: &[u32], amount: u128) {
        if let Supply::Limited(_) = self.supplies[node as usize] {
            self.spare[node as usize] -= amount;
            self.drawn.push(node);
        }
        for &arc in path {
            self.left[arc as usize] -= amount;
            self.left[(arc ^ 1) as usize] += amount;
            self.touched.extend([arc, arc ^ 1]);
        }
    }
}
