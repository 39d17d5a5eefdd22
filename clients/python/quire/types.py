"""Requests and replies as plain dataclasses."""

import dataclasses
import datetime
import enum
from typing import Any, Mapping, Optional, Sequence, Union


@dataclasses.dataclass(frozen=True)
class Message:
    """One turn of a conversation; roles are "system", "user", "assistant", "tool".

    `content` may be None, or a list of parts, where the model's template takes that. `members` are
    further members for the template, as JSON has them: tool_calls, tool_call_id, name.
    """

    role: str
    content: Union[str, None, Sequence[Mapping[str, Any]]]
    members: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)


@dataclasses.dataclass(frozen=True)
class Options:
    """Parameters of a request. The server chooses those that are None; the proto has ranges.

    At most one of those from `json_schema` to `choice` is the structure that the output follows: a
    JSON Schema as a mapping or as text, any JSON object, a regular expression, a grammar in GBNF,
    one in Lark, or one of some texts.

    `logit_processors` are names that the server was started with (ServerInfo.logit_processors).

    With `n` or `best_of` above 1 there are several answers: `best_of` are drawn, and the `n` with
    the highest mean log probability come back.

    Those from `tools` on are for the template of a conversation. A `tool_choice` is "auto", which
    lets the model call tools, "none", which does not show them to it, "required", which makes it
    call one or more, or the name of the tool that it calls. A `template_time` without a time zone
    is in the local one.
    """

    max_tokens: Optional[int] = None
    min_tokens: Optional[int] = None
    stop: Union[str, Sequence[str]] = ()
    stop_token_ids: Sequence[int] = ()
    include_stop_in_output: Optional[bool] = None
    ignore_eos: Optional[bool] = None
    loop_max_tokens: Optional[int] = None
    loop_min_repeats: Optional[int] = None

    temperature: Optional[float] = None
    top_k: Optional[int] = None
    top_p: Optional[float] = None
    min_p: Optional[float] = None
    repetition_penalty: Optional[float] = None
    presence_penalty: Optional[float] = None
    frequency_penalty: Optional[float] = None
    seed: Optional[int] = None
    logit_bias: Mapping[int, float] = dataclasses.field(default_factory=dict)
    top_n_sigma: Optional[float] = None
    dynatemp_range: Optional[float] = None
    dynatemp_exponent: Optional[float] = None
    typical_p: Optional[float] = None
    xtc_probability: Optional[float] = None
    xtc_threshold: Optional[float] = None
    dry_multiplier: Optional[float] = None
    dry_base: Optional[float] = None
    dry_allowed_length: Optional[int] = None
    dry_last_n: Optional[int] = None
    dry_breaker_ids: Sequence[int] = ()
    allowed_token_ids: Sequence[int] = ()
    banned_token_ids: Sequence[int] = ()
    bad_word_ids: Sequence[Sequence[int]] = ()
    logit_processors: Sequence[str] = ()

    n: Optional[int] = None
    best_of: Optional[int] = None

    json_schema: Union[Mapping[str, Any], bool, str, None] = None
    json_object: Optional[bool] = None
    regex: Optional[str] = None
    grammar: Optional[str] = None
    lark: Optional[str] = None
    choice: Union[str, Sequence[str]] = ()

    text: Optional[bool] = None
    token_ids: Optional[bool] = None
    logprobs: Optional[bool] = None
    top_logprobs: Optional[int] = None
    logprob_token_ids: Sequence[int] = ()
    processed_logprobs: Optional[bool] = None
    prompt_logprobs: Optional[int] = None
    skip_special_tokens: Optional[bool] = None

    model: Optional[str] = None
    request_id: Optional[str] = None
    detach_seconds: Optional[float] = None
    priority: Optional[int] = None
    add_special_tokens: Optional[bool] = None

    session_id: Optional[str] = None
    expected_position: Optional[int] = None
    create_session: Optional[bool] = None
    bypass_prefix_cache: Optional[bool] = None
    max_guesses: Optional[int] = None

    split_reasoning: Optional[bool] = None
    max_reasoning_tokens: Optional[int] = None
    min_reasoning_tokens: Optional[int] = None

    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: Optional[str] = None
    documents: Sequence[Mapping[str, Any]] = ()
    template_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    template_name: Optional[str] = None
    template_time: Optional[datetime.datetime] = None
    add_generation_prompt: Optional[bool] = None
    continue_final_message: Optional[bool] = None


class FinishReason(enum.Enum):
    """Why a completion ended; the values are those of the proto."""

    UNSPECIFIED = 0
    EOS = 1
    STOP_TOKEN = 2
    STOP_TEXT = 3
    MAX_TOKENS = 4
    CONTEXT_LIMIT = 5
    LOOP = 6
    NO_TOKEN = 7
    TOOL_CALLS = 8
    TRUNCATED = 9


