//! Rules for Rust code: forbidden patterns, platform questions in `cfg`, module docs, lengths of files, amounts of
//! comments, and amounts of `unsafe`.
//!
//! The rules apply to code without comments and literals. They match text and do not know types, so an inferred type is
//! not found.

use std::collections::BTreeMap;

use ra_ap_rustc_lexer::{FrontmatterAllowed, TokenKind, tokenize};
use serde::Deserialize;

use super::{File, ProjectRules, Violation, line_at, matches};
use crate::files::regex;

/// A pattern that some files must not contain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pattern {
    /// A regular expression, for code without comments and literals.
    regex: String,
    /// The only files with the rule. By default, all files have it.
    #[serde(default)]
    files: Vec<String>,
    /// The modules without the rule.
    #[serde(default)]
    outside: Vec<String>,
    remedy: String,
}

/// The words that a `cfg` may contain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Conditions {
    /// The module without the rule.
    free: String,
    portable: Vec<String>,
    /// More words, by module.
    exceptions: BTreeMap<String, Vec<String>>,
}

/// A module that may contain `unsafe`, with the maximum amount. Lines are counted from the keyword to the closing
/// brace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UnsafeLimit {
    module: String,
    blocks: usize,
    lines: usize,
}

/// The maximum number of lines before the tests. Clippy limits the lengths of functions.
const LINES_MAX: usize = 500;
/// The minimum number of comment lines in 100 lines of code. Docs do not count as comments.
const COMMENTS_MIN: usize = 5;

pub(super) fn check(rules: &ProjectRules, files: &[File]) -> Vec<Violation> {
    let rust: Vec<&File> = files.iter().filter(|file| file.is_rust()).collect();
    let what = "open the file with `//!`: what it does, and what it deliberately does not do";
    let undocumented = rust.iter().filter(|file| !file.text.starts_with("//!"));
    let mut violations: Vec<Violation> = undocumented.map(|file| file.violation(1, what)).collect();
    violations.extend(rules.pattern.iter().flat_map(|pattern| pattern.violations(&rust)));
    violations.extend(platform_questions(&rules.cfg, &rust));
    violations.extend(long_files(&rust));
    violations.extend(unsafe_amounts(&rules.unsafe_limits, &rust));
    violations.extend(few_comments(&rules.commented, &rust));
    violations
}

impl Pattern {
    fn violations(&self, files: &[&File]) -> Vec<Violation> {
        let (regex, mut violations) = (regex(&self.regex), Vec::new());
        for file in files {
            let is_listed = self.files.is_empty() || self.files.contains(&file.path);
            if is_listed && !self.outside.iter().any(|module| file.is_in_module(module)) {
                let violation = |(line, code)| file.violation(line, format!("`{code}`: {}", self.remedy));
                violations.extend(matches(&regex, &file.code).map(violation));
            }
        }
        let gone = self.files.iter().filter(|path| !files.iter().any(|file| file.path == **path));
        let what = "does not exist: list the file that now has its code in xtask/tidy.toml";
        violations.extend(gone.map(|path| Violation::new(path, 1, what)));
        violations
    }
}

/// Finds each `cfg(..)` and `cfg!(..)` that tests a platform.
fn platform_questions(rule: &Conditions, files: &[&File]) -> Vec<Violation> {
    let (question, word, mut violations) = (regex(r"\bcfg!?\("), regex(r"\w+"), Vec::new());
    for file in files.iter().filter(|file| !file.is_in_module(&rule.free)) {
        let excepted = rule.exceptions.iter().filter(|(module, _)| file.is_in_module(module));
        let allowed: Vec<&String> = excepted.flat_map(|(_, words)| words).chain(&rule.portable).collect();
        for found in question.find_iter(&file.code) {
            let arguments = bracketed(&file.code[found.end() - 1..], ['(', ')'], ")");
            let mut words = word.find_iter(arguments).map(|word| word.as_str());
            if let Some(word) = words.find(|word| !allowed.iter().any(|allowed| allowed == word)) {
                let what = format!("`cfg` tests `{word}`: move this code to {}", rule.free);
                violations.push(file.violation(line_at(&file.code, found.start()), what));
            }
        }
    }
    violations
}

