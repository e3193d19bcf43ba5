//! Sends messages on schedule over the clients of one thread, and waits until all are settled.
//!
//! The schedule is open-loop: a message that its endpoint cannot accept yet is sent later, with its intended time of
//! sending.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drumfire_proto::{Message, SendError};
use drumfire_puppet::PacketSealer;
use drumfire_socket::{Parker, Poller, Socket};
use drumfire_wire::ChannelId;

use super::flow::{CONNECT_TIMEOUT, Client, SocketBuffers, unconnected};
use super::thread::Schedule;
use crate::choices::Mode;
use crate::clock;
use crate::control::{Sealed, SentMessages};
use crate::datagram::{self, Header, RouteId, STAMPED_BYTES};
use crate::error::Error;
use crate::receiver::service::now;

/// The interval between two receive passes, in nanoseconds.
const RECEIVE_INTERVAL_NS: u64 = 1_000_000;

/// The number of clients of one poller: as many as it supports.
const GROUP: usize = 64;

/// The longest wait in a handshake before its timeouts are checked.
const STEP: Duration = Duration::from_millis(50);

/// How long acks may take after the last message. The receiver waits longer for a sender that it stopped.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The channel of every message.
const CHANNEL: ChannelId = ChannelId(0);

/// All clients of one thread with their messages.
pub(super) struct MessageSender {
    turns: Turns,
    pub(super) clients: Vec<Client>,
    /// One poller for each group of [`GROUP`] clients.
    pollers: Vec<Poller>,
    pub(super) buffers: SocketBuffers,
    payload: Box<[u8]>,
    unsettled: u64,
}

/// The order in which the flows of a thread send: each sends a burst in its turn.
#[derive(Clone, Copy)]
struct Turns {
    mode: Mode,
    flows: u64,
    burst: u64,
}

impl MessageSender {
    /// Connects a client for each flow, and waits until the receiver has confirmed each connection. A packet with one message has about
    /// `size` bytes, and `burst` messages are due together.
    pub(super) fn connect(
        flows: &[(u32, RouteId)],
        sockets: Vec<Socket>,
        to: SocketAddr,
        sealed: &Sealed,
        (burst, size): (usize, usize),
        buffers: SocketBuffers,
    ) -> Result<Self, Error> {
        let turns = Turns { mode: sealed.mode, flows: flows.len() as u64, burst: burst as u64 };
        // Sizes that are too small were refused before.
        let payload = vec![0; PacketSealer::payload_bytes(size).unwrap_or_default()].into();
        let (clients, pollers) = (Vec::with_capacity(flows.len()), Vec::new());
        let mut all = Self { turns, clients, pollers, buffers, payload, unsettled: 0 };
        let mut sockets = sockets.into_iter();
        for (group, flows) in flows.chunks(GROUP).enumerate() {
            let mut poller = all.buffers.poller()?;
            let sockets = sockets.by_ref().take(flows.len()).enumerate();
            let sockets =
                sockets.map(|(index, mut socket)| poller.register(&mut socket, index).map(|()| socket));
            let sockets = sockets.collect::<Result<Vec<_>, _>>().map_err(unconnected)?;
            all.pollers.push(poller);
            for (flow, socket) in flows.iter().zip(sockets) {
                let place = all.clients.len() as u64;
                all.clients.push(Client::begin(*flow, place, socket, to, sealed)?);
                // Handshakes run one after the other, because both ends compute. Confirmations are awaited together.
                while all.clients.last().is_some_and(|client| client.endpoint.stats().connections_opened == 0)
                {
                    all.step(group)?;
                }
            }
            let has_time = clock::within(CONNECT_TIMEOUT);
            // Any packet from the receiver proves that it has opened a packet of this connection.
            let is_confirmed = |client: &Client| client.endpoint.stats().packets_received > 0;
            while !all.clients.iter().skip(group * GROUP).all(is_confirmed) {
                if !has_time() {
                    return Err(unconnected("the receiver does not confirm the connection"));
                }
                all.step(group)?;
            }
        }
        Ok(all)
    }

