//! C11, where datagrams go: the kernel steers each tag to the socket that the model of its program names, tags at random spread over
//! all sockets as chance does, and a server's workers get equal shares of those that name nobody.
//!
//! Who else is on the port is another part's business.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire::conditioner::Random;
use drumfire_socket::{Gro, GroupConfig, Receiver, ReceiverConfig, ReuseportGroup, Socket, SteeringFilter};
use drumfire_tools::clock::{now, pause};

use super::{Setting, WORKERS};
use crate::flood::{self, Class, Dose};
use crate::marks::Marks;
use crate::process::Plan;
use crate::stop::{Stop, Tried};
use crate::tap::Samples;

/// Where a tag stands, and the shortest datagram that is steered.
const TAG_AT: usize = 1;
const BYTES: usize = 28;

/// Maps tags to sockets, the same each time, as the tags at random are.
const SECRET: u32 = 0x9e37_79b1;
const SEED: u64 = 0x7a65;

/// Datagrams under way at a time: they fit the smallest buffer there is.
const ROUND: usize = 64;

/// What is sent and does not come within this time will not.
const PATIENCE: Duration = Duration::from_secs(10);

/// Groups by the number of their sockets, and the chi-square, in thousandths, that chance exceeds once in a hundred times with as
/// many shares: the upper critical values for 3 and 15 degrees of freedom of the NIST/SEMATECH handbook, section 1.3.6.7.4.
const GROUPS: [(usize, u64); 2] = [(4, 11_345), (16, 30_578)];

/// A worker's share of tags is off by so many thousandths of it at most.
const OFF_GOAL: u64 = 100;

/// A flood that no buffer has to drop.
const RATE: u64 = 100_000;

/// For a flood that ends by its count.
const LONG: Duration = Duration::from_secs(600);

/// The counters of the kernel are read once in this time.
const KERNEL_COUNTERS: Duration = Duration::from_millis(1_500);

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let count = setting.size.of(100_000, 1_000_000, 1_000_000);
    for (sockets, goal) in GROUPS {
        let mut group = Group::bind(setting.address, sockets)?;
        let all = group.take(0..=u16::MAX)?;
        let name = format!("{sockets} sockets");
        marks.equal(&format!("{name}: tags of 65,536 that came"), all.iter().sum(), 1 << 16);
        marks.equal(&format!("{name}: tags elsewhere than the model says"), group.elsewhere, 0);
        let mut random = Random::new(SEED);
        let tags = (0..count).map(|_| u16::try_from(random.below(1 << 16)).unwrap_or(0));
        let spread = group.take(tags)?;
        marks.equal(&format!("{name}: tags at random that came"), spread.iter().sum(), count);
        marks.at_most(&format!("{name}: thousandths of their chi-square"), chi_square(&spread), goal);
        marks.equal(&format!("{name}: tags at random elsewhere"), group.elsewhere, 0);
    }
    at_a_server(setting, count, marks)
}

/// The server draws the secret itself, and nobody here knows it.
fn at_a_server(setting: &Setting, count: u64, marks: &mut Marks) -> Result<(), Stop> {
    let mut plan = Plan::new(setting.address, WORKERS)?;
    let mut server = plan.start()?;
    let dose = Dose { class: Class::Tagged, rate: Some(RATE), time: LONG, count };
    let sent = flood::join(flood::start(dose, plan.address(), Samples::default())?)?;
    pause(KERNEL_COUNTERS);
    let report = server.report()?;
    let (received, dropped) = (report.by_worker("/received/datagrams"), report.by_worker("/kernel_dropped"));
    let shares: Vec<u64> = received.iter().zip(&dropped).map(|(came, lost)| came + lost).collect();
    let due = sent / u64::from(WORKERS);
    let off = shares.iter().map(|share| share.abs_diff(due) * 1_000 / due.max(1)).max().unwrap_or(u64::MAX);
    marks.at_least("forged ids sent to a server", sent, count);
    marks.equal("forged ids that came to no worker", sent.abs_diff(shares.iter().sum()), 0);
    marks.at_most("thousandths by which a worker's share of them is off", off, OFF_GOAL);
    marks.equal("forged ids that were forwarded", report.sum("/protocol/forwarded"), 0);
    let named =
        report.sum("/protocol/dropped/forged_id") + report.sum("/protocol/dropped/unknown_connection");
    marks.equal("forged ids not dropped as such", received.iter().sum::<u64>().abs_diff(named), 0);
    marks.equal("datagrams in no counter", report.unexplained(), 0);
    marks.note(format_args!(
        "shares of {sent} forged ids: {shares:?}, chi-square {}/1000",
        chi_square(&shares)
    ));
    Ok(())
}

