//! The text form of [`AdmissionConfig`]: a table. The accept hook is a function, so it can be set in code only.

use serde_core::de::{Deserialize, Deserializer, Error, MapAccess};
use serde_core::ser::{Serialize, SerializeStruct, Serializer};

use super::duration::Human;
use super::form::{TableForm, read_table};
use crate::admission::AdmissionConfig;

impl<'de> TableForm<'de> for AdmissionConfig {
    const EXPECTED: &'static str = "the settings of admission";
    const FIELDS: &'static [&'static str] = &["connections_per_source", "busy_max_percent", "retry_after"];

    fn read<A: MapAccess<'de>>(&mut self, field: &'static str, map: &mut A) -> Result<(), A::Error> {
        match field {
            "connections_per_source" => self.connections_per_source = map.next_value()?,
            "busy_max_percent" => self.busy_max_percent = map.next_value()?,
            "retry_after" => Human(self.retry_after) = map.next_value()?,
            unknown => return Err(A::Error::unknown_field(unknown, Self::FIELDS)),
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for AdmissionConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_table(deserializer, Self::default())
    }
}

impl Serialize for AdmissionConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("AdmissionConfig", Self::FIELDS.len())?;
        match &self.connections_per_source {
            Some(connections) => fields.serialize_field("connections_per_source", connections)?,
            // Some formats have no null value.
            None => fields.skip_field("connections_per_source")?,
        }
        fields.serialize_field("busy_max_percent", &self.busy_max_percent)?;
        fields.serialize_field("retry_after", &Human(self.retry_after))?;
        fields.end()
    }
}
