//! The channel between one worker and the application: commands in one direction, reports in the other. Batches move under one
//! short lock per pass, so the cost of the lock is shared by many commands or reports.
//!
//! Messages to peers are bounded by the send edge of each peer and [`SHARED_BYTES_MAX`], reports by [`REPORTS_MAX`] and
//! [`REPORT_BYTES_MAX`]. Without room for reports, the worker keeps its events, and its peers' messages are not acknowledged.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use drumfire_proto::SendError;

use super::command::{Broadcast, Command};
use super::send_edge::{SendEdge, SendLimits, charge};
use crate::admission::load::LoadMeter;
use crate::base::sync::{
    AtomicBool, AtomicU64, Mailbox, Mutex, Notifier, OnceLock, Pending, PendingPart, lock, move_all,
};
use crate::base::wake::Wake;
use crate::message::event::Event;
use crate::observe::stats::WorkerStats;

/// The largest number of reports that wait for the application. The last run of messages may exceed it.
pub(crate) const REPORTS_MAX: usize = 16_384;

/// The largest number of bytes of messages and flight records that wait for the application. The last report or run of messages may
/// exceed it.
pub(crate) const REPORT_BYTES_MAX: usize = 8 * 1_024 * 1_024;

/// The largest number of bytes of messages that no send edge bounds and that wait for a worker, such as broadcasts, with the usual
/// charge for each.
const SHARED_BYTES_MAX: u64 = 8 * 1_024 * 1_024;

/// Events on their way to the application, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) events: VecDeque<Event>,
    /// The send edge of the peer of each `Connected` and `Reconnecting` event.
    pub(crate) edges: VecDeque<Arc<SendEdge>>,
    /// Bytes of messages and flight records, which count against [`REPORT_BYTES_MAX`].
    pub(crate) bytes: usize,
}

impl Batch {
    /// Adds an event, with the send edge of the peer if it is `Connected` or `Reconnecting`.
    pub(crate) fn push(&mut self, event: Event, edge: Option<Arc<SendEdge>>) {
        let has_edge = matches!(event, Event::Connected { .. } | Event::Reconnecting { .. });
        debug_assert_eq!(has_edge, edge.is_some(), "{event:?}");
        self.bytes += match &event {
            Event::Message { payload, .. } => payload.len(),
            Event::FlightRecord { record, .. } => record.bytes(),
            _ => 0,
        };
        // Few events have an edge. A queue of their own keeps all other events small.
        self.events.push_back(event);
        self.edges.extend(edge);
    }

    /// Whether another event fits, given room for a number of events and of bytes.
    pub(crate) fn fits(&self, (count, bytes): (usize, usize)) -> bool {
        self.events.len() < count && self.bytes < bytes
    }

    /// Moves all events to the end of `into`.
    pub(crate) fn move_to(&mut self, into: &mut Self) {
        move_all(&mut self.events, &mut into.events);
        move_all(&mut self.edges, &mut into.edges);
        into.bytes += std::mem::take(&mut self.bytes);
    }
}

/// One worker's connection to the application.
pub(crate) struct WorkerChannel {
    /// The limits of the messages that the worker sends.
    pub(crate) limits: SendLimits,
    commands: Mailbox<Command>,
    /// The bytes of messages that no send edge bounds, such as broadcasts, at most [`SHARED_BYTES_MAX`].
    shared_bytes: AtomicU64,
    reports: Mutex<Reports>,
    stats: Mutex<WorkerStats>,
    /// Whether the statistics are read, so that each pass publishes them.
    is_observed: AtomicBool,
    /// Wakes the worker from its wait. Empty until [`WorkerChannel::set_waker`].
    waker: OnceLock<Box<dyn Wake + Send + Sync>>,
    /// Wakes the application for reports.
    notifier: Arc<Notifier>,
    /// The load of the worker.
    busy: Arc<LoadMeter>,
}

#[derive(Debug, Default)]
struct Reports {
    batch: Batch,
    /// Whether the worker keeps events for which there was no room. The next take must then wake the worker.
    is_held: bool,
    /// Whether the application has asked for reports at least once.
    is_polled: bool,
}

impl Reports {
    /// Returns the room for further reports: their number, and their bytes.
    fn room(&self) -> (usize, usize) {
        let count = REPORTS_MAX.saturating_sub(self.batch.events.len());
        (count, REPORT_BYTES_MAX.saturating_sub(self.batch.bytes))
    }
}

