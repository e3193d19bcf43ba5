//! The vectors of malformed input, `crates/wire/vectors/malformed.json`: each against a real endpoint with real keys.
//!
//! The table in `datagrams` and `frames` is the source. Neighbors that are just within bounds are part of it: a bound is only
//! pinned down from both sides. `WRITE_VECTORS=1 cargo test -p drumfire-proto --test core malformed` writes the file
//! from it; without the variable the file must be what it would write. `cargo xtask interop` checks the same file with a
//! second implementation.

mod datagrams;
mod frames;

use std::path::PathBuf;
use std::time::Duration;

use drumfire_proto::{CloseCode, CloseReason, ConnectError, DropReason};
use drumfire_wire::{DatagramKind, Hello};
use serde_json::{Map, Value, json};

use crate::harness::{CLEAN, CLIENT, SERVER, Seen, World, address, identity, server_keys};
use crate::puppet::Puppet;
use drumfire_crypto::{Initiator, Mac1Key, RefuseKey, Secret};
use drumfire_puppet::{Connection, accept_hello, server_parameters};

/// A malformed input, or a neighbor that is just within bounds.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    description: &'static str,
    to: End,
    input: Input,
    outcome: Outcome,
}

type Changes = &'static [(usize, &'static str)];

/// The receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Server,
    /// A client that waits for a Welcome.
    Connecting,
    /// A client with an open connection.
    Client,
}

