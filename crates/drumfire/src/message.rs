//! The types that the application sends, receives, and names: events, messages, groups, and typed channels.

pub(crate) mod event;
pub(crate) mod group;
pub mod transfer;
pub(crate) mod typed;
