//! Programs of MSCCL as algorithms: laid out, proved, and refused with the step that is wrong.

pub(crate) mod programs;

use allrail_collective::algorithm::{Own, OwnPrograms, named};
use allrail_collective::msccl::{Wrong, algorithm};
use allrail_collective::verify::verify;
use allrail_collective::{Algorithm, Operation};
use programs::Writer;

fn laid_out(name: &str, text: &str) -> Own {
    algorithm(name, text).unwrap_or_else(|wrong| panic!("{name}: {wrong}\n{text}"))
}

fn refused(text: &str) -> Wrong {
    algorithm("own.xml", text).expect_err("refused")
}

#[test]
fn every_program_becomes_one_that_is_right() {
    for (name, text) in programs::all() {
        let own = laid_out(&name, &text);
        let (operation, ranks) = (own.operation(), own.ranks().expect("of so many"));
        let program = own.program(operation, ranks);
        assert!(verify(&program, operation).is_ok(), "{name}");
        // Every chunk that the file sends is sent.
        let sent: u64 = (0..ranks).map(|rank| program.blocks_sent(rank)).sum();
        let number = |line: &str| -> u64 {
            let count = line.split("cnt=\"").nth(1).and_then(|rest| rest.split('"').next());
            count.and_then(|count| count.parse().ok()).expect("a count")
        };
        let written = text.lines().filter(|line| line.contains("type=\"s\"")).map(number);
        assert_eq!(sent, written.sum::<u64>(), "{name}");
    }
}

#[test]
fn a_plan_carries_what_the_file_said() {
    for (name, text) in programs::all() {
        let own = laid_out(&name, &text);
        let all: OwnPrograms = std::iter::once(own.clone()).collect();
        let json = serde_json::to_string(&all).expect("text");
        let read: OwnPrograms = serde_json::from_str(&json).expect("the same");
        assert_eq!(read.get(&name).map(|one| &**one), Some(&own));
    }
}

#[test]
fn steps_are_as_few_as_what_they_carry_allows() {
    let steps = |text: &str| {
        let own = laid_out("own.xml", text);
        let ranks = own.ranks().expect("of so many");
        own.program(own.operation(), ranks).step_count()
    };
    let of = |wanted: &str| {
        let found = programs::all().into_iter().find(|(name, _)| name == wanted);
        steps(&found.unwrap_or_else(|| panic!("there is no {wanted}")).1)
    };
    assert_eq!(of("ring of 8.xml"), 14);
    assert_eq!(of("ring both ways of 4.xml"), 6);
    assert_eq!(of("everything to everyone of 5.xml"), 1);
    assert_eq!(of("all pairs of 8.xml"), 2);
    assert_eq!(of("hierarchical of 2x4.xml"), 4);
    assert_eq!(of("tree of 7.xml"), 4);
    assert_eq!(of("halving of 8.xml"), 3);
    assert_eq!(of("doubling of 8.xml"), 3);
    assert_eq!(of("swap of 4.xml"), 1);
    assert_eq!(of("swap in two steps of 2x4.xml"), 2);
    assert_eq!(of("chain of 5.xml"), 6);
}

#[test]
fn a_ring_costs_what_ours_costs() {
    for ranks in [2, 3, 4, 8] {
        for (text, ours) in [
            (programs::ring(ranks), "ring_unidirectional"),
            (programs::ring_both_ways(ranks), "ring"),
        ] {
            let own = laid_out("own.xml", &text).cost(Operation::AllReduce, ranks);
            let ours = named(ours).expect("known").cost(Operation::AllReduce, ranks);
            let share = |(part, whole): (u64, u64)| part as f64 / whole as f64;
            assert_eq!(own.steps, ours.steps);
            assert_eq!((share(own.sent), share(own.fill)), (share(ours.sent), share(ours.fill)));
        }
    }
}

/// The lines of a program's steps.
fn steps(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter(|(_, line)| line.contains("<step"))
}

fn with_line(text: &str, at: usize, line: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    [&lines[..at], &[line], &lines[at + 1..]].concat().join("\n")
}

fn value<'a>(line: &'a str, key: &str) -> &'a str {
    let rest = line.split(&format!(" {key}=\"")).nth(1).expect("the attribute");
    rest.split('"').next().expect("its end")
}

fn with(line: &str, key: &str, to: &str) -> String {
    let from = format!(" {key}=\"{}\"", value(line, key));
    line.replacen(&from, &format!(" {key}=\"{to}\""), 1)
}

/// Of a program that was changed: right all the same, or refused with a line.
fn check_changed(text: &str, what: &str) -> bool {
    match algorithm("own.xml", text) {
        Ok(own) => {
            let ranks = own.ranks().expect("of so many");
            assert!(
                verify(&own.program(own.operation(), ranks), own.operation()).is_ok(),
                "{what}"
            );
            false
        }
        Err(wrong) => {
            let named = wrong.place.starts_with("line ") || wrong.place.starts_with("GPU ");
            assert!(named && !wrong.hint.is_empty(), "{what}: {wrong}");
            true
        }
    }
}

