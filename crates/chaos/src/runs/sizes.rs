//! C12, datagrams of every length up to the longest there is: in one piece, in fragments of IP, and in trains. Whatever is longer than
//! a packet may be is dropped and counted, to the last one, and players notice nothing.

use std::net::UdpSocket;
use std::time::Duration;

use drumfire::ClientConfig;

use super::{PERIOD, Setting, one_port};
use crate::crowd::Crowd;
use crate::marks::Marks;
use crate::process::{Plan, Report, ServerProcess};
use crate::stop::{Stop, Tried};
use crate::system::{LINK, call};
use crate::trains::Trains;

const PLAYERS: usize = 4;

/// The longest datagram of UDP over IPv4.
const LONGEST: usize = 65_507;

/// Between two lengths.
const STEP: usize = 97;

/// The longest datagram that the protocol looks at.
const TAKEN: usize = 1_500;

/// What a link of this size carries in one piece.
const MTU: usize = 1_500;
const WHOLE: usize = MTU - 28;

/// Datagrams of a train, and all its bytes, at most.
const TRAIN: usize = 3;
const TRAIN_BYTES: usize = 65_487;

/// Datagrams of the longest kind that wait in the smallest buffer.
const AT_ONCE: usize = 2;

/// Lessons until the worker sees that trains come.
const LESSONS: u32 = 200;

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let step = setting.size.of(8 * STEP, STEP, STEP);
    let lengths: Vec<usize> = (0..LONGEST).step_by(step).chain([LONGEST]).collect();
    alone(setting, &lengths, marks)?;
    in_trains(setting, &lengths, marks)
}

/// A server with some players, and what it counted before anything else came.
struct Scene {
    server: ServerProcess,
    crowd: Crowd,
    before: Report,
    sent: Sent,
}

/// What was sent, by what has to become of it.
#[derive(Default)]
struct Sent {
    empty: u64,
    taken: u64,
    too_long: u64,
}

impl Sent {
    fn note(&mut self, length: usize) {
        let count = match length {
            0 => &mut self.empty,
            1..=TAKEN => &mut self.taken,
            _ => &mut self.too_long,
        };
        *count += 1;
    }

    const fn all(&self) -> u64 {
        self.empty + self.taken + self.too_long
    }
}

/// From another namespace, one by one.
fn alone(setting: &Setting, lengths: &[usize], marks: &mut Marks) -> Result<(), Stop> {
    let other = setting.other()?;
    for place in [String::new(), format!("-n {}", other.name)] {
        call("ip", &format!("{place} link set dev {LINK} mtu {MTU}"))?;
    }
    let plan = Plan::new((other.address, 0).into(), 1)?.within(&other.name);
    let fragments = || {
        let text = call("ip", &format!("netns exec {} cat /proc/net/snmp", other.name))?;
        reassembled(&text).tried("a count of the kernel")
    };
    let before = fragments()?;
    let (mut scene, plan) = Scene::new(plan)?;
    let socket = UdpSocket::bind(("0.0.0.0", 0)).tried("a socket")?;
    socket.connect(plan.address()).tried("a socket")?;
    for some in lengths.chunks(AT_ONCE) {
        for length in some {
            // No packet of this protocol begins like that.
            socket.send(&vec![0; *length]).tried("a datagram")?;
            scene.sent.note(*length);
        }
        scene.until_counted()?;
    }
    let in_pieces = lengths.iter().filter(|length| **length > WHOLE).count() as u64;
    marks.at_least("lengths: datagrams that came in fragments", fragments()? - before, in_pieces);
    scene.judge("lengths", marks)
}

