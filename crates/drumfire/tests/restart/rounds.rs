//! The tests: each disturbs the server, and checks that all clients are served again.

use std::time::Duration;

use drumfire::tokens::{TokenMasterKey, TokenRequest};
use drumfire::{PlayerId, ServerKey};

use crate::clients::{ALL, Crowd, now};
use crate::own_address::own_address;
use crate::process::ServerProcess;

const ROUNDS: u32 = 5;
const WORKERS: u16 = 4;

pub(crate) fn killed_by_token() {
    for round in 1..=ROUNDS {
        // Each round has new clients, because a client that has just reconnected waits longer the next time.
        let (server, mut crowd, keys) = players();
        crowd.until("all can come back", |fate| fate.is_safe);
        // The newest token is kept with one of the next polls.
        crowd.go_on(Duration::from_millis(20));
        kill_and_restart(server, &mut crowd, &keys, &format!("by token, round {round}"));
    }
}

pub(crate) fn killed_openly() {
    let key = ServerKey::generate().expect("randomness");
    let keys = [key.to_text()];
    let server = ServerProcess::start(own_address(1), WORKERS, &keys);
    let mut crowd = Crowd::connect(server.address, key.public(), |_| None);
    crowd.until("all are connected", |fate| fate.is_answered);
    kill_and_restart(server, &mut crowd, &keys, "openly, from one address");
}

pub(crate) fn stopped() {
    if std::env::consts::FAMILY != "unix" {
        println!("this system has no signal that stops a process");
        return;
    }
    let (server, mut crowd, _) = players();
    crowd.forget();
    server.signal("STOP");
    crowd.go_on(Duration::from_secs(3));
    server.signal("CONT");
    crowd.forget();
    let took = crowd.until("all are answered again", |fate| fate.is_answered);
    // A client that the server lost receives a Reset for its next packet.
    crowd.go_on(Duration::from_secs(1));
    let lost = crowd.count(|fate| fate.again > 0);
    println!("stopped for 3 s: all {ALL} answered {} ms after, {lost} lost", took.as_millis());
    assert_eq!(lost, 0);
}

/// Returns a server with access by token, and its connected players.
fn players() -> (ServerProcess, Crowd, [String; 2]) {
    let key = ServerKey::generate().expect("randomness");
    let tokens = TokenMasterKey::generate().expect("randomness").token_key(1, "eu-1").expect("an id");
    let keys = [key.to_text(), tokens.to_text()];
    let server = ServerProcess::start(own_address(1), WORKERS, &keys);
    let (address, public) = (server.address, key.public());
    let mut crowd = Crowd::connect(address, public, |place| {
        let request = TokenRequest::new(PlayerId(place as u128), address, public);
        Some(request.issue(&tokens).expect("a token"))
    });
    crowd.until("all are connected", |fate| fate.is_answered);
    (server, crowd, keys)
}

/// Kills the server and starts another one at its address. All clients must reconnect by themselves.
fn kill_and_restart(server: ServerProcess, crowd: &mut Crowd, keys: &[String], what: &str) {
    let address = server.address;
    crowd.forget();
    let killed_at = now();
    server.kill();
    let server = ServerProcess::start(address, WORKERS, keys);
    let served_at = now();
    let noticed = crowd.until("all have noticed", |fate| fate.again > 0);
    crowd.until("all are back", |fate| fate.is_answered && fate.again > 0);
    println!(
        "{what}: all {ALL} are back {} ms after the kill; the new server was bound after {} ms, all had noticed {} ms later; {} needed more than one attempt",
        now().duration_since(killed_at).as_millis(),
        served_at.duration_since(killed_at).as_millis(),
        noticed.as_millis(),
        crowd.count(|fate| fate.again > 1),
    );
    server.kill();
}
