//! The Hello, with which a client asks for a connection: 1,200 bytes of sections with fixed lengths.
//!
//! Because no section has a length field, a datagram of the right length always decodes. The server verifies the version,
//! cookie, token, mac1, and Noise message afterwards.

use bytes::BufMut;

use super::{ClientId, SuiteOffer};
use crate::codec::{EncodeError, Reader, check_room};
use crate::header::{DatagramError, DatagramKind, HELLO};
use crate::limits::{COOKIE_BYTES, HELLO_BYTES, MAC1_BYTES, NOISE_MESSAGE_1_BYTES, SEALED_TOKEN_BYTES};

/// The length in bytes of the fields before the token: byte 0, version, protocol id, client id, two key ids, and suites.
const FIELDS_END: usize = 1 + 2 + 8 + ClientId::BYTES + 4 + 4 + 1;

/// The length in bytes of everything before the cookie.
const HEAD_BYTES: usize = FIELDS_END + SEALED_TOKEN_BYTES;

const _: () = assert!(HEAD_BYTES + COOKIE_BYTES + NOISE_MESSAGE_1_BYTES + MAC1_BYTES == HELLO_BYTES);

/// Replaces the cookie in the prologue, so that the same Noise message is valid with any cookie.
static ZERO_COOKIE: [u8; COOKIE_BYTES] = [0; COOKIE_BYTES];

/// The plaintext fields of a Hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelloFields {
    /// The wire version that the client uses.
    pub version: u16,
    /// The id of the game and its build. The application chooses it, and both peers must have the same.
    pub protocol_id: u64,
    /// The id by which the client recognizes the replies.
    pub client_id: ClientId,
    /// The id of the server's public key that the Noise message was made for.
    pub server_key_id: u32,
    /// The id of the key that sealed the token. It is 0 if there is no token and the token section is zero.
    pub token_key_id: u32,
    /// The bits of the offered suites, which [`SuiteOffer::from_bits`] decodes.
    pub suite_bits: u8,
}

impl HelloFields {
    /// Returns the offered suites, or `None` if suite 1 is missing.
    pub fn offered_suites(&self) -> Option<SuiteOffer> {
        SuiteOffer::from_bits(self.suite_bits)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            version: u16::from_be_bytes(*reader.array()?),
            protocol_id: u64::from_be_bytes(*reader.array()?),
            client_id: ClientId(*reader.array()?),
            server_key_id: u32::from_be_bytes(*reader.array()?),
            token_key_id: u32::from_be_bytes(*reader.array()?),
            suite_bits: reader.u8()?,
        })
    }

    fn put(&self, out: &mut impl BufMut) {
        out.put_u16(self.version);
        out.put_u64(self.protocol_id);
        out.put_slice(&self.client_id.0);
        out.put_u32(self.server_key_id);
        out.put_u32(self.token_key_id);
        out.put_u8(self.suite_bits);
    }
}

/// A received Hello, borrowed from its datagram (PROTOCOL 5.4, "Hello").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello<'a> {
    head: &'a [u8; HEAD_BYTES],
    /// The plaintext fields.
    pub fields: HelloFields,
    /// The sealed token, or zeros if there is none.
    pub token: &'a [u8; SEALED_TOKEN_BYTES],
    /// The cookie, or zeros in a first Hello.
    pub cookie: &'a [u8; COOKIE_BYTES],
    /// Noise message 1, which only the server with the right key can read.
    pub noise_message: &'a [u8; NOISE_MESSAGE_1_BYTES],
    /// The MAC over [`Self::mac1_input`].
    pub mac1: &'a [u8; MAC1_BYTES],
}

impl<'a> Hello<'a> {
    /// Decodes a Hello of any version. A server must be able to send a Retry before it rejects a version.
    ///
    /// # Errors
    ///
    /// Returns an error if the datagram is not a Hello, or has an invalid length.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, DatagramError> {
        match DatagramKind::of(datagram)? {
            DatagramKind::Hello => Self::read(datagram).ok_or(DatagramError::WrongLength),
            _ => Err(DatagramError::WrongKind),
        }
    }

    fn read(datagram: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(datagram);
        let head: &[u8; HEAD_BYTES] = reader.array()?;
        let (cookie, noise_message, mac1) = (reader.array()?, reader.array()?, reader.array()?);
        let mut reader = Reader::new(head);
        reader.u8()?;
        let fields = HelloFields::read(&mut reader)?;
        let token = reader.array()?;
        Some(Self { head, fields, token, cookie, noise_message, mac1 })
    }

    /// Returns the Noise prologue in two parts: all bytes before the Noise message, with the cookie replaced by zeros.
    ///
    /// The handshake fails if a version, offer, id, or token was changed in transit.
    pub fn prologue(&self) -> [&'a [u8]; 2] {
        prologue(self.head)
    }

    /// Returns the input of mac1 in two parts: all bytes before the token, and the Noise message.
    ///
    /// The token has an authentication tag of its own.
    pub fn mac1_input(&self) -> [&'a [u8]; 2] {
        mac1_input(self.head, self.noise_message)
    }
}

