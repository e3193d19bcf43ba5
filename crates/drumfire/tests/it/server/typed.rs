//! Typed channels with all interfaces.

use std::time::Duration;

use super::world::{config, now};
use drumfire::typed::{ChannelError, Codec};
use drumfire::{
    Channel, ChannelId, Client, ClientConfig, Event, Message, SendError, SendOptions, Server, ServerKey,
    Workers,
};

use crate::single::{Single as _, connect_dev};

/// A codec for numbers of four bytes.
#[derive(Clone, Copy)]
struct Four;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NotFour;

impl std::fmt::Display for NotFour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not four bytes")
    }
}

impl std::error::Error for NotFour {}

impl Codec<u32> for Four {
    type Error = NotFour;

    fn encode(&self, value: &u32, into: &mut Vec<u8>) -> Result<(), NotFour> {
        into.extend_from_slice(&value.to_be_bytes());
        Ok(())
    }

    fn decode(&self, bytes: &[u8]) -> Result<u32, NotFour> {
        bytes.try_into().map(u32::from_be_bytes).map_err(|_| NotFour)
    }
}

const NUMBERS: Channel<u32, Four> = Channel::with_codec(ChannelId(4), SendOptions::reliable_ordered(), Four);

#[test]
fn values_travel_both_ways_and_invalid_bytes_are_errors() {
    let mut server = Server::bind(config(Workers::Inline)).expect("a server");
    let mut client = connect_dev(server.local_addr()).expect("a client");
    let mut bots = Client::new(
        ClientConfig::default().connections(1).address("127.0.0.1:0".parse().expect("an address")),
    )
    .expect("a socket");
    let bot = bots.connect((server.local_addr(), ServerKey::dev().public())).expect("room");
    let message = |number| NUMBERS.message(&number).expect("four bytes");
    client.send_up(message(7)).expect("room");
    bots.send(bot, message(8)).expect("room");
    client.send_up(Message::reliable_ordered(NUMBERS.id(), "five.")).expect("room");
    let (mut answers, mut errors, deadline) = (Vec::new(), Vec::new(), now() + Duration::from_secs(30));
    while answers.len() < 2 || errors.is_empty() {
        assert!(now() < deadline, "{answers:?} {errors:?}");
        server.poll(Duration::ZERO);
        while let Some(event) = server.next_event() {
            if let Event::Message { peer, payload, .. } = event {
                match NUMBERS.decode(&payload) {
                    Ok(number) => server.send(peer, message(number * 10)).expect("room"),
                    Err(error) => errors.push(error),
                }
            }
        }
        server.poll(Duration::from_millis(1));
        client.poll(Duration::from_millis(1));
        bots.poll(Duration::from_millis(1));
        while let Some(event) = client.next_event() {
            if let Event::Message { payload, .. } = event {
                answers.push(NUMBERS.decode(&payload).expect("a number"));
            }
        }
        bots.poll(Duration::ZERO);
        while let Some(event) = bots.next_event() {
            if let Event::Message { payload, .. } = event {
                answers.push(NUMBERS.decode(&payload).expect("a number"));
            }
        }
    }
    answers.sort_unstable();
    assert_eq!(
        (answers.as_slice(), errors.as_slice()),
        (&[70, 80][..], &[ChannelError::Decode(NotFour)][..])
    );
    bots.close(bot, 0, "");
    assert_eq!(bots.send(bot, message(9)), Err(SendError::Closed));
}
