//! The thread of a client. It does the I/O of one socket for all connections over it, and ends when the last handle is dropped.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use drumfire_proto::{CloseCode, ConnectError, SingleWorker};
use drumfire_socket::SocketGrants;
use tokio::sync::oneshot;

use super::attempts::{Attempts, ConnectSender};
use super::connection::{ClientThread, Connection};
use super::sink::{AcceptTarget, TaskSink};
use super::task_queues::TaskQueues;
use crate::base::error::Error;
use crate::base::sync::{Mutex, WakeFlag, lock};
use crate::base::wake::Wake;
use crate::config::client::ClientConfig;
use crate::config::connect::ConnectOptions;
use crate::engine::{inline, invalidate};
use crate::observe::stats::WorkerStats;
use crate::worker::actions::Actions as _;
use crate::worker::channel::WorkerChannel;
use crate::worker::command::Command;
use crate::worker::live_links;
use crate::worker::pass::Worker;

/// A handle of the thread, which all connections over its socket hold.
#[derive(Debug)]
pub(super) struct ClientDriver {
    link: Arc<WorkerChannel>,
    attempts: Arc<Attempts>,
    /// Set when the thread must end.
    end: Arc<WakeFlag>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pub(super) granted: SocketGrants,
    /// Whether the socket has simulated links.
    has_links: bool,
}

impl ClientDriver {
    /// Creates a socket, and starts its thread.
    pub(super) fn start(config: ClientConfig) -> Result<Arc<Self>, Error> {
        let link = Arc::new(WorkerChannel::new(Arc::default()));
        link.observe();
        let (attempts, end) = (Arc::new(Attempts::default()), Arc::new(WakeFlag::default()));
        let queues = Arc::new(TaskQueues::new(&link, config.receive_memory_bytes));
        let sink = TaskSink::new(queues, AcceptTarget::Client(Arc::clone(&attempts)));
        let has_links = config.conditioner.is_some();
        let (worker, granted) = inline::worker(config, Box::new(sink), &link)?;
        let run =
            DriverLoop { worker: Box::new(worker), attempts: Arc::clone(&attempts), end: Arc::clone(&end) };
        let thread = std::thread::Builder::new().name("drumfire-client".into());
        let thread = Mutex::new(Some(thread.spawn(move || run.run())?));
        Ok(Arc::new(Self { link, attempts, end, thread, granted, has_links }))
    }

    /// Connects, and returns when the connection is established.
    pub(super) async fn connect(self: &Arc<Self>, options: ConnectOptions) -> Result<Connection, Error> {
        let (answer, receiver) = oneshot::channel();
        self.attempts.push_request(options, answer)?;
        self.link.notify_worker();
        match (PendingConnect { driver: self, receiver }).result().await {
            Ok(answer) => answer.map(|connection| connection.with_thread(Arc::<Self>::clone(self))),
            Err(_) => Err(ConnectError::Closed.into()),
        }
    }

    /// Invalidates the keys of all sessions over this socket, and waits until the thread has done so.
    pub(super) fn invalidate_keys(&self) -> Result<(), Error> {
        invalidate::request_and_wait(&self.link)
    }

    /// Replaces the socket, and waits until the thread has done so.
    pub(super) fn rebind(&self) -> Result<(), Error> {
        // A worker that has ended drops the command. The first result then remains.
        let ended = || Err(ConnectError::Closed.into());
        self.link.request(ended(), Command::Rebind).wait(Duration::MAX).unwrap_or_else(ended)
    }

    pub(super) fn stats(&self) -> WorkerStats {
        self.link.stats()
    }
}

/// A connect that has been requested. Dropping it ends its attempt, which then no longer counts against the maximum number of connections.
struct PendingConnect<'a> {
    driver: &'a ClientDriver,
    receiver: oneshot::Receiver<Result<Connection, Error>>,
}

impl PendingConnect<'_> {
    async fn result(mut self) -> Result<Result<Connection, Error>, oneshot::error::RecvError> {
        (&mut self.receiver).await
    }
}

impl Drop for PendingConnect<'_> {
    fn drop(&mut self) {
        if self.receiver.is_terminated() {
            return;
        }
        // The thread looks for senders whose receiver is closed, so the close comes first.
        self.receiver.close();
        self.driver.attempts.cancel();
        self.driver.link.notify_worker();
    }
}

impl ClientThread for ClientDriver {
    fn set_conditioner(&self, config: &crate::conditioner::LinkConfig) -> Result<(), Error> {
        live_links::request_change(std::slice::from_ref(&self.link), self.has_links, config)
    }
}

