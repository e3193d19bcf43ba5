//! The handshake datagrams as bytes: which section stands where.
//!
//! Deliberately no cryptography: keys, tokens, cookies, Noise messages and checks are opaque here, slices that
//! others fill and judge.

mod hello;
mod parameters;
mod refuse;
mod reset;
mod retry;
mod suite;
mod welcome;

pub use hello::{Hello, HelloDraft, HelloFields};
pub use parameters::{ClientParameters, ServerParameters, SharedParameters};
pub use refuse::{Refusal, Refuse, RefuseReason};
pub use reset::Reset;
pub use retry::Retry;
pub use suite::{Suite, SuiteOffer};
pub use welcome::Welcome;

/// Eight random bytes by which a client knows the answers to its Hello. Off-path nobody can guess them; they
/// have nothing to do with connection ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientId(pub [u8; 8]);

impl ClientId {
    /// Bytes of every client id.
    pub const BYTES: usize = 8;
}
