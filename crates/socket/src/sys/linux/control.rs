//! Control messages: facts about a message that the kernel and this crate exchange in addition to its bytes.

mod parse;

use std::net::IpAddr;

use parse::ControlFacts;

/// Room for the two control messages that are ever in use: the stride of a train and an address of the host.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct ControlSpace([u8; SPACE_BYTES]);

const SPACE_BYTES: usize = space(size_of::<u32>()) + space(size_of::<libc::in6_pktinfo>());

const HEADER_BYTES: usize = aligned(size_of::<libc::cmsghdr>());

impl ControlSpace {
    pub(super) const EMPTY: Self = Self([0; SPACE_BYTES]);

    /// Returns what the first `written` bytes state, which the kernel wrote.
    pub(super) fn read(&self, written: usize) -> ControlFacts {
        parse::parse(self.0.get(..written).unwrap_or_default())
    }

    /// Writes what a message to be sent needs; answers how many bytes that is, 0 for nothing.
    pub(super) fn write(&mut self, segment_bytes: Option<u16>, local: Option<IpAddr>) -> usize {
        let mut used = 0;
        if let Some(segment_bytes) = segment_bytes {
            used += self.put(used, (libc::SOL_UDP, libc::UDP_SEGMENT), segment_bytes);
        }
        match local {
            Some(IpAddr::V4(address)) => {
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

    /// Puts one control message at `at`; answers how many bytes it takes.
    fn put<T: Copy>(&mut self, at: usize, (level, kind): (libc::c_int, libc::c_int), value: T) -> usize {
        let cmsg_len = (HEADER_BYTES + size_of::<T>()) as _;
        let header = libc::cmsghdr { cmsg_len, cmsg_level: level, cmsg_type: kind };
        let bytes = space(size_of::<T>());
        let Some(place) = self.0.get_mut(at..at + bytes) else { return 0 };
        place.fill(0);
        let (head, body) = place.split_at_mut(HEADER_BYTES);
        // SAFETY: both places are borrowed and as long as what is written there, which is plain old data; neither
        // write needs alignment.
        unsafe {
            head.as_mut_ptr().cast::<libc::cmsghdr>().write_unaligned(header);
            body.as_mut_ptr().cast::<T>().write_unaligned(value);
        }
        bytes
    }
}

/// As `CMSG_ALIGN`.
const fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(size_of::<usize>())
}

/// As `CMSG_SPACE`.
const fn space(bytes: usize) -> usize {
    HEADER_BYTES + aligned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_in_any_company() {
        for text in ["192.0.2.7", "2001:db8::7", "::ffff:192.0.2.7"] {
            let address: IpAddr = text.parse().expect("an address");
            let mut control = ControlSpace::EMPTY;
            let bytes = control.write(None, Some(address));
            assert_eq!(control.read(bytes), ControlFacts { segment_bytes: 0, local: Some(address) });
            let bytes = control.write(Some(1_200), Some(address));
            assert_eq!(control.read(bytes).local, Some(address), "a stride of another kind goes before");
        }
        let mut control = ControlSpace::EMPTY;
        assert_eq!(control.write(None, None), 0);
    }

    #[test]
    fn a_multicast_destination_is_not_an_address_of_the_host() {
        for group in ["ff02::1", "ff05::1:3"] {
            let mut control = ControlSpace::EMPTY;
            let bytes = control.write(None, Some(group.parse().expect("an address")));
            assert_eq!(control.read(bytes), ControlFacts::default(), "{group}");
        }
    }

    #[test]
    fn anything_the_kernel_could_write_ends_the_reading() {
        for fill in [0x00, 0x01, 0x10, 0x7f, 0xff] {
            let control = ControlSpace([fill; SPACE_BYTES]);
            for written in 0..=SPACE_BYTES + 9 {
                assert_eq!(control.read(written), ControlFacts::default(), "{fill} {written}");
            }
        }
    }
}
