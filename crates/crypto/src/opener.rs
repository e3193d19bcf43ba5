//! The opening half of a connection. It opens packets of the current, the previous, and the next key epoch, and counts failures.
//!
//! The replay window is [`crate::ReplayWindow`]. The count of failures belongs to the connection and not to a key, so it
//! continues when keys change. The caller decides when the keys of the previous epoch are dropped, because this module has no
//! clock.

use std::fmt;

use crate::keys::{ExpandedKey, OpenKeys};
use crate::suite::{AeadError, PacketKey, Suite, TAG_BYTES};

/// The number of failed opens at which a connection must close.
///
/// This is the integrity limit of ChaCha20-Poly1305, which is stricter than that of AES-128-GCM (RFC 9001 section 6.6).
pub const FAILED_OPEN_LIMIT: u64 = 1 << 36;

/// Opens packets and counts failures.
pub struct Opener {
    current: Epoch,
    /// The epochs next to the current one. They are boxed because they rarely exist.
    adjacent: Option<Box<AdjacentEpochs>>,
    failed_count: u64,
}

/// The keys of one epoch.
struct Epoch {
    keys: OpenKeys,
    /// The key phase of the epoch's packets, which changes with every epoch.
    key_phase: bool,
    /// The expanded key of a busy connection. It is boxed because most connections are idle.
    expanded: Option<Box<ExpandedKey>>,
}

/// The epochs before and after the current one.
///
/// Each epoch has its own box. `Option::take` on an epoch itself would move the keys and leave a copy of their bytes behind.
#[derive(Default)]
struct AdjacentEpochs {
    /// The epoch before the current one, until the caller drops it.
    previous: Option<Box<Epoch>>,
    /// Derived when the first packet of the other key phase arrives, and kept, so that each later forgery of that phase costs
    /// no more than any other forgery.
    next: Option<Box<Epoch>>,
    /// The lowest packet number that was opened in the current epoch. Packets of the other key phase with a lower number belong
    /// to the previous epoch (RFC 9001 section 6.5).
    first_number: Option<u64>,
}

/// A packet that was authenticated and decrypted.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// The decrypted body of the packet.
    pub body: &'a mut [u8],
    /// Whether this is the first packet of a new epoch. If so, the peer has updated its keys, and this end must update
    /// its own.
    pub is_new_epoch: bool,
}

impl Epoch {
    const fn new(keys: OpenKeys, key_phase: bool) -> Self {
        Self { keys, key_phase, expanded: None }
    }

    fn open(&self, number: u64, aad: &[u8], body: &mut [u8], tag: &[u8; TAG_BYTES]) -> Result<(), AeadError> {
        let mut open = |key: &ExpandedKey| key.provider.open_in_place(key.nonce(number), aad, body, tag);
        match &self.expanded {
            Some(key) => open(key),
            None => self.keys.epoch_keys().expand().and_then(|key| open(&key)),
        }
    }

    fn expand(&mut self) {
        if self.expanded.is_none() {
            let expanded = self.keys.epoch_keys().expand();
            debug_assert!(expanded.is_ok(), "keys exist only for suites that this build supports");
            self.expanded = expanded.ok().map(Box::new);
        }
    }

    /// Derives the next epoch.
    fn successor(&self) -> Box<Self> {
        Box::new(Self::new(self.keys.next_epoch(), !self.key_phase))
    }
}

impl Opener {
    /// Loads the parts that a packet needs into the cache, before a packet is opened.
    #[inline]
    pub fn prefetch(&self) {
        if let Some(expanded) = &self.current.expanded {
            expanded.prefetch();
        }
    }

    /// Creates an opener for the first epoch, whose key phase is 0.
    #[must_use]
    pub const fn new(keys: OpenKeys) -> Self {
        Self { current: Epoch::new(keys, false), adjacent: None, failed_count: 0 }
    }

    #[cfg(test)]
    pub(crate) fn with_failed_count(keys: OpenKeys, failed_count: u64) -> Self {
        Self { failed_count, ..Self::new(keys) }
    }

