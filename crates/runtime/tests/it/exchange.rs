//! Tensors are exchanged right, whatever their size and type, over any dimensions, in any order.

use allrail_engine::Dtype;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::json;

use crate::cluster::{Held, connected, links, over, register, submit, wait};

fn content(dtype: Dtype, elements: usize, draw: &mut Pcg64) -> Vec<u8> {
    (0..elements)
        .flat_map(|_| {
            let number = draw.random_range(-1000i64..1000);
            match dtype {
                Dtype::Float32 => (number as f32 * 0.37).to_le_bytes().to_vec(),
                Dtype::Float64 => (number as f64 * 0.37).to_le_bytes().to_vec(),
                Dtype::Bfloat16 => (number as f32 * 0.37).to_le_bytes()[2..].to_vec(),
                // A number of a size that a half has.
                Dtype::Float16 => ((number.unsigned_abs() as u16) << 4).to_le_bytes().to_vec(),
                other => number.to_le_bytes()[..other.width() as usize].to_vec(),
            }
        })
        .collect()
}

/// The sum of all, as the engine would have it in the order of ranks: exact for integers.
fn sum(dtype: Dtype, all: &[Vec<u8>]) -> Vec<u8> {
    let mut held = all[0].clone();
    all[1..].iter().for_each(|came| dtype.add(&mut held, came));
    held
}

fn float(dtype: Dtype, bytes: &[u8]) -> Option<f64> {
    match dtype {
        Dtype::Float32 => Some(f64::from(f32::from_le_bytes(bytes.try_into().ok()?))),
        Dtype::Float64 => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
        Dtype::Bfloat16 => Some(f64::from(f32::from_le_bytes([0, 0, bytes[0], bytes[1]]))),
        _ => None,
    }
}

fn close(dtype: Dtype, is: &[u8], wanted: &[u8]) -> bool {
    let within = match dtype {
        Dtype::Float32 => 1e-3,
        Dtype::Float64 => 1e-9,
        Dtype::Bfloat16 => 64.0,
        // Halves in another order differ; that all ranks agree is checked beside.
        Dtype::Float16 => return true,
        _ => return is == wanted,
    };
    let width = dtype.width() as usize;
    is.chunks(width).zip(wanted.chunks(width)).all(|(is, wanted)| {
        let (is, wanted) = (float(dtype, is), float(dtype, wanted));
        is.zip(wanted).is_some_and(|(is, wanted)| (is - wanted).abs() <= within)
    })
}

/// Several tensors a few times over ranks of these sizes, over whatever they may have between them.
fn exchange(sizes: &[u32], seed: u64, more: &serde_json::Value) {
    links().iter().for_each(|link| exchange_over(sizes, seed, &over(link, more)));
}

