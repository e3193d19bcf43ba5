//! drumfire's chat server: all connections are in one group, and a handler broadcasts each message to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drumfire::{ChannelId, Context, Event, GroupId, Handler, Message, PeerId, SendOptions, handler};
use drumfire_benches::roles::{config, print_address};
use drumfire_benches::{Counts, InputLines, arguments, counts_from, counts_of, print_json};
use serde::Serialize;

use crate::Mode;

/// The role of [`run`].
pub(crate) const SERVER: &str = "chat-server";

const RECEIVE_BUFFER_BYTES: usize = 16 * 1_024 * 1_024;

/// The interval in which gathered messages are broadcast.
const GATHERED_FOR: Duration = Duration::from_millis(50);

const EVERYONE: GroupId = GroupId(1);

/// The counts of messages at a server.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ChatTally {
    pub(crate) members: AtomicU64,
    #[serde(rename = "server left")]
    left: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) broadcasts: AtomicU64,
    /// The members at the time of each broadcast, summed.
    pub(crate) owed: AtomicU64,
    /// Copies of broadcasts for which a member had no room.
    pub(crate) missed: AtomicU64,
    /// Messages that were received and not broadcast, because there was no room.
    #[serde(rename = "not broadcast")]
    not_broadcast: AtomicU64,
}

impl ChatTally {
    pub(crate) fn on_left(&self) {
        self.members.fetch_sub(1, Ordering::Relaxed);
        add(&self.left, 1);
    }
}

pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

struct ChatHandler {
    tally: Arc<ChatTally>,
    options: SendOptions,
    /// Messages that wait for the next tick.
    gathered: Vec<Vec<u8>>,
}

impl Handler for ChatHandler {
    type Note = ();

    fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
        let tally = &self.tally;
        match event {
            Event::Connected { peer, .. } if context.join(peer, EVERYONE) => add(&tally.members, 1),
            Event::Missed { count, .. } => add(&tally.missed, count.into()),
            Event::Disconnected { .. } => tally.on_left(),
            _ => {}
        }
    }

    fn on_message(&mut self, _: &mut Context<'_>, _: PeerId, _: ChannelId, message: &[u8]) {
        add(&self.tally.received, 1);
        self.gathered.push(message.to_vec());
    }

    fn tick_period(&self) -> Option<Duration> {
        Some(GATHERED_FOR)
    }

    fn on_tick(&mut self, context: &mut Context<'_>) {
        let Self { tally, options, gathered } = self;
        for message in gathered.drain(..) {
            let members = tally.members.load(Ordering::Relaxed);
            if context.broadcast(EVERYONE, Message::new(ChannelId(0), message, *options)).is_ok() {
                add(&tally.broadcasts, 1);
                add(&tally.owed, members);
            } else {
                add(&tally.not_broadcast, 1);
            }
        }
    }
}

/// Runs the server. The arguments are the [`Mode`] and the number of connections.
///
/// It prints its address, its counts for each line of its input, and its counts at the end of its input.
pub(crate) fn run(args: &str) -> Result<Counts, String> {
    let (mode, connections): (Mode, u32) = arguments(args)?;
    let config = config(1, connections).receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
    let tally = Arc::<ChatTally>::default();
    let handler =
        |_| ChatHandler { tally: Arc::clone(&tally), options: mode.options(), gathered: Vec::new() };
    let server = handler::Server::bind(config, handler).map_err(|error| error.to_string())?;
    print_address(server.local_addr())?;
    let print_counts = || {
        let mut counts = counts_of(&server.control().stats());
        counts.append(&mut counts_from(&*tally));
        print_json(&counts)
    };
    InputLines::read().iter().try_for_each(|_| print_counts())?;
    print_counts()?;
    // The server leaves without closing its connections, because the clients count them next.
    std::process::exit(0)
}
