//! Datagrams and parameters: random fields round trip, and truncated, mutated, and random bytes decode or give an error.
//!
//! These tests have no keys. Whether a changed datagram is authentic is tested with the packet protection.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::mutants;
use crate::soundness::assert_decoders_agree;
use drumfire_wire::{
    ClientId, ClientParameters, ConnectionId, ConnectionIdLength, DatagramError, DatagramKind, EncodeError,
    Hello, HelloDraft, HelloFields, PacketNumber, PacketNumberLength, Refusal, Refuse, RefuseReason, Reset,
    Retry, ServerParameters, SharedParameters, Suite, TransportHeader, VERSION, Welcome, limits,
};
use proptest::prelude::*;
use proptest::sample::Index;

/// The length in bytes of the client's parameters before the zeros.
const CLIENT_BYTES: usize = 27;

fn written(encode: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>) -> Vec<u8> {
    let mut datagram = Vec::new();
    encode(&mut datagram).unwrap();
    datagram
}

/// Expands a seed to `N` bytes. Drawing each byte would take most of the time.
fn spread<const N: usize>(seed: u64) -> [u8; N] {
    std::array::from_fn(|at| (seed ^ (at as u64).wrapping_mul(seed | 1)).to_be_bytes()[0])
}

/// Returns a prefix of the datagram that is shorter than the datagram.
fn cut<'a>(datagram: &'a [u8], end: &Index) -> &'a [u8] {
    &datagram[..end.index(datagram.len())]
}

fn any_shared() -> impl Strategy<Value = SharedParameters> {
    let timeout = || (limits::TIMEOUT_MIN_MS..).prop_map(|ms| Duration::from_millis(ms.into()));
    let sizes =
        (1_200_u16..=65_507, limits::MESSAGE_LIMIT_MIN_BYTES..=limits::MESSAGE_LIMIT_BYTES, any::<u32>());
    (sizes, timeout(), timeout()).prop_map(|((datagram, message, more), silent, unacknowledged)| {
        SharedParameters {
            datagram_max_bytes: datagram,
            idle_timeout: silent,
            unacknowledged_timeout: unacknowledged,
            message_max_bytes: message,
            credit_bytes: (message + limits::MESSAGE_CHARGE_BYTES).saturating_add(more),
        }
    })
}

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
        reason: RefuseReason::Redirect,
        version_min: 1,
        version_max: 1,
        retry_after: None,
        address: Some(([192, 0, 2, 7], 7_777).into()),
        is_proved: false,
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

/// Returns one datagram of each kind.
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
fn every_prefix_of_a_recorded_datagram_is_sound() {
    for datagram in recorded() {
        assert_decoders_agree(&datagram);
        for end in 0..datagram.len() {
            assert_decoders_agree(&datagram[..end]);
        }
    }
}

/// Returns what the decoders return for a datagram, as text.
fn decoded(datagram: &[u8]) -> String {
    let parts = (Hello::decode(datagram), Retry::decode(datagram), Welcome::decode(datagram));
    format!("{parts:?} {:?}", TransportHeader::decode(datagram, ConnectionIdLength::Eight))
}

#[test]
fn every_mutant_of_a_recorded_datagram_is_sound() {
    for datagram in recorded() {
        mutants::of(&datagram, mutants::count(), assert_decoders_agree);
    }
}

