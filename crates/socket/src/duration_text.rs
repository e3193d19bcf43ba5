//! Durations as text for serde's `with` (feature `serde`): a whole number and one unit, such as `30s` or `500ms`.
//!
//! Several units are not supported: `1m 30s` is written `90s`. A number without a unit is refused, because its meaning would be a
//! guess.
//!
//! ```
//! use std::time::Duration;
//!
//! #[derive(serde::Deserialize)]
//! struct Settings {
//!     #[serde(with = "drumfire_socket::duration_text")]
//!     timeout: Duration,
//! }
//!
//! let settings: Settings = serde_json::from_str(r#"{ "timeout": "90s" }"#).unwrap();
//! assert_eq!(settings.timeout, Duration::from_secs(90));
//! ```

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};
use serde::ser::Serializer;

/// The units and their nanoseconds, the largest first.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

const FORM: &str = "a whole number and its unit, as in \"30s\" or \"500ms\": d, h, m, s, ms, us or ns";

/// Writes a duration with the largest unit that makes it a whole number.
///
/// # Errors
///
/// The error of the format.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&DurationText(*duration))
}

/// Reads a duration from a whole number and one unit, such as `30s` or `500ms`.
///
/// # Errors
///
/// The error of the format, or a text of another form, or a duration that is longer than 64 bits of nanoseconds.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(TextVisitor)
}

struct DurationText(Duration);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        let whole = UNITS.iter().find(|(_, unit)| nanos.is_multiple_of(u128::from(*unit)));
        // Every number is a multiple of the last unit, which is 1.
        let (name, unit) = whole.copied().unwrap_or(("ns", 1));
        write!(f, "{}{name}", nanos / u128::from(unit))
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORM)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        parse(text).ok_or_else(|| E::custom(format_args!("must be {FORM}")))
    }
}

fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
    let unit = unit.trim_start();
    let nanos = UNITS.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<u64>().ok()?.checked_mul(nanos).map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_written() {
        for (text, nanos) in [
            ("0s", 0),
            ("1ns", 1),
            ("999us", 999_000),
            ("500ms", 500_000_000),
            ("30s", 30_000_000_000),
            ("90s", 90_000_000_000),
            ("2m", 120_000_000_000),
            ("36h", 129_600_000_000_000),
            ("49d", 4_233_600_000_000_000),
            ("18446744073709551615ns", u64::MAX),
        ] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(parse(text), Some(duration), "{text}");
            assert_eq!(DurationText(duration).to_string(), text);
        }
        assert_eq!(parse(" 30 s "), Some(Duration::from_secs(30)));
        assert_eq!(parse("1000ms").map(|duration| DurationText(duration).to_string()), Some("1s".to_owned()));
    }

    #[test]
    fn invalid_and_too_long_durations_are_refused() {
        for text in [
            "",
            "30",
            "s",
            "1.5s",
            "-1s",
            "1 year",
            "1m30s",
            "٣s",
            "18446744073709551616ns",
            "213504d",
            "1µs",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
