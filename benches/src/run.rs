//! One run: receiver threads in this process, the sender in a process of its own, both books compared.

use std::net::SocketAddr;

use drumfire_tools::cli::{SenderArgs, Target, Traffic};
use drumfire_tools::program::SenderProcess;
use drumfire_tools::receiver::{BoundReceiver, Observer, Outcome, Plan};

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
    let receiver =
        BoundReceiver::open(recipe.plan.clone()).map_err(|error| format!("the receiver: {error}"))?;
    let sender = start_sender(receiver.address(), &recipe.traffic)?;
    on_ready(receiver.address());
    let is_stopped = || sender.has_failed();
    let mut observer = Observer { on_second: &mut |_| {}, on_note: &mut |_| {}, is_stopped: &is_stopped };
    let outcome = receiver.serve(&mut observer).map_err(|error| error.to_string())?;
    sender.finish().map_err(|error| error.to_string())?;
    Ok(outcome)
}

/// Starts the sender that a receiver at this address waits for.
pub(crate) fn start_sender(to: SocketAddr, traffic: &Traffic) -> Result<SenderProcess, String> {
    let args = SenderArgs { to: Target::from(to), traffic: traffic.clone(), json: None };
    SenderProcess::start(&args).map_err(|error| format!("the sender cannot be started: {error}"))
}
