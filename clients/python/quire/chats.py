"""Conversations as the proto has them: messages, and what the model's template is told."""

import datetime
import json
from typing import Any, Mapping, Sequence, Union

from google.protobuf import timestamp_pb2

from quire.types import Message, Options
from quire.v1 import inference_pb2

# A message may also be a mapping: {"role": "user", "content": "hi"}.
Turn = Union[Message, Mapping[str, Any]]

_SCALARS = ("template_name", "add_generation_prompt", "continue_final_message")
_TOLD = ("tools", "tool_choice", "documents", "template_kwargs", "template_time", *_SCALARS)


def _json(value: Mapping[str, Any], what: str) -> str:
    """An object with its members in their order; `what` it is, for errors."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} is a mapping, not {type(value).__name__}")
    try:
        return json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} is no JSON: {error}") from None


def _message_of(turn: Mapping[str, Any], place: str) -> Message:
    if "role" not in turn:
        raise TypeError(f"{place} lacks 'role'")
    if "content" not in turn and "tool_calls" not in turn:
        raise TypeError(f"{place} lacks 'content', which only one with 'tool_calls' may")
    members = {key: value for key, value in turn.items() if key not in ("role", "content")}
    return Message(turn["role"], turn.get("content", ""), members)


def _chat_message(turn: Turn, place: str) -> inference_pb2.ChatMessage:
    """A message of a conversation; `place` is where it stands there, for errors."""
    if not isinstance(turn, (Message, Mapping)):
        raise TypeError(f"{place} is a quire.Message or a mapping, not {type(turn).__name__}")
    message = turn if isinstance(turn, Message) else _message_of(turn, place)
    members = dict(message.members)
    for name, value, kinds in (
        ("role", message.role, str), ("content", message.content, (str, list, tuple, type(None))),
    ):  # fmt: skip
        if not isinstance(value, kinds):
            raise TypeError(f"{place} has a {type(value).__name__} as {name!r}")
    out = inference_pb2.ChatMessage(role=message.role)
    if isinstance(message.content, str):
        out.content = message.content
    else:
        for at, part in enumerate(message.content or ()):
            if not isinstance(part, Mapping):
                raise TypeError(f"{place} has a {type(part).__name__} as part {at} of 'content'")
        members["content"] = message.content
    if members:
        out.members = _json(members, place)
    return out


def _timestamp(time: datetime.datetime) -> timestamp_pb2.Timestamp:
    """A time without a zone is in the local one."""
    timestamp = timestamp_pb2.Timestamp()
    timestamp.FromDatetime(time.astimezone(datetime.timezone.utc))
    return timestamp


def _tool_choice(choice: str) -> inference_pb2.ToolChoice:
    """"auto", "none", "required", or the name of a tool."""
    if choice in ("auto", "none", "required"):
        return inference_pb2.ToolChoice(mode="MODE_" + choice.upper())
    return inference_pb2.ToolChoice(mode="MODE_FUNCTION", function=choice)


def chat_messages(turns: Sequence[Turn], options: Options) -> inference_pb2.ChatMessages:
    """The conversation with what `options` tell its template."""
    chat = inference_pb2.ChatMessages(
        messages=[_chat_message(turn, f"message {at}") for at, turn in enumerate(turns)],
        tools=[_json(tool, f"tool {at}") for at, tool in enumerate(options.tools or ())],
        documents=[_json(one, f"document {at}") for at, one in enumerate(options.documents or ())],
    )
    if options.template_kwargs:
        chat.template_kwargs = _json(options.template_kwargs, "template_kwargs")
    if options.template_time is not None:
        chat.template_time.CopyFrom(_timestamp(options.template_time))
    if options.tool_choice is not None:
        chat.tool_choice.CopyFrom(_tool_choice(options.tool_choice))
    for name in _SCALARS:
        value = getattr(options, name)
        if value is not None:
            setattr(chat, name, value)
    return chat


def refuse_chat_options(options: Options) -> None:
    """Raises TypeError for options of a conversation, which a text or token ids would not heed."""
    for name in _TOLD:
        if getattr(options, name) not in (None, (), [], {}):
            raise TypeError(f"{name} is for a conversation, and the prompt is none")
