//! The configuration of a simulated link.

use std::time::Duration;

use crate::error::ConfigError;

/// The longest delay that a link supports.
const DELAY_MAX: Duration = Duration::from_secs(3_600);

/// The minimum memory of a link: one datagram of maximum size.
const MEMORY_MIN_BYTES: usize = 65_536 + super::link::ITEM_CHARGE_BYTES;

/// The configuration of one direction of a path. The default has no loss and no delay.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LinkConfig {
    /// The distribution of lost datagrams. The default is no loss.
    pub loss: Loss,
    /// The delay of datagrams, up to an hour. It does not change their order, see `reorder`. The default is no delay.
    pub delay: Delay,
    /// The fraction of datagrams that arrive twice, 0 to 1.
    pub duplicate: f64,
    /// The maximum extra delay of the duplicate, up to an hour.
    pub duplicate_delay: Duration,
    /// The fraction of datagrams that are delayed so that later ones overtake them, 0 to 1.
    pub reorder: f64,
    /// The maximum extra delay of these datagrams, up to an hour.
    pub reorder_delay: Duration,
    /// The fraction of datagrams that are corrupted, 0 to 1. One in eight of them is truncated, one in eight gets up to 64 bytes more, and
    /// the others have one to four bits flipped. They arrive, as if the UDP checksum had not detected the change.
    pub corrupt: f64,
    /// The bottleneck of the path. The default, `None`, is unlimited.
    pub rate: Option<Rate>,
    /// The length in bytes of the largest payload that passes, at least 1. The default, `None`, is unlimited.
    pub datagram_max_bytes: Option<usize>,
    /// The maximum bytes of datagrams in flight, at least 65,600. Each counts for 64 bytes more than its payload. Datagrams that do not fit
    /// count as `queue_full`. The default is 16 MiB.
    pub memory_bytes: usize,
}

/// The distribution of lost datagrams.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Each datagram is lost with this probability, 0 to 1, independently of the others.
    Random(f64),
    /// Loss in bursts, as on radio links (Gilbert 1960, Elliott 1963). All fields are 0 to 1.
    Bursts {
        /// The probability that a burst begins with the next datagram.
        begin: f64,
        /// The probability that a burst ends with the next datagram.
        end: f64,
        /// The fraction that is lost during a burst.
        inside: f64,
        /// The fraction that is lost between bursts.
        outside: f64,
    },
}

/// The delay of datagrams, up to an hour.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// All datagrams have the same delay.
    Constant(#[cfg_attr(feature = "serde", serde(with = "crate::duration_text"))] Duration),
    /// The delay is uniformly distributed between two values.
    Uniform {
        /// The minimum.
        #[cfg_attr(feature = "serde", serde(with = "crate::duration_text"))]
        min: Duration,
        /// The maximum.
        #[cfg_attr(feature = "serde", serde(with = "crate::duration_text"))]
        max: Duration,
    },
    /// The delay is approximately normally distributed, as a sum of twelve uniform numbers, and never negative.
    Normal {
        /// The mean.
        #[cfg_attr(feature = "serde", serde(with = "crate::duration_text"))]
        mean: Duration,
        /// The standard deviation.
        #[cfg_attr(feature = "serde", serde(with = "crate::duration_text"))]
        deviation: Duration,
    },
}

/// A bottleneck with a finite queue. Each datagram counts for its payload and 28 bytes of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Rate {
    /// The throughput in bytes per second, at least 1.
    pub bytes_per_second: u64,
    /// The length of the queue in bytes, at least 1. Datagrams that do not fit are dropped.
    pub queue_bytes: u64,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            loss: Loss::Random(0.0),
            delay: Delay::Constant(Duration::ZERO),
            duplicate: 0.0,
            duplicate_delay: Duration::ZERO,
            reorder: 0.0,
            reorder_delay: Duration::ZERO,
            corrupt: 0.0,
            rate: None,
            datagram_max_bytes: None,
            memory_bytes: 16 << 20,
        }
    }
}

impl LinkConfig {
    /// Sets the loss. Fractions are 0 to 1.
    #[must_use]
    pub fn loss(mut self, loss: Loss) -> Self {
        self.loss = loss;
        self
    }

    /// Sets the delay, up to an hour.
    #[must_use]
    pub fn delay(mut self, delay: Delay) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the fraction of datagrams that arrive twice, 0 to 1, and the maximum extra delay of a duplicate, up to an hour.
    #[must_use]
    pub fn duplicate(mut self, fraction: f64, delay_max: Duration) -> Self {
        (self.duplicate, self.duplicate_delay) = (fraction, delay_max);
        self
    }

