//! One round: a server and a client, each in a process of its own on a core of its own, counted over one window; in a lossy load
//! with the relay between them, on a third core where there is one and else on the client's.

use drumfire_benches::{
    Child, Cores, Counts, DropWatch, EchoCounts, OUTSTANDING, Usage, Window, WindowUsage, count, counts_text,
    resident_kib,
};
use drumfire_tools::host;
use drumfire_tools::report::{Books, Counted, Flags, KERNEL_RECEIVE_QUEUE, Report, ThreadCount};

use crate::face::Setup;
use crate::load::Load;
use crate::process::{self, Asked};
use crate::relay;
use crate::rivals::Rival;

/// Of a schedule behind the relay: who sends less of it was the limit.
const SENT_LEAST_PERCENT: u64 = 99;

/// Sent, and not given out by the server's side of the rival.
const TO_SERVER: &str = "rival_to_server";

/// Given out at the server, which had no room for the answer.
const AT_SERVER: &str = "server_refused";

/// Answered, and not given out by the client's side of the rival.
const TO_CLIENT: &str = "rival_to_client";

/// Messages of a schedule that the client's side of the rival had no room for.
const AT_CLIENT: &str = "client_refused";

/// What stands beside a round's report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    pub(crate) core_share: f64,
    pub(crate) client_core_share: f64,
    pub(crate) kib_per_connection: f64,
    pub(crate) lost: u64,
}

/// Runs a round.
///
/// # Errors
///
/// What failed, or which messages are nowhere.
pub(crate) fn run(
    cores: Cores,
    rival: &Rival,
    setup: &Setup,
    asked: &Asked,
) -> Result<(Report, Beside), String> {
    let dropped = DropWatch::begin();
    let server = process::start_server(rival, setup, cores.server)?;
    let mut address = server.line()?;
    let kib_before = resident_kib(server.id());
    let relay = if asked.load.is_relayed {
        let relay = process::start_relay(&address, cores.between)?;
        address = relay.line()?;
        Some(relay)
    } else {
        None
    };
    let client = process::start_client(rival, setup, asked, &address, cores.load)?;
    let window = Window::of_line(&patient(&client)?).ok_or("the client named no window")?;
    let watched = WindowUsage::over(window, server.id(), client.id());
    let told = EchoCounts::of_line(&client.line()?).ok_or("the client's books cannot be read")?;
    let drops = dropped.count();
    drop(client);
    let served = server.finish_counts()?;
    let relayed = relay.map(Child::finish_counts).transpose()?;
    if let Some(counts) = &relayed {
        relay::check(counts)?;
    }
    let round = Round { rival, setup, asked, window, watched, told, served, relayed, drops };
    let books = round.books()?;
    Ok(round.report(books, kib_before))
}

/// The first line of a client, which connects before it speaks.
fn patient(client: &Child) -> Result<String, String> {
    client.line().or_else(|_| client.line())
}

/// All that a round brought.
struct Round<'a> {
    rival: &'a Rival,
    setup: &'a Setup,
    asked: &'a Asked,
    window: Window,
    watched: WindowUsage,
    told: EchoCounts,
    served: Counts,
    relayed: Option<Counts>,
    drops: u64,
}

