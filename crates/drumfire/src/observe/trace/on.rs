//! The log of one worker, with a rate limit for each cause.
//!
//! Events of connections are logged when they happen. Everything else is read from the counters when they are published.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{CloseCode, CloseReason, DropReason, Moment};
use tracing::{Level, debug, enabled, error, info, warn};

use crate::message::event::Event;
use crate::observe::stats::WorkerStats;

/// The shortest time between two lines of one cause.
const INTERVAL: Duration = Duration::from_secs(10);

/// Drop reasons that honest clients run into. Each has its own line; all other drop reasons share one.
const REFUSALS: [DropReason; 10] = [
    DropReason::WrongProtocol,
    DropReason::WrongVersion,
    DropReason::UnknownServerKey,
    DropReason::UnexpectedToken,
    DropReason::TokenMissing,
    DropReason::TokenForeign,
    DropReason::TokenExpired,
    DropReason::TokenUsed,
    DropReason::SourceLimit,
    DropReason::ServerFull,
];

/// The rate limit of one cause.
#[derive(Debug, Clone, Copy, Default)]
struct Limit {
    /// The time of the last line. `None` before the first line.
    logged_at: Option<Moment>,
    /// For an event: the number of events since the last line. For a counter: its value at the last line.
    count: u64,
}

impl Limit {
    /// Returns whether a line is allowed now. If so, the next interval starts now.
    fn may_log(&mut self, now: Moment) -> bool {
        let is_allowed = self.logged_at.is_none_or(|at| now.since(at) >= INTERVAL);
        if is_allowed {
            self.logged_at = Some(now);
        }
        is_allowed
    }

    /// Counts one event. Returns the number of events left out since the last line, or `None` if no line is allowed now.
    fn add_event(&mut self, now: Moment) -> Option<u64> {
        let is_allowed = self.may_log(now);
        let left_out = self.count;
        self.count = if is_allowed { 0 } else { left_out + 1 };
        is_allowed.then_some(left_out)
    }

    /// Returns the growth of a counter since the last line. `None` if it did not grow or no line is allowed now.
    fn growth(&mut self, now: Moment, total: u64) -> Option<u64> {
        // A restarted worker counts from 0 again.
        self.count = self.count.min(total);
        if total == self.count || !self.may_log(now) {
            return None;
        }
        Some(total - std::mem::replace(&mut self.count, total))
    }
}

/// One worker's log. It has at most 25 lines per interval: only a client has `connect_failed`, and a client refuses no connection.
#[derive(Debug)]
pub(crate) struct Trace {
    /// The index of a server's worker, or -1 for a client. Not an `Option`, because subscribers record integers.
    worker: i32,
    /// The limits of events, by the name of the event, or of the reason why a connection ended.
    events: BTreeMap<&'static str, Limit>,
    /// The limits of counters, by the name of the counter, or of the reason of a refusal.
    counters: BTreeMap<&'static str, Limit>,
}

impl Trace {
    /// Returns the log of a server's worker with this index, or of a client for `None`.
    pub(crate) fn new(worker: Option<u16>) -> Self {
        let worker = worker.map_or(-1, i32::from);
        Self { worker, events: BTreeMap::new(), counters: BTreeMap::new() }
    }

    /// Logs an event of a connection before the application receives it.
    pub(crate) fn on_connection_event(&mut self, now: Moment, event: &Event) {
        let worker = self.worker;
        match event {
            Event::Connected { peer, info } => {
                if let Some(left_out) = self.add_event(now, "connected") {
                    debug!(target: "drumfire", worker, ?peer, address = %info.address, left_out, "connected");
                }
            }
            Event::ConnectFailed { peer, error } => {
                if let Some(left_out) = self.add_event(now, "connect_failed") {
                    info!(target: "drumfire", worker, ?peer, %error, left_out, "connect failed");
                }
            }
            Event::Disconnected { peer, closed } => {
                let (name, detail) = (closed.reason.name(), detail(&closed.reason));
                let Some(left_out) = self.add_event(now, name) else { return };
                if is_wanted(&closed.reason) {
                    debug!(target: "drumfire", worker, ?peer, reason = name, detail, left_out, "disconnected");
                } else {
                    info!(target: "drumfire", worker, ?peer, reason = name, detail, left_out, "disconnected");
                }
            }
            _ => {}
        }
    }

    /// Warns of an application that never polls.
    pub(crate) fn warn_never_polled(&mut self) {
        warn!(
            target: "drumfire",
            worker = self.worker,
            "the application has not called poll for 1 s: \
             no event is delivered without it, and without threads no datagram is received"
        );
    }

