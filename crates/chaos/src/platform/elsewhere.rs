//! Systems without such devices and filters: everything answers that it is missing.

use std::io;

use super::UdpOption;
use crate::stop::Stop;

/// A device that cannot be made here.
pub(crate) enum Device {}

impl Device {
    /// Always missing.
    ///
    /// # Errors
    /// [`Stop::Needs`].
    pub(crate) fn open(_: &str, _: u16) -> Result<Self, Stop> {
        Err(Stop::Needs("TUN devices, which Linux has".to_owned()))
    }

    /// Never called.
    pub(crate) fn take<'a>(&self, _: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match *self {}
    }

    /// Never called.
    pub(crate) fn give(&self, _: &[u8]) -> bool {
        match *self {}
    }
}

/// Always missing.
///
/// # Errors
/// [`Stop::Needs`].
pub(crate) fn refuse(_: &[&str], _: i32, _: Option<&[u32]>) -> Result<(), Stop> {
    Err(Stop::Needs("seccomp filters, which Linux has".to_owned()))
}

/// Always missing.
///
/// # Errors
/// [`Stop::Needs`].
pub(crate) fn lack_option(_: UdpOption) -> Result<(), Stop> {
    Err(Stop::Needs("seccomp filters, which Linux has".to_owned()))
}

/// Always missing.
///
/// # Errors
/// [`Stop::Needs`].
pub(crate) fn open_sockets() -> Result<Vec<u32>, Stop> {
    Err(Stop::Needs("a list of this process's files, which Linux has".to_owned()))
}
