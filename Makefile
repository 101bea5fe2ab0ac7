.PHONY: proto
AREAS := kraft logstore replication server sdk spark_connector proto
