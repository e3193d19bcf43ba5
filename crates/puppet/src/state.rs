//! A hostile client's view of its connection: ids, fragments, credit, and received packets.
//!
//! A client that ignores all rules is disconnected after a packet or two, and tests nothing else. This module models
//! the rules and not the server. If the model is wrong, a connection ends early, and the test connects again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use drumfire_wire::{ChannelId, Delivery, Frame, Frames, SharedParameters, limits};

use crate::connection::OpenedPacket;
use crate::frame::DrawnFrame;

/// Numbers of packets of the server that are remembered.
const RECEIVED_MAX: usize = 512;

/// Fragmented unreliable messages that are remembered.
const UNRELIABLE_FRAGMENTED_MAX: usize = 16;

/// Fragmented reliable messages that the other end reassembles at a time.
pub(crate) const FRAGMENTED_MAX: usize = 64;

/// A fragmented message, as its first fragment described it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragmented {
    pub(crate) channel: ChannelId,
    pub(crate) delivery: Delivery,
    pub(crate) total: u32,
    /// The end of the last fragment.
    pub(crate) end: u32,
    /// The number of bytes from the start without a gap.
    pub(crate) whole: u32,
}

/// The messages and ids that a hostile client has sent, and the packets that it has received.
#[derive(Debug)]
pub(crate) struct SendState {
    /// The limits that the other end stated in the handshake.
    pub(crate) peer: SharedParameters,
    /// The lowest id that may be sent.
    pub(crate) first: u64,
    pub(crate) next: u64,
    /// The last id of the frame that was drawn last.
    pub(crate) last_id: u64,
    /// The largest number of ids between the lowest missing one and the newest.
    pub(crate) ids_ahead: u64,
    /// Ids below `next` that the server has not accepted yet.
    pub(crate) missing: BTreeSet<u64>,
    pub(crate) fragmented: BTreeMap<u64, Fragmented>,
    /// Fragmented unreliable messages, by the packet number that identifies them.
    pub(crate) unreliable: BTreeMap<u64, Fragmented>,
    pub(crate) credit_edge: u64,
    pub(crate) credit_used: u64,
    pub(crate) last_of_channel: BTreeMap<u16, u64>,
    /// Numbers of the server's packets, oldest first.
    pub(crate) received: VecDeque<u64>,
    /// Sequence numbers of spare connection ids that the server issued.
    pub(crate) spare_ids: Vec<u64>,
    pub(crate) challenges: Vec<u64>,
    pub(crate) version: u64,
}

impl SendState {
    /// Returns the state after the handshake. With `holds_back_first` the first message is never sent.
    pub(crate) fn new(peer: SharedParameters, holds_back_first: bool) -> Self {
        let first = u64::from(holds_back_first);
        Self {
            peer,
            first,
            next: first,
            last_id: 0,
            ids_ahead: 0,
            missing: (0..first).collect(),
            fragmented: BTreeMap::new(),
            unreliable: BTreeMap::new(),
            credit_edge: peer.credit_bytes.into(),
            credit_used: 0,
            last_of_channel: BTreeMap::new(),
            received: VecDeque::new(),
            spare_ids: Vec::new(),
            challenges: Vec::new(),
            version: 0,
        }
    }

    /// Returns the lowest id that the server lacks.
    pub(crate) fn floor(&self) -> u64 {
        self.missing.first().copied().unwrap_or(self.next)
    }

    /// Returns the lowest id that the server lacks and that may be sent.
    pub(crate) fn lowest(&self) -> u64 {
        self.missing.range(self.first..).next().copied().unwrap_or(self.next)
    }

    /// Returns the first id beyond the window of the server.
    fn window_end(&self) -> u64 {
        self.floor() + limits::MESSAGE_IDS_AHEAD + 1
    }

    /// Returns whether the server must accept the reliable messages of a frame.
    pub(crate) fn is_allowed(&self, frame: &DrawnFrame) -> bool {
        let has_credit = self.credit_used + self.charge(frame) <= self.credit_edge;
        let end = self.window_end();
        frame.id().is_none() || has_credit && frame.ids().all(|id| id < end)
    }

