//! Words that Rust code of this project does not use, or only in one place: stubs, ignored tests, `allow`, and code that
//! differs by platform.
//!
//! It reads code, never comments or literals. Words of prose are not its business.

use super::{File, Violation, line_at, starts_of};

/// Macros that are never called, with what to do instead.
const MACROS: [(&str, &str); 3] = [
    ("todo", "write it, or leave the whole function out"),
    ("unimplemented", "write it, or leave the whole function out"),
    ("cfg_select", "platforms differ behind the contract of socket's `sys` alone"),
];
/// Attributes that nothing has, with what to do instead.
const ATTRIBUTES: [(&str, &str); 2] =
    [("ignore", "a test runs or does not exist"), ("allow", "use `expect(.., reason = \"..\")`")];
/// The module behind whose contract platforms differ.
const SYS: &str = "crates/socket/src/sys";
/// Its Linux side, which alone speaks to the system's C interface.
const LINUX: &str = "crates/socket/src/sys/linux";
/// Names of the system's C interface.
const C_INTERFACE: [&str; 2] = ["libc::", "std::os::fd"];
/// What a `cfg` may ask anywhere, and the words that combine.
const PORTABLE: [&str; 8] = ["test", "doc", "doctest", "feature", "debug_assertions", "all", "any", "not"];
/// What a `cfg` may ask in one more place, since nothing portable tells it.
const EXCEPTIONS: [(&str, &str); 9] = [
    // One system alone has the devices and the filters that a chaos takes.
    ("crates/chaos/src/platform", "target_os"),
    // Threads are pinned, and limits raised, by calls that each platform has of its own or not at all.
    ("crates/tools/src/host", "target_os"),
    // A processor's features have names of its own.
    ("crates/crypto/src/suite", "target_arch"),
    // A model checker is no platform, but it too is only asked for by a flag of the compiler.
    ("crates/drumfire/src", "loom"),
    ("crates/drumfire/src", "shuttle"),
    // A socket that is a file, with an owner.
    ("crates/drumfire/src/control/local", "unix"),
    // What one platform alone can do is tested where it can be done.
    ("crates/drumfire/tests", "target_os"),
    ("crates/socket/tests", "target_os"),
    ("crates/tools/tests", "target_os"),
];

pub(super) fn check(files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        violations.extend(never(file));
        if !file.is_in_module(LINUX) {
            violations.extend(c_interface(file));
        }
        if !file.is_in_module(SYS) {
            violations.extend(platforms(file));
        }
    }
    violations
}

fn never(file: &File) -> Vec<Violation> {
    let code = &file.code;
    let called = MACROS.iter().map(|(name, instead)| (format!("{name}!"), instead));
    let had = ATTRIBUTES
        .iter()
        .flat_map(|(name, instead)| ["#[", "#!["].map(|opening| (format!("{opening}{name}"), instead)));
    let words = called.chain(had).flat_map(|(word, instead)| {
        let what = format!("`{word}`: {instead}");
        let places: Vec<usize> = starts_of(code, &word).collect();
        places.into_iter().map(move |at| file.violation(line_at(code, at), what.clone()))
    });
    let conditional = starts_of(code, "cfg_attr(")
        .filter(|at| starts_of(arguments(code, *at), "allow(").next().is_some())
        .map(|at| {
            file.violation(line_at(code, at), "`allow(` in a `cfg_attr`: use `expect(.., reason = \"..\")`")
        });
    words.chain(conditional).collect()
}

fn c_interface(file: &File) -> Vec<Violation> {
    let found = C_INTERFACE.iter().flat_map(|name| {
        let what = format!("`{name}` belongs into {LINUX}");
        starts_of(&file.code, name).map(move |at| file.violation(line_at(&file.code, at), what.clone()))
    });
    found.collect()
}

/// Each `cfg(..)` or `cfg!(..)` that asks for more than tests and features.
fn platforms(file: &File) -> Vec<Violation> {
    let code = &file.code;
    let questions = starts_of(code, "cfg(").chain(starts_of(code, "cfg!("));
    let stray = |at: usize| {
        let asked = identifiers(arguments(code, at)).find(|word| !may_ask(file, word))?;
        Some(file.violation(line_at(code, at), format!("`cfg` asks for `{asked}`: that belongs into {SYS}")))
    };
    questions.filter_map(stray).collect()
}

fn may_ask(file: &File, word: &str) -> bool {
    let is_excepted = |(place, allowed): &(&str, &str)| *allowed == word && file.is_in_module(place);
    PORTABLE.contains(&word) || EXCEPTIONS.iter().any(is_excepted)
}

/// What stands between the first `(` from here and its `)`.
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

