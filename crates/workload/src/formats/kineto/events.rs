//! The events of a Kineto trace (Chrome's trace format), as they stream by.
//!
//! A file is `{"distributedInfo": …, "traceEvents": […]}` or the list alone, gzipped or not. Of
//! millions of events, those on the accelerator are kept, and the others counted by why they are not;
//! fields that are not needed are not even built.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::error::WorkloadError;

/// Something that ran on the accelerator.
#[derive(Clone, Debug, Default)]
pub(super) struct Kernel {
    pub(super) name: String,
    pub(super) stream: i64,
    /// Microseconds.
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) copies: bool,
    pub(super) collective: Option<Collective>,
}

/// What a kernel of NCCL says of its collective.
#[derive(Clone, Debug, Default)]
pub(super) struct Collective {
    pub(super) name: String,
    pub(super) elements: (u64, u64),
    pub(super) dtype: String,
    pub(super) size: Option<u64>,
    pub(super) group: String,
    pub(super) about: String,
    pub(super) ranks: Vec<u32>,
    pub(super) source: Option<u32>,
    pub(super) destination: Option<u32>,
}

/// One file.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    pub(super) rank: Option<u32>,
    pub(super) world: Option<u32>,
    /// Ranks of process groups by name.
    pub(super) groups: BTreeMap<String, Vec<u32>>,
    pub(super) kernels: Vec<Kernel>,
    /// (number, start, end) of profiler steps, in microseconds; on the accelerator if it says them.
    pub(super) steps: Vec<(u32, f64, f64)>,
    on_accelerator: bool,
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
    ts: Option<Value>,
    #[serde(default)]
    dur: Option<f64>,
    #[serde(default)]
    args: Args,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Args {
    stream: Option<Value>,
    dtype: Option<String>,
    #[serde(rename = "Collective name")]
    collective: Option<String>,
    #[serde(rename = "In msg nelems")]
    in_elements: Option<Value>,
    #[serde(rename = "Out msg nelems")]
    out_elements: Option<Value>,
    #[serde(rename = "Group size")]
    size: Option<Value>,
    #[serde(rename = "Process Group Name")]
    group: Option<Value>,
    #[serde(rename = "Process Group Description")]
    about: Option<String>,
    #[serde(rename = "Process Group Ranks")]
    ranks: Option<Value>,
    #[serde(rename = "Src Rank")]
    source: Option<Value>,
    #[serde(rename = "Dst Rank")]
    destination: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Distributed {
    rank: Option<u32>,
    world_size: Option<u32>,
    pg_config: Option<Value>,
}

/// Reads a file.
///
/// # Errors
/// It is missing, not JSON, or holds no events.
pub(super) fn read(path: &Path) -> Result<Events, WorkloadError> {
    let wrong = |why: String, hint: &str| WorkloadError::new("file", path.display(), why, hint);
    let open = || File::open(path).map_err(|error| wrong(error.to_string(), "is it there?"));
    let mut magic = [0u8; 2];
    let zipped = open()?.read(&mut magic).is_ok_and(|read| read == 2) && magic == [0x1f, 0x8b];
    let file = BufReader::with_capacity(1 << 20, open()?);
    let mut events = Events::default();
    let done = if zipped {
        parse(BufReader::with_capacity(1 << 20, flate2::bufread::GzDecoder::new(file)), &mut events)
    } else {
        parse(file, &mut events)
    };
    done.map_err(|error| {
        wrong(
            format!("it is no trace of Kineto: {error}"),
            "PyTorch's profiler writes one: \
            `prof.export_chrome_trace(\"rank0.json.gz\")`",
        )
    })?;
    Ok(events)
}

fn parse(reader: impl Read, events: &mut Events) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_reader(reader);
    Top(events).deserialize(&mut json)?;
    json.end()
}

struct Top<'a>(&'a mut Events);

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object with `traceEvents`, or a list of events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => {
                    seen = true;
                    map.next_value_seed(List(self.0))?;
                }
                "distributedInfo" => {
                    let said: Distributed = map.next_value()?;
                    self.0.rank = said.rank;
                    self.0.world = said.world_size;
                    if let Some(config) = said.pg_config {
                        self.0.take_groups(&config);
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
        while let Some(event) = list.next_element::<Event>()? {
            self.0.take(event);
        }
        Ok(())
    }
}

struct List<'a>(&'a mut Events);

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(Top(self.0))
    }
}

impl Events {
    fn drop(&mut self, why: &'static str) {
        *self.dropped.entry(why).or_default() += 1;
    }

    fn take_groups(&mut self, config: &Value) {
        let Some(list) = config.as_array() else { return };
        for group in list {
            let name = text(group.get("pg_name"));
            let ranks = ranks(group.get("ranks"), number(group.get("pg_size")));
            if !name.is_empty() && !ranks.is_empty() {
                self.groups.insert(name, ranks);
            }
        }
    }