/// How far these counts are from equal ones, in thousandths.
fn chi_square(counts: &[u64]) -> u64 {
    let (all, shares) = (counts.iter().sum::<u64>(), counts.len() as u64);
    // Times the number of shares, squared and summed: whole numbers as long as possible.
    let off = |count: &u64| u128::from((count * shares).abs_diff(all)).pow(2);
    let sum: u128 = counts.iter().map(off).sum();
    u64::try_from(sum * 1_000 / (u128::from(all) * u128::from(shares)).max(1)).unwrap_or(u64::MAX)
}

/// Sockets of one group, the model of its program, and somebody who sends to it.
struct Group {
    members: Vec<(Socket, Receiver)>,
    model: SteeringFilter,
    sender: UdpSocket,
    /// Datagrams that came to another socket than the model says.
    elsewhere: u64,
}

impl Group {
    fn bind(address: SocketAddr, sockets: usize) -> Result<Self, Stop> {
        let model = SteeringFilter::new(TAG_AT, BYTES, SECRET, sockets).tried("a filter")?;
        let config = GroupConfig::new((address.ip(), 0).into()).sockets(sockets).steering(model);
        let group = ReuseportGroup::bind(&config).tried("a group of sockets")?;
        let sender = UdpSocket::bind((address.ip(), 0)).tried("a socket")?;
        sender.connect(group.local_addr()).tried("a socket")?;
        let members = group.into_sockets().into_iter().map(|mut socket| {
            let receiver = Receiver::new(&mut socket, &ReceiverConfig::default().gro(Gro::Off));
            receiver.map(|receiver| (socket, receiver))
        });
        let members = members.collect::<Result<_, _>>().tried("receivers")?;
        Ok(Self { members, model, sender, elsewhere: 0 })
    }

    /// Sends a datagram with each of these tags, and takes them all; answers how many came to each socket.
    fn take(&mut self, tags: impl IntoIterator<Item = u16>) -> Result<Vec<u64>, Stop> {
        let mut counts = vec![0; self.members.len()];
        let (mut tags, mut sent) = (tags.into_iter().peekable(), 0);
        while tags.peek().is_some() {
            for tag in tags.by_ref().take(ROUND) {
                let mut datagram = [0; BYTES];
                datagram[TAG_AT..TAG_AT + 2].copy_from_slice(&tag.to_be_bytes());
                self.sender.send(&datagram).tried("a datagram")?;
                sent += 1;
            }
            let start = now();
            while counts.iter().sum::<u64>() < sent {
                self.drain(&mut counts);
                if now().duration_since(start) > PATIENCE {
                    return Err(Stop::failed("datagrams", format!("{counts:?} of {sent} came")));
                }
            }
        }
        Ok(counts)
    }

    fn drain(&mut self, counts: &mut [u64]) {
        let Self { members, model, elsewhere, .. } = self;
        for (at, (socket, receiver)) in members.iter_mut().enumerate() {
            receiver.drain(socket, ROUND, |received| {
                for datagram in received.datagrams() {
                    counts[at] += 1;
                    *elsewhere += u64::from(model.socket_of(datagram.bytes) != Some(at));
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_have_no_chi_square_and_others_the_one_of_the_books() {
        assert_eq!(chi_square(&[5, 5, 5, 5]), 0);
        // Pearson's: (30 - 25)^2 / 25 twice, and (20 - 25)^2 / 25 twice.
        assert_eq!(chi_square(&[30, 20, 30, 20]), 4_000);
        assert_eq!(chi_square(&[]), 0);
    }
}
