//! The server process. It echoes every message until it is killed, or the process that started it has ended.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drumfire::tokens::{TokenAccess, TokenKey};
use drumfire::{Access, Event, Message, Server, ServerConfig, ServerKey, Workers};
use drumfire_socket::ReuseportGroup;

/// Serves with the arguments `address`, the number of `workers`, the server key, and optionally a token key. With a token key, clients
/// need tokens.
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
    // Some platforms do not share ports, and allow one worker only.
    let granted =
        u16::try_from(ReuseportGroup::MAX_SOCKETS).map_or(workers.get(), |most| workers.get().min(most));
    let config = ServerConfig::new(address.parse().expect("an address"), key, access)
        .server_id("eu-1")
        .workers(Workers::Count(granted));
    let mut server = Server::bind(config).expect("a free port");
    println!("{}", server.local_addr());
    std::io::stdout().flush().expect("the parent process reads");
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
                // An error means that the client has left.
                let _ = server.send(peer, Message::unreliable(channel, payload));
            }
        }
        server.flush();
    }
}
