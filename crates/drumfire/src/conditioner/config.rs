//! What a simulated link does to datagrams: checked as a whole, by name of the field.

use std::fmt;
use std::time::Duration;

/// The longest time anything may take on a link.
const LATE_MAX: Duration = Duration::from_secs(3_600);

/// The least memory a link works with: one of the largest datagrams.
const MEMORY_MIN_BYTES: usize = 65_536 + super::ITEM_CHARGE_BYTES;

/// One direction of a simulated path. The default is perfect: nothing is lost, and nothing takes time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LinkConfig {
    /// Which datagrams vanish.
    pub loss: Loss,
    /// How long datagrams take. Alone it never changes their order.
    pub delay: Delay,
    /// Fraction of datagrams that arrive twice, 0 to 1.
    pub duplicate: f64,
    /// Up to this much later the copy arrives, at most an hour.
    pub duplicate_late: Duration,
    /// Fraction of datagrams that are held back so that later ones overtake them, 0 to 1.
    pub reorder: f64,
    /// Up to this long they are held back, at most an hour.
    pub reorder_late: Duration,
    /// Fraction of datagrams that are changed, 0 to 1: of most one to four bits are flipped, one in eight is cut off, and one in
    /// eight gets up to 64 bytes more. Checksums do not help here.
    pub corrupt: f64,
    /// How fast datagrams leave; `None` for at once.
    pub rate: Option<Rate>,
    /// Bytes of the largest payload that passes, at least 1; `None` for any.
    pub datagram_max_bytes: Option<usize>,
    /// Bytes of datagrams under way, each charged 64 more; what does not fit counts as `queue_full`. At least
    /// 65,600, 16 MiB by default.
    pub memory_bytes: usize,
}

/// Which datagrams vanish.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// This fraction of them, 0 to 1, each for itself.
    Even(f64),
    /// More of them in bursts, as on radio (Gilbert 1960, Elliott 1963). All are fractions, 0 to 1.
    Bursts {
        /// How likely a burst begins with the next datagram.
        begin: f64,
        /// How likely a burst is over with the next datagram.
        end: f64,
        /// The fraction lost during a burst.
        inside: f64,
        /// The fraction lost between bursts.
        outside: f64,
    },
}

/// How long datagrams take, at most an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// All the same.
    Constant(Duration),
    /// Anything from `least` to `most`.
    Uniform {
        /// The shortest time.
        least: Duration,
        /// The longest time.
        most: Duration,
    },
    /// About `mean`, as a sum of twelve uniform numbers is about normal; never below nothing.
    Normal {
        /// The time in the middle.
        mean: Duration,
        /// The standard deviation.
        deviation: Duration,
    },
}

/// A bottleneck with a finite queue in front. Every datagram counts with 28 bytes of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Bytes that leave per second, at least 1.
    pub bytes_per_second: u64,
    /// Bytes that wait or are leaving, at least 1; what does not fit is dropped.
    pub queue_bytes: u64,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            loss: Loss::Even(0.0),
            delay: Delay::Constant(Duration::ZERO),
            duplicate: 0.0,
            duplicate_late: Duration::ZERO,
            reorder: 0.0,
            reorder_late: Duration::ZERO,
            corrupt: 0.0,
            rate: None,
            datagram_max_bytes: None,
            memory_bytes: 16 << 20,
        }
    }
}

/// A field of a [`LinkConfig`] that cannot be used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LinkConfigError {
    /// Its name.
    pub field: &'static str,
    /// What it must be.
    pub must_be: &'static str,
}

