"""Converts between the dataclasses of quire.types and the messages of the proto."""

import dataclasses
import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union, cast

from google.protobuf import message as protobuf

from quire.chats import Turn, chat_messages, refuse_chat_options
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
from quire.v1 import control_pb2, inference_pb2, jobs_pb2, sessions_pb2

Prompt = Union[str, Sequence[int], Sequence[Turn]]

# The options that are fields of SamplingParams: lists, and single values.
_SAMPLING_LISTS = ("dry_breaker_ids", "allowed_token_ids", "banned_token_ids", "logit_processors")
_SAMPLING = tuple(
    field.name
    for field in inference_pb2.SamplingParams.DESCRIPTOR.fields
    if field.message_type is None and field.name not in _SAMPLING_LISTS
)
_STOP = ("max_tokens", "min_tokens", "include_stop_in_output", "ignore_eos",
         "loop_max_tokens", "loop_min_repeats")  # fmt: skip
_STRUCTURES = ("json_schema", "json_object", "regex", "grammar", "lark", "choice")
_OUTPUT = ("text", "token_ids", "logprobs", "skip_special_tokens", "top_logprobs",
           "processed_logprobs", "prompt_logprobs")  # fmt: skip
_REQUEST = (
    "model", "request_id", "priority", "add_special_tokens", "session_id", "expected_position",
    "create_session", "bypass_prefix_cache", "n", "best_of", "detach_seconds",
)  # fmt: skip


def _set(message: Any, options: Options, names: Sequence[str]) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None:
            setattr(message, name, value)


def generate_request(prompt: Prompt, options: Options) -> inference_pb2.GenerateRequest:
    """The request for a text, for token ids, or for a conversation."""
    if len(prompt) > 0 and isinstance(prompt[0], (Message, Mapping)):
        return chat_request(cast(Sequence[Turn], prompt), options)
    refuse_chat_options(options)
    request = inference_pb2.GenerateRequest()
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.SetInParent()
        try:
            request.token_ids.ids.extend(prompt)
        except TypeError:
            wrong = [at for at, item in enumerate(prompt) if not hasattr(item, "__index__")]
            if not wrong:
                raise
            kind = type(prompt[wrong[0]]).__name__
            raise TypeError(f"token id {wrong[0]} of the prompt is an int, not {kind}") from None
    _set_options(request, options)
    return request


def chat_request(turns: Sequence[Turn], options: Options) -> inference_pb2.GenerateRequest:
    """The request for a conversation. The server refuses an empty one."""
    request = inference_pb2.GenerateRequest(chat=chat_messages(turns, options))
    _set_options(request, options)
    return request


def tokenize_request(
    text: Union[str, Sequence[Turn]], options: Options, offsets: bool
) -> inference_pb2.TokenizeRequest:
    """The request for the tokens of a text or of a conversation."""
    request = inference_pb2.TokenizeRequest(offsets=offsets)
    _set(request, options, ("model", "add_special_tokens"))
    if isinstance(text, str):
        refuse_chat_options(options)
        request.text = text
    else:
        request.chat.CopyFrom(chat_messages(text, options))
    return request


def tokens_of(message: inference_pb2.TokenizeResponse, offsets: bool) -> List[Token]:
    """The tokens of a reply, with the bytes that they cover if `offsets` were requested."""
    if not offsets:
        return [Token(i) for i in message.token_ids]
    return [Token(i, b, e) for i, b, e in zip(message.token_ids, message.begin, message.end)]


def _set_options(request: inference_pb2.GenerateRequest, options: Options) -> None:
    _set(request, options, _REQUEST)
    _set(request.sampling, options, _SAMPLING)
    request.sampling.logit_bias.update(options.logit_bias)
    for name in _SAMPLING_LISTS:
        getattr(request.sampling, name).extend(getattr(options, name))
    for word in options.bad_word_ids:
        request.sampling.bad_word_ids.add(ids=word)
    _set(request.stop, options, _STOP)
    stop = [options.stop] if isinstance(options.stop, str) else options.stop
    request.stop.stop.extend(stop)
    request.stop.stop_token_ids.extend(options.stop_token_ids)
    _set(request.output, options, _OUTPUT)
    request.output.logprob_token_ids.extend(options.logprob_token_ids)
    _set_structure(request, options)
    _set(request.speculation, options, ("max_guesses",))
    for name, value in (
        ("split", options.split_reasoning),
        ("max_tokens", options.max_reasoning_tokens),
        ("min_tokens", options.min_reasoning_tokens),
    ):
        if value is not None:
            setattr(request.reasoning, name, value)


