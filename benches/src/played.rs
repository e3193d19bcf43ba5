//! One round of a load against a server in a process of its own: the connects, the window, the CPU of both ends, and the report
//! that is made of them.
//!
//! It starts no server and reads no server's counters; whoever calls does both, and keeps the connections until then.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::ServerPublicKey;
use drumfire_tools::report::{Flags, IN_LOST_DATAGRAMS, Report};

use crate::child::{Child, Counts};
use crate::crowd::Crowd;
use crate::echoes::{Told, Window};
use crate::load::{Drive, Load};
use crate::served::{count, counts_text};
use crate::system::{DropWatch, StealWatch, Used, Watch};
use crate::watched::SATURATED;

/// For which an end had no room.
const NO_ROOM: &str = "no_room";

/// A schedule whose sends are later than this, for one in ten, is the load's figure.
const LATE_NS: u64 = 50_000;

/// Messages that may be lost with one drop that the kernel counts: what waited leaves together, as many as fit a datagram, and a
/// train of up to 64 datagrams to one socket is one drop.
const PER_DROP: u64 = 64 * 1_472 / Load::MESSAGE_BYTES as u64;

/// Connections that share a socket, at most.
const PER_SOCKET: u32 = 64;

/// Connections begun in a second.
const RAMP_PER_SECOND: u64 = 1_500;

/// A load that ran.
#[derive(Debug)]
pub struct Played {
    /// All connections, still open.
    pub crowd: Crowd,
    /// What became of the messages.
    pub told: Told,
    /// When they counted.
    pub window: Window,
    /// What the server's process used in the window.
    pub server: Used,
    /// What this process used in it.
    pub here: Used,
    steal_share: Option<f64>,
    dropped: DropWatch,
}

/// Connects a crowd to a server that is there and runs the load; `beside` is called between two looks.
///
/// # Errors
///
/// One line: connects that failed, or what [`Drive::run`] says.
pub fn play(
    counted: Duration,
    load: Load,
    (server, to): (&Child, (SocketAddr, ServerPublicKey)),
    beside: impl FnMut(Window, u64) -> Result<(), String>,
) -> Result<Played, String> {
    let dropped = DropWatch::begin();
    let mut crowd = Crowd::bind(load.connections.div_ceil(PER_SOCKET), load.connections)?;
    let ramped = crowd.connect(to, load.connections.into(), RAMP_PER_SECOND, |_, _| {})?;
    if ramped.failed_count() > 0 {
        return Err(format!("connects failed: {:?}", ramped.failed));
    }
    let steal = StealWatch::begin();
    let drive = Drive::new(crowd, counted);
    let processes = [server.id(), std::process::id()];
    let watch = || processes.map(Watch::begin);
    let (crowd, tally, used) = drive.run(load, beside, watch, |both| both.map(|one| one.used()))?;
    let [Some(server), Some(here)] = used else {
        return Err("the processes' clocks cannot be read".to_owned());
    };
    let (told, window, steal_share) = (tally.told(), tally.window, steal.share());
    Ok(Played { crowd, told, window, server, here, steal_share, dropped })
}

impl Played {
    /// Datagrams that the kernel dropped for want of room since the crowd began to connect.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.dropped.count()
    }

    /// What no books can make good.
    ///
    /// # Errors
    ///
    /// One line that names it.
    pub fn check(&self, served: &Counts) -> Result<(), String> {
        for (count, what) in [
            (self.told.strangers, "messages came back that were not on their way"),
            (count(served, "unexplained"), "datagrams are in no counter of the server"),
            (count(served, "panics"), "panics at the server"),
        ] {
            if count > 0 {
                return Err(format!("{count} {what}"));
            }
        }
        Ok(())
    }

    /// The report of the server, which counted this; the kernel dropped so many datagrams meanwhile. A round is void for what
    /// this process waited for a core, and for what the server waited where all its threads have one.
    #[must_use]
    pub fn report(&self, load: Load, served: &Counts, drops: u64, has_one_thread: bool) -> Report {
        let told = &self.told;
        let no_room = (count(served, "refused") + count(served, "undelivered")).min(told.lost);
        let by_kernel = (told.lost - no_room).min(drops * PER_DROP);
        let cpu = self.server.cpu_over(self.window.length());
        let lost = [(NO_ROOM, no_room), (IN_LOST_DATAGRAMS, by_kernel)];
        let mut report = told.report(self.window, load.rate, flags(load), Some(cpu), &lost);
        let is_load_limit = match load.rate {
            None => self.server.core_share() < SATURATED,
            Some(_) => told.delay.is_some_and(|delay| delay.p90 > LATE_NS),
        };
        report.limited_by = is_load_limit.then(|| "client".to_owned());
        if told.refused > 0 {
            report.notes.push(format!("{} messages found no room at the clients", told.refused));
        }
        report.notes.push(format!("the server from its first datagram to its last: {}", counts_text(served)));
        // Threads of one server on one core wait for each other; only what others take is a disturbance.
        let judged = [self.server.run_delay_share().filter(|_| has_one_thread), self.here.run_delay_share()];
        report.run_delay_share = judged.into_iter().flatten().reduce(f64::max);
        report.steal_share = self.steal_share;
        report
    }
}

fn flags(load: Load) -> Flags {
    let mut flags = Flags::from([
        ("connections".to_owned(), u64::from(load.connections).into()),
        ("size".to_owned(), (Load::MESSAGE_BYTES as u64).into()),
    ]);
    if let Some(rate) = load.rate {
        flags.insert("rate".to_owned(), rate.into());
    }
    flags
}
