//! How far a client is, what it counted, and what its path is like.

use std::time::Duration;

use drumfire::{ClientState, PeerStats, WorkerStats};

/// How far a client has come.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfireState {
    /// It waits for the server's answer. Messages may be sent already, except by a client that reconnects.
    Connecting = 0,
    /// The server is there.
    Connected = 1,
    /// It connects again by itself. Messages can be sent once it is connected.
    Reconnecting = 2,
    /// There is no connection any more, or never was one.
    Closed = 3,
}

/// What a client counted since it was made, and what was last measured of its path.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DrumfireStats {
    /// Datagrams taken from the socket.
    pub datagrams_received: u64,
    /// Of those, dropped by the protocol: forged, repeated, late, not for this client.
    pub datagrams_dropped: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Messages put into packets, without resends.
    pub messages_sent: u64,
    /// Messages put into packets again.
    pub messages_resent: u64,
    /// Messages handed to this application.
    pub messages_delivered: u64,
    /// Packets found lost.
    pub packets_lost: u64,
    /// 1 when the rest was measured, 0 when there is nothing yet; then all of it is zero.
    pub has_path: u64,
    /// When it was measured, on the client's clock, in nanoseconds; `drumfire_client_time` reads that clock.
    pub taken_at_ns: u64,
    /// The round trip, smoothed, in microseconds.
    pub round_trip_us: u64,
    /// Its mean deviation, in microseconds.
    pub jitter_us: u64,
    /// The shortest round trip lately, in microseconds; zero when none is known.
    pub round_trip_min_us: u64,
    /// How far the server's clock is ahead of the client's, in nanoseconds: what it showed at `taken_at_ns` is that and so much
    /// more.
    pub clock_offset_ns: i64,
    /// It is no further from the truth than so many nanoseconds; zero when it is not known.
    pub clock_error_ns: u64,
    /// Packets sent lately that ask for an ack.
    pub recent_packets_sent: u64,
    /// Packets found lost lately.
    pub recent_packets_lost: u64,
    /// Packets that came lately.
    pub recent_packets_received: u64,
    /// Packets of the server that did not come lately, or not yet.
    pub recent_packets_missing: u64,
    /// What the path was seen to deliver lately, in bytes per second; zero when it is not known.
    pub bandwidth_bytes_per_second: u64,
    /// Bytes of messages that wait or were not acknowledged, charges included.
    pub send_memory_bytes: u64,
    /// Bytes of the largest datagram that the path carries.
    pub datagram_max_bytes: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full, counted as long as the client lives: poll more often,
    /// or raise `receive_buffer_bytes`. Zero where the platform keeps no count.
    pub kernel_dropped: u64,
}

/// What C programs see of both.
pub(crate) fn shaped(counted: &WorkerStats, measured: Option<&PeerStats>) -> DrumfireStats {
    let protocol = &counted.protocol;
    let counts = DrumfireStats {
        datagrams_received: protocol.datagrams_received,
        datagrams_dropped: protocol.dropped_count(),
        datagrams_sent: protocol.datagrams_sent,
        messages_sent: protocol.messages_sent,
        messages_resent: protocol.messages_resent,
        messages_delivered: protocol.messages_delivered,
        packets_lost: protocol.packets_lost,
        kernel_dropped: counted.kernel_dropped,
        ..DrumfireStats::default()
    };
    let Some(path) = measured else { return counts };
    DrumfireStats {
        has_path: 1,
        taken_at_ns: path.taken_at.as_nanos(),
        round_trip_us: microseconds(path.round_trip),
        jitter_us: microseconds(path.jitter),
        round_trip_min_us: microseconds(path.round_trip_min.unwrap_or_default()),
        clock_offset_ns: path.clock_offset.map_or(0, |offset| offset.nanos),
        clock_error_ns: path.clock_offset.map_or(0, |offset| nanoseconds(offset.error)),
        recent_packets_sent: path.packets_sent,
        recent_packets_lost: path.packets_lost,
        recent_packets_received: path.packets_received,
        recent_packets_missing: path.packets_missing,
        bandwidth_bytes_per_second: path.bandwidth_estimate.unwrap_or(0),
        send_memory_bytes: path.send_memory_bytes as u64,
        datagram_max_bytes: path.datagram_max_bytes.into(),
        ..counts
    }
}

pub(crate) const fn state(state: ClientState) -> DrumfireState {
    match state {
        ClientState::Connecting => DrumfireState::Connecting,
        ClientState::Connected => DrumfireState::Connected,
        ClientState::Reconnecting => DrumfireState::Reconnecting,
        ClientState::Closed => DrumfireState::Closed,
    }
}

/// As many as there are, or as the number holds.
pub(crate) fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_drops_are_told_before_a_path_is_measured() {
        let mut counted = WorkerStats::default();
        counted.kernel_dropped = 7;
        let stats = shaped(&counted, None);
        assert_eq!((stats.kernel_dropped, stats.has_path), (7, 0));
    }
}
