//! One run of the receiver on the control thread: wait for a sender, welcome it, sample the rates, drain the queues,
//! and compare the books. The control thread handles no datagrams.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drumfire_crypto::{Entropy, Secret};
use drumfire_socket::ReuseportGroup;
use drumfire_wire::{RoutingTag, SteeringError, SteeringSecret};

use super::group::WorkerGroup;
use super::outcome::{self, Measured, Outcome};
use super::plan::Plan;
use super::service::{Service, random_bytes};
use super::stages::ThreadBook;
use super::state::{GroupSample, ReceiverSource, Session};
use crate::clock;
use crate::control::{self, ControlPort, Finished, ReceiverEnd, Sealed, Welcome};
use crate::datagram::RouteId;
use crate::error::Error;
use crate::host;
use crate::limits::DESCRIPTORS;
use crate::report::{Scope, per_second, whole};
use crate::table::{live_line, thousands};

/// The interval of the control loop.
const STEP: Duration = Duration::from_millis(20);

/// The interval between samples of the rates.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// How long a sender may take from its hello to its start. It may open thousands of sockets in between.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a sender may take to send its book after it was asked to stop. A sender of messages waits up to 10 s for their acks first.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The reason for refusing a second sender.
const BUSY: &str = "another sender is being served: wait until it is done, or start a second receiver";

/// How long the queues may take to drain after the sender's last datagram.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of attempts to find a free port. The UDP port that the kernel chooses may be in use for TCP.
const PORT_TRIES: u32 = 16;

/// A receiver that is bound and receives, before a sender connected.
pub struct BoundReceiver {
    plan: Plan,
    group: WorkerGroup,
    port: ControlPort,
    generator: IdGenerator,
    service: Option<Service>,
}

impl BoundReceiver {
    /// Binds the group and the control connection to one port and starts the threads.
    ///
    /// # Errors
    /// [`Error::Usage`] with the flag that cannot be used here.
    pub fn open(plan: Plan) -> Result<Self, Error> {
        let threads = plan.threads;
        if threads as usize > ReuseportGroup::MAX_SOCKETS {
            let problem = "threads cannot share a port on this platform";
            return Err(Error::usage(&format!("--threads {threads}"), problem, "give --threads 1"));
        }
        let _ = host::raise_open_files(DESCRIPTORS);
        let generator = IdGenerator::new(threads)
            .map_err(|error| Error::Usage(format!("--threads {threads}: {error}")))?;
        let steering = plan.is_steered().then_some((generator.secret, generator.sockets));
        let service =
            plan.stage.is_sealed().then(|| Service::new(plan.suite, plan.mode, steering)).transpose();
        let service = service.map_err(Error::Usage)?;
        let mut tries = PORT_TRIES;
        loop {
            let group = WorkerGroup::start(&plan, generator.secret.to_bits(), service.as_ref())?;
            match ControlPort::bind(group.address) {
                Ok(port) => return Ok(Self { plan, group, port, generator, service }),
                Err(error) => {
                    group.stop();
                    tries -= 1;
                    if plan.bind.port() != 0 || tries == 0 {
                        return Err(Error::for_bind("--bind", plan.bind, &error));
                    }
                }
            }
        }
    }

    /// The address of the receiver, with its port resolved.
    pub fn address(&self) -> SocketAddr {
        self.group.address
    }

    /// The counters of this receiver, for a control socket or a live view.
    pub(crate) fn source(&self) -> ReceiverSource {
        ReceiverSource::new(Arc::clone(&self.group.shared))
    }

