//! One round: a server in a process of its own, the load here, the books of both compared.

use std::cell::RefCell;
use std::time::Duration;

use drumfire_benches::{Child, Cores, Load, count, play};
use drumfire_tools::host;
use drumfire_tools::report::Report;

use crate::server::{Face, key};

/// What stands beside a round's report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    pub(crate) face: Face,
    pub(crate) core_share: f64,
    /// Of the load's core.
    pub(crate) load_share: f64,
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
    let server: Child = face.start(cores.server)?;
    let to = (server.address()?, key().public());
    let played = play(counted, load, (&server, to), |_, _| Ok(()))?;
    let drops = played.drops();
    let served = server.finish_counts()?;
    played.check(&served)?;
    let mut report = played.report(load, &served, drops, face.has_one_thread());
    report.flags.insert("face".to_owned(), face.name().into());
    let datagrams = count(&served, "datagrams received") + count(&served, "datagrams sent");
    let datagrams_per_message = datagrams as f64 / count(&served, "received").max(1) as f64;
    let (core_share, load_share) = (played.server.core_share(), played.here.core_share());
    let lost = played.told.lost;
    beside.borrow_mut().push(Beside { face, core_share, load_share, datagrams_per_message, lost });
    Ok(report)
}
