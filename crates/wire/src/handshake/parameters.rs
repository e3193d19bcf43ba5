//! The parameters of a connection, which are the sealed payloads of Noise messages 1 and 2, and the suites that protect packets.
//!
//! [`SharedParameters::negotiate`] resolves values that differ between the peers. The protocol core acts on the result.

use core::time::Duration;

use bytes::BufMut;

use crate::codec::{EncodeError, Reader, check_room};
use crate::connection_id::ConnectionId;
use crate::limits::{
    APPLICATION_HELLO_MAX_BYTES, CLIENT_PARAMETERS_BYTES, DATAGRAM_MAX_BYTES, DATAGRAM_START_BYTES,
    MESSAGE_CHARGE_BYTES, MESSAGE_LIMIT_BYTES, MESSAGE_LIMIT_MIN_BYTES, SERVER_PARAMETERS_BYTES,
    TIMEOUT_MIN_MS,
};

/// The length in bytes of the client's parameters before the application hello.
const CLIENT_BYTES: usize = 1 + ConnectionId::BYTES + SharedParameters::BYTES;

/// The parameters that both peers send (PROTOCOL 5.7, "Parameters").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedParameters {
    /// The largest UDP payload that this peer accepts in bytes, 1,200 to 65,507.
    pub datagram_max_bytes: u16,
    /// The connection ends if no packet arrives for this time. It is a whole number of milliseconds, at least a second
    /// and at most 49 days.
    pub idle_timeout: Duration,
    /// The connection ends if a packet is not acknowledged for this time. The bounds are those of `idle_timeout`.
    pub unacknowledged_timeout: Duration,
    /// The largest reliable message that this peer accepts in bytes, 1,024 to 16 MiB.
    pub message_max_bytes: u32,
    /// The bytes of reliable messages, including charges, that the other peer may send before it receives a credit frame.
    /// It is enough for at least one message of the largest size.
    pub credit_bytes: u32,
}

impl SharedParameters {
    /// The encoded length in bytes.
    const BYTES: usize = 2 + 4 + 4 + 4 + 4;

    /// Returns the parameters of a connection between this peer and a peer with the parameters `other`.
    ///
    /// The shorter of two timeouts applies. Sizes and credit describe one peer, so those of `self` stay.
    #[must_use]
    pub fn negotiate(self, other: Self) -> Self {
        Self {
            datagram_max_bytes: self.datagram_max_bytes,
            idle_timeout: self.idle_timeout.min(other.idle_timeout),
            unacknowledged_timeout: self.unacknowledged_timeout.min(other.unacknowledged_timeout),
            message_max_bytes: self.message_max_bytes,
            credit_bytes: self.credit_bytes,
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let datagram_max_bytes = u16::from_be_bytes(*reader.array()?);
        let fits = (DATAGRAM_START_BYTES..=DATAGRAM_MAX_BYTES).contains(&usize::from(datagram_max_bytes));
        let idle_timeout = timeout(reader)?;
        let unacknowledged_timeout = timeout(reader)?;
        let message_max_bytes = u32::from_be_bytes(*reader.array()?);
        let credit_bytes = u32::from_be_bytes(*reader.array()?);
        let fits = fits
            && (MESSAGE_LIMIT_MIN_BYTES..=MESSAGE_LIMIT_BYTES).contains(&message_max_bytes)
            && credit_bytes >= message_max_bytes.saturating_add(MESSAGE_CHARGE_BYTES);
        fits.then_some(Self {
            datagram_max_bytes,
            idle_timeout,
            unacknowledged_timeout,
            message_max_bytes,
            credit_bytes,
        })
    }

    fn put(&self, out: &mut impl BufMut) {
        out.put_u16(self.datagram_max_bytes);
        for timeout in [self.idle_timeout, self.unacknowledged_timeout] {
            // The largest value represents all longer timeouts.
            out.put_u32(u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX));
        }
        out.put_u32(self.message_max_bytes);
        out.put_u32(self.credit_bytes);
    }
}

fn timeout(reader: &mut Reader<'_>) -> Option<Duration> {
    let milliseconds = u32::from_be_bytes(*reader.array()?);
    (milliseconds >= TIMEOUT_MIN_MS).then(|| Duration::from_millis(u64::from(milliseconds)))
}

