//! Secrets in a configuration: as text, or as the name of a file that contains the text.
//!
//! Secrets are read and never written. Error messages do not contain the text that was read. Keys are decoded only after the whole
//! configuration was read: an error of the format can quote the input, and it must not quote the line of a key.

use std::fmt::{self, Display};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use zeroize::Zeroizing;

use crate::config::server::Access;
use crate::credentials::key_text::KeyTextError;
use crate::credentials::tokens::{TokenAccess, TokenKey};

/// The maximum length of a key file in bytes. A key has about 60 characters.
const FILE_MAX_BYTES: u64 = 4_096;

/// The initial capacity for the text of a key file, in bytes. It holds the longest text, because a string that grows leaves copies in
/// freed memory.
const FILE_ROOM_BYTES: usize = 2 * 4_096;

/// Returns the key that a text encodes. The error names the field.
pub(super) fn key_from_text<T: FromStr<Err = KeyTextError>>(field: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{field}: {error}"))
}

/// Returns the key that a file contains. The error names the field and the file.
pub(super) fn key_from_file<T: FromStr<Err = KeyTextError>>(field: &str, path: &Path) -> Result<T, String> {
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

/// The form of [`Access`] before its keys are decoded: `"open"`, or the table `token`.
pub(crate) enum AccessForm {
    Open,
    Token(TokenForm),
}

impl TryFrom<AccessForm> for Access {
    type Error = String;

    fn try_from(form: AccessForm) -> Result<Self, String> {
        match form {
            AccessForm::Open => Ok(Self::Open),
            AccessForm::Token(form) => form.try_into().map(Self::Token),
        }
    }
}

impl<'de> Deserialize<'de> for AccessForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AccessVisitor)
    }
}

/// A derived implementation would repeat an unknown word or a value of the wrong type in its error, and either can be a misplaced
/// secret.
struct AccessVisitor;

const OPEN_OR_TOKEN: &str = "\"open\", or the table `token` with its keys";

impl<'de> Visitor<'de> for AccessVisitor {
    type Value = AccessForm;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(OPEN_OR_TOKEN)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<AccessForm, E> {
        if word == "open" {
            return Ok(AccessForm::Open);
        }
        Err(E::custom(format_args!("must be {OPEN_OR_TOKEN}")))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AccessForm, A::Error> {
        let must_be = || A::Error::custom(format_args!("must be {OPEN_OR_TOKEN}"));
        let token = match map.next_key::<Zeroizing<String>>()? {
            Some(name) if *name == "token" => map.next_value::<TokenTable>()?.0,
            _ => return Err(must_be()),
        };
        match map.next_key::<IgnoredAny>()? {
            None => Ok(AccessForm::Token(token)),
            Some(_) => Err(must_be()),
        }
    }
}

/// A [`TokenForm`] that is written as a table. The derived implementation also reads lists, and would repeat a key in a list.
struct TokenTable(TokenForm);

impl<'de> Deserialize<'de> for TokenTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TokenTableVisitor)
    }
}

struct TokenTableVisitor;

impl<'de> Visitor<'de> for TokenTableVisitor {
    type Value = TokenTable;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table with the keys of tokens")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TokenTable, A::Error> {
        Deserialize::deserialize(MapAccessDeserializer::new(map)).map(TokenTable)
    }
}

/// The form of [`TokenAccess`] before its keys are decoded: `keys`, the texts of [`TokenKey`]s; `key_files`, the names of files with one
/// key each; and `audience`, a number. There must be one to eight keys in total.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TokenForm {
    keys: Zeroizing<Vec<String>>,
    key_files: Vec<PathBuf>,
    #[serde(with = "super::number")]
    audience: u64,
}

impl TryFrom<TokenForm> for TokenAccess {
    type Error = String;

    fn try_from(form: TokenForm) -> Result<Self, String> {
        let texts = form.keys.iter().map(|text| key_from_text("access.token.keys", text));
        let files = form.key_files.iter().map(|path| key_from_file("access.token.key_files", path));
        let keys: Vec<TokenKey> = texts.chain(files).collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Err("access.token: names no key: put one into keys or key_files".to_owned());
        }
        Ok(Self { keys, audience: form.audience })
    }
}