    /// Waits for datagrams of a group that connects, or for a timeout, and handles them.
    fn step(&mut self, group: usize) -> Result<(), Error> {
        let due_ns =
            self.clients.iter().skip(group * GROUP).map(|client| client.due_ns).min().unwrap_or(u64::MAX);
        let timeout = Duration::from_nanos(due_ns.saturating_sub(clock::host_ns()));
        self.receive_group(group, timeout.min(STEP), None);
        let end = self.clients.iter().skip(group * GROUP).find_map(|client| client.end.as_ref());
        end.map_or(Ok(()), |end| Err(unconnected(end)))
    }

    /// Sends messages on schedule. Returns how many were due.
    pub(super) fn run(&mut self, schedule: &Schedule, is_stopping: &AtomicBool) -> u64 {
        let all = schedule.due(schedule.length);
        let mut turn = 0;
        let mut refused_in_a_row = 0;
        let mut next_receive_ns = 0;
        while !is_stopping.load(Ordering::Relaxed) && !schedule.is_over() {
            let last = (turn + 1) * self.turns.burst - 1;
            if all.is_some_and(|all| last >= all) {
                break;
            }
            if clock::host_ns() >= next_receive_ns {
                self.receive_all(schedule);
                next_receive_ns = clock::host_ns() + RECEIVE_INTERVAL_NS;
            }
            let due_ns = if schedule.rate > 0.0 { schedule.stamp_ns(last) } else { 0 };
            // Without a schedule a full flow is tried again after the next receive pass.
            let is_full = schedule.rate <= 0.0 && refused_in_a_row >= self.turns.flows;
            let until_ns = if is_full { next_receive_ns } else { due_ns };
            if until_ns > clock::host_ns() {
                refused_in_a_row = 0;
                self.wait(until_ns.min(next_receive_ns));
                continue;
            }
            let has_accepted = self.take_turn(turn, schedule);
            refused_in_a_row = if has_accepted { 0 } else { refused_in_a_row + 1 };
            turn += 1;
        }
        let offered = self.clients.iter().map(|client| client.due).sum();
        let is_stopped = is_stopping.load(Ordering::Relaxed);
        all.filter(|_| !is_stopped).map_or(offered, |all| all.max(offered))
    }

    /// Waits until every accepted message is settled, but not longer than [`SETTLE_TIMEOUT`].
    pub(super) fn settle(&mut self, schedule: &Schedule) {
        // The run is over: messages that were due and not accepted are not sent.
        self.clients.iter_mut().for_each(|client| client.due = client.accepted);
        let has_time = clock::within(SETTLE_TIMEOUT);
        loop {
            self.receive_all(schedule);
            let mut is_open = false;
            self.unsettled = 0;
            for client in &mut self.clients {
                if !client.is_settled() {
                    self.unsettled += 1;
                    is_open |= client.end.is_none();
                }
            }
            if !is_open || !has_time() {
                return;
            }
            self.wait(clock::host_ns() + RECEIVE_INTERVAL_NS);
        }
    }

    /// Adds the counters of this thread's messages.
    pub(super) fn add_to(&self, sums: &mut SentMessages) {
        let (mut sent, mut in_packets) = (0_u64, 0);
        for client in &self.clients {
            if let Some(entry) = sums.sent_per_flow.get_mut(client.flow as usize) {
                *entry = client.accepted;
            }
            let stats = client.endpoint.stats();
            sent += client.accepted;
            in_packets += stats.messages_sent.saturating_sub(stats.messages_resent);
            sums.blocked += client.blocked;
            sums.given_up += stats.messages_dropped + stats.messages_expired;
            sums.resent += stats.messages_resent;
            sums.packets_lost += stats.packets_lost;
        }
        sums.sent += sent;
        sums.unsent += sent.saturating_sub(in_packets);
        sums.unsettled += self.unsettled;
    }

