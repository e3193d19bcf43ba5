//! What the two ends tell each other inside the seals of the handshake: the payloads of Noise message 1 and 2.
//!
//! Which value wins where the two ends differ is decided here, for the standard says it; what follows from the
//! values deliberately is not.

use core::time::Duration;

use bytes::BufMut;

use super::Suite;
use crate::connection_id::ConnectionId;
use crate::encode_error::{EncodeError, check_room};
use crate::limits::{
    DATAGRAM_MAX_BYTES, DATAGRAM_START_BYTES, MESSAGE_CHARGE_BYTES, MESSAGE_LEAST_BYTES, MESSAGE_LIMIT_BYTES,
    NOISE_MESSAGE_1_BYTES, NOISE_OVERHEAD_BYTES, SERVER_PARAMETERS_BYTES, TIMEOUT_MIN_MS,
};
use crate::reader::Reader;

/// Bytes of a client's parameters before the zeros.
const CLIENT_BYTES: usize = 1 + ConnectionId::BYTES + SharedParameters::BYTES;

/// The parameters that both ends have in common (PROTOCOL 5.7, "Parameters").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedParameters {
    /// Bytes of the largest UDP payload this end takes, 1200 to 65,507.
    pub datagram_max_bytes: u16,
    /// After this long without a packet from the peer the connection is over; whole milliseconds, at least a
    /// second, at most 49 days.
    pub silent_timeout: Duration,
    /// After this long without an ack of a packet the connection is over; bounds as above.
    pub unacknowledged_timeout: Duration,
    /// Bytes of the largest reliable message this end takes, 1,024 to 16 MiB.
    pub message_max_bytes: u32,
    /// Bytes of reliable messages, with their charges, that the peer may send before it hears of more; at least one largest
    /// message.
    pub credit_bytes: u32,
}

impl SharedParameters {
    /// Bytes on the wire.
    const BYTES: usize = 2 + 4 + 4 + 4 + 4;

