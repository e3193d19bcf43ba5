//! The traffic of one seed: a few templates for frames, drawn at random, and their packing (swarm testing).
//!
//! A seed that draws all kinds and values evenly rarely repeats one thing often enough to fill a table. So each seed
//! has a few templates, each with one way to choose every field, and follows them for a whole run. Some templates make
//! a second frame about the message of the previous frame, for faults that need two kinds of frames.

use drumfire_wire::limits::MESSAGE_IDS_AHEAD;

use crate::random::Random;
use crate::state::SendState;

/// The maximum length of an unreliable message in bytes.
pub(crate) const UNRELIABLE_MAX_BYTES: u32 = 16 * 1_024;

/// Defines an enum, and the weight by which each variant is drawn. With inputs, also defines the value that each variant stands for.
macro_rules! choices {
    ($(#[$doc:meta])* $name:ident($($input:ident: $type:ty),*) -> $result:ty {
        $($(#[$note:meta])* $choice:ident: $weight:literal => $value:expr,)*
    }) => {
        choices! { $(#[$doc])* $name { $($(#[$note])* $choice: $weight,)* } }

        impl $name {
            pub(crate) fn value(self, $($input: $type),*) -> $result {
                match self {
                    $(Self::$choice => $value,)*
                }
            }
        }
    };
    ($(#[$doc:meta])* $name:ident { $($(#[$note:meta])* $choice:ident: $weight:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$note])* $choice,)*
        }

        impl $name {
            const ALL: &'static [(Self, u64)] = &[$((Self::$choice, $weight)),*];
        }
    };
}

choices! {
    /// The kinds of frames that templates make.
    Kind {
        Message: 36,
        Fragment: 36,
        Skip: 15,
        Run: 30,
        SkipRun: 8,
        Ack: 8,
        Padding: 1,
        Ping: 1,
        AckRequest: 1,
        Credit: 2,
        Timestamp: 2,
        PathChallenge: 2,
        PathResponse: 2,
        RetireConnectionId: 3,
        /// A frame that ends the connection: a Close, or a frame that only a server may send.
        Last: 1,
    }
}

choices! {
    Mode {
        Unreliable: 2,
        UnreliableSequenced: 2,
        ReliableUnordered: 3,
        ReliableSequenced: 2,
        ReliableOrdered: 4,
        ReliableLatest: 2,
    }
}

choices! {
    /// The choice of the message that a frame names.
    IdChoice(state: &SendState, random: &mut Random) -> u64 {
        Next: 12 => state.next,
        /// The id of the previous frame.
        Same: 3 => state.last_id,
        Fragmented: 4 => {
            let at = random.index(state.fragmented.len());
            state.fragmented.keys().nth(at).copied().unwrap_or(state.next)
        },
        Recent: 2 => state.next.saturating_sub(1 + random.below(32)),
        /// The lowest id that the server lacks and that may be sent.
        Lowest: 2 => state.lowest(),
        /// Any id within the window.
        Ahead: 2 => state.floor() + random.below(MESSAGE_IDS_AHEAD),
        /// The last id within the window, or the first beyond it.
        Edge: 1 => state.floor() + MESSAGE_IDS_AHEAD - random.below(2),
    }
}

choices! {
    /// The message that an ordered message follows.
    AfterChoice(state: &SendState, random: &mut Random, channel: ChannelChoice, id: u64) -> Option<u64> {
        Nothing: 2 => None,
        Previous: 2 => id.checked_sub(1),
        LastOfChannel: 2 => match channel {
            ChannelChoice::One(channel) => state.last_of_channel.get(&channel).copied(),
            _ => None,
        },
        /// The lowest id that the server lacks, so that the message waits.
        Lowest: 4 => Some(state.floor()),
        Earlier: 1 => id.checked_sub(1 + random.below(64)),
    }
}

choices! {
    LengthChoice(random: &mut Random, room: usize) -> usize {
        Zero: 3 => 0,
        One: 3 => 1,
        Tiny: 2 => random.index(9),
        Small: 2 => 64,
        Uniform: 3 => random.index(room + 1),
        /// The rest of the packet.
        Fill: 6 => room,
        /// The total length that the message's fragments state, if there are any and it fits.
        Matching: 2 => 0,
    }
}

choices! {
    TotalChoice(random: &mut Random, largest: u32) -> u32 {
        Tiny: 8 => 1 + random.below_u32(8),
        Packet: 2 => 1_000,
        Unreliable: 3 => UNRELIABLE_MAX_BYTES,
        Largest: 4 => largest,
        Uniform: 2 => 1 + random.below_u32(largest),
        TooLarge: 1 => largest + 1,
    }
}

choices! {
    /// The offset of a fragment, from the end of the last one and the last offset that is possible.
    OffsetChoice(random: &mut Random, end: u32, last: u32) -> u32 {
        Start: 2 => 0,
        Next: 3 => end,
        /// One byte after the end of the last fragment, so that every fragment is a separate range.
        Gap: 3 => if end == 0 { 0 } else { end + 1 },
        Uniform: 3 => random.below_u32(last + 1),
        /// The offset of an earlier fragment.
        Again: 2 => random.below_u32(end.max(1)) & !1,
        End: 1 => last,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelChoice {
    One(u16),
    Alternate,
    Few,
    Any,
}

/// The choices by which frames are drawn: the kind of the frame, and a way to choose each field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameTemplate {
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
    pub(crate) id: IdChoice,
    pub(crate) after: AfterChoice,
    pub(crate) channel: ChannelChoice,
    pub(crate) length: LengthChoice,
    pub(crate) total: TotalChoice,
    pub(crate) offset: OffsetChoice,
    /// The maximum number of consecutive frames that follow the template.
    pub(crate) run: u64,
}

/// The packets that an ack names.
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
    pub(crate) templates: Vec<FrameTemplate>,
    /// Whether the templates take turns; otherwise each is drawn.
    pub(crate) takes_turns: bool,
    /// The maximum number of frames in a packet.
    pub(crate) frames_max: usize,
    pub(crate) ack: AckChoice,
    /// The percentage of packets that also carry an ack of all packets that arrived.
    pub(crate) acks_percent: u64,
    /// Whether the message with the lowest id is never sent, so that later ordered messages wait.
    pub(crate) holds_back_first: bool,
    /// The number of frames of 10,000 that break a rule on purpose.
    pub(crate) violations: u64,
    /// The number of packets of 10,000 in which a byte is changed before they are sealed.
    pub(crate) corrupted: u64,
    /// The number of packets of 10,000 after which the keys change.
    pub(crate) key_changes: u64,
}

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
    let drawn: Vec<T> = (0..count).map(|_| random.weighted(choices)).collect();
    choices.iter().copied().filter(|(choice, _)| drawn.contains(choice)).collect()
}

/// The few choices that the templates of one seed are made of, each with its weight.
struct TemplateChoices {
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

impl TemplateChoices {
    fn draw(random: &mut Random) -> Self {
        let few = |random: &mut Random| 1 + random.below(3);
        let kinds = 1 + random.below(4);
        let kinds = some_of(random, Kind::ALL, kinds);
        let counts = [0; 7].map(|_: u64| few(random));
        Self {
            kinds,
            modes: some_of(random, Mode::ALL, counts[0]),
            ids: some_of(random, IdChoice::ALL, counts[1]),
            afters: some_of(random, AfterChoice::ALL, counts[2]),
            channels: some_of(random, &CHANNELS, counts[3]),
            lengths: some_of(random, LengthChoice::ALL, counts[4]),
            totals: some_of(random, TotalChoice::ALL, counts[5]),
            offsets: some_of(random, OffsetChoice::ALL, counts[6]),
            runs: [1, random.pick(&RUNS)],
        }
    }

    fn template(&self, random: &mut Random) -> FrameTemplate {
        FrameTemplate {
            kind: random.weighted(&self.kinds),
            mode: random.weighted(&self.modes),
            id: random.weighted(&self.ids),
            after: random.weighted(&self.afters),
            channel: random.weighted(&self.channels),
            length: random.weighted(&self.lengths),
            total: random.weighted(&self.totals),
            offset: random.weighted(&self.offsets),
            run: random.pick(&self.runs),
        }
    }

    /// Draws a template for another frame about the message of the previous frame. It differs in the kind and the
    /// length.
    fn about_the_same(&self, last: FrameTemplate, random: &mut Random) -> FrameTemplate {
        let kind = random.weighted(&[
            (Kind::Message, 2),
            (Kind::Fragment, 2),
            (Kind::Skip, 1),
            (Kind::Run, 2),
            (Kind::SkipRun, 1),
        ]);
        let id = random.pick(&[IdChoice::Same, IdChoice::Same, IdChoice::Fragmented]);
        FrameTemplate { kind, id, length: random.weighted(LengthChoice::ALL), run: 1, ..last }
    }
}

impl Swarm {
    /// Draws the choices of a seed.
    pub fn draw(random: &mut Random) -> Self {
        let choices = TemplateChoices::draw(random);
        let mut templates = vec![choices.template(random)];
        for _ in 1..random.pick(&[1, 2, 2, 3, 4, 8]) {
            let last = templates[templates.len() - 1];
            let is_about_the_same = random.happens(60);
            let next = if is_about_the_same {
                choices.about_the_same(last, random)
            } else {
                choices.template(random)
            };
            templates.push(next);
        }
        let acks = [AckChoice::All, AckChoice::Half, AckChoice::Newest, AckChoice::Any];
        Self {
            templates,
            takes_turns: random.happens(75),
            frames_max: random.pick(&[2, 4, 16, 1_200, 1_200, 1_200, 1_200, 1_200]),
            ack: random.pick(&acks),
            acks_percent: random.pick(&[0, 10, 30, 30, 100, 100]),
            holds_back_first: random.happens(60),
            violations: random.pick(&[0, 0, 0, 0, 0, 1, 50]),
            corrupted: random.pick(&[0, 0, 0, 0, 0, 0, 20, 200]),
            key_changes: random.pick(&[0, 0, 0, 50]),
        }
    }
}
