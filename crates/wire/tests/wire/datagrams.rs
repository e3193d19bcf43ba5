//! The outside of datagrams as an attacker sees it: any bytes, cut and flipped ones too, end as a name.
//!
//! Deliberately without keys: whether a changed datagram is believed is decided by the seal, not here.

use crate::mutants;
use crate::soundness::assert_decoders_agree;
use drumfire_wire::{
    ClientId, ConnectionId, ConnectionIdLength, DatagramError, DatagramKind, Hello, HelloDraft, HelloFields,
    PacketNumber, PacketNumberLength, Refusal, Refuse, RefuseReason, Reset, Retry, TransportHeader, VERSION,
    Welcome, limits,
};
use proptest::prelude::*;

fn hello() -> Vec<u8> {
    let fields = HelloFields {
        version: VERSION,
        protocol_id: 1,
        client_id: ClientId([2; 8]),
        server_key_id: 3,
        token_key_id: 4,
        suite_bits: 3,
    };
    let mut draft = HelloDraft::new(&fields, &[5; limits::SEALED_TOKEN_BYTES]);
    draft.noise_message_mut().fill(6);
    draft.set_mac1([7; limits::MAC1_BYTES]);
    let mut datagram = Vec::new();
    draft.encode(&mut datagram).unwrap();
    datagram
}

fn retry() -> Vec<u8> {
    let mut datagram = Vec::new();
    Retry { client_id: ClientId([2; 8]), cookie: &[8; limits::COOKIE_BYTES] }.encode(&mut datagram).unwrap();
    datagram
}

fn welcome() -> Vec<u8> {
    let mut datagram = Vec::new();
    Welcome { client_id: ClientId([2; 8]), noise_message: &[9; 200] }.encode(&mut datagram).unwrap();
    datagram
}

fn refuse() -> Vec<u8> {
    let refusal = Refusal {
        reason: RefuseReason::TryThere,
        version_min: 1,
        version_max: 1,
        retry_after: None,
        address: Some(([192, 0, 2, 7], 7_777).into()),
    };
    let mut datagram = Vec::new();
    Refuse { client_id: ClientId([2; 8]), refusal, mac: [9; 16] }.encode(&mut datagram).unwrap();
    datagram
}

fn reset() -> Vec<u8> {
    let mut datagram = Vec::new();
    Reset { connection_id: ConnectionId::from_bytes([7; 8]), token: [9; 16] }.encode(&mut datagram).unwrap();
    datagram
}

/// One datagram of each kind.
fn recorded() -> [Vec<u8>; 6] {
    [hello(), retry(), refuse(), welcome(), reset(), transport()]
}

fn transport() -> Vec<u8> {
    let header = TransportHeader {
        key_phase: true,
        connection_id: Some(ConnectionId::from_bytes([1, 2, 3, 4, 5, 6, 7, 8])),
        number: PacketNumber(1_000).truncate(PacketNumberLength::Two),
    };
    let mut datagram = Vec::new();
    header.encode(&mut datagram).unwrap();
    datagram.resize(60, 0xee);
    datagram
}

#[test]
fn every_prefix_of_a_recorded_datagram_ends_well() {
    for datagram in recorded() {
        assert_decoders_agree(&datagram);
        for end in 0..datagram.len() {
            assert_decoders_agree(&datagram[..end]);
        }
    }
}

/// Everything that stands in a handshake datagram, or why nothing does.
fn sections(datagram: &[u8]) -> String {
    let parts = (Hello::decode(datagram), Retry::decode(datagram), Welcome::decode(datagram));
    format!("{parts:?} {:?}", TransportHeader::decode(datagram, ConnectionIdLength::Eight))
}

#[test]
fn every_mutant_of_a_recorded_datagram_ends_well() {
    for datagram in recorded() {
        mutants::of(&datagram, mutants::count(), assert_decoders_agree);
    }
}

#[test]
fn every_flipped_bit_of_a_recorded_datagram_ends_well() {
    for mut datagram in recorded() {
        for bit in 0..8 * datagram.len() {
            datagram[bit / 8] ^= 1 << (bit % 8);
            assert_decoders_agree(&datagram);
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn every_bit_that_is_not_padding_or_sealed_means_something() {
    for (mut datagram, meaning_bytes) in
        [(hello(), 1_200), (retry(), 41), (welcome(), 209), (transport(), 11)]
    {
        let original = sections(&datagram);
        for bit in 0..8 * meaning_bytes {
            datagram[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(sections(&datagram), original, "bit {bit}");
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn an_empty_datagram_has_a_name_of_its_own() {
    assert_eq!(DatagramKind::of(&[]), Err(DatagramError::Empty));
    assert_decoders_agree(&[]);
}

#[test]
fn every_length_of_every_first_byte_ends_well() {
    let mut datagram = vec![0; 1_300];
    for byte in 0..=u8::MAX {
        datagram[0] = byte;
        for end in 0..datagram.len() {
            assert_decoders_agree(&datagram[..end]);
        }
    }
    for bytes in [limits::DATAGRAM_MAX_BYTES, limits::DATAGRAM_MAX_BYTES + 1] {
        let mut datagram = vec![0xff; bytes];
        datagram[0] = 0x09;
        let is_packet = DatagramKind::of(&datagram) == Ok(DatagramKind::Transport);
        assert_eq!(is_packet, bytes == limits::DATAGRAM_MAX_BYTES);
        assert_decoders_agree(&datagram);
    }
}

proptest! {
    #[test]
    fn any_bytes_end_well(datagram in prop::collection::vec(any::<u8>(), 0..1_300)) {
        assert_decoders_agree(&datagram);
    }
}
