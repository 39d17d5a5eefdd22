"""QuireClient: generate, chat, tokenize, sessions and control, over one gRPC channel."""

import dataclasses
import functools
import os
import re
from typing import Any, BinaryIO, List, Optional, Sequence, Tuple, Union

import grpc

from quire import messages
from quire.conversation import Conversation
from quire.errors import calls_failing_as_ours
from quire.messages import Prompt, Turn
from quire.sessions import Sessions
from quire.stream import Stream
from quire.types import Completion, Load, Memory, Message, Options, RankSteps, ServerInfo, Token
from quire.v1 import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc

DEFAULT_TARGET = "127.0.0.1:50051"
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def _trace_of_environment() -> List[Tuple[str, str]]:
    """The headers of W3C Trace Context that TRACEPARENT and TRACESTATE hold."""
    headers = [("traceparent", "TRACEPARENT"), ("tracestate", "TRACESTATE")]
    values = [(header, os.environ.get(name, "")) for header, name in headers]
    usable = [(header, value) for header, value in values if re.fullmatch("[ -~]{1,512}", value)]
    return usable if usable and usable[0][0] == "traceparent" else []


class QuireClient:
    """A connection to one server. Threads may share it.

    `target` is "host:port" or "unix:/path". With `credentials` the channel uses TLS. `timeout` is
    the default deadline of a call in seconds; None means no deadline. Failures raise QuireError.
    `sessions` manages the conversations that the server keeps for the caller. Requests belong to
    the trace that the environment variable TRACEPARENT names.
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        timeout: Optional[float] = None,
        credentials: Optional[grpc.ChannelCredentials] = None,
    ) -> None:
        self._timeout = timeout
        if credentials is None:
            self._channel = grpc.insecure_channel(target, UNLIMITED)
        else:
            self._channel = grpc.secure_channel(target, credentials, UNLIMITED)
        self._inference = inference_pb2_grpc.InferenceStub(self._channel)
        trace = _trace_of_environment()
        for name in ("Generate", "GenerateUnary") if trace else ():
            call = getattr(self._inference, name)
            setattr(self._inference, name, functools.partial(call, metadata=trace))
        self._control = control_pb2_grpc.ControlStub(self._channel)
        self.sessions = Sessions(self._channel, timeout)

    def close(self) -> None:
        """Ends the connection; live streams end with Cancelled."""
        self._channel.close()

    def __enter__(self) -> "QuireClient":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def generate(
        self,
        prompt: Prompt,
        options: Options = Options(),
        *,
        timeout: Optional[float] = None,
        **changes: Any,
    ) -> Stream:
        """Streams the continuation of a text, of token ids or of a conversation.

        `changes` replace fields of `options`: generate("Once", max_tokens=9).
        """
        request = messages.generate_request(prompt, dataclasses.replace(options, **changes))
        return Stream(self._inference.Generate(request, timeout=self._deadline(timeout)))

    def generate_text(
        self,
        prompt: Prompt,
        options: Options = Options(),
        *,
        timeout: Optional[float] = None,
        **changes: Any,
    ) -> Completion:
        """Like generate(), but returns the whole answer."""
        request = messages.generate_request(prompt, dataclasses.replace(options, **changes))
        result = self._call(self._inference.GenerateUnary, request, timeout)
        return messages.completion_of(result)

    def chat(
        self,
        conversation: Union[str, Sequence[Turn]],
        options: Options = Options(),
        *,
        timeout: Optional[float] = None,
        **changes: Any,
    ) -> Stream:
        """Streams the assistant's next turn. A str stands for one message of the user."""
        if isinstance(conversation, str):
            conversation = [Message("user", conversation)]
        request = messages.chat_request(conversation, dataclasses.replace(options, **changes))
        return Stream(self._inference.Generate(request, timeout=self._deadline(timeout)))

    def conversation(self, session_id: str, position: Optional[int] = None) -> Conversation:
        """A session's turns; the first turn creates the session if it does not exist.

        `position` is the number of tokens that the caller believes the session to have.
        """
        return Conversation(self._inference.Generate, session_id, position, self._timeout)

    def tokenize(
        self,
        text: Union[str, Sequence[Turn]],
        *,
        add_special_tokens: Optional[bool] = None,
        offsets: bool = False,
        timeout: Optional[float] = None,
    ) -> List[Token]:
        """The tokens of a text or a conversation, as generate() uses them."""
        request = inference_pb2.TokenizeRequest(offsets=offsets)
        if isinstance(text, str):
            request.text = text
        else:
            request.chat.CopyFrom(messages.chat_messages(text))
        if add_special_tokens is not None:
            request.add_special_tokens = add_special_tokens
        reply = self._call(self._inference.Tokenize, request, timeout)
        if not offsets:
            return [Token(i) for i in reply.token_ids]
        return [Token(i, b, e) for i, b, e in zip(reply.token_ids, reply.begin, reply.end)]

    def detokenize(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: Optional[bool] = None,
        timeout: Optional[float] = None,
    ) -> str:
        """The text of token ids."""
        request = inference_pb2.DetokenizeRequest(token_ids=token_ids)
        if skip_special_tokens is not None:
            request.skip_special_tokens = skip_special_tokens
        return self._call(self._inference.Detokenize, request, timeout).text

    def info(self, *, timeout: Optional[float] = None) -> ServerInfo:
        """Facts about the server and its model."""
        server = self._call(
            self._control.GetServerInfo, control_pb2.GetServerInfoRequest(), timeout
        )
        model = self._call(self._control.GetModelInfo, control_pb2.GetModelInfoRequest(), timeout)
        return messages.server_info_of(server, model)

    def load(self, *, timeout: Optional[float] = None) -> Load:
        """The server's load."""
        return messages.load_of(
            self._call(self._control.GetLoad, control_pb2.GetLoadRequest(), timeout)
        )

    def memory(self, *, timeout: Optional[float] = None) -> Memory:
        """The server's memory plan, its KV by owner, and the use over the last ten minutes."""
        return messages.memory_of(
            self._call(self._control.GetMemory, control_pb2.GetMemoryRequest(), timeout)
        )

    def abort(
        self, *request_ids: str, everything: bool = False, timeout: Optional[float] = None
    ) -> int:
        """Ends live requests by id, or all of them; returns the number of requests ended."""
        request = control_pb2.AbortRequest(request_ids=request_ids, all=everything)
        return self._call(self._control.Abort, request, timeout).aborted

    def drain(self, *, exit_when_idle: bool = False, timeout: Optional[float] = None) -> int:
        """Makes the server refuse new work; returns the number of unfinished requests."""
        request = control_pb2.DrainRequest(exit_when_idle=exit_when_idle)
        reply = self._call(self._control.Drain, request, timeout)
        return reply.running_requests + reply.waiting_requests

    def undrain(self, *, timeout: Optional[float] = None) -> bool:
        """Makes the server accept new work again; returns whether it was draining."""
        request = control_pb2.UndrainRequest()
        return self._call(self._control.Undrain, request, timeout).was_draining

    def trace(
        self, file: BinaryIO, *, seconds: float = 2.0, timeout: Optional[float] = None
    ) -> List[RankSteps]:
        """Records what the server does for `seconds`; returns where the time of its steps went.

        `file` gets the recording, JSON for ui.perfetto.dev, as it arrives. Raises Unavailable
        while another trace is being recorded.
        """
        ranks: List[RankSteps] = []
        request = control_pb2.TraceRequest(seconds=seconds)
        with calls_failing_as_ours():
            for chunk in self._control.Trace(request, timeout=self._deadline(timeout)):
                file.write(chunk.json)
                ranks.extend(messages.rank_steps_of(rank) for rank in chunk.breakdown.ranks)
        return ranks

    def _deadline(self, timeout: Optional[float]) -> Optional[float]:
        return self._timeout if timeout is None else timeout

    def _call(self, method: Any, request: Any, timeout: Optional[float]) -> Any:
        with calls_failing_as_ours():
            return method(request, timeout=self._deadline(timeout))
