//! Where a server and its load run: apart, each on a core of its own.
//!
//! Nothing is pinned here, except a process by the core that its arguments name.

use std::fmt;

use drumfire_tools::host;

/// The cores of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// The server's; where it has several threads and there are more cores, it may use others too.
    pub server: usize,
    /// The load's.
    pub load: usize,
    /// What stands between the two: a third one where there is one, else the load's.
    pub between: usize,
    /// How many the process may use.
    pub count: usize,
}

impl Cores {
    /// The first that this process may use.
    ///
    /// # Errors
    ///
    /// One line, when there are fewer than two or the system does not tell.
    pub fn of_this_process() -> Result<Self, String> {
        Self::among(&host::allowed_cores().unwrap_or_default())
    }

    fn among(cores: &[usize]) -> Result<Self, String> {
        match *cores {
            [server, load, ref others @ ..] => {
                let between = others.first().copied().unwrap_or(load);
                Ok(Self { server, load, between, count: cores.len() })
            }
            _ => Err("this bench needs two cores that threads can be pinned to".to_owned()),
        }
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server to core {}, load to core {}", self.server, self.load)
    }
}

/// Pins this thread to a core, as a process's argument names it. Threads that are started later stay there too.
///
/// # Errors
///
/// One line: that it is no core, or what the system answered.
pub fn pin_to(core: &str) -> Result<(), String> {
    let number = core.parse().map_err(|_| format!("{core}: not a core"))?;
    host::pin_current_thread(number).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_load_never_share_a_core() {
        let cores = Cores::among(&[3, 5, 7]).expect("there are three");
        assert_eq!(cores, Cores { server: 3, load: 5, between: 7, count: 3 });
        assert_eq!(cores.to_string(), "server to core 3, load to core 5");
        assert_eq!(Cores::among(&[3, 5]), Ok(Cores { server: 3, load: 5, between: 5, count: 2 }));
        for few in [&[][..], &[3]] {
            assert!(Cores::among(few).is_err_and(|line| line.contains("two cores")));
        }
    }
}
