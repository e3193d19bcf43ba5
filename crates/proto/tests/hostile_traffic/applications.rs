//! The server's application: what it reads, stores, and sends.

use allocation_counter::measure;
use bytes::Bytes;
use drumfire_proto::{ChannelId, CloseReason, Event, EventBatch, Message, PeerId, SendOptions};

use crate::plan::Sends;
use crate::world::World;

static PAYLOAD: [u8; 64 * 1_024] = [0x77; 64 * 1_024];

/// The application, and its records of its clients.
#[derive(Debug, Default)]
pub(crate) struct Application {
    /// The charges of events that were taken and not released yet, by peer.
    unreleased: Vec<(PeerId, usize)>,
    /// The newest client that connected, until the scene takes it.
    pub(crate) connected: Option<PeerId>,
    /// How the connections ended.
    pub(crate) closed: Vec<CloseReason>,
    /// The honest client, and the number of its messages that arrived.
    pub(crate) honest: Option<PeerId>,
    pub(crate) received: u64,
}

impl Application {
    /// Takes all events. The messages of hostile clients are released only if `releases`.
    pub(crate) fn read(&mut self, world: &mut World, releases: bool) {
        let mut batch = EventBatch::default();
        let batch_mut = &mut batch;
        world.at_server(|server, _| server.take_events(batch_mut));
        while let Some(event) = batch.pop() {
            if let Some((peer, length)) = event.held() {
                if Some(peer) == self.honest {
                    world.at_server(|server, _| server.release(peer, length));
                } else {
                    self.unreleased.push((peer, length));
                }
            }
            match event {
                Event::Connected { peer, .. } => self.connected = Some(peer),
                Event::Message { peer, payload, .. } if Some(peer) == self.honest => {
                    if payload != self.received.to_be_bytes() {
                        world.record_fault(format!(
                            "message {} of the honest client is out of order",
                            self.received
                        ));
                    }
                    self.received += 1;
                }
                Event::Skipped { peer, .. } if Some(peer) == self.honest => {
                    world.record_fault("a message of the honest client was left out".to_owned());
                }
                Event::Disconnected { peer, reason, .. } => {
                    if Some(peer) == self.honest {
                        world.record_fault(format!("the honest client was disconnected: {reason}"));
                    }
                    self.closed.push(reason);
                }
                _ => {}
            }
        }
        world.held_bytes += measure(|| drop(batch)).bytes_current;
        if releases {
            self.release(world);
        }
    }

    /// Releases all messages that were taken.
    pub(crate) fn release(&mut self, world: &mut World) {
        let unreleased = &mut self.unreleased;
        world.at_server(|server, _| {
            for (peer, length) in unreleased.iter().copied() {
                server.release(peer, length);
            }
        });
        self.unreleased.clear();
    }

    /// Sends to a hostile client. A full or closing connection accepts nothing.
    pub(crate) fn send(world: &mut World, peer: PeerId, sends: Sends) {
        let (bytes, options) = match sends {
            Sends::Nothing => return,
            Sends::Small => (64, SendOptions::unreliable()),
            Sends::Reliable => (1_000, SendOptions::reliable_unordered()),
            Sends::Large => (4_000, SendOptions::reliable_ordered()),
        };
        let payload = Bytes::from_static(&PAYLOAD[..bytes]);
        let _ = world
            .at_server(|server, now| server.send(now, peer, Message::new(ChannelId(1), payload, options)));
    }
}
