//! A link to the other network namespace that loses, delays, duplicates, and corrupts packets. It has a TUN device at each end, a router
//! at this end, and one thread that carries packets between the devices. Its memory is bounded.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use drumfire::conditioner::{Link, LinkConfig, LinkCounts};
use drumfire_tools::clock::{now, pause};
use tun_rs::SyncDevice;

use crate::error::{Error, ErrorContext};
use crate::host::{BackgroundThread, call, call_in, locked};
use crate::net::{INSIDE, NAT_NETWORK, NatRouter, without_checksum};
use crate::platform::open_tun;

/// The address of the other end.
pub(crate) const FAR_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 214, 0, 2));

const NEAR_DEVICE: &str = "chaos-near";
const FAR_DEVICE: &str = "chaos-far";

/// The largest packet that the devices carry.
const MTU: u16 = 1_500;

/// The pause of the thread when there is nothing to carry.
const IDLE_PAUSE: Duration = Duration::from_micros(200);

/// Packets of one direction that are carried before the other direction's turn.
const BATCH: usize = 256;

/// The seeds of the two directions.
const SEEDS: [u64; 2] = [0x0001_c4a0, 0x0002_c4a0];

/// Indexes of the devices, and of the links that lead away from them.
const NEAR: usize = 0;
const FAR: usize = 1;

/// A link. It ends on drop.
pub(crate) struct EmulatedLink {
    path: Arc<Mutex<Path>>,
    thread: BackgroundThread<()>,
}

/// The way of packets between the devices: the links and the router.
pub(crate) struct Path {
    /// The links that lead away from each device.
    links: [Link; 2],
    /// The router at this end.
    pub(crate) router: NatRouter,
}

impl EmulatedLink {
    /// Connects this namespace to another one by a link that is the same in both directions.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the system has no TUN devices.
    pub(crate) fn start(namespace: u32, config: &LinkConfig) -> Result<Self, Error> {
        let devices = [open_tun(NEAR_DEVICE, MTU)?, open_tun(FAR_DEVICE, MTU)?];
        // The descriptor stays here when the device moves.
        call("ip", &format!("link set {FAR_DEVICE} netns {namespace}"))?;
        call("ip", &format!("link set {NEAR_DEVICE} mtu {MTU} up"))?;
        call("ip", &format!("address add {INSIDE}/30 dev {NEAR_DEVICE}"))?;
        call_in(namespace, "ip", &format!("link set {FAR_DEVICE} mtu {MTU} up"))?;
        call_in(namespace, "ip", &format!("address add {FAR_V4}/30 dev {FAR_DEVICE}"))?;
        call_in(namespace, "ip", &format!("route add {NAT_NETWORK} dev {FAR_DEVICE}"))?;
        let [there, back] = SEEDS.map(|seed| Link::new(config.clone(), seed));
        let links = [there.context("a link")?, back.context("a link")?];
        let path = Arc::new(Mutex::new(Path { links, router: NatRouter::default() }));
        let shared = Arc::clone(&path);
        let thread = BackgroundThread::spawn(move |is_over| {
            let (start, mut memory) = (now(), vec![0; usize::from(u16::MAX)]);
            while !is_over.load(Ordering::Acquire) {
                let elapsed = now().duration_since(start);
                let mut carry = |from, to| locked(&shared).carry(&devices, from, to, elapsed, &mut memory);
                if !(carry(NEAR, FAR) | carry(FAR, NEAR)) {
                    pause(IDLE_PAUSE);
                }
            }
        });
        Ok(Self { path, thread })
    }

    /// Returns the path of the packets.
    pub(crate) fn path(&self) -> MutexGuard<'_, Path> {
        locked(&self.path)
    }

    /// Ends the link, and returns what it did to packets in each direction.
    pub(crate) fn end(self) -> Result<[LinkCounts; 2], Error> {
        self.thread.end()?;
        Ok([NEAR, FAR].map(|from| *locked(&self.path).links[from].counts()))
    }
}

impl Path {
    /// Changes both directions.
    pub(crate) fn set_config(&mut self, config: &LinkConfig) -> Result<(), Error> {
        self.links.iter_mut().try_for_each(|link| link.set_config(config.clone())).context("a link")
    }

    /// Carries packets from one device to the other. Returns whether there were any.
    fn carry(
        &mut self,
        devices: &[SyncDevice; 2],
        from: usize,
        to: usize,
        elapsed: Duration,
        memory: &mut [u8],
    ) -> bool {
        let Self { links, router } = self;
        let mut has_carried = false;
        for _ in 0..BATCH {
            // A device that fails has no packets, like one that is idle.
            let Ok(length) = devices[from].recv(memory) else { break };
            let mut packet = without_checksum(memory[..length].to_vec());
            let longest = links[from].config().datagram_max_bytes.unwrap_or(usize::MAX);
            if let Some(message) = router.on_length(&packet, longest) {
                // A packet that a device refuses is lost, as on any path.
                let _ = devices[from].send(&message);
            }
            let copy = if from == NEAR { router.on_leaving(&mut packet) } else { None };
            for packet in [Some(packet), copy].into_iter().flatten() {
                links[from].push(elapsed, (), &packet);
            }
            has_carried = true;
        }
        while let Some(((), mut arrived)) = links[from].poll(elapsed) {
            if from == NEAR || router.on_arriving(&mut arrived) {
                // The system drops packets whose IP header was corrupted.
                let _ = devices[to].send(&arrived);
            }
            has_carried = true;
        }
        has_carried
    }
}
