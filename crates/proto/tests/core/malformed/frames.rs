//! Frames of the table of malformed input, in packets with real keys.
//!
//! Each row has a name, a description, the frames of the packets before, those of the packet, and the outcome. Frames are in
//! hexadecimal, as PROTOCOL.md writes them, so that no row depends on an encoder; `00*24` repeats a byte.

use super::{Case, End, Input, Outcome};
use Outcome::{Accepted, Closed, Dropped};

type Row = (&'static str, &'static str, &'static [&'static str], &'static str, Outcome);

pub(super) fn all() -> Vec<Case> {
    let rows = |to, rows: &[Row]| -> Vec<Case> {
        let case = |&(name, description, before, frames, outcome): &Row| {
            Case::new(name, description, to, Input::Frames { before, frames }, outcome)
        };
        rows.iter().map(case).collect()
    };
    [rows(End::Server, TO_SERVER), rows(End::Server, ABOUT_MESSAGES), rows(End::Client, TO_CLIENT)].concat()
}

/// To a server.
const TO_SERVER: &[Row] = &[
    ("no-frames", "a packet of padding alone", &[], "00000000", Accepted),
    ("unknown-frame", "a type of no frame", &[], "7f", Closed("unknown_frame")),
    ("frame-0x06", "reserved for the credit of a channel", &[], "06 00", Closed("unknown_frame")),
    ("unreliable-with-n", "the mode has no ids", &[], "90 00 00", Closed("unknown_frame")),
    ("value-with-n", "values have no ids", &[], "95 00 00 00 00", Closed("unknown_frame")),
    ("value-in-pieces", "values have no pieces", &[], "8d 00 00 00 02 00 01 41", Closed("unknown_frame")),
    (
        "error-behind-good-frames",
        "the Message before it does not count",
        &[],
        "80 00 01 41 7f",
        Closed("unknown_frame"),
    ),
    (
        "error-behind-a-close",
        "the packet is checked as a whole first",
        &[],
        "03 00 00 00 7f",
        Closed("unknown_frame"),
    ),
    ("varint-with-a-zero-behind", "0 in two bytes", &[], "05 80 00", Closed("bad_varint")),
    ("varint-of-eleven-bytes", "at most ten", &[], "05 ffffffffffffffffffff01", Closed("bad_varint")),
    (
        "varint-above-64-bits",
        "the tenth byte is at most 1",
        &[],
        "05 ffffffffffffffffff02",
        Closed("bad_varint"),
    ),
    ("varint-that-does-not-end", "the packet ends inside it", &[], "05 80", Closed("truncated")),
    ("ack-of-unsent", "packet 1,000 was never sent", &[], "02 e807 00 00 00", Closed("ack_of_unsent")),
    ("ack-below-packet-0", "the first range begins at -1", &[], "02 00 00 00 01", Closed("bad_ack_range")),
    (
        "ack-gap-below-packet-0",
        "the second range ends at -2",
        &[],
        "02 00 00 01 00 00 00",
        Closed("bad_ack_range"),
    ),
    (
        "ack-range-below-packet-0",
        "the second range begins at -1",
        &[],
        "02 02 00 01 00 00 01",
        Closed("bad_ack_range"),
    ),
    (
        "ack-of-33-ranges",
        "32 after the first",
        &[],
        "02 c801 00 20 00 0000*32",
        Closed("too_many_ack_ranges"),
    ),
    ("ack-without-its-ranges", "the packet ends inside it", &[], "02 0a 00 03 00 00 00", Closed("truncated")),
    ("ack-delayed-too-long", "2,097,152 units", &[], "02 00 80808001 00 00", Closed("bad_ack_delay")),
    ("ack-delayed-longest", "2,097,151 units", &[], "02 00 ffff7f 00 00", Accepted),
    ("two-acks", "a packet has at most one", &[], "02 00 00 00 00 02 00 00 00 00", Closed("second_ack")),
    ("forty-eight-frames", "as many as may be; the padding is one of them", &[], "00 0d01*47", Accepted),
    ("forty-nine-frames", "one more", &[], "00 0d01*48", Closed("too_many_frames")),
    ("padding-is-one-frame", "a run of any length", &[], "00*100 01", Accepted),
    ("close-with-an-unknown-code", "the last is 7", &[], "03 08 00 00", Closed("bad_close")),
    ("close-with-a-large-code", "2^32", &[], "03 00 8080808010 00", Closed("bad_close")),
    ("close-with-a-long-reason", "129 bytes", &[], "0300008101 41*129", Closed("bad_close")),
    ("close-without-its-reason", "3 bytes, of which 1 is there", &[], "03 00 00 03 41", Closed("truncated")),
    ("path-challenge-of-7-bytes", "it has 8", &[], "07 00000000000000", Closed("truncated")),
    ("path-response-of-7-bytes", "it has 8", &[], "08 00000000000000", Closed("truncated")),
    ("path-response-to-nothing", "it is ignored", &[], "08 0000000000000000", Accepted),
    ("timestamp-without-an-ack", "it is ignored", &[], "0d 01", Accepted),
    ("timestamp-without-its-number", "the packet ends before it", &[], "0d", Closed("truncated")),
    ("credit-below-the-last", "it changes nothing", &[], "05 01", Accepted),
    ("new-connection-id-to-a-server", "only servers give ids", &[], "09 01  00*24", Closed("wrong_side")),
    ("resume-token-to-a-server", "only servers give tokens", &[], "0b 0258  00*544", Closed("wrong_side")),
    ("retirement-of-an-unknown-id", "it was never given", &[], "0a 63", Closed("connection_ids")),
    ("retirement-of-the-last-id", "both ids at once", &[], "0a 00 0a 01", Closed("connection_ids")),
    ("retirement-without-its-number", "the packet ends before it", &[], "0a", Closed("truncated")),
];