@dataclasses.dataclass(frozen=True)
class Accepted:
    """The request is queued. `options` are the effective ones, with the server's defaults.

    `predicted_first_token_seconds` is None until the server has computed some prompts.
    """

    request_id: str
    model: str
    prompt_tokens: int
    queue_position: int
    options: Options
    predicted_first_token_seconds: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class TokenScore:
    """A token's place in the distribution at its position; rank 1 is the most likely.

    `top` has the most likely tokens with their log probabilities, `requested` the log
    probabilities of Options.logprob_token_ids.
    """

    token_id: int
    logprob: float
    rank: int
    top: Mapping[int, float]
    requested: Sequence[float]


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A call of a tool, or in a Delta a piece of one; `index` tells which.

    The first piece of a call has its `id` and `name`. `arguments` are a JSON object, as the model
    wrote it; those of all pieces belong together.
    """

    index: int
    id: str
    name: str
    arguments: str


@dataclasses.dataclass(frozen=True)
class Delta:
    """The output of an answer since its last Delta. The first has the scores of the prompt."""

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    cumulative_tokens: int
    scores: Sequence[TokenScore] = ()
    prompt_scores: Sequence[TokenScore] = ()
    reasoning: str = ""
    tool_calls: Sequence[ToolCall] = ()
    index: int = 0


@dataclasses.dataclass(frozen=True)
class Usage:
    """Token counts of the request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    preemptions: int
    reasoning_tokens: int = 0
    guessed_tokens: int = 0
    accepted_guesses: int = 0


@dataclasses.dataclass(frozen=True)
class Timings:
    """Seconds on the server's clock."""

    queue_seconds: float
    prefill_seconds: float
    first_token_seconds: float
    decode_seconds: float
    total_seconds: float


class Outcome(enum.Enum):
    """Where existing KV was found; the values are those of the proto."""

    UNSPECIFIED = 0
    NONE = 1
    DEVICE = 2
    RESTORED = 3
    PARTIAL = 4
    RECOMPUTED = 5


@dataclasses.dataclass(frozen=True)
class Residency:
    """Where the KV of the prompt, including the session's tokens, came from."""

    outcome: Outcome
    device_tokens: int
    host_tokens: int
    recomputed_tokens: int
    restore_seconds: float


@dataclasses.dataclass(frozen=True)
class Finished:
    """The end of an answer, with the token or text that stopped it, if any.

    `position` is the number of tokens that the session has now, None without a session.

    Of several answers, `seed` gives this one alone, and `mean_logprob` is that of its tokens. One
    of them has `request_usage`: the prompt once, and the tokens of all that were drawn.
    """

    reason: FinishReason
    stop_token_id: Optional[int]
    stop_text: Optional[str]
    usage: Usage
    timings: Timings
    residency: Residency
    position: Optional[int]
    index: int = 0
    seed: Optional[int] = None
    mean_logprob: Optional[float] = None
    request_usage: Optional[Usage] = None


@dataclasses.dataclass(frozen=True)
class Completion:
    """A complete answer; of several the first, and `further_answers` has the others."""

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    accepted: Accepted
    finished: Finished
    scores: Sequence[TokenScore] = ()
    prompt_scores: Sequence[TokenScore] = ()
    reasoning: str = ""
    tool_calls: Sequence[ToolCall] = ()
    further_answers: Sequence["FurtherAnswer"] = ()


@dataclasses.dataclass(frozen=True)
class FurtherAnswer:
    """One more answer to the same prompt."""

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    finished: Finished
    scores: Sequence[TokenScore] = ()
    reasoning: str = ""
    tool_calls: Sequence[ToolCall] = ()


@dataclasses.dataclass(frozen=True)
class ItemFault:
    """Why one of many items has no result; `code` is a gRPC status code."""

    code: int
    message: str
    reason: str
    field: str


@dataclasses.dataclass(frozen=True)
class Score:
    """The scores of a text's tokens from the second on, and the sum of their log probabilities.

    `fault` is None unless the item failed; `index` is its place in the call.
    """

    index: int
    scores: Sequence[TokenScore]
    sum: float
    count: int
    fault: Optional[ItemFault] = None


@dataclasses.dataclass(frozen=True)
class Embedding:
    """The vector of a text. `fault` and `index` are as in Score."""

    index: int
    embedding: Sequence[float]
    fault: Optional[ItemFault] = None


@dataclasses.dataclass(frozen=True)
class BatchItem:
    """The answer of an item of generate_batch(), or why it has none. `index` is as in Score."""

    index: int
    completion: Optional[Completion]
    fault: Optional[ItemFault] = None


