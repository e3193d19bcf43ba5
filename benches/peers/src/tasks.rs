//! The adapter of libraries on tokio. Both ends have a runtime on one thread and a task per connection. A client runs its tasks when it
//! is polled.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use drumfire_benches::roles::print_address;
use drumfire_benches::traffic::Client;
use drumfire_benches::{Counts, InputLines};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::adapter::{CHECK_INTERVAL, Served, line};

/// Messages of one connection that wait for its task.
const WAITING: usize = 1_024;

/// The number of times that a client runs its tasks when it is polled: once for the socket, and again for tasks that it woke.
const TURNS: usize = 4;

pub(crate) fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread().enable_all().build().map_err(line)
}

/// The counts of all tasks of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Rc<Cell<Served>>);

impl Tally {
    pub(crate) fn on_answer(&self, is_taken: bool) {
        let mut counts = self.0.get();
        counts.on_answer(is_taken);
        self.0.set(counts);
    }
}

/// Prints the address and runs the task that accepts connections, with the tasks that it spawns, until the standard input ends.
pub(crate) fn serve<F: Future<Output = ()> + 'static>(
    runtime: &Runtime,
    address: SocketAddr,
    accept: impl FnOnce(Tally) -> F,
) -> Result<Counts, String> {
    let (tasks, tally, input) = (LocalSet::new(), Tally::default(), InputLines::read());
    print_address(address)?;
    tasks.spawn_local(accept(tally.clone()));
    tasks.block_on(runtime, async {
        while !input.has_ended() {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    });
    Ok(tally.0.get().counts())
}

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

/// Passes what the task of a connection receives to the client.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    index: usize,
    inbox: SharedInbox,
}

impl Delivery {
    /// Reports that messages can be sent.
    pub(crate) fn on_ready(&self) {
        with(&self.inbox, |inbox| inbox.ready_count += 1);
    }

    pub(crate) fn on_message(&self, message: &[u8]) {
        with(&self.inbox, |inbox| inbox.messages.push_back((self.index, message.to_vec())));
    }
}

/// The connections of a client, each a task of one runtime.
#[derive(Debug)]
pub(crate) struct TaskClient {
    runtime: Runtime,
    inbox: SharedInbox,
    outboxes: Vec<mpsc::Sender<Vec<u8>>>,
}

impl TaskClient {
    pub(crate) fn new(runtime: Runtime) -> Self {
        Self { runtime, inbox: SharedInbox::default(), outboxes: Vec::new() }
    }

    /// Starts the task of one more connection. It receives its messages to send, and returns why the connection ended.
    pub(crate) fn spawn<F: Future<Output = String> + Send + 'static>(
        &mut self,
        task: impl FnOnce(Delivery, mpsc::Receiver<Vec<u8>>) -> F,
    ) {
        let (outbox, waiting) = mpsc::channel(WAITING);
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
