"""Jobs: files of requests that the server answers while it has room for them."""

import dataclasses
import json
from typing import Any, Iterable, Iterator, List, Optional, Union

from google.protobuf import json_format

from quire import messages
from quire.caller import Call
from quire.messages import Prompt
from quire.types import Job, JobResults, Options
from quire.v1 import jobs_pb2

CHUNK_BYTES = 1 << 20


def job_line(
    custom_id: str, prompt: Prompt, options: Options = Options(), **changes: Any
) -> bytes:
    """A line of a job's file: what generate_text() with the same arguments asks for."""
    request = messages.generate_request(prompt, dataclasses.replace(options, **changes))
    fields = json_format.MessageToDict(request, preserving_proto_field_name=True)
    return json.dumps({"custom_id": custom_id, "request": fields}).encode() + b"\n"


class Jobs:
    """The caller's jobs. Deleted, expired and other callers' jobs raise NotFound."""

    def __init__(self, caller: Any) -> None:
        self._caller = caller

    def create(
        self,
        data: Union[bytes, Iterable[bytes]],
        job_id: Optional[str] = None,
        *,
        priority: Optional[int] = None,
        expires_after_seconds: Optional[float] = None,
        timeout: Optional[float] = None,
    ) -> Job:
        """Sends a file of lines (job_line()), whole or in pieces, and begins with it.

        Without a name the server chooses one; without a priority the lines run in the gaps that
        requests leave.
        """
        options = jobs_pb2.JobOptions(
            job_id=job_id, priority=priority, expires_after_seconds=expires_after_seconds
        )
        first = jobs_pb2.CreateJobRequest(options=options)
        call = Call(self._caller.jobs.Create, first, timeout)
        return self._caller.upload(call, data, _pieces, messages.job_of)

    def get(self, job_id: str, *, timeout: Optional[float] = None) -> Job:
        """The job's current state."""
        request = jobs_pb2.GetJobRequest(job_id=job_id)
        call = Call(self._caller.jobs.Get, request, timeout, repeatable=True)
        return self._caller.ask(call, messages.job_of)

    def list(self, *, timeout: Optional[float] = None) -> List[Job]:
        """All jobs, oldest first."""
        call = Call(self._caller.jobs.List, jobs_pb2.ListJobsRequest(), timeout, repeatable=True)
        return self._caller.ask(call, lambda reply: [messages.job_of(job) for job in reply.jobs])

    def cancel(self, job_id: str, *, timeout: Optional[float] = None) -> Job:
        """Ends the job; its results so far stay."""
        request = jobs_pb2.CancelJobRequest(job_id=job_id)
        call = Call(self._caller.jobs.Cancel, request, timeout, repeatable=True)
        return self._caller.ask(call, messages.job_of)

    def delete(self, job_id: str, *, timeout: Optional[float] = None) -> None:
        """Removes the job with its results."""
        request = jobs_pb2.DeleteJobRequest(job_id=job_id)
        call = Call(self._caller.jobs.Delete, request, timeout)
        return self._caller.ask(call, lambda reply: None)

    def results(
        self,
        job_id: str,
        *,
        offset: int = 0,
        wait: bool = True,
        timeout: Optional[float] = None,
    ) -> Iterator[JobResults]:
        """Yields the results in the order in which the lines ended, and waits for those to come.

        After a lost connection, pass the `next_offset` of the last JobResults as `offset`.
        """
        request = jobs_pb2.JobResultsRequest(job_id=job_id, offset=offset, no_wait=not wait)
        call = Call(self._caller.jobs.Results, request, timeout, repeatable=True)
        return self._caller.each(call, messages.job_results_of)


def _pieces(piece: bytes) -> Iterator[jobs_pb2.CreateJobRequest]:
    """The bytes of a piece in messages of the allowed size."""
    for at in range(0, len(piece), CHUNK_BYTES):
        yield jobs_pb2.CreateJobRequest(data=piece[at : at + CHUNK_BYTES])
