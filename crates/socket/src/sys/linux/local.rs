//! The addresses of the host that datagrams came to, numbered: the same numbers on all sockets of a group.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::LocalAddress;

/// Addresses that are told apart, at most: with more, answers leave from where the kernel pleases.
const ADDRESSES_MAX: usize = 64;

/// The numbers of one group's addresses, the same on all its sockets.
#[derive(Debug, Default)]
pub(crate) struct LocalAddresses {
    shared: Arc<Mutex<Vec<IpAddr>>>,
    /// What is known here of the shared ones: they only grow.
    known: Vec<IpAddr>,
}

impl LocalAddresses {
    /// The same numbers, for another socket.
    pub(crate) fn share(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), known: Vec::new() }
    }

    /// The number of an address, new if need be.
    pub(crate) fn number_of(&mut self, address: IpAddr) -> LocalAddress {
        if let Some(at) = self.known.iter().position(|known| *known == address) {
            return numbered(at);
        }
        let mut all = lock(&self.shared);
        if !all.contains(&address) && all.len() < ADDRESSES_MAX {
            all.push(address);
        }
        self.known.clone_from(&all);
        all.iter().position(|known| *known == address).map_or(LocalAddress::ANY, numbered)
    }

    /// The address of a number; `None` for the kernel's choice.
    pub(crate) fn address_of(&mut self, local: LocalAddress) -> Option<IpAddr> {
        let at = usize::from(local.to_number()).checked_sub(1)?;
        if at >= self.known.len() {
            self.known.clone_from(&lock(&self.shared));
        }
        self.known.get(at).copied()
    }
}

fn lock(shared: &Mutex<Vec<IpAddr>>) -> MutexGuard<'_, Vec<IpAddr>> {
    // The list is whole after every step.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn numbered(at: usize) -> LocalAddress {
    LocalAddress::from_number(u16::try_from(at + 1).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn sockets_of_a_group_agree_on_numbers_whoever_sees_an_address_first() {
        let mut one = LocalAddresses::default();
        let mut other = one.share();
        let first = one.number_of(address(1));
        assert_eq!(other.number_of(address(2)).to_number(), first.to_number() + 1);
        assert_eq!((other.number_of(address(1)), one.number_of(address(1))), (first, first));
        let second = LocalAddress::from_number(2);
        assert_eq!((one.address_of(second), other.address_of(second)), (Some(address(2)), Some(address(2))));
    }

    #[test]
    fn the_64th_address_has_a_number_and_the_65th_none() {
        let mut addresses = LocalAddresses::default();
        for last in 0..64 {
            assert_ne!(addresses.number_of(address(last)), LocalAddress::ANY);
        }
        assert_eq!(addresses.number_of(address(64)), LocalAddress::ANY);
        assert_eq!(addresses.address_of(LocalAddress::ANY), None);
        assert_eq!(addresses.address_of(LocalAddress::from_number(65)), None);
    }
}
