"""The cpu image, built and run without Docker: contents, sizes, rights, clients from another
network namespace, health, crashes, drain and bad input. Run as: container_test.py BUILD_DIR."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from container import CLIENT, LISTEN, PATIENCE, SERVER, SOURCE, Containers, run, why_not

BUILD = sys.argv.pop(1)
MAX_BYTES = 120e6
REASON = why_not()
TARGET = f"{SERVER}:50051"


def setUpModule():  # pylint: disable=invalid-name
    if REASON:
        raise unittest.SkipTest(REASON)
    ImageTest.containers = Containers(BUILD)
    unittest.addModuleCleanup(ImageTest.containers.close)
    ImageTest.facts = ImageTest.containers.image()
    print(json.dumps(ImageTest.facts))


class ImageTest(unittest.TestCase):
    containers = None
    facts = None

    def start(self, *flags, **options):
        """A server that listens on all addresses, once it is ready."""
        container = self.containers.start(*LISTEN, *flags, **options)
        self.addCleanup(container.podman, "rm", "-f", "-t", "0", container.name, check=False)
        container.await_ready()
        return container

    def refused(self, *flags, options=(), **more):
        """A server that cannot start: its exit code and log."""
        container = self.containers.start(*flags, options=options, **more)
        self.addCleanup(container.podman, "rm", "-f", "-t", "0", container.name, check=False)
        return container.exit_code(), container.log()

    def quire(self, *arguments):
        """`quire` in the client's namespace."""
        return run(*self.containers.in_client("quire", "--server", TARGET, *arguments), check=False)


class Contents(ImageTest):
    def test_two_builds_give_the_same_id(self):
        again = self.containers.image("cpu", "localhost/quire:again")
        self.assertEqual(again["id"], self.facts["id"])

    def test_size(self):
        self.assertLess(self.facts["bytes"], MAX_BYTES)

    def test_there_is_no_shell_interpreter_compiler_or_package_tool(self):
        root = self.containers.mounted("localhost/quire:test")
        programs = {path.name for path in (root / "usr/bin").iterdir()}
        self.assertEqual(programs, {"quire", "quire-load", "quire-server", "quire-worker"})
        # Nor elsewhere, under another name.
        runnable = [path.relative_to(root).as_posix() for path in root.rglob("*")
                    if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o111]
        rest = [path for path in runnable
                if not re.fullmatch(r"usr/bin/quire\S*|usr/lib\S*\.so\S*", path)]
        self.assertEqual(rest, [])
        writable = [path.relative_to(root).as_posix() for path in root.rglob("*")
                    if not path.is_symlink() and path.stat().st_mode & 0o022]
        self.assertEqual(writable, ["tmp"])

    def test_the_list_of_packages_has_the_owner_of_each_library(self):
        root = self.containers.mounted("localhost/quire:test")
        text = (root / "usr/share/quire/sbom.spdx.json").read_text()
        beside = pathlib.Path(SOURCE / "build/image/localhost-quire-test.spdx.json").read_text()
        self.assertEqual(text, beside)
        document = json.loads(text)
        self.assertEqual(document["spdxVersion"], "SPDX-2.3")
        versions = {each["name"]: each["versionInfo"] for each in document["packages"]}
        shown = run(self.containers.build / "bin/quire-server", "--version").stdout
        self.assertIn(f"quire-server {versions['quire']} ", shown)
        self.assertIn(f"(commit {self.facts['commit']},", shown)
        for each in document["packages"]:
            self.assertRegex(each["SPDXID"], r"^SPDXRef-[A-Za-z0-9.-]+$")
        named = {each["SPDXID"] for each in document["packages"]} | {"SPDXRef-DOCUMENT"}
        for relation in document["relationships"]:
            self.assertIn(relation["relatedSpdxElement"], named)
        for library in "libc6", "libgrpc++", "libstdc++6", "libssl3":
            self.assertTrue(any(name.startswith(library) for name in versions), library)
        self.assertRegex(versions["libc6"], r"^\d+\.\d+-")
        libraries = [path for path in root.rglob("*.so*") if not path.is_symlink()]
        self.assertGreaterEqual(len(libraries), 20)
        for name in versions:
            self.assertTrue((root / "var/lib/dpkg/status.d" / name).is_file(), name)

    def test_settings_of_the_image(self):
        (image,) = json.loads(run(*self.containers.podman, "image", "inspect",
                                  "localhost/quire:test").stdout)
        config = image["Config"]
        self.assertEqual(config["User"], "10001:10001")
        self.assertEqual(config["Entrypoint"], ["/usr/bin/quire-server"])
        self.assertEqual(config["StopSignal"], "SIGTERM")
        self.assertEqual(config["Labels"]["org.opencontainers.image.revision"],
                         self.facts["commit"])
        self.assertEqual(image["Healthcheck"]["Test"][:3], ["CMD", "/usr/bin/quire", "health"])


