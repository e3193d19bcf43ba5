//! Waiting for datagrams: by notification, by gathering, or not at all.
//!
//! Below saturation, waking the thread costs more than the receive call. Gathering sleeps for a short fixed time while
//! traffic flows, and then drains all sockets, so that one wake-up serves many datagrams. When traffic thins out, the
//! thread returns to notification. [`Waiter`] takes the time as an argument, and waits through the [`Parker`] contract:
//! tests and the simulator replace the poll and the clock.

use std::time::Duration;

use crate::error::{ConfigError, Fault};
use crate::sys;

/// The sockets that became ready during a wait, by the index that each one was registered with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// The sockets that may be readable. Bit n is the socket with index n.
    pub readable: u64,
    /// The sockets that may be writable. Bit n is the socket with index n.
    pub writable: u64,
    /// Whether the waker was called.
    pub is_woken: bool,
}

/// The way a worker's thread waits. Every method is at most one system call.
pub trait Parker {
    /// Waits until a socket is ready, the waker is called, or `timeout` has passed. `None` waits indefinitely.
    ///
    /// # Errors
    ///
    /// The fault of the wait itself. An interrupted wait is not an error: no socket is ready.
    fn poll(&mut self, timeout: Option<Duration>) -> Result<Ready, Fault>;

    /// Sleeps for `duration`, even if datagrams arrive.
    fn sleep(&mut self, duration: Duration);
}

/// The way in which a thread waits for datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Wait {
    /// The thread sleeps until the first datagram arrives.
    Notify,
    /// While traffic is low, the thread sleeps until the first datagram arrives. Under load, it sleeps for this time
    /// before each drain, 1 us to 10 ms, so that datagrams gather and one call reads many of them.
    Gather(#[cfg_attr(feature = "serde", serde(with = "crate::duration_text"))] Duration),
    /// The thread never sleeps, and uses a whole core. Use it on cores that do nothing else.
    Spin,
}

impl Wait {
    /// The gathering time that suits most servers.
    pub const GATHER: Duration = Duration::from_micros(130);

    /// Returns the best strategy of this platform: gathering if threads can sleep for microseconds, else notification.
    #[must_use]
    pub const fn best() -> Self {
        if sys::HAS_FINE_SLEEP { Self::Gather(Self::GATHER) } else { Self::Notify }
    }
}

impl std::fmt::Display for Wait {
    /// Writes `notify`, `gather=` with the time in microseconds, or `spin`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Notify => f.write_str("notify"),
            Self::Gather(time) => write!(f, "gather={}", time.as_micros()),
            Self::Spin => f.write_str("spin"),
        }
    }
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The poll returned: drain the sockets that it names.
    Polled(Ready),
    /// The gathering time has passed: drain every socket.
    Gathered,
    /// There was no wait: drain every socket.
    Spun,
}

/// Gathering starts when at least this many datagrams are expected in one gathering time.
///
/// Measured at 2.6, with 2,000 clients that send ten messages a second each. A server takes 18.4 us of CPU time for a
/// message with notification, and 11.0 us with gathering.
const GATHER_FROM: f64 = 2.4;

/// Gathering stops when fewer than this many datagrams are expected in one gathering time.
///
/// Measured at 1.6, with 100 clients that send 60 reliable messages a second each. Gathering saves no CPU time, and
/// delays each message.
const GATHER_UNTIL: f64 = 2.0;

/// The rate is measured over at least this time. At the lowest rate that starts gathering, its error is then a tenth
/// instead of a quarter.
const RATE_WINDOW: Duration = Duration::from_millis(5);

/// Spinning passes between two polls. Only a poll reports wake-ups and writable sockets.
const SPINS_PER_POLL: u32 = 64;

/// Carries out a [`Wait`] strategy for one thread.
#[derive(Debug)]
pub struct Waiter {
    wait: Wait,
    /// The number of passes since the last poll, while spinning.
    spins: u32,

    // Gathering.
    is_gathering: bool,
    /// The time of the first pass in the current rate window. `None` until a pass starts one.
    window_start: Option<Duration>,
    /// Datagrams received in the current rate window.
    window_datagrams: u64,
}

impl Waiter {
    /// Returns a waiter with this strategy.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the gathering time is out of range, or the platform cannot sleep for such a short time.
    pub fn new(wait: Wait) -> Result<Self, ConfigError> {
        if let Wait::Gather(time) = wait {
            if !(Duration::from_micros(1)..=Duration::from_millis(10)).contains(&time) {
                return Err(ConfigError::new("wait", "gathers for 1 us to 10 ms"));
            }
            if !sys::HAS_FINE_SLEEP {
                return Err(ConfigError::new("wait", "gather is not available on this platform; use notify"));
            }
        }
        Ok(Self::with(wait))
    }

    fn with(wait: Wait) -> Self {
        Self { wait, spins: 0, is_gathering: false, window_start: None, window_datagrams: 0 }
    }

