//! Tests of the server with a fake SDK: which calls it makes, in which order, and what happens when the SDK does not
//! answer.

use super::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

const HEALTH_PERIOD: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_secs(60);

/// An SDK that answers every call and records the calls in order.
#[derive(Clone)]
struct FakeSdk {
    port: u16,
    calls: Arc<Mutex<Vec<String>>>,
}

impl FakeSdk {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listener");
        let port = listener.local_addr().expect("address").port();
        let fake = Self { port, calls: Arc::default() };
        let server = fake.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = server.clone();
                std::thread::spawn(move || server.handle_request(client));
            }
        });
        fake
    }

    fn handle_request(&self, mut client: TcpStream) {
        let mut reader = BufReader::new(client.try_clone().expect("clone"));
        let head: Vec<String> =
            reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let Some(call) = head.first().and_then(|line| line.strip_suffix(" HTTP/1.1")) else { return };
        let body = if call == "GET /watch/gameserver" {
            let state = if self.count("POST /allocate") > 0 { "Allocated" } else { "Ready" };
            format!("{{\"result\":{{\"status\":{{\"state\":\"{state}\"}}}}}}\n")
        } else {
            let mut request = [0; 2];
            assert!(reader.read_exact(&mut request).is_ok() && request == *b"{}", "{head:?}");
            assert!(head.iter().any(|line| line.eq_ignore_ascii_case("content-type: application/json")));
            self.calls.lock().expect("no panic").push(call.to_owned());
            "{}".to_owned()
        };
        let length = body.len();
        let response =
            format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
        // Fails only if the client is gone.
        let _ = client.write_all(response.as_bytes());
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().expect("no panic").clone()
    }

    fn count(&self, call: &str) -> usize {
        self.calls().iter().filter(|made| *made == call).count()
    }
}

struct RunningServer {
    address: SocketAddr,
    should_stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), String>>,
}

/// Runs a server of the fleet on a thread.
fn start_server(sdk: Option<Sdk>, drain_time: Duration) -> RunningServer {
    let server = bind("127.0.0.1:0".parse().expect("address"), ServerKey::dev()).expect("server");
    let (address, should_stop) = (server.local_addr(), Arc::new(AtomicBool::new(false)));
    let flag = Arc::clone(&should_stop);
    let thread = std::thread::spawn(move || {
        let round = Round::new(server, drain_time);
        run_round(round, sdk, HEALTH_PERIOD, &flag).map_err(|error| error.to_string())
    });
    RunningServer { address, should_stop, thread }
}

fn start_client(
    address: SocketAddr,
    wants_more: impl Fn(u32) -> bool + Send + 'static,
    leaves_on_stop: bool,
) -> JoinHandle<Result<Outcome, String>> {
    std::thread::spawn(move || {
        play(address, ServerKey::dev().public(), wants_more, leaves_on_stop)
            .map_err(|error| error.to_string())
    })
}

#[test]
fn a_round_reports_ready_health_allocate_and_shutdown() {
    let fake = FakeSdk::start();
    let server = start_server(Some(Sdk::at_port(fake.port, 1)), LONG);
    // The client plays until the server has made all calls of a round in progress.
    let calls = fake.clone();
    let wants_more = move |echoes| {
        let last_health = calls.calls().iter().rposition(|call| call == "POST /health");
        let allocated = calls.calls().iter().position(|call| call == "POST /allocate");
        echoes == 0 || allocated.is_none_or(|at| last_health.is_none_or(|health| health < at))
    };
    let outcome = start_client(server.address, wants_more, true).join().expect("no panic").expect("outcome");
    assert!(matches!(outcome, Outcome::Left { echoes: 1.. }), "{outcome:?}");
    server.thread.join().expect("no panic").expect("no error");

    let calls = fake.calls();
    let (first, last) = (&calls[0], &calls[calls.len() - 1]);
    assert_eq!((first.as_str(), last.as_str()), ("POST /ready", "POST /shutdown"), "{calls:?}");
    assert_eq!([fake.count("POST /ready"), fake.count("POST /shutdown")], [1, 1]);
    let between = ["POST /health", "POST /allocate"];
    assert!(calls[1..calls.len() - 1].iter().all(|call| between.contains(&call.as_str())), "{calls:?}");
}

#[test]
fn a_draining_server_lets_players_finish_until_the_deadline() {
    for (leaves_on_stop, drain_time) in [(true, LONG), (false, Duration::ZERO)] {
        let fake = FakeSdk::start();
        let server = start_server(Some(Sdk::at_port(fake.port, 1)), drain_time);
        let (should_stop, calls) = (Arc::clone(&server.should_stop), fake.clone());
        let wants_more = move |echoes| {
            if echoes == 3 {
                should_stop.store(true, Ordering::Release);
            }
            assert_eq!(calls.count("POST /shutdown"), 0, "a player is still connected");
            true
        };
        let client = start_client(server.address, wants_more, leaves_on_stop);
        let outcome = client.join().expect("no panic").expect("outcome");
        assert_eq!(matches!(outcome, Outcome::Left { .. }), leaves_on_stop, "{outcome:?}");
        server.thread.join().expect("no panic").expect("no error");
        assert_eq!(fake.calls().last().map(String::as_str), Some("POST /shutdown"));
    }
}

#[test]
fn a_draining_server_without_players_stops() {
    let fake = FakeSdk::start();
    let server = start_server(Some(Sdk::at_port(fake.port, 1)), LONG);
    server.should_stop.store(true, Ordering::Release);
    server.thread.join().expect("no panic").expect("no error");
    assert_eq!(fake.calls().last().map(String::as_str), Some("POST /shutdown"));
    assert_eq!(fake.count("POST /allocate"), 0);
}

#[test]
fn a_server_whose_sdk_does_not_answer_fails_in_one_line() {
    // The port was free a moment ago, so no program listens there.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("port").port();
    let server = start_server(Some(Sdk::at_port(port, 2)), LONG);
    let line = server.thread.join().expect("no panic").expect_err("there is no SDK");
    assert!(line.starts_with("Agones: POST http://127.0.0.1:"), "{line}");
    assert!(
        line.contains("/ready") && line.contains("AGONES_SDK_HTTP_PORT") && !line.contains('\n'),
        "{line}"
    );
}

#[test]
fn a_server_without_agones_runs_until_it_is_stopped() {
    let server = start_server(None, LONG);
    // The server continues after its first player left, because it is not in a fleet.
    for _ in 0..2 {
        let outcome = start_client(server.address, |echoes| echoes < 3, true).join().expect("no panic");
        assert_eq!(outcome, Ok(Outcome::Left { echoes: 3 }));
    }
    server.should_stop.store(true, Ordering::Release);
    assert_eq!(server.thread.join().expect("no panic"), Ok(()));
}

#[test]
fn the_manifest_fits_the_durations_and_the_port() {
    let manifest = include_str!("fleet.yaml");
    let number = |name: &str| -> u64 {
        let line = manifest.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("no {name}")).parse().expect("number")
    };
    assert!(number("terminationGracePeriodSeconds") > (DRAIN_TIME + SHUTDOWN_TIME).as_secs());
    assert!(number("periodSeconds") > sdk::HEALTH_PERIOD.as_secs());
    assert_eq!(number("containerPort"), 7_786);
    let source = include_str!("../agones.rs");
    assert!(source.contains("server 0.0.0.0:7786") && manifest.contains("protocol: UDP"));
}
