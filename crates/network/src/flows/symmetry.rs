//! Which shift of all NPUs maps a network onto itself, and what that makes equal.
//!
//! A torus is the same after a shift by one row of boards, a `HammingMesh` too, a dragonfly after a
//! shift by one group. Traffic that the shift leaves alone has a best splitting that it leaves alone,
//! too (the mean of a best one over all shifts is as good), and so has ECMP, which depends on nothing
//! but the network. Then all arcs of one orbit carry the same: one *class* of links, with the sum of
//! their capacities, and one of the messages of an orbit stands for all of it.
//!
//! A shift is found by trial: it is extended from NPUs to switches by whom they join, level by level,
//! and every arc is checked. A shift that is missed costs time, not truth.

use std::collections::HashMap;

use allrail_fabric::graph::trunk::Trunk;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Symmetry {
    /// The smallest shift; the number of NPUs if there is none.
    pub(super) shift: u32,
    /// The class of each arc.
    pub(super) classes: Vec<u32>,
    /// Bytes a second, of each class.
    pub(super) capacities: Vec<f64>,
    /// How many arcs each class has.
    pub(super) sizes: Vec<u32>,
}

impl Symmetry {
    /// Every arc on its own.
    pub(super) fn none(trunk: &Trunk) -> Self {
        Self {
            shift: trunk.npus(),
            classes: (0..trunk.arcs().len() as u32).collect(),
            capacities: trunk.arcs().iter().map(|arc| arc.capacity).collect(),
            sizes: vec![1; trunk.arcs().len()],
        }
    }

    /// The smallest shift of the network.
    pub(super) fn new(trunk: &Trunk) -> Self {
        let npus = trunk.npus();
        let shifts = (1..npus).filter(|shift| npus.is_multiple_of(*shift));
        let found = shifts.into_iter().find_map(|shift| Some((shift, images(trunk, shift)?)));
        let Some((shift, images)) = found else { return Self::none(trunk) };
        let mut symmetry = Self {
            shift,
            classes: vec![u32::MAX; images.len()],
            capacities: Vec::new(),
            sizes: Vec::new(),
        };
        for arc in 0..images.len() {
            if symmetry.classes[arc] != u32::MAX {
                continue;
            }
            let (mut next, mut size) = (arc, 0);
            while symmetry.classes[next] == u32::MAX {
                symmetry.classes[next] = symmetry.sizes.len() as u32;
                next = images[next] as usize;
                size += 1;
            }
            symmetry.capacities.push(f64::from(size) * trunk.arcs()[arc].capacity);
            symmetry.sizes.push(size);
        }
        symmetry
    }
}

/// What of an arc must be the same after a shift.
fn likeness(trunk: &Trunk, arc: usize) -> (u32, u64, u64) {
    let arc = &trunk.arcs()[arc];
    (arc.cables, arc.capacity.to_bits(), arc.latency)
}

/// Where the shift takes each arc; `None` if it does not map the network onto itself.
fn images(trunk: &Trunk, shift: u32) -> Option<Vec<u32>> {
    let nodes = nodes(trunk, shift)?;
    let mut images = vec![0; trunk.arcs().len()];
    let mut arc_to = vec![usize::MAX; trunk.nodes()];
    for node in 0..trunk.nodes() as u32 {
        let image = trunk.leaving(nodes[node as usize]);
        if image.len() != trunk.leaving(node).len() {
            return None;
        }
        for arc in image.clone() {
            arc_to[trunk.arcs()[arc].to as usize] = arc;
        }
        for arc in trunk.leaving(node) {
            let to = arc_to[nodes[trunk.arcs()[arc].to as usize] as usize];
            if !image.contains(&to) || likeness(trunk, arc) != likeness(trunk, to) {
                return None;
            }
            images[arc] = u32::try_from(to).expect("fewer than 2^32 arcs");
        }
    }
    let mut hit = vec![false; images.len()];
    images.iter().for_each(|&image| hit[image as usize] = true);
    hit.into_iter().all(|hit| hit).then_some(images)
}

/// Where the shift takes each node: NPUs by number, switches by whom they join.
fn nodes(trunk: &Trunk, shift: u32) -> Option<Vec<u32>> {
    let npus = trunk.npus();
    let mut images = vec![u32::MAX; trunk.nodes()];
    let mut known = Vec::new();
    for npu in 0..npus {
        let image = (npu + shift) % npus;
        match (trunk.access(npu), trunk.access(image)) {
            (None, None) => known.push((npu, image)),
            (Some(a), Some(b)) if (a.capacity, a.latency) == (b.capacity, b.latency) => {
                images[npu as usize] = image;
                known.push((trunk.host(npu), trunk.host(image)));
            }
            _ => return None,
        }
    }
    while !known.is_empty() {
        for (node, image) in known.drain(..) {
            if images[node as usize] != u32::MAX && images[node as usize] != image {
                return None;
            }
            images[node as usize] = image;
        }
        // The switches that join what is known, by its images, and by itself.
        let unknown: Vec<u32> = (npus..trunk.nodes() as u32)
            .filter(|&node| images[node as usize] == u32::MAX)
            .collect();
        let joined = |node: u32, image: &dyn Fn(u32) -> u32| {
            let arcs = trunk.leaving(node).filter_map(|arc| {
                let to = trunk.arcs()[arc].to;
                (images[to as usize] != u32::MAX).then(|| (image(to), likeness(trunk, arc)))
            });
            let mut arcs: Vec<_> = arcs.collect();
            arcs.sort_unstable();
            arcs
        };
        let mut targets: HashMap<_, Vec<u32>> = HashMap::new();
        for &node in unknown.iter().rev() {
            targets.entry(joined(node, &|to| to)).or_default().push(node);
        }
        for &node in &unknown {
            let signature = joined(node, &|to| images[to as usize]);
            if !signature.is_empty() {
                known.push((node, targets.get_mut(&signature)?.pop()?));
            }
        }
    }
    images.iter().all(|&image| image != u32::MAX).then_some(images)
}