    /// What holds between two ends that said this and `other`: the shorter timeouts. Sizes and credit are
    /// each end's own and stay those of `self`.
    #[must_use]
    pub fn agreed_with(self, other: Self) -> Self {
        Self {
            datagram_max_bytes: self.datagram_max_bytes,
            silent_timeout: self.silent_timeout.min(other.silent_timeout),
            unacknowledged_timeout: self.unacknowledged_timeout.min(other.unacknowledged_timeout),
            message_max_bytes: self.message_max_bytes,
            credit_bytes: self.credit_bytes,
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let datagram_max_bytes = u16::from_be_bytes(*reader.array()?);
        let fits = (DATAGRAM_START_BYTES..=DATAGRAM_MAX_BYTES).contains(&usize::from(datagram_max_bytes));
        let silent_timeout = timeout(reader)?;
        let unacknowledged_timeout = timeout(reader)?;
        let message_max_bytes = u32::from_be_bytes(*reader.array()?);
        let credit_bytes = u32::from_be_bytes(*reader.array()?);
        let fits = fits
            && (MESSAGE_LEAST_BYTES..=MESSAGE_LIMIT_BYTES).contains(&message_max_bytes)
            && credit_bytes >= message_max_bytes.saturating_add(MESSAGE_CHARGE_BYTES);
        fits.then_some(Self {
            datagram_max_bytes,
            silent_timeout,
            unacknowledged_timeout,
            message_max_bytes,
            credit_bytes,
        })
    }

    fn put(&self, out: &mut impl BufMut) {
        out.put_u16(self.datagram_max_bytes);
        for timeout in [self.silent_timeout, self.unacknowledged_timeout] {
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
pub struct ClientParameters {
    /// The id that packets to the client carry, or `None` where its socket has one connection.
    pub connection_id: Option<ConnectionId>,
    /// What the client asks for.
    pub shared: SharedParameters,
}

impl ClientParameters {
    /// Bytes of the payload with its zeros, as it fills Noise message 1.
    pub const PAYLOAD_BYTES: usize = NOISE_MESSAGE_1_BYTES - NOISE_OVERHEAD_BYTES;

    /// Reads the payload; what follows the fields is left to later versions. `None` when a field is outside
    /// its bounds.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let id_bytes = reader.u8()?;
        let &id = reader.array()?;
        let connection_id = match usize::from(id_bytes) {
            0 => None,
            ConnectionId::BYTES => Some(ConnectionId::from_bytes(id)),
            _ => return None,
        };
        Some(Self { connection_id, shared: SharedParameters::read(&mut reader)? })
    }

    /// The payload, filled up with zeros.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::PAYLOAD_BYTES] {
        let mut payload = [0; Self::PAYLOAD_BYTES];
        let mut out = payload.as_mut_slice();
        // Eight fits a byte, and the fields fit the payload: see the assertion below.
        out.put_u8(if self.connection_id.is_some() { 8 } else { 0 });
        out.put_slice(&self.connection_id.map_or([0; 8], ConnectionId::to_bytes));
        self.shared.put(&mut out);
        payload
    }
}

const _: () = assert!(CLIENT_BYTES <= ClientParameters::PAYLOAD_BYTES && ConnectionId::BYTES == 8);
const _: () = assert!(SERVER_PARAMETERS_BYTES == ConnectionId::BYTES + 16 + 1 + SharedParameters::BYTES);

/// The payload of Noise message 2 (PROTOCOL 5.7, "Parameters").
///
/// Its `Debug` leaves the reset token out: who has it can end the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ServerParameters {
    /// The id that packets to the server carry.
    pub connection_id: ConnectionId,
    /// By which the client knows that a Reset is the server's.
    pub reset_token: [u8; 16],
    /// The suite the server has chosen from the offer.
    pub suite: Suite,
    /// What holds for both, and the largest datagram the server takes.
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
    /// Reads the payload; what follows the fields is left to later versions. `None` when it is too short or a
    /// field is outside its bounds.
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

    /// Writes the payload.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when `out` is too short; then nothing is written.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<(), EncodeError> {
        check_room(SERVER_PARAMETERS_BYTES, out.remaining_mut())?;
        out.put_slice(&self.connection_id.to_bytes());
        out.put_slice(&self.reset_token);
        out.put_u8(self.suite.id());
        self.shared.put(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: SharedParameters = SharedParameters {
        datagram_max_bytes: 1_200,
        silent_timeout: Duration::from_millis(30_000),
        unacknowledged_timeout: Duration::from_millis(10_000),
        message_max_bytes: 65_536,
        credit_bytes: 0x3_0000,
    };
    const BYTES: [u8; 18] = [0x04, 0xb0, 0, 0, 0x75, 0x30, 0, 0, 0x27, 0x10, 0, 1, 0, 0, 0, 3, 0, 0];

    fn client() -> ClientParameters {
        ClientParameters { connection_id: Some(ConnectionId::from_bytes([7; 8])), shared: SHARED }
    }

    #[test]
    fn debug_shows_no_reset_token() {
        let (connection_id, suite) = (ConnectionId::from_bytes([1; 8]), Suite::ChaCha20Poly1305);
        let server = ServerParameters { connection_id, reset_token: [0xee; 16], suite, shared: SHARED };
        let shown = format!("{server:?}");
        assert!(shown.contains("suite: ChaCha20Poly1305") && !shown.contains("238"), "{shown}");
    }

    #[test]
    fn a_clients_parameters_stand_at_their_offsets_and_come_back() {
        let payload = client().encode();
        assert_eq!(payload.len(), 564);
        assert_eq!(payload[..9], [8, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!(payload[9..27], BYTES);
        assert_eq!(payload[27..], [0; 537]);
        assert_eq!(ClientParameters::decode(&payload), Some(client()));
        let without_id = ClientParameters { connection_id: None, ..client() };
        assert_eq!(ClientParameters::decode(&without_id.encode()), Some(without_id));
        assert_eq!(ClientParameters::decode(&payload[..27]), Some(client()));
        assert_eq!(ClientParameters::decode(&payload[..26]), None);
    }

    #[test]
    fn a_servers_parameters_stand_at_their_offsets_and_come_back() {
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
    fn fields_are_held_to_their_bounds() {
        let with = |datagram: u16, silent: u64, unacknowledged: u64| {
            let shared = SharedParameters {
                datagram_max_bytes: datagram,
                silent_timeout: Duration::from_millis(silent),
                unacknowledged_timeout: Duration::from_millis(unacknowledged),
                ..SHARED
            };
            ClientParameters::decode(&ClientParameters { connection_id: None, shared }.encode()).is_some()
        };
        for (datagram, fits) in [(1_199, false), (1_200, true), (65_507, true), (65_508, false)] {
            assert_eq!(with(datagram, 1_000, 1_000), fits, "{datagram}");
        }
        for (timeout, fits) in [(999, false), (1_000, true), (1_001, true)] {
            assert_eq!((with(1_200, timeout, 2_000), with(1_200, 2_000, timeout)), (fits, fits));
        }
        let sizes = |message: u32, credit: u32| {
            let shared = SharedParameters { message_max_bytes: message, credit_bytes: credit, ..SHARED };
            ClientParameters::decode(&ClientParameters { connection_id: None, shared }.encode()).is_some()
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
    fn the_shorter_timeout_holds_and_each_end_keeps_its_datagram_size() {
        let mine = SharedParameters { silent_timeout: Duration::from_secs(5), ..SHARED };
        let theirs = SharedParameters {
            datagram_max_bytes: 9_000,
            unacknowledged_timeout: Duration::from_secs(3),
            ..SHARED
        };
        let agreed = mine.agreed_with(theirs);
        assert_eq!(agreed.datagram_max_bytes, 1_200);
        assert_eq!(agreed.silent_timeout, Duration::from_secs(5));
        assert_eq!(agreed.unacknowledged_timeout, Duration::from_secs(3));
    }
}
