//! A link between this network namespace and another that loses, delays, doubles and spoils packets: a device in each, a router
//! at this end, and one thread that carries packets between them, in bounded memory.
//!
//! What it does to a packet is the conditioner's, and the router's; here are devices and addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use drumfire::conditioner::{Link, LinkConfig, LinkCounts, Moment};
use drumfire_tools::clock::{now, pause};

use crate::packet::without_checksum;
use crate::platform::Device;
use crate::router::{POOL, Router};
use crate::runs::Other;
use crate::stop::{Stop, Tried};
use crate::system::call;

/// This end's address; the other end's are the ones after it.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 214, 0, 1);
pub(crate) const FAR_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 214, 0, 2));
pub(crate) const FAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0x214, 0, 0, 0, 0, 0, 2));
const NEAR_V6: &str = "fd00:214::1/126";

/// Devices by name.
const NEAR_DEVICE: &str = "chaos-near";
const FAR_DEVICE: &str = "chaos-far";

/// The conditioner asks for addresses, and does not look at those of packets that carry their own.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// How long it rests when nothing is to be carried.
const REST: Duration = Duration::from_micros(200);

/// Packets taken from a device before the other's turn.
const TURN: usize = 256;

/// Where the dice of the two directions begin.
const SEEDS: [u64; 2] = [0x0001_c4a0, 0x0002_c4a0];

/// Places of the two devices, and of the links that lead away from them.
const HERE: usize = 0;
const THERE: usize = 1;

/// A link that works until it is dropped.
pub(crate) struct Emulator {
    /// At this end.
    pub(crate) router: Arc<Router>,
    orders: Sender<LinkConfig>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<[LinkCounts; 2]>>,
}

impl Emulator {
    /// Between here and there, the same in both directions.
    ///
    /// # Errors
    /// [`Stop::Needs`] where there are no such devices.
    pub(crate) fn start(other: &Other, config: &LinkConfig, mtu: u16) -> Result<Self, Stop> {
        let devices = [Device::open(NEAR_DEVICE, mtu)?, Device::open(FAR_DEVICE, mtu)?];
        // The device moves, and its packets come here all the same.
        call("ip", &format!("link set {FAR_DEVICE} netns {}", other.name))?;
        let far = format!("-n {}", other.name);
        for (place, name, v4, v6) in [
            ("", NEAR_DEVICE, format!("{NEAR}/30"), NEAR_V6.to_owned()),
            (&far, FAR_DEVICE, format!("{FAR_V4}/30"), format!("{FAR_V6}/126")),
        ] {
            call("ip", &format!("{place} link set {name} mtu {mtu} up"))?;
            call("ip", &format!("{place} address add {v4} dev {name}"))?;
            call("ip", &format!("{place} address add {v6} dev {name} nodad"))?;
        }
        call("ip", &format!("{far} route add {POOL} dev {FAR_DEVICE}"))?;
        let links = SEEDS.map(|seed| Link::new(config.clone(), seed));
        let [there, back] = links;
        let links = [there.tried("a link")?, back.tried("a link")?];
        let is_over = Arc::<AtomicBool>::default();
        let end = Arc::clone(&is_over);
        let router = Arc::new(Router::new(NEAR));
        let (orders, given) = channel();
        let mut carrier = Carrier {
            devices,
            links,
            router: Arc::clone(&router),
            orders: given,
            start: now(),
            room: vec![0; usize::from(u16::MAX)],
        };
        let thread = Some(std::thread::spawn(move || carrier.go_on_until(&end)));
        Ok(Self { router, orders, is_over, thread })
    }

    /// What it does from now on to packets that set out, in both directions.
    pub(crate) fn change(&self, config: &LinkConfig) -> Result<(), Stop> {
        // Looked at here, because nobody hears of it there.
        Link::new(config.clone(), 0).tried("a link")?;
        self.orders.send(config.clone()).tried("the link's thread")
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
    router: Arc<Router>,
    orders: Receiver<LinkConfig>,
    start: Instant,
    room: Vec<u8>,
}

impl Carrier {
    fn go_on_until(&mut self, is_over: &AtomicBool) -> [LinkCounts; 2] {
        while !is_over.load(Ordering::Acquire) {
            while let Ok(config) = self.orders.try_recv() {
                for link in &mut self.links {
                    // It was looked at before it came here.
                    let _ = link.set_config(config.clone());
                }
            }
            if !(self.carry(HERE, THERE) | self.carry(THERE, HERE)) {
                pause(REST);
            }
        }
        [*self.links[HERE].counts(), *self.links[THERE].counts()]
    }

    /// One turn of one direction; answers whether there was anything to do.
    fn carry(&mut self, from: usize, to: usize) -> bool {
        let Self { devices, links, router, start, room, .. } = self;
        let moment = Moment::ORIGIN.after(now().duration_since(*start));
        let mut has_worked = false;
        for _ in 0..TURN {
            // A device that fails has nothing more to say than one that is quiet.
            let Ok(Some(packet)) = devices[from].take(room) else { break };
            let mut packet = without_checksum(packet.to_vec());
            let longest = links[from].config().datagram_max_bytes.unwrap_or(usize::MAX);
            if let Some(message) = router.complain(&packet, longest) {
                devices[from].give(&message);
            }
            let copy = if from == HERE { router.leave(&mut packet) } else { None };
            links[from].push(moment, NOBODY, NOBODY, &packet);
            if let Some(copy) = copy {
                links[from].push(moment, NOBODY, NOBODY, &copy);
            }
            has_worked = true;
        }
        while let Some(mut arrived) = links[from].poll(moment) {
            if from == HERE || router.arrive(&mut arrived.bytes) {
                // One that was spoiled beyond what the system takes is lost here.
                devices[to].give(&arrived.bytes);
            }
            has_worked = true;
        }
        has_worked
    }
}
