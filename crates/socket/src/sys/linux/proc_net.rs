//! The kernel's list of UDP sockets in `/proc/net` (proc(5)): the address and the inode of each socket on a port.
//!
//! The parser accepts any text: it skips a line that is not a valid entry. It does not ask which process owns a socket.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// The lists of the network namespace of the calling thread.
const TABLE_V4: &str = "/proc/thread-self/net/udp";
/// This file does not exist if IPv6 is disabled.
const TABLE_V6: &str = "/proc/thread-self/net/udp6";

/// The maximum length of a list, enough for a few hundred thousand sockets.
const MAX_TABLE_BYTES: u64 = 64 << 20;
/// The maximum length of a line. An entry has fewer than 200 bytes.
const MAX_LINE_BYTES: u64 = 512;

/// The fields of an entry in the list that are used here.
#[derive(Debug, PartialEq, Eq)]
struct TableEntry {
    address: IpAddr,
    port: u16,
    inode: u64,
}

/// Returns the inode under which the kernel lists this socket.
pub(crate) fn inode_of(udp: &mio::net::UdpSocket) -> io::Result<u64> {
    // A `File` closes its descriptor, so it gets a duplicate.
    File::from(udp.as_fd().try_clone_to_owned()?).metadata().map(|metadata| metadata.ino())
}

/// Calls `each` with the inode and the address of every UDP socket that is bound to this port.
pub(crate) fn for_each_socket_on(port: u16, mut each: impl FnMut(u64, IpAddr)) -> io::Result<()> {
    let mut select = |entry: TableEntry| {
        if entry.port == port {
            each(entry.inode, entry.address);
        }
    };
    // Read both lists, because an IPv6 socket may receive IPv4 datagrams.
    read_table(BufReader::new(File::open(TABLE_V4)?), MAX_TABLE_BYTES, &mut select)?;
    match File::open(TABLE_V6) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        table => read_table(BufReader::new(table?), MAX_TABLE_BYTES, &mut select),
    }
}

fn read_table(table: impl BufRead, max_bytes: u64, each: &mut impl FnMut(TableEntry)) -> io::Result<()> {
    let mut table = table.take(max_bytes);
    let mut line = Vec::new();
    // A longer line is read in pieces, which limits the memory.
    loop {
        line.clear();
        if (&mut table).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            // Sockets beyond the limit would not be found, so a list that is too long is an error.
            let is_complete = table.limit() > 0;
            return if is_complete { Ok(()) } else { Err(io::Error::other("the system's list is too long")) };
        }
        if let Some(entry) = parse_entry(&line) {
            each(entry);
        }
    }
}

/// Parses a line: `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode`, followed by
/// fields that are not used.
fn parse_entry(line: &[u8]) -> Option<TableEntry> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (address, port) = fields.nth(1)?.split_once(':')?;
    let inode = fields.nth(7)?.parse().ok()?;
    Some(TableEntry { address: parse_address(address)?, port: u16::from_str_radix(port, 16).ok()?, inode })
}

/// Parses an address in hexadecimal. The kernel writes each four bytes as a number in the byte order of the processor.
fn parse_address(text: &str) -> Option<IpAddr> {
    // `from_str_radix` would accept a sign.
    if !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let word = |offset: usize| {
        let digits = text.get(offset..offset.checked_add(8)?)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(words.as_flattened()).ok()?).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops            \n";

    /// Returns an entry as a kernel of this byte order writes it.
    fn line(address: IpAddr, port: u16, inode: u64) -> String {
        let words = |bytes: &[u8]| {
            let words = bytes.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
            words.map(|word| format!("{word:08X}")).collect::<String>()
        };
        let (own, other) = match address {
            IpAddr::V4(address) => (words(&address.octets()), words(&[0; 4])),
            IpAddr::V6(address) => (words(&address.octets()), words(&[0; 16])),
        };
        format!(
            " 2971: {own}:{port:04X} {other}:0000 07 00000000:00000000 00:00000000 00000000     0        0 {inode} 2 00000000d5eb71b7 0       \n"
        )
    }

    fn read(text: &[u8]) -> Vec<TableEntry> {
        let mut found = Vec::new();
        read_table(text, MAX_TABLE_BYTES, &mut |entry| found.push(entry)).unwrap();
        found
    }

    #[test]
    fn entries_of_both_families_are_read_without_the_header() {
        let mut text = HEADER.to_owned();
        let all = [("127.0.0.1", 47_617, 5_094_256), ("0.0.0.0", 1, 0), ("2001:db8::7", 65_535, u64::MAX)];
        for (address, port, inode) in all {
            text += &line(address.parse().unwrap(), port, inode);
        }
        let expected =
            all.map(|(address, port, inode)| TableEntry { address: address.parse().unwrap(), port, inode });
        assert_eq!(read(text.as_bytes()), expected);
    }

    #[test]
    fn a_truncated_or_corrupted_entry_never_panics() {
        let valid = line("::ffff:192.0.2.7".parse().unwrap(), 9, 77);
        for at in 0..valid.len() {
            read(&valid.as_bytes()[..at]);
            for byte in [0, b' ', b':', b'-', b'+', b'\n', b'z', 0xC3, 0xFF] {
                let mut corrupted = valid.clone().into_bytes();
                corrupted[at] = byte;
                read(&corrupted);
            }
        }
        for invalid in
            ["a b:c d e f g h i j", "1: +000007F:0001 a b c d e f g 5", "é: éééé:0001 a b c d e f g 5"]
        {
            assert_eq!(read(invalid.as_bytes()), [], "{invalid}");
        }
    }

    #[test]
    fn a_line_without_an_end_has_bounded_memory() {
        let mut text = vec![b'x'; 100_000];
        text.push(b'\n');
        text.extend(line("127.0.0.1".parse().unwrap(), 9, 77).bytes());
        assert_eq!(read(&text).len(), 1);
    }

    #[test]
    fn a_list_that_is_too_long_is_an_error() {
        let text = line("127.0.0.1".parse().unwrap(), 9, 77).repeat(3);
        let length = u64::try_from(text.len()).unwrap();
        for (max_bytes, is_read) in [(length + 1, true), (length, false), (length / 2, false)] {
            let mut count = 0;
            let end = read_table(text.as_bytes(), max_bytes, &mut |_| count += 1);
            assert_eq!(end.is_ok(), is_read, "{max_bytes} of {length}");
            assert!(count <= 3);
        }
    }

    #[test]
    fn a_socket_is_listed_with_its_inode_and_address() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let socket = crate::sys::open(address.parse().unwrap()).unwrap();
            socket.bind(&address.parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
            let bound = socket.local_addr().unwrap().as_socket().unwrap();
            let udp = mio::net::UdpSocket::from_std(socket.into());
            let inode = inode_of(&udp).unwrap();
            // The list can lack a socket while other tests close theirs.
            let is_listed = (0..100).any(|_| {
                let mut is_listed = false;
                let is_same = |found: u64, address: IpAddr| (found, address) == (inode, bound.ip());
                for_each_socket_on(bound.port(), |found, address| is_listed |= is_same(found, address))
                    .unwrap();
                is_listed
            });
            assert!(is_listed, "{inode} {bound}");
        }
    }
}
