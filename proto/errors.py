"""Error codes and their exceptions: one table for the wire, the SDK and gRPC's status.

Numbers and names are Kafka's (`org.apache.kafka.common.protocol.Errors`) and are never renumbered. Codes from 1000 on
are kraftlog's own. Each code has one exception class; loops ask its attributes and do not list classes:

`retriable`           the same request may be sent again and may succeed
`refresh_metadata`    fetch metadata first
`fatal`               this client instance cannot go on
`txn_requires_abort`  an open transaction must be aborted

An error's text names cause, place and next step: `raise NotLeaderOrFollowerError("broker 2, orders-3: ...")`.
"""

from enum import IntEnum
from typing import ClassVar


class ErrorCode(IntEnum):
    """What travels on the wire."""

    NONE = 0
    UNKNOWN_SERVER_ERROR = -1
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    BUFFER_EXHAUSTED = 1000
    CLIENT_CLOSED = 1001
    NO_OFFSET_FOR_PARTITION = 1002
    DATA_LOSS = 1003
    ILLEGAL_STATE = 1004
    SERIALIZATION_FAILED = 1005
    SSL_AUTHENTICATION_FAILED = 1006


class KraftlogError(Exception):
    """Base of every error that kraftlog raises on purpose. `str(error)` is one line."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    summary: ClassVar[str] = "the server met an unexpected error"
    grpc_status: ClassVar[str] = "UNKNOWN"
    retriable: ClassVar[bool] = False
    refresh_metadata: ClassVar[bool] = False
    fatal: ClassVar[bool] = False
    txn_requires_abort: ClassVar[bool] = False

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.summary)

    @property
    def message(self) -> str:
        """The text without the class name."""
        return str(self.args[0])


class UnknownServerError(KraftlogError):
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    summary = "the server met an unexpected error"
    grpc_status = "UNKNOWN"


class OffsetOutOfRangeError(KraftlogError):
    code = ErrorCode.OFFSET_OUT_OF_RANGE
    summary = "the offset lies outside of the partition's log"
    grpc_status = "OUT_OF_RANGE"


class CorruptRecordError(KraftlogError):
    code = ErrorCode.CORRUPT_MESSAGE
    summary = "a record batch fails its checks (CRC, size or format)"
    grpc_status = "DATA_LOSS"
    retriable = True


class UnknownTopicOrPartitionError(KraftlogError):
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    summary = "the topic or partition does not exist here"
    grpc_status = "NOT_FOUND"
    retriable = True
    refresh_metadata = True


class InvalidFetchSizeError(KraftlogError):
    code = ErrorCode.INVALID_FETCH_SIZE
    summary = "the fetch size is not valid"
    grpc_status = "INVALID_ARGUMENT"


class LeaderNotAvailableError(KraftlogError):
    code = ErrorCode.LEADER_NOT_AVAILABLE
    summary = "the partition has no leader yet"
    grpc_status = "UNAVAILABLE"
    retriable = True
    refresh_metadata = True


class NotLeaderOrFollowerError(KraftlogError):
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    summary = "this broker is not the leader of the partition"
    grpc_status = "FAILED_PRECONDITION"
    retriable = True
    refresh_metadata = True


class RequestTimedOutError(KraftlogError):
    code = ErrorCode.REQUEST_TIMED_OUT
    summary = "the request timed out; whether it took effect is unknown"
    grpc_status = "DEADLINE_EXCEEDED"
    retriable = True


class BrokerNotAvailableError(KraftlogError):
    code = ErrorCode.BROKER_NOT_AVAILABLE
    summary = "the broker cannot be reached"
    grpc_status = "UNAVAILABLE"
    retriable = True
    refresh_metadata = True


class ReplicaNotAvailableError(KraftlogError):
    code = ErrorCode.REPLICA_NOT_AVAILABLE
    summary = "the replica is not available"
    grpc_status = "UNAVAILABLE"
    retriable = True
    refresh_metadata = True


class RecordTooLargeError(KraftlogError):
    code = ErrorCode.MESSAGE_TOO_LARGE
    summary = "a record or batch is larger than the limit"
    grpc_status = "INVALID_ARGUMENT"


class StaleControllerEpochError(KraftlogError):
    code = ErrorCode.STALE_CONTROLLER_EPOCH
    summary = "the controller epoch is stale"
    grpc_status = "FAILED_PRECONDITION"


class OffsetMetadataTooLargeError(KraftlogError):
    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
    summary = "the metadata string of a committed offset is too long"
    grpc_status = "INVALID_ARGUMENT"


class NetworkError(KraftlogError):
    code = ErrorCode.NETWORK_EXCEPTION
    summary = "the connection was lost before an answer came"
    grpc_status = "UNAVAILABLE"
    retriable = True
    refresh_metadata = True


class CoordinatorLoadInProgressError(KraftlogError):
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    summary = "the coordinator is still loading its state"
    grpc_status = "UNAVAILABLE"
    retriable = True


class CoordinatorNotAvailableError(KraftlogError):
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    summary = "the coordinator is not available"
    grpc_status = "UNAVAILABLE"
    retriable = True


class NotCoordinatorError(KraftlogError):
    code = ErrorCode.NOT_COORDINATOR
    summary = "this broker is not the coordinator"
    grpc_status = "FAILED_PRECONDITION"
    retriable = True


class InvalidTopicError(KraftlogError):
    code = ErrorCode.INVALID_TOPIC_EXCEPTION
    summary = "the topic name is not valid"
    grpc_status = "INVALID_ARGUMENT"


class RecordListTooLargeError(KraftlogError):
    code = ErrorCode.RECORD_LIST_TOO_LARGE
    summary = "the record batch is larger than a segment"
    grpc_status = "INVALID_ARGUMENT"


class NotEnoughReplicasError(KraftlogError):
    code = ErrorCode.NOT_ENOUGH_REPLICAS
    summary = "fewer in-sync replicas than min.insync.replicas"
    grpc_status = "UNAVAILABLE"
    retriable = True


class NotEnoughReplicasAfterAppendError(KraftlogError):
    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    summary = "written, but to fewer in-sync replicas than min.insync.replicas"
    grpc_status = "UNAVAILABLE"
    retriable = True


class InvalidRequiredAcksError(KraftlogError):
    code = ErrorCode.INVALID_REQUIRED_ACKS
    summary = "acks must be 0, 1 or -1 (all)"
    grpc_status = "INVALID_ARGUMENT"


class IllegalGenerationError(KraftlogError):
    code = ErrorCode.ILLEGAL_GENERATION
    summary = "the group generation is not the present one"
    grpc_status = "FAILED_PRECONDITION"


class InconsistentGroupProtocolError(KraftlogError):
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    summary = "the member shares no assignment protocol with the group"
    grpc_status = "FAILED_PRECONDITION"


class InvalidGroupIdError(KraftlogError):
    code = ErrorCode.INVALID_GROUP_ID
    summary = "the group id is not valid"
    grpc_status = "INVALID_ARGUMENT"


class UnknownMemberIdError(KraftlogError):
    code = ErrorCode.UNKNOWN_MEMBER_ID
    summary = "the group does not know this member"
    grpc_status = "NOT_FOUND"


class InvalidSessionTimeoutError(KraftlogError):
    code = ErrorCode.INVALID_SESSION_TIMEOUT
    summary = "the session timeout is outside of the allowed range"
    grpc_status = "INVALID_ARGUMENT"


class RebalanceInProgressError(KraftlogError):
    code = ErrorCode.REBALANCE_IN_PROGRESS
    summary = "the group is rebalancing"
    grpc_status = "ABORTED"


class InvalidCommitOffsetSizeError(KraftlogError):
    code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    summary = "the offset commit is too large"
    grpc_status = "INVALID_ARGUMENT"


class TopicAuthorizationFailedError(KraftlogError):
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    summary = "not authorized for the topic"
    grpc_status = "PERMISSION_DENIED"


class GroupAuthorizationFailedError(KraftlogError):
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    summary = "not authorized for the group"
    grpc_status = "PERMISSION_DENIED"


class ClusterAuthorizationFailedError(KraftlogError):
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    summary = "not authorized for the cluster"
    grpc_status = "PERMISSION_DENIED"


class InvalidTimestampError(KraftlogError):
    code = ErrorCode.INVALID_TIMESTAMP
    summary = "a record timestamp is outside of the allowed range"
    grpc_status = "INVALID_ARGUMENT"


class UnsupportedSaslMechanismError(KraftlogError):
    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
    summary = "the SASL mechanism is not supported"
    grpc_status = "UNAUTHENTICATED"


class IllegalSaslStateError(KraftlogError):
    code = ErrorCode.ILLEGAL_SASL_STATE
    summary = "the request is not valid in this SASL state"
    grpc_status = "UNAUTHENTICATED"


class UnsupportedVersionError(KraftlogError):
    code = ErrorCode.UNSUPPORTED_VERSION
    summary = "this version is not supported"
    grpc_status = "UNIMPLEMENTED"


class TopicAlreadyExistsError(KraftlogError):
    code = ErrorCode.TOPIC_ALREADY_EXISTS
    summary = "the topic exists already"
    grpc_status = "ALREADY_EXISTS"


class InvalidPartitionsError(KraftlogError):
    code = ErrorCode.INVALID_PARTITIONS
    summary = "the number of partitions is not valid"
    grpc_status = "INVALID_ARGUMENT"


class InvalidReplicationFactorError(KraftlogError):
    code = ErrorCode.INVALID_REPLICATION_FACTOR
    summary = "the replication factor is not valid or exceeds the brokers"
    grpc_status = "INVALID_ARGUMENT"


class InvalidReplicaAssignmentError(KraftlogError):
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    summary = "the replica assignment is not valid"
    grpc_status = "INVALID_ARGUMENT"


class InvalidConfigError(KraftlogError):
    code = ErrorCode.INVALID_CONFIG
    summary = "a configuration key or value is not valid"
    grpc_status = "INVALID_ARGUMENT"


class NotControllerError(KraftlogError):
    code = ErrorCode.NOT_CONTROLLER
    summary = "this node is not the active controller"
    grpc_status = "FAILED_PRECONDITION"
    retriable = True


class InvalidRequestError(KraftlogError):
    code = ErrorCode.INVALID_REQUEST
    summary = "the request is malformed"
    grpc_status = "INVALID_ARGUMENT"


class UnsupportedForMessageFormatError(KraftlogError):
    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    summary = "the message format does not support this"
    grpc_status = "INVALID_ARGUMENT"


class PolicyViolationError(KraftlogError):
    code = ErrorCode.POLICY_VIOLATION
    summary = "a policy forbids this"
    grpc_status = "FAILED_PRECONDITION"


class OutOfOrderSequenceNumberError(KraftlogError):
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    summary = "the sequence number does not follow the last one of this producer"
    grpc_status = "FAILED_PRECONDITION"
    fatal = True
    txn_requires_abort = True


class DuplicateSequenceNumberError(KraftlogError):
    code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    summary = "the sequence number was written before"
    grpc_status = "ALREADY_EXISTS"


class InvalidProducerEpochError(KraftlogError):
    code = ErrorCode.INVALID_PRODUCER_EPOCH
    summary = "the producer epoch is older than the present one"
    grpc_status = "FAILED_PRECONDITION"
    fatal = True
    txn_requires_abort = True


class InvalidTxnStateError(KraftlogError):
    code = ErrorCode.INVALID_TXN_STATE
    summary = "the transaction is not in a state that allows this"
    grpc_status = "FAILED_PRECONDITION"
    fatal = True
    txn_requires_abort = True


class InvalidProducerIdMappingError(KraftlogError):
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    summary = "the producer id does not belong to the transactional id"
    grpc_status = "FAILED_PRECONDITION"
    fatal = True
    txn_requires_abort = True


class InvalidTransactionTimeoutError(KraftlogError):
    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
    summary = "the transaction timeout exceeds the broker's maximum"
    grpc_status = "INVALID_ARGUMENT"
    fatal = True


class ConcurrentTransactionsError(KraftlogError):
    code = ErrorCode.CONCURRENT_TRANSACTIONS
    summary = "the transactional id has another operation under way"
    grpc_status = "ABORTED"
    retriable = True


class TransactionCoordinatorFencedError(KraftlogError):
    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    summary = "the transaction coordinator was fenced by a newer one"
    grpc_status = "FAILED_PRECONDITION"
    fatal = True


class TransactionalIdAuthorizationFailedError(KraftlogError):
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    summary = "not authorized for the transactional id"
    grpc_status = "PERMISSION_DENIED"
    fatal = True


class SecurityDisabledError(KraftlogError):
    code = ErrorCode.SECURITY_DISABLED
    summary = "security features are disabled"
    grpc_status = "FAILED_PRECONDITION"


class OperationNotAttemptedError(KraftlogError):
    code = ErrorCode.OPERATION_NOT_ATTEMPTED
    summary = "not attempted, since another part of the request failed"
    grpc_status = "ABORTED"
    txn_requires_abort = True


class StorageError(KraftlogError):
    code = ErrorCode.KAFKA_STORAGE_ERROR
    summary = "the disk failed or is full"
    grpc_status = "UNAVAILABLE"
    retriable = True
    refresh_metadata = True


class LogDirNotFoundError(KraftlogError):
    code = ErrorCode.LOG_DIR_NOT_FOUND
    summary = "the log directory is not known"
    grpc_status = "NOT_FOUND"


class SaslAuthenticationFailedError(KraftlogError):
    code = ErrorCode.SASL_AUTHENTICATION_FAILED
    summary = "authentication failed"
    grpc_status = "UNAUTHENTICATED"


class UnknownProducerIdError(KraftlogError):
    code = ErrorCode.UNKNOWN_PRODUCER_ID
    summary = "no state is left of this producer id"
    grpc_status = "FAILED_PRECONDITION"
    fatal = True
    txn_requires_abort = True


class ReassignmentInProgressError(KraftlogError):
    code = ErrorCode.REASSIGNMENT_IN_PROGRESS
    summary = "a reassignment is under way"
    grpc_status = "ABORTED"


class DelegationTokenAuthDisabledError(KraftlogError):
    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    summary = "delegation tokens are disabled"
    grpc_status = "FAILED_PRECONDITION"


class DelegationTokenNotFoundError(KraftlogError):
    code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    summary = "the delegation token is not known"
    grpc_status = "NOT_FOUND"


class DelegationTokenOwnerMismatchError(KraftlogError):
    code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    summary = "the principal does not own the token"
    grpc_status = "PERMISSION_DENIED"


class DelegationTokenRequestNotAllowedError(KraftlogError):
    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    summary = "token requests are not allowed on this connection"
    grpc_status = "PERMISSION_DENIED"


class DelegationTokenAuthorizationFailedError(KraftlogError):
    code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    summary = "not authorized for the token"
    grpc_status = "PERMISSION_DENIED"


class DelegationTokenExpiredError(KraftlogError):
    code = ErrorCode.DELEGATION_TOKEN_EXPIRED
    summary = "the token has expired"
    grpc_status = "UNAUTHENTICATED"


class InvalidPrincipalTypeError(KraftlogError):
    code = ErrorCode.INVALID_PRINCIPAL_TYPE
    summary = "the principal type is not valid"
    grpc_status = "INVALID_ARGUMENT"


class NonEmptyGroupError(KraftlogError):
    code = ErrorCode.NON_EMPTY_GROUP
    summary = "the group still has members"
    grpc_status = "FAILED_PRECONDITION"


class GroupIdNotFoundError(KraftlogError):
    code = ErrorCode.GROUP_ID_NOT_FOUND
    summary = "the group does not exist"
    grpc_status = "NOT_FOUND"


class FetchSessionIdNotFoundError(KraftlogError):
    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    summary = "the fetch session is not known"
    grpc_status = "NOT_FOUND"
    retriable = True


class InvalidFetchSessionEpochError(KraftlogError):
    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
    summary = "the fetch session epoch is not the next one"
    grpc_status = "FAILED_PRECONDITION"
    retriable = True


class ListenerNotFoundError(KraftlogError):
    code = ErrorCode.LISTENER_NOT_FOUND
    summary = "the broker has no such listener"
    grpc_status = "NOT_FOUND"
    retriable = True
    refresh_metadata = True


class TopicDeletionDisabledError(KraftlogError):
    code = ErrorCode.TOPIC_DELETION_DISABLED
    summary = "topic deletion is disabled"
    grpc_status = "FAILED_PRECONDITION"


class FencedLeaderEpochError(KraftlogError):
    code = ErrorCode.FENCED_LEADER_EPOCH
    summary = "the leader epoch is older than the broker's"
    grpc_status = "FAILED_PRECONDITION"
    retriable = True
    refresh_metadata = True


class UnknownLeaderEpochError(KraftlogError):
    code = ErrorCode.UNKNOWN_LEADER_EPOCH
    summary = "the leader epoch is newer than the broker's"
    grpc_status = "FAILED_PRECONDITION"
    retriable = True
    refresh_metadata = True


class UnsupportedCompressionTypeError(KraftlogError):
    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    summary = "the compression codec is not supported"
    grpc_status = "INVALID_ARGUMENT"


class StaleBrokerEpochError(KraftlogError):
    code = ErrorCode.STALE_BROKER_EPOCH
    summary = "the broker epoch is stale"
    grpc_status = "FAILED_PRECONDITION"


class OffsetNotAvailableError(KraftlogError):
    code = ErrorCode.OFFSET_NOT_AVAILABLE
    summary = "the leader does not know its high watermark yet"
    grpc_status = "UNAVAILABLE"
    retriable = True
    refresh_metadata = True


class MemberIdRequiredError(KraftlogError):
    code = ErrorCode.MEMBER_ID_REQUIRED
    summary = "join again with the member id given in the answer"
    grpc_status = "FAILED_PRECONDITION"


class PreferredLeaderNotAvailableError(KraftlogError):
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    summary = "the preferred leader is not available"
    grpc_status = "UNAVAILABLE"
    retriable = True
    refresh_metadata = True


class GroupMaxSizeReachedError(KraftlogError):
    code = ErrorCode.GROUP_MAX_SIZE_REACHED
    summary = "the group has its maximum of members"
    grpc_status = "RESOURCE_EXHAUSTED"


class FencedInstanceIdError(KraftlogError):
    code = ErrorCode.FENCED_INSTANCE_ID
    summary = "another member uses this group.instance.id"
    grpc_status = "FAILED_PRECONDITION"
    fatal = True


class EligibleLeadersNotAvailableError(KraftlogError):
    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    summary = "no eligible leader is available"
    grpc_status = "UNAVAILABLE"
    retriable = True
    refresh_metadata = True


class ElectionNotNeededError(KraftlogError):
    code = ErrorCode.ELECTION_NOT_NEEDED
    summary = "the election is not needed"
    grpc_status = "FAILED_PRECONDITION"
    refresh_metadata = True


class NoReassignmentInProgressError(KraftlogError):
    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    summary = "no reassignment is under way"
    grpc_status = "FAILED_PRECONDITION"


class GroupSubscribedToTopicError(KraftlogError):
    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    summary = "the group is subscribed to the topic"
    grpc_status = "FAILED_PRECONDITION"


class InvalidRecordError(KraftlogError):
    code = ErrorCode.INVALID_RECORD
    summary = "a record fails the broker's validation"
    grpc_status = "INVALID_ARGUMENT"


class UnstableOffsetCommitError(KraftlogError):
    code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    summary = "offsets of an open transaction are not stable yet"
    grpc_status = "UNAVAILABLE"
    retriable = True


class ThrottlingQuotaExceededError(KraftlogError):
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    summary = "the quota is exceeded"
    grpc_status = "RESOURCE_EXHAUSTED"
    retriable = True


class ProducerFencedError(KraftlogError):
    code = ErrorCode.PRODUCER_FENCED
    summary = "a newer producer uses this transactional id"
    grpc_status = "FAILED_PRECONDITION"
    fatal = True


class ResourceNotFoundError(KraftlogError):
    code = ErrorCode.RESOURCE_NOT_FOUND
    summary = "the resource does not exist"
    grpc_status = "NOT_FOUND"


class DuplicateResourceError(KraftlogError):
    code = ErrorCode.DUPLICATE_RESOURCE
    summary = "the resource is named twice"
    grpc_status = "INVALID_ARGUMENT"


class UnacceptableCredentialError(KraftlogError):
    code = ErrorCode.UNACCEPTABLE_CREDENTIAL
    summary = "the credential does not meet the rules"
    grpc_status = "INVALID_ARGUMENT"


class InconsistentVoterSetError(KraftlogError):
    code = ErrorCode.INCONSISTENT_VOTER_SET
    summary = "the voters are not consistent"
    grpc_status = "FAILED_PRECONDITION"


class InvalidUpdateVersionError(KraftlogError):
    code = ErrorCode.INVALID_UPDATE_VERSION
    summary = "the update version is not valid"
    grpc_status = "INVALID_ARGUMENT"


class FeatureUpdateFailedError(KraftlogError):
    code = ErrorCode.FEATURE_UPDATE_FAILED
    summary = "the feature level could not be changed"
    grpc_status = "FAILED_PRECONDITION"


class PrincipalDeserializationFailureError(KraftlogError):
    code = ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    summary = "the principal could not be read"
    grpc_status = "INVALID_ARGUMENT"


class SnapshotNotFoundError(KraftlogError):
    code = ErrorCode.SNAPSHOT_NOT_FOUND
    summary = "the snapshot does not exist"
    grpc_status = "NOT_FOUND"


class PositionOutOfRangeError(KraftlogError):
    code = ErrorCode.POSITION_OUT_OF_RANGE
    summary = "the snapshot position is out of range"
    grpc_status = "OUT_OF_RANGE"


class UnknownTopicIdError(KraftlogError):
    code = ErrorCode.UNKNOWN_TOPIC_ID
    summary = "the topic id is not known"
    grpc_status = "NOT_FOUND"
    retriable = True
    refresh_metadata = True


class DuplicateBrokerRegistrationError(KraftlogError):
    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    summary = "another live broker uses this node id"
    grpc_status = "ALREADY_EXISTS"


class BrokerIdNotRegisteredError(KraftlogError):
    code = ErrorCode.BROKER_ID_NOT_REGISTERED
    summary = "the broker is not registered"
    grpc_status = "NOT_FOUND"


class InconsistentTopicIdError(KraftlogError):
    code = ErrorCode.INCONSISTENT_TOPIC_ID
    summary = "the topic id does not match"
    grpc_status = "FAILED_PRECONDITION"
    retriable = True
    refresh_metadata = True


class InconsistentClusterIdError(KraftlogError):
    code = ErrorCode.INCONSISTENT_CLUSTER_ID
    summary = "the cluster id does not match"
    grpc_status = "FAILED_PRECONDITION"
    fatal = True


class TransactionalIdNotFoundError(KraftlogError):
    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    summary = "the transactional id is not known"
    grpc_status = "NOT_FOUND"


class FetchSessionTopicIdError(KraftlogError):
    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    summary = "the fetch session mixes topic ids"
    grpc_status = "FAILED_PRECONDITION"
    retriable = True


class IneligibleReplicaError(KraftlogError):
    code = ErrorCode.INELIGIBLE_REPLICA
    summary = "the replica may not join the in-sync replicas"
    grpc_status = "FAILED_PRECONDITION"


class NewLeaderElectedError(KraftlogError):
    code = ErrorCode.NEW_LEADER_ELECTED
    summary = "the change has elected a new leader"
    grpc_status = "FAILED_PRECONDITION"


class OffsetMovedToTieredStorageError(KraftlogError):
    code = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    summary = "the offset lies in tiered storage"
    grpc_status = "OUT_OF_RANGE"


class FencedMemberEpochError(KraftlogError):
    code = ErrorCode.FENCED_MEMBER_EPOCH
    summary = "the member epoch is fenced"
    grpc_status = "FAILED_PRECONDITION"


class UnreleasedInstanceIdError(KraftlogError):
    code = ErrorCode.UNRELEASED_INSTANCE_ID
    summary = "the instance id is still in use"
    grpc_status = "FAILED_PRECONDITION"


class UnsupportedAssignorError(KraftlogError):
    code = ErrorCode.UNSUPPORTED_ASSIGNOR
    summary = "the assignor is not supported"
    grpc_status = "INVALID_ARGUMENT"


class StaleMemberEpochError(KraftlogError):
    code = ErrorCode.STALE_MEMBER_EPOCH
    summary = "the member epoch is stale"
    grpc_status = "FAILED_PRECONDITION"
    retriable = True


class MismatchedEndpointTypeError(KraftlogError):
    code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
    summary = "the request went to the wrong kind of endpoint"
    grpc_status = "INVALID_ARGUMENT"


class UnsupportedEndpointTypeError(KraftlogError):
    code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    summary = "the endpoint type is not supported"
    grpc_status = "UNIMPLEMENTED"


class UnknownControllerIdError(KraftlogError):
    code = ErrorCode.UNKNOWN_CONTROLLER_ID
    summary = "the controller id is not known"
    grpc_status = "NOT_FOUND"


class UnknownSubscriptionIdError(KraftlogError):
    code = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    summary = "the subscription id is not known"
    grpc_status = "NOT_FOUND"


class TelemetryTooLargeError(KraftlogError):
    code = ErrorCode.TELEMETRY_TOO_LARGE
    summary = "the telemetry is too large"
    grpc_status = "RESOURCE_EXHAUSTED"


class InvalidRegistrationError(KraftlogError):
    code = ErrorCode.INVALID_REGISTRATION
    summary = "the broker registration is not valid"
    grpc_status = "INVALID_ARGUMENT"


class TransactionAbortableError(KraftlogError):
    code = ErrorCode.TRANSACTION_ABORTABLE
    summary = "the transaction must be aborted"
    grpc_status = "ABORTED"
    txn_requires_abort = True


class InvalidRecordStateError(KraftlogError):
    code = ErrorCode.INVALID_RECORD_STATE
    summary = "the record is not in a state that allows this"
    grpc_status = "FAILED_PRECONDITION"


class ShareSessionNotFoundError(KraftlogError):
    code = ErrorCode.SHARE_SESSION_NOT_FOUND
    summary = "the share session is not known"
    grpc_status = "NOT_FOUND"
    retriable = True


class InvalidShareSessionEpochError(KraftlogError):
    code = ErrorCode.INVALID_SHARE_SESSION_EPOCH
    summary = "the share session epoch is not valid"
    grpc_status = "FAILED_PRECONDITION"
    retriable = True


class FencedStateEpochError(KraftlogError):
    code = ErrorCode.FENCED_STATE_EPOCH
    summary = "the state epoch is fenced"
    grpc_status = "FAILED_PRECONDITION"


class InvalidVoterKeyError(KraftlogError):
    code = ErrorCode.INVALID_VOTER_KEY
    summary = "the voter key does not match"
    grpc_status = "INVALID_ARGUMENT"


class DuplicateVoterError(KraftlogError):
    code = ErrorCode.DUPLICATE_VOTER
    summary = "the voter is in the set already"
    grpc_status = "ALREADY_EXISTS"


class VoterNotFoundError(KraftlogError):
    code = ErrorCode.VOTER_NOT_FOUND
    summary = "the voter is not in the set"
    grpc_status = "NOT_FOUND"


class InvalidRegularExpressionError(KraftlogError):
    code = ErrorCode.INVALID_REGULAR_EXPRESSION
    summary = "the regular expression is not valid"
    grpc_status = "INVALID_ARGUMENT"


class RebootstrapRequiredError(KraftlogError):
    code = ErrorCode.REBOOTSTRAP_REQUIRED
    summary = "the client must bootstrap again"
    grpc_status = "FAILED_PRECONDITION"
    refresh_metadata = True


class BufferExhaustedError(KraftlogError):
    code = ErrorCode.BUFFER_EXHAUSTED
    summary = "no memory came free within max_block_ms"
    grpc_status = "RESOURCE_EXHAUSTED"
    retriable = True


class ClientClosedError(KraftlogError):
    code = ErrorCode.CLIENT_CLOSED
    summary = "the client is closed"
    grpc_status = "CANCELLED"
    fatal = True


class NoOffsetForPartitionError(KraftlogError):
    code = ErrorCode.NO_OFFSET_FOR_PARTITION
    summary = "no committed offset and auto_offset_reset is none"
    grpc_status = "FAILED_PRECONDITION"


class DataLossError(KraftlogError):
    code = ErrorCode.DATA_LOSS
    summary = "records that were to be read are gone"
    grpc_status = "DATA_LOSS"


class IllegalStateError(KraftlogError):
    code = ErrorCode.ILLEGAL_STATE
    summary = "the call is not valid in the present state"
    grpc_status = "FAILED_PRECONDITION"


class SerializationFailedError(KraftlogError):
    code = ErrorCode.SERIALIZATION_FAILED
    summary = "a key or value could not be turned into bytes"
    grpc_status = "INVALID_ARGUMENT"


class SslAuthenticationFailedError(KraftlogError):
    """Kafka's clients have `SslAuthenticationException` for it, without a code."""

    code = ErrorCode.SSL_AUTHENTICATION_FAILED
    summary = "client and broker could not agree on a secure connection"
    grpc_status = "UNAUTHENTICATED"


def _all_classes() -> dict[int, type[KraftlogError]]:
    classes: dict[int, type[KraftlogError]] = {}
    for error_class in KraftlogError.__subclasses__():
        classes.setdefault(int(error_class.code), error_class)
    return classes


_BY_CODE = _all_classes()


def error_class(code: int) -> type[KraftlogError]:
    """The class of a wire code; `UnknownServerError` for a code of a later version."""
    return _BY_CODE.get(code, UnknownServerError)


def error_for(code: int, message: str = "") -> KraftlogError:
    """A fresh exception for a wire code other than 0."""
    return error_class(code)(message)


def raise_for(code: int, message: str = "") -> None:
    """Raise the exception of a wire code; do nothing for 0."""
    if code:
        raise error_for(code, message)


def code_of(error: BaseException) -> ErrorCode:
    """The wire code of an exception; UNKNOWN_SERVER_ERROR for what kraftlog did not raise on purpose."""
    return error.code if isinstance(error, KraftlogError) else ErrorCode.UNKNOWN_SERVER_ERROR
