"""The metadata quorum, for operators who ask any broker."""

from kraftlog.proto.admin_pb2 import (
    AddVoterRequest,
    AddVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    TransferLeadershipRequest,
    TransferLeadershipResponse,
)
from kraftlog.proto.errors import RequestTimedOutError
from kraftlog.proto.seams import CallContext
from kraftlog.server.controller import ControllerClient
from kraftlog.server.controller.operations import (
    ADD_VOTER,
    DESCRIBE_QUORUM,
    REMOVE_VOTER,
    TRANSFER_LEADERSHIP,
    description_message,
)


class QuorumHandler:
    """Passes everything on to the leader. Used from one event loop."""

    def __init__(self, controller: ControllerClient) -> None:
        self._controller = controller

    async def describe_quorum(self, request: DescribeQuorumRequest, context: CallContext) -> DescribeQuorumResponse:
        """What the leader knows; where none answers and the request allows it, what this node does."""
        try:
            return await self._controller.perform(DESCRIBE_QUORUM, request)
        except RequestTimedOutError:
            if not request.allow_stale:
                raise
        response = description_message(self._controller.quorum.describe())
        response.stale = True
        return response

    async def add_voter(self, request: AddVoterRequest, context: CallContext) -> AddVoterResponse:
        return await self._controller.perform(ADD_VOTER, request)

    async def remove_voter(self, request: RemoveVoterRequest, context: CallContext) -> RemoveVoterResponse:
        return await self._controller.perform(REMOVE_VOTER, request)

    async def transfer_leadership(
        self, request: TransferLeadershipRequest, context: CallContext
    ) -> TransferLeadershipResponse:
        return await self._controller.perform(TRANSFER_LEADERSHIP, request)