impl Drop for ClientDriver {
    fn drop(&mut self) {
        self.end.set();
        self.link.wake();
        let thread = lock(&self.thread).take();
        // A task that the thread itself has woken may drop the last handle. The thread then ends without a join.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct DriverLoop {
    worker: Box<Worker<SingleWorker>>,
    attempts: Arc<Attempts>,
    end: Arc<WakeFlag>,
}

impl DriverLoop {
    fn run(mut self) {
        while !self.end.is_set() && !self.worker.is_over() {
            self.worker.wait(None);
            self.worker.work();
            self.take_requests();
        }
        self.worker.finish(CloseCode::Application);
    }

    /// Carries out all requests. They are taken after the commands of a pass, so that a later request wakes the thread again.
    fn take_requests(&mut self) {
        while let Some((options, answer)) = self.attempts.next_request() {
            // An attempt that was canceled before this request no longer counts as a connection, so that the request can use its place.
            self.end_canceled();
            self.connect(&options, answer);
        }
        self.end_canceled();
    }

    /// Ends the attempts whose futures were dropped.
    fn end_canceled(&mut self) {
        for peer in self.attempts.take_canceled() {
            self.worker.close(peer, 0, "");
            self.worker.flush();
        }
    }

    /// Starts an attempt to connect, unless the caller has dropped its future.
    fn connect(&mut self, options: &ConnectOptions, answer: ConnectSender) {
        if answer.is_closed() {
            return;
        }
        // The task may have closed a connection after the commands were taken. That connection no longer counts either.
        self.worker.flush();
        match self.worker.connect(options) {
            Ok(peer) => {
                self.attempts.begin(peer, answer);
                self.worker.flush();
            }
            Err(error) => _ = answer.send(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::asynchronous::inbox::InboxPoll;
    use crate::message::event::Event;
    use crate::{Access, Reconnect, Server, ServerConfig, ServerKey, Workers};

    /// A driver that runs only in the calls of the test, and its server.
    struct Bench {
        run: DriverLoop,
        link: Arc<WorkerChannel>,
        server: Server,
    }

    type Answer = oneshot::Receiver<Result<Connection, Error>>;

    impl Bench {
        fn new(config: ClientConfig) -> Self {
            let address = "127.0.0.1:0".parse().unwrap();
            let server = ServerConfig::new(address, ServerKey::dev(), Access::Open).workers(Workers::Inline);
            let link = Arc::new(WorkerChannel::new(Arc::default()));
            let attempts = Arc::new(Attempts::default());
            let queues = Arc::new(TaskQueues::new(&link, config.receive_memory_bytes));
            let sink = TaskSink::new(queues, AcceptTarget::Client(Arc::clone(&attempts)));
            let (worker, _) = inline::worker(config, Box::new(sink), &link).unwrap();
            let run = DriverLoop { worker: Box::new(worker), attempts, end: Arc::default() };
            Self { run, link, server: Server::bind(server).unwrap() }
        }

        /// Requests a connection, as a task does.
        fn request(&self) -> Answer {
            let (answer, receiver) = oneshot::channel();
            let to = (self.server.local_addr(), ServerKey::dev().public());
            self.run.attempts.push_request(ConnectOptions::from(to), answer).unwrap();
            receiver
        }

        /// Runs both ends until the request is answered.
        fn connection(&mut self, mut receiver: Answer) -> Connection {
            for _ in 0..30_000 {
                self.run.worker.wait(Some(Duration::from_millis(1)));
                self.run.worker.work();
                self.run.take_requests();
                self.server.poll(Duration::from_millis(1));
                self.server.events().for_each(drop);
                if let Ok(answer) = receiver.try_recv() {
                    return answer.unwrap();
                }
            }
            panic!("no answer")
        }
    }

    #[test]
    fn a_connection_that_was_just_dropped_does_not_count() {
        let mut bench = Bench::new(ClientConfig::default());
        let receiver = bench.request();
        let connection = bench.connection(receiver);
        // The pass is over when the task drops its connection and connects again.
        drop(connection);
        let receiver = bench.request();
        bench.run.take_requests();
        let connection = bench.connection(receiver);
        assert_eq!(bench.run.worker.peers().len(), 1);
        drop(connection);
    }

    #[test]
    fn a_change_of_the_path_precedes_the_end_in_the_same_pass() {
        let mut bench =
            Bench::new(ClientConfig::default().reconnect(Reconnect::Within(Duration::from_secs(60))));
        let receiver = bench.request();
        let connection = bench.connection(receiver);
        let _closing = bench.server.control().shut_down_for_restart(Duration::ZERO);
        bench.server.poll(Duration::ZERO);
        // The close has arrived at the socket when the task replaces it.
        bench.run.worker.wait(Some(Duration::from_secs(10)));
        let _rebound = bench.link.request(Ok(()), Command::Rebind);
        bench.run.worker.work();
        let next = || connection.shared().take(false);
        assert!(matches!(next(), InboxPoll::Event(Event::PathChanged { .. })));
        assert!(matches!(next(), InboxPoll::Event(Event::Reconnecting { .. })));
    }
}
