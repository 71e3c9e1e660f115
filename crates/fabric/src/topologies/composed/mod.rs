//! Composed: domains of NPUs joined among themselves (`NVLink`), and any other topology outside.
//!
//! `domains` domains of `inside.size` NPUs each. An NPU reaches the network outside by a port, a network
//! interface, which it has to itself or shares with `npus_per_port − 1` neighbours. The ports of all
//! domains are what the topology `outside` calls its NPUs, so
//!
//! ```text
//! domains · inside.size / npus_per_port = NPUs of `outside`
//! ```
//!
//! and NPU `i` of domain `d` is the NPU `d · inside.size + i`. A domain need not be a node: 72 GPUs of a
//! rack in one domain with an interface for each four are `size: 72`, `npus_per_port: 4`.
//!
//! Ports are numbered domain by domain, or rail by rail: the first port of every domain, then the second
//! of every domain, as in rail-optimised pods, where a leaf joins ports of the same rail.
//!
//! In the graph a port is a node between its NPUs and the cables outside. Packets may pass through a
//! domain where that is as short: over `NVLink` to the NPU on the destination's rail, then out.
//!
//! To planners the first dimension is the inside. The others are those of `outside`, without what lies
//! within one domain, each NPU with its part of its port: of a switch the NPUs of a domain are cut away,
//! a ring or a row is either within a domain or outside of it. With ports by rail, they are what joins
//! the ports of one rail. Where `outside` has no dimensions, or domains are no product of them, there is one
//! that joins the domains, counted over the cables ([`crate::wiring`]).
//!
//! Switches inside and ports are not priced: they come with the node, as traces come with the board.
//! Where `outside` has planes, each has its port at every NPU and an equal part of the inside.
//!
//! What it ignores: that a node's NPUs share a processor and its memory.

mod planned;

use std::sync::Arc;

use allrail_core::{FieldError, Time, counted, either};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::checks;
use super::drawing::Drawing;
use super::topology::{Counts, GraphTopology};
use crate::dimension::SMALLEST;
use crate::graph::{Builder, CableKind, Graph, MAX_CABLES, NodeId, Wire, line, line_parts};
use crate::{Contention, Dimension, Fabric, kinds};

/// The tag in fabric files.
pub const TAG: &str = "composed";
pub(super) const ABOUT: &str = "domains joined inside (NVLink), any other topology outside";
pub(super) const EXAMPLES: &[&str] = &[
    r#"{"domains": 4, "inside": {"kind": "switch", "size": 4, "bandwidth": "400 GB/s", "latency": "1 us"},
        "outside": {"topology": "fat_tree", "npus": 16, "switch_radix": 8, "levels": 2}}"#,
    r#"{"domains": 4, "inside": {"kind": "switch", "size": 4, "bandwidth": "400 GB/s", "latency": "1 us"},
        "ports": "by_rail", "port_link": {"bandwidth": "64 GB/s", "latency": "300 ns"},
        "outside": {"topology": "fat_tree", "npus": 16, "switch_radix": 8, "levels": 2}}"#,
    r#"{"domains": 16, "inside": {"kind": "fully_connected", "size": 4, "links": 3, "bandwidth": "50 GB/s",
        "latency": "1 us"}, "npus_per_port": 4,
        "outside": {"topology": "hammingmesh", "board": [2, 2], "grid": [2, 2], "planes": 2}}"#,
    r#"{"domains": 9, "inside": {"kind": "ring", "size": 8, "bandwidth": "50 GB/s", "latency": "1 us"},
        "outside": {"topology": "dragonfly", "a": 4, "p": 2, "h": 2, "groups": 9}}"#,
    r#"{"domains": 2, "inside": {"kind": "switch", "size": 2, "bandwidth": "400 GB/s", "latency": "1 us"},
        "npus_per_port": 2, "outside": {"topology": "graph", "npus": ["a", "b"],
        "links": [{"from": "a", "to": "b", "count": 2}]}}"#,
];

const MAX_DOMAINS: u32 = 1 << 20;
/// NPUs of a domain.
const MAX_DOMAIN: u32 = 1 << 12;
/// From an NPU to its port, where nothing is said.
const SHORT: Time = Time::from_ns(1);

/// In which order the ports of domains are those of the network outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ports {
    /// Those of a domain side by side.
    #[default]
    ByDomain,
    /// The first of every domain, then the second of every domain, and so on.
    ByRail,
}