/// A Hello that the client builds, and keeps until it receives a reply.
///
/// Call the methods in this order:
///
/// 1. [`new`](Self::new) sets the fields and the token.
/// 2. Write the Noise message for [`prologue`](Self::prologue) into [`noise_message_mut`](Self::noise_message_mut).
/// 3. [`set_mac1`](Self::set_mac1) sets the MAC over [`mac1_input`](Self::mac1_input).
/// 4. [`encode`](Self::encode) writes the datagram, each time it is sent.
///
/// After a Retry, [`set_cookie`](Self::set_cookie) sets the cookie. No other part of the Hello changes.
#[derive(Clone, PartialEq, Eq)]
pub struct HelloDraft {
    head: [u8; HEAD_BYTES],
    cookie: [u8; COOKIE_BYTES],
    noise_message: [u8; NOISE_MESSAGE_1_BYTES],
    mac1: [u8; MAC1_BYTES],
}

impl HelloDraft {
    /// The length of the Noise prologue in bytes.
    pub const PROLOGUE_BYTES: usize = HEAD_BYTES + COOKIE_BYTES;

    /// Creates a Hello with these fields and this token. Without a token, the token and its key id are zero.
    pub fn new(fields: &HelloFields, token: &[u8; SEALED_TOKEN_BYTES]) -> Self {
        let mut head = [0; HEAD_BYTES];
        let mut out = head.as_mut_slice();
        out.put_u8(HELLO);
        fields.put(&mut out);
        out.put_slice(token);
        Self { head, cookie: ZERO_COOKIE, noise_message: [0; NOISE_MESSAGE_1_BYTES], mac1: [0; MAC1_BYTES] }
    }

    /// Returns the Noise prologue. See [`Hello::prologue`].
    pub fn prologue(&self) -> [&[u8]; 2] {
        prologue(&self.head)
    }

    /// Returns the section of the Noise message. The sealed payload is padded with zeros to fill the section.
    pub fn noise_message_mut(&mut self) -> &mut [u8; NOISE_MESSAGE_1_BYTES] {
        &mut self.noise_message
    }

    /// Returns the input of mac1. See [`Hello::mac1_input`].
    pub fn mac1_input(&self) -> [&[u8]; 2] {
        mac1_input(&self.head, &self.noise_message)
    }

    /// Sets the MAC over [`Self::mac1_input`].
    pub fn set_mac1(&mut self, mac1: [u8; MAC1_BYTES]) {
        self.mac1 = mac1;
    }

    /// Sets the cookie of a Retry.
    pub fn set_cookie(&mut self, cookie: [u8; COOKIE_BYTES]) {
        self.cookie = cookie;
    }

    /// Writes the whole datagram, [`HELLO_BYTES`] long.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if `out` is too short. Nothing is written then.
    pub fn encode(&self, out: &mut impl BufMut) -> Result<(), EncodeError> {
        check_room(HELLO_BYTES, out.remaining_mut())?;
        out.put_slice(&self.head);
        out.put_slice(&self.cookie);
        out.put_slice(&self.noise_message);
        out.put_slice(&self.mac1);
        Ok(())
    }
}

impl core::fmt::Debug for HelloDraft {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HelloDraft(..)")
    }
}

fn prologue(head: &[u8; HEAD_BYTES]) -> [&[u8]; 2] {
    [head, &ZERO_COOKIE]
}

