//! The tests: each disturbs the server, and checks that all clients are served again.

use std::time::Duration;

use drumfire::tokens::{TokenMasterKey, TokenRequest};
use drumfire::{PlayerId, ServerKey};

use crate::clients::{ALL, Clients, now};
use crate::own_address::own_address;
use crate::process::ServerProcess;

const ROUNDS: u32 = 5;
const WORKERS: u16 = 4;

pub(crate) fn killed_by_token() {
    for round in 1..=ROUNDS {
        // Each round has new clients, because a client that has just reconnected waits longer the next time.
        let (server, mut clients, keys) = players();
        clients.until("all can come back", |state| state.has_resume_token);
        // The newest token is kept with one of the next polls.
        clients.run_for(Duration::from_millis(20));
        kill_and_restart(server, &mut clients, &keys, &format!("by token, round {round}"));
    }
}

pub(crate) fn killed_openly() {
    let key = ServerKey::generate().expect("randomness");
    let keys = [key.to_text()];
    let server = ServerProcess::start(own_address(1), WORKERS, &keys);
    let mut clients = Clients::connect(server.address, key.public(), |_| None);
    clients.until("all are connected", |state| state.is_answered);
    kill_and_restart(server, &mut clients, &keys, "openly, from one address");
}

pub(crate) fn stopped() {
    if std::env::consts::FAMILY != "unix" {
        println!("this system has no signal that stops a process");
        return;
    }
    let (server, mut clients, _) = players();
    clients.reset();
    server.signal("STOP");
    clients.run_for(Duration::from_secs(3));
    server.signal("CONT");
    clients.reset();
    let took = clients.until("all are answered again", |state| state.is_answered);
    // A client that the server lost receives a Reset for its next packet.
    clients.run_for(Duration::from_secs(1));
    let lost = clients.count(|state| state.reconnects > 0);
    println!("stopped for 3 s: all {ALL} answered {} ms after, {lost} lost", took.as_millis());
    assert_eq!(lost, 0);
}

/// Returns a server with access by token, and its connected players.
fn players() -> (ServerProcess, Clients, [String; 2]) {
    let key = ServerKey::generate().expect("randomness");
    let tokens = TokenMasterKey::generate().expect("randomness").token_key(1, "eu-1").expect("an id");
    let keys = [key.to_text(), tokens.to_text()];
    let server = ServerProcess::start(own_address(1), WORKERS, &keys);
    let (address, public) = (server.address, key.public());
    let mut clients = Clients::connect(address, public, |index| {
        let request = TokenRequest::new(PlayerId(index as u128), address, public);
        Some(request.issue(&tokens).expect("a token"))
    });
    clients.until("all are connected", |state| state.is_answered);
    (server, clients, keys)
}

/// Kills the server and starts another one at its address. All clients must reconnect by themselves.
fn kill_and_restart(server: ServerProcess, clients: &mut Clients, keys: &[String], what: &str) {
    let address = server.address;
    clients.reset();
    let killed_at = now();
    server.kill();
    let server = ServerProcess::start(address, WORKERS, keys);
    let served_at = now();
    let noticed = clients.until("all have noticed", |state| state.reconnects > 0);
    clients.until("all are back", |state| state.is_answered && state.reconnects > 0);
    println!(
        "{what}: all {ALL} are back {} ms after the kill; the new server was bound after {} ms, all had noticed {} ms later; {} needed more than one attempt",
        now().duration_since(killed_at).as_millis(),
        served_at.duration_since(killed_at).as_millis(),
        noticed.as_millis(),
        clients.count(|state| state.reconnects > 1),
    );
    server.kill();
}
