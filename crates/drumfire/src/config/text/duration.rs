//! Durations as text: a whole number and one unit, such as `30s` or `500ms`.
//!
//! Several units are not supported: `1m 30s` is written `90s`. A number without a unit is refused, because its meaning would be a
//! guess.

use std::fmt;
use std::time::Duration;

use serde_core::de::{Deserialize, Deserializer, Error, Visitor};
use serde_core::ser::{Serialize, Serializer};

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

/// A duration in its text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Human(pub(super) Duration);

impl Human {
    /// Parses a text. Returns `None` if it has another form or the duration is longer than 64 bits of nanoseconds.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        let text = text.trim();
        let (number, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
        let unit = unit.trim_start();
        let nanos = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        number.parse::<u64>().ok()?.checked_mul(nanos).map(Duration::from_nanos).map(Self)
    }
}

impl fmt::Display for Human {
    /// Writes the duration with the largest unit that makes it a whole number.
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

impl Serialize for Human {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Human {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Human;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(FORM)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Human, E> {
                Human::of_text(text).ok_or_else(|| E::custom(format_args!("must be {FORM}")))
            }
        }

        deserializer.deserialize_str(Text)
    }
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
            let duration = Human(Duration::from_nanos(nanos));
            assert_eq!(Human::of_text(text), Some(duration), "{text}");
            assert_eq!(duration.to_string(), text);
        }
        assert_eq!(Human::of_text(" 30 s "), Some(Human(Duration::from_secs(30))));
        assert_eq!(Human::of_text("1000ms").map(|human| human.to_string()), Some("1s".to_owned()));
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
            assert_eq!(Human::of_text(text), None, "{text}");
        }
    }
}
