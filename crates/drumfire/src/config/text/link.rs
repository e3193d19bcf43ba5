//! The text form of [`LinkConfig`]: the name of a preset, or a table.

use std::fmt;

use serde_core::de::value::MapAccessDeserializer;
use serde_core::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_core::ser::{Serialize, SerializeStruct, Serializer};

use super::choices::entry;
use super::duration::Human;
use super::form::{Choice, Form, TableForm, read_table};
use crate::conditioner::{Delay, LinkConfig, Loss, Rate};

/// Reads the name of a preset, or a table. A missing field has the value of a perfect link.
impl<'de> Deserialize<'de> for LinkConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PresetOrTable)
    }
}

const EXPECTED: &str =
    "\"wifi\", \"lte\", \"satellite\", \"bad_wifi\", or a table with the settings of a link";

struct PresetOrTable;

impl<'de> Visitor<'de> for PresetOrTable {
    type Value = LinkConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<LinkConfig, E> {
        LinkConfig::preset(name).ok_or_else(|| E::custom(format_args!("must be {EXPECTED}")))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LinkConfig, A::Error> {
        read_table(MapAccessDeserializer::new(map), LinkConfig::default())
    }
}

impl<'de> TableForm<'de> for LinkConfig {
    const EXPECTED: &'static str = "the settings of a link";
    const FIELDS: &'static [&'static str] = &[
        "loss",
        "delay",
        "duplicate",
        "duplicate_late",
        "reorder",
        "reorder_late",
        "corrupt",
        "rate",
        "datagram_max_bytes",
        "memory_bytes",
    ];

    fn read<A: MapAccess<'de>>(&mut self, field: &'static str, map: &mut A) -> Result<(), A::Error> {
        match field {
            "loss" => Form(self.loss) = map.next_value()?,
            "delay" => Form(self.delay) = map.next_value()?,
            "duplicate" => self.duplicate = map.next_value()?,
            "duplicate_late" => Human(self.duplicate_late) = map.next_value()?,
            "reorder" => self.reorder = map.next_value()?,
            "reorder_late" => Human(self.reorder_late) = map.next_value()?,
            "corrupt" => self.corrupt = map.next_value()?,
            "rate" => self.rate = map.next_value()?,
            "datagram_max_bytes" => self.datagram_max_bytes = map.next_value()?,
            "memory_bytes" => self.memory_bytes = map.next_value()?,
            unknown => return Err(A::Error::unknown_field(unknown, Self::FIELDS)),
        }
        Ok(())
    }
}

impl Serialize for LinkConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("LinkConfig", Self::FIELDS.len())?;
        fields.serialize_field("duplicate", &self.duplicate)?;
        fields.serialize_field("duplicate_late", &Human(self.duplicate_late))?;
        fields.serialize_field("reorder", &self.reorder)?;
        fields.serialize_field("reorder_late", &Human(self.reorder_late))?;
        fields.serialize_field("corrupt", &self.corrupt)?;
        match &self.datagram_max_bytes {
            Some(bytes) => fields.serialize_field("datagram_max_bytes", bytes)?,
            // Some formats have no null value.
            None => fields.skip_field("datagram_max_bytes")?,
        }
        fields.serialize_field("memory_bytes", &self.memory_bytes)?;
        // Tables come last, because TOML requires it.
        fields.serialize_field("loss", &Form(self.loss))?;
        fields.serialize_field("delay", &Form(self.delay))?;
        match self.rate {
            Some(rate) => fields.serialize_field("rate", &rate)?,
            None => fields.skip_field("rate")?,
        }
        fields.end()
    }
}

impl<'de> Choice<'de> for Form<Loss> {
    const EXPECTED: &'static str = "a fraction from 0 to 1, or { bursts = [begin, end, inside, outside] }";

    fn of_word(_: &str) -> Option<Self> {
        None
    }

    fn of_number(number: u64) -> Option<Self> {
        Self::of_fraction(u32::try_from(number).ok()?.into())
    }

    fn of_fraction(fraction: f64) -> Option<Self> {
        Some(Self(Loss::Even(fraction)))
    }

    fn of_entry<A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        if name != "bursts" {
            return Ok(None);
        }
        let (begin, end, inside, outside) = map.next_value()?;
        Ok(Some(Self(Loss::Bursts { begin, end, inside, outside })))
    }
}

impl Serialize for Form<Loss> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Loss::Even(fraction) => serializer.serialize_f64(fraction),
            Loss::Bursts { begin, end, inside, outside } => {
                entry(serializer, "bursts", &(begin, end, inside, outside))
            }
        }
    }
}

impl<'de> Choice<'de> for Form<Delay> {
    const EXPECTED: &'static str =
        "a time as in \"30ms\", { uniform = [\"20ms\", \"40ms\"] }, or { normal = [\"30ms\", \"5ms\"] }";

    fn of_word(word: &str) -> Option<Self> {
        Human::of_text(word).map(|Human(delay)| Self(Delay::Constant(delay)))
    }

    fn of_entry<A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        match name {
            "uniform" => map.next_value().map(|(Human(least), Human(most))| Delay::Uniform { least, most }),
            "normal" => {
                map.next_value().map(|(Human(mean), Human(deviation))| Delay::Normal { mean, deviation })
            }
            _ => return Ok(None),
        }
        .map(|delay| Some(Self(delay)))
    }
}

impl Serialize for Form<Delay> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Delay::Constant(delay) => Human(delay).serialize(serializer),
            Delay::Uniform { least, most } => entry(serializer, "uniform", &(Human(least), Human(most))),
            Delay::Normal { mean, deviation } => {
                entry(serializer, "normal", &(Human(mean), Human(deviation)))
            }
        }
    }
}

impl<'de> TableForm<'de> for Rate {
    const EXPECTED: &'static str = "the rate and the queue of a bottleneck";
    const FIELDS: &'static [&'static str] = &["bytes_per_second", "queue_bytes"];

    fn read<A: MapAccess<'de>>(&mut self, field: &'static str, map: &mut A) -> Result<(), A::Error> {
        match field {
            "bytes_per_second" => self.bytes_per_second = map.next_value()?,
            _ => self.queue_bytes = map.next_value()?,
        }
        Ok(())
    }
}

/// Reads both fields. A missing field is 0, which no link accepts.
impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_table(deserializer, Self { bytes_per_second: 0, queue_bytes: 0 })
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Rate", Self::FIELDS.len())?;
        fields.serialize_field("bytes_per_second", &self.bytes_per_second)?;
        fields.serialize_field("queue_bytes", &self.queue_bytes)?;
        fields.end()
    }
}
