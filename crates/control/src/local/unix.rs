//! Unix domain sockets.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

pub(crate) type Listener = mio::net::UnixListener;
pub(crate) type Stream = mio::net::UnixStream;
pub(crate) type PlainStream = std::os::unix::net::UnixStream;

/// Only the owner of the file can connect.
const MODE: u32 = 0o600;

/// The number of clients that can wait to be accepted.
const BACKLOG: i32 = 8;

/// The file of a socket. Dropping it removes the file.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The device and inode, which distinguish the file from a later one with the same name.
    file: (u64, u64),
}

/// Binds a socket to this path. Replaces a socket that a killed server left behind. Any other file stays, and the result is an
/// `AlreadyExists` error.
pub(crate) fn bind(path: &Path) -> io::Result<(Listener, SocketFile)> {
    clear(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let metadata = fs::symlink_metadata(path)?;
    let socket_file = SocketFile { path: path.to_owned(), file: (metadata.dev(), metadata.ino()) };
    // The permissions are set before the socket listens, so no other user can connect in between.
    fs::set_permissions(path, Permissions::from_mode(MODE))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok((Listener::from_std(socket.into()), socket_file))
}

pub(crate) fn connect(path: &Path) -> io::Result<PlainStream> {
    PlainStream::connect(path)
}

fn clear(path: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    let exists = |why| Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    if !metadata.file_type().is_socket() {
        return exists("the path is a file and not a socket");
    }
    match connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        _ => exists("another server listens on the path"),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let metadata = fs::symlink_metadata(&self.path);
        if metadata.is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.file) {
            // On an error the file stays, and the next server that binds the path replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}
