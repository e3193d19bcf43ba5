//! The opening half of a connection: it opens packets and counts those that fail.
//!
//! It keeps no replay window (see [`crate::ReplayWindow`]) and does not restore truncated packet numbers. The
//! count of failed opens belongs to the connection, not to a key: it goes on when the keys of an epoch
//! change.

use std::fmt;

use crate::keys::OpenKeys;
use crate::nonce::nonce;
use crate::suite::{AeadError, PacketKey, Provider, Suite, TAG_BYTES};

/// Failed opens on one connection from which an alarm is due.
pub const FAILED_OPEN_ALARM: u64 = 1 << 20;
/// Failed opens at which a connection must close (RFC 9001 section 6.6, the stricter limit for both suites).
pub const FAILED_OPEN_LIMIT: u64 = 1 << 36;

/// Opens packets and counts failures.
pub struct Opener {
    keys: OpenKeys,
    /// The expanded key, boxed because an idle connection has none.
    working: Option<Box<Provider>>,
    failed_count: u64,
}

impl Opener {
    /// An opener for the first epoch, with no failure yet.
    #[must_use]
    pub const fn new(keys: OpenKeys) -> Self {
        Self { keys, working: None, failed_count: 0 }
    }

    #[cfg(test)]
    pub(crate) const fn with_failed_count(keys: OpenKeys, failed_count: u64) -> Self {
        Self { keys, working: None, failed_count }
    }

    /// Checks and decrypts `sealed` (body and tag) of packet `number` in place and returns the body. Expands
    /// the key for this one packet unless [`Opener::keep_expanded`] was called.
    ///
    /// # Errors
    /// See [`OpenError`]. The content of `sealed` is then unspecified and must not be used.
    pub fn open<'a>(
        &mut self,
        number: u64,
        aad: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        if self.failed_count >= FAILED_OPEN_LIMIT {
            return Err(OpenError::LimitReached);
        }
        let (body, tag) = sealed.split_last_chunk_mut::<TAG_BYTES>().ok_or(OpenError::TooShort)?;
        let keys = self.keys.epoch_keys();
        let nonce = nonce(keys.iv(), number);
        let opened = match &self.working {
            Some(working) => working.open_in_place(nonce, aad, body, tag),
            None => keys.expand().and_then(|working| working.open_in_place(nonce, aad, body, tag)),
        };
        match opened {
            Ok(()) => Ok(body),
            Err(AeadError) => Err(self.on_failed()),
        }
    }

    /// How many opens failed so far.
    #[must_use]
    pub const fn failed_count(&self) -> u64 {
        self.failed_count
    }

    /// Whether so many opens failed that the application should hear of it.
    #[must_use]
    pub const fn is_alarmed(&self) -> bool {
        self.failed_count >= FAILED_OPEN_ALARM
    }

    /// Expands the key now and keeps it (550 bytes or so on the heap), for a connection with several packets
    /// to open in a row.
    pub fn keep_expanded(&mut self) {
        if self.working.is_none() {
            self.working = self.keys.epoch_keys().expand().ok().map(Box::new);
        }
    }

    /// Drops the expanded key; the raw keys stay.
    pub fn drop_expanded(&mut self) {
        self.working = None;
    }

    /// The suite in use.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.keys.suite()
    }

    #[cold]
    fn on_failed(&mut self) -> OpenError {
        self.failed_count = self.failed_count.saturating_add(1);
        if self.failed_count >= FAILED_OPEN_LIMIT { OpenError::LimitReached } else { OpenError::Forged }
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener")
            .field("suite", &self.suite())
            .field("failed_count", &self.failed_count)
            .finish_non_exhaustive()
    }
}

/// Why a packet was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// Shorter than a tag; not counted as a failed open, since nothing was tried.
    TooShort,
    /// Key, number, associated data, body or tag do not fit together.
    Forged,
    /// 2^36 opens failed, this one or earlier ones: the connection must close, and nothing is opened any
    /// more.
    LimitReached,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "the packet is shorter than its tag",
            Self::Forged => "the packet was not sealed by the peer",
            Self::LimitReached => "too many forged packets, close the connection",
        })
    }
}

