//! C12: IPv4 and IPv6, links that take small, usual and large packets, with and without trains on the way and at the server's
//! sockets: nothing is lost where nothing is lost on the way. Then lengths, ports and paths that are not as usual.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use drumfire::ClientConfig;

use super::{Other, Setting, narrow, one_port, sizes};
use crate::crowd::Crowd;
use crate::ledger::MIXED_BYTES;
use crate::marks::Marks;
use crate::process::Plan;
use crate::stop::Stop;
use crate::system::{LINK, call};

/// Few enough that the kernel's buffers hold what all say at once.
const PLAYERS: usize = 10;
const WORKERS: u16 = 2;

/// Sixty times a second.
const PERIOD: Duration = Duration::from_micros(16_667);

const MTUS: [u16; 3] = [1_280, 1_500, 9_000];

/// Segments of a train that the device takes: none, and as many as it does by itself; and whether the server's kernel cuts trains
/// and hands them over.
const SEGMENTS: [(u32, bool); 3] = [(1, true), (65_535, true), (65_535, false)];

/// The addresses of the link that it gets for IPv6.
const NEAR_V6: &str = "fd00:213::1/126";
const FAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0x213, 0, 0, 0, 0, 0, 2));

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    sweep(setting, marks)?;
    marks_of("datagrams of every length", sizes::run, setting, marks)?;
    marks_of("several connections behind one port", one_port::run, setting, marks)?;
    marks_of("a path that narrows", narrow::run, setting, marks)
}

/// Does a part that not every machine can do.
fn marks_of(
    name: &str,
    part: fn(&Setting, &mut Marks) -> Result<(), Stop>,
    setting: &Setting,
    marks: &mut Marks,
) -> Result<(), Stop> {
    let outcome = part(setting, marks);
    marks.part(name, outcome)
}

fn sweep(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let (other, time) = (setting.other()?, Duration::from_secs(setting.size.of(1, 5, 60)));
    call("ip", &format!("address add {NEAR_V6} dev {LINK} nodad"))?;
    call("ip", &format!("-n {} address add {FAR_V6}/126 dev {LINK} nodad", other.name))?;
    for mtu in MTUS {
        for (segments, has_trains) in SEGMENTS {
            for place in ["".to_owned(), format!("-n {}", other.name)] {
                call("ip", &format!("{place} link set dev {LINK} mtu {mtu} gso_max_segs {segments}"))?;
            }
            for address in [other.address, FAR_V6] {
                let name = format!(
                    "{}, MTU {mtu}, trains of {segments}{}",
                    if address.is_ipv4() { "v4" } else { "v6" },
                    if has_trains { "" } else { " and none at the server" },
                );
                play(other, (address, has_trains), time, &name, marks)?;
            }
        }
    }
    Ok(())
}

fn play(
    other: &Other,
    (address, has_trains): (IpAddr, bool),
    time: Duration,
    name: &str,
    marks: &mut Marks,
) -> Result<(), Stop> {
    let mut plan = Plan::new((address, 0).into(), WORKERS)?.within(&other.name);
    if !has_trains {
        plan = plan.switch("--no-gro").switch("--no-gso");
    }
    let mut server = plan.start()?;
    let mut crowd = Crowd::begun(&plan, PLAYERS, PERIOD, &ClientConfig::default())?;
    crowd.set_sizes(MIXED_BYTES);
    crowd.go_on(time);
    crowd.settle()?;
    crowd.rest(Duration::from_millis(200));
    let report = server.report()?;
    let missing = crowd.sum(|player| player.ordered.missing() + player.lossy.missing());
    let faults = crowd.wrong() + crowd.count(|player| player.gone.is_some() || player.again > 0);
    let heard = crowd.sum(|player| player.ordered.heard + player.lossy.heard);
    let datagrams: u64 = crowd.sum(|player| player.client.stats().sent.datagrams);
    marks.at_least(&format!("{name}: messages there and back"), heard, 100);
    marks.equal(&format!("{name}: messages lost"), missing, 0);
    marks.equal(&format!("{name}: players gone, messages twice or out of order"), faults, 0);
    marks.equal(
        &format!("{name}: datagrams sent and not known to the server"),
        datagrams.abs_diff(report.known_datagrams()),
        0,
    );
    marks.equal(&format!("{name}: datagrams in no counter"), report.unexplained(), 0);
    if !has_trains {
        let trains = report.granted("has_gro") + report.granted("has_gso");
        marks.equal(&format!("{name}: sockets of the server that can do either"), trains, 0);
        let (datagrams, messages) = (report.sum("/received/datagrams"), report.sum("/received/messages"));
        marks.equal(&format!("{name}: trains handed over"), datagrams - messages, 0);
    }
    let (refused, dropped) = (report.refused(), report.sum("/kernel_dropped"));
    if refused + dropped > 0 {
        marks.note(format_args!(
            "{name}: {refused} echoes without room, {dropped} datagrams dropped by the kernel"
        ));
    }
    Ok(())
}
