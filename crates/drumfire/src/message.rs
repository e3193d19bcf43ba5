//! The types that the application sends, receives, and names: events, messages, peers, groups, and typed channels.

pub(crate) mod event;
pub(crate) mod group;
pub(crate) mod peer;
pub mod transfer;
pub(crate) mod typed;