    /// Logs the changes of the counters.
    pub(crate) fn counters(&mut self, now: Moment, stats: &WorkerStats) {
        let worker = self.worker;
        if let Some(count) = self.growth(now, "panics", stats.panics) {
            error!(target: "drumfire", worker, count, "a panic was caught; the rest of its batch may be lost");
        }
        if let Some(count) = self.growth(now, "restarts", stats.restarts) {
            warn!(target: "drumfire", worker, count, "restarted after panics; all peers of this worker are disconnected");
        }
        if let Some(count) = self.growth(now, "sockets_reopened", stats.sockets_reopened) {
            warn!(target: "drumfire", worker, count, "other code in this process closed the socket of the worker; it continues with another descriptor of the socket");
        }
        self.drops(now, stats);
    }

    /// Logs the end of the worker: the number of connection events left out since their last lines, and all dropped datagrams.
    pub(crate) fn finish(&mut self, stats: &WorkerStats) {
        let left_out: u64 = self.events.values().map(|limit| limit.count).sum();
        let (worker, dropped) = (self.worker, stats.protocol.dropped_count());
        debug!(target: "drumfire", worker, left_out, dropped, "ended");
    }

    fn drops(&mut self, now: Moment, stats: &WorkerStats) {
        let worker = self.worker;
        if let Some(count) = self.growth(now, "kernel_dropped", stats.kernel_dropped) {
            warn!(
                target: "drumfire",
                worker,
                count,
                "the kernel dropped datagrams, because the receive buffer was full: \
                 poll more often, or raise receive_buffer_bytes and net.core.rmem_max"
            );
        }
        let mut refused = 0;
        for reason in REFUSALS {
            let count = stats.protocol.dropped(reason);
            refused += count;
            if let Some(count) = self.growth(now, reason.name(), count) {
                info!(target: "drumfire", worker, reason = reason.name(), count, "refused");
            }
        }
        let dropped = stats.protocol.dropped_count() - refused;
        if let Some(count) = self.growth(now, "dropped", dropped) {
            let others = DropReason::ALL.into_iter().filter(|reason| !REFUSALS.contains(reason));
            let most = others.max_by_key(|reason| stats.protocol.dropped(*reason));
            let most = most.map_or("", DropReason::name);
            debug!(target: "drumfire", worker, count, most, "datagrams dropped");
        }
    }

    fn add_event(&mut self, now: Moment, cause: &'static str) -> Option<u64> {
        self.events.entry(cause).or_default().add_event(now)
    }

    fn growth(&mut self, now: Moment, cause: &'static str, count: u64) -> Option<u64> {
        self.counters.entry(cause).or_default().growth(now, count)
    }
}

/// Returns whether an application or the shutdown of a server closed the connection.
const fn is_wanted(reason: &CloseReason) -> bool {
    matches!(
        reason,
        CloseReason::Local { code: CloseCode::Application | CloseCode::Shutdown, .. }
            | CloseReason::Remote { code: CloseCode::Application | CloseCode::Shutdown, .. }
    )
}

/// Returns the name of the close code or of the protocol error. Empty for other reasons.
fn detail(reason: &CloseReason) -> &'static str {
    match reason {
        CloseReason::Local { code, .. } | CloseReason::Remote { code, .. } => code.name(),
        CloseReason::Protocol(error) => error.name(),
        _ => "",
    }
}

/// Warns about a server with an empty `server_id`, for which the bound address is used.
pub(crate) fn warn_of_empty_server_id(address: SocketAddr) {
    warn!(
        target: "drumfire",
        %address,
        "server_id is empty, so the bound address is used as the id. \
         If several servers have the same key, set a server_id for each"
    );
}

