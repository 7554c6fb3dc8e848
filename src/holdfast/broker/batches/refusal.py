"""Why a part or a batch is not taken."""

from enum import Enum


class BatchRefusal(Enum):
    """What whoever asked can do about it differs."""

    NOT_ROWS = "not_rows"
    """What was sent is no messages that may be published."""
    NOT_YOURS = "not_yours"
    """The producer is another user's."""
    NO_SUCH_PART = "no_such_part"
    """A part is not there, or not any more: the batch has to be staged again."""
    OTHER_BATCH = "other_batch"
    """A part belongs to another batch."""
    UNFINISHED = "unfinished"
    """Another batch of the producer is on its way into the log."""
    STAGED_ROWS_LOST = "staged_rows_lost"
    """Rows of a batch that was decided cannot be read any more."""
    BUSY = "busy"
    """There is no room just now, and there will be."""


class BatchRefusedError(Exception):
    """A part or a batch is not taken: why, and a sentence for whoever asked."""

    def __init__(self, refusal: BatchRefusal, sentence: str) -> None:
        super().__init__(sentence)
        self.refusal = refusal
