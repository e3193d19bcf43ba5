//! The server process: answers every message with itself, until it is killed or whoever started it is gone.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drumfire::tokens::{TokenAccess, TokenKey};
use drumfire::{Access, Event, Message, Server, ServerConfig, ServerKey, Workers};
use drumfire_socket::ReuseportGroup;

/// Serves at `address` with `workers` threads and the key with this text, by token where there is a key for tokens.
pub(crate) fn serve(arguments: &[String]) {
    let [address, workers, key, rest @ ..] = arguments else { panic!("address workers key [token key]") };
    let key: ServerKey = key.parse().expect("a key");
    let access = match rest.first() {
        Some(token_key) => {
            Access::Token(TokenAccess::new(token_key.parse::<TokenKey>().expect("a token key")))
        }
        None => Access::Open,
    };
    let workers: NonZeroU16 = workers.parse().expect("a number");
    // One, where the platform shares no port.
    let granted =
        u16::try_from(ReuseportGroup::MAX_SOCKETS).map_or(workers.get(), |most| workers.get().min(most));
    let config = ServerConfig::new(address.parse().expect("an address"), key, access)
        .server_id("eu-1")
        .workers(Workers::Count(granted));
    let mut server = Server::bind(config).expect("a free port");
    println!("{}", server.local_addr());
    std::io::stdout().flush().expect("somebody listens");
    let is_orphan = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&is_orphan);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        end.store(true, Ordering::Release);
    });
    while !is_orphan.load(Ordering::Acquire) {
        server.poll(Duration::from_millis(100));
        while let Some(event) = server.next_event() {
            if let Event::Message { peer, channel, payload } = event {
                // Whoever is gone by now needs no answer.
                let _ = server.send(peer, Message::unreliable(channel, payload));
            }
        }
        server.flush();
    }
}
