//! A flight record as JSON in the style of qlog 0.3 (draft-ietf-quic-qlog-main-schema-02), which visualization tools
//! for QUIC read.
//!
//! Only part of the schema is used: frames are named without their fields, and events that QUIC does not have use
//! names of their own.

use std::fmt::{self, Write as _};
use std::time::Duration;

use drumfire_wire::FrameKinds;

use super::record::{DisplayMillis, FlightRecord, detail};
use super::{FlightEntry, FlightEvent};

impl FlightRecord {
    /// Returns the record as one trace of qlog 0.3. Times are milliseconds since the first entry. The reference time
    /// is this end's clock at that entry.
    ///
    /// ```
    /// # fn save(record: &drumfire_proto::FlightRecord) -> std::io::Result<()> {
    /// std::fs::write("disconnected.qlog", record.to_qlog())
    /// # }
    /// ```
    #[must_use]
    pub fn to_qlog(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_qlog(&mut text);
        text
    }

    fn write_qlog(&self, out: &mut String) -> fmt::Result {
        let side = if self.is_server { "server" } else { "client" };
        let origin = self.origin();
        let reference = DisplayMillis(Duration::from_nanos(origin.as_nanos()));
        write!(
            out,
            r#"{{"qlog_version":"0.3","qlog_format":"JSON","title":"drumfire flight record","traces":[{{"vantage_point":{{"type":"{side}"}},"common_fields":{{"protocol_type":["DRUMFIRE"],"time_format":"relative","reference_time":{reference}}},"overwritten_count":{},"events":["#,
            self.overwritten_count,
        )?;
        for entry in &self.entries {
            write_entry(out, DisplayMillis(entry.at.since(origin)), entry)?;
            out.push(',');
        }
        let end = DisplayMillis(self.taken_at.since(origin));
        write!(
            out,
            r#"{{"time":{end},"name":"recovery:metrics_updated","data":{{"smoothed_rtt":{},"congestion_window":{},"bytes_in_flight":{},"queued_bytes":{}}}}}"#,
            DisplayMillis(self.round_trip),
            self.window_bytes,
            self.in_flight_bytes,
            self.queued_bytes,
        )?;
        if let Some(reason) = &self.reason {
            let owner = if matches!(reason, crate::CloseReason::Remote { .. }) { "remote" } else { "local" };
            let (trigger, more) = (reason.name(), detail(reason).unwrap_or(""));
            write!(
                out,
                r#",{{"time":{end},"name":"connectivity:connection_closed","data":{{"owner":"{owner}","trigger":"{trigger}","reason":"{more}"}}}}"#
            )?;
        }
        out.write_str("]}]}")
    }
}

