//! Dragonfly: groups of `a` routers, all joined within a group, with `p` NPUs and `h` global cables
//! at each router (Kim et al., ISCA'08).
//!
//! A router has `(a − 1) + p + h` ports. Where several fit one switch, they share it (`HammingMesh`,
//! SC'22, puts two routers of 31 ports into each of 64), and need no cable between them. Per plane,
//! with `s` switches of `v` routers each in a group of `a`:
//!
//! ```text
//! switches = s · groups        AoC = a · h · groups / 2
//! DAC = a · p · groups + groups · (a(a − 1)/2 − pairs of routers within a switch)
//! ```
//!
//! Wiring of the global cables, which the paper leaves open: the slots of a group, router by router,
//! lead to the other groups in turn, so that a router reaches `min(h, groups − 1)` of them; what is
//! left over goes to groups at opposite distances. Diameter: 4 cables if every switch reaches every
//! group, else 5; the paper's small dragonfly is printed as 3, which no wiring of it can have.

use allrail_core::{FieldError, counted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::checks;
use super::drawing::{Drawing, Picture};
use super::topology::{Counts, GraphTopology, Summing, or_adaptive};
use crate::Dimension;
use crate::graph::{Builder, CableKind, Graph, NodeId, Wire};
use crate::routing::{DragonflyRouting, Routing};

/// The tag in fabric files.
pub const TAG: &str = "dragonfly";
pub(super) const ABOUT: &str = "groups of routers, all-to-all within and between groups";
pub(super) const EXAMPLES: &[&str] = &[
    r#"{"a": 4, "p": 2, "h": 2, "groups": 9}"#,
    r#"{"a": 4, "p": 2, "h": 1, "groups": 4, "switch_radix": 8, "planes": 2}"#,
];

/// Which paths packets take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// One global cable at most.
    Minimal,
    /// Minimal, or a detour through a random group, by their loads at the source.
    #[default]
    Ugal,
}

/// The keys of a dragonfly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dragonfly {
    /// Routers of a group.
    pub a: u32,
    /// NPUs at a router.
    pub p: u32,
    /// Global cables at a router.
    pub h: u32,
    /// Groups.
    pub groups: u32,
    /// Ports of a switch.
    #[serde(default = "checks::radix_64")]
    pub switch_radix: u32,
    /// Alike networks side by side.
    #[serde(default = "checks::one")]
    pub planes: u32,
    /// Every cable.
    #[serde(default = "Wire::cable")]
    pub link: Wire,
    /// Which paths packets take.
    #[serde(default)]
    pub routing: Route,
    /// Whether switches sum what passes through them (all-reduce `in_network`).
    #[serde(default)]
    pub in_network_reduction: bool,
}

impl Dragonfly {
    fn router_ports(&self) -> u64 {
        u64::from(self.a - 1) + u64::from(self.p) + u64::from(self.h)
    }

    /// Routers that share a switch.
    fn shared(&self) -> u32 {
        let fit = u64::from(self.switch_radix) / self.router_ports();
        u32::try_from(fit).map_or(self.a, |fit| fit.min(self.a))
    }

    fn switches_per_group(&self) -> u32 {
        self.a.div_ceil(self.shared())
    }

    fn slots(&self) -> u32 {
        self.a * self.h
    }

    /// How far each global slot of a group leads, in groups, modulo their number.
    fn distances(&self) -> Vec<u32> {
        let others = self.groups - 1;
        if others == 0 {
            return Vec::new();
        }
        let rest = self.slots() % others;
        let mut distances: Vec<u32> =
            (0..self.slots() - rest).map(|slot| slot % others + 1).collect();
        if rest % 2 == 1 {
            distances.push(self.groups / 2);
        }
        for near in 1..=rest / 2 {
            distances.extend([near, self.groups - near]);
        }
        distances
    }
}

impl GraphTopology for Dragonfly {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn validate(&self) -> Result<(), FieldError> {
        checks::count("a", self.a, 1 << 12)?;
        checks::count("p", self.p, 1 << 12)?;
        checks::count("h", self.h, 1 << 12)?;
        checks::count("groups", self.groups, 1 << 20)?;
        checks::npus("groups", &[self.a, self.p, self.groups])?;
        checks::switch_radix(self.switch_radix)?;
        checks::planes(self.planes)?;
        let ports = self.router_ports();
        if ports > u64::from(self.switch_radix) {
            return Err(FieldError::new(
                "fabric.switch_radix",
                self.switch_radix,
                format!("a router has (a - 1) + p + h = {ports}", ports = counted(ports, "port")),
                format!(
                    "take switches of {ports} or more, or make a, p or h smaller",
                    ports = counted(ports, "port")
                ),
            ));
        }
        if self.groups < 2 {
            return Err(FieldError::new(
                "fabric.groups",
                self.groups,
                "global cables join 2 groups at least",
                "write `groups: 2` or more",
            ));
        }
        if self.groups - 1 > self.slots() {
            return Err(FieldError::new(
                "fabric.groups",
                self.groups,
                format!("a group has a * h = {} to others", counted(self.slots(), "cable")),
                format!("at most {}, or a larger `h`", counted(self.slots() + 1, "group")),
            ));
        }
        if self.slots() % 2 == 1 && self.groups % 2 == 1 {
            return Err(FieldError::new(
                "fabric.groups",
                self.groups,
                format!("{} global ports of each group do not pair up", self.slots()),
                "make a, h or groups even",
            ));
        }
        Ok(())
    }

