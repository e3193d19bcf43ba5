//! The text forms of [`ServerConfig`] and [`ClientConfig`]. All settings can be read. Secrets are not written.
//!
//! Values are not checked here. The server or client checks them when it is created, as it does for settings from code.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde_core::de::{Deserialize, Deserializer, Error, MapAccess};
use serde_core::ser::{Serialize, SerializeStruct, Serializer};

use super::duration::Human;
use super::form::{Form, TableForm, read_table};
use super::secrets::{self, AccessForm};
use crate::config::client::ClientConfig;
use crate::config::server::{Access, ServerConfig};
use crate::credentials::keys::ServerKey;

use zeroize::Zeroizing;

/// The settings of a server while they are read.
struct ServerForm {
    address: Option<SocketAddr>,
    key: Option<Zeroizing<String>>,
    key_file: Option<PathBuf>,
    access: Option<AccessForm>,
    message_max_bytes: Option<usize>,
    /// All other settings. They start with their defaults.
    settings: ServerConfig,
}

impl ServerForm {
    fn new() -> Self {
        // These three settings have no default. `config` replaces the placeholders.
        let nowhere = (Ipv4Addr::LOCALHOST, 0).into();
        let settings = ServerConfig::new(nowhere, ServerKey::dev(), Access::Open);
        Self { address: None, key: None, key_file: None, access: None, message_max_bytes: None, settings }
    }

    fn config(mut self) -> Result<ServerConfig, String> {
        // The default of the longest message depends on the memory, as for settings from code.
        let (send, receive) = (self.settings.send_memory_bytes, self.settings.receive_memory_bytes);
        self.settings = self.settings.memory_bytes(send, receive);
        self.settings.message_max_bytes = self.message_max_bytes.unwrap_or(self.settings.message_max_bytes);
        let missing = |field: &str, what: &str| format!("{field}: is missing: {what}");
        let key = match (self.key, self.key_file) {
            (Some(text), None) => secrets::of_text("key", &text)?,
            (None, Some(path)) => secrets::of_file("key_file", &path)?,
            (None, None) => return Err(missing("key_file", "name the file with the server's secret key")),
            (Some(_), Some(_)) => {
                return Err("key_file: there is a key too: leave one of them out".to_owned());
            }
        };
        let address =
            self.address.ok_or_else(|| missing("address", "say where to bind, as \"0.0.0.0:7777\""))?;
        let access =
            self.access.ok_or_else(|| missing("access", "say \"open\", or name the keys of tokens"))?;
        Ok(ServerConfig { address, key, access: access.access()?, ..self.settings })
    }
}

impl<'de> TableForm<'de> for ServerForm {
    const EXPECTED: &'static str = "the settings of a server";
    const FIELDS: &'static [&'static str] = &[
        "address",
        "key",
        "key_file",
        "access",
        "admission",
        "cookie",
        "server_id",
        "workers",
        "wait",
        "protocol_id",
        "connections",
        "send_memory_bytes",
        "receive_memory_bytes",
        "worker_memory_bytes",
        "message_max_bytes",
        "in_flight_bytes",
        "congestion",
        "silent_timeout",
        "unacknowledged_timeout",
        "receive_buffer_bytes",
        "flight_recorder",
        #[cfg(feature = "conditioner")]
        "conditioner",
    ];

    fn read<A: MapAccess<'de>>(&mut self, field: &'static str, map: &mut A) -> Result<(), A::Error> {
        let settings = &mut self.settings;
        match field {
            "address" => self.address = map.next_value()?,
            "key" => self.key = map.next_value::<Option<String>>()?.map(Zeroizing::new),
            "key_file" => self.key_file = map.next_value()?,
            "access" => self.access = map.next_value()?,
            "admission" => settings.admission = map.next_value()?,
            "cookie" => Form(settings.cookie) = map.next_value()?,
            "server_id" => settings.server_id = map.next_value()?,
            "workers" => settings.workers = map.next_value()?,
            "wait" => Form(settings.wait) = map.next_value()?,
            "protocol_id" => Form(settings.protocol_id) = map.next_value()?,
            "connections" => settings.connections = map.next_value()?,
            "send_memory_bytes" => settings.send_memory_bytes = map.next_value()?,
            "receive_memory_bytes" => settings.receive_memory_bytes = map.next_value()?,
            "worker_memory_bytes" => settings.worker_memory_bytes = map.next_value()?,
            "message_max_bytes" => self.message_max_bytes = map.next_value()?,
            "in_flight_bytes" => settings.in_flight_bytes = map.next_value()?,
            "congestion" => Form(settings.congestion) = map.next_value()?,
            "silent_timeout" => Human(settings.silent_timeout) = map.next_value()?,
            "unacknowledged_timeout" => Human(settings.unacknowledged_timeout) = map.next_value()?,
            "receive_buffer_bytes" => settings.receive_buffer_bytes = map.next_value()?,
            "flight_recorder" => settings.flight_recorder = map.next_value()?,
            #[cfg(feature = "conditioner")]
            "conditioner" => settings.conditioner = map.next_value()?,
            unknown => return Err(A::Error::unknown_field(unknown, Self::FIELDS)),
        }
        Ok(())
    }
}

