//! One round: a server and a client process on their own cores, and the relay between them in lossy loads.

use std::time::Duration;

use drumfire_benches::traffic::{Traffic, run_client};
use drumfire_benches::{
    Child, Cores, Counts, DropWatch, EchoCounts, EchoRound, Outcome, UsageWatch, Window, arguments, count,
    resident_bytes,
};
use drumfire_tools::report::KERNEL_RECEIVE_QUEUE;
use drumfire_tools::{clock, host};

use crate::adapter::{Library, Setup, all};
use crate::loads::{Load, Rounds};
use crate::relay::{self, OPEN_FILES, RELAY};

/// The role of a server.
pub(crate) const SERVER: &str = "server";

/// The role of a client.
pub(crate) const CLIENT: &str = "client";

/// Where a message was lost: before the application of the server received it, for want of room for its answer, or after that.
const LOST_IN_LIBRARY: [&str; 3] = ["library_to_server", "server_refused", "library_to_client"];

/// One library with one way of delivery in a load.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) load: Load,
    /// The library under test.
    pub(crate) tested: &'static Library,
    pub(crate) setup: Setup,
    pub(crate) connections: usize,
}

impl Row {
    pub(crate) fn new(load: Load, tested: &'static Library, is_reliable: bool, connections: usize) -> Self {
        let setup = Setup { is_reliable, answer_bytes: load.answer_bytes, ..tested.setup };
        Self { load, tested, setup, connections }
    }

    /// The name in tables and reports.
    pub(crate) fn name(&self) -> String {
        format!("{}, {}", self.tested.name, self.delivery())
    }

    pub(crate) const fn delivery(&self) -> &'static str {
        if self.setup.is_reliable { "reliable" } else { "unreliable" }
    }

    fn traffic(&self) -> Traffic {
        let Self { load, tested, setup, connections } = self;
        let per_client = if load.has_trains && tested.has_trains_apart { 1 } else { tested.per_socket };
        load.traffic(*connections, per_client, !setup.is_reliable)
    }

    /// The arguments of its server, which are also the first ones of its client.
    const fn args(&self) -> (&str, &str, bool, usize) {
        (self.load.name, self.tested.name, self.setup.is_reliable, self.connections)
    }
}

/// Returns the row of these arguments.
fn of_args((load, name, is_reliable, connections): (String, String, bool, usize)) -> Result<Row, String> {
    // Where the system allows fewer files, the socket that cannot be opened reports it.
    let _ = host::raise_open_files(OPEN_FILES);
    let load = Load::named(&load)?;
    let libraries: &'static [Library] = all().leak();
    let tested = libraries.iter().find(|library| library.name == name).ok_or("not a library")?;
    Ok(Row::new(load, tested, is_reliable, connections))
}

/// Runs a server. The arguments are those of its row.
pub(crate) fn serve(args: &str) -> Result<Counts, String> {
    let row = of_args(arguments(args)?)?;
    (row.tested.serve)(&row.setup)
}

/// Runs a client. The arguments are those of its row, the lengths of warm-up and window, and the address of the server.
pub(crate) fn connect(args: &str) -> Result<Counts, String> {
    let (row, times, address) = arguments(args)?;
    let row = of_args(row)?;
    run_client(row.traffic(), times, |count| (row.tested.connect)(address, count, &row.setup))?;
    Ok(Counts::new())
}

/// Runs a round.
pub(crate) fn run(cores: Cores, row: &Row, rounds: &Rounds) -> Result<Outcome, String> {
    let dropped = DropWatch::begin();
    let server = Child::role(SERVER, Some(cores.server), &row.args())?;
    let mut address = server.address()?;
    let resident = || resident_bytes(server.id()).unwrap_or(0);
    let before = resident();
    let mut relay = None;
    if row.load.is_relayed {
        let process = Child::role(RELAY, Some(cores.between), &address)?;
        address = process.address()?;
        relay = Some(process);
    }
    let args = (row.args(), (rounds.warm_up, rounds.counted), address);
    let client = Child::role(CLIENT, Some(cores.load), &args)?;
    // A client prints its first line when it has connected, which may take as long as two lines.
    let window: Window = client.read().or_else(|_| client.read())?;
    pause_until(window.start);
    let watch = UsageWatch::begin(server.id(), client.id());
    pause_until(window.end);
    let (usage, bytes) = (watch.used()?, resident().saturating_sub(before));
    let counts: EchoCounts = client.read()?;
    let drops = dropped.count();
    drop(client);
    let served = server.finish_counts()?;
    let relayed = relay.map(Child::finish_counts).transpose()?;
    relayed.as_ref().map_or(Ok(()), relay::check)?;
    let lost = losses(row, &counts, &served, drops)?;

    let round = EchoRound { traffic: row.traffic(), window, counts, usage };
    // Threads of one process wait for each other on one core, as client and relay do.
    let has_one_thread = row.tested.has_one_thread;
    let has_one_thread = [has_one_thread, has_one_thread && relayed.is_none()];
    let report = round.report(has_one_thread, &lost)?;
    let mut values = round.values();
    values.insert("KiB", bytes as f64 / 1_024.0 / row.connections as f64);
    Ok((report, values))
}

fn pause_until(at: u64) {
    clock::pause(Duration::from_nanos(at.saturating_sub(clock::host_ns())));
}

/// Returns the place of each lost message, or fails when one has none.
fn losses(
    row: &Row,
    counts: &EchoCounts,
    served: &Counts,
    drops: u64,
) -> Result<Vec<(&'static str, u64)>, String> {
    counts.check(served, !row.setup.is_reliable)?;
    let (sent, back) = (counts.sent_in_all(), counts.back_in_all());
    let [received, echoed, refused] = ["received", "echoed", "refused"].map(|name| count(served, name));
    let (to_server, to_client) = (sent - received, echoed - back);
    if row.load.is_relayed || !row.tested.loses_only_datagrams {
        return Ok(LOST_IN_LIBRARY.into_iter().zip([to_server, refused, to_client]).collect());
    }
    // A datagram holds several messages, so only the presence of drops is checked.
    if to_server + to_client > 0 && drops == 0 {
        let lost = to_server + to_client;
        return Err(format!("BOOKS DO NOT CLOSE: {lost} messages lost, and the kernel dropped no datagram"));
    }
    Ok(vec![(KERNEL_RECEIVE_QUEUE, to_server + to_client), (LOST_IN_LIBRARY[1], refused)])
}
