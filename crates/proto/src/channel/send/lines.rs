//! Messages that were not sent yet, in a line for each channel: strict priority between classes, a fair share of bytes
//! between the lines of one class (deficit round robin, Shreedhar and Varghese 1995).
//!
//! A line exists while something waits in it, so channels cost neither memory nor time beyond that. What becomes of a
//! message once it was sent is not known here, save that of a ReliableSequenced channel one is under way at a time.

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};

use bytes::Bytes;
use drumfire_wire::ChannelId;

use crate::channel::receipt::ReceiptId;
use crate::channel::{ChannelOptions, Mode, Priority};
use crate::ids::FoldBuild;
use crate::time::Moment;

/// Bytes that a line of weight 1 may send before the next has its turn.
const QUANTUM_BYTES: u32 = 256;

const NOWHERE: u32 = u32::MAX;

/// A message that waits to be sent.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) channel: ChannelId,
    pub(super) mode: Mode,
    pub(super) payload: Bytes,
    pub(super) terms: Terms,
    /// Whose value it is, and the version it was sent with, if it was: of ReliableLatest channels.
    pub(super) key: u64,
    pub(super) version: Option<u64>,
}

/// Until when a message is worth sending, and who wants to know what became of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Terms {
    pub(super) deadline: Option<Moment>,
    pub(super) receipt: Option<ReceiptId>,
}

impl Terms {
    pub(super) fn is_over(self, now: Moment) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// All lines of one connection.
#[derive(Debug)]
pub(super) struct Lines {
    places: Vec<Place>,
    /// The first of the places that are free.
    free: u32,
    /// The only line, as long as there is one: most connections send on one channel at a time, and need no turns.
    only: Option<(Name, Line)>,
    /// The lines when there are several.
    lines: HashMap<Name, Line, FoldBuild>,
    /// Lines that have their turns, by class. Each line is in one of these, once.
    turns: [VecDeque<Name>; Priority::COUNT],
    /// Lines of reliable messages that were met while no id could be given.
    blocked: [VecDeque<Name>; Priority::COUNT],
    has_blocked: bool,
    /// How many messages stand in lines: those without ids, and those with.
    counts: [usize; 2],
    sequenced: HashMap<ChannelId, Sequenced, FoldBuild>,
    /// Of channels that differ from others.
    options: HashMap<ChannelId, ChannelOptions, FoldBuild>,
}

/// A message in its line, or a free place.
#[derive(Debug)]
struct Place {
    waiting: Option<Waiting>,
    next: u32,
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
    pub(super) fn new() -> Self {
        let hash = FoldBuild::new(0);
        Self {
            places: Vec::new(),
            free: NOWHERE,
            only: None,
            lines: HashMap::with_hasher(hash),
            turns: Default::default(),
            blocked: Default::default(),
            has_blocked: false,
            counts: [0; 2],
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
        if let Some(older) = self.places.get_mut(at(state.newest)).and_then(|place| place.waiting.as_mut()) {
            return Some(std::mem::replace(older, waiting));
        }
        let (channel, is_under_way) = (waiting.channel, state.is_under_way);
        let place = self.put(waiting);
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
        let place = self.put(waiting);
        self.stand(place, priority);
        place
    }

    /// Puts a message in the place of another of its line, which it answers.
    pub(super) fn replace(&mut self, place: u32, waiting: Waiting) -> Option<Waiting> {
        let older = self.places.get_mut(at(place))?.waiting.as_mut()?;
        Some(std::mem::replace(older, waiting))
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
        let [without_id, with_id] = self.counts;
        without_id > 0 || (may_give_id && with_id > 0)
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
            turns.append(blocked);
        }
    }

    /// The message of this class whose turn it is.
    pub(super) fn front(&mut self, class: usize, may_give_id: bool) -> Option<(Name, &Waiting)> {
        if let Some((name, line)) = &self.only {
            let is_due = line.class == class && (may_give_id || !name.needs_id);
            return is_due.then(|| Some((*name, self.places.get(at(line.first))?.waiting.as_ref()?)))?;
        }
        if self.counts == [0; 2] {
            return None;
        }
        let name = loop {
            let turns = self.turns.get_mut(class)?;
            let name = *turns.front()?;
            if name.needs_id && !may_give_id {
                turns.pop_front();
                self.blocked.get_mut(class)?.push_back(name);
                self.has_blocked = true;
                continue;
            }
            let is_alone = turns.len() == 1;
            let line = self.lines.get_mut(&name)?;
            let first = self.places.get(at(line.first))?.waiting.as_ref()?;
            let bytes = u32::try_from(first.payload.len()).unwrap_or(u32::MAX);
            if is_alone || line.credit_bytes >= bytes {
                break name;
            }
            let weight = self.options.get(&name.channel).map_or(1, |options| options.weight.get());
            line.credit_bytes = line.credit_bytes.saturating_add(QUANTUM_BYTES.saturating_mul(weight.into()));
            turns.rotate_left(1);
        };
        let line = self.lines.get(&name)?;
        Some((name, self.places.get(at(line.first))?.waiting.as_ref()?))
    }

