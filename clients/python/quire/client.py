"""QuireClient: generate, chat, tokenize, sessions and control, over one gRPC channel."""

import dataclasses
import os
from typing import Any, BinaryIO, Iterator, List, Mapping, Optional, Sequence, Union

import grpc

from quire import messages
from quire.caller import Call, Caller, Plan
from quire.chats import Turn
from quire.connection import connection_of
from quire.conversation import Conversation
from quire.jobs import Jobs
from quire.messages import BatchPrompt, Item, Prompt
from quire.retries import ONE_ATTEMPT, Retries
from quire.sessions import Sessions
from quire.settings import resolve
from quire.stream import Stream
from quire.types import BatchItem, Completion, Embedding, Load, Memory, Message, Options, RankSteps
from quire.types import Score, ServerInfo, Token
from quire.v1 import control_pb2, inference_pb2

Path = Union[str, "os.PathLike[str]"]


class BaseClient:
    """A connection to one server.

    `target` is "host", "host:port" or "unix:/path"; the port is 50051 if it has none. `ca_cert`,
    `client_cert`, `client_key` and `api_key_file` are paths of files; `headers` are sent with every
    call. `credentials` replace the certificates. Settings that are None come from the environment
    (QUIRE_SERVER, QUIRE_TLS, QUIRE_CA_CERT, ...), else from the profile `profile`, else they have
    the defaults of the README. A wrong setting raises SettingsError.

    `timeout` is the default deadline of a call in seconds, over all its attempts; None means no
    deadline. Refused calls are repeated as `retries` say; None means never. Failures raise
    QuireError. Requests belong to the trace that the environment variable TRACEPARENT names.
    """

    _caller_type: Any
    _sessions_type: Any
    _jobs_type: Any

    def __init__(
        self,
        target: Optional[str] = None,
        *,
        timeout: Optional[float] = None,
        retries: Optional[Retries] = Retries(),
        credentials: Optional[grpc.ChannelCredentials] = None,
        tls: Optional[bool] = None,
        ca_cert: Optional[Path] = None,
        client_cert: Optional[Path] = None,
        client_key: Optional[Path] = None,
        server_name: Optional[str] = None,
        api_key: Optional[str] = None,
        api_key_file: Optional[Path] = None,
        headers: Optional[Mapping[str, str]] = None,
        profile: Optional[str] = None,
    ) -> None:
        given = {
            "server": target, "tls": True if credentials else tls, "ca_cert": ca_cert,
            "client_cert": client_cert, "client_key": client_key, "server_name": server_name,
            "api_key": api_key, "api_key_file": api_key_file, "headers": headers,
        }  # fmt: skip
        connection = connection_of(resolve(profile, given), credentials)
        self._caller = self._caller_type(connection, timeout, retries or ONE_ATTEMPT)
        self.sessions = self._sessions_type(self._caller)
        self.jobs = self._jobs_type(self._caller)


