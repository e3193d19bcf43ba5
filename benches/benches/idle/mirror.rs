//! Sends to the plain receiver what the clients send to the server: as many datagrams of their length at the same moments from
//! as many sockets, and each asks for as much as the server answered.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use drumfire_benches::{Carried, PLAIN_BYTES_MAX};

/// A datagram says first, in two bytes, how long its answer is to be.
const HEAD_BYTES: usize = 2;

/// Sockets that send to the plain receiver.
pub(crate) struct Mirror {
    sockets: Vec<UdpSocket>,
    fed: u64,
    /// What the server answered and nobody asked for yet.
    owed: Carried,
}

impl Mirror {
    pub(crate) fn connect(address: SocketAddr, sockets: u32) -> Result<Self, String> {
        let socket = |_| -> std::io::Result<UdpSocket> {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(address)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let sockets = (0..sockets).map(socket).collect::<Result<_, _>>();
        let sockets = sockets.map_err(|error| format!("the mirror's sockets: {error}"))?;
        Ok(Self { sockets, fed: 0, owed: Carried::default() })
    }

    /// Datagrams sent so far.
    pub(crate) const fn fed(&self) -> u64 {
        self.fed
    }

    /// Sends from the socket at this place what that of the clients sent since, and takes in what came.
    pub(crate) fn follow(&mut self, place: usize, before: Carried, now: Carried) -> Result<(), String> {
        let count = now.sent - before.sent;
        self.owed.received += now.received - before.received;
        self.owed.received_bytes += now.received_bytes - before.received_bytes;
        let length = (now.sent_bytes - before.sent_bytes).checked_div(count).unwrap_or(0);
        let length = usize::try_from(length).unwrap_or(0).clamp(HEAD_BYTES, PLAIN_BYTES_MAX);
        for _ in 0..count {
            let mut datagram = [0; PLAIN_BYTES_MAX];
            datagram[..HEAD_BYTES].copy_from_slice(&self.ask().to_be_bytes());
            let sent = self.sockets[place].send(&datagram[..length]);
            sent.map_err(|error| format!("the mirror: {error}"))?;
            self.fed += 1;
        }
        self.drain(place)
    }

    /// How long the next answer is to be: as the server's are, as long as it answered more than was asked for.
    fn ask(&mut self) -> u16 {
        let Some(bytes) = self.owed.received_bytes.checked_div(self.owed.received) else { return 0 };
        self.owed.received -= 1;
        self.owed.received_bytes -= bytes;
        u16::try_from(bytes).unwrap_or(u16::MAX)
    }

    fn drain(&self, place: usize) -> Result<(), String> {
        let mut buffer = [0; PLAIN_BYTES_MAX];
        loop {
            match self.sockets[place].recv(&mut buffer) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(format!("the mirror: {error}")),
            }
        }
    }
}
