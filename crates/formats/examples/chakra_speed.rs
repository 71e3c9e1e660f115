//! How fast a Chakra trace is read: `cargo run --release --example chakra_speed -- 10000000 [DIR]`.
//!
//! Writes the trace of one rank with so many nodes (nine compute nodes, then an all-reduce, each
//! after the one before, with the attributes that PyTorch's converter gives), reads it, and prints
//! nodes a second and bytes a node.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use allrail_formats::chakra::proto::attribute_proto::Value;
use allrail_formats::chakra::proto::{AttributeProto, BoolList, GlobalMetadata, Node};
use allrail_formats::chakra::{Options, read};
use prost::Message;

fn attribute(name: &str, value: Value) -> AttributeProto {
    AttributeProto { name: name.into(), doc_string: String::new(), value: Some(value) }
}

fn node(id: u64) -> Node {
    let compute = id % 10 != 9;
    let mut attr = vec![
        attribute("is_cpu_op", Value::BoolVal(false)),
        attribute("rf_id", Value::Int64Val(id.cast_signed())),
    ];
    if compute {
        attr.push(attribute("num_ops", Value::Int64Val(1_000_000)));
        attr.push(attribute("tensor_size", Value::Uint64Val(65_536)));
    } else {
        attr.push(attribute("comm_type", Value::Int64Val(0)));
        attr.push(attribute("comm_size", Value::Int64Val(1 << 20)));
        attr.push(attribute(
            "involved_dim",
            Value::BoolList(BoolList { values: vec![true, true] }),
        ));
    }
    Node {
        id,
        name: if compute { format!("aten::mm_{id}") } else { format!("nccl:all_reduce_{id}") },
        r#type: if compute { 4 } else { 7 },
        data_deps: if id == 0 { Vec::new() } else { vec![id - 1] },
        start_time_micros: id * 3,
        duration_micros: if compute { 3 } else { 0 },
        attr,
        ..Node::default()
    }
}

/// A line of this process's status, such as the most memory it had.
fn status(key: &str) -> String {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap_or("? unknown");
    line.split_once(':').map_or("unknown", |(_, value)| value.trim()).to_owned()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let nodes: u64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join("speed.0.et");
    let mut out = std::io::stdout();
    if !path.exists() {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&path)?);
        let head = GlobalMetadata { version: "0.0.4".into(), attr: Vec::new() };
        file.write_all(&head.encode_length_delimited_to_vec())?;
        for id in 0..nodes {
            file.write_all(&node(id).encode_length_delimited_to_vec())?;
        }
        file.flush()?;
        writeln!(out, "wrote {}; run again to measure", path.display())?;
        return Ok(());
    }
    let begin = Instant::now();
    let options = Options { sizes: vec![1, 1], ..Options::default() };
    let trace = read(&folder.join("speed"), &options)?;
    let seconds = begin.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let (nodes, bytes) = (trace.nodes as f64, trace.bytes as f64);
    writeln!(
        out,
        "{} nodes of {:.1} bytes and 4 or 5 attributes: {seconds:.2} s, {:.2} million nodes/s, most memory {}, now {}",
        trace.nodes,
        bytes / nodes,
        nodes / seconds / 1e6,
        status("VmHWM"),
        status("VmRSS"),
    )?;
    Ok(())
}
