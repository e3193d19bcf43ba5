//! Errors: settings that cannot be used, and system calls that failed.
//!
//! Each platform maps its error numbers to a [`Fault`]. [`recv_action`] and [`send_action`] are the tables of what
//! follows from each fault. [`crate::Receiver`] and [`crate::Sender`] carry out the action.

use std::io;

/// A setting that cannot be used, with the name of its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    field: &'static str,
    problem: &'static str,
}

impl ConfigError {
    pub(crate) fn new(field: &'static str, problem: &'static str) -> Self {
        Self { field, problem }
    }

    /// Returns the name of the field that has to change.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// Returns what is wrong with the field, and what to do about it.
    #[must_use]
    pub fn problem(&self) -> &'static str {
        self.problem
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for ConfigError {}

impl From<ConfigError> for io::Error {
    fn from(error: ConfigError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// An error of a socket call, independent of the platform's error numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// `EAGAIN`: there is nothing to read, or no room to write.
    WouldBlock,
    /// `EINTR`: a signal interrupted the call.
    Interrupted,
    /// `ECONNREFUSED`: the remote host reported that no socket is bound to the port.
    ConnectionRefused,
    /// `EHOSTUNREACH`: there is no route to the remote host.
    HostUnreachable,
    /// `ENETUNREACH`: there is no route to the remote network.
    NetworkUnreachable,
    /// `ECONNRESET`: some platforms report a refused datagram this way.
    ConnectionReset,
    /// `EPROTO`: the network reported a protocol error.
    Protocol,
    /// `ENOMEM`: the kernel had no memory.
    OutOfMemory,
    /// `ENOBUFS`: the queue of an interface, or the kernel's buffers, were full.
    NoBuffers,
    /// `EBADF`: the descriptor is closed.
    BadDescriptor,
    /// `ENOTSOCK`: the descriptor is not a socket.
    NotSocket,
    /// `EMSGSIZE`: the datagram is larger than the path or the protocol can carry.
    MessageTooLong,
    /// `EPERM`: a firewall refused the datagram.
    NotPermitted,
    /// `EACCES`: the call was refused, for example because the address is a broadcast address.
    AccessDenied,
    /// `EIO`: for a train, the device cannot segment it.
    InputOutput,
    /// `EINVAL`: for a train, the kernel or the device does not accept it.
    InvalidArgument,
    /// `EAFNOSUPPORT`: the peer is on IPv6 and the socket on IPv4, or the reverse.
    AddressFamilyUnsupported,
    /// `EADDRNOTAVAIL`: the address cannot be reached from this socket.
    AddressNotAvailable,
    /// Any other error.
    Other,
}

impl Fault {
    /// Every fault, in the order in which [`crate::FaultCounts`] stores them.
    pub const ALL: [Self; 19] = [
        Self::WouldBlock,
        Self::Interrupted,
        Self::ConnectionRefused,
        Self::HostUnreachable,
        Self::NetworkUnreachable,
        Self::ConnectionReset,
        Self::Protocol,
        Self::OutOfMemory,
        Self::NoBuffers,
        Self::BadDescriptor,
        Self::NotSocket,
        Self::MessageTooLong,
        Self::NotPermitted,
        Self::AccessDenied,
        Self::InputOutput,
        Self::InvalidArgument,
        Self::AddressFamilyUnsupported,
        Self::AddressNotAvailable,
        Self::Other,
    ];