def _set_structure(request: inference_pb2.GenerateRequest, options: Options) -> None:
    """The structure of the output. TypeError for more than one."""
    given = [name for name in _STRUCTURES if getattr(options, name) is not None]
    for name in ("json_object", "choice"):  # False and no texts; a schema may be False
        if name in given and not getattr(options, name):
            given.remove(name)
    if len(given) > 1:
        raise TypeError(f"{given[0]} and {given[1]} exclude each other; give one")
    if "choice" in given:
        choice = [options.choice] if isinstance(options.choice, str) else options.choice
        request.structured_output.choice.texts.extend(choice)
    elif "json_schema" in given and not isinstance(options.json_schema, str):
        request.structured_output.json_schema = json.dumps(options.json_schema)
    elif given:
        _set(request.structured_output, options, given)


def _values(message: Any, kind: Any) -> Dict[str, Any]:
    """The fields that message and dataclass `kind` share; lists become tuples."""
    values = {}
    for field in dataclasses.fields(kind):
        if field.name in message.DESCRIPTOR.fields_by_name:
            value = getattr(message, field.name)
            if isinstance(value, (bool, int, float, str, bytes)):
                values[field.name] = value
            elif not isinstance(value, protobuf.Message):
                values[field.name] = tuple(value)
    return values


def accepted_of(request_id: str, message: inference_pb2.Accepted) -> Accepted:
    """The effective options that the server echoes."""
    options = {name: getattr(message.sampling, name) for name in _SAMPLING}
    options |= {name: getattr(message.stop, name) for name in _STOP}
    output = message.output
    options |= {name: getattr(output, name) for name in _OUTPUT if output.HasField(name)}
    options["logprob_token_ids"] = tuple(output.logprob_token_ids)
    options |= {name: tuple(getattr(message.sampling, name)) for name in _SAMPLING_LISTS}
    options["logit_bias"] = dict(message.sampling.logit_bias)
    options["bad_word_ids"] = tuple(tuple(word.ids) for word in message.sampling.bad_word_ids)
    options["stop"] = tuple(message.stop.stop)
    options["stop_token_ids"] = tuple(message.stop.stop_token_ids)
    options["max_guesses"] = message.speculation.max_guesses
    options |= {"model": message.model, "request_id": request_id}
    own = ("n", "best_of", "detach_seconds")
    options |= {name: getattr(message, name) for name in own if message.HasField(name)}
    return Accepted(
        request_id,
        message.model,
        message.prompt_tokens,
        message.queue_position,
        Options(**options),
        _prediction(message),
    )


def _prediction(message: Any) -> Optional[float]:
    name = "predicted_first_token_seconds"
    return getattr(message, name) if message.HasField(name) else None


def delta_of(message: inference_pb2.TokenDelta) -> Delta:
    """One frame of tokens."""
    parts = _all_scores(message) | {"tool_calls": _tool_calls(message)}
    return Delta(**_values(message, Delta) | parts)


def _tool_calls(message: Any) -> Sequence[ToolCall]:
    return tuple(ToolCall(**_values(call, ToolCall)) for call in message.tool_calls)


def _all_scores(message: Any) -> Dict[str, Any]:
    return {name: _scores(getattr(message, name)) for name in ("scores", "prompt_scores")}


def _scores(messages: Any) -> Sequence[TokenScore]:
    return tuple(
        TokenScore(
            score.token_id,
            score.logprob,
            score.rank,
            dict(zip(score.top_ids, score.top_logprobs)),
            tuple(score.requested_logprobs),
        )
        for score in messages
    )


Item = Union[str, Sequence[int]]
BatchPrompt = Union[Prompt, Tuple[Prompt, Options]]


def read_items(request: Any, items: Sequence[Item], options: Mapping[str, Any]) -> Any:
    """Fills a request of Score or Embed; options that are None stay the server's."""
    if isinstance(items, str):
        raise TypeError("items are a list of texts or of lists of token ids, not one text")
    for item in items:
        if isinstance(item, str):
            request.items.add(text=item)
        else:
            request.items.add().token_ids.ids.extend(item)
    for name, value in options.items():
        if value is not None:
            setattr(request, name, value)
    return request


def _fault(message: Any) -> Optional[ItemFault]:
    if not message.HasField("status"):
        return None
    return ItemFault(**_values(message.status, ItemFault))


def score_of(message: inference_pb2.ScoreResult) -> Score:
    """One item of Score."""
    return Score(
        message.index, _scores(message.scores), message.sum, message.count, _fault(message)
    )


def batch_request(
    items: Sequence[BatchPrompt], options: Options
) -> inference_pb2.GenerateBatchRequest:
    """The request of an item with its own options, or with `options`."""
    if isinstance(items, str):
        raise TypeError("items are a list of prompts, not one text")
    request = inference_pb2.GenerateBatchRequest()
    for item in items:
        own = isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Options)
        prompt, chosen = item if own else (item, options)
        request.requests.append(generate_request(prompt, chosen))
    return request


def batch_item_of(message: inference_pb2.GenerateBatchResult) -> BatchItem:
    """One item of GenerateBatch."""
    done = completion_of(message.result) if message.HasField("result") else None
    return BatchItem(message.index, done, _fault(message))


