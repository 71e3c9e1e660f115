//! The events of a Kineto trace (Chrome's trace format), as they stream by.
//!
//! A file is `{"distributedInfo": …, "traceEvents": […]}` or the list alone, gzipped or not. Of
//! millions of events, those on the accelerator are kept, what launched them, what the host says of
//! communication, and, until a kernel is met, when the host worked; the others are counted by why they
//! are not.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::calls::HostEvent;
use super::said::{Said, number, ranks, text};
use super::{execution, words};
use crate::error::WorkloadError;
use crate::formats::bounds::{Bounds, Meter, Metered};

/// Something that ran on the accelerator.
#[derive(Clone, Debug, Default)]
pub(super) struct Kernel {
    pub(super) name: String,
    pub(super) stream: i64,
    /// Microseconds.
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) copies: bool,
    /// What a kernel of NCCL says of itself.
    pub(super) said: Option<Said>,
    pub(super) correlation: Option<u64>,
}

/// When a thread of the host did something.
#[derive(Clone, Debug)]
pub(super) struct HostWork {
    pub(super) name: String,
    pub(super) thread: String,
    pub(super) start: f64,
    pub(super) end: f64,
}

/// One file.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    pub(super) rank: Option<u32>,
    pub(super) world: Option<u32>,
    /// Ranks of process groups by name.
    pub(super) groups: BTreeMap<String, Vec<u32>>,
    pub(super) kernels: Vec<Kernel>,
    /// Thread and time of launches, by correlation.
    pub(super) launches: BTreeMap<u64, (String, f64)>,
    /// What the host says of communication.
    pub(super) host: Vec<HostEvent>,
    /// Operators of the host, of a trace without kernels.
    pub(super) work: Vec<HostWork>,
    /// Communication of the host's own backends, with when it ran.
    pub(super) own: Vec<(HostWork, Said)>,
    /// (number, start, end) of profiler steps, in microseconds; on the accelerator if it says them.
    pub(super) steps: Vec<(u32, f64, f64)>,
    on_accelerator: bool,
    /// Whether XLA's profiler wrote some of it.
    pub(super) xla: bool,
    /// Whether it is an execution trace, without times.
    pub(super) execution: bool,
    /// What was left out, by why.
    pub(super) dropped: BTreeMap<&'static str, u64>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    ph: String,
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    tid: Option<Value>,
    #[serde(default)]
    ts: Option<Value>,
    #[serde(default)]
    dur: Option<f64>,
    #[serde(default)]
    args: words::Args,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Distributed {
    rank: Option<u32>,
    world_size: Option<u32>,
    pg_config: Option<Value>,
}

const LAUNCHES: &str = "launches by the host: gaps on the accelerator stand for them";

/// Reads a file; of the files before it, `kept` events are kept.
///
/// # Errors
/// It is missing, cut off, not JSON, holds no events, or more than the bounds let through.
pub(super) fn read(path: &Path, bounds: Bounds, kept: u64) -> Result<Events, WorkloadError> {
    let wrong = |why: String, hint: &str| WorkloadError::new("file", path.display(), why, hint);
    let open = || File::open(path).map_err(|error| wrong(error.to_string(), "is it there?"));
    let mut magic = [0u8; 2];
    let zipped = open()?.read(&mut magic).is_ok_and(|read| read == 2) && magic == [0x1f, 0x8b];
    let file = open()?;
    let packed = file.metadata().ok().filter(|_| zipped).map(|told| told.len());
    let meter = Meter::new(bounds, packed);
    let mut events = Events::default();
    let mut into = Into { events: &mut events, meter: &meter, kept };
    let done = if zipped {
        // Of several members: `gzip`'s files may be put one behind the other.
        let members = MultiGzDecoder::new(BufReader::with_capacity(1 << 20, file));
        parse(Metered::new(members, &meter), &mut into)
    } else {
        parse(Metered::new(file, &meter), &mut into)
    };
    done.map_err(|error| {
        if let Some((why, hint)) = meter.exceeded() {
            return wrong(why, &hint);
        }
        let ends =
            error.is_eof() || error.io_error_kind() == Some(std::io::ErrorKind::UnexpectedEof);
        if ends && !events.is_empty() {
            return wrong(
                format!("it is cut off: {error}"),
                "was the job ended while the profiler wrote it? copy it again, or profile again",
            );
        }
        wrong(
            format!("it is no trace of Kineto: {error}"),
            "PyTorch's profiler writes one: \
            `prof.export_chrome_trace(\"rank0.json.gz\")`",
        )
    })?;
    Ok(events)
}

