//! Rules for Rust code: words that it does not use, or only in one place, questions of `cfg`, module docs, and lengths of files.
//!
//! The rules see code without comments and literals. They know words and no types: a type that is inferred is not seen.

use ra_ap_rustc_lexer::{FrontmatterAllowed, TokenKind, tokenize};

use super::ratchet::{Faults, Places};
use super::{File, Violation, line_at, positions_of};

/// The module behind whose contract platforms differ.
const SYS: &str = "crates/socket/src/sys";
/// Its Linux side, which alone calls the system's C interface.
const LINUX: &str = "crates/socket/src/sys/linux";
/// Files of packet numbers and of counts that the limits of keys compare.
const PACKET_NUMBERS: [&str; 6] = [
    "crates/crypto/src/keys.rs",
    "crates/crypto/src/opener.rs",
    "crates/crypto/src/replay.rs",
    "crates/crypto/src/sealer.rs",
    "crates/proto/src/epoch.rs",
    "crates/wire/src/packet_number.rs",
];

/// The files in which a word is a violation.
#[derive(Clone, Copy)]
enum Scope {
    Everywhere,
    Outside(&'static str),
    PacketNumbers,
}

const STUB: &str = "write it, or leave the whole function out";
const IGNORED: &str = "a test runs or does not exist";
const LENIENT: &str = "use `expect(.., reason = \"..\")`";
const C_INTERFACE: &str = "belongs in crates/socket/src/sys/linux";
/// A count as wide as an address wraps at 2^32 on some systems, and a packet number that wraps seals twice under one nonce.
const WIDTH: &str = "count packet numbers in `u64`, and index in another file";

/// Words, the files in which they are violations, and the remedy.
const WORDS: [(&str, Scope, &str); 13] = [
    ("todo!", Scope::Everywhere, STUB),
    ("unimplemented!", Scope::Everywhere, STUB),
    ("cfg_select!", Scope::Everywhere, "platforms differ only behind the contract of socket's `sys`"),
    ("#[ignore", Scope::Everywhere, IGNORED),
    ("#![ignore", Scope::Everywhere, IGNORED),
    ("#[allow", Scope::Everywhere, LENIENT),
    ("#![allow", Scope::Everywhere, LENIENT),
    ("libc::", Scope::Outside(LINUX), C_INTERFACE),
    ("std::os::fd", Scope::Outside(LINUX), C_INTERFACE),
    ("AtomicIsize", Scope::PacketNumbers, WIDTH),
    ("AtomicUsize", Scope::PacketNumbers, WIDTH),
    ("isize", Scope::PacketNumbers, WIDTH),
    ("usize", Scope::PacketNumbers, WIDTH),
];

/// Words that a `cfg` may contain anywhere.
const PORTABLE: [&str; 8] = ["test", "doc", "doctest", "feature", "debug_assertions", "all", "any", "not"];
/// Words that a `cfg` may contain in one more place.
const EXCEPTIONS: [(&str, &str); 9] = [
    // Only Linux has the devices and filters of chaos runs.
    ("crates/chaos/src/platform", "target_os"),
    // Each platform has its own calls to pin threads and to raise limits, or none.
    ("crates/tools/src/host", "target_os"),
    // The features of a processor have names of its own.
    ("crates/crypto/src/suite", "target_arch"),
    // Flags of the compiler select a model checker.
    ("crates/drumfire/src", "loom"),
    ("crates/drumfire/src", "shuttle"),
    // A socket that is a file with an owner.
    ("crates/drumfire/src/api/control/local", "unix"),
    // Features of one platform are tested on that platform.
    ("crates/drumfire/tests", "target_os"),
    ("crates/socket/tests", "target_os"),
    ("crates/tools/tests", "target_os"),
];

/// The most lines before the first top-level `#[cfg(test)]`. Clippy limits the lengths of functions.
const LINES_MAX: usize = 500;

/// Checks all rules except lengths.
pub(super) fn check(files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if !file.text.starts_with("//!") {
            let what = "open the file with `//!`: what it does, and what it deliberately does not do";
            violations.push(file.violation(1, what));
        }
        violations.extend(forbidden_words(file));
        violations.extend(conditional_allow(file));
        if !file.is_in_module(SYS) {
            violations.extend(platform_questions(file));
        }
    }
    let is_gone = |path: &&str| !files.iter().any(|file| file.path == *path);
    let what = "does not exist: list the file that has its packet numbers now in xtask/src/tidy/code.rs";
    violations.extend(PACKET_NUMBERS.into_iter().filter(is_gone).map(|path| Violation::new(path, 1, what)));
    violations
}

