"""What a reader finds of delivery states in a directory is what the log has."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.kernel import Log, new_state
from holdfast.reading.directory import LogDirectory

ALL = 1 << 40
RANGE = st.tuples(st.integers(50, 99), st.integers(1, 9)).map(lambda two: (two[0], sum(two)))
STATE = st.tuples(st.integers(1, 4), st.integers(0, 40), st.lists(RANGE, max_size=2))
STEPS = st.lists(st.one_of(STATE, st.sampled_from(["commit", "checkpoint"])), max_size=25)


def opened(directory: Path) -> Log:
    log, _ = Log.open(
        str(directory),
        segment_bytes=1 << 20,
        cache_bytes=1 << 20,
        reserve_bytes=1 << 20,
        durability="os",
        seed=1,
        now_us=1,
    )
    return log


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_a_reader_finds_what_recovery_would(
    steps: list[tuple[int, int, list[tuple[int, int]]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writing, copied = Path(folder) / "log", Path(folder) / "copy"
        writing.mkdir()
        log = opened(writing)
        for now_us, step in enumerate(steps, start=2):
            if step == "commit":
                log.commit()
            elif step == "checkpoint":
                log.checkpoint(now_us)
            else:
                party, mark, ranges = step
                log.append_control(0, party.to_bytes(4, "little"), new_state(mark, ranges), now_us)
        log.commit()
        log.begin_instant()
        (acknowledged, in_flight), _ = log.states_piece(None, ALL)
        # As a crash leaves it: nobody holds the copy.
        shutil.copytree(writing, copied)
        assert LogDirectory(str(copied)).recorded()[:2] == (acknowledged, in_flight)
        log.close()
        assert LogDirectory(str(writing)).recorded()[:2] == (acknowledged, in_flight)
