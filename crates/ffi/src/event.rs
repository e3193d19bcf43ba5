//! The events of a client, as C programs see them.

use drumfire::{Bytes, ConnectError, Event, Outcome, ReconnectReason};

use crate::reason::{self, DrumfireReason};
use crate::stats::saturating_milliseconds;

/// The kind of an event. Events come in the order in which they happened. `Connected` or `ConnectFailed` is the first
/// event, and `Disconnected` is the last event and comes once.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfireEventKind {
    /// There is no event until the next poll.
    None = 0,
    /// The connection is open, and the server has proved its identity.
    Connected = 1,
    /// The attempt to connect failed, and the client does not try again. `reason` says why, and `bytes` is a
    /// description. After a refusal, `wait_ms` is the time after which the server may accept a new attempt, or zero.
    ConnectFailed = 2,
    /// A message arrived: `channel`, `bytes`.
    Message = 3,
    /// The outcome of a message that was sent with a receipt: `receipt`, `outcome`.
    Receipt = 4,
    /// The server gave up `count` messages on `channel` because their lifetime was over. They were skipped.
    Skipped = 5,
    /// The connection ended or an attempt failed, and the client will try again: `reason`, the number of the attempt in
    /// `count`, and the delay before it in `wait_ms`. `bytes` is the text of the server.
    Reconnecting = 6,
    /// The client has another local address, because it was rebound or the network changed. The connection continues.
    /// `bytes` is the address as text, such as `192.0.2.7:50123`.
    PathChanged = 7,
    /// The last actions of a connection that neither application closed: `bytes` is a text of many lines for a log.
    FlightRecord = 8,
    /// The connection is closed: `reason`, and the `code` of the application that closed it. `bytes` is the text of the
    /// side that closed it. It is usually UTF-8, but nothing guarantees that. If the client tried to reconnect and gave
    /// up, `reconnect_reason` says why the last attempt failed.
    Disconnected = 9,
    /// An event of a newer version of the library. Programs can ignore it.
    Other = 10,
    /// The connection has room for messages again after a send returned `DRUMFIRE_STATUS_FULL`.
    Writable = 11,
}

/// The outcome of a message with a receipt.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfireOutcome {
    /// The event is not about a message.
    None = 0,
    /// The server's connection received the message.
    Acknowledged = 1,
    /// The packet that carried the message was declared lost, or the connection ended before an acknowledgment arrived.
    Lost = 2,
    /// The message was given up: its lifetime was over, a newer message replaced it, or there was no room. It may have
    /// arrived.
    Expired = 3,
}

/// An event. Fields that the description of its kind does not mention are zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DrumfireEvent {
    /// The kind, which selects the fields that are used.
    pub kind: DrumfireEventKind,
    /// The reason why a connection ended or an attempt failed.
    pub reason: DrumfireReason,
    /// The reason why the last attempt to reconnect failed, if a connection ended and the client gave up.
    pub reconnect_reason: DrumfireReason,
    /// The outcome of a message.
    pub outcome: DrumfireOutcome,
    /// The code from the application that closed the connection.
    pub code: u32,
    /// The number of messages that were skipped, or the number of the attempt.
    pub count: u32,
    /// A delay in milliseconds, see the kind.
    pub wait_ms: u32,
    /// The channel of the message.
    pub channel: u16,
    /// The receipt number that `drumfire_client_send` returned for the message.
    pub receipt: u64,
    /// The bytes of the event. Null if `bytes_count` is zero. They do not end with a NUL byte.
    pub bytes: *const u8,
    /// The number of bytes.
    pub bytes_count: usize,
}

