//! The Refuse, with which a server rejects a client and gives the reason, at little cost to the server.
//!
//! The client decides whether to believe a Refuse. An attacker off the path does not know the client id. Against an attacker
//! on the path, only the MAC helps. The layout is the same in every version (PROTOCOL 2.2, "Versions").

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use bytes::BufMut;

use super::ClientId;
use crate::codec::{EncodeError, Reader, check_room};
use crate::header::{DatagramError, DatagramKind, REFUSE};
use crate::limits::{REFUSE_MAC_BYTES, REFUSE_MIN_BYTES};

/// The reason why a server rejects a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefuseReason {
    /// The server does not support the client's version.
    Version,
    /// The server is full.
    Full,
    /// The server does not admit the player.
    Banned,
    /// The token has expired.
    TokenExpired,
    /// The token was issued for another server.
    TokenForeign,
    /// The token was used before.
    TokenUsed,
    /// The server redirects the client to another server.
    Redirect,
    /// The server belongs to another game, or to another build of the game.
    Protocol,
    /// The server requires a token, and the Hello has none.
    TokenMissing,
    /// The server cannot open the token, because it does not have the key or because the token was changed.
    TokenUnreadable,
    /// The server accepts no tokens.
    TokenUnexpected,
    /// A reason of a later version, by its byte on the wire.
    Other(u8),
}

/// The contents of a Refuse without the client id and the MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The reason for the rejection.
    pub reason: RefuseReason,
    /// The oldest version that the server supports.
    pub version_min: u16,
    /// The newest version that the server supports.
    pub version_max: u16,
    /// The time to wait before the next attempt, in whole seconds up to 65,535. `None` means that the client must not try again.
    pub retry_after: Option<Duration>,
    /// The address of another server to try, if there is one.
    pub address: Option<SocketAddr>,
    /// Whether the client has verified the MAC, so that the server wrote this. Otherwise any observer of the Hello may have
    /// written it. It is false after decoding and ignored when encoding, because the codec has no keys.
    pub is_proved: bool,
}

/// A Refuse (PROTOCOL 16, "Refuse").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refuse {
    /// The client id of the Hello.
    pub client_id: ClientId,
    /// The contents that the MAC protects.
    pub refusal: Refusal,
    /// The MAC, or zeros if server and client share no secret.
    pub mac: [u8; REFUSE_MAC_BYTES],
}

// The values of the byte before the address: its length in bytes.
const NO_ADDRESS: u8 = 0;
const IPV4: u8 = 4;
const IPV6: u8 = 6;

impl RefuseReason {
    const ALL: [Self; 11] = [
        Self::Version,
        Self::Full,
        Self::Banned,
        Self::TokenExpired,
        Self::TokenForeign,
        Self::TokenUsed,
        Self::Redirect,
        Self::Protocol,
        Self::TokenMissing,
        Self::TokenUnreadable,
        Self::TokenUnexpected,
    ];

    /// Returns the byte on the wire.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Version => 1,
            Self::Full => 2,
            Self::Banned => 3,
            Self::TokenExpired => 4,
            Self::TokenForeign => 5,
            Self::TokenUsed => 6,
            Self::Redirect => 7,
            Self::Protocol => 8,
            Self::TokenMissing => 9,
            Self::TokenUnreadable => 10,
            Self::TokenUnexpected => 11,
            Self::Other(byte) => byte,
        }
    }

    /// Returns the reason with this byte.
    #[must_use]
    pub fn from_byte(byte: u8) -> Self {
        Self::ALL.into_iter().find(|reason| reason.to_byte() == byte).unwrap_or(Self::Other(byte))
    }

    /// Returns a stable name for counters and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Full => "full",
            Self::Banned => "banned",
            Self::TokenExpired => "token_expired",
            Self::TokenForeign => "token_foreign",
            Self::TokenUsed => "token_used",
            Self::Redirect => "redirect",
            Self::Protocol => "protocol",
            Self::TokenMissing => "token_missing",
            Self::TokenUnreadable => "token_unreadable",
            Self::TokenUnexpected => "token_unexpected",
            Self::Other(_) => "other",
        }
    }
}

impl Refuse {
    /// The offset in bytes of the MAC, which covers all bytes before it.
    pub const MAC_OFFSET: usize = REFUSE_MIN_BYTES - REFUSE_MAC_BYTES;

    /// Decodes a Refuse. Ignores the bytes after the MAC, which later versions may use.
    ///
    /// # Errors
    ///
    /// Returns an error if the datagram is not a Refuse, or has an invalid length.
    pub fn decode(datagram: &[u8]) -> Result<Self, DatagramError> {
        match DatagramKind::of(datagram)? {
            DatagramKind::Refuse => Self::read(datagram).ok_or(DatagramError::WrongLength),
            _ => Err(DatagramError::WrongKind),
        }
    }

