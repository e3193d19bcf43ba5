"""The vectors of malformed input: what this implementation does with each, and what a real server does.

    python malformed.py ../../crates/wire/vectors/malformed.json 127.0.0.1:7777 drumfire_public_...

The server is one in open access, with protocol id 0 and server key id 0. It gets whatever is for a server. What is for a
client is judged here alone.
"""

import argparse
import json
import os
import pathlib
import socket
import struct
import time

from client import Closed, Session, public_key
from frames import QUIET, Malformed, Receiver, decode
from noise.connection import Keypair, NoiseConnection
from standard import (
    HELLO, PATTERN, REFUSE, RESET, RETRY, TRANSPORT, WELCOME, Failure, are_server_parameters_good, kind_of, mac1,
    refuse_mac,
)

# A server on this host has answered by then.
PATIENCE = 0.1
DEADLINE = 5.0
MESSAGE_MAX = 65_536
CREDIT = 131_072
PARAMETERS = struct.pack(">HIIII", 1200, 30_000, 10_000, MESSAGE_MAX, 196_608)


def changed(data, changes):
    out = bytearray(data)
    for offset, new in changes.items():
        new = bytes.fromhex(new)
        out[int(offset) : int(offset) + len(new)] = new
    return bytes(out)


def padded(frames):
    frames = bytes.fromhex(frames)
    return bytes(max(0, 12 - len(frames))) + frames


# What this implementation does.


def judge_datagram(datagram, to):
    kind, reason = kind_of(datagram)
    if reason is not None:
        return "dropped", reason
    if (kind in (RETRY, REFUSE, WELCOME, RESET)) == (to == "server") and kind != TRANSPORT:
        return "dropped", "unexpected_kind"
    if kind == TRANSPORT and to != "server":
        return "dropped", "no_keys"
    if kind == TRANSPORT and datagram[0] & 3 == 0:
        return "dropped", "packet_number_length"
    if kind == TRANSPORT:
        is_long_enough = len(datagram) >= 9 + (datagram[0] & 3) + 1 + 16
        return "dropped", "forged_id" if is_long_enough else "wrong_length"
    if kind == RESET:
        return "dropped", "bad_reset"
    if datagram[1:9] != CLIENT_ID:
        return "dropped", "unknown_client_id"
    # A Noise message that does not open.
    return "dropped", "bad_welcome"


CLIENT_ID = b"\x5a" * 8


def judge_refuse(refuse, psk=None):
    """An attempt by a token has its psk. Without a token there is none, whatever the MAC was made with."""
    head = bytes.fromhex(refuse["head"].replace("{client id}", CLIENT_ID.hex()))
    message_1 = os.urandom(612)
    mac = bytes(16) if refuse["psk"] is None else refuse_mac(bytes.fromhex(refuse["psk"]), head, message_1)
    kind, reason = kind_of(head + mac)
    if kind != REFUSE or head[1:9] != CLIENT_ID:
        raise Failure(f"not a Refuse of the attempt: {reason}")
    is_proved = psk is not None and refuse_mac(psk, head, message_1) == mac
    return "proved" if is_proved else "hint", None


def judge_welcome(welcome):
    payload = changed(bytes(24) + b"\x01" + PARAMETERS, welcome["parameters"])
    return ("accepted", None) if are_server_parameters_good(payload, 0b01) else ("dropped", "bad_welcome")


def judge_frames(inputs):
    is_server = inputs["to"] == "server"
    ids_given = range(2) if is_server else range(1)
    receiver = Receiver("server" if is_server else "client", CREDIT, MESSAGE_MAX, ids_given)
    packets = [*inputs["before"], inputs["frames"]]
    # A client's first packet is a Ping, and the other end has sent few packets.
    for number, frames in enumerate(packets, start=1):
        verdict = receiver.judge(number, 100, padded(frames))
        if number < len(packets) and verdict[0] != "accepted":
            raise Failure(f"a packet before: {verdict}")
    return verdict


# What the server does.


class Probe:
    """A socket that sends datagrams to the server and waits for its answers."""

    def __init__(self, server):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.connect(server)

    def exchange(self, datagram, patience=PATIENCE):
        self.socket.settimeout(patience)
        self.socket.send(datagram)
        try:
            return self.socket.recv(65_535)
        except (TimeoutError, ConnectionRefusedError):
            return None


