//! The error of the creation of a server or a client, and of changes to it.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use drumfire_proto::ConnectError;

use super::entropy::EntropyError;

/// The reason why a server or a client could not be created or changed. After an error, nothing has changed.
///
/// `Debug` prints the text of `Display`, so that an error that `main` returns is readable.
#[non_exhaustive]
pub enum Error {
    /// A setting or an argument has a value that cannot be used.
    Setting {
        /// The name of the setting or argument.
        field: &'static str,
        /// The problem, or the values that the field can have.
        problem: Cow<'static, str>,
    },
    /// The development key is public. Use a key of your own, or bind to a loopback address with
    /// [`Access::Open`](crate::Access::Open).
    DevelopmentKey,
    /// A server with the development key can only have a loopback address of this host.
    DevelopmentServer {
        /// The address given for the server.
        address: SocketAddr,
    },
    /// Another program, or an earlier run of this one, uses the port.
    AddressInUse {
        /// The address given for the server.
        address: SocketAddr,
    },
    /// No interface of this host has the address.
    AddressNotLocal {
        /// The address given for the server.
        address: SocketAddr,
    },
    /// The system does not allow this program to use the port.
    PortNotAllowed {
        /// The address given for the server.
        address: SocketAddr,
    },
    /// The server has no threads, because it was bound with [`Workers::Inline`](crate::Workers::Inline), or with
    /// [`Workers::Auto`](crate::Workers::Auto) on one core.
    NoThreads,
    /// The server already has [`BANS_MAX`](crate::admission::BANS_MAX) bans.
    TooManyBans,
    /// The peer is not connected to this server.
    UnknownPeer,
    /// The attempt to connect failed.
    Connect(ConnectError),
    /// The system has no randomness.
    Entropy(io::Error),
    /// Another error of the operating system, for example that no descriptors are left.
    Io(io::Error),
}

impl Error {
    /// Creates an error about a setting.
    pub(crate) fn setting(field: &'static str, problem: impl Into<Cow<'static, str>>) -> Self {
        Self::Setting { field, problem: problem.into() }
    }

    /// Returns the error of a server that cannot bind this address.
    pub(crate) fn from_bind(error: io::Error, address: SocketAddr) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::AddressInUse { address },
            io::ErrorKind::AddrNotAvailable => Self::AddressNotLocal { address },
            io::ErrorKind::PermissionDenied => Self::PortNotAllowed { address },
            _ => error.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { field, problem } => write!(f, "{field}: {problem}"),
            Self::DevelopmentKey => f.write_str(
                "the development key is public: use a key of your own, or bind to a loopback address in open access",
            ),
            Self::DevelopmentServer { address } => write!(
                f,
                "server: {address} cannot be a development server, because it is not a loopback address: give that server a key of its own, and connect with its public key"
            ),
            Self::AddressInUse { address } => write!(
                f,
                "address: another program has {address}: end that program, or use another port (0 selects a free one)"
            ),
            Self::AddressNotLocal { address } => write!(
                f,
                "address: {} is not an address of this host: use the address of an interface, or 0.0.0.0 or [::] for all",
                address.ip()
            ),
            Self::PortNotAllowed { address } => write!(
                f,
                "address: this program may not use port {}: use one from 1024 on, or give it the permission",
                address.port()
            ),
            Self::NoThreads => f.write_str("the server has no threads: bind it with Workers::Shards"),
            Self::TooManyBans => {
                f.write_str("there is no room for another ban: ban networks, or for a shorter time")
            }
            Self::UnknownPeer => f.write_str("the peer is not connected to this server"),
            Self::Connect(error) => error.fmt(f),
            Self::Entropy(error) => write!(f, "the system gives no randomness: {error}"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect(error) => Some(error),
            Self::Entropy(error) | Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

drumfire_proto::debug_with_display!(Error);

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}

impl From<EntropyError> for Error {
    fn from(error: EntropyError) -> Self {
        Self::Entropy(io::Error::other(error.0.to_string()))
    }
}

impl From<io::Error> for Error {
    /// Returns the error of a setting if the sockets refused one, and otherwise [`Error::Io`].
    fn from(error: io::Error) -> Self {
        let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<drumfire_socket::ConfigError>());
        match refused {
            Some(refused) => refused.clone().into(),
            None => Self::Io(error),
        }
    }
}

impl From<drumfire_proto::ConfigError> for Error {
    fn from(error: drumfire_proto::ConfigError) -> Self {
        Self::setting(error.field, error.must_be)
    }
}

impl From<drumfire_socket::ConfigError> for Error {
    fn from(error: drumfire_socket::ConfigError) -> Self {
        Self::setting(error.field(), error.problem())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_about_an_address_are_distinguished() {
        let address: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let text = |kind: io::ErrorKind| Error::from_bind(kind.into(), address).to_string();
        assert!(text(io::ErrorKind::AddrInUse).contains("another program has 192.0.2.1:80"));
        assert!(text(io::ErrorKind::AddrNotAvailable).contains("192.0.2.1 is not an address of this host"));
        assert!(text(io::ErrorKind::PermissionDenied).contains("may not use port 80"));
        assert!(matches!(
            Error::from_bind(io::ErrorKind::OutOfMemory.into(), address),
            Error::Io(error) if error.kind() == io::ErrorKind::OutOfMemory
        ));
    }

    #[test]
    fn a_setting_that_the_sockets_refuse_is_named() {
        let refused = drumfire_socket::Waiter::new(drumfire_socket::Wait::Gather(std::time::Duration::MAX));
        let direct = Error::from(refused.expect_err("far too long"));
        assert_eq!(direct.to_string(), "wait: gathers for 1 us to 10 ms");
        let mut group = drumfire_socket::GroupConfig::new("127.0.0.1:0".parse().unwrap());
        group.sockets = 0;
        let error = drumfire_socket::ReuseportGroup::bind(&group).err().expect("no sockets");
        assert_eq!(Error::from(error).to_string(), "sockets: must be 1 to 1024");
    }
}
