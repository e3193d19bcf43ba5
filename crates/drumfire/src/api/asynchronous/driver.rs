//! The thread of a client. It does the I/O of one socket for all connections over it.

use std::sync::Arc;

use drumfire_proto::{CloseCode, SingleWorker};

use super::attempts::{Attempts, ConnectSender};
use crate::base::sync::WakeFlag;
use crate::config::connect::ConnectOptions;
use crate::worker::actions::Actions as _;
use crate::worker::pass::Worker;

/// The state of the thread.
pub(super) struct Driver {
    pub(super) worker: Box<Worker<SingleWorker>>,
    pub(super) attempts: Arc<Attempts>,
}

impl Driver {
    /// Drives the worker until `end` is set.
    pub(super) fn run(mut self, end: &WakeFlag) {
        while !end.is_set() && !self.worker.is_over() {
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
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;
    use crate::api::asynchronous::connection::Connection;
    use crate::api::asynchronous::inbox::InboxPoll;
    use crate::api::asynchronous::sink::{AcceptTarget, TaskSink};
    use crate::api::asynchronous::task_queues::TaskQueues;
    use crate::base::error::Error;
    use crate::config::client::ClientConfig;
    use crate::engine::client_worker;
    use crate::message::event::Event;
    use crate::worker::channel::WorkerChannel;
    use crate::worker::command::Command;
    use crate::{Access, Reconnect, Server, ServerConfig, ServerKey, Workers};

    /// A driver that runs only in the calls of the test, and its server.
    struct Bench {
        run: Driver,
        link: Arc<WorkerChannel>,
        server: Server,
    }

    type Answer = oneshot::Receiver<Result<Connection, Error>>;

    impl Bench {
        fn new(config: ClientConfig) -> Self {
            let address = "127.0.0.1:0".parse().unwrap();
            let server = ServerConfig::new(address, ServerKey::dev(), Access::Open).workers(Workers::Inline);
            let link = client_worker::channel(&config);
            let attempts = Arc::new(Attempts::default());
            let queues = Arc::new(TaskQueues::new(&link, config.receive_memory_bytes));
            let sink = TaskSink::new(queues, AcceptTarget::Client(Arc::clone(&attempts)));
            let (worker, _) = client_worker::worker(config, Box::new(sink), &link).unwrap();
            let run = Driver { worker, attempts };
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
