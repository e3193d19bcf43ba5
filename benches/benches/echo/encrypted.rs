//! drumfire's server with its tick face, as a game has it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use drumfire::{Access, ChannelId, Event, SendOptions, Server, ServerConfig, ServerKey, Stats, Workers};

use crate::peer::{Delivery, Staffing};
use crate::server::{self, RECEIVE_BUFFER_BYTES, Served};

pub(crate) const CHANNEL: ChannelId = ChannelId(0);

/// How often the server looks up when nothing comes.
const LOOK_UP: Duration = Duration::from_millis(100);

pub(crate) fn options(delivery: Delivery) -> SendOptions {
    match delivery {
        Delivery::Unreliable => SendOptions::unreliable(),
        Delivery::Reliable => SendOptions::reliable_ordered(),
    }
}

/// The server's key, which stands here for everybody to read.
pub(crate) fn key() -> ServerKey {
    ServerKey::from_bytes([0x5e; 32])
}

/// Echoes until the standard input ends.
pub(crate) fn serve(staffing: Staffing, delivery: Delivery) -> Result<Served, String> {
    let workers = match staffing {
        Staffing::Inline => Workers::Inline,
        Staffing::Worker => Workers::Count(1),
    };
    let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(workers)
        .receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
    let mut server = Server::bind(config).map_err(|error| error.to_string())?;
    let is_over = drumfire_benches::over_at_end_of_input();
    server::announce(server.local_addr()).map_err(|error| error.to_string())?;

    let options = options(delivery);
    let mut served = Served::default();
    while !is_over.load(Ordering::Acquire) {
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
    }
    account(&mut served, &server.stats());
    Ok(served)
}

fn account(served: &mut Served, stats: &Stats) {
    served.unexplained = stats.unexplained();
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
    }
}
