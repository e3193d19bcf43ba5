"""A second client, written from crates/wire/PROTOCOL.md alone: sessions against a real echo server.

    python client.py 127.0.0.1:7777 drumfire_public_... --sessions 100

Each session connects, has messages echoed in both modes, changes its keys, has messages echoed again, moves to another
port under a spare connection id (every fifth), and closes. It is a check of the standard and not a library: it sends
what it lost again in the simplest way there is, and knows no congestion control.
"""

import argparse
import base64
import os
import socket
import struct
import time

from frames import ORDERED, QUIET, decode
from noise.connection import Keypair, NoiseConnection
from standard import (
    HELLO, PATTERN, REFUSE, RESET, RETRY, VERSION, WELCOME, Failure, Keys, are_server_parameters_good, expand, mac1, varint,
)

PATIENCE = 5.0


class Closed(Failure):
    """The server closed the connection."""

    def __init__(self, code, application_code, reason):
        super().__init__(f"the server closed: {code}, {application_code}, {reason}")
        self.code, self.reason = code, reason.decode()


class Session:
    """One connection, from Hello to Close."""

    def __init__(self, server, public_key, suites):
        self.server, self.public_key, self.suites = server, public_key, suites
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.number, self.largest, self.received = 0, None, []
        self.is_ack_pending = False
        self.acked = set()
        self.unacked = {}  # packet number -> frames to repeat
        self.sent_at = {}
        self.first_ack_of_epoch = None
        self.epoch_base = 0
        self.previous = None
        self.next_id, self.floor, self.waiting, self.delivered = 0, 0, {}, set()
        self.messages = []
        self.spare_ids = {}
        self.is_closed = False

    # The handshake.

    def connect(self):
        client_id = os.urandom(8)
        head = struct.pack(">BHQ8sIIB", HELLO, VERSION, 0, client_id, 0, 0, self.suites) + bytes(512)
        prologue = head + bytes(32)
        noise = NoiseConnection.from_name(PATTERN)
        noise.set_as_initiator()
        noise.set_psks(bytes(32))
        noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, self.public_key)
        noise.set_prologue(prologue)
        noise.start_handshake()
        parameters = struct.pack(">B8sHIIII", 0, bytes(8), 1200, 30_000, 10_000, 1024, 1 << 31)
        # Some sessions have no application hello, and some have the longest.
        hello = bytes(client_id[0] + 1) if client_id[1] & 1 else b""
        parameters += struct.pack(">H", len(hello)) + hello
        message_1 = bytes(noise.write_message(parameters.ljust(564, b"\0")))
        check = mac1(self.public_key, bytes(32), prologue + message_1)
        cookie, until = bytes(32), time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.send(head + cookie + message_1 + check)
            answer = self.receive(0.25)
            if answer is None or answer[1:9] != client_id:
                continue
            if answer[0] == RETRY and 64 <= len(answer) <= 96:
                cookie = answer[9:41]
            elif answer[0] == WELCOME:
                payload = bytes(noise.read_message(answer[9:]))
                return self.welcomed(noise, payload)
            elif answer[0] == REFUSE:
                raise Failure(f"refused for reason {answer[9]}")
        raise Failure("no Welcome")

    def welcomed(self, noise, payload):
        self.connection_id, self.reset_token = payload[0:8], payload[8:24]
        if not are_server_parameters_good(payload, self.suites):
            raise Failure("a suite that was not offered, or parameters out of bounds")
        self.suite = payload[24]
        protocol = noise.noise_protocol
        self.seals = Keys(bytes(protocol.cipher_state_encrypt.k), self.suite)
        self.opens = Keys(bytes(protocol.cipher_state_decrypt.k), self.suite)
        self.send_frames(b"\x01", repeats=True)

    # Datagrams.

    def send(self, datagram):
        self.socket.sendto(datagram, self.server)

    def receive(self, timeout):
        self.socket.settimeout(max(timeout, 0.001))
        try:
            return self.socket.recv(65_535)
        except (TimeoutError, ConnectionRefusedError):
            return None

    def send_frames(self, frames, repeats=False):
        if self.is_ack_pending:
            frames = self.ack() + frames
            self.is_ack_pending = False
        number = self.send_exactly(frames or b"\0")
        if repeats:
            self.unacked[number] = frames
            self.sent_at[number] = time.monotonic()
        return number

    def send_exactly(self, opened):
        """Sends one packet with these bytes sealed, and nothing else in it."""
        number, self.number = self.number, self.number + 1
        header = bytes([0x08 | (self.seals.epoch & 1) << 2 | 3]) + self.connection_id + struct.pack(">I", number & 0xFFFFFFFF)
        self.send(header + self.seals.seal(number, header, opened))
        return number

    def ack(self):
        ranges = []
        for number in sorted(set(self.received), reverse=True):
            if ranges and ranges[-1][0] == number + 1:
                ranges[-1][0] = number
            elif len(ranges) < 32:
                ranges.append([number, number])
        low, high = ranges[0]
        out = b"\x02" + varint(high) + varint(0) + varint(len(ranges) - 1) + varint(high - low)
        for (before, _), (low, high) in zip(ranges, ranges[1:]):
            out += varint(before - high - 2) + varint(high - low)
        return out

    def step(self, timeout=0.02):
        """Handles one datagram: sends the required answers, and repeats what was lost."""
        datagram = self.receive(timeout)
        if datagram is not None and datagram[0] < 0x80:
            self.on_packet(datagram)
        elif datagram is not None and datagram[0] == RESET and datagram[1:25] == self.connection_id + self.reset_token:
            raise Failure("the server does not know the connection")
        now = time.monotonic()
        for number in [n for n, at in self.sent_at.items() if now - at > 0.2]:
            frames = self.unacked.pop(number)
            del self.sent_at[number]
            self.send_frames(frames, repeats=True)
        if self.is_ack_pending:
            self.send_frames(b"")

    def until(self, what, is_true):
        deadline = time.monotonic() + PATIENCE
        while not is_true():
            if time.monotonic() > deadline:
                raise Failure(f"not in time: {what}")
            self.step()

    def on_packet(self, datagram):
        length = (datagram[0] & 3) + 1
        header, sealed = datagram[: 1 + length], datagram[1 + length :]
        if datagram[0] & 0xF8 != 0x08 or length == 1 or len(datagram) < 28:
            raise Failure("not a transport packet")
        number = expand(int.from_bytes(header[1:], "big"), length, self.largest)
        if number in self.received:
            return
        phase = datagram[0] >> 2 & 1
        if phase == self.opens.epoch & 1:
            keys = self.opens
        elif self.previous is not None:
            keys = self.previous
        else:
            keys = self.opens.next()
        frames = keys.open(number, header, sealed)
        if frames is None:
            raise Failure(f"packet {number} of phase {phase} does not open")
        if keys is not self.opens and keys is not self.previous:
            # The server changed its keys: ours follow.
            self.previous, self.opens, self.seals = self.opens, keys, self.seals.next()
            self.epoch_base, self.first_ack_of_epoch = self.number, None
        self.received.append(number)
        self.largest = number if self.largest is None else max(self.largest, number)
        self.on_frames(frames)

    def on_frames(self, opened):
        for frame in decode(opened):
            kind = frame["type"]
            self.is_ack_pending |= kind not in QUIET
            if kind == "ack":
                self.on_ack(frame["ranges"])
            elif kind == "close":
                raise Closed(frame["code"], frame["application_code"], frame["reason"])
            elif kind == "path challenge":
                self.send_frames(b"\x08" + frame["data"])
            elif kind == "new connection id":
                self.spare_ids[frame["sequence"]] = frame["id"], frame["reset_token"]
            elif kind == "message" and frame["mode"] == ORDERED:
                self.on_reliable(frame["channel"], frame["id"], frame["after"], frame["payload"])
            elif kind == "message":
                self.messages.append((frame["channel"], frame["payload"]))

    def on_reliable(self, channel, number, after, payload):
        if number in self.delivered or number in self.waiting:
            return
        self.waiting[number] = (channel, after, payload)
        ready = True
        while ready:
            ready = False
            for number in sorted(self.waiting):
                channel, after, payload = self.waiting[number]
                if after is None or after in self.delivered:
                    del self.waiting[number]
                    self.delivered.add(number)
                    self.messages.append((channel, payload))
                    ready = True
                    break

    def on_ack(self, ranges):
        largest = ranges[0][1]
        if largest >= self.number:
            raise Failure("an ack of a packet that was never sent")
        self.acked.update(number for low, high in ranges for number in range(low, high + 1))
        for number in list(self.unacked):
            if any(low <= number <= high for low, high in ranges):
                del self.unacked[number]
                del self.sent_at[number]
        if largest >= self.epoch_base and self.first_ack_of_epoch is None:
            self.first_ack_of_epoch = time.monotonic()

    # What a session does.

    def reliable(self, channel, payload):
        number, self.next_id = self.next_id, self.next_id + 1
        back = b"\0" if number == 0 or not self.unacked else varint(1)
        frame = b"\x83" + varint(channel) + varint(number) + back + varint(len(payload)) + payload
        self.send_frames(frame, repeats=True)

    def unreliable(self, channel, payload):
        self.send_frames(b"\x80" + varint(channel) + varint(len(payload)) + payload)

    def echo(self, rounds):
        for round_number in range(rounds):
            payload = os.urandom(1 + 37 * round_number % 900)
            self.reliable(0, payload)
            self.until("a reliable echo", lambda: (0, payload) in self.messages)
            payload = os.urandom(8)
            for _ in range(50):
                self.unreliable(1, payload)
                self.step(0.05)
                if (1, payload) in self.messages:
                    break
            else:
                raise Failure("no unreliable echo in 50 tries")
            self.messages.clear()

    def change_keys(self):
        self.until("an ack of this epoch", lambda: self.first_ack_of_epoch is not None)
        # Three probe timeouts: the round trip is next to nothing, acks wait for 25 ms at most.
        settled = self.first_ack_of_epoch + 0.1
        self.until("the time to change keys", lambda: time.monotonic() >= settled)
        before = self.opens.epoch
        self.previous, self.opens, self.seals = self.opens, self.opens.next(), self.seals.next()
        self.epoch_base, self.first_ack_of_epoch = self.number, None
        self.send_frames(b"\x01", repeats=True)
        self.until("an ack under new keys", lambda: self.first_ack_of_epoch is not None)
        if self.opens.epoch != before + 1:
            raise Failure("the server did not follow")
        self.until("the time to forget keys", lambda: time.monotonic() >= self.first_ack_of_epoch + 0.1)
        self.previous = None

    def move(self):
        """Goes on from another port, under a spare id; the id before is retired."""
        self.until("a spare connection id", lambda: self.spare_ids)
        before = getattr(self, "sequence", 0)
        self.sequence = min(self.spare_ids)
        self.connection_id, self.reset_token = self.spare_ids.pop(self.sequence)
        old, self.socket = self.socket, socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.echo(2)
        old.close()
        time.sleep(0.1)
        self.send_frames(b"\x0a" + varint(before), repeats=True)
        self.until("an ack of the retired id", lambda: not self.unacked)

    def close(self, code):
        reason = b"interop"
        self.send_frames(b"\x03\x00" + varint(code) + varint(len(reason)) + reason)
        self.socket.close()


def public_key(text):
    label = "drumfire_public_"
    if not text.startswith(label):
        raise argparse.ArgumentTypeError(f"a public key begins with {label}")
    encoded = text[len(label) :]
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("key", type=public_key)
    parser.add_argument("--sessions", type=int, default=100)
    arguments = parser.parse_args()
    host, _, port = arguments.server.rpartition(":")
    suites = {1: 0, 2: 0}
    for number in range(arguments.sessions):
        session = Session((host, int(port)), arguments.key, 0b01 if number % 2 else 0b11)
        try:
            session.connect()
            session.echo(3)
            session.change_keys()
            session.echo(2)
            if number % 5 == 0:
                session.move()
            session.close(number)
        except Failure as why:
            raise SystemExit(f"session {number}: {why}")
        suites[session.suite] += 1
    print(f"{arguments.sessions} sessions: {suites[1]} with ChaCha20-Poly1305, {suites[2]} with AES-128-GCM")


if __name__ == "__main__":
    main()
