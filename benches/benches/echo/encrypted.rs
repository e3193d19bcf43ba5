//! drumfire's server with its tick face, as a game has it, and with a handler that answers on its worker.

use std::sync::Arc;
use std::time::Duration;

use drumfire::{
    Access, AdmissionConfig, Event, SendOptions, Server, ServerConfig, ServerKey, Stats, Workers,
};
use drumfire_benches::{EchoHandler, EchoTally, Joining, RECEIVE_BUFFER_BYTES};
use drumfire_crypto::Suite;
use drumfire_socket::Wait;
use drumfire_tools::clock;

use crate::load::DATAGRAMS_EACH;
use crate::peer::{Delivery, GATHERED, Staffing};
use crate::server::{self, Desk, Order, Served, Traffic};

/// How often the server looks up when nothing comes.
const LOOK_UP: Duration = Duration::from_millis(100);

/// At the end it takes what is still on its way.
const LAST_LOOK: Duration = Duration::from_millis(20);

fn options(delivery: Delivery) -> SendOptions {
    match delivery {
        Delivery::Unreliable => SendOptions::unreliable(),
        Delivery::Reliable => SendOptions::reliable_ordered(),
    }
}

/// The server's key, which stands here for everybody to read.
fn key() -> ServerKey {
    ServerKey::from_bytes([0x5e; 32])
}

/// How the clients connect and send.
pub(crate) fn joining(delivery: Delivery, suite: Suite) -> Joining {
    Joining { key: key().public(), suite, options: options(delivery), each: DATAGRAMS_EACH }
}

/// A server that takes all whom it has room for.
fn config(workers: Workers) -> ServerConfig {
    ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(workers)
        // How busy a worker looks is a matter of who else has its core.
        .admission(AdmissionConfig::default().busy_max_percent(100))
        .receive_buffer_bytes(RECEIVE_BUFFER_BYTES)
}

/// Echoes until the standard input ends.
pub(crate) fn serve(staffing: Staffing, delivery: Delivery) -> Result<Served, String> {
    match staffing {
        Staffing::Inline => poll(Workers::Inline, delivery),
        Staffing::Worker => poll(Workers::Count(1), delivery),
        Staffing::Handler => handle(config(Workers::Count(1)), delivery),
        Staffing::Gathered => handle(config(Workers::Count(1)).wait(Wait::Gather(GATHERED)), delivery),
    }
}

/// With a handler, whose answers leave at the end of each look at the socket: it cannot be told when to flush.
fn handle(config: ServerConfig, delivery: Delivery) -> Result<Served, String> {
    let tally = Arc::<EchoTally>::default();
    let make = |_| EchoHandler::new(&tally, options(delivery));
    let server = drumfire::serve(config, make).map_err(|error| error.to_string())?;
    let desk = Desk::open(|| {});
    server::announce(server.local_addr()).map_err(|error| error.to_string())?;
    while let Some(order) = desk.wait_for_order() {
        if order == Order::FlushNow {
            return Err("a handler cannot be told when to flush".to_owned());
        }
        accounted(&echoed(&tally), &server.stats()).say().map_err(|error| error.to_string())?;
    }
    clock::pause(LAST_LOOK);
    Ok(accounted(&echoed(&tally), &server.stats()))
}

fn echoed(tally: &EchoTally) -> Served {
    let (received, echoed, refused) = (tally.received(), tally.echoed(), tally.refused());
    Served { received, echoed, refused, ..Served::default() }
}

/// With the tick face, where an order says when answers leave.
fn poll(workers: Workers, delivery: Delivery) -> Result<Served, String> {
    let mut server = Server::bind(config(workers)).map_err(|error| error.to_string())?;
    let desk = Desk::open(|| {});
    server::announce(server.local_addr()).map_err(|error| error.to_string())?;

    let at_tick = options(delivery);
    let mut options = at_tick;
    let mut served = Served::default();
    while !desk.is_over() {
        server.wait(LOOK_UP);
        for event in server.poll() {
            if let Event::Message { peer, channel, bytes } = event {
                served.received += 1;
                match server.send(peer, channel, bytes, options) {
                    Ok(_) => served.echoed += 1,
                    Err(_) => served.refused += 1,
                }
            }
        }
        server.flush();
        while let Some(order) = desk.try_order() {
            match order {
                Order::FlushAtTick => options = at_tick,
                Order::FlushNow => options = at_tick.flush_now(),
                Order::Count => {}
            }
            accounted(&served, &server.stats()).say().map_err(|error| error.to_string())?;
        }
    }
    server.wait(LAST_LOOK);
    Ok(accounted(&served, &server.stats()))
}

/// What the echo counted, with what the server did.
fn accounted(served: &Served, stats: &Stats) -> Served {
    let mut served = served.clone();
    served.unexplained = stats.unexplained();
    let mut traffic = Traffic::default();
    for worker in &stats.workers {
        let count = |name: &str, count: u64, served: &mut Served| {
            *served.counts.entry(name.to_owned()).or_default() += count;
        };
        count("datagrams received", worker.protocol.datagrams_received, &mut served);
        count("datagrams sent", worker.protocol.datagrams_sent, &mut served);
        count("acks sent alone", worker.protocol.acks_sent_alone, &mut served);
        count("messages resent", worker.protocol.messages_resent, &mut served);
        count("messages undelivered", worker.messages_undelivered, &mut served);
        count("panics", worker.panics, &mut served);
        traffic.datagrams_received += worker.received.datagrams + worker.received.dropped_in_all();
        traffic.datagrams_sent += worker.sent.datagrams;
        traffic.bytes += worker.received.bytes + worker.sent.bytes;
        traffic.calls += worker.received.calls + worker.sent.calls;
    }
    served.traffic = Some(traffic);
    served
}
