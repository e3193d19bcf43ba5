//! Tests of the checks of settings.

use super::server::{Access, ServerConfig};
use super::*;
use crate::credentials::keys::ServerKey;
use crate::credentials::tokens::TokenAccess;

fn is_refused(address: &str, key: ServerKey) -> bool {
    let config = ServerConfig::new(address.parse().unwrap(), key, Access::Open);
    matches!(config.check(), Err(Error::DevelopmentKey))
}

#[test]
fn the_development_key_binds_to_loopback_alone() {
    for address in ["127.0.0.1:0", "127.9.9.9:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
        assert!(!is_refused(address, ServerKey::dev()), "{address}");
    }
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
        assert!(is_refused(address, ServerKey::dev()), "{address}");
        assert!(!is_refused(address, ServerKey::from_bytes([9; 32])), "{address}");
    }
}

#[test]
fn the_development_key_cannot_be_used_with_tokens() {
    let key = crate::tokens::TokenMasterKey::generate().unwrap().token_key(1, "a").unwrap();
    let access = Access::Token(TokenAccess::new(key));
    let config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), ServerKey::dev(), access);
    assert!(matches!(config.check(), Err(Error::DevelopmentKey)));
}

#[test]
fn the_number_of_workers_is_limited_by_sockets_per_port() {
    const MOST: u16 = 1_024;
    let check = |count| {
        let address = "127.0.0.1:0".parse().unwrap();
        ServerConfig::new(address, ServerKey::dev(), Access::Open)
            .workers(crate::Workers::Count(count))
            .check()
    };
    let is_shared = drumfire_socket::ReuseportGroup::MAX_SOCKETS > 1;
    for (count, fits) in
        [(0, false), (1, true), (2, is_shared), (MOST - 1, is_shared), (MOST, is_shared), (MOST + 1, false)]
    {
        let named = matches!(check(count), Err(Error::Setting { field: "workers", .. }));
        assert_eq!((check(count).is_ok(), named), (fits, !fits), "{count}");
    }
}

#[test]
fn an_empty_server_id_is_the_bound_address() {
    let config = |id: &str| {
        ServerConfig::new("0.0.0.0:0".parse().unwrap(), ServerKey::from_bytes([9; 32]), Access::Open)
            .server_id(id)
    };
    let id = |address: &str| config("").effective_server_id(address.parse().unwrap());
    assert_eq!(id("192.0.2.1:7777"), id("[::ffff:192.0.2.1]:7777"));
    let others = ["192.0.2.1:7777", "192.0.2.1:7778", "192.0.2.2:7777", "[2001:db8::1]:7777", "0.0.0.0:7777"];
    for (at, address) in others.iter().enumerate() {
        assert!(others[..at].iter().all(|other| id(other) != id(address)), "{address}");
        assert!(String::from_utf8(id(address)).is_err(), "no id of the application is the same");
        assert_eq!(config("eu-1").effective_server_id(address.parse().unwrap()), b"eu-1");
    }
}
