//! F16: addresses, keys, and configurations as text. Any text is valid, or one line of text explains why it is not.
//!
//! Keys in files are left out, because a fuzzer must not choose the files that are opened.

use std::fmt::Display;
use std::net::SocketAddr;

use drumfire::tokens::{TokenKey, TokenMasterKey};
use drumfire::{ClientConfig, ConnectToken, ServerConfig, ServerKey, ServerPublicKey};

/// The required settings of a server, except for its key.
const REQUIRED_SETTINGS: &str = "address = \"127.0.0.1:7777\"\naccess = \"open\"\n";

fn assert_clear(error: &dyn Display) {
    let line = error.to_string();
    assert!(!line.trim().is_empty() && line.lines().count() == 1, "{line:?} is one line");
}

/// F16: dispatches by the first byte.
pub(crate) fn config(data: &[u8]) {
    let (how, text) = data.split_first().map_or((0, data), |(how, text)| (*how, text));
    let text = String::from_utf8_lossy(text);
    match how % 4 {
        0 => keys(&text),
        1 => client(&text),
        2 => server(&text),
        _ => server(&format!(
            "key = \"{}\"\n{REQUIRED_SETTINGS}{text}",
            ServerKey::from_bytes([0x5c; 32]).to_text()
        )),
    }
}

fn keys(text: &str) {
    if let Ok(address) = text.parse::<SocketAddr>() {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
    let read = [
        text.parse::<ServerKey>().map(|key| key.to_text().parse::<ServerKey>().is_ok()),
        text.parse::<ServerPublicKey>().map(|key| key.to_string().parse() == Ok(key)),
        text.parse::<TokenKey>().map(|key| key.to_text().parse::<TokenKey>().is_ok()),
        text.parse::<TokenMasterKey>().map(|key| key.to_text().parse::<TokenMasterKey>().is_ok()),
        text.parse::<ConnectToken>().map(|token| token.to_text().parse::<ConnectToken>().is_ok()),
    ];
    for read in read {
        match read {
            Ok(comes_back) => assert!(comes_back, "a written key can be read"),
            Err(error) => assert_clear(&error),
        }
    }
}

fn client(text: &str) {
    match toml::from_str::<ClientConfig>(text) {
        Ok(config) => {
            let written = toml::to_string(&config).expect("a config can be written");
            let again: ClientConfig = toml::from_str(&written).expect("a written config can be read");
            assert_eq!(format!("{again:?}"), format!("{config:?}"));
        }
        Err(error) => assert_clear(&error.message()),
    }
}

fn server(text: &str) {
    if text.contains("file") {
        return;
    }
    match toml::from_str::<ServerConfig>(text) {
        Ok(config) => {
            // Keys are not written, so the result cannot be read.
            toml::to_string(&config).expect("a config can be written");
        }
        Err(error) => assert_clear(&error.message()),
    }
}
