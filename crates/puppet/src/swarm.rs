//! The traffic of one seed: a few recipes for frames, drawn at random, and their packing (swarm testing).
//!
//! A seed that draws all kinds and values evenly rarely repeats one thing often enough to fill a table. So each seed has a few recipes,
//! each with one way to choose every field, and follows them for a whole run. Some recipes make a second frame about the message of the
//! previous frame, for faults that need two kinds of frames.

use crate::random::Random;

/// The kinds of frames that recipes make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Message,
    Fragment,
    Skip,
    Ack,
    Padding,
    Ping,
    AckRequest,
    Credit,
    Timestamp,
    PathChallenge,
    PathResponse,
    RetireConnectionId,
    /// A frame that ends the connection: a Close, or a frame that only a server may send.
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Unreliable,
    UnreliableSequenced,
    ReliableUnordered,
    ReliableSequenced,
    ReliableOrdered,
    ReliableLatest,
}

/// Which message a frame is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdChoice {
    /// The next id.
    Next,
    /// The id of the previous frame.
    Same,
    /// The id of a fragmented message.
    Fragmented,
    /// One of the newest ids.
    Recent,
    /// The lowest id that the server lacks.
    Lowest,
    /// Any id within the window.
    Ahead,
    /// The last id within the window, or the first beyond it.
    Edge,
}

