//! Keys and tokens as text: a label that says what it is, then base64 for URLs without padding.
//!
//! Decoding takes the same time whatever the bytes are.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding};

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

/// The bytes as text under this label.
pub(crate) fn encode(label: Label, bytes: &[u8]) -> String {
    let mut text = label.text().to_owned();
    text.push_str(&Base64UrlUnpadded::encode_string(bytes));
    text
}

/// The bytes of a text under this label; blanks around it do not count.
pub(crate) fn decode(label: Label, text: &str) -> Result<Vec<u8>, KeyTextError> {
    let text = text.trim();
    let Some(encoded) = text.strip_prefix(label.text()) else {
        let is = Label::ALL.into_iter().find(|other| text.starts_with(other.text()));
        let problem = is.map_or(Problem::Unlabelled, Problem::Is);
        return Err(KeyTextError { needed: label, problem });
    };
    Base64UrlUnpadded::decode_vec(encoded).map_err(|_| KeyTextError::damaged(label))
}

/// [`decode`] where the length is known.
pub(crate) fn decode_array<const N: usize>(label: Label, text: &str) -> Result<[u8; N], KeyTextError> {
    decode(label, text)?.try_into().map_err(|_| KeyTextError::damaged(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_blanks_around_them_do_not_count() {
        for length in 0..70_u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37)).collect();
            let text = encode(Label::Public, &bytes);
            assert_eq!(decode(Label::Public, &format!("  {text}\r\n")), Ok(bytes));
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