    /// Returns the credit that a frame spends: only the first part of a message spends any.
    fn charge(&self, frame: &DrawnFrame) -> u64 {
        let bytes = match frame {
            DrawnFrame::Message { bytes, .. } | DrawnFrame::Run { bytes, .. } => *bytes as u64,
            DrawnFrame::Fragment { total, .. } => (*total).into(),
            DrawnFrame::Skip(skip) | DrawnFrame::SkipRun { first: skip, .. } => skip.bytes.into(),
            _ => 0,
        };
        let new = frame.ids().filter(|id| self.is_new(*id)).count() as u64;
        new * (bytes + u64::from(limits::MESSAGE_CHARGE_BYTES))
    }

    /// Returns whether no part of this message was sent.
    fn is_new(&self, id: u64) -> bool {
        (id >= self.next || self.missing.contains(&id)) && !self.fragmented.contains_key(&id)
    }

    /// Records a frame that is about to be sent: ids count as used, and credit as spent. Returns the credit that the frame
    /// spent.
    pub(crate) fn on_drawn(&mut self, frame: &DrawnFrame) -> u64 {
        let (charge, end) = (self.charge(frame), self.window_end());
        self.credit_used += charge;
        // The server rejects ids beyond its window.
        if let Some(last) = frame.ids().take_while(|id| *id < end).last().filter(|last| *last >= self.next) {
            self.missing.extend(self.next..=last);
            self.next = last + 1;
        }
        self.last_id = frame.ids().last().unwrap_or(self.last_id);
        match frame {
            DrawnFrame::Fragment { channel, delivery, number, total, offset, bytes } => {
                let end = offset + u32::try_from(*bytes).unwrap_or(0);
                let fresh =
                    Fragmented { channel: *channel, delivery: *delivery, total: *total, end: 0, whole: 0 };
                let message = match delivery.id() {
                    Some(id) if self.is_new(id.0) || self.fragmented.contains_key(&id.0) => {
                        self.fragmented.entry(id.0).or_insert(fresh)
                    }
                    Some(_) => return charge,
                    None => self.unreliable.entry(*number).or_insert(fresh),
                };
                message.end = end;
                if *offset <= message.whole {
                    message.whole = message.whole.max(end);
                }
                if let Some(id) = delivery.id()
                    && message.whole >= message.total
                {
                    self.on_whole(id.0);
                }
                if self.unreliable.len() > UNRELIABLE_FRAGMENTED_MAX {
                    self.unreliable.pop_first();
                }
            }
            DrawnFrame::Message { channel, .. } | DrawnFrame::Run { channel, .. } => {
                for id in frame.ids() {
                    self.last_of_channel.insert(channel.0, id);
                    self.on_whole(id);
                }
            }
            DrawnFrame::Skip(_) | DrawnFrame::SkipRun { .. } => {
                frame.ids().for_each(|id| self.on_whole(id));
            }
            _ => {}
        }
        charge
    }

    fn on_whole(&mut self, id: u64) {
        self.missing.remove(&id);
        self.fragmented.remove(&id);
    }

    /// Records that the server dropped these frames, each with the credit that it spent. Their ids are missing again.
    pub(crate) fn on_refused(&mut self, frames: &[(DrawnFrame, u64)]) {
        for (frame, charge) in frames {
            if *charge == 0 {
                continue;
            }
            self.credit_used -= charge;
            // A run may have had messages that the server has from before. It ignores them when they are sent again.
            for id in frame.ids().filter(|id| *id < self.next) {
                self.missing.insert(id);
                self.fragmented.remove(&id);
            }
        }
    }

    /// Reads a packet of the server.
    pub(crate) fn on_packet(&mut self, packet: &OpenedPacket) {
        if self.received.len() == RECEIVED_MAX {
            self.received.pop_front();
        }
        self.received.push_back(packet.number);
        for frame in Frames::new(&packet.frames).map_while(Result::ok) {
            match frame {
                Frame::Credit(edge) => self.credit_edge = self.credit_edge.max(edge),
                Frame::NewConnectionId(new) => self.spare_ids.push(new.sequence),
                Frame::PathChallenge(data) => self.challenges.push(u64::from_be_bytes(data.0)),
                _ => {}
            }
        }
    }
}
