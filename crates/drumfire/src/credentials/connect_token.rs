//! The connect token that a player receives: the address and the public key of the server, and the sealed token.
//!
//! The layout is specified in PROTOCOL 15.3, "Connect tokens as text".

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use drumfire_proto::{IssuedToken, Secret};
use zeroize::Zeroizing;

use super::key_text::{self, KeyKind, KeyTextError};
use super::keys::ServerPublicKey;

/// The only version of the layout.
const VERSION: u8 = 1;

/// The address and the key of a server, and the token of a player (PROTOCOL 15.3, "Connect tokens as text"). It contains a secret: send
/// it only to its player, over an encrypted connection.
#[derive(Debug, PartialEq, Eq)]
pub struct ConnectToken {
    pub(crate) address: SocketAddr,
    pub(crate) server: ServerPublicKey,
    pub(crate) protocol_id: u64,
    pub(crate) expires_at: Duration,
    pub(crate) issued: IssuedToken,
}

impl ConnectToken {
    /// Returns the address and UDP port at which players reach the server.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the public key of the server.
    #[must_use]
    pub const fn server(&self) -> ServerPublicKey {
        self.server
    }

    /// Returns the protocol id of the game and its build. The client needs the same one.
    #[must_use]
    pub const fn protocol_id(&self) -> u64 {
        self.protocol_id
    }

    /// Returns the time since 1970 at which the token expires.
    #[must_use]
    pub const fn expires_at(&self) -> Duration {
        self.expires_at
    }

    pub(crate) const fn issued(&self) -> &IssuedToken {
        &self.issued
    }

    /// Returns the token as text, for example for an HTTPS response. `str::parse` reads it back.
    #[must_use]
    pub fn to_text(&self) -> String {
        let server = self.server.to_bytes();
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let fields: [&[u8]; 9] = [
            &[VERSION],
            &server,
            &self.protocol_id.to_be_bytes(),
            &self.expires_at.as_secs().to_be_bytes(),
            &self.issued.key_id.to_be_bytes(),
            self.issued.psk.expose(),
            &self.issued.sealed,
            &ip.octets(),
            &self.address.port().to_be_bytes(),
        ];
        key_text::encode(KeyKind::Connect, &Zeroizing::new(fields.concat()))
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader(bytes);
        if fields.take()? != [VERSION] {
            return None;
        }
        let server = ServerPublicKey::from_bytes(fields.take()?);
        let protocol_id = u64::from_be_bytes(fields.take()?);
        let expires_at = Duration::from_secs(u64::from_be_bytes(fields.take()?));
        let key_id = u32::from_be_bytes(fields.take()?);
        let psk = Secret::new(fields.take()?);
        let sealed = fields.take()?;
        let ip = Ipv6Addr::from(fields.take::<16>()?).to_canonical();
        let address = SocketAddr::new(ip, u16::from_be_bytes(fields.take()?));
        let issued = IssuedToken { key_id, sealed, psk };
        fields.0.is_empty().then_some(Self { address, server, protocol_id, expires_at, issued })
    }
}

/// The bytes of a token that are not read yet.
struct FieldReader<'a>(&'a [u8]);

impl FieldReader<'_> {
    /// Removes and returns the next `N` bytes. Returns `None` if there are fewer.
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }
}

impl FromStr for ConnectToken {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        Self::from_bytes(&key_text::decode(KeyKind::Connect, text)?)
            .ok_or(KeyTextError::damaged(KeyKind::Connect))
    }
}

impl Clone for ConnectToken {
    fn clone(&self) -> Self {
        Self {
            address: self.address,
            server: self.server,
            protocol_id: self.protocol_id,
            expires_at: self.expires_at,
            issued: self.issued.duplicate(),
        }
    }
}

impl fmt::Display for ConnectToken {
    /// Writes the address and the expiry, and no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token for {}, valid until {} s after 1970", self.address, self.expires_at.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(address: &str) -> ConnectToken {
        ConnectToken {
            address: address.parse().unwrap(),
            server: ServerPublicKey::from_bytes([3; 32]),
            protocol_id: 4,
            expires_at: Duration::from_secs(5),
            issued: IssuedToken { key_id: 6, sealed: [7; 512], psk: Secret::new([8; 32]) },
        }
    }

    #[test]
    fn a_token_is_read_from_its_text() {
        for address in ["192.0.2.1:1", "[2001:db8::1]:65535"] {
            assert_eq!(token(address).to_text().parse(), Ok(token(address)));
        }
    }

    #[test]
    fn a_token_has_the_text_of_its_test_vectors() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../wire/vectors/texts.json");
        let entries: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for (name, entry) in entries.as_object().unwrap() {
            let inputs = &entry["inputs"];
            let bytes = |name: &str| -> Vec<u8> {
                let hex = inputs[name].as_str().unwrap();
                (0..hex.len())
                    .step_by(2)
                    .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                    .collect()
            };
            let token = ConnectToken {
                address: inputs["address"].as_str().unwrap().parse().unwrap(),
                server: ServerPublicKey::from_bytes(bytes("server_public_key").try_into().unwrap()),
                protocol_id: inputs["protocol_id"].as_u64().unwrap(),
                expires_at: Duration::from_secs(inputs["expires_at"].as_u64().unwrap()),
                issued: IssuedToken {
                    key_id: inputs["token_key_id"].as_u64().unwrap().try_into().unwrap(),
                    sealed: bytes("sealed_token").try_into().unwrap(),
                    psk: Secret::new(bytes("psk").try_into().unwrap()),
                },
            };
            assert_eq!(token.to_text(), entry["outputs"]["text"].as_str().unwrap(), "{name}");
        }
    }

    #[test]
    fn a_token_that_was_cut_anywhere_is_refused() {
        let text = token("192.0.2.1:1").to_text();
        for length in 0..text.len() {
            assert!(text[..length].parse::<ConnectToken>().is_err(), "{length}");
        }
    }

    #[test]
    fn a_printed_token_contains_no_secret() {
        let token = token("192.0.2.1:1");
        assert_eq!(token.to_string(), "token for 192.0.2.1:1, valid until 5 s after 1970");
        assert!(!format!("{token:?}").contains("8, 8"), "{token:?}");
    }
}