impl WorkerChannel {
    pub(crate) fn new(notifier: Arc<Notifier>, limits: SendLimits) -> Self {
        Self {
            limits,
            commands: Mailbox::default(),
            shared_bytes: AtomicU64::new(0),
            reports: Mutex::default(),
            stats: Mutex::default(),
            is_observed: AtomicBool::new(false),
            waker: OnceLock::new(),
            notifier,
            busy: Arc::default(),
        }
    }

    /// Returns the load of the worker.
    pub(crate) fn busy(&self) -> &Arc<LoadMeter> {
        &self.busy
    }

    /// Returns the loads of the workers of these channels.
    pub(crate) fn loads(links: &[Arc<Self>]) -> Vec<Arc<LoadMeter>> {
        links.iter().map(|link| Arc::clone(&link.busy)).collect()
    }

    /// Sets the waker of the worker, and wakes the worker if commands came before. Only the first call sets the waker.
    pub(crate) fn set_waker(&self, waker: impl Wake + Send + Sync + 'static) {
        let _ = self.waker.set(Box::new(waker));
        // A command before this exchange found no waker, so the wake-up is repeated here. Every later command finds the waker.
        if self.commands.take_flag() {
            self.notify_worker();
        }
    }

    /// Passes all commands to the worker and wakes it, unless it was already woken for commands that it has not taken yet.
    pub(crate) fn command(&self, commands: &mut Vec<Command>) {
        self.wake_if(self.commands.put_all(commands));
    }

    /// Passes a single command to the worker and wakes it, as [`WorkerChannel::command`] does.
    pub(crate) fn send_command(&self, command: Command) {
        // After `end`, the command is dropped. The mailbox has no limit of its own, because send edges and `take_room`
        // bound the commands with payloads.
        self.wake_if(self.commands.put(command, usize::MAX).unwrap_or(false));
    }

    /// Sends a command that completes a result, which is `initial` if the worker has ended.
    pub(crate) fn request<T>(
        &self,
        initial: T,
        command: impl FnOnce(PendingPart<T>) -> Command,
    ) -> Pending<T> {
        let (pending, mut parts) = Pending::new(initial, 1);
        if let Some(part) = parts.pop() {
            self.send_command(command(part));
        }
        pending
    }

    /// Drops waiting and future commands, because the worker has ended. It gets no further connections.
    pub(crate) fn end(&self) {
        self.busy.end();
        self.commands.close();
    }

