//! The packet protection of a connection: its keys, its packet numbers in both directions, and the replay window.
//!
//! Keys change in both directions together: when this end's key is used up, or when the peer's first packet under new
//! keys was opened. No state changes before a packet was opened.

use std::ops::Range;
use std::time::Duration;

use drumfire_crypto::{
    Entropy, OpenError, OpenKeys, Opener, ReplayError, ReplayWindow, SealError, SealKeys, Sealer, TAG_BYTES,
};
use drumfire_wire::{PacketNumber, TransportHeader};

use crate::epoch::{EpochLimits, KeyEpoch};
use crate::limits::{SKIP_MIN_PACKETS, SKIP_SPREAD_PACKETS};
use crate::stats::DropReason;
use crate::time::Moment;

/// The packet protection of one connection.
#[derive(Debug)]
pub(crate) struct PacketProtection {
    sealer: Sealer,
    opener: Opener,
    replay: ReplayWindow,
    skip_at: u64,
    epoch: KeyEpoch,
}

/// The packet number of an opened datagram, and the position of its frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) number: u64,
    pub(crate) frames: Range<usize>,
    /// The peer changed its keys with this packet.
    pub(crate) is_new_epoch: bool,
}

/// Why a packet was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The datagram is dropped without further effect.
    Drop(DropReason),
    /// Too many forged packets arrived, and the connection must close (RFC 9001 section 6.6).
    KeyLimit,
    /// The peer changed its keys again before it could know that the last change had arrived.
    KeyChange,
}

impl PacketProtection {
    /// Creates a session for its first packets. `replay_window` was validated before.
    pub(crate) fn new(
        now: Moment,
        seal_keys: SealKeys,
        open_keys: OpenKeys,
        replay_window: u32,
        entropy: &mut Entropy,
    ) -> Self {
        let mut session = Self {
            sealer: Sealer::new(seal_keys),
            opener: Opener::new(open_keys),
            replay: ReplayWindow::narrow(replay_window).unwrap_or_default(),
            skip_at: 0,
            epoch: KeyEpoch::new(now),
        };
        session.draw_skip(0, entropy);
        session
    }

    /// Opens a packet in place. `settling` returns how long the keys of the previous epoch are kept.
    pub(crate) fn open(
        &mut self,
        now: Moment,
        settling: impl FnOnce() -> Duration,
        header: &TransportHeader,
        datagram: &mut [u8],
    ) -> Result<Opened, Refusal> {
        let number = header.number.expand(self.largest()).0;
        self.replay.check(number).map_err(refused)?;
        let start = header.encoded_bytes();
        let (aad, sealed) =
            datagram.split_at_mut_checked(start).ok_or(Refusal::Drop(DropReason::WrongLength))?;
        let end = start.saturating_add(sealed.len()).saturating_sub(TAG_BYTES);
        let is_new_epoch = match self.opener.open(number, header.key_phase, aad, sealed) {
            Ok(opened) => opened.is_new_epoch,
            Err(OpenError::TooShort) => return Err(Refusal::Drop(DropReason::WrongLength)),
            Err(OpenError::Forged) => return Err(Refusal::Drop(DropReason::Forged)),
            Err(OpenError::LimitReached) => return Err(Refusal::KeyLimit),
        };
        self.replay.accept(number).map_err(refused)?;
        if is_new_epoch {
            let next = self.next_unused();
            let is_too_soon = self.epoch.is_unused(next);
            // Both directions stay in the same epoch, even when the key change violates the protocol. Otherwise the
            // Close that reports it would carry the key phase of one epoch and be sealed with the keys of another.
            self.sealer.step_to_next_epoch();
            self.epoch.begin_next(now, next);
            if is_too_soon {
                return Err(Refusal::KeyChange);
            }
        }
        if self.opener.has_opened_current() {
            self.epoch.on_packet_opened(now, settling());
        }
        Ok(Opened { number, frames: start..end, is_new_epoch })
    }

