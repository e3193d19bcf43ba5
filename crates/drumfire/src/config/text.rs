//! The text form of configurations, in any format that serde supports. It is designed for TOML.
//!
//! Most forms are derived next to the types. This module has the exceptions: 64-bit numbers, and the settings of a server, whose
//! [`secrets`] are decoded last. Values are not checked here. The server or client checks them when it is created, as it does for
//! settings from code. The application opens the configuration file.

pub(crate) mod secrets;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use drumfire_proto::{Congestion, Cookie};
use drumfire_socket::{Wait, duration_text};
use serde::de::{Deserialize, Deserializer, Error};
use zeroize::Zeroizing;

use super::server::{Access, ServerConfig};
use super::threads::Workers;
use crate::admission::AdmissionConfig;
use crate::credentials::keys::ServerKey;
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

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let number = match NumberOrText::deserialize(deserializer) {
            Ok(NumberOrText::Number(number)) => Some(number),
            Ok(NumberOrText::Text(text)) => match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            },
            Err(_) => None,
        };
        number.ok_or_else(|| D::Error::custom(EXPECTED))
    }
}

/// Reads a setting that has several forms. The error names them, because that of a derived form only says what was read instead.
fn any_form<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    forms: &str,
) -> Result<T, D::Error> {
    T::deserialize(deserializer).map_err(|_| D::Error::custom(format_args!("must be {forms}")))
}

fn workers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Workers, D::Error> {
    any_form(
        deserializer,
        "\"inline\", \"auto\", { count = 4 }, or { shards = { sockets = 8, threads = 4 } }, with numbers up to 1024",
    )
}

fn wait<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Wait, D::Error> {
    any_form(
        deserializer,
        "\"notify\", \"spin\", or { gather = \"130us\" }; without it, the best one of the platform is used",
    )
}

/// Reads the congestion controller of a server or a client.
pub(crate) fn congestion<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Congestion, D::Error> {
    any_form(deserializer, "\"delay\", \"cubic\", or { fixed = { bytes_per_second = 1250000 } }")
}

/// The settings of a server as they are read.
///
/// `key_file` is the name of a file with the text of [`ServerKey::to_text`]. A relative name is relative to the working directory of the
/// process. Alternatively, `key` is the text itself.
#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the settings of a server")]
pub(crate) struct ServerForm {
    address: Option<SocketAddr>,
    key: Option<Zeroizing<String>>,
    key_file: Option<PathBuf>,
    access: Option<AccessForm>,
    admission: AdmissionConfig,
    cookie: Cookie,
    server_id: String,
    #[serde(deserialize_with = "workers")]
    workers: Workers,
    #[serde(deserialize_with = "wait")]
    wait: Wait,
    #[serde(with = "number")]
    protocol_id: u64,
    connections: u32,
    send_memory_bytes: usize,
    receive_memory_bytes: usize,
    worker_memory_bytes: usize,
    message_max_bytes: Option<usize>,
    in_flight_bytes: usize,
    #[serde(deserialize_with = "congestion")]
    congestion: Congestion,
    #[serde(with = "duration_text")]
    idle_timeout: Duration,
    #[serde(with = "duration_text")]
    unacknowledged_timeout: Duration,
    receive_buffer_bytes: Option<usize>,
    flight_recorder: bool,
    conditioner: Option<crate::conditioner::LinkConfig>,
}

impl Default for ServerForm {
    /// Returns the default of each setting. `address`, `key_file`, and `access` have none.
    fn default() -> Self {
        let placeholder = (Ipv4Addr::LOCALHOST, 0).into();
        let defaults = ServerConfig::new(placeholder, ServerKey::dev(), Access::Open);
        Self {
            address: None,
            key: None,
            key_file: None,
            access: None,
            admission: defaults.admission,
            cookie: defaults.cookie,
            server_id: defaults.server_id,
            workers: defaults.workers,
            wait: defaults.wait,
            protocol_id: defaults.protocol_id,
            connections: defaults.connections,
            send_memory_bytes: defaults.send_memory_bytes,
            receive_memory_bytes: defaults.receive_memory_bytes,
            worker_memory_bytes: defaults.worker_memory_bytes,
            message_max_bytes: defaults.message_max_bytes,
            in_flight_bytes: defaults.in_flight_bytes,
            congestion: defaults.congestion,
            idle_timeout: defaults.idle_timeout,
            unacknowledged_timeout: defaults.unacknowledged_timeout,
            receive_buffer_bytes: defaults.receive_buffer_bytes,
            flight_recorder: defaults.flight_recorder,
            conditioner: defaults.conditioner,
        }
    }
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
        Ok(Self {
            address,
            key,
            access: access.try_into()?,
            admission: form.admission,
            cookie: form.cookie,
            server_id: form.server_id,
            workers: form.workers,
            wait: form.wait,
            protocol_id: form.protocol_id,
            connections: form.connections,
            send_memory_bytes: form.send_memory_bytes,
            receive_memory_bytes: form.receive_memory_bytes,
            worker_memory_bytes: form.worker_memory_bytes,
            message_max_bytes: form.message_max_bytes,
            in_flight_bytes: form.in_flight_bytes,
            congestion: form.congestion,
            idle_timeout: form.idle_timeout,
            unacknowledged_timeout: form.unacknowledged_timeout,
            receive_buffer_bytes: form.receive_buffer_bytes,
            flight_recorder: form.flight_recorder,
            conditioner: form.conditioner,
        })
    }
}
