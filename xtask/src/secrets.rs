//! `cargo xtask secrets`: runs the cryptography under valgrind with secrets marked as undefined. No branch and no address may depend on
//! a secret, except the verdict of a completed check.
//!
//! The example `hidden_secrets` of `drumfire-crypto` decides which code meets which secret. Its first case has a deliberate fault, which
//! valgrind must report. Valgrind emulates no instructions newer than AVX2, and does not see timing beyond branches and addresses.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::files::{self, make_empty, regex};
use crate::run::{CommandLine, Stop, fail_with};
use crate::workspace::Workspace;

const PROGRAM: &str = "hidden_secrets";
/// A handshake takes seconds under valgrind.
const DEADLINE: Duration = Duration::from_secs(120);
/// The prefix of the program's lines with the address and the length of a secret.
const HIDE: &str = "hide ";

/// Functions in which one branch, the verdict, may depend on a secret, because every peer sees its outcome.
const VERDICTS: [&str; 4] = [
    // Whether the tag matches these bytes.
    "chacha20poly1305::cipher::Cipher<C>::decrypt_in_place_detached",
    "<snow::resolvers::default::CipherChaChaPoly as snow::types::Cipher>::decrypt",
    "ring::aead::algorithm::Algorithm::open_within",
    // Whether a public key yields a secret of zeros.
    "<drumfire_crypto::handshake::noise::X25519 as snow::types::Dh>::dh",
];

/// Builds the program, and runs the case with the deliberate fault, then all others. A valgrind that does not report the fault is a need.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Stop> {
    let vgdb = CommandLine::new("vgdb", &["--help"]);
    vgdb.needed("valgrind and its vgdb (on Debian: apt-get install valgrind)")?;
    CommandLine::cargo(&format!("build --release -p drumfire-crypto --example {PROGRAM}")).done()?;
    let program = workspace.target.join("release/examples").join(PROGRAM);
    let names = CommandLine::new(&program, &[""; 0]).output()?;
    let reports = workspace.target.join("secrets");
    make_empty(&reports)?;
    let mut names = names.lines();
    let fault = names.next().unwrap_or_default();
    if run_case(&program, &reports, fault)?.is_empty() {
        return Err(Stop::Needs(format!("a valgrind that reports the planted fault {fault}")));
    }
    println!("{fault}: valgrind reports this planted fault");
    let mut found = Vec::new();
    for name in names {
        let places = run_case(&program, &reports, name)?;
        println!("{name}: {} places depend on a secret", places.len());
        found.extend(places.into_iter().map(|place| format!("{name}: {place}")));
    }
    fail_with(&found)
}

/// Runs a case, and marks each secret when the case announces it. Returns the places that depend on one.
fn run_case(program: &Path, reports: &Path, name: &str) -> Result<Vec<String>, Stop> {
    let (marks, report) = (reports.join(name), reports.join(format!("{name}.txt")));
    make_empty(&marks)?;
    let line = CommandLine::new("valgrind", &["--tool=memcheck", "--error-limit=no"])
        .arg(format!("--log-file={}", report.display()))
        .arg(program)
        .arg(name)
        .arg(&marks);
    let mut number = 0;
    let status = line.each_line(Stdio::inherit(), DEADLINE, |process, text| {
        let place = text.strip_prefix(HIDE);
        let place = place.ok_or_else(|| line.failed(&format!("it prints {text}")))?;
        mark(process, place)?;
        // The program waits for this file before it uses the secret.
        files::write(&marks.join(number.to_string()), "")?;
        number += 1;
        Ok(())
    })?;
    if !status.success() {
        return Err(line.failed(&format!("{status}: see {}", report.display())));
    }
    Ok(places(&files::text(&report)?))
}

/// Marks the bytes at a place, an address and a length, as undefined.
fn mark(process: u32, place: &str) -> Result<(), Stop> {
    // `--max-invoke-ms=0` makes vgdb wait until valgrind polls. To interrupt it, vgdb would use ptrace, which valgrind does not always
    // survive.
    let mark = CommandLine::new("vgdb", &["--wait=60", "--max-invoke-ms=0"]).arg(format!("--pid={process}"));
    let mark = mark.args(&["make_memory", "undefined"]);
    mark.args(&place.split(' ').collect::<Vec<_>>()).output().map(drop)
}

/// Returns the places in valgrind's report that depend on a secret, except one branch of each function in [`VERDICTS`].
fn places(report: &str) -> Vec<String> {
    let error = regex(r"(?m)^==\d+== (.*uninitialised.*)\n==\d+== +at (\w+): (.*?)(?: \([^()]*\))?$");
    let mut verdicts = BTreeMap::new();
    let mut places = Vec::new();
    for found in error.captures_iter(report) {
        let [what, address, function] = found.extract().1;
        let is_branch = what.starts_with("Conditional jump or move depends on");
        let is_verdict = is_branch && VERDICTS.contains(&function);
        if !is_verdict || *verdicts.entry(function).or_insert(address) != address {
            places.push(format!("{what} at {address}: {function}"));
        }
    }
    places.sort_unstable();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRANCH: &str = "Conditional jump or move depends on uninitialised value(s)";

    fn report(errors: &[(&str, &str)]) -> String {
        let error = |(what, at): &(&str, &str)| {
            format!("==7== {what}\n==7==    at {at} (in /x)\n==7==    by 0x9: main (in /x)\n==7== \n")
        };
        errors.iter().map(error).collect()
    }

    #[test]
    fn only_one_branch_of_a_verdict_may_depend_on_a_secret() {
        let verdict = |address: &str| format!("{address}: {}", VERDICTS[0]);
        let (one, other) = (verdict("0x10"), verdict("0x20"));
        assert_eq!(places(&report(&[(BRANCH, &one), (BRANCH, &one)])), [""; 0]);
        assert_eq!(places(&report(&[(BRANCH, &one), (BRANCH, &other)])).len(), 1, "a second branch");
        assert_eq!(places(&report(&[("Use of uninitialised value of size 8", &one)])).len(), 1, "an address");
        let elsewhere = [(BRANCH, "0x30: core::slice::cmp"), (BRANCH, "0x30: core::slice::cmp")];
        assert_eq!(places(&report(&elsewhere)), [format!("{BRANCH} at 0x30: core::slice::cmp")]);
        let hint = "==7== Use --track-origins=yes to see where uninitialised values come from\n==7== x\n";
        assert_eq!(places(hint), [""; 0]);
    }
}
