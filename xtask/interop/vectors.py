"""The vectors of crates/wire/vectors against a second implementation, written from crates/wire/PROTOCOL.md alone.

    python vectors.py ../../crates/wire/vectors
"""

import base64
import ipaddress
import json
import pathlib
import struct
import sys

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from noise.connection import Keypair, NoiseConnection
from standard import (
    HELLO, PATTERN, REFUSE, RESET, RETRY, WELCOME, Failure, Keys, blake2s, expand, hkdf3, keyed_blake2s, mac1, refuse_mac,
)

WORD = (1 << 64) - 1


def siphash_2_4(key, data, is_double=False):
    """With 64 bits of output, or with 128."""

    def rotate(value, by):
        return (value << by | value >> 64 - by) & WORD

    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ (0xEE if is_double else 0), k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & WORD
            v[1] = rotate(v[1], 13) ^ v[0]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[3]) & WORD
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & WORD
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & WORD
            v[1] = rotate(v[1], 17) ^ v[2]
            v[2] = rotate(v[2], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE if is_double else 0xFF
    rounds(4)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    if not is_double:
        return struct.pack("<Q", low)
    v[1] ^= 0xDD
    rounds(4)
    return struct.pack("<QQ", low, v[0] ^ v[1] ^ v[2] ^ v[3])


def hchacha20(key, nonce):
    def rotate(value, by):
        return (value << by | value >> 32 - by) & 0xFFFFFFFF

    x = list(struct.unpack("<16I", b"expand 32-byte k" + key + nonce))

    def quarter(a, b, c, d):
        for first, second, third, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[first] = (x[first] + x[second]) & 0xFFFFFFFF
            x[third] = rotate(x[third] ^ x[first], by)

    for _ in range(10):
        for column in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)):
            quarter(*column)
        for diagonal in ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            quarter(*diagonal)
    return struct.pack("<8I", *x[:4], *x[12:])


def xchacha20_poly1305(key, nonce, text, associated):
    return ChaCha20Poly1305(hchacha20(key, nonce[:16])).encrypt(bytes(4) + nonce[16:], text, associated)


def address_of(text):
    host, _, port = text.rpartition(":")
    return ipaddress.ip_address(host.strip("[]")), int(port)


def in_sixteen(host):
    return host.packed if host.version == 6 else bytes(10) + b"\xff\xff" + host.packed