impl std::error::Error for OpenError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SealKeys;
    use crate::sealer::Sealer;
    use crate::secret::Secret;

    fn open_keys(chain: u8) -> OpenKeys {
        OpenKeys::first(&Secret::new([chain; 32]), Suite::ChaCha20Poly1305).unwrap()
    }

    fn sealer(suite: Suite) -> Sealer {
        #[cfg(feature = "audit-nonce")]
        crate::audit_nonce::start_world();
        Sealer::new(SealKeys::first(&Secret::new([3; 32]), suite).unwrap())
    }

    fn sealed(sealer: &mut Sealer, aad: &[u8], body: &[u8]) -> (u64, Vec<u8>) {
        let (mut body, mut tag) = (body.to_vec(), [0; TAG_BYTES]);
        let number = sealer.seal(aad, &mut body, &mut tag).unwrap();
        body.extend(tag);
        (number, body)
    }

    #[test]
    fn what_was_sealed_opens_in_any_order_with_every_suite() {
        for suite in Suite::ALL.into_iter().filter(|suite| suite.is_supported()) {
            let mut sealer = sealer(suite);
            let mut opener = Opener::new(OpenKeys::first(&Secret::new([3; 32]), suite).unwrap());
            let packets: Vec<_> = (0..50_usize).map(|i| sealed(&mut sealer, b"head", &vec![9; i])).collect();
            for (number, mut packet) in packets.into_iter().rev() {
                if number == 25 {
                    opener.keep_expanded();
                }
                let length = usize::try_from(number).unwrap();
                assert_eq!(opener.open(number, b"head", &mut packet).unwrap(), vec![9; length]);
            }
            assert_eq!(opener.failed_count(), 0);
        }
    }

    #[test]
    fn a_changed_number_header_byte_or_key_is_counted_as_forged() {
        let (number, packet) = sealed(&mut sealer(Suite::ChaCha20Poly1305), b"head", b"body");
        let mut opener = Opener::new(open_keys(3));
        assert_eq!(opener.open(number + 1, b"head", &mut packet.clone()), Err(OpenError::Forged));
        assert_eq!(opener.open(number, b"hea", &mut packet.clone()), Err(OpenError::Forged));
        assert_eq!(opener.open(number, b"heae", &mut packet.clone()), Err(OpenError::Forged));
        for at in 0..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= 1;
            assert_eq!(opener.open(number, b"head", &mut changed), Err(OpenError::Forged));
        }
        assert_eq!(opener.failed_count(), 3 + packet.len() as u64);
        assert_eq!(
            Opener::new(open_keys(4)).open(number, b"head", &mut packet.clone()),
            Err(OpenError::Forged)
        );
        assert!(opener.open(number, b"head", &mut packet.clone()).is_ok());
    }

    #[test]
    fn a_packet_shorter_than_its_tag_is_refused_without_counting() {
        let mut opener = Opener::new(open_keys(3));
        for length in [0, 1, TAG_BYTES - 1] {
            assert_eq!(opener.open(0, b"", &mut vec![0; length]), Err(OpenError::TooShort));
        }
        assert_eq!(opener.failed_count(), 0);
        assert_eq!(opener.open(0, b"", &mut [0; TAG_BYTES]), Err(OpenError::Forged));
        assert_eq!(opener.failed_count(), 1);
    }

    #[test]
    fn the_alarm_is_raised_at_its_count_and_not_before() {
        let mut opener = Opener::with_failed_count(open_keys(3), FAILED_OPEN_ALARM - 2);
        for expected in [false, true, true] {
            assert_eq!(opener.open(0, b"", &mut [0; 20]), Err(OpenError::Forged));
            assert_eq!(opener.is_alarmed(), expected, "{}", opener.failed_count());
        }
    }

    #[test]
    fn the_connection_closes_at_exactly_the_limit_of_failed_opens() {
        let (number, packet) = sealed(&mut sealer(Suite::ChaCha20Poly1305), b"", b"body");
        let mut opener = Opener::with_failed_count(open_keys(3), FAILED_OPEN_LIMIT - 2);
        assert_eq!(opener.open(0, b"", &mut [0; 20]), Err(OpenError::Forged));
        assert_eq!(opener.failed_count(), FAILED_OPEN_LIMIT - 1);
        assert!(opener.open(number, b"", &mut packet.clone()).is_ok(), "one below the limit still opens");
        assert_eq!(opener.open(0, b"", &mut [0; 20]), Err(OpenError::LimitReached));
        assert_eq!(opener.failed_count(), FAILED_OPEN_LIMIT);
        for beyond in [FAILED_OPEN_LIMIT, FAILED_OPEN_LIMIT + 1, u64::MAX] {
            let mut opener = Opener::with_failed_count(open_keys(3), beyond);
            assert_eq!(opener.open(number, b"", &mut packet.clone()), Err(OpenError::LimitReached));
            assert_eq!(opener.failed_count(), beyond, "the count stands still");
        }
    }

    #[test]
    fn the_next_epoch_of_both_halves_fits_together() {
        let mut sealer = sealer(Suite::ChaCha20Poly1305);
        sealer.keep_expanded();
        sealed(&mut sealer, b"", b"old");
        sealer.step_to_next_epoch();
        let (number, packet) = sealed(&mut sealer, b"", b"new");
        assert_eq!(Opener::new(open_keys(3)).open(number, b"", &mut packet.clone()), Err(OpenError::Forged));
        assert_eq!(
            Opener::new(open_keys(3).next_epoch()).open(number, b"", &mut packet.clone()).unwrap(),
            b"new"
        );
    }

    #[test]
    fn debug_shows_the_suite_and_the_count_only() {
        let text = format!("{:?}", Opener::new(open_keys(3)));
        assert_eq!(text, "Opener { suite: ChaCha20Poly1305, failed_count: 0, .. }");
    }
}
