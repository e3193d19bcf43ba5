//! Gathering in virtual time: the receive calls for a rate, the maximum wait of a datagram, and the return to the poll. The
//! tests count system calls. The cost of a real wake-up is measured by a benchmark.
#![cfg(all(target_os = "linux", not(feature = "portable")))]

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use drumfire_socket::{
    Drain, Fault, Gro, Io, Outgoing, Parker, Ready, Receiver, ReceiverConfig, RecvBatch, SendMode, Wait,
    WaitEnd, Waiter,
};

const SECOND: Duration = Duration::from_secs(1);

/// The virtual time, shared by socket, parker, and worker.
type Clock = Rc<Cell<Duration>>;

/// A socket whose datagrams arrive on a schedule. Each carries its time of arrival.
struct Schedule {
    clock: Clock,
    arrivals: VecDeque<Duration>,
}

impl Schedule {
    fn has_datagrams(&self) -> bool {
        self.arrivals.front().is_some_and(|&arrival| arrival <= self.clock.get())
    }
}

impl Io for Schedule {
    fn recv(&mut self, batch: &mut RecvBatch) -> Result<(), Fault> {
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        while let Some(&arrival) = self.arrivals.front().filter(|&&arrival| arrival <= self.clock.get()) {
            let nanos = u64::try_from(arrival.as_nanos()).expect("a short run");
            if !batch.put(from, &nanos.to_be_bytes(), None) {
                break;
            }
            self.arrivals.pop_front();
        }
        if batch.filled() == 0 { Err(Fault::WouldBlock) } else { Ok(()) }
    }

    fn send(&mut self, _: &mut Outgoing<'_>, _: SendMode) -> Result<usize, Fault> {
        Err(Fault::Other)
    }

    fn is_emptied_by_short_batch(&self) -> bool {
        true
    }

    fn enable_gro(&mut self) -> bool {
        false
    }
}

/// Waits by advancing the clock. A poll ends when the next datagram arrives.
struct Sleeper<'a> {
    clock: &'a Clock,
    schedule: &'a Schedule,
    polls: u64,
    sleeps: u64,
}

impl Parker for Sleeper<'_> {
    fn poll(&mut self, timeout: Option<Duration>) -> Result<Ready, Fault> {
        self.polls += 1;
        let now = self.clock.get();
        let next = self.schedule.arrivals.front().map_or(Duration::MAX, |&arrival| arrival.max(now));
        let until = timeout.map_or(next, |timeout| next.min(now + timeout));
        if until < Duration::MAX {
            self.clock.set(until);
        }
        Ok(Ready { readable: u64::from(self.schedule.has_datagrams()), ..Ready::default() })
    }

    fn sleep(&mut self, duration: Duration) {
        self.sleeps += 1;
        self.clock.set(self.clock.get() + duration);
    }
}

/// The results of a run.
#[derive(Debug, Default)]
struct Cost {
    datagrams: u64,
    calls: u64,
    polls: u64,
    sleeps: u64,
    /// The maximum time between the arrival of a datagram and its delivery.
    longest_wait: Duration,
    /// The time of the last delivery.
    last_delivery: Duration,
    /// The time of the first poll after the last delivery.
    first_poll_after: Option<Duration>,
}

/// Runs a worker's loop over the schedule, until every datagram is delivered and the worker polls again.
fn run(wait: Wait, arrivals: impl Iterator<Item = Duration>, timer: Option<Duration>) -> Cost {
    let clock = Clock::default();
    let mut schedule = Schedule { clock: Rc::clone(&clock), arrivals: arrivals.collect() };
    let config = ReceiverConfig::default().drain(Drain::Recvmmsg).gro(Gro::Off);
    let mut receiver = Receiver::new(&mut schedule, &config).expect("a receiver");
    let mut waiter = Waiter::new(wait).expect("in range");
    let mut cost = Cost::default();
    let mut is_more_waiting = false;
    loop {
        let is_delivered = schedule.arrivals.is_empty();
        let mut sleeper = Sleeper { clock: &clock, schedule: &schedule, polls: 0, sleeps: 0 };
        let woken = waiter.wait(&mut sleeper, timer, is_more_waiting).expect("a wait");
        cost.polls += sleeper.polls;
        cost.sleeps += sleeper.sleeps;
        if is_delivered && matches!(woken, WaitEnd::Polled(_)) {
            cost.first_poll_after = Some(clock.get());
            break;
        }
        let now = clock.get();
        let mut datagrams = 0;
        let end = receiver.drain(&mut schedule, 1_024, |received| {
            for datagram in received.datagrams() {
                let nanos = u64::from_be_bytes(datagram.bytes.try_into().expect("eight bytes"));
                cost.longest_wait = cost.longest_wait.max(now - Duration::from_nanos(nanos));
                cost.last_delivery = now;
                datagrams += 1;
            }
        });
        is_more_waiting = end.is_more_waiting();
        waiter.on_pass(now, datagrams);
    }
    cost.datagrams = receiver.counts().datagrams;
    cost.calls = receiver.counts().calls;
    cost
}

