//! What an operator sees of a running server and may do to it, from any thread: [`Monitor`].
//!
//! It asks the workers by message and waits where the caller waits. It keeps nothing, draws nothing, and opens no socket; see the
//! module `control` for that.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use drumfire_proto::{CloseError, FlightRecord, PeerId};

use super::app_side::close_command;
use crate::admission::AdmissionControl;
use crate::admission::bans::{Ban, CloseAndBanError};
use crate::base::clock;
use crate::observe::survey::{Survey, SurveyOrder, WorkerSample, put_in_order};
use crate::worker::channel::{REPORTS_MAX, WorkerChannel};
use crate::worker::command::{BanQuestion, Command, Question, SurveyQuestion, WorkerAnswer};

/// Connections that one [survey](Monitor::survey) tells of, at most.
pub const SURVEY_PEERS_MAX: usize = 1_024;

/// A server as its operator sees it: clones are the same view, for any thread.
///
/// Whatever takes time is done by the workers between two passes: a survey looks at 128 connections per pass, so that traffic
/// waits some microseconds for it, also where there are 100,000. A server without threads answers while it is polled.
///
/// ```
/// # use std::time::Duration;
/// # use drumfire::*;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// # let mut server = Server::bind(config.workers(Workers::Shards { sockets: 2, threads: 2 }))?;
/// # let mut client = Client::connect_dev(server.local_addr())?;
/// # loop {
/// #     client.poll(Duration::from_millis(1));
/// #     server.poll(Duration::ZERO);
/// #     if server.events().any(|event| matches!(event, Event::Connected { .. })) { break }
/// # }
/// let monitor = server.monitor();
/// let survey = monitor.survey(SurveyOrder::RoundTrip, 10).wait(Duration::from_secs(1));
/// for peer in &survey.peers {
///     println!("{} from {}: {:?} there and back", peer.peer, peer.address, peer.round_trip);
/// }
/// # assert_eq!(survey.peers.len(), 1);
/// let worst = survey.peers[0].peer;
/// monitor.close(worst, 1, "until tomorrow")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Monitor {
    links: Arc<[Arc<WorkerChannel>]>,
    admission: Arc<AdmissionControl>,
}

/// A survey under way: the workers answer while nobody waits too.
#[derive(Debug)]
pub struct PendingSurvey {
    links: Arc<[Arc<WorkerChannel>]>,
    answers: Receiver<WorkerAnswer>,
    order: SurveyOrder,
    most: usize,
    taken: Vec<WorkerAnswer>,
}

/// A flight record that was asked for.
#[derive(Debug)]
pub struct PendingRecord(Receiver<Option<Box<FlightRecord>>>);

impl Monitor {
    pub(crate) const fn new(links: Arc<[Arc<WorkerChannel>]>, admission: Arc<AdmissionControl>) -> Self {
        Self { links, admission }
    }

    /// Asks all workers for their first `most` connections in this order, [`SURVEY_PEERS_MAX`] at most. Surveys less than half a
    /// second apart tell the same rates.
    #[must_use]
    pub fn survey(&self, order: SurveyOrder, most: usize) -> PendingSurvey {
        let most = most.min(SURVEY_PEERS_MAX);
        let (answer, answers) = sync_channel(self.links.len());
        for link in self.links.iter() {
            let survey = SurveyQuestion { order, most, answer: answer.clone() };
            link.command_at_once(Command::Ask(Box::new(Question::Survey(survey))));
        }
        PendingSurvey { links: Arc::clone(&self.links), answers, order, most, taken: Vec::new() }
    }

    /// Closes a peer's connection, with a code of the application's own and a line for the peer's log. The application hears of
    /// it as [`Event::Disconnected`](crate::Event::Disconnected). A peer that is gone stays gone.
    ///
    /// # Errors
    ///
    /// [`CloseError`]: the text is longer than [`CLOSE_TEXT_MAX_BYTES`](crate::CLOSE_TEXT_MAX_BYTES), or the peer is another
    /// server's.
    pub fn close(&self, peer: PeerId, code: u32, text: &str) -> Result<(), CloseError> {
        let command = close_command(peer, code, text)?;
        self.link(peer).ok_or(CloseError::UnknownPeer)?.command_at_once(command);
        Ok(())
    }

