//! Tests of channels with valid values and with invalid bytes.

use std::convert::Infallible;

use super::*;

/// A codec whose value is the number of encoded bytes. It decodes any bytes.
#[derive(Clone, Copy)]
struct Zeros;

impl Codec<usize> for Zeros {
    type Error = Infallible;

    fn encode(&self, value: &usize, into: &mut Vec<u8>) -> Result<(), Infallible> {
        into.resize(into.len() + value, 0);
        Ok(())
    }

    fn decode(&self, bytes: &[u8]) -> Result<usize, Infallible> {
        Ok(bytes.len())
    }
}

const RELIABLE: SendOptions = SendOptions::reliable_ordered();

#[test]
fn a_message_has_the_options_of_its_channel_or_its_own() {
    let channel: Channel<usize, Zeros> = Channel::with_codec(ChannelId(9), RELIABLE, Zeros);
    assert_eq!(channel.message(&5), Ok(Message::new(ChannelId(9), vec![0; 5], RELIABLE)));
    let keyed = SendOptions::reliable_latest(77);
    assert_eq!(channel.message_with(&6, keyed), Ok(Message::new(ChannelId(9), vec![0; 6], keyed)));
}

#[test]
fn the_longest_value_is_accepted_and_a_longer_one_refused() {
    let by_mode = |options: SendOptions| Channel::with_codec(ChannelId(0), options, Zeros);
    for (channel, limit_bytes) in [
        (by_mode(RELIABLE), 65_536),
        (by_mode(SendOptions::unreliable()), 16_384),
        (by_mode(RELIABLE).max_bytes(0), 0),
        (by_mode(RELIABLE).max_bytes(100_000), 100_000),
    ] {
        let bytes = limit_bytes + 1;
        let refused = ChannelError::TooLarge { bytes, limit_bytes };
        assert_eq!(channel.message(&limit_bytes).map(|message| message.payload.len()), Ok(limit_bytes));
        assert_eq!(channel.message(&bytes), Err(refused));
        assert_eq!(channel.decode(&vec![0; limit_bytes]), Ok(limit_bytes));
        assert_eq!(channel.decode(&vec![0; bytes]), Err(refused));
    }
}

#[cfg(feature = "postcard")]
mod of_postcard {
    use std::collections::{BTreeMap, HashMap, VecDeque};
    use std::fmt::Debug;

    use serde::{Deserialize, Serialize};

    use super::super::postcard::codec::PostcardError;
    use super::*;

    /// A type with the kinds of values of serde's data model.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Thing {
        Nothing,
        One(i64),
        Pair(u8, f64),
        Named { name: String, tags: Vec<String>, at: Option<[i16; 3]> },
        Many(BTreeMap<u32, Vec<Thing>>),
        Wide { big: u128, small: i8, letter: char, yes: bool, unit: (), new: New },
        Boxed(Box<Thing>),
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct New(#[serde(with = "bytes")] Vec<u8>);

    /// Encodes bytes as serde bytes instead of a sequence of numbers.
    mod bytes {
        use serde::de::{Deserializer, Error, Visitor};
        use serde::ser::Serializer;

        pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(bytes)
        }

        pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
            struct Whole;

            impl Visitor<'_> for Whole {
                type Value = Vec<u8>;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("bytes")
                }

                fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                    Ok(bytes.to_vec())
                }
            }

            deserializer.deserialize_byte_buf(Whole)
        }
    }

    fn channel<T>() -> Channel<T> {
        Channel::new(ChannelId(0), RELIABLE)
    }

    fn things() -> Vec<Thing> {
        let named = Thing::Named {
            name: "ada".to_owned(),
            tags: vec![String::new(), "é".to_owned()],
            at: Some([i16::MIN, 0, i16::MAX]),
        };
        let wide = Thing::Wide {
            big: u128::MAX,
            small: -128,
            letter: '🐎',
            yes: true,
            unit: (),
            new: New(vec![0, 255]),
        };
        let many = BTreeMap::from([(7, vec![named.clone(), Thing::Nothing]), (u32::MAX, vec![])]);
        let boxed = Thing::Boxed(Box::new(Thing::Boxed(Box::new(Thing::One(i64::MIN)))));
        vec![Thing::Nothing, Thing::One(-1), Thing::Pair(3, -0.5), named, wide, Thing::Many(many), boxed]
    }

    #[test]
    fn every_kind_of_value_comes_back() {
        for thing in things() {
            let bytes = channel().message(&thing).unwrap().payload;
            assert_eq!(channel().decode(&bytes), Ok(thing));
        }
        let all = things();
        assert_eq!(channel().decode(&channel().message(&all).unwrap().payload), Ok(all));
    }

    #[test]
    fn a_value_that_is_cut_or_has_trailing_bytes_does_not_decode() {
        for thing in things() {
            let bytes = channel().message(&thing).unwrap().payload;
            for length in 0..bytes.len() {
                let cut = channel::<Thing>().decode(&bytes[..length]);
                assert!(matches!(cut, Err(ChannelError::Decode(_))), "{thing:?} to {length} bytes: {cut:?}");
            }
            let longer = [&bytes[..], &[0]].concat();
            let error = channel::<Thing>().decode(&longer).unwrap_err();
            assert!(error.to_string().ends_with("1 bytes are left over"), "{error}");
        }
    }

    /// Returns the next pseudorandom number (xorshift64). The sequence is the same in every run.
    fn draw(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    /// Decodes the bytes. Returns the largest number of bytes that were allocated at one time.
    fn allocated<T: Serialize + serde::de::DeserializeOwned>(bytes: &[u8]) -> u64 {
        let info = allocation_counter::measure(|| {
            let _ = std::hint::black_box(channel::<T>().decode(bytes));
        });
        info.bytes_max
    }

    /// Returns the largest memory, in bytes, that decoding a message of `bytes` bytes may take. Elements have at most 256 bytes.
    ///
    /// A growing vector holds its old and its new buffer, together three times its content. A map may need twice as much, because
    /// its load factor is at most 7/8 and its capacity doubles.
    fn bound(bytes: usize) -> u64 {
        1_024 + bytes as u64 * 256 * 6
    }

    #[test]
    fn random_bytes_never_panic_and_use_bounded_memory() {
        assert!(size_of::<Thing>() <= 256 && size_of::<(u32, Vec<Thing>)>() <= 256);
        let mut state = 0x9E37_79B9_7F4A_7C15;
        let (mut values, mut errors) = (0, 0);
        for round in 0..20_000_u64 {
            let length = draw(&mut state) % 200;
            let mut bytes: Vec<u8> = (0..length).map(|_| draw(&mut state).to_le_bytes()[3]).collect();
            if round % 2 == 0 {
                // Small bytes are valid variants and lengths that fit, so that some values decode.
                bytes.iter_mut().for_each(|byte| *byte %= 7);
            }
            match channel::<Vec<Thing>>().decode(&bytes) {
                Ok(_) => values += 1,
                Err(ChannelError::Decode(_)) => errors += 1,
                Err(other) => panic!("{other}"),
            }
            assert!(allocated::<Vec<Thing>>(&bytes) <= bound(bytes.len()), "{bytes:?}");
            assert!(allocated::<HashMap<u16, Vec<Thing>>>(&bytes) <= bound(bytes.len()), "{bytes:?}");
        }
        assert!(values > 10 && errors > 10_000, "{values} values, {errors} errors");
    }

    #[test]
    fn changed_encodings_never_panic_and_use_bounded_memory() {
        let whole = channel().message(&things()).unwrap().payload;
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut bytes = whole.to_vec();
                bytes[at] = byte;
                assert!(allocated::<Vec<Thing>>(&bytes) <= bound(bytes.len()), "{byte} at {at}");
            }
        }
    }

    /// Returns an encoded length of 2^63, followed by `rest` bytes.
    fn claim(rest: usize) -> Vec<u8> {
        [&[0x80; 9][..], &[1], &vec![1; rest]].concat()
    }

    fn is_refused_within_bounds<T>(bytes: &[u8])
    where
        T: Serialize + serde::de::DeserializeOwned + Debug,
    {
        assert!(channel::<T>().decode(bytes).is_err());
        assert!(allocated::<T>(bytes) <= bound(bytes.len()), "{}", allocated::<T>(bytes));
    }

    #[test]
    fn a_length_beyond_the_message_allocates_no_memory_for_it() {
        for rest in [0, 1, 100, 10_000] {
            let bytes = claim(rest);
            is_refused_within_bounds::<Vec<u64>>(&bytes);
            is_refused_within_bounds::<Vec<[u64; 4]>>(&bytes);
            is_refused_within_bounds::<VecDeque<u8>>(&bytes);
            is_refused_within_bounds::<HashMap<u64, [u64; 8]>>(&bytes);
            is_refused_within_bounds::<BTreeMap<u64, u64>>(&bytes);
            is_refused_within_bounds::<String>(&bytes);
            is_refused_within_bounds::<New>(&bytes);
            is_refused_within_bounds::<Vec<HashMap<u64, u64>>>(&[&[1][..], &bytes].concat());
            is_refused_within_bounds::<Vec<Vec<Vec<u64>>>>(&[&[1, 1][..], &bytes].concat());
        }
    }

    #[test]
    fn a_message_has_no_more_zero_sized_elements_than_bytes() {
        // Elements of zero bytes never use up the input. Without a bound, 2^63 of them would be decoded.
        is_refused_within_bounds::<Vec<()>>(&claim(0));
        is_refused_within_bounds::<HashMap<(), ()>>(&claim(0));
        is_refused_within_bounds::<Vec<Vec<[(); 3]>>>(&[&[1][..], &claim(0)].concat());
        assert_eq!(channel::<Vec<()>>().decode(&[1]), Ok(vec![()]));
        let error = channel::<Vec<()>>().decode(&[2]).unwrap_err();
        assert!(error.to_string().ends_with("more elements than bytes"), "{error}");
    }

    #[test]
    fn unbounded_nesting_is_refused_before_the_stack_overflows() {
        #[derive(Debug, Serialize, Deserialize)]
        enum Chain {
            End,
            More(Box<Chain>),
        }

        #[derive(Debug, Serialize, Deserialize)]
        struct Tree(Vec<Tree>);

        #[derive(Debug, Serialize, Deserialize)]
        struct Maybe {
            next: Option<Box<Maybe>>,
        }

        let deep = vec![1; 16 << 20];
        for length in [200, 65_536, deep.len()] {
            let is_too_deep = |result: Result<(), ChannelError<PostcardError>>| {
                let error = result.unwrap_err().to_string();
                assert!(error.contains("nested too deep"), "{error}");
            };
            is_too_deep(channel::<Chain>().max_bytes(length).decode(&deep[..length]).map(drop));
            is_too_deep(channel::<Tree>().max_bytes(length).decode(&deep[..length]).map(drop));
            is_too_deep(channel::<Maybe>().max_bytes(length).decode(&deep[..length]).map(drop));
        }
        // Each link of a chain counts as one level of nesting. The limit is 128 levels.
        let chain = |levels: usize| [&vec![1; levels][..], &[0]].concat();
        assert!(channel::<Chain>().decode(&chain(127)).is_ok());
        assert!(channel::<Chain>().decode(&chain(128)).is_err());
    }
}