impl fmt::Display for LinkConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` must be {}", self.field, self.must_be)
    }
}

impl std::error::Error for LinkConfigError {}

drumfire_proto::debug_with_display!(LinkConfigError);

impl LinkConfig {
    /// With this loss: fractions are 0 to 1.
    #[must_use]
    pub fn loss(mut self, loss: Loss) -> Self {
        self.loss = loss;
        self
    }

    /// With this delay, at most an hour.
    #[must_use]
    pub fn delay(mut self, delay: Delay) -> Self {
        self.delay = delay;
        self
    }

    /// With this fraction of datagrams, 0 to 1, arriving twice, the copies up to this much later, at most an hour.
    #[must_use]
    pub fn duplicate(mut self, fraction: f64, late: Duration) -> Self {
        (self.duplicate, self.duplicate_late) = (fraction, late);
        self
    }

    /// With this fraction of datagrams, 0 to 1, held back up to this long, at most an hour.
    #[must_use]
    pub fn reorder(mut self, fraction: f64, late: Duration) -> Self {
        (self.reorder, self.reorder_late) = (fraction, late);
        self
    }

    /// With this fraction of datagrams changed, 0 to 1: one to four bits of them flipped, as a rule.
    #[must_use]
    pub fn corrupt(mut self, fraction: f64) -> Self {
        self.corrupt = fraction;
        self
    }

    /// With this bottleneck: bytes that leave per second, and bytes that wait or are leaving, both at least 1.
    #[must_use]
    pub fn rate(mut self, bytes_per_second: u64, queue_bytes: u64) -> Self {
        self.rate = Some(Rate { bytes_per_second, queue_bytes });
        self
    }

    /// With payloads up to this many bytes.
    #[must_use]
    pub fn datagram_max_bytes(mut self, bytes: usize) -> Self {
        self.datagram_max_bytes = Some(bytes);
        self
    }

    /// With this much memory for datagrams under way.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is not what it must be.
    pub fn check(&self) -> Result<(), LinkConfigError> {
        let losses = match self.loss {
            Loss::Even(loss) => [loss; 4],
            Loss::Bursts { begin, end, inside, outside } => [begin, end, inside, outside],
        };
        for loss in losses {
            require(is_fraction(loss), "loss", "a fraction from 0 to 1")?;
        }
        let fractions = [("duplicate", self.duplicate), ("reorder", self.reorder), ("corrupt", self.corrupt)];
        for (field, fraction) in fractions {
            require(is_fraction(fraction), field, "a fraction from 0 to 1")?;
        }
        let (least, most) = match self.delay {
            Delay::Constant(delay) => (delay, delay),
            Delay::Uniform { least, most } => (least, most),
            Delay::Normal { mean, deviation } => (Duration::ZERO, mean.max(deviation)),
        };
        require(most <= LATE_MAX, "delay", "an hour at most")?;
        require(least <= most, "delay", "`least` before `most`")?;
        require(self.duplicate_late <= LATE_MAX, "duplicate_late", "an hour at most")?;
        require(self.reorder_late <= LATE_MAX, "reorder_late", "an hour at most")?;
        let rate = self.rate.unwrap_or(Rate { bytes_per_second: 1, queue_bytes: 1 });
        require(rate.bytes_per_second >= 1, "rate", "1 byte per second at least")?;
        require(rate.queue_bytes >= 1, "rate", "with a queue of 1 byte at least")?;
        require(self.datagram_max_bytes != Some(0), "datagram_max_bytes", "at least 1")?;
        require(self.memory_bytes >= MEMORY_MIN_BYTES, "memory_bytes", "at least 65600")
    }
}

fn is_fraction(number: f64) -> bool {
    (0.0..=1.0).contains(&number)
}

fn require(fits: bool, field: &'static str, must_be: &'static str) -> Result<(), LinkConfigError> {
    if fits { Ok(()) } else { Err(LinkConfigError { field, must_be }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(config: &LinkConfig) -> Option<&'static str> {
        config.check().err().map(|error| error.field)
    }

    #[test]
    fn a_perfect_link_is_fine() {
        assert_eq!(field(&LinkConfig::default()), None);
    }

    #[test]
    fn every_bound_is_named_and_exact() {
        let ok = LinkConfig::default;
        let (hour, more) = (LATE_MAX, LATE_MAX + Duration::from_nanos(1));
        for (fraction, fits) in
            [(-0.000_1, false), (0.0, true), (1.0, true), (1.000_1, false), (f64::NAN, false)]
        {
            let burst = Loss::Bursts { begin: 0.0, end: fraction, inside: 0.0, outside: 0.0 };
            for (config, name) in [
                (ok().loss(Loss::Even(fraction)), "loss"),
                (ok().loss(burst), "loss"),
                (ok().duplicate(fraction, hour), "duplicate"),
                (ok().reorder(fraction, hour), "reorder"),
                (ok().corrupt(fraction), "corrupt"),
            ] {
                assert_eq!(field(&config), (!fits).then_some(name), "{name} {fraction}");
            }
        }
        assert_eq!(field(&ok().delay(Delay::Constant(hour))), None);
        assert_eq!(field(&ok().delay(Delay::Constant(more))), Some("delay"));
        assert_eq!(field(&ok().delay(Delay::Uniform { least: hour, most: hour })), None);
        assert_eq!(field(&ok().delay(Delay::Uniform { least: hour, most: Duration::ZERO })), Some("delay"));
        assert_eq!(field(&ok().delay(Delay::Normal { mean: hour, deviation: more })), Some("delay"));
        assert_eq!(field(&ok().duplicate(0.5, more)), Some("duplicate_late"));
        assert_eq!(field(&ok().reorder(0.5, more)), Some("reorder_late"));
        for (rate, queue, fits) in [(1, 1, true), (0, 1, false), (1, 0, false)] {
            assert_eq!(field(&ok().rate(rate, queue)).is_none(), fits, "{rate} {queue}");
        }
        assert_eq!(field(&ok().datagram_max_bytes(0)), Some("datagram_max_bytes"));
        assert_eq!(field(&ok().datagram_max_bytes(1)), None);
        for (bytes, fits) in [(65_599, false), (65_600, true), (65_601, true)] {
            assert_eq!(field(&ok().memory_bytes(bytes)).is_none(), fits, "{bytes}");
        }
    }
}
