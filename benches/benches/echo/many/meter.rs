//! What the server used over one window, looked at from the client's process at both ends of it, and once a second for the
//! least and the most.

use drumfire_benches::{Child, StealWatch, Usage, UsageWatch, Window, memory};

use crate::load::Carried;
use crate::server::{Order, Served, Traffic};

const SECOND_NS: u64 = 1_000_000_000;

/// Looks at a server and at this process.
pub(crate) struct Meter<'a> {
    server: &'a Child,
    watches: Option<[UsageWatch; 2]>,
    steal: Option<StealWatch>,
    carried: Carried,
    second: Option<(u64, UsageWatch)>,
    samples: Samples,
    ended: Option<([Option<Usage>; 2], Option<f64>, Carried)>,
}

/// Seen once a second, and at both ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// Of a core, in percent, over each whole second.
    pub(crate) cpu_percent: Vec<f64>,
    /// In bytes.
    pub(crate) memory: Vec<f64>,
}

/// What was seen.
pub(crate) struct Seen {
    /// The server's process.
    pub(crate) server: Usage,
    /// This process.
    pub(crate) client: Usage,
    pub(crate) steal_share: Option<f64>,
    pub(crate) samples: Samples,
    /// Of the server's socket, where it says.
    pub(crate) traffic: Option<Traffic>,
    /// Bytes of streams within the window.
    pub(crate) stream_bytes: u64,
    /// What the server counted until the window's end.
    pub(crate) served: Served,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(server: &'a Child) -> Self {
        Self {
            server,
            watches: None,
            steal: None,
            carried: Carried::default(),
            second: None,
            samples: Samples::default(),
            ended: None,
        }
    }

    /// The window begins. The server's answer is read when it is over.
    pub(crate) fn begin(&mut self, carried: Carried) -> Result<(), String> {
        self.server.send_line(Order::Count.name())?;
        self.carried = carried;
        self.steal = Some(StealWatch::begin());
        self.look_at_memory();
        self.watches = Some([self.server.id(), std::process::id()].map(UsageWatch::begin));
        Ok(())
    }

    /// Within the window: looks once a second.
    pub(crate) fn on_pass(&mut self, now: u64, window: &Window) {
        if now < window.start {
            return;
        }
        match self.second {
            Some((due, _)) if now < due => return,
            Some((_, watch)) => {
                self.samples.cpu_percent.extend(watch.used().map(|used| used.core_share() * 100.0));
                self.look_at_memory();
            }
            None => {}
        }
        self.second = Some((now + SECOND_NS, UsageWatch::begin(self.server.id())));
    }

    /// The window is over.
    pub(crate) fn end(&mut self, carried: Carried) -> Result<(), String> {
        let used = self.watches.ok_or("the window never began")?.map(|watch| watch.used());
        let steal = self.steal.and_then(|steal| steal.share());
        self.server.send_line(Order::Count.name())?;
        self.look_at_memory();
        self.ended = Some((used, steal, carried));
        Ok(())
    }

    /// Takes the server's answers.
    pub(crate) fn finish(self) -> Result<Seen, String> {
        let ([server, client], steal_share, carried) = self.ended.ok_or("the window never ended")?;
        let unread = || "the server's books cannot be read".to_owned();
        let answer = || Served::of_line(&self.server.line()?).ok_or_else(unread);
        let (before, served) = (answer()?, answer()?);
        let traffic = served.traffic.zip(before.traffic).map(|(now, then)| now.since(&then));
        Ok(Seen {
            server: server.ok_or("the server's clock cannot be read")?,
            client: client.ok_or("this process's clock cannot be read")?,
            steal_share,
            samples: self.samples,
            traffic,
            stream_bytes: carried.stream_bytes - self.carried.stream_bytes,
            served,
        })
    }

    fn look_at_memory(&mut self) {
        self.samples.memory.extend(memory(self.server.id()).map(|memory| memory.resident_bytes as f64));
    }
}

impl Seen {
    /// The server's share of a core: user and system time over the time of the window.
    pub(crate) fn core_share(&self) -> f64 {
        self.server.core_share()
    }
}
