//! `tokio_kcp`: not encrypted, reliable messages only. Settings: the library's fastest, which are no delay, a tick of 10 ms, resend after
//! two later acks, and no congestion window. Windows are 1,024, writes and acks leave immediately, and the runtime has one thread. KCP has
//! neither a handshake nor keep-alives, so each connection begins with a greeting, which the client repeats as a keep-alive. The server
//! returns greetings and does not count them.

use std::net::SocketAddr;
use std::rc::Rc;

use drumfire_benches::traffic::Client;
use drumfire_benches::{Answers, Counts, Delivery, Served, TaskClient};
use tokio::sync::mpsc;
use tokio_kcp::{KcpConfig, KcpListener, KcpNoDelayConfig, KcpStream};

use crate::adapter::{KEEP_ALIVE, Library, MESSAGE_MAX_BYTES, Setup, bind, line, version_of};
use crate::tasks::{self, runtime};

/// Connections of a client that share a runtime. Each has its own socket.
const PER_RUNTIME: usize = 64;

const WINDOW: u16 = 1_024;

/// Shorter than any message.
const GREETING: &[u8] = b"hi";

pub(crate) fn libraries() -> Vec<Library> {
    vec![Library {
        version: version_of("tokio_kcp"),
        has_unreliable: false,
        per_socket: PER_RUNTIME,
        ..Library::new("tokio_kcp", "kcp", serve, connect)
    }]
}

fn config() -> KcpConfig {
    KcpConfig {
        nodelay: KcpNoDelayConfig::fastest(),
        wnd_size: (WINDOW, WINDOW),
        flush_write: true,
        flush_acks_input: true,
        ..KcpConfig::default()
    }
}

fn serve(setup: &Setup) -> Result<Counts, String> {
    let (runtime, answer_bytes) = (runtime()?, setup.answer_bytes);
    let mut listener = runtime.block_on(async {
        let socket = bind()?;
        socket.set_nonblocking(true).map_err(line)?;
        let socket = tokio::net::UdpSocket::from_std(socket).map_err(line)?;
        KcpListener::from_socket(config(), socket).await.map_err(line)
    })?;
    let address = listener.local_addr().map_err(line)?;
    tasks::serve(&runtime, address, |served| async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::task::spawn_local(answer(stream, answer_bytes, Rc::clone(&served)));
        }
    })
}

async fn answer(mut stream: KcpStream, answer_bytes: usize, served: Rc<Served>) {
    let (mut answers, mut buffer) = (Answers::default(), [0; MESSAGE_MAX_BYTES]);
    // The client reports a connection that ended.
    while let Ok(length) = stream.recv(&mut buffer).await {
        let message = &buffer[..length];
        if message != GREETING {
            served.on_echo(stream.send(answers.to(message, answer_bytes)).await.is_ok());
        } else if stream.send(message).await.is_err() {
            return;
        }
    }
}

fn connect(server: SocketAddr, count: usize, _: &Setup) -> Result<Box<dyn Client>, String> {
    let mut client = TaskClient::new(runtime()?);
    for _ in 0..count {
        client.spawn(|delivery, waiting| async move {
            match KcpStream::connect(&config(), server).await {
                Ok(stream) => run(stream, &delivery, waiting).await,
                Err(error) => line(error),
            }
        });
    }
    Ok(Box::new(client))
}

/// Receives and sends until the connection ends, and returns why it ended.
async fn run(mut stream: KcpStream, delivery: &Delivery, mut waiting: mpsc::Receiver<Vec<u8>>) -> String {
    let (mut buffer, mut is_ready) = ([0; MESSAGE_MAX_BYTES], false);
    // The first tick is immediate.
    let mut greetings = tokio::time::interval(KEEP_ALIVE);
    loop {
        let sent = tokio::select! {
            received = stream.recv(&mut buffer) => match received {
                Ok(length) if &buffer[..length] != GREETING => {
                    delivery.on_message(&buffer[..length]);
                    continue;
                }
                Ok(_) => {
                    if !std::mem::replace(&mut is_ready, true) {
                        delivery.on_ready();
                    }
                    continue;
                }
                Err(error) => return line(error),
            },
            _ = greetings.tick() => stream.send(GREETING).await,
            message = waiting.recv() => match message {
                Some(message) => stream.send(&message).await,
                None => return "the client ended".to_owned(),
            },
        };
        if let Err(error) = sent {
            return line(error);
        }
    }
}
