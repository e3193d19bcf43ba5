//! The REST interface of the Agones SDK, as far as a server needs it that plays one round: ready, health, allocate,
//! shutdown, and the state of the server. Counters, lists, and labels are calls of the same kind.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;

/// The port of the SDK on loopback. Agones sets the variable in every container of a game server.
pub(super) const PORT_VARIABLE: &str = "AGONES_SDK_HTTP_PORT";
/// Shorter than `periodSeconds` in the manifest, so that a single lost call does not make the server unhealthy.
pub(super) const HEALTH_PERIOD: Duration = Duration::from_secs(2);

/// The timeout of a call. The SDK runs in the same pod.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// The number of `ready` calls within half a minute. The server may start before the SDK.
const READY_TRIES: u32 = 60;
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The number of `shutdown` calls. If all of them failed, Agones would not notice that the server is done.
const SHUTDOWN_TRIES: u32 = 5;

/// The SDK of one game server.
#[derive(Clone, Debug)]
pub(super) struct Sdk {
    agent: Agent,
    base: String,
    ready_tries: u32,
}

impl Sdk {
    /// Returns the SDK of this process's pod, or `None` outside of Agones.
    pub(super) fn from_env() -> Result<Option<Self>, Box<dyn Error>> {
        let Ok(port) = std::env::var(PORT_VARIABLE) else { return Ok(None) };
        let port =
            port.parse().map_err(|_| format!("{PORT_VARIABLE}={port}: must be a port from 1 to 65535"))?;
        Ok(Some(Self::at_port(port, READY_TRIES)))
    }

    /// Returns the SDK at this port of loopback. `start` calls `ready` up to `ready_tries` times.
    pub(super) fn at_port(port: u16, ready_tries: u32) -> Self {
        let config = Agent::config_builder().timeout_connect(Some(CALL_TIMEOUT)).proxy(None).build();
        Self { agent: config.into(), base: format!("http://127.0.0.1:{port}"), ready_tries }
    }

    fn post(&self, call: &str) -> Result<(), String> {
        let url = format!("{}{call}", self.base);
        let post = self.agent.post(&url).config().timeout_global(Some(CALL_TIMEOUT)).build();
        let response = post.content_type("application/json").send("{}");
        response.map(drop).map_err(|error| format!("POST {url} failed ({error})"))
    }

    /// Calls until a call succeeds, at most `tries` times.
    fn post_with_retries(&self, call: &str, tries: u32) -> Result<(), String> {
        let mut outcome = self.post(call);
        for _ in 1..tries {
            if outcome.is_ok() {
                break;
            }
            pause();
            outcome = self.post(call);
        }
        outcome
    }

    /// Passes each state of the server to `on_state` until the SDK ends the stream or `on_state` returns false.
    fn watch(&self, mut on_state: impl FnMut(&str) -> bool) -> Result<(), Box<dyn Error>> {
        let response = self.agent.get(format!("{}/watch/gameserver", self.base)).call()?;
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            // Each line is a JSON document.
            let change: Value = serde_json::from_str(&line?)?;
            if let Some(state) = change.pointer("/result/status/state").and_then(Value::as_str)
                && !on_state(state)
            {
                break;
            }
        }
        Ok(())
    }
}

/// Reports the server's health to Agones on one thread, and watches the server's state on another.
pub(super) struct AgonesReporter {
    sdk: Sdk,
    allocations: Sender<()>,
    health_thread: JoinHandle<()>,
    shared: Arc<Shared>,
}

/// State that the game and the threads share.
#[derive(Default)]
struct Shared {
    /// The number of ticks of the game so far.
    ticks: AtomicU64,
    is_allocated: AtomicBool,
    is_stopped: AtomicBool,
}

