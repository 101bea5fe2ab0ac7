"""Administration: topics, configurations, the cluster and its metadata quorum, groups and offsets. Plain dataclasses come back.

`AsyncAdmin` does the work on an event loop; `Admin` has the same methods and runs them on the background loop.
"""

from kraftlog.sdk.admin.async_admin import AsyncAdmin
from kraftlog.sdk.admin.sync_admin import Admin

__all__ = ["Admin", "AsyncAdmin"]
