#!/usr/bin/python3
"""When the Python client repeats a call, by the calls that a scripted service counts and by a full
server: python_retries_test.py [QUIRE_SERVER]."""

import asyncio
import concurrent.futures
import io
import threading
import unittest

import grpc
import quire
import quire.aio
from quire.v1 import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc
from quire.v1 import sessions_pb2, sessions_pb2_grpc
from running_server import BINARY, RunningServer

UNAVAILABLE, EXHAUSTED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
PATIENCE_SECONDS = 120  # beyond it something hangs


def details(code, seconds):
    """A google.rpc.Status with RetryInfo, written field by field as its proto says."""

    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    whole, nanos = int(seconds), round(seconds % 1 * 1e9)
    delay = b"\x08" + varint(whole) + b"\x10" + varint(nanos)
    name = b"type.googleapis.com/google.rpc.RetryInfo"
    detail = field(1, name) + field(2, field(1, delay))
    return b"\x08" + varint(code.value[0]) + field(3, detail)


def varint(value):
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


class Refusals:
    """Refuses the next calls as `script` says: (code, seconds of RetryInfo or None) for each."""

    def __init__(self):
        self.script, self.calls, self.deadlines = [], [], []

    def judge(self, name, context):
        self.calls.append(name)
        self.deadlines.append(context.time_remaining())
        if not self.script:
            return
        code, seconds = self.script.pop(0)
        if seconds is not None:
            trailer = ("grpc-status-details-bin", details(code, seconds))
            context.set_trailing_metadata((trailer,))
        context.abort(code, "no")


class Service(inference_pb2_grpc.InferenceServicer, control_pb2_grpc.ControlServicer,
              sessions_pb2_grpc.SessionsServicer):  # fmt: skip
    """Answers, if the script does not refuse; `breaks` ends streams after their first frame."""

    def __init__(self):
        self.refusals, self.breaks = Refusals(), False

    def Generate(self, request, context):
        self.refusals.judge("Generate", context)
        yield inference_pb2.GenerateResponse(accepted=inference_pb2.Accepted(model="demo"))
        if self.breaks:
            self.refusals.script.append((UNAVAILABLE, 1.0))
            self.refusals.judge("break", context)
        yield inference_pb2.GenerateResponse(tokens=inference_pb2.TokenDelta(text="A"))
        yield inference_pb2.GenerateResponse(finished=inference_pb2.Finished(reason=4))

    def GenerateUnary(self, request, context):
        self.refusals.judge("GenerateUnary", context)
        return inference_pb2.GenerateResult(text="A")

    def GetLoad(self, request, context):
        self.refusals.judge("GetLoad", context)
        return control_pb2.Load()

    def Trace(self, request, context):
        self.refusals.judge("Trace", context)
        yield control_pb2.TraceChunk(json=b"{}")

    def Create(self, request, context):
        self.refusals.judge("Create", context)
        return sessions_pb2.Session(session_id="a")

    def Export(self, request, context):
        self.refusals.judge("Export", context)
        yield sessions_pb2.SessionChunk(data=b"x")

    def Import(self, requests, context):
        self.refusals.judge("Import", context)
        return sessions_pb2.Session(session_id="a")


class Time:
    """A clock that only sleep() moves; keeps the naps."""

    def __init__(self):
        self.now, self.naps = 1000.0, []

    def sleep(self, seconds):
        self.naps.append(seconds)
        self.now += seconds

    def retries(self, **changes):
        clock = {"sleep": self.sleep, "clock": lambda: self.now, "jitter": lambda: 0.0}
        return quire.Retries(**clock, **changes)


