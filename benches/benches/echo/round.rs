//! One round: a server and a client, each in a process of its own on a core of its own, counted over one window.

use std::cell::RefCell;
use std::time::Duration;

use drumfire_benches::{Cores, DropWatch, EchoCounts, Usage, Window, WindowUsage};
use drumfire_tools::report::{Flags, KERNEL_RECEIVE_QUEUE, Report};

use crate::load::{Load, MESSAGE_BYTES};
use crate::peer::Peer;
use crate::process;
use crate::server::Served;

/// What stands beside a round's report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    pub(crate) peer: Peer,
    pub(crate) server_core_share: f64,
    pub(crate) client_core_share: f64,
    pub(crate) rss_mib: f64,
    pub(crate) lost: u64,
}

/// Runs a round.
///
/// # Errors
///
/// What failed, or which message is nowhere.
pub(crate) fn run(
    (cores, counted): (Cores, Duration),
    peer: Peer,
    load: Load,
    beside: &RefCell<Vec<Beside>>,
) -> Result<Report, String> {
    let dropped = DropWatch::begin();
    let server = process::start_server(peer, cores.server)?;
    let address = server.line()?;
    let client = process::start_client(peer, load, counted, &address, cores.load)?;
    let window = Window::of_line(&client.line()?).ok_or("the client named no window")?;
    let watched = WindowUsage::over(window, server.id(), client.id());
    let told = EchoCounts::of_line(&client.line()?).ok_or("the client's books cannot be read")?;
    let drops = dropped.count();
    drop(client);
    let served = Served::of_line(&server.finish()?).ok_or("the server's books cannot be read")?;
    check(peer, &told, &served)?;
    let (report, note) = report_of(peer, load, window, &watched, &told, &served, drops);
    beside.borrow_mut().push(note);
    Ok(report)
}

/// What no books can make good.
fn check(peer: Peer, told: &EchoCounts, served: &Served) -> Result<(), String> {
    let (sent, back) = (told.sent_in_all(), told.back_in_all());
    let Served { received, echoed, refused, .. } = *served;
    for (count, what) in [
        (told.strangers, "messages came back that were not on their way"),
        (told.refused, "messages found no room at the client"),
        (refused, "messages found no room at the server"),
        (served.unexplained, "datagrams are in no counter of the server"),
        (if peer.may_lose() { 0 } else { told.lost }, "reliable messages never came back"),
        (sent.abs_diff(back + told.lost), "messages are nowhere at the client"),
        (received.abs_diff(echoed + refused), "messages are nowhere at the server"),
        (received.saturating_sub(sent), "messages reached the server that were never sent"),
        (back.saturating_sub(echoed), "answers came that were never given"),
    ] {
        if count > 0 {
            return Err(format!("BOOKS DO NOT CLOSE: {count} {what}"));
        }
    }
    Ok(())
}

fn report_of(
    peer: Peer,
    load: Load,
    window: Window,
    watched: &WindowUsage,
    told: &EchoCounts,
    served: &Served,
    drops: u64,
) -> (Report, Beside) {
    let length = window.length();
    let cpu = watched.server.map(|used| used.cpu_over(length));
    let explained = told.lost.min(drops);
    let lost = [(KERNEL_RECEIVE_QUEUE, explained)];
    let mut report = told.report(window, load.rate(), flags(peer, load), cpu, &lost);
    let delay_of = |used: Option<Usage>| used?.run_delay_share();
    // Threads of one server on one core wait for each other; only what others take is a disturbance.
    let judged = [delay_of(watched.server).filter(|_| peer.has_one_thread()), delay_of(watched.client)];
    report.run_delay_share = judged.into_iter().flatten().reduce(f64::max);
    report.steal_share = watched.steal_share;
    let server_core_share = cpu.map_or(0.0, |cpu| cpu.total_s() / length.as_secs_f64());
    let is_client_limit = told.is_client_limit(load.shape, server_core_share);
    report.limited_by = is_client_limit.then(|| "client".to_owned());
    let client_core_share = watched.client.map_or(0.0, |used| used.core_share());
    report.notes.push(format!(
        "the server took {:.0} % of its core and {} KiB of memory, the client {:.0} % of the other core",
        server_core_share * 100.0,
        watched.rss_kib,
        client_core_share * 100.0
    ));
    report.notes.push(format!("{:.0} % of the client's looks found nothing", told.idle_share() * 100.0));
    report.notes.extend(told.delay_note());
    let counts: Vec<String> = served.counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if !counts.is_empty() {
        report.notes.push(format!("the server from its first datagram to its last: {}", counts.join(", ")));
    }
    let rss_mib = watched.rss_kib as f64 / 1_024.0;
    (report, Beside { peer, server_core_share, client_core_share, rss_mib, lost: told.lost })
}

fn flags(peer: Peer, load: Load) -> Flags {
    let mut flags = Flags::from([
        ("peer".to_owned(), peer.name().into()),
        ("load".to_owned(), load.name().into()),
        ("connections".to_owned(), load.connections.into()),
        ("size".to_owned(), MESSAGE_BYTES.into()),
    ]);
    if let Some(rate) = load.rate() {
        flags.insert("rate".to_owned(), rate.into());
    }
    flags
}
