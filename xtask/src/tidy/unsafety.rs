//! Where `unsafe` stands, how much of it there is, and that each piece says why it is sound.
//!
//! Whether the reason is true is for a reader.

use super::{File, Violation, line_at, words_of};
use crate::workspace::Package;

/// Where it may stand.
struct Place {
    module: &'static str,
    /// Its crate; every other one forbids it.
    krate: &'static str,
    /// Lines are counted from the keyword to the closing brace.
    most: Amount,
}

const PLACES: [Place; 2] = [
    Place {
        module: "crates/socket/src/sys",
        krate: "crates/socket",
        most: Amount { blocks: 25, lines: 400 },
    },
    // The name of every function that C calls takes one, and each that takes a pointer another.
    Place { module: "crates/ffi", krate: "crates/ffi", most: Amount { blocks: 60, lines: 250 } },
];
/// What every other crate says about it.
const FORBID: &str = "#![forbid(unsafe_code)]";

/// How much `unsafe` there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    blocks: usize,
    lines: usize,
}

/// How much of it stands in each place, in words.
pub(super) fn described(amounts: &[Amount]) -> String {
    let places = PLACES.iter().zip(amounts).map(|(place, amount)| {
        let (Amount { blocks, lines }, most) = (amount, place.most);
        let module = place.module;
        format!(
            "{blocks} blocks (at most {}), {lines} lines (at most {}) in {module}",
            most.blocks, most.lines
        )
    });
    places.collect::<Vec<_>>().join("; ")
}

pub(super) fn check(files: &[File], packages: &[Package]) -> ([Amount; 2], Vec<Violation>) {
    let mut amounts = [Amount::default(); 2];
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        // Function pointer types count too: they are as worth a reason.
        for at in words_of(&file.code, "unsafe") {
            let line = line_at(&file.code, at);
            match PLACES.iter().position(|place| file.is_in_module(place.module)) {
                Some(place) => {
                    amounts[place].blocks += 1;
                    amounts[place].lines += lines_from(&file.code[at..]);
                }
                None => violations
                    .push(file.violation(line, format!("`unsafe` belongs into {}", PLACES[0].module))),
            }
            if !has_reason(&file.text, line) {
                violations
                    .push(file.violation(line, "put a `// SAFETY:` line directly before this `unsafe`"));
            }
        }
    }
    let too_much = PLACES
        .iter()
        .zip(&amounts)
        .filter(|(place, amount)| amount.blocks > place.most.blocks || amount.lines > place.most.lines);
    violations.extend(too_much.map(|(place, _)| Violation {
        path: place.module.to_owned(),
        line: 1,
        what: format!("too much unsafe: {}", described(&amounts)),
    }));
    violations.extend(crates_that_do_not_forbid(files, packages));
    (amounts, violations)
}

/// Roots of libraries and binaries that leave the question open.
fn crates_that_do_not_forbid<'a>(
    files: &'a [File],
    packages: &'a [Package],
) -> impl Iterator<Item = Violation> + 'a {
    let is_strict = |package: &&Package| PLACES.iter().all(|place| place.krate != package.folder);
    let strict = packages.iter().filter(is_strict);
    let targets = strict.flat_map(|package| &package.targets);
    let roots = targets.filter(|target| ["lib", "bin"].contains(&target.kind.as_str()));
    roots
        .filter_map(|target| files.iter().find(|file| file.path == target.source))
        .filter(|file| !file.code.contains(FORBID))
        .map(|file| file.violation(1, format!("a crate without `unsafe` says `{FORBID}`")))
}

/// Lines from here to the end of the first `{..}`, or of the statement when that comes first. An attribute is one line.
fn lines_from(code: &str) -> usize {
    if code.starts_with("unsafe(") {
        return 1;
    }
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => {}
            _ => continue,
        }
        if depth == 0 {
            return line_at(code, at);
        }
    }
    line_at(code, code.len())
}

