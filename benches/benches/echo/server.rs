//! What the server's process tells the bench: its address first, what it counted at every line it is told and last. It ends
//! when its standard input does.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use drumfire_benches::print_line;
use serde::{Deserialize, Serialize};

/// What a server counted from its first datagram to its last. One in another language says the messages alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Served {
    /// Messages that arrived.
    pub(crate) received: u64,
    /// Messages that were sent back.
    pub(crate) echoed: u64,
    /// Messages that could not be sent back.
    pub(crate) refused: u64,
    /// Datagrams in no counter.
    #[serde(default)]
    pub(crate) unexplained: u64,
    /// What else it counted.
    #[serde(default)]
    pub(crate) counts: BTreeMap<String, u64>,
    /// What its socket carried; nothing of a server that does not say.
    #[serde(default)]
    pub(crate) traffic: Option<Traffic>,
}

/// What a server's socket carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Traffic {
    /// Datagrams that arrived, those that were dropped unread included.
    pub(crate) datagrams_received: u64,
    pub(crate) datagrams_sent: u64,
    /// Bytes of the payloads of both.
    pub(crate) bytes: u64,
    /// Receive and send calls, those that failed included; waits are not among them.
    pub(crate) calls: u64,
}

impl Traffic {
    /// Datagrams both ways.
    pub(crate) const fn datagrams(&self) -> u64 {
        self.datagrams_received + self.datagrams_sent
    }

    /// What was carried since an earlier look.
    pub(crate) const fn since(&self, then: &Self) -> Self {
        Self {
            datagrams_received: self.datagrams_received.saturating_sub(then.datagrams_received),
            datagrams_sent: self.datagrams_sent.saturating_sub(then.datagrams_sent),
            bytes: self.bytes.saturating_sub(then.bytes),
            calls: self.calls.saturating_sub(then.calls),
        }
    }
}

impl Served {
    /// Says it to the process that started this one.
    pub(crate) fn say(&self) -> io::Result<()> {
        print_line(&serde_json::to_string(self)?)
    }

    pub(crate) fn of_line(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

/// Says where the server is.
pub(crate) fn announce(address: SocketAddr) -> io::Result<()> {
    print_line(&address.to_string())
}

/// What a server is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Answer at the end of each look at the socket, all messages together.
    FlushAtTick,
    /// Answer each message at once.
    FlushNow,
    /// Nothing but the answer that every line has: what was counted so far.
    Count,
}

impl Order {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::FlushAtTick => "tick",
            Self::FlushNow => "now",
            Self::Count => "counts",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::FlushAtTick, Self::FlushNow, Self::Count].into_iter().find(|order| order.name() == name)
    }
}

/// Where the orders arrive.
pub(crate) struct Desk {
    orders: Receiver<Order>,
    is_over: Arc<AtomicBool>,
}

impl Desk {
    /// Reads the standard input on a thread of its own; `wake` is called after each line and at the end.
    pub(crate) fn open(wake: impl Fn() + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let (given, orders) = sync_channel(16);
        std::thread::spawn(move || {
            for order in io::stdin().lines().map_while(Result::ok).filter_map(|line| Order::named(&line)) {
                if given.send(order).is_err() {
                    break;
                }
                wake();
            }
            flag.store(true, Ordering::Release);
            wake();
        });
        Self { orders, is_over }
    }

    /// Whether the server is to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Waits for the next order, which is to be answered with the counts; `None` at the end.
    pub(crate) fn wait_for_order(&self) -> Option<Order> {
        self.orders.recv().ok()
    }

    /// The next order, if there is one; it is to be answered with the counts.
    pub(crate) fn try_order(&self) -> Option<Order> {
        self.orders.try_recv().ok()
    }
}
