"""Java virtual machines that live for seconds: how tests start Spark in them.

Owns: their options. The classes that each of them loads anyway lie ready in an archive, with which
Spark starts in half of the time; `tests.spark_classes` writes it, and without it all works too.
"""

from pathlib import Path

ARCHIVE = Path(__file__).parent.parent / "target" / "spark-classes.jsa"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What lives for seconds does not earn back what better code costs."""
QUIETLY = "-Xshare:auto -Xlog:disable"
"""An archive of another Java or of another Spark is passed over, without a word."""
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
"""Spark's own switch. What stands there goes before what a session asks for, so it says only what
comes ahead of a session's own options."""


def quick_start() -> dict[str, str]:
    """Variables with which Spark starts like that, in this process and in those that it starts."""
    options = f"{QUICK} {QUIETLY} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else QUICK
    return {
        SUBMIT_ARGUMENTS: f'--conf "spark.driver.defaultJavaOptions={options}" pyspark-shell',
        "SPARK_LAUNCHER_OPTS": QUICK,
    }
