//! The socket options that the system granted, which can be less than what was requested.
//!
//! They are read back once. An option that the system refuses is an error when the socket is created.

use std::fmt;

/// The options that the system granted one socket.
///
/// ```
/// let socket = drumfire_socket::Socket::connect("127.0.0.1:9".parse()?, Some(1 << 30))?;
/// let granted = socket.granted();
/// if granted.is_receive_buffer_short() {
///     eprintln!("raise net.core.rmem_max: {granted}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SocketGrants {
    /// The requested receive buffer in bytes, or `None` if the settings contain no size.
    pub receive_buffer_requested_bytes: Option<usize>,
    /// The receive buffer in bytes as the system counts. Linux doubles the size for its own records, and grants at most
    /// `net.core.rmem_max`.
    pub receive_buffer_bytes: usize,
    /// The send buffer in bytes as the system counts.
    pub send_buffer_bytes: usize,
    /// Whether the kernel or the network card splits one large buffer into datagrams for a peer (GSO).
    pub has_gso: bool,
    /// Whether the kernel joins datagrams of a peer into one large buffer (GRO).
    pub has_gro: bool,
    /// Whether the steering filter of the socket's group delivers every datagram to the worker that owns its connection. Without the
    /// filter, workers forward datagrams to each other. With one worker there is no filter.
    pub has_filter: bool,
    /// Whether datagrams are never fragmented on the way, so that connections can discover the MTU of their paths. False before
    /// [`Socket::never_fragment`](crate::Socket::never_fragment). The workers then send no datagram of more than 1,200 bytes.
    pub is_never_fragmented: bool,
}

impl SocketGrants {
    /// Returns whether the receive buffer is smaller than requested, as the system counts.
    #[must_use]
    pub fn is_receive_buffer_short(&self) -> bool {
        self.receive_buffer_requested_bytes.is_some_and(|asked| self.receive_buffer_bytes < asked)
    }
}

impl fmt::Display for SocketGrants {
    /// Writes one line for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |has, yes, no| if has { yes } else { no };
        write!(f, "receive buffer {} B", self.receive_buffer_bytes)?;
        if let Some(asked) = self.receive_buffer_requested_bytes {
            write!(f, " ({asked} B asked for{})", word(self.is_receive_buffer_short(), ", SHORT", ""))?;
        }
        write!(
            f,
            ", send buffer {} B, {}, {}, {}, {}",
            self.send_buffer_bytes,
            word(self.has_gso, "GSO", "no GSO"),
            word(self.has_gro, "GRO", "no GRO"),
            word(self.has_filter, "steering filter", "no steering filter"),
            word(self.is_never_fragmented, "never fragmented", "may be fragmented"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_written_in_one_line() {
        let granted = SocketGrants {
            receive_buffer_requested_bytes: None,
            receive_buffer_bytes: 212_992,
            send_buffer_bytes: 106_496,
            has_gso: true,
            has_gro: true,
            has_filter: true,
            is_never_fragmented: true,
        };
        let line =
            "receive buffer 212992 B, send buffer 106496 B, GSO, GRO, steering filter, never fragmented";
        assert_eq!(granted.to_string(), line);
        let asked =
            |bytes| SocketGrants { receive_buffer_requested_bytes: Some(bytes), ..granted }.to_string();
        assert!(asked(212_992).starts_with("receive buffer 212992 B (212992 B asked for), "));
        assert!(asked(212_993).starts_with("receive buffer 212992 B (212993 B asked for, SHORT), "));
        let poor = SocketGrants {
            has_gso: false,
            has_gro: false,
            has_filter: false,
            is_never_fragmented: false,
            ..granted
        };
        assert!(poor.to_string().ends_with("no GSO, no GRO, no steering filter, may be fragmented"));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn grants_are_serialized_by_name() {
        let socket = crate::Socket::connect("127.0.0.1:9".parse().unwrap(), Some(65_536)).unwrap();
        let granted = socket.granted();
        let written = serde_json::to_value(granted).unwrap();
        assert_eq!(written["receive_buffer_requested_bytes"], 65_536);
        assert_eq!(written["has_gso"], granted.has_gso);
        assert_eq!(written["send_buffer_bytes"], granted.send_buffer_bytes);
    }
}
