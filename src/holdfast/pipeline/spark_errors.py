"""What the errors of Spark say, out of all that it puts around it.

Owns: the one line of an error, and the places in code that its text names.
"""

import re
from collections.abc import Iterator

ERROR = re.compile(r"\w(Error|Exception): ")
PLACE = re.compile(r'^ *(?:File "(.+)", line (\d+)|(/.+):(\d+)$)', re.MULTILINE)
"""Of a traceback of a worker, and of what Spark says a column of a frame was made by."""


def in_one_line(text: str) -> str:
    """What a Python error says, out of all that Spark puts around it; where there is none, what
    Spark says itself, which comes before the plan and the place that it names."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if ERROR.search(line) and not line.startswith("at ")]
    return errors[-1] if errors else (lines or ["the query has ended with an error"])[0]


def places_in(text: str) -> Iterator[tuple[str, int]]:
    """The files and lines that the text of an error names, in its order."""
    for file, line, made_by, made_at in PLACE.findall(text):
        yield file or made_by, int(line or made_at)
