//! nbio over WebSocket and TCP, not encrypted. The server is a Go program (`../go/nbio`) that answers in its event loop, with one
//! processor for its one core. The client is tungstenite on non-blocking sockets with TCP_NODELAY, of which 16 share a poll. A silent
//! client sends pings.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use drumfire_benches::traffic::Client;
use drumfire_benches::{Counts, PER_SOCKET, nbio};

use crate::adapter::{KEEP_ALIVE, Library, Setup, line, program};

/// The name of the server in Go.
const PROGRAM: &str = "nbio-server";

pub(crate) fn libraries() -> Vec<Library> {
    vec![Library {
        has_unreliable: false,
        has_one_thread: false,
        is_udp: false,
        per_socket: PER_SOCKET,
        build: Some(|| nbio::build(&program(PROGRAM)?).map(|()| nbio::version().to_owned())),
        ..Library::new("nbio, WebSocket", "nbio", serve, connect)
    }]
}

/// Replaces this process by the server in Go, which keeps its core and its pipes.
fn serve(setup: &Setup) -> Result<Counts, String> {
    Err(line(Command::new(program(PROGRAM)?).args(nbio::for_one_core(setup.answer_bytes)).exec()))
}

fn connect(server: SocketAddr, count: usize, _: &Setup) -> Result<Box<dyn Client>, String> {
    Ok(Box::new(nbio::WebSockets::connect(server, count, Some(KEEP_ALIVE))?))
}
