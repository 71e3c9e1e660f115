//! The deciders, and the engine that connects them, hold no clock, thread, file, socket or unseeded
//! randomness, and iterate over nothing whose order is not fixed: their sources are read for it.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules of `std` that no decider may use.
const MODULES: &[&str] = &["time", "thread", "fs", "net", "io", "env", "process", "os"];

/// Names that no decider may mention.
const NAMES: &[&str] = &[
    "Instant",
    "SystemTime",
    "thread_rng",
    "rand::rng",
    "from_os_rng",
    "from_entropy",
    "OsRng",
    "HashMap",
    "HashSet",
    "RandomState",
    "rayon",
    "println!",
    "include_str!",
    "include_bytes!",
    "static mut",
];

/// The source without its comments.
fn code(source: &str) -> String {
    let line = |line: &str| line.split("//").next().unwrap_or("").to_owned() + "\n";
    source.lines().map(line).collect()
}

/// What a source uses that a decider must not.
fn impurities(source: &str) -> Vec<String> {
    let code = code(source);
    let mut found: Vec<String> =
        NAMES.iter().filter(|name| mentions(&code, name)).map(|name| (*name).to_owned()).collect();
    for (place, _) in code.match_indices("std::") {
        let rest = &code[place + "std::".len()..];
        // Of `std::{a, b::c}` each path, else the path itself.
        let paths = match rest.strip_prefix('{') {
            Some(group) => group.split('}').next().unwrap_or("").split(',').collect(),
            None => vec![rest],
        };
        for path in paths {
            let module: String =
                path.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if MODULES.contains(&module.as_str()) {
                found.push(format!("std::{module}"));
            }
        }
    }
    found
}

/// Whether `name` stands in `code` as a whole word.
fn mentions(code: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name).any(|(place, _)| {
        !code[..place].ends_with(word)
            && (name.ends_with('!') || !code[place + name.len()..].starts_with(word))
    })
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the crate's own sources") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_decider_reads_a_clock_a_file_or_an_unseeded_number() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    // Coordinators are deciders, and the engine that connects them all is as pure as they are.
    for (folder, known) in [
        ("src", "chunk/themis.rs"),
        ("../coordinate/src", "src/tree.rs"),
        ("../engine/src", "engine/running.rs"),
    ] {
        sources(&own.join(folder), &mut files);
        assert!(files.iter().any(|path| path.ends_with(known)), "{files:?}");
    }
    for path in files {
        let source = fs::read_to_string(&path).expect("text");
        assert_eq!(impurities(&source), [""; 0], "in {}", path.display());
    }
}

#[test]
fn a_planted_line_is_found() {
    for planted in [
        "use std::time::Duration;",
        "let now = Instant::now();",
        "let now = std::time::SystemTime::now();",
        "std::thread::spawn(run);",
        "let text = std::fs::read(path);",
        "use std::net::TcpStream;",
        "use std::io::Write as _;",
        "if std::env::var(\"FAST\").is_ok() {",
        "use std::{fmt, time::Instant};",
        "use std::{\n    collections::VecDeque,\n    io,\n};",
        "let mut rng = rand::thread_rng();",
        "let mut rng = rand::rng();",
        "let mut rng = Pcg64Mcg::from_os_rng();",
        "let mut rng = Pcg64Mcg::from_entropy();",
        "use std::collections::HashMap;",
        "let seen: HashSet<u32> = HashSet::new();",
    ] {
        let source = format!("//! A decider.\n\nfn decide() {{\n    {planted}\n}}\n");
        assert!(!impurities(&source).is_empty(), "`{planted}` was not found");
    }
}

#[test]
fn what_a_decider_may_use_is_let_through() {
    for line in [
        "use std::collections::{BTreeMap, VecDeque};",
        "use std::cmp::Reverse;",
        "use allrail_core::Time;",
        "let mut rng = Pcg64Mcg::seed_from_u64(problem.seed);",
        "let rng = brand::rngs();",
        "// Not Instant::now(): time enters as data, never std::time.",
        "fn time() -> Time { Time::ZERO }",
    ] {
        assert_eq!(impurities(line), [""; 0], "{line}");
    }
}
