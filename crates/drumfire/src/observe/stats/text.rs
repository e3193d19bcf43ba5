//! The text form of counters, in any format that serde supports. Counters can be written, and not read.

use serde_core::ser::{Serialize, SerializeStruct, Serializer};

use super::{Stats, WorkerStats};

impl Serialize for Stats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { workers, sockets, threads, foreign_sockets } = self;
        let mut fields = serializer.serialize_struct("Stats", 4)?;
        fields.serialize_field("workers", workers)?;
        fields.serialize_field("sockets", sockets)?;
        fields.serialize_field("threads", threads)?;
        fields.serialize_field("foreign_sockets", foreign_sockets)?;
        fields.end()
    }
}

impl Serialize for WorkerStats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The pattern names all fields, so the compiler reports a field that is not written.
        let Self {
            protocol,
            received,
            kernel_dropped,
            receive_queue_bytes,
            sent,
            connections,
            message_memory_bytes,
            forwarded_in,
            forwards_held,
            events_held,
            messages_undelivered,
            broadcasts_undelivered,
            connections_unaccepted,
            notices_left_out,
            panics,
            restarts,
            wait_faults,
            sockets_reopened,
            #[cfg(feature = "conditioner")]
            inbound_link,
            #[cfg(feature = "conditioner")]
            outbound_link,
        } = self;
        let count = if cfg!(feature = "conditioner") { 20 } else { 18 };
        let mut fields = serializer.serialize_struct("WorkerStats", count)?;
        fields.serialize_field("protocol", protocol)?;
        fields.serialize_field("received", received)?;
        fields.serialize_field("kernel_dropped", kernel_dropped)?;
        fields.serialize_field("receive_queue_bytes", receive_queue_bytes)?;
        fields.serialize_field("sent", sent)?;
        fields.serialize_field("connections", connections)?;
        fields.serialize_field("message_memory_bytes", message_memory_bytes)?;
        fields.serialize_field("forwarded_in", forwarded_in)?;
        fields.serialize_field("forwards_held", forwards_held)?;
        fields.serialize_field("events_held", events_held)?;
        fields.serialize_field("messages_undelivered", messages_undelivered)?;
        fields.serialize_field("broadcasts_undelivered", broadcasts_undelivered)?;
        fields.serialize_field("connections_unaccepted", connections_unaccepted)?;
        fields.serialize_field("notices_left_out", notices_left_out)?;
        fields.serialize_field("panics", panics)?;
        fields.serialize_field("restarts", restarts)?;
        fields.serialize_field("wait_faults", wait_faults)?;
        fields.serialize_field("sockets_reopened", sockets_reopened)?;
        #[cfg(feature = "conditioner")]
        {
            fields.serialize_field("inbound_link", inbound_link)?;
            fields.serialize_field("outbound_link", outbound_link)?;
        }
        fields.end()
    }
}

#[cfg(feature = "conditioner")]
impl Serialize for crate::conditioner::LinkCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { pushed, delivered, lost, corrupted, duplicated, queue_full, too_large } = self;
        let mut fields = serializer.serialize_struct("LinkCounts", 7)?;
        fields.serialize_field("pushed", pushed)?;
        fields.serialize_field("delivered", delivered)?;
        fields.serialize_field("lost", lost)?;
        fields.serialize_field("corrupted", corrupted)?;
        fields.serialize_field("duplicated", duplicated)?;
        fields.serialize_field("queue_full", queue_full)?;
        fields.serialize_field("too_large", too_large)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_written_under_its_name() {
        let worker = WorkerStats { forwarded_in: 3, panics: 1, ..WorkerStats::default() };
        let workers = vec![worker.clone(), worker];
        let stats = Stats { workers, threads: vec![2], foreign_sockets: Some(1), ..Stats::default() };
        let written = serde_json::to_value(stats).unwrap();
        assert_eq!(written["foreign_sockets"], 1);
        assert_eq!(written["workers"].as_array().map(Vec::len), Some(2));
        let worker = &written["workers"][1];
        assert_eq!(
            (&worker["forwarded_in"], &worker["panics"], &worker["restarts"]),
            (&3.into(), &1.into(), &0.into())
        );
        assert_eq!(worker["sent"]["datagrams"], 0);
        assert_eq!(worker["protocol"]["dropped"], serde_json::json!({}));
        let debug = format!("{:#?}", WorkerStats::default());
        let names = debug.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
        for name in names.filter_map(|line| line.trim().split_once(':')).map(|(name, _)| name) {
            assert!(worker.get(name).is_some(), "{name}");
        }
    }
}
