#!/usr/bin/python3
"""Keys between real programs: `quire key`, a server with --api-keys, changes of its file, tenants,
and --admin-uds: keys_test.py FOLDER_OF_PROGRAMS."""
# Covers server/identity/key_watch.cc, server/identity/door_keeper.cc

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

import grpc
from logged_server import PATIENCE, LoggedServer, await_true, clean_environment
from running_server import BINARY as PROGRAMS  # here the folder of all programs

BAD_CONFIG = 2
STATUS = 10  # exit code of quire, plus the code of gRPC
DENIED, UNAUTHENTICATED, EXHAUSTED = STATUS + 7, STATUS + 16, STATUS + 8


ROOT = pathlib.Path(__file__).resolve().parents[2]


def foreign_methods():
    """The methods of other projects' protocols that answer with one message."""
    found = set()
    for path in (ROOT / "tests/testdata/field").glob("*.txt"):  # from the originals
        for line in path.read_text().splitlines():
            if line.startswith("method ") and line.split()[-2] != "stream":
                found.add(line.split()[1])
    text = (ROOT / "proto/field/vllm_engine.proto").read_text()
    for method in re.findall(r"^  rpc (\w+)\([\w.]+\)\s+returns \([\w.]+\);", text, re.M):
        found.add(f"vllm.grpc.engine.VllmEngine/{method}")
    return sorted(found)


class Server(LoggedServer):
    def __init__(self, *flags):
        super().__init__(PROGRAMS, *flags)


def quire(*arguments, key=None):
    environment = clean_environment() | {"HOME": "/"} | ({"QUIRE_API_KEY": key} if key else {})
    return subprocess.run([PROGRAMS / "quire", *arguments], env=environment, capture_output=True,
                          text=True, timeout=PATIENCE)


class KeysTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = str(self.folder / "keys.json")

    def make(self, tenant, *flags):
        made = quire("key", "new", "--file", self.file, "--tenant", tenant, *flags)
        self.assertEqual(made.returncode, 0, made.stderr)
        return made.stdout.strip()

    def ask(self, server, key, *flags, tokens=4):
        return quire("generate", "--server", server.address, "--max-tokens", str(tokens), *flags,
                     "Once", key=key)

    def test_a_key_lets_its_tenant_in_and_nothing_else_does(self):
        acme, beta = self.make("acme"), self.make("beta")
        ops = self.make("ops", "--scopes", "admin,metrics")
        with Server("--api-keys", self.file) as server:
            self.assertEqual(self.ask(server, None).returncode, UNAUTHENTICATED)
            self.assertEqual(self.ask(server, acme[:-1] + "x").returncode, UNAUTHENTICATED)
            self.assertEqual(self.ask(server, ops).returncode, DENIED)
            answer = self.ask(server, acme, "--session", "s")
            self.assertEqual(answer.returncode, 0, answer.stderr)
            listed = lambda key: quire("session", "list", "--server", server.address, key=key)
            self.assertIn("s", listed(acme).stdout.split())
            self.assertNotIn("s", listed(beta).stdout.split())
            self.assertEqual(quire("health", "--server", server.address).returncode, 0)
            info = lambda key: quire("info", "--server", server.address, key=key).stdout
            self.assertIn("scope metrics", info(acme))
            self.assertIn("blocks free", info(ops))
            drain = lambda key, *more: quire("drain", "--server", server.address, *more, key=key)
            self.assertEqual(drain(acme).returncode, DENIED)
            self.assertEqual(drain(ops).returncode, 0)
            self.assertEqual(drain(ops, "--undo").returncode, 0)
            (told,) = server.events("drain:")
            self.assertEqual((told["tenant"], told["key"]), ("ops", ops[3:19]))
            (finished,) = server.events("request finished")
            self.assertEqual((finished["tenant"], finished["key"]), ("acme", acme[3:19]))
            self.assertEqual(
                server.metric("quire_tenant_generation_tokens_total", 'tenant="acme"'), 4)
            self.assertEqual(server.metric("quire_auth_failures_total", 'reason="missing"'), 1)
            self.assertNotIn(acme[20:], server.log())

    def test_each_administrative_use_of_a_foreign_protocol_is_logged_with_its_caller(self):
        user = self.make("acme", "--scopes", "infer,session,metrics")
        ops = self.make("ops", "--scopes", "admin")
        with Server("--api-keys", self.file) as server:
            with grpc.insecure_channel(server.address) as channel:
                def code(method, key, request=b""):
                    call = channel.unary_unary("/" + method)
                    try:
                        call(request, metadata=(("authorization", "Bearer " + key),),
                             timeout=PATIENCE)
                    except grpc.RpcError as error:
                        return error.code()
                    return grpc.StatusCode.OK

                administers = [method for method in foreign_methods()
                               if code(method, user) == grpc.StatusCode.PERMISSION_DENIED]
                for method in ("vllm.grpc.engine.VllmEngine/FlushCache", "vllm.Control/LoadLora",
                               "vllm.grpc.engine.VllmEngine/StopProfile",
                               "openengine.v1.Control/UnloadLora",
                               "inference.GRPCInferenceService/TraceSetting"):
                    self.assertIn(method, administers)
                self.assertEqual(server.events("administration"), [])
                for method in administers:
                    self.assertNotEqual(code(method, ops), grpc.StatusCode.PERMISSION_DENIED)
                aborts = [method for method in foreign_methods() if method.endswith("/Abort")]
                self.assertEqual(len(aborts), 3)
                one_id = b"\x0a\x01x"  # field 1 of each protocol's request: "x"
                for method in aborts:
                    self.assertEqual(code(method, ops, one_id), grpc.StatusCode.OK)
            aborted = lambda: [line for line in server.events("abort") if line["named"] == 1]
            await_true(lambda: len(aborted()) == len(aborts), "the lines of the aborts")
            caller = {"tenant": "ops", "key": ops[3:19]}
            logged = server.events("administration")
            self.assertEqual([line["method"] for line in logged], administers)
            self.assertEqual([line["method"] for line in aborted()], aborts)
            for line in logged + aborted() + server.events("flush"):
                self.assertEqual({name: line[name] for name in caller}, caller, line)
            self.assertNotIn(ops[20:], server.log())

    def test_changes_of_the_file_are_taken_and_nonsense_is_not(self):
        first = self.make("acme")
        with Server("--api-keys", self.file) as server:
            second = self.make("acme")
            await_true(lambda: self.ask(server, second).returncode == 0, "the new key")
            quire("key", "revoke", first[3:19], "--file", self.file)
            await_true(lambda: self.ask(server, first).returncode == UNAUTHENTICATED, "revoked")
            good = pathlib.Path(self.file).read_text()
            pathlib.Path(self.file).write_text(good[:40])
            await_true(lambda: server.metric("quire_key_file_refused") == 1, "the alarm")
            self.assertEqual(self.ask(server, second).returncode, 0)
            self.assertIn(self.file, server.events("key file refused")[0]["reason"])
            pathlib.Path(self.file).write_text(good)
            await_true(lambda: server.metric("quire_key_file_refused") == 0, "the end of it")

    def test_a_tenant_does_not_choose_to_come_before_others(self):
        key = self.make("acme")
        with Server("--api-keys", self.file) as server:
            refused = self.ask(server, key, "--priority", "1")
            self.assertEqual(refused.returncode, DENIED)
            self.assertIn("priority: must be at most 0 for this tenant", refused.stderr)
            self.assertEqual(self.ask(server, key, "--priority", "-1").returncode, 0)
            text = json.loads(pathlib.Path(self.file).read_text())
            text["tenants"]["acme"] = {"max_priority": 1}
            pathlib.Path(self.file).write_text(json.dumps(text))
            await_true(lambda: self.ask(server, key, "--priority", "1").returncode == 0, "allowed")

    def test_a_dry_run_reads_the_file(self):
        self.make("acme")
        command = [PROGRAMS / "quire-server", "--dry-run", "--api-keys", self.file]
        run = lambda: subprocess.run(command, env=clean_environment(), capture_output=True,
                                     text=True, timeout=PATIENCE)
        self.assertEqual(run().returncode, 0)
        pathlib.Path(self.file).write_text('{"tenants": {"Acme Inc": {}}, "keys": []}')
        self.assertEqual(run().returncode, 2)
        self.assertIn(self.file, run().stderr)

    def test_limits_of_a_tenant_hold_and_change(self):
        key = self.make("acme")
        text = json.loads(pathlib.Path(self.file).read_text())
        text["tenants"]["acme"] = {"tokens_per_minute": 10}
        pathlib.Path(self.file).write_text(json.dumps(text))
        with Server("--api-keys", self.file) as server:
            self.assertEqual(self.ask(server, key).returncode, 0)
            refused = self.ask(server, key, tokens=9)
            for _ in range(4):
                if refused.returncode != 0:
                    break
                refused = self.ask(server, key, tokens=9)
            self.assertEqual(refused.returncode, EXHAUSTED, refused.stderr)
            self.assertIn("tokens_per_minute", refused.stderr)
            text["tenants"]["acme"] = {}
            pathlib.Path(self.file).write_text(json.dumps(text))
            await_true(lambda: self.ask(server, key).returncode == 0, "the limit is gone")

    def test_host_memory_of_a_tenant_is_bounded(self):
        keys = {tenant: self.make(tenant) for tenant in ("acme", "beta")}
        text = json.loads(pathlib.Path(self.file).read_text())

        def limit(tokens):
            text["tenants"]["acme"] = {"max_host_kv_tokens": tokens}
            pathlib.Path(self.file).write_text(json.dumps(text))

        limit(40)  # two blocks of 16 tokens
        with Server("--api-keys", self.file, "--session-idle-offload-after", "0.05") as server:
            pages = lambda tenant: server.metric("quire_tenant_host_pages", f'tenant="{tenant}"')
            turn = lambda tenant: self.ask(server, keys[tenant], "--session", "s", "--ignore-eos",
                                           "--temperature", "0", tokens=70)
            first = {tenant: turn(tenant).stdout for tenant in keys}
            self.assertEqual(first["acme"], first["beta"])
            # 70 tokens and more have KV; beta has no limit.
            await_true(lambda: pages("beta") >= 5 and pages("acme") == 2, "the KV is stored")
            second = {tenant: turn(tenant) for tenant in keys}
            self.assertEqual(second["acme"].returncode, 0, second["acme"].stderr)
            self.assertEqual(second["acme"].stdout, second["beta"].stdout)
            await_true(lambda: pages("beta") >= 9, "the second turn is stored")
            self.assertEqual(pages("acme"), 2)
            quire("session", "close", "s", "--server", server.address, key=keys["acme"])
            limit(16)  # one page too many, which no session wants any more
            await_true(lambda: pages("acme") == 1, "the lower limit")
            limit(0)
            await_true(lambda: turn("acme").returncode == 0 and pages("acme") > 2, "no limit")
            limit(-1)
            await_true(lambda: server.metric("quire_key_file_refused") == 1, "the alarm")
            self.assertIn("tenants.acme.max_host_kv_tokens is out of range",
                          server.events("key file refused")[0]["reason"])

    def test_bad_files_are_refused_at_the_start(self):
        self.make("acme")
        good = pathlib.Path(self.file).read_text()
        for text, words in ((good[:50], "keys.json"), (good.replace("scopes", "scope"), "'scope'"),
                            (good.replace('"acme": {}', '"acme": {"wieght": 1}'), "'wieght'")):
            pathlib.Path(self.file).write_text(text)
            done = subprocess.run([PROGRAMS / "quire-server", "--api-keys", self.file, "--port",
                                   "0", "--metrics-port", "0"], env=clean_environment(),
                                  capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, BAD_CONFIG, done.stderr)
            self.assertIn(words, done.stderr)

    def test_the_admin_socket_takes_control_away_from_the_port(self):
        path = self.folder / "admin"
        with Server("--admin-uds", str(path)) as server:
            self.assertEqual(path.stat().st_mode & 0o777, 0o700)
            self.assertEqual(self.ask(server, None).returncode, 0)
            denied = quire("drain", "--server", server.address)
            self.assertEqual(denied.returncode, DENIED)
            self.assertIn("--admin-uds", denied.stderr)
            self.assertEqual(quire("drain", "--server", f"unix:{path}").returncode, 0)
            self.assertEqual(server.events("drain:")[0]["key"], "admin-uds")


if __name__ == "__main__":
    unittest.main()
