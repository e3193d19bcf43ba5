//! Values of single flags: their ranges, and what to say outside of them.
//!
//! A value is judged alone here; what two flags make of each other is decided where both are known.

use std::error::Error;
use std::fmt;
use std::num::IntErrorKind;
use std::time::Duration;

use drumfire_socket::Wait;

use crate::limits::{
    MAX_CORE, MAX_FLOWS, MAX_GATHER, MAX_RATE, MAX_RECEIVE_BUFFER_BYTES, MAX_RUN, MAX_SIZE, MAX_THREADS,
    MIN_RUN, MIN_SIZE,
};

/// What is wrong with a value, and what to give instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) problem: String,
    pub(super) way_out: String,
}

impl Bad {
    pub(super) fn new(problem: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { problem: problem.into(), way_out: way_out.into() }
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.way_out)
    }
}

impl Error for Bad {}

/// The range of a whole number, and why it ends where it does.
struct Whole {
    flag: &'static str,
    low: u32,
    high: u32,
    below: &'static str,
    above: &'static str,
}

impl Whole {
    fn read(&self, text: &str) -> Result<u32, Bad> {
        let bad =
            |problem: &str| Bad::new(problem, format!("give {} {} to {}", self.flag, self.low, self.high));
        let value = match text.parse::<i64>() {
            Ok(value) => value,
            Err(error) => match error.kind() {
                IntErrorKind::PosOverflow => i64::MAX,
                IntErrorKind::NegOverflow => i64::MIN,
                _ => return Err(bad("not a whole number")),
            },
        };
        if value < i64::from(self.low) {
            return Err(bad(self.below));
        }
        u32::try_from(value).ok().filter(|value| *value <= self.high).ok_or_else(|| bad(self.above))
    }
}

pub(super) fn receiver_threads(text: &str) -> Result<u32, Bad> {
    let below = "at least one thread has to receive";
    Whole {
        flag: "--threads",
        low: 1,
        high: MAX_THREADS,
        below,
        above: "that is more threads than any host runs well",
    }
    .read(text)
}

pub(super) fn sender_threads(text: &str) -> Result<u32, Bad> {
    sending_threads("--threads", text)
}

pub(super) fn threads_of_sender(text: &str) -> Result<u32, Bad> {
    sending_threads("--sender-threads", text)
}

fn sending_threads(flag: &'static str, text: &str) -> Result<u32, Bad> {
    let below = "at least one thread has to send";
    Whole { flag, low: 1, high: MAX_THREADS, below, above: "that is more threads than any host runs well" }
        .read(text)
}

pub(super) fn flows(text: &str) -> Result<u32, Bad> {
    let below = "at least one flow has to be sent";
    Whole {
        flag: "--flows",
        low: 1,
        high: MAX_FLOWS,
        below,
        above: "that is more flows than a receiver keeps books on",
    }
    .read(text)
}

pub(super) fn size(text: &str) -> Result<u32, Bad> {
    let below = "a datagram needs at least 28 bytes";
    Whole {
        flag: "--size",
        low: MIN_SIZE,
        high: MAX_SIZE,
        below,
        above: "a UDP datagram carries at most 65507 bytes",
    }
    .read(text)
}

pub(super) fn rate(text: &str) -> Result<u64, Bad> {
    let high = u32::try_from(MAX_RATE).unwrap_or(u32::MAX);
    let range = Whole {
        flag: "--rate",
        low: 0,
        high,
        below: "packets per second cannot be negative",
        above: "no host sends that many packets per second",
    };
    range.read(text).map(u64::from).map_err(|mut bad| {
        bad.way_out.push_str(" (0 = as fast as possible)");
        bad
    })
}

pub(super) fn receive_buffer(text: &str) -> Result<u32, Bad> {
    let range = Whole {
        flag: "--receive-buffer",
        low: 1,
        high: MAX_RECEIVE_BUFFER_BYTES,
        below: "a socket needs a buffer",
        above: "the kernel takes no larger number",
    };
    range.read(text).map_err(|mut bad| {
        bad.way_out.push_str(" (bytes)");
        bad
    })
}

pub(super) fn core(text: &str) -> Result<u32, Bad> {
    let below = "cores are numbered from 0";
    Whole {
        flag: "--pin",
        low: 0,
        high: MAX_CORE,
        below,
        above: "no thread can be pinned to a core above that",
    }
    .read(text)
}

pub(super) fn secs(text: &str) -> Result<Duration, Bad> {
    let way_out = format!("give --secs {} to {}", MIN_RUN.as_secs_f64(), MAX_RUN.as_secs());
    let Ok(secs) = text.parse::<f64>() else { return Err(Bad::new("not a number of seconds", way_out)) };
    match Duration::try_from_secs_f64(secs) {
        Ok(run) if run > MAX_RUN => Err(Bad::new("that is longer than a week", way_out)),
        Ok(run) if run >= MIN_RUN => Ok(run),
        Ok(_) => Err(Bad::new("too short to measure a rate", way_out)),
        Err(_) => Err(Bad::new("not a time that can pass", way_out)),
    }
}

