//! How settings are read from text of any format that has serde: tables with known fields, and choices that are a word
//! or a table of one entry.
//!
//! Written by hand on serde's traits alone, so that a build needs no derive macros. What a single setting looks like
//! stands in the files beside this one.

use std::fmt;
use std::marker::PhantomData;

use serde_core::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// A table: each field at most once, and no others.
pub(super) trait Fields<'de>: Sized {
    /// What it is, for who reads that something else stands there.
    const EXPECTED: &'static str;
    /// The names of its fields, 64 at most.
    const FIELDS: &'static [&'static str];

    /// Reads the value of one of the fields.
    fn read<A: MapAccess<'de>>(&mut self, field: &'static str, map: &mut A) -> Result<(), A::Error>;
}

/// Reads a table; what has no entry stays as it is in `defaults`.
pub(super) fn read_fields<'de, T: Fields<'de>, D: Deserializer<'de>>(
    deserializer: D,
    defaults: T,
) -> Result<T, D::Error> {
    deserializer.deserialize_struct(T::EXPECTED, T::FIELDS, Table(defaults))
}

struct Table<T>(T);

impl<'de, T: Fields<'de>> Visitor<'de> for Table<T> {
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

/// One of these names, as its place among them. It is judged where it stands, so that a format that shows the line it
/// stumbled on shows this one and not another with a key on it.
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

/// One of several: a word, a number, or a table of one entry that is named for it.
pub(super) trait Choice<'de>: Sized {
    /// All that may stand there.
    const EXPECTED: &'static str;

    /// The choice of this word.
    fn of_word(word: &str) -> Option<Self>;

    /// The choice of this number.
    fn of_number(_number: u64) -> Option<Self> {
        None
    }

    /// The choice of this name, whose value is the map's next.
    fn of_entry<A: MapAccess<'de>>(_name: &str, _map: &mut A) -> Result<Option<Self>, A::Error> {
        Ok(None)
    }
}

pub(super) fn read_choice<'de, T: Choice<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(OneOf(PhantomData))
}

struct OneOf<T>(PhantomData<T>);

impl<'de, T: Choice<'de>> OneOf<T> {
    /// What was found is not repeated: it may be a secret that stands in the wrong place.
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

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let Some(name) = map.next_key::<String>()? else { return Self::choose(None) };
        let choice = Self::choose(T::of_entry(&name, &mut map)?)?;
        if map.next_key::<IgnoredAny>()?.is_some() {
            return Self::choose(None);
        }
        Ok(choice)
    }
}

/// A setting in its written form.
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