/// A topology and its keys. One that cannot be read is kept as its error, for [`GraphTopology::validate`]
/// to say where it stands.
#[derive(Clone)]
struct Outside {
    read: Result<Arc<dyn GraphTopology>, FieldError>,
    keys: Value,
}

impl<'de> Deserialize<'de> for Outside {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = Value::deserialize(deserializer)?;
        Ok(Self { read: super::read(keys.clone()).map(Arc::from), keys })
    }
}

impl JsonSchema for Outside {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Topology".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "x-topology": true })
    }
}

/// The keys of a composed network.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Composed {
    /// How many domains.
    domains: u32,
    /// What joins the NPUs of a domain.
    inside: Dimension,
    /// What joins the ports of all domains: `topology` and its keys; its NPUs are the ports.
    outside: Outside,
    /// How many NPUs of a domain share a port.
    #[serde(default = "checks::one")]
    npus_per_port: u32,
    /// In which order ports are the NPUs of `outside`: those of a domain side by side, or rail by rail.
    #[serde(default)]
    ports: Ports,
    /// What joins an NPU to its port; where absent, as fast as the port's cables together, and 1 ns.
    #[serde(default)]
    port_link: Option<Wire>,
}

impl Composed {
    fn outside(&self) -> &dyn GraphTopology {
        &**self.outside.read.as_ref().expect("a validated network has an outside")
    }

    fn npus(&self) -> u32 {
        self.domains * self.inside.size
    }

    /// Ports of a domain.
    fn rails(&self) -> u32 {
        self.inside.size / self.npus_per_port
    }

    /// The port of an NPU, as an NPU of the network outside.
    fn port(&self, npu: u32) -> NodeId {
        let (domain, rail) = (npu / self.inside.size, npu % self.inside.size / self.npus_per_port);
        NodeId(match self.ports {
            Ports::ByDomain => domain * self.rails() + rail,
            Ports::ByRail => rail * self.domains + domain,
        })
    }

    /// Refuses ports that have failed within `outside`.
    fn check_whole(&self, outside: &Graph) -> Result<(), FieldError> {
        let ports = outside.npus();
        if u64::from(ports) == self.outside().counts().npus {
            return Ok(());
        }
        Err(FieldError::new(
            "fabric.outside",
            counted(ports, "NPU"),
            "some have failed: there are fewer than the domains have ports",
            "name what has failed in `failed_nodes` beside `outside`, by the numbers of the whole",
        ))
    }

    /// The parts joined, with `outside` as it is priced or as it is simulated.
    fn join(&self, outside: &Graph) -> Result<Graph, FieldError> {
        let npus = self.npus();
        self.check_whole(outside)?;
        let mut builder = Builder::new(npus);
        let planes = self.outside().counts().planes;
        for domain in 0..self.domains {
            let at = |place: u32| NodeId(domain * self.inside.size + place);
            line(&mut builder, &self.inside, CableKind::Pcb, planes, at)?;
        }
        // Nodes of the network outside, ports first, follow in its order.
        let first = builder.switch();
        for _ in 1..outside.nodes() {
            builder.switch();
        }
        let moved = |node: NodeId| NodeId(first.0 + node.0);
        for npu in 0..npus {
            let port = self.port(npu);
            let wire = self
                .port_link
                .unwrap_or_else(|| Wire { bandwidth: outside.injection(port), latency: SHORT });
            builder.cable(NodeId(npu), moved(port), CableKind::Pcb, wire)?;
        }
        for cable in outside.cables() {
            let [one, other] = cable.ends.map(moved);
            builder.parallel(one, other, cable.kind, cable.wire)?;
        }
        builder.build()
    }

    /// The keys of a network of the same kinds that can be read in a picture.
    fn smaller(&self) -> Option<Vec<(&'static str, Value)>> {
        let mut outside = self.outside.keys.clone();
        for (key, value) in self.outside().drawing().smaller? {
            outside[key] = value;
        }
        let ports = super::read(outside.clone()).ok()?.counts().npus;
        let ports = u32::try_from(ports).ok()?;
        let rails = (1..=self.rails().min(4)).rev().find(|rails| ports.is_multiple_of(*rails))?;
        let sharing = self.npus_per_port.min(4);
        let size = (rails * sharing).max(SMALLEST);
        let inside = Dimension { size, ..self.inside.clone() };
        Some(vec![
            ("domains", (ports / rails).into()),
            ("inside", serde_json::to_value(inside).ok()?),
            ("npus_per_port", (size / rails).into()),
            ("outside", outside),
        ])
    }