/// Reads a table of settings. A missing field has its default, and an unknown field is an error.
///
/// `key_file` is the name of a file with the text of [`ServerKey::to_text`]. A relative name is relative to the working directory of the
/// process. Alternatively, `key` is the text itself.
impl<'de> Deserialize<'de> for ServerConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_table(deserializer, ServerForm::new())?.config().map_err(D::Error::custom)
    }
}

/// The number of fields that are read and never written: `key` and `key_file`.
const KEYS: usize = 2;

impl Serialize for ServerConfig {
    /// Writes all settings except for the secrets, for example to a log. The text can be read again after a key was added.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("ServerConfig", ServerForm::FIELDS.len() - KEYS)?;
        fields.serialize_field("address", &self.address)?;
        fields.serialize_field("cookie", &Form(self.cookie))?;
        fields.serialize_field("server_id", &self.server_id)?;
        fields.serialize_field("workers", &self.workers)?;
        fields.serialize_field("wait", &Form(self.wait))?;
        fields.serialize_field("protocol_id", &Form(self.protocol_id))?;
        fields.serialize_field("connections", &self.connections)?;
        fields.serialize_field("send_memory_bytes", &self.send_memory_bytes)?;
        fields.serialize_field("receive_memory_bytes", &self.receive_memory_bytes)?;
        fields.serialize_field("worker_memory_bytes", &self.worker_memory_bytes)?;
        fields.serialize_field("message_max_bytes", &self.message_max_bytes)?;
        fields.serialize_field("in_flight_bytes", &self.in_flight_bytes)?;
        fields.serialize_field("congestion", &Form(self.congestion))?;
        fields.serialize_field("silent_timeout", &Human(self.silent_timeout))?;
        fields.serialize_field("unacknowledged_timeout", &Human(self.unacknowledged_timeout))?;
        write_some(&mut fields, "receive_buffer_bytes", self.receive_buffer_bytes)?;
        fields.serialize_field("flight_recorder", &self.flight_recorder)?;
        // Tables come last, because TOML requires it.
        fields.serialize_field("access", &self.access)?;
        fields.serialize_field("admission", &self.admission)?;
        #[cfg(feature = "conditioner")]
        write_some(&mut fields, "conditioner", self.conditioner.as_ref())?;
        fields.end()
    }
}

/// Writes a setting that has no default. Skips the field if there is no value, because some formats have no null value.
fn write_some<S: SerializeStruct, T: Serialize>(
    fields: &mut S,
    name: &'static str,
    value: Option<T>,
) -> Result<(), S::Error> {
    match value {
        Some(value) => fields.serialize_field(name, &value),
        None => fields.skip_field(name),
    }
}

/// The settings of a client while they are read.
#[derive(Default)]
struct ClientForm {
    message_max_bytes: Option<usize>,
    settings: ClientConfig,
}

