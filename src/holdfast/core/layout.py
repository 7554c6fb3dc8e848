"""What lies where in a data directory: for the broker that writes it and for whoever reads it."""

from typing import Final

DIRECTORY_MODE: Final = 0o700
"""Of a data directory and of a copy, where one is made: every message is in them in the clear."""

LOG_DIRECTORY: Final = "log"
"""The kernel's segments, carry segments and checkpoints: the truth."""

FORMAT_FILE: Final = "format"
"""In that directory: which log it is. Written once."""

STAGED_DIRECTORY: Final = "staged"
"""Parts of batches that writers have handed in, until their rows are in the log."""

VIEW_FILE: Final = "view.sqlite"
"""A view of the control records; it can be deleted and is built again."""

TABLES_DIRECTORY: Final = "tables"
"""Tables of one moment on their way to who has asked for them; it can be deleted."""

CONTROL_SOCKET: Final = "control.sock"
"""Where a running broker takes the commands of `holdfast` on the same host."""
