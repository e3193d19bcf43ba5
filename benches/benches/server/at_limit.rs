//! A server at its limit of connections: echoes with one more client, and announcements of all newcomers.

use std::time::Duration;

use drumfire::{ClientsEvent, ConnectError, RefuseReason};
use drumfire_benches::roles::{ANNOUNCE, Announcements, key};
use drumfire_benches::traffic::{Generator, Shape, Traffic};
use drumfire_benches::{
    Bench, Child, Crowd, DropWatch, Goal, Spread, Usage, UsageWatch, Window, close_server, count, usage_of,
};
use drumfire_tools::clock;

use crate::{Target, show_own_usage, show_ramp, start_and_connect, workers_and_core};

/// Connections per socket. The receive buffer of a socket holds what comes for them while this process has no core.
const PER_SOCKET: u32 = 128;

/// Messages per client and second.
const MESSAGES_PER_SECOND: u64 = 10;

const MESSAGE_BYTES: usize = 64;

/// The load runs this long before it is counted.
const WARM_UP: Duration = Duration::from_millis(500);

/// The time within which the one more client is refused.
const REFUSED_WITHIN: Duration = Duration::from_secs(10);

/// Newcomers per second of `join`. Each costs an announcement to all clients.
const ANNOUNCED_PER_SECOND: u64 = 100;

/// The last announcement has come when none came for this long.
const SILENCE: Duration = Duration::from_secs(5);

/// Returns the number of clients, and sockets for them and for one more.
fn crowd(bench: &Bench) -> Result<(u32, Crowd), String> {
    let clients = bench.number("--clients").unwrap_or(bench.extent().pick(256, 8_192, 8_192));
    let sockets = clients.div_ceil(PER_SOCKET);
    Ok((clients, Crowd::bind(sockets, clients + sockets)?))
}

/// Unreliable messages at a fixed rate over all connections of a crowd.
pub(crate) fn traffic(connections: usize, rate: u64) -> Traffic {
    Traffic::echo(Shape::Open { rate }, connections, MESSAGE_BYTES)
}

/// One window of an echo.
pub(crate) struct EchoWindow {
    pub(crate) server: Usage,
    pub(crate) load: Usage,
    sent: u64,
}

impl EchoWindow {
    /// Runs the traffic for a window and samples both processes at its ends.
    pub(crate) fn over(
        generator: &mut Generator<Crowd>,
        server: &Child,
        window: Duration,
        poll: impl FnMut(u64) -> Result<(), String>,
    ) -> Result<Self, String> {
        let watches = [server.id(), std::process::id()].map(UsageWatch::begin);
        generator.run(Window::beginning_at(clock::host_ns(), window), poll)?;
        let [server, load] = usage_of(watches)?;
        Ok(Self { server, load, sent: generator.tally().counts.sent })
    }

    /// CPU of the server per message, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> f64 {
        self.server.cpu_s() * 1e9 / self.sent.max(1) as f64
    }

    fn per_second(&self) -> f64 {
        self.sent as f64 / self.server.window.as_secs_f64()
    }
}

/// Prints what became of the messages and adds the share of lost ones.
pub(crate) fn show_messages(
    generator: &Generator<Crowd>,
    served: &drumfire_benches::Counts,
    bench: &mut Bench,
    part: &str,
) -> Result<(), String> {
    let totals = generator.totals();
    let received = count(served, "received");
    let no_room = count(served, "refused") + count(served, "undelivered");
    println!(
        "messages  sent {}, received {received}, back {}; no room at a client {}, no room at the server {no_room}, lost on the way \
         there {}, on the way back {}",
        totals.sent,
        totals.back,
        totals.refused,
        totals.sent.saturating_sub(received),
        received.saturating_sub(no_room).saturating_sub(totals.back),
    );
    let left = count(served, "left");
    if totals.strangers > 0 || left > 0 {
        return Err(format!("{} messages that were not outstanding, {left} clients left", totals.strangers));
    }
    let share = totals.sent.saturating_sub(totals.back) as f64 / totals.sent.max(1) as f64 * 100.0;
    bench.results.figure(format!("{part}: unreliable messages lost"), Some(share), "%", Goal::Shown, "");
    Ok(())
}

pub(crate) fn echo(bench: &mut Bench) -> Result<(), String> {
    let seconds = Duration::from_secs;
    let (windows, window) = bench.extent().pick((1, seconds(2)), (5, seconds(3)), (5, seconds(10)));
    let (workers, core) = workers_and_core(bench)?;
    let (clients, mut crowd) = crowd(bench)?;
    println!("  {clients} clients, {workers} worker(s), {windows} windows of {window:?}");
    let dropped = DropWatch::begin();
    let (server, to, ramped) = start_and_connect((workers, core), clients, &mut crowd)?;
    show_ramp(&ramped, &mut bench.results, "echo");
    ramped.check()?;

    let traffic = traffic(crowd.peers().len(), MESSAGES_PER_SECOND);
    let mut generator = Generator::over(traffic, vec![crowd]);
    let warm_up = Window::beginning_at(clock::host_ns(), WARM_UP);
    generator.run(warm_up, |_| Ok(()))?;
    let mut measured = Vec::new();
    for _ in 0..windows {
        measured.push(EchoWindow::over(&mut generator, &server, window, |_| Ok(()))?);
    }
    let (mut another, took) = refuse_one_more(&mut generator, to)?;
    generator.settle()?;

    let [crowd] = generator.clients() else { return Err("no crowd".to_owned()) };
    let sent = crowd.carried().sent + another.carried().sent;
    let served = close_server(server, &mut [crowd, &mut another], sent, dropped.count())?;
    show_messages(&generator, &served, bench, "echo")?;
    let results = &mut bench.results;
    let note = "as the clients saw it";
    results.figure("echo: clients that were dropped", Some(0.0), "", Goal::AtMost(0.0), note);
    let name = "echo: until one more was told that the server is full";
    results.figure(name, Some(took), "ms", Goal::Shown, "");
    let offered =
        format!("echo: messages there and back, of {} offered", u64::from(clients) * MESSAGES_PER_SECOND);
    let spread = |of: fn(&EchoWindow) -> f64| Spread::of(measured.iter().map(of));
    results.spread(offered, spread(EchoWindow::per_second), "/s", Goal::Shown, "");
    let share = spread(|window| window.server.core_share() * 100.0);
    results.spread("echo: server", share, "% of a core", Goal::Shown, "");
    results.spread("echo: CPU per message", spread(EchoWindow::cpu_ns), "ns", Goal::Shown, "");
    show_own_usage(measured.iter().map(|window| window.load), results, "echo", "all of them, in one process");
    Ok(())
}

