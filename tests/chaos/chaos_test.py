#!/usr/bin/python3
"""Load of all kinds and faults of all kinds at once: chaos_test.py SERVER [SECONDS [SEED]].

One server, which is started again whenever it ends, with a worker process, two tenants, sessions in
a directory and KV on the host. While clients ask for answers that are known, other peers keep to no
rule, workers and servers are killed and stopped, the disk fills, descriptors run out, and memory is
limited. Then the faults end, and everything is counted: answers, sessions, blocks, descriptors.
The seed decides which faults come, and when; the machine decides what they meet.
"""

import faulthandler
import json
import pathlib
import random
import signal
import sys
import tempfile
import unittest

import quire
from answers import PATIENCE, Line, Told, kinds
from faults import lanes, signal_worker
from peers import PEERS
from quire.errors import QuireError
from running_server import RunningServer
from served import await_true
from talks import Plot, Talker
from world import MEMORY_MIB, TENANTS, Caller, World

SECONDS = float(sys.argv.pop(1)) if len(sys.argv) > 1 else 20
SEED = int(sys.argv.pop(1)) if len(sys.argv) > 1 else random.randrange(1 << 32)
CALLERS = 4  # of each tenant
# Beyond what it held when it was new: threads of the library, of which it makes as many as it has
# calls to end, up to 64; descriptors of connections that the peers' kernel has yet to close.
MORE_THREADS, MORE_DESCRIPTORS = 64, 8
# Memory that may stay, in MiB: the library's quota of 256 (docs/grpc.md), and KV on the host, 31 by
# world.FLAGS. After a flood of resets the limit of the control group is the only bound, because the
# allocator keeps what it gave out: a server held 646 after six floods, and 46 after malloc_trim().
MORE_MIB = 256 + 31


class ChaosTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"chaos_test: seed {SEED}, {SECONDS:g} s", flush=True)
        folder = tempfile.TemporaryDirectory(prefix="quire-chaos-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        calm = RunningServer("--device", "cpu", "--worker-process", "off")
        cls.addClassCleanup(calm.stop)
        client, line = quire.QuireClient(calm.target, timeout=PATIENCE), Line(calm.target)
        cls.known = {}
        for name, request in kinds(cls.folder).items():
            told = Told()
            request.run(line, told)
            cls.known[name] = (request, told)
        cls.plots = [Plot(client, 100 * i) for i in range(2)]
        client.close()
        line.close()
        calm.stop()

    def test_everything_at_once(self):
        world = World(self.folder)
        self.addCleanup(world.close)
        self.assertTrue(world.servers.up.wait(PATIENCE), world.servers.life.log())
        lines = [world.line(tenant) for tenant in TENANTS]
        callers = [Caller(world, line, self.known, SEED + 10 + i)
                   for i, line in enumerate(lines * CALLERS)]
        talkers = [Talker(world, line, plot, f"talk-{i}", SEED + 100 * i)
                   for line in lines for i, plot in enumerate(self.plots)]
        self.ask_each(callers[0])
        new = world.servers.figures()
        crowd = [peer(world, SEED + 1000 + i) for i, peer in enumerate(PEERS)]
        faults = lanes(world, SEED)
        threads = [*callers, *talkers, *crowd, *faults]
        for thread in threads:
            thread.start()
        world.stopped.wait(SECONDS)
        await_true(lambda: not any(lane.first for lane in faults), "each fault once")
        world.stopped.set()
        for thread in threads:
            thread.join(2 * PATIENCE)
            if thread.is_alive():
                faulthandler.dump_traceback()  # where it waits
            self.assertFalse(thread.is_alive(), f"{thread.name} never ended")
        self.after(world, callers[:2], talkers)
        self.bounds(world, lines, new)
        old = world.servers.figures() | {"flooded": world.servers.life.flooded}
        world.servers.stop()
        self.tell(world, threads, faults, {"new": new, "old": old})
        self.assertEqual(world.judge.conclude(), [])

    def ask_each(self, caller):
        """One request of each kind, with its whole answer."""
        for name in self.known:
            caller.ask(name, hasty=False)

    def is_served(self, world):
        """Whether a request is answered. The last fault may still end the server or its worker."""
        request, expected = self.known["stream 0"]
        told, line = Told(), world.line()
        try:
            request.run(line, told, timeout=PATIENCE / 4)
            return told.equals(expected) and world.servers.up.is_set()
        except QuireError as error:
            print("not served yet:", error, flush=True)
            return False
        finally:
            line.close()

    def after(self, world, callers, talkers):
        """The faults are off: each kind of request is answered, each session is found."""
        signal_worker(world, signal.SIGCONT)
        await_true(lambda: self.is_served(world), "a server that answers")
        ended = len(world.judge.failed)
        for caller in callers:
            self.ask_each(caller)
        for talker in talkers:
            talker.finish()
        late = [(call.name, call.error, call.message) for call in world.judge.failed[ended:]]
        self.assertEqual(late, [], "calls failed when the faults were off")

    def bounds(self, world, lines, new):
        """Nothing is held any more."""
        for line in lines:
            self.assertEqual(line.sessions.list(), [])
            line.close()
        servers, ops = world.servers, world.line("ops")
        types = quire.v1.control_pb2
        zero = ("quire_requests_running", "quire_requests_waiting", "quire_streams_open",
                "quire_sessions", "quire_session_transfers", "quire_kv_copies_in_flight",
                "quire_requests_restoring", "quire_session_tokens", "quire_session_dir_sessions",
                "quire_tenant_requests_running", "quire_tenant_requests_waiting")

        def held():
            ops.control.FlushCache(types.FlushCacheRequest(), metadata=ops.headers)
            found = {name: servers.sum(name) for name in zero}
            found["blocks"] = servers.sum("quire_kv_blocks") - servers.sum("quire_kv_blocks_free")
            found["cached"] = servers.sum("quire_kv_blocks_cached")
            found["pages"] = servers.sum("quire_host_pages_used")
            return {name: value for name, value in found.items() if value}
        await_true(lambda: not held(), lambda: f"all is free: {held()}")
        ops.close()
        files = lambda: sorted(path.name for path in world.sessions.iterdir())
        await_true(lambda: files() == ["jobs", "lock"], lambda: f"no file is left: {files()}")
        await_true(lambda: servers.figures()["descriptors"] <= new["descriptors"]
                   + MORE_DESCRIPTORS, lambda: f"{servers.figures()}, when it was new {new}")
        self.assertLessEqual(servers.figures()["threads"], new["threads"] + MORE_THREADS)
        most = MEMORY_MIB if servers.life.flooded else new["resident_mib"] + MORE_MIB
        await_true(lambda: servers.figures()["resident_mib"] <= most,
                   lambda: f"at most {most} MiB stay: {servers.figures()}, when it was new {new}")

    def tell(self, world, threads, faults, held):
        told = {
            "seed": SEED, "seconds": SECONDS, "servers": len(world.servers.lives),
            "worker_deaths": sum(life.deaths() for life in world.servers.lives),
            "exit_codes": [life.process.returncode for life in world.servers.lives],
            "turns_told": sum(getattr(thread, "done", 0) for thread in threads),
            "turns_unsaved": [life.unsaved for life in world.servers.lives],
            "faults": {name: n for lane in faults for name, n in lane.counts.items()},
            "acts": {thread.name: thread.acts for thread in threads if hasattr(thread, "acts")},
            "outcomes": world.judge.figures(),
            **held, "memory": world.group.figures(),
        }
        print(json.dumps(told), flush=True)
        memory = told["memory"]
        self.assertFalse(isinstance(memory, dict) and memory["oom_kills"], memory)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
