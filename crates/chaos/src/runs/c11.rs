//! C11: another process joins the server's port: the server raises an alarm, and the process receives nothing of
//! existing connections. Then a worker's descriptor is lost, and the worker continues with another one. Then connection
//! tags: the kernel steers each to the socket that the filter's model selects.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire::conditioner::Random;
use drumfire_socket::{Gro, GroupConfig, Receiver, ReceiverConfig, ReuseportGroup, Socket, SteeringFilter};
use drumfire_tools::clock::{now, pause};
use socket2::{Domain, Type};

use super::c10::{BAD_DESCRIPTOR, RECEIVE, SEND};
use super::{KERNEL_COUNTERS, NEWCOMERS, Setting, Testbed, WORKERS};
use crate::error::{Error, ErrorContext};
use crate::flood::{FloodClass, FloodPlan};
use crate::marks::Marks;
use crate::players::Players;
use crate::process::{Report, ServerSpec};

const PLAYERS: usize = 20;

/// The workers of a server that loses a socket.
const FEW_WORKERS: u16 = 2;

/// The alarm is raised within this time.
const ALARM_GOAL: Duration = Duration::from_secs(10);

/// Datagrams without a connection, some of which the other process receives.
const UNCONNECTED: u64 = 10_000;

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    share_port(setting, marks)?;
    lose_descriptor(setting, "a socket lost in a receive", RECEIVE, marks)?;
    lose_descriptor(setting, "a socket lost in a send", SEND, marks)?;
    marks.section("");
    steer_tags(setting, marks)
}

fn share_port(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let mut bed = Testbed::start(ServerSpec::local(FEW_WORKERS)?, PLAYERS, Players::default())?;
    bed.until_foreign_sockets(0)?;

    let joined_at = now();
    let intruder = share_address(bed.spec.config.address)?;
    bed.until_foreign_sockets(1)?;
    let alarm = now().duration_since(joined_at);
    bed.players.play(setting.size.secs(2, 10, 60));
    bed.players.settle()?;
    let of_players = received(&intruder);

    let flood = FloodPlan { class: FloodClass::Junk, rate: None, time: ALARM_GOAL, count: UNCONNECTED };
    let sent = flood.send(bed.spec.config.address)?;
    let unconnected = received(&intruder);
    drop(intruder);
    let report = bed.until_foreign_sockets(0)?;
    marks.within("the alarm", alarm, ALARM_GOAL);
    marks.equal("datagrams of players that the other process received", of_players, 0);
    marks.at_least("datagrams without a connection that it received", unconnected, 1);
    marks.unharmed(&bed.players);
    marks.books(&report);
    marks.note(format_args!(
        "the other process received {unconnected} of {sent} datagrams without a connection"
    ));
    Ok(())
}

/// Binds a socket of this process to the server's port, which belongs to another process.
fn share_address(address: SocketAddr) -> Result<UdpSocket, Error> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, None).context("a socket")?;
    socket.set_reuse_port(true).context("a shared port")?;
    socket.bind(&address.into()).context("the shared port")?;
    socket.set_nonblocking(true).context("a nonblocking socket")?;
    Ok(socket.into())
}

/// Returns the number of datagrams that a socket has received since the last call.
fn received(socket: &UdpSocket) -> u64 {
    std::iter::from_fn(|| socket.recv(&mut [0; 2_048]).ok()).count() as u64
}

impl Testbed {
    fn until_foreign_sockets(&mut self, count: u64) -> Result<Report, Error> {
        let what = format!("{count} foreign sockets");
        self.until(&what, |report| report.0["stats"]["foreign_sockets"] == count)
    }
}

