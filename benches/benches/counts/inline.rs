//! The path of a message through a server without threads, from its socket to the application and back.
//!
//! The server has real sockets and the real clock. System calls are not counted, so that the counts hardly depend on the machine. A client
//! on the same thread sends one unreliable message per round.

use std::time::Duration;

use drumfire::{Bytes, ChannelId, Client, ClientConfig, Event, Message, PeerId, Server, Workers};
use drumfire_benches::roles::{config, key};

use crate::counted_part;

/// The bytes of a message.
const PAYLOAD: &[u8] = &[7; 64];

/// The direction that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// `poll` and the event of a message.
    In,
    /// `send` and `flush` of the answer.
    Out,
}

/// Echoes this number of messages.
pub(crate) fn echo(direction: Direction, count: u64) {
    let config = config(1, 1).workers(Workers::Inline);
    let mut server = Server::bind(config).expect("a server on the loopback");
    let mut client = Client::new(ClientConfig::default()).expect("a client");
    let to_server = client.connect((server.local_addr(), key().public())).expect("an address");
    let to_client = connect(&mut server, &mut client);
    for _ in 0..count {
        let message = Message::unreliable(ChannelId(0), PAYLOAD);
        client.send(to_server, message).expect("there is room for a message");
        client.flush();
        let payload = count_if(direction == Direction::In, || {
            server.poll(Duration::ZERO);
            next_message(|| server.next_event())
        });
        count_if(direction == Direction::Out, || {
            let answer = Message::unreliable(ChannelId(0), payload);
            server.send(to_client, answer).expect("there is room for an answer");
            server.flush();
        });
        client.poll(Duration::ZERO);
        assert_eq!(next_message(|| client.next_event()), PAYLOAD);
    }
}

/// Returns the client's connection at the server when both ends are connected.
fn connect(server: &mut Server, client: &mut Client) -> PeerId {
    let (mut at_server, mut is_connected) = (None, false);
    loop {
        server.poll(Duration::ZERO);
        client.poll(Duration::ZERO);
        if let Some(Event::Connected { peer, .. }) = server.next_event() {
            at_server = Some(peer);
        }
        is_connected |= matches!(client.next_event(), Some(Event::Connected { .. }));
        if let Some(peer) = at_server.filter(|_| is_connected) {
            return peer;
        }
    }
}

/// Returns the message that must have arrived, because the loopback has no delay.
fn next_message(mut next_event: impl FnMut() -> Option<Event>) -> Bytes {
    loop {
        if let Event::Message { payload, .. } = next_event().expect("a message") {
            return payload;
        }
    }
}

/// Counts the work if it is of the direction that counts.
pub(crate) fn count_if<T>(counts: bool, work: impl FnOnce() -> T) -> T {
    if counts { counted_part(work) } else { work() }
}
