//! One round: a server and a client process on their own cores, and the relay between them in lossy loads.

use std::time::Duration;

use drumfire_benches::traffic::run_client;
use drumfire_benches::{
    Child, Cores, Counts, DropWatch, EchoCounts, Usage, Values, Window, WindowUsage, count, counts_text,
    print_counts, resident_kib,
};
use drumfire_tools::host;
use drumfire_tools::report::{Flags, KERNEL_RECEIVE_QUEUE, Report};

use crate::adapter::{Library, Setup, all, line};
use crate::loads::{Load, Rounds};
use crate::relay::{self, OPEN_FILES, RELAY};

/// The role of a server.
pub(crate) const SERVER: &str = "server";

/// The role of a client.
pub(crate) const CLIENT: &str = "client";

/// Behind the relay, a client that sends less of a schedule than this limits the round.
const SENT_LEAST_PERCENT: u64 = 99;

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
    /// The name in tables and reports.
    pub(crate) fn name(&self) -> String {
        format!("{}, {}", self.tested.name, self.delivery())
    }

    pub(crate) const fn delivery(&self) -> &'static str {
        if self.setup.is_reliable { "reliable" } else { "unreliable" }
    }

    /// The first arguments of its server and client.
    fn args(&self) -> [&str; 3] {
        [self.load.name, self.tested.name, self.delivery()]
    }
}

fn of_args(load: &str, name: &str, delivery: &str) -> Result<(Load, Library, Setup), String> {
    // Where the system allows fewer files, the socket that cannot be opened reports it.
    let _ = host::raise_open_files(OPEN_FILES);
    let load = Load::named(load)?;
    let library = all().into_iter().find(|library| library.name == name).ok_or("not a library")?;
    let is_reliable = delivery == "reliable";
    let Library { setup, .. } = library;
    let setup = Setup { is_reliable, answer_bytes: load.answer_bytes, ..setup };
    Ok((load, library, setup))
}

/// Runs a server. The arguments are load, library, and delivery.
pub(crate) fn serve(args: &[&str]) -> Result<(), String> {
    let [load, name, delivery] = args else { return Err("not the arguments of a server".to_owned()) };
    let (_, library, setup) = of_args(load, name, delivery)?;
    print_counts(&(library.serve)(&setup)?).map_err(line)
}

/// Runs a client. The arguments are those of the server, the numbers of connections and of milliseconds, and the address.
pub(crate) fn connect(args: &[&str]) -> Result<(), String> {
    let [load, name, delivery, connections, warm_up, counted, address] = args else {
        return Err("not the arguments of a client".to_owned());
    };
    let (load, library, setup) = of_args(load, name, delivery)?;
    let per_client = if load.has_trains && library.has_trains_apart { 1 } else { library.per_socket };
    let traffic = load.traffic(connections.parse().map_err(line)?, per_client, !setup.is_reliable);
    let address = address.parse().map_err(|_| format!("{address}: not an address"))?;
    let millis = |text: &str| text.parse().map(Duration::from_millis).map_err(line);
    run_client(traffic, (millis(warm_up)?, millis(counted)?), |count| {
        (library.connect)(address, count, &setup)
    })
}

