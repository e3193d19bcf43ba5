"""What crates/wire/PROTOCOL.md says about bytes and keys, for the client and the check of the vectors."""

import hashlib
import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

PATTERN = b"Noise_NKpsk0_25519_ChaChaPoly_BLAKE2s"
HELLO, RETRY, REFUSE, WELCOME, RESET = 0x89, 0x8A, 0x8B, 0x8C, 0x8D
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


class Reader:
    """The bytes of an opened packet, from front to end."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        part = self.data[self.at : self.at + count]
        if len(part) < count:
            raise Failure("a frame ends outside its packet")
        self.at += count
        return part

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def is_empty(self):
        return self.at == len(self.data)


def hkdf3(chain, data):
    def mac(key, text):
        return hmac.new(key, text, hashlib.blake2s).digest()

    temporary = mac(chain, data)
    first = mac(temporary, b"\x01")
    second = mac(temporary, first + b"\x02")
    return first, second, mac(temporary, second + b"\x03")


class Keys:
    """One direction in one epoch ("Seal, keys and key epochs")."""

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
    """The number nearest to the expected one ("Packet numbers")."""
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


def mac1(server_public_key, psk, hello):
    """Over the Hello up to mac1, without token and cookie."""
    covered = hello[:28] + hello[572:1184]
    return keyed_blake2s(blake2s(b"drumfire mac1", server_public_key, psk), covered)
