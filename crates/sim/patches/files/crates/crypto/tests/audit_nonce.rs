//! The nonce audit, in a process of its own: when it finds a repeat, nothing is sealed anymore.

use std::panic::{AssertUnwindSafe, catch_unwind};

use drumfire_crypto::audit_nonce::start_world;
use drumfire_crypto::handshake::{MESSAGE_1_OVERHEAD_BYTES, MESSAGE_2_OVERHEAD_BYTES};
use drumfire_crypto::{Initiator, Responder, Sealer, Secret, ServerKeyPair, Suite, TAG_BYTES};

/// The server's sealer of a handshake with fixed entropy: calling this twice is the mistake the audit is for.
fn sealer_with_fixed_entropy() -> Sealer {
    let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
    let psk = Secret::zeroed();
    let mut message_1 = [0; MESSAGE_1_OVERHEAD_BYTES];
    Initiator::new(keys.public(), &psk, b"", b"", Secret::new([2; 32]), &mut message_1).expect("a good key");
    let (responder, _) = Responder::read(&keys, &psk, b"", &message_1, &Secret::new([3; 32]), &mut [])
        .expect("a good message");
    let (_, secrets) = responder.reply(b"", &mut [0; MESSAGE_2_OVERHEAD_BYTES]).expect("room enough");
    let (seal_keys, _) = secrets.into_keys(Suite::ChaCha20Poly1305).expect("always supported");
    Sealer::new(seal_keys)
}

fn seal(sealer: &mut Sealer) -> Option<u64> {
    let seal = || sealer.seal(b"", &mut [0; 4], &mut [0; TAG_BYTES]).expect("numbers are left");
    catch_unwind(AssertUnwindSafe(seal)).ok()
}

#[test]
fn keys_that_outlive_their_session_are_found_and_the_finding_cannot_be_swallowed() {
    start_world();
    let mut first = sealer_with_fixed_entropy();
    assert_eq!([0; 3].map(|_| seal(&mut first)), [Some(0), Some(1), Some(2)]);
    first.step_to_next_epoch();
    assert_eq!(seal(&mut first), Some(3));

    start_world();
    let mut replayed = sealer_with_fixed_entropy();
    assert_eq!(seal(&mut replayed), Some(0), "a replayed world is not a repeat");

    let mut again = sealer_with_fixed_entropy();
    assert_eq!(seal(&mut again), None, "the same key and number in one world");
    assert_eq!(seal(&mut replayed), None, "after a finding nothing is sealed any more");
}
