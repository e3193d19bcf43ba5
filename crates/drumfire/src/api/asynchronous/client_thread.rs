//! The handle of a client's thread, which all connections over its socket hold. The thread ends when the last handle is dropped.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::base::error::Error;
use crate::base::sync::{Mutex, WakeFlag, lock};
use crate::base::wake::Wake;
use crate::conditioner::LinkConfig;
use crate::worker::channel::WorkerChannel;
use crate::worker::live_links;

/// A handle of the thread.
#[derive(Debug)]
pub(super) struct ClientThread {
    pub(super) link: Arc<WorkerChannel>,
    /// Set when the thread must end.
    end: Arc<WakeFlag>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Whether the socket has simulated links.
    has_links: bool,
}

impl ClientThread {
    /// Starts a thread, which runs until the flag that it receives is set.
    pub(super) fn start(
        link: Arc<WorkerChannel>,
        has_links: bool,
        run: impl FnOnce(&WakeFlag) + Send + 'static,
    ) -> Result<Arc<Self>, Error> {
        let end = Arc::new(WakeFlag::default());
        let of_thread = Arc::clone(&end);
        let thread = std::thread::Builder::new().name("drumfire-client".into());
        let thread = Mutex::new(Some(thread.spawn(move || run(&of_thread))?));
        Ok(Arc::new(Self { link, end, thread, has_links }))
    }

    /// Changes the simulated links of the socket.
    pub(super) fn set_conditioner(&self, config: &LinkConfig) -> Result<(), Error> {
        live_links::request_change(std::slice::from_ref(&self.link), self.has_links, config)
    }
}

impl Drop for ClientThread {
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
