//! Plain UDP without connections, encryption, and reliable delivery. No library costs less. `raw mio` calls `recv_from` and `send_to` for
//! each datagram. `raw mmsg` calls `recvmmsg` and `sendmmsg` with the gathering waits of drumfire's workers.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_benches::traffic::Client;
use drumfire_benches::{Counts, PER_SOCKET, Pace, PlainDatagrams, RECEIVE_BUFFER_BYTES, Reply, serve_plain};

use crate::adapter::{DATAGRAMS_EACH, Library, Setup, gathered, version_of};

pub(crate) fn libraries() -> Vec<Library> {
    let raw = |name, gather_us| {
        let base = Library::new(name, "raw", serve, connect);
        Library {
            version: "-".to_owned(),
            setup: Setup { gather_us, ..Setup::default() },
            wait: if gather_us > 0 { gathered(gather_us) } else { base.wait.clone() },
            has_reliable: false,
            per_socket: PER_SOCKET,
            loses_only_datagrams: true,
            has_connections: false,
            ..base
        }
    };
    vec![
        Library { version: version_of("mio"), ..raw("raw mio", 0) },
        raw("raw mmsg, 250 us", 250),
        raw("raw mmsg, 1 ms", 1_000),
    ]
}

fn serve(setup: &Setup) -> Result<Counts, String> {
    let pace = match setup.gather_us {
        0 => Pace::OneByOne,
        micros => Pace::Batches(Some(Duration::from_micros(micros))),
    };
    serve_plain(pace, Reply::Repeated(setup.answer_bytes), RECEIVE_BUFFER_BYTES)
}

fn connect(server: SocketAddr, _: usize, _: &Setup) -> Result<Box<dyn Client>, String> {
    Ok(Box::new(PlainDatagrams::connect(server, PER_SOCKET, DATAGRAMS_EACH)?))
}