    fn check_inside(&self) -> Result<(), FieldError> {
        let inside = |mut error: FieldError| {
            error.field = error.field.replacen("fabric.dimensions[0]", "fabric.inside", 1);
            error
        };
        let fabric = Fabric {
            name: TAG.to_owned(),
            dimensions: vec![self.inside.clone()],
            memory_bandwidth: None,
            window: None,
        };
        fabric.validate().map_err(inside)?;
        if self.inside.contention == Contention::None {
            return Err(FieldError::new(
                "fabric.inside.contention",
                "none",
                "messages on a graph share its cables",
                "leave it out",
            ));
        }
        let (size, domains) = (self.inside.size, u64::from(self.domains));
        checks::count("inside.size", size, MAX_DOMAIN)?;
        let cables = domains * line_parts(&self.inside).0;
        if cables > MAX_CABLES {
            let why = format!(
                "all domains have {cables}, above {MAX_CABLES}",
                cables = counted(cables, "cable")
            );
            let hint = "take `kind: switch`, or fewer or smaller domains";
            return Err(FieldError::new("fabric.inside.size", size, why, hint));
        }
        Ok(())
    }

    fn check_ports(&self) -> Result<(), FieldError> {
        let (size, sharing) = (self.inside.size, self.npus_per_port);
        if sharing == 0 || !size.is_multiple_of(sharing) {
            return Err(FieldError::new(
                "fabric.npus_per_port",
                sharing,
                format!("a domain has {size}", size = counted(size, "NPU")),
                format!("write a divisor of {size}; 1 is a port for each"),
            ));
        }
        let outside = self.outside();
        let (domains, rails) = (u64::from(self.domains), u64::from(self.rails()));
        let (ports, found) = (domains * rails, outside.counts().npus);
        if ports != found {
            let joined = match found % rails {
                0 => format!("write `domains: {}`, or give", found / rails),
                _ => "give".to_owned(),
            };
            return Err(FieldError::new(
                "fabric.outside",
                format!("a `{}` of {found}", outside.tag(), found = counted(found, "NPU")),
                format!(
                    "the parts do not meet: {domains} of {size} {have} {ports}",
                    domains = counted(domains, "domain"),
                    size = counted(size, "NPU"),
                    have = either(&size, "has", "have"),
                    ports = counted(ports, "port")
                ),
                format!("{joined} the network outside {ports}", ports = counted(ports, "NPU")),
            ));
        }
        Ok(())
    }
}

impl GraphTopology for Composed {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn validate(&self) -> Result<(), FieldError> {
        if let Err(error) = &self.outside.read {
            let mut error = error.clone();
            error.field = error.field.replacen("fabric", "fabric.outside", 1);
            return Err(error);
        }
        checks::count("domains", self.domains, MAX_DOMAINS)?;
        self.check_inside()?;
        checks::npus("domains", &[self.domains, self.inside.size])?;
        self.check_ports()
    }

    fn counts(&self) -> Counts {
        let outside = self.outside().counts();
        let (cables, _) = line_parts(&self.inside);
        let traces = u64::from(self.domains) * cables + u64::from(self.npus());
        Counts {
            npus: u64::from(self.npus()),
            pcb: outside.pcb + traces * outside.planes,
            ports: kinds::of(self.inside.kind).links_per_npu(&self.inside) + 1,
            ..outside
        }
    }

    /// The switches of domains, and the ports.
    fn on_board(&self) -> u64 {
        let (_, switches) = line_parts(&self.inside);
        let outside = self.outside();
        u64::from(self.domains) * (switches + u64::from(self.rails())) + outside.on_board()
    }

    /// From an NPU to its port, through the network outside, and to the other.
    fn diameter_formula(&self) -> Option<u32> {
        (self.domains > 1).then(|| self.outside().diameter_formula().map(|far| far + 2)).flatten()
    }

    fn half_plane_cut_links(&self) -> Option<u64> {
        None
    }

    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        self.product()
    }

    fn wired(&self) -> Result<Vec<Dimension>, FieldError> {
        self.over_cables()
    }

    fn drawing(&self) -> Drawing {
        Drawing { smaller: self.smaller(), ..Drawing::default() }
    }

    fn takes_detours(&self) -> bool {
        self.outside().takes_detours()
    }

    fn build(&self) -> Result<Graph, FieldError> {
        self.join(&self.outside().build()?)
    }

    fn simulated(&self) -> Result<Graph, FieldError> {
        self.join(&self.outside().simulated()?)
    }

    fn simulated_as(&self) -> Option<&'static str> {
        self.outside().simulated_as()
    }
}
