//! What was counted, as text of any format that has serde: written, never read.
//!
//! Every field has its own name; counts by name leave out those that are zero.

use serde_core::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

use crate::{DropReason, FaultCounts, ReceiveCounts, SendCounts};

impl Serialize for FaultCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(fault, count)| (fault.name(), count)))
    }
}

impl Serialize for ReceiveCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // By name, so that none is forgotten.
        let Self { datagrams, bytes, messages, calls, faults, drops } = self;
        let mut fields = serializer.serialize_struct("ReceiveCounts", 6)?;
        fields.serialize_field("datagrams", datagrams)?;
        fields.serialize_field("bytes", bytes)?;
        fields.serialize_field("messages", messages)?;
        fields.serialize_field("calls", calls)?;
        fields.serialize_field("faults", faults)?;
        fields.serialize_field("dropped", &Dropped(&drops.0))?;
        fields.end()
    }
}

/// Counts by the name of a reason.
struct Dropped<'a>(&'a [u64; DropReason::ALL.len()]);

impl Serialize for Dropped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (reason, count) in DropReason::ALL.iter().zip(self.0).filter(|(_, count)| **count > 0) {
            map.serialize_entry(reason.name(), count)?;
        }
        map.end()
    }
}

impl Serialize for SendCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { datagrams, bytes, calls, faults, lost } = self;
        let mut fields = serializer.serialize_struct("SendCounts", 5)?;
        fields.serialize_field("datagrams", datagrams)?;
        fields.serialize_field("bytes", bytes)?;
        fields.serialize_field("calls", calls)?;
        fields.serialize_field("faults", faults)?;
        fields.serialize_field("lost", lost)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;

    #[test]
    fn counts_are_written_by_name_and_those_that_are_zero_are_left_out() {
        let mut received = ReceiveCounts { datagrams: 4, ..ReceiveCounts::default() };
        received.faults.add_many(Fault::WouldBlock, 3);
        received.drops.0[DropReason::Overlong as usize] = 2;
        let written = serde_json::to_value(&received).unwrap();
        let wanted = serde_json::json!({
            "datagrams": 4, "bytes": 0, "messages": 0, "calls": 0,
            "faults": { "would_block": 3 }, "dropped": { "overlong": 2 },
        });
        assert_eq!(written, wanted);
        let mut sent = SendCounts { bytes: 9, ..SendCounts::default() };
        sent.lost.add(Fault::NoBuffers);
        let wanted = serde_json::json!({
            "datagrams": 0, "bytes": 9, "calls": 0, "faults": {}, "lost": { "no_buffers": 1 },
        });
        assert_eq!(serde_json::to_value(&sent).unwrap(), wanted);
    }
}