#[test]
fn what_is_changed_is_right_all_the_same_or_named() {
    let (mut dropped, mut moved, mut freed) = (0, 0, 0);
    let small = programs::all().into_iter().filter(|(_, text)| text.len() < 12_000);
    for (name, text) in small {
        for (at, line) in steps(&text) {
            let what = |change: &str| format!("{name}, line {}, {change}", at + 1);
            let kind = value(line, "type");
            if ["s", "r", "rrc", "re"].contains(&kind) {
                let nothing = with_line(&text, at, &with(line, "type", "nop"));
                assert!(check_changed(&nothing, &what("left out")), "{}", what("left out"));
                dropped += 1;
            }
            if kind != "nop" {
                let key = if kind == "r" { "dstoff" } else { "srcoff" };
                let next = value(line, key).parse::<u32>().expect("a number") + 1;
                let other = with_line(&text, at, &with(line, key, &next.to_string()));
                moved += u32::from(check_changed(&other, &what("moved")));
            }
            if value(line, "depid") != "-1" {
                let alone = with(&with(line, "depid", "-1"), "deps", "-1");
                freed += u32::from(check_changed(&with_line(&text, at, &alone), &what("alone")));
            }
        }
    }
    assert!(dropped > 300 && moved > 200 && freed > 50, "{dropped}, {moved}, {freed}");
}

#[test]
fn what_needs_more_than_one_buffer_is_refused() {
    // Each buffer goes round the ring and is added everywhere.
    let mut writer = Writer::new("allreduce", 3, 1, true);
    for rank in 0..3 {
        writer.put((rank, ('i', 0)), ((rank + 1) % 3, ('s', 0)), 1);
    }
    for rank in 0..3 {
        writer.put((rank, ('s', 0)), ((rank + 1) % 3, ('s', 1)), 1);
    }
    for rank in 0..3 {
        writer.sum(rank, ('s', 0), ('i', 0), 1);
        writer.sum(rank, ('s', 1), ('i', 0), 1);
    }
    let wrong = refused(&writer.text());
    assert!(wrong.place.contains("(`re`) of block") && wrong.place.starts_with("line "), "{wrong}");
    assert!(wrong.why.contains("and is passed on") && wrong.hint.contains("trace"), "{wrong}");

    // GPU 1 passes on what it has not added while its own chunk waits for what comes of it.
    let mut writer = Writer::new("allreduce", 3, 1, true);
    writer.put((0, ('i', 0)), (1, ('s', 0)), 1);
    writer.add((1, ('s', 0)), (2, ('i', 0)), 1);
    writer.add((2, ('i', 0)), (1, ('i', 0)), 1);
    writer.put((1, ('i', 0)), (0, ('i', 0)), 1);
    writer.put((1, ('i', 0)), (2, ('i', 0)), 1);
    let wrong = refused(&writer.text());
    assert!(wrong.place.contains("(`r`) of block 0 of GPU 1"), "{wrong}");
    assert!(wrong.why.contains("GPU 1 has no place for chunk 0"), "{wrong}");

    // GPU 0 sends once more what GPU 1 has.
    let mut writer = Writer::new("allgather", 2, 2, true);
    writer.put((0, ('o', 0)), (1, ('o', 0)), 1);
    writer.put((1, ('o', 1)), (0, ('o', 1)), 1);
    writer.put((0, ('o', 0)), (1, ('s', 0)), 1);
    let wrong = refused(&writer.text());
    assert!(wrong.why.contains("nothing is made of"), "{wrong}");
}

#[test]
fn a_chunk_may_wait_where_another_has_left() {
    // GPU 1 passes on what it has not added, once it has sent its own.
    let mut writer = Writer::new("allreduce", 3, 1, true);
    writer.put((0, ('i', 0)), (1, ('s', 0)), 1);
    writer.add((1, ('s', 0)), (2, ('i', 0)), 1);
    writer.add((1, ('i', 0)), (2, ('i', 0)), 1);
    writer.put((2, ('i', 0)), (0, ('i', 0)), 1);
    writer.put((2, ('i', 0)), (1, ('i', 0)), 1);
    let own = laid_out("own.xml", &writer.text());
    assert_eq!(own.cost(Operation::AllReduce, 3).steps, 3);
}

#[test]
fn programs_in_json_are_proved_too() {
    let own = laid_out("own.xml", &programs::ring(3));
    let all: OwnPrograms = std::iter::once(own).collect();
    let text = serde_json::to_string(&all).expect("text");
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from));
        let wrong = text.replacen(from, to, 1);
        serde_json::from_str::<OwnPrograms>(&wrong).expect_err("wrong").to_string()
    };
    assert!(
        refused("\"adds\":true", "\"adds\":false").contains("`own.xml`: it is no right program")
    );
    assert!(refused("\"ranks\":3", "\"ranks\":4").contains("`own.xml`"));
    assert!(refused("\"to\":1", "\"to\":7").contains("ranks are 0 to 2"));
    assert!(refused("\"ranks\":3", "\"ranks\":4000000000").contains("are too many"));
    assert!(refused("\"blocks\":[0]", "\"blocks\":[4294967295]").contains("there are 3"));
    assert!(refused("\"blocks\":[0]", "\"blocks\":[]").contains("carries nothing"));
    assert!(refused("\"blocks\":3", "\"blocks\":0").contains("there are 0"));
    assert!(refused("\"blocks\":[0]", "\"blocks\":[0,1],\"into\":[0]").contains("`own.xml`"));
    assert!(refused("\"own.xml\"", "\"ring\"").contains("is there already"));
    assert!(refused("\"blocks\":[0]", "\"blocks\":[0],\"into\":[1]").contains("`own.xml`"));
}