/// Warns about a server with the development key. Returns whether a subscriber takes warnings.
pub(crate) fn has_warned_of_dev_key() -> bool {
    let is_read = enabled!(target: "drumfire", Level::WARN);
    warn!(
        target: "drumfire",
        "this server has the development key, which is public: any process can impersonate it. \
         Use a key from ServerKey::generate()"
    );
    is_read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::event::Closed;
    use bytes::Bytes;
    use drumfire_proto::{AckError, ProtocolError};
    use std::collections::HashSet;
    use std::sync::{Arc, Mutex, PoisonError};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::with_default;
    use tracing::{Metadata, Subscriber};

    /// Records the lines of one test.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            self.0.push_str(&format!("{}={value:?} ", field.name()));
        }
    }

    struct Line(String);

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().unwrap().push((*event.metadata().level(), line.0));
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    fn at(milliseconds: u64) -> Moment {
        Moment::from_nanos(milliseconds * 1_000_000)
    }

    /// Allows one subscriber at a time, because `tracing` caches the interest in each callsite for the whole process.
    static SUBSCRIBER_LOCK: Mutex<()> = Mutex::new(());

    /// Returns the level and the fields of each line that `act` logs.
    fn logged_lines(act: impl FnOnce(&mut Trace)) -> Vec<(Level, String)> {
        let _lock = SUBSCRIBER_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = Lines::default();
        // With a single dispatcher, `tracing` asks the default of the current thread and caches its answer.
        // A thread of another test would then disable the callsite for this test too.
        let _second = tracing::Dispatch::new(lines.clone());
        with_default(lines.clone(), || act(&mut Trace::new(Some(3))));
        std::mem::take(&mut *lines.0.lock().unwrap())
    }

    fn reasons() -> Vec<CloseReason> {
        let application_code = 0;
        let codes = (0..8).filter_map(CloseCode::from_byte);
        let closes = codes.flat_map(|code| {
            [CloseReason::Local { code, application_code }, CloseReason::Remote { code, application_code }]
        });
        let protocol = CloseReason::Protocol(ProtocolError::Ack(AckError::Unsent));
        let others = [
            CloseReason::IdleTimeout,
            CloseReason::Unacknowledged,
            protocol,
            CloseReason::KeyLimit,
            CloseReason::Reset,
            CloseReason::KeysInvalidated,
            CloseReason::Unreachable,
        ];
        closes.chain(others).collect()
    }

    /// Returns the end of a connection.
    fn disconnected(reason: CloseReason) -> Event {
        Event::disconnected(crate::worker::channel::tests::peer(), Closed::new(reason, Bytes::new()))
    }

    #[test]
    fn every_cause_has_its_own_limit() {
        let (mut trace, reasons) = (Trace::new(None), reasons());
        let kinds: HashSet<_> = reasons.iter().map(std::mem::discriminant).collect();
        reasons.iter().for_each(|reason| trace.on_connection_event(at(0), &disconnected(*reason)));
        assert_eq!((trace.events.len(), kinds.len()), (9, 9), "{trace:?}");
        trace.counters(at(0), &WorkerStats::default());
        assert_eq!(trace.counters.len(), 5 + REFUSALS.len(), "{trace:?}");
        // A worker of a server also has `connected`.
        assert!(trace.events.len() + 1 + trace.counters.len() <= 25);
    }

    #[test]
    fn many_events_are_few_lines_and_all_are_counted() {
        let peer = crate::worker::channel::tests::peer();
        let failed = Event::ConnectFailed { peer, error: crate::ConnectError::Timeout };
        let kinds: Vec<Event> = reasons().into_iter().map(disconnected).chain([failed]).collect();
        let events = 100_000;
        let lines = logged_lines(|trace| {
            for (number, what) in (0..events).zip(kinds.iter().cycle()) {
                // 100,000 events, 0.2 ms apart, take 20 s.
                let now = Moment::from_nanos(number * 200_000);
                trace.on_connection_event(now, what);
                trace.counters(
                    now,
                    &WorkerStats {
                        panics: number,
                        restarts: number,
                        sockets_reopened: number,
                        ..WorkerStats::default()
                    },
                );
            }
            trace.on_connection_event(at(30_000), &kinds[0]);
            trace.finish(&WorkerStats::default());
        });
        // Two intervals with 13 causes: nine close reasons, a failed attempt, panics, restarts, and reopened sockets.
        // Two more lines: the event at 30 s and the end.
        assert!(lines.len() <= 2 * 13 + 2, "{}: {lines:#?}", lines.len());
        let number = |line: &str, field: &str| -> u64 {
            let mut words = line.split(' ').filter_map(|word| word.strip_prefix(field)?.strip_prefix('='));
            words.next().map_or(0, |value| value.parse().unwrap())
        };
        let is_event =
            |line: &&(Level, String)| line.1.contains("left_out=") && !line.1.starts_with("message=ended");
        let logged: u64 = lines.iter().filter(is_event).map(|(_, line)| 1 + number(line, "left_out")).sum();
        let (_, end) = lines.last().unwrap();
        assert_eq!(logged + number(end, "left_out"), events + 1, "{end}");
        let panics = lines.iter().filter(|(level, _)| *level == Level::ERROR);
        assert_eq!(panics.clone().count(), 2, "{lines:#?}");
        assert!(panics.map(|(_, line)| number(line, "count")).sum::<u64>() <= events);
    }

    #[test]
    fn wanted_ends_are_logged_at_debug_and_others_at_info() {
        for reason in reasons() {
            let lines = logged_lines(|trace| trace.on_connection_event(at(0), &disconnected(reason)));
            let [(level, line)] = lines.as_slice() else { panic!("{lines:?}") };
            let is_wanted = line.contains("\"application\"") || line.contains("\"shutdown\"");
            assert_eq!(*level, if is_wanted { Level::DEBUG } else { Level::INFO }, "{line}");
            assert!(line.contains(&format!("reason=\"{}\"", reason.name())) && line.contains("worker=3"));
        }
    }

    #[test]
    fn the_development_key_warning_reports_if_it_was_received() {
        let lines = logged_lines(|_| assert!(has_warned_of_dev_key()));
        let [(Level::WARN, line)] = lines.as_slice() else { panic!("{lines:?}") };
        assert!(line.contains("development key"), "{line}");
        let _lock = SUBSCRIBER_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        with_default(tracing::subscriber::NoSubscriber::new(), || assert!(!has_warned_of_dev_key()));
    }

    #[test]
    fn kernel_drops_are_one_warning_in_ten_seconds() {
        let dropped = |kernel_dropped| WorkerStats { kernel_dropped, ..WorkerStats::default() };
        let lines = logged_lines(|trace| {
            for second in 0..20 {
                trace.counters(at(second * 1_000), &dropped(second * 100));
            }
        });
        let counts: Vec<_> =
            lines.iter().map(|(level, line)| (*level, line.contains("net.core.rmem_max"))).collect();
        assert_eq!(counts, [(Level::WARN, true); 2], "{lines:?}");
        assert!(lines[0].1.contains("count=100 ") && lines[1].1.contains("count=1000 "), "{lines:?}");
    }

    #[test]
    fn a_public_server_without_an_id_is_one_warning() {
        let bind = |access, id: &str| {
            logged_lines(|_| {
                let key = crate::ServerKey::from_bytes([9; 32]);
                let config = crate::ServerConfig::new("127.0.0.1:0".parse().unwrap(), key, access);
                drop(crate::Server::bind(config.server_id(id)).unwrap());
            })
        };
        let key = crate::tokens::TokenMasterKey::from_bytes([7; 32]).token_key(1, "a").unwrap();
        let with_tokens = || crate::Access::Token(crate::tokens::TokenAccess::new(key.clone()));
        let warns = |lines: Vec<(Level, String)>| {
            lines
                .iter()
                .filter(|(level, line)| *level == Level::WARN && line.contains("server_id is empty"))
                .count()
        };
        assert_eq!(warns(bind(with_tokens(), "")), 1);
        assert_eq!(warns(bind(with_tokens(), "eu-1")), 0);
        assert_eq!(warns(bind(crate::Access::Open, "")), 0);
    }

    /// Returns the workers with a warning about an application that never polls. The client is -1.
    #[cfg(feature = "testing")]
    fn never_polled(act: impl FnOnce(&mut crate::testing::World)) -> Vec<i32> {
        let lines = logged_lines(|_| {
            let mut world = crate::testing::World::new(crate::testing::server_config(), 1).unwrap();
            world.join(&crate::ClientConfig::default()).unwrap();
            act(&mut world);
        });
        let of_polls = lines.iter().filter(|(_, line)| line.contains("not called poll"));
        assert!(of_polls.clone().all(|(level, _)| *level == Level::WARN), "{lines:?}");
        [-1, 0]
            .into_iter()
            .filter(|worker| {
                of_polls.clone().filter(|(_, line)| line.contains(&format!("worker={worker} "))).count() == 1
            })
            .collect()
    }

    #[cfg(feature = "testing")]
    #[test]
    fn an_application_that_never_polls_is_warned_once() {
        let second = Duration::from_secs(1);
        assert_eq!(never_polled(|world| world.advance(20 * second)), [-1, 0]);
        assert_eq!(never_polled(|world| world.advance(second / 2)), [0_i32; 0]);
        let client_only = never_polled(|world| {
            world.server.poll(Duration::ZERO);
            world.server.events().for_each(drop);
            world.advance(20 * second);
        });
        assert_eq!(client_only, [-1]);
    }

    #[test]
    fn a_cause_is_logged_once_in_ten_seconds_with_omitted_lines() {
        let mut limit = Limit::default();
        assert_eq!(limit.add_event(at(0)), Some(0));
        for _ in 0..5 {
            assert_eq!(limit.add_event(at(9_999)), None);
        }
        assert_eq!(limit.add_event(at(10_000)), Some(5));
        let mut limit = Limit::default();
        assert_eq!(limit.growth(at(0), 0), None, "a count of zero is not logged");
        assert_eq!(limit.growth(at(0), 7), Some(7));
        assert_eq!(limit.growth(at(9_999), 9), None);
        assert_eq!(limit.growth(at(10_000), 10), Some(3));
        assert_eq!(limit.growth(at(20_000), 4), None, "a restarted worker counts from zero");
        assert_eq!(limit.growth(at(20_000), 6), Some(2));
    }
}
