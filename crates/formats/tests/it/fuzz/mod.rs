//! Fuzzes the readers of Rust: whatever a file holds, a reader ends in a value or in an error with all
//! its parts. It does not panic, and it keeps to [`SLOWEST`] and to [`memory::MOST`].
//!
//! `make test` reads the corpus, `fuzz/corpus/TARGET`, again. `make explore` mutates it; so does
//!
//! ```text
//! FUZZ_TARGET=kineto FUZZ_SECONDS=60 cargo test -p allrail-formats --test it \
//!     -- --exact fuzz::mutated_inputs --ignored --nocapture
//! ```
//!
//! An input that fails is kept in `fuzz/artifacts`, with a command that reads it again. One that is
//! repaired moves to the corpus. While an input is read it lies in `fuzz/artifacts/TARGET.last`, where it
//! is found when the process was ended.

mod memory;
mod mutate;
mod targets;

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use targets::{Ended, TARGETS, Target};

/// What one input may take, in the profile of the tests and on a busy machine.
const SLOWEST: Duration = Duration::from_secs(20);

/// More inputs than this are not added to a corpus.
const KEPT: usize = 48;

/// More inputs than this are not mutated further: some errors quote what they read, and no two are alike.
const POOL: usize = 1024;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(name)
}

/// How reading ended, shortened to what makes it another end; or what is wrong with how it ended.
fn judge(read: impl FnOnce() -> Ended) -> Result<String, String> {
    let start = Instant::now();
    let ended = memory::limited(|| catch_unwind(AssertUnwindSafe(read)));
    let took = start.elapsed();
    if took > SLOWEST {
        return Err(format!("it took {took:?}"));
    }
    match ended {
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("it panicked: {}", said.unwrap_or("without words")))
        }
        Ok(Ok(read)) => Ok(read),
        Ok(Err(error)) => {
            if [&error.field, &error.why, &error.hint].iter().any(|part| part.is_empty()) {
                return Err(format!("an error without field, why or hint: {error:?}"));
            }
            Ok(shortened(&error.why))
        }
    }
}

/// An error's words without what they quote: two files that are wrong alike end alike.
fn shortened(why: &str) -> String {
    let unquoted = why.split(['`', '"', '\'']).step_by(2);
    let letters = unquoted.flat_map(str::chars).filter(|c| c.is_alphabetic() || *c == ' ');
    letters.take(32).collect()
}

/// Writes a file over the last one. Emptied first, it would go to the disk each time: file systems do
/// so for those who replace a file in that way, and it takes longer than to read it.
fn put(path: &Path, bytes: &[u8]) {
    let mut options = fs::OpenOptions::new();
    let mut file = options.create(true).truncate(false).write(true).open(path).expect("a file");
    file.write_all(bytes).expect("it is written");
    file.set_len(bytes.len() as u64).expect("it is cut");
}

/// A target with a folder of its own for the files that it reads.
struct Bench<'t> {
    target: &'t Target,
    files: PathBuf,
}

impl<'t> Bench<'t> {
    fn new(target: &'t Target, purpose: &str) -> Self {
        let name = format!("allrail-fuzz-{}-{purpose}-{}", target.name, std::process::id());
        let files = std::env::temp_dir().join(name);
        fs::create_dir_all(&files).expect("a folder");
        Self { target, files }
    }

    fn read(&self, input: &[u8]) -> Result<String, String> {
        judge(|| (self.target.read)(&self.files, input))
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.files);
    }
}

/// The files of a target's corpus, by name.
fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = folder("corpus").join(target.name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(&path).expect("a file"))).collect()
}

#[test]
fn the_corpus_ends_as_it_should() {
    for target in TARGETS {
        let bench = Bench::new(target, "corpus");
        let mut read = 0;
        for (path, input) in corpus(target) {
            match bench.read(&input) {
                Ok(ended) => read += usize::from(ended.starts_with("read")),
                Err(wrong) => panic!("{}: {wrong}", path.display()),
            }
        }
        assert!(read > 0, "nothing in the corpus of `{}` can be read", target.name);
    }
}

