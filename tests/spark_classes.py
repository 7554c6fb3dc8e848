"""The classes that Spark loads whatever it is asked, in an archive for `tests.virtual_machine`.

`python -m tests.spark_classes` writes it, in the time of some five starts that it saves.
"""

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.pipeline.session import local_session
from tests.builders.stored import Message, store
from tests.virtual_machine import ARCHIVE, QUICK

WITHIN_S = 300.0


def write_archive() -> None:
    """There is an archive with what a batch, tables and a stream load."""
    ARCHIVE.parent.mkdir(exist_ok=True)
    written = ARCHIVE.with_suffix(".part")
    options = f"{QUICK} -Xlog:disable -XX:ArchiveClassesAtExit={written}"
    with tempfile.TemporaryDirectory() as name:
        spark = local_session("classes", settings={"spark.driver.extraJavaOptions": options})
        spark.sparkContext.setLogLevel("OFF")
        load_classes(spark, Path(name))
        # Nothing else knows the process.
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        # It ends when nobody is left to ask it for anything, and the archive is its last act.
        gateway.proc.stdin.close()
        gateway.proc.wait(WITHIN_S)
    if written.exists():
        written.replace(ARCHIVE)
    else:
        print("this Java writes no archive of classes: tests of Spark start more slowly")


def load_classes(spark: SparkSession, directory: Path) -> None:
    """Reads a log as tests do: as a batch whose plan is compiled, and as a stream."""
    store(directory / "data", [Message("a/b", b"1")] * 100)
    options = {"dataDir": str(directory / "data"), "subscribe": "#"}
    rows = spark.read.format("holdfast").options(**options).load()
    rows.groupBy("topic").sum("offset").collect()
    rows.write.parquet(str(directory / "files"))
    spark.read.parquet(str(directory / "files")).createOrReplaceTempView("stored")
    spark.sql("SELECT topic, count(*) FROM stored GROUP BY topic ORDER BY topic").toArrow()
    stream = spark.readStream.format("holdfast").options(**options).load()
    writing = stream.writeStream.foreachBatch(lambda batch, _: batch.collect())
    checkpointed = writing.option("checkpointLocation", str(directory / "checkpoint"))
    checkpointed.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    write_archive()
