"""Settings of a Spark that lives for some minutes."""

from __future__ import annotations

from midstream.cluster.spark.environment import LOGGING

SHORT_LIVED = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()} "
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
}
"""What is compiled well takes longer to compile than it then saves, on processors that other tests share."""