fn write_entry(out: &mut String, time: DisplayMillis, entry: &FlightEntry) -> fmt::Result {
    write!(out, r#"{{"time":{time},"name":"{}","data":{{"#, name(&entry.event))?;
    match entry.event {
        FlightEvent::Sent { number, payload_bytes, frames, resent_count, queued_kib } => {
            write_packet(out, number, payload_bytes)?;
            write_frames(out, frames)?;
            write!(out, r#","resent_count":{resent_count},"queued_kib":{queued_kib}"#)?;
        }
        FlightEvent::Received { number, payload_bytes, frames } => {
            write_packet(out, number, payload_bytes)?;
            write_frames(out, frames)?;
        }
        FlightEvent::Dropped { number, payload_bytes, reason } => {
            write_packet(out, number, payload_bytes)?;
            write!(out, r#","trigger":"{}""#, reason.name())?;
        }
        FlightEvent::Acked { largest, count, round_trip_us } => {
            write!(out, r#""packet_number_space":"application_data","largest":{largest},"count":{count}"#)?;
            if round_trip_us > 0 {
                let trip = DisplayMillis(Duration::from_micros(u64::from(round_trip_us)));
                write!(out, r#","latest_rtt":{trip}"#)?;
            }
        }
        FlightEvent::Lost { first, span, count } => {
            let last = first.saturating_add(u64::from(span));
            write!(
                out,
                r#""header":{{"packet_type":"1RTT","packet_number":{first}}},"last":{last},"count":{count}"#
            )?;
        }
        FlightEvent::ProbeTimeout { count } => {
            write!(out, r#""event_type":"expired","timer_type":"pto","count":{count}"#)?;
        }
        FlightEvent::PathMigrated { is_same_host } => write!(out, r#""is_same_host":{is_same_host}"#)?,
        FlightEvent::PathSize { datagram_max_bytes } => write!(out, r#""new":{datagram_max_bytes}"#)?,
        FlightEvent::IdChanged => write!(out, r#""owner":"local""#)?,
    }
    out.write_str("}}")
}

/// The event name in the drafts, or a similar one for events of a path.
const fn name(event: &FlightEvent) -> &'static str {
    match event {
        FlightEvent::Sent { .. } => "transport:packet_sent",
        FlightEvent::Received { .. } => "transport:packet_received",
        FlightEvent::Dropped { .. } => "transport:packet_dropped",
        FlightEvent::Acked { .. } => "transport:packets_acked",
        FlightEvent::Lost { .. } => "recovery:packet_lost",
        FlightEvent::ProbeTimeout { .. } => "recovery:loss_timer_updated",
        FlightEvent::PathMigrated { .. } => "connectivity:path_updated",
        FlightEvent::PathSize { .. } => "connectivity:mtu_updated",
        FlightEvent::IdChanged => "connectivity:connection_id_updated",
    }
}

fn write_packet(out: &mut String, number: u64, payload_bytes: u16) -> fmt::Result {
    write!(
        out,
        r#""header":{{"packet_type":"1RTT","packet_number":{number}}},"raw":{{"payload_length":{payload_bytes}}}"#
    )
}

fn write_frames(out: &mut String, frames: FrameKinds) -> fmt::Result {
    out.write_str(r#","frames":["#)?;
    for (at, name) in frames.names().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        // The only frame that has another name in QUIC.
        let name = if name == "close" { "connection_close" } else { name };
        write!(out, r#"{comma}{{"frame_type":"{name}"}}"#)?;
    }
    write!(out, r#"],"is_ack_eliciting":{}"#, frames.is_ack_eliciting())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::DropReason;
    use crate::time::Moment;
    use crate::{CloseReason, ProtocolError};
    use serde_json::Value;

    #[test]
    fn every_kind_of_event_is_json_with_the_names_of_the_drafts() {
        let frames = FrameKinds::ACK.with(FrameKinds::CLOSE);
        let events = [
            FlightEvent::Sent { number: 7, payload_bytes: 90, frames, resent_count: 1, queued_kib: 2 },
            FlightEvent::Received { number: 8, payload_bytes: 91, frames: FrameKinds::NONE },
            FlightEvent::Dropped { number: 9, payload_bytes: 92, reason: DropReason::ReceiveMemory },
            FlightEvent::Acked { largest: 7, count: 1, round_trip_us: 20_001 },
            FlightEvent::Acked { largest: 7, count: 0, round_trip_us: 0 },
            FlightEvent::Lost { first: 3, span: 2, count: 2 },
            FlightEvent::ProbeTimeout { count: 4 },
            FlightEvent::PathMigrated { is_same_host: true },
            FlightEvent::PathSize { datagram_max_bytes: 1_472 },
            FlightEvent::IdChanged,
        ];
        let at = |index: u64| Moment::from_nanos(5_000_000_000 + index * 1_500_000);
        let entries: Vec<_> =
            (0..).zip(events).map(|(index, event)| FlightEntry { at: at(index), event }).collect();
        let record = FlightRecord {
            is_server: true,
            taken_at: at(20),
            reason: Some(CloseReason::Protocol(ProtocolError::KeyChange)),
            entries,
            overwritten_count: 3,
            round_trip: Duration::from_millis(20),
            window_bytes: 12_000,
            in_flight_bytes: 1_200,
            queued_bytes: 1_300,
        };
        let qlog: Value = serde_json::from_str(&record.to_qlog()).unwrap();
        assert_eq!(qlog["qlog_version"], "0.3");
        let trace = &qlog["traces"][0];
        assert_eq!(trace["vantage_point"]["type"], "server");
        assert_eq!(trace["common_fields"]["reference_time"], 5_000.0);
        let events = trace["events"].as_array().unwrap();
        let names: Vec<_> = events.iter().map(|event| event["name"].as_str().unwrap()).collect();
        let expected = [
            "transport:packet_sent",
            "transport:packet_received",
            "transport:packet_dropped",
            "transport:packets_acked",
            "transport:packets_acked",
            "recovery:packet_lost",
            "recovery:loss_timer_updated",
            "connectivity:path_updated",
            "connectivity:mtu_updated",
            "connectivity:connection_id_updated",
            "recovery:metrics_updated",
            "connectivity:connection_closed",
        ];
        assert_eq!(names, expected);
        assert_eq!(events[0]["data"]["header"]["packet_number"], 7);
        assert_eq!(events[0]["data"]["frames"][1]["frame_type"], "connection_close");
        assert_eq!(events[2]["data"]["trigger"], "receive_memory");
        assert_eq!(events[3]["time"], 4.5);
        assert_eq!(events[3]["data"]["latest_rtt"], 20.001);
        assert!(events[4]["data"].get("latest_rtt").is_none());
        assert_eq!(events[5]["data"]["last"], 5);
        assert_eq!(events[11]["data"]["reason"], "key_change");
        assert_eq!(events[11]["time"], 30.0);
        assert_eq!(record.to_string().lines().count(), 2 + 10 + 1);
    }
}
