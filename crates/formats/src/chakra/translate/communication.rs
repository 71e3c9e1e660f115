//! Nodes that communicate: what is exchanged, among whom.

use allrail_collective::Operation;
use allrail_core::Bytes;
use allrail_workload::graph::{GroupId, Peer, Purpose, Work};

use super::super::assemble::Use;
use super::super::error::TraceError;
use super::super::groups::{self, Shape};
use super::super::record::{KINDS_OF_COLLECTIVE, Kind, Record};
use super::{Named, Translator};

impl Translator<'_> {
    pub(super) fn collective(
        &mut self,
        node: &Record<'_>,
        keeps: bool,
    ) -> Result<Work, TraceError> {
        let kind = node.collective.unwrap_or_default();
        let operation = match kind {
            0 | 9 => Operation::AllReduce,
            1 | 5 => Operation::Broadcast,
            2 | 3 => Operation::AllGather,
            4 | 6 => Operation::AllToAll,
            7 | 8 => Operation::ReduceScatter,
            _ => {
                return Err(self.wrong(
                    node,
                    "its comm_type is no collective of the schema",
                    "it is one of ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER, BROADCAST",
                ));
            }
        };
        if keeps && matches!(kind, 1 | 3 | 4 | 9) {
            let name = KINDS_OF_COLLECTIVE[usize::try_from(kind).unwrap_or_default()];
            self.note(&format!("{name} is taken for {operation}"));
        }
        let bytes = if kind == 9 { Some(0) } else { node.bytes };
        let Some(bytes) = bytes else {
            let hint = "write `comm_size`, in bytes";
            return Err(self.wrong(node, "it has no comm_size", hint));
        };
        let (group, members, shape_hash) = self.group(node)?;
        let gathers = operation == Operation::AllGather;
        let bytes = bytes.saturating_mul(if gathers { members } else { 1 });
        if bytes > 1 << 50 {
            return Err(self.wrong(node, "it is of more than 1 PiB", "`comm_size` is in bytes"));
        }
        self.mix(kind);
        self.mix(bytes);
        self.mix(shape_hash);
        let purpose = purpose(node);
        Ok(Work::Collective { operation, bytes: Bytes::new(bytes), group, purpose })
    }

    pub(super) fn message(&mut self, node: &Record<'_>) -> Result<Work, TraceError> {
        let sends = node.kind == Kind::Send;
        let (own, other, what) = if sends {
            (node.source, node.destination, "comm_dst")
        } else {
            (node.destination, node.source, "comm_src")
        };
        let hint = "it is the number of a rank of the trace";
        let peer = other
            .and_then(|peer| u32::try_from(peer).ok())
            .filter(|peer| *peer < self.scaling.ranks && *peer != self.rank);
        let Some(peer) = peer else {
            let why = match other {
                None => format!("it has no {what}"),
                Some(other) => format!(
                    "its {what} is {other}: rank {} of {} has no such peer",
                    self.rank, self.scaling.ranks
                ),
            };
            return Err(self.wrong(node, why, hint));
        };
        if own.is_some_and(|own| own != u64::from(self.rank)) {
            let why = format!("it stands in the file of rank {}, and says {own:?}", self.rank);
            return Err(self.wrong(node, why, "a rank's file holds its own nodes"));
        }
        let Some(bytes) = node.bytes else {
            return Err(self.wrong(node, "it has no comm_size", "write `comm_size`, in bytes"));
        };
        let npus = i64::from(self.scaling.ranks) * i64::from(self.scaling.factor);
        let home = |rank| i64::from(self.scaling.home(rank, 0));
        // Both ends count it as the sender does: half way round is one way then, too.
        let (from, to) = if sends { (self.rank, peer) } else { (peer, self.rank) };
        let ahead = (home(to) - home(from)).rem_euclid(npus);
        let ahead = if ahead > npus / 2 { ahead - npus } else { ahead };
        let distance = if sends { ahead } else { -ahead };
        self.mix(distance.cast_unsigned());
        self.mix(bytes);
        self.mix(u64::from(sends));
        let group = match self.messages {
            Some(group) => group,
            None => {
                let id = self.placeholder();
                self.messages = Some(id);
                id
            }
        };
        let peer = Peer::Next(i32::try_from(distance).unwrap_or(i32::MAX));
        let (bytes, purpose) = (Bytes::new(bytes), purpose(node));
        Ok(if sends {
            Work::Send { bytes, group, peer, purpose }
        } else {
            Work::Receive { bytes, group, peer, purpose }
        })
    }

    fn placeholder(&mut self) -> GroupId {
        self.placeholders += 1;
        GroupId(self.placeholders - 1)
    }

    /// The placeholder of a node's group, its members, and a hash of its shape.
    fn group(&mut self, node: &Record<'_>) -> Result<(GroupId, u64, u64), TraceError> {
        let named = match (node.group, node.involved) {
            (Some(name), _) => Named::Group(name.to_owned()),
            // All dimensions are everyone, however many the trace was made for.
            (None, Some(flags)) if flags.iter().all(|flag| *flag != 0) => Named::Everyone,
            (None, Some(flags)) => Named::Involved(flags.to_vec()),
            (None, None) => Named::Everyone,
        };
        if let Some((id, Use::Collective { shape, hash, .. })) = self.shapes.get(&named) {
            return Ok((*id, shape.members(), *hash));
        }
        let (label, shape) = match &named {
            Named::Group(name) => (name.clone(), self.process_group(node, name)?),
            Named::Involved(flags) => {
                let parts = groups::involved(flags, self.sizes).map_err(|why| {
                    self.wrong(node, why, "write one entry per dimension of the fabric")
                })?;
                (String::new(), Shape::Parts(parts))
            }
            Named::Everyone => (String::new(), Shape::Parts(groups::everyone(self.sizes))),
        };
        let hash = hash_of(&shape);
        let members = shape.members();
        let id = self.placeholder();
        self.shapes.insert(named, (id, Use::Collective { label, shape, hash }));
        Ok((id, members, hash))
    }

    fn process_group(&self, node: &Record<'_>, name: &str) -> Result<Shape, TraceError> {
        let ranks = self.groups.get(name).or_else(|| self.groups.get(&whole(name)?));
        let Some(ranks) = ranks else {
            if self.groups.is_empty() && (name == "default_pg" || name == "0") {
                return Ok(Shape::Parts(groups::everyone(self.sizes)));
            }
            let known: Vec<&str> = self.groups.keys().map(String::as_str).take(8).collect();
            let hint = if known.is_empty() {
                "put `comm_group.json` beside the trace: names of groups and their ranks".to_owned()
            } else {
                format!("comm_group.json knows {}", known.join(", "))
            };
            return Err(self.wrong(node, format!("its process group `{name}` is unknown"), &hint));
        };
        if ranks.binary_search(&self.rank).is_err() {
            let why = format!("rank {} is not in its process group `{name}`", self.rank);
            return Err(self.wrong(node, why, "check comm_group.json"));
        }
        let scaled = self.scaling.group(name, ranks);
        let shape = Shape::of(&scaled, self.sizes);
        if self.scaling.factor > 1 && matches!(shape, Shape::Ranks(_)) {
            let why = format!("its process group `{name}`, scaled, is no product of dimensions");
            return Err(self.wrong(node, why, "scale to a fabric whose dimensions fit its groups"));
        }
        Ok(shape)
    }
}

/// The whole number that a name is, as tools write it that count in floats: `3.0` is group 3.
fn whole(name: &str) -> Option<String> {
    let (number, zeros) = name.split_once('.')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(number) && zeros.bytes().all(|byte| byte == b'0')).then(|| number.to_owned())
}

pub(super) fn purpose(node: &Record<'_>) -> Purpose {
    match node.ours.purpose {
        Some("data") => Purpose::Data,
        Some("tensor") => Purpose::Tensor,
        Some("pipeline") => Purpose::Pipeline,
        Some("expert") => Purpose::Expert,
        Some("operator") => Purpose::Operator,
        _ => Purpose::Other,
    }
}

fn hash_of(shape: &Shape) -> u64 {
    let mut hash = 0x100_0193u64;
    let mut mix = |value: u32| {
        hash = (hash.rotate_left(7) ^ u64::from(value)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    };
    match shape {
        Shape::Parts(parts) => {
            for part in parts {
                mix(part.dimension.0);
                mix(part.size);
                mix(part.stride);
            }
        }
        Shape::Ranks(ranks) => {
            mix(u32::MAX);
            ranks.iter().for_each(|rank| mix(*rank));
        }
    }
    hash
}
