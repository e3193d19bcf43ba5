"""Frames as crates/wire/PROTOCOL.md section 7 describes them, and what a receiver checks before it handles any of them."""

from standard import Failure

MESSAGE_LIMIT_BYTES = 16_777_216
UNRELIABLE_MESSAGE_MAX_BYTES = 16_384
MESSAGE_IDS_AHEAD = 16_384
VALUE_MAX_BYTES = 1_024
FRAMES_MAX = 40
RUN_MESSAGES_MAX = 512
UNORDERED, ORDERED, SEQUENCED, LATEST = 2, 3, 4, 5
NAMES = {
    0x00: "padding", 0x01: "ping", 0x02: "ack", 0x03: "close", 0x04: "skip", 0x05: "credit", 0x07: "path challenge",
    0x08: "path response", 0x09: "new connection id", 0x0A: "retire connection id", 0x0B: "resume token",
    0x0C: "ack request", 0x0D: "timestamp", 0x0E: "skip run",
}
# Frames that are not ack-eliciting.
QUIET = {"padding", "ack", "close", "path challenge", "path response", "timestamp"}


class Malformed(Failure):
    """A protocol error, under the name that the Close carries."""


class Reader:
    """The bytes of an opened packet, from front to end."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        part = self.data[self.at : self.at + count]
        if len(part) < count:
            raise Malformed("truncated")
        self.at += count
        return part

    def varint(self):
        value = 0
        for position in range(10):
            byte = self.take(1)[0]
            if position == 9 and byte > 1:
                raise Malformed("bad_varint")
            value |= (byte & 0x7F) << 7 * position
            if byte < 0x80:
                if byte == 0 and position > 0:
                    raise Malformed("bad_varint")
                return value
        raise Malformed("bad_varint")

    def is_empty(self):
        return self.at == len(self.data)


def decode(opened):
    """All frames of a packet, as dictionaries; raises Malformed at the first error."""
    reader, last_id, out, weight, run_messages = Reader(opened), None, [], 0, 0
    while not reader.is_empty():
        byte = reader.take(1)[0]
        is_run = byte == 0 and bool(out) and out[-1]["type"] == "padding"
        weight += 0 if is_run else 2 if byte & 0x88 == 0x88 else 1
        if weight > FRAMES_MAX:
            raise Malformed("too_many_frames")
        if byte & 0x80:
            frame = decode_message(byte, reader, last_id, RUN_MESSAGES_MAX - run_messages)
            last_id = frame.get("id", last_id)
            if "payloads" in frame and "id" in frame:
                last_id += len(frame["payloads"]) - 1
        elif byte == 0x0E:
            frame = decode_skip_run(reader, RUN_MESSAGES_MAX - run_messages)
            frame["type"] = NAMES[byte]
        elif byte in NAMES:
            frame = DECODERS.get(byte, lambda _: {})(reader)
            frame["type"] = NAMES[byte]
        else:
            raise Malformed("unknown_frame")
        run_messages += count_of(frame) if frame["type"] in ("run", "skip run") else 0
        out.append(frame)
    return out


def decode_message(byte, reader, last_id, run_messages_left):
    mode, is_fragment, has_n, is_run = byte & 7, bool(byte & 8), bool(byte & 16), bool(byte & 32)
    has_id = mode in (UNORDERED, ORDERED, SEQUENCED)
    if byte & 0x40 or mode > LATEST or (has_n and not has_id) or (is_fragment and mode == LATEST):
        raise Malformed("unknown_frame")
    if is_run and (is_fragment or mode in (SEQUENCED, LATEST)):
        raise Malformed("unknown_frame")
    kind = "run" if is_run else "fragment" if is_fragment else "message"
    frame = {"type": kind, "mode": mode, "channel": channel(reader)}
    if has_id:
        if not has_n:
            frame["id"] = reader.varint()
        elif last_id is None or last_id == (1 << 64) - 1:
            raise Malformed("bad_message_id")
        else:
            frame["id"] = last_id + 1
        if mode == ORDERED:
            frame["after"] = order(reader, frame["id"])
    elif mode == LATEST:
        frame["key"], frame["version"] = reader.varint(), reader.varint()
    if is_run:
        count = run_count(reader, frame.get("id", 0), run_messages_left)
        frame["payloads"] = [reader.take(reader.varint()) for _ in range(count)]
        return frame
    if is_fragment:
        if not has_id:
            frame["number"] = reader.varint()
        frame["total"], frame["offset"] = reader.varint(), reader.varint()
        if max(frame["total"], frame["offset"]) > MESSAGE_LIMIT_BYTES:
            raise Malformed("bad_fragment")
    frame["payload"] = reader.take(reader.varint())
    if is_fragment and not 0 < len(frame["payload"]) <= frame["total"] - frame["offset"]:
        raise Malformed("bad_fragment")
    return frame


def run_count(reader, number, left):
    """The number of messages of a Run or a Skip run whose first id is `number`."""
    count = reader.varint()
    if count == 0:
        raise Malformed("empty_run")
    if count > left:
        raise Malformed("too_many_messages")
    if number + count > 1 << 64:
        raise Malformed("bad_message_id")
    return count


def channel(reader):
    number = reader.varint()
    if number > 65_535:
        raise Malformed("bad_channel")
    return number


def order(reader, number):
    """The id that "back" refers to, or None."""
    back = reader.varint()
    if back > number:
        raise Malformed("bad_order")
    return number - back if back else None


def decode_ack(reader):
    largest, delay, more, first = reader.varint(), reader.varint(), None, None
    if delay > 2_097_151:
        raise Malformed("bad_ack_delay")
    more = reader.varint()
    if more > 31:
        raise Malformed("too_many_ack_ranges")
    first = reader.varint()
    ranges = [(largest - first, largest)]
    for _ in range(more):
        high = ranges[-1][0] - reader.varint() - 2
        ranges.append((high - reader.varint(), high))
    if ranges[-1][0] < 0:
        raise Malformed("bad_ack_range")
    return {"ranges": ranges}


def decode_close(reader):
    code, application_code, length = reader.take(1)[0], reader.varint(), reader.varint()
    if code > 7 or application_code >= 1 << 32 or length > 128:
        raise Malformed("bad_close")
    return {"code": code, "application_code": application_code, "reason": reader.take(length)}


def decode_skip(reader):
    frame = {"channel": channel(reader), "id": reader.varint()}
    frame["after"], frame["bytes"] = order(reader, frame["id"]), reader.varint()
    if frame["bytes"] > MESSAGE_LIMIT_BYTES:
        raise Malformed("bad_skip")
    return frame


def decode_skip_run(reader, run_messages_left):
    frame = {"channel": channel(reader), "id": reader.varint()}
    frame["after"] = order(reader, frame["id"])
    frame["lengths"] = []
    for _ in range(run_count(reader, frame["id"], run_messages_left)):
        frame["lengths"].append(reader.varint())
        if frame["lengths"][-1] > MESSAGE_LIMIT_BYTES:
            raise Malformed("bad_skip")
    return frame


DECODERS = {
    0x02: decode_ack,
    0x03: decode_close,
    0x04: decode_skip,
    0x05: lambda reader: {"bytes": reader.varint()},
    0x07: lambda reader: {"data": reader.take(8)},
    0x08: lambda reader: {"data": reader.take(8)},
    0x09: lambda reader: {"sequence": reader.varint(), "id": reader.take(8), "reset_token": reader.take(16)},
    0x0A: lambda reader: {"sequence": reader.varint()},
    0x0B: lambda reader: {"lifetime_seconds": reader.take(2), "psk": reader.take(32), "sealed": reader.take(512)},
    0x0D: lambda reader: {"microseconds": reader.varint()},
}


def length_of(frame):
    """The length of the whole message that a Message, a Fragment, or a Skip is about."""
    return frame.get("bytes", frame.get("total", len(frame.get("payload", b""))))


def count_of(frame):
    """The number of messages that a frame is about."""
    return len(frame.get("payloads", frame.get("lengths", [None])))


def single(frame):
    """The frames of single messages that mean the same as a Run or a Skip run, and otherwise the frame."""
    if frame["type"] == "run":
        singles = [{"payload": payload} for payload in frame["payloads"]]
    elif frame["type"] == "skip run":
        singles = [{"bytes": length} for length in frame["lengths"]]
    else:
        return [frame]
    kind = "message" if frame["type"] == "run" else "skip"
    for at, one in enumerate(singles):
        one |= {"type": kind, "channel": frame["channel"]}
        if "mode" in frame:
            one["mode"] = frame["mode"]
        if "id" in frame:
            one["id"] = frame["id"] + at
    return singles


class Receiver:
    """What a receiver must remember to find every protocol error. It delivers nothing."""

    def __init__(self, side, credit, message_max, ids_given=()):
        self.side, self.credit, self.message_max = side, credit, message_max
        self.received, self.floor, self.fragments = set(), 0, {}
        self.ids, self.next_sequence = set(ids_given), len(ids_given)

    def judge(self, number, next_number, opened):
        """Takes packet `number` in, when `next_number` is the next one to be sent. Returns the outcome and its reason."""
        try:
            frames = decode(opened)
            if sum(frame["type"] == "ack" for frame in frames) > 1:
                raise Malformed("second_ack")
            frames = [one for frame in frames for one in single(frame)]
            for frame in frames:
                self.check(number, frame)
            if self.disagree(frames):
                return "dropped", "fragment_mismatch"
            for frame in frames:
                if frame["type"] == "close":
                    break
                self.apply(next_number, frame)
        except Malformed as error:
            return "closed", str(error)
        return "accepted", None

    def check(self, number, frame):
        if "id" in frame and frame["type"] != "new connection id" and frame["id"] > self.floor + MESSAGE_IDS_AHEAD:
            raise Malformed("message_too_far_ahead")
        length = 0 if frame["type"] == "skip" else length_of(frame)
        if "id" in frame and length > self.message_max:
            raise Malformed("message_too_long")
        if "key" in frame and length_of(frame) > VALUE_MAX_BYTES:
            raise Malformed("message_too_long")
        if frame["type"] == "fragment" and "id" not in frame:
            if length > UNRELIABLE_MESSAGE_MAX_BYTES:
                raise Malformed("message_too_long")
            if frame["number"] > number:
                raise Malformed("bad_fragment")

    def disagree(self, frames):
        """Whether a frame says something else about a fragmented message than its fragments do."""
        begun = {number: head for number, (head, _) in self.fragments.items()}
        for frame in frames:
            number = frame.get("id")
            if frame["type"] not in ("message", "fragment", "skip") or number is None or number in self.received:
                continue
            head = frame["channel"], frame.get("mode"), length_of(frame)
            if frame["type"] == "fragment":
                begun.setdefault(number, head)
            declared = begun.get(number, head)
            if frame["type"] == "skip":
                head, declared = head[::2], declared[::2]
            if head != declared:
                return True
        return False

    def apply(self, next_number, frame):
        kind = frame["type"]
        if kind == "ack" and frame["ranges"][0][1] >= next_number:
            raise Malformed("ack_of_unsent")
        if kind in ("new connection id", "resume token") and self.side == "server":
            raise Malformed("wrong_side")
        if kind == "retire connection id" and self.side == "client":
            raise Malformed("wrong_side")
        if kind == "new connection id" and frame["sequence"] not in self.ids:
            self.ids.add(frame["sequence"])
            if len(self.ids) > 4:
                raise Malformed("connection_ids")
        if kind == "retire connection id":
            if frame["sequence"] >= self.next_sequence or self.ids == {frame["sequence"]}:
                raise Malformed("connection_ids")
            self.ids.discard(frame["sequence"])
        if "id" in frame and kind in ("message", "skip", "fragment") and frame["id"] not in self.received:
            self.receive(frame)

    def receive(self, frame):
        number, is_fragment = frame["id"], frame["type"] == "fragment"
        total = length_of(frame)
        if number not in self.fragments:
            if is_fragment and len(self.fragments) >= 64:
                raise Malformed("too_many_fragmented")
            self.credit -= total + 64
            if self.credit < 0:
                raise Malformed("credit_exceeded")
        if is_fragment:
            head = (frame["channel"], frame["mode"], frame["total"])
            _, bytes_there = self.fragments.setdefault(number, (head, set()))
            bytes_there.update(range(frame["offset"], frame["offset"] + len(frame["payload"])))
            if len(bytes_there) < total:
                return
        self.fragments.pop(number, None)
        self.received.add(number)
        while self.floor in self.received:
            self.floor += 1
