//! What one system alone has: network devices whose packets a program carries, and calls that are made to fail.
//!
//! Elsewhere the same names say that it is missing.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{Device, open_sockets, refuse};
#[cfg(target_os = "linux")]
pub(crate) use linux::{Device, open_sockets, refuse};
