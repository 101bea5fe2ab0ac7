"""Feature levels: which record formats the cluster may write. Set once when the metadata log is new."""

from kraftlog.kraft.timeline import SnapshotRegistry, TimelineDict
from kraftlog.proto.errors import UnsupportedVersionError
from kraftlog.proto.metadata_pb2 import FeatureLevelRecord, MetadataRecord

METADATA_VERSION = "metadata.version"
LATEST_METADATA_VERSION = 1


class FeatureManager:
    """Used only by the controller."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._levels: TimelineDict[str, int] = TimelineDict(registry)

    def bootstrap_records(self) -> list[MetadataRecord]:
        """What the first leader of a new cluster writes; nothing later."""
        if METADATA_VERSION in self._levels:
            return []
        level = FeatureLevelRecord(name=METADATA_VERSION, level=LATEST_METADATA_VERSION)
        return [MetadataRecord(feature_level=level)]

    def replay(self, record: FeatureLevelRecord) -> None:
        if record.name == METADATA_VERSION and record.level > LATEST_METADATA_VERSION:
            raise UnsupportedVersionError(
                f"the cluster's {METADATA_VERSION} is {record.level}, this kraftlog knows up to"
                f" {LATEST_METADATA_VERSION}: start a later version"
            )
        self._levels[record.name] = record.level
