//! What one system alone has: network devices whose packets a program carries, and calls that are made to fail.
//!
//! Elsewhere the same names say that it is missing.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{Device, lack_option, open_sockets, refuse};
#[cfg(target_os = "linux")]
pub(crate) use linux::{Device, lack_option, open_sockets, refuse};

/// What a kernel may do for UDP sockets, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UdpOption {
    /// It cuts a train of datagrams that is given to it whole.
    Segment,
    /// It hands over whole a train that came.
    Gro,
}
