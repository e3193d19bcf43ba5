//! A client whose connections are tasks of one runtime, which run when the client is polled.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Runtime;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::client::Client;

/// Messages of one connection that wait for its task.
const WAITING: usize = 1_024;

/// The number of times that the tasks run when the client is polled: once for the sockets, and again for tasks that they woke.
const TURNS: usize = 4;

/// The messages and the state of all tasks of a client.
#[derive(Debug, Default)]
struct Inbox {
    ready_count: usize,
    messages: VecDeque<(usize, Vec<u8>)>,
    failure: Option<String>,
}

type SharedInbox = Arc<Mutex<Inbox>>;

fn with<T>(inbox: &SharedInbox, then: impl FnOnce(&mut Inbox) -> T) -> T {
    then(&mut inbox.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Passes the messages that the task of a connection receives to the client.
#[derive(Clone, Debug)]
pub struct Delivery {
    index: usize,
    inbox: SharedInbox,
}

impl Delivery {
    /// Reports that messages can be sent.
    pub fn on_ready(&self) {
        with(&self.inbox, |inbox| inbox.ready_count += 1);
    }

    /// Passes on a received message.
    pub fn on_message(&self, message: &[u8]) {
        with(&self.inbox, |inbox| inbox.messages.push_back((self.index, message.to_vec())));
    }
}

/// The connections of a client, each a task of one runtime.
#[derive(Debug)]
pub struct TaskClient {
    runtime: Runtime,
    inbox: SharedInbox,
    outboxes: Vec<Sender<Vec<u8>>>,
}

impl TaskClient {
    /// A client without connections. The runtime must have one thread.
    pub fn new(runtime: Runtime) -> Self {
        Self { runtime, inbox: SharedInbox::default(), outboxes: Vec::new() }
    }

    /// Starts the task of one more connection. It receives its messages to send, and returns why the connection ended.
    pub fn spawn<F: Future<Output = String> + Send + 'static>(
        &mut self,
        task: impl FnOnce(Delivery, Receiver<Vec<u8>>) -> F,
    ) {
        let (outbox, waiting) = channel(WAITING);
        let delivery = Delivery { index: self.outboxes.len(), inbox: Arc::clone(&self.inbox) };
        self.outboxes.push(outbox);
        let (inbox, task) = (Arc::clone(&self.inbox), task(delivery, waiting));
        self.runtime.spawn(async move {
            let failure = task.await;
            with(&inbox, |inbox| inbox.failure = Some(failure));
        });
    }

    /// Runs the tasks without waiting.
    fn turn(&self) {
        self.runtime.block_on(async {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        });
    }
}

impl Client for TaskClient {
    fn is_ready(&self) -> bool {
        with(&self.inbox, |inbox| inbox.ready_count) == self.outboxes.len()
    }

    fn receive(&mut self, _: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        self.turn();
        with(&self.inbox, |inbox| {
            inbox.messages.drain(..).for_each(|(index, message)| take(index, &message));
            inbox.failure.take().map_or(Ok(()), |line| Err(format!("a client: {line}")))
        })
    }

    fn send(&mut self, _: u64, index: usize, _: u8, message: &[u8]) -> Result<bool, String> {
        Ok(self.outboxes[index].try_send(message.to_vec()).is_ok())
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        self.turn();
        Ok(())
    }
}