/// Bytes in the notation of [`expand`]. Changes are pairs of an offset and the bytes that replace those there.
#[derive(Clone, Copy)]
enum Input {
    /// A whole datagram. `{client id}` is replaced by that of the client's Hello.
    Datagram(&'static str),
    /// A valid Hello with changes, to its sections and to its parameters before they are sealed.
    Hello { set: Changes, parameters: Changes },
    /// A Refuse up to its MAC, and the psk of the MAC.
    Refuse { head: &'static str, psk: Option<&'static str> },
    /// A valid Welcome with changes to its parameters before they are sealed.
    Welcome { parameters: Changes },
    /// The frames of one packet, after packets with other frames.
    Frames { before: &'static [&'static str], frames: &'static str },
}

/// The receiver's reaction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// It handles the packet, acknowledges it if it is ack-eliciting, and goes on.
    Accepted,
    /// It drops the datagram without a response or an ack, and counts it under this name.
    Dropped(&'static str),
    /// It closes the connection with code 4 and this reason.
    Closed(&'static str),
    /// It sends a Retry.
    Retry,
    /// It sends a Refuse of this reason.
    Refused(u8),
    /// It sends a Welcome.
    Welcome,
    /// It counts an unauthenticated Refuse.
    Hint,
}

impl Case {
    const fn new(
        name: &'static str,
        description: &'static str,
        to: End,
        input: Input,
        outcome: Outcome,
    ) -> Self {
        Self { name, description, to, input, outcome }
    }

    fn to_json(self) -> Value {
        let changes = |changes: Changes| -> Map<String, Value> {
            changes.iter().map(|(at, bytes)| (at.to_string(), expand(bytes).into())).collect()
        };
        let mut inputs = match self.input {
            Input::Datagram(bytes) => json!({ "datagram": expand(bytes) }),
            Input::Hello { set, parameters } => {
                json!({ "hello": { "set": changes(set), "parameters": changes(parameters) } })
            }
            Input::Refuse { head, psk } => {
                json!({ "refuse": { "head": expand(head), "psk": psk.map(expand) } })
            }
            Input::Welcome { parameters } => json!({ "welcome": { "parameters": changes(parameters) } }),
            Input::Frames { before, frames } => {
                let before: Vec<_> = before.iter().map(|frames| expand(frames)).collect();
                json!({ "before": before, "frames": expand(frames) })
            }
        };
        inputs["to"] = match self.to {
            End::Server => "server",
            End::Connecting => "connecting client",
            End::Client => "client",
        }
        .into();
        let outputs = match self.outcome {
            Outcome::Accepted => json!({ "outcome": "accepted" }),
            Outcome::Dropped(reason) => json!({ "outcome": "dropped", "reason": reason }),
            Outcome::Closed(reason) => json!({ "outcome": "closed", "reason": reason }),
            Outcome::Retry => json!({ "outcome": "retry" }),
            Outcome::Refused(reason) => json!({ "outcome": "refused", "reason": reason }),
            Outcome::Welcome => json!({ "outcome": "welcome" }),
            Outcome::Hint => json!({ "outcome": "hint" }),
        };
        json!({ "description": self.description, "inputs": inputs, "outputs": outputs })
    }
}

fn cases() -> Vec<Case> {
    [datagrams::all(), frames::all()].concat()
}

/// Resolves the notation of the table: spaces are ignored, and `00*24` repeats a byte. `begun*0..24` is 24 Fragments,
/// each with the first of the two bytes of a message, with ids from 0 on.
fn expand(text: &str) -> String {
    let begun = |ids: &str| -> String {
        let (from, to) = ids.split_once("..").unwrap();
        let ids = from.parse::<u8>().unwrap()..to.parse().unwrap();
        ids.map(|id| format!("8a00{id:02x}02000141")).collect()
    };
    let word = |word: &str| match word.split_once('*') {
        Some(("begun", ids)) => begun(ids),
        Some((bytes, count)) => bytes.repeat(count.parse().unwrap()),
        None => word.to_owned(),
    };
    // The placeholder of a client id contains a space.
    text.replace("{client id}", "{client_id}")
        .split(' ')
        .map(word)
        .collect::<String>()
        .replace("{client_id}", "{client id}")
}

fn from_hex(text: &str) -> Vec<u8> {
    let text = &expand(text);
    assert!(text.len().is_multiple_of(2), "half a byte in {text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn change(bytes: &mut [u8], changes: &[(usize, &str)]) {
    for (at, new) in changes {
        let new = from_hex(new);
        bytes[*at..at + new.len()].copy_from_slice(&new);
    }
}

#[test]
fn malformed_vectors_match_the_table() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/vectors/malformed.json");
    let cases = cases();
    let entries: Map<String, Value> =
        cases.iter().map(|case| (case.name.to_owned(), case.to_json())).collect();
    assert_eq!(entries.len(), cases.len(), "two cases have one name");
    let text = format!("{:#}\n", Value::Object(entries));
    if std::env::var_os("WRITE_VECTORS").is_some() {
        std::fs::write(&path, text).unwrap();
    } else {
        assert!(std::fs::read_to_string(&path).unwrap() == text, "write {} again", path.display());
    }
}

#[test]
fn malformed_input_has_the_outcome_of_its_vector() {
    for case in cases() {
        let outcome = match (case.input, case.to) {
            (Input::Datagram(bytes), End::Server) => to_server(&from_hex(bytes)),
            (Input::Datagram(bytes), _) => to_connecting(|hello| {
                let client_id: String =
                    hello.fields.client_id.0.iter().map(|byte| format!("{byte:02x}")).collect();
                from_hex(&bytes.replace("{client id}", &client_id))
            }),
            (Input::Hello { set, parameters }, _) => hello(set, parameters),
            (Input::Refuse { head, psk }, _) => refuse(head, psk),
            (Input::Welcome { parameters }, _) => {
                to_connecting(|hello| answer(hello, |payload| change(payload, parameters)).1)
            }
            (Input::Frames { before, frames }, End::Server) => frames_to_server(before, frames),
            (Input::Frames { before, frames }, _) => frames_to_client(before, frames),
        };
        assert_eq!(outcome, case.outcome, "{}: {}", case.name, case.description);
    }
}

#[test]
fn reasons_in_the_text_match_the_vectors() {
    const STANDARD: &str = include_str!("../../../wire/PROTOCOL.md");
    let rows = STANDARD.lines().skip_while(|line| !line.starts_with("| reason | the packet |")).skip(2);
    let named: Vec<_> = rows
        .take_while(|row| row.starts_with('|'))
        .map(|row| row.split('|').nth(1).unwrap().trim())
        .collect();
    let closed = |case: &Case| if let Outcome::Closed(reason) = case.outcome { Some(reason) } else { None };
    for reason in cases().iter().filter_map(closed) {
        assert!(named.contains(&reason), "PROTOCOL.md does not list {reason}");
    }
}

/// The name under which an end dropped one more datagram than `before`.
fn drops(world: &World, end: usize) -> impl Fn(&World) -> Option<&'static str> + use<> {
    let before = *world.ends[end].stats();
    move |world| {
        let stats = world.ends[end].stats();
        let grown = |reason: &DropReason| stats.dropped(*reason) > before.dropped(*reason);
        DropReason::ALL.into_iter().find(grown).map(DropReason::name)
    }
}

fn to_server(bytes: &[u8]) -> Outcome {
    let mut world = World::new(1, CLEAN);
    let dropped = drops(&world, SERVER);
    world.deliver(SERVER, address(CLIENT), bytes);
    world.flush();
    assert!(world.sent.is_empty(), "it was answered");
    Outcome::Dropped(dropped(&world).unwrap())
}

/// A client that has sent its first Hello.
fn connecting() -> (World, Vec<u8>) {
    let mut world = World::new(2, CLEAN);
    world.connect();
    world.flush();
    let hello = world.sent.pop().unwrap().2;
    world.in_flight.clear();
    (world, hello)
}

fn to_connecting(answer: impl FnOnce(&Hello<'_>) -> Vec<u8>) -> Outcome {
    let (mut world, hello) = connecting();
    let answer = answer(&Hello::decode(&hello).unwrap());
    let dropped = drops(&world, CLIENT);
    world.deliver(CLIENT, address(SERVER), &answer);
    world.flush();
    match dropped(&world) {
        Some(reason) => {
            assert_eq!(world.seen[CLIENT], [], "it had an effect");
            Outcome::Dropped(reason)
        }
        None => {
            assert_eq!(world.peers(CLIENT).len(), 1);
            Outcome::Accepted
        }
    }
}

/// Passes the same Refuse to a client three times, and returns whether the attempt continues until then and a second
/// more.
fn refuse(head: &str, psk: Option<&str>) -> Outcome {
    let (mut world, hello) = connecting();
    let hello = Hello::decode(&hello).unwrap();
    let client_id: String = hello.fields.client_id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut bytes = from_hex(&head.replace("{client id}", &client_id));
    world.link.loss = 100;
    let key = psk.map(|psk| RefuseKey::derive(&Secret::new(from_hex(psk).try_into().unwrap())));
    bytes.extend(key.map_or([0; 16], |key| key.mac(&bytes, hello.noise_message)));
    for _ in 0..3 {
        assert_eq!(world.seen[CLIENT], []);
        world.deliver(CLIENT, address(SERVER), &bytes);
        world.flush();
    }
    world.run(Duration::from_millis(999));
    assert_eq!(world.seen[CLIENT], [], "the client believed the first refusal");
    world.run(Duration::from_millis(1));
    let Some((_, _, Seen::ConnectFailed(ConnectError::Refused(refusal)))) = world.last(CLIENT) else {
        panic!("three equal ones are believed after a second")
    };
    assert_eq!(refusal.address, None, "an address that nothing proves");
    Outcome::Hint
}

/// Sends a changed Hello to a server, and repeats it with a cookie if the server asks for one.
fn hello(set: Changes, parameters: Changes) -> Outcome {
    let mut world = World::new(3, CLEAN);
    let mut bytes = vec![0; 1_200];
    // Version 1 and suite 1, and all ids zero but the client's.
    (bytes[0], bytes[2], bytes[27]) = (0x89, 1, 1);
    bytes[11..19].copy_from_slice(&[7; 8]);
    let is_in = |bounds: std::ops::Range<usize>| {
        set.iter().filter(move |(at, _)| bounds.contains(at)).copied().collect::<Vec<_>>()
    };
    change(&mut bytes, &is_in(0..540));
    let mut payload = [0; 564];
    payload[9..27].copy_from_slice(&[4, 0xb0, 0, 0, 0x75, 0x30, 0, 0, 0x27, 0x10, 0, 1, 0, 0, 0, 3, 0, 0]);
    change(&mut payload, parameters);
    let (key, psk) = (identity().public_key, Secret::zeroed());
    let (prologue, message_1) = bytes.split_at_mut(572);
    let message_1: &mut [u8; 612] = message_1.first_chunk_mut().unwrap();
    Initiator::new(&key, &psk, prologue, &payload, Secret::new([9; 32]), message_1).unwrap();
    change(&mut bytes, &is_in(572..1_184));
    let mac1 = Mac1Key::derive(&key, &psk).mac(&[&bytes[..28], &bytes[572..1_184]]);
    bytes[1_184..].copy_from_slice(&mac1);
    change(&mut bytes, &is_in(1_184..1_200));
    let invented = is_in(540..572);
    change(&mut bytes, &invented);
    for _ in 0..2 {
        let dropped = drops(&world, SERVER);
        world.deliver(SERVER, address(CLIENT), &bytes);
        world.flush();
        let answer = world.sent.pop().map(|(_, _, answer)| answer);
        let Some(answer) = answer else { return Outcome::Dropped(dropped(&world).unwrap()) };
        match DatagramKind::of(&answer).unwrap() {
            DatagramKind::Retry if invented.is_empty() => bytes[540..572].copy_from_slice(&answer[9..41]),
            DatagramKind::Retry => return Outcome::Retry,
            DatagramKind::Refuse => return Outcome::Refused(answer[9]),
            kind => {
                assert_eq!(kind, DatagramKind::Welcome);
                return Outcome::Welcome;
            }
        }
    }
    panic!("a Retry for a good cookie")
}

fn frames_to_server(before: &[&str], frames: &str) -> Outcome {
    let mut puppet = Puppet::connected(4);
    for frames in before {
        puppet.send_bytes(&padded(frames));
        assert_eq!(puppet.ending(), None, "{frames}");
    }
    puppet.take_packets();
    let dropped = drops(&puppet.world, SERVER);
    puppet.send_bytes(&padded(frames));
    let closes = puppet.closes();
    let ending = puppet.ending();
    outcome(dropped(&puppet.world), ending, &closes)
}

fn frames_to_client(before: &[&str], frames: &str) -> Outcome {
    let (mut world, hello) = connecting();
    let (mut server, welcome) = answer(&Hello::decode(&hello).unwrap(), |_| {});
    world.deliver(CLIENT, address(SERVER), &welcome);
    world.flush();
    for frames in before {
        let datagram = server.datagram(&padded(frames));
        world.deliver(CLIENT, address(SERVER), &datagram);
    }
    let dropped = drops(&world, CLIENT);
    let datagram = server.datagram(&padded(frames));
    world.deliver(CLIENT, address(SERVER), &datagram);
    world.flush();
    let ending = world.seen[CLIENT].iter().find_map(|(_, _, seen)| match seen {
        Seen::Disconnected(reason, _) => Some(*reason),
        _ => None,
    });
    let sent: Vec<_> = world.sent.iter().filter(|(_, end, _)| *end == CLIENT).collect();
    let packets =
        sent.iter().map(|(_, _, bytes)| server.open(bytes.clone()).expect("a packet of the client"));
    let closes: Vec<_> = packets.flat_map(|packet| packet.closes()).collect();
    outcome(dropped(&world), ending, &closes)
}

fn answer(hello: &Hello<'_>, change: impl FnOnce(&mut [u8])) -> (Connection, Vec<u8>) {
    let (usual, ephemeral) = (server_parameters([0; 8]), Secret::new([8; 32]));
    accept_hello(&server_keys(), hello, &usual, &ephemeral, |parameters| change(parameters))
        .expect("the Hello opens")
}

/// Frames as they are sealed: a packet is at least 28 bytes long. The padding is in front, for some of them do not end.
fn padded(frames: &str) -> Vec<u8> {
    let frames = from_hex(frames);
    [vec![0; 12_usize.saturating_sub(frames.len())], frames].concat()
}

fn outcome(
    dropped: Option<&'static str>,
    ending: Option<CloseReason>,
    closes: &[(CloseCode, String)],
) -> Outcome {
    match (dropped, ending) {
        (Some("protocol"), Some(CloseReason::Protocol(error))) => {
            // The peer receives the same name as the application.
            assert_eq!(closes, [(CloseCode::Protocol, error.name().to_owned())]);
            Outcome::Closed(error.name())
        }
        (Some(reason), None) => Outcome::Dropped(reason),
        (None, None) => Outcome::Accepted,
        other => panic!("{other:?}"),
    }
}
