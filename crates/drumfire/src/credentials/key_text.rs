//! Keys and tokens as text: a label that says what it is, then base64 for URLs without padding.
//!
//! Decoding takes the same time whatever the bytes are.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding};
use zeroize::Zeroizing;

/// The bytes that are encoded in one step: a multiple of 3, so that the steps fit together.
const CHUNK_BYTES: usize = 48;

/// The letters of one step.
const ENCODED_CHUNK_BYTES: usize = CHUNK_BYTES / 3 * 4;

/// The kinds of text there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    Public,
    Secret,
    Master,
    TokenKey,
    Connect,
}

impl Label {
    const ALL: [Self; 5] = [Self::Public, Self::Secret, Self::Master, Self::TokenKey, Self::Connect];

    const fn text(self) -> &'static str {
        match self {
            Self::Public => "drumfire_public_",
            Self::Secret => "drumfire_secret_",
            Self::Master => "drumfire_master_",
            Self::TokenKey => "drumfire_tokenkey_",
            Self::Connect => "drumfire_connect_",
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::Public => "a server's public key",
            Self::Secret => "a server's secret key",
            Self::Master => "a backend's master key",
            Self::TokenKey => "a server's token key",
            Self::Connect => "a connect token",
        }
    }
}

/// A text is not the key or token that is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyTextError {
    needed: Label,
    problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    /// It is something else of ours.
    Is(Label),
    /// It has none of our labels.
    Unlabelled,
    /// What follows the label is not base64, or not as long as it must be.
    Damaged,
}

impl KeyTextError {
    pub(crate) const fn damaged(needed: Label) -> Self {
        Self { needed, problem: Problem::Damaged }
    }
}

impl fmt::Display for KeyTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (meaning, label) = (self.needed.meaning(), self.needed.text());
        match self.problem {
            Problem::Is(other) => {
                write!(f, "this is {}, and {meaning} is needed: it begins with {label}", other.meaning())
            }
            Problem::Unlabelled => write!(f, "this is not {meaning}, which begins with {label}"),
            Problem::Damaged => {
                write!(
                    f,
                    "this is {meaning} that was cut or changed: copy the whole line that begins with {label}"
                )
            }
        }
    }
}

impl std::error::Error for KeyTextError {}

drumfire_proto::debug_with_display!(KeyTextError);

/// Returns the bytes as text under this label. No other copy of the text is left in memory.
pub(crate) fn encode(label: Label, bytes: &[u8]) -> String {
    let mut text = String::with_capacity(label.text().len().saturating_add(encoded_bytes(bytes.len())));
    text.push_str(label.text());
    let mut encoded = Zeroizing::new([0; ENCODED_CHUNK_BYTES]);
    for chunk in bytes.chunks(CHUNK_BYTES) {
        // A chunk fits, whole ones are followed by no padding, and there is no other error.
        text.push_str(Base64UrlUnpadded::encode(chunk, encoded.as_mut_slice()).unwrap_or_default());
    }
    text
}

/// The number of letters that encode this many bytes.
const fn encoded_bytes(bytes: usize) -> usize {
    bytes.saturating_mul(4).div_ceil(3)
}

/// Returns the bytes of a text under this label, without regard to blanks around it. The bytes are wiped when they are dropped.
pub(crate) fn decode(label: Label, text: &str) -> Result<Zeroizing<Vec<u8>>, KeyTextError> {
    let text = text.trim();
    let Some(encoded) = text.strip_prefix(label.text()) else {
        let is = Label::ALL.into_iter().find(|other| text.starts_with(other.text()));
        let problem = is.map_or(Problem::Unlabelled, Problem::Is);
        return Err(KeyTextError { needed: label, problem });
    };
    // Not `decode_vec`, which leaves what it decoded in memory when the text is damaged.
    let mut bytes = Zeroizing::new(vec![0; encoded.len()]);
    let decoded =
        Base64UrlUnpadded::decode(encoded, &mut bytes).map_err(|_| KeyTextError::damaged(label))?.len();
    bytes.truncate(decoded);
    Ok(bytes)
}

/// [`decode`] where the length is known.
pub(crate) fn decode_array<const N: usize>(label: Label, text: &str) -> Result<[u8; N], KeyTextError> {
    decode(label, text)?.as_slice().try_into().map_err(|_| KeyTextError::damaged(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_blanks_around_them_do_not_count() {
        for length in 0..200_u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37)).collect();
            let text = encode(Label::Public, &bytes);
            assert_eq!(decode(Label::Public, &format!("  {text}\r\n")).as_deref(), Ok(&bytes));
        }
    }

    #[test]
    fn every_mistake_is_told_apart() {
        let secret = encode(Label::Secret, &[7; 32]);
        let told = |text: &str| decode_array::<32>(Label::Public, text).unwrap_err().to_string();
        assert!(
            told(&secret).starts_with("this is a server's secret key, and a server's public key is needed")
        );
        assert!(
            told("correct horse")
                .starts_with("this is not a server's public key, which begins with drumfire_public_")
        );
        let public = encode(Label::Public, &[7; 32]);
        for damaged in [&public[..public.len() - 1], &format!("{public}A"), &public.replace('B', "!")] {
            assert!(told(damaged).contains("cut or changed"), "{damaged}");
        }
        for label in Label::ALL {
            let others = Label::ALL.into_iter().filter(|other| other.text().starts_with(label.text()));
            assert_eq!(others.count(), 1, "{label:?} begins no other label");
        }
    }
}