fn mac1_input<'a>(
    head: &'a [u8; HEAD_BYTES],
    noise_message: &'a [u8; NOISE_MESSAGE_1_BYTES],
) -> [&'a [u8]; 2] {
    let (fields, _) = head.split_at(FIELDS_END);
    [fields, noise_message]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VERSION;

    const FIELDS: HelloFields = HelloFields {
        version: VERSION,
        protocol_id: 0x1112_1314_1516_1718,
        client_id: ClientId([0x21; 8]),
        server_key_id: 0x3132_3334,
        token_key_id: 0x4142_4344,
        suite_bits: 0x03,
    };

    #[test]
    fn debug_of_a_draft_shows_no_token() {
        assert_eq!(format!("{:?}", draft()), "HelloDraft(..)");
    }

    fn draft() -> HelloDraft {
        let mut draft = HelloDraft::new(&FIELDS, &[0x55; SEALED_TOKEN_BYTES]);
        draft.noise_message_mut().fill(0x77);
        draft.set_mac1([0x88; MAC1_BYTES]);
        draft
    }

    fn encoded(draft: &HelloDraft) -> Vec<u8> {
        let mut datagram = Vec::new();
        draft.encode(&mut datagram).unwrap();
        datagram
    }

    #[test]
    fn every_section_is_at_its_offset() {
        let mut draft = draft();
        draft.set_cookie([0x66; COOKIE_BYTES]);
        let datagram = encoded(&draft);
        assert_eq!(datagram.len(), 1_200);
        assert_eq!(datagram[..3], [0x89, 0, 1]);
        assert_eq!(datagram[3..11], [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
        assert_eq!(datagram[11..19], [0x21; 8]);
        assert_eq!(datagram[19..28], [0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44, 0x03]);
        assert_eq!(datagram[28..540], [0x55; 512]);
        assert_eq!(datagram[540..572], [0x66; 32]);
        assert_eq!(datagram[572..1_184], [0x77; 612]);
        assert_eq!(datagram[1_184..], [0x88; 16]);
    }

    #[test]
    fn a_drafted_hello_round_trips() {
        let mut draft = draft();
        draft.set_cookie([0x66; COOKIE_BYTES]);
        let datagram = encoded(&draft);
        let hello = Hello::decode(&datagram).unwrap();
        assert_eq!(hello.fields, FIELDS);
        assert!(hello.fields.offered_suites().is_some());
        assert_eq!((hello.token, hello.cookie), (&[0x55; 512], &[0x66; 32]));
        assert_eq!((hello.noise_message, hello.mac1), (&[0x77; 612], &[0x88; 16]));
        assert_eq!(hello.prologue(), draft.prologue());
        assert_eq!(hello.mac1_input(), draft.mac1_input());
    }

    #[test]
    fn prologue_and_mac1_input_do_not_depend_on_the_cookie() {
        let mut draft = draft();
        let without_cookie = encoded(&draft);
        assert_eq!(draft.prologue().concat(), without_cookie[..HelloDraft::PROLOGUE_BYTES]);
        assert_eq!(
            draft.mac1_input().concat(),
            [&without_cookie[..28], &without_cookie[572..1_184]].concat()
        );
        draft.set_cookie([0x66; COOKIE_BYTES]);
        assert_eq!(draft.prologue().concat(), without_cookie[..572]);
        assert_eq!(
            draft.mac1_input().concat(),
            [&without_cookie[..28], &without_cookie[572..1_184]].concat()
        );
    }

    #[test]
    fn a_hello_of_another_version_decodes() {
        let mut datagram = encoded(&draft());
        datagram[1..3].copy_from_slice(&[0xff, 0xfe]);
        datagram[27] = 0;
        let fields = Hello::decode(&datagram).unwrap().fields;
        assert_eq!((fields.version, fields.offered_suites()), (0xfffe, None));
    }

    #[test]
    fn another_length_or_kind_is_rejected() {
        let mut datagram = encoded(&draft());
        assert_eq!(Hello::decode(&datagram[..1_199]), Err(DatagramError::WrongLength));
        datagram.push(0);
        assert_eq!(Hello::decode(&datagram), Err(DatagramError::WrongLength));
        datagram.pop();
        datagram[0] = 0x8c;
        assert_eq!(Hello::decode(&datagram), Err(DatagramError::WrongKind));
    }

    #[test]
    fn nothing_is_written_without_room() {
        let mut buffer = [0; HELLO_BYTES - 1];
        let refused = draft().encode(&mut buffer.as_mut_slice());
        assert_eq!(refused, Err(EncodeError::NoRoom { needed_bytes: HELLO_BYTES }));
        assert_eq!(buffer, [0; HELLO_BYTES - 1]);
    }
}