@dataclasses.dataclass(frozen=True)
class Token:
    """One token of a text: its id and, if requested, the bytes [begin, end) that it covers."""

    id: int
    begin: Optional[int] = None
    end: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """The served model.

    `quantization` is "none", or the encoding of the layers' matrices, such as "fp8, a scale for
    each 128 x 128 block"; a server that does not say it gives "".
    """

    model: str
    architecture: str
    num_parameters: int
    vocab_size: int
    max_model_len: int
    num_layers: int
    hidden_size: int
    dtype: str
    kv_cache_dtype: str
    block_size: int
    num_blocks: int
    eos_token_ids: Sequence[int]
    has_chat_template: bool
    quantization: str = ""


@dataclasses.dataclass(frozen=True)
class ServerInfo:
    """The server and its model. `state` is "LOADING", "READY", "DRAINING" or "FAULTED"."""

    version: str
    device: str
    models: Sequence[str]
    tensor_parallel_size: int
    uptime_seconds: float
    instance_id: str
    state: str
    max_request_bytes: int
    max_running_requests: int
    max_queued_requests: int
    commit: str
    compiler: str
    cuda: str
    build_type: str
    logit_processors: Sequence[str]
    model: ModelInfo
    max_guesses: int = 0  # of Options.max_guesses; 0: the server does not guess


@dataclasses.dataclass(frozen=True)
class RankSteps:
    """Where the device time of a rank's steps went, in the mean of those that were timed.

    `seconds` is by part: "idle", "products", "attention", "norms", "elementwise", "sampling",
    "collectives", "copies". Empty if no step was timed.
    """

    rank: int
    timed_steps: int
    seconds: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Load:
    """The server's load.

    `predicted_first_token_seconds` is for a request of one token that the caller would send now,
    None until the server has computed some prompts.
    """

    running_requests: int
    waiting_requests: int
    waiting_tokens: int
    free_blocks: int
    total_blocks: int
    kv_usage: float
    steps: int
    generated_tokens: int
    prompt_tokens: int
    preemptions: int
    open_streams: int
    cached_blocks: int
    host_pages_used: int
    host_pages: int
    sessions: int
    session_tokens: int
    predicted_first_token_seconds: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class MemoryTier:
    """The KV of one tier. Owners are those of Control.GetMemory; a page of the host is a block."""

    name: str
    total_blocks: int
    block_bytes: int
    blocks_by_owner: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class MemorySeries:
    """A figure over the last seconds."""

    min: float
    mean: float
    max: float
    last: float


@dataclasses.dataclass(frozen=True)
class Memory:
    """The server's memory: the plan in bytes of each rank, the KV by owner, its use over time."""

    plan: Mapping[str, int]
    tiers: Sequence[MemoryTier]
    reserved_blocks: int
    host_pages_ready: int
    resident_bytes: int
    series: Mapping[str, MemorySeries]
    seconds: int


class JobState(enum.Enum):
    """How a job stands; the values are those of the proto."""

    UNSPECIFIED = 0
    RUNNING = 1
    COMPLETED = 2
    CANCELLED = 3
    FAILED = 4


@dataclasses.dataclass(frozen=True)
class Job:
    """A file of requests. Times are in seconds since 1970; `priority` None: in the gaps."""

    job_id: str
    state: JobState
    lines: int
    done_lines: int
    failed_lines: int
    input_bytes: int
    result_bytes: int
    created_at: float
    expires_at: float
    ended_at: Optional[float]
    priority: Optional[int]
    failure: str


@dataclasses.dataclass(frozen=True)
class JobResults:
    """Some results of a job, each as the mapping that its JSON is. docs/jobs.md has the members."""

    results: Sequence[Mapping[str, Any]]
    next_offset: int


class SessionState(enum.Enum):
    """Where a session's KV is; the values are those of the proto."""

    UNSPECIFIED = 0
    ACTIVE = 1
    RESIDENT_IDLE = 2
    OFFLOADING = 3
    HOST = 4
    RESTORING = 5
    DROPPED = 6
    CLOSED = 7


@dataclasses.dataclass(frozen=True)
class SessionOptions:
    """Options of a session. The server chooses those that are None."""

    ttl_seconds: Optional[float] = None
    idle_offload_after_seconds: Optional[float] = None
    retain_priority: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class Session:
    """A conversation that the server keeps; `position` is its number of tokens."""

    session_id: str
    state: SessionState
    position: int
    turns: int
    options: SessionOptions
    pinned: bool
    device_tokens: int
    host_tokens: int
    absent_tokens: int
    idle_seconds: float
    expires_in_seconds: float
    age_seconds: float
