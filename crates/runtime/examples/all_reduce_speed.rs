//! How long an all-reduce takes among processes of this machine, over TCP on loopback.
//!
//!     cargo run --release -p allrail-runtime --example all_reduce_speed [SIZES [ROUNDS]]
//!
//! `SIZES` are the dimensions, such as `4` or `2x2`. Each rank is a process of its own; every row is the
//! median of `ROUNDS` blocks of exchanges, one after the other, as rank 0 sees it. Nothing fails on a time.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use allrail_collective::Operation;
use allrail_engine::{Asked, Dtype};
use allrail_runtime::{CallOf, Node, Settings};
use serde_json::json;

type Failed = Box<dyn std::error::Error>;

/// Bytes, exchanges in a block, and how many of them are in flight at once.
const ROWS: [(u64, u32, usize); 7] = [
    (4 << 10, 200, 1),
    (64 << 10, 200, 1),
    (256 << 10, 100, 1),
    (1 << 20, 50, 1),
    (16 << 20, 5, 1),
    (64 << 20, 2, 1),
    (64 << 10, 200, 8),
];
/// Settings of the nodes beside those that it makes, as JSON.
const MORE: &str = "ALL_REDUCE_SPEED_SETTINGS";
const VARIABLE: &str = "ALL_REDUCE_SPEED_RANK";

fn main() -> Result<(), Failed> {
    let mut words = std::env::args().skip(1);
    let sizes = words.next().unwrap_or_else(|| "4".to_owned());
    let rounds: usize = words.next().map_or(Ok(7), |text| text.parse())?;
    let sizes: Vec<u32> = sizes.split('x').map(str::parse).collect::<Result<_, _>>()?;
    match std::env::var(VARIABLE) {
        Ok(rank) => run(rank.parse()?, &sizes, rounds),
        Err(_) => start(&sizes),
    }
}

/// Starts a process for each rank, and hands their addresses round.
fn start(sizes: &[u32]) -> Result<(), Failed> {
    let ranks: u32 = sizes.iter().product();
    let mut children: Vec<Child> = (0..ranks)
        .map(|rank| {
            Command::new(std::env::current_exe()?)
                .args(std::env::args().skip(1))
                .env(VARIABLE, rank.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
        })
        .collect::<Result<_, _>>()?;
    let mut outputs = Vec::new();
    let mut table: Vec<serde_json::Value> = Vec::new();
    for child in &mut children {
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        table.push(serde_json::from_str(&line)?);
        outputs.push(output);
    }
    let mut inputs = Vec::new();
    for child in &mut children {
        let mut input = child.stdin.take().ok_or("no input")?;
        writeln!(input, "{}", json!(table))?;
        inputs.push(input);
    }
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{ranks} ranks as {sizes:?}, float32, microseconds: median (least) of an all-reduce"
    )?;
    for line in outputs.remove(0).lines() {
        writeln!(out, "{}", line?)?;
    }
    for mut child in children {
        if !child.wait()?.success() {
            return Err("a rank has failed".into());
        }
    }
    Ok(())
}

fn run(rank: u32, sizes: &[u32], rounds: usize) -> Result<(), Failed> {
    let dimension = |size: &u32| json!({"size": size, "bandwidth": "30 Gb/s", "latency": "30 us"});
    let mut settings = json!({
        "rank": rank,
        "ranks": sizes.iter().product::<u32>(),
        "dimensions": sizes.iter().map(dimension).collect::<Vec<_>>(),
    });
    if let Ok(more) = std::env::var(MORE) {
        let more: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&more)?;
        more.into_iter().for_each(|(key, value)| settings[key] = value);
    }
    let node = Node::bind(Settings::from_json(&settings.to_string())?)?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", json!(node.addresses()))?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let table: Vec<Vec<String>> = serde_json::from_str(&line)?;
    node.connect(&table, &mut || true)?;
    node.start()?;
    for (bytes, count, in_flight) in ROWS {
        let elements = bytes / 4;
        let mut tensors: Vec<Vec<f32>> =
            (0..in_flight).map(|_| vec![1.0; elements as usize]).collect();
        let mut times: Vec<Duration> = Vec::new();
        for _ in 0..=rounds {
            let begun = Instant::now();
            for _ in 0..count.div_ceil(in_flight as u32) {
                let mut calls = Vec::new();
                for tensor in &mut tensors {
                    let (operation, dtype) = (Operation::AllReduce, Dtype::Float32);
                    let call = CallOf {
                        operation,
                        root: 0,
                        dtype,
                        priority: 0,
                        name: None,
                        asked: Asked::default(),
                    };
                    // SAFETY: the tensor is not touched until the call is over, below.
                    calls.push(unsafe { node.call(&call, tensor.as_mut_ptr().cast(), elements)? });
                }
                for call in calls {
                    if !node.wait_call(call, Duration::from_secs(60))? {
                        return Err("it takes for ever".into());
                    }
                }
            }
            times.push(begun.elapsed() / count);
            // The sums of ones would leave what a float holds.
            tensors.iter_mut().for_each(|tensor| tensor.fill(1.0));
        }
        // The first block warms caches and windows up.
        times.remove(0);
        times.sort();
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        if rank == 0 {
            writeln!(
                out,
                "{:>9} bytes, {in_flight} in flight: {:>9.0} ({:.0})",
                bytes,
                us(times[times.len() / 2]),
                us(times[0])
            )?;
        }
    }
    node.close();
    Ok(())
}
