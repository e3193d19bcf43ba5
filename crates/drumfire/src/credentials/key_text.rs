//! Keys and tokens as text: a label for the kind, and then URL-safe base64 without padding.
//!
//! Decoding takes the same time for all bytes, so the time reveals nothing about a secret.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding};
use zeroize::Zeroizing;

/// The kind of a key or token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Public,
    Secret,
    Master,
    TokenKey,
    Connect,
}

impl KeyKind {
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

/// The error for a text that is not a key or token of the required kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyTextError {
    needed: KeyKind,
    problem: TextProblem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextProblem {
    /// The text has the label of another kind.
    OtherKind(KeyKind),
    /// The text has no known label.
    Unlabeled,
    /// The part after the label is not base64, or has the wrong length.
    Damaged,
}

impl KeyTextError {
    pub(crate) const fn damaged(needed: KeyKind) -> Self {
        Self { needed, problem: TextProblem::Damaged }
    }
}

impl fmt::Display for KeyTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (meaning, label) = (self.needed.meaning(), self.needed.text());
        match self.problem {
            TextProblem::OtherKind(other) => {
                write!(f, "this is {}, and {meaning} is needed: it begins with {label}", other.meaning())
            }
            TextProblem::Unlabeled => write!(f, "this is not {meaning}, which begins with {label}"),
            TextProblem::Damaged => {
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
pub(crate) fn encode(label: KeyKind, bytes: &[u8]) -> String {
    // Neither of the two allocations grows, which would leave a copy behind.
    let encoded = Zeroizing::new(Base64UrlUnpadded::encode_string(bytes));
    [label.text(), encoded.as_str()].concat()
}

/// Returns the bytes of a text with this label. Ignores whitespace around the text. The bytes are wiped when they are dropped.
pub(crate) fn decode(label: KeyKind, text: &str) -> Result<Zeroizing<Vec<u8>>, KeyTextError> {
    let text = text.trim();
    let Some(encoded) = text.strip_prefix(label.text()) else {
        let kind = KeyKind::ALL.into_iter().find(|other| text.starts_with(other.text()));
        let problem = kind.map_or(TextProblem::Unlabeled, TextProblem::OtherKind);
        return Err(KeyTextError { needed: label, problem });
    };
    // `decode_vec` is not used, because it does not wipe the decoded bytes of a damaged text.
    let mut bytes = Zeroizing::new(vec![0; encoded.len()]);
    let decoded =
        Base64UrlUnpadded::decode(encoded, &mut bytes).map_err(|_| KeyTextError::damaged(label))?.len();
    bytes.truncate(decoded);
    Ok(bytes)
}

/// Decodes a text as [`decode`] does, if it encodes exactly `N` bytes.
pub(crate) fn decode_array<const N: usize>(label: KeyKind, text: &str) -> Result<[u8; N], KeyTextError> {
    decode(label, text)?.as_slice().try_into().map_err(|_| KeyTextError::damaged(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_inverts_encoding_and_ignores_whitespace() {
        for length in 0..200_u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37)).collect();
            let text = encode(KeyKind::Public, &bytes);
            assert_eq!(decode(KeyKind::Public, &format!("  {text}\r\n")).as_deref(), Ok(&bytes));
        }
    }

    #[test]
    fn each_kind_of_wrong_text_has_its_own_error() {
        let secret = encode(KeyKind::Secret, &[7; 32]);
        let error = |text: &str| decode_array::<32>(KeyKind::Public, text).unwrap_err().to_string();
        assert!(
            error(&secret).starts_with("this is a server's secret key, and a server's public key is needed")
        );
        assert!(
            error("correct horse")
                .starts_with("this is not a server's public key, which begins with drumfire_public_")
        );
        let public = encode(KeyKind::Public, &[7; 32]);
        for damaged in [&public[..public.len() - 1], &format!("{public}A"), &public.replace('B', "!")] {
            assert!(error(damaged).contains("cut or changed"), "{damaged}");
        }
        for label in KeyKind::ALL {
            let others = KeyKind::ALL.into_iter().filter(|other| other.text().starts_with(label.text()));
            assert_eq!(others.count(), 1, "{label:?} begins no other label");
        }
    }
}
