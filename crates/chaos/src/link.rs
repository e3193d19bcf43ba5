//! A link between this network namespace and another that loses, delays, doubles and spoils packets: a device in each, and one
//! thread that carries packets between them, in bounded memory.
//!
//! What it does to a packet is the conditioner's; here are devices and addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use drumfire::conditioner::{Link, LinkConfig, LinkCounts, Moment};
use drumfire_tools::clock::{now, pause};

use crate::platform::Device;
use crate::runs::Other;
use crate::stop::{Stop, Tried};
use crate::system::call;

/// The other end's addresses; this one's are the ones before them.
pub(crate) const FAR_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 214, 0, 2));
pub(crate) const FAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0x214, 0, 0, 0, 0, 0, 2));
const NEAR_V4: &str = "10.214.0.1/30";
const NEAR_V6: &str = "fd00:214::1/126";

/// Devices by name.
const NEAR: &str = "chaos-near";
const FAR: &str = "chaos-far";

/// The conditioner asks for addresses, and does not look at those of packets that carry their own.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// How long it rests when nothing is to be carried.
const REST: Duration = Duration::from_micros(200);

/// Packets taken from a device before the other's turn.
const TURN: usize = 256;

/// Where the dice of the two directions begin.
const SEEDS: [u64; 2] = [0x0001_c4a0, 0x0002_c4a0];

/// A link that works until it is dropped.
pub(crate) struct Emulator {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<[LinkCounts; 2]>>,
}

impl Emulator {
    /// Between here and there, the same in both directions.
    ///
    /// # Errors
    /// [`Stop::Needs`] where there are no such devices.
    pub(crate) fn start(other: &Other, config: &LinkConfig, mtu: u16) -> Result<Self, Stop> {
        let devices = [Device::open(NEAR, mtu)?, Device::open(FAR, mtu)?];
        // The device moves, and its packets come here all the same.
        call("ip", &format!("link set {FAR} netns {}", other.name))?;
        let far = format!("-n {}", other.name);
        for (place, name, v4, v6) in [
            ("", NEAR, NEAR_V4.to_owned(), NEAR_V6.to_owned()),
            (&far, FAR, format!("{FAR_V4}/30"), format!("{FAR_V6}/126")),
        ] {
            call("ip", &format!("{place} link set {name} mtu {mtu} up"))?;
            call("ip", &format!("{place} address add {v4} dev {name}"))?;
            call("ip", &format!("{place} address add {v6} dev {name} nodad"))?;
        }
        let links = SEEDS.map(|seed| Link::new(config.clone(), seed));
        let [there, back] = links;
        let links = [there.tried("a link")?, back.tried("a link")?];
        let is_over = Arc::<AtomicBool>::default();
        let end = Arc::clone(&is_over);
        let mut carrier = Carrier { devices, links, start: now(), room: vec![0; usize::from(u16::MAX)] };
        let thread = Some(std::thread::spawn(move || carrier.go_on_until(&end)));
        Ok(Self { is_over, thread })
    }

    /// Ends it; answers what it did in both directions.
    pub(crate) fn end(mut self) -> Result<[LinkCounts; 2], Stop> {
        self.is_over.store(true, Ordering::Release);
        let thread = self.thread.take().tried("the link's thread")?;
        thread.join().map_err(|_| Stop::failed("the link", "its thread panicked"))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Carries packets: from the first device over the first link to the second, and the other way.
struct Carrier {
    devices: [Device; 2],
    links: [Link; 2],
    start: Instant,
    room: Vec<u8>,
}

impl Carrier {
    fn go_on_until(&mut self, is_over: &AtomicBool) -> [LinkCounts; 2] {
        while !is_over.load(Ordering::Acquire) {
            if !(self.carry(0, 1) | self.carry(1, 0)) {
                pause(REST);
            }
        }
        [*self.links[0].counts(), *self.links[1].counts()]
    }

    /// One turn of one direction; answers whether there was anything to do.
    fn carry(&mut self, from: usize, to: usize) -> bool {
        let Self { devices, links, start, room } = self;
        let moment = Moment::ORIGIN.after(now().duration_since(*start));
        let mut has_worked = false;
        for _ in 0..TURN {
            // A device that fails has nothing more to say than one that is quiet.
            let Ok(Some(packet)) = devices[from].take(room) else { break };
            let packet = without_checksum(packet.to_vec());
            links[from].push(moment, NOBODY, NOBODY, &packet);
            has_worked = true;
        }
        while let Some(arrived) = links[from].poll(moment) {
            // One that was spoiled beyond what the system takes is lost here.
            devices[to].give(&arrived.bytes);
            has_worked = true;
        }
        has_worked
    }
}

/// Takes the checksum from a whole UDP packet over IPv4, as the standard allows (RFC 768): else the system would find what
/// was spoiled, and not the protocol.
fn without_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    const UDP: u8 = 17;
    const CHECKSUM_AT: usize = 6;
    let &[first, _, _, _, _, _, fragment, offset, _, protocol, ..] = packet.as_slice() else { return packet };
    let is_whole = fragment & 0x3f == 0 && offset == 0;
    if first >> 4 == 4 && protocol == UDP && is_whole {
        let at = usize::from(first & 0x0f) * 4 + CHECKSUM_AT;
        if let Some(checksum) = packet.get_mut(at..at + 2) {
            checksum.fill(0);
        }
    }
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(first: u8, fragment: u8, protocol: u8) -> Vec<u8> {
        let mut packet = vec![0xff; 40];
        (packet[0], packet[6], packet[7], packet[9]) = (first, fragment, 0, protocol);
        packet
    }

    #[test]
    fn the_checksum_of_a_whole_udp_packet_is_taken_and_nothing_else() {
        let taken = without_checksum(packet(0x45, 0x40, 17));
        assert_eq!(taken[26..28], [0, 0]);
        let mut restored = taken;
        restored[26..28].fill(0xff);
        assert_eq!(restored, packet(0x45, 0x40, 17));
        let longer_head = without_checksum(packet(0x46, 0, 17));
        assert_eq!(longer_head[30..32], [0, 0]);
    }

    #[test]
    fn fragments_other_protocols_and_ipv6_keep_theirs() {
        for kept in [packet(0x45, 0x20, 17), packet(0x45, 0, 6), packet(0x60, 0, 17), vec![0x45; 3]] {
            assert_eq!(without_checksum(kept.clone()), kept);
        }
    }
}
