//! Messages on schedule over the clients of one thread, until everything that was taken is settled.
//!
//! An open loop: a message that its endpoint does not take yet is taken later, and carries the time it was meant to
//! leave. Which packets that makes, and which of them are repeated, is the endpoints' business.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drumfire_proto::{SendError, Stats};
use drumfire_puppet::PacketSealer;
use drumfire_wire::ChannelId;

use super::client::{self, Client, Hands};
use super::group::{GROUP, Group};
use super::schedule::Schedule;
use crate::choices::Mode;
use crate::clock;
use crate::control::SentMessages;
use crate::datagram::{self, Header, RouteId, STAMPED_BYTES};

/// Between two looks at what came back.
const LOOK: Duration = Duration::from_millis(1);

/// How long everything taken may take to be acknowledged after the last message. The receiver gives a sender that it
/// stopped somewhat longer.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// The channel of every message.
const CHANNEL: ChannelId = ChannelId(0);

/// All clients of one thread and what they are to say.
pub(super) struct Talk {
    mode: Mode,
    /// Messages that are due together on one flow.
    burst: u64,
    groups: Vec<Group>,
    hands: Hands,
    /// What each client has to say, group by group.
    speeches: Vec<Speech>,
    payload: Box<[u8]>,
    unsettled: u64,
}

/// One flow's messages.
struct Speech {
    flow: u32,
    id: RouteId,
    /// Messages that are due, and those of them that the endpoint took.
    due: u64,
    taken: u64,
    /// Times that it did not take one for want of memory.
    blocked: u64,
}

/// What came of the talk.
pub(super) struct TalkTotals {
    /// Flow and packets that the kernel took of it.
    pub(super) sent_per_flow: Vec<(u32, u64)>,
    /// Flow and messages that its endpoint took.
    pub(super) messages_per_flow: Vec<(u32, u64)>,
    /// The sums of all flows of the thread.
    pub(super) messages: SentMessages,
    pub(super) hands: Hands,
}

impl Talk {
    /// A talk of flows that have connected: `flows` are their numbers and ids, group by group. Packets with one message
    /// have about `size` bytes.
    pub(super) fn new(
        mode: Mode,
        burst: usize,
        size: usize,
        groups: Vec<Group>,
        hands: Hands,
        flows: &[(u32, RouteId)],
    ) -> Self {
        let speeches = flows.iter().map(|&(flow, id)| Speech { flow, id, due: 0, taken: 0, blocked: 0 });
        // A size without room was refused before.
        let payload = vec![0; PacketSealer::payload_bytes(size).unwrap_or_default()].into();
        let speeches = speeches.collect();
        Self { mode, burst: burst as u64, groups, hands, speeches, payload, unsettled: 0 }
    }

    /// The first socket, which is like all others.
    pub(super) fn first(&self) -> Option<&Client> {
        self.groups.first()?.clients.first()
    }

