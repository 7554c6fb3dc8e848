"""Write rejected rows to a topic too, for whoever mends what devices send.

Owns: which rows of the table `rejected` have been written, and under which numbers.
Never: judges a row; writes one that the table does not have.

Invariant: each row is written once. A range is on record, with the number of its batch, before it
is written; whoever comes after a crash writes the same range under the same number, and the broker
knows whether it has that batch.

Flow: rejected -> range on record -> one batch of one producer -> on record as written.
"""

import json
import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast import system
from holdfast.core.errors import ConfigurationError, OperatingError
from holdfast.kernel import is_valid_topic_name, topic_matches
from holdfast.pipeline.configuration import Configuration
from holdfast.pipeline.load.table import NOTHING
from holdfast.pipeline.load.warehouse import Warehouse
from holdfast.pipeline.payloads.judging import REJECTED
from holdfast.pipeline.payloads.schema import REJECTED_TABLE
from holdfast.pipeline.source.options import parse_options

STATE = "dead_letters.json"
ENTRY = "jobs.dead_letter_topic"
NAME_BYTES = 16
WRITER_OPTIONS = ("broker", "user", "password", "passwordFile")
"""Of the source's options, those that a writer has as well."""
HEADERS = ("offset", "topic", "rule")


class DeadLettersError(OperatingError):
    """The record of what was written cannot be read."""

    retriable = False


@dataclass(frozen=True, slots=True)
class Written:
    """Rows with offsets beyond `after` and up to `upto` are being written; where both are the same,
    all up to there are."""

    producer: str
    after: int = NOTHING
    upto: int = NOTHING


class DeadLetters:
    """The topic that rejected rows of one pipeline go to."""

    def __init__(self, topic: str, source: dict[str, str], warehouse: Warehouse) -> None:
        self.options = {name: source[name] for name in WRITER_OPTIONS if name in source}
        """Those of the writer."""
        self.options["topic"] = topic
        self._table = warehouse.table(REJECTED_TABLE)
        self._path = warehouse.directory / STATE
        self._written = recorded(self._path)

    def follow(self, spark: SparkSession) -> None:
        """Writes what the table has and the topic does not."""
        version = self._table.version()
        if version < self._written.upto:
            return  # It is being made anew, and has not come so far again.
        if self._written.after < self._written.upto:
            self._write(spark)
        if self._written.upto < version:
            self._keep(replace(self._written, upto=version))
            self._write(spark)

    def _write(self, spark: SparkSession) -> None:
        producer, after, upto = self._written.producer, self._written.after, self._written.upto
        portion = self._table.portion(after, upto)
        if portion.files:
            rows = letters(self._table.of_portion(spark, REJECTED, portion))
            save = rows.write.format("holdfast").mode("append").options(**self.options)
            save.options(producer=producer, batch=str(upto)).save()
        self._keep(replace(self._written, after=upto))

    def _keep(self, written: Written) -> None:
        """It is on disk on return."""
        fresh = self._path.with_suffix(".new")
        with fresh.open("w") as file:
            file.write(json.dumps(asdict(written)))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._written = written


def recorded(path: Path) -> Written:
    """What is on record there; without a record, the beginning of a new producer."""
    if not path.exists():
        return Written(f"dead-letters-{system.entropy(NAME_BYTES).hex()}")
    try:
        return Written(**json.loads(path.read_text()))
    except (ValueError, TypeError) as problem:
        raise DeadLettersError(
            f"{path} is not what the pipeline left there: {problem}; without the file every"
            " rejected row is written again"
        ) from problem


def letters(rejected: DataFrame) -> DataFrame:
    """Rejected rows as messages: the value as it was, in the order of the log."""
    told = [
        f.struct(f.lit(name).alias("key"), f.col(name).cast("string").cast("binary").alias("value"))
        for name in HEADERS
    ]
    ordered = rejected.coalesce(1).sortWithinPartitions("offset")
    return ordered.select("value", f.array(*told).alias("headers"))


def dead_letter_topic(configuration: Configuration) -> str | None:
    """The topic that the configuration names, or none. Raises `ConfigurationError` where nothing
    can be written to it, or the pipeline would read it again."""
    topic = configuration.jobs.dead_letter_topic
    if not topic:
        return None
    if not is_valid_topic_name(topic.encode()):
        raise ConfigurationError(f"{ENTRY} must be a topic without wildcards, not {topic!r}")
    if configuration.log.data_dir:
        raise ConfigurationError(f"{ENTRY} needs a running broker, and log.data_dir names a folder")
    criteria = parse_options(configuration.source()).criteria
    matching = [each for each in criteria.filters if topic_matches(each.encode(), topic.encode())]
    if matching or (criteria.pattern and re.fullmatch(criteria.pattern, topic)):
        raise ConfigurationError(
            f"{ENTRY}: the pipeline reads {topic} itself ({criteria}), so that each letter would be"
            " rejected again; choose a topic outside of what it reads"
        )
    return topic
