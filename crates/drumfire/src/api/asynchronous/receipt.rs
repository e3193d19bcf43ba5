//! The outcome of a message, for a task.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use drumfire_proto::Outcome;
use tokio::sync::oneshot;

/// The outcome of a message that was sent with a receipt, as a future.
///
/// It completes even after all handles of the connection were dropped. A message whose outcome is unknown when the connection ends is
/// [`Outcome::Lost`]. Awaiting `&mut receipt` is cancel-safe. Dropping it does not affect the message.
#[derive(Debug)]
pub struct Receipt(oneshot::Receiver<Outcome>);

impl Receipt {
    pub(super) const fn new(answer: oneshot::Receiver<Outcome>) -> Self {
        Self(answer)
    }
}

impl Future for Receipt {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        Pin::new(&mut self.0).poll(context).map(|outcome| outcome.unwrap_or(Outcome::Lost))
    }
}