    /// Sends the messages of the next flow. Returns whether its endpoint accepted any.
    fn take_turn(&mut self, turn: u64, schedule: &Schedule) -> bool {
        let Self { turns, clients, pollers, buffers, payload, .. } = self;
        let Ok(place) = usize::try_from(turn % turns.flows.max(1)) else { return false };
        let Some((client, poller)) = clients.get_mut(place).zip(pollers.get_mut(place / GROUP)) else {
            return false;
        };
        // Without a schedule the next messages are due once the last ones were accepted.
        if schedule.rate > 0.0 || client.due == client.accepted {
            client.due += turns.burst;
        }
        let before = client.accepted;
        turns.send_due(schedule, client, payload);
        client.run(buffers, poller);
        client.accepted > before
    }

    /// Receives, handles timeouts, and sends messages that had to wait.
    fn receive_all(&mut self, schedule: &Schedule) {
        (0..self.pollers.len()).for_each(|group| self.receive_group(group, Duration::ZERO, Some(schedule)));
    }

    /// Waits up to `timeout` for datagrams of a group, and runs every client that received some or has a timeout due. Messages that had
    /// to wait are sent if there is a schedule.
    fn receive_group(&mut self, group: usize, timeout: Duration, schedule: Option<&Schedule>) {
        let Self { turns, clients, pollers, buffers, payload, .. } = self;
        let Some(poller) = pollers.get_mut(group) else { return };
        // A wait that fails ends immediately. Timeouts are handled in any case.
        let ready = poller.poll(Some(timeout)).unwrap_or_default();
        let now_ns = clock::host_ns();
        for (index, client) in clients.iter_mut().skip(group * GROUP).take(GROUP).enumerate() {
            let has_received = ready.readable & (1 << index) != 0;
            if has_received {
                client.receive(buffers);
                if let Some(schedule) = schedule {
                    turns.send_due(schedule, client, payload);
                }
            }
            if has_received || client.due_ns <= now_ns {
                client.run(buffers, poller);
            }
        }
    }

    fn wait(&mut self, until_ns: u64) {
        if let Some(poller) = self.pollers.first_mut() {
            Schedule::wait_until(until_ns, poller);
        }
    }
}

impl Turns {
    /// Sends due messages of one flow until its endpoint is full.
    fn send_due(self, schedule: &Schedule, client: &mut Client, payload: &mut [u8]) {
        while client.accepted < client.due {
            let sequence = client.accepted;
            let Some(options) = self.mode.options(sequence) else { return };
            let stamp = NonZeroU64::new(self.stamp_ns(schedule, client.place, sequence));
            let stamp = stamp.filter(|_| payload.len() >= STAMPED_BYTES);
            let header = Header { id: client.id, flow: client.flow, sequence, stamp };
            // Sizes without room for a header were refused before.
            let _ = datagram::encode(payload, &header);
            let bytes = bytes::Bytes::copy_from_slice(payload);
            match client.endpoint.send(now(), client.server, Message::new(CHANNEL, bytes, options)) {
                Ok(()) => client.accepted += 1,
                Err(SendError::Full) => {
                    client.blocked += 1;
                    return;
                }
                // The connection has ended. `Client::end` has the reason.
                Err(_) => return,
            }
        }
    }

    /// The time at which a message of the flow at this place should leave. The messages of one turn leave together.
    fn stamp_ns(self, schedule: &Schedule, place: u64, sequence: u64) -> u64 {
        let turn = sequence / self.burst * self.flows + place;
        schedule.stamp_ns((turn + 1) * self.burst - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_message_carries_its_intended_time() {
        let mut schedule = Schedule::begin(1e9, Duration::from_secs(1));
        schedule.start_ns = 1_000;
        let stamps = |place, burst| {
            let turns = Turns { mode: Mode::Unreliable, flows: 3, burst };
            [0, 1, 2, 3, 4].map(|sequence| turns.stamp_ns(&schedule, place, sequence) - 1_000)
        };
        assert_eq!(stamps(0, 1), [0, 3, 6, 9, 12]);
        assert_eq!(stamps(2, 1), [2, 5, 8, 11, 14]);
        assert_eq!(stamps(1, 2), [3, 3, 9, 9, 15], "two of each flow in a row, due with the second");
    }
}
