//! The Hello: how a client asks for a connection, 1200 bytes of fixed sections.
//!
//! No section has a length of its own, so there is nothing to get wrong but the contents, and those are judged
//! elsewhere: version, cookie, token, mac1 and Noise message are only found here, never checked.

use bytes::BufMut;

use super::{ClientId, SuiteOffer};
use crate::encode_error::{EncodeError, check_room};
use crate::header::{DatagramError, DatagramKind, HELLO};
use crate::limits::{COOKIE_BYTES, HELLO_BYTES, MAC1_BYTES, NOISE_MESSAGE_1_BYTES, SEALED_TOKEN_BYTES};
use crate::reader::Reader;

/// Bytes before the cookie: kind, version, protocol id, client id, two key ids, offer, token.
const FIELDS_END: usize = 1 + 2 + 8 + ClientId::BYTES + 4 + 4 + 1;
const HEAD_BYTES: usize = FIELDS_END + SEALED_TOKEN_BYTES;

const _: () = assert!(HEAD_BYTES + COOKIE_BYTES + NOISE_MESSAGE_1_BYTES + MAC1_BYTES == HELLO_BYTES);

/// What stands for the cookie wherever it must not count.
static NO_COOKIE: [u8; COOKIE_BYTES] = [0; COOKIE_BYTES];

/// The plain fields of a Hello: what the client knows before any cryptography.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelloFields {
    /// The wire version the client speaks.
    pub version: u16,
    /// The game and its build, chosen by the application: both ends must have the same.
    pub protocol_id: u64,
    /// By which the client knows the answers.
    pub client_id: ClientId,
    /// Which of the server's public keys the Noise message is made for.
    pub server_key_id: u32,
    /// Which key sealed the token; 0 when there is no token and its section is zero.
    pub token_key_id: u32,
    /// The offered suites as they stand on the wire; [`SuiteOffer::from_bits`] reads them.
    pub suite_bits: u8,
}

impl HelloFields {
    /// The offered suites, or `None` for an offer without suite 1.
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
    /// The plain fields.
    pub fields: HelloFields,
    /// The sealed token.
    pub token: &'a [u8; SEALED_TOKEN_BYTES],
    /// The cookie, zero in a first Hello.
    pub cookie: &'a [u8; COOKIE_BYTES],
    /// The client's Noise message.
    pub noise_message: &'a [u8; NOISE_MESSAGE_1_BYTES],
    /// The keyed check over everything before it, the cookie taken as zero.
    pub mac1: &'a [u8; MAC1_BYTES],
}

impl<'a> Hello<'a> {
    /// Finds the sections of a Hello, of whatever version: a server must be able to send a Retry before it
    /// refuses a version.
    ///
    /// # Errors
    ///
    /// When the datagram is not a Hello or not exactly as long as one.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, DatagramError> {
        match DatagramKind::of(datagram)? {
            DatagramKind::Hello => Self::sections(datagram).ok_or(DatagramError::WrongLength),
            _ => Err(DatagramError::WrongKind),
        }
    }

    fn sections(datagram: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(datagram);
        let head: &[u8; HEAD_BYTES] = reader.array()?;
        let (cookie, noise_message, mac1) = (reader.array()?, reader.array()?, reader.array()?);
        let mut reader = Reader::new(head);
        reader.u8()?;
        let fields = HelloFields::read(&mut reader)?;
        let token = reader.array()?;
        Some(Self { head, fields, token, cookie, noise_message, mac1 })
    }

    /// The Noise prologue, in order: all bytes before the Noise message, the cookie taken as zero. A changed
    /// version, offer, id or token therefore fails the handshake.
    pub fn prologue(&self) -> [&'a [u8]; 2] {
        prologue(self.head)
    }

    /// What mac1 is computed over, in order: all bytes before the token, which proves itself, and the Noise message.
    pub fn mac1_input(&self) -> [&'a [u8]; 2] {
        mac1_input(self.head, self.noise_message)
    }
}

