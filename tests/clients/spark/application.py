"""Spark application for pyspark's own Python: sum a million numbers on two executors.

Argument: a folder.
"""

import os
import socket
import sys
from pathlib import Path

import pyspark  # type: ignore[import-not-found]
from pyspark.sql import SparkSession  # type: ignore[import-not-found]

_EXECUTORS = 2
_NUMBERS = 1_000_000

#: The command of Spark's image, for executors that find Spark on this machine instead. Spark adds
#: the argument `executor`, which becomes $0.
_TEMPLATE = """\
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: executor
      command:
        - sh
        - -c
        - >-
          exec java --add-opens=java.base/java.nio=ALL-UNNAMED
          --add-opens=java.base/sun.nio.ch=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED
          --add-opens=java.base/java.util=ALL-UNNAMED
          --add-opens=java.base/java.lang.invoke=ALL-UNNAMED
          -Xmx$SPARK_EXECUTOR_MEMORY -cp '{jars}/*'
          org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend
          --driver-url $SPARK_DRIVER_URL --executor-id $SPARK_EXECUTOR_ID
          --cores $SPARK_EXECUTOR_CORES --app-id $SPARK_APPLICATION_ID --hostname 127.0.0.1
          --resourceProfileId $SPARK_RESOURCE_PROFILE_ID --podName $SPARK_EXECUTOR_POD_NAME
"""


def main(folder: Path, server: str) -> None:
    # Executors take the Python that the driver names.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    template = folder / "executor.yaml"
    template.write_text(_TEMPLATE.format(jars=Path(pyspark.__file__).parent / "jars"))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.instances": _EXECUTORS,
        "spark.executor.memory": "512m",
        "spark.executor.memoryOverhead": "256m",
        "spark.kubernetes.executor.request.cores": "100m",
        "spark.kubernetes.container.image": "none",
        "spark.kubernetes.executor.podTemplateFile": template,
        "spark.kubernetes.namespace": "default",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # All executors shall take part, however slow the machine is.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    }
    builder = SparkSession.builder.master(f"k8s://{server}").appName("check")
    for name, value in settings.items():
        builder = builder.config(name, str(value))
    spark = builder.getOrCreate()
    numbers = spark.sparkContext.parallelize(range(_NUMBERS), 8)
    total = numbers.map(lambda number: number * 2).sum()
    assert total == _NUMBERS * (_NUMBERS - 1), total
    pids = numbers.mapPartitions(lambda _: [(socket.gethostname(), os.getppid())]).collect()
    print(f"the sum is right; partitions ran under {len(set(pids))} Python daemons", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
