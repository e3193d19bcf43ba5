//! The cipher alone: packets sealed and opened one after the other with the keys of a handshake, without headers to read,
//! connections to find, or books.

use std::hint::black_box;

use drumfire_crypto::{Initiator, Opener, Responder, Sealer, Secret, ServerKeyPair, Suite, TAG_BYTES};

use crate::group::BATCH;

/// Bytes of a packet that are not sealed: type, connection id, and the number.
const HEADER_BYTES: usize = 1 + 8 + 4;

/// Both halves of one direction, and the memory of a batch of packets.
pub struct OpenAlone<const PACKET_BYTES: usize> {
    sealer: Sealer,
    opener: Opener,
    packets: Vec<[u8; PACKET_BYTES]>,
}

impl<const PACKET_BYTES: usize> OpenAlone<PACKET_BYTES> {
    /// Keys of this suite.
    ///
    /// # Panics
    /// When this build lacks the suite.
    #[must_use]
    pub fn new(suite: Suite) -> Self {
        const { assert!(PACKET_BYTES >= HEADER_BYTES + TAG_BYTES, "room for a header and a tag") };
        let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
        let (mut first, mut second) = ([0; 48], [0; 48]);
        let (nobody, ephemeral) = (Secret::zeroed(), Secret::new([2; 32]));
        let mut client =
            Initiator::new(keys.public(), &nobody, b"", b"", ephemeral, &mut first).expect("a key");
        let (server, _) = Responder::read(&keys, &nobody, b"", &first, &Secret::new([3; 32]), &mut [])
            .expect("the client's message");
        let (_, of_server) = server.reply(b"", &mut second).expect("room");
        let (_, of_client) = client.read_reply(&second, &mut []).expect("the server's message");
        let (seals, _) = of_client.into_keys(suite).expect("a suite of this build");
        let (_, opens) = of_server.into_keys(suite).expect("a suite of this build");
        let (mut sealer, mut opener) = (Sealer::new(seals), Opener::new(opens));
        sealer.keep_expanded();
        opener.keep_expanded();
        Self { sealer, opener, packets: vec![[7; PACKET_BYTES]; BATCH] }
    }

    /// Seals so many packets and opens them, batch by batch; `measured` is called for each batch to open it.
    ///
    /// # Panics
    /// When packet numbers run out, which takes years.
    pub fn run(&mut self, count: u64, mut measured: impl FnMut(&mut dyn FnMut())) {
        let mut left = count;
        while left > 0 {
            let batch = usize::try_from(left).unwrap_or(BATCH).min(BATCH);
            let packets = self.packets.get_mut(..batch).unwrap_or_default();
            let first = self.sealer.next_number().expect("numbers are left");
            for packet in packets.iter_mut() {
                let (header, sealed) = packet.split_at_mut(HEADER_BYTES);
                let (body, tag) = sealed.split_last_chunk_mut::<TAG_BYTES>().expect("room for a tag");
                self.sealer.seal(header, body, tag).expect("numbers are left");
            }
            let opener = &mut self.opener;
            measured(&mut || {
                for (number, packet) in (first..).zip(packets.iter_mut()) {
                    let (header, sealed) = packet.split_at_mut(HEADER_BYTES);
                    black_box(opener.open(number, false, header, sealed).expect("a genuine packet").body);
                }
            });
            left -= batch as u64;
        }
    }
}
