//! Properties of the decoders that hold for any bytes. Tests of mutants and fuzz targets check them.

use drumfire_wire::{
    ConnectionIdLength, DatagramError, DatagramKind, Frame, Frames, Hello, Refuse, Reset, Retry,
    TransportHeader, Welcome, limits,
};

/// Checks that a decoder accepts a datagram only if the datagram is of the decoder's kind.
pub(crate) fn assert_decoders_agree(datagram: &[u8]) {
    let kind = DatagramKind::of(datagram);
    assert_eq!(Hello::decode(datagram).is_ok(), kind == Ok(DatagramKind::Hello));
    assert_eq!(Retry::decode(datagram).is_ok(), kind == Ok(DatagramKind::Retry));
    assert_eq!(Welcome::decode(datagram).is_ok(), kind == Ok(DatagramKind::Welcome));
    assert_eq!(Reset::decode(datagram).is_ok(), kind == Ok(DatagramKind::Reset));
    assert!(Refuse::decode(datagram).is_err() || kind == Ok(DatagramKind::Refuse));
    for ids in [ConnectionIdLength::Zero, ConnectionIdLength::Eight] {
        match TransportHeader::decode(datagram, ids) {
            Ok(header) => {
                assert_eq!(kind, Ok(DatagramKind::Transport));
                assert!(header.encoded_bytes() + limits::TAG_BYTES <= datagram.len());
                assert_eq!(header.connection_id.is_some(), ids == ConnectionIdLength::Eight);
            }
            Err(error) => {
                let has_no_length = error == DatagramError::PacketNumberLength;
                let has_no_tag = error == DatagramError::WrongLength && datagram.len() == 28;
                assert!(kind != Ok(DatagramKind::Transport) || has_no_length || has_no_tag, "{error:?}");
                assert!(!error.name().is_empty());
            }
        }
    }
}

/// Checks that the decoded frames are not longer than the packet, that they borrow from the packet, and that nothing follows
/// an error.
pub(crate) fn assert_walk_is_sound(opened: &[u8]) {
    let inside = |part: &[u8]| part.is_empty() || opened.as_ptr_range().contains(&part.as_ptr());
    let mut bytes = 0;
    let mut walk = Frames::new(opened);
    for frame in walk.by_ref() {
        match frame {
            Ok(Frame::Padding { bytes: run }) => bytes += run,
            Ok(Frame::Ping | Frame::AckRequest) => bytes += 1,
            Ok(Frame::Ack(ack)) => {
                assert!((1..=32).contains(&ack.ranges.iter().count()));
                bytes += 5;
            }
            Ok(Frame::Message(message)) => {
                assert!(inside(message.payload));
                bytes += 3 + message.payload.len();
            }
            Ok(Frame::Close(close)) => {
                assert!(inside(close.reason));
                bytes += 4 + close.reason.len();
            }
            Ok(Frame::PathChallenge(_) | Frame::PathResponse(_)) => bytes += 9,
            Ok(Frame::NewConnectionId(_)) => bytes += 26,
            Ok(Frame::RetireConnectionId(_)) => bytes += 2,
            Ok(Frame::Fragment(fragment)) => {
                assert!(inside(fragment.message.payload) && !fragment.message.payload.is_empty());
                assert!(fragment.end_bytes().is_some_and(|end| end <= fragment.total_bytes));
                bytes += 6 + fragment.message.payload.len();
            }
            Ok(Frame::Credit(_) | Frame::Timestamp(_)) => bytes += 2,
            Ok(Frame::Run(run)) => {
                assert!(inside(run.bodies.bytes) && (1..=512).contains(&run.bodies.count));
                let payloads = || run.bodies.payloads().map(<[u8]>::len);
                assert_eq!(payloads().count(), usize::from(run.bodies.count));
                assert_eq!(payloads().sum::<usize>(), usize::try_from(run.bodies.payload_bytes).unwrap());
                assert_eq!(payloads().max(), usize::try_from(run.longest_bytes).ok());
                bytes += 3 + run.bodies.bytes.len();
            }
            Ok(Frame::Skip(_)) => bytes += 5,
            Ok(Frame::SkipRun(skip)) => {
                assert!(inside(skip.lengths.bytes) && (1..=512).contains(&skip.lengths.count));
                assert_eq!(skip.lengths.iter().count(), usize::from(skip.lengths.count));
                bytes += 5 + skip.lengths.bytes.len();
            }
            Ok(Frame::ResumeToken(token)) => {
                assert!(inside(token.psk) && inside(token.sealed));
                bytes += 547;
            }
            Err(error) => {
                assert!(!error.name().is_empty());
                break;
            }
        }
        assert!(bytes <= opened.len(), "frames of {bytes} bytes in {}", opened.len());
    }
    assert_eq!(walk.next(), None);
}