    fn reduces(&self) -> Option<Summing> {
        self.in_network_reduction.then_some(Summing::Switches)
    }

    fn counts(&self) -> Counts {
        let [a, p, h, groups] = [self.a, self.p, self.h, self.groups].map(u64::from);
        let pairs = |n: u64| n * n.saturating_sub(1) / 2;
        let shared = u64::from(self.shared());
        let within = (a / shared) * pairs(shared) + pairs(a % shared);
        Counts {
            npus: a * p * groups,
            switches: u64::from(self.switches_per_group()) * groups,
            aoc: a * h * groups / 2,
            dac: a * p * groups + groups * (pairs(a) - within),
            pcb: 0,
            planes: 1,
            ports: 1,
        }
        .of_planes(self.planes)
    }

    /// Local, global, local, and the NPUs' own cables.
    fn diameter_formula(&self) -> Option<u32> {
        if self.switches_per_group() == 1 {
            return Some(3);
        }
        // The last switch of a group may hold fewer routers than the others.
        let fewest = match self.a % self.shared() {
            0 => self.shared(),
            rest => rest,
        };
        Some(if fewest * self.h >= self.groups - 1 { 4 } else { 5 })
    }

    /// The global cables between the first half of the groups and the second; local cables and NPUs
    /// may carry less.
    fn half_plane_cut_links(&self) -> Option<u64> {
        if self.groups % 2 == 1 {
            return None;
        }
        let half = u64::from(self.groups / 2);
        // Of the first half of the groups, those from which a step of `d` ends in the second.
        let crossing = |d: u32| u64::from(d.min(self.groups - d));
        let cables = self.distances().into_iter().map(crossing).sum::<u64>();
        Some(cables.min(u64::from(self.a * self.p) * half))
    }

    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        Err("the groups of a dragonfly share their global cables: no dimension joins NPU to NPU"
            .to_owned())
    }

    fn takes_detours(&self) -> bool {
        true
    }

    fn drawing(&self) -> Drawing {
        let (a, p, h) = (self.a.min(4), self.p.min(2), 2);
        let groups = self.groups.min(2 * a + 1).min(9);
        let ports = a - 1 + p + h;
        Drawing {
            picture: Picture::InGroups { groups: self.groups },
            smaller: Some(vec![
                ("a", a.into()),
                ("p", p.into()),
                ("h", h.into()),
                ("groups", groups.into()),
                ("switch_radix", (ports + ports % 2).into()),
            ]),
            ..Drawing::default()
        }
    }

    fn build(&self) -> Result<Graph, FieldError> {
        let npus = u32::try_from(self.counts().npus).expect("validated");
        let mut builder = Builder::new(npus);
        let per_group = self.switches_per_group();
        let switches: Vec<NodeId> =
            (0..per_group * self.groups).map(|_| builder.switch()).collect();
        let switch = |group: u32, router: u32| {
            switches[(group * per_group + router / self.shared()) as usize]
        };
        for group in 0..self.groups {
            for router in 0..self.a {
                let here = switch(group, router);
                for npu in 0..self.p {
                    let npu = NodeId((group * self.a + router) * self.p + npu);
                    builder.cable(npu, here, CableKind::Dac, self.link)?;
                }
                for other in router + 1..self.a {
                    let there = switch(group, other);
                    if here != there {
                        builder.parallel(here, there, CableKind::Dac, self.link)?;
                    }
                }
            }
        }
        // The k-th slot of a group that leads d groups on meets the k-th that leads d back.
        let mut by_distance = vec![Vec::new(); self.groups as usize];
        for (slot, distance) in (0u32..).zip(self.distances()) {
            by_distance[distance as usize].push(slot / self.h);
        }
        for group in 0..self.groups {
            for distance in 1..self.groups {
                let other = (group + distance) % self.groups;
                let back = &by_distance[(self.groups - distance) as usize];
                for (&from, &to) in by_distance[distance as usize].iter().zip(back) {
                    if group < other {
                        let (here, there) = (switch(group, from), switch(other, to));
                        builder.parallel(here, there, CableKind::Aoc, self.link)?;
                    }
                }
            }
        }
        builder.build()
    }

    fn routing(&self, graph: &Graph) -> Result<Box<dyn Routing>, FieldError> {
        let detours = self.routing == Route::Ugal;
        or_adaptive(DragonflyRouting::new(graph, self.groups, detours), graph)
    }
}