/// These calls of one worker fail as if all descriptors that are open now were invalid.
fn lose_descriptor(setting: &Setting, name: &str, calls: &str, marks: &mut Marks) -> Result<(), Error> {
    let mut bed = Testbed::start(ServerSpec::local(FEW_WORKERS)?, PLAYERS, Players::default())?;
    let worker = bed.fail_calls(BAD_DESCRIPTOR, "open", calls)?;
    bed.players.play(setting.size.secs(2, 10, 60));
    bed.add_newcomers(PLAYERS)?;
    let (players, report) = (&bed.players, bed.server.report()?);
    let of_worker = (0..PLAYERS).filter(|player| report.worker_of(*player) == Some(worker)).count();
    let reopened = report.by_worker("/sockets_reopened");
    marks.section(name);
    marks.equal("sockets reopened by the worker", report.of_worker(worker, "/sockets_reopened"), 1);
    marks.equal("sockets reopened by all workers", reopened.iter().sum(), 1);
    marks.equal("workers that ended or restarted", report.disruptions(FEW_WORKERS), 0);
    marks.equal("players gone", players.gone(), 0);
    let harmed = players.reliable_missing() + players.wrong();
    marks.equal("reliable messages lost, twice or out of order", harmed, 0);
    marks.books(&report);
    marks.note(format_args!(
        "worker {worker} had {of_worker} of {PLAYERS} players, {NEWCOMERS} connected to both workers after it"
    ));
    Ok(())
}

/// The offset of a tag, and the shortest datagram that is steered.
const TAG_AT: usize = 1;
const STEERED_BYTES: usize = 28;

/// The secret of the steering filter, and the seed of the random tags: the same in each run.
const SECRET: u32 = 0x9e37_79b1;
const SEED: u64 = 0x7a65;

/// Groups by their number of sockets, and the chi-square, in thousandths, that equal shares exceed once in a hundred times. These are the
/// upper critical values for 3 and 15 degrees of freedom of the NIST/SEMATECH handbook, section 1.3.6.7.4.
const GROUPS: [(usize, u64); 2] = [(4, 11_345), (16, 30_578)];

/// The difference between a worker's share of tags and an equal share, in thousandths of it.
const OFF_GOAL: u64 = 100;

/// Datagrams per second that no receive buffer has to drop.
const SAFE_RATE: u64 = 100_000;

fn steer_tags(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let count = setting.size.of(100_000, 1_000_000, 1_000_000);
    for (sockets, goal) in GROUPS {
        let mut group = SteeredGroup::bind(sockets)?;
        let all = group.receive(0..=u16::MAX)?;
        marks.section(&format!("{sockets} sockets"));
        marks.equal("tags of 65,536 that arrived", all.iter().sum(), 1 << 16);
        marks.equal("tags at another socket than the model selects", group.elsewhere, 0);
        let mut random = Random::new(SEED);
        let tags = (0..count).map(|_| u16::try_from(random.below(1 << 16)).unwrap_or(0));
        let shares = group.receive(tags)?;
        marks.equal("random tags that arrived", shares.iter().sum(), count);
        marks.at_most("thousandths of their chi-square", chi_square(&shares), goal);
        marks.equal("random tags at another socket than the model selects", group.elsewhere, 0);
    }
    marks.section("");
    spread_over_workers(count, marks)
}

/// The server draws the filter's secret, which this process does not know.
fn spread_over_workers(count: u64, marks: &mut Marks) -> Result<(), Error> {
    let mut spec = ServerSpec::local(WORKERS)?;
    let mut server = spec.start()?;
    let sent = FloodPlan::counted(FloodClass::Tagged, Some(SAFE_RATE), count).send(spec.config.address)?;
    pause(KERNEL_COUNTERS);
    let report = server.report()?;
    let (received, dropped) = (report.by_worker("/received/datagrams"), report.by_worker("/kernel_dropped"));
    let shares: Vec<u64> =
        received.iter().zip(&dropped).map(|(received, dropped)| received + dropped).collect();
    let equal = sent / u64::from(WORKERS);
    let off = shares.iter().map(|share| share.abs_diff(equal) * 1_000 / equal.max(1)).max();
    marks.at_least("forged ids sent to a server", sent, count);
    marks.equal("forged ids that arrived at no worker", sent.abs_diff(shares.iter().sum()), 0);
    marks.at_most("thousandths by which a worker's share of them is off", off.unwrap_or(u64::MAX), OFF_GOAL);
    marks.equal("forged ids that were forwarded", report.sum("/protocol/forwarded"), 0);
    let named =
        report.sum("/protocol/dropped/forged_id") + report.sum("/protocol/dropped/unknown_connection");
    marks.equal("forged ids not dropped as forged", received.iter().sum::<u64>().abs_diff(named), 0);
    marks.books(&report);
    let chi_square = chi_square(&shares);
    marks.note(format_args!("shares of {sent} forged ids: {shares:?}, chi-square {chi_square}/1000"));
    Ok(())
}

