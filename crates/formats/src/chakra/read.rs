//! From the files of a trace to a step graph.
//!
//! Each rank has a file. Ranks whose nodes are the same but for their names and their own place are
//! *folded* into one actor: the first is kept, of the others only a hash is computed while their
//! files stream by. Same means: kinds, times, bytes, dependencies (as distances), groups (as parts of
//! dimensions around the rank) and peers (as distances between ranks). If a folded rank turns out to
//! meet other classes than its like, nothing is folded.
//!
//! Node ids are taken for consecutive, as tracers write them, and are looked up only where they
//! are not; then the file is read once more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allrail_core::{FieldError, Rank};
use allrail_workload::device::Device;
use allrail_workload::graph::{Actor, Builder, StepGraph};

use super::alike;
use super::assemble::{self, Class};
use super::custom::{self, Customs};
use super::decode;
use super::error::TraceError;
use super::files::{corrupt, first, ids_of};
use super::groups::{self, ProcessGroups};
use super::record::Schema;
use super::scale::{Scale, Scaling};
use super::translate::{Ids, Translator};
use super::wire::Messages;
use crate::bounds::Bounds;

/// How a trace is read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The sizes of the fabric's dimensions, innermost first.
    pub sizes: Vec<u32>,
    /// Gives compute nodes without a time one, by a roofline, and scales those that have one.
    pub device: Option<Device>,
    /// `comm_group.json`; the one beside the trace where absent.
    pub groups: Option<PathBuf>,
    /// Repeats the trace over more NPUs.
    pub scale: Option<Scale>,
    /// Collectives that are traces of their own; ranks are not folded where there are any.
    pub collectives: Option<Customs>,
}

/// A trace that was read.
#[derive(Clone, Debug)]
pub struct Trace {
    /// What it does.
    pub graph: StepGraph,
    /// How many ranks' files there are.
    pub ranks: u32,
    /// Nodes in all files, folded ones counted.
    pub nodes: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// What was taken otherwise than written, each with how often.
    pub notes: BTreeMap<String, u64>,
    /// What makes a simulation of it less than it seems.
    pub warnings: Vec<String>,
}

/// Reads the trace `prefix`.
///
/// # Errors
/// A file that is missing, truncated or corrupt; a node without an id, of an unknown kind, or with a
/// dependency on a node that does not exist; a cycle; groups that are unknown or name unknown ranks;
/// collectives whose ranks disagree.
pub fn read(prefix: &Path, options: &Options) -> Result<Trace, FieldError> {
    let alike::Files { ranks, each: files } = alike::of(prefix)?;
    let all = files.len() == ranks as usize;
    let npus: u64 = options.sizes.iter().map(|size| u64::from(*size)).product();
    let npus = u32::try_from(npus)
        .map_err(|_| FieldError::new("fabric", npus, "too many NPUs", "use fewer than 2^32"))?;
    let scaling = Scaling::new(prefix, ranks, npus, options.scale.as_ref())?;
    let named = options.groups.clone();
    let beside = prefix.parent().unwrap_or(Path::new("")).join("comm_group.json");
    let groups = match named {
        Some(path) => groups::read(&path, ranks)?,
        None if beside.is_file() => groups::read(&beside, ranks)?,
        None => ProcessGroups::new(),
    };
    if let (Some(_), Some(scale)) = (&options.collectives, &options.scale) {
        return Err(FieldError::new(
            "workload.model.trace.scale",
            format!("{scale:?}"),
            "a collective that is a trace of its own has as many ranks as it has",
            "leave it out, or name an algorithm for the collective",
        ));
    }
    if options.collectives.is_some() && !all {
        let why = "a collective that is a trace of its own is run by ranks that have a file each";
        let hint = "write the trace of all ranks";
        return Err(TraceError::new(prefix, "the trace", why, hint).into());
    }
    let bounds = Bounds::of_environment()?;
    let reader = Reader { files: &files, options, scaling: &scaling, groups: &groups, bounds };
    match reader.read(options.collectives.is_none())? {
        Some(trace) => Ok(trace),
        None => reader.read(false)?.ok_or_else(|| {
            let why = "ranks that one of its files stands for meet other kinds of ranks each";
            let hint = "write the trace of all ranks";
            TraceError::new(prefix, "the trace", why, hint).into()
        }),
    }
}

