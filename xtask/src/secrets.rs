//! `cargo xtask secrets`: what meets a secret in the cryptography, under valgrind with the secrets marked as undefined: no branch
//! and no address may depend on one, but for the verdict of a check that has come to its end.
//!
//! Which code meets which secret is the business of the program that is watched. A fault on purpose is run first: a watcher
//! that does not see it is none. Valgrind knows no newer instructions than AVX2; what the processor does with time beyond
//! branches and addresses, it does not see.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::files::make_empty;
use crate::run::{CommandLine, Stop, end, within, word};
use crate::workspace::Workspace;

const PROGRAM: &str = "hidden_secrets";
/// Below the target folder: what valgrind says.
const REPORTS: &str = "secrets";
/// A handshake takes seconds there.
const DEADLINE: Duration = Duration::from_secs(120);
/// How the program says where a secret lies: before an address and a length.
const HIDE: &str = "hide ";

/// Functions in which one branch, the verdict, may depend on a secret, because its outcome is visible to every peer.
const VERDICTS: [&str; 4] = [
    // The tag is that of these bytes, or it is not.
    "chacha20poly1305::cipher::Cipher<C>::decrypt_in_place_detached",
    "<snow::resolvers::default::CipherChaChaPoly as snow::types::Cipher>::decrypt",
    "ring::aead::algorithm::Algorithm::open_within",
    // A public key that yields a secret of zeros is refused.
    "<drumfire_crypto::handshake::noise::X25519 as snow::types::Dh>::dh",
];

/// Builds the program, sees the fault, then watches every other case.
///
/// # Errors
/// [`Stop::Needs`] without valgrind, or where it does not see the fault; [`Stop::Failed`] when something depends on a secret.
pub(crate) fn run() -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let vgdb = CommandLine::new("vgdb", &["--help"]);
    vgdb.needed(&workspace.root, "valgrind and its vgdb (on Debian: apt-get install valgrind)")?;
    let build =
        CommandLine::new("cargo", &["build", "--release", "-p", "drumfire-crypto", "--example", PROGRAM]);
    build.done(&workspace.root)?;
    let program = workspace.target.join("release/examples").join(PROGRAM);
    let names = CommandLine::new(&word(&program), &[] as &[&str]).output(&workspace.root)?;
    let reports = workspace.target.join(REPORTS);
    make_empty(&reports)?;
    let watch = Watch { root: workspace.root, program, reports };
    let mut names = names.lines();
    let fault = names.next().unwrap_or_default();
    if watch.case(fault)?.is_empty() {
        return Err(Stop::Needs(format!("a valgrind that sees {fault}: this one does not")));
    }
    println!("{fault}: seen, as it must be");
    let mut found = Vec::new();
    for name in names {
        let places = watch.case(name)?;
        println!("{name}: {} places depend on a secret", places.len());
        found.extend(places.into_iter().map(|place| format!("{name}: {place}")));
    }
    if found.is_empty() { Ok(()) } else { Err(Stop::Failed(found.join("\n"))) }
}

struct Watch {
    root: PathBuf,
    program: PathBuf,
    reports: PathBuf,
}

impl Watch {
    /// Runs one case to its end and marks each secret when the case announces it. Returns the places that depended on one.
    fn case(&self, name: &str) -> Result<Vec<String>, Stop> {
        let (marks, report) = (self.reports.join(name), self.reports.join(format!("{name}.txt")));
        make_empty(&marks)?;
        let command = CommandLine::new("valgrind", &["--tool=memcheck", "--error-limit=no"])
            .arg(format!("--log-file={}", report.display()))
            .arg(word(&self.program))
            .arg(name)
            .arg(word(&marks));
        let mut started = command.command();
        started.stdin(Stdio::null()).stdout(Stdio::piped());
        let failed = |why: &dyn std::fmt::Display| Stop::failed(format!("{command}: {why}"));
        let mut child = started.spawn().map_err(|why| failed(&why))?;
        let output = child.stdout.take().map(BufReader::new);
        for (number, line) in output.into_iter().flat_map(BufRead::lines).enumerate() {
            let line = line.map_err(|why| failed(&why))?;
            let marked = match line.strip_prefix(HIDE) {
                Some(place) => mark(&self.root, child.id(), place),
                None => Err(failed(&format!("it says {line}"))),
            };
            let told = marked
                .and_then(|()| fs::write(marks.join(number.to_string()), "").map_err(|why| failed(&why)));
            if let Err(stop) = told {
                end(&mut child);
                return Err(stop);
            }
        }
        let status = within(&mut child, DEADLINE)?;
        if !status.success() {
            return Err(failed(&format!("{status}: see {}", report.display())));
        }
        Ok(places(&fs::read_to_string(&report).map_err(|why| failed(&why))?))
    }
}

/// Tells valgrind that the bytes at a place, an address and a length, are undefined.
fn mark(root: &Path, process: u32, place: &str) -> Result<(), Stop> {
    let process = format!("--pid={process}");
    // It waits until it is heard, and never stops the program, which valgrind does not always survive.
    let mark =
        CommandLine::new("vgdb", &[&process, "--wait=60", "--max-invoke-ms=0", "make_memory", "undefined"]);
    place.split(' ').fold(mark, CommandLine::arg).output(root).map(drop)
}

/// Where something depended on a secret, as valgrind says it: all but one branch of each function of [`VERDICTS`].
fn places(report: &str) -> Vec<String> {
    let lines: Vec<&str> =
        report.lines().map(|line| line.splitn(3, "==").nth(2).unwrap_or(line).trim()).collect();
    let mut verdicts = BTreeMap::new();
    let mut places = Vec::new();
    for pair in lines.windows(2) {
        let is_branch = pair[0].starts_with("Conditional jump or move depends on uninitialised");
        if !is_branch && !pair[0].contains("uninitialised") {
            continue;
        }
        let Some((address, function)) = pair[1].strip_prefix("at ").and_then(|at| at.split_once(": ")) else {
            continue;
        };
        let function = function.rsplit_once(" (").map_or(function, |(name, _)| name);
        let is_verdict = is_branch && VERDICTS.contains(&function);
        if !is_verdict || *verdicts.entry(function).or_insert(address) != address {
            places.push(format!("{} at {address}: {function}", pair[0]));
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
    fn one_branch_of_a_verdict_may_depend_on_a_secret_and_nothing_else() {
        let verdict = |address: &str| format!("{address}: {}", VERDICTS[0]);
        let (one, other) = (verdict("0x10"), verdict("0x20"));
        assert_eq!(places(&report(&[(BRANCH, &one), (BRANCH, &one)])), [""; 0]);
        assert_eq!(places(&report(&[(BRANCH, &one), (BRANCH, &other)])).len(), 1, "a second branch");
        assert_eq!(places(&report(&[("Use of uninitialised value of size 8", &one)])).len(), 1, "an address");
        let elsewhere = [(BRANCH, "0x30: core::slice::cmp"), (BRANCH, "0x30: core::slice::cmp")];
        assert_eq!(places(&report(&elsewhere)), [format!("{BRANCH} at 0x30: core::slice::cmp")]);
        assert_eq!(
            places("==7== Use --track-origins=yes to see where uninitialised values come from\n==7== x\n"),
            [""; 0]
        );
    }
}
