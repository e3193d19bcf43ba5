//! The cost of connected clients that send only keep-alives.
//!
//! Clients send a keep-alive every 7.5 s, and the server acknowledges it. Memory of the server is measured per connection. Its CPU is
//! compared with that of a plain UDP server over the same windows. The plain server gets as many datagrams of the same size from as
//! many sockets at the same time, and sends as many answers.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::stats::WorkerStats;
use drumfire_benches::roles::{EchoConfig, Interface};
use drumfire_benches::traffic::{Client, client_counts};
use drumfire_benches::{
    Bench, Child, ClientSettings, ClientSocket, Extent, Goal, PLAIN, PLAIN_BYTES_MAX, Pace, PlainDatagrams,
    RECEIVE_BUFFER_BYTES, Reply, Spread, UsageWatch, WindowUsage, close_server, count, resident_bytes,
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
const PAUSE: Duration = Duration::from_micros(500);

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
    let mut measured: Vec<WindowUsage> = Vec::new();
    for _ in 0..windows {
        let before = (sent_by(&mut sockets), mirror.sent);
        let watch = UsageWatch::begin(server.id(), plain.id());
        mirror.follow_for(&mut sockets, window)?;
        measured.push(watch.used()?);
        let (sent, mirrored) = (sent_by(&mut sockets) - before.0, mirror.sent - before.1);
        if sent != mirrored {
            return Err(format!("{sent} datagrams to the server, {mirrored} to the plain one"));
        }
    }
    let share = Spread::of(measured.iter().map(|usage| usage.server.core_share() * 100.0));
    let ratio = Spread::of(measured.iter().map(|usage| usage.server.cpu_s() / usage.load.cpu_s()));
    let results = &mut bench.results;
    results.figure(format!("{part}: CPU over a plain receiver's"), ratio, "x", Goal::AtMost(CPU_GOAL), "");
    let goal = if part == FEW.0 { Goal::AtMost(SHARE_GOAL) } else { Goal::Shown };
    results.figure(format!("{part}: server"), share, "% of a core", goal, "");
    close_server(server, &mut sockets)?;
    plain.finish_counts()?;
    Ok(())
}

fn sent_by(sockets: &mut [ClientSocket]) -> u64 {
    count(&client_counts(sockets), "socket sent")
}

/// Sends the plain server as many datagrams of the same length as the clients send to drumfire's, from as many sockets. Each asks for an
/// answer of the length of drumfire's.
struct Mirror {
    sockets: Vec<PlainDatagrams>,
    sent: u64,
    /// The datagrams of drumfire's server that have no counterpart yet, and their bytes.
    outstanding: u64,
    outstanding_bytes: u64,
}

impl Mirror {
    fn connect(address: SocketAddr, sockets: usize) -> Result<Self, String> {
        let socket = |_| PlainDatagrams::connect(address, 1, DATAGRAMS_EACH);
        let sockets = (0..sockets).map(socket).collect::<Result<_, _>>()?;
        Ok(Self { sockets, sent: 0, outstanding: 0, outstanding_bytes: 0 })
    }

    /// Polls the clients for this time, and mirrors each datagram immediately, so that both servers get them equally bunched.
    fn follow_for(&mut self, clients: &mut [ClientSocket], time: Duration) -> Result<(), String> {
        let until = clock::now() + time;
        while clock::now() < until {
            let mut is_active = false;
            for (index, client) in clients.iter_mut().enumerate() {
                let before = client.stats();
                is_active |= client.poll();
                self.follow(index, &before, &client.stats())?;
                if client.ended() > 0 {
                    return Err(format!("{} connections ended", client.ended()));
                }
            }
            if !is_active {
                clock::pause(PAUSE);
            }
        }
        Ok(())
    }

    /// Sends the counterparts of the datagrams between these counters of a client.
    fn follow(&mut self, index: usize, before: &WorkerStats, now: &WorkerStats) -> Result<(), String> {
        self.outstanding += now.received.datagrams - before.received.datagrams;
        self.outstanding_bytes += now.received.bytes - before.received.bytes;
        let sent = now.sent.datagrams - before.sent.datagrams;
        let length = (now.sent.bytes - before.sent.bytes).checked_div(sent).unwrap_or(0);
        let length = usize::try_from(length).unwrap_or(0).clamp(HEAD_BYTES, PLAIN_BYTES_MAX);
        for _ in 0..sent {
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
        let Some(bytes) = self.outstanding_bytes.checked_div(self.outstanding) else { return 0 };
        self.outstanding -= 1;
        self.outstanding_bytes -= bytes;
        u16::try_from(bytes).unwrap_or(u16::MAX)
    }
}