impl AgonesReporter {
    /// Reports that the server is ready, and starts the threads.
    ///
    /// # Errors
    /// Returns an error of one line if the SDK does not answer.
    pub(super) fn start(sdk: Sdk, health_period: Duration) -> Result<Self, Box<dyn Error>> {
        sdk.post_with_retries("/ready", sdk.ready_tries).map_err(|error| {
            format!("Agones: {error}: check that the SDK sidecar is running, and {PORT_VARIABLE}")
        })?;
        println!("Agones: ready");
        let (allocations, requested) = channel();
        let shared = Arc::new(Shared::default());
        let (health_sdk, health_shared) = (sdk.clone(), Arc::clone(&shared));
        let health_thread = std::thread::spawn(move || {
            report_health(&health_sdk, &health_shared, &requested, health_period);
        });
        // This thread blocks on the stream of the SDK, so it is not joined.
        let (watch_sdk, watch_shared) = (sdk.clone(), Arc::clone(&shared));
        std::thread::spawn(move || watch_state(&watch_sdk, &watch_shared));
        Ok(Self { sdk, allocations, health_thread, shared })
    }

    /// Counts a tick of the game. Without ticks the server is not reported as healthy.
    pub(super) fn on_tick(&self) {
        self.shared.ticks.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether the server is allocated, by itself or by a matchmaker.
    pub(super) fn is_allocated(&self) -> bool {
        self.shared.is_allocated.load(Ordering::Acquire)
    }

    /// Allocates the server, so that Agones does not remove it while it has players.
    pub(super) fn allocate(&self) {
        // Fails only if the thread panicked. Then Agones receives no health reports either.
        let _ = self.allocations.send(());
    }

    /// Reports that the server is done. Agones may then stop the pod.
    ///
    /// # Errors
    /// Returns an error of one line if the SDK does not answer.
    pub(super) fn shut_down(self) -> Result<(), Box<dyn Error>> {
        let Self { sdk, allocations, health_thread, shared } = self;
        shared.is_stopped.store(true, Ordering::Release);
        drop(allocations);
        health_thread.join().map_err(|_| "the thread that reports to Agones panicked")?;
        sdk.post_with_retries("/shutdown", SHUTDOWN_TRIES).map_err(|error| format!("Agones: {error}"))?;
        println!("Agones: shutdown");
        Ok(())
    }
}

/// Reports health periodically while the game ticks. Allocates the server when requested.
fn report_health(sdk: &Sdk, shared: &Shared, requested: &Receiver<()>, period: Duration) {
    let (mut ticks, mut must_allocate, mut was_ok) = (0, false, true);
    loop {
        match requested.recv_timeout(period) {
            Ok(()) => must_allocate = true,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let before = std::mem::replace(&mut ticks, shared.ticks.load(Ordering::Relaxed));
        let outcome = if must_allocate {
            sdk.post("/allocate").inspect(|()| must_allocate = false)
        } else if before == ticks {
            // A game that hangs is not healthy.
            continue;
        } else {
            sdk.post("/health")
        };
        // The game continues without Agones. Only the first error in a row is logged.
        match &outcome {
            Err(error) if was_ok => eprintln!("Agones: {error}; the game continues"),
            Ok(()) if !was_ok => eprintln!("Agones: the SDK answers again"),
            _ => {}
        }
        was_ok = outcome.is_ok();
    }
}

/// Watches the state of the server and logs each change.
fn watch_state(sdk: &Sdk, shared: &Shared) {
    let mut latest = String::new();
    while !shared.is_stopped.load(Ordering::Acquire) {
        // A stream that ended or failed is opened again. `report_health` logs that the SDK is unavailable.
        let _ = sdk.watch(|state| {
            if state != latest {
                println!("Agones: this server is {state}");
                state.clone_into(&mut latest);
            }
            shared.is_allocated.fetch_or(state == "Allocated", Ordering::AcqRel);
            !shared.is_stopped.load(Ordering::Acquire)
        });
        pause();
    }
}

fn pause() {
    std::thread::park_timeout(RETRY_PAUSE);
}
