//! An echo server with metrics for Prometheus.
//!
//! ```text
//! cargo run --release --example prometheus -- server 0.0.0.0:7785 127.0.0.1:9464 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8
//! cargo run --release --example prometheus -- client 127.0.0.1:7785 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw
//! ```
//!
//! While the server runs, `curl http://127.0.0.1:9464/metrics` prints the metrics. Prometheus reads them with this
//! configuration:
//!
//! ```yaml
//! scrape_configs:
//!   - job_name: drumfire
//!     scrape_interval: 5s
//!     static_configs: [{ targets: ["127.0.0.1:9464"] }]
//! ```
//!
//! The guide's page on metrics explains the names, and `crates/tools/grafana/drumfire.json` is a dashboard for Grafana.
//! The secret key above is public, so use it only for tests. Without a key the server generates one and prints the
//! client's command. Without arguments, the server, a client, and a scrape run in one process.
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use drumfire::stats::Stats;
use drumfire::{
    Access, ChannelId, Client, ClientConfig, Event, Message, Server, ServerConfig, ServerKey,
    ServerPublicKey, Workers,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

const CHANNEL: ChannelId = ChannelId(0);
const MESSAGES: u32 = 500;
/// The maximum number of messages whose echo is outstanding.
const WINDOW: u32 = 8;
const SERVER_WAIT: Duration = Duration::from_millis(100);
const CLIENT_WAIT: Duration = Duration::from_millis(10);

/// From the same city to the other side of the world, in seconds.
const ROUND_TRIP_BUCKETS: [f64; 11] = [0.001, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => run_all()?,
        ["server", address, metrics] => {
            serve(address.parse()?, metrics.parse()?, ServerKey::generate()?)?;
        }
        ["server", address, metrics, secret] => {
            serve(address.parse()?, metrics.parse()?, secret.parse()?)?;
        }
        ["client", server, key] => println!("{} echoes", play(server.parse()?, key.parse()?)?),
        _ => {
            return Err("usage: no arguments, `server ADDRESS METRICS_ADDRESS [SECRET_KEY]`, or \
                `client ADDRESS PUBLIC_KEY`"
                .into());
        }
    }
    Ok(())
}

/// Serves the metrics at this address on a separate thread. Call it before the server is bound, so that no count is
/// missed.
fn publish(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    PrometheusBuilder::new()
        .with_http_listener(address)
        .set_buckets_for_metric(Matcher::Full("drumfire_round_trip_seconds".to_owned()), &ROUND_TRIP_BUCKETS)?
        .install()
        .map_err(|error| format!("cannot serve metrics at {address}: {error:?}"))?;
    drumfire::stats::describe_metrics();
    Ok(())
}

/// Runs only the server.
fn serve(address: SocketAddr, metrics: SocketAddr, key: ServerKey) -> Result<(), Box<dyn Error>> {
    publish(metrics)?;
    let public = key.public();
    let mut server = bind(address, key)?;
    println!("metrics at http://{metrics}/metrics");
    println!("cargo run --release --example prometheus -- client {} {public}", server.local_addr());
    loop {
        echo(&mut server);
    }
}

fn bind(address: SocketAddr, key: ServerKey) -> Result<Server, Box<dyn Error>> {
    Ok(Server::bind(ServerConfig::new(address, key, Access::Open).workers(Workers::Auto))?)
}

/// Waits for events and echoes messages.
fn echo(server: &mut Server) {
    server.poll(SERVER_WAIT);
    while let Some(event) = server.next_event() {
        if let Event::Message { peer, channel, payload } = event {
            // A client that does not read its echoes receives no more of them.
            let _ = server.send(peer, Message::reliable_ordered(channel, payload));
        }
    }
    server.flush();
}

/// Runs the client. Returns the number of messages that were echoed.
fn play(server: SocketAddr, key: ServerPublicKey) -> Result<u32, Box<dyn Error>> {
    let mut client = Client::new(ClientConfig::default())?;
    let peer = client.connect((server, key))?;
    let (mut sent, mut echoed) = (0, 0);
    while echoed < MESSAGES {
        while sent < MESSAGES && sent - echoed < WINDOW {
            client.send(peer, Message::reliable_ordered(CHANNEL, sent.to_be_bytes().to_vec()))?;
            sent += 1;
        }
        client.flush();
        client.poll(CLIENT_WAIT);
        while let Some(event) = client.next_event() {
            match event {
                Event::Message { payload, .. } if *payload == echoed.to_be_bytes() => echoed += 1,
                Event::Message { .. } => return Err("the echoes are out of order".into()),
                Event::ConnectFailed { error, .. } => return Err(error.into()),
                Event::Disconnected { closed, .. } => return Err(closed.reason.name().into()),
                _ => {}
            }
        }
    }
    Ok(echoed)
}