    /// Receives what one sender sends and closes the books with it, until `is_stopped` returns true. `on_note` receives a line per second
    /// of the run, and one about each connection that was refused. Without a sender, datagrams of other programs are noted by name.
    ///
    /// # Errors
    /// [`Error::Thread`] if a thread lost its socket, or [`Error::Run`] if there are no two books to compare.
    pub fn serve(
        mut self,
        on_note: &mut dyn FnMut(&str),
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Outcome, Error> {
        let session = self.session(on_note, is_stopped);
        let Self { plan, group, .. } = self;
        let totals = group.stop();
        for ThreadBook { index, fault, .. } in &totals {
            if let Some(fault) = fault {
                return Err(Error::Thread(format!("receiver thread {index} lost its socket: {fault}")));
            }
        }
        let Some((end, measured)) = session? else {
            for (name, count) in outcome::strays(&totals) {
                on_note(&format!("from other programs: {} {name}", thousands(count)));
            }
            return Err(Error::run(
                "no sender connected: start `sender --to` this address on the other host",
            ));
        };
        let outcome = Outcome::of(&plan, &measured, &totals);
        end.close(&measured.finished, &outcome.report)?;
        Ok(outcome)
    }

    /// Serves one sender. Returns `None` if none came.
    fn session(
        &mut self,
        on_note: &mut dyn FnMut(&str),
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Option<(ReceiverEnd, Measured)>, Error> {
        let Some(mut end) = self.wait_for_sender(on_note, is_stopped) else { return Ok(None) };
        let drops = host::drops();
        let ids = self.generator.ids(end.hello.traffic.load.flows);
        let ids = ids.map_err(|error| Error::Thread(format!("no ids for the flows: {error}")))?;
        // No datagram has been sent yet, so later drops of the kernel belong to this session.
        let mut first = self.group.shared.sample();
        let scope = scope(&end, first.kernel_drops().is_some());
        self.group.begin(Session { ids: Arc::clone(&ids), is_one_host: scope != Scope::TwoHosts });
        end.welcome(Welcome {
            version: control::VERSION,
            ids: ids.to_vec(),
            sealed: self.service.as_ref().map(|service| Sealed {
                public_key: *service.pair().public(),
                suite: self.plan.suite,
                mode: self.plan.mode,
            }),
        })?;
        let has_time = clock::within(START_TIMEOUT);
        end.wait_for_start(|| has_time() && !is_stopped()).map_err(|error| {
            if is_stopped() { Error::run("stopped before the sender began: start both again") } else { error }
        })?;
        let started = clock::now();
        let host_start_ns = clock::host_ns();
        // A spinning thread used CPU time while the sender opened its sockets. That time is not part of the window.
        first.cpu = self.group.shared.cpu();
        let ticks = host::cpu_ticks();
        let mut sampler = RateSampler::new(started, first.clone());
        let finished = self.watch_session(&mut end, on_note, is_stopped, &mut sampler, started)?;
        let last = self.drain(scope);
        let window = Duration::from_nanos(self.group.last_receive_ns().saturating_sub(host_start_ns));
        // The silence after the last datagram belongs to no rate.
        sampler.finish(started + window, last.clone(), on_note);
        let steal = host::cpu_ticks().zip(ticks).and_then(|(now, then)| now.steal_share_since(&then));
        let measured = Measured {
            traffic: end.hello.traffic.clone(),
            finished,
            scope,
            window,
            first,
            last,
            rates: sampler.rates,
            granted: self.group.granted(),
            host_drops: host::growth(&drops, host::drops()),
            steal_share: steal,
        };
        Ok(Some((end, measured)))
    }

    /// Waits for the first sender whose hello is valid.
    fn wait_for_sender(
        &mut self,
        on_note: &mut dyn FnMut(&str),
        is_stopped: &dyn Fn() -> bool,
    ) -> Option<ReceiverEnd> {
        let has_time = self.plan.secs.map(clock::within);
        while !is_stopped() && has_time.as_ref().is_none_or(|has_time| has_time()) {
            let end = self.port.next_sender(clock::now(), on_note);
            if end.is_some() {
                return end;
            }
            clock::pause(STEP);
        }
        None
    }

    /// Waits for the sender's book and samples the rates. Other senders are refused. A run that is stopped or takes too long asks
    /// the sender to stop.
    fn watch_session(
        &mut self,
        end: &mut ReceiverEnd,
        on_note: &mut dyn FnMut(&str),
        is_stopped: &dyn Fn() -> bool,
        sampler: &mut RateSampler,
        started: Instant,
    ) -> Result<Finished, Error> {
        let Self { group, port, plan, .. } = self;
        let mut watch = |end: &mut ReceiverEnd, is_over: &dyn Fn(Instant) -> bool| {
            end.wait_for_finish(|| {
                let now = clock::now();
                if now >= sampler.due {
                    sampler.sample(now, group.shared.sample(), on_note);
                }
                port.refuse_all(now, BUSY);
                !is_over(now)
            })
        };
        let deadline = plan.secs.map(|time| started + time);
        let is_over = |now| deadline.is_some_and(|deadline| now >= deadline) || is_stopped();
        if let Some(finished) = watch(end, &is_over)? {
            return Ok(finished);
        }
        end.stop()?;
        let has_time = clock::within(STOP_TIMEOUT);
        watch(end, &|_| !has_time())?.ok_or_else(|| control::timed_out("finished"))
    }

    /// Waits until the queues are empty and no more datagrams arrive. The CPU time is read when the last datagram arrived,
    /// because spinning in the silence after it is not part of the window.
    fn drain(&mut self, scope: Scope) -> GroupSample {
        // Only on one host whose queues are visible does an empty queue prove that no datagram is under way.
        let quiet_for = if scope == Scope::OneHost { STEP } else { STEP * 15 };
        let has_time = clock::within(DRAIN_TIMEOUT);
        let mut last = self.group.shared.sample();
        let mut cpu = last.cpu.clone();
        let mut quiet_since = clock::now();
        loop {
            clock::pause(Duration::from_millis(2));
            let sample = self.group.shared.sample();
            let now = clock::now();
            if sample.received != last.received || !sample.is_drained() {
                quiet_since = now;
                cpu.clone_from(&sample.cpu);
            }
            last = sample;
            if now.saturating_duration_since(quiet_since) >= quiet_for || !has_time() {
                return GroupSample { cpu, ..last };
            }
        }
    }
}

/// Finds out whether one kernel handles every datagram: both sides name the same one, or the connection uses the loopback.
fn scope(end: &ReceiverEnd, has_drop_counts: bool) -> Scope {
    let kernel_id = &end.hello.kernel_id;
    let is_one_host = end.peer.ip().to_canonical().is_loopback()
        || !kernel_id.is_empty() && *kernel_id == host::kernel_id();
    match (is_one_host, has_drop_counts) {
        (false, _) => Scope::TwoHosts,
        (true, true) => Scope::OneHost,
        (true, false) => Scope::OneHostUncounted,
    }
}

/// Draws the ids of a sender's flows. Their routing tags spread the flows evenly over the sockets.
struct IdGenerator {
    secret: SteeringSecret,
    sockets: NonZeroU16,
    entropy: Entropy,
}

impl IdGenerator {
    /// Draws a secret for a group of 1 to 1,024 sockets.
    fn new(sockets: u32) -> Result<Self, String> {
        let sockets = u16::try_from(sockets).ok().and_then(NonZeroU16::new);
        let sockets = sockets.ok_or_else(|| SteeringError::TooManySockets.to_string())?;
        let mut entropy = Entropy::from_seed(Secret::new(random_bytes()?));
        let secret = SteeringSecret::draw(sockets, || u32::from_be_bytes(entropy.bytes()));
        Ok(Self { secret: secret.map_err(|error| error.to_string())?, sockets, entropy })
    }

    /// Draws one id per flow. Flow `i` goes to socket `i` modulo the number of sockets, if tags steer.
    fn ids(&mut self, flows: u32) -> Result<Arc<[RouteId]>, SteeringError> {
        let Self { secret, sockets, entropy } = self;
        let id = |socket: u16| -> Result<RouteId, SteeringError> {
            let mut id: [u8; 8] = entropy.bytes();
            // Candidates for a tag have to be random. The filter multiplies, so evenly spaced tags may never reach some sockets.
            let RoutingTag(tag) = secret.tag_for(socket, *sockets, || u16::from_be_bytes(entropy.bytes()))?;
            id[..2].copy_from_slice(&tag.to_be_bytes());
            Ok(RouteId(id))
        };
        (0..sockets.get()).cycle().take(flows as usize).map(id).collect()
    }
}

/// Makes samples from the counters of all threads, one for each interval.
struct RateSampler {
    due: Instant,
    /// The last sample, and its time.
    before: (Instant, GroupSample),
    /// Packets per second by thread, for each interval.
    rates: Vec<Vec<u64>>,
}

impl RateSampler {
    fn new(now: Instant, sample: GroupSample) -> Self {
        Self { due: now + SAMPLE_INTERVAL, before: (now, sample), rates: Vec::new() }
    }

    fn sample(&mut self, now: Instant, sample: GroupSample, on_note: &mut dyn FnMut(&str)) {
        let (then, before) = &self.before;
        let elapsed = now.saturating_duration_since(*then).as_secs_f64();
        let news = sample.received.iter().zip(&before.received);
        let drops = sample.kernel_drops().zip(before.kernel_drops());
        let drops = drops.map(|(now, then)| now.saturating_sub(then));
        let rate = |count| whole(per_second(count, elapsed).round());
        let rates: Vec<u64> = news.map(|(now, then)| rate(now.saturating_sub(*then))).collect();
        on_note(&live_line(self.rates.len() as u64, &rates, drops));
        self.rates.push(rates);
        self.before = (now, sample);
        self.due += SAMPLE_INTERVAL;
    }

    /// Adds the last, shorter interval if it is at least half of a whole one, or the only one. A rate over less says little.
    fn finish(&mut self, now: Instant, sample: GroupSample, on_note: &mut dyn FnMut(&str)) {
        if self.rates.is_empty() || now.saturating_duration_since(self.before.0) >= SAMPLE_INTERVAL / 2 {
            self.sample(now, sample, on_note);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;

    #[test]
    fn flows_go_round_the_sockets_and_share_no_id() {
        // The search for a tag has to end with every secret, so the test draws hundreds of them.
        for sockets in [1, 6, 16].into_iter().chain([4; 300]) {
            let mut generator = IdGenerator::new(sockets).unwrap();
            let ids = generator.ids(96).unwrap();
            let mut flows = vec![0; sockets as usize];
            for id in ids.iter() {
                let tag = RoutingTag(u16::from_be_bytes([id.0[0], id.0[1]]));
                let socket = generator.secret.socket_for(tag, generator.sockets);
                flows[usize::from(socket)] += 1;
            }
            assert_eq!(flows, vec![96 / sockets; sockets as usize]);
            let distinct: std::collections::HashSet<_> = ids.iter().collect();
            assert_eq!(distinct.len(), ids.len());
        }
    }

    /// The rates of a run with one thread. Each pair is a time in milliseconds and the datagrams received until then. The last
    /// time is the end of the run.
    fn rates(looks: &[(u64, u64)]) -> Vec<Vec<u64>> {
        let sample = |received| GroupSample { received: vec![received], queues: Vec::new(), cpu: Vec::new() };
        let start = clock::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut sampler = RateSampler::new(start, sample(0));
        let (end, seconds) = looks.split_last().expect("a run has an end");
        for (millis, received) in seconds {
            assert!(at(*millis) >= sampler.due);
            sampler.sample(at(*millis), sample(*received), &mut |_| {});
        }
        sampler.finish(at(end.0), sample(end.1), &mut |_| {});
        sampler.rates
    }

    #[test]
    fn a_last_part_counts_as_a_rate_from_half_a_second_on() {
        let two = [vec![700], vec![900]];
        assert_eq!(rates(&[(1_000, 700), (2_000, 1_600), (2_499, 1_999)]), two, "too short to say much");
        let three = rates(&[(1_000, 700), (2_000, 1_600), (2_500, 1_900)]);
        assert_eq!(three.last(), Some(&vec![600]), "300 datagrams in half a second");
    }

    #[test]
    fn a_run_shorter_than_half_a_second_has_one_rate() {
        assert_eq!(rates(&[(100, 30)]), [vec![300]]);
    }
}