/// Whether the comment that ends on the line before this one has a SAFETY line, or is of a function and says what its caller
/// has to see to. Attributes between them do not count, nor does the start of a statement that is broken behind its `=`.
fn has_reason(text: &str, line: usize) -> bool {
    let above: Vec<&str> = text.lines().take(line - 1).map(str::trim).collect();
    above
        .iter()
        .rev()
        .skip_while(|text| text.starts_with("#[") || (text.ends_with(" =") && !text.starts_with("//")))
        .take_while(|text| text.starts_with("//"))
        .any(|text| text.starts_with("// SAFETY:") || *text == "/// # Safety")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::samples;

    const SYS: &str = "crates/socket/src/sys/linux/recv.rs";

    const MOST: Amount = PLACES[0].most;

    fn found(path: &str, text: &str) -> (Amount, Vec<String>) {
        let ([amount, _], violations) = check(&[File::new(path, text)], &[]);
        (amount, violations.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_block_with_its_reason_is_fine_in_sys() {
        for good in [
            "// SAFETY: the pointer is valid\nlet a = unsafe { f() };",
            "// SAFETY: the pointer is valid,\n// and stays so\nunsafe {\n    f();\n}",
            "// SAFETY: the pointer is valid\nlet a =\n    unsafe { f() };",
            "// SAFETY: plain data\n#[expect(x)]\nunsafe impl Send for A {}",
            "/// Reads.\n///\n/// # Safety\n///\n/// It is there.\nunsafe fn f(a: *const u8) {}",
        ] {
            let (amount, violations) = found(SYS, good);
            assert_eq!((amount.blocks, violations.len()), (1, 0), "{good}: {violations:?}");
        }
    }

    #[test]
    fn a_block_without_its_reason_directly_before_it_is_refused() {
        for bad in [
            "unsafe { f() }",
            "// because\nunsafe { f() }",
            "// SAFETY: far away\nlet a = 1;\nunsafe { f() }",
            "// SAFETY: far away\n\nunsafe { f() }",
            "// SAFETY: far away\nlet a = g(\n    unsafe { f() });",
        ] {
            assert_eq!(found(SYS, bad).1.len(), 1, "{bad}");
        }
    }

    #[test]
    fn it_stands_in_sys_alone() {
        let block = "// SAFETY: sound\nunsafe { f() }";
        assert_eq!(found("crates/socket/src/sys.rs", block).1, [""; 0]);
        let elsewhere = found("crates/socket/src/group.rs", block).1;
        assert_eq!(elsewhere, ["crates/socket/src/group.rs:2: `unsafe` belongs into crates/socket/src/sys"]);
    }

    #[test]
    fn the_word_in_names_and_texts_does_not_count() {
        let text = "#![deny(unsafe_code)]\n// unsafe { }\nlet a = \"unsafe {\"; let not_unsafe = 1;";
        assert_eq!(found("crates/wire/src/a.rs", text), (Amount::default(), vec![]));
    }

    #[test]
    fn lines_are_counted_to_the_closing_brace() {
        let text = "// SAFETY: sound\nunsafe {\n    if a {\n        f();\n    }\n}\nlet b = 1;\n// SAFETY: sound\nunsafe { g() };\n";
        assert_eq!(found(SYS, text), (Amount { blocks: 2, lines: 6 }, vec![]));
    }

    #[test]
    fn there_may_be_as_many_blocks_and_lines_as_the_bounds() {
        let blocks = |count| found(SYS, &"// SAFETY: sound\nunsafe { f() }\n".repeat(count)).1.len();
        assert_eq!([MOST.blocks - 1, MOST.blocks, MOST.blocks + 1].map(blocks), [0, 0, 1]);
        let lines =
            |count| found(SYS, &format!("// SAFETY: sound\nunsafe {{{}}}\n", "\n".repeat(count - 1))).1.len();
        assert_eq!([MOST.lines - 1, MOST.lines, MOST.lines + 1].map(lines), [0, 0, 1]);
    }

    #[test]
    fn each_place_has_bounds_of_its_own() {
        let block = "// SAFETY: sound\nunsafe { f() }\n";
        let in_sys = File::new(SYS, &block.repeat(MOST.blocks));
        let name = "/// Text.\n// SAFETY: sound\n#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn f() {}\n";
        let in_ffi = File::new("crates/ffi/src/exports.rs", &name.repeat(PLACES[1].most.blocks / 2));
        let (amounts, violations) = check(&[in_sys, in_ffi], &[]);
        assert_eq!((amounts.map(|amount| amount.blocks), violations), ([25, 60], vec![]));
        assert_eq!(amounts[1].lines, 60, "an attribute is a line, and the function another");
        let more = File::new("crates/ffi/tests/boundary.rs", &block.repeat(PLACES[1].most.blocks + 1));
        assert_eq!(check(&[more], &[]).1[0].path, "crates/ffi");
    }

    #[test]
    fn every_crate_but_the_ones_that_hold_it_forbids_it() {
        let packages = ["crates/wire", "crates/socket"]
            .map(|folder| samples::package(folder, &[], &[("lib", "lib")], &[]));
        let workspace = samples::workspace(&packages);
        let count = |wire: &str| {
            let files =
                [File::new("crates/wire/src/lib.rs", wire), File::new("crates/socket/src/lib.rs", "//!\n")];
            check(&files, &workspace.packages).1.len()
        };
        assert_eq!(count("//!\n#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(count("//!\n"), 1);
        assert_eq!(count("//! #![forbid(unsafe_code)]\n"), 1, "only spoken of");
    }
}