class Serving(ImageTest):
    def test_rights_of_the_process(self):
        container = self.start()
        status = dict(line.split(":\t", 1) for line in
                      pathlib.Path(f"/proc/{container.pid()}/status").read_text().splitlines())
        self.assertEqual(status["Uid"].split(), ["10001"] * 4)
        self.assertEqual(status["CapEff"], "0" * 16)
        self.assertEqual(status["CapBnd"], "0" * 16)
        self.assertEqual(status["NoNewPrivs"], "1")
        self.assertEqual(status["Seccomp"], "2")
        mounts = pathlib.Path(f"/proc/{container.pid()}/mountinfo").read_text().splitlines()
        (root,) = [line for line in mounts if line.split()[4] == "/"]
        self.assertIn("ro", root.split()[5].split(","))

    def test_requests_from_another_namespace(self):
        container = self.start()
        self.assertEqual(self.quire("health").stdout, "SERVING\n")
        answer = self.quire("generate", "--temperature", "0", "--max-tokens", "8", "Once")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertTrue(answer.stdout.startswith(" upon a time"), answer.stdout)
        self.assertIn("may use this server", container.log())
        page = run("ip", "netns", "exec", self.containers.namespaces.client, "curl", "-sS",
                   f"http://{SERVER}:9464/metrics").stdout
        self.assertIn(f'commit="{self.facts["commit"]}"', page)
        self.assertNotEqual(SERVER, CLIENT)

    def test_without_the_flag_other_addresses_are_refused(self):
        code, log = self.refused("--host", "0.0.0.0")
        self.assertEqual(code, 2)
        self.assertIn("--insecure-plaintext", log)

    def test_a_mounted_model_directory_and_volumes(self):
        with tempfile.TemporaryDirectory() as state:
            os.chown(state, 10001, 10001)
            volumes = (f"-v={SOURCE}/models/demo:/models/served:ro", f"-v={state}:/var/lib/quire")
            self.start("--model", "/models/served", "--session-dir", "/var/lib/quire/sessions",
                       "--worker-process", "on", options=volumes)
            self.assertIn('"model":"served"', self.quire("info", "--json").stdout)
            turn = self.quire("generate", "--session", "s", "--max-tokens", "4", "Once")
            self.assertEqual(turn.returncode, 0, turn.stderr)
            self.assertTrue(list(pathlib.Path(state, "sessions").iterdir()))

    def test_the_health_check_of_the_image(self):
        container = self.start("--admin-uds", "/tmp/admin", options=("--tmpfs=/tmp",))
        (image,) = json.loads(container.podman("image", "inspect", "localhost/quire:test").stdout)
        check = image["Healthcheck"]["Test"][1:]
        self.assertEqual(container.execute(*check).returncode, 0)
        # Not from another machine without a key; on this one by the socket.
        self.assertEqual(self.quire("drain").returncode, 17)
        drain = container.execute("/usr/bin/quire", "drain", "--server", "unix:/tmp/admin")
        self.assertEqual(drain.returncode, 0, drain.stderr)
        self.assertEqual(container.execute(*check).returncode, 1)

    def test_a_killed_container_starts_again(self):
        container = self.start()
        os.kill(container.pid(), signal.SIGKILL)
        self.assertEqual(container.exit_code(), 137)
        container.podman("start", container.name)
        container.await_ready(2)
        self.assertEqual(self.quire("health").stdout, "SERVING\n")

    def test_stop_lets_streams_finish(self):
        container = self.start("--cpu-threads", "1")
        streams = [subprocess.Popen(
            self.containers.in_client("quire", "--server", TARGET, "generate", "--ignore-eos",
                                      "--json", "--max-tokens", "900", "Once upon a time"),
            stdout=subprocess.PIPE, text=True) for _ in range(12)]
        for stream in streams:
            self.assertIn("accepted", stream.stdout.readline())
        container.podman("stop", "-t", "60", container.name)
        for stream in streams:
            frames, _ = stream.communicate(timeout=PATIENCE)
            self.assertEqual(stream.returncode, 0)
            self.assertRegex(frames, r'"completion_tokens":900\b')
        self.assertEqual(container.exit_code(), 0)
        self.assertRegex(container.log(), r"draining: .*open_streams=[1-9]")
        self.assertIn("unfinished_streams=0", container.log())

    def test_neither_dev_shm_nor_lockable_memory_is_needed_on_the_cpu(self):
        self.start("--worker-process", "on",
                   options=("--shm-size=64k", "--ulimit=memlock=0:0"))
        self.assertEqual(self.quire("generate", "--max-tokens", "4", "Once").returncode, 0)


