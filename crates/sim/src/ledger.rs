//! How much the server may send to addresses that have not proved that a client receives there: too little to be worth an attack
//! (PROTOCOL 5.3, "The server's part", PROTOCOL 14, "Reset", and PROTOCOL 11.4, "Paths").

use std::net::{IpAddr, SocketAddr};

use drumfire::Cookie;
use drumfire::conditioner::Random;
use drumfire::testing::{Traffic, World};

use crate::attacker::{Attacker, address_in};

/// The addresses an attacker writes into datagrams, by what they are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Sources of Hellos: a Retry is a tenth of one at most, and a Welcome, which a calm server may send, no longer.
    Hello,
    /// Sources of anything else that was invented: a Reset is shorter than what it answers.
    Junk,
    /// Sources of copied packets: a path that is looked for gets three times of what came from there.
    Copier,
}

impl Class {
    const ALL: [Self; 3] = [Self::Hello, Self::Junk, Self::Copier];

    const fn network(self) -> [u8; 2] {
        match self {
            Self::Hello => [203, 0],
            Self::Junk => [198, 51],
            Self::Copier => [172, 16],
        }
    }

    /// The class of an address; none for those of clients.
    pub(crate) fn of(address: SocketAddr) -> Option<Self> {
        let IpAddr::V4(ip) = address.ip() else { return None };
        let [first, second, ..] = ip.octets();
        Self::ALL.into_iter().find(|class| class.network() == [first, second])
    }

    /// An address of this class.
    pub(crate) fn address(self, random: &mut Random) -> SocketAddr {
        address_in(self.network(), random.bits())
    }

    /// The address from which packets of this client are copied.
    pub(crate) fn copier(client: SocketAddr) -> SocketAddr {
        let IpAddr::V4(ip) = client.ip() else { return client };
        let [.., third, fourth] = ip.octets();
        address_in(Self::Copier.network(), u64::from(third) << 8 | u64::from(fourth))
    }

    /// Bytes that may be sent for so many received, in tenths.
    const fn tenths(self, cookie: Cookie) -> u64 {
        match (self, cookie) {
            (Self::Hello, Cookie::Always) => 1,
            (Self::Hello, Cookie::UnderLoad) | (Self::Junk, _) => 10,
            (Self::Copier, _) => 30,
        }
    }
}

/// Says which address got more than it may.
pub(crate) fn check(world: &World, cookie: Cookie, attacker: &Attacker) -> Result<(), String> {
    for (address, Traffic { received_bytes, sent_bytes, .. }) in world.traffic() {
        if let Some(class) = Class::of(address)
            && !attacker.has_proved(address)
            && sent_bytes * 10 > received_bytes * class.tenths(cookie)
        {
            return Err(format!("{address} ({class:?}) got {sent_bytes} bytes for {received_bytes}"));
        }
    }
    Ok(())
}