/// Runs a round.
pub(crate) fn run(cores: Cores, row: &Row, rounds: &Rounds) -> Result<(Report, Values), String> {
    let dropped = DropWatch::begin();
    let server = Child::role(SERVER, Some(cores.server), &row.args())?;
    let mut address = server.address()?.to_string();
    let kib_before = resident_kib(server.id());
    let mut relay = None;
    if row.load.is_relayed {
        let process = Child::role(RELAY, Some(cores.between), &[&address])?;
        address = process.address()?.to_string();
        relay = Some(process);
    }
    let numbers =
        [row.connections.to_string(), millis_text(rounds.warm_up), millis_text(rounds.counted), address];
    let numbers = numbers.iter().map(String::as_str);
    let args: Vec<&str> = row.args().into_iter().chain(numbers).collect();
    let client = Child::role(CLIENT, Some(cores.load), &args)?;
    // A client prints its first line when it has connected, which may take as long as two lines.
    let window = client.line().or_else(|_| client.line())?;
    let window = Window::of_line(&window).ok_or("the client printed no window")?;
    let watched = WindowUsage::over(window, server.id(), client.id());
    let counts = EchoCounts::of_line(&client.line()?).ok_or("the counts of the client cannot be read")?;
    let drops = dropped.count();
    drop(client);
    let served = server.finish_counts()?;
    let relayed = relay.map(Child::finish_counts).transpose()?;
    relayed.as_ref().map_or(Ok(()), relay::check)?;
    let lost = losses(row, &counts, &served, drops)?;

    let cpu = watched.server.map(|used| used.cpu_over(window.length()));
    let rate = row.load.shape.rate(row.connections);
    let mut report = counts.report(window, rate, flags(row), cpu, &lost);
    // Threads of one process wait for each other on one core, as client and relay do. This is no disturbance.
    let delay_of = |used: Option<Usage>| used?.run_delay_share();
    let judged = [
        delay_of(watched.server).filter(|_| row.tested.has_one_thread),
        delay_of(watched.client).filter(|_| relayed.is_none() && row.tested.client_has_one_thread),
    ];
    report.run_delay_share = judged.into_iter().flatten().reduce(f64::max);
    report.steal_share = watched.steal_share;
    let core_share = cpu.map_or(0.0, |cpu| cpu.total_s() / window.length().as_secs_f64());
    // Behind the relay the path limits a closed loop. A client that shares its core sends late, and still sends the whole schedule.
    let is_client_limit = match (&relayed, report.offered) {
        (None, _) => counts.is_client_limit(row.load.shape, core_share),
        (Some(_), Some(offered)) => (counts.sent + counts.refused) * 100 < offered * SENT_LEAST_PERCENT,
        (Some(_), None) => false,
    };
    report.limited_by = is_client_limit.then(|| "client".to_owned());
    let kib = watched.rss_kib.saturating_sub(kib_before) as f64 / row.connections as f64;
    let client_percent = watched.client.map_or(0.0, |used| used.core_share() * 100.0);
    report.notes.extend(counts.delay_note());
    report.notes.push(format!("{} messages found no room at the client", counts.refused));
    report.notes.push(format!("the server from its first message to its last: {}", counts_text(&served)));
    report.notes.extend(relayed.map(|counts| format!("the relay: {}", counts_text(&counts))));
    report.notes.push(format!("datagrams that the kernel dropped in front of all sockets: {drops}"));
    let values = [("client %", client_percent), ("KiB", kib), ("lost", counts.lost as f64)];
    Ok((report, Values::from(values)))
}

fn millis_text(time: Duration) -> String {
    time.as_millis().to_string()
}

/// Returns the place of each lost message, or fails when one has none.
fn losses(
    row: &Row,
    counts: &EchoCounts,
    served: &Counts,
    drops: u64,
) -> Result<Vec<(&'static str, u64)>, String> {
    let (sent, back) = (counts.sent_in_all(), counts.back_in_all());
    let [received, echoed, refused] = ["received", "echoed", "refused"].map(|name| count(served, name));
    for (count, fault) in [
        (counts.strangers, "messages came back that were not outstanding"),
        (count(served, "unexplained"), "datagrams are in no counter of the server"),
        (if row.setup.is_reliable { counts.lost } else { 0 }, "reliable messages never came back"),
        (sent.abs_diff(back + counts.lost), "messages have no place at the client"),
        (received.abs_diff(echoed + refused), "messages have no place at the server"),
        (received.saturating_sub(sent), "messages reached the server that were never sent"),
        (back.saturating_sub(echoed), "answers came back that were never sent"),
    ] {
        if count > 0 {
            return Err(format!("BOOKS DO NOT CLOSE: {count} {fault}"));
        }
    }
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

fn flags(row: &Row) -> Flags {
    let Row { load, tested: library, setup, connections } = row;
    let relay = load.is_relayed.then_some([relay::LOST_PER_MILLE, relay::DELAY_MS, relay::SEED]);
    let of_relay = |index: usize| relay.map(|numbers| numbers[index].into());
    let flags = [
        ("peer", Some(library.name.into())),
        ("version", Some(library.version.clone().into())),
        ("encrypted", Some(library.encrypted.into())),
        ("wait", Some(library.wait.clone().into())),
        ("reliable", Some(setup.is_reliable.into())),
        ("load", Some(load.name.into())),
        ("connections", Some((*connections).into())),
        ("size", Some(load.bytes.into())),
        ("gro", library.gro.map(Into::into)),
        ("keep_alive", library.has_connections.then(|| library.keep_alive.into())),
        ("answer", (load.answer_bytes > 0).then(|| load.answer_bytes.into())),
        ("relay_lost_per_mille", of_relay(0)),
        ("relay_held_ms", of_relay(1)),
        ("relay_seed", of_relay(2)),
    ];
    flags.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}
