#!/usr/bin/python3
"""The Python client's sessions and conversations against a scripted service."""

import concurrent.futures
import unittest

import grpc
import quire
from quire.v1 import inference_pb2, inference_pb2_grpc, sessions_pb2, sessions_pb2_grpc

NAMED = ("Get", "Offload", "Prefetch", "Pin", "Unpin")


def alice(**changes):
    """A session as the server sends it."""
    options = sessions_pb2.SessionOptions(
        ttl_seconds=3600, idle_offload_after_seconds=2, retain_priority=-5
    )
    fields = {
        "session_id": "alice", "state": sessions_pb2.SESSION_STATE_HOST, "position": 530,
        "turns": 3, "options": options, "device_tokens": 96, "host_tokens": 512,
        "absent_tokens": 18, "idle_seconds": 3.5, "expires_in_seconds": 3596.5,
        "age_seconds": 8000.0,
    }  # fmt: skip
    return sessions_pb2.Session(**fields | changes)


class Sessions(sessions_pb2_grpc.SessionsServicer):
    """Answers every call with alice; keeps the calls' names and requests."""

    def __init__(self):
        self.calls, self.pages, self.failure = [], [], None
        for name in (*NAMED, "Create", "Fork", "Truncate", "Touch"):
            setattr(self, name, self._unary(name, alice))
        self.Close = self._unary("Close", sessions_pb2.CloseSessionResponse)
        self.List = self._unary("List", lambda: self.pages.pop(0))

    def _unary(self, name, reply):
        def call(request, context):
            self.calls.append((name, request))
            if self.failure:
                context.abort(*self.failure)
            return reply()

        return call

    def Watch(self, request, context):
        self.calls.append(("Watch", request))
        yield alice()
        yield alice(state=sessions_pb2.SESSION_STATE_CLOSED)

    def Export(self, request, context):
        self.calls.append(("Export", request))
        for data in (b"\0one", b"two"):
            yield sessions_pb2.SessionChunk(data=data)
        if self.failure:
            context.abort(*self.failure)

    def Import(self, requests, context):
        self.calls.append(("Import", list(requests)))
        return alice()


class Inference(inference_pb2_grpc.InferenceServicer):
    """Each turn adds ten tokens."""

    def __init__(self):
        self.turns = []

    def Generate(self, request, context):
        self.turns.append(request)
        yield inference_pb2.GenerateResponse(tokens=inference_pb2.TokenDelta(text="A"))
        finished = inference_pb2.Finished(reason=4, position=10 * len(self.turns))
        finished.residency.outcome = inference_pb2.Residency.OUTCOME_RESTORED
        finished.residency.host_tokens = 7
        finished.residency.restore_seconds = 0.5
        yield inference_pb2.GenerateResponse(finished=finished)


