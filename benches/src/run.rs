//! One run: receiver threads in this process, the sender in a process of its own, both books compared.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use drumfire_tools::cli::{SENDER_MODE, SenderArgs, Target, Traffic};
use drumfire_tools::receiver::{Outcome, Plan, Station, Watch};

/// A receiver and what is sent to it.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The receiver.
    pub plan: Plan,
    /// The sender.
    pub traffic: Traffic,
}

/// Runs it.
///
/// # Errors
///
/// One line: what could not be bound, started or compared.
pub fn run(recipe: &Recipe) -> Result<Outcome, String> {
    run_with(recipe, |_| {})
}

/// Runs it; `on_ready` is called with the receiver's address once it is bound.
///
/// # Errors
///
/// As [`run`].
pub fn run_with(recipe: &Recipe, on_ready: impl FnOnce(SocketAddr)) -> Result<Outcome, String> {
    let station = Station::open(recipe.plan.clone()).map_err(|error| format!("the receiver: {error}"))?;
    let sender = Guest::start(station.address(), &recipe.traffic)?;
    on_ready(station.address());
    let sender = std::cell::RefCell::new(sender);
    let is_stopped = || sender.borrow_mut().has_failed();
    let mut watch = Watch { on_second: &mut |_| {}, on_note: &mut |_| {}, is_stopped: &is_stopped };
    station.serve(&mut watch).map_err(|error| error.to_string())
}

/// A sender's process; it does not outlive this value.
pub(crate) struct Guest(Child);

impl Guest {
    pub(crate) fn start(to: SocketAddr, traffic: &Traffic) -> Result<Self, String> {
        let args = SenderArgs { to: Target::from(to), traffic: traffic.clone(), json: None };
        let fail = |error: std::io::Error| format!("the sender cannot be started: {error}");
        let program = std::env::current_exe().map_err(fail)?;
        let child = Command::new(program)
            .arg(SENDER_MODE)
            .args(args.to_flags())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(fail)?;
        Ok(Self(child))
    }

    pub(crate) fn has_failed(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(status)) if !status.success())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Its books are compared by now: it ends by itself, or something went wrong and it must end.
        let deadline = drumfire_tools::clock::now() + Duration::from_secs(2);
        while matches!(self.0.try_wait(), Ok(None)) {
            if drumfire_tools::clock::now() >= deadline {
                let _ = self.0.kill();
            }
            drumfire_tools::clock::pause(Duration::from_millis(1));
        }
    }
}
