//! Tests of the opening half: what opens, in which epoch, and what is counted.

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
fn the_alarm_is_raised_at_its_count_and_not_before() {
    let mut opener = Opener::with_failed_count(open_keys(3), FAILED_OPEN_ALARM - 2);
    for expected in [false, true, true] {
        assert_eq!(opener.open(0, false, b"", &mut [0; 20]), Err(OpenError::Forged));
        assert_eq!(opener.is_alarmed(), expected, "{}", opener.failed_count());
    }
}

#[test]
fn the_connection_closes_at_exactly_the_limit_of_failed_opens() {
    let (number, packet) = sealed(&mut sealer(Suite::ChaCha20Poly1305), b"", b"body");
    let mut opener = Opener::with_failed_count(open_keys(3), FAILED_OPEN_LIMIT - 2);
    assert_eq!(opener.open(0, false, b"", &mut [0; 20]), Err(OpenError::Forged));
    assert_eq!(opener.failed_count(), FAILED_OPEN_LIMIT - 1);
    assert!(opener.open(number, false, b"", &mut packet.clone()).is_ok(), "one below the limit still opens");
    assert_eq!(opener.open(0, false, b"", &mut [0; 20]), Err(OpenError::LimitReached));
    assert_eq!(opener.failed_count(), FAILED_OPEN_LIMIT);
    for beyond in [FAILED_OPEN_LIMIT, FAILED_OPEN_LIMIT + 1, u64::MAX] {
        let mut opener = Opener::with_failed_count(open_keys(3), beyond);
        assert_eq!(opener.open(number, false, b"", &mut packet.clone()), Err(OpenError::LimitReached));
        assert_eq!(opener.failed_count(), beyond, "the count stands still");
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

/// What comes of opening a packet: its body and whether it began an epoch.
fn opened(opener: &mut Opener, packet: &(u64, bool, Vec<u8>)) -> Result<(Vec<u8>, bool), OpenError> {
    let mut bytes = packet.2.clone();
    opener.open(packet.0, packet.1, b"", &mut bytes).map(|opened| (opened.body.to_vec(), opened.is_new_epoch))
}

#[test]
fn the_first_packet_of_the_next_epoch_makes_it_the_current_one() {
    let (packets, mut opener) = (three_epochs(), Opener::new(open_keys(3)));
    opener.keep_expanded();
    assert_eq!(opened(&mut opener, &packets[0]), Ok((vec![0], false)));
    assert_eq!(opened(&mut opener, &packets[4]), Ok((vec![1], true)));
    assert!(opener.key_phase() && opener.has_met_current());
    assert_eq!(opened(&mut opener, &packets[3]), Ok((vec![1], false)), "overtaken, of the same epoch");
    assert_eq!(opened(&mut opener, &packets[2]), Ok((vec![0], false)), "overtaken, of the epoch before");
    opener.forget_previous();
    assert_eq!(opened(&mut opener, &packets[1]), Err(OpenError::Forged), "its keys are gone");
    assert_eq!(opened(&mut opener, &packets[6]), Ok((vec![2], true)));
    assert_eq!(opener.failed_count(), 1);
}

#[test]
fn an_end_that_begins_the_epoch_itself_still_opens_the_one_before() {
    let (packets, mut opener) = (three_epochs(), Opener::new(open_keys(3)));
    opener.step_to_next_epoch();
    assert!(!opener.has_met_current());
    for packet in &packets[..3] {
        assert_eq!(opened(&mut opener, packet), Ok((vec![0], false)));
    }
    assert_eq!(opened(&mut opener, &packets[4]), Ok((vec![1], false)), "it is the current one already");
    assert!(opener.has_met_current());
    assert_eq!(opened(&mut opener, &packets[2]), Ok((vec![0], false)));
    assert_eq!(opened(&mut opener, &packets[6]), Ok((vec![2], true)));
}

#[test]
fn claims_to_be_of_the_next_epoch_change_nothing_and_are_counted() {
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
    assert_eq!(opened(&mut opener, &forged(4, true)), Err(OpenError::Forged), "of the current epoch");
    assert_eq!(opened(&mut opener, &forged(1, false)), Err(OpenError::Forged), "of the previous one");
    assert_eq!(opened(&mut opener, &forged(9, false)), Err(OpenError::LimitReached), "of the next one");
}

#[test]
fn debug_shows_the_suite_and_the_count_only() {
    let text = format!("{:?}", Opener::new(open_keys(3)));
    assert_eq!(text, "Opener { suite: ChaCha20Poly1305, failed_count: 0, .. }");
}

#[test]
fn a_packet_that_claims_to_be_of_the_next_epoch_costs_a_busy_connection_no_derivation() {
    let mut opener = Opener::new(open_keys(3));
    opener.keep_expanded();
    let claim = |opener: &mut Opener| opener.open(7, true, b"", &mut [0; 40]).is_err();
    let is_next_expanded = |opener: &Opener| {
        opener.around.as_ref().and_then(|around| around.next.as_ref()).map(|next| next.working.is_some())
    };
    assert!(claim(&mut opener));
    assert_eq!(is_next_expanded(&opener), Some(true));
    opener.drop_expanded();
    assert_eq!(is_next_expanded(&opener), Some(false));
    assert!(claim(&mut opener));
    assert_eq!(is_next_expanded(&opener), Some(false), "an idle one keeps no memory for it");
}
