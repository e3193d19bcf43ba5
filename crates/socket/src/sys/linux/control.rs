//! Control messages (cmsg(3)): the segment size and the local address that accompany a message, and the numbers of the
//! local addresses.

mod parse;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parse::ControlData;

/// Space for the control messages of one message: at most one segment size and one address.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct ControlBuffer([u8; BUFFER_BYTES]);

const BUFFER_BYTES: usize = space(size_of::<u32>()) + space(size_of::<libc::in6_pktinfo>());

const HEADER_BYTES: usize = aligned(size_of::<libc::cmsghdr>());

impl ControlBuffer {
    pub(super) const EMPTY: Self = Self([0; BUFFER_BYTES]);

    /// Returns the data in the first `written` bytes, which the kernel wrote.
    pub(super) fn read(&self, written: usize) -> ControlData {
        parse::parse(self.0.get(..written).unwrap_or_default())
    }

    /// Writes the control messages of a message to send, and returns their length in bytes, 0 if there are none.
    ///
    /// `segment_bytes` requests segmentation (`UDP_SEGMENT`, udp(7)). `local` sets the source address through
    /// `IP_PKTINFO` (ip(7)) or `IPV6_PKTINFO` (ipv6(7)). The interface index 0 leaves the route to the kernel.
    pub(super) fn write(&mut self, segment_bytes: Option<u16>, local: Option<IpAddr>) -> usize {
        let mut used = 0;
        if let Some(segment_bytes) = segment_bytes {
            used += self.put(used, (libc::SOL_UDP, libc::UDP_SEGMENT), segment_bytes);
        }
        match local {
            Some(IpAddr::V4(address)) => {
                // `ipi_spec_dst` is the source address. `ipi_addr` has a meaning only in received messages (ip(7)).
                let any = libc::in_addr { s_addr: 0 };
                let source = libc::in_addr { s_addr: u32::from(address).to_be() };
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: any };
                used += self.put(used, (libc::IPPROTO_IP, libc::IP_PKTINFO), info);
            }
            Some(IpAddr::V6(address)) => {
                let ipi6_addr = libc::in6_addr { s6_addr: address.octets() };
                let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
                used += self.put(used, (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO), info);
            }
            None => {}
        }
        used
    }

    /// Writes one control message at `offset` and returns its length in bytes with padding.
    fn put<T: Copy>(&mut self, offset: usize, (level, kind): (libc::c_int, libc::c_int), value: T) -> usize {
        let cmsg_len = (HEADER_BYTES + size_of::<T>()) as _;
        let bytes = space(size_of::<T>());
        // The buffer has room for all messages that `write` adds.
        let Some(target) = self.0.get_mut(offset..offset + bytes) else { return 0 };
        target.fill(0);
        let (head, body) = target.split_at_mut(HEADER_BYTES);
        let head = head.as_mut_ptr().cast::<libc::cmsghdr>();
        // The fields are written one by one, because musl has another one, for padding.
        // SAFETY: both targets are borrowed and at least as long as the value that is written there. The values are
        // plain data, and the writes need no alignment.
        unsafe {
            (&raw mut (*head).cmsg_len).write_unaligned(cmsg_len);
            (&raw mut (*head).cmsg_level).write_unaligned(level);
            (&raw mut (*head).cmsg_type).write_unaligned(kind);
            body.as_mut_ptr().cast::<T>().write_unaligned(value);
        }
        bytes
    }
}

/// Returns the aligned length, as `CMSG_ALIGN` does.
const fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(size_of::<usize>())
}

/// Returns the length of a control message with `bytes` of data, as `CMSG_SPACE` does.
const fn space(bytes: usize) -> usize {
    HEADER_BYTES + aligned(bytes)
}

/// The maximum number of numbered addresses. The kernel selects the source address of replies to further ones.
const MAX_ADDRESSES: usize = 64;