class BadInput(ImageTest):
    """Each is answered with a sentence that says what to change and the documented exit code."""

    def test_an_unreadable_model_directory(self):
        with tempfile.TemporaryDirectory() as folder:  # mode 0700, of root
            for name in "config.json", "tokenizer.json", "model.safetensors":
                shutil.copy(SOURCE / "models/demo" / name, folder)
            volume = (f"-v={folder}:/models/m:ro",)
            code, log = self.refused("--model", "/models/m", options=volume)
            self.assertEqual(code, 4)
            self.assertRegex(log, r"/models/m/config\.json: Permission denied; let user 10001.*"
                                  r"chmod")
            os.chmod(folder, 0o755)
            for name in "tokenizer.json", "model.safetensors":
                for each in pathlib.Path(folder).iterdir():
                    os.chmod(each, 0o600 if each.name == name else 0o644)
                code, log = self.refused("--model", "/models/m", options=volume)
                self.assertEqual(code, 4, log)
                self.assertIn(f"/models/m/{name}: Permission denied; let user 10001", log)

    def test_a_missing_model_directory(self):
        code, log = self.refused("--model", "/models/none")
        self.assertEqual(code, 4)
        self.assertIn("--model /models/none is not a readable directory", log)

    def test_a_port_in_use(self):
        self.start()
        for flags, flag in ((("--metrics-port", "0"), "--port"), (("--port", "0"),
                                                                  "--metrics-port")):
            code, log = self.refused(*LISTEN, *flags)
            self.assertEqual(code, 3)
            self.assertIn(f"another process listens there; stop it or choose another {flag}", log)

    def test_no_gpu(self):
        code, log = self.refused("--device", "cuda", network="none")
        self.assertEqual(code, 5)
        self.assertRegex(log, "--device cuda is not in this build.*--device cpu")

    def test_too_little_memory(self):
        for flags in (), ("--worker-process", "on"):
            code, log = self.refused(*flags, options=("--memory=100m",), network="none")
            self.assertEqual(code, 5, log)
            self.assertIn("lower --kv-cache-memory-bytes", log)
            self.assertIn("memory limit of the container", log)

    def test_too_little_memory_for_idle_kv(self):
        code, log = self.refused("--kv-offloading-size", "2", options=("--memory=1g",),
                                 network="none")
        self.assertIn(code, (2, 5), log)
        self.assertRegex(log, "--kv-offloading-size")

    def test_a_session_directory_without_a_volume(self):
        code, log = self.refused("--session-dir", "/var/lib/quire/sessions", network="none")
        self.assertEqual(code, 2)
        self.assertIn("--session-dir", log)
        self.assertIn("/var/lib/quire is not a directory that this user can write", log)


if __name__ == "__main__":
    unittest.main(verbosity=2)