    /// Waits once. `until_timer` limits the wait (`None` = no timer).
    ///
    /// `is_more_waiting` is whether a drain ended before its socket was empty. The call then polls without waiting,
    /// because an edge-triggered poll does not report the datagrams that remain.
    ///
    /// While gathering or spinning, most waits do not poll. Flush blocked sockets and process command queues in every
    /// pass.
    ///
    /// # Errors
    ///
    /// The fault of the poll.
    pub fn wait<P: Parker + ?Sized>(
        &mut self,
        parker: &mut P,
        until_timer: Option<Duration>,
        is_more_waiting: bool,
    ) -> Result<WaitEnd, Fault> {
        if is_more_waiting {
            return parker.poll(Some(Duration::ZERO)).map(WaitEnd::Polled);
        }
        match self.wait {
            Wait::Gather(time) if self.is_gathering => {
                // A timer that is due earlier shortens the sleep, so that gathering delays no timer.
                parker.sleep(until_timer.map_or(time, |timer| timer.min(time)));
                Ok(WaitEnd::Gathered)
            }
            Wait::Spin => {
                self.spins = (self.spins + 1) % SPINS_PER_POLL;
                if self.spins == 0 {
                    return parker.poll(Some(Duration::ZERO)).map(WaitEnd::Polled);
                }
                // The hint leaves more of a shared core to its other hardware thread.
                std::hint::spin_loop();
                Ok(WaitEnd::Spun)
            }
            Wait::Notify | Wait::Gather(_) => parker.poll(until_timer).map(WaitEnd::Polled),
        }
    }

    /// Reports the result of a pass: `now` is the time of the pass, for example from [`monotonic_time`], and `datagrams`
    /// all that it received. Only differences between times matter.
    pub fn on_pass(&mut self, now: Duration, datagrams: u64) {
        let Wait::Gather(time) = self.wait else { return };
        // No datagram arrived in a whole gathering time: wait for the notification of the next one.
        if self.is_gathering && datagrams == 0 {
            self.is_gathering = false;
            self.window_start = None;
            return;
        }
        // The first pass opens the window. Its own datagrams arrived before the window.
        let Some(start) = self.window_start else {
            self.window_start = Some(now);
            self.window_datagrams = 0;
            return;
        };
        self.window_datagrams += datagrams;
        let elapsed = now.saturating_sub(start);
        if elapsed < RATE_WINDOW {
            return;
        }
        // The window is complete: decide from its rate. The two thresholds differ, so that a steady rate between them
        // does not switch back and forth.
        let expected = self.window_datagrams as f64 * time.as_secs_f64() / elapsed.as_secs_f64();
        self.is_gathering = expected >= if self.is_gathering { GATHER_UNTIL } else { GATHER_FROM };
        self.window_start = Some(now);
        self.window_datagrams = 0;
    }

    /// Returns whether the next wait gathers.
    #[must_use]
    pub fn is_gathering(&self) -> bool {
        self.is_gathering
    }
}

/// Returns the time of the system's monotonic clock since an arbitrary moment, which is the same for all threads of the
/// process. On Linux it is `CLOCK_MONOTONIC`, with one moment for all processes.
///
/// It costs a fraction of the difference between two [`std::time::Instant`]s, and a worker reads it for every message
/// of an inline server.
#[must_use]
pub fn monotonic_time() -> Duration {
    sys::monotonic_time()
}