/// Returns the chi-square of counts compared with equal ones, in thousandths.
fn chi_square(counts: &[u64]) -> u64 {
    let (all, shares) = (counts.iter().sum::<u64>(), counts.len() as u64);
    // Multiplied by the number of shares before squaring, so that only the last step divides.
    let squared = |count: &u64| u128::from((count * shares).abs_diff(all)).pow(2);
    let sum: u128 = counts.iter().map(squared).sum();
    u64::try_from(sum * 1_000 / (u128::from(all) * u128::from(shares)).max(1)).unwrap_or(u64::MAX)
}

/// A group of sockets with a steering filter, the model of the filter, and a sender.
struct SteeredGroup {
    members: Vec<(Socket, Receiver)>,
    model: SteeringFilter,
    sender: UdpSocket,
    /// The number of datagrams at another socket than the model selects.
    elsewhere: u64,
}

impl SteeredGroup {
    /// The number of datagrams in flight, which fit the smallest receive buffer.
    const ROUND: usize = 64;

    fn bind(sockets: usize) -> Result<Self, Error> {
        let model = SteeringFilter::new(TAG_AT, STEERED_BYTES, SECRET, sockets).context("a filter")?;
        let config = GroupConfig::new((Ipv4Addr::LOCALHOST, 0).into()).sockets(sockets).steering(model);
        let group = ReuseportGroup::bind(&config).context("a group of sockets")?;
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("a socket")?;
        sender.connect(group.local_addr()).context("a socket")?;
        let members = group.into_sockets().into_iter().map(|mut socket| {
            let receiver = Receiver::new(&mut socket, &ReceiverConfig::default().gro(Gro::Off));
            receiver.map(|receiver| (socket, receiver))
        });
        let members = members.collect::<Result<_, _>>().context("receivers")?;
        Ok(Self { members, model, sender, elsewhere: 0 })
    }

    /// Sends a datagram for each tag, and receives all. Returns the number of datagrams at each socket.
    fn receive(&mut self, tags: impl IntoIterator<Item = u16>) -> Result<Vec<u64>, Error> {
        let mut counts = vec![0; self.members.len()];
        let (mut tags, mut sent) = (tags.into_iter().peekable(), 0);
        while tags.peek().is_some() {
            for tag in tags.by_ref().take(Self::ROUND) {
                let mut datagram = [0; STEERED_BYTES];
                datagram[TAG_AT..TAG_AT + 2].copy_from_slice(&tag.to_be_bytes());
                self.sender.send(&datagram).context("a datagram")?;
                sent += 1;
            }
            let start = now();
            while counts.iter().sum::<u64>() < sent {
                self.drain(&mut counts);
                if now().duration_since(start) > Duration::from_secs(10) {
                    return Err(Error::failed("datagrams", format!("{counts:?} of {sent} arrived")));
                }
            }
        }
        Ok(counts)
    }

    fn drain(&mut self, counts: &mut [u64]) {
        let Self { members, model, elsewhere, .. } = self;
        for (index, (socket, receiver)) in members.iter_mut().enumerate() {
            receiver.drain(socket, Self::ROUND, |received| {
                for datagram in received.datagrams() {
                    counts[index] += 1;
                    *elsewhere += u64::from(model.socket_of(datagram.bytes) != Some(index));
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chi_square_is_pearsons() {
        assert_eq!(chi_square(&[5, 5, 5, 5]), 0);
        // (30 - 25)^2 / 25 twice, and (20 - 25)^2 / 25 twice.
        assert_eq!(chi_square(&[30, 20, 30, 20]), 4_000);
        assert_eq!(chi_square(&[]), 0);
    }
}
