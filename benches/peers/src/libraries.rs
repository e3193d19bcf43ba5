//! The libraries. The settings of each one are at the head of its file.

pub(crate) mod drumfire;
#[cfg(feature = "enet")]
pub(crate) mod enet;
#[cfg(feature = "gns")]
pub(crate) mod gns;
#[cfg(feature = "kcp")]
pub(crate) mod kcp;
#[cfg(feature = "quinn")]
pub(crate) mod quinn;
pub(crate) mod raw;
#[cfg(feature = "renet")]
pub(crate) mod renet;