/// Runs the server, a client, and a scrape in one process.
fn run_all() -> Result<(), Box<dyn Error>> {
    let (text, stats) = scrape()?;
    let is_nonzero = |line: &&str| line.starts_with("drumfire_") && !line.ends_with(" 0");
    text.lines().filter(is_nonzero).for_each(|line| println!("{line}"));
    println!("# the server counted {} connections and {} forwarded", stats.connections(), stats.forwarded());
    Ok(())
}

/// Runs a client, then scrapes the metrics until they include its messages.
fn scrape() -> Result<(String, Stats), Box<dyn Error>> {
    // Finds a free port, because the exporter does not report the port that it was given.
    let metrics = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    publish(metrics)?;
    let mut server = bind("127.0.0.1:0".parse()?, ServerKey::dev())?;
    let address = server.local_addr();
    std::thread::scope(|scope| {
        let player =
            scope.spawn(move || play(address, ServerKey::dev().public()).map_err(|error| error.to_string()));
        while !player.is_finished() {
            echo(&mut server);
        }
        player.join().map_err(|_| "the player panicked")?
    })?;
    // The server publishes the metrics once per second.
    for _ in 0..SCRAPES_MAX {
        let text = ureq::get(format!("http://{metrics}/metrics")).call()?.body_mut().read_to_string()?;
        // A worker publishes one metric after the other, so a scrape can be incomplete.
        let is_complete = total(&text, "drumfire_messages_delivered_total") >= u64::from(MESSAGES)
            && total(&text, "drumfire_connections_opened_total") > 0
            && total(&text, "drumfire_datagrams_received_total") > 0
            && text.contains("drumfire_round_trip_seconds_bucket{");
        if is_complete {
            return Ok((text, server.control().stats()));
        }
        echo(&mut server);
    }
    Err("the messages are not in the metrics".into())
}

/// Enough scrapes for far more than the second that the metrics may be late.
const SCRAPES_MAX: u32 = 300;

/// Returns the sum of a counter over all server workers.
fn total(text: &str, name: &str) -> u64 {
    let is_wanted = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')) && !line.contains("\"client\"")
    };
    let values = text.lines().filter(is_wanted).filter_map(|line| line.rsplit(' ').next());
    values.filter_map(|value| value.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire::stats::DropReason;
    use prometheus_parse::{Sample, Scrape, Value};
    use std::collections::BTreeSet;

    const METRICS_PAGE: &str = include_str!("../crates/drumfire/docs/guide/metrics.md");

    /// Returns the names and kinds of the table.
    fn documented() -> BTreeSet<(&'static str, &'static str)> {
        let rows = METRICS_PAGE.lines().filter(|line| line.starts_with("| `drumfire_"));
        rows.map(|row| {
            let mut cells = row.split('|').map(str::trim).skip(1);
            let name = cells.next().expect("name").trim_matches('`');
            (name, cells.next().expect("kind"))
        })
        .collect()
    }

    /// Returns the sum over all server workers.
    fn sum<'a>(samples: impl Iterator<Item = &'a Sample>) -> f64 {
        let values = samples.filter(|sample| sample.labels.get("worker") != Some("client"));
        values
            .map(|sample| match sample.value {
                Value::Counter(value) | Value::Gauge(value) => value,
                ref other => panic!("{}: {other:?} is not a number", sample.metric),
            })
            .sum()
    }

    // The recorder is global to the process, so there is only one test.
    #[test]
    fn metrics_match_the_stats_and_the_documented_names() {
        let (text, stats) = scrape().expect("metrics");
        let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).expect("Prometheus text");
        let of = |name: &str| sum(scrape.samples.iter().filter(|sample| sample.metric == name));

        assert_eq!(of("drumfire_messages_delivered_total"), f64::from(MESSAGES));
        let delivered: u64 = stats.workers.iter().map(|worker| worker.protocol.messages_delivered).sum();
        assert_eq!(delivered, u64::from(MESSAGES));
        assert_eq!(of("drumfire_connections_opened_total"), 1.0);
        // Datagrams that arrived after the last publication are not in the scrape.
        let received: u64 = stats.workers.iter().map(|worker| worker.received.datagrams).sum();
        let (scraped, received) = (of("drumfire_datagrams_received_total"), received as f64);
        assert!(scraped > 0.0 && scraped <= received, "{scraped} of {received}");
        let dropped: u64 = DropReason::ALL.into_iter().map(|reason| stats.dropped(reason)).sum();
        assert!(of("drumfire_datagrams_dropped_total") <= dropped as f64);

        let round_trips: Vec<&Sample> =
            scrape.samples.iter().filter(|sample| sample.metric == "drumfire_round_trip_seconds").collect();
        let has_all = |sample: &&Sample| match &sample.value {
            Value::Histogram(buckets) => buckets.len() == ROUND_TRIP_BUCKETS.len() + 1,
            _ => false,
        };
        assert!(!round_trips.is_empty() && round_trips.iter().all(has_all), "{round_trips:?}");

        let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let seen: BTreeSet<(&str, &str)> = kinds.collect();
        assert_eq!(seen, documented(), "scraped and documented metrics");
    }
}