class QuireClient(BaseClient):
    __doc__ = f"{BaseClient.__doc__}\n    Threads may share a client."

    # The methods only build requests and say how to decode replies: the caller runs the calls.
    # quire.aio has the same methods with a caller that awaits.
    _caller_type = Caller
    _sessions_type = Sessions
    sessions: Sessions
    _jobs_type = Jobs
    jobs: Jobs

    def close(self) -> None:
        """Ends the connection; live streams end with Cancelled."""
        self._caller.close()

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
        return self._caller.stream(self._generation(request, timeout))

    def attach(
        self, request_id: str, *, after_tokens: int = 0, timeout: Optional[float] = None
    ) -> Stream:
        """Goes on with a request that has detach_seconds and whose connection was lost.

        `after_tokens` is `tokens` of the stream that was lost: its deltas and those of this one
        are the whole answer. Another call that still reads the request ends with Aborted.
        """
        request = inference_pb2.AttachRequest(request_id=request_id, after_tokens=after_tokens)
        call = Call(self._caller.inference.Attach, request, timeout, goes_on=True)
        return self._caller.stream(call)

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
        method = self._caller.inference.GenerateUnary
        call = Call(method, request, timeout, session=request.session_id, traced=True)
        return self._caller.ask(call, messages.completion_of)

    def generate_batch(
        self,
        items: Sequence[BatchPrompt],
        options: Options = Options(),
        *,
        timeout: Optional[float] = None,
        **changes: Any,
    ) -> Iterator[BatchItem]:
        """Yields the whole answers to many prompts, items as they are done.

        An item is a prompt, or a pair of a prompt and the Options for it alone. One that fails has
        a `fault`.
        """
        request = messages.batch_request(items, dataclasses.replace(options, **changes))
        call = Call(self._caller.inference.GenerateBatch, request, timeout)
        return self._caller.each(call, messages.batch_item_of)

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
        return self._caller.stream(self._generation(request, timeout))

    def _generation(self, request: Any, timeout: Optional[float]) -> Call:
        method = self._caller.inference.Generate
        return Call(
            method, request, timeout, session=request.session_id, traced=True, goes_on=True
        )

    def conversation(
        self, session_id: str, position: Optional[int] = None
    ) -> "Conversation[Stream]":
        """A session's turns; the first turn creates the session if it does not exist.

        `position` is the number of tokens that the caller believes the session to have.
        """
        return Conversation(self._caller, session_id, position)

    def tokenize(
        self,
        text: Union[str, Sequence[Turn]],
        options: Options = Options(),
        *,
        offsets: bool = False,
        timeout: Optional[float] = None,
        **changes: Any,
    ) -> List[Token]:
        """The tokens of a text or a conversation, as generate() with the same options uses them."""
        request = messages.tokenize_request(text, dataclasses.replace(options, **changes), offsets)
        call = Call(self._caller.inference.Tokenize, request, timeout, repeatable=True)
        return self._caller.ask(call, lambda reply: messages.tokens_of(reply, offsets))

    def detokenize(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: Optional[bool] = None,
        timeout: Optional[float] = None,
    ) -> str:
        """The text of token ids."""
        request = inference_pb2.DetokenizeRequest(
            token_ids=token_ids, skip_special_tokens=skip_special_tokens
        )
        call = Call(self._caller.inference.Detokenize, request, timeout, repeatable=True)
        return self._caller.ask(call, lambda reply: reply.text)

    def score(
        self,
        items: Sequence[Item],
        *,
        top_logprobs: Optional[int] = None,
        model: Optional[str] = None,
        add_special_tokens: Optional[bool] = None,
        priority: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Iterator[Score]:
        """Yields the log probabilities of each text's tokens, items as they are done.

        Items are texts or lists of token ids. An item that fails has a `fault`.
        """
        given = {"top_logprobs": top_logprobs, "model": model, "priority": priority,
                 "add_special_tokens": add_special_tokens}  # fmt: skip
        request = messages.read_items(inference_pb2.ScoreRequest(), items, given)
        call = Call(self._caller.inference.Score, request, timeout, repeatable=True)
        return self._caller.each(call, messages.score_of)

    def embed(
        self,
        items: Sequence[Item],
        *,
        mean: bool = False,
        normalize: Optional[bool] = None,
        model: Optional[str] = None,
        add_special_tokens: Optional[bool] = None,
        priority: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Iterator[Embedding]:
        """Yields a vector for each text, items as they are done: the last token's or the mean.

        Items are texts or lists of token ids. An item that fails has a `fault`.
        """
        request_type = inference_pb2.EmbedRequest
        pooling = request_type.POOLING_MEAN if mean else request_type.POOLING_LAST
        given = {"pooling": pooling, "normalize": normalize, "model": model,
                 "add_special_tokens": add_special_tokens, "priority": priority}  # fmt: skip
        request = messages.read_items(request_type(), items, given)
        call = Call(self._caller.inference.Embed, request, timeout, repeatable=True)
        return self._caller.each(call, messages.embedding_of)

    def info(self, *, timeout: Optional[float] = None) -> ServerInfo:
        """Facts about the server and its model."""
        return self._caller.run(self._info(timeout))

    def _info(self, timeout: Optional[float]) -> Plan[ServerInfo]:
        control = self._caller.control
        requests = control_pb2.GetServerInfoRequest(), control_pb2.GetModelInfoRequest()
        server = yield Call(control.GetServerInfo, requests[0], timeout, repeatable=True)
        model = yield Call(control.GetModelInfo, requests[1], timeout, repeatable=True)
        return messages.server_info_of(server, model)

    def load(self, *, timeout: Optional[float] = None) -> Load:
        """The server's load."""
        request = control_pb2.GetLoadRequest()
        call = Call(self._caller.control.GetLoad, request, timeout, repeatable=True)
        return self._caller.ask(call, messages.load_of)

    def memory(self, *, timeout: Optional[float] = None) -> Memory:
        """The server's memory plan, its KV by owner, and the use over the last ten minutes."""
        request = control_pb2.GetMemoryRequest()
        call = Call(self._caller.control.GetMemory, request, timeout, repeatable=True)
        return self._caller.ask(call, messages.memory_of)

    def abort(
        self, *request_ids: str, everything: bool = False, timeout: Optional[float] = None
    ) -> int:
        """Ends live requests by id, or all of them; returns the number of requests ended."""
        request = control_pb2.AbortRequest(request_ids=request_ids, all=everything)
        call = Call(self._caller.control.Abort, request, timeout)
        return self._caller.ask(call, lambda reply: reply.aborted)

    def drain(self, *, exit_when_idle: bool = False, timeout: Optional[float] = None) -> int:
        """Makes the server refuse new work; returns the number of unfinished requests."""
        request = control_pb2.DrainRequest(exit_when_idle=exit_when_idle)
        call = Call(self._caller.control.Drain, request, timeout)
        return self._caller.ask(call, lambda r: r.running_requests + r.waiting_requests)

    def undrain(self, *, timeout: Optional[float] = None) -> bool:
        """Makes the server accept new work again; returns whether it was draining."""
        call = Call(self._caller.control.Undrain, control_pb2.UndrainRequest(), timeout)
        return self._caller.ask(call, lambda reply: reply.was_draining)

    def trace(
        self, file: BinaryIO, *, seconds: float = 2.0, timeout: Optional[float] = None
    ) -> List[RankSteps]:
        """Records what the server does for `seconds`; returns where the time of its steps went.

        `file` gets the recording, JSON for ui.perfetto.dev, as it arrives. Raises Unavailable
        while another trace is being recorded.
        """
        ranks: List[RankSteps] = []

        def take(chunk: Any) -> None:
            file.write(chunk.json)
            ranks.extend(messages.rank_steps_of(rank) for rank in chunk.breakdown.ranks)

        request = control_pb2.TraceRequest(seconds=seconds)
        call = Call(self._caller.control.Trace, request, timeout, once=True)
        return self._caller.drain(call, take, ranks)