class RetriesTest(unittest.TestCase):
    def setUp(self):
        self.service, self.time = Service(), Time()
        self.refusals = self.service.refusals
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        inference_pb2_grpc.add_InferenceServicer_to_server(self.service, server)
        control_pb2_grpc.add_ControlServicer_to_server(self.service, server)
        sessions_pb2_grpc.add_SessionsServicer_to_server(self.service, server)
        self.target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        self.client = self.new_client()

    def new_client(self, retries=True, **settings):
        retries = self.time.retries() if retries is True else retries
        client = quire.QuireClient(self.target, retries=retries, **settings)
        self.addCleanup(client.close)
        return client

    def refused(self, *script):
        self.refusals.script[:] = script
        self.refusals.calls.clear()
        self.time.naps.clear()

    def test_the_servers_delay_is_waited(self):
        for code in (UNAVAILABLE, EXHAUSTED):
            self.refused((code, 2.0), (code, 0.5))
            self.assertEqual(self.client.generate_text("hi").text, "A")
            self.assertEqual(self.refusals.calls, ["GenerateUnary"] * 3)
            self.assertEqual(self.time.naps, [2.0, 0.5])
        self.refused((UNAVAILABLE, 3.0))
        self.assertEqual([d.text for d in self.client.generate("hi")], ["A"])
        self.assertEqual((self.refusals.calls, self.time.naps), (["Generate"] * 2, [3.0]))
        self.refused((EXHAUSTED, 1.0))
        self.client.sessions.create("a")
        self.assertEqual(self.refusals.calls, ["Create"] * 2)
        self.refused((UNAVAILABLE, 1.0))
        self.assertEqual(list(self.client.sessions.export("a")), [b"x"])
        self.assertEqual(self.refusals.calls, ["Export"] * 2)

    def test_asyncio_repeats_alike(self):
        async def run():
            async with quire.aio.QuireClient(self.target, retries=self.time.retries()) as client:
                self.refused((UNAVAILABLE, 2.0))
                self.assertEqual((await client.generate_text("hi")).text, "A")
                self.assertEqual(self.refusals.calls, ["GenerateUnary"] * 2)
                self.refused((EXHAUSTED, 3.0), (UNAVAILABLE, 4.0))
                self.assertEqual([d.text async for d in client.chat("hi")], ["A"])
                self.assertEqual(self.refusals.calls, ["Generate"] * 3)
                self.assertEqual(self.time.naps, [3.0, 4.0])
                self.refused()
                self.service.breaks = True
                with self.assertRaises(quire.Unavailable):
                    [d async for d in client.generate("hi")]
                self.assertEqual(self.refusals.calls, ["Generate", "break"])

        asyncio.run(run())

    def test_jitter_only_adds_to_the_servers_delay(self):
        retries = quire.Retries(sleep=self.time.sleep, jitter=lambda: 1.0)
        self.refused((UNAVAILABLE, 4.0))
        self.new_client(retries).generate_text("hi")
        self.assertEqual(self.time.naps, [5.0])

    def test_attempts_are_bounded(self):
        self.refused(*[(UNAVAILABLE, 1.0)] * 9)
        with self.assertRaises(quire.Unavailable) as caught:
            self.client.generate_text("hi")
        self.assertEqual(caught.exception.retry_after, 1.0)
        self.assertEqual(len(self.refusals.calls), 4)
        self.refused(*[(UNAVAILABLE, 1.0)] * 9)
        with self.assertRaises(quire.Unavailable):
            list(self.new_client(self.time.retries(attempts=2)).generate("hi"))
        self.assertEqual(len(self.refusals.calls), 2)

    def test_none_switches_retries_off(self):
        self.refused((UNAVAILABLE, 1.0))
        with self.assertRaises(quire.Unavailable):
            self.new_client(None).generate_text("hi")
        self.assertEqual(self.refusals.calls, ["GenerateUnary"])
        with self.assertRaisesRegex(ValueError, "attempts is at least 1"):
            quire.Retries(attempts=0)

    def test_the_deadline_bounds_all_attempts_together(self):
        client = self.new_client(timeout=60)
        self.refusals.deadlines.clear()
        self.refused((UNAVAILABLE, 20.0), (UNAVAILABLE, 25.0), (UNAVAILABLE, 20.0))
        with self.assertRaises(quire.Unavailable):
            client.generate_text("hi")  # 45 s have passed: 20 more are too many
        self.assertEqual(self.time.naps, [20.0, 25.0])
        for deadline, limit in zip(self.refusals.deadlines, (60, 40, 15)):
            self.assertLessEqual(deadline, limit + 1)
        self.refused((UNAVAILABLE, 5.0))
        with self.assertRaises(quire.Unavailable):
            client.generate_text("hi", timeout=5)
        self.assertEqual(self.time.naps, [])

    def test_a_long_delay_is_not_waited_for(self):
        self.refused((UNAVAILABLE, 31.0))
        with self.assertRaises(quire.Unavailable):
            self.client.generate_text("hi")
        self.assertEqual((len(self.refusals.calls), self.time.naps), (1, []))
        self.refused((UNAVAILABLE, 31.0))
        self.new_client(self.time.retries(longest=40)).generate_text("hi")
        self.assertEqual(self.time.naps, [31.0])

    def test_without_retry_info_only_reads_are_repeated(self):
        self.refused((UNAVAILABLE, None), (UNAVAILABLE, None))
        self.client.load()
        self.assertEqual(self.refusals.calls, ["GetLoad"] * 3)
        self.assertEqual(self.time.naps, [0.1, 0.2])
        for call in (lambda: self.client.generate_text("hi"),
                     lambda: list(self.client.generate("hi")),
                     lambda: self.client.sessions.create("a")):  # fmt: skip
            self.refused((UNAVAILABLE, None))
            with self.assertRaises(quire.Unavailable):
                call()
            self.assertEqual(len(self.refusals.calls), 1)
        self.refused((EXHAUSTED, None))
        with self.assertRaises(quire.Overloaded):
            self.client.load()
        self.assertEqual(len(self.refusals.calls), 1)

    def test_other_codes_are_final(self):
        for code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.ABORTED, grpc.StatusCode.CANCELLED,
                     grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNKNOWN):  # fmt: skip
            self.refused((code, 1.0))
            with self.assertRaises(quire.QuireError):
                self.client.load()
            self.assertEqual(len(self.refusals.calls), 1)

    def test_a_stream_that_has_begun_is_never_repeated(self):
        self.service.breaks = True
        with self.assertRaises(quire.Unavailable):
            list(self.client.generate("hi"))
        self.assertEqual((self.refusals.calls, self.time.naps), (["Generate", "break"], []))

    def test_uploads_and_traces_are_never_repeated(self):
        for call in (lambda: self.client.sessions.import_(iter([b"x"])),
                     lambda: self.client.trace(io.BytesIO())):  # fmt: skip
            self.refused((UNAVAILABLE, 1.0))
            with self.assertRaises(quire.Unavailable):
                call()
            self.assertEqual(len(self.refusals.calls), 1)

    def test_cancel_ends_the_wait(self):
        asleep = threading.Event()
        stream = None

        def cancel_instead(_):
            stream.cancel()
            asleep.set()

        client = self.new_client(quire.Retries(sleep=cancel_instead))
        self.refused((UNAVAILABLE, 1.0))
        stream = client.generate("hi")
        with self.assertRaises(quire.Cancelled):
            next(stream)
        self.assertTrue(asleep.is_set())
        self.assertEqual(self.refusals.calls, ["Generate"])


