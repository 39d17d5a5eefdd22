"""Client of Quire, a server for language models: see QuireClient, and quire.aio for asyncio."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)

from quire.stubs import make_importable

make_importable(__path__)

# pylint: disable=wrong-import-position
from quire.client import QuireClient
from quire.conversation import Conversation
from quire.errors import (
    AlreadyExists,
    Cancelled,
    DeadlineExceeded,
    FieldViolation,
    InvalidRequest,
    NotFound,
    Overloaded,
    PermissionDenied,
    QuireError,
    ServerFault,
    Unauthenticated,
    Unavailable,
)
from quire.jobs import Jobs, job_line
from quire.retries import Retries
from quire.sessions import Sessions
from quire.setting_errors import SettingsError
from quire.stream import Stream
from quire.types import (
    Accepted,
    BatchItem,
    Completion,
    Delta,
    Embedding,
    Finished,
    FinishReason,
    FurtherAnswer,
    ItemFault,
    Job,
    JobResults,
    JobState,
    Load,
    Memory,
    MemorySeries,
    MemoryTier,
    Message,
    ModelInfo,
    Options,
    Outcome,
    RankSteps,
    Residency,
    Score,
    ServerInfo,
    Session,
    SessionOptions,
    SessionState,
    Timings,
    Token,
    TokenScore,
    ToolCall,
    Usage,
)

__all__ = [
    "Accepted", "AlreadyExists", "BatchItem", "Cancelled", "Completion", "Conversation",
    "DeadlineExceeded", "Delta", "Embedding", "FieldViolation", "FinishReason", "Finished",
    "FurtherAnswer", "InvalidRequest", "ItemFault", "Job", "JobResults", "JobState", "Jobs", "Load",
    "Memory", "MemorySeries", "MemoryTier", "job_line",
    "Message", "ModelInfo", "NotFound", "Options", "Outcome", "Overloaded", "PermissionDenied",
    "QuireClient", "QuireError",
    "RankSteps", "Residency", "Retries", "Score", "ServerFault", "ServerInfo", "Session",
    "SessionOptions", "SessionState", "Sessions", "SettingsError", "Stream", "Timings", "Token",
    "TokenScore", "ToolCall", "Unauthenticated", "Unavailable", "Usage",
]  # fmt: skip
