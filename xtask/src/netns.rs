//! Two network namespaces joined by a veth pair, which the program `ip` makes and removes.
//!
//! The names contain the id of the process that made them. So runs never collide, and the leftovers of a killed run are recognized.
//! Nothing outside the two namespaces changes: no address, no route, and no setting of the host.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;

use crate::run::{CommandLine, Stop};

/// The name of the interface in each namespace.
const INTERFACE: &str = "veth0";
const PREFIX: &str = "drumfire-";

/// One namespace of the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    A,
    B,
}

impl Side {
    const BOTH: [Self; 2] = [Self::A, Self::B];

    /// Returns the address, in a /30 that exists only inside the pair.
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

/// The two namespaces. Dropping the pair removes them and the link.
#[derive(Debug)]
pub(crate) struct Pair {
    owner: u32,
    /// The sides that this pair has made.
    made: Vec<Side>,
}

impl Pair {
    /// Removes the leftovers of killed runs, and makes a pair for this process.
    ///
    /// # Errors
    /// [`Stop::Needs`] when `ip` or the privilege is missing, [`Stop::Failed`] when a step fails.
    pub(crate) fn new() -> Result<Self, Stop> {
        remove_leftovers()?;
        Self::create(std::process::id())
    }

    /// Makes a pair with loopback and link up on both sides. On an error, the namespaces that were made are removed.
    fn create(owner: u32) -> Result<Self, Stop> {
        let mut pair = Self { owner, made: Vec::new() };
        for side in Side::BOTH {
            ip(&["netns", "add", &pair.name(side)])?;
            pair.made.push(side);
        }
        let (a, b) = (pair.name(Side::A), pair.name(Side::B));
        let link = ["-n", &a, "link", "add", "name", INTERFACE, "type", "veth"];
        ip(&[&link[..], &["peer", "name", INTERFACE, "netns", &b]].concat())?;
        for side in Side::BOTH {
            let name = pair.name(side);
            let address = format!("{}/30", side.address());
            ip(&["-n", &name, "address", "add", &address, "dev", INTERFACE])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            ip(&["-n", &name, "link", "set", INTERFACE, "up"])?;
        }
        Ok(pair)
    }

    /// Returns the command that runs a program inside a side. `ip` becomes the program, so its process id is the program's.
    pub(crate) fn inside<S: AsRef<str>>(&self, side: Side, program: &str, args: &[S]) -> CommandLine {
        CommandLine::new("ip", &["netns", "exec", &self.name(side), program]).args(args)
    }

    /// Returns the name of a side's namespace.
    pub(crate) fn name(&self, side: Side) -> String {
        namespace(self.owner, side)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for side in &self.made {
            if let Err(Stop::Failed(why) | Stop::Needs(why)) = delete(&self.name(*side)) {
                eprintln!("cannot remove a namespace: {why}");
            }
        }
    }
}

/// Removes the namespaces of runs that were killed. A namespace that cannot be removed, because another run removes it too, is not an
/// error: names never collide.
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

/// Kills the processes in a namespace and removes it. A link ends with the namespace of either end.
fn delete(namespace: &str) -> Result<(), Stop> {
    let processes = ip(&["netns", "pids", namespace])?;
    if !processes.is_empty() {
        let kill = CommandLine::new("sh", &["-c", "kill -KILL \"$@\"", "sh"]);
        let kill = kill.args(&processes.split_whitespace().collect::<Vec<_>>());
        // It fails for a process that has already ended.
        drop(kill.output(Path::new(".")));
    }
    ip(&["netns", "delete", namespace]).map(drop)
}

/// Returns the process in the name of a namespace, if the namespace belongs to this project.
fn owner_of(namespace: &str) -> Option<u32> {
    let (owner, side) = namespace.strip_prefix(PREFIX)?.split_once('-')?;
    Side::BOTH.iter().any(|known| known.letter() == side).then(|| owner.parse().ok())?
}

/// Returns whether a process runs and makes namespaces. The system reuses the ids of processes.
fn is_running(process: u32) -> bool {
    let name = Path::new("/proc").join(process.to_string()).join("comm");
    fs::read_to_string(name).is_ok_and(|name| name.starts_with("xtask"))
}

/// Runs `ip` and returns its output.
fn ip(args: &[&str]) -> Result<String, Stop> {
    let line = CommandLine::new("ip", args).env("LC_ALL", "C");
    let output = match line.command().stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            return Err(Stop::Needs("the program `ip` (on Debian: apt-get install iproute2)".to_owned()));
        }
        Err(why) => return Err(line.failed(&why)),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(refusal(&line, String::from_utf8_lossy(&output.stderr).trim()))
}

