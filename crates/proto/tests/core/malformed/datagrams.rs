//! Datagrams and handshakes of the table of malformed input.
//!
//! Each row has a name, a description, the input in hexadecimal (`00*24` repeats a byte), and the outcome.

use super::{Case, Changes, End, Input, Outcome};
use Outcome::{Accepted, Dropped, Hint, Refused, Retry, Welcome};

pub(super) fn all() -> Vec<Case> {
    let to_server = TO_SERVER.iter().map(|&(name, description, bytes, reason)| {
        Case::new(name, description, End::Server, Input::Datagram(bytes), Dropped(reason))
    });
    let hellos = HELLOS.iter().map(|&(name, description, set, outcome)| {
        Case::new(name, description, End::Server, Input::Hello { set, parameters: &[] }, outcome)
    });
    let parameters = PARAMETERS.iter().map(|&(name, description, parameters, outcome)| {
        Case::new(name, description, End::Server, Input::Hello { set: &[], parameters }, outcome)
    });
    let to_client = TO_CLIENT.iter().map(|&(name, description, bytes, reason)| {
        Case::new(name, description, End::Connecting, Input::Datagram(bytes), Dropped(reason))
    });
    let refuses = REFUSES.iter().map(|&(name, description, head, psk)| {
        Case::new(name, description, End::Connecting, Input::Refuse { head, psk }, Hint)
    });
    let welcomes = WELCOMES.iter().map(|&(name, description, parameters, outcome)| {
        Case::new(name, description, End::Connecting, Input::Welcome { parameters }, outcome)
    });
    to_server.chain(hellos).chain(parameters).chain(to_client).chain(refuses).chain(welcomes).collect()
}

/// To a server. It drops them under these names.
const TO_SERVER: &[(&str, &str, &str, &str)] = &[
    ("empty", "a datagram without a byte", "", "empty"),
    ("fixed-bit-clear", "bit 3 of byte 0 is 0", "01 00*27", "fixed_bits"),
    ("zero-bit-set", "bit 6 of byte 0 is 1", "49 00*27", "fixed_bits"),
    ("kind-0x88", "byte 0 of no kind", "88 00*1199", "unknown_kind"),
    ("kind-0x8e", "byte 0 of no kind", "8e 00*63", "unknown_kind"),
    ("kind-0x8f", "byte 0 of no kind", "8f 00*63", "unknown_kind"),
    ("packet-of-27-bytes", "shorter than any packet", "09 00*26", "wrong_length"),
    ("packet-number-of-no-length", "bits 0 and 1 of byte 0 are 0", "08 00*27", "packet_number_length"),
    ("packet-without-room-for-its-tag", "a header of 13 bytes in 28", "0b 00*27", "wrong_length"),
    ("packet-with-an-invented-id", "the check of the connection id does not hold", "09 00*27", "forged_id"),
    ("hello-of-1199-bytes", "a Hello has 1200 bytes", "89 00*1198", "wrong_length"),
    ("hello-of-1201-bytes", "a Hello has 1200 bytes", "89 00*1200", "wrong_length"),
    ("retry-to-a-server", "only clients receive a Retry", "8a 00*63", "unexpected_kind"),
    ("refuse-to-a-server", "only clients receive a Refuse", "8b 00*50", "unexpected_kind"),
    ("welcome-to-a-server", "only clients receive a Welcome", "8c 00*99", "unexpected_kind"),
    ("reset-to-a-server", "only clients receive a Reset", "8d 00*24", "unexpected_kind"),
    ("reset-of-24-bytes", "a Reset has 25 bytes", "8d 00*23", "wrong_length"),
];

/// Hellos with changes to their sections.
const HELLOS: &[(&str, &str, Changes, Outcome)] = &[
    ("hello-as-it-should-be", "the Hello that the others change", &[], Welcome),
    ("hello-of-version-0", "the server speaks version 1 alone", &[(1, "0000")], Refused(1)),
    ("hello-of-version-2", "the server speaks version 1 alone", &[(1, "0002")], Refused(1)),
    ("hello-of-another-protocol-id", "the server has protocol id 0", &[(3, "0000000000000001")], Refused(8)),
    (
        "hello-for-another-server-key",
        "the server has key id 0",
        &[(19, "00000001")],
        Dropped("unknown_server_key"),
    ),
    ("hello-without-suite-1", "bit 0 of the offer must be set", &[(27, "02")], Dropped("bad_offer")),
    ("hello-with-unknown-suites", "bits of unknown suites are ignored", &[(27, "fd")], Welcome),
    (
        "hello-with-a-token-of-no-key",
        "token key id 0 and a token section that is not zero",
        &[(28, "01")],
        Dropped("token_malformed"),
    ),
    ("hello-with-a-token-in-open-access", "the server takes no tokens", &[(23, "00000001")], Refused(11)),
    ("hello-with-an-invented-cookie", "nothing proves the address", &[(540, "11*32")], Retry),
    ("hello-with-a-wrong-mac1", "a MAC of 16 zero bytes", &[(1184, "00*16")], Dropped("bad_mac1")),
    ("hello-with-a-zero-public-key", "a key agreement of zero", &[(572, "00*32")], Dropped("bad_noise")),
    (
        "hello-with-a-spoiled-payload",
        "the Noise payload does not open",
        &[(604, "00*32")],
        Dropped("bad_noise"),
    ),
];

