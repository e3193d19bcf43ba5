//! Facilities that only Linux has: network devices whose packets a program carries, and filters that make system calls fail.
//!
//! On other systems the same functions return [`Error::Unsupported`](crate::error::Error::Unsupported).

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod portable;

#[cfg(target_os = "linux")]
pub(crate) use linux::{TunDevice, fail_calls, hide_trains, open_sockets};
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::{TunDevice, fail_calls, hide_trains, open_sockets};