pub(super) fn wait(text: &str) -> Result<Wait, Bad> {
    let longest = MAX_GATHER.as_micros();
    let way_out = format!("give --wait notify, gather, gather=1 to gather={longest} (microseconds), or spin");
    match text.split_once('=') {
        None if text == "notify" => Ok(Wait::Notify),
        None if text == "spin" => Ok(Wait::Spin),
        None if text == "gather" => Ok(Wait::Gather(Wait::GATHER)),
        Some(("gather", micros)) => match micros.parse::<u64>().map(Duration::from_micros) {
            Ok(Duration::ZERO) => Err(Bad::new("a batch needs some time to gather", way_out)),
            Ok(gather) if gather <= MAX_GATHER => Ok(Wait::Gather(gather)),
            Ok(_) => Err(Bad::new("that is longer than any packet may wait", way_out)),
            Err(_) => Err(Bad::new("not a whole number of microseconds", way_out)),
        },
        _ => Err(Bad::new("no such way to wait", way_out)),
    }
}

/// A duration in the form that [`secs`] reads back to the same nanosecond.
pub(super) fn secs_text(run: Duration) -> String {
    format!("{}.{:09}", run.as_secs(), run.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_whole_number_is_taken_within_its_bounds_and_refused_beside_them() {
        type Case = (fn(&str) -> Result<u32, Bad>, i64, i64);
        let cases: [Case; 7] = [
            (receiver_threads, 1, 1_024),
            (sender_threads, 1, 1_024),
            (threads_of_sender, 1, 1_024),
            (flows, 1, 65_536),
            (size, 28, 65_507),
            (receive_buffer, 1, 1_073_741_823),
            (core, 0, 1_023),
        ];
        for (read, low, high) in cases {
            for value in [low, low + 1, high - 1, high] {
                assert_eq!(read(&value.to_string()).map(i64::from), Ok(value));
            }
            let below = read(&(low - 1).to_string()).unwrap_err();
            let above = read(&(high + 1).to_string()).unwrap_err();
            assert_ne!(below.problem, above.problem);
            assert!(below.way_out.contains(&format!("{low} to {high}")), "{below}");
            assert_eq!(read("99999999999999999999999").unwrap_err(), above);
            assert_eq!(read("-99999999999999999999999").unwrap_err(), below);
            for text in ["", "x", "1.5", "1e3", " 1", "0x10", "1_000", "½"] {
                assert_eq!(read(text).unwrap_err().problem, "not a whole number", "{text}");
            }
        }
    }

    #[test]
    fn a_rate_goes_from_as_fast_as_possible_to_a_billion() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1", Some(1)),
            ("999999999", Some(999_999_999)),
            ("1000000000", Some(1_000_000_000)),
            ("1000000001", None),
            ("-1", None),
        ] {
            assert_eq!(rate(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn seconds_may_be_fractions_from_a_millisecond_to_a_week() {
        for (text, expected) in [
            ("0.0009", None),
            ("0.001", Some(Duration::from_millis(1))),
            ("1", Some(Duration::from_secs(1))),
            ("2.5", Some(Duration::from_millis(2_500))),
            ("604800", Some(Duration::from_secs(604_800))),
            ("604801", None),
            ("0", None),
            ("-1", None),
            ("nan", None),
            ("inf", None),
            ("1e300", None),
            ("ten", None),
            ("", None),
        ] {
            assert_eq!(secs(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn seconds_survive_being_written_and_read() {
        for nanos in
            [1_000_000, 1_000_001, 333_333_333, 10_000_000_000, 604_799_999_999_999, 604_800_000_000_000]
        {
            let run = Duration::from_nanos(nanos);
            assert_eq!(secs(&secs_text(run)), Ok(run));
        }
    }

    #[test]
    fn a_wait_is_named_and_gathering_may_carry_its_microseconds() {
        let gather = |micros| Some(Wait::Gather(Duration::from_micros(micros)));
        for (text, expected) in [
            ("notify", Some(Wait::Notify)),
            ("spin", Some(Wait::Spin)),
            ("gather", gather(130)),
            ("gather=1", gather(1)),
            ("gather=2", gather(2)),
            ("gather=9999", gather(9_999)),
            ("gather=10000", gather(10_000)),
            ("gather=10001", None),
            ("gather=0", None),
            ("gather=", None),
            ("gather=x", None),
            ("gather=99999999999999999999", None),
            ("notify=3", None),
            ("Gather", None),
            ("", None),
        ] {
            assert_eq!(wait(text).ok(), expected, "{text}");
        }
        for kept in [Wait::Notify, Wait::Spin, Wait::Gather(Duration::from_micros(77))] {
            assert_eq!(wait(&kept.to_string()), Ok(kept));
        }
    }
}
