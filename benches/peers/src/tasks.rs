//! The servers of libraries on tokio. Both ends have a runtime on one thread and a task per connection.

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

/// Prints the address and runs the task that accepts connections, with the tasks that it spawns, until the standard input ends.
pub(crate) fn serve<F: Future<Output = ()> + 'static>(
    runtime: &Runtime,
    address: SocketAddr,
    accept: impl FnOnce(Rc<Served>) -> F,
) -> Result<Counts, String> {
    let (tasks, served, input) = (LocalSet::new(), Rc::<Served>::default(), InputLines::read());
    print_address(address)?;
    tasks.spawn_local(accept(Rc::clone(&served)));
    tasks.block_on(runtime, async {
        while !input.has_ended() {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    });
    Ok(served.counts())
}