/// Connects one more client, which must be refused because the server is full. Returns its socket and the milliseconds it took.
fn refuse_one_more(generator: &mut Generator<Crowd>, to: Target) -> Result<(Crowd, f64), String> {
    let mut another = Crowd::bind(1, 1)?;
    let clients = another.socket(0).ok_or("no such socket")?;
    let (start, deadline) = (clock::now(), clock::now() + REFUSED_WITHIN);
    clients.connect(to.0, to.1).map_err(|error| error.to_string())?;
    let mut outcome = None;
    while outcome.is_none() && clock::now() < deadline {
        // The connected clients go on.
        generator.run(Window::beginning_at(clock::host_ns(), Duration::from_millis(5)), |_| {
            another.look(|_, event| outcome = Some(event.clone()));
            Ok(())
        })?;
    }
    let took = clock::now().duration_since(start).as_secs_f64() * 1e3;
    match outcome {
        Some(ClientsEvent::ConnectFailed { error: ConnectError::Refused(refusal), .. })
            if refusal.reason == RefuseReason::Full =>
        {
            println!("one more  refused after {took:.0} ms, to come back after {:?}", refusal.retry_after);
            Ok((another, took))
        }
        other => Err(format!("one more client was not told that the server is full: {other:?}")),
    }
}

/// Announces each newcomer to all clients. The busiest moment of a game that does so is when all clients connect together.
pub(crate) fn join(bench: &mut Bench) -> Result<(), String> {
    let per_second = bench.extent().pick(2, 1, 1) * ANNOUNCED_PER_SECOND;
    let (workers, core) = workers_and_core(bench)?;
    let (clients, mut crowd) = crowd(bench)?;
    println!("  {clients} clients, {workers} worker(s)");
    let dropped = DropWatch::begin();
    let server = Child::role(ANNOUNCE, core, &[&workers.to_string(), &clients.to_string()])?;
    let to = (server.address()?, key().public());
    let mut announcements = Announcements::default();
    let watches = [server.id(), std::process::id()].map(UsageWatch::begin);
    let heard = |socket: usize, event: &ClientsEvent| announcements.on_event(socket, event);
    let ramped = crowd.connect(to, clients.into(), per_second, heard)?;
    show_ramp(&ramped, &mut bench.results, "join");
    let expected = Announcements::expected(ramped.connected);
    let (mut last, mut since) = (announcements.heard, clock::now());
    while announcements.heard < expected && clock::now().duration_since(since) < SILENCE {
        crowd.look(|socket, event| announcements.on_event(socket, event));
        if announcements.heard > last {
            (last, since) = (announcements.heard, clock::now());
        }
    }
    let [used, load] = usage_of(watches)?;
    // The clients go on, because the server repeats unacknowledged announcements.
    let until = clock::now() + Duration::from_millis(300);
    while clock::now() < until {
        crowd.look(|socket, event| announcements.on_event(socket, event));
    }
    let (sent, ended) = (crowd.carried().sent, crowd.ended());
    let served = close_server(server, &mut [&mut crowd], sent, dropped.count())?;

    let [owed, missed, not_announced] = ["owed", "missed", "not announced"].map(|name| count(&served, name));
    let Announcements { heard, gaps, strangers, .. } = announcements;
    let lost = owed.saturating_sub(missed).saturating_sub(heard);
    println!(
        "announced {} times, {owed} copies: received {heard}, missed for want of room {missed}, not announced {not_announced}, \
         lost {lost}",
        count(&served, "announced"),
    );
    let left = ended + count(&served, "left");
    if (left, lost, strangers) != (0, 0, 0) || gaps > missed {
        return Err(format!(
            "{left} clients left, {lost} announcements lost, {strangers} came out of order, {gaps} did not follow the one before"
        ));
    }
    let results = &mut bench.results;
    let mut at_most_0 = |name: &str, value: u64, note: &str| {
        results.figure(name, Some(value as f64), "", Goal::AtMost(0.0), note);
    };
    at_most_0("join: clients that were dropped", left, "");
    at_most_0("join: announcements lost", lost, "");
    at_most_0("join: announcements missed", missed, "for want of room");
    results.figure("join: announcements heard", Some(heard as f64), "", Goal::Shown, "");
    let share = Some(used.core_share() * 100.0);
    results.figure("join: server", share, "% of a core", Goal::Shown, "while all came");
    show_own_usage([load], results, "join", "all of them, in one process");
    let each = used.cpu_s() * 1e9 / heard.max(1) as f64;
    results.figure("join: CPU per announcement heard", Some(each), "ns", Goal::Shown, "");
    ramped.check()
}
