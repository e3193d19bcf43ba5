//! Sends messages on schedule over the clients of one thread, and waits until all are settled.
//!
//! The loop is open: a message that its endpoint cannot accept yet is sent later, with the time at which it should have left.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drumfire_proto::{SendError, Stats};
use drumfire_puppet::PacketSealer;
use drumfire_wire::ChannelId;

use super::client::{Client, SocketBuffers};
use super::group::{ClientGroup, GROUP};
use super::schedule::Schedule;
use crate::choices::Mode;
use crate::clock;
use crate::control::SentMessages;
use crate::datagram::{self, Header, RouteId, STAMPED_BYTES};
use crate::receiver::service::now;

/// The interval between two receive passes.
const LOOK: Duration = Duration::from_millis(1);

/// How long acks may take after the last message. The receiver waits longer for a sender that it stopped.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// The channel of every message.
const CHANNEL: ChannelId = ChannelId(0);

/// All clients of one thread with their messages.
pub(super) struct MessageSender {
    mode: Mode,
    /// The number of messages that are due together on one flow.
    burst: u64,
    groups: Vec<ClientGroup>,
    buffers: SocketBuffers,
    /// The messages of each client, group by group.
    queues: Vec<FlowMessages>,
    payload: Box<[u8]>,
    unsettled: u64,
}

/// One flow's messages.
struct FlowMessages {
    flow: u32,
    id: RouteId,
    /// Messages that are due, and messages that the endpoint accepted.
    due: u64,
    taken: u64,
    /// How often the endpoint had no memory for a message.
    blocked: u64,
}

/// The totals of a thread that sends messages.
pub(super) struct MessageTotals {
    /// Each flow with its packets that the kernel accepted.
    pub(super) sent_per_flow: Vec<(u32, u64)>,
    /// Each flow with its messages that the endpoint accepted.
    pub(super) messages_per_flow: Vec<(u32, u64)>,
    /// The sums of all flows of the thread.
    pub(super) messages: SentMessages,
    pub(super) buffers: SocketBuffers,
}

impl MessageSender {
    /// Takes connected clients. `flows` are their numbers and ids, group by group. A packet with one message has about `size`
    /// bytes.
    pub(super) fn new(
        mode: Mode,
        burst: usize,
        size: usize,
        groups: Vec<ClientGroup>,
        buffers: SocketBuffers,
        flows: &[(u32, RouteId)],
    ) -> Self {
        let queues = flows.iter().map(|&(flow, id)| FlowMessages { flow, id, due: 0, taken: 0, blocked: 0 });
        // Sizes that are too small were refused before.
        let payload = vec![0; PacketSealer::payload_bytes(size).unwrap_or_default()].into();
        let queues = queues.collect();
        Self { mode, burst: burst as u64, groups, buffers, queues, payload, unsettled: 0 }
    }

    /// The first client. All sockets have the same settings.
    pub(super) fn first(&self) -> Option<&Client> {
        self.groups.first()?.clients.first()
    }

    /// Sends messages on schedule. Returns how many were due.
    pub(super) fn run(&mut self, schedule: &Schedule, is_stopping: &AtomicBool) -> u64 {
        let all = schedule.due(schedule.length);
        let mut turn = 0;
        let mut refused_in_a_row = 0;
        let mut next_look_ns = 0;
        while !is_stopping.load(Ordering::Relaxed) && !schedule.is_over() {
            let last = (turn + 1) * self.burst - 1;
            if all.is_some_and(|all| last >= all) {
                break;
            }
            if clock::host_ns() >= next_look_ns {
                self.look(schedule);
                next_look_ns = clock::host_ns() + nanos(LOOK);
            }
            let due_ns = if schedule.rate > 0.0 { schedule.stamp_ns(last) } else { 0 };
            // Without a schedule a full flow is tried again after the next receive pass.
            let is_full = schedule.rate <= 0.0 && refused_in_a_row >= self.queues.len();
            let until_ns = if is_full { next_look_ns } else { due_ns };
            if until_ns > clock::host_ns() {
                refused_in_a_row = 0;
                self.wait(until_ns.min(next_look_ns));
                continue;
            }
            let has_taken = self.take_turn(turn, schedule);
            refused_in_a_row = if has_taken { 0 } else { refused_in_a_row + 1 };
            turn += 1;
        }
        let offered = self.queues.iter().map(|queue| queue.due).sum();
        let is_stopped = is_stopping.load(Ordering::Relaxed);
        all.filter(|_| !is_stopped).map_or(offered, |all| all.max(offered))
    }

    /// Waits until every accepted message is settled, but not longer than [`SETTLE_PATIENCE`].
    pub(super) fn settle(&mut self, schedule: &Schedule) {
        // The run is over: messages that were due and not accepted are not sent.
        self.queues.iter_mut().for_each(|queue| queue.due = queue.taken);
        let deadline = clock::now() + SETTLE_PATIENCE;
        loop {
            self.look(schedule);
            let clients = self.groups.iter_mut().flat_map(|group| &mut group.clients);
            let unsettled =
                clients.filter_map(|client| (!client.is_settled()).then_some(client.end.is_some()));
            let (gone, open): (Vec<bool>, Vec<bool>) = unsettled.partition(|is_gone| *is_gone);
            self.unsettled = (gone.len() + open.len()) as u64;
            if open.is_empty() || clock::now() >= deadline {
                return;
            }
            self.wait(clock::host_ns() + nanos(LOOK));
        }
    }