fn forbidden_words(file: &File) -> impl Iterator<Item = Violation> {
    let is_in_scope = |scope: Scope| match scope {
        Scope::Everywhere => true,
        Scope::Outside(module) => !file.is_in_module(module),
        Scope::PacketNumbers => PACKET_NUMBERS.contains(&file.path.as_str()),
    };
    WORDS.into_iter().filter(move |(_, scope, _)| is_in_scope(*scope)).flat_map(move |(word, _, instead)| {
        file.lines_of(word).map(move |line| file.violation(line, format!("`{word}`: {instead}")))
    })
}

fn conditional_allow(file: &File) -> impl Iterator<Item = Violation> {
    let has_allow = |at: &usize| positions_of(arguments(&file.code, *at), "allow(").next().is_some();
    let what = format!("`allow(` in a `cfg_attr`: {LENIENT}");
    positions_of(&file.code, "cfg_attr(")
        .filter(has_allow)
        .map(move |at| file.violation(line_at(&file.code, at), what.clone()))
}

/// Finds each `cfg(..)` and `cfg!(..)` that asks for a platform.
fn platform_questions(file: &File) -> impl Iterator<Item = Violation> {
    let is_allowed = |word: &str| {
        let is_excepted = |(place, allowed): &(&str, &str)| *allowed == word && file.is_in_module(place);
        PORTABLE.contains(&word) || EXCEPTIONS.iter().any(is_excepted)
    };
    let questions = positions_of(&file.code, "cfg(").chain(positions_of(&file.code, "cfg!("));
    questions.filter_map(move |at| {
        let words = arguments(&file.code, at).split(|c: char| !c.is_alphanumeric() && c != '_');
        let word = words.filter(|word| !word.is_empty()).find(|word| !is_allowed(word))?;
        let what = format!("`cfg` asks for `{word}`: that belongs in {SYS}");
        Some(file.violation(line_at(&file.code, at), what))
    })
}

/// Returns the text between the first `(` from here and its `)`.
fn arguments(code: &str, from: usize) -> &str {
    let opened = &code[from..];
    let start = opened.find('(').map_or(opened.len(), |at| at + 1);
    let mut depth = 1_usize;
    for (at, c) in opened[start..].char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &opened[start..start + at];
        }
    }
    &opened[start..]
}

/// Returns the files that are too long, with their lengths. Files that contain only tests may have any length.
pub(super) fn long_files(files: &[File]) -> Places {
    let is_test =
        |path: &str| path.split('/').any(|part| ["tests", "tests.rs", "test_support.rs"].contains(&part));
    let mut places = Places::new();
    for file in files.iter().filter(|file| file.is_rust() && !is_test(&file.path)) {
        let count = file.code.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
        if count > LINES_MAX {
            let what =
                format!("{count} lines before its tests, at most {LINES_MAX}: find the missing concept");
            places.insert(file.path.clone(), Faults { count, found: vec![file.violation(count, what)] });
        }
    }
    places
}