@unittest.skipUnless(BINARY, "no server was named")
class FullServerTest(unittest.TestCase):
    def test_a_request_waits_until_the_queue_has_room(self):
        server = RunningServer("--max-num-seqs", "1", "--max-num-queued-reqs", "1")
        self.addCleanup(server.stop)
        endless = quire.Options(ignore_eos=True, max_tokens=3000)
        with quire.QuireClient(server.target, timeout=PATIENCE_SECONDS, retries=None) as filling:
            running, waiting = filling.generate("Once", endless), None
            next(running)
            waiting = filling.generate("Once", endless)
            while filling.load().waiting_requests == 0:
                pass
            with self.assertRaises(quire.Unavailable) as caught:
                filling.generate_text("Once", max_tokens=3)
            self.assertEqual(caught.exception.reason, "QUEUE_FULL")
            self.assertGreater(caught.exception.retry_after, 0)
            naps = []

            def make_room(seconds):
                naps.append(seconds)
                for stream in (running, waiting):
                    stream.cancel()
                while True:
                    load = filling.load()
                    if load.running_requests + load.waiting_requests == 0:
                        return

            retries = quire.Retries(sleep=make_room, jitter=lambda: 0.0, longest=1e9)
            with quire.QuireClient(server.target, retries=retries) as patient:
                done = patient.generate_text("Once", max_tokens=3)
            self.assertEqual((len(done.token_ids), len(naps)), (3, 1))
            self.assertGreater(naps[0], 0)


if __name__ == "__main__":
    unittest.main()
