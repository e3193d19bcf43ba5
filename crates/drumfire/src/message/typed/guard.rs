//! Limits for the decoding of untrusted bytes: the nesting depth of values, and the number of elements of all sequences and maps
//! together. [`Guard`] adds them to any deserializer.
//!
//! A format without field names needs both limits. With a recursive type, a few bytes can nest values until the stack overflows. With
//! elements of zero bytes, a length in the input can make a sequence arbitrarily long. The limits bound the memory too: there are at
//! most as many elements as bytes, and room is reserved for at most that many.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// The maximum nesting depth. A level needs some hundred bytes of stack, and the thread of a worker has 2 MiB.
const DEPTH_MAX: u32 = 128;

/// The limits that remain while one message is decoded.
#[derive(Debug)]
pub(super) struct Limits {
    /// The number of levels that values can still nest.
    depth: Cell<u32>,
    /// The number of elements that can still follow.
    elements: Cell<usize>,
    is_exceeded: Cell<bool>,
}

impl Limits {
    /// Returns the limits for a message of this length.
    pub(super) const fn of(bytes: usize) -> Self {
        Self { depth: Cell::new(DEPTH_MAX), elements: Cell::new(bytes), is_exceeded: Cell::new(false) }
    }

    /// Whether a limit ended the decoding.
    pub(super) const fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    fn exceeded<E: Error>(&self) -> E {
        self.is_exceeded.set(true);
        E::custom("out of bounds")
    }

    /// Decodes a nested value with `decode`.
    fn nested<T, E: Error>(&self, decode: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let left = self.depth.get();
        self.depth.set(left.checked_sub(1).ok_or_else(|| self.exceeded())?);
        let result = decode();
        self.depth.set(left);
        result
    }

    /// Counts an element.
    fn take_element<E: Error>(&self) -> Result<(), E> {
        self.elements.set(self.elements.get().checked_sub(1).ok_or_else(|| self.exceeded())?);
        Ok(())
    }

    /// Limits the claimed number of elements to the number that can still follow.
    fn expected(&self, claimed: Option<usize>) -> Option<usize> {
        claimed.map(|count| count.min(self.elements.get()))
    }
}

/// A deserializer, visitor, or other part of serde's data model with the limits around it.
pub(super) struct Guard<'l, T> {
    inner: T,
    limits: &'l Limits,
    /// Whether elements are counted. The type determines the number of elements of tuples and structs, so only sequences and maps
    /// are counted.
    is_counted: bool,
}

impl<'l, T> Guard<'l, T> {
    pub(super) const fn new(inner: T, limits: &'l Limits) -> Self {
        Self { inner, limits, is_counted: false }
    }

    const fn counted(inner: T, limits: &'l Limits) -> Self {
        Self { inner, limits, is_counted: true }
    }
}

/// Defines methods for values that cannot nest. They call the inner deserializer.
macro_rules! forward {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method(visitor)
        })*
    };
}

/// Defines methods for values that nest. They call the inner deserializer one level deeper, with a guard around the visitor.
macro_rules! nest {
    ($($guard:ident $method:ident($($argument:ident: $of:ty),*))*) => {
        $(fn $method<V: Visitor<'de>>(self, $($argument: $of,)* visitor: V) -> Result<V::Value, D::Error> {
            let visitor = Guard::$guard(visitor, self.limits);
            self.limits.nested(|| self.inner.$method($($argument,)* visitor))
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Guard<'_, D> {
    type Error = D::Error;

    forward! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32
        deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_unit deserialize_identifier
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    nest! {
        counted deserialize_any() counted deserialize_ignored_any() new deserialize_option()
        new deserialize_newtype_struct(name: &'static str) counted deserialize_seq()
        new deserialize_tuple(len: usize) new deserialize_tuple_struct(name: &'static str, len: usize)
        counted deserialize_map()
        new deserialize_struct(name: &'static str, fields: &'static [&'static str])
        new deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Defines methods for values that cannot nest. They call the inner visitor.
macro_rules! visit {
    ($($method:ident($value:ty))*) => {
        $(fn $method<E: Error>(self, value: $value) -> Result<V::Value, E> {
            self.inner.$method(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Guard<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        visit_bool(bool) visit_i8(i8) visit_i16(i16) visit_i32(i32) visit_i64(i64) visit_i128(i128) visit_u8(u8)
        visit_u16(u16) visit_u32(u32) visit_u64(u64) visit_u128(u128) visit_f32(f32) visit_f64(f64)
        visit_char(char) visit_str(&str) visit_borrowed_str(&'de str) visit_string(String) visit_bytes(&[u8])
        visit_borrowed_bytes(&'de [u8]) visit_byte_buf(Vec<u8>)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Guard::new(inner, self.limits))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Guard::new(inner, self.limits))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(Guard { inner, limits: self.limits, is_counted: self.is_counted })
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Guard { inner, limits: self.limits, is_counted: self.is_counted })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Guard::new(inner, self.limits))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Guard<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Guard::new(inner, self.limits))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Guard<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let element = self.inner.next_element_seed(Guard::new(seed, self.limits))?;
        if element.is_some() && self.is_counted {
            self.limits.take_element()?;
        }
        Ok(element)
    }

    fn size_hint(&self) -> Option<usize> {
        self.limits.expected(self.inner.size_hint())
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Guard<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let key = self.inner.next_key_seed(Guard::new(seed, self.limits))?;
        if key.is_some() && self.is_counted {
            self.limits.take_element()?;
        }
        Ok(key)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(Guard::new(seed, self.limits))
    }

    fn size_hint(&self) -> Option<usize> {
        self.limits.expected(self.inner.size_hint())
    }
}

impl<'de, 'l, A: EnumAccess<'de>> EnumAccess<'de> for Guard<'l, A> {
    type Error = A::Error;
    type Variant = Guard<'l, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (name, variant) = self.inner.variant_seed(seed)?;
        Ok((name, Guard::new(variant, self.limits)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Guard<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(Guard::new(seed, self.limits))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(len, Guard::new(visitor, self.limits))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.inner.struct_variant(fields, Guard::new(visitor, self.limits))
    }
}
