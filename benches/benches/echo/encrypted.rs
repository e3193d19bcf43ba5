//! drumfire's server with its tick face, as a game has it.

use std::time::Duration;

use drumfire::{
    Access, AdmissionConfig, Event, SendOptions, Server, ServerConfig, ServerKey, Stats, Workers,
};
use drumfire_benches::{Joining, RECEIVE_BUFFER_BYTES};
use drumfire_crypto::Suite;

use crate::load::DATAGRAMS_EACH;
use crate::peer::{Delivery, Staffing};
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

/// Echoes until the standard input ends.
pub(crate) fn serve(staffing: Staffing, delivery: Delivery) -> Result<Served, String> {
    let workers = match staffing {
        Staffing::Inline => Workers::Inline,
        Staffing::Worker => Workers::Count(1),
    };
    let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(workers)
        // How busy a worker looks is a matter of who else has its core: here it takes all whom it has room for.
        .admission(AdmissionConfig::default().busy_max_percent(100))
        .receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
    let mut server = Server::bind(config).map_err(|error| error.to_string())?;
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
        while let Some(order) = desk.order() {
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
    account(&mut served, stats);
    served
}

fn account(served: &mut Served, stats: &Stats) {
    served.unexplained = stats.unexplained();
    let mut traffic = Traffic::default();
    for worker in &stats.workers {
        let count = |name: &str, count: u64, served: &mut Served| {
            *served.counts.entry(name.to_owned()).or_default() += count;
        };
        count("datagrams received", worker.protocol.datagrams_received, served);
        count("datagrams sent", worker.protocol.datagrams_sent, served);
        count("acks sent alone", worker.protocol.acks_sent_alone, served);
        count("messages resent", worker.protocol.messages_resent, served);
        count("messages undelivered", worker.messages_undelivered, served);
        count("panics", worker.panics, served);
        traffic.datagrams_received += worker.received.datagrams + worker.received.dropped_in_all();
        traffic.datagrams_sent += worker.sent.datagrams;
        traffic.bytes += worker.received.bytes + worker.sent.bytes;
        traffic.calls += worker.received.calls + worker.sent.calls;
    }
    served.traffic = Some(traffic);
}