#[test]
fn every_flipped_bit_of_a_recorded_datagram_is_sound() {
    for mut datagram in recorded() {
        for bit in 0..8 * datagram.len() {
            datagram[bit / 8] ^= 1 << (bit % 8);
            assert_decoders_agree(&datagram);
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn every_bit_outside_of_padding_and_seals_is_decoded() {
    for (mut datagram, decoded_bytes) in
        [(hello(), 1_200), (retry(), 41), (welcome(), 209), (transport(), 11)]
    {
        let original = decoded(&datagram);
        for bit in 0..8 * decoded_bytes {
            datagram[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(decoded(&datagram), original, "bit {bit}");
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn an_empty_datagram_has_its_own_error() {
    assert_eq!(DatagramKind::of(&[]), Err(DatagramError::Empty));
    assert_decoders_agree(&[]);
}

#[test]
fn every_length_of_every_first_byte_is_sound() {
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
    fn any_bytes_are_sound(datagram in prop::collection::vec(any::<u8>(), 0..1_300)) {
        assert_decoders_agree(&datagram);
    }

    #[test]
    fn a_hello_round_trips_and_no_prefix_decodes(
        plain: (u16, u64, [u8; 8], u32, u32, u8), seeds: [u64; 4], end: Index,
    ) {
        let (version, protocol_id, client_id, server_key_id, token_key_id, suite_bits) = plain;
        let client_id = ClientId(client_id);
        let fields = HelloFields { version, protocol_id, client_id, server_key_id, token_key_id, suite_bits };
        let [token, cookie, noise_message, mac1] = seeds;
        let mut draft = HelloDraft::new(&fields, &spread(token));
        *draft.noise_message_mut() = spread(noise_message);
        draft.set_mac1(spread(mac1));
        draft.set_cookie(spread(cookie));
        let datagram = written(|out| draft.encode(out));
        let hello = Hello::decode(&datagram).unwrap();
        prop_assert_eq!(hello.fields, fields);
        prop_assert_eq!((hello.token, hello.cookie), (&spread(token), &spread(cookie)));
        prop_assert_eq!((hello.noise_message, hello.mac1), (&spread(noise_message), &spread(mac1)));
        prop_assert!(Hello::decode(cut(&datagram, &end)).is_err());
    }

    #[test]
    fn a_retry_a_welcome_and_a_reset_round_trip(
        id: [u8; 8], cookie: [u8; limits::COOKIE_BYTES], token: [u8; limits::RESET_TOKEN_BYTES], seed: u64, end: Index,
        noise_bytes in limits::NOISE_MESSAGE_2_MIN_BYTES..=Welcome::NOISE_MESSAGE_MAX_BYTES,
    ) {
        let client_id = ClientId(id);
        let retry = Retry { client_id, cookie: &cookie };
        let datagram = written(|out| retry.encode(out));
        prop_assert_eq!(Retry::decode(&datagram), Ok(retry));
        prop_assert!(Retry::decode(cut(&datagram, &end)).is_err());

        let noise_message = &spread::<{ Welcome::NOISE_MESSAGE_MAX_BYTES }>(seed)[..noise_bytes];
        let welcome = Welcome { client_id, noise_message };
        let datagram = written(|out| welcome.encode(out));
        prop_assert_eq!(Welcome::decode(&datagram), Ok(welcome));
        // A Welcome has no length field, so the Noise message of a prefix is shorter.
        let kept = cut(&datagram, &end);
        let left = kept.get(datagram.len() - noise_bytes..).unwrap_or_default();
        let is_long_enough = left.len() >= limits::NOISE_MESSAGE_2_MIN_BYTES;
        let wanted = is_long_enough.then_some(Welcome { client_id, noise_message: left });
        prop_assert_eq!(Welcome::decode(kept).ok(), wanted);

        let reset = Reset { connection_id: ConnectionId::from_bytes(id), token };
        let datagram = written(|out| reset.encode(out));
        prop_assert_eq!(Reset::decode(&datagram), Ok(reset));
        prop_assert!(Reset::decode(cut(&datagram, &end)).is_err());
    }

    #[test]
    fn a_refuse_round_trips_and_no_prefix_decodes(
        client_id: [u8; 8], reason: u8, versions: (u16, u16), seconds: Option<u16>, address: Option<(IpAddr, u16)>,
        mac: [u8; limits::REFUSE_MAC_BYTES], end: Index,
    ) {
        let refusal = Refusal {
            reason: RefuseReason::from_byte(reason),
            version_min: versions.0,
            version_max: versions.1,
            retry_after: seconds.filter(|seconds| *seconds > 0).map(|seconds| Duration::from_secs(seconds.into())),
            address: address.map(|(ip, port)| SocketAddr::new(ip, port)),
            is_proved: false,
        };
        let refuse = Refuse { client_id: ClientId(client_id), refusal, mac };
        let datagram = written(|out| refuse.encode(out));
        prop_assert_eq!(Refuse::decode(&datagram), Ok(refuse));
        prop_assert!(Refuse::decode(cut(&datagram, &end)).is_err());
    }

    #[test]
    fn parameters_round_trip_and_no_prefix_decodes(
        shared in any_shared(), own_id: Option<[u8; 8]>, hello in prop::collection::vec(any::<u8>(), 0..=256), id: [u8; 8],
        reset_token: [u8; 16], is_aes: bool, end: Index,
    ) {
        let connection_id = own_id.map(ConnectionId::from_bytes);
        let client = ClientParameters { connection_id, shared, hello: &hello };
        let payload = client.encode();
        prop_assert_eq!(ClientParameters::decode(&payload), Some(client));
        // The bytes after the fields are ignored.
        let kept = cut(&payload, &end);
        let client_bytes = CLIENT_BYTES + 2 + hello.len();
        let is_whole = kept.len() >= client_bytes;
        prop_assert_eq!(ClientParameters::decode(kept), is_whole.then_some(client));
        prop_assert_eq!(ClientParameters::decode(cut(&payload[..client_bytes], &end)), None);

        let suite = if is_aes { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 };
        let server = ServerParameters { connection_id: ConnectionId::from_bytes(id), reset_token, suite, shared };
        let payload = written(|out| server.encode(out));
        prop_assert_eq!(ServerParameters::decode(&payload), Some(server));
        prop_assert_eq!(ServerParameters::decode(cut(&payload, &end)), None);
    }

    #[test]
    fn changed_parameters_are_rejected_or_encode_again(
        shared in any_shared(), id: [u8; 8], place: Index, byte: u8,
    ) {
        let connection_id = ConnectionId::from_bytes(id);
        let server = ServerParameters { connection_id, reset_token: [5; 16], suite: Suite::Aes128Gcm, shared };
        let mut payload = written(|out| server.encode(out));
        payload[place.index(limits::SERVER_PARAMETERS_BYTES)] = byte;
        if let Some(server) = ServerParameters::decode(&payload) {
            prop_assert_eq!(written(|out| server.encode(out)), payload);
        }
        let client = ClientParameters { connection_id: Some(connection_id), shared, hello: b"" };
        let mut payload = client.encode();
        payload[place.index(CLIENT_BYTES + 2)] = byte;
        if let Some(client) = ClientParameters::decode(&payload) {
            // The bytes of an absent id are ignored.
            let mut expected = payload;
            expected[1..9].copy_from_slice(&client.connection_id.map_or([0; 8], ConnectionId::to_bytes));
            prop_assert_eq!(client.encode(), expected);
        }
    }
}