    /// Bans a peer for so long, by its player or, in open access, by the address where it is now, and closes its connection.
    /// Waits for its worker, at most for `patience`. Answers the ban.
    ///
    /// # Errors
    ///
    /// [`CloseAndBanError`]: nothing has happened then. A worker that does not answer in time counts as one whose peer is gone,
    /// though it may ban it later.
    pub fn close_and_ban(
        &self,
        peer: PeerId,
        code: u32,
        text: &str,
        duration: Duration,
        patience: Duration,
    ) -> Result<Ban, CloseAndBanError> {
        let gone = CloseAndBanError::Close(CloseError::UnknownPeer);
        let close = close_command(peer, code, text).map_err(CloseAndBanError::Close)?;
        let link = self.link(peer).ok_or(gone)?;
        let (answer, answers) = sync_channel(1);
        let ban = BanQuestion { peer, duration, admission: Arc::clone(&self.admission), answer };
        link.command_at_once(Command::Ask(Box::new(Question::Ban(ban))));
        let ban = answers.recv_timeout(patience).unwrap_or(Err(gone))?;
        link.command_at_once(close);
        Ok(ban)
    }

    /// Asks what happened last to a peer's connection.
    #[must_use]
    pub fn flight_record(&self, peer: PeerId) -> PendingRecord {
        let (answer, answers) = sync_channel(1);
        if let Some(link) = self.link(peer) {
            link.command_at_once(Command::Ask(Box::new(Question::Record { peer, answer })));
        }
        PendingRecord(answers)
    }

    fn link(&self, peer: PeerId) -> Option<&Arc<WorkerChannel>> {
        self.links.get(peer.worker())
    }
}

impl PendingSurvey {
    /// Whether all workers have answered, so that there is nothing to wait for.
    pub fn is_complete(&mut self) -> bool {
        self.taken.extend(self.answers.try_iter());
        self.taken.len() >= self.links.len()
    }

    /// Waits until all workers have answered, at most for `timeout`; those that did not are left out.
    #[must_use]
    pub fn wait(mut self, timeout: Duration) -> Survey {
        let start = clock::instant();
        while !self.is_complete() {
            match self.answers.recv_timeout(left(start, timeout)) {
                Ok(answer) => self.taken.push(answer),
                Err(_) => break,
            }
        }
        self.into_survey()
    }

    fn into_survey(self) -> Survey {
        let mut survey = Survey { workers: Vec::new(), peers: Vec::new(), seen_count: 0 };
        for link in self.links.iter() {
            let events_waiting = REPORTS_MAX.saturating_sub(link.room().0);
            survey.workers.push(WorkerSample { stats: link.stats(), busy_percent: None, events_waiting });
        }
        for answer in self.taken {
            if let Some(worker) = survey.workers.get_mut(answer.worker) {
                worker.busy_percent = Some(answer.busy_percent);
            }
            survey.seen_count = survey.seen_count.saturating_add(answer.seen_count);
            survey.peers.extend(answer.peers);
        }
        put_in_order(&mut survey.peers, self.order);
        survey.peers.truncate(self.most);
        survey
    }
}

impl PendingRecord {
    /// Waits for it, at most for `timeout`; `None` for a peer that is gone or was silent for five seconds, without
    /// [`ServerConfig::flight_recorder`](crate::ServerConfig::flight_recorder), and when the time is over.
    #[must_use]
    pub fn wait(self, timeout: Duration) -> Option<Box<FlightRecord>> {
        self.0.recv_timeout(timeout).ok().flatten()
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("workers", &self.links.len()).finish_non_exhaustive()
    }
}

fn left(start: Instant, timeout: Duration) -> Duration {
    timeout.saturating_sub(clock::instant().saturating_duration_since(start))
}
