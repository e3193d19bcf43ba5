//! The text form of [`LinkConfig`]: the name of a preset, or a table in which a missing field has the value of a perfect link.

use std::fmt;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::config::{Delay, LinkConfig, Loss, Rate};
use crate::duration_text;

/// The names of the presets are those of [`LinkConfig::PRESET_NAMES`].
const EXPECTED: &str =
    "\"wifi\", \"lte\", \"satellite\", \"bad_wifi\", or a table with the settings of a link";

/// The fields of [`LinkConfig`].
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(
    remote = "LinkConfig",
    default = "LinkConfig::default",
    deny_unknown_fields,
    expecting = "the settings of a link"
)]
struct LinkTable {
    #[serde(deserialize_with = "loss")]
    loss: Loss,
    delay: Delay,
    duplicate: f64,
    #[serde(with = "duration_text")]
    duplicate_delay: Duration,
    reorder: f64,
    #[serde(with = "duration_text")]
    reorder_delay: Duration,
    corrupt: f64,
    // Some formats have no null value.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<Rate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    datagram_max_bytes: Option<usize>,
    memory_bytes: usize,
}

impl Serialize for LinkConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        LinkTable::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for LinkConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Derived code for several forms drops the errors of each form, and these name the field.
        deserializer.deserialize_any(PresetOrTable)
    }
}

/// The error names the forms, because that of the derived form only says what was read instead.
fn loss<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Loss, D::Error> {
    Loss::deserialize(deserializer).map_err(|_| {
        D::Error::custom(
            "must be { random = 0.01 } or { bursts = { begin = 0.01, end = 0.2, inside = 0.7, outside = 0.005 } }",
        )
    })
}

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
        LinkTable::deserialize(MapAccessDeserializer::new(map))
    }
}