    fn read(datagram: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(datagram);
        reader.u8()?;
        let client_id = ClientId(*reader.array()?);
        let reason = RefuseReason::from_byte(reader.u8()?);
        let version_min = u16::from_be_bytes(*reader.array()?);
        let version_max = u16::from_be_bytes(*reader.array()?);
        let seconds = u16::from_be_bytes(*reader.array()?);
        let address_length = reader.u8()?;
        let bytes: &[u8; 16] = reader.array()?;
        let port = u16::from_be_bytes(*reader.array()?);
        let ip = match address_length {
            IPV4 => Some(IpAddr::from(Ipv4Addr::from(*bytes.first_chunk::<4>()?))),
            IPV6 => Some(IpAddr::from(Ipv6Addr::from(*bytes))),
            _ => None,
        };
        let refusal = Refusal {
            reason,
            version_min,
            version_max,
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into())),
            address: ip.map(|ip| SocketAddr::new(ip, port)),
            is_proved: false,
        };
        Some(Self { client_id, refusal, mac: *reader.array()? })
    }

    /// Writes the whole datagram, [`REFUSE_MIN_BYTES`] long.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if `out` is too short. Nothing is written then.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<(), EncodeError> {
        check_room(REFUSE_MIN_BYTES, out.remaining_mut())?;
        let Refusal { reason, version_min, version_max, retry_after, address, is_proved: _ } = self.refusal;
        // The largest value represents all longer times.
        let seconds = retry_after.map_or(0, |after| u16::try_from(after.as_secs()).unwrap_or(u16::MAX));
        out.put_u8(REFUSE);
        out.put_slice(&self.client_id.0);
        out.put_u8(reason.to_byte());
        out.put_u16(version_min);
        out.put_u16(version_max);
        out.put_u16(seconds);
        match address.map(|address| address.ip()) {
            None => {
                out.put_u8(NO_ADDRESS);
                out.put_bytes(0, 16);
            }
            Some(IpAddr::V4(ip)) => {
                out.put_u8(IPV4);
                out.put_slice(&ip.octets());
                out.put_bytes(0, 12);
            }
            Some(IpAddr::V6(ip)) => {
                out.put_u8(IPV6);
                out.put_slice(&ip.octets());
            }
        }
        out.put_u16(address.map_or(0, |address| address.port()));
        out.put_slice(&self.mac);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(address: Option<SocketAddr>, retry_after: Option<Duration>) -> Refuse {
        let reason = RefuseReason::Full;
        let refusal =
            Refusal { reason, version_min: 1, version_max: 3, retry_after, address, is_proved: false };
        Refuse { client_id: ClientId([9; 8]), refusal, mac: [0x77; 16] }
    }

    fn encoded(refuse: &Refuse) -> Vec<u8> {
        let mut datagram = Vec::new();
        refuse.encode(&mut datagram).unwrap();
        datagram
    }

    #[test]
    fn a_refuse_round_trips_with_every_kind_of_address() {
        let addresses = [None, Some("192.0.2.7:8000"), Some("[2001:db8::7]:65535")];
        for address in addresses.map(|address| address.map(|text| text.parse().unwrap())) {
            for seconds in [None, Some(1), Some(65_535)] {
                let refuse = refuse(address, seconds.map(Duration::from_secs));
                let datagram = encoded(&refuse);
                assert_eq!(datagram.len(), REFUSE_MIN_BYTES);
                assert_eq!(Refuse::decode(&datagram), Ok(refuse));
            }
        }
    }

    #[test]
    fn a_wait_above_the_largest_value_becomes_that_value() {
        let datagram = encoded(&refuse(None, Some(Duration::from_secs(65_536))));
        let refusal = Refuse::decode(&datagram).unwrap().refusal;
        assert_eq!(refusal.retry_after, Some(Duration::from_secs(65_535)));
    }

    #[test]
    fn every_byte_is_one_reason_and_round_trips() {
        for byte in 0..=u8::MAX {
            assert_eq!(RefuseReason::from_byte(byte).to_byte(), byte);
            assert_eq!(
                matches!(RefuseReason::from_byte(byte), RefuseReason::Other(_)),
                !(1..=11).contains(&byte)
            );
        }
    }

    #[test]
    fn a_refuse_is_neither_read_from_another_length_nor_truncated() {
        let mut datagram = encoded(&refuse(None, None));
        for length in 0..=100 {
            let mut bytes = datagram.clone();
            bytes.resize(length, 0);
            assert_eq!(Refuse::decode(&bytes).is_ok(), (51..=96).contains(&length), "{length}");
        }
        datagram[0] = 0x8a;
        datagram.resize(64, 0);
        assert_eq!(Refuse::decode(&datagram), Err(DatagramError::WrongKind));
        let mut buffer = [0; 50];
        let error = refuse(None, None).encode(&mut buffer.as_mut_slice());
        assert_eq!(error, Err(EncodeError::NoRoom { needed_bytes: 51 }));
        assert_eq!(buffer, [0; 50]);
    }
}
