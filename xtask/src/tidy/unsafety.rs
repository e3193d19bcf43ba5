//! Limits `unsafe` to some places and to an amount in each.
//!
//! Clippy requires a reason for each piece, and a reviewer judges whether the reason is true.

use serde::Deserialize;

use super::code::bracketed;
use super::{File, Violation, line_at};
use crate::files::regex;

/// A place that may contain `unsafe`, with its most amount. Lines are counted from the keyword to the closing brace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    module: String,
    blocks: usize,
    lines: usize,
}

pub(super) fn check(places: &[Place], files: &[File]) -> Vec<Violation> {
    let (keyword, mut violations) = (regex(r"\bunsafe\b"), Vec::new());
    for Place { module, blocks: blocks_max, lines: lines_max } in places {
        let (mut blocks, mut lines) = (0, 0);
        for file in files.iter().filter(|file| file.is_in_module(module)) {
            // Function pointer types count too.
            for found in keyword.find_iter(&file.code) {
                blocks += 1;
                lines += lines_from(&file.code[found.start()..]);
            }
        }
        if blocks > *blocks_max || lines > *lines_max {
            let amount =
                format!("{blocks} blocks (at most {blocks_max}), {lines} lines (at most {lines_max})");
            violations.push(Violation::new(module, 1, format!("too much unsafe: {amount}")));
        }
    }
    violations
}

/// Returns the lines from here to the end of the first `{..}`, or of the statement when that ends first. An attribute is one line.
fn lines_from(code: &str) -> usize {
    if code.starts_with("unsafe(") {
        return 1;
    }
    line_at(code, bracketed(code, ['{', '}'], "};").len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYS: &str = "crates/socket/src/sys/linux/recv.rs";

    fn found(path: &str, text: &str) -> Vec<String> {
        let place = Place { module: "crates/socket/src/sys".to_owned(), blocks: 2, lines: 6 };
        check(&[place], &[File::new(path, text)]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn blocks_and_lines_have_limits() {
        let lines = "unsafe {\n    if a {\n        f();\n    }\n}\nlet b = 1;\n";
        let attribute = "#[unsafe(no_mangle)]\nfn f() {\n\n}\n";
        assert_eq!(found(SYS, &format!("{lines}{attribute}")), [""; 0]);
        let more = found(SYS, &format!("{lines}unsafe {{\n}}\n"));
        let amount = "2 blocks (at most 2), 7 lines (at most 6)";
        assert_eq!(more, [format!("crates/socket/src/sys:1: too much unsafe: {amount}")]);
        assert!(found(SYS, &attribute.repeat(3))[0].contains("3 blocks"));
    }
}
