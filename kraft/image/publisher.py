"""Who hears of committed metadata."""

from typing import Protocol

from kraftlog.kraft.image.delta import MetadataDelta
from kraftlog.kraft.image.image import MetadataImage


class MetadataPublisher(Protocol):
    """Called on the event loop, in offset order, with nothing left out. The first call of a publisher has a delta
    from the empty image to the whole one. It must not block, and an exception stops the node: state would be stale."""

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """`image` is `delta.image` with the delta's changes in it."""
        ...
