//! The state of a client, its counters, and the measurements of its path.

use std::time::Duration;

use drumfire::PeerStats;
use drumfire::stats::WorkerStats;

/// The state of a client.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfireState {
    /// The client waits for the server. Messages can be sent already on the first attempt, but not on a reconnect.
    Connecting = 0,
    /// The connection is open.
    Connected = 1,
    /// The client will connect again. Messages can be sent after it is connected.
    Reconnecting = 2,
    /// The connection ended, or the attempt to connect failed.
    Closed = 3,
}

/// Counters since the client was created, and the last measurement of its path.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DrumfireStats {
    /// The number of datagrams received from the socket.
    pub datagrams_received: u64,
    /// The number of received datagrams that the protocol dropped: forged, duplicated, late, or for another client.
    pub datagrams_dropped: u64,
    /// The number of datagrams sent.
    pub datagrams_sent: u64,
    /// The number of messages put into packets, including retransmissions.
    pub messages_sent: u64,
    /// The number of messages put into packets again after a loss.
    pub messages_resent: u64,
    /// The number of messages delivered to this application.
    pub messages_delivered: u64,
    /// The number of packets declared lost.
    pub packets_lost: u64,
    /// 1 if the following fields are measured. 0 if there is no measurement yet; then they are zero.
    pub has_path: u64,
    /// The time of the measurement, in nanoseconds on the client's clock, which `drumfire_client_time` reads.
    pub taken_at_ns: u64,
    /// The smoothed round-trip time, in microseconds.
    pub round_trip_us: u64,
    /// The mean deviation of the round-trip time, in microseconds.
    pub jitter_us: u64,
    /// The shortest recent round-trip time, in microseconds. Zero if unknown.
    pub round_trip_min_us: u64,
    /// The time by which the server's clock is ahead of the client's clock, in nanoseconds. At `taken_at_ns`, the
    /// server's clock showed `taken_at_ns + clock_offset_ns`.
    pub clock_offset_ns: i64,
    /// The maximum error of `clock_offset_ns`, in nanoseconds. Zero if the offset is unknown.
    pub clock_error_ns: u64,
    /// The number of recently sent ack-eliciting packets.
    pub recent_packets_sent: u64,
    /// The number of recently sent packets that were declared lost.
    pub recent_packets_lost: u64,
    /// The number of recently received packets.
    pub recent_packets_received: u64,
    /// The number of recent packets of the server that were not received, or not yet.
    pub recent_packets_missing: u64,
    /// The recent delivery rate of the path, in bytes per second. Zero if unknown.
    pub bandwidth_bytes_per_second: u64,
    /// The memory of messages that wait or are unacknowledged, in bytes, including the overhead per message.
    pub send_memory_bytes: u64,
    /// The size of the largest datagram that the path carries, in bytes.
    pub datagram_max_bytes: u64,
    /// The number of datagrams that the kernel dropped since the client was created because the receive buffer was
    /// full. Poll more often, or raise `receive_buffer_bytes`. Zero on platforms without such a counter.
    pub kernel_dropped: u64,
}

/// Combines the counters and the last measurement.
pub(crate) fn to_c_stats(counters: &WorkerStats, path: Option<&PeerStats>) -> DrumfireStats {
    let protocol = &counters.protocol;
    let counts = DrumfireStats {
        datagrams_received: protocol.datagrams_received,
        datagrams_dropped: protocol.dropped_count(),
        datagrams_sent: protocol.datagrams_sent,
        messages_sent: protocol.messages_sent,
        messages_resent: protocol.messages_resent,
        messages_delivered: protocol.messages_delivered,
        packets_lost: protocol.packets_lost,
        kernel_dropped: counters.kernel_dropped,
        ..DrumfireStats::default()
    };
    let Some(path) = path else { return counts };
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

/// Saturates at `u32::MAX`.
pub(crate) fn saturating_milliseconds(duration: Duration) -> u32 {
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
    fn kernel_drops_are_counted_before_a_path_is_measured() {
        let mut counters = WorkerStats::default();
        counters.kernel_dropped = 7;
        let stats = to_c_stats(&counters, None);
        assert_eq!((stats.kernel_dropped, stats.has_path), (7, 0));
    }
}
