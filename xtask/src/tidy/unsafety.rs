//! Limits `unsafe` to two places and to an amount in each, and requires a reason for each piece.
//!
//! A reviewer judges whether the reason is true.

use super::{File, Violation, line_at, positions_of};
use crate::workspace::Package;

/// A place that may contain `unsafe`.
struct Place {
    module: &'static str,
    /// The crate. All other crates forbid `unsafe`.
    krate: &'static str,
    most: Amount,
}

const PLACES: [Place; 2] = [
    Place {
        module: "crates/socket/src/sys",
        krate: "crates/socket",
        most: Amount { blocks: 25, lines: 400 },
    },
    // The name of every function that C calls takes one, and each function with a pointer another.
    Place { module: "crates/ffi", krate: "crates/ffi", most: Amount { blocks: 60, lines: 250 } },
];
/// The attribute of every other crate.
const FORBID: &str = "#![forbid(unsafe_code)]";

/// An amount of `unsafe`. Lines are counted from the keyword to the closing brace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    blocks: usize,
    lines: usize,
}

/// Describes the amounts in all places.
pub(super) fn described(amounts: &[Amount]) -> String {
    let places = PLACES.iter().zip(amounts).map(|(Place { module, most, .. }, Amount { blocks, lines })| {
        format!(
            "{blocks} blocks (at most {}), {lines} lines (at most {}) in {module}",
            most.blocks, most.lines
        )
    });
    places.collect::<Vec<_>>().join("; ")
}

/// Returns the amount in each place, and the violations.
pub(super) fn check(files: &[File], packages: &[Package]) -> ([Amount; 2], Vec<Violation>) {
    let mut amounts = [Amount::default(); 2];
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        // Function pointer types count too, because they also need a reason.
        for at in positions_of(&file.code, "unsafe") {
            let line = line_at(&file.code, at);
            match PLACES.iter().position(|place| file.is_in_module(place.module)) {
                Some(place) => {
                    amounts[place].blocks += 1;
                    amounts[place].lines += lines_from(&file.code[at..]);
                }
                None => {
                    let what = format!("`unsafe` belongs in {}", PLACES[0].module);
                    violations.push(file.violation(line, what));
                }
            }
            if !has_reason(&file.text, line) {
                violations
                    .push(file.violation(line, "put a `// SAFETY:` line directly before this `unsafe`"));
            }
        }
    }
    for (place, amount) in PLACES.iter().zip(&amounts) {
        if amount.blocks > place.most.blocks || amount.lines > place.most.lines {
            violations.push(Violation::new(
                place.module,
                1,
                format!("too much unsafe: {}", described(&amounts)),
            ));
        }
    }
    violations.extend(crates_that_do_not_forbid(files, packages));
    (amounts, violations)
}

/// Finds the roots of libraries and binaries that do not forbid `unsafe`.
fn crates_that_do_not_forbid<'a>(
    files: &'a [File],
    packages: &'a [Package],
) -> impl Iterator<Item = Violation> + 'a {
    let strict = packages.iter().filter(|package| PLACES.iter().all(|place| place.krate != package.folder));
    let roots =
        strict.flat_map(|package| &package.targets).filter(|target| ["lib", "bin"].contains(&target.kind()));
    roots
        .filter_map(|target| files.iter().find(|file| file.path == target.source))
        .filter(|file| !file.code.contains(FORBID))
        .map(|file| file.violation(1, format!("a crate without `unsafe` has `{FORBID}`")))
}

/// Returns the lines from here to the end of the first `{..}`, or of the statement when that ends first. An attribute is one line.
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

/// Returns whether the comment that ends on the line before has a SAFETY line, or documents the duties of a function's caller.
/// Attributes between them do not count. The first line of a statement that continues after its `=` does not count either.
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
    fn each_piece_has_its_reason_directly_before_it() {
        for good in [
            "// SAFETY: the pointer is valid,\n// and stays so\nlet a =\n    unsafe { f() };",
            "// SAFETY: plain data\n#[expect(x)]\nunsafe impl Send for A {}",
            "/// Reads.\n///\n/// # Safety\n///\n/// It is there.\nunsafe fn f(a: *const u8) {}",
        ] {
            let (amount, violations) = found(SYS, good);
            assert_eq!((amount.blocks, violations.len()), (1, 0), "{good}: {violations:?}");
        }
        for bad in [
            "// because\nunsafe { f() }",
            "// SAFETY: far away\n\nunsafe { f() }",
            "// SAFETY: far away\nlet a = g(\n    unsafe { f() });",
        ] {
            assert_eq!(found(SYS, bad).1.len(), 1, "{bad}");
        }
    }

    #[test]
    fn only_the_keyword_in_its_places_is_allowed() {
        let elsewhere = found("crates/socket/src/group.rs", "// SAFETY: sound\nunsafe { f() }").1;
        assert_eq!(elsewhere, ["crates/socket/src/group.rs:2: `unsafe` belongs in crates/socket/src/sys"]);
        let text = "#![deny(unsafe_code)]\n// unsafe { }\nconst A: &str = \"unsafe {\";";
        assert_eq!(found("crates/wire/src/a.rs", text), (Amount::default(), vec![]));
    }

    #[test]
    fn blocks_and_lines_of_each_place_have_limits() {
        let block = "// SAFETY: sound\nunsafe { g() };\n";
        let text = format!(
            "// SAFETY: sound\nunsafe {{\n    if a {{\n        f();\n    }}\n}}\nlet b = 1;\n{block}"
        );
        assert_eq!(found(SYS, &text), (Amount { blocks: 2, lines: 6 }, vec![]));
        let blocks = |count| found(SYS, &block.repeat(count)).1.len();
        assert_eq!([MOST.blocks, MOST.blocks + 1].map(blocks), [0, 1]);
        let lines =
            |count| found(SYS, &format!("// SAFETY: sound\nunsafe {{{}}}\n", "\n".repeat(count - 1))).1.len();
        assert_eq!([MOST.lines, MOST.lines + 1].map(lines), [0, 1]);
        let name =
            "// SAFETY: sound\n#[unsafe(no_mangle)]\n/// # Safety\npub unsafe extern \"C\" fn f() {}\n";
        let in_ffi = |count| check(&[File::new("crates/ffi/src/exports.rs", &name.repeat(count))], &[]);
        let most = PLACES[1].most.blocks / 2;
        assert_eq!(
            (in_ffi(most).0[1].lines, in_ffi(most).1, in_ffi(most + 1).1.len()),
            (2 * most, vec![], 1)
        );
    }

    #[test]
    fn all_other_crates_forbid_it() {
        let packages =
            ["crates/wire", "crates/socket"].map(|folder| samples::package(folder, &[("lib", "lib")], &[]));
        let workspace = samples::workspace(&packages);
        let count = |wire: &str| {
            let files =
                [File::new("crates/wire/src/lib.rs", wire), File::new("crates/socket/src/lib.rs", "//!\n")];
            check(&files, &workspace.packages).1.len()
        };
        let in_comment = "//! #![forbid(unsafe_code)]\n";
        assert_eq!((count("#![forbid(unsafe_code)]\n"), count("//!\n"), count(in_comment)), (0, 1, 1));
    }
}
