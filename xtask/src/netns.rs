//! Two network namespaces joined by a veth pair, made and removed through the `ip` program.
//!
//! The names carry the id of the process that made them, so that runs never clash and the leftovers of a killed run are
//! known. Nothing outside the two namespaces is changed: no address, no route, no setting of the host.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;

use crate::run::{CommandLine, Stop};

/// Name of the interface inside each namespace.
const INTERFACE: &str = "veth0";
const PREFIX: &str = "drumfire-";

/// One namespace of the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The first host.
    A,
    /// The second host.
    B,
}

impl Side {
    const BOTH: [Self; 2] = [Self::A, Self::B];

    /// Its address, in a /30 that exists only inside the pair.
    pub(crate) const fn address(self) -> Ipv4Addr {
        match self {
            Self::A => Ipv4Addr::new(10, 213, 0, 1),
            Self::B => Ipv4Addr::new(10, 213, 0, 2),
        }
    }

    const fn letter(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

/// The two namespaces. Dropping it removes them, the link with them.
#[derive(Debug)]
pub(crate) struct Pair {
    owner: u32,
    /// The sides that exist because of this pair.
    made: Vec<Side>,
}

impl Pair {
    /// Removes what killed runs left, and makes a pair for this process.
    ///
    /// # Errors
    /// As [`Pair::create`].
    pub(crate) fn new() -> Result<Self, Stop> {
        remove_leftovers()?;
        Self::create(std::process::id())
    }

    /// Makes the pair, named after the process `owner`, with loopback and link up on both sides.
    ///
    /// # Errors
    /// [`Stop::Needs`] when `ip` or the privilege is missing, [`Stop::Failed`] when a step fails. The namespaces that exist
    /// by then are removed.
    fn create(owner: u32) -> Result<Self, Stop> {
        let mut pair = Self { owner, made: Vec::new() };
        for side in Side::BOTH {
            ip(&["netns", "add", &pair.name(side)])?;
            pair.made.push(side);
        }
        let (a, b) = (pair.name(Side::A), pair.name(Side::B));
        ip(&[
            "-n", &a, "link", "add", "name", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns",
            &b,
        ])?;
        for side in Side::BOTH {
            let name = pair.name(side);
            let address = format!("{}/30", side.address());
            ip(&["-n", &name, "address", "add", &address, "dev", INTERFACE])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            ip(&["-n", &name, "link", "set", INTERFACE, "up"])?;
        }
        Ok(pair)
    }

    /// The command that runs this one inside a side. `ip` becomes the program, so its process id is the program's.
    pub(crate) fn inside<S: AsRef<str>>(&self, side: Side, program: &str, args: &[S]) -> CommandLine {
        let enter = CommandLine::new("ip", &["netns", "exec", &self.name(side), program]);
        args.iter().fold(enter, |command, arg| command.arg(arg.as_ref()))
    }

    /// The name of a side's namespace.
    pub(crate) fn name(&self, side: Side) -> String {
        namespace(self.owner, side)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for side in &self.made {
            if let Err(Stop::Failed(why) | Stop::Needs(why)) = delete(&self.name(*side)) {
                eprintln!("left behind: {why}");
            }
        }
    }
}

/// Removes the namespaces of runs that were killed, and prints their names. A namespace that cannot be removed, because another run
/// removes it too, is not an error: names never clash, so a leftover does no harm.
///
/// # Errors
/// [`Stop::Needs`] when `ip` is missing, [`Stop::Failed`] when it cannot list namespaces.
fn remove_leftovers() -> Result<(), Stop> {
    for line in ip(&["netns", "list"])?.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let is_left_over = owner_of(name).is_some_and(|owner| !is_running(owner));
        if is_left_over && delete(name).is_ok() {
            eprintln!("removed {name}, left over from a run that was killed");
        }
    }
    Ok(())
}

fn namespace(owner: u32, side: Side) -> String {
    format!("{PREFIX}{owner}-{}", side.letter())
}

/// Kills what still runs in the namespace, and removes it. A link ends with the namespace of either of its ends.
fn delete(namespace: &str) -> Result<(), Stop> {
    let inside = ip(&["netns", "pids", namespace])?;
    if !inside.is_empty() {
        let script = "kill -KILL \"$@\"";
        let processes: Vec<&str> =
            ["-c", script, "sh"].into_iter().chain(inside.split_whitespace()).collect();
        // Fails for a process that has ended by now, which is what is wanted.
        drop(CommandLine::new("sh", &processes).output(Path::new(".")));
    }
    ip(&["netns", "delete", namespace]).map(drop)
}

/// The process a namespace is named after, when it is one of ours.
fn owner_of(namespace: &str) -> Option<u32> {
    let (owner, side) = namespace.strip_prefix(PREFIX)?.split_once('-')?;
    Side::BOTH.iter().any(|known| known.letter() == side).then(|| owner.parse().ok())?
}

/// Whether the process lives and is one that makes namespaces: ids are given out again.
fn is_running(process: u32) -> bool {
    let name = Path::new("/proc").join(process.to_string()).join("comm");
    fs::read_to_string(name).is_ok_and(|name| name.starts_with("xtask"))
}

/// Runs `ip` and returns what it prints.
fn ip(args: &[&str]) -> Result<String, Stop> {
    let line = CommandLine::new("ip", args).env("LC_ALL", "C");
    let output = match line.command().stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            let how = "on Debian: apt-get install iproute2";
            return Err(Stop::Needs(format!("the program `ip`, which is not on the PATH ({how})")));
        }
        Err(why) => return Err(Stop::failed(format!("{line}: {why}"))),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(refusal(&line, String::from_utf8_lossy(&output.stderr).trim()))
}