    /// Takes out the first message of this line, which has its turn: because it is sent, or given up.
    pub(super) fn pop(&mut self, name: Name, is_sent: bool) -> Option<Waiting> {
        let is_only = self.only.is_some();
        let line = match &mut self.only {
            Some((_, line)) => line,
            None => self.lines.get_mut(&name)?,
        };
        let first = line.first;
        let place = self.places.get_mut(at(first))?;
        let waiting = place.waiting.take()?;
        let bytes = u32::try_from(waiting.payload.len()).unwrap_or(u32::MAX);
        line.credit_bytes = line.credit_bytes.saturating_sub(bytes);
        line.first = std::mem::replace(&mut place.next, self.free);
        self.free = first;
        let (is_over, class) = (line.first == NOWHERE, line.class);
        if is_over && is_only {
            self.only = None;
        } else if is_over {
            self.lines.remove(&name);
            if let Some(turns) = self.turns.get_mut(class) {
                turns.pop_front();
            }
        }
        if let Some(count) = self.counts.get_mut(usize::from(name.needs_id)) {
            *count = count.saturating_sub(1);
        }
        if waiting.mode == Mode::ReliableSequenced
            && let Some(state) = self.sequenced.get_mut(&waiting.channel)
        {
            (state.newest, state.is_under_way) = (NOWHERE, is_sent);
            if !is_sent {
                self.sequenced.remove(&waiting.channel);
            }
        }
        Some(waiting)
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

    /// Gives a message a place.
    fn put(&mut self, waiting: Waiting) -> u32 {
        let index = self.free;
        if let Some(place) = self.places.get_mut(at(index)) {
            self.free = std::mem::replace(&mut place.next, NOWHERE);
            place.waiting = Some(waiting);
            return index;
        }
        // Memory ends long before the numbers do.
        let index = u32::try_from(self.places.len()).unwrap_or(NOWHERE);
        self.places.push(Place { waiting: Some(waiting), next: NOWHERE });
        index
    }

    /// Lets the message at this place stand in its line.
    fn stand(&mut self, index: u32, priority: Priority) {
        let Some(waiting) = self.places.get(at(index)).and_then(|place| place.waiting.as_ref()) else {
            return;
        };
        let name = Name { channel: waiting.channel, needs_id: waiting.mode.needs_id() };
        if let Some(count) = self.counts.get_mut(usize::from(name.needs_id)) {
            *count = count.saturating_add(1);
        }
        let line = match &mut self.only {
            Some((only, line)) => (*only == name).then_some(line),
            None => self.lines.get_mut(&name),
        };
        if let Some(line) = line {
            if let Some(last) = self.places.get_mut(at(line.last)) {
                last.next = index;
            }
            line.last = index;
            return;
        }
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

fn at(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU8;

    fn push(
        lines: &mut Lines,
        channel: u16,
        mode: Mode,
        payload: &[u8],
        priority: Priority,
    ) -> Option<Bytes> {
        let payload = Bytes::copy_from_slice(payload);
        let waiting = Waiting {
            channel: ChannelId(channel),
            mode,
            payload,
            terms: Terms::default(),
            key: 0,
            version: None,
        };
        lines.push(waiting, priority).map(|older| older.payload)
    }

    /// Takes out everything that may be sent: channels and lengths.
    fn drain(lines: &mut Lines, may_give_id: bool) -> Vec<(u16, usize)> {
        let mut taken = Vec::new();
        for class in 0..Priority::COUNT {
            while let Some((name, _)) = lines.front(class, may_give_id) {
                let waiting = lines.pop(name, true).unwrap();
                taken.push((waiting.channel.0, waiting.payload.len()));
            }
        }
        taken
    }

    fn channels(taken: &[(u16, usize)]) -> Vec<u16> {
        taken.iter().map(|(channel, _)| *channel).collect()
    }

    #[test]
    fn a_higher_class_goes_first_whatever_came_first() {
        let mut lines = Lines::new();
        for (channel, priority) in
            [(1, Priority::Bulk), (2, Priority::Low), (3, Priority::Normal), (4, Priority::Urgent)]
        {
            push(&mut lines, channel, Mode::Unreliable, b"x", priority);
        }
        assert_eq!(channels(&drain(&mut lines, true)), [4, 3, 2, 1]);
        assert!(lines.is_empty());
    }

    #[test]
    fn a_line_keeps_its_order_when_the_priority_changes() {
        let mut lines = Lines::new();
        push(&mut lines, 1, Mode::ReliableOrdered, &[0; 1], Priority::Low);
        push(&mut lines, 1, Mode::ReliableOrdered, &[0; 2], Priority::Urgent);
        push(&mut lines, 2, Mode::ReliableOrdered, &[0; 3], Priority::Normal);
        assert_eq!(drain(&mut lines, true), [(2, 3), (1, 1), (1, 2)]);
        push(&mut lines, 1, Mode::ReliableOrdered, &[0; 4], Priority::Urgent);
        push(&mut lines, 2, Mode::ReliableOrdered, &[0; 5], Priority::Normal);
        assert_eq!(drain(&mut lines, true), [(1, 4), (2, 5)], "a new line has its own");
    }

    #[test]
    fn lines_of_a_class_share_bytes_and_not_messages() {
        let mut lines = Lines::new();
        for _ in 0..40 {
            push(&mut lines, 1, Mode::Unreliable, &[0; 1_000], Priority::Normal);
        }
        for _ in 0..400 {
            push(&mut lines, 2, Mode::Unreliable, &[0; 100], Priority::Normal);
        }
        let taken = drain(&mut lines, true);
        let bytes = |of: u16| -> usize {
            taken[..220].iter().filter(|(channel, _)| *channel == of).map(|(_, bytes)| bytes).sum()
        };
        assert!(bytes(1).abs_diff(bytes(2)) <= 1_000, "{} {}", bytes(1), bytes(2));
    }

    #[test]
    fn a_weight_is_a_share() {
        let mut lines = Lines::new();
        lines.set_options(ChannelId(2), ChannelOptions::default().weight(NonZeroU8::new(3).unwrap()));
        for channel in [1, 2] {
            for _ in 0..400 {
                push(&mut lines, channel, Mode::Unreliable, &[0; 100], Priority::Normal);
            }
        }
        let taken = drain(&mut lines, true);
        let heavy = taken[..400].iter().filter(|(channel, _)| *channel == 2).count();
        assert!((295..=305).contains(&heavy), "{heavy}");
        assert!(!lines.is_empty(), "the weight is kept");
        lines.set_options(ChannelId(2), ChannelOptions::default());
        assert!(lines.is_empty());
    }

    #[test]
    fn without_ids_unreliable_messages_pass_and_the_others_come_after() {
        let mut lines = Lines::new();
        for channel in 0..3 {
            push(&mut lines, channel, Mode::ReliableOrdered, b"x", Priority::Normal);
        }
        assert!(lines.has_sendable(true) && !lines.has_sendable(false));
        push(&mut lines, 9, Mode::Unreliable, b"x", Priority::Normal);
        assert!(lines.has_sendable(false));
        assert_eq!(channels(&drain(&mut lines, false)), [9]);
        assert_eq!(channels(&drain(&mut lines, true)), [0_u16; 0], "they wait for ids");
        lines.unblock();
        assert_eq!(channels(&drain(&mut lines, true)), [0, 1, 2]);
    }

    #[test]
    fn of_a_sequenced_channel_one_is_under_way_and_the_newest_waits() {
        let mut lines = Lines::new();
        let mode = Mode::ReliableSequenced;
        assert_eq!(push(&mut lines, 1, mode, b"a", Priority::Normal), None);
        assert_eq!(push(&mut lines, 1, mode, b"bb", Priority::Normal), Some(Bytes::from_static(b"a")));
        assert_eq!(drain(&mut lines, true), [(1, 2)]);
        assert_eq!(push(&mut lines, 1, mode, b"ccc", Priority::Normal), None);
        assert_eq!(push(&mut lines, 1, mode, b"dddd", Priority::Normal), Some(Bytes::from_static(b"ccc")));
        assert!(!lines.has_sendable(true), "one is under way");
        lines.on_sequenced_arrived(ChannelId(1));
        assert_eq!(drain(&mut lines, true), [(1, 4)]);
        lines.on_sequenced_arrived(ChannelId(1));
        assert!(lines.is_empty());
    }

    #[test]
    fn places_are_used_again() {
        let mut lines = Lines::new();
        for _ in 0..1_000 {
            for channel in 0..5 {
                push(&mut lines, channel, Mode::Unreliable, b"x", Priority::Normal);
            }
            assert_eq!(drain(&mut lines, true).len(), 5);
        }
        assert_eq!(lines.places.len(), 5);
    }
}
