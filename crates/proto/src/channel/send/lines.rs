//! The send scheduler: one queue per channel, strict priority between classes, and a fair share of bytes between the
//! queues of one class (deficit round robin, Shreedhar and Varghese 1995).
//!
//! A queue exists while a message waits in it, so idle channels cost neither memory nor time. The scheduler knows
//! nothing about sent messages, except that a ReliableSequenced channel has one in flight at a time.

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};

use drumfire_wire::ChannelId;

use super::free::NOWHERE;
use super::places::Places;
use super::waiting::{Progress, Standing, Waiting};
use crate::channel::{ChannelOptions, Mode, Priority};
use crate::ids::FoldBuild;
use crate::time::Moment;
use crate::visits::{self, Visit};

/// Bytes that a queue of weight 1 may send in its turn.
const QUANTUM_BYTES: u32 = 256;

/// All queues of one connection.
#[derive(Debug)]
pub(super) struct Lines {
    places: Places,
    /// The only queue, while there is just one: most connections use one channel at a time, and need no turns.
    only: Option<(Name, Line)>,
    /// The queues when there are several.
    lines: HashMap<Name, Line, FoldBuild>,
    /// Queues in the rotation, by class. Each queue is in `turns` or in `blocked`, once.
    turns: [VecDeque<Name>; Priority::COUNT],
    /// Queues of reliable messages that were visited while no id was available.
    blocked: [VecDeque<Name>; Priority::COUNT],
    has_blocked: bool,
    /// The number of queued messages without ids.
    without_id: usize,
    /// Queues of messages with ids that are not blocked, and those among them whose first message already has its id.
    open_lines: usize,
    begun_lines: usize,
    /// The next message with an id exceeds the peer's credit, and no other may overtake it.
    is_short_of_credit: bool,
    sequenced: HashMap<ChannelId, Sequenced, FoldBuild>,
    /// The options of channels that differ from the default.
    options: HashMap<ChannelId, ChannelOptions, FoldBuild>,
}

/// The key of a queue. Messages with ids and without ids of a channel do not block each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    channel: ChannelId,
    needs_id: bool,
}

impl Hash for Name {
    /// Hashes one word, which is the cheapest input for the hasher.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.channel.0) << 1 | u64::from(self.needs_id));
    }
}

#[derive(Debug)]
struct Line {
    first: u32,
    last: u32,
    credit_bytes: u32,
    class: usize,
}

/// The state of a ReliableSequenced channel besides the message in flight.
#[derive(Debug)]
struct Sequenced {
    /// The newest message that was not sent yet.
    newest: u32,
    is_under_way: bool,
    priority: Priority,
}

impl Lines {
    /// Reads a field of each part, for `Connection::prefetch_parts`.
    #[inline]
    pub(super) fn fetch(&self) -> impl Copy + use<> {
        (self.places.fetch(), self.without_id, self.sequenced.len(), self.options.len())
    }

    pub(super) fn new(hash: FoldBuild) -> Self {
        Self {
            places: Places::new(),
            only: None,
            lines: HashMap::with_hasher(hash),
            turns: Default::default(),
            blocked: Default::default(),
            has_blocked: false,
            without_id: 0,
            open_lines: 0,
            begun_lines: 0,
            is_short_of_credit: false,
            sequenced: HashMap::with_hasher(hash),
            options: HashMap::with_hasher(hash),
        }
    }

    /// Queues a message. Returns the message that it replaces, if any. In an existing queue it gets the priority of
    /// the queue, so that nothing overtakes within a channel.
    pub(super) fn push(&mut self, waiting: Waiting, priority: Priority) -> Option<Waiting> {
        if waiting.mode != Mode::ReliableSequenced {
            self.push_at_end(waiting, priority);
            return None;
        }
        let fresh = Sequenced { newest: NOWHERE, is_under_way: false, priority };
        let state = self.sequenced.entry(waiting.channel).or_insert(fresh);
        let (channel, newest, is_under_way) = (waiting.channel, state.newest, state.is_under_way);
        if self.places.get(newest).is_some() {
            return self.places.replace(newest, waiting);
        }
        let place = self.places.put(waiting);
        if let Some(state) = self.sequenced.get_mut(&channel) {
            (state.newest, state.priority) = (place, priority);
        }
        if !is_under_way {
            self.stand(place, priority);
        }
        None
    }

    /// Appends a message to its queue. Returns its index.
    pub(super) fn push_at_end(&mut self, waiting: Waiting, priority: Priority) -> u32 {
        let place = self.places.put(waiting);
        self.stand(place, priority);
        place
    }

    /// Replaces a message in its queue. Returns the old message.
    pub(super) fn replace(&mut self, place: u32, waiting: Waiting) -> Option<Waiting> {
        self.places.replace(place, waiting)
    }

    pub(super) fn set_options(&mut self, channel: ChannelId, options: ChannelOptions) {
        if options == ChannelOptions::default() {
            self.options.remove(&channel);
        } else {
            self.options.insert(channel, options);
        }
    }

