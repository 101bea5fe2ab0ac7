"""The active controller as other nodes reach it: the service on the controllers' listeners, and every node's client of it."""

from kraftlog.server.controller.client import ControllerClient
from kraftlog.server.controller.service import ControllerService

__all__ = ["ControllerClient", "ControllerService"]
