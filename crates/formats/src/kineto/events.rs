//! The events of a Kineto trace (Chrome's trace format): which are kept.
//!
//! Of millions of events, those on the accelerator are kept, what launched them, what the host says of
//! communication, and, until a kernel is met, when the host worked; the others are counted by why they
//! are not.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::said::{Said, number, ranks, text};
use super::words;

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

/// An event of the host that belongs to a communication.
#[derive(Clone, Debug)]
pub(super) struct HostEvent {
    pub(super) thread: String,
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) said: Said,
    /// The higher, the more its words are worth.
    pub(super) rank: u8,
    /// Whether it is a backend's span, and if so, whether of a backend of accelerators.
    pub(super) backend: Option<bool>,
}

/// One file.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    pub(super) rank: Option<u32>,
    pub(super) world_size: Option<u32>,
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

/// An event as it is written.
#[derive(Deserialize)]
pub(super) struct Event {
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

const LAUNCHES: &str = "launches by the host: gaps on the accelerator stand for them";

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

    pub(super) fn is_empty(&self) -> bool {
        self.kernels.is_empty() && self.host.is_empty() && self.dropped.is_empty()
    }

    fn drop(&mut self, why: &'static str) {
        *self.dropped.entry(why).or_default() += 1;
    }

    pub(super) fn take_groups(&mut self, config: &Value) {
        let Some(list) = config.as_array() else { return };
        for group in list {
            let name = text(group.get("pg_name"));
            let (ranks, _) = ranks(group.get("ranks"), number(group.get("pg_size")));
            if !name.is_empty() && !ranks.is_empty() {
                self.groups.insert(name, ranks);
            }
        }
    }

    pub(super) fn take(&mut self, event: Event) {
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