/// The payload of Noise message 1 (PROTOCOL 5.7, "Parameters").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientParameters<'a> {
    /// The id that packets to the client carry, or `None` if the socket of the client has one connection.
    pub connection_id: Option<ConnectionId>,
    /// The parameters that the client asks for.
    pub shared: SharedParameters,
    /// Bytes of the application, such as a user name, at most [`APPLICATION_HELLO_MAX_BYTES`].
    pub hello: &'a [u8],
}

impl<'a> ClientParameters<'a> {
    /// Decodes the payload. Ignores the bytes after the fields, which later versions may use. Returns `None` if the payload is
    /// too short, or a field is out of range.
    #[must_use]
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let id_bytes = reader.u8()?;
        let &id = reader.array()?;
        let connection_id = match usize::from(id_bytes) {
            0 => None,
            ConnectionId::BYTES => Some(ConnectionId::from_bytes(id)),
            _ => return None,
        };
        let shared = SharedParameters::read(&mut reader)?;
        let hello_bytes = usize::from(u16::from_be_bytes(*reader.array()?));
        if hello_bytes > APPLICATION_HELLO_MAX_BYTES {
            return None;
        }
        Some(Self { connection_id, shared, hello: reader.slice(hello_bytes)? })
    }

    /// Encodes the payload, padded with zeros. Cuts a hello that is too long.
    #[must_use]
    pub fn encode(&self) -> [u8; CLIENT_PARAMETERS_BYTES] {
        let mut payload = [0; CLIENT_PARAMETERS_BYTES];
        let mut out = payload.as_mut_slice();
        // An assertion below checks at compile time that the fields fit into the payload.
        out.put_u8(if self.connection_id.is_some() { 8 } else { 0 });
        out.put_slice(&self.connection_id.map_or([0; 8], ConnectionId::to_bytes));
        self.shared.put(&mut out);
        let hello = self.hello.get(..APPLICATION_HELLO_MAX_BYTES).unwrap_or(self.hello);
        debug_assert_eq!(hello.len(), self.hello.len(), "the caller checks the length of the hello");
        out.put_u16(u16::try_from(hello.len()).unwrap_or_default());
        out.put_slice(hello);
        payload
    }
}

const _: () = assert!(
    CLIENT_BYTES + 2 + APPLICATION_HELLO_MAX_BYTES <= CLIENT_PARAMETERS_BYTES && ConnectionId::BYTES == 8
);
const _: () = assert!(SERVER_PARAMETERS_BYTES == ConnectionId::BYTES + 16 + 1 + SharedParameters::BYTES);

/// The payload of Noise message 2 (PROTOCOL 5.7, "Parameters").
///
/// `Debug` omits the reset token, because it is enough to end the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ServerParameters {
    /// The id that packets to the server carry.
    pub connection_id: ConnectionId,
    /// The token by which the client recognizes a Reset of the server.
    pub reset_token: [u8; 16],
    /// The suite that the server chose from the offer.
    pub suite: Suite,
    /// The agreed timeouts, and the sizes and the credit of the server.
    pub shared: SharedParameters,
}

impl core::fmt::Debug for ServerParameters {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut shown = f.debug_struct("ServerParameters");
        shown.field("connection_id", &self.connection_id).field("suite", &self.suite);
        shown.field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl ServerParameters {
    /// Decodes the payload. Ignores the bytes after the fields, which later versions may use. Returns `None` if the payload is
    /// too short, or a field is out of range.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        Some(Self {
            connection_id: ConnectionId::from_bytes(*reader.array()?),
            reset_token: *reader.array()?,
            suite: Suite::from_id(reader.u8()?)?,
            shared: SharedParameters::read(&mut reader)?,
        })
    }

    /// Encodes the payload.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if `out` is too short. Nothing is written then.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<(), EncodeError> {
        check_room(SERVER_PARAMETERS_BYTES, out.remaining_mut())?;
        out.put_slice(&self.connection_id.to_bytes());
        out.put_slice(&self.reset_token);
        out.put_u8(self.suite.id());
        self.shared.put(out);
        Ok(())
    }
}

/// A suite that protects packets (PROTOCOL 4.2, "Suites").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suite {
    /// Suite 1, ChaCha20-Poly1305 (RFC 8439), which every implementation supports.
    ChaCha20Poly1305,
    /// Suite 2, AES-128-GCM, for machines with instructions for it.
    Aes128Gcm,
}

impl Suite {
    /// Returns the suite's number on the wire.
    pub fn id(self) -> u8 {
        match self {
            Self::ChaCha20Poly1305 => 1,
            Self::Aes128Gcm => 2,
        }
    }

