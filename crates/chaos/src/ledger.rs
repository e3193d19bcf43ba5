//! What one player said and what came back: numbered messages that the server echoes, on a channel that may lose and on one
//! that may not.
//!
//! It sends nothing: the crowd does, and shows it what came.

use std::time::Duration;

/// Bytes of a message: a number, when it was said, and some more as a game's input has.
pub(crate) const MESSAGE_BYTES: usize = 64;

/// Bytes of messages that fit a packet, fill one, and do not fit: taken in turn.
pub(crate) const MIXED_BYTES: &[usize] = &[64, 700, 1_100, 3_000];

/// Numbers of lossy messages that are remembered to find doubles.
const REMEMBERED: usize = 1_024;

/// One channel of one player.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// Messages said.
    pub(crate) said: u64,
    /// Echoes heard.
    pub(crate) heard: u64,
    /// Echoes that came twice, or of what nobody said, or that should have come in order and did not.
    pub(crate) wrong: u64,
    is_ordered: bool,
    /// Bytes of the messages, in turn by their numbers; empty for [`MESSAGE_BYTES`].
    sizes: &'static [usize],
    /// By number, newest in its place. Empty where order is promised.
    recent: Vec<u64>,
}

impl Ledger {
    /// For a channel that keeps the order and loses nothing.
    pub(crate) fn ordered() -> Self {
        Self { is_ordered: true, ..Self::default() }
    }

    /// For a channel that may lose.
    pub(crate) fn lossy() -> Self {
        Self { recent: vec![0; REMEMBERED], ..Self::default() }
    }

    /// With messages of these sizes, at least 16 bytes each.
    pub(crate) fn sizes(mut self, sizes: &'static [usize]) -> Self {
        self.sizes = sizes;
        self
    }

    /// A new one for the same channel.
    pub(crate) fn anew(&self) -> Self {
        let anew = if self.is_ordered { Self::ordered() } else { Self::lossy() };
        anew.sizes(self.sizes)
    }

    fn bytes_of(&self, number: u64) -> usize {
        let at = usize::try_from(number).unwrap_or(0) % self.sizes.len().max(1);
        self.sizes.get(at).copied().unwrap_or(MESSAGE_BYTES)
    }

    /// The next message, to be counted by [`Ledger::on_said`] once it is taken.
    pub(crate) fn next(&self, now_ns: u64) -> Vec<u8> {
        let mut message = vec![0x5a; self.bytes_of(self.said + 1)];
        message[..8].copy_from_slice(&(self.said + 1).to_be_bytes());
        message[8..16].copy_from_slice(&now_ns.to_be_bytes());
        message
    }

    /// The message was taken.
    pub(crate) fn on_said(&mut self) {
        self.said += 1;
    }

    /// Takes an echo in; answers how long it was under way.
    pub(crate) fn hear(&mut self, message: &[u8], now_ns: u64) -> Option<Duration> {
        let Some((number, rest)) = message.split_first_chunk() else {
            self.wrong += 1;
            return None;
        };
        let number = u64::from_be_bytes(*number);
        if message.len() != self.bytes_of(number) || !self.is_due(number) {
            self.wrong += 1;
            return None;
        }
        self.heard += 1;
        let said_at = rest.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))?;
        Some(Duration::from_nanos(now_ns.saturating_sub(said_at)))
    }

    /// Messages that have not come back.
    pub(crate) fn missing(&self) -> u64 {
        self.said.saturating_sub(self.heard)
    }

    fn is_due(&mut self, number: u64) -> bool {
        if number == 0 || number > self.said {
            return false;
        }
        if self.is_ordered {
            return number == self.heard + 1;
        }
        let place = usize::try_from(number).unwrap_or(0) % REMEMBERED;
        // An older one that comes after a newer one in its place cannot be told from a double.
        let is_new = number > self.recent[place];
        self.recent[place] = self.recent[place].max(number);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many messages, all said at 5 ns.
    fn said(ledger: &mut Ledger, count: u64) -> Vec<Vec<u8>> {
        let say = |_| {
            let message = ledger.next(5);
            ledger.on_said();
            message
        };
        (0..count).map(say).collect()
    }

    #[test]
    fn what_comes_back_in_order_is_heard_with_its_time() {
        let mut ledger = Ledger::ordered();
        let messages = said(&mut ledger, 2);
        assert_eq!(ledger.missing(), 2);
        assert_eq!(ledger.hear(&messages[0], 12), Some(Duration::from_nanos(7)));
        assert_eq!(ledger.hear(&messages[1], 5), Some(Duration::ZERO));
        assert_eq!((ledger.heard, ledger.missing(), ledger.wrong), (2, 0, 0));
    }

    #[test]
    fn a_gap_a_double_and_a_stranger_are_wrong_where_order_is_promised() {
        let mut ledger = Ledger::ordered();
        let messages = said(&mut ledger, 3);
        assert_eq!(ledger.hear(&messages[1], 9), None);
        assert!(ledger.hear(&messages[0], 9).is_some());
        assert_eq!(ledger.hear(&messages[0], 9), None);
        assert_eq!(ledger.hear(b"short", 9), None);
        let mut never_said = messages[2].clone();
        never_said[7] = 4;
        assert_eq!(ledger.hear(&never_said, 9), None);
        assert_eq!((ledger.heard, ledger.wrong), (1, 4));
    }

    #[test]
    fn messages_have_the_sizes_of_their_numbers() {
        let mut ledger = Ledger::ordered().sizes(&[20, 30]);
        let messages = said(&mut ledger, 2);
        assert_eq!([messages[0].len(), messages[1].len()], [30, 20]);
        assert!(ledger.hear(&messages[0], 9).is_some());
        assert!(ledger.hear(&messages[1][..19], 9).is_none());
        assert_eq!(ledger.anew().next(1).len(), 30);
    }

    #[test]
    fn a_gap_and_another_order_are_fine_where_nothing_is_promised_and_a_double_is_not() {
        let mut ledger = Ledger::lossy();
        let messages = said(&mut ledger, 5);
        for at in [4, 0, 2] {
            assert!(ledger.hear(&messages[at], 9).is_some());
        }
        assert!(ledger.hear(&messages[2], 9).is_none());
        assert_eq!((ledger.heard, ledger.missing(), ledger.wrong), (3, 2, 1));
    }
}