#[test]
fn what_must_not_happen_is_noticed() {
    use allrail_core::FieldError;
    assert_eq!(judge(|| Ok("read".to_owned())), Ok("read".to_owned()));
    assert_eq!(judge(|| Err(FieldError::new("a", 1, "it is 1", "b"))), Ok("it is ".to_owned()));
    let silent = judge(|| Err(FieldError::new("a", 1, "it is 1", "")));
    assert!(silent.is_err_and(|wrong| wrong.starts_with("an error without")));
    let panicked = judge(|| panic!("on purpose"));
    assert_eq!(panicked, Err("it panicked: on purpose".to_owned()));
    let greedy = judge(|| {
        let mut bytes: Vec<u8> = Vec::new();
        Ok(format!("{}", bytes.try_reserve(memory::MOST + 1).is_ok()))
    });
    assert_eq!(greedy, Ok("false".to_owned()));
}

fn said<T: std::str::FromStr>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`")),
        Err(_) => default,
    }
}

fn chosen() -> impl Iterator<Item = &'static Target> {
    let wanted: String = said("FUZZ_TARGET", String::new());
    let chosen: Vec<&Target> =
        TARGETS.iter().filter(|target| wanted.is_empty() || target.name == wanted).collect();
    assert!(!chosen.is_empty(), "there is no target `{wanted}`");
    chosen.into_iter()
}

#[test]
#[ignore = "reads the file FUZZ_INPUT as FUZZ_TARGET"]
fn one_input() {
    let path: PathBuf = said("FUZZ_INPUT", PathBuf::new());
    let input = fs::read(&path).unwrap_or_else(|error| panic!("FUZZ_INPUT {path:?}: {error}"));
    for target in chosen() {
        let ended = Bench::new(target, "one").read(&input);
        assert!(ended.is_ok(), "{}: {ended:?}", target.name);
    }
}

#[test]
#[ignore = "runs for FUZZ_SECONDS; `make explore` does"]
fn mutated_inputs() {
    let targets: Vec<&Target> = chosen().collect();
    let seconds: f64 = said("FUZZ_SECONDS", 10.0);
    let each = Duration::from_secs_f64(seconds / targets.len() as f64);
    for target in targets {
        explore(target, each, said("FUZZ_SEED", 0));
    }
}

fn explore(target: &Target, time: Duration, seed: u64) {
    let mut bytes = [0u8; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut draws = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let bench = Bench::new(target, "mutated");
    let artifacts = folder("artifacts");
    fs::create_dir_all(&artifacts).expect("a folder");
    let last = artifacts.join(format!("{}.last", target.name));
    let read = |input: &[u8]| {
        put(&last, input);
        bench.read(input).unwrap_or_else(|wrong| {
            let kept = artifacts.join(format!("{}-{}", target.name, digest(input)));
            fs::write(&kept, input).expect("a file");
            panic!(
                "{}: {wrong}\nrepeat: FUZZ_TARGET={} FUZZ_INPUT={} cargo test -p allrail-formats \
                 --test it -- --exact fuzz::one_input --ignored",
                target.name,
                target.name,
                kept.canonicalize().unwrap_or(kept).display()
            );
        })
    };
    let mut pool: Vec<Vec<u8>> = corpus(target).into_iter().map(|(_, input)| input).collect();
    let mut ends: BTreeSet<String> = pool.iter().map(|input| read(input)).collect();
    let (start, mut count) = (Instant::now(), 0u64);
    while start.elapsed() < time {
        let mut any = || &pool[draws.next_u32() as usize % pool.len()];
        let (one, other) = (any().clone(), any().clone());
        let input = mutate::mutate(&one, &other, &mut draws);
        count += 1;
        if ends.insert(read(&input)) {
            if pool.len() < KEPT {
                let folder = folder("corpus").join(target.name);
                fs::write(folder.join(digest(&input)), &input).expect("a file");
            }
            if pool.len() < POOL {
                pool.push(input);
            }
        }
    }
    let _ = fs::remove_file(&last);
    eprintln!("{}: {count} inputs, {} different ends", target.name, ends.len());
}

/// A name for an input.
fn digest(input: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
