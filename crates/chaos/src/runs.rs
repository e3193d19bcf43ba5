//! The runs by name, and what all of them are told.
//!
//! What each does stands in the module named after it.

mod bad_net;
mod drain;
mod each_other;
mod errno;
mod fallen;
mod flood;
mod full;
mod group;
mod narrow;
mod one_port;
mod panics;
mod rebind;
mod refused;
mod restart;
mod share;
mod sizes;
mod soak;
mod stall;
mod sweep;
mod tags;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::ValueEnum;

use crate::marks::{Marks, Verdict};
use crate::size::Size;
use crate::stop::Stop;

/// How often each player says something, twenty times a second.
const PERIOD: Duration = Duration::from_millis(50);

/// The players of a run that is about many.
const CROWD: usize = 200;

/// The server's threads.
const WORKERS: u16 = 4;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum Run {
    /// Players play for long.
    C1,
    /// A bad net.
    C2,
    /// Floods of all classes while players play.
    C3,
    /// Receive and send buffers of the kernel are full.
    C4,
    /// Source ports change while players play.
    C5,
    /// The server is killed and started again.
    C6,
    /// The server ends without haste while players play.
    C7,
    /// Server and players stand still for a while.
    C8,
    /// The application panics.
    C9,
    /// The system refuses calls.
    C10,
    /// Another process joins the port, and sockets are lost.
    C11,
    /// Families of addresses, sizes of packets, trains.
    C12,
}

/// What every run is told.
pub(crate) struct Setting {
    /// How long and how often.
    pub(crate) size: Size,
    /// Another network namespace that this one reaches over a link; then both are for this run alone.
    pub(crate) other: Option<Other>,
    /// Where the server is, port 0 for any.
    pub(crate) address: SocketAddr,
}

/// Another network namespace.
pub(crate) struct Other {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
}

impl Setting {
    /// The other namespace.
    ///
    /// # Errors
    /// [`Stop::Needs`] where there is none: what a run changes then would be the host's.
    fn other(&self) -> Result<&Other, Stop> {
        let needs =
            || Stop::Needs("network namespaces of its own: start it by `cargo xtask chaos`".to_owned());
        self.other.as_ref().ok_or_else(needs)
    }
}

/// Does the run, prints its marks and answers what they come to.
///
/// # Errors
/// When it could not be done to its end, or the machine lacks what all of it takes.
pub(crate) fn judge(run: Run, setting: &Setting) -> Result<Verdict, Stop> {
    let mut marks = Marks::default();
    let (title, go) = match run {
        Run::C1 => ("C1 soak", soak::run as fn(&Setting, &mut Marks) -> Result<(), Stop>),
        Run::C2 => ("C2 bad net", bad_net::run as _),
        Run::C3 => ("C3 flood", flood::run as _),
        Run::C4 => ("C4 full buffers", full::run as _),
        Run::C5 => ("C5 rebind", rebind::run as _),
        Run::C6 => ("C6 restart", restart::run as _),
        Run::C7 => ("C7 drain", drain::run as _),
        Run::C8 => ("C8 stall", stall::run as _),
        Run::C9 => ("C9 panic", panics::run as _),
        Run::C10 => ("C10 errno", errno::run as _),
        Run::C11 => ("C11 group", group::run as _),
        Run::C12 => ("C12 sweep", sweep::run as _),
    };
    let outcome = go(setting, &mut marks);
    // What was seen before it stopped is worth a look.
    let verdict = marks.print(title);
    match outcome {
        // What was missed before is worse than what could not be done after it.
        Err(Stop::Needs(what)) if verdict == Verdict::Missed => {
            println!("SKIP the rest: needs {what}");
            Ok(verdict)
        }
        other => other.map(|()| verdict),
    }
}
