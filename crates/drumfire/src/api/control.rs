//! The local control socket: how `drumfire top` watches a running server and takes a hand in it (feature `control`).
//!
//! [`Control::listen`] opens a Unix domain socket at a path of the server's choice, for its own user alone (mode 0600), and
//! answers there on a thread of its own. It needs nothing of the game's loop but a [`Monitor`](crate::Monitor):
//!
//! ```
//! # use drumfire::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
//! let server = Server::bind(config.flight_recorder(true))?;
//! # let path = std::env::temp_dir().join(format!("drumfire-control-doc-{}", std::process::id()));
//! match control::Control::listen(&path, server.monitor()) {
//!     // It answers until it is dropped.
//!     Ok(control) => println!("drumfire top {}", control.path().display()),
//!     Err(error) => println!("no control socket: {error}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The protocol
//!
//! Who connected sends a [`Request`] and is sent one [`Reply`] to it, each as one line of JSON that ends with a newline. Both
//! carry the version, [`VERSION`]; a request of another version, or one that cannot be read, is answered with
//! [`Answer::Error`] and the connection ends.
//!
//! ```text
//! {"version":1,"ask":"snapshot","order":"round_trip","most":20}
//! {"version":1,"ask":"close","peer":"2.17.4711","text":"goodbye"}
//! {"version":1,"ask":"ban","peer":"2.17.4711","seconds":600}
//! {"version":1,"ask":"trace","peer":"2.17.4711"}
//! ```
//!
//! # What a bad client can do
//!
//! Whoever may open the file may close and ban, which is what it is for; nobody else gets in. A client that sends too long a
//! line ([`REQUEST_BYTES_MAX`]), does not read its answers, or says nothing for a minute is cut off; more than
//! [`CLIENTS_MAX`] are turned away. All of them share the one thread, and no worker waits for it.

mod client;
mod local;
mod message;
mod serve;
mod source;

pub use client::{AskError, Connection, OpenError};
pub use message::{
    ANSWER_BYTES_MAX, Answer, Ask, PeerRow, REQUEST_BYTES_MAX, Reply, Request, SNAPSHOT_PEERS_MAX, Snapshot,
    VERSION, WorkerRow,
};
pub use serve::{CLIENTS_MAX, Control};
pub use source::Source;
