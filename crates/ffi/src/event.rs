//! What happened to a client, as C programs see it.
//!
//! Whose memory the bytes of an event are, and for how long, is `held`'s business.

use drumfire::{Bytes, ClientEvent, ConnectError, Outcome};

use crate::reason::{self, DrumfireReason};
use crate::stats::milliseconds;

/// What an event tells. In the order it happened: `Connected` or `ConnectFailed` first, `Disconnected` last and once.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfireEventKind {
    /// There is none until the next poll.
    None = 0,
    /// The server is there and proved itself.
    Connected = 1,
    /// There is no connection, and will be none: `reason`; `bytes` are a line for people. After a refusal `wait_ms` says when to
    /// try again, or is zero.
    ConnectFailed = 2,
    /// A message arrived: `channel`, `bytes`.
    Message = 3,
    /// What became of a message sent with a receipt: `receipt`, `outcome`.
    Receipt = 4,
    /// Messages that the server gave up, because their time was over, were left out here: `channel`, `count`.
    Skipped = 5,
    /// The connection ended, or an attempt came to nothing, and the client begins anew by itself: `reason`, the attempt's number
    /// as `count`, `wait_ms` before it begins; `bytes` are what the server said.
    Reconnecting = 6,
    /// The last attempt to have the connection back failed: `reason`; `bytes` are a line for people. `Disconnected` follows.
    ReconnectFailed = 7,
    /// What happened last to a connection that ended in another way than the applications wanted: `bytes` are a text of many
    /// lines, for a log.
    FlightRecord = 8,
    /// The connection is over: `reason`, the closing application's `code`; `bytes` are what the closing side said, UTF-8 by
    /// custom only.
    Disconnected = 9,
    /// Something of a newer version; it may be left alone.
    Other = 10,
    /// There is room again for messages, after a send was answered `DRUMFIRE_STATUS_FULL`.
    Writable = 11,
}

/// What became of a message.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfireOutcome {
    /// The event is about no message.
    None = 0,
    /// The server's connection has it.
    Acknowledged = 1,
    /// The packet that carried it is lost, as far as can be told, or the connection ended before anybody knew.
    Lost = 2,
    /// It was given up: its time was over, a newer one took its place, or there was no room. It may have arrived.
    Expired = 3,
}

/// One event. Fields that its kind does not name are zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DrumfireEvent {
    /// What it tells.
    pub kind: DrumfireEventKind,
    /// Why something ended or failed.
    pub reason: DrumfireReason,
    /// What became of a message.
    pub outcome: DrumfireOutcome,
    /// The closing application's own number.
    pub code: u32,
    /// How many, or the number of the attempt.
    pub count: u32,
    /// Milliseconds.
    pub wait_ms: u32,
    /// On which channel.
    pub channel: u16,
    /// By which the message is known that an outcome is about.
    pub receipt: u64,
    /// Bytes that follow; null where `bytes_count` is zero. No NUL byte ends them.
    pub bytes: *const u8,
    /// How many.
    pub bytes_count: usize,
}

impl DrumfireEvent {
    /// Of this kind, with nothing else.
    pub(crate) const fn new(kind: DrumfireEventKind) -> Self {
        Self {
            kind,
            reason: DrumfireReason::None,
            outcome: DrumfireOutcome::None,
            code: 0,
            count: 0,
            wait_ms: 0,
            channel: 0,
            receipt: 0,
            bytes: std::ptr::null(),
            bytes_count: 0,
        }
    }
}

/// An event and its bytes, which the event does not lead to yet.
pub(crate) fn shaped(event: &ClientEvent) -> (DrumfireEvent, Bytes) {
    let of = DrumfireEvent::new;
    match event {
        ClientEvent::Connected => (of(DrumfireEventKind::Connected), Bytes::new()),
        ClientEvent::ConnectFailed { error } => failed(DrumfireEventKind::ConnectFailed, error),
        ClientEvent::ReconnectFailed { error } => failed(DrumfireEventKind::ReconnectFailed, error),
        ClientEvent::Message { channel, bytes } => {
            (DrumfireEvent { channel: channel.0, ..of(DrumfireEventKind::Message) }, bytes.clone())
        }
        ClientEvent::Receipt { receipt, outcome } => {
            let outcome = match outcome {
                Outcome::Acknowledged => DrumfireOutcome::Acknowledged,
                Outcome::Lost => DrumfireOutcome::Lost,
                Outcome::Expired => DrumfireOutcome::Expired,
            };
            let event = DrumfireEvent { receipt: receipt.0.get(), outcome, ..of(DrumfireEventKind::Receipt) };
            (event, Bytes::new())
        }
        ClientEvent::Skipped { channel, count } => {
            let event = DrumfireEvent { channel: channel.0, count: *count, ..of(DrumfireEventKind::Skipped) };
            (event, Bytes::new())
        }
        ClientEvent::Writable => (of(DrumfireEventKind::Writable), Bytes::new()),
        ClientEvent::Reconnecting { reason, text, attempt, wait } => {
            let (reason, code) = reason::of_reconnect(reason);
            let (count, wait_ms) = (*attempt, milliseconds(*wait));
            let event = DrumfireEvent { reason, code, count, wait_ms, ..of(DrumfireEventKind::Reconnecting) };
            (event, text.clone())
        }
        ClientEvent::FlightRecord { record } => {
            (of(DrumfireEventKind::FlightRecord), Bytes::from(record.to_string()))
        }
        ClientEvent::Disconnected { reason, text } => {
            let (reason, code) = reason::of_close(*reason);
            (DrumfireEvent { reason, code, ..of(DrumfireEventKind::Disconnected) }, text.clone())
        }
        _ => (of(DrumfireEventKind::Other), Bytes::new()),
    }
}

fn failed(kind: DrumfireEventKind, error: &ConnectError) -> (DrumfireEvent, Bytes) {
    let retry_after = match error {
        ConnectError::Refused(refusal) => refusal.retry_after,
        _ => None,
    };
    let wait_ms = milliseconds(retry_after.unwrap_or_default());
    let event = DrumfireEvent { reason: reason::of_connect(error), wait_ms, ..DrumfireEvent::new(kind) };
    (event, Bytes::from(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire::{ReconnectReason, Refusal, RefuseReason};
    use std::time::Duration;

    #[test]
    fn a_refusal_says_why_and_when_to_try_again() {
        let (retry_after, address) = (Some(Duration::from_secs(10)), None);
        let refusal =
            Refusal { reason: RefuseReason::Full, version_min: 1, version_max: 1, retry_after, address };
        let error = ConnectError::Refused(refusal);
        let (event, text) = shaped(&ClientEvent::ConnectFailed { error });
        assert_eq!(event.kind, DrumfireEventKind::ConnectFailed);
        assert_eq!((event.reason, event.wait_ms), (DrumfireReason::ServerFull, 10_000));
        assert_eq!(text, "the server is full; try again in 10 s");
    }

    #[test]
    fn a_new_attempt_brings_its_reason_its_number_and_its_wait() {
        let event = ClientEvent::Reconnecting {
            reason: ReconnectReason::Failed(ConnectError::Timeout),
            text: Bytes::from_static(b"soon"),
            attempt: 3,
            wait: Duration::from_millis(250),
        };
        let (event, text) = shaped(&event);
        assert_eq!((event.reason, event.count, event.wait_ms), (DrumfireReason::NoAnswer, 3, 250));
        assert_eq!(text, "soon");
    }
}