/// The message that an ordered message follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterChoice {
    Nothing,
    Previous,
    LastOfChannel,
    /// The lowest id that the server lacks, so that the message waits.
    Lowest,
    Earlier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelChoice {
    One(u16),
    Alternate,
    Few,
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LengthChoice {
    Zero,
    One,
    Tiny,
    Small,
    Uniform,
    /// The rest of the packet.
    Fill,
    /// The total length that the message's fragments state, if it fits.
    Matching,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TotalChoice {
    Tiny,
    Packet,
    Unreliable,
    Largest,
    Uniform,
    TooLarge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OffsetChoice {
    Start,
    /// The end of the last fragment.
    Next,
    /// One byte after the end of the last fragment, so that every fragment is a separate range.
    Gap,
    Uniform,
    /// The offset of an earlier fragment.
    Again,
    End,
}

/// One way to make a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
    pub(crate) id: IdChoice,
    pub(crate) after: AfterChoice,
    pub(crate) channel: ChannelChoice,
    pub(crate) length: LengthChoice,
    pub(crate) total: TotalChoice,
    pub(crate) offset: OffsetChoice,
    /// The most frames in a row that follow the recipe.
    pub(crate) run: u64,
}

/// How acks are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckChoice {
    /// All packets that arrived.
    All,
    /// Every other packet that arrived, so that the rest counts as lost.
    Half,
    /// The newest packet alone.
    Newest,
    /// One packet among the last hundred.
    Any,
}

/// The choices of one seed.
#[derive(Clone, Debug)]
pub struct Swarm {
    pub(crate) recipes: Vec<Recipe>,
    /// Whether the recipes take turns; otherwise each is drawn.
    pub(crate) takes_turns: bool,
    /// Frames of a packet, at most.
    pub(crate) frames_max: usize,
    pub(crate) ack: AckChoice,
    /// Packets of 100 that also carry an ack of all packets that arrived.
    pub(crate) acks_percent: u64,
    /// Whether the message with the lowest id is never sent, so that later ordered messages wait.
    pub(crate) holds_back_first: bool,
    /// Frames of 10,000 that break a rule on purpose.
    pub(crate) offences: u64,
    /// Packets of 10,000 in which a byte is changed before they are sealed.
    pub(crate) garbled: u64,
    /// Packets of 10,000 after which the keys change.
    pub(crate) key_changes: u64,
}

/// Draws one of the choices, each by its weight.
fn weighted<T: Copy>(random: &mut Random, choices: &[(T, u64)]) -> T {
    let sum = choices.iter().map(|(_, weight)| weight).sum();
    let mut at = random.below(sum);
    for (choice, weight) in choices {
        match at.checked_sub(*weight) {
            Some(rest) => at = rest,
            None => return *choice,
        }
    }
    choices[0].0
}

const KINDS: [(Kind, u64); 13] = [
    (Kind::Message, 36),
    (Kind::Fragment, 36),
    (Kind::Skip, 15),
    (Kind::Ack, 8),
    (Kind::Padding, 1),
    (Kind::Ping, 1),
    (Kind::AckRequest, 1),
    (Kind::Credit, 2),
    (Kind::Timestamp, 2),
    (Kind::PathChallenge, 2),
    (Kind::PathResponse, 2),
    (Kind::RetireConnectionId, 3),
    (Kind::Last, 1),
];

const MODES: [(Mode, u64); 6] = [
    (Mode::Unreliable, 2),
    (Mode::UnreliableSequenced, 2),
    (Mode::ReliableUnordered, 3),
    (Mode::ReliableSequenced, 2),
    (Mode::ReliableOrdered, 4),
    (Mode::ReliableLatest, 2),
];

const IDS: [(IdChoice, u64); 7] = [
    (IdChoice::Next, 12),
    (IdChoice::Same, 3),
    (IdChoice::Fragmented, 4),
    (IdChoice::Recent, 2),
    (IdChoice::Lowest, 2),
    (IdChoice::Ahead, 2),
    (IdChoice::Edge, 1),
];

const AFTERS: [(AfterChoice, u64); 5] = [
    (AfterChoice::Nothing, 2),
    (AfterChoice::Previous, 2),
    (AfterChoice::LastOfChannel, 2),
    (AfterChoice::Lowest, 4),
    (AfterChoice::Earlier, 1),
];

const LENGTHS: [(LengthChoice, u64); 7] = [
    (LengthChoice::Zero, 3),
    (LengthChoice::One, 3),
    (LengthChoice::Tiny, 2),
    (LengthChoice::Small, 2),
    (LengthChoice::Uniform, 3),
    (LengthChoice::Fill, 6),
    (LengthChoice::Matching, 2),
];

const TOTALS: [(TotalChoice, u64); 6] = [
    (TotalChoice::Tiny, 8),
    (TotalChoice::Packet, 2),
    (TotalChoice::Unreliable, 3),
    (TotalChoice::Largest, 4),
    (TotalChoice::Uniform, 2),
    (TotalChoice::TooLarge, 1),
];

const OFFSETS: [(OffsetChoice, u64); 6] = [
    (OffsetChoice::Start, 2),
    (OffsetChoice::Next, 3),
    (OffsetChoice::Gap, 3),
    (OffsetChoice::Uniform, 3),
    (OffsetChoice::Again, 2),
    (OffsetChoice::End, 1),
];

const CHANNELS: [(ChannelChoice, u64); 7] = [
    (ChannelChoice::One(0), 2),
    (ChannelChoice::One(1), 1),
    (ChannelChoice::One(2), 1),
    (ChannelChoice::One(u16::MAX), 1),
    (ChannelChoice::Alternate, 5),
    (ChannelChoice::Few, 3),
    (ChannelChoice::Any, 2),
];

const RUNS: [u64; 5] = [1, 2, 8, 200, 2_000];

/// Draws up to `count` of the choices, each by its weight, with their weights.
fn some_of<T: Copy + PartialEq>(random: &mut Random, choices: &[(T, u64)], count: u64) -> Vec<(T, u64)> {
    let drawn: Vec<T> = (0..count).map(|_| weighted(random, choices)).collect();
    choices.iter().copied().filter(|(choice, _)| drawn.contains(choice)).collect()
}

/// The few choices that the recipes of one seed are made of, each with its weight.
struct Menu {
    kinds: Vec<(Kind, u64)>,
    modes: Vec<(Mode, u64)>,
    ids: Vec<(IdChoice, u64)>,
    afters: Vec<(AfterChoice, u64)>,
    channels: Vec<(ChannelChoice, u64)>,
    lengths: Vec<(LengthChoice, u64)>,
    totals: Vec<(TotalChoice, u64)>,
    offsets: Vec<(OffsetChoice, u64)>,
    runs: [u64; 2],
}

impl Menu {
    fn draw(random: &mut Random) -> Self {
        let few = |random: &mut Random| 1 + random.below(3);
        let kinds = 1 + random.below(4);
        let kinds = some_of(random, &KINDS, kinds);
        let counts = [0; 7].map(|_: u64| few(random));
        Self {
            kinds,
            modes: some_of(random, &MODES, counts[0]),
            ids: some_of(random, &IDS, counts[1]),
            afters: some_of(random, &AFTERS, counts[2]),
            channels: some_of(random, &CHANNELS, counts[3]),
            lengths: some_of(random, &LENGTHS, counts[4]),
            totals: some_of(random, &TOTALS, counts[5]),
            offsets: some_of(random, &OFFSETS, counts[6]),
            runs: [1, random.pick(&RUNS)],
        }
    }

    fn recipe(&self, random: &mut Random) -> Recipe {
        Recipe {
            kind: weighted(random, &self.kinds),
            mode: weighted(random, &self.modes),
            id: weighted(random, &self.ids),
            after: weighted(random, &self.afters),
            channel: weighted(random, &self.channels),
            length: weighted(random, &self.lengths),
            total: weighted(random, &self.totals),
            offset: weighted(random, &self.offsets),
            run: random.pick(&self.runs),
        }
    }

    /// Draws a recipe for another frame about the message of the previous frame. It differs in the kind and the length.
    fn about_the_same(&self, last: Recipe, random: &mut Random) -> Recipe {
        let kind = weighted(random, &[(Kind::Message, 2), (Kind::Fragment, 2), (Kind::Skip, 1)]);
        let id = random.pick(&[IdChoice::Same, IdChoice::Same, IdChoice::Fragmented]);
        Recipe { kind, id, length: weighted(random, &LENGTHS), run: 1, ..last }
    }
}

impl Swarm {
    /// Draws the choices of a seed.
    pub fn draw(random: &mut Random) -> Self {
        let menu = Menu::draw(random);
        let mut recipes = vec![menu.recipe(random)];
        for _ in 1..random.pick(&[1, 2, 2, 3, 4, 8]) {
            let last = recipes[recipes.len() - 1];
            let is_about_the_same = random.happens(60);
            let next =
                if is_about_the_same { menu.about_the_same(last, random) } else { menu.recipe(random) };
            recipes.push(next);
        }
        let acks = [AckChoice::All, AckChoice::Half, AckChoice::Newest, AckChoice::Any];
        Self {
            recipes,
            takes_turns: random.happens(75),
            frames_max: random.pick(&[2, 4, 16, 1_200, 1_200, 1_200, 1_200, 1_200]),
            ack: random.pick(&acks),
            acks_percent: random.pick(&[0, 10, 30, 30, 100, 100]),
            holds_back_first: random.happens(60),
            offences: random.pick(&[0, 0, 0, 0, 0, 1, 50]),
            garbled: random.pick(&[0, 0, 0, 0, 0, 0, 20, 200]),
            key_changes: random.pick(&[0, 0, 0, 50]),
        }
    }
}
