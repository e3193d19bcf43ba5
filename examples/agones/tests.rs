//! The server against a stand-in of the SDK's interface: what it says, in which order, and what it does when nobody answers.

use super::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

const HEALTH_EVERY: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_secs(60);

/// Answers every call, and remembers them in their order.
#[derive(Clone)]
struct StandIn {
    port: u16,
    calls: Arc<Mutex<Vec<String>>>,
}

impl StandIn {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let stand_in = Self { port, calls: Arc::default() };
        let here = stand_in.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let here = here.clone();
                std::thread::spawn(move || here.answer(client));
            }
        });
        stand_in
    }

    fn answer(&self, mut client: TcpStream) {
        let mut reader = BufReader::new(client.try_clone().expect("the same stream"));
        let head: Vec<String> =
            reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let Some(call) = head.first().and_then(|line| line.strip_suffix(" HTTP/1.1")) else { return };
        let body = if call == "GET /watch/gameserver" {
            let state = if self.count("POST /allocate") > 0 { "Allocated" } else { "Ready" };
            format!("{{\"result\":{{\"status\":{{\"state\":\"{state}\"}}}}}}\n")
        } else {
            let mut question = [0; 2];
            assert!(reader.read_exact(&mut question).is_ok() && question == *b"{}", "{head:?}");
            assert!(head.iter().any(|line| line.eq_ignore_ascii_case("content-type: application/json")));
            self.calls.lock().expect("no panic").push(call.to_owned());
            "{}".to_owned()
        };
        let length = body.len();
        let answer =
            format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
        // It may have gone away.
        let _ = client.write_all(answer.as_bytes());
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().expect("no panic").clone()
    }

    fn count(&self, call: &str) -> usize {
        self.calls().iter().filter(|made| *made == call).count()
    }
}

struct Playing {
    address: SocketAddr,
    is_told_to_go: Arc<AtomicBool>,
    server: JoinHandle<Result<(), String>>,
}

/// A server of the fleet, in a thread of its own.
fn serve_with(sdk: Option<Sdk>, drain_time: Duration) -> Playing {
    let server = bind("127.0.0.1:0".parse().expect("an address"), ServerKey::dev()).expect("a port");
    let (address, is_told_to_go) = (server.local_addr(), Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&is_told_to_go);
    let server = std::thread::spawn(move || {
        run(Round::new(server, drain_time), sdk, HEALTH_EVERY, &told).map_err(|error| error.to_string())
    });
    Playing { address, is_told_to_go, server }
}

fn player(
    address: SocketAddr,
    wants_more: impl Fn(u32) -> bool + Send + 'static,
    heeds: bool,
) -> JoinHandle<Result<Played, String>> {
    std::thread::spawn(move || {
        play(address, ServerKey::dev().public(), wants_more, heeds).map_err(|error| error.to_string())
    })
}

#[test]
fn a_round_is_ready_then_well_then_allocated_and_shut_down_last() {
    let stand_in = StandIn::start();
    let playing = serve_with(Some(Sdk::at(stand_in.port, 1)), LONG);
    // It plays until all was said that is said while a round goes on.
    let here = stand_in.clone();
    let wants_more = move |answers| {
        let last_health = here.calls().iter().rposition(|call| call == "POST /health");
        let allocated = here.calls().iter().position(|call| call == "POST /allocate");
        answers == 0 || allocated.is_none_or(|at| last_health.is_none_or(|health| health < at))
    };
    let played = player(playing.address, wants_more, true).join().expect("no panic").expect("a player");
    assert!(matches!(played, Played::Left { answers: 1.. }), "{played:?}");
    playing.server.join().expect("no panic").expect("a good end");

    let calls = stand_in.calls();
    let (first, last) = (&calls[0], &calls[calls.len() - 1]);
    assert_eq!((first.as_str(), last.as_str()), ("POST /ready", "POST /shutdown"), "{calls:?}");
    assert_eq!([stand_in.count("POST /ready"), stand_in.count("POST /shutdown")], [1, 1]);
    let between = ["POST /health", "POST /allocate"];
    assert!(calls[1..calls.len() - 1].iter().all(|call| between.contains(&call.as_str())), "{calls:?}");
}

#[test]
fn a_server_that_is_told_to_go_lets_players_finish_and_closes_who_stays() {
    for (heeds, drain_time) in [(true, LONG), (false, Duration::ZERO)] {
        let stand_in = StandIn::start();
        let playing = serve_with(Some(Sdk::at(stand_in.port, 1)), drain_time);
        let (is_told, here) = (Arc::clone(&playing.is_told_to_go), stand_in.clone());
        let wants_more = move |answers| {
            if answers == 3 {
                is_told.store(true, Ordering::Release);
            }
            assert_eq!(here.count("POST /shutdown"), 0, "a player is still here");
            true
        };
        let played = player(playing.address, wants_more, heeds).join().expect("no panic").expect("a player");
        assert_eq!(matches!(played, Played::Left { .. }), heeds, "{played:?}");
        playing.server.join().expect("no panic").expect("a good end");
        assert_eq!(stand_in.calls().last().map(String::as_str), Some("POST /shutdown"));
    }
}

#[test]
fn a_server_that_nobody_came_to_goes_when_it_is_told() {
    let stand_in = StandIn::start();
    let playing = serve_with(Some(Sdk::at(stand_in.port, 1)), LONG);
    playing.is_told_to_go.store(true, Ordering::Release);
    playing.server.join().expect("no panic").expect("a good end");
    assert_eq!(stand_in.calls().last().map(String::as_str), Some("POST /shutdown"));
    assert_eq!(stand_in.count("POST /allocate"), 0);
}

#[test]
fn without_an_sdk_that_answers_it_ends_with_one_line_and_without_agones_it_plays() {
    // A port that was free a moment ago: nobody answers there.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let playing = serve_with(Some(Sdk::at(port, 2)), LONG);
    let line = playing.server.join().expect("no panic").expect_err("nobody answers");
    assert!(line.starts_with("Agones: no answer to POST http://127.0.0.1:"), "{line}");
    assert!(
        line.contains("/ready") && line.contains("AGONES_SDK_HTTP_PORT") && !line.contains('\n'),
        "{line}"
    );

    let playing = serve_with(None, LONG);
    let played = player(playing.address, |answers| answers < 3, true).join().expect("no panic");
    assert_eq!(played, Ok(Played::Left { answers: 3 }));
    // No fleet, no end of its own: the next player finds it.
    let played = player(playing.address, |answers| answers < 3, true).join().expect("no panic");
    assert_eq!(played, Ok(Played::Left { answers: 3 }));
    playing.is_told_to_go.store(true, Ordering::Release);
    assert_eq!(playing.server.join().expect("no panic"), Ok(()));
}

#[test]
fn the_manifest_gives_a_server_the_time_it_takes() {
    let manifest = include_str!("fleet.yaml");
    let number = |name: &str| -> u64 {
        let line = manifest.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
    };
    assert!(number("terminationGracePeriodSeconds") > (DRAIN_TIME + LAST_WORDS).as_secs());
    assert!(number("periodSeconds") > sdk::HEALTH_EVERY.as_secs());
    assert_eq!(number("containerPort"), 7_786);
    let head = include_str!("../agones.rs");
    assert!(head.contains("server 0.0.0.0:7786") && manifest.contains("protocol: UDP"));
}
