"""A process that commits batches as fast as it can, and says each one that was committed.

`python -m tests.interop.processors.writer URL FIRST LAST`: batches of rows with these numbers. A
sink that is away is asked again at once, as often as it takes.
"""

import sys

from holdfast.processors.sink import SinkAwayError
from holdfast.processors.sinks import open_sink
from tests.interop.processors.databases import READINGS, reading

ROWS = 50


def main() -> None:
    url, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    sink = open_sink(url)
    for batch in range(first, last):
        while True:
            try:
                sink.commit(READINGS, [reading(batch, row_number=n) for n in range(ROWS)])
                break
            except SinkAwayError:
                print("away", flush=True)
        print(batch, flush=True)
    sink.close()


if __name__ == "__main__":
    main()