def embedding_of(message: inference_pb2.EmbedResult) -> Embedding:
    """One item of Embed."""
    return Embedding(message.index, tuple(message.embedding), _fault(message))


def finished_of(message: inference_pb2.Finished) -> Finished:
    """The terminal frame."""
    return Finished(
        reason=FinishReason(message.reason),
        stop_token_id=message.stop_token_id if message.HasField("stop_token_id") else None,
        stop_text=message.stop_text if message.HasField("stop_text") else None,
        usage=Usage(**_values(message.usage, Usage)),
        timings=Timings(**_values(message.timings, Timings)),
        residency=residency_of(message.residency),
        position=message.position if message.HasField("position") else None,
        index=message.index,
        seed=message.seed if message.HasField("seed") else None,
        mean_logprob=message.mean_logprob if message.HasField("mean_logprob") else None,
        request_usage=(
            Usage(**_values(message.request_usage, Usage))
            if message.HasField("request_usage")
            else None
        ),
    )


def residency_of(message: inference_pb2.Residency) -> Residency:
    """Where the prompt's KV was found."""
    return Residency(**_values(message, Residency) | {"outcome": Outcome(message.outcome)})


def session_options(options: SessionOptions) -> sessions_pb2.SessionOptions:
    """The options that are not None."""
    given = {k: v for k, v in dataclasses.asdict(options).items() if v is not None}
    return sessions_pb2.SessionOptions(**given)


def session_of(message: sessions_pb2.Session) -> Session:
    """A session's current state."""
    options = SessionOptions(**_values(message.options, SessionOptions))
    state = SessionState(message.state)
    return Session(**_values(message, Session) | {"state": state, "options": options})


def job_of(message: jobs_pb2.Job) -> Job:
    """A job's current state."""
    options = message.options
    seconds = {
        name: getattr(message, name).ToNanoseconds() / 1e9 if message.HasField(name) else None
        for name in ("created_at", "expires_at", "ended_at")
    }
    priority = options.priority if options.HasField("priority") else None
    state = JobState(message.state)
    return Job(**_values(message, Job) | seconds | {"state": state, "priority": priority})


def job_results_of(message: jobs_pb2.JobResults) -> JobResults:
    """One message of Results."""
    return JobResults(tuple(json.loads(line) for line in message.lines), message.next_offset)


def completion_of(message: inference_pb2.GenerateResult) -> Completion:
    """The answer of GenerateUnary."""
    return Completion(
        text=message.text,
        token_ids=tuple(message.token_ids),
        logprobs=tuple(message.logprobs),
        accepted=accepted_of(message.request_id, message.accepted),
        finished=finished_of(message.finished),
        further_answers=tuple(_further_of(answer) for answer in message.further_answers),
        reasoning=message.reasoning,
        tool_calls=_tool_calls(message),
        **_all_scores(message),
    )


def _further_of(message: inference_pb2.FurtherAnswer) -> FurtherAnswer:
    return FurtherAnswer(
        text=message.text,
        token_ids=tuple(message.token_ids),
        logprobs=tuple(message.logprobs),
        finished=finished_of(message.finished),
        scores=_scores(message.scores),
        reasoning=message.reasoning,
        tool_calls=_tool_calls(message),
    )


def server_info_of(server: control_pb2.ServerInfo, model: control_pb2.ModelInfo) -> ServerInfo:
    """The server and its model as one value."""
    values = _values(server, ServerInfo)
    state = control_pb2.ServerInfo.State.Name(server.state).removeprefix("STATE_")
    return ServerInfo(**values | {"state": state, "model": ModelInfo(**_values(model, ModelInfo))})


def rank_steps_of(rank: control_pb2.StepBreakdown.Rank) -> RankSteps:
    """The mean times of one rank's timed steps."""
    parts = {part.name: part.seconds for part in rank.parts}
    return RankSteps(rank.rank, rank.timed_steps, parts)


def load_of(message: control_pb2.Load) -> Load:
    """The server's load."""
    prediction = {"predicted_first_token_seconds": _prediction(message)}
    return Load(**_values(message, Load) | prediction)


def memory_of(message: control_pb2.Memory) -> Memory:
    """The server's memory."""
    tiers = tuple(
        MemoryTier(
            tier.name,
            tier.total_blocks,
            tier.block_bytes,
            {owner.name: owner.blocks for owner in tier.owners},
        )
        for tier in message.tiers
    )
    return Memory(
        plan={part.name: part.bytes for part in message.plan.parts},
        tiers=tiers,
        reserved_blocks=message.reserved_blocks,
        host_pages_ready=message.host_pages_ready,
        resident_bytes=message.resident_bytes,
        series={s.name: MemorySeries(s.min, s.mean, s.max, s.last) for s in message.series},
        seconds=message.seconds,
    )
