//! The handshake: Noise_NKpsk0_25519_ChaChaPoly_BLAKE2s (Noise revision 34), client as initiator, server as
//! responder.
//!
//! Bytes in, bytes out: where the two messages sit in a datagram, what the prologue consists of and what the
//! payload means is decided elsewhere, and so are cookies, tokens and resends. Crate `snow` runs the Noise
//! state machine for these two messages only; packets never pass through it. Entropy is an argument: the same
//! secrets and inputs give the same bytes.
//!
//! ```text
//! <- s                            the client knows the server's public key
//! -> psk, e, es, payload          message 1, 48 bytes and the payload
//! <- e, ee, payload               message 2, 48 bytes and the payload
//! ```

mod noise;

use std::fmt;

use noise::X25519;
use snow::HandshakeState;

use crate::hash::hkdf3;
use crate::keys::{OpenKeys, SealKeys};
use crate::secret::Secret;
use crate::suite::{Suite, TAG_BYTES};

/// Length of a public key of X25519 in bytes (RFC 7748 section 5).
pub const PUBLIC_KEY_BYTES: usize = 32;
/// By how many bytes message 1 is longer than its payload: an ephemeral public key and a tag.
pub const MESSAGE_1_OVERHEAD_BYTES: usize = PUBLIC_KEY_BYTES + TAG_BYTES;
/// By how many bytes message 2 is longer than its payload: an ephemeral public key and a tag.
pub const MESSAGE_2_OVERHEAD_BYTES: usize = PUBLIC_KEY_BYTES + TAG_BYTES;

const PERSISTENT_LABEL: &[u8] = b"drumfire persistent";

/// The server's long-lived key pair.
#[derive(Debug)]
pub struct ServerKeyPair {
    secret: Secret<32>,
    public: [u8; PUBLIC_KEY_BYTES],
}

impl ServerKeyPair {
    /// The pair of this secret key, which is 32 bytes from a secure source (any value serves, RFC 7748
    /// section 5).
    #[must_use]
    pub fn from_secret(secret: Secret<32>) -> Self {
        let public = X25519::public_of(&secret);
        Self { secret, public }
    }

    /// The public key, which clients must know beforehand.
    #[must_use]
    pub const fn public(&self) -> &[u8; PUBLIC_KEY_BYTES] {
        &self.public
    }

    /// The secret key, for a key file.
    #[must_use]
    pub const fn secret(&self) -> &Secret<32> {
        &self.secret
    }

    /// The server's persistent secret, for connection ids, resets and resume tokens: it lives as long as the key.
    ///
    /// ```text
    /// (persistent, -, -) = HKDF3(secret key, "drumfire persistent")
    /// ```
    #[must_use]
    pub fn persistent(&self) -> Secret<32> {
        let [persistent, ..] = hkdf3(&self.secret, &[PERSISTENT_LABEL]);
        persistent
    }
}

/// The client's side of one handshake.
///
/// It outlives any number of forged replies: a reply that fails leaves nothing behind, and the genuine one
/// still completes.
pub struct Initiator {
    server_public: [u8; PUBLIC_KEY_BYTES],
    psk: Secret<32>,
    prologue: Box<[u8]>,
    payload: Box<[u8]>,
    ephemeral: Secret<32>,
    progress: Progress,
}

/// Where an initiator stands.
enum Progress {
    /// Message 1 is written and no reply has touched the state.
    Waiting(Box<HandshakeState>),
    /// A reply failed. The state it left is thrown away, because snow restores its hashes but not every
    /// field, and made again from the kept inputs when the next reply comes.
    Spoiled,
    /// The keys were given away, which must not happen twice.
    Finished,
}

impl Initiator {
    /// Begins a handshake and fills `message_1`, which must be 48 bytes longer than `payload`.
    ///
    /// `ephemeral` is 32 fresh bytes from a secure source, never used for anything else; in open access `psk`
    /// is [`Secret::zeroed`]. The payload is secret from everybody but the server, but without forward
    /// secrecy: who learns the server's key later can read it (Noise section 7.7).
    ///
    /// # Errors
    /// [`HandshakeError::Length`] if `message_1` has another length, [`HandshakeError::Rejected`] if the
    /// server's public key is one of the few that yield an all-zero secret.
    pub fn new(
        server_public: &[u8; PUBLIC_KEY_BYTES],
        psk: &Secret<32>,
        prologue: &[u8],
        payload: &[u8],
        ephemeral: Secret<32>,
        message_1: &mut [u8],
    ) -> Result<Self, HandshakeError> {
        if message_1.len() != payload.len().saturating_add(MESSAGE_1_OVERHEAD_BYTES) {
            return Err(HandshakeError::Length);
        }
        let mut initiator = Self {
            server_public: *server_public,
            psk: psk.duplicate(),
            prologue: prologue.into(),
            payload: payload.into(),
            ephemeral,
            progress: Progress::Spoiled,
        };
        initiator.progress = Progress::Waiting(initiator.start(message_1)?);
        Ok(initiator)
    }