    /// Authenticates and decrypts `sealed`, the body and tag of packet `number`, in place.
    ///
    /// If a packet of the next epoch opens, that epoch becomes the current one. Expands the key for this packet unless
    /// [`Opener::keep_expanded`] was called.
    ///
    /// # Errors
    /// See [`OpenError`]. The contents of `sealed` are unspecified then and must not be used.
    pub fn open<'a>(
        &mut self,
        number: u64,
        key_phase: bool,
        aad: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<Opened<'a>, OpenError> {
        if self.failed_count >= FAILED_OPEN_LIMIT {
            return Err(OpenError::LimitReached);
        }
        let (body, tag) = sealed.split_last_chunk_mut::<TAG_BYTES>().ok_or(OpenError::TooShort)?;
        if key_phase == self.key_phase() {
            return match self.current.open(number, aad, body, tag) {
                Ok(()) => {
                    self.record_first_number(number);
                    Ok(Opened { body, is_new_epoch: false })
                }
                Err(AeadError) => Err(self.on_failed()),
            };
        }
        if let Some(previous) = self.previous_epoch(number) {
            return match previous.open(number, aad, body, tag) {
                Ok(()) => Ok(Opened { body, is_new_epoch: false }),
                Err(AeadError) => Err(self.on_failed()),
            };
        }
        match self.next_epoch().open(number, aad, body, tag) {
            Ok(()) => {
                self.step_to_next_epoch();
                self.record_first_number(number);
                Ok(Opened { body, is_new_epoch: true })
            }
            Err(AeadError) => Err(self.on_failed()),
        }
    }

    /// Makes the next epoch the current one, because this peer updates its keys. Packets of the epoch before still open.
    pub fn step_to_next_epoch(&mut self) {
        let adjacent = self.adjacent.get_or_insert_default();
        let mut next = adjacent.next.take().unwrap_or_else(|| self.current.successor());
        if self.current.expanded.is_some() {
            next.expand();
        }
        // A swap inside the box leaves no copy of the keys behind, unlike a move out of the box.
        std::mem::swap(&mut self.current, &mut *next);
        adjacent.previous = Some(next);
        adjacent.first_number = None;
    }

    /// Returns whether a packet of the current epoch was opened while the keys of the previous epoch were kept.
    #[must_use]
    pub fn has_opened_current(&self) -> bool {
        self.adjacent.as_ref().is_some_and(|adjacent| adjacent.first_number.is_some())
    }

    /// Returns whether the keys of the previous epoch are kept.
    #[must_use]
    pub fn has_previous(&self) -> bool {
        self.adjacent.as_ref().is_some_and(|adjacent| adjacent.previous.is_some())
    }

    /// Wipes the keys of the previous epoch.
    pub fn forget_previous(&mut self) {
        self.adjacent = None;
    }

    /// Returns the key phase of the current epoch.
    #[must_use]
    pub const fn key_phase(&self) -> bool {
        self.current.key_phase
    }

    /// Returns the number of failed opens.
    #[must_use]
    pub const fn failed_count(&self) -> u64 {
        self.failed_count
    }

    /// Expands the current key and keeps it, for a connection that opens several packets in a row. It takes about 550 bytes of
    /// heap.
    pub fn keep_expanded(&mut self) {
        self.current.expand();
    }

    /// Drops the expanded keys. The keys that they were expanded from stay.
    pub fn drop_expanded(&mut self) {
        self.current.expanded = None;
        if let Some(adjacent) = &mut self.adjacent {
            for epoch in adjacent.previous.iter_mut().chain(&mut adjacent.next) {
                epoch.expanded = None;
            }
        }
    }

    /// Returns the suite of the keys.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.current.keys.suite()
    }

    /// Returns the previous epoch if a packet of the other key phase with this number belongs to it.
    fn previous_epoch(&self, number: u64) -> Option<&Epoch> {
        let adjacent = self.adjacent.as_ref()?;
        adjacent.previous.as_deref().filter(|_| adjacent.first_number.is_none_or(|first| number < first))
    }

    fn next_epoch(&mut self) -> &Epoch {
        let adjacent = self.adjacent.get_or_insert_default();
        let next = adjacent.next.get_or_insert_with(|| self.current.successor());
        if self.current.expanded.is_some() {
            // A busy connection would otherwise expand this key for every packet that claims to be of the next epoch.
            next.expand();
        }
        next
    }

    fn record_first_number(&mut self, number: u64) {
        if let Some(adjacent) = &mut self.adjacent
            && adjacent.previous.is_some()
        {
            adjacent.first_number = Some(adjacent.first_number.map_or(number, |first| first.min(number)));
        }
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

/// The reason why a packet was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The packet is shorter than a tag. It does not count as a failed open, because no key was tried.
    TooShort,
    /// The tag does not authenticate the key, number, associated data, and body.
    Forged,
    /// At least 2^36 opens failed. The connection must close, and no packet is opened anymore.
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
        Sealer::new(SealKeys::first(&Secret::new([3; 32]), suite).unwrap())
    }

    fn sealed(sealer: &mut Sealer, aad: &[u8], body: &[u8]) -> (u64, Vec<u8>) {
        let (mut body, mut tag) = (body.to_vec(), [0; TAG_BYTES]);
        let number = sealer.seal(aad, &mut body, &mut tag).unwrap();
        body.extend(tag);
        (number, body)
    }

    #[test]
    fn sealed_packets_open_in_any_order_with_every_suite() {
        for suite in Suite::ALL.into_iter().filter(|suite| suite.is_supported()) {
            let mut sealer = sealer(suite);
            let mut opener = Opener::new(OpenKeys::first(&Secret::new([3; 32]), suite).unwrap());
            let packets: Vec<_> =
                (0..50_u8).map(|i| sealed(&mut sealer, b"head", &vec![9; i.into()])).collect();
            for (number, mut packet) in packets.into_iter().rev() {
                if number == 25 {
                    opener.keep_expanded();
                }
                let length = packet.len() - TAG_BYTES;
                assert_eq!(opener.open(number, false, b"head", &mut packet).unwrap().body, vec![9; length]);
            }
            assert_eq!(opener.failed_count(), 0);
        }
    }

    #[test]
    fn a_changed_number_header_byte_or_key_is_counted_as_forged() {
        let (number, packet) = sealed(&mut sealer(Suite::ChaCha20Poly1305), b"head", b"body");
        let mut opener = Opener::new(open_keys(3));
        assert_eq!(opener.open(number + 1, false, b"head", &mut packet.clone()), Err(OpenError::Forged));
        assert_eq!(opener.open(number, false, b"hea", &mut packet.clone()), Err(OpenError::Forged));
        assert_eq!(opener.open(number, false, b"heae", &mut packet.clone()), Err(OpenError::Forged));
        for at in 0..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= 1;
            assert_eq!(opener.open(number, false, b"head", &mut changed), Err(OpenError::Forged));
        }
        assert_eq!(opener.failed_count(), 3 + packet.len() as u64);
        assert_eq!(
            Opener::new(open_keys(4)).open(number, false, b"head", &mut packet.clone()),
            Err(OpenError::Forged)
        );
        assert!(opener.open(number, false, b"head", &mut packet.clone()).is_ok());
    }

    #[test]
    fn a_packet_shorter_than_its_tag_is_refused_without_counting() {
        let mut opener = Opener::new(open_keys(3));
        for length in [0, 1, TAG_BYTES - 1] {
            assert_eq!(opener.open(0, false, b"", &mut vec![0; length]), Err(OpenError::TooShort));
        }
        assert_eq!(opener.failed_count(), 0);
        assert_eq!(opener.open(0, false, b"", &mut [0; TAG_BYTES]), Err(OpenError::Forged));
        assert_eq!(opener.failed_count(), 1);
    }

    #[test]
    fn the_connection_closes_at_exactly_the_limit_of_failed_opens() {
        let (number, packet) = sealed(&mut sealer(Suite::ChaCha20Poly1305), b"", b"body");
        let mut opener = Opener::with_failed_count(open_keys(3), FAILED_OPEN_LIMIT - 2);
        assert_eq!(opener.open(0, false, b"", &mut [0; 20]), Err(OpenError::Forged));
        assert_eq!(opener.failed_count(), FAILED_OPEN_LIMIT - 1);
        assert!(
            opener.open(number, false, b"", &mut packet.clone()).is_ok(),
            "one below the limit still opens"
        );
        assert_eq!(opener.open(0, false, b"", &mut [0; 20]), Err(OpenError::LimitReached));
        assert_eq!(opener.failed_count(), FAILED_OPEN_LIMIT);
        for beyond in [FAILED_OPEN_LIMIT, FAILED_OPEN_LIMIT + 1, u64::MAX] {
            let mut opener = Opener::with_failed_count(open_keys(3), beyond);
            assert_eq!(opener.open(number, false, b"", &mut packet.clone()), Err(OpenError::LimitReached));
            assert_eq!(opener.failed_count(), beyond, "the count does not change");
        }
    }

    /// Packets of epochs 0, 1 and 2, three each.
    fn three_epochs() -> Vec<(u64, bool, Vec<u8>)> {
        let mut sealer = sealer(Suite::ChaCha20Poly1305);
        sealer.keep_expanded();
        let mut packets = Vec::new();
        for epoch in 0..3 {
            for _ in 0..3 {
                let (number, packet) = sealed(&mut sealer, b"", &[epoch]);
                packets.push((number, epoch % 2 == 1, packet));
            }
            sealer.step_to_next_epoch();
        }
        packets
    }

    /// Opens a packet. Returns its body and whether it is the first of a new epoch.
    fn opened(opener: &mut Opener, packet: &(u64, bool, Vec<u8>)) -> Result<(Vec<u8>, bool), OpenError> {
        let mut bytes = packet.2.clone();
        opener
            .open(packet.0, packet.1, b"", &mut bytes)
            .map(|opened| (opened.body.to_vec(), opened.is_new_epoch))
    }

    #[test]
    fn the_first_packet_of_the_next_epoch_makes_it_the_current_one() {
        let (packets, mut opener) = (three_epochs(), Opener::new(open_keys(3)));
        opener.keep_expanded();
        assert_eq!(opened(&mut opener, &packets[0]), Ok((vec![0], false)));
        assert_eq!(opened(&mut opener, &packets[4]), Ok((vec![1], true)));
        assert!(opener.key_phase() && opener.has_opened_current());
        assert_eq!(
            opened(&mut opener, &packets[3]),
            Ok((vec![1], false)),
            "a reordered packet of the same epoch"
        );
        assert_eq!(
            opened(&mut opener, &packets[2]),
            Ok((vec![0], false)),
            "a reordered packet of the previous epoch"
        );
        assert!(opener.has_previous());
        opener.forget_previous();
        assert!(!opener.has_previous());
        assert_eq!(
            opened(&mut opener, &packets[1]),
            Err(OpenError::Forged),
            "the keys of the previous epoch were dropped"
        );
        assert_eq!(opened(&mut opener, &packets[6]), Ok((vec![2], true)));
        assert_eq!(opener.failed_count(), 1);
    }

    #[test]
    fn a_peer_that_begins_an_epoch_opens_the_previous_one() {
        let (packets, mut opener) = (three_epochs(), Opener::new(open_keys(3)));
        opener.step_to_next_epoch();
        assert!(!opener.has_opened_current());
        for packet in &packets[..3] {
            assert_eq!(opened(&mut opener, packet), Ok((vec![0], false)));
        }
        assert_eq!(
            opened(&mut opener, &packets[4]),
            Ok((vec![1], false)),
            "the epoch is already the current one"
        );
        assert!(opener.has_opened_current());
        assert_eq!(opened(&mut opener, &packets[2]), Ok((vec![0], false)));
        assert_eq!(opened(&mut opener, &packets[6]), Ok((vec![2], true)));
    }

    #[test]
    fn forgeries_of_the_next_epoch_are_counted() {
        let (packets, mut opener) = (three_epochs(), Opener::new(open_keys(3)));
        for number in 0..1_000 {
            let forged = (number, true, vec![0x5a; 40]);
            assert_eq!(opened(&mut opener, &forged), Err(OpenError::Forged));
        }
        assert_eq!((opener.failed_count(), opener.key_phase()), (1_000, false));
        for packet in &packets {
            assert!(opened(&mut opener, packet).is_ok());
        }
    }

    #[test]
    fn forgeries_of_all_epochs_count_together() {
        let (packets, mut opener) =
            (three_epochs(), Opener::with_failed_count(open_keys(3), FAILED_OPEN_LIMIT - 3));
        opened(&mut opener, &packets[3]).unwrap();
        let forged = |number, phase| (number, phase, vec![0x5a; 40]);
        assert_eq!(opened(&mut opener, &forged(4, true)), Err(OpenError::Forged), "the current epoch");
        assert_eq!(opened(&mut opener, &forged(1, false)), Err(OpenError::Forged), "the previous epoch");
        assert_eq!(opened(&mut opener, &forged(9, false)), Err(OpenError::LimitReached), "the next epoch");
    }

    #[test]
    fn debug_shows_the_suite_and_the_count_only() {
        let text = format!("{:?}", Opener::new(open_keys(3)));
        assert_eq!(text, "Opener { suite: ChaCha20Poly1305, failed_count: 0, .. }");
    }

    #[test]
    fn a_busy_connection_keeps_the_next_epoch_expanded() {
        let mut opener = Opener::new(open_keys(3));
        opener.keep_expanded();
        let open_forgery = |opener: &mut Opener| opener.open(7, true, b"", &mut [0; 40]).is_err();
        let is_next_expanded = |opener: &Opener| {
            opener
                .adjacent
                .as_ref()
                .and_then(|adjacent| adjacent.next.as_ref())
                .map(|next| next.expanded.is_some())
        };
        assert!(open_forgery(&mut opener));
        assert_eq!(is_next_expanded(&opener), Some(true));
        opener.drop_expanded();
        assert_eq!(is_next_expanded(&opener), Some(false));
        assert!(open_forgery(&mut opener));
        assert_eq!(is_next_expanded(&opener), Some(false), "an idle connection keeps no expanded key");
    }
}