fn exchange_over(sizes: &[u32], seed: u64, more: &serde_json::Value) {
    let nodes = connected(sizes, more);
    let mut draw = Pcg64::seed_from_u64(seed);
    let dtypes: Vec<(Dtype, usize)> = (0..draw.random_range(1..6))
        .map(|_| {
            let dtype = Dtype::ALL[draw.random_range(0..Dtype::ALL.len())];
            let most = if draw.random_bool(0.2) { 300_000 } else { 3000 };
            (dtype, draw.random_range(0..most))
        })
        .collect();
    let keys: Vec<Vec<_>> = nodes
        .iter()
        .map(|node| {
            let register = |(t, (dtype, elements)): (usize, &(Dtype, usize))| {
                let held = Held::new(*dtype, &vec![0; elements * dtype.width() as usize]);
                register(node, &format!("layer{t}"), &held, t as u32)
            };
            dtypes.iter().enumerate().map(register).collect()
        })
        .collect();
    for generation in 0..3 {
        let brought: Vec<Vec<Vec<u8>>> = nodes
            .iter()
            .map(|_| dtypes.iter().map(|(d, n)| content(*d, *n, &mut draw)).collect())
            .collect();
        let mut orders: Vec<Vec<usize>> =
            nodes.iter().map(|_| (0..dtypes.len()).collect()).collect();
        orders.iter_mut().for_each(|order| order.shuffle(&mut draw));
        let results: Vec<Vec<Vec<u8>>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..nodes.len())
                .map(|rank| {
                    let (node, keys, order) = (&nodes[rank], &keys[rank], &orders[rank]);
                    let (dtypes, brought) = (&dtypes, &brought[rank]);
                    scope.spawn(move || {
                        if generation == 0 {
                            node.start().expect("it starts");
                        }
                        let mut held: Vec<Held> = dtypes
                            .iter()
                            .zip(brought)
                            .map(|((dtype, _), content)| Held::new(*dtype, content))
                            .collect();
                        for t in order {
                            assert_eq!(submit(node, keys[*t], &mut held[*t]), generation);
                        }
                        for (t, key) in keys.iter().enumerate() {
                            wait(node, *key, generation).unwrap_or_else(|e| panic!("{t}: {e}"));
                        }
                        held.iter().map(|one| one.content().to_vec()).collect()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for (t, (dtype, _)) in dtypes.iter().enumerate() {
            let all: Vec<Vec<u8>> = brought.iter().map(|of_rank| of_rank[t].clone()).collect();
            let wanted = sum(*dtype, &all);
            for (rank, result) in results.iter().enumerate() {
                let what = format!("{sizes:?}, seed {seed}, tensor {t} {dtype:?}, rank {rank}");
                assert!(close(*dtype, &result[t], &wanted), "{what}");
                assert!(result[t] == results[0][t], "{what}: other bits than rank 0");
            }
        }
    }
    nodes.iter().for_each(|node| node.close());
}

#[test]
fn sums_are_right_over_one_dimension() {
    for (seed, size) in [(1, 2), (2, 3), (3, 4), (4, 5)] {
        exchange(&[size], seed, &json!({}));
    }
}

#[test]
fn sums_are_right_over_several_dimensions() {
    for (seed, policy) in [(11, "baseline"), (12, "themis"), (13, "baseline")] {
        let more = json!({
            "policy": policy, "chunks": 4, "smallest_chunk": "4 KiB", "partition": "64 KiB",
        });
        exchange(&[2, 2], seed, &more);
        exchange(&[3, 2], seed + 100, &more);
        exchange(&[2, 2, 2], seed + 200, &more);
    }
}

#[test]
fn sums_are_right_under_every_algorithm_and_scheduler() {
    let algorithms =
        ["ring", "direct", "halving_doubling", "double_binary_tree", "parameter_server"];
    let tensors = ["fifo", "ddp", "fifo", "bytescheduler", "bytescheduler"];
    for (seed, (algorithm, tensor)) in (21..).zip(algorithms.into_iter().zip(tensors)) {
        exchange(
            &[4],
            seed,
            &json!({"algorithms": [algorithm], "tensor": tensor, "chunks": 2, "smallest_chunk": "1 KiB"}),
        );
    }
}

#[test]
fn sums_are_right_where_algorithms_are_chosen() {
    let more = json!({"algorithms": "auto", "smallest_chunk": "4 KiB", "partition": "64 KiB"});
    exchange(&[4], 26, &more);
    exchange(&[2, 2], 27, &json!({"algorithms": ["ring", "auto"]}));
    // As measured: other algorithms from 1 KB and from 10 KB on.
    let points = json!([
        {"from": "1 B", "algorithm": "double_binary_tree"},
        {"from": "1 KB", "algorithm": "direct"},
        {"from": "10 KB", "algorithm": "ring"},
    ]);
    let dimension = json!({
        "size": 4, "bandwidth": "1 Gb/s", "latency": "20 us", "fastest": {"all_reduce": points},
    });
    exchange(&[4], 28, &json!({"algorithms": "auto", "dimensions": [dimension]}));
}

#[test]
fn one_rank_alone_has_its_sum() {
    exchange(&[], 31, &json!({}));
}

#[test]
fn ranks_meet_over_ipv6_too() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this machine has no IPv6 loopback");
        return;
    }
    let dimension =
        json!({"size": 3, "interface": "::1", "bandwidth": "1 Gb/s", "latency": "20 us"});
    exchange(&[3], 41, &json!({"dimensions": [dimension]}));
}

/// Many ranks have many plans; a job should not wait for them.
#[test]
fn a_node_of_many_ranks_is_bound_quickly() {
    let begun = std::time::Instant::now();
    drop(crate::cluster::bind(77, &[8, 8, 8], &json!({"policy": "themis", "chunks": 64})));
    let took = begun.elapsed();
    eprintln!("bound in {took:?}");
    assert!(took < std::time::Duration::from_secs(20), "{took:?}");
}
