//! The thread behind clients: it does the I/O of one socket for all connections over it, and ends with the last of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use drumfire_proto::{ClientConfig as CoreClient, CloseCode, Config, ConnectError, PeerId, SingleWorker};
use tokio::sync::oneshot;

use super::attempts::{Attempts, DriverRequest};
use super::connection::{ClientThread, Connection};
use super::sink::{AcceptTarget, TaskSink};
use super::task_queues::TaskQueues;
use crate::base::error::Error;
use crate::base::peer_map::PeerMap;
use crate::base::sync::{Mutex, Notifier, WakeFlag, lock};
use crate::base::wake::Wake;
use crate::config::connect::ConnectOptions;
use crate::credentials::connect_token::ConnectToken;
use crate::credentials::keys::ServerPublicKey;
use crate::engine::client_socket::ClientSocket;
use crate::engine::{inline, invalidate};
use crate::observe::grants::SocketGrants;
use crate::observe::stats::WorkerStats;
use crate::worker::channel::WorkerChannel;
use crate::worker::forward::forward_queues;
use crate::worker::pass::Worker;

/// A hand on the thread, held by all connections over its socket.
pub(super) struct ClientDriver {
    link: Arc<WorkerChannel>,
    attempts: Arc<Attempts>,
    /// That the thread is to end.
    end: Arc<WakeFlag>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pub(super) granted: SocketGrants,
}

impl ClientDriver {
    /// Goes to work on this socket, on a thread of its own.
    pub(super) fn start(
        socket: ClientSocket,
        core: Config,
        kind: CoreClient,
        protocol_id: u64,
    ) -> Result<Arc<Self>, Error> {
        let link = Arc::new(WorkerChannel::new(Arc::new(Notifier::default())));
        let (attempts, end) = (Arc::new(Attempts::default()), Arc::new(WakeFlag::default()));
        let queues = Arc::new(TaskQueues::new(&link, core.receive_memory_bytes));
        let sink = TaskSink::new(queues, AcceptTarget::Client(Arc::clone(&attempts)));
        // One link has one ring.
        let ring = forward_queues(std::slice::from_ref(&link)).pop();
        let ring = ring.ok_or_else(|| Error::Io(std::io::ErrorKind::Other.into()))?;
        let is_alone = socket.is_connected;
        let (worker, granted) = inline::worker(socket, core, kind, Box::new(sink), &link, ring)?;
        let run = DriverLoop {
            worker: Box::new(worker),
            attempts: Arc::clone(&attempts),
            end: Arc::clone(&end),
            targets: PeerMap::default(),
            protocol_id,
            is_alone,
            kept: None,
        };
        let thread = std::thread::Builder::new().name("drumfire-client".into());
        let thread = Mutex::new(Some(thread.spawn(move || run.run())?));
        Ok(Arc::new(Self { link, attempts, end, thread, granted }))
    }

    /// Connects, and returns when the connection is established.
    pub(super) async fn connect(
        self: &Arc<Self>,
        options: ConnectOptions,
    ) -> Result<Connection, ConnectError> {
        let (answer, answered) = oneshot::channel();
        let request = DriverRequest::Connect { options: Box::new(options), answer };
        if !self.attempts.ask(request) {
            return Err(ConnectError::TooManyConnections);
        }
        self.link.nudge();
        match answered.await {
            Ok(answer) => answer.map(|connection| connection.with_thread(Arc::<Self>::clone(self))),
            Err(_) => Err(ConnectError::Closed),
        }
    }

    /// Forgets the keys of all sessions over this socket, by the time it returns.
    pub(super) fn invalidate_keys(&self) -> Result<(), Error> {
        invalidate::at(&self.link)
    }

    pub(super) fn stats(&self) -> WorkerStats {
        self.link.stats()
    }
}

impl ClientThread for ClientDriver {
    fn request_resume_token(&self, peer: PeerId) -> Option<oneshot::Receiver<Option<ConnectToken>>> {
        let (answer, answered) = oneshot::channel();
        if !self.attempts.ask(DriverRequest::Resume { peer, answer }) {
            return None;
        }
        self.link.nudge();
        Some(answered)
    }
}

impl Drop for ClientDriver {
    fn drop(&mut self) {
        self.end.set();
        self.link.wake();
        let thread = lock(&self.thread).take();
        // The last handle may be dropped by a task that the thread itself has woken; it ends without being waited for then.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // One that panicked has nothing more to end.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for ClientDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientDriver").finish_non_exhaustive()
    }
}

/// What the thread has.
struct DriverLoop {
    worker: Box<Worker<SingleWorker>>,
    attempts: Arc<Attempts>,
    end: Arc<WakeFlag>,
    targets: PeerMap<(SocketAddr, ServerPublicKey)>,
    protocol_id: u64,
    /// There is one connection and never another.
    is_alone: bool,
    /// What lets it come back, because that is wanted when the connection is gone.
    kept: Option<ConnectToken>,
}

impl DriverLoop {
    fn run(mut self) {
        while !self.end.is_set() && !self.worker.is_over() {
            self.worker.wait(None);
            self.worker.work();
            // Behind the commands, so that what is asked for from here on wakes the thread again.
            while let Some(request) = self.attempts.next_request() {
                self.carry_out(request);
            }
            if self.is_alone {
                self.keep_token();
            }
        }
        self.worker.finish(CloseCode::Application);
    }

    fn carry_out(&mut self, request: DriverRequest) {
        match request {
            DriverRequest::Connect { options, answer } => {
                // Nobody waits for it any more.
                if answer.is_closed() {
                    return;
                }
                match self.worker.connect(&options.request(Duration::ZERO)) {
                    Ok((peer, _)) => {
                        self.targets.insert(peer, (options.server, options.key));
                        self.attempts.begin(peer, answer);
                        self.worker.send();
                    }
                    Err(error) => {
                        let _ = answer.send(Err(error));
                    }
                }
            }
            DriverRequest::Resume { peer, answer } => {
                let token = self.token(peer).or_else(|| self.kept.clone());
                let _ = answer.send(token);
            }
        }
    }

    fn token(&self, peer: PeerId) -> Option<ConnectToken> {
        let (issued, expires_at) = self.worker.resume_token(peer)?;
        let &(address, server) = self.targets.get(peer)?;
        let issued = issued.duplicate();
        Some(ConnectToken { address, server, protocol_id: self.protocol_id, expires_at, issued })
    }

    fn keep_token(&mut self) {
        let peer = self.targets.iter().map(|(peer, _)| *peer).last();
        let issued = peer.and_then(|peer| self.worker.resume_token(peer)).map(|(issued, _)| issued);
        if let (Some(peer), Some(issued)) = (peer, issued)
            && self.kept.as_ref().is_none_or(|kept| kept.issued() != issued)
        {
            self.kept = self.token(peer);
        }
    }
}