fn identifiers(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&[File::new(path, text)]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn stubs_ignored_tests_and_allow_are_refused() {
        let stubs = ["todo", "unimplemented"].map(|stub| format!("fn f() {{ {stub}!(\"later\") }}"));
        let ignored = ["", " = \"slow\""].map(|why| format!("#[{}{why}]", "ignore"));
        let lenient = ["#", "#!"].map(|opening| format!("{opening}[{}(missing_docs)]", "allow"));
        let conditional = ["#![cfg_attr(test, allow(clippy::panic))]", "cfg_select! { unix => {} }"];
        let all = stubs.into_iter().chain(ignored).chain(lenient).chain(conditional.map(str::to_owned));
        for bad in all {
            assert_eq!(found("crates/wire/src/a.rs", &format!("//!\n{bad}\n")).len(), 1, "{bad}");
        }
    }

    #[test]
    fn the_same_words_in_texts_and_names_are_fine() {
        let quoted = format!("{}!() and #[{}] and #[{}(x)]", "todo", "ignore", "allow");
        for good in [
            format!("// {quoted}").as_str(),
            &format!("let a = \"{quoted}\";"),
            "if bucket.allow(now) {}",
            "#[expect(missing_docs, reason = \"..\")]",
            "#![cfg_attr(test, expect(clippy::panic))]",
            "let ignore = [1];",
        ] {
            assert_eq!(found("crates/wire/src/a.rs", good), [""; 0], "{good}");
        }
    }

    #[test]
    fn tests_and_features_may_be_asked_for_anywhere() {
        for good in [
            "#[cfg(test)]",
            "#[cfg(doctest)]",
            "#[cfg(feature = \"tokio\")]",
            "#[cfg(all(test, not(feature = \"a\"), any(feature = \"b\", test)))]",
            "if cfg!(feature = \"a\") {}",
            "#[cfg_attr(not(test), deny(clippy::panic))]",
            "if cfg!(debug_assertions) {}",
            "#[cfg(not(debug_assertions))]",
        ] {
            assert_eq!(found("crates/proto/src/a.rs", good), [""; 0], "{good}");
        }
    }

    #[test]
    fn platforms_may_be_asked_for_in_sys_alone() {
        for platform in [
            "#[cfg(target_os = \"linux\")]",
            "#[cfg(not(unix))]",
            "if cfg!(windows) {}",
            "#[cfg(any(test, unix))]",
        ] {
            assert_eq!(found("crates/socket/src/group.rs", platform).len(), 1, "{platform}");
            assert_eq!(found("crates/socket/src/sys.rs", platform), [""; 0], "{platform}");
            assert_eq!(found("crates/socket/src/sys/portable.rs", platform), [""; 0], "{platform}");
        }
    }

    #[test]
    fn what_nothing_portable_tells_may_be_asked_for_in_its_place_alone() {
        let (system, processor) = ("#[cfg(target_os = \"linux\")]", "#[cfg(target_arch = \"x86_64\")]");
        for (path, text, is_fine) in [
            ("crates/tools/src/host/calls.rs", system, true),
            ("crates/tools/src/host.rs", system, true),
            ("crates/tools/src/hosts.rs", system, false),
            ("crates/tools/src/clock.rs", system, false),
            ("crates/tools/src/host/calls.rs", processor, false),
            ("crates/tools/src/host/calls.rs", "#[cfg(unix)]", false),
            ("crates/crypto/src/suite.rs", processor, true),
            ("crates/crypto/src/suite/tests.rs", processor, true),
            ("crates/crypto/src/suites.rs", processor, false),
            ("crates/crypto/src/keys.rs", processor, false),
            ("crates/crypto/src/suite.rs", system, false),
            ("crates/socket/tests/it/group.rs", system, true),
            ("crates/drumfire/tests/foreign/main.rs", system, true),
            ("crates/drumfire/src/lookout.rs", system, false),
            ("crates/tools/tests/programs/main.rs", system, true),
            ("crates/proto/tests/group.rs", system, false),
            ("crates/drumfire/src/sync.rs", "#[cfg(loom)]", true),
            ("crates/drumfire/src/crew/rota.rs", "#[cfg(all(test, any(loom, shuttle)))]", true),
            ("crates/proto/src/loss.rs", "#[cfg(loom)]", false),
            ("crates/proto/src/loss.rs", "#[cfg(shuttle)]", false),
        ] {
            assert_eq!(found(path, text).is_empty(), is_fine, "{path}: {text}");
        }
    }

    #[test]
    fn the_c_interface_is_reached_from_the_linux_side_alone() {
        for name in ["use libc::c_int;", "use std::os::fd::AsRawFd;"] {
            assert_eq!(found("crates/socket/src/sys/portable.rs", name).len(), 1, "{name}");
            assert_eq!(found("crates/socket/src/sys/linux/recv.rs", name), [""; 0], "{name}");
            assert_eq!(found("crates/socket/src/sys/linux.rs", name), [""; 0], "{name}");
        }
        assert_eq!(found("crates/tools/src/a.rs", "mylibc::f();"), [""; 0]);
    }

    #[test]
    fn a_violation_names_its_line() {
        assert!(found("a.rs", "//!\n\n#[cfg(unix)]\n")[0].starts_with("a.rs:3: `cfg` asks for `unix`"));
    }
}
