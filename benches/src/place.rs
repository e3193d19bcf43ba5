//! Where a server and its load run: each on a core of its own.
//!
//! Nothing is pinned here; the two ends do that to themselves.

use std::time::Duration;

use drumfire_tools::host;

/// The two cores, and how long a round counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The server's core.
    pub server_core: usize,
    /// The core of the load.
    pub client_core: usize,
    /// How long a round counts.
    pub counted: Duration,
}

impl Place {
    /// The first two cores that this process may use.
    ///
    /// # Errors
    ///
    /// One line, when there are fewer or the system does not tell.
    pub fn of_this_machine(counted: Duration) -> Result<Self, String> {
        Self::among(&host::allowed_cores().unwrap_or_default(), counted)
    }

    fn among(cores: &[usize], counted: Duration) -> Result<Self, String> {
        match cores {
            [server_core, client_core, ..] => {
                Ok(Self { server_core: *server_core, client_core: *client_core, counted })
            }
            _ => Err("this bench needs two cores that threads can be pinned to".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_load_never_share_a_core() {
        let counted = Duration::from_secs(1);
        let place = Place::among(&[3, 5, 7], counted).expect("there are three");
        assert_eq!((place.server_core, place.client_core, place.counted), (3, 5, counted));
        for few in [&[][..], &[3]] {
            assert!(Place::among(few, counted).is_err_and(|line| line.contains("two cores")));
        }
    }
}
