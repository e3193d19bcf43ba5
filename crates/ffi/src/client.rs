//! A client with the bytes that the application borrows.

use std::time::Duration;

use drumfire::{Bytes, Client, Event, PeerId, PeerStats};

use crate::error::Failure;
use crate::event::{DrumfireEvent, DrumfireEventKind, to_c_event};
use crate::stats::DrumfireState;

/// A client, its only connection, and the bytes that the application borrows.
pub(crate) struct BufferedClient {
    pub(crate) inner: Client,
    /// The id of the connection, also after its end.
    pub(crate) peer: PeerId,
    /// The state of the connection as of the last event that the application took.
    pub(crate) state: DrumfireState,
    /// An event that did not fit the buffer of `receive_into`. It is the next event.
    deferred: Option<Event>,
    /// The bytes of the last event from `receive`. The application has a pointer to them.
    borrowed: Bytes,
    /// The newest measurement of the path.
    pub(crate) path_stats: Option<Box<PeerStats>>,
}

impl BufferedClient {
    pub(crate) fn new(inner: Client, peer: PeerId) -> Self {
        let state = DrumfireState::Connecting;
        Self { inner, peer, state, deferred: None, borrowed: Bytes::new(), path_stats: None }
    }

    /// Does the I/O and waits up to `timeout` for an event. A deferred event stays first.
    pub(crate) fn poll(&mut self, timeout: Duration) {
        // Dropping them returns their memory to the client before it allocates more.
        self.borrowed = Bytes::new();
        self.inner.poll(if self.deferred.is_none() { timeout } else { Duration::ZERO });
    }

    /// Returns the next event. Its bytes are valid until the next call of a receive function or of `poll`.
    pub(crate) fn receive(&mut self) -> DrumfireEvent {
        let (mut event, bytes) = match self.next() {
            Some(event) => {
                self.on_taken(&event);
                to_c_event(&event)
            }
            None => (DrumfireEvent::new(DrumfireEventKind::None), Bytes::new()),
        };
        self.borrowed = bytes;
        event.bytes_count = self.borrowed.len();
        if event.bytes_count != 0 {
            event.bytes = self.borrowed.as_ptr();
        }
        event
    }

    /// Returns the next event after `copy` copied its bytes. If `copy` fails, the event is deferred.
    ///
    /// The event contains the number of bytes in both cases.
    pub(crate) fn receive_into(
        &mut self,
        copy: impl FnOnce(&[u8]) -> Result<(), Failure>,
    ) -> (DrumfireEvent, Result<(), Failure>) {
        self.borrowed = Bytes::new();
        let Some(next) = self.next() else {
            return (DrumfireEvent::new(DrumfireEventKind::None), Ok(()));
        };
        let (mut event, bytes) = to_c_event(&next);
        event.bytes_count = bytes.len();
        let copied = copy(&bytes);
        match copied {
            Ok(()) => self.on_taken(&next),
            Err(_) => self.deferred = Some(next),
        }
        (event, copied)
    }

    fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.deferred.take() {
            return Some(event);
        }
        loop {
            match self.inner.next_event()? {
                Event::Stats { stats, .. } => self.path_stats = Some(stats),
                event => return Some(event),
            }
        }
    }

    /// Updates the state for an event that the application has taken.
    const fn on_taken(&mut self, event: &Event) {
        match event {
            Event::Connected { .. } => self.state = DrumfireState::Connected,
            Event::Reconnecting { .. } => self.state = DrumfireState::Reconnecting,
            Event::ConnectFailed { .. } | Event::Disconnected { .. } => self.state = DrumfireState::Closed,
            _ => {}
        }
    }
}
