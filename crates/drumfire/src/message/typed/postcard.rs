//! The default codec: postcard, small and without field names. What strangers' bytes may make it do is bounded in
//! `guard`.

/// The codec of [`Channel::new`](crate::Channel::new): the postcard format, for types with serde's `Serialize` and
/// `Deserialize`. It needs the feature `postcard`.
///
/// Whatever the bytes are, decoding ends: nested no deeper than 128 levels, with no more elements in all sequences and
/// maps together than there are bytes (so that a sequence of things that take no bytes cannot be longer than its
/// message), and with nothing left over.
///
/// ```
/// # #[cfg(feature = "postcard")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use drumfire::{Channel, ChannelId, SendOptions};
/// const NAMES: Channel<Vec<String>> = Channel::new(ChannelId(2), SendOptions::reliable_ordered());
/// let message = NAMES.message(&vec!["ada".to_owned(), "bob".to_owned()])?;
/// assert_eq!(message.payload, b"\x02\x03ada\x03bob"[..]);
/// assert_eq!(NAMES.decode(&message.payload)?, ["ada", "bob"]);
/// // A thousand names are claimed and none is there.
/// assert!(NAMES.decode(b"\xe8\x07").is_err());
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "postcard"))]
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Postcard;

#[cfg(feature = "postcard")]
pub(crate) mod codec {
    use std::fmt;

    use postcard::Deserializer;
    use serde_core::Serialize;
    use serde_core::de::DeserializeOwned;

    use super::Postcard;
    use crate::message::typed::Codec;
    use crate::message::typed::guard::{Guard, Limits};

    /// Why [`Postcard`] could not encode a value, or decode bytes.
    #[derive(Clone, PartialEq, Eq)]
    pub struct PostcardError(Problem);

    #[derive(Clone, PartialEq, Eq)]
    enum Problem {
        Format(postcard::Error),
        /// How many bytes are left over.
        TooLong(usize),
        /// Nested too deep, or more elements than bytes.
        OutOfBounds,
    }

    impl fmt::Display for PostcardError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match &self.0 {
                Problem::Format(error) => error.fmt(f),
                Problem::TooLong(bytes) => write!(f, "{bytes} bytes are left over"),
                Problem::OutOfBounds => f.write_str("nested too deep, or more elements than bytes"),
            }
        }
    }

    impl std::error::Error for PostcardError {}

    drumfire_proto::debug_with_display!(PostcardError);

    impl<T: Serialize + DeserializeOwned> Codec<T> for Postcard {
        type Error = PostcardError;

        fn encode(&self, value: &T, into: &mut Vec<u8>) -> Result<(), PostcardError> {
            let encoded = postcard::to_extend(value, std::mem::take(into));
            *into = encoded.map_err(|error| PostcardError(Problem::Format(error)))?;
            Ok(())
        }

        fn decode(&self, bytes: &[u8]) -> Result<T, PostcardError> {
            let mut format = Deserializer::from_bytes(bytes);
            let limits = Limits::of(bytes.len());
            let value = T::deserialize(Guard::new(&mut format, &limits));
            let told = |error| {
                PostcardError(if limits.is_broken() { Problem::OutOfBounds } else { Problem::Format(error) })
            };
            let value = value.map_err(told)?;
            match format.finalize().map_err(told)? {
                [] => Ok(value),
                rest => Err(PostcardError(Problem::TooLong(rest.len()))),
            }
        }
    }
}