/// Returns the arrivals of a steady stream with `per_second` datagrams for `length`.
fn stream(per_second: u32, length: Duration) -> impl Iterator<Item = Duration> {
    let gap = SECOND / per_second;
    (1..).map(move |number| gap * number).take_while(move |&arrival| arrival <= length)
}

const GATHER: Wait = Wait::Gather(Wait::GATHER);

#[test]
fn at_250_kpps_one_receive_call_serves_at_least_four_datagrams() {
    let gathered = run(GATHER, stream(250_000, SECOND), None);
    let notified = run(Wait::Notify, stream(250_000, SECOND), None);
    println!("gather: {gathered:?}");
    println!("notify: {notified:?}");
    assert_eq!((gathered.datagrams, notified.datagrams), (250_000, 250_000));
    assert!(gathered.calls * 4 <= gathered.datagrams, "{gathered:?}");
    // Waits are system calls too.
    let system_calls = gathered.calls + gathered.polls + gathered.sleeps;
    assert!(system_calls * 4 <= gathered.datagrams, "{gathered:?}");
    assert_eq!(notified.sleeps, 0);
    assert!(notified.polls > gathered.polls * 100);
}

#[test]
fn no_datagram_waits_longer_than_the_gathering_time() {
    for micros in [50, 130, 500, 2_000, 10_000] {
        let time = Duration::from_micros(micros);
        for per_second in [500, 1_000, 10_000, 30_000, 50_000, 100_000, 250_000, 1_000_000] {
            let cost = run(Wait::Gather(time), stream(per_second, SECOND / 4), None);
            assert_eq!(cost.datagrams, u64::from(per_second / 4));
            assert!(cost.longest_wait <= time, "{per_second} pps, {time:?}: {cost:?}");
        }
    }
}

#[test]
fn uneven_traffic_has_the_same_maximum_wait() {
    // Bursts of 1 to 300 datagrams with 20 us to 5 ms of silence between them.
    let mut time = Duration::ZERO;
    let arrivals = (0..2_000_u64).flat_map(|burst| {
        time += Duration::from_micros(20 + burst * burst * 7_919 % 5_000);
        std::iter::repeat_n(time, usize::try_from(1 + burst * 31 % 300).expect("a small number"))
    });
    let cost = run(GATHER, arrivals, None);
    assert_eq!(cost.datagrams, (0..2_000_u64).map(|burst| 1 + burst * 31 % 300).sum::<u64>());
    assert!(cost.longest_wait <= Wait::GATHER, "{cost:?}");
}

#[test]
fn at_10_kpps_the_waiter_does_not_gather() {
    let cost = run(GATHER, stream(10_000, SECOND), None);
    assert_eq!((cost.sleeps, cost.longest_wait), (0, Duration::ZERO));
    assert_eq!(cost.datagrams, 10_000);
}

#[test]
fn silence_returns_to_the_poll_within_one_gathering_time() {
    for length in (100..110).map(|millis| Duration::from_millis(millis) + Duration::from_micros(millis)) {
        let cost = run(GATHER, stream(250_000, length), None);
        assert!(cost.sleeps > 0);
        let back = cost.first_poll_after.expect("it polls in the end") - cost.last_delivery;
        assert!(back <= Wait::GATHER, "{back:?}");
    }
}

#[test]
fn traffic_after_silence_gathers_again() {
    let again = Duration::from_secs(2);
    let arrivals = stream(250_000, SECOND).chain(stream(250_000, SECOND).map(|arrival| arrival + again));
    let once = run(GATHER, stream(250_000, SECOND), None);
    let twice = run(GATHER, arrivals, None);
    assert_eq!(twice.datagrams, once.datagrams * 2);
    assert!(twice.sleeps >= once.sleeps * 2 - 2, "{} sleeps, {} sleeps", once.sleeps, twice.sleeps);
    assert!(twice.calls * 4 <= twice.datagrams);
}

#[test]
fn a_timer_limits_the_wait_and_loses_no_datagram() {
    for timer in [Duration::from_micros(1), Duration::from_micros(40), Duration::from_millis(3)] {
        let length = SECOND / 20;
        let cost = run(GATHER, stream(250_000, length), Some(timer));
        assert_eq!(cost.datagrams, 12_500);
        assert!(cost.longest_wait <= timer.min(Wait::GATHER), "{timer:?}: {cost:?}");
    }
}
