//! The configuration of `snow`: the pattern, the primitives, and an ephemeral secret in place of a random number generator.
//!
//! Hash and cipher are those of snow. X25519 is implemented here, because this implementation rejects all-zero results, wipes its
//! secrets, and takes the server's public key as an argument. Snow would compute that key for each handshake.

use curve25519_dalek::MontgomeryPoint;
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};

use super::{HandshakeError, PUBLIC_KEY_BYTES, ServerKeyPair};
use crate::secret::{Secret, is_equal};

const PATTERN: &str = "Noise_NKpsk0_25519_ChaChaPoly_BLAKE2s";
/// The position of the pre-shared key in the pattern: before the first token.
const PSK_POSITION: u8 = 0;

pub(super) fn initiator(
    server_public: &[u8; PUBLIC_KEY_BYTES],
    psk: &Secret<32>,
    prologue: &[u8],
    ephemeral: &Secret<32>,
) -> Result<HandshakeState, HandshakeError> {
    let builder = builder(Primitives::new(ephemeral, [0; PUBLIC_KEY_BYTES]))?;
    builder
        .remote_public_key(server_public)
        .and_then(|builder| builder.psk(PSK_POSITION, psk.expose()))
        .and_then(|builder| builder.prologue(prologue))
        .and_then(Builder::build_initiator)
        .map_err(to_error)
}

pub(super) fn responder(
    keys: &ServerKeyPair,
    psk: &Secret<32>,
    prologue: &[u8],
    ephemeral: &Secret<32>,
) -> Result<HandshakeState, HandshakeError> {
    let builder = builder(Primitives::new(ephemeral, keys.public))?;
    builder
        .local_private_key(keys.secret.expose())
        .and_then(|builder| builder.psk(PSK_POSITION, psk.expose()))
        .and_then(|builder| builder.prologue(prologue))
        .and_then(Builder::build_responder)
        .map_err(to_error)
}

/// Returns the two keys of the split: from initiator to responder, and from responder to initiator.
pub(super) fn split(state: &mut HandshakeState) -> (Secret<32>, Secret<32>) {
    let (to_responder, to_initiator) = state.dangerously_get_raw_split();
    (Secret::new(to_responder), Secret::new(to_initiator))
}

/// Converts an error of snow. Lengths are checked before snow reads a message, so each error means that the message is invalid.
pub(super) fn to_error(_: snow::Error) -> HandshakeError {
    HandshakeError::Rejected
}

fn builder<'a>(primitives: Primitives) -> Result<Builder<'a>, HandshakeError> {
    let params: NoiseParams = PATTERN.parse().map_err(to_error)?;
    Ok(Builder::with_resolver(params, Box::new(primitives)))
}

/// The primitives of one handshake.
struct Primitives {
    ephemeral: Secret<32>,
    static_public: [u8; PUBLIC_KEY_BYTES],
}

impl Primitives {
    fn new(ephemeral: &Secret<32>, static_public: [u8; PUBLIC_KEY_BYTES]) -> Self {
        Self { ephemeral: ephemeral.duplicate(), static_public }
    }
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SingleUse(Some(self.ephemeral.duplicate()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        match choice {
            DHChoice::Curve25519 => Some(Box::new(X25519 {
                secret: Secret::zeroed(),
                public: [0; PUBLIC_KEY_BYTES],
                static_public: self.static_public,
            })),
            _ => None,
        }
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// A random number generator that returns the ephemeral secret once, and fails afterwards.
struct SingleUse(Option<Secret<32>>);

impl Random for SingleUse {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        let secret = self.0.take().ok_or(snow::Error::Rng)?;
        if dest.len() != secret.expose().len() {
            return Err(snow::Error::Rng);
        }
        dest.copy_from_slice(secret.expose());
        Ok(())
    }
}

/// X25519 (RFC 7748) for one key pair.
pub(super) struct X25519 {
    secret: Secret<32>,
    public: [u8; PUBLIC_KEY_BYTES],
    /// The public key of the only secret that `set` receives, which is the server's.
    static_public: [u8; PUBLIC_KEY_BYTES],
}

impl X25519 {
    #[cfg(test)]
    pub(super) fn of_secret(secret: Secret<32>) -> Self {
        let public = Self::public_of(&secret);
        Self { secret, public, static_public: public }
    }

    pub(super) fn public_of(secret: &Secret<32>) -> [u8; PUBLIC_KEY_BYTES] {
        MontgomeryPoint::mul_base_clamped(*secret.expose()).to_bytes()
    }
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        PUBLIC_KEY_BYTES
    }

    fn priv_len(&self) -> usize {
        PUBLIC_KEY_BYTES
    }

    fn set(&mut self, privkey: &[u8]) {
        for (byte, given) in self.secret.expose_mut().iter_mut().zip(privkey) {
            *byte = *given;
        }
        self.public = self.static_public;
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), snow::Error> {
        rng.try_fill_bytes(self.secret.expose_mut())?;
        self.public = Self::public_of(&self.secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        self.secret.expose()
    }

    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let theirs = *pubkey.first_chunk().ok_or(snow::Error::Dh)?;
        let shared = Secret::new(MontgomeryPoint(theirs).mul_clamped(*self.secret.expose()).to_bytes());
        // An all-zero result does not depend on the secret key of this peer (RFC 7748 section 6.1).
        if is_equal(shared.expose(), &[0; 32]) {
            return Err(snow::Error::Dh);
        }
        let out = out.first_chunk_mut().ok_or(snow::Error::Dh)?;
        *out = *shared.expose();
        Ok(())
    }
}