/// Sorts what `ip` said when it failed: a privilege is missing, or something else is wrong.
fn refusal(line: &CommandLine, said: &str) -> Stop {
    if said.contains("not permitted") || said.contains("Permission denied") {
        let how = "run as root: sudo -E env \"PATH=$PATH\" cargo xtask ...; \
                   in a container it takes CAP_SYS_ADMIN and CAP_NET_ADMIN";
        return Stop::Needs(format!("the privilege to make network namespaces ({how}); ip said: {said}"));
    }
    Stop::failed(format!("{line}: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Interrupt, finished};
    use std::fs::File;

    /// Waits for the turn of a test that makes namespaces. The tests of a process name them alike, and those of all processes
    /// remove each other's leftovers.
    fn turn() -> File {
        let lock = File::create(std::env::temp_dir().join("drumfire-netns.lock")).unwrap();
        lock.lock().unwrap();
        lock
    }

    /// The pair, or `None` with a word when this machine cannot make one.
    fn pair(owner: u32) -> Option<Pair> {
        match Pair::create(owner) {
            Ok(pair) => Some(pair),
            Err(Stop::Needs(what)) => {
                eprintln!("skipped: needs {what}");
                None
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fn listed() -> String {
        ip(&["netns", "list"]).unwrap()
    }

    #[test]
    fn a_command_inside_a_side_sees_that_side_alone() {
        let _turn = turn();
        let Some(pair) = pair(std::process::id()) else { return };
        let interfaces = |side| {
            let seen = pair.inside(side, "cat", &["/proc/net/dev"]).output(Path::new(".")).unwrap();
            let names = seen.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        };
        for side in Side::BOTH {
            assert!(interfaces(side).contains(&"lo".to_owned()));
            assert!(interfaces(side).contains(&INTERFACE.to_owned()));
            let addresses = pair.inside(side, "ip", &["address"]).output(Path::new(".")).unwrap();
            assert!(addresses.contains(&format!("{}/30", side.address())), "{addresses}");
        }
        let names = Side::BOTH.map(|side| pair.name(side));
        assert!(names.iter().all(|name| listed().contains(name)));
        drop(pair);
        assert!(!names.iter().any(|name| listed().contains(name)));
    }

    #[test]
    fn a_failing_step_removes_what_was_made_and_nothing_else() {
        let _turn = turn();
        let owner = std::process::id();
        let Some(whole) = pair(owner) else { return };
        drop(whole);
        let (a, b) = (namespace(owner, Side::A), namespace(owner, Side::B));
        ip(&["netns", "add", &b]).unwrap();
        let refused = Pair::create(owner);
        let left = listed();
        ip(&["netns", "delete", &b]).unwrap();
        assert!(matches!(refused, Err(Stop::Failed(why)) if why.contains("File exists")));
        assert!(left.contains(&b) && !left.contains(&a), "{left}");
    }

    #[test]
    fn what_a_killed_run_left_is_removed_and_a_running_one_stays() {
        let _turn = turn();
        let running = std::process::id();
        // Above the largest process id Linux gives out, and different in every process that runs these tests.
        let killed = 4_194_304 + running;
        let (Some(_stays), Some(goes)) = (pair(running), pair(killed)) else { return };
        let mut still_running = goes.inside(Side::A, "sleep", &["600"]).command().spawn().unwrap();
        // Inside once `ip` has become the program.
        while ip(&["netns", "pids", &namespace(killed, Side::A)]).unwrap().is_empty() {
            assert!(finished(&mut still_running).unwrap().is_none());
            Interrupt::never().pause().unwrap();
        }
        std::mem::forget(goes);
        remove_leftovers().unwrap();
        assert!(!still_running.wait().unwrap().success());
        let left = listed();
        assert!(Side::BOTH.iter().all(|side| left.contains(&namespace(running, *side))), "{left}");
        assert!(!Side::BOTH.iter().any(|side| left.contains(&namespace(killed, *side))), "{left}");
    }

    #[test]
    fn only_names_of_ours_have_an_owner() {
        assert_eq!(owner_of("drumfire-17-a"), Some(17));
        assert_eq!(owner_of("drumfire-17-b"), Some(17));
        for other in ["drumfire-17-c", "drumfire-17", "drumfire-x-a", "blue", "", "drumfire--a"] {
            assert_eq!(owner_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_missing_privilege_is_told_from_another_failure() {
        let line = CommandLine::new("ip", &["netns", "add", "x"]);
        for said in
            ["mount --make-shared /run/netns failed: Operation not permitted", "open: Permission denied"]
        {
            assert!(matches!(refusal(&line, said), Stop::Needs(_)), "{said}");
        }
        assert!(matches!(refusal(&line, "File exists"), Stop::Failed(_)));
    }
}
