//! C10, what the kernel itself refuses: routes that lead nowhere, a link that is down, and a firewall that drops or rejects. The
//! errors are counted by their names, the server does not spin, and when it is over everybody plays on.
//!
//! Errors that a filter of calls puts in their place are another part's business.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use drumfire::ClientConfig;
use drumfire_socket::Fault;
use drumfire_tools::clock::now;

use super::errno::PROCESSOR_GOAL;
use super::{Other, PERIOD, Setting};
use crate::crowd::{Crowd, Player};
use crate::marks::Marks;
use crate::process::{Plan, Report};
use crate::stop::{Stop, Tried};
use crate::system::{LINK, call};

const PLAYERS: usize = 20;
const WORKERS: u16 = 2;

/// Messages of the server for each player in 10 ms: it has something to send, whatever comes.
const DOWN: u64 = 1;

/// Who refuses, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// A route to the players of this type, see ip-route(8).
    Route(&'static str),
    /// The link is down.
    Down,
    /// A firewall drops what the server sends.
    Dropped,
    /// A firewall before the server tells the players that nobody is there.
    NobodyThere,
    /// A firewall before the players tells the server so.
    NobodyHere,
}

/// What is refused, and the name by which the server counts it, where it hears of it.
const ROUTES: [(Refusal, Option<&str>); 4] = [
    (Refusal::Route("prohibit"), Some("access_denied")),
    (Refusal::Route("blackhole"), Some("invalid_argument")),
    (Refusal::Route("unreachable"), Some("host_unreachable")),
    (Refusal::Down, Some("network_unreachable")),
];
const FIREWALLS: [(Refusal, Option<&str>); 3] =
    [(Refusal::Dropped, Some("not_permitted")), (Refusal::NobodyThere, None), (Refusal::NobodyHere, None)];

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let time = Duration::from_secs(setting.size.of(1, 3, 5));
    let routes = setting.other().and_then(|other| meet_all(other, &ROUTES, time, marks));
    marks.part("routes that lead nowhere", routes)?;
    let firewalls = has_firewall()
        .and_then(|()| setting.other())
        .and_then(|other| meet_all(other, &FIREWALLS, time, marks));
    marks.part("a firewall that drops and rejects", firewalls)
}

fn has_firewall() -> Result<(), Stop> {
    call("nft", "--version").map(drop)
}

fn meet_all(
    other: &Other,
    refusals: &[(Refusal, Option<&str>)],
    time: Duration,
    marks: &mut Marks,
) -> Result<(), Stop> {
    refusals.iter().try_for_each(|(refusal, counter)| meet(other, *refusal, *counter, time, marks))
}

impl Refusal {
    fn name(self) -> String {
        match self {
            Self::Route(kind) => format!("a route that says {kind}"),
            Self::Down => "a link that is down".to_owned(),
            Self::Dropped => "a firewall that drops".to_owned(),
            Self::NobodyThere => "a firewall before the server that rejects".to_owned(),
            Self::NobodyHere => "a firewall before the players that rejects".to_owned(),
        }
    }

    /// What lets it begin, or end, as programs with their arguments.
    fn commands(self, other: &Other, port: u16, begins: bool) -> Result<Vec<(&'static str, String)>, Stop> {
        let far = format!("-n {}", other.name);
        let verb = if begins { "add" } else { "delete" };
        Ok(match self {
            Self::Route(kind) => {
                vec![("ip", format!("{far} route {verb} {kind} {}/32", here(other)?))]
            }
            Self::Down => {
                let way = if begins { "down" } else { "up" };
                vec![("ip", format!("{far} link set {LINK} {way}"))]
            }
            Self::Dropped => firewall(Some(other), begins, "output", &format!("udp sport {port} drop")),
            Self::NobodyThere => firewall(Some(other), begins, "input", &format!("udp dport {port} reject")),
            Self::NobodyHere => firewall(None, begins, "input", &format!("udp sport {port} reject")),
        })
    }
}

