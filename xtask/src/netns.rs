//! Two network namespaces joined by a veth pair.
//!
//! A namespace has no name and exists as long as a process in it. Its first process ends together with this one, so that an aborted run
//! leaves nothing behind. Nothing outside the two namespaces changes: no address, no route, and no setting of the host.

use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::process::{Child, Stdio};

use crate::run::{CommandLine, Stop, end, is_installed};

const INTERFACE: &str = "veth0";
const PROGRAMS: [(&str, &str); 3] =
    [("ip", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")];

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
}

/// The two namespaces. Dropping the pair ends their first processes.
pub(crate) struct Pair([Namespace; 2]);

/// The first process of a namespace. It ends when its standard input is closed, at the latest by the end of this process.
struct Namespace(Child);

impl Pair {
    /// Makes a pair with loopback and link up on both sides. A missing program or privilege is a need.
    pub(crate) fn new() -> Result<Self, Stop> {
        if let Some((program, package)) = PROGRAMS.iter().find(|(program, _)| !is_installed(program)) {
            let install = format!("(on Debian: apt-get install {package})");
            return Err(Stop::Needs(format!("the program `{program}` {install}")));
        }
        let pair = Self([Namespace::new()?, Namespace::new()?]);
        let other = pair.process(Side::B).to_string();
        let link = ["link", "add", "name", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns"];
        pair.ip(Side::A, &[&link[..], &[&other]].concat())?;
        for side in Side::BOTH {
            pair.ip(side, &["address", "add", &format!("{}/30", side.address()), "dev", INTERFACE])?;
            pair.ip(side, &["link", "set", "lo", "up"])?;
            pair.ip(side, &["link", "set", INTERFACE, "up"])?;
        }
        Ok(pair)
    }

    /// Returns the command that runs a program inside a side. `nsenter` becomes the program, so its process id is the program's.
    pub(crate) fn inside<S: AsRef<str>>(&self, side: Side, program: &str, args: &[S]) -> CommandLine {
        let namespace = format!("--net=/proc/{}/ns/net", self.process(side));
        CommandLine::new("nsenter", &[&namespace, program]).args(args)
    }

    /// Returns the id of a side's first process, which identifies the namespace.
    pub(crate) fn process(&self, side: Side) -> u32 {
        self.0[side as usize].0.id()
    }

    fn ip(&self, side: Side, args: &[&str]) -> Result<(), Stop> {
        self.inside(side, "ip", args).output().map(drop)
    }
}

impl Namespace {
    fn new() -> Result<Self, Stop> {
        // `cat` ends with its input. The line before it shows that the namespace exists.
        let line = CommandLine::new("unshare", &["--net", "sh", "-c", "echo; exec cat"]).env("LC_ALL", "C");
        let mut namespace = Self(line.spawn([Stdio::piped(), Stdio::piped(), Stdio::piped()])?);
        let Self(Child { stdout, stderr, .. }) = &mut namespace;
        let (mut answer, mut message) = (String::new(), String::new());
        let read = stdout.as_mut().map_or(Ok(0), |output| BufReader::new(output).read_line(&mut answer));
        if read.map_err(|why| line.failed(&why))? > 0 {
            return Ok(namespace);
        }
        let read = stderr.as_mut().map_or(Ok(0), |errors| errors.read_to_string(&mut message));
        read.map_err(|why| line.failed(&why))?;
        Err(refusal(&line, message.trim()))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// Distinguishes a missing privilege from another error.
fn refusal(line: &CommandLine, message: &str) -> Stop {
    if message.contains("not permitted") || message.contains("Permission denied") {
        let how = "run as root: sudo -E env \"PATH=$PATH\" cargo xtask ...; \
                   a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN";
        return Stop::Needs(format!("the privilege to make network namespaces ({how}): {message}"));
    }
    line.failed(&message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_pair_has_two_connected_sides_and_ends_with_its_owner() {
        let pair = match Pair::new() {
            Ok(pair) => pair,
            Err(Stop::Failed(why)) => panic!("{why}"),
            Err(needs) => return eprintln!("{needs}"),
        };
        for side in Side::BOTH {
            let addresses = pair.inside(side, "ip", &["-o", "address"]).output().unwrap();
            let is_own =
                |line: &str| [" lo ", &format!(" {INTERFACE} ")].iter().any(|name| line.contains(name));
            assert!(addresses.lines().all(is_own), "{addresses}");
            assert!(addresses.contains(&format!("{}/30", side.address())), "{addresses}");
        }
        let process = pair.process(Side::A);
        drop(pair);
        assert!(!Path::new(&format!("/proc/{process}")).exists());
    }

    #[test]
    fn a_missing_privilege_is_a_need_and_not_a_failure() {
        let refusal = |message| refusal(&CommandLine::new("unshare", &["--net", "cat"]), message);
        let missing = "unshare: unshare failed: Operation not permitted";
        assert!(matches!(refusal(missing), Stop::Needs(_)));
        assert!(matches!(refusal("unshare: unrecognized option"), Stop::Failed(_)));
    }
}