fn parse(reader: impl Read, into: &mut Into<'_>) -> Result<(), serde_json::Error> {
    let reader = BufReader::with_capacity(1 << 20, reader);
    let mut json = serde_json::Deserializer::from_reader(reader);
    Top(into).deserialize(&mut json)?;
    json.end()
}

/// Where events go, and how much of the file is read.
struct Into<'a> {
    events: &'a mut Events,
    meter: &'a Meter,
    /// Events of the files before this one.
    kept: u64,
}

impl Into<'_> {
    /// The next event or node of a list, of bounded length; `more` are kept beside the events.
    fn next<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
        &self,
        list: &mut A,
        more: usize,
    ) -> Result<Option<T>, A::Error> {
        self.meter.begin();
        let next = list.next_element()?;
        let kept = self.kept + self.events.kept() + more as u64;
        self.meter.end(kept).map_err(serde::de::Error::custom)?;
        Ok(next)
    }
}

struct Top<'a, 'b>(&'a mut Into<'b>);

impl<'de> DeserializeSeed<'de> for Top<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object with `traceEvents`, or a list of events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = false;
        loop {
            self.0.meter.begin();
            let Some(key) = map.next_key::<String>()? else { break };
            self.0.meter.end(0).map_err(serde::de::Error::custom)?;
            match key.as_str() {
                "traceEvents" => {
                    seen = true;
                    map.next_value_seed(List(self.0))?;
                }
                // An execution trace: `{"schema": …, "nodes": […]}`.
                "nodes" => {
                    seen = true;
                    self.0.events.execution = true;
                    map.next_value_seed(Nodes(self.0))?;
                }
                "workload_graph" => {
                    return Err(serde::de::Error::custom(
                        "it is a Chakra trace as JSON, which says no sizes; give its `.et`",
                    ));
                }
                "distributedInfo" => {
                    self.0.meter.begin();
                    let said: Distributed = map.next_value()?;
                    self.0.meter.end(0).map_err(serde::de::Error::custom)?;
                    self.0.events.rank = said.rank;
                    self.0.events.world = said.world_size;
                    if let Some(config) = said.pg_config {
                        self.0.events.take_groups(&config);
                    }
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if seen { Ok(()) } else { Err(serde::de::Error::custom("it has no `traceEvents`")) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(event) = self.0.next::<Event, A>(&mut list, 0)? {
            self.0.events.take(event);
        }
        Ok(())
    }
}

struct List<'a, 'b>(&'a mut Into<'b>);

impl<'de> DeserializeSeed<'de> for List<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(Top(self.0))
    }
}

/// The nodes of an execution trace.
struct Nodes<'a, 'b>(&'a mut Into<'b>);

impl<'de> DeserializeSeed<'de> for Nodes<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Nodes<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a list of nodes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut nodes = execution::Nodes::default();
        while let Some(node) = self.0.next::<execution::Node, A>(&mut list, nodes.len())? {
            nodes.take(node, self.0.events);
        }
        nodes.finish(self.0.events);
        Ok(())
    }
}

impl Events {
    /// How many are kept.
    pub(super) fn kept(&self) -> u64 {
        let (host, work, own) = (self.host.len(), self.work.len(), self.own.len());
        (self.kernels.len() + self.launches.len() + self.steps.len() + host + work + own) as u64
    }

    /// All that is said of communication.
    pub(super) fn said(&self) -> impl Iterator<Item = &Said> {
        let kernels = self.kernels.iter().filter_map(|kernel| kernel.said.as_ref());
        let own = self.own.iter().map(|(_, said)| said);
        kernels.chain(self.host.iter().map(|event| &event.said)).chain(own)
    }

