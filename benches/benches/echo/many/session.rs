//! One server and all its connections, and the loads they carry one after the other; then the books of all of it.

use std::path::Path;

use drumfire_benches::{Child, kernel_drops};
use drumfire_tools::host;

use super::fleet::{Fleet, Outcome, RAMP_PER_SECOND};
use super::meter::{Meter, Seen};
use super::round::{Round, round_of};
use super::websocket::WebSockets;
use super::{Load, Sizes, Subject, nbio};
use crate::load::{Carried, Crowd};
use crate::peer::{Delivery, Peer};
use crate::player::Players;
use crate::process;
use crate::raw::RawCrowd;
use crate::server::{Order, Served};
use drumfire_benches::Place;

/// A load, and how the server answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) load: Load,
    /// [`Order::FlushAtTick`] or [`Order::FlushNow`].
    pub(crate) flush: Order,
}

/// What came of a run, before it is a row.
pub(crate) struct Ran {
    pub(crate) run: Run,
    pub(crate) outcome: Outcome,
    pub(crate) seen: Seen,
    /// Datagrams that the kernel dropped meanwhile, of all sockets here.
    pub(crate) drops: u64,
}

/// Starts the server, connects, carries out all runs and answers a row for each.
///
/// # Errors
///
/// What failed, or which message or datagram is nowhere.
pub(crate) fn session(
    place: Place,
    subject: Subject,
    sizes: Sizes,
    runs: &[Run],
    program: Option<&Path>,
) -> Result<Vec<Round>, String> {
    host::pin_current_thread(place.client_core).map_err(|error| error.to_string())?;
    let count = sizes.connections;
    match subject {
        Subject::Udp(peer) => {
            let server = process::start_server(peer, place.server_core)?;
            let address = address_of(&server)?;
            match peer {
                Peer::Raw => {
                    let fleet = |_| RawCrowd::connect(address);
                    carry_out(subject, sizes, runs, server, || Fleet::connect(count, true, None, fleet))
                }
                Peer::Drumfire(_, _, suite) => {
                    let fleet = |some| Players::connect(address, some, Delivery::Reliable, suite);
                    let per_second = Some(RAMP_PER_SECOND);
                    carry_out(subject, sizes, runs, server, || {
                        Fleet::connect(count, false, per_second, fleet)
                    })
                }
            }
        }
        Subject::Nbio => {
            let program = program.ok_or("nbio's server was not built")?;
            let server = nbio::start(program, place.server_core, place.client_core)?;
            let address = address_of(&server)?;
            let fleet = |some| WebSockets::connect(address, some);
            carry_out(subject, sizes, runs, server, || Fleet::connect(count, false, None, fleet))
        }
    }
}

fn address_of(server: &Child) -> Result<std::net::SocketAddr, String> {
    server.line()?.parse().map_err(|_| "the server named no address".to_owned())
}

fn carry_out<C: Crowd>(
    subject: Subject,
    sizes: Sizes,
    runs: &[Run],
    server: Child,
    connect: impl FnOnce() -> Result<Fleet<C>, String>,
) -> Result<Vec<Round>, String> {
    let drops_before = kernel_drops();
    let mut fleet = connect()?;
    let mut rounds = Vec::new();
    for run in runs {
        let before = kernel_drops();
        server.tell(run.flush.name())?;
        // The answer says that the order holds.
        server.line()?;
        let mut meter = Meter::new(&server);
        let outcome = match run.load {
            Load::Echo => fleet.echo(sizes.warm_up_echoes(), sizes.echoes, &mut meter),
            Load::Rate => fleet.rate(sizes.rate, (sizes.warm_up, sizes.counted), &mut meter),
        }?;
        let ran = Ran { run: *run, outcome, seen: meter.finish()?, drops: since(before) };
        rounds.push(round_of(subject, sizes, &ran)?);
    }
    let served = Served::of_line(&server.finish()?).ok_or("the server's books cannot be read")?;
    close(fleet.carried(), &served, since(drops_before))?;
    Ok(rounds)
}

fn since(before: Option<u64>) -> u64 {
    before.zip(kernel_drops()).map_or(0, |(then, now)| now.saturating_sub(then))
}

/// Holds the datagrams of all runs together against what the server took.
fn close(carried: Carried, served: &Served, drops: u64) -> Result<(), String> {
    let Some(traffic) = served.traffic else { return Ok(()) };
    let (sent, received) = (carried.datagrams_sent, traffic.datagrams_received);
    let missing = sent.saturating_sub(received);
    if received > sent || missing > drops {
        return Err(format!(
            "BOOKS DO NOT CLOSE: the clients sent {sent} datagrams, the server took {received}, the kernel dropped {drops} of \
             all sockets"
        ));
    }
    Ok(())
}