impl<'de> TableForm<'de> for ClientForm {
    const EXPECTED: &'static str = "the settings of a client";
    const FIELDS: &'static [&'static str] = &[
        "protocol_id",
        "connections",
        "address",
        "send_memory_bytes",
        "receive_memory_bytes",
        "message_max_bytes",
        "in_flight_bytes",
        "congestion",
        "silent_timeout",
        "unacknowledged_timeout",
        "receive_buffer_bytes",
        "reconnect",
        "follow_network",
        "flight_recorder",
        #[cfg(feature = "conditioner")]
        "conditioner",
    ];

    fn read<A: MapAccess<'de>>(&mut self, field: &'static str, map: &mut A) -> Result<(), A::Error> {
        let settings = &mut self.settings;
        match field {
            "protocol_id" => Form(settings.protocol_id) = map.next_value()?,
            "connections" => settings.connections = map.next_value()?,
            "address" => settings.address = map.next_value()?,
            "send_memory_bytes" => settings.send_memory_bytes = map.next_value()?,
            "receive_memory_bytes" => settings.receive_memory_bytes = map.next_value()?,
            "message_max_bytes" => self.message_max_bytes = map.next_value()?,
            "in_flight_bytes" => settings.in_flight_bytes = map.next_value()?,
            "congestion" => Form(settings.congestion) = map.next_value()?,
            "silent_timeout" => Human(settings.silent_timeout) = map.next_value()?,
            "unacknowledged_timeout" => Human(settings.unacknowledged_timeout) = map.next_value()?,
            "receive_buffer_bytes" => settings.receive_buffer_bytes = map.next_value()?,
            "reconnect" => Form(settings.reconnect) = map.next_value()?,
            "follow_network" => settings.follow_network = map.next_value()?,
            "flight_recorder" => settings.flight_recorder = map.next_value()?,
            #[cfg(feature = "conditioner")]
            "conditioner" => settings.conditioner = map.next_value()?,
            unknown => return Err(A::Error::unknown_field(unknown, Self::FIELDS)),
        }
        Ok(())
    }
}

/// Reads a table of settings. A missing field has its default, and an unknown field is an error.
impl<'de> Deserialize<'de> for ClientConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ClientForm { message_max_bytes, settings } = read_table(deserializer, ClientForm::default())?;
        let (send, receive) = (settings.send_memory_bytes, settings.receive_memory_bytes);
        let settings = settings.memory_bytes(send, receive);
        let message_max_bytes = message_max_bytes.unwrap_or(settings.message_max_bytes);
        Ok(settings.message_max_bytes(message_max_bytes))
    }
}

impl Serialize for ClientConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("ClientConfig", ClientForm::FIELDS.len())?;
        fields.serialize_field("protocol_id", &Form(self.protocol_id))?;
        fields.serialize_field("connections", &self.connections)?;
        write_some(&mut fields, "address", self.address)?;
        fields.serialize_field("send_memory_bytes", &self.send_memory_bytes)?;
        fields.serialize_field("receive_memory_bytes", &self.receive_memory_bytes)?;
        fields.serialize_field("message_max_bytes", &self.message_max_bytes)?;
        fields.serialize_field("in_flight_bytes", &self.in_flight_bytes)?;
        fields.serialize_field("congestion", &Form(self.congestion))?;
        fields.serialize_field("silent_timeout", &Human(self.silent_timeout))?;
        fields.serialize_field("unacknowledged_timeout", &Human(self.unacknowledged_timeout))?;
        write_some(&mut fields, "receive_buffer_bytes", self.receive_buffer_bytes)?;
        fields.serialize_field("reconnect", &Form(self.reconnect))?;
        fields.serialize_field("follow_network", &self.follow_network)?;
        fields.serialize_field("flight_recorder", &self.flight_recorder)?;
        #[cfg(feature = "conditioner")]
        write_some(&mut fields, "conditioner", self.conditioner.as_ref())?;
        fields.end()
    }
}
