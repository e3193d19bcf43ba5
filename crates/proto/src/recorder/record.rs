//! The contents of a flight recorder, as a copy for people to read.
//!
//! Later events do not change it.

use std::fmt;
use std::time::Duration;

use drumfire_wire::CloseCode;

use super::{FlightEntry, FlightEvent, Recorder};
use crate::error::CloseReason;
use crate::time::Moment;

/// The last events of a connection, for finding out why it ended: packets, acks, losses, and probes with their times.
/// It contains no payloads, keys, or addresses.
///
/// `Display` writes it as text, with one line for each entry and the time since the first. [`FlightRecord::to_qlog`]
/// writes JSON for visualization tools.
///
/// ```
/// use std::time::Duration;
/// # use drumfire_proto::*;
/// # let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
/// # let identity = ServerIdentity { public_key: *keys.public(), key_id: 0 };
/// # let server = ServerConfig::new(keys, Secret::new([2; 32]), Secret::new([3; 32]));
/// # let client_at: std::net::SocketAddr = "192.0.2.1:1".parse()?;
/// # let server_at: std::net::SocketAddr = "192.0.2.2:2".parse()?;
/// # let mut server = Endpoint::server(Config::default(), server, SingleWorker::default(), Secret::new([4; 32]))?;
/// let config = Config::default().flight_recorder(true);
/// let mut client = Endpoint::client(config, ClientConfig::default(), Secret::new([5; 32]))?;
/// # let mut now = Now::default();
/// # let mut memory = [0; 1200];
/// # let peer = client.connect(now, server_at, &identity, None)?;
/// # for _ in 0..4 {
/// #     while let Some(sent) = client.poll_transmit(now, &mut memory) {
/// #         server.handle_datagrams(now, [Inbound { from: client_at.into(), bytes: &mut memory[..sent.bytes] }]);
/// #     }
/// #     while let Some(sent) = server.poll_transmit(now, &mut memory) {
/// #         client.handle_datagrams(now, [Inbound { from: server_at.into(), bytes: &mut memory[..sent.bytes] }]);
/// #     }
/// # }
/// // Connected; then the server is gone.
/// client.send(now, peer, Message::reliable_ordered(ChannelId(0), "anybody?"))?;
/// while let Some(timeout) = client.poll_timeout() {
///     now.monotonic = timeout;
///     client.handle_timeout(now);
///     while client.poll_transmit(now, &mut memory).is_some() {}
/// }
/// let mut text = String::new();
/// while let Some(event) = client.poll_event() {
///     match event {
///         Event::FlightRecord { record, .. } => text = record.to_string(),
///         Event::Disconnected { reason, .. } => assert_eq!(reason, CloseReason::Unacknowledged),
///         _ => {}
///     }
/// }
/// assert!(text.contains("no ack in time") && text.ends_with("closed: unacknowledged\n"), "{text}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlightRecord {
    /// Whether a server made the record. Otherwise, a client made it.
    pub is_server: bool,
    /// The time at which the record was made, on the clock of the endpoint.
    pub taken_at: Moment,
    /// The reason why the connection ended; `None` while it is open.
    pub reason: Option<CloseReason>,
    /// The events, oldest first.
    pub entries: Vec<FlightEntry>,
    /// The number of earlier events that were overwritten while the connection was busy.
    pub overwritten_count: u64,
    /// The smoothed round trip (RFC 9002 section 5.3).
    pub round_trip: Duration,
    /// The number of bytes that the congestion window allows in flight.
    pub window_bytes: usize,
    /// The number of bytes in flight.
    pub in_flight_bytes: usize,
    /// The bytes of messages that wait or are in flight, including charges.
    pub queued_bytes: usize,
}

/// The state of a connection besides the contents of its recorder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlightState {
    pub(crate) is_server: bool,
    pub(crate) now: Moment,
    pub(crate) reason: Option<CloseReason>,
    pub(crate) round_trip: Duration,
    pub(crate) window_bytes: usize,
    pub(crate) in_flight_bytes: usize,
    pub(crate) queued_bytes: usize,
}

/// Whether the cause of this end may be of interest: neither application asked for it, and no server shut down.
pub(crate) const fn is_abnormal(reason: CloseReason) -> bool {
    match reason {
        CloseReason::Local { code, .. } | CloseReason::Remote { code, .. } => {
            !matches!(code, CloseCode::Application | CloseCode::Shutdown)
        }
        _ => true,
    }
}

impl fmt::Debug for FlightRecord {
    /// Prints the number of entries and not the entries, because events with records are printed to logs. `Display` prints all of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("FlightRecord");
        shown.field("is_server", &self.is_server).field("reason", &self.reason);
        shown.field("entry_count", &self.entries.len()).finish_non_exhaustive()
    }
}