    /// Takes shared room for a message that no send edge bounds. Returns false if there is not enough.
    pub(crate) fn take_room(&self, payload_bytes: usize) -> bool {
        // A worker that has ended returns no room, and drops the message. Messages to the other workers must not wait for it.
        if self.busy.has_ended() {
            return true;
        }
        // Several threads take room at the same time, so the check and the addition are one atomic step.
        let fitting =
            |used: u64| used.checked_add(charge(payload_bytes)).filter(|sum| *sum <= SHARED_BYTES_MAX);
        self.shared_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, fitting).is_ok()
    }

    /// Takes shared room for a broadcast at all of these workers, or at none.
    ///
    /// # Errors
    /// [`SendError::TooLarge`], or [`SendError::Full`] if a worker has no room.
    pub(crate) fn take_room_of_all<'a>(
        links: impl Iterator<Item = &'a Arc<Self>> + Clone,
        broadcast: &Broadcast,
    ) -> Result<(), SendError> {
        let payload_bytes = broadcast.message.payload.len();
        // A broadcast that reached only some workers could not be repeated without duplicates, so it needs room at
        // all of them.
        for (taken, link) in links.clone().enumerate() {
            // All workers of a server have the same limit, so the first one refuses a message that is too long.
            broadcast.check(link.limits.message_max_bytes)?;
            if !link.take_room(payload_bytes) {
                links.take(taken).for_each(|link| link.give_room(payload_bytes));
                return Err(SendError::Full);
            }
        }
        Ok(())
    }

    /// Passes a broadcast to all workers except the one with the index `here`, or to none of them. `usize::MAX` excludes none.
    ///
    /// # Errors
    /// As [`WorkerChannel::take_room_of_all`].
    pub(crate) fn broadcast_elsewhere(
        links: &[Arc<Self>],
        here: usize,
        broadcast: &Broadcast,
    ) -> Result<(), SendError> {
        let others = links.iter().enumerate().filter(|(index, _)| *index != here).map(|(_, link)| link);
        Self::take_room_of_all(others.clone(), broadcast)?;
        // The copies share the payload.
        others.for_each(|link| link.send_command(Command::Broadcast(broadcast.clone())));
        Ok(())
    }

    /// Wakes the worker for work outside this channel.
    pub(crate) fn notify_worker(&self) {
        self.wake_if(self.commands.set_flag());
    }

    fn wake_if(&self, must_wake: bool) {
        if must_wake {
            self.wake();
        }
    }

    /// Returns the room that [`WorkerChannel::take_room`] took.
    pub(crate) fn give_room(&self, payload_bytes: usize) {
        // The room may have been taken after the end of the worker, and was not counted.
        if self.busy.has_ended() {
            return;
        }
        let before = self.shared_bytes.fetch_sub(charge(payload_bytes), Ordering::AcqRel);
        debug_assert!(
            before >= charge(payload_bytes),
            "room for {payload_bytes} bytes is taken before it is returned"
        );
    }

    /// Moves all commands to the end of `into`.
    pub(crate) fn take_commands(&self, into: &mut VecDeque<Command>) {
        self.commands.take(into);
    }

    /// Returns the room for reports: their number, and their bytes.
    pub(crate) fn room(&self) -> (usize, usize) {
        lock(&self.reports).room()
    }

    /// Requests a wake-up of the worker as soon as the application takes reports. If there is room already, returns true and
    /// requests nothing.
    pub(crate) fn hold(&self) -> bool {
        // The check and the request are under one lock. A take in between can neither miss the request nor make it useless.
        let mut reports = lock(&self.reports);
        let (count, bytes) = reports.room();
        reports.is_held = count == 0 || bytes == 0;
        !reports.is_held
    }

    /// Passes a batch of reports to the application and notifies it once.
    pub(crate) fn report(&self, batch: &mut Batch) {
        if batch.events.is_empty() {
            return;
        }
        batch.move_to(&mut lock(&self.reports).batch);
        // The lock is free again, because the woken thread needs it first.
        self.notifier.notify();
    }

    /// Moves all reports to the end of `into`, and wakes the worker if it keeps events for lack of room.
    pub(crate) fn take_reports(&self, into: &mut Batch) {
        let mut reports = lock(&self.reports);
        reports.is_polled = true;
        reports.batch.move_to(into);
        // The request is removed with the take. The worker requests again if the new room is not enough for its
        // events.
        let is_held = std::mem::take(&mut reports.is_held);
        drop(reports);
        self.wake_if(is_held);
    }

    /// Whether the application has asked for reports at least once.
    pub(crate) fn is_polled(&self) -> bool {
        lock(&self.reports).is_polled
    }

    /// Makes the worker publish its statistics after each pass. A server on the application's own thread does not until its
    /// [`Control`](crate::Control) is used, because no other thread can read them.
    pub(crate) fn observe(&self) {
        self.is_observed.store(true, Ordering::Release);
    }

    /// Whether the statistics are read, so that each pass publishes them.
    pub(crate) fn is_observed(&self) -> bool {
        self.is_observed.load(Ordering::Acquire)
    }

    /// Publishes the statistics of the worker, if they are read.
    pub(crate) fn set_stats(&self, stats: &WorkerStats) {
        if self.is_observed() {
            lock(&self.stats).clone_from(stats);
        }
    }

    pub(crate) fn stats(&self) -> WorkerStats {
        lock(&self.stats).clone()
    }
}

impl Wake for WorkerChannel {
    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}

