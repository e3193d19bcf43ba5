//! The fates of packets, and what follows for the messages that they carried.

use drumfire_wire::MessageId;

use super::fragments::is_fragment;
use super::latest::is_value;
use super::scheduler::ChannelScheduler;
use super::{SendQueue, release};
use crate::channel::receipt::{Outcome, is_receipt};
use crate::loss::PacketFate;

impl SendQueue {
    /// Processes the fate of `packet` for the item with the fate id `id`: a value, a receipt, a fragment, or a run.
    pub(crate) fn on_fate(&mut self, fate: PacketFate, id: MessageId, packet: u64) {
        // The range of an id shows which part registered it.
        if is_value(id) {
            return self.on_value(Some(fate), id, packet);
        }
        if is_receipt(id) {
            if let Some(receipts) = &mut self.receipts {
                receipts.on_fate(fate, id);
            }
            return;
        }
        let (Some(reliable), chunks) = (&mut self.reliable, &mut self.chunks) else { return };
        let arrived = if is_fragment(id) {
            reliable.on_fragment_fate(fate, id, chunks)
        } else {
            reliable.on_fate(fate, id, packet, chunks)
        };
        // Messages have arrived: release them, and resume what waited for them.
        let Some(arrived) = arrived else { return };
        release(&mut self.used_bytes, arrived.charge_bytes);
        if let Some(receipts) = &mut self.receipts {
            receipts.resolve_ids(arrived.ids.first..arrived.ids.end(), Outcome::Acknowledged);
        }
        if arrived.is_sequenced
            && let Some(scheduler) = &mut self.scheduler
        {
            scheduler.on_sequenced_arrived(arrived.channel);
        }
        self.unblock();
    }

    /// Queues a message to be sent again before its fate is known, unless it was acknowledged.
    pub(crate) fn repeat(&mut self, id: MessageId) {
        if is_value(id) {
            return self.on_value(None, id, 0);
        }
        if let Some(reliable) = &mut self.reliable {
            if is_fragment(id) {
                reliable.repeat_fragment(id);
            } else {
                reliable.repeat(id);
            }
        }
    }

    /// Processes the fate of a value in flight. Without `fate` the value is sent again in any case.
    fn on_value(&mut self, fate: Option<PacketFate>, id: MessageId, packet: u64) {
        // A value that was replaced or sent again since is no longer in flight under this id, and its fate has no
        // effect.
        let packet = fate.map(|_| packet);
        let Some(latest) = &mut self.latest else { return };
        let Some((key, value, priority)) = latest.take(id, packet) else { return };
        if fate == Some(PacketFate::Acknowledged) {
            latest.forget(key);
            return self.forget(&value, Outcome::Acknowledged);
        }
        // The value goes to the end of its queue: values have no order, and it stays the newest of its key.
        let scheduler = self.scheduler.get_or_insert_with(|| Box::new(ChannelScheduler::new(self.hash)));
        latest.on_queued(key, scheduler.push_at_end(value, priority));
    }
}
