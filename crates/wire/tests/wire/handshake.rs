//! Handshake datagrams and parameters with fields drawn at random: what is written comes back, and less of it does not.
//!
//! Deliberately without keys. Where each field stands is tested beside its code.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use drumfire_wire::{
    ClientId, ClientParameters, ConnectionId, EncodeError, Hello, HelloDraft, HelloFields, Refusal, Refuse,
    RefuseReason, Reset, Retry, ServerParameters, SharedParameters, Suite, Welcome, limits,
};
use proptest::prelude::*;
use proptest::sample::Index;

/// Bytes of a client's parameters before the zeros.
const CLIENT_BYTES: usize = 27;

fn written(encode: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>) -> Vec<u8> {
    let mut datagram = Vec::new();
    encode(&mut datagram).unwrap();
    datagram
}

/// Many bytes from a few: drawing each by itself would take most of the time.
fn spread<const N: usize>(seed: u64) -> [u8; N] {
    std::array::from_fn(|at| (seed ^ (at as u64).wrapping_mul(seed | 1)).to_be_bytes()[0])
}

/// A datagram, cut somewhere before its end.
fn cut<'a>(datagram: &'a [u8], end: &Index) -> &'a [u8] {
    &datagram[..end.index(datagram.len())]
}

fn any_shared() -> impl Strategy<Value = SharedParameters> {
    let timeout = || (limits::TIMEOUT_MIN_MS..).prop_map(|ms| Duration::from_millis(ms.into()));
    let sizes = (1_200_u16..=65_507, limits::MESSAGE_LEAST_BYTES..=limits::MESSAGE_LIMIT_BYTES, any::<u32>());
    (sizes, timeout(), timeout()).prop_map(|((datagram, message, more), silent, unacknowledged)| {
        SharedParameters {
            datagram_max_bytes: datagram,
            silent_timeout: silent,
            unacknowledged_timeout: unacknowledged,
            message_max_bytes: message,
            credit_bytes: (message + limits::MESSAGE_CHARGE_BYTES).saturating_add(more),
        }
    })
}

proptest! {
    #[test]
    fn a_hello_comes_back_whole_or_not_at_all(
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
    fn a_retry_a_welcome_and_a_reset_come_back(
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
        // It has no length of its own: what is left of it is shorter by as much.
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
    fn a_refuse_comes_back_whole_or_not_at_all(
        client_id: [u8; 8], reason: u8, versions: (u16, u16), seconds: Option<u16>, address: Option<(IpAddr, u16)>,
        mac: [u8; limits::REFUSE_MAC_BYTES], end: Index,
    ) {
        let refusal = Refusal {
            reason: RefuseReason::from_byte(reason),
            version_min: versions.0,
            version_max: versions.1,
            retry_after: seconds.filter(|seconds| *seconds > 0).map(|seconds| Duration::from_secs(seconds.into())),
            address: address.map(|(ip, port)| SocketAddr::new(ip, port)),
        };
        let refuse = Refuse { client_id: ClientId(client_id), refusal, mac };
        let datagram = written(|out| refuse.encode(out));
        prop_assert_eq!(Refuse::decode(&datagram), Ok(refuse));
        prop_assert!(Refuse::decode(cut(&datagram, &end)).is_err());
    }

    #[test]
    fn parameters_come_back_whole_or_not_at_all(
        shared in any_shared(), own_id: Option<[u8; 8]>, id: [u8; 8], reset_token: [u8; 16], is_aes: bool, end: Index,
    ) {
        let client = ClientParameters { connection_id: own_id.map(ConnectionId::from_bytes), shared };
        let payload = client.encode();
        prop_assert_eq!(ClientParameters::decode(&payload), Some(client));
        // What follows the fields is left to later versions.
        let kept = cut(&payload, &end);
        let is_whole = kept.len() >= CLIENT_BYTES;
        prop_assert_eq!(ClientParameters::decode(kept), is_whole.then_some(client));
        prop_assert_eq!(ClientParameters::decode(cut(&payload[..CLIENT_BYTES], &end)), None);

        let suite = if is_aes { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 };
        let server = ServerParameters { connection_id: ConnectionId::from_bytes(id), reset_token, suite, shared };
        let payload = written(|out| server.encode(out));
        prop_assert_eq!(ServerParameters::decode(&payload), Some(server));
        prop_assert_eq!(ServerParameters::decode(cut(&payload, &end)), None);
    }

    #[test]
    fn parameters_with_a_changed_byte_can_be_said_again_or_are_none(
        shared in any_shared(), id: [u8; 8], place: Index, byte: u8,
    ) {
        let connection_id = ConnectionId::from_bytes(id);
        let server = ServerParameters { connection_id, reset_token: [5; 16], suite: Suite::Aes128Gcm, shared };
        let mut payload = written(|out| server.encode(out));
        payload[place.index(limits::SERVER_PARAMETERS_BYTES)] = byte;
        if let Some(server) = ServerParameters::decode(&payload) {
            prop_assert_eq!(written(|out| server.encode(out)), payload);
        }
        let mut payload = ClientParameters { connection_id: Some(connection_id), shared }.encode();
        payload[place.index(CLIENT_BYTES)] = byte;
        if let Some(client) = ClientParameters::decode(&payload) {
            // The bytes of an id that there is not mean nothing.
            payload[1..9].copy_from_slice(&client.connection_id.map_or([0; 8], ConnectionId::to_bytes));
            prop_assert_eq!(client.encode(), payload);
        }
    }
}
