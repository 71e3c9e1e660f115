//! The events of a file, as they stream by.
//!
//! A file is `{"distributedInfo": …, "traceEvents": […]}` or the list alone, gzipped or not.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use allrail_core::FieldError;
use flate2::bufread::MultiGzDecoder;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::events::{Event, Events};
use super::execution;
use crate::bounds::{Bounds, Meter, Metered};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Distributed {
    rank: Option<u32>,
    world_size: Option<u32>,
    pg_config: Option<Value>,
}

/// Reads a file; of the files before it, `kept` events are kept.
///
/// # Errors
/// It is missing, cut off, not JSON, holds no events, or more than the bounds let through.
pub(super) fn read(path: &Path, bounds: Bounds, kept: u64) -> Result<Events, FieldError> {
    let wrong = |why: String, hint: &str| FieldError::new("file", path.display(), why, hint);
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
                    self.0.events.world_size = said.world_size;
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
