//! The default codec: postcard, a compact format without field names. `guard` limits the work and the memory of decoding.

/// The codec of [`Channel::new`](crate::Channel::new): the postcard format, for types with serde's `Serialize` and
/// `Deserialize`. It needs the feature `postcard`.
///
/// Decoding ends with an error in these cases:
///
/// - Values nest deeper than 128 levels.
/// - All sequences and maps together have more elements than the message has bytes. This also limits sequences whose elements take no
///   bytes.
/// - Bytes are left over.
///
/// ```
/// # #[cfg(feature = "postcard")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use drumfire::{Channel, ChannelId, SendOptions};
/// const NAMES: Channel<Vec<String>> = Channel::new(ChannelId(2), SendOptions::reliable_ordered());
/// let message = NAMES.message(&vec!["ada".to_owned(), "bob".to_owned()])?;
/// assert_eq!(message.payload, b"\x02\x03ada\x03bob"[..]);
/// assert_eq!(NAMES.decode(&message.payload)?, ["ada", "bob"]);
/// // The message claims a thousand names and contains none.
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
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::Postcard;
    use crate::message::typed::Codec;
    use crate::message::typed::guard::{Guard, Limits};

    /// The error of [`Postcard`] for a value that cannot be encoded, and for bytes that cannot be decoded.
    #[derive(Clone, PartialEq, Eq)]
    pub struct PostcardError(PostcardProblem);

    #[derive(Clone, PartialEq, Eq)]
    enum PostcardProblem {
        Format(postcard::Error),
        /// The number of bytes that are left over.
        TooLong(usize),
        /// The values nest too deep, or there are more elements than bytes.
        OutOfBounds,
    }

    impl fmt::Display for PostcardError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match &self.0 {
                PostcardProblem::Format(error) => error.fmt(f),
                PostcardProblem::TooLong(bytes) => write!(f, "{bytes} bytes are left over"),
                PostcardProblem::OutOfBounds => f.write_str("nested too deep, or more elements than bytes"),
            }
        }
    }

    impl std::error::Error for PostcardError {}

    drumfire_proto::debug_with_display!(PostcardError);

    impl<T: Serialize + DeserializeOwned> Codec<T> for Postcard {
        type Error = PostcardError;

        fn encode(&self, value: &T, into: &mut Vec<u8>) -> Result<(), PostcardError> {
            let encoded = postcard::to_extend(value, std::mem::take(into));
            *into = encoded.map_err(|error| PostcardError(PostcardProblem::Format(error)))?;
            Ok(())
        }

        fn decode(&self, bytes: &[u8]) -> Result<T, PostcardError> {
            let mut format = Deserializer::from_bytes(bytes);
            let limits = Limits::of(bytes.len());
            let value = T::deserialize(Guard::new(&mut format, &limits));
            let problem = |error| {
                PostcardError(if limits.is_exceeded() {
                    PostcardProblem::OutOfBounds
                } else {
                    PostcardProblem::Format(error)
                })
            };
            let value = value.map_err(problem)?;
            match format.finalize().map_err(problem)? {
                [] => Ok(value),
                rest => Err(PostcardError(PostcardProblem::TooLong(rest.len()))),
            }
        }
    }
}
