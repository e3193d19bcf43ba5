//! Secrets in a configuration: as text, or as the name of a file that contains the text.
//!
//! Secrets are read and never written. Error messages do not contain the text that was read. Keys are decoded only after the whole
//! configuration was read: an error of the format can quote the input, and it must not quote the line of a key.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde_core::de::{Deserialize, Deserializer, Error, MapAccess};
use serde_core::ser::{Serialize, SerializeMap, Serializer};
use zeroize::Zeroizing;

use super::choices::entry;
use super::form::{Choice, Form, TableForm, read_choice, read_table};
use crate::config::server::Access;
use crate::credentials::key_text::KeyTextError;
use crate::credentials::tokens::{TokenAccess, TokenKey};

/// The maximum length of a key file in bytes. A key has about 60 characters.
const FILE_MAX_BYTES: u64 = 4_096;

/// The initial capacity for the text of a key file, in bytes. It holds the longest text, because a string that grows leaves copies in
/// freed memory.
const FILE_ROOM_BYTES: usize = 2 * 4_096;

/// Returns the key that a text encodes. The error names the field.
pub(super) fn of_text<T: FromStr<Err = KeyTextError>>(field: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{field}: {error}"))
}

/// Returns the key that a file contains. The error names the field and the file.
pub(super) fn of_file<T: FromStr<Err = KeyTextError>>(field: &str, path: &Path) -> Result<T, String> {
    let failure = |problem: &dyn Display| format!("{field}: {}: {problem}", path.display());
    let mut text = Zeroizing::new(String::with_capacity(FILE_ROOM_BYTES));
    let file = File::open(path).map_err(|error| failure(&error))?;
    // A device or a wrong file can have any length.
    file.take(FILE_MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| failure(&error))?;
    if text.len() as u64 > FILE_MAX_BYTES {
        return Err(failure(&"is longer than any key"));
    }
    text.parse().map_err(|error| failure(&error))
}

/// The form of [`Access`] before its keys are decoded.
#[derive(Default)]
pub(super) enum AccessForm {
    #[default]
    Open,
    Token(TokenForm),
}

impl AccessForm {
    pub(super) fn access(self) -> Result<Access, String> {
        match self {
            Self::Open => Ok(Access::Open),
            Self::Token(form) => form.access().map(Access::Token),
        }
    }
}

impl<'de> Choice<'de> for AccessForm {
    const EXPECTED: &'static str = "\"open\", or the table `token` with its keys";

    fn of_word(word: &str) -> Option<Self> {
        (word == "open").then_some(Self::Open)
    }

    fn of_entry<A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        if name != "token" {
            return Ok(None);
        }
        map.next_value().map(|form| Some(Self::Token(form)))
    }
}

impl<'de> Deserialize<'de> for AccessForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_choice(deserializer)
    }
}

/// Reads `"open"`, or the table `token` in the form of [`TokenAccess`].
impl<'de> Deserialize<'de> for Access {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        AccessForm::deserialize(deserializer)?.access().map_err(D::Error::custom)
    }
}

impl Serialize for Access {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Open => serializer.serialize_str("open"),
            Self::Token(access) => entry(serializer, "token", access),
        }
    }
}

/// The form of [`TokenAccess`] before its keys are decoded.
#[derive(Default)]
pub(super) struct TokenForm {
    keys: Zeroizing<Vec<String>>,
    key_files: Vec<PathBuf>,
    audience: u64,
}

impl TokenForm {
    fn access(self) -> Result<TokenAccess, String> {
        let texts = self.keys.iter().map(|text| of_text("access.token.keys", text));
        let files = self.key_files.iter().map(|path| of_file("access.token.key_files", path));
        let keys: Vec<TokenKey> = texts.chain(files).collect::<Result<_, _>>()?;
        let mut keys = keys.into_iter();
        let Some(first) = keys.next() else {
            return Err("access.token: names no key: put one into keys or key_files".to_owned());
        };
        Ok(keys.fold(TokenAccess::new(first), TokenAccess::and_key).audience(self.audience))
    }
}

impl<'de> TableForm<'de> for TokenForm {
    const EXPECTED: &'static str = "the keys of tokens, and their audience";
    const FIELDS: &'static [&'static str] = &["keys", "key_files", "audience"];

    fn read<A: MapAccess<'de>>(&mut self, field: &'static str, map: &mut A) -> Result<(), A::Error> {
        match field {
            "keys" => self.keys = Zeroizing::new(map.next_value()?),
            "key_files" => self.key_files = map.next_value()?,
            _ => Form(self.audience) = map.next_value()?,
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for TokenForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_table(deserializer, Self::default())
    }
}

/// Reads the table of `keys`, the texts of [`TokenKey`]s; `key_files`, the names of files with one key each; and `audience`, a number.
/// There must be one to eight keys in total.
impl<'de> Deserialize<'de> for TokenAccess {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        TokenForm::deserialize(deserializer)?.access().map_err(D::Error::custom)
    }
}

impl Serialize for TokenAccess {
    /// Writes the audience. The keys are secrets and are never written.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("audience", &Form(self.audience))?;
        map.end()
    }
}