    /// Whether this is another copy of the newest packet: its number is the largest, and it opens. No state changes.
    pub(crate) fn is_copy_of_newest(&mut self, header: &TransportHeader, datagram: &mut [u8]) -> bool {
        let number = header.number.expand(self.largest()).0;
        let Some((aad, sealed)) = datagram.split_at_mut_checked(header.encoded_bytes()) else { return false };
        // Only the epoch of the newest packet counts: the previous one until a packet of the current one was opened. A
        // packet that is sealed again in another epoch would change the keys of one direction only.
        let is_previous = self.opener.has_previous() && !self.opener.has_opened_current();
        let has_same_keys = (header.key_phase != self.key_phase()) == is_previous;
        has_same_keys
            && self.is_newest(number)
            && self.opener.open(number, header.key_phase, aad, sealed).is_ok()
    }

    pub(crate) fn largest(&self) -> Option<PacketNumber> {
        self.replay.highest().map(PacketNumber)
    }

    /// Reads a field of each part, for `Connection::prefetch_parts`.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.opener.prefetch();
        self.sealer.prefetch();
        self.replay.prefetch();
    }

    /// Whether no larger number than this was opened.
    pub(crate) fn is_newest(&self, number: u64) -> bool {
        self.largest() == Some(PacketNumber(number))
    }

    /// Whether this end should change its keys before it seals another packet.
    #[inline]
    pub(crate) fn is_key_used_up(&self, now: Moment, limits: &EpochLimits) -> bool {
        self.epoch.is_over(now, self.next_unused(), limits)
    }

    /// Begins the next epoch. Returns false if the keys of the epoch before the last are not forgotten yet.
    #[cold]
    pub(crate) fn change_keys(&mut self, now: Moment) -> bool {
        let next = self.next_unused();
        let may = !self.opener.has_previous();
        if may {
            self.opener.step_to_next_epoch();
            self.sealer.step_to_next_epoch();
            self.epoch.begin_next(now, next);
        }
        may
    }

    /// Registers that the peer acknowledged packet `largest`. `settling` as in [`Self::open`].
    #[inline]
    pub(crate) fn on_acked(&mut self, now: Moment, largest: u64, settling: impl FnOnce() -> Duration) {
        self.epoch.on_acked(now, largest, settling);
    }

    /// Returns the time at which the keys of the previous epoch must be forgotten.
    pub(crate) fn forget_at(&self) -> Option<Moment> {
        self.epoch.forget_at()
    }

    /// Forgets the keys of the previous epoch, if that is due.
    pub(crate) fn forget_due(&mut self, now: Moment) {
        if self.epoch.forget_at().is_some_and(|at| at <= now) {
            self.opener.forget_previous();
            self.epoch.on_forgotten();
        }
    }

    /// Asserts what must hold between two calls.
    pub(crate) fn assert_invariants(&self) {
        debug_assert!(
            !self.opener.has_previous() || !self.opener.has_opened_current() || self.forget_at().is_some(),
            "the keys of the previous epoch are kept without an end"
        );
    }

    /// Returns the key phase of packets that are sealed now. It equals that of the opener, because both step
    /// together.
    pub(crate) const fn key_phase(&self) -> bool {
        self.opener.key_phase()
    }

    /// Returns the number of the next packet, and the number that is skipped before it, if one is due.
    pub(crate) fn next_number(&mut self, entropy: &mut Entropy) -> Result<(u64, Option<u64>), SealError> {
        let next = self.sealer.next_number()?;
        if self.epoch.is_exhausted(next) {
            return Err(SealError::Exhausted);
        }
        if next < self.skip_at {
            return Ok((next, None));
        }
        let skipped = self.sealer.skip()?;
        self.draw_skip(next, entropy);
        Ok((self.sealer.next_number()?, Some(skipped)))
    }

    /// The first number that was not used.
    pub(crate) fn next_unused(&self) -> u64 {
        self.sealer.next_number().unwrap_or(u64::MAX)
    }

    /// Seals the packet with the number that [`Self::next_number`] returned.
    pub(crate) fn seal(
        &mut self,
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8; TAG_BYTES],
    ) -> Result<u64, SealError> {
        self.sealer.seal(aad, body, tag)
    }

    /// Keeps the expanded keys, and widens the replay window, for a busy connection.
    pub(crate) fn expand(&mut self) {
        self.replay.widen();
        self.sealer.keep_expanded();
        self.opener.keep_expanded();
    }

    /// Drops the expanded keys of an idle connection, and narrows the replay window to the newest packets: older ones
    /// are too late by now.
    pub(crate) fn shrink(&mut self) {
        self.sealer.drop_expanded();
        self.opener.drop_expanded();
        self.replay.shrink();
    }

    fn draw_skip(&mut self, from: u64, entropy: &mut Entropy) {
        let spread = u64::from_be_bytes(entropy.bytes()).checked_rem(SKIP_SPREAD_PACKETS).unwrap_or(0);
        self.skip_at = from.saturating_add(SKIP_MIN_PACKETS).saturating_add(spread);
    }
}

