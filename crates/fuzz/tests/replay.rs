//! Replays all corpora, unchanged and slightly changed. `cargo xtask fuzz` searches for new inputs.

#[expect(dead_code, reason = "the codec's tests have a number of mutants of their own")]
#[path = "../../wire/tests/wire/mutants.rs"]
mod mutants;

use drumfire_tries::tries;
use std::path::PathBuf;

use drumfire_fuzz::{TARGETS, Target, target_of};

/// Mutants of a target's corpus, shared by its files, with at least one of each.
const MUTANTS: u32 = 50_000;

/// The size of all corpora.
const CORPORA_MAX_BYTES: usize = 1 << 20;

/// Returns the files of a target's corpus, sorted by name: name and content.
fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.folder);
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

fn replay(name: &str) {
    let target = target_of(name).expect("a target of this name");
    let files = corpus(target);
    assert!(!files.is_empty(), "{name} has a corpus");
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

/// Defines one test per target, so that they run in parallel.
macro_rules! replayed {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                replay($name);
            }
        )*

        #[test]
        fn every_target_is_replayed_and_has_a_folder_of_its_own() {
            let replayed = [$($name),*];
            assert!(TARGETS.iter().map(|target| target.name).eq(replayed));
            let folders = TARGETS.iter().map(|target| target.name.replace('F', "f"));
            let folders: Vec<_> = folders.map(|name| format!("f{:0>2}", &name[1..])).collect();
            assert!(TARGETS.iter().map(|target| target.folder).eq(folders.iter().map(String::as_str)));
        }
    };
}

replayed! {
    datagram_headers: "F1",
    frames: "F2",
    one_datagram_of_an_unknown_client: "F3",
    tokens: "F4",
    welcomes: "F5",
    answers_to_a_client: "F6",
    one_sealed_packet: "F7",
    many_sealed_packets: "F8",
    two_cores_and_a_script: "F9",
    acks: "F10",
    messages_in_pieces: "F11",
    replay_window: "F12",
    packet_numbers: "F13",
    steering: "F14",
    control_messages_and_trains: "F15",
    texts: "F16",
    unknown_clients: "F18",
}

#[test]
fn the_corpora_stay_small() {
    let files: Vec<_> = TARGETS.iter().flat_map(corpus).collect();
    let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes < CORPORA_MAX_BYTES, "{bytes} bytes in {} files", files.len());
}