    /// Sets the fraction of datagrams that are reordered, 0 to 1, and their maximum extra delay, up to an hour.
    #[must_use]
    pub fn reorder(mut self, fraction: f64, delay_max: Duration) -> Self {
        (self.reorder, self.reorder_delay) = (fraction, delay_max);
        self
    }

    /// Sets the fraction of datagrams that are corrupted, 0 to 1.
    #[must_use]
    pub fn corrupt(mut self, fraction: f64) -> Self {
        self.corrupt = fraction;
        self
    }

    /// Sets the bottleneck: its throughput in bytes per second, and the length of its queue in bytes, both at least 1.
    #[must_use]
    pub fn rate(mut self, bytes_per_second: u64, queue_bytes: u64) -> Self {
        self.rate = Some(Rate { bytes_per_second, queue_bytes });
        self
    }

    /// Sets the largest payload in bytes.
    #[must_use]
    pub fn datagram_max_bytes(mut self, bytes: usize) -> Self {
        self.datagram_max_bytes = Some(bytes);
        self
    }

    /// Sets the memory in bytes for datagrams in flight.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Checks every field.
    ///
    /// # Errors
    ///
    /// Returns the first field that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        // Comparisons with a range refuse NaN too.
        let losses = match self.loss {
            Loss::Random(loss) => [loss; 4],
            Loss::Bursts { begin, end, inside, outside } => [begin, end, inside, outside],
        };
        for loss in losses {
            require(is_fraction(loss), "loss", "must be a fraction from 0 to 1")?;
        }
        let fractions = [("duplicate", self.duplicate), ("reorder", self.reorder), ("corrupt", self.corrupt)];
        for (field, fraction) in fractions {
            require(is_fraction(fraction), field, "must be a fraction from 0 to 1")?;
        }
        let (min, max) = match self.delay {
            Delay::Constant(delay) => (delay, delay),
            Delay::Uniform { min, max } => (min, max),
            Delay::Normal { mean, deviation } => (Duration::ZERO, mean.max(deviation)),
        };
        require(max <= DELAY_MAX, "delay", "must be an hour at most")?;
        require(min <= max, "delay", "must have a `min` of at most `max`")?;
        require(self.duplicate_delay <= DELAY_MAX, "duplicate_delay", "must be an hour at most")?;
        require(self.reorder_delay <= DELAY_MAX, "reorder_delay", "must be an hour at most")?;
        // A rate of 0 would divide by zero, and a queue of 0 would lose every datagram.
        let rate = self.rate.unwrap_or(Rate { bytes_per_second: 1, queue_bytes: 1 });
        require(rate.bytes_per_second >= 1, "rate", "must be 1 byte per second at least")?;
        require(rate.queue_bytes >= 1, "rate", "must have a queue of 1 byte at least")?;
        require(self.datagram_max_bytes != Some(0), "datagram_max_bytes", "must be at least 1")?;
        require(self.memory_bytes >= MEMORY_MIN_BYTES, "memory_bytes", "must be at least 65600")
    }
}

fn is_fraction(number: f64) -> bool {
    (0.0..=1.0).contains(&number)
}

fn require(fits: bool, field: &'static str, problem: &'static str) -> Result<(), ConfigError> {
    if fits { Ok(()) } else { Err(ConfigError::new(field, problem)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(config: &LinkConfig) -> Option<&'static str> {
        config.check().err().map(|error| error.field())
    }

    #[test]
    fn a_perfect_link_is_valid() {
        assert_eq!(field(&LinkConfig::default()), None);
    }

    #[test]
    fn every_bound_is_named_and_exact() {
        let ok = LinkConfig::default;
        let (hour, more) = (DELAY_MAX, DELAY_MAX + Duration::from_nanos(1));
        for (fraction, fits) in
            [(-0.000_1, false), (0.0, true), (1.0, true), (1.000_1, false), (f64::NAN, false)]
        {
            let burst = Loss::Bursts { begin: 0.0, end: fraction, inside: 0.0, outside: 0.0 };
            for (config, name) in [
                (ok().loss(Loss::Random(fraction)), "loss"),
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
        assert_eq!(field(&ok().delay(Delay::Uniform { min: hour, max: hour })), None);
        assert_eq!(field(&ok().delay(Delay::Uniform { min: hour, max: Duration::ZERO })), Some("delay"));
        assert_eq!(field(&ok().delay(Delay::Normal { mean: hour, deviation: more })), Some("delay"));
        assert_eq!(field(&ok().duplicate(0.5, more)), Some("duplicate_delay"));
        assert_eq!(field(&ok().reorder(0.5, more)), Some("reorder_delay"));
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