fn refused(error: ReplayError) -> Refusal {
    Refusal::Drop(match error {
        ReplayError::Duplicate => DropReason::Duplicate,
        ReplayError::TooOld => DropReason::TooOld,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire_crypto::handshake::{MESSAGE_1_OVERHEAD_BYTES, MESSAGE_2_OVERHEAD_BYTES};
    use drumfire_crypto::{Initiator, Responder, Secret, ServerKeyPair, Suite};
    use drumfire_wire::{ConnectionIdLength, PacketNumberLength};

    const SETTLING: Duration = Duration::from_millis(300);

    fn pair() -> (PacketProtection, PacketProtection) {
        let (keys, psk) = (ServerKeyPair::from_secret(Secret::new([1; 32])), Secret::zeroed());
        let (mut message_1, mut message_2) = ([0; MESSAGE_1_OVERHEAD_BYTES], [0; MESSAGE_2_OVERHEAD_BYTES]);
        let ephemeral = Secret::new([2; 32]);
        let mut initiator = Initiator::new(keys.public(), &psk, b"", b"", ephemeral, &mut message_1).unwrap();
        let ephemeral = Secret::new([3; 32]);
        let (responder, _) = Responder::read(&keys, &psk, b"", &message_1, &ephemeral, &mut []).unwrap();
        let (_, of_server) = responder.reply(b"", &mut message_2).unwrap();
        let (_, of_client) = initiator.read_reply(&message_2, &mut []).unwrap();
        let mut entropy = Entropy::from_seed(Secret::new([4; 32]));
        let mut session = |secrets: drumfire_crypto::SessionSecrets| {
            let (seal_keys, open_keys) = secrets.into_keys(Suite::ChaCha20Poly1305).unwrap();
            PacketProtection::new(Moment::ORIGIN, seal_keys, open_keys, 64, &mut entropy)
        };
        (session(of_client), session(of_server))
    }

    /// A packet with a number of two bytes and these frames; `None` for a number that was skipped.
    fn packet(session: &mut PacketProtection, entropy: &mut Entropy) -> (Vec<u8>, u64, Option<u64>) {
        let key_phase = session.key_phase();
        let (number, skipped) = session.next_number(entropy).unwrap();
        let truncated = PacketNumber(number).truncate(PacketNumberLength::Two);
        let header = TransportHeader { key_phase, connection_id: None, number: truncated };
        let mut datagram = Vec::new();
        header.encode(&mut datagram).unwrap();
        let (mut body, mut tag) = (*b"nine byte", [0; TAG_BYTES]);
        assert_eq!(session.seal(&datagram, &mut body, &mut tag), Ok(number));
        datagram.extend(body);
        datagram.extend(tag);
        (datagram, number, skipped)
    }

    fn open(session: &mut PacketProtection, datagram: &[u8]) -> Result<(u64, Vec<u8>), Refusal> {
        let mut bytes = datagram.to_vec();
        let header = TransportHeader::decode(&bytes, ConnectionIdLength::Zero).unwrap();
        let opened = session.open(Moment::ORIGIN, || SETTLING, &header, &mut bytes)?;
        Ok((opened.number, bytes[opened.frames].to_vec()))
    }

    #[test]
    fn a_packet_opens_once_and_only_as_it_was_sealed() {
        let (mut client, mut server) = pair();
        let mut entropy = Entropy::from_seed(Secret::new([5; 32]));
        let (datagram, ..) = packet(&mut client, &mut entropy);
        for at in 0..datagram.len() {
            let mut changed = datagram.clone();
            changed[at] ^= 0x40;
            if TransportHeader::decode(&changed, ConnectionIdLength::Zero).is_ok() {
                assert!(open(&mut server, &changed).is_err(), "byte {at}");
            }
        }
        assert_eq!(open(&mut server, &datagram), Ok((0, b"nine byte".to_vec())));
        assert_eq!(open(&mut server, &datagram), Err(Refusal::Drop(DropReason::Duplicate)));
    }

    #[test]
    fn a_number_that_is_sealed_again_in_the_next_epoch_is_no_copy_and_changes_no_keys() {
        let is_copy = |session: &mut PacketProtection, datagram: &[u8]| {
            let header = TransportHeader::decode(datagram, ConnectionIdLength::Zero).unwrap();
            session.is_copy_of_newest(&header, &mut datagram.to_vec())
        };
        // Two clients with the same keys are one that seals a number twice.
        let ((mut client, mut server), (mut twin, _)) = (pair(), pair());
        let mut entropy = Entropy::from_seed(Secret::new([5; 32]));
        let (genuine, ..) = packet(&mut client, &mut entropy);
        assert!(twin.change_keys(Moment::ORIGIN));
        let (forged, ..) = packet(&mut twin, &mut entropy);

        open(&mut server, &genuine).unwrap();
        assert!(!is_copy(&mut server, &forged));
        assert!(!server.key_phase() && is_copy(&mut server, &genuine));
        server.assert_invariants();

        // After a change by this end, the newest packet of the peer is of the previous epoch, and its copy still opens.
        assert!(server.change_keys(Moment::ORIGIN));
        assert!(is_copy(&mut server, &genuine) && !is_copy(&mut server, &forged));
        server.assert_invariants();
    }

    #[test]
    fn packets_below_the_window_are_too_old() {
        let (mut client, mut server) = pair();
        let mut entropy = Entropy::from_seed(Secret::new([5; 32]));
        let packets: Vec<_> = (0..66).map(|_| packet(&mut client, &mut entropy).0).collect();
        open(&mut server, &packets[65]).unwrap();
        assert_eq!(open(&mut server, &packets[1]), Err(Refusal::Drop(DropReason::TooOld)));
        assert_eq!(open(&mut server, &packets[2]).map(|(number, _)| number), Ok(2));
    }

    #[test]
    fn forged_high_numbers_move_nothing() {
        let (mut client, mut server) = pair();
        let mut entropy = Entropy::from_seed(Secret::new([5; 32]));
        let packets: Vec<_> = (0..3).map(|_| packet(&mut client, &mut entropy).0).collect();
        open(&mut server, &packets[0]).unwrap();
        for high in 100..20_000_u16 {
            let mut forged = packets[1].clone();
            forged[1..3].copy_from_slice(&high.to_be_bytes());
            assert_eq!(open(&mut server, &forged), Err(Refusal::Drop(DropReason::Forged)));
        }
        assert_eq!(open(&mut server, &packets[1]).map(|(number, _)| number), Ok(1));
    }

    #[test]
    fn a_number_is_skipped_after_128_to_383_packets() {
        let (mut client, _) = pair();
        let mut entropy = Entropy::from_seed(Secret::new([5; 32]));
        let (mut last, mut gaps) = (0, Vec::new());
        for _ in 0..20_000 {
            if let (_, number, Some(skipped)) = packet(&mut client, &mut entropy) {
                assert_eq!(number, skipped + 1);
                gaps.push(skipped - last);
                last = skipped;
            }
        }
        assert!(gaps.iter().all(|gap| (128..=384).contains(gap)), "{gaps:?}");
        assert!(gaps.iter().collect::<std::collections::HashSet<_>>().len() > gaps.len() / 2);
    }
}