/// Distinguishes a missing privilege from another error of `ip`.
fn refusal(line: &CommandLine, message: &str) -> Stop {
    if message.contains("not permitted") || message.contains("Permission denied") {
        let how = "run as root: sudo -E env \"PATH=$PATH\" cargo xtask ...; \
                   a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN";
        return Stop::Needs(format!("the privilege to make network namespaces ({how}); ip: {message}"));
    }
    line.failed(&message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Running, wait_until};
    use std::fs::File;
    use std::time::Duration;

    /// Serializes the tests that make namespaces, also across processes. The tests of one process use the same names, and those of all
    /// processes remove each other's leftovers.
    fn serialize() -> File {
        let lock = File::create(std::env::temp_dir().join("drumfire-netns.lock")).unwrap();
        lock.lock().unwrap();
        lock
    }

    /// Returns a pair, or `None` when this machine cannot make one.
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
    fn a_pair_has_two_connected_sides_and_removes_them() {
        let _lock = serialize();
        let owner = std::process::id();
        let Some(pair) = pair(owner) else { return };
        for side in Side::BOTH {
            let addresses = pair.inside(side, "ip", &["-o", "address"]).output(Path::new(".")).unwrap();
            let is_own =
                |line: &str| [" lo ", &format!(" {INTERFACE} ")].iter().any(|name| line.contains(name));
            assert!(addresses.lines().all(is_own), "{addresses}");
            assert!(addresses.contains(&format!("{}/30", side.address())), "{addresses}");
        }
        drop(pair);
        let [a, b] = Side::BOTH.map(|side| namespace(owner, side));
        assert!(!listed().contains(&a) && !listed().contains(&b));
        // A step that fails removes what was made before it, and nothing else.
        ip(&["netns", "add", &b]).unwrap();
        let refused = Pair::create(owner);
        let left = listed();
        ip(&["netns", "delete", &b]).unwrap();
        assert!(matches!(refused, Err(Stop::Failed(why)) if why.contains("File exists")));
        assert!(left.contains(&b) && !left.contains(&a), "{left}");
    }

    #[test]
    fn only_leftovers_of_a_killed_run_are_removed() {
        let _lock = serialize();
        let running = std::process::id();
        // Above the largest process id of Linux, and different in every process that runs these tests.
        let killed = 4_194_304 + running;
        let (Some(_stays), Some(removed)) = (pair(running), pair(killed)) else { return };
        let mut sleep = Running::start("sleep", &removed.inside(Side::A, "sleep", &["600"])).unwrap();
        let wait = |is_so: &mut dyn FnMut() -> bool| {
            wait_until("waiting", Duration::from_secs(60), || Ok(is_so())).unwrap();
        };
        // The process is inside once `ip` has become the program.
        wait(&mut || !ip(&["netns", "pids", &namespace(killed, Side::A)]).unwrap().is_empty());
        std::mem::forget(removed);
        remove_leftovers().unwrap();
        wait(&mut || sleep.is_done().is_err());
        let left = listed();
        assert!(Side::BOTH.iter().all(|side| left.contains(&namespace(running, *side))), "{left}");
        assert!(!Side::BOTH.iter().any(|side| left.contains(&namespace(killed, *side))), "{left}");
        for other in ["drumfire-17-c", "drumfire-17", "drumfire-x-a", "blue", ""] {
            assert_eq!(owner_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_missing_privilege_is_a_need_and_not_a_failure() {
        let refusal = |message| refusal(&CommandLine::new("ip", &["netns", "add", "x"]), message);
        let missing = "mount --make-shared /run/netns failed: Operation not permitted";
        assert!(matches!(refusal(missing), Stop::Needs(_)));
        assert!(matches!(refusal("open: Permission denied"), Stop::Needs(_)));
        assert!(matches!(refusal("File exists"), Stop::Failed(_)));
    }
}
