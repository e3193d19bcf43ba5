//! The servers of libraries on tokio. Both ends have a runtime on one thread and a task per connection.

use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;

use drumfire_benches::roles::print_address;
use drumfire_benches::{Counts, InputLines, Served};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

use crate::adapter::{CHECK_INTERVAL, line};

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