    /// Reads message 2, writes its payload to `payload` and returns the payload's length and the session's
    /// secrets.
    ///
    /// # Errors
    /// See [`HandshakeError`]. After anything but `Finished` the initiator still waits for the genuine reply;
    /// the content of `payload` is then unspecified.
    pub fn read_reply(
        &mut self,
        message_2: &[u8],
        payload: &mut [u8],
    ) -> Result<(usize, SessionSecrets), HandshakeError> {
        if matches!(self.progress, Progress::Finished) {
            return Err(HandshakeError::Finished);
        }
        let payload_bytes =
            message_2.len().checked_sub(MESSAGE_2_OVERHEAD_BYTES).ok_or(HandshakeError::Length)?;
        if payload.len() < payload_bytes {
            return Err(HandshakeError::BufferTooSmall);
        }
        let mut state = match std::mem::replace(&mut self.progress, Progress::Spoiled) {
            Progress::Waiting(state) => state,
            _ => self.start(&mut vec![0; self.payload.len().saturating_add(MESSAGE_1_OVERHEAD_BYTES)])?,
        };
        let length = state.read_message(message_2, payload).map_err(noise::to_error)?;
        self.progress = Progress::Finished;
        Ok((length, SessionSecrets::of_initiator(&mut state)))
    }

    fn start(&self, message_1: &mut [u8]) -> Result<Box<HandshakeState>, HandshakeError> {
        let mut state = noise::initiator(&self.server_public, &self.psk, &self.prologue, &self.ephemeral)?;
        state.write_message(&self.payload, message_1).map_err(noise::to_error)?;
        Ok(Box::new(state))
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiator").finish_non_exhaustive()
    }
}

/// The server's side of one handshake, after message 1 proved to come from somebody who knows the pre-shared
/// key.
pub struct Responder {
    state: HandshakeState,
}

impl Responder {
    /// Reads message 1, writes its payload to `payload` and returns the payload's length. This costs a scalar
    /// multiplication, so everything cheaper is checked before.
    ///
    /// `ephemeral` is 32 fresh bytes from a secure source, never used for anything else; in open access `psk`
    /// is [`Secret::zeroed`].
    ///
    /// # Errors
    /// [`HandshakeError::Length`] if the message is shorter than 48 bytes, [`HandshakeError::BufferTooSmall`]
    /// if `payload` has less than its other bytes, [`HandshakeError::Rejected`] if it was made for another
    /// key, psk or prologue, or yields an all-zero secret.
    pub fn read(
        keys: &ServerKeyPair,
        psk: &Secret<32>,
        prologue: &[u8],
        message_1: &[u8],
        ephemeral: &Secret<32>,
        payload: &mut [u8],
    ) -> Result<(Self, usize), HandshakeError> {
        let payload_bytes =
            message_1.len().checked_sub(MESSAGE_1_OVERHEAD_BYTES).ok_or(HandshakeError::Length)?;
        if payload.len() < payload_bytes {
            return Err(HandshakeError::BufferTooSmall);
        }
        let mut state = noise::responder(keys, psk, prologue, ephemeral)?;
        let length = state.read_message(message_1, payload).map_err(noise::to_error)?;
        Ok((Self { state }, length))
    }

    /// Writes message 2 with `payload` sealed inside to the front of `message_2`, and returns its length and
    /// the session's secrets. This costs two scalar multiplications.
    ///
    /// # Errors
    /// [`HandshakeError::BufferTooSmall`] if `message_2` is not 48 bytes longer than the payload, or
    /// [`HandshakeError::Rejected`] if the client's ephemeral key yields an all-zero secret.
    pub fn reply(
        mut self,
        payload: &[u8],
        message_2: &mut [u8],
    ) -> Result<(usize, SessionSecrets), HandshakeError> {
        if message_2.len() < payload.len().saturating_add(MESSAGE_2_OVERHEAD_BYTES) {
            return Err(HandshakeError::BufferTooSmall);
        }
        let length = self.state.write_message(payload, message_2).map_err(noise::to_error)?;
        Ok((length, SessionSecrets::of_responder(&mut self.state)))
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").finish_non_exhaustive()
    }
}

/// What a finished handshake gives its side: one secret per direction, from which [`crate::keys`] derives.
#[derive(Debug)]
pub struct SessionSecrets {
    send: Secret<32>,
    receive: Secret<32>,
}

impl SessionSecrets {
    /// The keys of the first epoch, for what this side sends and what it receives. Consuming, so that they
    /// are made once. `None` if this build does not have the suite.
    #[must_use]
    pub fn into_keys(self, suite: Suite) -> Option<(SealKeys, OpenKeys)> {
        Some((SealKeys::first(&self.send, suite)?, OpenKeys::first(&self.receive, suite)?))
    }

    fn of_initiator(state: &mut HandshakeState) -> Self {
        let (send, receive) = noise::split(state);
        Self { send, receive }
    }

    fn of_responder(state: &mut HandshakeState) -> Self {
        let (receive, send) = noise::split(state);
        Self { send, receive }
    }
}

/// Why a handshake message was not accepted or not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// The message has the wrong length; nothing was computed.
    Length,
    /// The caller's buffer is too small; nothing was computed.
    BufferTooSmall,
    /// The message is forged, or made for another key, psk or prologue, or a Diffie-Hellman result was all
    /// zero.
    Rejected,
    /// This initiator has completed already.
    Finished,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "the handshake message has the wrong length",
            Self::BufferTooSmall => "the buffer is too small for the handshake message",
            Self::Rejected => "the handshake message was not made for these keys",
            Self::Finished => "the handshake has completed already",
        })
    }
}

impl std::error::Error for HandshakeError {}

#[cfg(test)]
mod tests;
