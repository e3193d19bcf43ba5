//! `tokio_kcp`, which protects nothing and delivers reliably only. Settings: the library's fastest (no delay, a tick of 10 ms,
//! resend after two later acks, no congestion window), windows of 1,024, writes and acks flushed at once; a current-thread runtime
//! on the server's one core. KCP knows no handshake and no keep-alive: each connection begins with a greeting, which is answered
//! and not counted, and the client says it again now and then.

use std::net::{Ipv4Addr, SocketAddr};

use drumfire_benches::Counts;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_kcp::{KcpConfig, KcpListener, KcpNoDelayConfig, KcpStream};

use super::tasks::{Crew, Ear, Tally, runtime, serve_until};
use super::{Rival, Serve, version_of};
use crate::face::{
    Answers, Client, Ending, KEEP_ALIVE, MESSAGE_MAX_BYTES, RECEIVE_BUFFER_BYTES, Server, Setup, line, serve,
};

/// Connections of a client that share a runtime; each has a socket of its own.
const PER_RUNTIME: usize = 64;

const WINDOW: u16 = 1_024;

/// Shorter than any message of the bench.
const GREETING: &[u8] = b"hi";

pub(super) fn rivals() -> Vec<Rival> {
    vec![Rival {
        version: version_of("tokio_kcp"),
        has_unreliable: false,
        per_socket: PER_RUNTIME,
        ..Rival::new("tokio_kcp", "kcp", Serve::Here(serve::<Tasks>), connect)
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

/// The server: a task for each connection, beside those of the library.
struct Tasks {
    runtime: Runtime,
    listener: KcpListener,
    answers: Setup,
}

impl Server for Tasks {
    fn bind(setup: &Setup) -> Result<Self, String> {
        let runtime = runtime()?;
        let listener = runtime.block_on(async {
            let socket = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(line)?;
            socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES).map_err(line)?;
            KcpListener::from_socket(config(), socket).await.map_err(line)
        })?;
        Ok(Self { runtime, listener, answers: *setup })
    }

    fn address(&self) -> Result<SocketAddr, String> {
        self.listener.local_addr().map_err(line)
    }

    fn echo(self, ending: &Ending) -> Result<Counts, String> {
        let Self { runtime, mut listener, answers } = self;
        Ok(serve_until(ending, &runtime, |tally| async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::task::spawn_local(answer(stream, Answers::new(&answers), tally.clone()));
            }
        }))
    }
}

async fn answer(mut stream: KcpStream, mut answers: Answers, tally: Tally) {
    let mut buffer = [0; MESSAGE_MAX_BYTES];
    // A connection that ends is the client's to tell.
    while let Ok(length) = stream.recv(&mut buffer).await {
        let message = &buffer[..length];
        if message == GREETING {
            if stream.send(message).await.is_err() {
                return;
            }
            continue;
        }
        tally.on_answer(stream.send(answers.to(message)).await.is_ok());
    }
}

fn connect(server: SocketAddr, count: usize, _: &Setup) -> Result<Box<dyn Client>, String> {
    let mut crew = Crew::new(runtime()?);
    for _ in 0..count {
        crew.spawn(|ear, waiting| async move {
            match KcpStream::connect(&config(), server).await {
                Ok(stream) => talk(stream, &ear, waiting).await,
                Err(error) => line(error),
            }
        });
    }
    Ok(Box::new(crew))
}

/// Hears and says until the connection ends, and answers why it did.
async fn talk(mut stream: KcpStream, ear: &Ear, mut waiting: mpsc::Receiver<Vec<u8>>) -> String {
    let (mut buffer, mut is_ready) = ([0; MESSAGE_MAX_BYTES], false);
    // The first is at once.
    let mut greetings = tokio::time::interval(KEEP_ALIVE);
    loop {
        tokio::select! {
            came = stream.recv(&mut buffer) => match came {
                Ok(length) if &buffer[..length] != GREETING => ear.on_message(&buffer[..length]),
                Ok(_) if !is_ready => {
                    is_ready = true;
                    ear.on_ready();
                }
                Ok(_) => {}
                Err(error) => return line(error),
            },
            _ = greetings.tick() => {
                if let Err(error) = stream.send(GREETING).await {
                    return line(error);
                }
            }
            message = waiting.recv() => {
                let Some(message) = message else { return "the client ended".to_owned() };
                if let Err(error) = stream.send(&message).await {
                    return line(error);
                }
            }
        }
    }
}
