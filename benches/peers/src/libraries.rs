//! The libraries. The settings of each one are at the head of its file.

pub(crate) mod drumfire;
pub(crate) mod enet;
#[cfg(feature = "gns")]
pub(crate) mod gns;
pub(crate) mod kcp;
pub(crate) mod quinn;
pub(crate) mod raw;
pub(crate) mod renet;