impl fmt::Debug for WorkerChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerChannel").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use drumfire_proto::{ChannelId, Message, Moment, PeerId};

    use super::*;
    use crate::message::group::Audience;
    use crate::worker::shutdown::ShutdownOrder;

    /// The limits of messages in tests.
    pub(crate) const LIMITS: SendLimits = SendLimits { memory_bytes: 65_536, message_max_bytes: 65_536 };

    fn link() -> WorkerChannel {
        WorkerChannel::new(Arc::default(), LIMITS)
    }

    pub(crate) fn peer() -> PeerId {
        "0.0.0".parse().unwrap()
    }

    /// Reports `count` messages of `bytes` bytes each.
    fn report(link: &WorkerChannel, count: usize, bytes: usize) {
        let mut batch = Batch::default();
        for _ in 0..count {
            let payload = vec![0; bytes].into();
            batch.push(Event::Message { peer: peer(), channel: ChannelId(0), payload }, None);
        }
        link.report(&mut batch);
        assert!(batch.events.is_empty());
    }

    #[test]
    fn report_room_is_bounded_and_returns_with_each_take() {
        let link = link();
        assert_eq!(link.room(), (REPORTS_MAX, REPORT_BYTES_MAX));
        report(&link, REPORTS_MAX - 1, 10);
        assert_eq!(link.room(), (1, REPORT_BYTES_MAX - 10 * (REPORTS_MAX - 1)));
        assert!(link.hold(), "the queue has room for one more event");
        report(&link, 1, 10);
        assert!(!link.hold());
        let mut taken = Batch::default();
        link.take_reports(&mut taken);
        assert_eq!((taken.events.len(), link.room()), (REPORTS_MAX, (REPORTS_MAX, REPORT_BYTES_MAX)));
        report(&link, 1, REPORT_BYTES_MAX);
        assert_eq!(link.room(), (REPORTS_MAX - 1, 0));
        assert!(!link.hold());
    }

    #[test]
    fn a_worker_that_has_ended_refuses_no_broadcast() {
        let links = [Arc::new(link()), Arc::new(link())];
        let payload = Bytes::from(vec![0; 65_536]);
        let message = Message::reliable_ordered(ChannelId(0), payload);
        let broadcast = Broadcast { audience: Audience::ALL, message };
        let mut taken = VecDeque::new();
        let mut send = || -> Result<(), SendError> {
            WorkerChannel::broadcast_elsewhere(&links, usize::MAX, &broadcast)?;
            links[0].take_commands(&mut taken);
            for command in taken.drain(..) {
                links[0].give_room(command.shared_bytes().unwrap());
            }
            Ok(())
        };
        // The second worker takes nothing, so that its room is used up.
        assert_eq!((0..1_000).find_map(|_| send().err()), Some(SendError::Full));
        links[1].end();
        assert_eq!((0..1_000).find_map(|_| send().err()), None);
    }

    #[test]
    fn commands_keep_their_order_across_takes() {
        let (link, peer) = (link(), peer());
        let close = |code| Command::Close { peer, code, text: Bytes::new() };
        let mut taken = VecDeque::new();
        link.command(&mut vec![close(1), close(2)]);
        link.take_commands(&mut taken);
        link.command(&mut vec![close(3)]);
        link.command(&mut vec![close(4)]);
        link.take_commands(&mut taken);
        link.take_commands(&mut taken);
        let codes: Vec<u32> = taken
            .iter()
            .map(|command| if let Command::Close { code, .. } = command { *code } else { 0 })
            .collect();
        assert_eq!(codes, [1, 2, 3, 4]);
    }

    /// Counts its wake-ups.
    #[derive(Clone, Default)]
    struct Count(Arc<AtomicUsize>);

    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn setting_the_waker_wakes_once_for_earlier_commands() {
        let (link, peer, count) = (link(), peer(), Count::default());
        link.send_command(Command::Measure { peer });
        link.set_waker(count.clone());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        link.send_command(Command::Measure { peer });
        let mut taken = VecDeque::new();
        link.take_commands(&mut taken);
        assert_eq!((taken.len(), count.0.load(Ordering::Relaxed)), (2, 1));
        link.send_command(Command::Measure { peer });
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        let unused = WorkerChannel::new(Arc::default(), LIMITS);
        unused.set_waker(count.clone());
        assert_eq!(count.0.load(Ordering::Relaxed), 2, "a waker is not called without a command");
    }

    #[test]
    fn commands_to_a_worker_that_has_ended_are_dropped() {
        let (link, peer) = (link(), peer());
        let (mut pending, parts) = Pending::new(Vec::new(), 2);
        let mut orders = parts.into_iter().map(|part| {
            Command::ShutDown(ShutdownOrder { deadline: Moment::ORIGIN, application_code: 0, part })
        });
        link.command(&mut vec![orders.next().unwrap()]);
        link.end();
        assert!(pending.try_take().is_none());
        let mut late = vec![Command::Measure { peer }, orders.next().unwrap()];
        link.command(&mut late);
        assert!(late.is_empty() && pending.try_take().is_some());
        let mut taken = VecDeque::new();
        link.take_commands(&mut taken);
        assert!(taken.is_empty());
    }
}
