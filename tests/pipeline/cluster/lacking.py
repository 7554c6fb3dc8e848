"""An application for spark-submit: reads a topic as a batch and as a stream, and writes to it, and
prints the last line of what each of the three has against that."""

import sys
from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.pipeline.running import in_one_line

ADDRESS, TOPIC, DIRECTORY = sys.argv[1:]


def tell(action: Callable[[], object]) -> None:
    try:
        action()
    except PySparkException as problem:
        print("TOLD", in_one_line(str(problem)), flush=True)


spark = SparkSession.builder.appName("lacking").getOrCreate()
where = {"broker": ADDRESS, "subscribe": TOPIC, "startingOffsets": "earliest"}
stream = spark.readStream.format("holdfast").options(**where).load().writeStream.format("noop")
stream = stream.trigger(availableNow=True).option("checkpointLocation", DIRECTORY)
rows = spark.range(3).selectExpr(f"'{TOPIC}' AS topic", "CAST('x' AS BINARY) AS value")
tell(lambda: spark.read.format("holdfast").options(**where).load().collect())
tell(lambda: stream.start().awaitTermination())
tell(lambda: rows.write.format("holdfast").option("broker", ADDRESS).mode("append").save())
