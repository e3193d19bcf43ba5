//! The cost of connected clients that send only keep-alives.
//!
//! Clients send a keep-alive every 7.5 s, and the server acknowledges it. Memory of the server is measured per connection. Its CPU is
//! compared with that of a plain UDP server over the same windows. The plain server gets as many datagrams of the same size from as
//! many sockets at the same time, and sends as many answers.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_benches::roles::{EchoConfig, Interface};
use drumfire_benches::traffic::Client;
use drumfire_benches::{
    Bench, Child, ClientSettings, ClientSocket, Extent, Goal, PLAIN, PLAIN_BYTES_MAX, Pace, PlainDatagrams,
    RECEIVE_BUFFER_BYTES, Reply, SocketCounters, Spread, Usage, UsageWatch, close_server, resident_bytes,
};
use drumfire_tools::clock;

const SOCKETS: u32 = 8;

/// The goal for the server's memory per connection, in bytes.
const BYTES_GOAL: f64 = 1_024.0;

/// The goal for the server's CPU over that of the plain server.
const CPU_GOAL: f64 = 1.3;

/// The goal for the server's CPU with the clients of [`FEW`], in percent of a core.
const SHARE_GOAL: f64 = 0.8;

/// The section with goals for CPU, and its clients.
const FEW: (&str, u32) = ("few", 2_000);

/// The section with goals for memory, and its clients.
const MANY: (&str, u32) = ("many", 100_000);

/// The pause after a poll that found nothing.
const REST: Duration = Duration::from_micros(500);

/// Datagrams that a plain socket sends in one pass, for each of 16 connections.
const DATAGRAMS_EACH: usize = 16;

/// A datagram to the plain server begins with the length of its answer in two bytes.
const HEAD_BYTES: usize = 2;

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    for section in [FEW, MANY] {
        // A smoke run leaves out the many clients, unless they are asked for by name.
        let is_short = bench.extent() == Extent::Quick && section == MANY && bench.wants(FEW.0);
        if bench.wants(section.0) && !is_short {
            measure(bench, section)?;
        }
    }
    Ok(())
}

fn measure(bench: &mut Bench, (part, clients): (&str, u32)) -> Result<(), String> {
    let seconds = Duration::from_secs;
    // Before the first window, working memory is given back and keep-alives begin.
    let (quiet, windows, window) = bench.extent().pick(
        (seconds(4), 1, seconds(5)),
        (seconds(10), 5, seconds(6)),
        (seconds(20), 5, seconds(30)),
    );
    let core = bench.pin_load()?.server;
    let (server, address) = EchoConfig::new(Interface::Poll, clients).start(core)?;
    let memory_now = || resident_bytes(server.id()).ok_or("the server's memory cannot be read");
    let empty = memory_now()?;
    let per_socket = clients.div_ceil(SOCKETS) as usize;
    let mut sockets = ClientSocket::connect_all(&ClientSettings::new(address), clients as usize, per_socket)?;
    let plain = (Pace::Batches(None), Reply::Asked, RECEIVE_BUFFER_BYTES);
    let plain = Child::role(PLAIN, Some(core), &plain)?;
    let mut mirror = Mirror::connect(plain.address()?, sockets.len())?;
    mirror.follow_for(&mut sockets, quiet)?;
    // All memory since no client was connected: tables, queues at their longest, and freed memory that the allocator keeps.
    let each = (memory_now()? as f64 - empty as f64) / f64::from(clients);
    // With few clients most of the memory is that of the process itself.
    let goal = if part == FEW.0 { Goal::Shown } else { Goal::AtMost(BYTES_GOAL) };
    bench.results.figure(format!("{part}: resident memory per connection"), Some(each), "B", goal, "");
    let mut measured: Vec<[Usage; 2]> = Vec::new();
    for _ in 0..windows {
        let before = (sent_by(&sockets), mirror.sent);
        let [of_server, of_plain] = [server.id(), plain.id()].map(UsageWatch::begin);
        mirror.follow_for(&mut sockets, window)?;
        measured.push([of_server.used()?, of_plain.used()?]);
        let (sent, mirrored) = (sent_by(&sockets) - before.0, mirror.sent - before.1);
        if sent != mirrored {
            return Err(format!("{sent} datagrams to the server, {mirrored} to the plain one"));
        }
    }
    let share = Spread::of(measured.iter().map(|[server, _]| server.core_share() * 100.0));
    let ratio = Spread::of(measured.iter().map(|[server, plain]| server.cpu_s() / plain.cpu_s()));
    let results = &mut bench.results;
    results.spread(format!("{part}: CPU over a plain receiver's"), ratio, "x", Goal::AtMost(CPU_GOAL), "");
    let goal = if part == FEW.0 { Goal::AtMost(SHARE_GOAL) } else { Goal::Shown };
    results.spread(format!("{part}: server"), share, "% of a core", goal, "");
    close_server(server, &mut sockets)?;
    plain.finish_counts()?;
    Ok(())
}

fn sent_by(sockets: &[ClientSocket]) -> u64 {
    sockets.iter().map(|socket| socket.counters().sent).sum()
}

/// Sends to the plain server what the clients send to drumfire's: as many datagrams of the same length from as many sockets. Each
/// asks for an answer of the length of drumfire's.
struct Mirror {
    sockets: Vec<PlainDatagrams>,
    sent: u64,
    /// The datagrams of drumfire's server that have no counterpart yet.
    owed: SocketCounters,
}

impl Mirror {
    fn connect(address: SocketAddr, sockets: usize) -> Result<Self, String> {
        let socket = |_| PlainDatagrams::connect(address, 1, DATAGRAMS_EACH);
        let sockets = (0..sockets).map(socket).collect::<Result<_, _>>()?;
        Ok(Self { sockets, sent: 0, owed: SocketCounters::default() })
    }

    /// Polls the clients for this time, and mirrors each datagram immediately, so that both servers get them equally bunched.
    fn follow_for(&mut self, clients: &mut [ClientSocket], time: Duration) -> Result<(), String> {
        let until = clock::now() + time;
        while clock::now() < until {
            let mut came = false;
            for (index, client) in clients.iter_mut().enumerate() {
                let before = client.counters();
                came |= client.poll();
                self.follow(index, client.counters().since(before))?;
                if client.ended() > 0 {
                    return Err(format!("{} connections ended", client.ended()));
                }
            }
            if !came {
                clock::pause(REST);
            }
        }
        Ok(())
    }

    fn follow(&mut self, index: usize, counters: SocketCounters) -> Result<(), String> {
        self.owed.received += counters.received;
        self.owed.received_bytes += counters.received_bytes;
        let length = counters.sent_bytes.checked_div(counters.sent).unwrap_or(0);
        let length = usize::try_from(length).unwrap_or(0).clamp(HEAD_BYTES, PLAIN_BYTES_MAX);
        for _ in 0..counters.sent {
            let answer_bytes = self.next_answer_bytes();
            let socket = &mut self.sockets[index];
            socket.ask(length, answer_bytes);
            while !socket.send(0, 0, 0, &[])? {
                socket.flush(0)?;
            }
            self.sent += 1;
        }
        self.sockets[index].flush(0)?;
        self.sockets[index].receive(0, &mut |_, _| {})
    }

    /// Returns the length of the next answer, or 0 when drumfire's server sent no more answers than were asked for.
    fn next_answer_bytes(&mut self) -> u16 {
        let Some(bytes) = self.owed.received_bytes.checked_div(self.owed.received) else { return 0 };
        self.owed.received -= 1;
        self.owed.received_bytes -= bytes;
        u16::try_from(bytes).unwrap_or(u16::MAX)
    }
}
