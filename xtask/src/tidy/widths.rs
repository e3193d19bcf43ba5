//! Numbers that must not depend on how wide an address is: packet numbers, what is made of them, and what is counted against a
//! limit of the keys.
//!
//! A count of that width wraps at 2^32 on some systems, and a packet number that wraps seals twice under one nonce. It
//! knows the word alone: a type that is inferred, and what a function of another crate answers, it does not see.

use super::{File, Violation, line_at, words_of};

/// Files of such numbers. What is indexed by them lies in files of its own.
const FILES: [&str; 6] = [
    "crates/crypto/src/keys.rs",
    "crates/crypto/src/opener.rs",
    "crates/crypto/src/replay.rs",
    "crates/crypto/src/sealer.rs",
    "crates/proto/src/epoch.rs",
    "crates/wire/src/packet_number.rs",
];
/// Types as wide as an address.
const WIDTHS: [&str; 4] = ["AtomicIsize", "AtomicUsize", "isize", "usize"];

pub(super) fn check(files: &[File]) -> Vec<Violation> {
    let (mut violations, mut missing) = (Vec::new(), FILES.to_vec());
    for file in files {
        let known = missing.len();
        missing.retain(|path| *path != file.path);
        if missing.len() < known {
            violations.extend(wide(file));
        }
    }
    let gone = "is gone: packet numbers live elsewhere now, say where in xtask/src/tidy/widths.rs";
    violations.extend(missing.into_iter().map(|path| Violation {
        path: path.to_owned(),
        line: 1,
        what: gone.to_owned(),
    }));
    violations
}

fn wide(file: &File) -> impl Iterator<Item = Violation> {
    let types = WIDTHS.iter().flat_map(|width| words_of(&file.code, width).map(move |at| (at, width)));
    types.map(|(at, width)| {
        let what = format!("`{width}` in a file of packet numbers: count in `u64`, and index elsewhere");
        file.violation(line_at(&file.code, at), what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found where this text is the last of the files, and the others hold nothing.
    fn found(path: &str, text: &str) -> Vec<String> {
        let others =
            FILES.into_iter().filter(|other| *other != path).map(|other| File::new(other, "//! x\n"));
        let files: Vec<File> = others.chain([File::new(path, text)]).collect();
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_type_as_wide_as_an_address_is_named_with_its_line() {
        for width in WIDTHS {
            let violations = found(FILES[2], &format!("//! x\nstruct Numbers {{\n    next: {width},\n}}"));
            let what = format!("`{width}` in a file of packet numbers: count in `u64`, and index elsewhere");
            assert_eq!(violations, [format!("{}:3: {what}", FILES[2])]);
        }
    }

    #[test]
    fn a_conversion_counts_and_so_does_a_test() {
        let text = "//! x\nlet a = b as usize;\n#[cfg(test)]\nmod tests { const C: usize = 1; }";
        assert_eq!(found(FILES[0], text).len(), 2);
    }

    #[test]
    fn other_words_and_other_files_do_not_count() {
        assert_eq!(found(FILES[0], "// a usize\nlet usize_like = \"usize\"; let my_usize = 1_u64;"), [""; 0]);
        assert_eq!(found("crates/crypto/src/replay/words.rs", "fn at(place: u32) -> usize {}"), [""; 0]);
    }

    #[test]
    fn a_file_that_is_gone_is_said_so() {
        let files: Vec<File> = FILES[1..].iter().map(|path| File::new(path, "//! x\n")).collect();
        let violations = check(&files);
        assert!(violations.len() == 1 && violations[0].path == FILES[0], "{violations:?}");
    }
}
