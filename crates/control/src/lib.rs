//! The local control socket of a drumfire server.
//!
//! [`ControlSocket::listen`] opens a Unix domain socket that only the user of the server can connect to (mode 0600). A thread of
//! its own serves it. `drumfire top` is such a client, and [`Connection`] is for others.
//!
//! ```
//! # use drumfire::{Access, Server, ServerConfig, ServerKey};
//! use drumfire_control::ControlSocket;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
//! let server = Server::bind(config.flight_recorder(true))?;
//! # let path = std::env::temp_dir().join(format!("drumfire-control-doc-{}", std::process::id()));
//! match ControlSocket::listen(&path, server.control()) {
//!     // The socket serves clients until it is dropped.
//!     Ok(socket) => println!("drumfire top {}", socket.path().display()),
//!     Err(error) => println!("no control socket: {error}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Protocol
//!
//! A client sends a [`Request`] and receives one [`ResponseMessage`] to it. Each is one line of JSON that ends with a newline, and both
//! contain the [`VERSION`] of the protocol. The server answers a request of another version, or one that it cannot parse, with
//! [`Response::Error`] and closes the connection.
//!
//! ```text
//! {"version":1,"command":"snapshot","order":"round_trip","limit":20}
//! {"version":1,"command":"close","peer":"2.17.4711","text":"goodbye"}
//! {"version":1,"command":"ban","peer":"2.17.4711","seconds":600}
//! {"version":1,"command":"trace","peer":"2.17.4711"}
//! ```
//!
//! # Security
//!
//! Every process that can open the socket can close connections and ban peers. The permissions of the file are the only access
//! control. The server disconnects a client that sends a line longer than [`REQUEST_BYTES_MAX`], that does not read its responses, or
//! that is idle for a minute. It rejects further clients while [`CLIENTS_MAX`] are connected. All clients share one thread, and no
//! worker waits for it.
#![forbid(unsafe_code)]

mod client;
mod local;
mod message;
mod server;
mod source;

pub use client::{Connection, OpenError, RequestError};
pub use message::{
    Command, PeerRow, REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX, Request, Response, ResponseMessage,
    SNAPSHOT_PEERS_MAX, Snapshot, VERSION, WorkerRow,
};
pub use server::{CLIENTS_MAX, ControlSocket};
pub use source::Source;
