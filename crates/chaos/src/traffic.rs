//! The messages of one channel of one player, and the times that messages take.
//!
//! Both have a fixed size, so that a soak of hours does not grow. The simulator's record of a flow keeps every message, and does not
//! fit here for that reason.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The bytes of a message: a number, the time it was sent, and filling up to the size of a game's input.
pub(crate) const MESSAGE_BYTES: usize = 64;

/// The sizes of messages that fit a packet, fill a packet, and need several packets.
pub(crate) const MIXED_BYTES: &[usize] = &[64, 700, 1_100, 3_000];

/// Numbers of lossy messages that are remembered to find duplicates.
const REMEMBERED: usize = 1_024;

/// Longer times are recorded as an hour.
const TIME_MAX_US: u64 = 3_600_000_000;

/// Numbered messages in one direction, or there and back.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageLog {
    /// The number of messages that were sent.
    pub(crate) sent: u64,
    /// The number of messages that arrived for the first time and in the promised order.
    pub(crate) received: u64,
    /// The number of messages that arrived twice, were never sent, or broke a promised order.
    pub(crate) wrong: u64,
    is_ordered: bool,
    /// The sizes of the messages, which take turns. Empty if all messages have [`MESSAGE_BYTES`].
    sizes: &'static [usize],
    /// The newest number that arrived in each place. Empty where order is promised.
    recent: Vec<u64>,
}

impl MessageLog {
    /// Returns the log of a channel that keeps the order and loses nothing.
    pub(crate) fn ordered(sizes: &'static [usize]) -> Self {
        Self { is_ordered: true, sizes, ..Self::default() }
    }

    /// Returns the log of a channel that may lose messages.
    pub(crate) fn lossy(sizes: &'static [usize]) -> Self {
        Self { recent: vec![0; REMEMBERED], sizes, ..Self::default() }
    }

    /// Returns an empty log of the same kind.
    pub(crate) fn restarted(&self) -> Self {
        if self.is_ordered { Self::ordered(self.sizes) } else { Self::lossy(self.sizes) }
    }

    fn bytes_of(&self, number: u64) -> usize {
        let index = usize::try_from(number).unwrap_or(0) % self.sizes.len().max(1);
        self.sizes.get(index).copied().unwrap_or(MESSAGE_BYTES)
    }

    /// Returns the next message. The caller counts it in `sent` once the connection accepts it.
    pub(crate) fn next_message(&self, now_ns: u64) -> Vec<u8> {
        let mut message = vec![0x5a; self.bytes_of(self.sent + 1)];
        message[..8].copy_from_slice(&(self.sent + 1).to_be_bytes());
        message[8..16].copy_from_slice(&now_ns.to_be_bytes());
        message
    }

    /// Records a message that arrived. Returns the time since it was sent, unless it is wrong.
    pub(crate) fn on_message(&mut self, message: &[u8], now_ns: u64) -> Option<Duration> {
        let number = message.first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
        if message.len() != self.bytes_of(number) || !self.is_due(number) {
            self.wrong += 1;
            return None;
        }
        self.received += 1;
        let sent_at = message.get(8..)?.first_chunk().map(|time| u64::from_be_bytes(*time))?;
        Some(Duration::from_nanos(now_ns.saturating_sub(sent_at)))
    }

    /// Returns the number of messages that have not arrived.
    pub(crate) fn missing(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    fn is_due(&mut self, number: u64) -> bool {
        if number == 0 || number > self.sent {
            return false;
        }
        if self.is_ordered {
            return number == self.received + 1;
        }
        // A message that arrives after a newer one in its place looks like a duplicate.
        let newest = &mut self.recent[usize::try_from(number).unwrap_or(0) % REMEMBERED];
        let is_new = number > *newest;
        *newest = number.max(*newest);
        is_new
    }
}

/// A histogram of times with three significant digits.
#[derive(Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, TIME_MAX_US, 3).expect("the bounds are valid"))
    }
}

impl Times {
    /// Records a time.
    pub(crate) fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_micros()).unwrap_or(TIME_MAX_US));
    }

    /// Returns the time that `percent` of all times do not exceed, and zero without any.
    pub(crate) fn percentile(&self, percent: f64) -> Duration {
        Duration::from_micros(self.0.value_at_percentile(percent))
    }

    /// Removes all times.
    pub(crate) fn clear(&mut self) {
        self.0.reset();
    }
}

/// Returns a time in milliseconds with one decimal.
pub(crate) fn millis(time: Duration) -> String {
    let tenths = time.as_micros() / 100;
    format!("{}.{} ms", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `count` messages at 5 ns.
    fn send(log: &mut MessageLog, count: u64) -> Vec<Vec<u8>> {
        let mut next = || {
            let message = log.next_message(5);
            log.sent += 1;
            message
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn an_ordered_log_finds_gaps_duplicates_and_unsent_messages() {
        let mut log = MessageLog::ordered(&[]);
        let messages = send(&mut log, 3);
        assert_eq!(log.on_message(&messages[1], 9), None, "a gap");
        assert_eq!(log.on_message(&messages[0], 12), Some(Duration::from_nanos(7)));
        assert_eq!(log.on_message(&messages[0], 9), None, "a duplicate");
        assert_eq!(log.on_message(b"short", 9), None);
        let mut never_sent = messages[2].clone();
        never_sent[7] = 4;
        assert_eq!(log.on_message(&never_sent, 9), None);
        assert_eq!((log.received, log.wrong, log.missing()), (1, 4, 2));
        assert_eq!(log.on_message(&messages[1], 5), Some(Duration::ZERO));
    }

    #[test]
    fn a_lossy_log_accepts_gaps_and_finds_duplicates() {
        let mut log = MessageLog::lossy(&[]);
        let messages = send(&mut log, 5);
        for index in [4, 0, 2] {
            assert!(log.on_message(&messages[index], 9).is_some());
        }
        assert!(log.on_message(&messages[2], 9).is_none());
        assert_eq!((log.received, log.missing(), log.wrong), (3, 2, 1));
    }
}
