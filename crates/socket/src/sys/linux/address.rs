//! Socket addresses between Rust's form and the kernel's. Pure conversion; an unknown family is no address.

#![expect(clippy::cast_possible_truncation, reason = "sizes and families are small constants")]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for either family's address.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union Name {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

const V4_BYTES: u32 = size_of::<libc::sockaddr_in>() as u32;
const V6_BYTES: u32 = size_of::<libc::sockaddr_in6>() as u32;

impl Name {
    /// The size the kernel is told it may write.
    pub(super) const BYTES: u32 = size_of::<Self>() as u32;

    pub(super) const EMPTY: Self = Self {
        v6: libc::sockaddr_in6 {
            sin6_family: 0,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
            sin6_scope_id: 0,
        },
    };

    /// Writes an address and answers its length for the kernel.
    pub(super) fn set(&mut self, address: SocketAddr) -> u32 {
        match address {
            SocketAddr::V4(address) => {
                self.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                V4_BYTES
            }
            SocketAddr::V6(address) => {
                self.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                V6_BYTES
            }
        }
    }

    /// The address the kernel wrote; unspecified for a family that is neither IPv4 nor IPv6.
    pub(super) fn address(&self) -> SocketAddr {
        // SAFETY: every variant starts with the family, and the union was initialised as a whole (EMPTY, set,
        // or the kernel over it); all fields are integers, valid for every bit pattern.
        match i32::from(unsafe { self.family }) {
            libc::AF_INET => {
                // SAFETY: as above; the family says this variant was written last.
                let name = unsafe { self.v4 };
                let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
                SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(name.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let name = unsafe { self.v6 };
                let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
                let port = u16::from_be(name.sin6_port);
                SocketAddr::V6(SocketAddrV6::new(ip, port, name.sin6_flowinfo, name.sin6_scope_id))
            }
            _ => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_the_kernels_form_and_back() {
        for text in ["0.0.0.0:0", "127.0.0.1:1", "255.1.2.3:65535", "[::]:0", "[2001:db8::7]:443"] {
            let address: SocketAddr = text.parse().expect("an address");
            let mut name = Name::EMPTY;
            name.set(address);
            assert_eq!(name.address(), address);
        }
        let scoped = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 9, 5, 3));
        let mut name = Name::EMPTY;
        assert_eq!(name.set(scoped), V6_BYTES);
        assert_eq!(name.address(), scoped);
    }

    #[test]
    fn an_unknown_family_is_no_address() {
        assert!(Name::EMPTY.address().ip().is_unspecified());
    }
}