class SessionsTest(unittest.TestCase):
    def setUp(self):
        self.service, self.inference = Sessions(), Inference()
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        sessions_pb2_grpc.add_SessionsServicer_to_server(self.service, server)
        inference_pb2_grpc.add_InferenceServicer_to_server(self.inference, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        self.client = quire.QuireClient(f"127.0.0.1:{port}", timeout=30)
        self.addCleanup(self.client.close)
        self.sessions = self.client.sessions

    def last(self):
        return self.service.calls[-1]

    def test_a_session_has_every_field(self):
        session = self.sessions.get("alice")
        options = quire.SessionOptions(3600, 2, -5)
        self.assertEqual(
            session,
            quire.Session(
                "alice", quire.SessionState.HOST, 530, 3, options, False, 96, 512, 18, 3.5, 3596.5,
                8000.0,
            ),
        )  # fmt: skip

    def test_names_reach_their_calls(self):
        for name in NAMED:
            getattr(self.sessions, name.lower())("x")
            self.assertEqual((self.last()[0], self.last()[1].session_id), (name, "x"))
        self.sessions.close("y")
        self.assertEqual((self.last()[0], self.last()[1].session_id), ("Close", "y"))

    def test_only_given_options_are_sent(self):
        self.sessions.create()
        sent = self.last()[1]
        self.assertFalse(sent.HasField("session_id"))
        self.assertEqual(sent.options.ByteSize(), 0)
        self.sessions.create("a", quire.SessionOptions(idle_offload_after_seconds=0.0))
        sent = self.last()[1]
        self.assertTrue(sent.options.HasField("idle_offload_after_seconds"))
        self.assertFalse(sent.options.HasField("ttl_seconds"))
        self.sessions.fork("a")
        self.assertFalse(self.last()[1].HasField("position"))
        self.sessions.fork("a", "b", position=0)
        sent = self.last()[1]
        self.assertEqual((sent.new_session_id, sent.HasField("position")), ("b", True))
        self.sessions.truncate("a", 0)
        self.assertTrue(self.last()[1].HasField("position"))
        self.sessions.touch("a", quire.SessionOptions(ttl_seconds=60))
        self.assertEqual(self.last()[1].options.ttl_seconds, 60)

    def test_list_reads_every_page(self):
        page = sessions_pb2.ListSessionsResponse
        self.service.pages = [
            page(sessions=[alice()], next_after="alice"),
            page(sessions=[alice(session_id="bob", pinned=True)]),
        ]
        self.assertEqual([s.session_id for s in self.sessions.list()], ["alice", "bob"])
        self.assertEqual(self.last()[1].after, "alice")

    def test_watch_ends_with_the_session(self):
        states = [session.state.name for session in self.sessions.watch("alice")]
        self.assertEqual(states, ["HOST", "CLOSED"])

    def test_export_and_import(self):
        self.assertEqual(b"".join(self.sessions.export("alice")), b"\0onetwo")
        self.sessions.import_(b"x" * (2 << 20) + b"y", "b", quire.SessionOptions(ttl_seconds=9))
        first, *rest = self.last()[1]
        self.assertEqual((first.session_id, first.options.ttl_seconds), ("b", 9))
        sizes = [len(request.chunk.data) for request in rest]
        self.assertEqual(sizes, [1 << 20, 1 << 20, 1])
        self.sessions.import_(self.sessions.export("alice"))
        self.assertEqual(b"".join(r.chunk.data for r in self.last()[1]), b"\0onetwo")

    def test_failures_raise_the_clients_exceptions(self):
        self.service.failure = (grpc.StatusCode.NOT_FOUND, "no session 'x'")
        with self.assertRaises(quire.NotFound):
            self.sessions.get("x")
        with self.assertRaises(quire.NotFound):
            list(self.sessions.export("x"))
        self.service.failure = (grpc.StatusCode.FAILED_PRECONDITION, "a turn is running")
        with self.assertRaisesRegex(quire.InvalidRequest, "a turn is running"):
            self.sessions.close("x")

    def test_a_turn_expects_the_position_of_the_last(self):
        talk = self.client.conversation("alice")
        first = talk.say("Hi", max_tokens=5)
        self.assertEqual([delta.text for delta in first], ["A"])
        self.assertEqual(talk.position, 10)
        list(talk.say([1, 2, 3]))
        sent = self.inference.turns
        self.assertEqual((sent[0].session_id, sent[0].create_session), ("alice", True))
        self.assertEqual((sent[0].text, sent[0].stop.max_tokens), ("Hi", 5))
        self.assertFalse(sent[0].HasField("expected_position"))
        self.assertEqual(sent[1].expected_position, 10)
        self.assertEqual(list(sent[1].token_ids.ids), [1, 2, 3])
        residency = first.finished.residency
        self.assertEqual((residency.outcome, residency.host_tokens), (quire.Outcome.RESTORED, 7))
        self.assertEqual((residency.restore_seconds, first.finished.position), (0.5, 10))

    def test_a_known_position_is_checked_from_the_start(self):
        list(self.client.conversation("alice", position=0).say("Hi"))
        self.assertTrue(self.inference.turns[0].HasField("expected_position"))


if __name__ == "__main__":
    unittest.main()
