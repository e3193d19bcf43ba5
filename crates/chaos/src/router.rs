//! A router at this end of a link: it changes where packets seem to come from and forgets who they were before, copies them under
//! the address of somebody else, and says of those too large for the link that they are.
//!
//! It has no device and no link: those who have ask it.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::packet;

/// The addresses behind which it hides who is at its own end, as a network and as the first of them.
pub(crate) const POOL: &str = "10.215.0.0/16";
const POOL_FIRST: Ipv4Addr = Ipv4Addr::new(10, 215, 0, 0);

/// Where copies seem to come from; no change leads there.
const COPIER: Ipv4Addr = Ipv4Addr::new(10, 215, 255, 1);

/// What it is told, and what it counted.
#[derive(Debug)]
pub(crate) struct Router {
    /// Who is at its own end.
    inside: Ipv4Addr,
    moves: AtomicU32,
    is_copying: AtomicBool,
    is_telling: AtomicBool,
    forgotten: AtomicU64,
    copied: AtomicU64,
    told: AtomicU64,
}

impl Router {
    /// One that changes nothing yet.
    pub(crate) const fn new(inside: Ipv4Addr) -> Self {
        Self {
            inside,
            moves: AtomicU32::new(0),
            is_copying: AtomicBool::new(false),
            is_telling: AtomicBool::new(false),
            forgotten: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            told: AtomicU64::new(0),
        }
    }

    /// From now on those with even ports, or in every second call those with odd ones, seem to come from another address, and
    /// what goes to the one before leads nowhere.
    pub(crate) fn move_half(&self) {
        self.moves.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether a copy of each packet follows it, from somebody else's address.
    pub(crate) fn copy(&self, is_copying: bool) {
        self.is_copying.store(is_copying, Ordering::Release);
    }

    /// Whether who sends packets too large for the link is told so, or they vanish without a word.
    pub(crate) fn tell(&self, is_telling: bool) {
        self.is_telling.store(is_telling, Ordering::Release);
    }

    /// Packets that came for an address that leads nowhere.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Acquire)
    }

    /// Copies that were made.
    pub(crate) fn copied(&self) -> u64 {
        self.copied.load(Ordering::Acquire)
    }

    /// Messages on packets that were too large.
    pub(crate) fn told(&self) -> u64 {
        self.told.load(Ordering::Acquire)
    }

    /// A packet leaves the router's own end; answers the copy that follows it.
    pub(crate) fn leave(&self, packet: &mut [u8]) -> Option<Vec<u8>> {
        let [from, _] = packet::ends(packet)?;
        if *from.ip() != self.inside {
            return None;
        }
        let copy = self.is_copying.load(Ordering::Acquire).then(|| {
            let mut copy = packet.to_vec();
            packet::set_source(&mut copy, COPIER);
            self.copied.fetch_add(1, Ordering::AcqRel);
            copy
        });
        packet::set_source(packet, self.outside(from.port()));
        copy
    }

    /// A packet arrives for the router's own end; answers whether it leads there.
    pub(crate) fn arrive(&self, packet: &mut [u8]) -> bool {
        let Some([_, to]) = packet::ends(packet) else { return true };
        let leads_there = *to.ip() == self.outside(to.port());
        if leads_there {
            packet::set_destination(packet, self.inside);
        } else {
            self.forgotten.fetch_add(1, Ordering::AcqRel);
        }
        leads_there
    }

    /// What it says of a packet on a link that takes no longer ones than this, where it says anything.
    pub(crate) fn complain(&self, packet: &[u8], longest: usize) -> Option<Vec<u8>> {
        if !self.is_telling.load(Ordering::Acquire) {
            return None;
        }
        let message = packet::too_large(packet, u16::try_from(longest).ok()?)?;
        self.told.fetch_add(1, Ordering::AcqRel);
        Some(message)
    }

    /// Where somebody with this port seems to be now.
    fn outside(&self, port: u16) -> Ipv4Addr {
        match (self.moves.load(Ordering::Acquire) + u32::from(port % 2)) / 2 {
            0 => self.inside,
            number => Ipv4Addr::from(u32::from(POOL_FIRST) + number),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV4;

    use super::*;

    const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 214, 0, 1);
    const FAR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 214, 0, 2), 9);

    fn left(router: &Router, port: u16) -> SocketAddrV4 {
        let mut packet = packet::udp(SocketAddrV4::new(INSIDE, port), FAR, b"x").expect("a packet");
        assert_eq!(router.leave(&mut packet), None);
        packet::ends(&packet).expect("ends")[0]
    }

    #[test]
    fn half_of_all_ports_move_at_a_time_and_what_they_were_is_forgotten() {
        let router = Router::new(INSIDE);
        let seen = |moves| {
            for _ in 0..moves {
                router.move_half();
            }
            [10, 11].map(|port| *left(&router, port).ip())
        };
        let pool = |last| Ipv4Addr::new(10, 215, 0, last);
        assert_eq!(seen(0), [INSIDE, INSIDE]);
        assert_eq!(seen(1), [INSIDE, pool(1)]);
        assert_eq!(seen(1), [pool(1), pool(1)]);
        assert_eq!(seen(1), [pool(1), pool(2)]);
        let arrives = |at, port| {
            let mut packet = packet::udp(FAR, SocketAddrV4::new(at, port), b"x").expect("a packet");
            router.arrive(&mut packet).then(|| packet::ends(&packet).expect("ends")[1])
        };
        assert_eq!(arrives(pool(2), 11), Some(SocketAddrV4::new(INSIDE, 11)));
        assert_eq!((arrives(pool(1), 11), arrives(INSIDE, 10), router.forgotten()), (None, None, 2));
    }

    #[test]
    fn a_copy_comes_from_somebody_else() {
        let router = Router::new(INSIDE);
        router.copy(true);
        let mut packet = packet::udp(SocketAddrV4::new(INSIDE, 10), FAR, b"x").expect("a packet");
        let copy = router.leave(&mut packet).expect("a copy");
        assert_eq!(packet::ends(&copy), Some([SocketAddrV4::new(COPIER, 10), FAR]));
        assert_eq!(packet::ends(&packet), Some([SocketAddrV4::new(INSIDE, 10), FAR]));
        assert_eq!((copy.len(), router.copied()), (packet.len(), 1));
        assert_eq!(router.leave(&mut copy.clone()), None, "it is not of the router's own end");
    }

    #[test]
    fn it_complains_when_it_is_to() {
        let router = Router::new(INSIDE);
        let mut packet = packet::udp(SocketAddrV4::new(INSIDE, 10), FAR, &[0; 100]).expect("a packet");
        packet[6] = 0x40;
        assert_eq!(router.complain(&packet, 100), None);
        router.tell(true);
        assert!(router.complain(&packet, 100).is_some());
        assert_eq!((router.complain(&packet, 128), router.told()), (None, 1));
    }
}
