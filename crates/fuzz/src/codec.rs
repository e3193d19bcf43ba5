//! F1 and F2: the headers of datagrams and the frames of packets, without keys.

use allocation_counter::measure;
use drumfire_puppet::encoded;
use drumfire_wire::{ConnectionIdLength, Frames, Refuse, Reset, TransportHeader};

use crate::samples::{packet, walk};
use crate::soundness::{assert_decoders_agree, assert_walk_is_sound};

/// F1: all decoders of datagrams. At most one accepts the bytes, without allocating, and encoding returns them.
pub(crate) fn datagram(data: &[u8]) {
    assert_eq!(measure(|| assert_decoders_agree(data)).count_total, 0, "decoding does not allocate");
    for ids in [ConnectionIdLength::Zero, ConnectionIdLength::Eight] {
        if let Ok(header) = TransportHeader::decode(data, ids) {
            assert_eq!(encoded(|again| header.encode(again)), data[..header.encoded_bytes()]);
        }
    }
    if let Ok(refuse) = Refuse::decode(data) {
        assert_eq!(Refuse::decode(&encoded(|again| refuse.encode(again))), Ok(refuse));
    }
    if let Ok(reset) = Reset::decode(data) {
        assert_eq!(Reset::decode(&encoded(|again| reset.encode(again))), Ok(reset));
    }
}

/// F2: the frames of a packet. Frames that were decoded can be encoded, and decode to the same.
pub(crate) fn frames(data: &[u8]) {
    assert_eq!(measure(|| assert_walk_is_sound(data)).count_total, 0, "decoding does not allocate");
    for frame in Frames::new(data).flatten() {
        assert_eq!(frame.is_ack_eliciting(), frame.kind().is_ack_eliciting(), "{frame:?}");
    }
    let (samples, _) = walk(data);
    assert_eq!(walk(&packet(&samples)), (samples, None));
}
