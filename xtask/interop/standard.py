"""What crates/wire/PROTOCOL.md says about bytes and keys, for the client and the check of the vectors."""

import hashlib
import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

PATTERN = b"Noise_NKpsk0_25519_ChaChaPoly_BLAKE2s"
TRANSPORT, HELLO, RETRY, REFUSE, WELCOME, RESET = 0x00, 0x89, 0x8A, 0x8B, 0x8C, 0x8D
VERSION = 1


class Failure(Exception):
    """Something that the standard does not allow, or that did not come in time."""


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def hkdf3(chain, data):
    def mac(key, text):
        return hmac.new(key, text, hashlib.blake2s).digest()

    temporary = mac(chain, data)
    first = mac(temporary, b"\x01")
    second = mac(temporary, first + b"\x02")
    return first, second, mac(temporary, second + b"\x03")


class Keys:
    """One direction in one epoch (section 4.3)."""

    def __init__(self, chain, suite, epoch=0):
        self.suite, self.epoch = suite, epoch
        self.chain, key, iv = hkdf3(chain, b"drumfire epoch" + bytes([suite]))
        self.iv = iv[:12]
        self.aead = ChaCha20Poly1305(key) if suite == 1 else AESGCM(key[:16])

    def next(self):
        return Keys(self.chain, self.suite, self.epoch + 1)

    def nonce(self, number):
        return self.iv[:4] + struct.pack(">Q", struct.unpack(">Q", self.iv[4:])[0] ^ number)

    def seal(self, number, header, frames):
        return self.aead.encrypt(self.nonce(number), frames, header)

    def open(self, number, header, sealed):
        try:
            return self.aead.decrypt(self.nonce(number), sealed, header)
        except InvalidTag:
            return None


def expand(low, length, largest):
    """The number nearest to the expected one (section 6.2)."""
    expected = 0 if largest is None else largest + 1
    window = 1 << (8 * length)
    candidate = expected & ~(window - 1) | low
    if candidate <= expected and expected - candidate >= window // 2 and candidate + window < 1 << 64:
        return candidate + window
    if candidate > expected and candidate - expected > window // 2 and candidate >= window:
        return candidate - window
    return candidate


def blake2s(*parts):
    return hashlib.blake2s(b"".join(parts)).digest()


def keyed_blake2s(key, *parts):
    return hashlib.blake2s(b"".join(parts), key=key, digest_size=16).digest()


def refuse_mac(psk, refuse, message_1):
    """The MAC of a Refuse. Without a token there is no psk, and no MAC is valid (section 16)."""
    return keyed_blake2s(blake2s(b"drumfire refuse", psk), refuse[:35], message_1)


def are_server_parameters_good(payload, offered):
    """Whether all fields of a Welcome's parameters are within bounds (section 5.7)."""
    if len(payload) < 43:
        return False
    suite, largest, silent, unacknowledged, message_max, credit = struct.unpack(">BHIIII", payload[24:43])
    is_offered = suite in (1, 2) and bool(offered & 1 << suite - 1)
    is_room = 1024 <= message_max <= 1 << 24 and credit >= message_max + 64
    return is_offered and 1200 <= largest <= 65_507 and min(silent, unacknowledged) >= 1000 and is_room


def kind_of(datagram):
    """The kind of a datagram by byte 0 and length (section 3.1), or why it is dropped."""
    if not datagram:
        return None, "empty"
    if datagram[0] & 0x78 != 0x08:
        return None, "fixed_bits"
    lengths = {HELLO: (1200, 1200), RETRY: (64, 96), REFUSE: (51, 96), WELCOME: (57, 1200), RESET: (25, 25)}
    kind = datagram[0] if datagram[0] & 0x80 else TRANSPORT
    if kind != TRANSPORT and kind not in lengths:
        return None, "unknown_kind"
    low, high = lengths.get(kind, (28, 65_507))
    return (kind, None) if low <= len(datagram) <= high else (None, "wrong_length")


def mac1(server_public_key, psk, hello):
    """Over the Hello up to mac1, without token and cookie."""
    covered = hello[:28] + hello[572:1184]
    return keyed_blake2s(blake2s(b"drumfire mac1", server_public_key, psk), covered)