    pub(super) fn options_of(&self, channel: ChannelId) -> ChannelOptions {
        if self.options.is_empty() {
            return ChannelOptions::default();
        }
        self.options.get(&channel).copied().unwrap_or_default()
    }

    /// Whether a message can be sent, depending on whether ids are available.
    pub(super) const fn has_sendable(&self, may_give_id: bool) -> bool {
        self.without_id > 0 || self.begun_lines > 0 || (may_give_id && self.open_lines > 0)
    }

    /// Whether the peer's credit is too small for the next message with an id.
    pub(super) const fn is_short_of_credit(&self) -> bool {
        self.is_short_of_credit
    }

    pub(super) const fn set_short_of_credit(&mut self, is_short: bool) {
        self.is_short_of_credit = is_short;
    }

    /// The channels with waiting messages, and since when the first of each has waited.
    pub(super) fn waiting_since(&self) -> impl Iterator<Item = (ChannelId, Moment)> {
        let only = self.only.iter().map(|(name, line)| (name, line));
        only.chain(&self.lines)
            .filter_map(|(name, line)| Some((name.channel, self.places.get(line.first)?.queued_at)))
    }

    /// Whether the scheduler holds no state.
    pub(super) fn is_empty(&self) -> bool {
        let has_lines = self.only.is_some() || !self.lines.is_empty();
        !has_lines && self.sequenced.is_empty() && self.options.is_empty()
    }

    /// Returns queues that waited for ids to the rotation.
    pub(super) fn unblock(&mut self) {
        if !std::mem::take(&mut self.has_blocked) {
            return;
        }
        for (turns, blocked) in self.turns.iter_mut().zip(&mut self.blocked) {
            self.open_lines = self.open_lines.saturating_add(blocked.len());
            turns.append(blocked);
        }
    }

    /// Removes the current queue of this class from the rotation until [`Self::unblock`].
    pub(super) fn block(&mut self, class: usize) {
        if let Some((name, line)) = self.only.take() {
            if let Some(turns) = self.turns.get_mut(line.class) {
                turns.push_back(name);
            }
            self.lines.insert(name, line);
        }
        let Some(name) = self.turns.get_mut(class).and_then(VecDeque::pop_front) else { return };
        if let Some(blocked) = self.blocked.get_mut(class) {
            blocked.push_back(name);
        }
        self.has_blocked = true;
        self.open_lines = self.open_lines.saturating_sub(1);
    }

