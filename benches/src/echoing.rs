//! A handler that sends every message back to whom it came from, and counts what came of it: the server of several benches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use drumfire::{ChannelId, Context, Handler, PeerId, SendOptions};

/// What an echo counted. Who reads it meanwhile may find a message that is received and neither answered nor refused yet.
#[derive(Debug, Default)]
pub struct EchoTally {
    received: AtomicU64,
    echoed: AtomicU64,
    refused: AtomicU64,
}

impl EchoTally {
    /// A message came.
    pub fn on_received(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    /// Its answer was taken, or refused for want of room.
    pub fn on_answer(&self, is_taken: bool) {
        let count = if is_taken { &self.echoed } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Messages that came.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Answers that were taken.
    #[must_use]
    pub fn echoed(&self) -> u64 {
        self.echoed.load(Ordering::Relaxed)
    }

    /// Answers that were refused, for want of room.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Answers where the message came in.
#[derive(Debug)]
pub struct EchoHandler {
    tally: Arc<EchoTally>,
    options: SendOptions,
}

impl EchoHandler {
    /// One that sends its answers with these options.
    #[must_use]
    pub fn new(tally: &Arc<EchoTally>, options: SendOptions) -> Self {
        Self { tally: Arc::clone(tally), options }
    }
}

impl Handler for EchoHandler {
    type Note = ();

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        self.tally.on_received();
        self.tally.on_answer(context.send(peer, channel, bytes, self.options).is_ok());
    }
}
