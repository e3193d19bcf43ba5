//! Facilities that only Linux has: network devices whose packets a program carries, and filters that make system calls fail.
//!
//! On other systems the same functions return [`Error::Unsupported`](crate::error::Error::Unsupported).

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod portable;

#[cfg(target_os = "linux")]
pub(crate) use linux::{TunDevice, disable_option, fail_calls, open_sockets};
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::{TunDevice, disable_option, fail_calls, open_sockets};

/// An option of UDP sockets that a kernel may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UdpOption {
    /// Segmentation of a train of datagrams that is sent in one call.
    Segment,
    /// Coalescing of received datagrams into a train.
    Gro,
}
