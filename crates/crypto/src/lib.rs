//! The cryptography of drumfire: how packets are sealed and opened, how two ends agree on keys, and the small
//! keyed functions around it (token, cookie, connection id check, reset token, MACs of Hello and Refuse).
//!
//! Everything here takes bytes and gives bytes. The crate knows no datagram layout, owns no socket, reads no
//! clock and draws no random number: times and entropy are arguments.
//!
//! | module | holds |
//! | --- | --- |
//! | [`suite`] | the cipher suites, the one trait for packet protection and its two providers |
//! | [`keys`] | what keys are derived from, per direction and epoch, and the ratchet to the next epoch |
//! | [`nonce`] | packet numbers that are used once, and the nonces made from them |
//! | [`sealer`], [`opener`] | the two halves of a connection's packet protection |
//! | [`replay`] | the window that lets each packet number through once |
//! | [`handshake`] | Noise NKpsk0 with an injected ephemeral secret |
//! | [`cookie`], [`mac1`], [`refuse_mac`], [`id_check`] | keyed functions over Hello, Refuse and connection id |
//! | [`token`] | tokens that a backend or a server seals, and their keys |
//! | [`entropy`] | random bytes from one seed |
//! | [`secret`] | bytes that are wiped on drop and never printed |
//!
//! Feature `accel` (default) adds the accelerated provider. Without it everything is pure Rust, and
//! AES-128-GCM is not offered.
//!
//! Known gaps: the accelerated provider does not wipe its expanded keys, and neither the Noise implementation
//! nor the hash functions wipe their inner state. What this crate owns (chains, secrets, seeds) is wiped on
//! drop.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

pub mod cookie;
pub mod entropy;
pub mod handshake;
mod hash;
pub mod id_check;
pub mod keys;
pub mod mac1;
pub mod nonce;
pub mod opener;
pub mod refuse_mac;
pub mod replay;
#[cfg(test)]
mod residue;
pub mod sealer;
pub mod secret;
pub mod suite;
#[cfg(test)]
mod test_support;
pub mod token;

pub use cookie::Cookies;
pub use entropy::Entropy;
pub use handshake::{HandshakeError, Initiator, Responder, ServerKeyPair, SessionSecrets};
pub use id_check::IdKeys;
pub use keys::{OpenKeys, SealKeys};
pub use mac1::Mac1Key;
pub use opener::{OpenError, Opener};
pub use refuse_mac::RefuseKey;
pub use replay::{ReplayError, ReplayWindow};
pub use sealer::{SealError, Sealer};
pub use secret::Secret;
pub use suite::{Suite, TAG_BYTES};
pub use token::{IssuedToken, PlayerId, Token, TokenError, TokenId, TokenKey, TokenKind, TokenMasterKey};
