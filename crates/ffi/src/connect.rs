//! The configuration of a client, and the start of its connection.
//!
//! This module selects the server and parses texts. `drumfire` validates the settings.

use std::ffi::c_char;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire::{Client, ClientConfig, ConnectOptions, ConnectToken, PeerId, Reconnect, ServerPublicKey};

use crate::error::Failure;
use crate::status::DrumfireStatus;

/// The maximum number of clients per process.
pub const DRUMFIRE_CLIENTS_MAX: u32 = 1024;

/// The maximum length of a text argument in bytes, without its NUL byte. Tokens are shorter than 1,000 bytes.
pub const DRUMFIRE_TEXT_MAX_BYTES: usize = 4096;

/// The server of a client, and the settings of its connection. Start with a structure that is all zero: zero selects
/// the default of a field.
///
/// There are three ways to name the server: `token` alone, issued by the game's backend; `server` and `server_key`; or
/// `server` and `dev` for development.
#[repr(C)]
#[derive(Debug)]
pub struct DrumfireConfig {
    /// The address and port of the server: `203.0.113.9:7777` or `[2001:db8::1]:7777`. Host names are not resolved.
    /// Null with a token, which contains the address.
    pub server: *const c_char,
    /// The public key of the server, `drumfire_public_...`. Null with `dev`, and with a token, which contains the key.
    pub server_key: *const c_char,
    /// A connect token from the game's backend, or a resume token, `drumfire_connect_...`. Null for none.
    pub token: *const c_char,
    /// Nonzero: the server uses the development key, which is public. Use it for development only.
    pub dev: u32,
    /// The time for which the client tries to reconnect after its connection ended, in milliseconds, from 1,000 to
    /// 86,400,000. Zero: it does not reconnect.
    pub reconnect_within_ms: u32,
    /// The connection ends after this time without a packet from the server, in milliseconds, at least 1,000. Zero:
    /// 30,000.
    pub idle_timeout_ms: u32,
    /// The connection ends when a packet stays unacknowledged for this time, in milliseconds, at least 1,000. Zero:
    /// 10,000.
    pub unacknowledged_timeout_ms: u32,
    /// Identifies the game and its build. It must equal the protocol id of the server.
    pub protocol_id: u64,
    /// The maximum size of all messages that wait to be sent or are not acknowledged, in bytes, at least 4,096. Zero:
    /// 1,048,576.
    pub send_memory_bytes: usize,
    /// The maximum size of all messages that wait for the application, in bytes, at least 4,096. Zero: 2,097,152.
    pub receive_memory_bytes: usize,
    /// The maximum size of a reliable message, in bytes, from 1,024 to 16 MiB, and at most a quarter of
    /// `send_memory_bytes` and of `receive_memory_bytes`. Zero: 65,536, or that quarter if it is less. Use the same value
    /// on the server.
    pub message_max_bytes: usize,
    /// The size of the receive buffer to request from the system, in bytes. Zero: 262,144, or the default of the system
    /// if that is larger.
    pub receive_buffer_bytes: usize,
    /// A hello for the application of the server, such as a user name, at most 256 bytes. The server receives it after every
    /// reconnect too. Do not put a secret into it. Null for none.
    pub hello: *const c_char,
}

/// Starts to connect.
///
/// `text` reads a text field, given its name and its pointer.
///
/// # Errors
/// Returns an error if a text or a setting is invalid, or if the system refuses a socket.
pub(crate) fn connect<'a>(
    config: &'a DrumfireConfig,
    text: impl Fn(&str, *const c_char) -> Result<Option<&'a str>, Failure>,
) -> Result<(Client, PeerId), Failure> {
    let settings = client_config(config);
    let texts = (
        text("server", config.server)?,
        text("server_key", config.server_key)?,
        text("token", config.token)?,
    );
    let hello = text("hello", config.hello)?.unwrap_or_default();
    let options = match (texts, config.dev != 0) {
        ((None, None, Some(token)), false) => ConnectOptions::with_token(token_of(token, &settings)?),
        ((Some(server), Some(key), None), false) => {
            let key = key.parse::<ServerPublicKey>();
            let key = key.map_err(|error| Failure::new(DrumfireStatus::BadKey, error.to_string()))?;
            ConnectOptions::new(address(server)?, key)
        }
        ((Some(server), None, None), true) => {
            ConnectOptions::new(address(server)?, drumfire::ServerKey::dev().public())
        }
        _ => {
            let text = "cannot tell which server is meant: set token alone, server and server_key, or server and dev";
            return Err(Failure::new(DrumfireStatus::BadArgument, text));
        }
    };
    let mut client = Client::new(settings)?;
    let peer = client.connect(options.hello(hello.to_owned()))?;
    // Sends the first packet, so that the attempt starts before the first poll.
    client.flush();
    Ok((client, peer))
}

fn token_of(text: &str, config: &ClientConfig) -> Result<ConnectToken, Failure> {
    let token = text.parse::<ConnectToken>();
    let token = token.map_err(|error| Failure::new(DrumfireStatus::BadToken, error.to_string()))?;
    if token.protocol_id() != config.protocol_id {
        let text = format!(
            "the token is for protocol id {}, and protocol_id is {}: they must be equal",
            token.protocol_id(),
            config.protocol_id
        );
        return Err(Failure::new(DrumfireStatus::BadToken, text));
    }
    Ok(token)
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    text.parse().map_err(|_| {
        let text = format!(
            "`{text}` is not an address: write 203.0.113.9:7777 or [2001:db8::1]:7777, not a host name"
        );
        Failure::new(DrumfireStatus::BadAddress, text)
    })
}

fn client_config(from: &DrumfireConfig) -> ClientConfig {
    let mut config = ClientConfig::default().protocol_id(from.protocol_id);
    let milliseconds = |value: u32, default| match value {
        0 => default,
        value => Duration::from_millis(value.into()),
    };
    let or_default = |value: usize, default| if value == 0 { default } else { value };
    let idle = milliseconds(from.idle_timeout_ms, config.idle_timeout);
    let unacknowledged = milliseconds(from.unacknowledged_timeout_ms, config.unacknowledged_timeout);
    let send = or_default(from.send_memory_bytes, config.send_memory_bytes);
    let receive = or_default(from.receive_memory_bytes, config.receive_memory_bytes);
    config = config.timeouts(idle, unacknowledged).memory_bytes(send, receive);
    if from.message_max_bytes != 0 {
        config = config.message_max_bytes(from.message_max_bytes);
    }
    if from.receive_buffer_bytes != 0 {
        config = config.receive_buffer_bytes(from.receive_buffer_bytes);
    }
    match from.reconnect_within_ms {
        0 => config,
        within => config.reconnect(Reconnect::Within(Duration::from_millis(within.into()))),
    }
}
