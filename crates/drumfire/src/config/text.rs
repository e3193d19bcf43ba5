//! The text form of configurations, in any format that serde supports. It is designed for TOML.
//!
//! Most forms are derived next to the types. This module has the exceptions: 64-bit numbers, and the settings of a server, whose
//! [`secrets`] are decoded last. Values are not checked here. The server or client checks them when it is created, as it does for
//! settings from code. The application opens the configuration file.

pub(crate) mod secrets;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use drumfire_proto::{Congestion, Cookie};
use drumfire_socket::{Wait, duration_text};
use serde::de::{Deserialize, Deserializer, Error};
use zeroize::Zeroizing;

use super::server::ServerConfig;
use super::threads::Workers;
use crate::admission::AdmissionConfig;
use secrets::AccessForm;

/// A 64-bit number. Numbers from 2^63 on are written as text, because some formats have signed numbers only.
pub(crate) mod number {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    const EXPECTED: &str =
        "must be a whole number up to 18446744073709551615; from 2^63 on write it as text, \"0x..\" too";

    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum NumberOrText {
        Number(u64),
        Text(String),
    }

    pub(crate) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        match i64::try_from(*number) {
            Ok(number) => serializer.serialize_i64(number),
            Err(_) => serializer.collect_str(number),
        }
    }

    pub(crate) fn deserialize<'de, T: From<u64>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let number = match NumberOrText::deserialize(deserializer) {
            Ok(NumberOrText::Number(number)) => Some(number),
            Ok(NumberOrText::Text(text)) => match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            },
            Err(_) => None,
        };
        number.map(T::from).ok_or_else(|| D::Error::custom(EXPECTED))
    }
}

/// Reads a setting that has several forms. The error names them, because that of a derived form only says what was read instead.
fn any_form<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    forms: &str,
) -> Result<T, D::Error> {
    T::deserialize(deserializer).map_err(|_| D::Error::custom(format_args!("must be {forms}")))
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration_text::deserialize(deserializer).map(Some)
}

fn workers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Workers>, D::Error> {
    any_form(
        deserializer,
        "\"inline\", \"auto\", { count = 4 }, or { shards = { sockets = 8, threads = 4 } }, with numbers up to 1024",
    )
    .map(Some)
}

fn wait<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Wait>, D::Error> {
    any_form(
        deserializer,
        "\"notify\", \"spin\", or { gather = \"130us\" }; without it, the best one of the platform is used",
    )
    .map(Some)
}

/// Reads the congestion controller of a server or a client.
pub(crate) fn congestion<'de, R: From<Congestion>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<R, D::Error> {
    let forms = "\"delay\", \"cubic\", or { fixed = { bytes_per_second = 1250000 } }";
    any_form::<Congestion, _>(deserializer, forms).map(R::from)
}

/// The settings of a server as they are read.
///
/// `key_file` is the name of a file with the text of [`ServerKey::to_text`](crate::ServerKey::to_text). A relative name is relative to
/// the working directory of the process. Alternatively, `key` is the text itself.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the settings of a server")]
pub(crate) struct ServerForm {
    address: Option<SocketAddr>,
    key: Option<Zeroizing<String>>,
    key_file: Option<PathBuf>,
    access: Option<AccessForm>,
    admission: Option<AdmissionConfig>,
    cookie: Option<Cookie>,
    server_id: Option<String>,
    #[serde(deserialize_with = "workers")]
    workers: Option<Workers>,
    #[serde(deserialize_with = "wait")]
    wait: Option<Wait>,
    #[serde(deserialize_with = "number::deserialize")]
    protocol_id: Option<u64>,
    connections: Option<u32>,
    send_memory_bytes: Option<usize>,
    receive_memory_bytes: Option<usize>,
    worker_memory_bytes: Option<usize>,
    message_max_bytes: Option<usize>,
    in_flight_bytes: Option<usize>,
    #[serde(deserialize_with = "congestion")]
    congestion: Option<Congestion>,
    #[serde(deserialize_with = "duration")]
    idle_timeout: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    unacknowledged_timeout: Option<Duration>,
    receive_buffer_bytes: Option<usize>,
    flight_recorder: Option<bool>,
    conditioner: Option<crate::conditioner::LinkConfig>,
}

/// Replaces the default of each of these settings that was read.
macro_rules! replace_read {
    ($config:ident, $form:ident: $($field:ident)*) => {
        $(if let Some(read) = $form.$field {
            $config.$field = read;
        })*
    };
}

impl TryFrom<ServerForm> for ServerConfig {
    type Error = String;

    fn try_from(form: ServerForm) -> Result<Self, String> {
        let missing = |field: &str, what: &str| format!("{field}: is missing: {what}");
        let key = match (form.key, form.key_file) {
            (Some(text), None) => secrets::key_from_text("key", &text)?,
            (None, Some(path)) => secrets::key_from_file("key_file", &path)?,
            (None, None) => return Err(missing("key_file", "name the file with the server's secret key")),
            (Some(_), Some(_)) => {
                return Err("key_file: there is a key too: leave one of them out".to_owned());
            }
        };
        let address =
            form.address.ok_or_else(|| missing("address", "say where to bind, as \"0.0.0.0:7777\""))?;
        let access =
            form.access.ok_or_else(|| missing("access", "say \"open\", or name the keys of tokens"))?;
        let mut config = Self::new(address, key, access.try_into()?);
        replace_read!(config, form: admission cookie server_id workers wait protocol_id connections send_memory_bytes
            receive_memory_bytes worker_memory_bytes in_flight_bytes congestion idle_timeout unacknowledged_timeout
            flight_recorder);
        config.message_max_bytes = form.message_max_bytes;
        config.receive_buffer_bytes = form.receive_buffer_bytes;
        config.conditioner = form.conditioner;
        Ok(config)
    }
}
