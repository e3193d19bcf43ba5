//! Two network namespaces joined by a veth pair.
//!
//! A namespace has no name and exists as long as a process in it. Its first process ends together with this one, so that an aborted run
//! leaves nothing behind. Nothing outside the two namespaces changes: no address, no route, and no setting of the host.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Stdio};

use crate::run::{CommandLine, Stop, end};

const INTERFACE: &str = "veth0";
/// Commands that fail if the machine lacks a requirement, each with the requirement.
const PROBES: [(&str, &str); 3] = [
    ("ip -V", "`ip` (on Debian: apt-get install iproute2)"),
    ("nsenter -V", "`nsenter` (on Debian: apt-get install util-linux)"),
    (
        "unshare --net true",
        "`unshare` and the privilege to make network namespaces (run as root: sudo -E env \"PATH=$PATH\" cargo xtask ...; \
         a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN)",
    ),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    A,
    B,
}

impl Side {
    const BOTH: [Self; 2] = [Self::A, Self::B];

    /// Returns the address, in a /30 that exists only inside the pair.
    pub(crate) const fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, 0, 1 + self as u8)
    }
}

/// The two namespaces. Dropping the pair ends their first processes.
pub(crate) struct Pair([Namespace; 2]);

/// The first process of a namespace. It ends when its standard input is closed, at the latest by the end of this process.
struct Namespace(Child);

impl Pair {
    /// Creates a pair with loopback and link up on both sides. A missing program or privilege is [`Stop::Needs`].
    pub(crate) fn new() -> Result<Self, Stop> {
        for (probe, what) in PROBES {
            CommandLine::parse(probe).output().map_err(|why| Stop::Needs(format!("{what}: {why}")))?;
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
        let line = CommandLine::new("unshare", &["--net", "sh", "-c", "echo; exec cat"]);
        let mut namespace = Self(line.spawn([Stdio::piped(), Stdio::piped(), Stdio::inherit()])?);
        let (output, mut started) = (namespace.0.stdout.as_mut().map(BufReader::new), String::new());
        match output.map_or(Ok(0), |mut output| output.read_line(&mut started)) {
            Ok(0) => Err(line.failed(&"it did not start")),
            read => read.map(|_| namespace).map_err(|why| line.failed(&why)),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        end(&mut self.0);
    }
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
}
