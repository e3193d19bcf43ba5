//! F7 and F8: a server that receives packets sealed with genuine keys. For every content, it closes the connection with a reason or
//! continues, within its memory limits.

use std::time::Duration;

use drumfire_proto::{ChannelId, CloseReason, Message, SendOptions};
use drumfire_wire::{Frame, Frames};

use crate::counted::BOTH_BYTES;
use crate::harness::SERVER;
use crate::input::Input;
use crate::puppet::Puppet;

/// The most bytes of frames in a packet.
const FRAMES_MAX_BYTES: usize = 1_100;

/// F7: one packet, after a change of keys or without one.
pub(crate) fn packet(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.u8();
    let frames = input.bytes(FRAMES_MAX_BYTES);
    let mut puppet = Puppet::connected(1);
    if how & 1 != 0 {
        puppet.change_keys();
    }
    if how & 2 != 0 {
        puppet.server_sends(3);
    }
    puppet.say_bytes(frames);
    let ending = puppet.ending();
    assert!(is_named(ending), "{ending:?}");
    let retires = Frames::new(frames).flatten().any(|frame| matches!(frame, Frame::RetireConnectionId(_)));
    if ending.is_none() && !retires {
        assert!(answers(&mut puppet), "an open connection answers");
    }
}

/// Returns whether a peer with the keys can cause this end of a connection.
pub(crate) const fn is_named(ending: Option<CloseReason>) -> bool {
    matches!(ending, None | Some(CloseReason::Protocol(_) | CloseReason::Remote { .. }))
}

/// Returns whether the server acknowledges a packet that requests an ack.
fn answers(puppet: &mut Puppet) -> bool {
    puppet.hear();
    puppet.say(|writer| writer.ack_request().and_then(|()| writer.padding(8)));
    puppet.world.run(Duration::from_millis(100));
    let heard = puppet.hear();
    heard.iter().any(|(_, frames)| Frames::new(frames).flatten().any(|frame| matches!(frame, Frame::Ack(_))))
}

/// F8: many packets, while the server's application sends, and takes no events. The server holds no more than a connection may.
pub(crate) fn packets(data: &[u8]) {
    let mut input = Input::new(data);
    let mut puppet = Puppet::connected(1);
    let peer = puppet.world.peers(SERVER)[0];
    let mut held = 0;
    while !input.is_empty() {
        let how = input.u8();
        if how & 1 != 0 {
            let pause = Duration::from_millis(u64::from(input.u8()));
            puppet.world.now = puppet.world.now.after(pause);
        }
        if how & 2 != 0 {
            puppet.change_keys();
        }
        let frames = if how & 4 == 0 { usize::from(input.u8()) } else { FRAMES_MAX_BYTES };
        let mut datagram = puppet.datagram(input.bytes(frames));
        held += puppet.hand_counted(&mut datagram, |server, now| {
            if how & 8 != 0 {
                let payload = bytes::Bytes::from_static(&[7; 1_000]);
                let options = if how & 16 == 0 {
                    SendOptions::reliable_unordered()
                } else {
                    SendOptions::unreliable_sequenced()
                };
                // A full queue or a closed connection refuses the message.
                let _ = server.send(now, peer, Message::new(ChannelId(1), payload, options));
            }
        });
        assert!(held <= BOTH_BYTES, "{held} bytes held");
    }
    puppet.world.run(Duration::ZERO);
    let ending = puppet.ending();
    let is_out_of_time = matches!(ending, Some(CloseReason::Silent | CloseReason::Unacknowledged));
    assert!(is_named(ending) || is_out_of_time, "{ending:?}");
}
