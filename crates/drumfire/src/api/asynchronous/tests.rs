//! Tests that run the worker on their own thread: the effects of a single pass, and the state of connections after a restart of the
//! worker.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use allocation_counter::measure;
use bytes::Bytes;
use drumfire_proto::{ChannelId, CloseCode, CloseReason, Message, Outcome, SendError, SendOptions};

use super::accept_queue::AcceptQueue;
use super::connection::Connection;
use super::sink::{AcceptTarget, TaskSink};
use super::task_queues::TaskQueues;
use crate::admission::registry::RegistryView;
use crate::config::server::{Access, ServerConfig};
use crate::credentials::keys::ServerKey;
use crate::engine::server_core::ServerCore;
use crate::message::event::Event;
use crate::worker::pass::Worker;
use crate::worker::sink::Sink;
use crate::{Client, ClientConfig, PeerId, Workers};

const CHANNEL: ChannelId = ChannelId(0);

const OPTIONS: SendOptions = SendOptions::reliable_ordered();

/// A worker with the sink for tasks, which runs only in the calls of the test, and a client.
struct Bench {
    core: ServerCore,
    accept_queue: Arc<AcceptQueue>,
    client: Client,
    server: PeerId,
}

fn connect(address: SocketAddr) -> (Client, PeerId) {
    let mut client = Client::new(ClientConfig::default()).unwrap();
    let server = client.connect((address, ServerKey::dev().public())).unwrap();
    (client, server)
}

impl Bench {
    fn new() -> Self {
        let address = "127.0.0.1:0".parse().unwrap();
        let config = ServerConfig::new(address, ServerKey::dev(), Access::Open).workers(Workers::Inline);
        let receive_memory_bytes = config.receive_memory_bytes;
        let accept_queue = Arc::new(AcceptQueue::default());
        let core = ServerCore::bind(config, false, |links, _| {
            let queues = Arc::new(TaskQueues::new(&links[0], receive_memory_bytes));
            vec![Box::new(TaskSink::new(queues, AcceptTarget::Server(Arc::clone(&accept_queue))))
                as Box<dyn Sink<_>>]
        });
        let core = core.unwrap();
        let (client, server) = connect(core.address);
        Self { core, accept_queue, client, server }
    }

    fn worker(&mut self) -> &mut Worker<RegistryView> {
        &mut self.core.workers[0]
    }

    /// Runs one pass of both ends. Returns the events of the client.
    fn step(&mut self) -> impl Iterator<Item = Event> {
        self.worker().wait(Some(Duration::from_millis(1)));
        self.worker().work();
        self.client.poll(Duration::from_millis(1));
        self.client.events()
    }

    /// Steps until the future is ready.
    fn until<F: Future>(&mut self, what: &str, future: F) -> F::Output {
        let mut future = pin!(future);
        for _ in 0..30_000 {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return output;
            }
            self.step().for_each(drop);
        }
        panic!("not in time: {what}")
    }

    fn accept(&mut self) -> Connection {
        let accept_queue = Arc::clone(&self.accept_queue);
        self.until("a connection", accept_queue.accept()).unwrap()
    }
}

/// Counts how often a task is woken.
#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn is_pending<F: Future>(future: Pin<&mut F>, waker: &Waker) -> bool {
    future.poll(&mut Context::from_waker(waker)).is_pending()
}

