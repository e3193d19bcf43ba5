//! One round: a server in a process of its own, the players and the guest here, the books of all compared.

use std::cell::RefCell;
use std::time::Duration;

use drumfire_benches::{Cores, Counts, Guest, Load, Played, Spender, close_books, count, play};
use drumfire_tools::report::Report;
use drumfire_tools::{clock, host};

use crate::role::Role;
use crate::server::{key, start, take};

/// How long datagrams may still be on their way.
const SETTLE: Duration = Duration::from_millis(100);

/// What stands beside a round's report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    pub(crate) role: Role,
    /// Messages of the players, and those that did not come back or found no room.
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) core_share: f64,
    /// Of the load's core.
    pub(crate) load_share: f64,
    /// How late 99 of a hundred of their messages left, at most.
    pub(crate) late_ms: Option<f64>,
    pub(crate) guest: Option<Seen>,
}

/// What there is to say of the guest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Datagrams it sent in a second of the window.
    pub(crate) sent_per_second: f64,
    /// Bytes that the server kept for a task that took none, and that the sender kept at most.
    pub(crate) kept_bytes: u64,
    pub(crate) memory_most_bytes: u64,
    /// How often the policy of a full queue did what it is for.
    pub(crate) acted: u64,
    /// Messages that the server's application had of it.
    pub(crate) heard: u64,
}

/// Runs a round.
///
/// # Errors
///
/// What failed, or which books do not close.
pub(crate) fn run(
    (cores, counted): (Cores, Duration),
    role: Role,
    load: Load,
    abuse_per_second: u64,
    beside: &RefCell<Vec<Beside>>,
) -> Result<Report, String> {
    host::pin_current_thread(cores.load).map_err(|error| error.to_string())?;
    let server = start(role, cores.server)?;
    let to = (server.address()?, key().public());
    // Before the players: to the server the first one is the guest.
    let manner = role.manner(abuse_per_second);
    let mut guest = manner.map(|manner| Guest::connect(to, manner)).transpose()?;
    let is_spender = role == Role::Spender;
    let mut spender = is_spender.then(|| Spender::connect(to, abuse_per_second)).transpose()?;
    let played = play(counted, load, (&server, to), |window, now| {
        guest.as_mut().map_or(Ok(()), |guest| guest.turn(window, now))?;
        spender.as_mut().map_or(Ok(()), |spender| spender.turn(window, now))
    })?;
    let kept_bytes = match (&mut guest, role) {
        (Some(guest), Role::Stalled(_)) => {
            let kept_bytes = take(&server)?;
            guest.settle();
            kept_bytes
        }
        _ => 0,
    };
    clock::pause(SETTLE);
    let datagrams = played.crowd.carried().sent
        + guest.as_ref().map_or(0, Guest::sent)
        + spender.as_ref().map_or(0, Spender::sent);
    let drops = played.drops();
    let served = server.finish_counts()?;
    check(&played, &served, (datagrams, drops))?;
    let seen = match (&guest, &spender) {
        (Some(guest), _) => Some(see(guest, role, &played, &served, kept_bytes)?),
        (None, Some(spender)) => Some(Seen {
            sent_per_second: spender.sent_in_window() as f64 / played.window.length().as_secs_f64(),
            heard: count(&served, "heard of the guest"),
            ..Seen::default()
        }),
        (None, None) => None,
    };
    let mut report = played.report(load, &served, drops, false);
    report.flags.insert("beside".to_owned(), role.name().into());
    let told = &played.told;
    beside.borrow_mut().push(Beside {
        role,
        sent: told.early + told.out_at_start + told.sent + told.refused,
        lost: told.lost + told.refused,
        core_share: played.server.core_share(),
        load_share: played.here.core_share(),
        late_ms: told.delay.map(|delay| delay.p99 as f64 / 1e6),
        guest: seen,
    });
    Ok(report)
}

/// What no books can make good.
fn check(played: &Played, served: &Counts, (datagrams, drops): (u64, u64)) -> Result<(), String> {
    played.check(served)?;
    close_books(datagrams, served, drops)?;
    match played.crowd.ended() {
        0 => Ok(()),
        ended => Err(format!("{ended} players were dropped")),
    }
}

/// What became of the guest and of its messages.
fn see(guest: &Guest, role: Role, played: &Played, served: &Counts, kept_bytes: u64) -> Result<Seen, String> {
    let heard = count(served, "heard of the guest");
    let acted = match role {
        Role::Stalled(policy) => {
            let ledger = guest.ledger(heard);
            ledger.close(policy)?;
            ledger.acted(policy)
        }
        _ if guest.is_over() => return Err("the abuser was dropped".to_owned()),
        _ => 0,
    };
    Ok(Seen {
        sent_per_second: guest.sent_in_window() as f64 / played.window.length().as_secs_f64(),
        kept_bytes,
        memory_most_bytes: guest.memory_most_bytes() as u64,
        acted,
        heard,
    })
}
