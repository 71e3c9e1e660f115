//! What planners see of a composed network: the inside, then what joins domains.

use allrail_core::{Bandwidth, FieldError, counted};

use super::{Composed, Ports, SHORT};
use crate::graph::NodeId;
use crate::wiring::{Ports as Ends, Wiring};
use crate::{Dimension, Kind};

impl Composed {
    /// The inside, and those of the dimensions outside that join domains.
    pub(super) fn product(&self) -> Result<Vec<Dimension>, String> {
        let outside = self.outside().dimensions().map_err(|why| format!("outside, {why}"))?;
        let between = self.between(outside)?.into_iter();
        Ok([self.inside.clone()]
            .into_iter()
            .chain(between.map(|dimension| self.of_an_npu(&dimension)))
            .collect())
    }

    /// The inside, and the domains as one dimension over the cables outside.
    pub(super) fn over_cables(&self) -> Result<Vec<Dimension>, FieldError> {
        if self.domains == 1 {
            return Ok(vec![self.inside.clone()]);
        }
        let outside = self.outside().simulated()?;
        self.check_whole(&outside)?;
        let ports = (0..self.npus()).map(|npu| self.port(npu).0).collect();
        let planes = self.outside().counts().planes;
        let widest = (0..outside.npus()).map(|port| outside.injection(NodeId(port))).max();
        let port = widest.expect("a network outside has ports");
        let all = |one: Bandwidth| one.checked_mul(planes).unwrap_or(one);
        let link = self.port_link.map(|wire| all(wire.bandwidth));
        let part = all(port).fraction(1, u64::from(self.npus_per_port));
        let rate = link.map_or(part, |link| link.min(part));
        let way = self.port_link.map_or(SHORT, |wire| wire.latency);
        let ports = Ends { of: ports, domain: self.inside.size, rate, link, way };
        let cables = Wiring::of_domains(outside, planes, ports);
        Ok(vec![self.inside.clone(), Dimension::over_cables(cables)])
    }

    /// What joins domains, of the dimensions outside.
    fn between(&self, outside: Vec<Dimension>) -> Result<Vec<Dimension>, String> {
        let (mut within, mut between) = (Vec::new(), Vec::new());
        let innermost = match self.ports {
            Ports::ByDomain => self.rails(),
            Ports::ByRail => self.domains,
        };
        let mut left = innermost;
        for dimension in outside {
            let size = dimension.size;
            let (near, far) = if left.is_multiple_of(size) {
                (size, 1)
            } else if dimension.kind == Kind::Switch && size.is_multiple_of(left) {
                (left, size / left)
            } else if left == 1 {
                (1, size)
            } else {
                let of = match self.ports {
                    Ports::ByDomain => "a domain",
                    Ports::ByRail => "a rail",
                };
                return Err(format!(
                    "the {innermost} of {of} are no product of the dimensions outside",
                    innermost = counted(innermost, "port")
                ));
            };
            left /= near;
            for (part, size) in [(&mut within, near), (&mut between, far)] {
                if size > 1 {
                    part.push(Dimension { size, ..dimension.clone() });
                }
            }
        }
        Ok(match self.ports {
            Ports::ByDomain => between,
            Ports::ByRail => within,
        })
    }

    /// A dimension outside for one NPU: its part of its port, and the way to it.
    fn of_an_npu(&self, outside: &Dimension) -> Dimension {
        let sharing = u64::from(self.npus_per_port);
        let planes = self.outside().counts().planes;
        let whole = outside.aggregate().bytes_per_second();
        let own = self.port_link.map(|wire| wire.bandwidth.bytes_per_second() * planes);
        let bandwidth = match own {
            Some(own) if own < whole / sharing => outside.bandwidth.fraction(own, whole),
            _ => outside.bandwidth.fraction(1, sharing),
        };
        let way = self.port_link.map_or(SHORT, |wire| wire.latency).checked_mul(2);
        let latency = way.and_then(|way| outside.latency.checked_add(way));
        Dimension { bandwidth, latency: latency.unwrap_or(outside.latency), ..outside.clone() }
    }
}
