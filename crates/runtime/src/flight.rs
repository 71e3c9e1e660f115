//! The flight recorder: when a fault ends the job, every rank that is left writes what it has recorded last.
//!
//! One file a rank and process group, JSON lines: first why the job has ended and who waited for whom, then the
//! records from the oldest on, with nanoseconds of the machine's clock. It appears under its name when it is whole.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;

use allrail_engine::engine::{Action, Event};
use allrail_schedule::{Key, OperationName};
use serde_json::{Value, json};

use crate::record::{Record, What};
use crate::{Report, Settings};

/// Writes it.
pub(crate) fn write(
    folder: &Path,
    settings: &Settings,
    report: &Report,
    (origin, records): (u64, &[Record]),
    names: &BTreeMap<Key, String>,
) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let job: String = settings.job.chars().filter(char::is_ascii_alphanumeric).collect();
    let Settings { rank, ranks, epoch, group, .. } = settings;
    let name = format!("flight-{job}-epoch{epoch}-group{group}-rank{rank}");
    let part = folder.join(format!(".{name}.{}", std::process::id()));
    // Neither a file that is there already, nor one that a link there points to.
    let mut file = BufWriter::new(fs::File::create_new(&part)?);
    let head = json!({
        "rank": rank, "ranks": ranks, "job": settings.job, "epoch": epoch, "group": group,
        "fault": report.fault, "waits_for": report.waits_for, "notes": report.notes,
        "clocks": report.peers.iter().map(|one| json!({"rank": one.rank, "offset": one.offset})).collect::<Vec<_>>(),
    });
    writeln!(file, "{head}")?;
    let name_of = |key: Key| match key.number_of_call() {
        Some(number) => format!("call {number}"),
        None => names.get(&key).cloned().unwrap_or_default(),
    };
    for Record { at, what } in records {
        let mut line = line(what, &name_of);
        line["at"] = json!(origin + at.as_ps() / 1000);
        writeln!(file, "{line}")?;
    }
    file.flush()?;
    drop(file);
    // The name is the job's own; a file that has it already is not of this job, and stays.
    let free = (1..).map(|number| match number {
        1 => folder.join(format!("{name}.jsonl")),
        _ => folder.join(format!("{name}-{number}.jsonl")),
    });
    let free = free.take(1000).find(|path| path.symlink_metadata().is_err());
    fs::rename(&part, free.ok_or(std::io::ErrorKind::AlreadyExists)?)
}

fn line(what: &What, name_of: &dyn Fn(Key) -> String) -> Value {
    let of = |operation: &OperationName| {
        let OperationName { key, generation, part, .. } = operation;
        json!([name_of(*key), generation, part])
    };
    match what {
        What::Told(Event::Submit { key }) => json!({"submitted": name_of(*key)}),
        What::Told(Event::Unused { key }) => json!({"submitted as unused": name_of(*key)}),
        What::Told(Event::PortFree { port }) => json!({"dimension is free": port}),
        What::Told(Event::StageOver { id, at }) => {
            json!({"stage is over": [id.slot, at.chunk, at.stage]})
        }
        What::Told(event) => json!({"told": format!("{event:?}")}),
        What::Called { name, operation, elements, dtype, .. } => {
            let kind = operation.to_string();
            json!({"called": kind, "name": name, "elements": elements, "dtype": dtype.name()})
        }
        What::Settled => json!({"settled": true}),
        What::Wants(Action::Begin { id, operation, .. }) => {
            json!({"begins": of(operation), "as": id.slot})
        }
        What::Wants(Action::Run(run)) => {
            let stage = [run.collective.slot, run.at.chunk, run.at.stage];
            json!({"launches": stage, "dimension": run.port})
        }
        What::Wants(Action::Over { operation, .. }) => json!({"is over": of(operation)}),
        What::Wants(Action::Done { key, generation }) => {
            json!({"done": [name_of(*key), generation]})
        }
        What::Wants(action) => json!({"wants": format!("{action:?}")}),
        What::Waits { key, generation } => json!({"waits": [name_of(*key), generation]}),
        What::Waited { key, generation } => json!({"waited": [name_of(*key), generation]}),
    }
}
