//! Instructions of a program of this workspace, counted by valgrind's callgrind.
//!
//! Counts do not depend on how busy the machine is. They do depend on the compiler, on valgrind and on the C library, and say
//! nothing about the kernel or about memory that is far away.

use std::process::{Command, Stdio};

/// What has no effect on the counts and takes time or leaves files behind is off.
const FLAGS: [&str; 3] = ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--vgdb=no"];

/// Lets the C library copy and clear memory by vectors. With a string instruction valgrind counts each byte.
const TUNABLES: &str =
    "glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000";

/// The installed valgrind's version as it prints it; `None` where there is none.
#[must_use]
pub fn valgrind_version() -> Option<String> {
    let output = Command::new("valgrind").arg("--version").stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Instructions of this program, started anew with `args`.
///
/// With `within`, a pattern with `*` for anything, only those between the call of a function of that name and its return count.
///
/// # Errors
/// One line: valgrind or the program failed, or nothing was counted.
pub fn instructions(args: &[&str], within: Option<&str>) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(FLAGS)
        .args(within.map(|name| format!("--toggle-collect={name}")))
        .arg(program)
        .args(args)
        .env("GLIBC_TUNABLES", TUNABLES)
        .stdout(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let line = text.lines().rfind(|line| !line.starts_with("==")).unwrap_or("it said nothing");
        return Err(format!("{}: {}: {line}", args.join(" "), output.status));
    }
    match collected(&text) {
        Some(0) | None => Err(format!("{}: valgrind counted nothing", args.join(" "))),
        Some(count) => Ok(count),
    }
}

/// The count in what callgrind prints at its end.
fn collected(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once("Collected : "))?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read_from_what_callgrind_prints() {
        assert_eq!(collected("==7== Events    : Ir\n==7== Collected : 12345\n==7==\n"), Some(12_345));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }
}