/// The numbers of the local addresses of one group, equal on all of its sockets. Number 0 is no specific address.
#[derive(Debug, Default)]
pub(crate) struct LocalAddresses {
    /// The addresses of the group in the order of their numbers. Addresses are only added.
    shared: Arc<Mutex<Vec<IpAddr>>>,
    /// A copy of a prefix of `shared`, so that known addresses need no lock.
    cached: Vec<IpAddr>,
}

impl LocalAddresses {
    /// Returns the same numbers for another socket.
    pub(crate) fn share(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), cached: Vec::new() }
    }

    /// Returns the number of an address. An unknown address gets a new number, or 0 when all numbers are in use.
    pub(super) fn number_of(&mut self, address: IpAddr) -> u16 {
        if let Some(index) = self.cached.iter().position(|cached| *cached == address) {
            return number_at(index);
        }
        let mut shared = lock(&self.shared);
        if !shared.contains(&address) && shared.len() < MAX_ADDRESSES {
            shared.push(address);
        }
        self.cached.clone_from(&shared);
        shared.iter().position(|known| *known == address).map_or(0, number_at)
    }

    /// Returns the address with this number, or `None` if the kernel selects the address.
    pub(super) fn address_of(&mut self, number: u16) -> Option<IpAddr> {
        let index = usize::from(number).checked_sub(1)?;
        if index >= self.cached.len() {
            self.cached.clone_from(&lock(&self.shared));
        }
        self.cached.get(index).copied()
    }
}

fn lock(shared: &Mutex<Vec<IpAddr>>) -> MutexGuard<'_, Vec<IpAddr>> {
    // A panic while the lock is held leaves a valid list, so poisoning has no meaning here.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number_at(index: usize) -> u16 {
    u16::try_from(index + 1).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_control_messages_are_read_back() {
        for text in ["192.0.2.7", "2001:db8::7", "::ffff:192.0.2.7"] {
            let address: IpAddr = text.parse().expect("an address");
            let mut control = ControlBuffer::EMPTY;
            let bytes = control.write(None, Some(address));
            assert_eq!(control.read(bytes), ControlData { segment_bytes: 0, local: Some(address) });
            let bytes = control.write(Some(1_200), Some(address));
            assert_eq!(control.read(bytes).local, Some(address), "a segment size before the address");
        }
        let mut control = ControlBuffer::EMPTY;
        assert_eq!(control.write(None, None), 0);
    }

    #[test]
    fn a_multicast_destination_is_not_a_local_address() {
        for group in ["ff02::1", "ff05::1:3"] {
            let mut control = ControlBuffer::EMPTY;
            let bytes = control.write(None, Some(group.parse().expect("an address")));
            assert_eq!(control.read(bytes), ControlData::default(), "{group}");
        }
    }

    #[test]
    fn invalid_control_messages_end_the_parsing() {
        for fill in [0x00, 0x01, 0x10, 0x7f, 0xff] {
            let control = ControlBuffer([fill; BUFFER_BYTES]);
            for written in 0..=BUFFER_BYTES + 9 {
                assert_eq!(control.read(written), ControlData::default(), "{fill} {written}");
            }
        }
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn sockets_of_a_group_agree_on_the_numbers() {
        let mut one = LocalAddresses::default();
        let mut other = one.share();
        let first = one.number_of(address(1));
        assert_eq!(other.number_of(address(2)), first + 1);
        assert_eq!((other.number_of(address(1)), one.number_of(address(1))), (first, first));
        assert_eq!((one.address_of(2), other.address_of(2)), (Some(address(2)), Some(address(2))));
    }

    #[test]
    fn the_64th_address_has_a_number_and_the_65th_has_none() {
        let mut addresses = LocalAddresses::default();
        for last in 0..64 {
            assert_ne!(addresses.number_of(address(last)), 0);
        }
        assert_eq!(addresses.number_of(address(64)), 0);
        assert_eq!(addresses.address_of(0), None);
        assert_eq!(addresses.address_of(65), None);
    }
}