/// Messages, Fragments, and Skips to a server.
const ABOUT_MESSAGES: &[Row] = &[
    ("message-mode-6", "a mode of no message", &[], "86 00 00", Closed("unknown_frame")),
    ("message-with-bit-5", "bits 5 and 6 are zero", &[], "a0 00 00", Closed("unknown_frame")),
    ("channel-65536", "at most 65,535", &[], "80 808004 00", Closed("bad_channel")),
    ("channel-65535", "the last channel", &[], "80 ffff03 00", Accepted),
    (
        "message-longer-than-its-packet",
        "9 bytes of payload, of which 1 is there",
        &[],
        "80 00 09 41",
        Closed("truncated"),
    ),
    ("message-without-its-length", "the packet ends before it", &[], "80 00", Closed("truncated")),
    ("message-of-nothing", "an empty payload is allowed", &[], "80 00 00", Accepted),
    ("n-at-the-front", "no message before it", &[], "93 00 00 01 41", Closed("bad_message_id")),
    (
        "n-behind-an-unreliable-message",
        "that one has no id",
        &[],
        "80 00 00 92 00 01 41",
        Closed("bad_message_id"),
    ),
    (
        "n-behind-a-value",
        "a value does not count",
        &[],
        "85 00 01 00 00 92 00 01 41",
        Closed("bad_message_id"),
    ),
    (
        "n-behind-a-skip",
        "a Skip does not count",
        &[],
        "04 00 00 00 01 93 00 00 01 41",
        Closed("bad_message_id"),
    ),
    ("n-behind-a-fragment", "a Fragment counts", &[], "8a 00 00 02 00 01 41 92 00 01 41", Accepted),
    (
        "skip-between-a-message-and-n",
        "N counts from the message before the Skip",
        &[],
        "82 00 00 01 41 04 00 02 00 01 92 00 01 41",
        Accepted,
    ),
    ("order-below-zero", "id 0 one after id -1", &[], "83 00 00 01 00", Closed("bad_order")),
    ("skip-with-an-order-below-zero", "as of a message", &[], "04 00 00 01 00", Closed("bad_order")),
    ("id-4096-ahead", "the last in reach", &[], "82 00 8020 01 41", Accepted),
    ("id-4097-ahead", "beyond the floor's reach", &[], "82 00 8120 01 41", Closed("message_too_far_ahead")),
    ("skip-4097-ahead", "as of a message", &[], "04 00 8120 00 00", Closed("message_too_far_ahead")),
    (
        "fragment-4097-ahead",
        "as of a message",
        &[],
        "8a 00 8120 02 00 01 41",
        Closed("message_too_far_ahead"),
    ),
    ("id-received-before", "it is ignored", &["8200000141"], "82 00 00 01 42", Accepted),
    ("skip-of-16777217-bytes", "at most 16,777,216", &[], "04 00 00 00 81808008", Closed("bad_skip")),
    ("skip-without-credit", "its bytes are charged", &[], "04 00 00 00 80808008", Closed("credit_exceeded")),
    (
        "skip-of-a-received-message",
        "it is ignored, whatever it says",
        &["8200000141"],
        "04 00 00 00 80808008",
        Accepted,
    ),
    (
        "fragment-of-nothing",
        "a piece has at least one byte",
        &[],
        "8a 00 00 02 00 00",
        Closed("bad_fragment"),
    ),
    (
        "fragment-beyond-its-message",
        "bytes 1 and 2 of 2",
        &[],
        "8a 00 00 02 01 02 4141",
        Closed("bad_fragment"),
    ),
    ("fragment-behind-its-message", "byte 2 of 2", &[], "8a 00 00 02 02 01 41", Closed("bad_fragment")),
    (
        "fragment-that-is-the-message",
        "one piece may be the whole message",
        &[],
        "8a 00 00 01 00 01 41",
        Accepted,
    ),
    (
        "fragment-at-the-end-of-u32",
        "offset and length together are too large",
        &[],
        "8a 00 00 02 ffffffff0f 01 41",
        Closed("bad_fragment"),
    ),
    (
        "fragment-of-16777217-bytes",
        "at most 16,777,216 in any message",
        &[],
        "8a 00 00 81808008 00 01 41",
        Closed("bad_fragment"),
    ),
    (
        "fragment-of-65537-bytes",
        "the server accepts 65,536",
        &[],
        "8a 00 00 818004 00 01 41",
        Closed("message_too_long"),
    ),
    (
        "unreliable-fragment-of-16385-bytes",
        "at most 16,384",
        &[],
        "88 00 00 818001 00 01 41",
        Closed("message_too_long"),
    ),
    ("unreliable-fragment-of-16384-bytes", "the longest", &[], "88 00 00 808001 00 01 41", Accepted),
    (
        "fragment-begun-in-a-later-packet",
        "its number is above its packet's",
        &[],
        "88 00 e807 02 00 01 41",
        Closed("bad_fragment"),
    ),
    ("sixty-four-in-pieces", "as many as may be", &["begun*0..24", "begun*24..48"], "begun*48..64", Accepted),
    (
        "sixty-five-in-pieces",
        "one more",
        &["begun*0..24", "begun*24..48", "begun*48..64"],
        "8a 00 40 02 00 01 41",
        Closed("too_many_in_pieces"),
    ),
    ("twenty-four-fragments", "each counts as two frames", &[], "begun*0..24", Accepted),
    ("twenty-five-fragments", "50 frames", &[], "begun*0..25", Closed("too_many_frames")),
    ("value-of-1024-bytes", "the longest", &[], "85 00 00 00 8008 41*1024", Accepted),
    ("value-of-1025-bytes", "one byte more", &[], "85 00 00 00 8108 41*1025", Closed("message_too_long")),
    (
        "pieces-of-two-lengths",
        "the second says 3 bytes in place of 2",
        &["8a000002000141"],
        "8a 00 00 03 01 01 41",
        Dropped("pieces_disagree"),
    ),
    (
        "pieces-of-two-channels",
        "the second says channel 1",
        &["8a000002000141"],
        "8a 01 00 02 01 01 41",
        Dropped("pieces_disagree"),
    ),
    (
        "pieces-of-two-lengths-in-one-packet",
        "the second says 3 bytes in place of 2",
        &[],
        "8a 00 00 02 00 01 41 8a 00 00 03 01 01 41",
        Dropped("pieces_disagree"),
    ),
    (
        "message-unlike-its-pieces",
        "1 byte in place of 2",
        &["8a000002000141"],
        "82 00 00 01 41",
        Dropped("pieces_disagree"),
    ),
    (
        "message-like-its-pieces",
        "a whole message may follow its pieces",
        &["8a000002000141"],
        "82 00 00 02 4141",
        Accepted,
    ),
    (
        "skip-unlike-its-pieces",
        "3 bytes in place of 2",
        &["8a000002000141"],
        "04 00 00 00 03",
        Dropped("pieces_disagree"),
    ),
    (
        "skip-like-its-pieces",
        "a Skip may follow the pieces of its message",
        &["8a000002000141"],
        "04 00 00 00 02",
        Accepted,
    ),
    (
        "pieces-of-two-modes",
        "the second says ReliableSequenced",
        &["8a000002000141"],
        "8c 00 00 02 01 01 41",
        Dropped("pieces_disagree"),
    ),
];