    /// Returns the first message of the queue.
    pub(super) fn first(&self, name: Name) -> Option<Standing<'_>> {
        let line = match &self.only {
            Some((only, line)) if *only == name => line,
            Some(_) => return None,
            None => self.lines.get(&name)?,
        };
        self.places.get(line.first)
    }

    /// Starts to fragment the first message of the current queue.
    pub(super) fn begin(&mut self, name: Name, progress: Progress) {
        let Some(place) = self.line_mut(name).map(|line| line.first) else { return };
        let Some(Standing { mode, channel, .. }) = self.places.get(place) else { return };
        self.places.set_progress(place, progress);
        if name.needs_id {
            self.begun_lines = self.begun_lines.saturating_add(1);
        }
        // Later messages of the sequenced channel wait until this one has arrived.
        if mode == Mode::ReliableSequenced
            && let Some(state) = self.sequenced.get_mut(&channel)
        {
            (state.newest, state.is_under_way) = (NOWHERE, true);
        }
    }

    /// Registers the progress of the fragmented first message of the queue.
    pub(super) fn advance(&mut self, name: Name, number: u64, sent_bytes: u32) {
        let Some(place) = self.line_mut(name).map(|line| line.first) else { return };
        let progress = self.places.get(place).and_then(|standing| standing.extras.progress);
        let Some(progress) = progress else { return };
        self.places.set_progress(place, Progress { number, sent_bytes, ..progress });
        if let Some(line) = self.line_mut(name) {
            let bytes = sent_bytes.saturating_sub(progress.sent_bytes);
            line.credit_bytes = line.credit_bytes.saturating_sub(bytes);
        }
    }

    fn line_mut(&mut self, name: Name) -> Option<&mut Line> {
        match &mut self.only {
            Some((_, line)) => Some(line),
            None => self.lines.get_mut(&name),
        }
    }

    /// Returns the next message of this class.
    pub(super) fn front(&mut self, class: usize, may_give_id: bool) -> Option<(Name, Standing<'_>)> {
        if self.only.is_some() {
            visits::count(Visit::Line);
        }
        if let Some((name, line)) = &self.only {
            let standing = self.places.get(line.first)?;
            let may = may_give_id || !name.needs_id || standing.extras.progress.is_some();
            return (may && line.class == class).then_some((*name, standing));
        }
        if self.without_id == 0 && self.open_lines == 0 {
            return None;
        }
        let name = loop {
            let name = *self.turns.get(class)?.front()?;
            visits::count(Visit::Line);
            let turns = self.turns.get_mut(class)?;
            let is_alone = turns.len() == 1;
            let line = self.lines.get_mut(&name)?;
            let first = self.places.get(line.first)?;
            if name.needs_id && !may_give_id && first.extras.progress.is_none() {
                self.block(class);
                continue;
            }
            // Deficit round robin: a queue that lacks credit for its message gets a quantum, and the next queue has
            // its turn.
            let bytes = first.next_bytes();
            if is_alone || line.credit_bytes >= bytes {
                break name;
            }
            let weight = self.options.get(&name.channel).map_or(1, |options| options.weight.get());
            line.credit_bytes = line.credit_bytes.saturating_add(QUANTUM_BYTES.saturating_mul(weight.into()));
            turns.rotate_left(1);
        };
        let line = self.lines.get(&name)?;
        Some((name, self.places.get(line.first)?))
    }

    /// Removes the first message of the current queue, because it was sent or given up.
    pub(super) fn pop(&mut self, name: Name, is_sent: bool) -> Option<Waiting> {
        let is_only = self.only.is_some();
        let line = match &mut self.only {
            Some((_, line)) => line,
            None => self.lines.get_mut(&name)?,
        };
        let bytes = self.places.get(line.first)?.next_bytes();
        line.credit_bytes = line.credit_bytes.saturating_sub(bytes);
        let (waiting, next) = self.places.take(line.first)?;
        line.first = next;
        let (is_over, class) = (line.first == NOWHERE, line.class);
        if is_over && is_only {
            self.only = None;
        } else if is_over {
            self.lines.remove(&name);
            if let Some(turns) = self.turns.get_mut(class)
                && turns.front() == Some(&name)
            {
                turns.pop_front();
            }
        }
        if !name.needs_id {
            self.without_id = self.without_id.saturating_sub(1);
        } else {
            self.begun_lines = self.begun_lines.saturating_sub(waiting.extras.progress.is_some().into());
            self.open_lines = self.open_lines.saturating_sub(is_over.into());
        }
        if waiting.mode == Mode::ReliableSequenced
            && waiting.extras.progress.is_none()
            && let Some(state) = self.sequenced.get_mut(&waiting.channel)
        {
            (state.newest, state.is_under_way) = (NOWHERE, is_sent);
            if !is_sent {
                self.sequenced.remove(&waiting.channel);
            }
        }
        Some(waiting)
    }

    /// Removes the oldest message of a channel that was not sent yet, except ReliableLatest values.
    pub(super) fn drop_oldest(&mut self, channel: ChannelId, mode: Mode) -> Option<Waiting> {
        let name = Name { channel, needs_id: mode.needs_id() };
        let first = self.first(name)?;
        if mode == Mode::ReliableLatest
            || first.mode == Mode::ReliableLatest
            || first.extras.progress.is_some()
        {
            return None;
        }
        let class = self.lines.get(&name).map(|line| line.class);
        let is_blocked = class.and_then(|class| self.blocked.get(class)).is_some_and(|of| of.contains(&name));
        let open_lines = self.open_lines;
        let oldest = self.pop(name, false)?;
        let Some(class) = class.filter(|_| !self.lines.contains_key(&name)) else { return Some(oldest) };
        for queue in [&mut self.turns, &mut self.blocked] {
            if let Some(names) = queue.get_mut(class) {
                names.retain(|other| *other != name);
            }
        }
        // A blocked queue was not counted as open. One queue too many in the count would make the endpoint build
        // empty packets forever.
        if is_blocked {
            self.open_lines = open_lines;
        }
        Some(oldest)
    }

    /// Releases the newest message of a ReliableSequenced channel after the one in flight has arrived.
    pub(super) fn on_sequenced_arrived(&mut self, channel: ChannelId) {
        let Some(state) = self.sequenced.get_mut(&channel) else { return };
        state.is_under_way = false;
        let (newest, priority) = (state.newest, state.priority);
        if newest == NOWHERE {
            self.sequenced.remove(&channel);
        } else {
            self.stand(newest, priority);
        }
    }

    /// Appends the message at this index to its queue.
    fn stand(&mut self, index: u32, priority: Priority) {
        let Some(Standing { channel, mode, .. }) = self.places.get(index) else { return };
        let name = Name { channel, needs_id: mode.needs_id() };
        self.without_id = self.without_id.saturating_add(usize::from(!name.needs_id));
        let line = match &mut self.only {
            Some((only, line)) => (*only == name).then_some(line),
            None => self.lines.get_mut(&name),
        };
        if let Some(line) = line {
            self.places.link(line.last, index);
            line.last = index;
            return;
        }
        self.open_lines = self.open_lines.saturating_add(name.needs_id.into());
        let line = Line { first: index, last: index, credit_bytes: 0, class: priority.class() };
        if self.only.is_none() && self.lines.is_empty() {
            self.only = Some((name, line));
            return;
        }
        let others = self.only.take();
        for (name, line) in others.into_iter().chain([(name, line)]) {
            if let Some(turns) = self.turns.get_mut(line.class) {
                turns.push_back(name);
            }
            self.lines.insert(name, line);
        }
    }
}

#[cfg(test)]
mod tests;
