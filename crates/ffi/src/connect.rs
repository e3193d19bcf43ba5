//! Where a client goes, as whom, and its settings.
//!
//! What a setting must be is judged by `drumfire` itself.

use std::ffi::c_char;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire::{Client, ClientConfig, ConnectToken, Reconnect, ServerPublicKey};

use crate::error::Failure;
use crate::status::DrumfireStatus;

/// Clients that may live at once.
pub const DRUMFIRE_CLIENTS_MAX: u32 = 1024;

/// Bytes of the longest text that is read, without the NUL byte that ends it. Tokens have less than a thousand.
pub const DRUMFIRE_TEXT_MAX_BYTES: usize = 4096;

/// Where to connect, and how. Begin with one that is all zero: each field that stays zero is as its line says.
///
/// One of three says which server it is: `token` alone, as the game's backend issued it; `server` and `server_key`; or `server`
/// and `dev`, for first steps.
#[repr(C)]
#[derive(Debug)]
pub struct DrumfireConfig {
    /// The server's address and port, `203.0.113.9:7777` or `[2001:db8::1]:7777`; no names. Null with a token, which says it.
    pub server: *const c_char,
    /// The server's public key, `drumfire_public_...`. Null with a token, which says it, and with `dev`.
    pub server_key: *const c_char,
    /// A connect token of the game's backend, or one to come back with, `drumfire_connect_...`. Null for none.
    pub token: *const c_char,
    /// Not zero: the server has the development key, which everybody knows. For first steps and tests alone.
    pub dev: u32,
    /// Milliseconds for which the client tries to come back by itself when its connection ends, 1,000 to 86,400,000; zero: it
    /// does not.
    pub reconnect_within_ms: u32,
    /// The connection ends when the server was silent for so many milliseconds, at least 1,000; zero: 30,000.
    pub silent_timeout_ms: u32,
    /// The connection ends when a packet was not acknowledged for so many milliseconds, at least 1,000; zero: 10,000.
    pub unacknowledged_timeout_ms: u32,
    /// The game and its build, as the server has it.
    pub protocol_id: u64,
    /// Bytes of messages that may wait to be sent, at least 4,096; zero: 262,144.
    pub send_memory_bytes: usize,
    /// Bytes of messages that may wait for the application, at least 4,096; zero: 262,144.
    pub receive_memory_bytes: usize,
    /// Bytes of the longest reliable message, 1,024 to 16 MiB, at most a quarter of either memory; zero: 65,536. The server
    /// should have the same.
    pub message_max_bytes: usize,
    /// Receive buffer to ask the system for, in bytes; zero: 262,144, or the system's default where that is larger.
    pub receive_buffer_bytes: usize,
}

/// Begins to connect.
///
/// `text` reads a field by its name.
///
/// # Errors
/// What is wrong with a text or a setting, or what the system answered.
pub(crate) fn connect<'a>(
    config: &'a DrumfireConfig,
    text: impl Fn(&str, *const c_char) -> Result<Option<&'a str>, Failure>,
) -> Result<Client, Failure> {
    let settings = settings(config);
    let texts = (
        text("server", config.server)?,
        text("server_key", config.server_key)?,
        text("token", config.token)?,
    );
    match (texts, config.dev != 0) {
        ((None, None, Some(token)), false) => connect_with_token(token, &settings),
        ((Some(server), Some(key), None), false) => {
            let key = key.parse::<ServerPublicKey>();
            let key = key.map_err(|why| Failure::new(DrumfireStatus::BadKey, why.to_string()))?;
            Ok(Client::connect(address(server)?, key, &settings)?)
        }
        ((Some(server), None, None), true) => {
            let key = drumfire::ServerKey::dev().public();
            Ok(Client::connect(address(server)?, key, &settings)?)
        }
        _ => {
            let text = "which server? Give a token alone, or server and server_key, or server and dev";
            Err(Failure::new(DrumfireStatus::BadArgument, text))
        }
    }
}

fn connect_with_token(text: &str, settings: &ClientConfig) -> Result<Client, Failure> {
    let token = text.parse::<ConnectToken>();
    let token = token.map_err(|why| Failure::new(DrumfireStatus::BadToken, why.to_string()))?;
    if token.protocol_id() != settings.protocol_id {
        let text = format!(
            "the token is for protocol id {}, and protocol_id is {}: they must be equal",
            token.protocol_id(),
            settings.protocol_id
        );
        return Err(Failure::new(DrumfireStatus::BadToken, text));
    }
    Ok(Client::connect_with_token(&token, settings)?)
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    text.parse().map_err(|_| {
        let text = format!("`{text}` is no address: say 203.0.113.9:7777 or [2001:db8::1]:7777, and no name");
        Failure::new(DrumfireStatus::BadAddress, text)
    })
}

fn settings(asked: &DrumfireConfig) -> ClientConfig {
    let mut settings = ClientConfig::default().protocol_id(asked.protocol_id);
    let milliseconds = |asked: u32, usual| match asked {
        0 => usual,
        asked => Duration::from_millis(asked.into()),
    };
    let or_usual = |asked: usize, usual| if asked == 0 { usual } else { asked };
    let silent = milliseconds(asked.silent_timeout_ms, settings.silent_timeout);
    let unacknowledged = milliseconds(asked.unacknowledged_timeout_ms, settings.unacknowledged_timeout);
    let send = or_usual(asked.send_memory_bytes, settings.send_memory_bytes);
    let receive = or_usual(asked.receive_memory_bytes, settings.receive_memory_bytes);
    settings = settings.timeouts(silent, unacknowledged).memory_bytes(send, receive);
    if asked.message_max_bytes != 0 {
        settings = settings.message_max_bytes(asked.message_max_bytes);
    }
    if asked.receive_buffer_bytes != 0 {
        settings = settings.receive_buffer_bytes(asked.receive_buffer_bytes);
    }
    match asked.reconnect_within_ms {
        0 => settings,
        within => settings.reconnect(Reconnect::Within(Duration::from_millis(within.into()))),
    }
}
