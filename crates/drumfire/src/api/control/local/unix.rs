//! Unix domain sockets.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

pub(in crate::api::control) type Listener = mio::net::UnixListener;
pub(in crate::api::control) type Stream = mio::net::UnixStream;
pub(in crate::api::control) type PlainStream = std::os::unix::net::UnixStream;

/// Its owner alone may connect.
const MODE: u32 = 0o600;

/// Clients that wait to be taken.
const BACKLOG: i32 = 8;

/// The file of a socket, which goes with this.
pub(in crate::api::control) struct Place {
    path: PathBuf,
    /// Device and number, by which another file of the same name is told apart.
    file: (u64, u64),
}

/// Binds a socket there. A file that a server left behind when it was killed is taken away; any other stays, and that is an error.
pub(in crate::api::control) fn bind(path: &Path) -> io::Result<(Listener, Place)> {
    clear(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let metadata = fs::symlink_metadata(path)?;
    let place = Place { path: path.to_owned(), file: (metadata.dev(), metadata.ino()) };
    // Before it listens, so that nobody gets in between.
    fs::set_permissions(path, Permissions::from_mode(MODE))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok((Listener::from_std(socket.into()), place))
}

pub(in crate::api::control) fn connect(path: &Path) -> io::Result<PlainStream> {
    PlainStream::connect(path)
}

fn clear(path: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    let exists = |why| Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    if !metadata.file_type().is_socket() {
        return exists("a file that is no socket is there");
    }
    match connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        _ => exists("another server answers there"),
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path);
        if there.is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.file) {
            // What cannot be taken away is taken away by who binds next.
            let _ = fs::remove_file(&self.path);
        }
    }
}
