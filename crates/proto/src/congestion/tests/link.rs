//! A bottleneck in virtual time: one queue that drops at its tail, flows that share it, and a peer for each that acks
//! rarely. Acks come back over a path that loses and delays none.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::super::{AckSummary, Congestion, LossSummary, Rate};
use crate::limits::ROUND_TRIP_INITIAL;
use crate::rtt::RoundTrip;
use crate::time::Moment;

/// The window alone limits the bytes in flight.
pub(super) const UNLIMITED: std::ops::RangeInclusive<u32> = u32::MAX..=u32::MAX;

pub(super) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(super) fn at(milliseconds: u64) -> Moment {
    Moment::ORIGIN.after(ms(milliseconds))
}

/// The path of all flows.
#[derive(Debug, Clone)]
pub(super) struct SimulatedLink {
    pub(super) bytes_per_second: u64,
    pub(super) buffer_bytes: u64,
    /// The round trip without the time in the queue and the transmission time.
    pub(super) round_trip: Duration,
    /// The packets that are lost at random, in thousandths.
    pub(super) loss_per_mille: u64,
    /// Each packet is delayed by up to this time. The order does not change.
    pub(super) jitter: Duration,
    /// All packets that are sent during this time are lost.
    pub(super) outage: std::ops::Range<Moment>,
    /// An ack is sent after this many packets, or after this time.
    pub(super) ack_packets: u64,
    pub(super) ack_delay: Duration,
}

impl SimulatedLink {
    pub(super) fn new(megabits: u64, round_trip: Duration, buffer: Duration) -> Self {
        let bytes_per_second = megabits * 125_000;
        let buffer_bytes = bytes_per_second * u64::try_from(buffer.as_millis()).unwrap() / 1_000;
        Self {
            bytes_per_second,
            buffer_bytes,
            round_trip,
            loss_per_mille: 0,
            jitter: ms(0),
            outage: at(0)..at(0),
            ack_packets: 8,
            ack_delay: ms(12),
        }
    }
}

/// The settings of a flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub(super) choice: Congestion,
    pub(super) from: Moment,
    pub(super) packet_bytes: u64,
    /// Packets per second; `None` for as many as the controller permits.
    pub(super) rate: Option<u64>,
}

impl Source {
    pub(super) const fn bulk(choice: Congestion) -> Self {
        Self { choice, from: Moment::ORIGIN, packet_bytes: 1_200, rate: None }
    }

    pub(super) const fn game(choice: Congestion) -> Self {
        Self { choice, from: Moment::ORIGIN, packet_bytes: 200, rate: Some(60) }
    }

    pub(super) fn after(self, delay: Duration) -> Self {
        Self { from: Moment::ORIGIN.after(delay), ..self }
    }