    /// Returns a stable name for counters and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WouldBlock => "would_block",
            Self::Interrupted => "interrupted",
            Self::ConnectionRefused => "connection_refused",
            Self::HostUnreachable => "host_unreachable",
            Self::NetworkUnreachable => "network_unreachable",
            Self::ConnectionReset => "connection_reset",
            Self::Protocol => "protocol_error",
            Self::OutOfMemory => "out_of_memory",
            Self::NoBuffers => "no_buffers",
            Self::BadDescriptor => "bad_descriptor",
            Self::NotSocket => "not_socket",
            Self::MessageTooLong => "message_too_long",
            Self::NotPermitted => "not_permitted",
            Self::AccessDenied => "access_denied",
            Self::InputOutput => "input_output",
            Self::InvalidArgument => "invalid_argument",
            Self::AddressFamilyUnsupported => "address_family_unsupported",
            Self::AddressNotAvailable => "address_not_available",
            Self::Other => "other",
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Fault {}

/// The reaction to a failed receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvAction {
    /// End the drain: the socket is empty.
    Stop,
    /// Count the fault and continue: an edge-triggered poll does not fire again for the datagrams that remain.
    Continue,
    /// Count the fault, stop, and treat the socket as still readable in the next pass.
    RetryNextPass,
    /// Stop: the descriptor is closed. The socket's owner opens the socket again, or ends and reports it.
    Close,
}

/// Returns the reaction to a failed receive call.
#[must_use]
pub const fn recv_action(fault: Fault) -> RecvAction {
    match fault {
        Fault::WouldBlock => RecvAction::Stop,
        Fault::OutOfMemory | Fault::NoBuffers => RecvAction::RetryNextPass,
        Fault::BadDescriptor | Fault::NotSocket => RecvAction::Close,
        // Most other faults are asynchronous errors of earlier datagrams (udp(7)), which do not affect the datagrams
        // in the queue. An unknown fault must not end a worker either. The budget of the pass bounds repetitions.
        _ => RecvAction::Continue,
    }
}

/// The reaction to a failed send call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendAction {
    /// Keep the datagram and wait until the socket is writable.
    Keep,
    /// Repeat the call immediately, at most three times.
    Retry,
    /// Count the datagram as lost and continue with the next one.
    Lost,
    /// Count the datagram as lost and pause this batch for a millisecond.
    LostAndPause,
    /// Send the datagrams of this train one by one. A datagram that fails alone too is lost. The peers of other
    /// trains are unaffected.
    SplitTrain,
    /// Count the datagram as lost and close its connection: this socket cannot reach the peer.
    Unreachable,
    /// Stop: the descriptor is closed. The socket's owner opens the socket again, or ends and reports it.
    Close,
}

/// Returns the reaction to a failed send call. `is_segmented` is whether the call requested segmentation.
#[must_use]
pub const fn send_action(fault: Fault, is_segmented: bool) -> SendAction {
    match fault {
        Fault::WouldBlock => SendAction::Keep,
        Fault::Interrupted => SendAction::Retry,
        Fault::OutOfMemory | Fault::NoBuffers => SendAction::LostAndPause,
        // The device cannot segment, a segment exceeds the path MTU, or the address accepts no datagram at all. For port
        // 0, and for a source address that the host has lost, Linux returns `EINVAL`. Sending the datagrams one by one
        // distinguishes these cases.
        Fault::InputOutput | Fault::InvalidArgument | Fault::MessageTooLong if is_segmented => {
            SendAction::SplitTrain
        }
        Fault::AddressFamilyUnsupported | Fault::AddressNotAvailable => SendAction::Unreachable,
        Fault::BadDescriptor | Fault::NotSocket => SendAction::Close,
        // Firewalls, unreachable networks, overlong datagrams, and unknown faults may be temporary. The datagram is
        // lost, and the timeout of its connection decides about the peer.
        _ => SendAction::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_closed_descriptor_ends_a_worker() {
        for fault in Fault::ALL {
            let is_closed = matches!(fault, Fault::BadDescriptor | Fault::NotSocket);
            assert_eq!(recv_action(fault) == RecvAction::Close, is_closed, "{fault}");
            assert_eq!(send_action(fault, false) == SendAction::Close, is_closed, "{fault}");
            assert_eq!(send_action(fault, true) == SendAction::Close, is_closed, "{fault}");
        }
    }

    #[test]
    fn a_refused_train_is_split_and_a_single_datagram_is_lost() {
        for fault in [Fault::InputOutput, Fault::InvalidArgument, Fault::MessageTooLong] {
            assert_eq!(send_action(fault, true), SendAction::SplitTrain);
            assert_eq!(send_action(fault, false), SendAction::Lost);
        }
    }
}
