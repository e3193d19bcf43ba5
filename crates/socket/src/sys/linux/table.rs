//! The kernel's list of UDP sockets, as `/proc` shows it: which addresses a port is bound to, and by which sockets.
//!
//! What it shows is text of the kernel's, read line by line and never trusted: a line that is no row is passed over. Whose
//! sockets they are is not asked here.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// The lists of the network namespace that the calling thread is in.
const TABLE_V4: &str = "/proc/thread-self/net/udp";
/// Not there where IPv6 is turned off.
const TABLE_V6: &str = "/proc/thread-self/net/udp6";

/// The longest list that is read: a few hundred thousand sockets.
const TABLE_MAX_BYTES: u64 = 64 << 20;
/// A row has fewer than 200.
const LINE_MAX_BYTES: u64 = 512;

/// A line of the list, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    address: IpAddr,
    port: u16,
    number: u64,
}

/// The number under which the kernel lists this socket.
pub(crate) fn number_of(udp: &mio::net::UdpSocket) -> io::Result<u64> {
    File::from(udp.as_fd().try_clone_to_owned()?).metadata().map(|metadata| metadata.ino())
}

/// Calls `each` with the number and the address of every UDP socket bound to this port.
pub(crate) fn bound_to(port: u16, mut each: impl FnMut(u64, IpAddr)) -> io::Result<()> {
    let mut of_port = |row: Row| {
        if row.port == port {
            each(row.number, row.address);
        }
    };
    rows(BufReader::new(File::open(TABLE_V4)?), TABLE_MAX_BYTES, &mut of_port)?;
    match File::open(TABLE_V6) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        table => rows(BufReader::new(table?), TABLE_MAX_BYTES, &mut of_port),
    }
}

fn rows(table: impl BufRead, max_bytes: u64, each: &mut impl FnMut(Row)) -> io::Result<()> {
    let mut table = table.take(max_bytes);
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut table).take(LINE_MAX_BYTES).read_until(b'\n', &mut line)? == 0 {
            // Whoever stands behind the end would not be seen.
            let is_whole = table.limit() > 0;
            return if is_whole { Ok(()) } else { Err(io::Error::other("the system's list is too long")) };
        }
        if let Some(row) = row(&line) {
            each(row);
        }
    }
}

/// `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode`, and more.
fn row(line: &[u8]) -> Option<Row> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (address, port) = fields.nth(1)?.split_once(':')?;
    let number = fields.nth(7)?.parse().ok()?;
    Some(Row { address: ip(address)?, port: u16::from_str_radix(port, 16).ok()?, number })
}

/// The kernel writes each four bytes as a number of the processor's.
fn ip(text: &str) -> Option<IpAddr> {
    if !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let word = |at: usize| {
        let digits = text.get(at..at.checked_add(8)?)?;
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

    const HEAD: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops            \n";

    /// A row as a kernel of this byte order writes it.
    fn written(address: IpAddr, port: u16, number: u64) -> String {
        let words = |bytes: &[u8]| {
            let words = bytes.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
            words.map(|word| format!("{word:08X}")).collect::<String>()
        };
        let (own, other) = match address {
            IpAddr::V4(address) => (words(&address.octets()), words(&[0; 4])),
            IpAddr::V6(address) => (words(&address.octets()), words(&[0; 16])),
        };
        format!(
            " 2971: {own}:{port:04X} {other}:0000 07 00000000:00000000 00:00000000 00000000     0        0 {number} 2 00000000d5eb71b7 0       \n"
        )
    }

    fn read(text: &[u8]) -> Vec<Row> {
        let mut found = Vec::new();
        rows(text, TABLE_MAX_BYTES, &mut |row| found.push(row)).unwrap();
        found
    }

    #[test]
    fn rows_of_both_families_are_read_and_the_head_is_none() {
        let mut text = HEAD.to_owned();
        let all = [("127.0.0.1", 47_617, 5_094_256), ("0.0.0.0", 1, 0), ("2001:db8::7", 65_535, u64::MAX)];
        for (address, port, number) in all {
            text += &written(address.parse().unwrap(), port, number);
        }
        let expected =
            all.map(|(address, port, number)| Row { address: address.parse().unwrap(), port, number });
        assert_eq!(read(text.as_bytes()), expected);
    }

    #[test]
    fn a_row_cut_or_spoilt_anywhere_is_another_row_or_none_and_never_a_panic() {
        let row = written("::ffff:192.0.2.7".parse().unwrap(), 9, 77);
        for at in 0..row.len() {
            read(&row.as_bytes()[..at]);
            for byte in [0, b' ', b':', b'-', b'+', b'\n', b'z', 0xC3, 0xFF] {
                let mut spoilt = row.clone().into_bytes();
                spoilt[at] = byte;
                read(&spoilt);
            }
        }
        for strange in
            ["a b:c d e f g h i j", "1: +000007F:0001 a b c d e f g 5", "é: éééé:0001 a b c d e f g 5"]
        {
            assert_eq!(read(strange.as_bytes()), [], "{strange}");
        }
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_a_row() {
        let mut text = vec![b'x'; 100_000];
        text.push(b'\n');
        text.extend(written("127.0.0.1".parse().unwrap(), 9, 77).bytes());
        assert_eq!(read(&text).len(), 1);
    }

    #[test]
    fn a_list_that_is_longer_than_what_is_read_is_no_list() {
        let text = written("127.0.0.1".parse().unwrap(), 9, 77).repeat(3);
        let whole = u64::try_from(text.len()).unwrap();
        for (max_bytes, is_read) in [(whole + 1, true), (whole, false), (whole / 2, false)] {
            let mut count = 0;
            let end = rows(text.as_bytes(), max_bytes, &mut |_| count += 1);
            assert_eq!(end.is_ok(), is_read, "{max_bytes} of {whole}");
            assert!(count <= 3);
        }
    }

    #[test]
    fn a_socket_is_listed_under_its_number_at_its_address() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let socket = crate::sys::open(address.parse().unwrap()).unwrap();
            socket.bind(&address.parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
            let bound = socket.local_addr().unwrap().as_socket().unwrap();
            let udp = mio::net::UdpSocket::from_std(socket.into());
            let number = number_of(&udp).unwrap();
            let mut found = Vec::new();
            bound_to(bound.port(), |number, address| found.push((number, address))).unwrap();
            assert!(found.contains(&(number, bound.ip())), "{number} {bound} in {found:?}");
        }
    }
}
