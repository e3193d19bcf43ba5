//! Why a server or a client could not be made, and what to do about it.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use super::entropy::EntropyError;

/// Why a server or a client could not be made.
#[non_exhaustive]
pub enum BindError {
    /// A setting cannot be used.
    Setting {
        /// Its field.
        field: &'static str,
        /// What is wrong with it, or what it must be.
        problem: &'static str,
    },
    /// Everybody knows the development key: use a key of your own, or bind to a loopback address with
    /// [`Access::Open`](crate::Access::Open).
    DevKey,
    /// A server with the development key can only be on a loopback address of this host.
    DevServer {
        /// The address given for the server.
        address: SocketAddr,
    },
    /// Somebody else has this port: another server, or this one from before.
    PortTaken {
        /// Where the server was to be.
        address: SocketAddr,
    },
    /// No interface of this host has this address.
    NotThisHost {
        /// Where the server was to be.
        address: SocketAddr,
    },
    /// The system does not let this program have this port.
    NotAllowed {
        /// Where the server was to be.
        address: SocketAddr,
    },
    /// The system has no randomness to give.
    Entropy(EntropyError),
    /// What the system answered beside, for example that no descriptors are left.
    Io(io::Error),
}

impl BindError {
    /// What it means that this address could not be bound.
    pub(crate) fn of_address(error: io::Error, address: SocketAddr) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::PortTaken { address },
            io::ErrorKind::AddrNotAvailable => Self::NotThisHost { address },
            io::ErrorKind::PermissionDenied => Self::NotAllowed { address },
            _ => error.into(),
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { field, problem } => write!(f, "{field}: {problem}"),
            Self::DevKey => f.write_str(
                "everybody knows the development key: use a key of your own, or bind to a loopback address in open access",
            ),
            Self::DevServer { address } => write!(
                f,
                "server: {address} cannot be a development server, which is on 127.0.0.1 or [::1] of the same host: give that server a key of its own, and use `connect`"
            ),
            Self::PortTaken { address } => write!(
                f,
                "address: somebody else has {address}: end that program, or take another port (0 takes a free one)"
            ),
            Self::NotThisHost { address } => write!(
                f,
                "address: {} is not an address of this host: take one that an interface has, or 0.0.0.0 or [::] for all",
                address.ip()
            ),
            Self::NotAllowed { address } => write!(
                f,
                "address: this program may not have port {}: take one from 1024 on, or give it the right to",
                address.port()
            ),
            Self::Entropy(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Entropy(error) => Some(error),
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

drumfire_proto::debug_with_display!(BindError);

impl From<EntropyError> for BindError {
    fn from(error: EntropyError) -> Self {
        Self::Entropy(error)
    }
}

impl From<io::Error> for BindError {
    /// A setting that was refused on the way to the system is named; all else is what the system answered.
    fn from(error: io::Error) -> Self {
        let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<drumfire_socket::ConfigError>());
        match refused {
            Some(refused) => refused.clone().into(),
            None => Self::Io(error),
        }
    }
}

impl From<drumfire_proto::ConfigError> for BindError {
    fn from(error: drumfire_proto::ConfigError) -> Self {
        Self::Setting { field: error.field, problem: error.must_be }
    }
}

impl From<drumfire_socket::ConfigError> for BindError {
    fn from(error: drumfire_socket::ConfigError) -> Self {
        Self::Setting { field: error.field(), problem: error.problem() }
    }
}

/// The reason why new settings were refused. The server keeps its present settings.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReconfigureError {
    /// A setting cannot be used.
    Setting {
        /// The field of the configuration.
        field: &'static str,
        /// The problem, or the values that the field may have.
        problem: &'static str,
    },
}

impl fmt::Display for ReconfigureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Setting { field, problem } = self;
        write!(f, "{field}: {problem}")
    }
}

impl std::error::Error for ReconfigureError {}

drumfire_proto::debug_with_display!(ReconfigureError);

impl From<drumfire_proto::ConfigError> for ReconfigureError {
    fn from(error: drumfire_proto::ConfigError) -> Self {
        Self::Setting { field: error.field, problem: error.must_be }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_of_an_address_is_told_apart() {
        let address: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let said = |kind: io::ErrorKind| BindError::of_address(kind.into(), address).to_string();
        assert!(said(io::ErrorKind::AddrInUse).contains("somebody else has 192.0.2.1:80"));
        assert!(said(io::ErrorKind::AddrNotAvailable).contains("192.0.2.1 is not an address of this host"));
        assert!(said(io::ErrorKind::PermissionDenied).contains("may not have port 80"));
        assert!(matches!(
            BindError::of_address(io::ErrorKind::OutOfMemory.into(), address),
            BindError::Io(error) if error.kind() == io::ErrorKind::OutOfMemory
        ));
    }

    #[test]
    fn a_setting_that_the_sockets_refuse_is_named_through_an_error_of_the_system_too() {
        let refused = drumfire_socket::Waiter::new(drumfire_socket::Wait::Gather(std::time::Duration::MAX));
        let direct = BindError::from(refused.expect_err("far too long"));
        assert_eq!(direct.to_string(), "wait: gathers for 1 us to 10 ms");
        let mut group = drumfire_socket::GroupConfig::new("127.0.0.1:0".parse().unwrap());
        group.sockets = 0;
        let error = drumfire_socket::ReuseportGroup::bind(&group).err().expect("no sockets");
        assert_eq!(BindError::from(error).to_string(), "sockets: must be 1 to 1024");
    }
}
