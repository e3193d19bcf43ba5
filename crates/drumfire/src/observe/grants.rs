//! What the system gave a socket, which may be less than was asked: read back once and reported, never guessed.
//!
//! What it refuses outright is an error where the socket is made; here is what it gave less of.

use std::fmt;

use drumfire_socket::Socket;

/// What the system gave one socket.
///
/// ```
/// # use drumfire::*;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// let server = Server::bind(config.workers(Workers::Inline).receive_buffer_bytes(1 << 30))?;
/// for granted in server.granted() {
///     if granted.is_receive_buffer_short() {
///         eprintln!("raise net.core.rmem_max: {granted}");
///     }
/// }
/// # assert_eq!(server.granted().len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted {
    /// Receive buffer that was asked for, in bytes; `None` = whatever is the default.
    pub receive_buffer_asked_bytes: Option<usize>,
    /// Receive buffer that there is, in bytes as the system counts: Linux doubles what it grants, for its own records,
    /// and grants up to `net.core.rmem_max`.
    pub receive_buffer_bytes: usize,
    /// Send buffer that there is, in bytes as the system counts.
    pub send_buffer_bytes: usize,
    /// Whether datagrams to one peer may leave as one train that the kernel or the network card cuts (GSO).
    pub has_gso: bool,
    /// Whether datagrams of one peer may come as one train (GRO).
    pub has_gro: bool,
    /// Whether the kernel brings every datagram to the worker that owns its connection. Else, and where there is but one
    /// worker, workers hand over what is not theirs.
    pub has_filter: bool,
    /// Whether datagrams leave whole or not at all, so that connections can find out what their paths carry. Else no
    /// datagram is longer than 1,200 bytes.
    pub is_never_fragmented: bool,
}

impl Granted {
    /// Reads back what this socket has, after asking for datagrams to stay whole.
    pub(crate) fn of(socket: &Socket, receive_buffer_asked_bytes: Option<usize>) -> Self {
        let granted = socket.granted();
        Self {
            receive_buffer_asked_bytes,
            receive_buffer_bytes: granted.receive_buffer_bytes,
            send_buffer_bytes: granted.send_buffer_bytes,
            has_gso: granted.has_gso,
            has_gro: granted.has_gro,
            has_filter: granted.has_filter,
            is_never_fragmented: socket.never_fragment(),
        }
    }

    /// Whether the receive buffer is smaller than was asked for, even as the system counts.
    #[must_use]
    pub fn is_receive_buffer_short(&self) -> bool {
        self.receive_buffer_asked_bytes.is_some_and(|asked| self.receive_buffer_bytes < asked)
    }
}

impl fmt::Display for Granted {
    /// One line for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |has, yes, no| if has { yes } else { no };
        write!(f, "receive buffer {} B", self.receive_buffer_bytes)?;
        if let Some(asked) = self.receive_buffer_asked_bytes {
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

#[cfg(feature = "serde")]
impl serde_core::Serialize for Granted {
    fn serialize<S: serde_core::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde_core::ser::SerializeStruct;

        // By name, so that none is forgotten.
        let Self {
            receive_buffer_asked_bytes,
            receive_buffer_bytes,
            send_buffer_bytes,
            has_gso,
            has_gro,
            has_filter,
            is_never_fragmented,
        } = self;
        let mut fields = serializer.serialize_struct("Granted", 7)?;
        fields.serialize_field("receive_buffer_asked_bytes", receive_buffer_asked_bytes)?;
        fields.serialize_field("receive_buffer_bytes", receive_buffer_bytes)?;
        fields.serialize_field("send_buffer_bytes", send_buffer_bytes)?;
        fields.serialize_field("has_gso", has_gso)?;
        fields.serialize_field("has_gro", has_gro)?;
        fields.serialize_field("has_filter", has_filter)?;
        fields.serialize_field("is_never_fragmented", is_never_fragmented)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_it_all() {
        let granted = Granted {
            receive_buffer_asked_bytes: None,
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
        let asked = |bytes| Granted { receive_buffer_asked_bytes: Some(bytes), ..granted }.to_string();
        assert!(asked(212_992).starts_with("receive buffer 212992 B (212992 B asked for), "));
        assert!(asked(212_993).starts_with("receive buffer 212992 B (212993 B asked for, SHORT), "));
        let poor = Granted {
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
    fn it_is_written_by_name() {
        let socket = Socket::connect("127.0.0.1:9".parse().unwrap(), None).unwrap();
        let granted = Granted::of(&socket, Some(5));
        let written = serde_json::to_value(granted).unwrap();
        assert_eq!(written["receive_buffer_asked_bytes"], 5);
        assert_eq!(written["has_gso"], granted.has_gso);
        assert_eq!(written["send_buffer_bytes"], granted.send_buffer_bytes);
    }
}