impl Round<'_> {
    /// Names a place for every message that did not come back.
    fn books(&self) -> Result<Books, String> {
        let told = &self.told;
        let lost = self.check()?;
        let mut books = Books::new(told.out_at_start + told.sent + told.refused, told.echoed)
            .dropped(OUTSTANDING, told.late)
            .dropped(AT_CLIENT, told.refused);
        for (name, count) in lost {
            books = books.dropped(name, count);
        }
        Ok(books)
    }

    /// Where the messages are that were lost; or what no books can make good.
    fn check(&self) -> Result<Vec<(&'static str, u64)>, String> {
        let told = &self.told;
        let (sent, back) = (told.sent_in_all(), told.back_in_all());
        let [received, echoed, refused] = ["received", "echoed", "refused"].map(|n| count(&self.served, n));
        for (count, what) in [
            (told.strangers, "messages came back that were not on their way"),
            (count(&self.served, "unexplained"), "datagrams are in no counter of the server"),
            (if self.setup.is_reliable { told.lost } else { 0 }, "reliable messages never came back"),
            (sent.abs_diff(back + told.lost), "messages are nowhere at the client"),
            (received.abs_diff(echoed + refused), "messages are nowhere at the server"),
            (received.saturating_sub(sent), "messages reached the server that were never sent"),
            (back.saturating_sub(echoed), "answers came that were never given"),
        ] {
            if count > 0 {
                return Err(format!("BOOKS DO NOT CLOSE: {count} {what}"));
            }
        }
        let silent = sent - received + (echoed - back);
        if self.relayed.is_none() && self.rival.loses_only_datagrams {
            // One datagram may hold several messages: what matters is whether the kernel dropped any.
            if silent > 0 && self.drops == 0 {
                return Err(format!(
                    "BOOKS DO NOT CLOSE: {silent} messages lost, and the kernel dropped nothing"
                ));
            }
            return Ok(vec![(KERNEL_RECEIVE_QUEUE, silent), (AT_SERVER, refused)]);
        }
        Ok(vec![(TO_SERVER, sent - received), (AT_SERVER, refused), (TO_CLIENT, echoed - back)])
    }

    fn report(&self, books: Books, kib_before: u64) -> (Report, Beside) {
        let Self { asked, watched, told, .. } = self;
        let length = self.window.length();
        let cpu = watched.server.map(|used| used.cpu_over(length));
        let threads = vec![ThreadCount { received: books.received, cpu, ..ThreadCount::default() }];
        let mut report = Report::of(Counted {
            flags: self.flags(),
            machine: host::machine(),
            window: length,
            books,
            threads,
            ..Counted::default()
        });
        report.latency_ns = told.latency;
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        report.offered = asked.load.shape.rate(asked.connections).map(|rate| rate * millis / 1_000);
        let delay_of = |used: Option<Usage>| used?.run_delay_share();
        // Threads of one process on one core wait for each other, and so do client and relay; only what others take is a
        // disturbance.
        let judged = [
            delay_of(watched.server).filter(|_| self.rival.has_one_thread),
            delay_of(watched.client).filter(|_| self.relayed.is_none() && self.rival.client_has_one_thread),
        ];
        report.run_delay_share = judged.into_iter().flatten().reduce(f64::max);
        report.steal_share = watched.steal_share;
        let beside = Beside {
            core_share: cpu.map_or(0.0, |cpu| cpu.total_s() / length.as_secs_f64()),
            client_core_share: watched.client.map_or(0.0, |used| used.core_share()),
            kib_per_connection: watched.rss_kib.saturating_sub(kib_before) as f64 / asked.connections as f64,
            lost: told.lost,
        };
        let is_client_limit = self.is_client_limit(beside.core_share, report.offered);
        report.limited_by = is_client_limit.then(|| "client".to_owned());
        report.notes = self.notes(&beside);
        (report, beside)
    }

    fn is_client_limit(&self, core_share: f64, offered: Option<u64>) -> bool {
        if self.relayed.is_none() {
            return self.told.is_client_limit(self.asked.load.shape, core_share);
        }
        // Behind the relay the way is the limit of a closed loop, and nobody's processor. A client that rests sends late, and all the
        // same all that a schedule asks for.
        let sent = self.told.sent + self.told.refused;
        offered.is_some_and(|offered| sent * 100 < offered * SENT_LEAST_PERCENT)
    }

    fn notes(&self, beside: &Beside) -> Vec<String> {
        let mut notes = vec![format!(
            "the server took {:.1} % of its core and {:.1} KiB for each connection, the client {:.1} % of the other core",
            beside.core_share * 100.0,
            beside.kib_per_connection,
            beside.client_core_share * 100.0
        )];
        notes.extend(self.told.delay_note());
        notes.push(format!("the server from its first message to its last: {}", counts_text(&self.served)));
        notes.extend(self.relayed.as_ref().map(|counts| format!("the relay: {}", counts_text(counts))));
        notes.push(format!("datagrams that the kernel dropped meanwhile, of all sockets: {}", self.drops));
        notes
    }

    fn flags(&self) -> Flags {
        let Load { name, bytes, answer_bytes, is_relayed, .. } = self.asked.load;
        let mut flags = Flags::from([
            ("peer".to_owned(), self.rival.name.into()),
            ("version".to_owned(), self.rival.version.clone().into()),
            ("encrypted".to_owned(), self.rival.encrypted.into()),
            ("wait".to_owned(), self.rival.wait.clone().into()),
            ("reliable".to_owned(), self.setup.is_reliable.into()),
            ("load".to_owned(), name.into()),
            ("connections".to_owned(), self.asked.connections.into()),
            ("size".to_owned(), bytes.into()),
        ]);
        if let Some(gro) = self.rival.gro {
            flags.insert("gro".to_owned(), gro.into());
        }
        if self.rival.has_connections {
            flags.insert("keep_alive".to_owned(), self.rival.keep_alive.into());
        }
        if self.rival.has_one_thread {
            flags.insert("threads".to_owned(), 1_u32.into());
        }
        if answer_bytes > 0 {
            flags.insert("answer".to_owned(), answer_bytes.into());
        }
        if is_relayed {
            flags.insert("relay_lost_per_mille".to_owned(), relay::LOST_PER_MILLE.into());
            flags.insert("relay_held_ms".to_owned(), relay::HELD_MS.into());
            flags.insert("relay_seed".to_owned(), relay::SEED.into());
        }
        flags
    }
}
