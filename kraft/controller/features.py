"""Feature levels: which record formats and protocols the cluster uses (KIP-584).

A level holds for the whole cluster, so it is raised only when this controller and every registered broker, fenced ones
too, can work with it; a broker that cannot is not registered. Level 0 is off. `metadata.version` is set when the
metadata log is new and is never off.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kraftlog.kraft.controller.config import MAX_FEATURES
from kraftlog.kraft.controller.result import Result
from kraftlog.kraft.image import BrokerImage
from kraftlog.kraft.timeline import SnapshotRegistry, TimelineDict
from kraftlog.proto.admin_pb2 import FeatureUpdate, UpdateFeaturesRequest, UpdateFeaturesResponse
from kraftlog.proto.config import nearest
from kraftlog.proto.errors import (
    InvalidRequestError,
    InvalidUpdateVersionError,
    KraftlogError,
    OperationNotAttemptedError,
    UnsupportedVersionError,
    code_of,
)
from kraftlog.proto.metadata_pb2 import FeatureLevelRecord, MetadataRecord
from kraftlog.proto.names import display

METADATA_VERSION = "metadata.version"
LATEST_METADATA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What this controller knows of one feature."""

    min_level: int
    """Of the levels that are not off."""
    max_level: int
    changes_metadata: frozenset[int] = frozenset()
    """Levels that brought records which lower levels cannot read: going below one of them would lose metadata."""


SUPPORTED_FEATURES: Mapping[str, Feature] = {
    METADATA_VERSION: Feature(min_level=1, max_level=LATEST_METADATA_VERSION, changes_metadata=frozenset({1}))
}


def supported_ranges() -> dict[str, tuple[int, int]]:
    """What a broker of this version registers with."""
    return {name: (feature.min_level, feature.max_level) for name, feature in SUPPORTED_FEATURES.items()}


class FeatureManager:
    """Used only by the controller."""

    def __init__(
        self, registry: SnapshotRegistry, brokers: Callable[[], Iterable[BrokerImage]], supported: Mapping[str, Feature]
    ) -> None:
        self._brokers = brokers
        self._supported = supported
        self._levels: TimelineDict[str, int] = TimelineDict(registry)
        self.bootstrap_levels: Mapping[str, int] = {METADATA_VERSION: LATEST_METADATA_VERSION}
        """Of a new cluster; formatting its nodes may have chosen others."""

    def levels(self) -> dict[str, int]:
        """The features that are on."""
        return {name: self._levels[name] for name in sorted(self._levels) if self._levels[name]}

    def bootstrap_records(self) -> list[MetadataRecord]:
        """What the first leader of a new cluster writes; nothing later."""
        if METADATA_VERSION in self._levels:
            return []
        return [
            MetadataRecord(feature_level=FeatureLevelRecord(name=name, level=level))
            for name, level in sorted(self.bootstrap_levels.items())
        ]

    def check_broker(self, node_id: int, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Raise `UnsupportedVersionError` for a broker that cannot work with the cluster's levels."""
        for name, level in self.levels().items():
            if not _covers(ranges, name, level):
                raise UnsupportedVersionError(
                    f"broker {node_id} does not know {name} {level}, at which the cluster is: start another version there"
                )

    def update(self, request: UpdateFeaturesRequest) -> Result[UpdateFeaturesResponse]:
        """All or nothing: if one is refused, the others are answered with `OperationNotAttemptedError`."""
        if len(request.updates) > MAX_FEATURES or not request.updates:
            raise InvalidRequestError(f"{len(request.updates)} feature updates were sent, 1 to {MAX_FEATURES} may be")
        if len({update.name for update in request.updates}) < len(request.updates):
            raise InvalidRequestError("a feature is named twice in the request")
        refusals = [self._refusal(update) for update in request.updates]
        has_failed = any(refusals)
        response = UpdateFeaturesResponse()
        for update, refusal in zip(request.updates, refusals, strict=True):
            result = response.results.add(name=update.name)
            if refusal is None and has_failed:
                refusal = OperationNotAttemptedError("another feature of the request was refused")
            if refusal is not None:
                result.error_code, result.error_message = code_of(refusal), str(refusal)
        if has_failed or request.validate_only:
            return Result(response)
        return Result(
            response,
            [
                MetadataRecord(feature_level=FeatureLevelRecord(name=update.name, level=update.level))
                for update in request.updates
                if update.level != self._levels.get(update.name, 0)
            ],
        )

    def _refusal(self, update: FeatureUpdate) -> KraftlogError | None:
        try:
            self._check(update)
        except KraftlogError as error:
            return error
        return None

    def _check(self, update: FeatureUpdate) -> None:
        known = self._supported.get(update.name)
        if known is None:
            raise InvalidUpdateVersionError(
                f"feature {display(update.name)} is not known{nearest(update.name, self._supported)}"
            )
        lowest = known.min_level if update.name == METADATA_VERSION else 0
        if update.level != lowest and not known.min_level <= update.level <= known.max_level:
            raise InvalidUpdateVersionError(
                f"feature {update.name}: this controller knows levels {known.min_level} to {known.max_level},"
                f" not {update.level}"
            )
        current = self._levels.get(update.name, 0)
        if update.level < current:
            self._check_downgrade(update, current, known)
        elif update.level > current and update.upgrade_type != FeatureUpdate.UPGRADE:
            raise InvalidUpdateVersionError(
                f"feature {update.name}: level {update.level} is above the cluster's {current}, so not a downgrade"
            )
        for broker in self._brokers() if update.level else ():
            if not _covers(broker.features, update.name, update.level):
                raise InvalidUpdateVersionError(
                    f"feature {update.name}: broker {broker.node_id} cannot work with level {update.level}:"
                    " upgrade it, or unregister it if it is gone"
                )

    @staticmethod
    def _check_downgrade(update: FeatureUpdate, current: int, known: Feature) -> None:
        if update.upgrade_type == FeatureUpdate.UPGRADE:
            raise InvalidUpdateVersionError(
                f"feature {update.name}: level {update.level} is below the cluster's {current}: ask for a downgrade"
            )
        if any(update.level < level <= current for level in known.changes_metadata):
            if update.upgrade_type == FeatureUpdate.SAFE_DOWNGRADE:
                raise InvalidUpdateVersionError(
                    f"feature {update.name}: metadata of level {current} cannot be kept at level {update.level}"
                )
            if update.name == METADATA_VERSION:  # as Kafka: what level 1 cannot read would stop every node
                raise InvalidUpdateVersionError(f"feature {update.name}: an unsafe downgrade is not supported")

    def replay(self, record: FeatureLevelRecord) -> None:
        known = self._supported.get(record.name)
        highest = 0 if known is None else known.max_level
        if record.level > highest:
            raise UnsupportedVersionError(
                f"the cluster's {record.name} is {record.level}, this kraftlog knows up to {highest}:"
                " start a later version"
            )
        self._levels[record.name] = record.level


def _covers(ranges: Mapping[str, tuple[int, int]], name: str, level: int) -> bool:
    """A registration without ranges is one of metadata.version 1 alone, from before they were recorded."""
    low, high = ranges.get(name, (1, 1) if name == METADATA_VERSION and not ranges else (0, 0))
    return low <= level <= high