struct Reader<'a> {
    files: &'a [(Vec<u32>, PathBuf)],
    options: &'a Options,
    scaling: &'a Scaling,
    groups: &'a ProcessGroups,
    bounds: Bounds,
}

impl Reader<'_> {
    /// Reads all files; `None` where ranks were folded that are not alike.
    fn read(&self, fold: bool) -> Result<Option<Trace>, FieldError> {
        let mut builder = Builder::default();
        let mut classes: Vec<Class> = Vec::new();
        let mut known: BTreeMap<(u64, u64), usize> = BTreeMap::new();
        let (mut nodes, mut bytes) = (0, 0);
        let mut translator = Translator::new(
            &self.options.sizes,
            self.options.device.clone(),
            self.scaling,
            self.groups,
        );
        translator.customs = self.options.collectives.as_ref();
        for (alike, file) in self.files {
            let rank = alike[0];
            if fold && rank > 0 {
                let (hash, many, read) = self.pass(&mut translator, file, rank, None)?;
                if let Some(class) = known.get(&hash) {
                    classes[*class].ranks.extend(alike);
                    classes[*class].ranks.sort_unstable();
                    (nodes, bytes) = (nodes + many, bytes + read);
                    continue;
                }
            }
            let own: Vec<Rank> = self.scaling.homes(rank).map(Rank).collect();
            let actor = builder.actor(Actor { name: format!("rank {rank}"), ranks: own });
            let (hash, many, read) =
                self.pass(&mut translator, file, rank, Some((&mut builder, actor)))?;
            (nodes, bytes) = (nodes + many, bytes + read);
            known.insert(hash, classes.len());
            classes.push(Class { actor, ranks: alike.clone(), shapes: translator.take_shapes() });
        }
        if nodes == 0 {
            let why = "the trace has no nodes";
            return Err(TraceError::new(&self.files[0].1, "the file", why, "is it whole?").into());
        }
        let notes = translator.take_notes();
        let Some(groups) = assemble::groups(&classes, self.scaling, &self.options.sizes)? else {
            return Ok(None);
        };
        for class in &classes {
            assemble::name(builder.actor_mut(class.actor), &class.ranks, self.scaling);
        }
        builder.regroup(groups.groups, &groups.now);
        translator.streams.order(&mut builder);
        let mut graph = builder.finish()?;
        let warnings = translator.streams.warning(&graph).into_iter().collect();
        if self.options.collectives.is_some() {
            graph = custom::expand(&graph, &self.options.sizes, &translator.take_customs())?;
        }
        let ranks = self.scaling.ranks;
        Ok(Some(Trace { graph, ranks, nodes, bytes, notes, warnings }))
    }

    /// Streams a file: hashes its nodes, and adds them where there is somebody to run them.
    fn pass(
        &self,
        translator: &mut Translator<'_>,
        file: &Path,
        rank: u32,
        mut into: Option<(&mut Builder, allrail_workload::graph::ActorId)>,
    ) -> Result<((u64, u64), u64, u64), TraceError> {
        let mut ids = Ids::Consecutive;
        let before = into.as_ref().map_or(0, |(builder, _)| builder.len());
        loop {
            translator.start(file, rank, ids, before);
            let mut seen = before as u64;
            let mut messages = Messages::open(file)?;
            let mut after = Vec::new();
            let (schema, recorded) = first(&mut messages)?;
            if schema == Schema::Fields {
                // Its first message is a node already.
                messages = Messages::open(file)?;
            }
            loop {
                let offset = messages.offset();
                let Some(message) = messages.next_message()? else { break };
                let node = decode::read(schema, recorded, message, &mut after)
                    .map_err(|why| corrupt(file, offset, &why))?;
                let into = into.as_mut().map(|(builder, actor)| (&mut **builder, *actor));
                if !translator.add(&node, &mut after, into)? {
                    break;
                }
                seen += 1;
                self.bounds
                    .check_events(seen)
                    .map_err(|(why, hint)| TraceError::new(file, "the file", why, hint))?;
            }
            if !translator.scattered() {
                let (hash, many) = translator.finish()?;
                return Ok((hash, many, messages.offset()));
            }
            // Ids are not consecutive: look them all up first, and begin again.
            if let Some((builder, _)) = into.as_mut() {
                builder.truncate(before);
                translator.streams.truncate(before);
            }
            ids = Ids::Sorted(ids_of(file)?);
        }
    }
}