    /// Returns the suite with this number, or `None` if this version does not know it.
    pub fn from_id(id: u8) -> Option<Self> {
        match id {
            1 => Some(Self::ChaCha20Poly1305),
            2 => Some(Self::Aes128Gcm),
            _ => None,
        }
    }

    /// Returns the suite's bit in an offer.
    fn bit(self) -> u8 {
        match self {
            Self::ChaCha20Poly1305 => 0x01,
            Self::Aes128Gcm => 0x02,
        }
    }
}

/// The suites that a client offers, one bit each. Bits of unknown suites are kept and have no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SuiteOffer(u8);

impl SuiteOffer {
    /// Returns the smallest offer, which consists of suite 1.
    pub fn mandatory() -> Self {
        Self(Suite::ChaCha20Poly1305.bit())
    }

    /// Returns this offer with `suite` added.
    pub fn with(self, suite: Suite) -> Self {
        Self(self.0 | suite.bit())
    }

    /// Returns the offer with these bits of a Hello, or `None` if the mandatory suite 1 is missing.
    pub fn from_bits(bits: u8) -> Option<Self> {
        let offer = Self(bits);
        offer.has(Suite::ChaCha20Poly1305).then_some(offer)
    }

    /// Returns the bits of the offer in a Hello.
    pub fn to_bits(self) -> u8 {
        self.0
    }

    /// Returns whether the client offers this suite.
    pub fn has(self, suite: Suite) -> bool {
        self.0 & suite.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: SharedParameters = SharedParameters {
        datagram_max_bytes: 1_200,
        idle_timeout: Duration::from_millis(30_000),
        unacknowledged_timeout: Duration::from_millis(10_000),
        message_max_bytes: 65_536,
        credit_bytes: 0x3_0000,
    };
    const BYTES: [u8; 18] = [0x04, 0xb0, 0, 0, 0x75, 0x30, 0, 0, 0x27, 0x10, 0, 1, 0, 0, 0, 3, 0, 0];

    fn client() -> ClientParameters<'static> {
        ClientParameters {
            connection_id: Some(ConnectionId::from_bytes([7; 8])),
            shared: SHARED,
            hello: b"zed",
        }
    }

    #[test]
    fn debug_shows_no_reset_token() {
        let (connection_id, suite) = (ConnectionId::from_bytes([1; 8]), Suite::ChaCha20Poly1305);
        let server = ServerParameters { connection_id, reset_token: [0xee; 16], suite, shared: SHARED };
        let shown = format!("{server:?}");
        assert!(shown.contains("suite: ChaCha20Poly1305") && !shown.contains("238"), "{shown}");
    }

    #[test]
    fn a_suite_that_is_added_twice_stays_in_the_offer() {
        let once = SuiteOffer::mandatory().with(Suite::Aes128Gcm);
        assert!(once.has(Suite::ChaCha20Poly1305) && once.has(Suite::Aes128Gcm));
        assert_eq!(once.with(Suite::Aes128Gcm).with(Suite::ChaCha20Poly1305), once);
    }

