//! The two forms of settings in any format that serde supports: a table with known fields, and a choice. A choice is a word, a
//! number, or a table with one entry.
//!
//! The visitors are written by hand, so that a build needs no derive macros. The sibling modules define the form of each setting.

use std::fmt;
use std::marker::PhantomData;

use serde_core::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// A table with known fields. A repeated or unknown field is an error.
pub(super) trait TableForm<'de>: Sized {
    /// The name of the form in the error for a value of another type.
    const EXPECTED: &'static str;
    /// The names of the fields, at most 64, because `TableVisitor` marks the fields it has read in a `u64`.
    const FIELDS: &'static [&'static str];

    /// Reads the value of one of the fields.
    fn read<A: MapAccess<'de>>(&mut self, field: &'static str, map: &mut A) -> Result<(), A::Error>;
}

/// Reads a table. A field without an entry keeps its value from `defaults`.
pub(super) fn read_table<'de, T: TableForm<'de>, D: Deserializer<'de>>(
    deserializer: D,
    defaults: T,
) -> Result<T, D::Error> {
    deserializer.deserialize_struct(T::EXPECTED, T::FIELDS, TableVisitor(defaults))
}

struct TableVisitor<T>(T);

impl<'de, T: TableForm<'de>> Visitor<'de> for TableVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<T, A::Error> {
        let mut seen = 0_u64;
        while let Some(at) = map.next_key_seed(Name(T::FIELDS))? {
            let (field, bit) = (T::FIELDS[at], 1 << at);
            if seen & bit != 0 {
                return Err(A::Error::duplicate_field(field));
            }
            seen |= bit;
            self.0.read(field, &mut map)?;
        }
        Ok(self.0)
    }
}

/// Reads one of these names as its index.
///
/// An unknown name fails while the name is read. So a format that quotes the line of the error quotes this line, and not another
/// line with a secret key.
struct Name(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Name {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a setting")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        let at = self.0.iter().position(|field| *field == name);
        at.ok_or_else(|| E::unknown_field(name, self.0))
    }
}

/// One of several alternatives, written as a word, a number, or a table with one entry.
pub(super) trait Choice<'de>: Sized {
    /// All valid forms, as the error messages list them.
    const EXPECTED: &'static str;

    /// Returns the choice with this word.
    fn of_word(word: &str) -> Option<Self>;

    /// Returns the choice with this number.
    fn of_number(_number: u64) -> Option<Self> {
        None
    }

    /// Returns the choice with this fraction.
    fn of_fraction(_fraction: f64) -> Option<Self> {
        None
    }

    /// Returns the choice with this entry name. Reads its value, the next one of `map`.
    fn of_entry<A: MapAccess<'de>>(_name: &str, _map: &mut A) -> Result<Option<Self>, A::Error> {
        Ok(None)
    }
}

/// Reads a choice from a word, a number, or a table with one entry.
pub(super) fn read_choice<'de, T: Choice<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(OneOf(PhantomData))
}

struct OneOf<T>(PhantomData<T>);

impl<'de, T: Choice<'de>> OneOf<T> {
    /// Returns the choice or an error. The error does not repeat the input, because a misplaced secret could be in it.
    fn choose<E: Error>(choice: Option<T>) -> Result<T, E> {
        choice.ok_or_else(|| E::custom(format_args!("must be {}", T::EXPECTED)))
    }
}

impl<'de, T: Choice<'de>> Visitor<'de> for OneOf<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<T, E> {
        Self::choose(T::of_word(word))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        Self::choose(T::of_number(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        Self::choose(u64::try_from(number).ok().and_then(T::of_number))
    }

    fn visit_f64<E: Error>(self, fraction: f64) -> Result<T, E> {
        Self::choose(T::of_fraction(fraction))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let Some(name) = map.next_key::<String>()? else { return Self::choose(None) };
        let choice = Self::choose(T::of_entry(&name, &mut map)?)?;
        if map.next_key::<IgnoredAny>()?.is_some() {
            return Self::choose(None);
        }
        Ok(choice)
    }
}

/// A setting in its text form. The wrapper allows serde's traits for types of other crates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form<T>(pub(super) T);

impl<'de, T> Deserialize<'de> for Form<T>
where
    Self: Choice<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_choice(deserializer)
    }
}
