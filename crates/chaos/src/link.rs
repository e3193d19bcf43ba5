//! A link to the other network namespace that loses, delays, duplicates, and corrupts packets. It has a TUN device at each end, a router
//! at this end, and one thread that carries packets between the devices. Its memory is bounded.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use drumfire::conditioner::{Link, LinkConfig, LinkCounts, Moment};
use drumfire_tools::clock::{now, pause};

use crate::error::{Error, ErrorContext};
use crate::host::{BackgroundThread, call, call_in};
use crate::net::{NAT_NETWORK, NatRouter, without_checksum};
use crate::platform::TunDevice;

/// The addresses of the two ends.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 214, 0, 1);
pub(crate) const FAR_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 214, 0, 2));

const NEAR_DEVICE: &str = "chaos-near";
const FAR_DEVICE: &str = "chaos-far";

/// The conditioner takes addresses and does not use them: whole IP packets carry their own.
const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The pause of the thread when there is nothing to carry.
const IDLE_PAUSE: Duration = Duration::from_micros(200);

/// Packets of one direction that are carried before the other direction's turn.
const BATCH: usize = 256;

/// The seeds of the two directions.
const SEEDS: [u64; 2] = [0x0001_c4a0, 0x0002_c4a0];

/// Indexes of the devices, and of the links that lead away from them.
const HERE: usize = 0;
const THERE: usize = 1;

/// A link. It ends on drop.
pub(crate) struct EmulatedLink {
    /// The router at this end.
    pub(crate) router: Arc<NatRouter>,
    configs: Sender<LinkConfig>,
    thread: BackgroundThread<[LinkCounts; 2]>,
}

impl EmulatedLink {
    /// Connects this namespace to another one by a link that is the same in both directions.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the system has no TUN devices.
    pub(crate) fn start(namespace: u32, config: &LinkConfig, mtu: u16) -> Result<Self, Error> {
        let devices = [TunDevice::open(NEAR_DEVICE, mtu)?, TunDevice::open(FAR_DEVICE, mtu)?];
        // The descriptor stays here when the device moves.
        call("ip", &format!("link set {FAR_DEVICE} netns {namespace}"))?;
        let there = |arguments: &str| call_in(namespace, "ip", arguments);
        for (name, address) in [(NEAR_DEVICE, NEAR.into()), (FAR_DEVICE, FAR_V4)] {
            let ip = |arguments: &str| {
                if name == FAR_DEVICE { there(arguments) } else { call("ip", arguments) }
            };
            ip(&format!("link set {name} mtu {mtu} up"))?;
            ip(&format!("address add {address}/30 dev {name}"))?;
        }
        there(&format!("route add {NAT_NETWORK} dev {FAR_DEVICE}"))?;
        let [there, back] = SEEDS.map(|seed| Link::new(config.clone(), seed));
        let links = [there.context("a link")?, back.context("a link")?];
        let router = Arc::new(NatRouter::new(NEAR));
        let (configs, receiver) = channel();
        let mut carrier = Carrier {
            devices,
            links,
            router: Arc::clone(&router),
            configs: receiver,
            start: now(),
            memory: vec![0; usize::from(u16::MAX)],
        };
        let thread = BackgroundThread::spawn(move |is_over| carrier.run(is_over));
        Ok(Self { router, configs, thread })
    }

    /// Changes both directions.
    pub(crate) fn set_config(&self, config: &LinkConfig) -> Result<(), Error> {
        // The thread has no way to report an invalid config.
        Link::new(config.clone(), 0).context("a link")?;
        self.configs.send(config.clone()).context("the link's thread")
    }

    /// Ends the link, and returns what it did to packets in each direction.
    pub(crate) fn end(self) -> Result<[LinkCounts; 2], Error> {
        self.thread.end()
    }
}

/// Carries packets from each device over a link to the other.
struct Carrier {
    devices: [TunDevice; 2],
    links: [Link; 2],
    router: Arc<NatRouter>,
    configs: Receiver<LinkConfig>,
    start: Instant,
    memory: Vec<u8>,
}

impl Carrier {
    fn run(&mut self, is_over: &AtomicBool) -> [LinkCounts; 2] {
        while !is_over.load(Ordering::Acquire) {
            while let Ok(config) = self.configs.try_recv() {
                for link in &mut self.links {
                    // `set_config` has checked it.
                    let _ = link.set_config(config.clone());
                }
            }
            if !(self.carry(HERE, THERE) | self.carry(THERE, HERE)) {
                pause(IDLE_PAUSE);
            }
        }
        [*self.links[HERE].counts(), *self.links[THERE].counts()]
    }

    /// Carries packets in one direction. Returns whether there were any.
    fn carry(&mut self, from: usize, to: usize) -> bool {
        let Self { devices, links, router, start, memory, .. } = self;
        let moment = Moment::ORIGIN.after(now().duration_since(*start));
        let mut has_carried = false;
        for _ in 0..BATCH {
            // A device that fails has no packets, like one that is idle.
            let Ok(Some(packet)) = devices[from].receive(memory) else { break };
            let mut packet = without_checksum(packet.to_vec());
            let longest = links[from].config().datagram_max_bytes.unwrap_or(usize::MAX);
            if let Some(message) = router.on_length(&packet, longest) {
                devices[from].send(&message);
            }
            let copy = if from == HERE { router.on_leaving(&mut packet) } else { None };
            links[from].push(moment, NO_ADDRESS, NO_ADDRESS, &packet);
            if let Some(copy) = copy {
                links[from].push(moment, NO_ADDRESS, NO_ADDRESS, &copy);
            }
            has_carried = true;
        }
        while let Some(mut arrived) = links[from].poll(moment) {
            if from == HERE || router.on_arriving(&mut arrived.bytes) {
                // The system drops packets whose IP header was corrupted.
                devices[to].send(&arrived.bytes);
            }
            has_carried = true;
        }
        has_carried
    }
}
