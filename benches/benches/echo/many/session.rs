//! One server and all its connections, and the loads they carry one after the other; then the books of all of it.

use std::path::Path;

use drumfire_benches::{Child, Cores, DropWatch, PlainDatagrams, Players};
use drumfire_tools::host;

use super::connecting::Connecting;
use super::fleet::{Fleet, Outcome, RAMP_PER_SECOND};
use super::meter::{Meter, Seen};
use super::round::{Round, round_of};
use super::websocket::WebSockets;
use super::{Load, Sizes, Subject, nbio};
use crate::load::{Carried, Crowd, DATAGRAMS_EACH};
use crate::peer::Peer;
use crate::server::{Order, Served};
use crate::{encrypted, process};

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

/// What came of one.
pub(crate) struct Session {
    /// A row for each run.
    pub(crate) rounds: Vec<Round>,
    pub(crate) connecting: Connecting,
}

/// Starts the server, connects, carries out all runs.
///
/// # Errors
///
/// What failed, or which message or datagram is nowhere.
pub(crate) fn session(
    cores: Cores,
    subject: Subject,
    sizes: Sizes,
    runs: &[Run],
    program: Option<&Path>,
) -> Result<Session, String> {
    host::pin_current_thread(cores.load).map_err(|error| error.to_string())?;
    let count = sizes.connections;
    match subject {
        Subject::Udp(peer) => {
            let server = process::start_server(peer, cores.server)?;
            let address = server.address()?;
            match peer {
                Peer::Raw => {
                    let fleet = |_| PlainDatagrams::connect(address, DATAGRAMS_EACH);
                    carry_out(subject, sizes, runs, server, || Fleet::connect(count, true, None, fleet))
                }
                Peer::Drumfire(_, delivery, suite) => {
                    let joining = encrypted::joining(delivery, suite);
                    let fleet = |some| Players::connect(address, some, &joining);
                    let per_second = Some(RAMP_PER_SECOND);
                    carry_out(subject, sizes, runs, server, || {
                        Fleet::connect(count, subject.may_lose(), per_second, fleet)
                    })
                }
            }
        }
        Subject::Nbio => {
            let program = program.ok_or("nbio's server was not built")?;
            let server = nbio::start(program, cores)?;
            let address = server.address()?;
            let fleet = |some| WebSockets::connect(address, some);
            carry_out(subject, sizes, runs, server, || Fleet::connect(count, false, None, fleet))
        }
    }
}

fn carry_out<C: Crowd>(
    subject: Subject,
    sizes: Sizes,
    runs: &[Run],
    server: Child,
    connect: impl FnOnce() -> Result<Fleet<C>, String>,
) -> Result<Session, String> {
    let dropped = DropWatch::begin();
    let mut fleet = connect()?;
    let mut rounds = Vec::new();
    let (mut sent, mut back) = (0, 0);
    for run in runs {
        let dropped_meanwhile = DropWatch::begin();
        server.send_line(run.flush.name())?;
        // The answer says that the order holds.
        server.line()?;
        let mut meter = Meter::new(&server);
        let outcome = match run.load {
            Load::Echo => fleet.echo(sizes.warm_up_echoes(), sizes.echoes, &mut meter),
            Load::Rate => fleet.rate(sizes.rate, (sizes.warm_up, sizes.counted), &mut meter),
        }?;
        let ran = Ran { run: *run, outcome, seen: meter.finish()?, drops: dropped_meanwhile.count() };
        let counts = &ran.outcome.tally.counts;
        sent += counts.sent_in_all();
        back += counts.back_in_all();
        rounds.push(round_of(subject, sizes, &ran)?);
    }
    let served = Served::of_line(&server.finish()?).ok_or("the server's books cannot be read")?;
    close_messages((sent, back), subject.may_lose(), &served)?;
    close(fleet.carried(), &served, dropped.count())?;
    Ok(Session { rounds, connecting: fleet.connecting })
}

/// Holds the messages of all runs that left the clients and came back together against what the server took and answered.
fn close_messages((sent, back): (u64, u64), may_lose: bool, served: &Served) -> Result<(), String> {
    let Served { received, echoed, refused, .. } = *served;
    let is_whole = received == echoed + refused && received <= sent && back <= echoed;
    if is_whole && (may_lose || (received == sent && back == echoed)) {
        return Ok(());
    }
    Err(format!(
        "BOOKS DO NOT CLOSE: the clients sent {sent} messages and had {back} back, the server took {received}, answered {echoed} \
         and refused {refused}"
    ))
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
