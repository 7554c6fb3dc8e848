"""Bits that turn in sealed segments of the simulated disk.

Owns: which bit, and which message it costs. Never: hits control records, whose loss would be a
session's, or what retains a message, of which only one copy counts.
"""

from random import Random

from holdfast.kernel import SimulatedDisk
from tests.crash import segments
from tests.equipment.history import Message, parse_payload

MAY_LOSE = ("talk/", "feeds/", "jobs/")
"""Topics of which a message may be lost: whoever judges them knows of the damage."""


def flip_a_bit(disk: SimulatedDisk, random: Random) -> Message | None:
    """Turns a bit in a message or in a footer of a sealed segment; returns the message that it
    costs, if it costs one."""
    found = _sealed(disk)
    if not found:
        return None
    name = random.choice(sorted(found))
    data = found[name]
    if random.random() < 0.3:
        disk.flip_bit(name, random.randrange(segments.records_end(data), len(data)))
        return None
    placed = segments.records(data)
    messages = [record for record in placed if record.kind == segments.MESSAGE]
    if not messages:
        return None
    record = random.choice(messages)
    number, payload = segments.topic_and_payload(data, record)
    topic = _topics(found).get(number, "")
    if not topic.startswith(MAY_LOSE) or not payload:
        return None
    try:
        message = parse_payload(topic, payload)
    except ValueError:
        return None  # It is damaged already.
    disk.flip_bit(name, random.randrange(record.start, record.end))
    return message


def _sealed(disk: SimulatedDisk) -> dict[str, bytes]:
    names = [name for name in disk.files() if name.startswith("segment-") and name.endswith(".log")]
    contents = {name: disk.read(name) for name in names}
    return {name: data for name, data in contents.items() if _says_where_it_ends(data)}


def _says_where_it_ends(data: bytes) -> bool:
    """False also where a bit of that has turned already: the next one might cost a message that
    nobody is told of."""
    if not segments.is_sealed(data):
        return False
    ends = [record.end for record in segments.records(data)]
    return bool(ends) and ends[-1] == segments.records_end(data)


def _topics(found: dict[str, bytes]) -> dict[int, str]:
    """Names by number, of those topics whose record lies in these segments."""
    names: dict[int, str] = {}
    for data in found.values():
        for record in segments.records(data):
            if record.kind == segments.TOPIC:
                number, name = segments.topic_and_payload(data, record)
                names[number] = name.decode()
    return names