impl DrumfireEvent {
    /// Creates an event of this kind with all other fields zero.
    pub(crate) const fn new(kind: DrumfireEventKind) -> Self {
        Self {
            kind,
            reason: DrumfireReason::None,
            reconnect_reason: DrumfireReason::None,
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

/// Converts an event and returns it with its bytes. The pointer in the event is still null.
pub(crate) fn to_c_event(event: &Event) -> (DrumfireEvent, Bytes) {
    let new = DrumfireEvent::new;
    match event {
        Event::Connected { .. } => (new(DrumfireEventKind::Connected), Bytes::new()),
        Event::ConnectFailed { error, .. } => failed(error),
        Event::Message { channel, payload, .. } => {
            (DrumfireEvent { channel: channel.0, ..new(DrumfireEventKind::Message) }, payload.clone())
        }
        Event::Receipt { receipt, outcome, .. } => {
            let outcome = match outcome {
                Outcome::Acknowledged => DrumfireOutcome::Acknowledged,
                Outcome::Lost => DrumfireOutcome::Lost,
                Outcome::Expired => DrumfireOutcome::Expired,
            };
            let event =
                DrumfireEvent { receipt: receipt.0.get(), outcome, ..new(DrumfireEventKind::Receipt) };
            (event, Bytes::new())
        }
        Event::Skipped { channel, count, .. } => {
            let event =
                DrumfireEvent { channel: channel.0, count: *count, ..new(DrumfireEventKind::Skipped) };
            (event, Bytes::new())
        }
        Event::Writable { .. } => (new(DrumfireEventKind::Writable), Bytes::new()),
        Event::Reconnecting { reason, attempt, delay, .. } => {
            let text = match reason {
                ReconnectReason::Ended(closed) => closed.text.clone(),
                _ => Bytes::new(),
            };
            let (reason, code) = reason::from_reconnect(reason);
            let (count, wait_ms) = (*attempt, saturating_milliseconds(*delay));
            let event =
                DrumfireEvent { reason, code, count, wait_ms, ..new(DrumfireEventKind::Reconnecting) };
            (event, text)
        }
        Event::PathChanged { address, .. } => {
            (new(DrumfireEventKind::PathChanged), Bytes::from(address.to_string()))
        }
        Event::FlightRecord { record, .. } => {
            (new(DrumfireEventKind::FlightRecord), Bytes::from(record.to_string()))
        }
        Event::Disconnected { closed, .. } => {
            let (reason, code) = reason::from_close(closed.reason);
            let reconnect_reason =
                closed.reconnect_error.as_ref().map_or(DrumfireReason::None, reason::from_connect);
            let event =
                DrumfireEvent { reason, reconnect_reason, code, ..new(DrumfireEventKind::Disconnected) };
            (event, closed.text.clone())
        }
        _ => (new(DrumfireEventKind::Other), Bytes::new()),
    }
}

fn failed(error: &ConnectError) -> (DrumfireEvent, Bytes) {
    let retry_after = match error {
        ConnectError::Refused(refusal) => refusal.retry_after,
        _ => None,
    };
    let wait_ms = saturating_milliseconds(retry_after.unwrap_or_default());
    let reason = reason::from_connect(error);
    let event = DrumfireEvent { reason, wait_ms, ..DrumfireEvent::new(DrumfireEventKind::ConnectFailed) };
    (event, Bytes::from(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire::PeerId;
    use drumfire::error::{Refusal, RefuseReason};
    use std::time::Duration;

    fn peer() -> PeerId {
        "0.0.0".parse().unwrap()
    }

    #[test]
    fn a_refusal_has_a_reason_and_a_retry_time() {
        let (retry_after, address) = (Some(Duration::from_secs(10)), None);
        let (reason, version_min, version_max, is_proved) = (RefuseReason::Full, 1, 1, true);
        let refusal = Refusal { reason, version_min, version_max, retry_after, address, is_proved };
        let error = ConnectError::Refused(Box::new(refusal));
        let (event, text) = to_c_event(&Event::ConnectFailed { peer: peer(), error });
        assert_eq!(event.kind, DrumfireEventKind::ConnectFailed);
        assert_eq!((event.reason, event.wait_ms), (DrumfireReason::ServerFull, 10_000));
        assert_eq!(text, "the server is full; try again in 10 s");
    }

    #[test]
    fn a_change_of_the_path_has_the_address_as_text() {
        let address = "[2001:db8::7]:50123".parse().unwrap();
        let (event, text) = to_c_event(&Event::PathChanged { peer: peer(), address });
        assert_eq!((event.kind, &text[..]), (DrumfireEventKind::PathChanged, &b"[2001:db8::7]:50123"[..]));
    }

    #[test]
    fn a_reconnect_has_its_reason_number_and_delay() {
        let (reason, delay) = (ReconnectReason::Failed(ConnectError::Timeout), Duration::from_millis(250));
        let event = Event::Reconnecting { peer: peer(), reason, attempt: 3, delay };
        let (event, text) = to_c_event(&event);
        assert_eq!((event.reason, event.count, event.wait_ms), (DrumfireReason::NoAnswer, 3, 250));
        assert!(text.is_empty());
    }
}