/// From this namespace, a few of one length as one piece, to a server that takes them so.
fn in_trains(setting: &Setting, lengths: &[usize], marks: &mut Marks) -> Result<(), Stop> {
    let (mut scene, plan) = Scene::new(Plan::new(setting.address, 1)?)?;
    let (mut trains, to) = (Trains::new(plan.address())?, plan.address());
    let mut untaught = 1;
    for _ in 0..LESSONS {
        trains.teach(to);
        scene.crowd.step();
        untaught = one_port::without_trains(&scene.server.report()?);
        if untaught == 0 {
            break;
        }
    }
    marks.equal("lengths in trains: workers that were handed no train", untaught, 0);
    scene.crowd.rest(Duration::from_millis(200));
    scene.before = scene.server.report()?;
    for length in lengths.iter().filter(|length| **length > 0) {
        let datagram = vec![0; *length];
        let count = (TRAIN_BYTES / length).clamp(1, TRAIN);
        trains.send(to, std::iter::repeat_n(&datagram[..], count));
        (0..count).for_each(|_| scene.sent.note(*length));
        scene.until_counted()?;
    }
    scene.judge("lengths in trains", marks)
}

impl Scene {
    fn new(mut plan: Plan) -> Result<(Self, Plan), Stop> {
        let mut server = plan.start()?;
        let crowd = Crowd::connect(&plan, PLAYERS, PERIOD, &ClientConfig::default())?;
        let before = server.report()?;
        Ok((Self { server, crowd, before, sent: Sent::default() }, plan))
    }

    /// Plays on until everything that was sent is counted, by whichever name.
    fn until_counted(&mut self) -> Result<(), Stop> {
        let Self { server, crowd, before, sent } = self;
        let is_there = |report: &Report| counted(report) >= counted(before) + sent.all();
        crowd.until_server("all lengths are counted", server, is_there).map(drop)
    }

    fn judge(mut self, name: &str, marks: &mut Marks) -> Result<(), Stop> {
        self.crowd.settle()?;
        let after = self.server.report()?;
        let more = |path: &str| after.sum(path) - self.before.sum(path);
        let dropped = after.sum_of_map("/protocol/dropped") - self.before.sum_of_map("/protocol/dropped");
        let too_long = more("/received/dropped/truncated") + more("/received/dropped/overlong");
        marks.at_least(&format!("{name}: datagrams sent"), self.sent.all(), 50);
        marks.equal(&format!("{name}: empty"), more("/received/dropped/empty"), self.sent.empty);
        marks.equal(&format!("{name}: longer than any packet, dropped unread"), too_long, self.sent.too_long);
        marks.equal(&format!("{name}: others, dropped by name"), dropped, self.sent.taken);
        marks.equal(&format!("{name}: dropped by the kernel"), more("/kernel_dropped"), 0);
        marks.equal(&format!("{name}: panics"), after.sum("/panics") + after.sum("/restarts"), 0);
        let crowd = &self.crowd;
        let gone = crowd.count(|player| player.gone.is_some() || player.again > 0);
        let lost = crowd.sum(|player| player.ordered.missing() + player.lossy.missing());
        marks.equal(&format!("{name}: players gone, messages lost or wrong"), gone + lost + crowd.wrong(), 0);
        marks.equal(&format!("{name}: datagrams in no counter"), after.unexplained(), 0);
        Ok(())
    }
}

/// What the server dropped, by whichever name.
fn counted(report: &Report) -> u64 {
    report.sum_of_map("/received/dropped")
        + report.sum_of_map("/protocol/dropped")
        + report.sum("/kernel_dropped")
}

/// Datagrams that were put together from fragments, as a table of the kernel has it; see proc_net_snmp.
fn reassembled(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (names, counts) = (lines.next()?, lines.next()?);
    let place = names.split_whitespace().position(|name| name == "ReasmOKs")?;
    counts.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_the_kernel_is_found_by_its_name() {
        let text = "Ip: Forwarding ReasmOKs FragOKs\nIp: 1 17 3\nIcmp: InMsgs\nIcmp: 5\n";
        assert_eq!(reassembled(text), Some(17));
        assert_eq!(reassembled("Ip: Forwarding\nIp: 1\n"), None);
        assert_eq!(reassembled(""), None);
    }

    #[test]
    fn what_was_sent_is_told_by_its_length() {
        let mut sent = Sent::default();
        for length in [0, 1, TAKEN, TAKEN + 1, LONGEST] {
            sent.note(length);
        }
        assert_eq!((sent.empty, sent.taken, sent.too_long, sent.all()), (1, 2, 2, 5));
    }
}
