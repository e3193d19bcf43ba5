//! Folders of inputs: which there are, and how a committed one is renewed with what a run found.
//!
//! Which inputs are worth keeping is decided by the fuzzer.

use std::fs;
use std::path::Path;

use crate::run::{CommandLine, Stop};

/// Letters of a file's name: of the hash that the fuzzer names it by.
const NAME_LETTERS: usize = 8;

/// A committed corpus holds so much at most; what is longest goes first.
const CORPUS_MAX_BYTES: u64 = 56 * 1_024;

/// The most files of a committed corpus, of all lengths. Every test run replays each.
const CORPUS_MAX_FILES: usize = 128;

/// Makes a folder, with those above it.
///
/// # Errors
/// [`Stop::Failed`] with what the system says.
pub(super) fn make(folder: &Path) -> Result<(), Stop> {
    fs::create_dir_all(folder).map_err(|why| failed(folder, &why))
}

/// The names of what is in a folder.
///
/// # Errors
/// [`Stop::Failed`] with what the system says.
pub(super) fn names_in(folder: &Path) -> Result<Vec<String>, Stop> {
    let entries = fs::read_dir(folder).map_err(|why| failed(folder, &why))?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    names.collect::<Result<_, _>>().map_err(|why| failed(folder, &why))
}

/// Replaces a committed corpus by what `merge` puts into a folder that is empty, under short names.
///
/// # Errors
/// [`Stop::Failed`] when the merge fails or puts nothing there, or with what the system says.
pub(super) fn renew(
    root: &Path,
    corpus: &Path,
    fresh: &Path,
    merge: impl FnOnce(&Path) -> CommandLine,
) -> Result<(), Stop> {
    if fresh.exists() {
        fs::remove_dir_all(fresh).map_err(|why| failed(fresh, &why))?;
    }
    make(fresh)?;
    merge(fresh).output(root)?;
    let mut kept = Vec::new();
    for name in names_in(fresh)? {
        let path = fresh.join(&name);
        kept.push((fs::metadata(&path).map_err(|why| failed(&path, &why))?.len(), name));
    }
    kept.sort();
    let count = kept.len();
    let has_place = |at: &usize| at * CORPUS_MAX_FILES / count != (at + 1) * CORPUS_MAX_FILES / count;
    if count > CORPUS_MAX_FILES {
        kept = (0..count).filter(has_place).map(|at| kept[at].clone()).collect();
    }
    let mut room = CORPUS_MAX_BYTES;
    kept.retain(|(bytes, _)| {
        let fits = room.checked_sub(*bytes);
        room = fits.unwrap_or(room);
        fits.is_some()
    });
    if kept.is_empty() {
        return Err(Stop::failed(format!("{}: nothing was worth keeping", corpus.display())));
    }
    fs::remove_dir_all(corpus).map_err(|why| failed(corpus, &why))?;
    make(corpus)?;
    for (_, name) in &kept {
        let short = corpus.join(name.get(..NAME_LETTERS).unwrap_or(name));
        fs::copy(fresh.join(name), &short).map_err(|why| failed(&short, &why))?;
    }
    println!("{}: {} files, {} bytes", corpus.display(), kept.len(), CORPUS_MAX_BYTES - room);
    Ok(())
}

fn failed(path: &Path, why: &std::io::Error) -> Stop {
    Stop::failed(format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corpus_is_replaced_by_what_was_merged_under_short_names_and_within_its_bounds() {
        let folder = std::env::temp_dir().join(format!("drumfire-corpus-{}", std::process::id()));
        let (corpus, fresh) = (folder.join("f01"), folder.join("fresh"));
        make(&corpus).unwrap();
        fs::write(corpus.join("gone"), b"before").unwrap();
        let script = "printf ab > 0123456789abcdef; head -c 60000 /dev/zero > ffffffffffff";
        let merge =
            |into: &Path| CommandLine::new("sh", &["-c", &format!("cd '{}'; {script}", into.display())]);
        renew(Path::new("."), &corpus, &fresh, merge).unwrap();
        assert_eq!(names_in(&corpus).unwrap(), ["01234567"]);
        assert_eq!(fs::read(corpus.join("01234567")).unwrap(), b"ab");
        let nothing = |_: &Path| CommandLine::new("true", &[""; 0]);
        assert!(renew(Path::new("."), &corpus, &fresh, nothing).is_err());
        assert_eq!(names_in(&corpus).unwrap(), ["01234567"]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