def hello_of(key, changes):
    at = {offset: new for offset, new in changes["set"].items() if int(offset) < 540}
    head = changed(struct.pack(">BHQ8sIIB", HELLO, 1, 0, os.urandom(8), 0, 0, 1) + bytes(512), at)
    noise = NoiseConnection.from_name(PATTERN)
    noise.set_as_initiator()
    noise.set_psks(bytes(32))
    noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, key)
    noise.set_prologue(head + bytes(32))
    noise.start_handshake()
    payload = changed((bytes(9) + PARAMETERS).ljust(564, b"\0"), changes["parameters"])
    hello = head + bytes(32) + bytes(noise.write_message(payload))
    hello = changed(hello, {offset: new for offset, new in changes["set"].items() if 572 <= int(offset) < 1184})
    hello += mac1(key, bytes(32), hello)
    return changed(hello, {offset: new for offset, new in changes["set"].items() if int(offset) >= 1184})


def observe_hello(server, key, changes):
    probe, hello = Probe(server), hello_of(key, changes)
    cookie = changes["set"].get("540")
    if cookie is not None:
        hello = changed(hello, {"540": cookie})
    for _ in range(2):
        answer = probe.exchange(hello)
        if answer is None:
            return "dropped", None
        if answer[0] == WELCOME:
            return "welcome", None
        if answer[0] == REFUSE:
            return "refused", answer[9]
        if answer[0] != RETRY or cookie is not None:
            break
        hello = hello[:540] + answer[9:41] + hello[572:]
    return ("retry", None) if answer[0] == RETRY else ("answered", answer[0])


def wait_for_ack(session, number):
    deadline = time.monotonic() + DEADLINE
    while number not in session.acked and time.monotonic() < deadline:
        session.step()


def observe_frames(server, key, inputs):
    session = Session(server, key, 0b01)
    session.connect()
    # Some vectors acknowledge the server's first packet, so it must have been sent.
    wait_for_ack(session, session.send_exactly(b"\x0c"))
    for frames in [*inputs["before"], inputs["frames"]]:
        opened = padded(frames)
        number = session.send_exactly(opened)
    try:
        is_ack_eliciting = any(frame["type"] not in QUIET for frame in decode(opened))
    except Malformed:
        is_ack_eliciting = True
    try:
        requested = session.send_exactly(b"\x0c")
        wait_for_ack(session, requested)
    except Closed as closed:
        return ("closed", closed.reason) if closed.code == 4 else ("closed", closed.code)
    finally:
        session.close(0)
    if requested not in session.acked:
        return "silent", None
    return ("accepted", None) if number in session.acked or not is_ack_eliciting else ("dropped", None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("vectors", type=pathlib.Path)
    parser.add_argument("server")
    parser.add_argument("key", type=public_key)
    arguments = parser.parse_args()
    host, _, port = arguments.server.rpartition(":")
    server = host, int(port)
    judged = observed = 0
    for name, entry in json.loads(arguments.vectors.read_text()).items():
        inputs, outputs = entry["inputs"], entry["outputs"]
        expected = outputs["outcome"], outputs.get("reason")
        verdicts = []
        if "datagram" in inputs:
            datagram = bytes.fromhex(inputs["datagram"].replace("{client id}", CLIENT_ID.hex()))
            verdicts.append(judge_datagram(datagram, inputs["to"]))
            if inputs["to"] == "server":
                answer = Probe(server).exchange(datagram)
                verdicts.append(("dropped", expected[1]) if answer is None else ("answered", answer[0]))
                observed += 1
        elif "refuse" in inputs:
            refuse, psk = inputs["refuse"], os.urandom(32)
            verdicts.append(judge_refuse(refuse))
            # With a token, the MAC alone decides, so that "hint" is not the verdict about everything.
            for made_with, verdict in ((psk.hex(), "proved"), (refuse["psk"], "hint")):
                if judge_refuse(refuse | {"psk": made_with}, psk) != (verdict, None):
                    raise SystemExit(f"{name}: not a {verdict} for a client with a token")
        elif "welcome" in inputs:
            verdicts.append(judge_welcome(inputs["welcome"]))
        elif "hello" in inputs:
            verdict = observe_hello(server, arguments.key, inputs["hello"])
            verdicts.append(("dropped", expected[1]) if verdict[0] == "dropped" else verdict)
            observed += 1
        else:
            verdicts.append(judge_frames(inputs))
            if inputs["to"] == "server":
                verdict = observe_frames(server, arguments.key, inputs)
                # A server does not report why it drops a packet.
                verdicts.append(("dropped", expected[1]) if verdict[0] == "dropped" else verdict)
                observed += 1
        judged += 1
        for verdict in verdicts:
            if verdict != expected:
                raise SystemExit(f"{name}: {verdict} in place of {expected}")
    print(f"{judged} malformed inputs end as they should, {observed} of them at the server")


if __name__ == "__main__":
    main()