/// Returns the CPU time that the calling thread used since it started, in user space and in the kernel. `None` if the
/// platform does not support it. One system call.
///
/// Unlike the time between two clock readings, it excludes waiting and the work of other threads on the same core.
///
/// ```
/// use drumfire_socket::thread_cpu_time;
///
/// let before = thread_cpu_time();
/// assert!(thread_cpu_time() >= before, "it only grows");
/// ```
#[must_use]
pub fn thread_cpu_time() -> Option<Duration> {
    sys::thread_cpu_time()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the calls.
    #[derive(Default)]
    struct RecordingParker {
        polls: Vec<Option<Duration>>,
        sleeps: Vec<Duration>,
    }

    impl Parker for RecordingParker {
        fn poll(&mut self, timeout: Option<Duration>) -> Result<Ready, Fault> {
            self.polls.push(timeout);
            Ok(Ready::default())
        }

        fn sleep(&mut self, duration: Duration) {
            self.sleeps.push(duration);
        }
    }

    const GATHER: Duration = Duration::from_micros(100);

    /// Reports `count` passes with one datagram each, `gap` apart, and returns the time of the last one.
    fn feed(waiter: &mut Waiter, from: Duration, count: u32, gap: Duration) -> Duration {
        for pass in 1..=count {
            waiter.on_pass(from + gap * pass, 1);
        }
        from + gap * count
    }

    fn gathering_waiter() -> (Waiter, Duration) {
        let mut waiter = Waiter::with(Wait::Gather(GATHER));
        let from = Duration::from_secs(1);
        waiter.on_pass(from, 1);
        (waiter, from)
    }

    #[test]
    fn gathering_starts_at_2_4_expected_datagrams() {
        let (mut waiter, from) = gathering_waiter();
        feed(&mut waiter, from, 500, Duration::from_micros(42));
        assert!(!waiter.is_gathering());
        let (mut waiter, from) = gathering_waiter();
        feed(&mut waiter, from, 500, Duration::from_micros(41));
        assert!(waiter.is_gathering());
    }

    #[test]
    fn gathering_continues_down_to_two_expected_datagrams() {
        let (mut waiter, from) = gathering_waiter();
        let now = feed(&mut waiter, from, 500, Duration::from_micros(20));
        let now = feed(&mut waiter, now, 500, Duration::from_micros(50));
        assert!(waiter.is_gathering());
        feed(&mut waiter, now, 500, Duration::from_micros(51));
        assert!(!waiter.is_gathering());
    }

    #[test]
    fn bursts_at_a_low_rate_do_not_start_gathering() {
        let (mut waiter, from) = gathering_waiter();
        // 6,000 datagrams a second, in one burst every three milliseconds.
        let mut now = from;
        for _ in 0..100 {
            now += Duration::from_millis(3);
            waiter.on_pass(now, 18);
            assert!(!waiter.is_gathering());
        }
    }

    #[test]
    fn one_empty_drain_returns_to_the_poll() {
        let (mut waiter, from) = gathering_waiter();
        let now = feed(&mut waiter, from, 600, Duration::from_micros(10));
        let mut parker = RecordingParker::default();
        assert_eq!(waiter.wait(&mut parker, None, false), Ok(WaitEnd::Gathered));
        waiter.on_pass(now + GATHER, 0);
        assert!(matches!(waiter.wait(&mut parker, None, false), Ok(WaitEnd::Polled(_))));
        assert_eq!((parker.sleeps, parker.polls), (vec![GATHER], vec![None]));
    }

    #[test]
    fn a_timer_shortens_gathering_and_a_spent_budget_skips_it() {
        let (mut waiter, from) = gathering_waiter();
        feed(&mut waiter, from, 600, Duration::from_micros(10));
        let mut parker = RecordingParker::default();
        let timer = Duration::from_micros(30);
        assert_eq!(waiter.wait(&mut parker, Some(timer), false), Ok(WaitEnd::Gathered));
        assert!(matches!(waiter.wait(&mut parker, Some(timer), true), Ok(WaitEnd::Polled(_))));
        assert_eq!((parker.sleeps, parker.polls), (vec![timer], vec![Some(Duration::ZERO)]));
    }

    #[test]
    fn silence_before_a_burst_does_not_count_as_traffic() {
        let (mut waiter, from) = gathering_waiter();
        waiter.on_pass(from + Duration::from_secs(5), 100);
        assert!(!waiter.is_gathering());
    }

    #[test]
    fn spinning_never_sleeps_but_polls_regularly() {
        let mut waiter = Waiter::new(Wait::Spin).expect("always available");
        let mut parker = RecordingParker::default();
        for _ in 0..SPINS_PER_POLL * 3 {
            assert!(waiter.wait(&mut parker, Some(Duration::from_secs(1)), false).is_ok());
        }
        assert_eq!(parker.polls, [Some(Duration::ZERO); 3]);
        assert!(parker.sleeps.is_empty());
    }

    #[test]
    fn the_gathering_time_is_one_microsecond_to_ten_milliseconds() {
        for (time, is_valid) in [
            (Duration::from_nanos(999), false),
            (Duration::from_micros(1), true),
            (Duration::from_millis(10), true),
            (Duration::from_nanos(10_000_001), false),
        ] {
            let is_valid = is_valid && sys::HAS_FINE_SLEEP;
            assert_eq!(Waiter::new(Wait::Gather(time)).is_ok(), is_valid, "{time:?}");
        }
    }

    #[test]
    fn cpu_time_excludes_the_work_of_other_threads() {
        let Some(before) = thread_cpu_time() else { return };
        let other = std::thread::spawn(|| {
            let mut sum = 0_u64;
            while thread_cpu_time().is_some_and(|used| used < Duration::from_millis(50)) {
                sum = std::hint::black_box(sum.wrapping_add(1));
            }
        });
        other.join().expect("it cannot panic");
        let waited = thread_cpu_time().expect("supported above") - before;
        assert!(waited < Duration::from_millis(50), "waiting used CPU time: {waited:?}");
        let goal = thread_cpu_time().expect("supported above") + Duration::from_millis(2);
        // The loop ends only if work uses CPU time.
        while thread_cpu_time().is_some_and(|used| used < goal) {}
    }
}
