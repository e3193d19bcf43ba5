//! Messages that were not sent yet, in a line for each channel: strict priority between classes, a fair share of bytes
//! between the lines of one class (deficit round robin, Shreedhar and Varghese 1995).
//!
//! A line exists while something waits in it, so channels cost neither memory nor time beyond that. What becomes of a
//! message once it was sent is not known here, save that of a ReliableSequenced channel one is under way at a time.

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

/// Bytes that a line of weight 1 may send before the next has its turn.
const QUANTUM_BYTES: u32 = 256;

/// All lines of one connection.
#[derive(Debug)]
pub(super) struct Lines {
    places: Places,
    /// The only line, as long as there is one: most connections send on one channel at a time, and need no turns.
    only: Option<(Name, Line)>,
    /// The lines when there are several.
    lines: HashMap<Name, Line, FoldBuild>,
    /// Lines that have their turns, by class. Each line is in one of these, once.
    turns: [VecDeque<Name>; Priority::COUNT],
    /// Lines of reliable messages that were met while no id could be given.
    blocked: [VecDeque<Name>; Priority::COUNT],
    has_blocked: bool,
    /// How many messages without ids stand in lines.
    without_id: usize,
    /// Lines of messages with ids that are not blocked, and those of them whose first has its id already.
    open_lines: usize,
    begun_lines: usize,
    /// The next message with an id is more than the peer gave credit for, and none may overtake it.
    is_short_of_credit: bool,
    sequenced: HashMap<ChannelId, Sequenced, FoldBuild>,
    /// Of channels that differ from others.
    options: HashMap<ChannelId, ChannelOptions, FoldBuild>,
}

/// A line: messages with ids and without do not hold each other up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    channel: ChannelId,
    needs_id: bool,
}

impl Hash for Name {
    /// As one word, which is all that the hasher wants.
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

/// What a ReliableSequenced channel has beside the message under way.
#[derive(Debug)]
struct Sequenced {
    /// The newest message that was not sent yet.
    newest: u32,
    is_under_way: bool,
    priority: Priority,
}

impl Lines {
    /// Something of each part of it, for `Connection::fetch_parts`.
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

    /// Puts a message at the end of its line. Answers the message that it takes the place of, if there is one. In a line that
    /// exists it goes with the line's priority, so that nothing overtakes in a channel.
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

    /// Puts a message at the end of its line; answers its place.
    pub(super) fn push_at_end(&mut self, waiting: Waiting, priority: Priority) -> u32 {
        let place = self.places.put(waiting);
        self.stand(place, priority);
        place
    }

    /// Puts a message in the place of another of its line, which it answers.
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

    /// Whether a message could be sent, when ids can be given or not.
    pub(super) const fn has_sendable(&self, may_give_id: bool) -> bool {
        self.without_id > 0 || self.begun_lines > 0 || (may_give_id && self.open_lines > 0)
    }

    /// Whether the peer gave too little credit for the next message with an id.
    pub(super) const fn is_short_of_credit(&self) -> bool {
        self.is_short_of_credit
    }

    pub(super) const fn set_short_of_credit(&mut self, is_short: bool) {
        self.is_short_of_credit = is_short;
    }

    /// The channels on which something may go, and since when what goes next has waited.
    pub(super) fn waiting_since(&self) -> impl Iterator<Item = (ChannelId, Moment)> {
        let only = self.only.iter().map(|(name, line)| (name, line));
        only.chain(&self.lines)
            .filter_map(|(name, line)| Some((name.channel, self.places.get(line.first)?.queued_at)))
    }

    /// Whether nothing is kept here at all.
    pub(super) fn is_empty(&self) -> bool {
        let has_lines = self.only.is_some() || !self.lines.is_empty();
        !has_lines && self.sequenced.is_empty() && self.options.is_empty()
    }

    /// Lines that waited for ids have their turns again.
    pub(super) fn unblock(&mut self) {
        if !std::mem::take(&mut self.has_blocked) {
            return;
        }
        for (turns, blocked) in self.turns.iter_mut().zip(&mut self.blocked) {
            self.open_lines = self.open_lines.saturating_add(blocked.len());
            turns.append(blocked);
        }
    }

    /// The line that has its turn in this class waits until [`Self::unblock`].
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

    /// The first message of the line.
    pub(super) fn first(&self, name: Name) -> Option<Standing<'_>> {
        let line = match &self.only {
            Some((only, line)) if *only == name => line,
            Some(_) => return None,
            None => self.lines.get(&name)?,
        };
        self.places.get(line.first)
    }

    /// The first message of the line, which has its turn, is sent in pieces from now on.
    pub(super) fn begin(&mut self, name: Name, progress: Progress) {
        let Some(place) = self.line_mut(name).map(|line| line.first) else { return };
        let Some(Standing { mode, channel, .. }) = self.places.get(place) else { return };
        self.places.set_progress(place, progress);
        if name.needs_id {
            self.begun_lines = self.begun_lines.saturating_add(1);
        }
        // What comes to a sequenced channel from now on waits until this one has arrived.
        if mode == Mode::ReliableSequenced
            && let Some(state) = self.sequenced.get_mut(&channel)
        {
            (state.newest, state.is_under_way) = (NOWHERE, true);
        }
    }

    /// The first message of the line, which has this number, was sent up to here.
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

    /// The message of this class whose turn it is.
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

    /// Takes out the first message of this line, which has its turn: because it is sent, or given up.
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

    /// Takes out the oldest message of a channel that was not sent yet, values by key aside.
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
        // One that was blocked was not among the open ones. Were one counted too many, packets with nothing in them would be sent
        // for ever.
        if is_blocked {
            self.open_lines = open_lines;
        }
        Some(oldest)
    }

    /// The message of a ReliableSequenced channel that was under way has arrived: the newest may follow.
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

    /// Lets the message at this place stand in its line.
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