/// A Hello in the making, kept by the client until it is answered.
///
/// In order: [`new`](Self::new), the Noise message from [`prologue`](Self::prologue) into
/// [`noise_message_mut`](Self::noise_message_mut), [`set_mac1`](Self::set_mac1) over
/// [`mac1_input`](Self::mac1_input), then [`encode`](Self::encode) as often as it must be resent, with
/// [`set_cookie`](Self::set_cookie) once a Retry came: the cookie changes nothing else.
#[derive(Clone, PartialEq, Eq)]
pub struct HelloDraft {
    head: [u8; HEAD_BYTES],
    cookie: [u8; COOKIE_BYTES],
    noise_message: [u8; NOISE_MESSAGE_1_BYTES],
    mac1: [u8; MAC1_BYTES],
}

impl HelloDraft {
    /// Bytes of the Noise prologue.
    pub const PROLOGUE_BYTES: usize = HEAD_BYTES + COOKIE_BYTES;

    /// A Hello with these fields and token; without a token both it and its key id are zero.
    pub fn new(fields: &HelloFields, token: &[u8; SEALED_TOKEN_BYTES]) -> Self {
        let mut head = [0; HEAD_BYTES];
        let mut out = head.as_mut_slice();
        out.put_u8(HELLO);
        fields.put(&mut out);
        out.put_slice(token);
        Self { head, cookie: NO_COOKIE, noise_message: [0; NOISE_MESSAGE_1_BYTES], mac1: [0; MAC1_BYTES] }
    }

    /// The Noise prologue; see [`Hello::prologue`].
    pub fn prologue(&self) -> [&[u8]; 2] {
        prologue(&self.head)
    }

    /// Where the Noise message goes. Its sealed payload is padded with zeros to fill the section.
    pub fn noise_message_mut(&mut self) -> &mut [u8; NOISE_MESSAGE_1_BYTES] {
        &mut self.noise_message
    }

    /// What mac1 is computed over; see [`Hello::mac1_input`].
    pub fn mac1_input(&self) -> [&[u8]; 2] {
        mac1_input(&self.head, &self.noise_message)
    }

    /// Puts the check in.
    pub fn set_mac1(&mut self, mac1: [u8; MAC1_BYTES]) {
        self.mac1 = mac1;
    }

    /// Puts a Retry's cookie in.
    pub fn set_cookie(&mut self, cookie: [u8; COOKIE_BYTES]) {
        self.cookie = cookie;
    }

    /// Writes the whole datagram, [`HELLO_BYTES`] long.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when `out` is too short; then nothing is written.
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
    [head, &NO_COOKIE]
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
    fn a_hello_that_is_made_shows_nothing_of_its_token() {
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
    fn every_section_stands_at_its_offset() {
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
    fn what_was_drafted_is_what_the_server_finds() {
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
    fn the_prologue_covers_all_before_it_and_mac1_all_but_the_token_whatever_the_cookie() {
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
    fn a_hello_of_another_version_still_shows_its_sections() {
        let mut datagram = encoded(&draft());
        datagram[1..3].copy_from_slice(&[0xff, 0xfe]);
        datagram[27] = 0;
        let fields = Hello::decode(&datagram).unwrap().fields;
        assert_eq!((fields.version, fields.offered_suites()), (0xfffe, None));
    }

    #[test]
    fn another_length_or_kind_is_refused() {
        let mut datagram = encoded(&draft());
        assert_eq!(Hello::decode(&datagram[..1_199]), Err(DatagramError::WrongLength));
        datagram.push(0);
        assert_eq!(Hello::decode(&datagram), Err(DatagramError::WrongLength));
        datagram.pop();
        datagram[0] = 0x8c;
        assert_eq!(Hello::decode(&datagram), Err(DatagramError::WrongKind));
    }

    #[test]
    fn without_room_nothing_is_written() {
        let mut buffer = [0; HELLO_BYTES - 1];
        let refused = draft().encode(&mut buffer.as_mut_slice());
        assert_eq!(refused, Err(EncodeError::NoRoom { needed_bytes: HELLO_BYTES }));
        assert_eq!(buffer, [0; HELLO_BYTES - 1]);
    }
}
