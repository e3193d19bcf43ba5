//! Where a server and its load run: apart, each on a core of its own.

use drumfire_tools::host;

/// The cores of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// The server's; where it has several threads and there are more cores, it may use others too.
    pub server: usize,
    /// The load's.
    pub load: usize,
    /// How many the process may use.
    pub count: usize,
}

impl Cores {
    /// The first two that this process may use.
    ///
    /// # Errors
    ///
    /// One line, where there are no two.
    pub fn of_this_process() -> Result<Self, String> {
        let cores = host::allowed_cores().unwrap_or_default();
        match cores.as_slice() {
            [server, load, ..] => Ok(Self { server: *server, load: *load, count: cores.len() }),
            _ => Err("this bench needs two cores that threads can be pinned to".to_owned()),
        }
    }
}
