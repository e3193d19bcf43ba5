//! How a worker waits for datagrams: by notification, by gathering, or not at all.
//!
//! Below saturation the wake-up is the dear part of receiving, not the system call. Gathering sleeps for a
//! fixed short time while traffic flows and then drains everything that came, so that one wake-up serves many
//! datagrams; when traffic thins out the thread goes back to being notified. The clock is an argument.

use std::time::{Duration, Instant};

use crate::config_error::ConfigError;
use crate::{Fault, Parker, Ready, sys};

/// A wait strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Wake at the first datagram.
    Notify,
    /// Wake at the first datagram while it is quiet; under load let a batch gather for this long, 1 us to 10 ms.
    Gather(Duration),
    /// Never sleep: for cores that do nothing else.
    Spin,
}

impl Wait {
    /// The gathering time that suits most servers.
    pub const GATHER: Duration = Duration::from_micros(130);

    /// The best this platform has: gathering where the thread can sleep for microseconds, else notification.
    #[must_use]
    pub const fn best() -> Self {
        if sys::HAS_FINE_SLEEP { Self::Gather(Self::GATHER) } else { Self::Notify }
    }
}

impl std::fmt::Display for Wait {
    /// `notify`, `gather=` with the time in microseconds, or `spin`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Notify => f.write_str("notify"),
            Self::Gather(time) => write!(f, "gather={}", time.as_micros()),
            Self::Spin => f.write_str("spin"),
        }
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The poll returned: drain the sockets it names.
    Polled(Ready),
    /// The gathering time is over: drain every socket.
    Gathered,
    /// No wait at all: drain every socket.
    Spun,
}

/// Expected datagrams in one gathering time from which gathering starts. At 2.6 of them, 2,000 clients with ten messages a
/// second each, a server takes 18.4 us of CPU for a message where it is notified and 11.0 where it gathers.
const GATHER_FROM: f64 = 2.4;

/// Expected datagrams in one gathering time below which it stops. At 1.6 of them, 100 clients with 60 reliable messages a
/// second each, gathering saves nothing, and a message waits for it.
const GATHER_UNTIL: f64 = 2.0;

/// The rate is measured over at least this long: at the least that starts gathering it is then off by a tenth, not by a fourth.
const RATE_WINDOW: Duration = Duration::from_millis(5);

/// Spinning passes between two looks at the poll, which tells of wakers and writable sockets.
const SPINS_PER_POLL: u32 = 64;

/// Carries out a [`Wait`] strategy for one thread.
#[derive(Debug)]
pub struct Waiter {
    wait: Wait,
    is_gathering: bool,
    spins: u32,
    window_start: Option<Instant>,
    window_datagrams: u64,
}