/// Returns the code up to the end of the first pair of brackets. One of `ends` outside of a pair is an end too.
fn bracketed<'a>(code: &'a str, brackets: [char; 2], ends: &str) -> &'a str {
    let mut depth = 0_usize;
    let end = code.find(|c| {
        depth = (depth + usize::from(c == brackets[0])).saturating_sub(usize::from(c == brackets[1]));
        depth == 0 && ends.contains(c)
    });
    &code[..end.unwrap_or(code.len())]
}

/// Limits the amount of `unsafe` in each listed module. Clippy requires a reason for each block, and a reviewer judges whether
/// the reason is true.
fn unsafe_amounts(limits: &[UnsafeLimit], files: &[&File]) -> Vec<Violation> {
    let (keyword, mut violations) = (regex(r"\bunsafe\b"), Vec::new());
    for UnsafeLimit { module, blocks: blocks_max, lines: lines_max } in limits {
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

/// Returns a violation for each file that is too long. Files that contain only tests may have any length.
fn long_files(files: &[&File]) -> impl Iterator<Item = Violation> {
    files.iter().filter_map(|file| {
        let count = file.lines_before_tests();
        let what =
            || format!("{count} lines before its tests, at most {LINES_MAX}: find the missing concept");
        (count > LINES_MAX).then(|| file.violation(count, what()))
    })
}

/// Returns a violation for each module whose code has too few comments.
fn few_comments(modules: &[String], files: &[&File]) -> Vec<Violation> {
    let is_comment =
        |line: &str| line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!");
    let mut violations = Vec::new();
    for module in modules {
        let (mut comments, mut lines) = (0, 0);
        for file in files.iter().filter(|file| file.is_in_module(module)) {
            let count = file.lines_before_tests();
            comments += file.text.lines().take(count).filter(|line| is_comment(line.trim_start())).count();
            lines += file.code.lines().take(count).filter(|line| !line.trim().is_empty()).count();
        }
        if lines == 0 || 100 * comments < COMMENTS_MIN * lines {
            let limit = format!("at least {COMMENTS_MIN} in 100: write down the reasons");
            let what = format!("{comments} comment lines for {lines} lines of code, {limit}");
            violations.push(Violation::new(module, 1, what));
        }
    }
    violations
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

    #[test]
    fn files_are_measured_up_to_their_tests() {
        let is_long = |path: &str, text: &str| long_files(&[&File::new(path, text)]).next().is_some();
        let lines = |count| "//!\n".repeat(count);
        assert!(!is_long("a.rs", &lines(LINES_MAX)) && is_long("a.rs", &lines(LINES_MAX + 1)));
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(LINES_MAX));
        assert!(!is_long("a.rs", &tests) && is_long("a.rs", &format!("/*\n{tests}*/")));
        assert!(is_long("a.rs", &format!("#[cfg(test)]\nuse a::{{b}};\n{}", lines(LINES_MAX))));
        assert!(!is_long("crates/sim/tests/loss.rs", &lines(LINES_MAX + 1)));
    }

    #[test]
    fn a_file_with_a_rule_of_its_own_exists() {
        let violations = check(&ProjectRules::read(), &[]);
        assert!(violations.iter().any(|violation| violation.what.starts_with("does not exist")));
    }

    const SYS: &str = "crates/socket/src/sys/linux/recv.rs";

    fn amounts(path: &str, text: &str) -> Vec<String> {
        let limit = UnsafeLimit { module: "crates/socket/src/sys".to_owned(), blocks: 2, lines: 6 };
        unsafe_amounts(&[limit], &[&File::new(path, text)]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn blocks_and_lines_of_unsafe_have_limits() {
        let lines = "unsafe {\n    if a {\n        f();\n    }\n}\nlet b = 1;\n";
        let attribute = "#[unsafe(no_mangle)]\nfn f() {\n\n}\n";
        assert_eq!(amounts(SYS, &format!("{lines}{attribute}")), [""; 0]);
        let more = amounts(SYS, &format!("{lines}unsafe {{\n}}\n"));
        let amount = "2 blocks (at most 2), 7 lines (at most 6)";
        assert_eq!(more, [format!("crates/socket/src/sys:1: too much unsafe: {amount}")]);
        assert!(amounts(SYS, &attribute.repeat(3))[0].contains("3 blocks"));
    }
}