/// Returns Rust source with every byte of a comment or literal replaced by a space, and newlines kept.
pub(super) fn masked(source: &str) -> String {
    let (mut code, mut rest) = (String::with_capacity(source.len()), source);
    for token in tokenize(source, FrontmatterAllowed::No) {
        let (text, after) = rest.split_at(token.len as usize);
        rest = after;
        match token.kind {
            TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } | TokenKind::Literal { .. } => {
                code.extend(text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
            }
            _ => code.push_str(text),
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the violations of a file, next to empty files of packet numbers.
    fn found(path: &str, text: &str) -> Vec<String> {
        let others = PACKET_NUMBERS.into_iter().filter(|other| *other != path);
        let mut files: Vec<File> = others.map(|other| File::new(other, "//!\n")).collect();
        files.push(File::new(path, &format!("//!\n{text}\n")));
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn forbidden_words_are_found_in_code_and_not_in_text() {
        let lenient = ["#", "#!"].map(|opening| format!("{opening}[{}(missing_docs)]\nstruct A;", "allow"));
        let ignored = format!("#[{} = \"slow\"]\nfn f() {{}}", "ignore");
        let stubs = ["todo", "unimplemented"].map(|stub| format!("fn f() {{ {stub}!(\"later\") }}"));
        let others =
            ["#![cfg_attr(test, allow(clippy::panic))]", "cfg_select! { unix => {} }"].map(str::to_owned);
        for bad in lenient.iter().chain([&ignored]).chain(&stubs).chain(&others) {
            assert_eq!(found("crates/wire/src/a.rs", bad).len(), 1, "{bad}");
        }
        let quoted = format!("{}!() and #[{}] and #[{}(x)]", "todo", "ignore", "allow");
        for good in [
            &format!("/// {quoted}\nfn f() {{ let a = \"{quoted}\"; }}"),
            "if bucket.allow(now) {}",
            "#![cfg_attr(test, expect(clippy::panic))]",
        ] {
            assert_eq!(found("crates/wire/src/a.rs", good), [""; 0], "{good}");
        }
        assert_eq!(check(&[File::new("a.rs", "use std::fs;\n")]).len(), PACKET_NUMBERS.len() + 1, "no docs");
    }

    #[test]
    fn each_question_of_cfg_has_its_places() {
        let (system, processor) = ("#[cfg(target_os = \"linux\")]", "#[cfg(target_arch = \"x86_64\")]");
        for (path, question, is_fine) in [
            ("crates/proto/src/a.rs", "#[cfg(all(test, not(feature = \"a\"), any(doctest)))]", true),
            ("crates/proto/src/a.rs", "#[cfg_attr(not(test), deny(clippy::panic))]", true),
            ("crates/proto/src/loss.rs", "#[cfg(loom)]", false),
            ("crates/drumfire/src/base/sync.rs", "#[cfg(all(test, any(loom, shuttle)))]", true),
            ("crates/socket/src/group.rs", "#[cfg(any(test, unix))]", false),
            ("crates/socket/src/sys/portable.rs", "#[cfg(any(test, unix))]", true),
            ("crates/tools/src/host/calls.rs", system, true),
            ("crates/tools/src/hosts.rs", system, false),
            ("crates/tools/src/host/calls.rs", processor, false),
            ("crates/crypto/src/suite/tests.rs", processor, true),
        ] {
            assert_eq!(found(path, &format!("{question}\nmod a;")).is_empty(), is_fine, "{path}: {question}");
        }
        assert!(found("a.rs", "\n#[cfg(unix)]\nmod a;")[0].starts_with("a.rs:3: `cfg` asks for `unix`"));
        assert_eq!(found("a.rs", "fn f() { if cfg!(windows) {} }").len(), 1);
    }

    #[test]
    fn some_words_depend_on_the_file() {
        for name in ["use libc::c_int;", "use std::os::fd::AsRawFd;"] {
            assert_eq!(found("crates/socket/src/sys/portable.rs", name).len(), 1, "{name}");
            assert_eq!(found("crates/socket/src/sys/linux/recv.rs", name), [""; 0], "{name}");
        }
        let wide = "struct Numbers { next: usize }\nmod tests { const C: isize = 1; }";
        assert_eq!(found(PACKET_NUMBERS[2], wide).len(), 2);
        assert_eq!(found("crates/crypto/src/replay/words.rs", wide), [""; 0]);
        let gone: Vec<File> = PACKET_NUMBERS[1..].iter().map(|path| File::new(path, "//!\n")).collect();
        assert!(check(&gone).len() == 1 && check(&gone)[0].path == PACKET_NUMBERS[0]);
    }

    #[test]
    fn files_are_measured_up_to_their_tests() {
        let is_long = |path: &str, text: &str| !long_files(&[File::new(path, text)]).is_empty();
        assert!(
            !is_long("a.rs", &"//!\n".repeat(LINES_MAX)) && is_long("a.rs", &"//!\n".repeat(LINES_MAX + 1))
        );
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(LINES_MAX));
        assert!(!is_long("a.rs", &tests) && is_long("a.rs", &format!("/*\n{tests}*/")));
        assert!(!is_long("crates/sim/tests/loss.rs", &"//!\n".repeat(LINES_MAX + 1)));
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        let source = "a // b\nc /* d /* e */ f */ g\n(\"h \\\" i\", r#\"j\"k\"#, b'l', '\\'')\n";
        let code = masked(source);
        assert_eq!(code.split_whitespace().collect::<String>(), "acg(,,,)");
        let lengths = |text: &str| text.lines().map(str::len).collect::<Vec<_>>();
        assert_eq!(lengths(&code), lengths(source));
        assert_eq!(masked("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
    }
}