#[test]
fn a_pass_wakes_a_task_once_for_all_its_messages() {
    let mut bench = Bench::new();
    let connection = bench.accept();
    let count = Arc::new(CountingWaker::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut waiting = pin!(connection.recv());
    assert!(is_pending(waiting.as_mut(), &waker));
    for _ in 0..40 {
        bench.client.send(bench.server, Message::new(CHANNEL, vec![7; 200], OPTIONS)).unwrap();
    }
    bench.client.flush();
    assert_eq!(count.0.load(Ordering::Relaxed), 0);
    let mut taken = 0;
    bench.worker().wait(Some(Duration::from_secs(10)));
    bench.worker().work();
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(!is_pending(waiting.as_mut(), &waker));
    while taken < 39 {
        match connection.try_recv().unwrap() {
            Some(_) => taken += 1,
            None => bench.step().for_each(drop),
        }
    }
    assert_eq!(count.0.load(Ordering::Relaxed), 1, "only a waiting task is woken");
}

#[test]
fn a_task_that_takes_one_of_two_messages_wakes_the_next_task() {
    let mut bench = Bench::new();
    let connection = bench.accept();
    let count = Arc::new(CountingWaker::default());
    let waker = Waker::from(Arc::clone(&count));
    let (mut first, mut second) = (pin!(connection.recv()), pin!(connection.recv()));
    assert!(is_pending(first.as_mut(), Waker::noop()) && is_pending(second.as_mut(), &waker));
    bench.client.send(bench.server, Message::new(CHANNEL, "one", OPTIONS)).unwrap();
    bench.client.send(bench.server, Message::new(CHANNEL, "two", OPTIONS)).unwrap();
    bench.client.flush();
    bench.worker().wait(Some(Duration::from_secs(10)));
    bench.worker().work();
    assert_eq!(count.0.load(Ordering::Relaxed), 0, "the first task is woken first");
    assert!(!is_pending(first.as_mut(), Waker::noop()));
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(!is_pending(second.as_mut(), &waker));
}

#[test]
fn a_restarted_worker_ends_connections_once_and_accepts_others() {
    let mut bench = Bench::new();
    let connection = bench.accept();
    let (count, waker) = (Arc::new(CountingWaker::default()), Waker::noop());
    let counting = Waker::from(Arc::clone(&count));
    let mut waiting = pin!(connection.recv());
    assert!(is_pending(waiting.as_mut(), &counting));
    let mut sending = pin!(connection.send_with_receipt(Message::new(CHANNEL, "never sent", OPTIONS)));
    let sent = sending.as_mut().poll(&mut Context::from_waker(waker));
    let Poll::Ready(Ok(receipt)) = sent else { panic!("there is room") };
    let mut stats = pin!(connection.stats());
    assert!(is_pending(stats.as_mut(), waker));
    bench.worker().restart_after_panic();
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    bench.worker().restart_after_panic();
    assert_eq!(count.0.load(Ordering::Relaxed), 1, "a connection ends only once");

    let reason = CloseReason::Local { code: CloseCode::Internal, application_code: 0 };
    let closed = bench.until("the end", waiting).unwrap_err();
    assert_eq!((closed.reason, bench.until("the end", connection.closed())), (reason, closed.clone()));
    assert_eq!(bench.until("the receipt", receipt), Outcome::Lost);
    assert_eq!(bench.until("no stats", stats), Err(closed));
    assert_eq!(connection.try_send(Message::new(CHANNEL, "late", OPTIONS)), Err(SendError::Closed));

    (bench.client, bench.server) = connect(bench.core.address);
    let next = bench.accept();
    bench.client.send(bench.server, Message::new(CHANNEL, "hello", OPTIONS)).unwrap();
    let received = bench.until("a message", next.recv());
    assert_eq!(received, Ok((CHANNEL, "hello".into())));
}

#[test]
fn a_dropped_worker_leaves_no_task_waiting() {
    let mut bench = Bench::new();
    let connection = bench.accept();
    let mut waiting = pin!(connection.recv());
    assert!(is_pending(waiting.as_mut(), Waker::noop()));
    let Bench { core, accept_queue, .. } = bench;
    drop(core);
    let closed = poll_fn(|context| waiting.as_mut().poll(context));
    let Poll::Ready(Err(closed)) = pin!(closed).poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("the end")
    };
    assert_eq!(closed.reason, CloseReason::Local { code: CloseCode::Internal, application_code: 0 });
    let accepted = pin!(accept_queue.accept()).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(accepted, Poll::Ready(None)));
}

/// Sends `batches` batches of 16 messages from the client, and echoes each batch.
fn echo(bench: &mut Bench, connection: &Connection, batches: u32) {
    for _ in 0..batches {
        for _ in 0..16 {
            bench
                .client
                .send(bench.server, Message::new(CHANNEL, Bytes::from_static(&[7; 200]), OPTIONS))
                .unwrap();
        }
        bench.client.flush();
        let (mut received_count, mut echoed_count) = (0, 0);
        while echoed_count < 16 {
            while let Some((channel, payload)) = connection.try_recv().unwrap() {
                connection.try_send(Message::new(channel, payload, OPTIONS)).unwrap();
                received_count += 1;
            }
            echoed_count += bench.step().filter(|event| matches!(event, Event::Message { .. })).count();
        }
        assert_eq!(received_count, 16);
    }
}

#[test]
fn a_batch_costs_task_and_worker_at_most_one_allocation() {
    const BATCHES: u32 = 300;
    let mut bench = Bench::new();
    let connection = bench.accept();
    echo(&mut bench, &connection, 300);
    let counted = measure(|| echo(&mut bench, &connection, BATCHES));
    assert!(
        counted.count_total <= u64::from(BATCHES),
        "{} allocations in {BATCHES} batches",
        counted.count_total
    );
}
