"""Spark DataSource V2 (Python Data Source) reader for kraftlog topics."""

if __name__ != "kraftlog.spark_connector":
    raise ImportError("import kraftlog.spark_connector: spark_connector/ is a folder of the checkout, not a module")
