//! A client as the boundary keeps it: with the events that were not taken yet, and the memory of the one that was shown last.
//!
//! It knows no handle, no thread and no pointer.

use std::time::Duration;

use drumfire::{Bytes, Client, ClientEvent, Events, PeerStats};

use crate::error::Failure;
use crate::event::{DrumfireEvent, DrumfireEventKind, shaped};

/// A client and what is on its way to the caller.
pub(crate) struct Held {
    pub(crate) client: Client,
    events: Option<Events<ClientEvent>>,
    /// Was shown to a caller whose buffer was too small.
    again: Option<ClientEvent>,
    /// What the event that was given out last leads to.
    shown: Bytes,
    /// The newest that came.
    pub(crate) measured: Option<Box<PeerStats>>,
}

impl Held {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, events: None, again: None, shown: Bytes::new(), measured: None }
    }

    /// Does the I/O, until there are events or for `timeout`. What was not taken stays first.
    pub(crate) fn poll(&mut self, timeout: Duration) {
        let has_some = self.again.is_some();
        // What it holds goes back to where the next comes from.
        self.events = None;
        self.shown = Bytes::new();
        if !timeout.is_zero() && !has_some {
            self.client.wait(timeout);
        }
        self.events = Some(self.client.poll());
    }

    /// The next event, with bytes that stay until the next call of this or of `poll`.
    pub(crate) fn receive(&mut self) -> DrumfireEvent {
        let (mut event, bytes) = match self.next() {
            Some(event) => shaped(&event),
            None => (DrumfireEvent::new(DrumfireEventKind::None), Bytes::new()),
        };
        self.shown = bytes;
        event.bytes_count = self.shown.len();
        if event.bytes_count != 0 {
            event.bytes = self.shown.as_ptr();
        }
        event
    }

    /// The next event, once `copy` took its bytes; else it comes again. The event says how many bytes there are either way.
    pub(crate) fn receive_into(
        &mut self,
        copy: impl FnOnce(&[u8]) -> Result<(), Failure>,
    ) -> (DrumfireEvent, Result<(), Failure>) {
        self.shown = Bytes::new();
        let Some(next) = self.next() else {
            return (DrumfireEvent::new(DrumfireEventKind::None), Ok(()));
        };
        let (mut event, bytes) = shaped(&next);
        event.bytes_count = bytes.len();
        let copied = copy(&bytes);
        if copied.is_err() {
            self.again = Some(next);
        }
        (event, copied)
    }

    fn next(&mut self) -> Option<ClientEvent> {
        if let Some(event) = self.again.take() {
            return Some(event);
        }
        loop {
            match self.events.as_mut()?.next()? {
                ClientEvent::Stats { stats } => self.measured = Some(stats),
                event => return Some(event),
            }
        }
    }
}
