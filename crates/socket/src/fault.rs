//! Socket errors by name, and what to do about each.
//!
//! The platform turns its error numbers into [`Fault`]; the two tables here say what follows. Nothing here
//! performs the action: [`crate::Receiver`] and [`crate::Sender`] do.

/// An error a socket call can answer, named apart from the platform's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// `EAGAIN`: nothing to read, or no room to write.
    WouldBlock,
    /// `EINTR`: a signal came first.
    Interrupted,
    /// `ECONNREFUSED`: the far host reported that nobody listens.
    ConnectionRefused,
    /// `EHOSTUNREACH`: no route to the far host.
    HostUnreachable,
    /// `ENETUNREACH`: no route to the far network.
    NetworkUnreachable,
    /// `ECONNRESET`: what some platforms report for a refused datagram.
    ConnectionReset,
    /// `EPROTO`: a protocol error reported by the network.
    Protocol,
    /// `ENOMEM`: the kernel had no memory.
    OutOfMemory,
    /// `ENOBUFS`: an interface queue or the kernel's buffers were full.
    NoBuffers,
    /// `EBADF`: the descriptor is closed.
    BadDescriptor,
    /// `ENOTSOCK`: the descriptor is not a socket.
    NotSocket,
    /// `EMSGSIZE`: larger than the path or the protocol carries.
    MessageTooLong,
    /// `EPERM`: refused by a firewall.
    NotPermitted,
    /// `EACCES`: refused, for example a broadcast address.
    AccessDenied,
    /// `EIO`: on a train, a device that cannot segment it.
    InputOutput,
    /// `EINVAL`: on a train, a kernel or device that does not take it.
    InvalidArgument,
    /// `EAFNOSUPPORT`: an IPv6 peer on an IPv4 socket, or the other way round.
    AddressFamilyUnsupported,
    /// `EADDRNOTAVAIL`: the address cannot be reached from this socket.
    AddressNotAvailable,
    /// Anything else.
    Other,
}

impl Fault {
    /// Every fault, in the order in which [`FaultCounts`] keeps them.
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

    /// A stable name for counters and reports.
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

/// How often each [`Fault`] came.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FaultCounts([u64; Fault::ALL.len()]);

impl std::fmt::Debug for FaultCounts {
    /// Prints the faults that occurred, by name.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter().map(|(fault, count)| (fault.name(), count))).finish()
    }
}

impl FaultCounts {
    /// Counts one.
    pub fn add(&mut self, fault: Fault) {
        self.add_many(fault, 1);
    }

    /// Counts `count` at once, for example every datagram of a train.
    pub fn add_many(&mut self, fault: Fault, count: u64) {
        self.0[fault as usize] += count;
    }

    /// How often this one came.
    #[must_use]
    pub fn count(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// The faults that came at least once.
    pub fn iter(&self) -> impl Iterator<Item = (Fault, u64)> + '_ {
        Fault::ALL.into_iter().map(|fault| (fault, self.count(fault))).filter(|&(_, count)| count > 0)
    }

    /// The sum of all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// What follows a failed receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvAction {
    /// The socket is empty: the drain is over.
    Stop,
    /// Count it and go on: an edge-triggered poll does not fire again for what is left.
    GoOn,
    /// Count it, stop, and treat the socket as still readable in the next pass.
    RetryNextPass,
    /// The descriptor is gone: its owner opens the socket anew, or ends and says so.
    Close,
}

/// The action for a failed receive.
#[must_use]
pub const fn recv_action(fault: Fault) -> RecvAction {
    match fault {
        Fault::WouldBlock => RecvAction::Stop,
        Fault::OutOfMemory | Fault::NoBuffers => RecvAction::RetryNextPass,
        Fault::BadDescriptor | Fault::NotSocket => RecvAction::Close,
        // A fault this table does not know must not end a worker either; the pass's budget bounds repeats.
        _ => RecvAction::GoOn,
    }
}

/// What follows a failed send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendAction {
    /// Keep the datagram and wait until the socket is writable.
    Keep,
    /// Try again at once, at most three times.
    Retry,
    /// The datagram counts as lost; go on with the next.
    Lost,
    /// The datagram counts as lost; pause this batch for a millisecond.
    LostAndPause,
    /// Send the datagrams of this train one by one. A datagram that fails alone too is lost. The peers of other
    /// trains are unaffected.
    Singly,
    /// The datagram counts as lost and its peer cannot be reached from this socket: close that connection.
    Unreachable,
    /// The descriptor is gone: its owner opens the socket anew, or ends and says so.
    Close,
}

/// The action for a failed send; `is_segmented` says whether the call carried a segmentation request.
#[must_use]
pub const fn send_action(fault: Fault, is_segmented: bool) -> SendAction {
    match fault {
        Fault::WouldBlock => SendAction::Keep,
        Fault::Interrupted => SendAction::Retry,
        Fault::OutOfMemory | Fault::NoBuffers => SendAction::LostAndPause,
        // The device cannot segment, or a segment is larger than the path, or the address takes nothing at all:
        // Linux returns `EINVAL` for port 0 and for a source that the host has lost. Single datagrams tell
        // these cases apart.
        Fault::InputOutput | Fault::InvalidArgument | Fault::MessageTooLong if is_segmented => {
            SendAction::Singly
        }
        Fault::AddressFamilyUnsupported | Fault::AddressNotAvailable => SendAction::Unreachable,
        Fault::BadDescriptor | Fault::NotSocket => SendAction::Close,
        // Firewalls, unreachable networks, over-long datagrams and unknown faults: this datagram is lost, the
        // connection lives on to its own timeout.
        _ => SendAction::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_own_name_and_place() {
        let mut counts = FaultCounts::default();
        for (place, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, place);
            counts.add_many(fault, place as u64 + 1);
        }
        for (place, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(counts.count(fault), place as u64 + 1);
        }
        let names: std::collections::HashSet<_> = Fault::ALL.into_iter().map(Fault::name).collect();
        assert_eq!(names.len(), Fault::ALL.len());
        assert_eq!(counts.total(), (1..=Fault::ALL.len() as u64).sum::<u64>());
    }

    #[test]
    fn only_a_lost_descriptor_ends_a_worker() {
        for fault in Fault::ALL {
            let is_gone = matches!(fault, Fault::BadDescriptor | Fault::NotSocket);
            assert_eq!(recv_action(fault) == RecvAction::Close, is_gone, "{fault}");
            assert_eq!(send_action(fault, false) == SendAction::Close, is_gone, "{fault}");
            assert_eq!(send_action(fault, true) == SendAction::Close, is_gone, "{fault}");
        }
    }

    #[test]
    fn a_refused_train_is_split_and_a_refused_datagram_is_lost() {
        for fault in [Fault::InputOutput, Fault::InvalidArgument, Fault::MessageTooLong] {
            assert_eq!(send_action(fault, true), SendAction::Singly);
            assert_eq!(send_action(fault, false), SendAction::Lost);
        }
    }
}
