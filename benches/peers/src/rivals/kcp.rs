//! `tokio_kcp`, which protects nothing and delivers reliably only. Settings: the library's fastest (no delay, a tick of 10 ms, resend
//! after two later acks, no congestion window), windows of 1,024, writes and acks flushed at once; a current-thread runtime on the
//! server's one core. KCP knows no handshake: each connection begins with an empty greeting, which is answered and not counted.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use drumfire_benches::Counts;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio_kcp::{KcpConfig, KcpListener, KcpNoDelayConfig, KcpStream};

use super::{Rival, Serve, version_of};
use crate::face::{
    Answers, Client, Ending, LOOK_UP, MESSAGE_MAX_BYTES, RECEIVE_BUFFER_BYTES, Served, Server, Setup, line,
    serve,
};

/// Connections of a client that share a runtime; each has a socket of its own.
const PER_RUNTIME: usize = 64;

const WINDOW: u16 = 1_024;

/// Messages of one connection that wait to be sent.
const WAITING: usize = 1_024;

/// How often a client lets its tasks run when it looks.
const TURNS: usize = 4;

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

fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread().enable_all().build().map_err(line)
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
        let served = Rc::<Cell<Served>>::default();
        let of_tasks = Rc::clone(&served);
        let tasks = LocalSet::new();
        tasks.spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::task::spawn_local(answer(stream, Answers::new(&answers), Rc::clone(&of_tasks)));
            }
        });
        tasks.block_on(&runtime, async {
            while !ending.is_here() {
                tokio::time::sleep(LOOK_UP).await;
            }
        });
        Ok(served.get().counts())
    }
}

async fn answer(mut stream: KcpStream, mut answers: Answers, served: Rc<Cell<Served>>) {
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
        let is_taken = stream.send(answers.to(message)).await.is_ok();
        let mut counts = served.get();
        counts.on_answer(is_taken);
        served.set(counts);
    }
}

/// What the tasks of a client have for it.
#[derive(Debug, Default)]
struct Inbox {
    ready_count: usize,
    messages: VecDeque<(usize, Vec<u8>)>,
    failure: Option<String>,
}

type Shared = Arc<Mutex<Inbox>>;

/// The connections of one runtime.
struct Connections {
    runtime: Runtime,
    inbox: Shared,
    outboxes: Vec<mpsc::Sender<Vec<u8>>>,
}

fn connect(server: SocketAddr, count: usize, _: &Setup) -> Result<Box<dyn Client>, String> {
    let (runtime, inbox) = (runtime()?, Shared::default());
    let mut outboxes = Vec::with_capacity(count);
    for place in 0..count {
        let (outbox, waiting) = mpsc::channel(WAITING);
        outboxes.push(outbox);
        let inbox = Arc::clone(&inbox);
        runtime.spawn(async move {
            let failure = match KcpStream::connect(&config(), server).await {
                Ok(stream) => talk(place, stream, &inbox, waiting).await,
                Err(error) => line(error),
            };
            with(&inbox, |inbox| inbox.failure = Some(failure));
        });
    }
    Ok(Box::new(Connections { runtime, inbox, outboxes }))
}

fn with<T>(inbox: &Shared, then: impl FnOnce(&mut Inbox) -> T) -> T {
    then(&mut inbox.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Hears and says until the connection ends, and answers why it did.
async fn talk(
    place: usize,
    mut stream: KcpStream,
    inbox: &Shared,
    mut waiting: mpsc::Receiver<Vec<u8>>,
) -> String {
    let mut buffer = [0; MESSAGE_MAX_BYTES];
    if let Err(error) = stream.send(GREETING).await {
        return line(error);
    }
    loop {
        tokio::select! {
            came = stream.recv(&mut buffer) => match came {
                Ok(length) if &buffer[..length] == GREETING => with(inbox, |inbox| inbox.ready_count += 1),
                Ok(length) => with(inbox, |inbox| inbox.messages.push_back((place, buffer[..length].to_vec()))),
                Err(error) => return line(error),
            },
            message = waiting.recv() => {
                let Some(message) = message else { return "the client ended".to_owned() };
                if let Err(error) = stream.send(&message).await {
                    return line(error);
                }
            }
        }
    }
}

impl Connections {
    /// Lets the tasks run, without waiting.
    fn turn(&self) {
        self.runtime.block_on(async {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        });
    }
}

impl Client for Connections {
    fn is_ready(&self) -> bool {
        with(&self.inbox, |inbox| inbox.ready_count) == self.outboxes.len()
    }

    fn poll(&mut self, _: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        self.turn();
        with(&self.inbox, |inbox| {
            inbox.messages.drain(..).for_each(|(place, message)| take(place, &message));
            inbox.failure.take().map_or(Ok(()), |line| Err(format!("a client: {line}")))
        })
    }

    fn send(&mut self, _: u64, place: usize, _: u8, message: &[u8]) -> Result<bool, String> {
        Ok(self.outboxes[place].try_send(message.to_vec()).is_ok())
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        self.turn();
        Ok(())
    }
}