    #[test]
    fn client_parameters_round_trip_at_their_offsets() {
        let payload = client().encode();
        assert_eq!(payload.len(), 564);
        assert_eq!(payload[..9], [8, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!(payload[9..27], BYTES);
        assert_eq!(payload[27..32], [0, 3, b'z', b'e', b'd']);
        assert_eq!(payload[32..], [0; 532]);
        assert_eq!(ClientParameters::decode(&payload), Some(client()));
        let without_id = ClientParameters { connection_id: None, ..client() };
        assert_eq!(ClientParameters::decode(&without_id.encode()), Some(without_id));
        assert_eq!(ClientParameters::decode(&payload[..32]), Some(client()));
        assert_eq!(ClientParameters::decode(&payload[..31]), None);
    }

    #[test]
    fn the_application_hello_has_up_to_256_bytes() {
        for length in [0, 1, 255, 256] {
            let hello = vec![0xab; length];
            let parameters = ClientParameters { hello: &hello, ..client() };
            assert_eq!(ClientParameters::decode(&parameters.encode()), Some(parameters));
        }
        let mut payload = client().encode();
        payload[27..29].copy_from_slice(&257_u16.to_be_bytes());
        assert_eq!(ClientParameters::decode(&payload), None);
    }

    #[test]
    fn server_parameters_round_trip_at_their_offsets() {
        let parameters = ServerParameters {
            connection_id: ConnectionId::from_bytes([9; 8]),
            reset_token: [5; 16],
            suite: Suite::Aes128Gcm,
            shared: SHARED,
        };
        let mut payload = Vec::new();
        parameters.encode(&mut payload).unwrap();
        assert_eq!(payload.len(), SERVER_PARAMETERS_BYTES);
        assert_eq!((&payload[..8], &payload[8..24], payload[24]), (&[9; 8][..], &[5; 16][..], 2));
        assert_eq!(payload[25..], BYTES);
        assert_eq!(ServerParameters::decode(&payload), Some(parameters));
        assert_eq!(ServerParameters::decode(&payload[..42]), None);
        payload[24] = 3;
        assert_eq!(ServerParameters::decode(&payload), None);
        let mut short = [0; SERVER_PARAMETERS_BYTES - 1];
        let refused = parameters.encode(&mut short.as_mut_slice());
        assert_eq!(refused, Err(EncodeError::NoRoom { needed_bytes: SERVER_PARAMETERS_BYTES }));
    }

    #[test]
    fn fields_out_of_range_are_rejected() {
        let with = |datagram: u16, idle: u64, unacknowledged: u64| {
            let shared = SharedParameters {
                datagram_max_bytes: datagram,
                idle_timeout: Duration::from_millis(idle),
                unacknowledged_timeout: Duration::from_millis(unacknowledged),
                ..SHARED
            };
            ClientParameters::decode(&ClientParameters { connection_id: None, shared, hello: b"" }.encode())
                .is_some()
        };
        for (datagram, fits) in [(1_199, false), (1_200, true), (65_507, true), (65_508, false)] {
            assert_eq!(with(datagram, 1_000, 1_000), fits, "{datagram}");
        }
        for (timeout, fits) in [(999, false), (1_000, true), (1_001, true)] {
            assert_eq!((with(1_200, timeout, 2_000), with(1_200, 2_000, timeout)), (fits, fits));
        }
        let sizes = |message: u32, credit: u32| {
            let shared = SharedParameters { message_max_bytes: message, credit_bytes: credit, ..SHARED };
            ClientParameters::decode(&ClientParameters { connection_id: None, shared, hello: b"" }.encode())
                .is_some()
        };
        for (message, fits) in [(1_023, false), (1_024, true), (1 << 24, true), ((1 << 24) + 1, false)] {
            assert_eq!(sizes(message, u32::MAX), fits, "{message}");
        }
        assert!(sizes(1_024, 1_024 + 64) && !sizes(1_024, 1_024 + 63));
        for (id_bytes, fits) in [(0, true), (7, false), (8, true), (9, false)] {
            let mut payload = client().encode();
            payload[0] = id_bytes;
            assert_eq!(ClientParameters::decode(&payload).is_some(), fits, "{id_bytes}");
        }
    }

    #[test]
    fn the_shorter_timeout_applies_and_sizes_stay() {
        let local = SharedParameters { idle_timeout: Duration::from_secs(5), ..SHARED };
        let remote = SharedParameters {
            datagram_max_bytes: 9_000,
            unacknowledged_timeout: Duration::from_secs(3),
            ..SHARED
        };
        let agreed = local.negotiate(remote);
        assert_eq!(agreed.datagram_max_bytes, 1_200);
        assert_eq!(agreed.idle_timeout, Duration::from_secs(5));
        assert_eq!(agreed.unacknowledged_timeout, Duration::from_secs(3));
    }

    #[test]
    fn the_bit_of_a_suite_is_its_number_minus_one() {
        for id in 0..=u8::MAX {
            if let Some(suite) = Suite::from_id(id) {
                assert_eq!((suite.id(), suite.bit()), (id, 1 << (id - 1)));
            }
        }
        assert_eq!((Suite::from_id(0), Suite::from_id(3)), (None, None));
    }

    #[test]
    fn an_offer_without_the_mandatory_suite_is_none() {
        assert_eq!(SuiteOffer::from_bits(0x02), None);
        assert_eq!(SuiteOffer::from_bits(0x01), Some(SuiteOffer::mandatory()));
        let both = SuiteOffer::mandatory().with(Suite::Aes128Gcm);
        assert_eq!(SuiteOffer::from_bits(0x03), Some(both));
        assert!(both.has(Suite::Aes128Gcm) && !SuiteOffer::mandatory().has(Suite::Aes128Gcm));
        let newer = SuiteOffer::from_bits(0xf1).unwrap();
        assert!(!newer.has(Suite::Aes128Gcm));
        assert_eq!(newer.to_bits(), 0xf1);
    }
}