/// Hellos with changes to their parameters.
const PARAMETERS: &[(&str, &str, Changes, Outcome)] = &[
    ("parameters-with-an-id-of-4-bytes", "0 or 8 bytes", &[(0, "04")], Dropped("bad_parameters")),
    ("parameters-with-datagrams-of-1199", "at least 1200", &[(9, "04af")], Dropped("bad_parameters")),
    ("parameters-with-datagrams-of-65508", "at most 65,507", &[(9, "ffe4")], Dropped("bad_parameters")),
    ("parameters-silent-for-999-ms", "at least 1000 ms", &[(11, "000003e7")], Dropped("bad_parameters")),
    (
        "parameters-unacknowledged-for-999-ms",
        "at least 1000 ms",
        &[(15, "000003e7")],
        Dropped("bad_parameters"),
    ),
    ("parameters-with-timeouts-of-1000-ms", "the shortest", &[(11, "000003e8000003e8")], Welcome),
    ("parameters-with-messages-of-1023", "at least 1024", &[(19, "000003ff")], Dropped("bad_parameters")),
    (
        "parameters-with-messages-of-16777217",
        "at most 16,777,216",
        &[(19, "0100000101100000")],
        Dropped("bad_parameters"),
    ),
    (
        "parameters-with-too-little-credit",
        "63 bytes more than a message",
        &[(19, "000004000000043f")],
        Dropped("bad_parameters"),
    ),
    (
        "parameters-with-the-least-credit",
        "64 bytes more than a message",
        &[(19, "0000040000000440")],
        Welcome,
    ),
    ("parameters-with-bytes-behind-the-fields", "they are ignored", &[(285, "ffffffff")], Welcome),
    ("parameters-with-a-hello-of-256", "the longest application hello", &[(27, "010061")], Welcome),
    ("parameters-with-a-hello-of-257", "at most 256", &[(27, "0101")], Dropped("bad_parameters")),
];

/// To a client that waits for a Welcome. It drops them under these names.
const TO_CLIENT: &[(&str, &str, &str, &str)] = &[
    ("hello-to-a-client", "only servers receive a Hello", "89 00*1199", "unexpected_kind"),
    ("retry-of-63-bytes", "at least 64", "8a {client id} 00*54", "wrong_length"),
    ("retry-of-97-bytes", "at most 96", "8a {client id} 00*88", "wrong_length"),
    ("retry-with-another-client-id", "it answers another Hello", "8a 00*63", "unknown_client_id"),
    ("refuse-of-50-bytes", "at least 51", "8b {client id} 00*41", "wrong_length"),
    ("refuse-with-another-client-id", "it answers another Hello", "8b 00*50", "unknown_client_id"),
    ("welcome-of-56-bytes", "at least 57", "8c {client id} 00*47", "wrong_length"),
    ("welcome-with-another-client-id", "it answers another Hello", "8c 00*99", "unknown_client_id"),
    ("welcome-that-does-not-open", "a Noise message of zeros", "8c {client id} 00*91", "bad_welcome"),
    ("reset-before-the-welcome", "the client has no token to compare with", "8d 00*24", "bad_reset"),
    ("packet-before-the-welcome", "the client has no keys", "09 00*27", "no_keys"),
];

/// Refuses to such a client, and the psk of their MAC.
const REFUSES: &[(&str, &str, &str, Option<&str>)] = &[
    (
        "refuse-without-a-mac",
        "it counts as one of three, and its address is not followed",
        "8b {client id} 07 0001 0001 0000 04 c6336404 00*12 2328",
        None,
    ),
    (
        "refuse-with-a-mac-under-zeros",
        "without a token no MAC is valid, also not one under 32 zero bytes",
        "8b {client id} 07 0001 0001 0000 04 c6336404 00*12 2328",
        Some("00*32"),
    ),
    (
        "refuse-with-an-unknown-reason",
        "a reason of a later version ends an attempt too",
        "8b {client id} c8 00*25",
        None,
    ),
    (
        "refuse-with-an-address-of-no-family",
        "a form other than 4 and 6 means no address",
        "8b {client id} 07 0001 0001 0000 05 00*18",
        None,
    ),
];

/// Welcomes with changes to their parameters.
const WELCOMES: &[(&str, &str, Changes, Outcome)] = &[
    ("welcome-as-it-should-be", "the Welcome that the others change", &[], Accepted),
    ("welcome-with-suite-0", "suites are numbered from 1", &[(24, "00")], Dropped("bad_welcome")),
    ("welcome-with-suite-3", "a suite that does not exist", &[(24, "03")], Dropped("bad_welcome")),
    ("welcome-with-datagrams-of-1199", "at least 1200", &[(25, "04af")], Dropped("bad_welcome")),
    ("welcome-silent-for-999-ms", "at least 1000 ms", &[(27, "000003e7")], Dropped("bad_welcome")),
    ("welcome-with-a-longer-timeout", "the client's own timeout holds", &[(27, "00015f90")], Accepted),
    ("welcome-with-messages-of-1023", "at least 1024", &[(35, "000003ff")], Dropped("bad_welcome")),
    (
        "welcome-with-too-little-credit",
        "63 bytes more than a message",
        &[(35, "000004000000043f")],
        Dropped("bad_welcome"),
    ),
];