impl FlightRecord {
    #[cold]
    pub(crate) fn new(recorder: &Recorder, state: &FlightState) -> Self {
        let (entries, overwritten_count) = recorder.entries();
        let &FlightState { is_server, now, reason, round_trip, window_bytes, in_flight_bytes, queued_bytes } =
            state;
        Self {
            is_server,
            taken_at: now,
            reason,
            entries,
            overwritten_count,
            round_trip,
            window_bytes,
            in_flight_bytes,
            queued_bytes,
        }
    }

    /// Returns the memory that the record takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(self.entries.as_slice()).saturating_add(size_of::<Self>())
    }

    /// The start of relative times: the first entry.
    pub(super) fn origin(&self) -> Moment {
        self.entries.first().map_or(self.taken_at, |entry| entry.at)
    }
}

impl fmt::Display for FlightRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.is_server { "server" } else { "client" };
        writeln!(
            f,
            "flight record of a {side}: {} entries, {} before them",
            self.entries.len(),
            self.overwritten_count
        )?;
        writeln!(
            f,
            "round trip {} ms, {} of {} B in flight, {} B of messages queued",
            DisplayMillis(self.round_trip),
            self.in_flight_bytes,
            self.window_bytes,
            self.queued_bytes,
        )?;
        let origin = self.origin();
        for entry in &self.entries {
            writeln!(f, "{:>12} ms  {}", DisplayMillis(entry.at.since(origin)), entry.event)?;
        }
        let end = DisplayMillis(self.taken_at.since(origin));
        match &self.reason {
            None => writeln!(f, "{end:>12} ms  taken while open"),
            Some(reason) => {
                write!(f, "{end:>12} ms  closed: {}", reason.name())?;
                if let Some(detail) = detail(reason) {
                    write!(f, " ({detail})")?;
                }
                writeln!(f)
            }
        }
    }
}

/// Returns the details of a close reason besides its name.
pub(super) fn detail(reason: &CloseReason) -> Option<&'static str> {
    match reason {
        CloseReason::Local { code, .. } | CloseReason::Remote { code, .. } => Some(code.name()),
        CloseReason::Protocol(error) => Some(error.name()),
        _ => None,
    }
}

impl fmt::Display for FlightEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent { number, payload_bytes, frames, resent_count, queued_kib } => {
                write!(f, "sent      {number} {payload_bytes} B [{frames}]")?;
                if *resent_count > 0 {
                    write!(f, " {resent_count} again")?;
                }
                if *queued_kib > 0 { write!(f, " queue {queued_kib} KiB") } else { Ok(()) }
            }
            Self::Received { number, payload_bytes, frames } => {
                write!(f, "received  {number} {payload_bytes} B [{frames}]")
            }
            Self::Dropped { number, payload_bytes, reason } => {
                write!(f, "dropped   {number} {payload_bytes} B: {}", reason.name())
            }
            Self::Acked { largest, count, round_trip_us: 0 } => {
                write!(f, "acked     {count} packets up to {largest}")
            }
            Self::Acked { largest, count, round_trip_us } => {
                let trip = Duration::from_micros(u64::from(*round_trip_us));
                write!(f, "acked     {count} packets up to {largest}, round trip {} ms", DisplayMillis(trip))
            }
            Self::Lost { first, span, count } => {
                write!(f, "lost      {count} packets, {first} to {}", first.saturating_add(u64::from(*span)))
            }
            Self::ProbeTimeout { count } => write!(f, "no ack in time, {count} in a row"),
            Self::PathMigrated { is_same_host: true } => f.write_str("path migrated to another port"),
            Self::PathMigrated { is_same_host: false } => f.write_str("path migrated to another host"),
            Self::PathSize { datagram_max_bytes } => write!(f, "path takes {datagram_max_bytes} B"),
            Self::IdChanged => f.write_str("another connection id"),
        }
    }
}

/// A duration in milliseconds, to the microsecond.
#[derive(Clone, Copy)]
pub(super) struct DisplayMillis(pub(super) Duration);

impl fmt::Display for DisplayMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        f.pad(&format!("{}.{:03}", micros / 1_000, micros % 1_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intended_ends_are_not_abnormal() {
        let application_code = 0;
        for code in (0..=u8::MAX).filter_map(CloseCode::from_byte) {
            let is_wanted = matches!(code, CloseCode::Application | CloseCode::Shutdown);
            for reason in [
                CloseReason::Local { code, application_code },
                CloseReason::Remote { code, application_code },
            ] {
                assert_eq!(is_abnormal(reason), !is_wanted, "{reason:?}");
            }
        }
        for reason in [CloseReason::IdleTimeout, CloseReason::Unacknowledged, CloseReason::Reset] {
            assert!(is_abnormal(reason));
        }
    }

    #[test]
    fn milliseconds_are_written_to_the_microsecond_and_padded() {
        assert_eq!(format!("{:>8}", DisplayMillis(Duration::from_micros(12_034))), "  12.034");
        assert_eq!(DisplayMillis(Duration::ZERO).to_string(), "0.000");
    }
}
