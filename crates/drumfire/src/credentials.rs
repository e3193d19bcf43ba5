//! The keys of servers, and the tokens by which clients are admitted.

pub(crate) mod connect_token;
pub(crate) mod key_text;
pub(crate) mod keys;
pub(crate) mod token_request;
pub mod tokens;
