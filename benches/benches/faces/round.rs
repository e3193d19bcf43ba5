//! One round: a server in a process of its own, the load here, the books of both compared.

use std::cell::RefCell;
use std::time::Duration;

use drumfire_benches::{
    Child, Cores, Counts, Crowd, DropWatch, SATURATED, StealWatch, Told, Used, Watch, Window, count,
    counts_text,
};
use drumfire_tools::host;
use drumfire_tools::report::{Flags, IN_LOST_DATAGRAMS, Report};

use crate::load::{Drive, Load, MESSAGE_BYTES};
use crate::server::{Face, key};

/// For which an end had no room.
const NO_ROOM: &str = "no_room";

/// A schedule whose sends are later than this, for one in ten, is the load's figure.
const LATE_NS: u64 = 50_000;

/// Messages that may be lost with one drop that the kernel counts: what waited leaves together, as many as fit a datagram, and a
/// train of up to 64 datagrams to one socket is one drop.
const PER_DROP: u64 = 64 * 1_472 / MESSAGE_BYTES as u64;

/// Connections that share a socket.
const PER_SOCKET: u32 = 64;

/// Connections begun in a second.
const RAMP_PER_SECOND: u64 = 1_500;

/// What stands beside a round's report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    pub(crate) face: Face,
    pub(crate) core_share: f64,
    /// Datagrams that the server received and sent, for each message, from its first to its last.
    pub(crate) datagrams_per_message: f64,
    pub(crate) lost: u64,
}

/// Runs a round.
///
/// # Errors
///
/// What failed, or which message is nowhere.
pub(crate) fn run(
    (cores, counted): (Cores, Duration),
    face: Face,
    load: Load,
    beside: &RefCell<Vec<Beside>>,
) -> Result<Report, String> {
    host::pin_current_thread(cores.load).map_err(|error| error.to_string())?;
    let dropped = DropWatch::begin();
    let server: Child = face.start(cores.server)?;
    let address = server.address()?;
    let mut crowd = Crowd::bind(load.connections.div_ceil(PER_SOCKET), load.connections)?;
    let to = (address, key().public());
    let ramped = crowd.connect(to, load.connections.into(), RAMP_PER_SECOND, |_, _| {})?;
    if ramped.failed_count() > 0 {
        return Err(format!("connects failed: {:?}", ramped.failed));
    }
    let steal = StealWatch::begin();
    let drive = Drive::new(crowd, counted);
    let processes = [server.id(), std::process::id()];
    let (tally, used) = drive.run(load, || processes.map(Watch::begin), |both| both.map(|one| one.used()))?;
    let [Some(used), Some(here)] = used else {
        return Err("the processes' clocks cannot be read".to_owned());
    };
    let steal_share = steal.share();
    let drops = dropped.count();
    let served = server.finish_counts()?;
    let window = tally.window;
    let told = tally.told();
    check(&told, &served)?;
    let (report, note) = report_of(face, load, (&told, window), &used, &served, drops);
    beside.borrow_mut().push(note);
    // Threads of one server on one core wait for each other; only what others take is a disturbance.
    let judged = [used.run_delay_share().filter(|_| face.has_one_thread()), here.run_delay_share()];
    let run_delay_share = judged.into_iter().flatten().reduce(f64::max);
    Ok(Report { steal_share, run_delay_share, ..report })
}

/// What no books can make good.
fn check(told: &Told, served: &Counts) -> Result<(), String> {
    for (count, what) in [
        (told.strangers, "messages came back that were not on their way"),
        (count(served, "unexplained"), "datagrams are in no counter of the server"),
        (count(served, "panics"), "panics at the server"),
    ] {
        if count > 0 {
            return Err(format!("{count} {what}"));
        }
    }
    Ok(())
}

fn report_of(
    face: Face,
    load: Load,
    (told, window): (&Told, Window),
    used: &Used,
    served: &Counts,
    drops: u64,
) -> (Report, Beside) {
    let no_room = (count(served, "refused") + count(served, "undelivered")).min(told.lost);
    let by_kernel = (told.lost - no_room).min(drops * PER_DROP);
    let cpu = used.cpu_over(window.length());
    let lost = [(NO_ROOM, no_room), (IN_LOST_DATAGRAMS, by_kernel)];
    let mut report = told.report(window, load.rate, flags(face, load), Some(cpu), &lost);
    let core_share = used.core_share();
    let is_load_limit = match load.rate {
        None => core_share < SATURATED,
        Some(_) => told.delay.is_some_and(|delay| delay.p90 > LATE_NS),
    };
    report.limited_by = is_load_limit.then(|| "client".to_owned());
    if told.refused > 0 {
        report.notes.push(format!("{} messages found no room at the clients", told.refused));
    }
    report.notes.push(format!("the server from its first datagram to its last: {}", counts_text(served)));
    let datagrams = count(served, "datagrams received") + count(served, "datagrams sent");
    let datagrams_per_message = datagrams as f64 / count(served, "received").max(1) as f64;
    (report, Beside { face, core_share, datagrams_per_message, lost: told.lost })
}

fn flags(face: Face, load: Load) -> Flags {
    let mut flags = Flags::from([
        ("face".to_owned(), face.name().into()),
        ("connections".to_owned(), u64::from(load.connections).into()),
        ("size".to_owned(), (MESSAGE_BYTES as u64).into()),
    ]);
    if let Some(rate) = load.rate {
        flags.insert("rate".to_owned(), rate.into());
    }
    flags
}