/// To a client.
const TO_CLIENT: &[Row] = &[
    ("three-spare-ids", "four in all", &[], "09 01 01 00*23 09 02 02 00*23 09 03 03 00*23", Accepted),
    (
        "four-spare-ids",
        "five in all",
        &[],
        "09 01 01 00*23 09 02 02 00*23 09 03 03 00*23 09 04 04 00*23",
        Closed("connection_ids"),
    ),
    ("spare-id-twice", "it is ignored", &["09 01 01 00*23"], "09 01 01 00*23", Accepted),
    (
        "new-connection-id-of-23-bytes",
        "it has 24 behind its number",
        &[],
        "09 01 01 00*22",
        Closed("truncated"),
    ),
    ("retirement-to-a-client", "only clients retire ids", &[], "0a 00", Closed("wrong_side")),
    ("resume-token-in-a-session", "a life of 600 s", &[], "0b 0258  00*544", Accepted),
    (
        "resume-token-that-is-cut",
        "it has 546 bytes behind its type",
        &[],
        "0b 0258  00*543",
        Closed("truncated"),
    ),
    (
        "ack-of-unsent-to-a-client",
        "packet 1,000 was never sent",
        &[],
        "02 e807 00 00 00",
        Closed("ack_of_unsent"),
    ),
];
