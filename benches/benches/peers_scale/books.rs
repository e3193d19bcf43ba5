//! The books of a server and its clients, closed when the server has ended: every datagram that one side sent was taken by the
//! other, or the kernel dropped it in front of that side's own sockets. What it drops elsewhere excuses nothing, except for plain
//! sockets, which keep no count.
//!
//! The books of messages are a round's affair.

use std::time::Duration;

use drumfire_benches::{
    Child, Counts, Crowd, close_books, close_way_back, count, counts_text, missing, settle,
};
use drumfire_tools::clock;

/// Clients look once a second at most at what the kernel dropped in front of their sockets.
const DROPS_READ_AFTER: Duration = Duration::from_millis(1_100);

/// What closed books say.
pub(crate) struct Closed {
    /// What the server counted until it ended.
    pub(crate) served: Counts,
    /// What the kernel dropped in front of the sockets of both sides; trains count once.
    pub(crate) kernel_drops: u64,
}

/// Ends a server of drumfire's and holds what it counted against what its clients' sockets carried, both ways. Clients learn by it
/// that the server is gone: ask them before whether they are all there.
///
/// # Errors
///
/// One line: which counter is off, or that the server refused messages.
pub(crate) fn close(server: Child, crowds: &mut [&mut Crowd]) -> Result<Closed, String> {
    settle();
    let sent: u64 = crowds.iter().map(|crowd| crowd.carried().sent).sum();
    let served = server.finish_counts()?;
    println!("  books     {}", close_books(sent, &served, None)?);
    println!("  server    {}", counts_text(&served));
    settle();
    if drain(crowds) < count(&served, "socket sent") {
        clock::pause(DROPS_READ_AFTER);
    }
    let received = drain(crowds);
    let dropped = dropped(crowds);
    println!("  books     {}", close_way_back(&served, received, 0, dropped)?);
    check_refused(&served)?;
    let kernel_drops = count(&served, "kernel dropped") + dropped;
    Ok(Closed { served, kernel_drops })
}

/// The same of the plain receiver, whose clients sent and received so many; the kernel dropped so many of all sockets beside those
/// of other books.
///
/// # Errors
///
/// As [`close`].
pub(crate) fn close_plain(
    plain: Child,
    (sent, received): (u64, u64),
    kernel_drops: u64,
) -> Result<(), String> {
    let echoed = plain.finish_counts()?;
    println!("  plain     {}", counts_text(&echoed));
    let names = [("socket received", "received"), ("socket sent", "answered")];
    let served = Counts::from(names.map(|(name, own)| (name.to_owned(), count(&echoed, own))));
    println!("  plain     {}", close_books(sent, &served, kernel_drops)?);
    let left = kernel_drops.saturating_sub(missing(sent, &served));
    println!("  plain     {}", close_way_back(&served, received, 0, left)?);
    check_refused(&echoed)
}

/// Takes all that waits for the clients; answers how many datagrams their sockets took since they were bound.
fn drain(crowds: &mut [&mut Crowd]) -> u64 {
    crowds.iter_mut().map(|crowd| crowd.drain()).sum()
}

/// What the kernel dropped in front of the clients' sockets, when they looked last.
fn dropped(crowds: &[&mut Crowd]) -> u64 {
    crowds.iter().map(|crowd| dropped_of(crowd)).sum()
}

fn dropped_of(crowd: &Crowd) -> u64 {
    let sockets = (0..crowd.sockets()).filter_map(|place| crowd.socket_stats(place));
    sockets.map(|stats| stats.kernel_dropped).sum()
}

fn check_refused(counts: &Counts) -> Result<(), String> {
    match count(counts, "refused") {
        0 => Ok(()),
        refused => Err(format!("refused at the server: {refused}")),
    }
}
