//! The cryptography of drumfire: protection of packets, key agreement, and keyed functions for tokens, cookies, connection ids,
//! reset tokens, and the MACs of Hello and Refuse.
//!
//! All functions take bytes and return bytes. This crate does not know the layout of datagrams, has no socket, reads no clock,
//! and draws no random numbers. Times and entropy are arguments.
//!
//! | module | contents |
//! | --- | --- |
//! | [`suite`] | the cipher suites, the trait for packet protection, and its two providers |
//! | [`keys`] | the keys per direction and epoch, packet numbers that are used once, and nonces |
//! | [`sealer`], [`opener`] | the two halves of a connection's packet protection |
//! | [`replay`] | the window that accepts each packet number once |
//! | [`handshake`] | Noise NKpsk0 with an injected ephemeral secret |
//! | [`cookie`] | the stateless proof of a source address |
//! | [`mac`] | the MACs of Hello and Refuse, the check of a connection id, and reset tokens |
//! | [`token`] | tokens that a backend or a server seals, and their keys |
//! | [`secret`] | bytes that are wiped on drop and never printed, and random bytes from one seed |
//!
//! The feature `accel`, which is on by default, adds the accelerated provider. Without it, everything is pure Rust, and
//! AES-128-GCM is not offered.
//!
//! Known gaps: the accelerated provider does not wipe its expanded keys, and the Noise implementation and the hash functions
//! do not wipe their inner state. Secrets that this crate owns (chain keys, keys, seeds) are wiped on drop.
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
#[cfg(test)]
mod freed_memory;
pub mod handshake;
mod hash;
pub mod keys;
pub mod mac;
pub mod opener;
pub mod replay;
pub mod sealer;
pub mod secret;
pub mod suite;
#[cfg(test)]
mod test_support;
pub mod token;

pub use cookie::Cookies;
pub use handshake::{HandshakeError, Initiator, Responder, ServerKeyPair, SessionSecrets};
pub use keys::{OpenKeys, SealKeys};
pub use mac::{IdKeys, Mac1Key, RefuseKey};
pub use opener::{OpenError, Opener};
pub use replay::{ReplayError, ReplayWindow};
pub use sealer::{SealError, Sealer};
pub use secret::{Entropy, Secret};
pub use suite::{Suite, TAG_BYTES};
pub use token::{IssuedToken, PlayerId, Token, TokenError, TokenId, TokenKey, TokenKind, TokenMasterKey};