    /// Says what the schedule asks for; answers how many messages were due.
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
            // Without a schedule a flow that takes nothing is asked again after the next look.
            let is_full = schedule.rate <= 0.0 && refused_in_a_row >= self.speeches.len();
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
        let offered = self.speeches.iter().map(|speech| speech.due).sum();
        let is_stopped = is_stopping.load(Ordering::Relaxed);
        all.filter(|_| !is_stopped).map_or(offered, |all| all.max(offered))
    }

    /// Waits until everything that was taken is settled, or for as long as patience lasts.
    pub(super) fn settle(&mut self, schedule: &Schedule) {
        // What was due and not taken stays unsaid: the run is over.
        self.speeches.iter_mut().for_each(|speech| speech.due = speech.taken);
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

    pub(super) fn into_totals(self) -> TalkTotals {
        let Self { groups, hands, speeches, unsettled, .. } = self;
        let clients: Vec<&Client> = groups.iter().flat_map(|group| &group.clients).collect();
        let pairs = || speeches.iter().zip(&clients);
        let sum = |count: fn(&Stats) -> u64| clients.iter().map(|client| count(client.stats())).sum::<u64>();
        let sent = speeches.iter().map(|speech| speech.taken).sum();
        let in_packets = sum(|stats| stats.messages_sent.saturating_sub(stats.messages_resent));
        TalkTotals {
            sent_per_flow: pairs().map(|(speech, client)| (speech.flow, client.sent)).collect(),
            messages_per_flow: pairs().map(|(speech, _)| (speech.flow, speech.taken)).collect(),
            messages: SentMessages {
                sent_per_flow: Vec::new(),
                sent,
                offered: 0,
                unsent: u64::saturating_sub(sent, in_packets),
                given_up: sum(|stats| stats.messages_dropped + stats.messages_expired),
                resent: sum(|stats| stats.messages_resent),
                packets_lost: sum(|stats| stats.packets_lost),
                blocked: speeches.iter().map(|speech| speech.blocked).sum(),
                unsettled,
            },
            hands,
        }
    }

    /// Gives the flow whose turn it is its messages; answers whether it took any.
    fn take_turn(&mut self, turn: u64, schedule: &Schedule) -> bool {
        let flows = self.speeches.len() as u64;
        let Some(place) = usize::try_from(turn % flows.max(1)).ok() else { return false };
        let Self { mode, burst, groups, hands, speeches, payload, .. } = self;
        let Some((group, speech)) = groups.get_mut(place / GROUP).zip(speeches.get_mut(place)) else {
            return false;
        };
        let Some(client) = group.clients.get_mut(place % GROUP) else { return false };
        let is_free = schedule.rate <= 0.0;
        // Without a schedule nothing is due that is not taken.
        if !is_free || speech.due == speech.taken {
            speech.due += *burst;
        }
        let before = speech.taken;
        let pace = Pace { schedule, flows, place: place as u64, burst: *burst, mode: *mode };
        pace.speak(speech, client, payload);
        client.run(hands, &mut group.poller);
        speech.taken > before
    }

    /// Takes in what came back, does what is due, and says what had to wait for it.
    fn look(&mut self, schedule: &Schedule) {
        let flows = self.speeches.len() as u64;
        let Self { mode, burst, groups, hands, speeches, payload, .. } = self;
        let mut first = 0;
        for (group, speeches) in groups.iter_mut().zip(speeches.chunks_mut(GROUP)) {
            group.look(hands, Duration::ZERO, |(index, client)| {
                if let Some(speech) = speeches.get_mut(index).filter(|speech| speech.taken < speech.due) {
                    let place = (first + index) as u64;
                    let pace = Pace { schedule, flows, place, burst: *burst, mode: *mode };
                    pace.speak(speech, client, payload);
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

/// What it takes to know when a message of a flow was meant to leave.
struct Pace<'a> {
    schedule: &'a Schedule,
    flows: u64,
    /// The flow's place among those of its thread.
    place: u64,
    burst: u64,
    mode: Mode,
}

impl Pace<'_> {
    /// Hands over what is due as far as the endpoint takes it.
    fn speak(&self, speech: &mut Speech, client: &mut Client, payload: &mut [u8]) {
        while speech.taken < speech.due {
            let sequence = speech.taken;
            let Some(options) = self.mode.options(sequence) else { return };
            let stamp = NonZeroU64::new(self.stamp_ns(sequence)).filter(|_| payload.len() >= STAMPED_BYTES);
            let header = Header { id: speech.id, flow: speech.flow, sequence, stamp };
            // A size that holds no header was refused before.
            let _ = datagram::encode(payload, &header);
            let bytes = bytes::Bytes::copy_from_slice(payload);
            match client.endpoint.send(client::now(), client.server, CHANNEL, bytes, options) {
                Ok(()) => speech.taken += 1,
                Err(SendError::Full) => {
                    speech.blocked += 1;
                    return;
                }
                // The connection is over, which its end tells.
                Err(_) => return,
            }
        }
    }

    /// When a message was meant to leave: the messages of one turn together.
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
    fn a_message_carries_the_time_of_its_flows_turn_however_late_it_is_taken() {
        let schedule = Schedule { start_ns: 1_000, rate: 1e9, length: Duration::from_secs(1) };
        let pace =
            |place, burst| Pace { schedule: &schedule, flows: 3, place, burst, mode: Mode::Unreliable };
        let stamps = |pace: &Pace<'_>| (0..5).map(|n| pace.stamp_ns(n) - 1_000).collect::<Vec<_>>();
        assert_eq!(stamps(&pace(0, 1)), [0, 3, 6, 9, 12]);
        assert_eq!(stamps(&pace(2, 1)), [2, 5, 8, 11, 14]);
        assert_eq!(stamps(&pace(1, 2)), [3, 3, 9, 9, 15], "two of each flow in a row, due with the second");
    }
}
