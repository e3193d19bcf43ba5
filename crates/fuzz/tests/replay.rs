//! Replays all corpora, unchanged and slightly changed. `cargo xtask fuzz` searches for new inputs.

#[expect(dead_code, reason = "the codec's tests have a number of mutants of their own")]
#[path = "../../wire/tests/wire/mutants.rs"]
mod mutants;

use drumfire_tries::tries;
use std::path::PathBuf;

use drumfire_fuzz::{TARGETS, Target};

/// Mutants of a target's corpus, shared by its files, with at least one of each.
const MUTANTS: u32 = 50_000;

/// The size of all corpora.
const CORPORA_MAX_BYTES: usize = 1 << 20;

/// Returns the files of a target's corpus, sorted by name: name and content.
fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = format!("f{:0>2}", &target.name[1..]);
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        paths.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect();
    files.sort();
    files
}

/// Prints the input if a target panics.
struct PrintOnPanic<'a>(&'a str, &'a [u8]);

impl Drop for PrintOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {:?}", self.0, self.1);
        }
    }
}

fn replay(target: &Target) {
    let files = corpus(target);
    assert!(!files.is_empty(), "{} has a corpus", target.name);
    let mutants = u64::from(tries(MUTANTS)).div_ceil(files.len() as u64);
    for (path, bytes) in &files {
        let guard = PrintOnPanic(path, bytes);
        (target.run)(bytes);
        drop(guard);
        mutants::of(bytes, mutants, |mutant| {
            let _guard = PrintOnPanic(path, mutant);
            (target.run)(mutant);
        });
    }
    (target.run)(&[]);
}

#[test]
fn every_corpus_passes_unchanged_and_changed() {
    // One thread for each target, because some targets take much longer than others.
    std::thread::scope(|scope| {
        for target in TARGETS {
            scope.spawn(|| replay(target));
        }
    });
}

#[test]
fn the_corpora_stay_small() {
    let files: Vec<_> = TARGETS.iter().flat_map(corpus).collect();
    let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes < CORPORA_MAX_BYTES, "{bytes} bytes in {} files", files.len());
}
