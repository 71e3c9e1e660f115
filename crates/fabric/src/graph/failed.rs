//! A graph without the parts of it that have failed.
//!
//! What is left keeps its order and is numbered anew: NPUs first, then switches. A failed node takes
//! its cables with it; a failed link is one cable, both ways, and of parallel ones the first that is
//! left.

use allrail_core::{FieldError, counted};

use super::{Builder, Graph, NodeId};

impl Graph {
    /// What is left without `nodes` and without a cable for each of `links`. `name` is what a node is
    /// called in errors.
    ///
    /// # Errors
    /// A node or a link is not there or stands twice, no NPU is left, or NPUs cannot reach each other.
    pub fn without(
        &self,
        nodes: &[NodeId],
        links: &[[NodeId; 2]],
        name: impl Fn(NodeId) -> String,
    ) -> Result<Graph, FieldError> {
        let mut works = vec![true; self.nodes()];
        for (i, &node) in nodes.iter().enumerate() {
            let field = format!("fabric.failed_nodes[{i}]");
            match works.get_mut(node.index()) {
                None => return Err(self.no_node(field, node)),
                Some(works) if !*works => {
                    let why = "the node stands twice";
                    return Err(FieldError::new(field, name(node), why, "name each node once"));
                }
                Some(works) => *works = false,
            }
        }
        let mut laid = vec![true; self.cables().len()];
        for (i, &[one, other]) in links.iter().enumerate() {
            let field = format!("fabric.failed_links[{i}]");
            if let Some(&none) = [one, other].iter().find(|node| node.index() >= self.nodes()) {
                return Err(self.no_node(field, none));
            }
            let between = self.neighbours(one).iter().filter(|(next, _)| *next == other);
            let mut cables = between.map(|(_, link)| *link as usize / 2).peekable();
            let why = match cables.peek() {
                None => "no cable joins them",
                Some(_) => "fewer cables join them than are named",
            };
            let Some(cable) = cables.find(|&cable| laid[cable]) else {
                let value = format!("{} to {}", name(one), name(other));
                return Err(FieldError::new(field, value, why, "name a cable that is there"));
            };
            laid[cable] = false;
        }
        self.rest(&works, &laid, name)
    }

    fn rest(
        &self,
        works: &[bool],
        laid: &[bool],
        name: impl Fn(NodeId) -> String,
    ) -> Result<Graph, FieldError> {
        let (npus, switches) = works.split_at(self.npus() as usize);
        let left = |part: &[bool]| part.iter().filter(|works| **works).count() as u32;
        let mut builder = Builder::new(left(npus));
        for _ in 0..left(switches) {
            builder.switch();
        }
        let old: Vec<NodeId> = (0u32..)
            .zip(works)
            .filter(|(_, works)| **works)
            .map(|(node, _)| NodeId(node))
            .collect();
        let mut new = vec![None; self.nodes()];
        for (number, node) in (0u32..).zip(&old) {
            new[node.index()] = Some(NodeId(number));
        }
        for (cable, _) in self.cables().iter().zip(laid).filter(|(_, laid)| **laid) {
            if let [Some(one), Some(other)] = cable.ends.map(|end| new[end.index()]) {
                builder.parallel(one, other, cable.kind, cable.wire)?;
            }
        }
        if old.first().is_none_or(|first| first.0 >= self.npus()) {
            return Err(FieldError::new(
                "fabric.failed_nodes",
                counted(self.npus(), "NPU"),
                "every NPU has failed, and one must work",
                "name fewer nodes",
            ));
        }
        let graph = builder.join();
        if let Some(stranded) = super::measure::unreachable(&graph) {
            let [from, to] = [NodeId(0), stranded].map(|node| name(old[node.index()]));
            return Err(FieldError::new(
                "fabric",
                format!("NPU {to}"),
                format!("no path leads to it from NPU {from} past the failed parts"),
                "name fewer failed nodes and links, or the stranded NPUs too",
            ));
        }
        Ok(graph)
    }

    fn no_node(&self, field: String, node: NodeId) -> FieldError {
        let (npus, nodes) = (self.npus(), self.nodes());
        let hint = match nodes - npus as usize {
            0 => format!("the NPUs are 0 to {}", npus - 1),
            _ => format!("the NPUs are 0 to {}, the switches {npus} to {}", npus - 1, nodes - 1),
        };
        FieldError::new(field, node.0, "there is no such node", hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{CableKind, Wire};

    /// NPUs 0, 1, 2 at switches 3 and 4; two cables from NPU 2 to switch 4.
    fn graph() -> Graph {
        let mut builder = Builder::new(3);
        let hubs = [builder.switch(), builder.switch()];
        for npu in (0..3).map(NodeId) {
            for hub in hubs {
                builder.cable(npu, hub, CableKind::Dac, Wire::cable()).expect("a cable");
            }
        }
        builder.parallel(NodeId(2), hubs[1], CableKind::Aoc, Wire::cable()).expect("a cable");
        builder.build().expect("a graph")
    }

    fn without(nodes: &[u32], links: &[[u32; 2]]) -> Result<Graph, FieldError> {
        let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
        let links: Vec<_> = links.iter().map(|ends| ends.map(NodeId)).collect();
        graph().without(&nodes, &links, |node| node.0.to_string())
    }

    #[test]
    fn the_rest_is_numbered_anew() {
        let rest = without(&[0, 3], &[]).expect("a graph");
        assert_eq!((rest.npus(), rest.switches(), rest.cables().len()), (2, 1, 3));
        assert_eq!(rest.neighbours(NodeId(0)), [(NodeId(2), 0)]);
        assert_eq!(without(&[], &[]).expect("a graph").cables(), graph().cables());
    }

    #[test]
    fn a_failed_link_is_one_cable() {
        assert_eq!(without(&[], &[[2, 4]]).expect("a graph").cables().len(), 6);
        assert_eq!(without(&[], &[[2, 4], [4, 2]]).expect("a graph").cables().len(), 5);
        let third = without(&[], &[[2, 4], [4, 2], [2, 4]]).expect_err("there are two");
        assert_eq!((&*third.field, &*third.value), ("fabric.failed_links[2]", "2 to 4"));
        assert!(without(&[], &[[0, 1]]).expect_err("no such cable").why.contains("no cable"));
    }

    #[test]
    fn refuses_what_is_not_there_and_what_falls_apart() {
        for (nodes, links, field, value) in [
            (&[5][..], &[][..], "fabric.failed_nodes[0]", "5"),
            (&[1, 1], &[], "fabric.failed_nodes[1]", "1"),
            (&[], &[[0, 9]], "fabric.failed_links[0]", "9"),
            (&[0, 1, 2], &[], "fabric.failed_nodes", "3 NPUs"),
            (&[0, 3], &[[1, 4]], "fabric", "NPU 2"),
        ] {
            let error = without(nodes, links).expect_err("it is refused");
            assert_eq!((&*error.field, &*error.value), (field, value));
        }
    }
}