    fn is_empty(&self) -> bool {
        self.kernels.is_empty() && self.host.is_empty() && self.dropped.is_empty()
    }

    fn drop(&mut self, why: &'static str) {
        *self.dropped.entry(why).or_default() += 1;
    }

    fn take_groups(&mut self, config: &Value) {
        let Some(list) = config.as_array() else { return };
        for group in list {
            let name = text(group.get("pg_name"));
            let (ranks, _) = ranks(group.get("ranks"), number(group.get("pg_size")));
            if !name.is_empty() && !ranks.is_empty() {
                self.groups.insert(name, ranks);
            }
        }
    }

    fn take(&mut self, event: Event) {
        self.xla |= event.args.is_of_xla();
        let step = event.name.strip_prefix("ProfilerStep#").and_then(|step| step.parse().ok());
        let start = match &event.ts {
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => text.parse().ok(),
            _ => None,
        };
        let (Some(start), Some(length)) = (start, event.dur) else {
            return self.drop(match event.ph.as_str() {
                "M" => "metadata: names of processes and threads",
                "s" | "t" | "f" => "flows: which launch belongs to which kernel",
                "i" | "I" => "instants: they take no time",
                "C" => "counters",
                _ => "no start or duration",
            });
        };
        let end = start + length.max(0.0);
        if let Some(step) = step {
            let accelerator = event.cat.starts_with("gpu");
            if accelerator && !self.on_accelerator {
                self.on_accelerator = true;
                self.steps.clear();
            }
            if accelerator == self.on_accelerator {
                self.steps.push((step, start, end));
            }
        }
        // Versions of Kineto differ in case.
        match event.cat.to_lowercase().as_str() {
            "kernel" | "gpu_memcpy" | "gpu_memset" | "memcpy" | "memset" => {
                self.kernels.push(kernel(event, start, end));
            }
            "cpu_op" | "operator" => self.host_event(event, start, end),
            "cuda_runtime" | "cuda_driver" | "hip_runtime" | "runtime" => {
                if let Some(correlation) = number(event.args.correlation.as_ref()) {
                    self.launches.insert(correlation, (text(event.tid.as_ref()), start));
                }
                self.drop(LAUNCHES);
            }
            other if other.ends_with("_runtime") => self.drop(LAUNCHES),
            "cuda_sync" => self.drop("waits of streams and events: seen by when kernels run"),
            "python_function" => self.drop("functions of Python"),
            "user_annotation" if words::backend(&event.name).is_some() => {
                self.host_event(event, start, end);
            }
            "user_annotation" | "gpu_user_annotation" => self.drop("annotations"),
            "overhead" => self.drop("overheads of the profiler"),
            "trace" => self.drop("spans of the trace itself"),
            _ => self.drop("other categories"),
        }
    }

    /// Whether the host launched anything on an accelerator.
    pub(super) fn launched(&self) -> bool {
        self.dropped.contains_key(LAUNCHES)
    }

    fn host_event(&mut self, event: Event, start: f64, end: f64) {
        let thread = text(event.tid.as_ref());
        if let Some((said, rank)) = words::of_host(&event.name, &event.args) {
            let backend = words::backend(&event.name);
            if backend == Some(false) {
                let work = HostWork { name: event.name, thread: thread.clone(), start, end };
                self.own.push((work, said.clone()));
            } else if self.kernels.is_empty() {
                let name = event.name;
                self.work.push(HostWork { name, thread: thread.clone(), start, end });
            }
            self.host.push(HostEvent { thread, start, end, said, rank, backend });
        } else if self.kernels.is_empty() {
            self.work.push(HostWork { name: event.name, thread, start, end });
        } else {
            self.drop(words::OPERATORS);
        }
    }
}

fn kernel(event: Event, start: f64, end: f64) -> Kernel {
    let copies = !event.cat.eq_ignore_ascii_case("kernel");
    let said = (!copies).then(|| words::of_kernel(&event.name, &event.args)).flatten();
    Kernel {
        copies,
        stream: event.args.stream.as_ref().and_then(Value::as_i64).unwrap_or(-1),
        correlation: number(event.args.correlation.as_ref()),
        name: event.name,
        start,
        end,
        said,
    }
}