    pub(super) fn into_totals(self) -> MessageTotals {
        let Self { groups, buffers, queues, unsettled, .. } = self;
        let clients: Vec<&Client> = groups.iter().flat_map(|group| &group.clients).collect();
        let pairs = || queues.iter().zip(&clients);
        let sum = |count: fn(&Stats) -> u64| clients.iter().map(|client| count(client.stats())).sum::<u64>();
        let sent = queues.iter().map(|queue| queue.taken).sum();
        let in_packets = sum(|stats| stats.messages_sent.saturating_sub(stats.messages_resent));
        MessageTotals {
            sent_per_flow: pairs().map(|(queue, client)| (queue.flow, client.sent)).collect(),
            messages_per_flow: pairs().map(|(queue, _)| (queue.flow, queue.taken)).collect(),
            messages: SentMessages {
                sent_per_flow: Vec::new(),
                sent,
                offered: 0,
                unsent: u64::saturating_sub(sent, in_packets),
                given_up: sum(|stats| stats.messages_dropped + stats.messages_expired),
                resent: sum(|stats| stats.messages_resent),
                packets_lost: sum(|stats| stats.packets_lost),
                blocked: queues.iter().map(|queue| queue.blocked).sum(),
                unsettled,
            },
            buffers,
        }
    }

    /// Sends the messages of the next flow. Returns whether its endpoint accepted any.
    fn take_turn(&mut self, turn: u64, schedule: &Schedule) -> bool {
        let flows = self.queues.len() as u64;
        let Some(place) = usize::try_from(turn % flows.max(1)).ok() else { return false };
        let Self { mode, burst, groups, buffers, queues, payload, .. } = self;
        let Some((group, queue)) = groups.get_mut(place / GROUP).zip(queues.get_mut(place)) else {
            return false;
        };
        let Some(client) = group.clients.get_mut(place % GROUP) else { return false };
        let is_free = schedule.rate <= 0.0;
        // Without a schedule the next messages are due once the last ones were accepted.
        if !is_free || queue.due == queue.taken {
            queue.due += *burst;
        }
        let before = queue.taken;
        let schedule_of_flow =
            FlowSchedule { schedule, flows, place: place as u64, burst: *burst, mode: *mode };
        schedule_of_flow.send_due(queue, client, payload);
        client.run(buffers, &mut group.poller);
        queue.taken > before
    }

    /// Receives, handles timeouts, and sends messages that had to wait.
    fn look(&mut self, schedule: &Schedule) {
        let flows = self.queues.len() as u64;
        let Self { mode, burst, groups, buffers, queues, payload, .. } = self;
        let mut first = 0;
        for (group, queues) in groups.iter_mut().zip(queues.chunks_mut(GROUP)) {
            group.look(buffers, Duration::ZERO, |(index, client)| {
                if let Some(queue) = queues.get_mut(index).filter(|queue| queue.taken < queue.due) {
                    let place = (first + index) as u64;
                    let schedule_of_flow =
                        FlowSchedule { schedule, flows, place, burst: *burst, mode: *mode };
                    schedule_of_flow.send_due(queue, client, payload);
                }
            });
            first += GROUP;
        }
    }

    fn wait(&mut self, until_ns: u64) {
        if let Some(group) = self.groups.first_mut() {
            Schedule::wait_until(until_ns, &mut group.poller);
        }
    }
}

/// The schedule of one flow.
struct FlowSchedule<'a> {
    schedule: &'a Schedule,
    flows: u64,
    /// The flow's place among those of its thread.
    place: u64,
    burst: u64,
    mode: Mode,
}

impl FlowSchedule<'_> {
    /// Sends due messages until the endpoint is full.
    fn send_due(&self, queue: &mut FlowMessages, client: &mut Client, payload: &mut [u8]) {
        while queue.taken < queue.due {
            let sequence = queue.taken;
            let Some(options) = self.mode.options(sequence) else { return };
            let stamp = NonZeroU64::new(self.stamp_ns(sequence)).filter(|_| payload.len() >= STAMPED_BYTES);
            let header = Header { id: queue.id, flow: queue.flow, sequence, stamp };
            // Sizes without room for a header were refused before.
            let _ = datagram::encode(payload, &header);
            let bytes = bytes::Bytes::copy_from_slice(payload);
            match client.endpoint.send(now(), client.server, CHANNEL, bytes, options) {
                Ok(()) => queue.taken += 1,
                Err(SendError::Full) => {
                    queue.blocked += 1;
                    return;
                }
                // The connection has ended. `Client::end` has the reason.
                Err(_) => return,
            }
        }
    }

    /// The time at which a message should leave. The messages of one turn leave together.
    fn stamp_ns(&self, sequence: u64) -> u64 {
        let turn = sequence / self.burst * self.flows + self.place;
        self.schedule.stamp_ns((turn + 1) * self.burst - 1)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_message_carries_its_intended_time() {
        let schedule = Schedule { start_ns: 1_000, rate: 1e9, length: Duration::from_secs(1) };
        let schedule_of_flow = |place, burst| FlowSchedule {
            schedule: &schedule,
            flows: 3,
            place,
            burst,
            mode: Mode::Unreliable,
        };
        let stamps = |schedule_of_flow: &FlowSchedule<'_>| {
            (0..5).map(|n| schedule_of_flow.stamp_ns(n) - 1_000).collect::<Vec<_>>()
        };
        assert_eq!(stamps(&schedule_of_flow(0, 1)), [0, 3, 6, 9, 12]);
        assert_eq!(stamps(&schedule_of_flow(2, 1)), [2, 5, 8, 11, 14]);
        assert_eq!(
            stamps(&schedule_of_flow(1, 2)),
            [3, 3, 9, 9, 15],
            "two of each flow in a row, due with the second"
        );
    }
}