    pub(super) const fn of(self, packet_bytes: u64) -> Self {
        Self { packet_bytes, ..self }
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimEvent {
    Arrive { flow: usize, number: u64 },
    SendAck { flow: usize, count: u64 },
    Ack { flow: usize, numbers: Vec<u64>, delay: Duration },
    Produce { flow: usize },
    Wake { flow: usize },
}

#[derive(Debug)]
struct Sent {
    at: Moment,
    is_settled: bool,
}

/// One sender and its receiver.
#[derive(Debug)]
pub(super) struct Flow {
    source: Source,
    pub(super) rate: Rate,
    /// The number of the first packet in `sent`.
    first: u64,
    sent: VecDeque<Sent>,
    in_flight_bytes: u64,
    waiting: u64,
    trip: RoundTrip,
    progress_at: Moment,
    woken_for: Moment,
    received: Vec<u64>,
    received_at: Moment,
    acks_sent: u64,
    last_arrival: Moment,
    /// The times at which packets arrived, and the time that each waited in the queue.
    pub(super) arrivals: Vec<(Moment, Duration)>,
    /// Packets that could not be sent when the application produced them.
    pub(super) blocked: u64,
    pub(super) lost: u64,
    pub(super) windows: Vec<(Moment, u64)>,
    sent_at: Vec<Moment>,
}

/// Flows that share a link, in virtual time.
#[derive(Debug)]
pub(super) struct Simulation {
    pub(super) link: SimulatedLink,
    now: Moment,
    free_at: Moment,
    events: BinaryHeap<Reverse<(Moment, u64, SimEvent)>>,
    event_count: u64,
    pub(super) flows: Vec<Flow>,
    random: u64,
}

impl Simulation {
    pub(super) fn new(link: SimulatedLink, sources: &[Source]) -> Self {
        let now = Moment::ORIGIN;
        let mut sim = Self {
            link,
            now,
            free_at: now,
            events: BinaryHeap::new(),
            event_count: 0,
            flows: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15,
        };
        for (flow, &source) in sources.iter().enumerate() {
            sim.flows.push(Flow::new(source));
            let first =
                if source.rate.is_some() { SimEvent::Produce { flow } } else { SimEvent::Wake { flow } };
            sim.schedule(source.from, first);
        }
        sim
    }

    /// Runs until this time.
    pub(super) fn run(&mut self, until: Duration) -> &mut Self {
        let end = Moment::ORIGIN.after(until);
        while let Some(Reverse((moment, _, _))) = self.events.peek()
            && *moment <= end
            && let Some(Reverse((moment, _, what))) = self.events.pop()
        {
            self.now = moment;
            self.handle(what);
        }
        self
    }

    /// The part of the link that was used between two times, in thousandths.
    pub(super) fn utilisation(&self, seconds: std::ops::Range<u64>) -> u64 {
        let all: u64 = (0..self.flows.len()).map(|flow| self.delivered(flow, seconds.clone())).sum();
        all * 1_000 / (self.link.bytes_per_second * (seconds.end - seconds.start))
    }

    /// Bytes of a flow that arrived between two times.
    pub(super) fn delivered(&self, flow: usize, seconds: std::ops::Range<u64>) -> u64 {
        let flow = &self.flows[flow];
        let range = at(seconds.start * 1_000)..at(seconds.end * 1_000);
        let count = flow.arrivals.iter().filter(|(when, _)| range.contains(when)).count();
        u64::try_from(count).unwrap() * flow.source.packet_bytes
    }

    /// The delay in milliseconds that all but `thousandths` of the packets stayed below.
    pub(super) fn queue_millis(&self, flow: usize, seconds: std::ops::Range<u64>, per_mille: usize) -> u64 {
        let range = at(seconds.start * 1_000)..at(seconds.end * 1_000);
        let arrivals = self.flows[flow].arrivals.iter();
        let mut waits: Vec<_> =
            arrivals.filter(|(when, _)| range.contains(when)).map(|&(_, wait)| wait).collect();
        waits.sort_unstable();
        waits.get(waits.len() * per_mille / 1_000).map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap())
    }

    fn schedule(&mut self, moment: Moment, what: SimEvent) {
        self.event_count += 1;
        self.events.push(Reverse((moment, self.event_count, what)));
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    fn handle(&mut self, what: SimEvent) {
        match what {
            SimEvent::Arrive { flow, number } => self.on_arrival(flow, number),
            SimEvent::SendAck { flow, count } => {
                if self.flows[flow].acks_sent == count {
                    self.send_ack(flow);
                }
            }
            SimEvent::Ack { flow, numbers, delay } => {
                self.flows[flow].on_ack(self.now, &numbers, delay);
                self.fill(flow);
            }
            SimEvent::Produce { flow } => {
                let rate = self.flows[flow].source.rate.unwrap();
                self.flows[flow].waiting += 1;
                self.fill(flow);
                self.flows[flow].blocked += self.flows[flow].waiting;
                self.schedule(
                    self.now.after(Duration::from_nanos(1_000_000_000 / rate)),
                    SimEvent::Produce { flow },
                );
            }
            SimEvent::Wake { flow } => {
                if self.flows[flow].woken_for <= self.now {
                    self.fill(flow);
                }
            }
        }
    }

    /// Sends what may be sent, and schedules the next call.
    fn fill(&mut self, flow: usize) {
        let now = self.now;
        if self.flows[flow].probe_at() <= now && self.flows[flow].in_flight_bytes > 0 {
            self.flows[flow].progress_at = now;
            self.send(flow);
        }
        while self.flows[flow].has_data() && {
            let sender = &self.flows[flow];
            sender.in_flight_bytes < sender.rate.window_bytes() && sender.rate.may_send_after(now, 0)
        } {
            self.flows[flow].waiting = self.flows[flow].waiting.saturating_sub(1);
            self.send(flow);
        }
        let sender = &mut self.flows[flow];
        let window = sender.rate.window_bytes();
        if sender.windows.last().is_none_or(|&(_, last)| last != window) {
            sender.windows.push((now, window));
        }
        let may = sender.in_flight_bytes < window && sender.has_data();
        let wake = sender.probe_at().min(sender.rate.next_at(now).filter(|_| may).unwrap_or(Moment::LAST));
        sender.woken_for = wake;
        self.schedule(wake.max(now.after(Duration::from_micros(10))), SimEvent::Wake { flow });
    }

    fn send(&mut self, flow: usize) {
        let now = self.now;
        let sender = &mut self.flows[flow];
        let bytes = sender.source.packet_bytes;
        let number = sender.first + u64::try_from(sender.sent.len()).unwrap();
        if sender.in_flight_bytes == 0 {
            sender.progress_at = now;
        }
        sender.sent.push_back(Sent { at: now, is_settled: false });
        sender.sent_at.push(now);
        sender.in_flight_bytes += bytes;
        sender.rate.on_sent(now, bytes);
        let wait = self.free_at.since(now);
        let queued = u64::try_from(wait.as_nanos()).unwrap() * self.link.bytes_per_second / 1_000_000_000;
        let is_lost = self.link.outage.contains(&now) || self.random(1_000) < self.link.loss_per_mille;
        if queued + bytes > self.link.buffer_bytes.max(bytes) || is_lost {
            return;
        }
        let transmission = Duration::from_nanos(bytes * 1_000_000_000 / self.link.bytes_per_second);
        self.free_at = self.free_at.max(now).after(transmission);
        let jitter = Duration::from_nanos(self.random(u64::try_from(self.link.jitter.as_nanos()).unwrap()));
        let arrival = self.free_at.after(self.link.round_trip / 2).after(jitter);
        let sender = &mut self.flows[flow];
        let arrival = arrival.max(sender.last_arrival);
        sender.last_arrival = arrival;
        sender.arrivals.push((arrival, wait));
        self.schedule(arrival, SimEvent::Arrive { flow, number });
    }

    fn on_arrival(&mut self, flow: usize, number: u64) {
        let receiver = &mut self.flows[flow];
        receiver.received.push(number);
        receiver.received_at = self.now;
        if u64::try_from(receiver.received.len()).unwrap() >= self.link.ack_packets {
            self.send_ack(flow);
        } else if receiver.received.len() == 1 {
            let count = receiver.acks_sent;
            self.schedule(self.now.after(self.link.ack_delay), SimEvent::SendAck { flow, count });
        }
    }

    fn send_ack(&mut self, flow: usize) {
        let receiver = &mut self.flows[flow];
        receiver.acks_sent += 1;
        let numbers = std::mem::take(&mut receiver.received);
        let delay = self.now.since(receiver.received_at);
        self.schedule(self.now.after(self.link.round_trip / 2), SimEvent::Ack { flow, numbers, delay });
    }
}

impl Flow {
    fn new(source: Source) -> Self {
        Self {
            source,
            rate: Rate::new(source.choice, &UNLIMITED),
            first: 0,
            sent: VecDeque::new(),
            in_flight_bytes: 0,
            waiting: 0,
            trip: RoundTrip::default(),
            progress_at: source.from,
            woken_for: source.from,
            received: Vec::new(),
            received_at: source.from,
            acks_sent: 0,
            last_arrival: source.from,
            arrivals: Vec::new(),
            blocked: 0,
            lost: 0,
            windows: Vec::new(),
            sent_at: Vec::new(),
        }
    }

    /// The bytes that were sent between two times, in seconds.
    pub(super) fn sent_bytes(&self, seconds: std::ops::Range<u64>) -> u64 {
        let range = at(seconds.start * 1_000)..at(seconds.end * 1_000);
        let count = self.sent_at.iter().filter(|when| range.contains(when)).count();
        u64::try_from(count).unwrap() * self.source.packet_bytes
    }

    const fn has_data(&self) -> bool {
        self.source.rate.is_none() || self.waiting > 0
    }

    fn probe_at(&self) -> Moment {
        let timeout =
            self.trip.measured().map_or(ROUND_TRIP_INITIAL * 3, |_| self.trip.probe_timeout(ms(25)));
        if self.in_flight_bytes > 0 { self.progress_at.after(timeout) } else { Moment::LAST }
    }

    /// Acts as `loss` does: settles packets, takes a sample, updates the controller, and finds losses.
    fn on_ack(&mut self, now: Moment, numbers: &[u64], delay: Duration) {
        let largest = *numbers.iter().max().unwrap();
        let (mut bytes, mut newest) = (0, None);
        for &number in numbers {
            let Some(index) = number.checked_sub(self.first) else { continue };
            let sent = &mut self.sent[usize::try_from(index).unwrap()];
            if !sent.is_settled {
                sent.is_settled = true;
                bytes += self.source.packet_bytes;
                newest = newest.max(Some(sent.at));
            }
        }
        self.in_flight_bytes -= bytes;
        self.progress_at = now;
        let Some(sent_at) = newest else { return };
        self.trip.on_sample(now.since(sent_at), delay);
        let round_trip = now.since(sent_at).saturating_sub(delay);
        let is_app_limited = !self.has_data();
        let smoothed = self.trip.smoothed();
        let is_count_limited = false;
        self.rate.on_acked(&AckSummary {
            now,
            bytes,
            sent_at,
            round_trip,
            smoothed,
            is_app_limited,
            is_count_limited,
        });
        self.rate.assert_invariants();
        self.find_lost(now, largest);
        while self.sent.front().is_some_and(|sent| sent.is_settled) {
            self.sent.pop_front();
            self.first += 1;
        }
    }

    fn find_lost(&mut self, now: Moment, largest: u64) {
        let (mut bytes, mut span) = (0, None::<(Moment, Moment)>);
        for (number, sent) in (self.first..largest).zip(&mut self.sent) {
            let is_late = now.since(sent.at) >= self.trip.loss_delay();
            if !sent.is_settled && (number + 3 <= largest || is_late) {
                sent.is_settled = true;
                bytes += self.source.packet_bytes;
                self.lost += 1;
                span = Some((span.map_or(sent.at, |(oldest, _)| oldest), sent.at));
            }
        }
        self.in_flight_bytes -= bytes;
        if let Some((oldest, sent_at)) = span {
            let is_persistent = sent_at.since(oldest) > self.trip.probe_timeout(ms(25)) * 3;
            self.rate.on_lost(&LossSummary { now, bytes, sent_at, is_persistent });
            self.rate.assert_invariants();
        }
    }
}
