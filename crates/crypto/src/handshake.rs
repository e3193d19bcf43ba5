//! The handshake: Noise_NKpsk0_25519_ChaChaPoly_BLAKE2s (Noise revision 34). The client is the initiator, and the server is the
//! responder.
//!
//! ```text
//! <- s                            the client knows the server's public key
//! -> psk, e, es, payload          message 1, 48 bytes and the payload
//! <- e, ee, payload               message 2, 48 bytes and the payload
//! ```
//!
//! This module does not know the layout of datagrams, the contents of prologue and payload, cookies, tokens, or
//! retransmissions. The crate `snow` runs the Noise state machine for the two messages; packets do not pass through it. Entropy
//! is an argument, so the same secrets and inputs give the same bytes.

mod noise;

use std::fmt;

use noise::X25519;
use snow::HandshakeState;

use crate::hash::hkdf3;
use crate::keys::{OpenKeys, SealKeys};
use crate::secret::Secret;
use crate::suite::{Suite, TAG_BYTES};

/// The length of an X25519 public key in bytes (RFC 7748 section 5).
pub const PUBLIC_KEY_BYTES: usize = 32;
/// The number of bytes by which message 1 is longer than its payload: an ephemeral public key and a tag.
pub const MESSAGE_1_OVERHEAD_BYTES: usize = PUBLIC_KEY_BYTES + TAG_BYTES;
/// The number of bytes by which message 2 is longer than its payload: an ephemeral public key and a tag.
pub const MESSAGE_2_OVERHEAD_BYTES: usize = PUBLIC_KEY_BYTES + TAG_BYTES;

const PERSISTENT_LABEL: &[u8] = b"drumfire persistent";

/// The server's long-lived key pair.
#[derive(Debug)]
pub struct ServerKeyPair {
    secret: Secret<32>,
    public: [u8; PUBLIC_KEY_BYTES],
}

impl ServerKeyPair {
    /// Creates the pair of this secret key, which is 32 bytes from a secure source.
    ///
    /// Every value is a valid key (RFC 7748 section 5).
    #[must_use]
    pub fn from_secret(secret: Secret<32>) -> Self {
        let public = X25519::public_of(&secret);
        Self { secret, public }
    }

    /// Returns the public key, which clients must know before they connect.
    #[must_use]
    pub const fn public(&self) -> &[u8; PUBLIC_KEY_BYTES] {
        &self.public
    }

    /// Returns the secret key, for a key file.
    #[must_use]
    pub const fn secret(&self) -> &Secret<32> {
        &self.secret
    }

    /// Returns the server's persistent secret, for connection ids, resets, and resume tokens. It lives as long as the key.
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
/// Forged replies do not end the handshake. However many replies fail, the genuine reply still completes it.
pub struct Initiator {
    server_public: [u8; PUBLIC_KEY_BYTES],
    psk: Secret<32>,
    prologue: Box<[u8]>,
    payload: Box<[u8]>,
    ephemeral: Secret<32>,
    progress: Progress,
}

/// The progress of an initiator.
enum Progress {
    /// Message 1 is written, and no reply was read with this Noise state.
    AwaitingReply(Box<HandshakeState>),
    /// A reply failed, and the Noise state was dropped, because snow restores its hashes after a failure but not every field. The
    /// next reply starts again from the stored inputs.
    NeedsRestart,
    /// The keys were returned, which must not happen twice.
    Finished,
}

impl Initiator {
    /// Begins a handshake and writes `message_1`, which must be 48 bytes longer than `payload`.
    ///
    /// `ephemeral` is 32 new bytes from a secure source, which must not be used for anything else. In open access, `psk` is
    /// [`Secret::zeroed`]. Only the server can read the payload, but without forward secrecy: a later leak of the server's key
    /// reveals it (Noise section 7.7).
    ///
    /// # Errors
    /// [`HandshakeError::Length`] if `message_1` has another length, [`HandshakeError::Rejected`] if the server's public key is a
    /// point of small order, which gives an all-zero shared secret.
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
            progress: Progress::NeedsRestart,
        };
        initiator.progress = Progress::AwaitingReply(initiator.start(message_1)?);
        Ok(initiator)
    }

    /// Reads message 2 and writes its payload to `payload`. Returns the length of the payload and the session's secrets.
    ///
    /// # Errors
    /// See [`HandshakeError`]. The contents of `payload` are unspecified then. After any error except `Finished`, the initiator
    /// still waits for the genuine reply.
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
        let mut state = match std::mem::replace(&mut self.progress, Progress::NeedsRestart) {
            Progress::AwaitingReply(state) => state,
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

/// The server's side of one handshake, after message 1 proved that the client knows the pre-shared key.
pub struct Responder {
    state: HandshakeState,
}

impl Responder {
    /// Reads message 1 and writes its payload to `payload`. Returns the responder and the length of the payload.
    ///
    /// This costs a scalar multiplication, so the caller should do all cheaper checks first. `ephemeral` is 32 new bytes from a
    /// secure source, which must not be used for anything else. In open access, `psk` is [`Secret::zeroed`].
    ///
    /// # Errors
    /// - [`HandshakeError::Length`] if the message is shorter than 48 bytes.
    /// - [`HandshakeError::BufferTooSmall`] if `payload` is too small.
    /// - [`HandshakeError::Rejected`] if the message was made for another key, psk, or prologue, or gives an all-zero shared
    ///   secret.
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

    /// Writes message 2, which contains the sealed `payload`, to the front of `message_2`. Returns its length and the session's
    /// secrets. This costs two scalar multiplications.
    ///
    /// # Errors
    /// [`HandshakeError::BufferTooSmall`] if `message_2` is not at least 48 bytes longer than the payload, or
    /// [`HandshakeError::Rejected`] if the client's ephemeral key gives an all-zero shared secret.
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

/// The result of a handshake: one secret per direction, from which [`crate::keys`] derives the keys of all epochs.
#[derive(Debug)]
pub struct SessionSecrets {
    send: Secret<32>,
    receive: Secret<32>,
}

impl SessionSecrets {
    /// Returns the keys of the first epoch, to seal and to open packets, or `None` if this build does not support the suite.
    ///
    /// It takes `self`, so that the keys are derived once.
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

/// The reason why a handshake message was not read or not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// The message has the wrong length. Nothing was computed.
    Length,
    /// The buffer of the caller is too small. Nothing was computed.
    BufferTooSmall,
    /// The message is forged, or was made for another key, psk, or prologue, or gives an all-zero shared secret.
    Rejected,
    /// The initiator has already completed.
    Finished,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "the handshake message has the wrong length",
            Self::BufferTooSmall => "the buffer is too small for the handshake message",
            Self::Rejected => "the handshake message was not made for these keys",
            Self::Finished => "the handshake has already completed",
        })
    }
}

impl std::error::Error for HandshakeError {}

#[cfg(test)]
mod tests;
