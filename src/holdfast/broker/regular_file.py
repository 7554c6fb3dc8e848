"""Files that an operator names, such as those with passwords and certificates.

Owns: that opening one holds up nobody. Never: knows what is in it.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(file: Path) -> BinaryIO:
    """The file, to be read. Raises `OSError`, for what is no regular file too, and `ValueError` for
    what can be no path."""
    # Without this flag, whoever opens a pipe that nobody writes to waits for ever.
    opened = os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        opened.close()
        raise OSError("it is no regular file")
    return opened