impl Waiter {
    /// A waiter with this strategy.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when the gathering time is out of range or the platform cannot sleep that finely.
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
        Self { wait, is_gathering: false, spins: 0, window_start: None, window_datagrams: 0 }
    }

    /// Waits once. `is_more_waiting` says that a drain ended before its socket was empty: the poll is then
    /// looked at without waiting. `until_timer` bounds the wait (`None` = no timer).
    ///
    /// While gathering or spinning the poll is rarely looked at: flush blocked sockets and look at command
    /// queues in every pass.
    ///
    /// # Errors
    ///
    /// The fault of the poll.
    pub fn wait<P: Parker>(
        &mut self,
        parker: &mut P,
        until_timer: Option<Duration>,
        is_more_waiting: bool,
    ) -> Result<Woken, Fault> {
        if is_more_waiting {
            return parker.poll(Some(Duration::ZERO)).map(Woken::Polled);
        }
        match self.wait {
            Wait::Gather(time) if self.is_gathering => {
                parker.nap(until_timer.map_or(time, |timer| timer.min(time)));
                Ok(Woken::Gathered)
            }
            Wait::Spin => {
                self.spins = (self.spins + 1) % SPINS_PER_POLL;
                if self.spins == 0 {
                    return parker.poll(Some(Duration::ZERO)).map(Woken::Polled);
                }
                std::hint::spin_loop();
                Ok(Woken::Spun)
            }
            Wait::Notify | Wait::Gather(_) => parker.poll(until_timer).map(Woken::Polled),
        }
    }

    /// Tells what a pass brought: `now` is the pass's clock reading, `datagrams` all that was received.
    pub fn on_pass(&mut self, now: Instant, datagrams: u64) {
        let Wait::Gather(time) = self.wait else { return };
        if self.is_gathering && datagrams == 0 {
            // Nothing came in a whole gathering time: be notified of the next datagram.
            self.is_gathering = false;
            self.window_start = None;
            return;
        }
        let Some(start) = self.window_start else {
            // The first pass opens the window; its own datagrams arrived before it.
            self.window_start = Some(now);
            self.window_datagrams = 0;
            return;
        };
        self.window_datagrams += datagrams;
        let elapsed = now.saturating_duration_since(start);
        if elapsed < RATE_WINDOW {
            return;
        }
        let expected = self.window_datagrams as f64 * time.as_secs_f64() / elapsed.as_secs_f64();
        self.is_gathering = expected >= if self.is_gathering { GATHER_UNTIL } else { GATHER_FROM };
        self.window_start = Some(now);
        self.window_datagrams = 0;
    }

    /// Whether the next wait gathers.
    #[must_use]
    pub fn is_gathering(&self) -> bool {
        self.is_gathering
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what it was asked for.
    #[derive(Default)]
    struct Asked {
        polls: Vec<Option<Duration>>,
        naps: Vec<Duration>,
    }

    impl Parker for Asked {
        fn poll(&mut self, timeout: Option<Duration>) -> Result<Ready, Fault> {
            self.polls.push(timeout);
            Ok(Ready::default())
        }

        fn nap(&mut self, duration: Duration) {
            self.naps.push(duration);
        }
    }

    const GATHER: Duration = Duration::from_micros(100);

    #[expect(
        clippy::disallowed_methods,
        reason = "an Instant can only be had from the clock; only sums of it are used"
    )]
    fn start() -> Instant {
        Instant::now()
    }

    /// Feeds `count` passes of one datagram, `gap` apart.
    fn feed(waiter: &mut Waiter, from: Instant, count: u32, gap: Duration) -> Instant {
        for pass in 1..=count {
            waiter.on_pass(from + gap * pass, 1);
        }
        from + gap * count
    }

    fn gatherer() -> (Waiter, Instant) {
        let mut waiter = Waiter::with(Wait::Gather(GATHER));
        let from = start();
        waiter.on_pass(from, 1);
        (waiter, from)
    }

    #[test]
    fn gathering_starts_at_2_4_expected_datagrams_and_not_below() {
        let (mut waiter, from) = gatherer();
        feed(&mut waiter, from, 500, Duration::from_micros(42));
        assert!(!waiter.is_gathering());
        let (mut waiter, from) = gatherer();
        feed(&mut waiter, from, 500, Duration::from_micros(41));
        assert!(waiter.is_gathering());
    }

    #[test]
    fn gathering_goes_on_down_to_two_and_stops_below() {
        let (mut waiter, from) = gatherer();
        let now = feed(&mut waiter, from, 500, Duration::from_micros(20));
        let now = feed(&mut waiter, now, 500, Duration::from_micros(50));
        assert!(waiter.is_gathering());
        feed(&mut waiter, now, 500, Duration::from_micros(51));
        assert!(!waiter.is_gathering());
    }

    #[test]
    fn a_clump_of_messages_does_not_make_a_quiet_server_gather_for_good() {
        let (mut waiter, from) = gatherer();
        // 6,000 in a second, all of three milliseconds at once.
        let mut now = from;
        for _ in 0..100 {
            now += Duration::from_millis(3);
            waiter.on_pass(now, 18);
            assert!(!waiter.is_gathering());
        }
    }

    #[test]
    fn one_empty_drain_returns_to_the_poll() {
        let (mut waiter, from) = gatherer();
        let now = feed(&mut waiter, from, 600, Duration::from_micros(10));
        let mut asked = Asked::default();
        assert_eq!(waiter.wait(&mut asked, None, false), Ok(Woken::Gathered));
        waiter.on_pass(now + GATHER, 0);
        assert!(matches!(waiter.wait(&mut asked, None, false), Ok(Woken::Polled(_))));
        assert_eq!((asked.naps, asked.polls), (vec![GATHER], vec![None]));
    }

    #[test]
    fn a_timer_shortens_the_gathering_and_a_spent_budget_skips_it() {
        let (mut waiter, from) = gatherer();
        feed(&mut waiter, from, 600, Duration::from_micros(10));
        let mut asked = Asked::default();
        let timer = Duration::from_micros(30);
        assert_eq!(waiter.wait(&mut asked, Some(timer), false), Ok(Woken::Gathered));
        assert!(matches!(waiter.wait(&mut asked, Some(timer), true), Ok(Woken::Polled(_))));
        assert_eq!((asked.naps, asked.polls), (vec![timer], vec![Some(Duration::ZERO)]));
    }

    #[test]
    fn silence_before_a_burst_does_not_count_as_traffic() {
        let (mut waiter, from) = gatherer();
        waiter.on_pass(from + Duration::from_secs(5), 100);
        assert!(!waiter.is_gathering());
    }

    #[test]
    fn spinning_never_sleeps_and_still_looks_at_the_poll() {
        let mut waiter = Waiter::new(Wait::Spin).expect("always available");
        let mut asked = Asked::default();
        for _ in 0..SPINS_PER_POLL * 3 {
            assert!(waiter.wait(&mut asked, Some(Duration::from_secs(1)), false).is_ok());
        }
        assert_eq!(asked.polls, [Some(Duration::ZERO); 3]);
        assert!(asked.naps.is_empty());
    }

    #[test]
    fn the_gathering_time_is_one_microsecond_to_ten_milliseconds() {
        for (time, is_taken) in [
            (Duration::from_nanos(999), false),
            (Duration::from_micros(1), true),
            (Duration::from_millis(10), true),
            (Duration::from_nanos(10_000_001), false),
        ] {
            let is_taken = is_taken && sys::HAS_FINE_SLEEP;
            assert_eq!(Waiter::new(Wait::Gather(time)).is_ok(), is_taken, "{time:?}");
        }
    }
}
