//! The selection of a server's socket for a datagram, as in a kernel with several sockets on one port.
//!
//! The filter of the production code selects the socket of a packet. A hash of the source address selects the socket of other
//! datagrams. A train goes to the socket of its first datagram.

use std::net::{IpAddr, SocketAddr};

use drumfire_proto::Moment;
use drumfire_socket::SteeringFilter;

use super::Datagram;
use super::sockets::Sockets;

/// A group of sockets on one port, one for each worker.
#[derive(Debug)]
pub(super) struct Steer {
    pub(super) sockets: Sockets,
    pub(super) workers: usize,
    seed: u64,
    filter: Option<SteeringFilter>,
    last: Option<TrainState>,
}

/// The last datagram that arrived. The next datagram may continue its train.
#[derive(Clone, Copy, Debug)]
struct TrainState {
    at: Moment,
    from: SocketAddr,
    worker: usize,
    /// The length in bytes of the first datagram of the train.
    segment_bytes: usize,
    /// Whether the datagram was shorter than the first, which ends the train.
    is_end: bool,
}

impl Steer {
    pub(super) const fn new(sockets: Sockets, workers: usize, seed: u64) -> Self {
        Self { sockets, workers, seed, filter: None, last: None }
    }

    /// Replaces the filter that selects the worker of a packet. Without steering, the filter is ignored.
    pub(super) fn set_filter(&mut self, filter: Option<SteeringFilter>) {
        self.filter = filter.filter(|_| self.sockets.is_steered);
    }

    /// Returns the worker for a datagram, and whether the datagram continues the train of the previous one.
    pub(super) fn steer(&mut self, at: Moment, datagram: &Datagram) -> (usize, bool) {
        let (from, bytes) = (datagram.from, datagram.bytes.len());
        let before = self.last.filter(|last| {
            let fits = (1..=last.segment_bytes).contains(&bytes) && !last.is_end;
            self.sockets.has_gro && fits && (last.at, last.from) == (at, from)
        });
        let worker = before.map_or_else(|| self.worker_of(datagram), |last| last.worker);
        let segment_bytes = before.map_or(bytes, |last| last.segment_bytes);
        self.last = Some(TrainState { at, from, worker, segment_bytes, is_end: bytes < segment_bytes });
        (worker, before.is_some())
    }

    /// Ends the train, because its last datagram was dropped.
    pub(super) const fn forget_train(&mut self) {
        self.last = None;
    }

    fn worker_of(&self, datagram: &Datagram) -> usize {
        if self.workers == 1 {
            return 0;
        }
        let named = self.filter.as_ref().and_then(|filter| filter.socket_of(&datagram.bytes));
        named.unwrap_or_else(|| {
            let ip = match datagram.from.ip().to_canonical() {
                IpAddr::V4(ip) => u128::from(ip.to_bits()),
                IpAddr::V6(ip) => ip.to_bits(),
            };
            let word = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0);
            let words = [u64::from(datagram.from.port()), word(ip), word(ip >> 64)];
            let hash = words.into_iter().fold(self.seed, fold);
            usize::try_from(hash % self.workers as u64).unwrap_or(0)
        })
    }
}

/// Returns `hash` with `word` mixed in. The result depends on the order of the words.
pub(super) const fn fold(hash: u64, word: u64) -> u64 {
    let mixed = (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(7);

    fn datagram(from: u8, bytes: &[u8]) -> Datagram {
        let address = |last| SocketAddr::from(([192, 0, 2, last], 1));
        Datagram { from: address(from), to: address(1), bytes: bytes.to_vec() }
    }

    #[test]
    fn packets_are_steered_by_the_filter_and_hellos_by_their_source() {
        let mut steer = Steer::new(Sockets::default(), 4, 3);
        let filter = SteeringFilter::new(1, 28, 0x9E37_79B1, 4).unwrap();
        steer.set_filter(Some(filter));
        let mut hello_workers = std::collections::HashSet::new();
        for number in 0..=255 {
            let packet = datagram(number, &[number & 0x7f; 40]);
            assert_eq!(steer.steer(NOW, &packet), (filter.socket_of(&packet.bytes).unwrap(), false));
            let (worker, _) = steer.steer(NOW, &datagram(number, &[0x80; 1_200]));
            assert_eq!(steer.steer(NOW, &datagram(number, b"short")).0, worker);
            hello_workers.insert(worker);
        }
        assert_eq!(hello_workers.len(), 4);
        let mut hashed = Steer::new(Sockets::default().is_steered(false), 4, 3);
        hashed.set_filter(Some(filter));
        for number in 0..=255 {
            let worker = hashed.steer(NOW, &datagram(9, &[number & 0x7f; 40])).0;
            assert_eq!(worker, hashed.steer(NOW, &datagram(9, &[0x80; 1_200])).0);
        }
    }

    #[test]
    fn a_train_has_equal_datagrams_and_may_end_with_a_shorter_one() {
        let joins = |sockets: Sockets, sent: &[(u64, u8, usize)]| {
            let mut steer = Steer::new(sockets, 2, 0);
            let joins = sent.iter().map(|(at, from, bytes)| {
                steer.steer(Moment::from_nanos(*at), &datagram(*from, &vec![0x80; *bytes])).1
            });
            joins.collect::<Vec<_>>()
        };
        let gro = Sockets::default().has_gro(true);
        assert_eq!(joins(gro, &[(1, 1, 9), (1, 1, 9), (1, 1, 4), (1, 1, 4)]), [false, true, true, false]);
        assert_eq!(joins(gro, &[(1, 1, 9), (2, 1, 9)]), [false; 2]);
        assert_eq!(joins(gro, &[(1, 1, 9), (1, 2, 9)]), [false; 2]);
        assert_eq!(joins(gro, &[(1, 1, 9), (1, 1, 10)]), [false; 2]);
        assert_eq!(joins(gro, &[(1, 1, 9), (1, 1, 0), (1, 1, 0)]), [false; 3]);
        assert_eq!(joins(Sockets::default(), &[(1, 1, 9), (1, 1, 9)]), [false; 2]);
    }
}