/// A table of one rule in the other namespace or in this one, made or removed.
fn firewall(other: Option<&Other>, begins: bool, hook: &str, rule: &str) -> Vec<(&'static str, String)> {
    let nft = |what: &str| match other {
        Some(other) => ("ip", format!("netns exec {} nft {what}", other.name)),
        None => ("nft", what.to_owned()),
    };
    if !begins {
        return vec![nft("delete table ip chaos")];
    }
    vec![
        nft("add table ip chaos"),
        nft(&format!("add chain ip chaos here {{ type filter hook {hook} priority 0 ; }}")),
        nft(&format!("add rule ip chaos here {rule}")),
    ]
}

/// The address of this end of the link.
fn here(other: &Other) -> Result<IpAddr, Stop> {
    const DISCARD: u16 = 9;
    let socket = UdpSocket::bind(("0.0.0.0", 0)).tried("a socket")?;
    // Nothing is sent: it asks the routes.
    socket.connect((other.address, DISCARD)).tried("a route to the other namespace")?;
    socket.local_addr().map(|address| address.ip()).tried("this end's address")
}

fn meet(
    other: &Other,
    refusal: Refusal,
    counter: Option<&str>,
    time: Duration,
    marks: &mut Marks,
) -> Result<(), Stop> {
    let mut plan = Plan::new((other.address, 0).into(), WORKERS)?.within(&other.name).flag("--down", DOWN);
    let mut server = plan.start()?;
    let mut crowd = Crowd::connect(&plan, PLAYERS, PERIOD, &ClientConfig::default())?;
    let change = |begins| {
        let commands = refusal.commands(other, plan.address().port(), begins)?;
        commands.iter().try_for_each(|(program, arguments)| call(program, arguments).map(drop))
    };
    let refused_before = refused(&crowd);
    change(true)?;
    let (used, start) = (server.processor_time()?, now());
    crowd.go_on(time);
    let (used, passed) = (server.processor_time()? - used, now().duration_since(start));
    let refused = refused(&crowd) - refused_before;
    change(false)?;
    server.tell("hush")?;
    let report = crowd.until_server("all is acknowledged", &mut server, |report| {
        report.of_players("said") == report.of_players("acknowledged")
    })?;
    crowd.settle()?;
    let name = refusal.name();
    let thousandths = u64::try_from(used.as_millis() * 1_000 / passed.as_millis().max(1)).unwrap_or(u64::MAX);
    marks.at_most(
        &format!("{name}: processor time of the server, in thousandths"),
        thousandths,
        PROCESSOR_GOAL,
    );
    if let Some(counter) = counter {
        let counted = report.sum(&format!("/sent/faults/{counter}"));
        marks.at_least(&format!("{name}: sends refused, counted as {counter}"), counted, 1);
    }
    if refusal == Refusal::NobodyThere {
        marks.at_least(&format!("{name}: times that the players were told"), refused, 1);
    }
    well(&name, &crowd, &report, marks);
    Ok(())
}

/// How often players heard that nobody is there.
fn refused(crowd: &Crowd) -> u64 {
    let of = |player: &Player| {
        let stats = player.client.stats();
        [&stats.sent.faults, &stats.received.faults]
            .iter()
            .map(|faults| faults.count(Fault::ConnectionRefused))
            .sum()
    };
    crowd.sum(of)
}

/// Nobody is the worse for it.
fn well(name: &str, crowd: &Crowd, report: &Report, marks: &mut Marks) {
    marks.equal(&format!("{name}: workers that ended or began anew"), report.ends(WORKERS), 0);
    let gone = crowd.count(|player| player.gone.is_some() || player.again > 0);
    marks.equal(&format!("{name}: players gone"), gone, 0);
    let missing = crowd.sum(|player| player.ordered.missing());
    let unheard = report.of_players("said").abs_diff(crowd.sum(|player| player.down.heard));
    marks.equal(
        &format!("{name}: reliable messages lost, twice or out of order"),
        missing + unheard + crowd.wrong(),
        0,
    );
    marks.equal(&format!("{name}: datagrams in no counter"), report.unexplained(), 0);
}
