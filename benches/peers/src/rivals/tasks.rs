//! What rivals on tokio share: a current-thread runtime, a server whose connections are tasks of it, and a client that lets the
//! tasks of its connections run when it looks. No task knows the bench's clock.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use drumfire_benches::Counts;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::face::{Client, Ending, LOOK_UP, Served, line};

/// Messages of one connection that wait for its task.
const WAITING: usize = 1_024;

/// How often a client lets its tasks run when it looks: once to hear the socket, again for those that were woken by it.
const TURNS: usize = 4;

pub(super) fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread().enable_all().build().map_err(line)
}

/// What the tasks of a server count together.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally(Rc<Cell<Served>>);

impl Tally {
    /// Counts an answer.
    pub(super) fn on_answer(&self, is_taken: bool) {
        let mut counts = self.0.get();
        counts.on_answer(is_taken);
        self.0.set(counts);
    }
}

/// Runs the task that accepts connections, and those that it spawns beside it, until the ending comes; says what they counted.
pub(super) fn serve_until<F: Future<Output = ()> + 'static>(
    ending: &Ending,
    runtime: &Runtime,
    accept: impl FnOnce(Tally) -> F,
) -> Counts {
    let (tasks, tally) = (LocalSet::new(), Tally::default());
    tasks.spawn_local(accept(tally.clone()));
    tasks.block_on(runtime, async {
        while !ending.is_here() {
            tokio::time::sleep(LOOK_UP).await;
        }
    });
    tally.0.get().counts()
}

/// What the tasks of a client have for it.
#[derive(Debug, Default)]
struct Inbox {
    ready_count: usize,
    messages: VecDeque<(usize, Vec<u8>)>,
    failure: Option<String>,
}

type Shared = Arc<Mutex<Inbox>>;

fn with<T>(inbox: &Shared, then: impl FnOnce(&mut Inbox) -> T) -> T {
    then(&mut inbox.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Where the task of a connection leaves what it has for the client.
#[derive(Clone, Debug)]
pub(super) struct Ear {
    place: usize,
    inbox: Shared,
}

impl Ear {
    /// Messages can be sent.
    pub(super) fn on_ready(&self) {
        with(&self.inbox, |inbox| inbox.ready_count += 1);
    }

    /// A message came.
    pub(super) fn on_message(&self, message: &[u8]) {
        with(&self.inbox, |inbox| inbox.messages.push_back((self.place, message.to_vec())));
    }
}

/// The connections of a client, each a task of one runtime.
#[derive(Debug)]
pub(super) struct Crew {
    runtime: Runtime,
    inbox: Shared,
    outboxes: Vec<mpsc::Sender<Vec<u8>>>,
}

impl Crew {
    /// Nobody yet.
    pub(super) fn new(runtime: Runtime) -> Self {
        Self { runtime, inbox: Shared::default(), outboxes: Vec::new() }
    }

    /// Starts the task of one more connection, with where its messages go and where those to be sent come from. It answers why
    /// the connection ended.
    pub(super) fn spawn<F: Future<Output = String> + Send + 'static>(
        &mut self,
        task: impl FnOnce(Ear, mpsc::Receiver<Vec<u8>>) -> F,
    ) {
        let (outbox, waiting) = mpsc::channel(WAITING);
        let ear = Ear { place: self.outboxes.len(), inbox: Arc::clone(&self.inbox) };
        self.outboxes.push(outbox);
        let (inbox, task) = (Arc::clone(&self.inbox), task(ear, waiting));
        self.runtime.spawn(async move {
            let failure = task.await;
            with(&inbox, |inbox| inbox.failure = Some(failure));
        });
    }

    /// Lets the tasks run, without waiting.
    fn turn(&self) {
        self.runtime.block_on(async {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        });
    }
}

impl Client for Crew {
    fn is_ready(&self) -> bool {
        with(&self.inbox, |inbox| inbox.ready_count) == self.outboxes.len()
    }

    fn receive(&mut self, _: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
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
