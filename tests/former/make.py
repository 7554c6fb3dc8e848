"""Writes the data directory that `tests/unit/broker/test_former_directory.py` opens.

Usage, with the sources of the version whose directory it is to be before these on the path:
`python -m tests.former.make tests/former/directory.tar.xz`

There is a device that is away with messages waiting, some of them acknowledged; an APPLICATION
client that is away; a group whose member has messages in flight, and messages that nobody has; a
loss that is being driven again, and has not got to its end.
"""

import asyncio
import sys
import tarfile
import tempfile
from pathlib import Path

from holdfast.broker.chores import at_once
from tests.former.still_broker import StillBroker

GROUP = "$share/g/s"


async def story(directory: Path) -> None:
    """What happens."""
    broker = StillBroker(directory)
    publisher = await broker.client("publisher", clean=True)
    for name in ("device", "app"):
        client = await broker.client(name)
        await client.subscribe("d/+")
        if name == "device":
            await client.subscribe(GROUP)
        await client.drop()
    await publisher.publish("d/1", 1, *range(5))
    device = await broker.client("device")
    messages = device.messages()
    await device.acknowledge(messages[1], messages[3])
    await device.drop()

    member = await broker.client("member")
    await member.subscribe(GROUP)
    await publisher.publish("s", 2, *range(4))
    first = member.messages()[0]
    await member.send("pubrec", packet_identifier=first["packet_identifier"])
    await member.drop()
    await publisher.publish("s", 2, *range(4, 7))

    loser = await broker.client("loser")
    await loser.subscribe("l")
    await loser.drop()
    await publisher.publish("l", 1, *range(9))
    loser = await broker.client("loser")
    await loser.acknowledge(*loser.messages())
    await loser.drop()
    broker.server.sweep.run(broker.world.time_us)
    await drive_again(broker)
    loser = await broker.client("loser")
    await loser.acknowledge(loser.messages()[0])
    await loser.drop()
    broker.end()


async def drive_again(broker: StillBroker) -> None:
    """The first loss is delivered to who has lost it."""
    stages = broker.server.stages
    target, loss = stages.sessions.target("loser"), stages.losses.find(1)
    assert target is not None
    assert loss is not None
    found = at_once(stages.redrives.look(loss.spans, target))
    assert stages.redrives.begin(1, found, target, broker.world.time_us) == 3


def main(path: str) -> None:
    """Writes it as an archive."""
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(story(Path(directory)))
        with tarfile.open(path, "w:xz") as archive:
            for file in sorted(Path(directory).iterdir()):
                if not file.name.endswith(".partial"):
                    archive.add(file, file.name)


if __name__ == "__main__":
    main(sys.argv[1])