    fn take(&mut self, event: Event) {
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
        if let Some(step) = step {
            let accelerator = event.cat.starts_with("gpu");
            if accelerator && !self.on_accelerator {
                self.on_accelerator = true;
                self.steps.clear();
            }
            if accelerator == self.on_accelerator {
                self.steps.push((step, start, start + length));
            }
        }
        match event.cat.as_str() {
            "kernel" | "gpu_memcpy" | "gpu_memset" => {
                self.kernels.push(kernel(event, start, length));
            }
            "cpu_op" | "Operator" => {
                self.drop("operators of the host: their kernels stand for them");
            }
            "cuda_runtime" | "cuda_driver" | "hip_runtime" | "Runtime" => {
                self.drop("launches by the host: gaps on the accelerator stand for them");
            }
            "cuda_sync" => self.drop("waits of streams and events: seen by when kernels run"),
            "python_function" => self.drop("functions of Python"),
            "user_annotation" | "gpu_user_annotation" => self.drop("annotations"),
            "overhead" => self.drop("overheads of the profiler"),
            "Trace" => self.drop("spans of the trace itself"),
            _ => self.drop("other categories"),
        }
    }
}

fn kernel(event: Event, start: f64, length: f64) -> Kernel {
    let args = event.args;
    let is_nccl = event.cat == "kernel"
        && (args.collective.is_some()
            || ["nccl", "ncclDevKernel", "ncclKernel", "rccl"]
                .iter()
                .any(|prefix| event.name.starts_with(prefix)));
    let collective = is_nccl.then(|| {
        let size = number(args.size.as_ref());
        Collective {
            name: args.collective.clone().unwrap_or_default(),
            elements: (
                number(args.in_elements.as_ref()).unwrap_or_default(),
                number(args.out_elements.as_ref()).unwrap_or_default(),
            ),
            dtype: args.dtype.clone().unwrap_or_default(),
            size,
            group: text(args.group.as_ref()),
            about: args.about.clone().unwrap_or_default(),
            ranks: ranks(args.ranks.as_ref(), size),
            source: number(args.source.as_ref()).and_then(|rank| u32::try_from(rank).ok()),
            destination: number(args.destination.as_ref())
                .and_then(|rank| u32::try_from(rank).ok()),
        }
    });
    Kernel {
        copies: event.cat != "kernel",
        stream: args.stream.as_ref().and_then(Value::as_i64).unwrap_or(-1),
        name: event.name,
        start,
        end: start + length.max(0.0),
        collective,
    }
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn number(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Jobs of more ranks are refused.
pub(super) const MOST_RANKS: u32 = 1 << 20;

/// A list of ranks, or its text. PyTorch cuts the text after 30 ranks (`…, 93, ...]`): the rest goes
/// on as it began, up to the size of the group. Of a group that no job can have only its size is
/// kept, as its last rank: a size is one number of a file, and a list of it may be 16 GiB.
fn ranks(value: Option<&Value>, size: Option<u64>) -> Vec<u32> {
    let mut ranks: Vec<u32> = match value {
        Some(Value::Array(list)) => {
            list.iter().filter_map(|rank| u32::try_from(rank.as_u64()?).ok()).collect()
        }
        Some(Value::String(text)) => {
            text.split(|c: char| !c.is_ascii_digit()).filter_map(|rank| rank.parse().ok()).collect()
        }
        _ => Vec::new(),
    };
    let cut = matches!(value, Some(Value::String(text)) if text.contains("..."));
    if let (true, Some(size), [first, second, ..]) = (cut, size, ranks.as_slice()) {
        let (first, apart) = (*first, second.saturating_sub(*first));
        let many = u32::try_from(size).unwrap_or(u32::MAX);
        if many > MOST_RANKS {
            ranks.push(many - 1);
            return ranks;
        }
        ranks = (0..many).map(|i| first.saturating_add(i.saturating_mul(apart))).collect();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_pytorch_cuts_go_on() {
        let text = Value::String("[64, 66, 68, ...]".into());
        assert_eq!(ranks(Some(&text), Some(5)), [64, 66, 68, 70, 72]);
        assert_eq!(ranks(Some(&Value::String("[3, 1]".into())), Some(2)), [3, 1]);
        assert_eq!(ranks(Some(&serde_json::json!([0, 4])), None), [0, 4]);
        let (text, size) = (Value::String("[0, 1, ...]".into()), Some(u64::from(u32::MAX)));
        assert_eq!(ranks(Some(&text), size), [0, 1, u32::MAX - 1]);
    }
}
