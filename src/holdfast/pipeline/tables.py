"""Views of the tables about a broker, all of one moment.

Owns: which views there are and what they are called. Never: reads a row; the data source does.

Flow: a moment of the broker -> a view for each table, named as the table -> SQL.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import SparkSession

from holdfast.core.table_names import TABLES
from holdfast.pipeline.source.forms import address
from holdfast.reading.remote_tables import MomentOfBroker, RemoteTables

MESSAGES: Final = "messages"
EVERYTHING: Final = "#"


def register_views(
    spark: SparkSession,
    *,
    broker: str | None = None,
    user: str | None = None,
    password: str | None = None,
    data_dir: str | None = None,
    tables: Sequence[str] = TABLES,
) -> MomentOfBroker | None:
    """Makes a temporary view of each of these tables, all of one moment, which is returned. Called
    again, they are of another moment. The broker keeps a moment for ten minutes after the last
    query that read it.

    Of a data directory there is what is on record and in the log, of the moment of each query, and
    `None` is returned. Raises `OptionError` for what is no address.
    """
    given = {"broker": broker, "user": user, "password": password, "dataDir": data_dir}
    where = {name: value for name, value in given.items() if value is not None}
    moment = None
    if broker is not None:
        address("broker", broker)
        # Messages are read as the log is, below the moment.
        taken = [name for name in tables if name != MESSAGES] or ["topics"]
        moment = RemoteTables(broker, user, password).take(taken)
    for name in tables:
        if name == MESSAGES:
            _view_messages(spark, where, moment)
        else:
            options = where | {"table": name} | ({"moment": moment.name} if moment else {})
            spark.read.format("holdfast").options(**options).load().createOrReplaceTempView(name)
    return moment


def _view_messages(
    spark: SparkSession, where: dict[str, str], moment: MomentOfBroker | None
) -> None:
    options = where | {"subscribe": EVERYTHING}
    if moment is not None:
        options["startingOffsets"] = str(moment.begin_offset)
        options["endingOffsets"] = str(moment.offset)
    spark.read.format("holdfast").options(**options).load().createOrReplaceTempView(MESSAGES)