def cookie_of(process_key, seconds, address, client_id, check):
    host, port = address_of(address)
    bucket = seconds // 5
    secret = keyed_blake2s(process_key, b"drumfire cookie", struct.pack(">Q", bucket // 12))
    covered = in_sixteen(host) + struct.pack(">H", port) + client_id + struct.pack(">Q", bucket) + check
    return siphash_2_4(secret, covered, is_double=True)


def id_keys(server_secret_key, server_id):
    persistent, _, _ = hkdf3(server_secret_key, b"drumfire persistent")
    block, reset_key, _ = hkdf3(persistent, b"drumfire id" + server_id)
    return persistent, block[:16], reset_key


def connection_id(check_key, tag, random):
    unchecked = struct.pack(">H", tag) + random
    return unchecked + siphash_2_4(check_key, unchecked)[:3]


class Inputs:
    def __init__(self, values):
        self.values = values

    def __getitem__(self, name):
        return self.values[name]

    def bytes(self, name):
        return bytes.fromhex(self.values[name])


def cookie(inputs):
    made = cookie_of(
        inputs.bytes("process_key"), inputs["seconds"], inputs["address"], inputs.bytes("client_id"), inputs.bytes("mac1")
    )
    return {"cookie": made.hex()}


def refusal(inputs):
    out = struct.pack(">B8sB", REFUSE, inputs.bytes("client_id"), inputs["reason"])
    out += struct.pack(">HHH", inputs["version_min"], inputs["version_max"], inputs["retry_after_s"])
    if inputs["address"] is None:
        out += bytes(19)
    else:
        host, port = address_of(inputs["address"])
        out += struct.pack(">B16sH", host.version, host.packed, port)
    mac = bytes(16)
    if inputs["psk"] is not None:
        mac = refuse_mac(inputs.bytes("psk"), out, inputs.bytes("message_1"))
    return {"refuse": (out + mac).hex()}


def mac(inputs):
    psk, covered = inputs.bytes("psk"), inputs.bytes("covered")
    if inputs["kind"] == "refuse":
        return {"mac": refuse_mac(psk, covered[:35], covered[35:]).hex()}
    key = blake2s(b"drumfire mac1", inputs.bytes("server_public_key"), psk)
    return {"mac": keyed_blake2s(key, covered).hex()}


def text(inputs):
    host, port = address_of(inputs["address"])
    ids = inputs["protocol_id"], inputs["expires_at"], inputs["token_key_id"]
    out = b"\x01" + inputs.bytes("server_public_key") + struct.pack(">QQI", *ids) + inputs.bytes("psk")
    out += inputs.bytes("sealed_token") + in_sixteen(host) + struct.pack(">H", port)
    return {"text": "drumfire_connect_" + base64.urlsafe_b64encode(out).decode().rstrip("=")}


def reset(inputs):
    persistent, check_key, reset_key = id_keys(inputs.bytes("server_secret_key"), inputs.bytes("server_id"))
    name = connection_id(check_key, inputs["routing_tag"], inputs.bytes("random"))
    datagram = bytes([RESET]) + name + keyed_blake2s(reset_key, name)
    return {"persistent_secret": persistent.hex(), "connection_id": name.hex(), "reset": datagram.hex()}


def token(inputs):
    is_resume = inputs["kind"] == "resume"
    if is_resume:
        persistent, _, _ = id_keys(inputs.bytes("server_secret_key"), b"")
        key, _, _ = hkdf3(persistent, b"drumfire resume key" + inputs.bytes("server_id"))
    else:
        label = b"drumfire token key" + struct.pack(">I", inputs["token_key_id"])
        key, _, _ = hkdf3(inputs.bytes("master_key"), label + inputs.bytes("server_id"))
    user_data = inputs.bytes("user_data")
    placement_key = inputs["placement_key"]
    body = struct.pack(
        ">B16s16s32sQQQQBQH256s108x",
        2 if is_resume else 1, inputs.bytes("token_id"), inputs.bytes("player"), inputs.bytes("psk"), inputs["audience"],
        inputs["issued_at"], inputs["expires_at"], inputs["session_ends_at"], placement_key is not None, placement_key or 0,
        len(user_data), user_data,
    )
    associated = b"drumfire token" + struct.pack(">IQ", inputs["token_key_id"], inputs["protocol_id"])
    nonce = inputs.bytes("nonce")
    return {"token_key": key.hex(), "sealed_token": (nonce + xchacha20_poly1305(key, nonce, body, associated)).hex()}


def noise_of(inputs, prologue, server_public_key, is_client):
    noise = NoiseConnection.from_name(PATTERN)
    noise.set_psks(inputs.bytes("psk"))
    noise.set_prologue(prologue)
    if is_client:
        noise.set_as_initiator()
        noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, server_public_key)
        noise.set_keypair_from_private_bytes(Keypair.EPHEMERAL, inputs.bytes("client_ephemeral"))
    else:
        noise.set_as_responder()
        noise.set_keypair_from_private_bytes(Keypair.STATIC, inputs.bytes("server_secret_key"))
        noise.set_keypair_from_private_bytes(Keypair.EPHEMERAL, inputs.bytes("server_ephemeral"))
    noise.start_handshake()
    return noise


def shared_parameters(inputs, side):
    names = ("datagram_max_bytes", "idle_timeout_ms", "unacknowledged_timeout_ms", "message_max_bytes", "credit_bytes")
    return struct.pack(">HIIII", *(inputs[f"{side}_{name}"] for name in names))


def session(inputs):
    secret_key, psk, client_id = inputs.bytes("server_secret_key"), inputs.bytes("psk"), inputs.bytes("client_id")
    public_key = X25519PrivateKey.from_private_bytes(secret_key).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    ids = inputs["server_key_id"], inputs["token_key_id"], inputs["offered_suites"]
    head = struct.pack(">BHQ8sIIB", HELLO, inputs["version"], inputs["protocol_id"], client_id, *ids)
    prologue = head + inputs.bytes("sealed_token") + bytes(32)
    client = noise_of(inputs, prologue, public_key, is_client=True)
    client_connection_id = bytes.fromhex(inputs["client_connection_id"] or "")
    payload = bytes([len(client_connection_id)]) + client_connection_id.ljust(8, b"\0") + shared_parameters(inputs, "client")
    application_hello = inputs.bytes("application_hello")
    payload += struct.pack(">H", len(application_hello)) + application_hello
    message_1 = bytes(client.write_message(payload.ljust(564, b"\0")))
    hello = prologue + message_1
    hello += mac1(public_key, psk, hello)
    cookie = cookie_of(inputs.bytes("server_process_key"), inputs["cookie_seconds"], inputs["client_address"], client_id, hello[1184:])
    cookie = cookie.ljust(32, b"\0")

    _, check_key, reset_key = id_keys(secret_key, inputs.bytes("server_id"))
    name = connection_id(check_key, inputs["routing_tag"], inputs.bytes("connection_id_random"))
    server = noise_of(inputs, prologue, public_key, is_client=False)
    server.read_message(message_1)
    payload = name + keyed_blake2s(reset_key, name) + bytes([inputs["suite"]]) + shared_parameters(inputs, "server")
    welcome = bytes([WELCOME]) + client_id + bytes(server.write_message(payload))
    client.read_message(welcome[9:])
    return {
        "server_public_key": public_key.hex(),
        "hello": hello.hex(),
        "retry": (bytes([RETRY]) + client_id + cookie + bytes(23)).hex(),
        "hello_with_cookie": (hello[:540] + cookie + hello[572:]).hex(),
        "connection_id": name.hex(),
        "welcome": welcome.hex(),
        "packets": packets(inputs, client.noise_protocol, {"client": name, "server": client_connection_id}),
    }


def packets(inputs, split, names):
    chains = {"client": bytes(split.cipher_state_encrypt.k), "server": bytes(split.cipher_state_decrypt.k)}
    keys = {side: Keys(chain, inputs["suite"]) for side, chain in chains.items()}
    largest = {"client": None, "server": None}
    out = []
    for packet in inputs["packets"]:
        side, number, frames = packet["from"], packet["number"], bytes.fromhex(packet["frames"])
        while keys[side].epoch < packet["epoch"]:
            keys[side] = keys[side].next()
        length = next(length for length in (2, 3, 4) if number < 1 << 8 * length - 1)
        if expand(number & (1 << 8 * length) - 1, length, largest[side]) != number:
            raise Failure(f"packet number {number} is not found again")
        largest[side] = number
        header = bytes([0x08 | (packet["epoch"] & 1) << 2 | length - 1]) + names[side]
        header += (number & (1 << 8 * length) - 1).to_bytes(length, "big")
        out.append((header + keys[side].seal(number, header, frames)).hex())
    return out


FILES = {
    "cookies.json": cookie, "macs.json": mac, "refusals.json": refusal, "resets.json": reset, "sessions.json": session,
    "texts.json": text, "tokens.json": token,
}


def main():
    folder = pathlib.Path(sys.argv[1])
    count = 0
    # `malformed.py` checks the last of them.
    if {path.name for path in folder.glob("*.json")} != {*FILES, "malformed.json"}:
        raise SystemExit(f"{folder}: not the files that this program knows")
    for file, outputs_of in FILES.items():
        for name, entry in json.loads((folder / file).read_text()).items():
            computed = outputs_of(Inputs(entry["inputs"]))
            for field, expected in entry["outputs"].items():
                if computed.get(field) != expected:
                    raise SystemExit(f"{file}, {name}: {field} is {expected} there and {computed.get(field)} here")
                count += 1
    print(f"{count} vectors in {len(FILES)} files agree")


if __name__ == "__main__":
    main()
