"""Quire's image in containers, for the tests and the soak: scripts/image builds it with buildah,
podman runs it with runc, locked down as docs/deploy.md says, in a network namespace of its own that
is joined to another one for clients. Everything lies below BUILD/image."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 120  # seconds; beyond it something hangs
SERVER, CLIENT = "10.78.0.1", "10.78.0.2"  # addresses in the two namespaces
LISTEN = ("--host", "0.0.0.0", "--insecure-plaintext")
# No right that the server does not need. The tools know no systemd here: no timer of health checks.
LOCKED = (
    "--pull=never", "--no-healthcheck", "--ulimit=nofile=16384:16384",
    "--ulimit=nproc=4096:4096", "--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL",
    "--security-opt=no-new-privileges", "--memory=1g", "--pids-limit=512",
    f"--security-opt=seccomp={SOURCE / 'deploy/seccomp.json'}",
)


def run(*command, **options):
    options = {"capture_output": True, "text": True, "check": True, "timeout": PATIENCE, **options}
    try:
        return subprocess.run([str(word) for word in command], **options)
    except subprocess.CalledProcessError as failed:
        raise AssertionError(f"{failed.cmd}: {failed.returncode}\n{failed.stderr}") from None


def why_not():
    """Why this machine cannot build and run containers; None if it can."""
    missing = [tool for tool in ("buildah", "podman", "runc", "debootstrap", "ip")
               if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not installed (scripts/deps installs them)"
    if os.geteuid() != 0:
        return "building a base, overlays and network namespaces need root"
    probe = f"quireprobe{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode:
        return "this machine makes no network namespaces"
    subprocess.run(["ip", "netns", "del", probe], check=False)
    return None


class Namespaces:
    """Two network namespaces joined by a pair of virtual interfaces: `server` and `client`."""

    def __init__(self):
        self.server, self.client = (f"quire{os.getpid()}{side}" for side in "sc")
        ends = [f"q{os.getpid()}{side}" for side in "sc"]
        for name in (self.server, self.client):
            run("ip", "netns", "add", name)
        run("ip", "link", "add", ends[0], "netns", self.server, "type", "veth",
            "peer", "name", ends[1], "netns", self.client)
        for name, end, address in zip((self.server, self.client), ends, (SERVER, CLIENT)):
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", end)
            run("ip", "-n", name, "link", "set", end, "up")
            run("ip", "-n", name, "link", "set", "lo", "up")

    def close(self):
        for name in (self.server, self.client):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


class Containers:
    """The tools with storage of their own below `build`/image, and the two namespaces."""

    def __init__(self, build):
        self.build = pathlib.Path(build).resolve()
        self.store = self.build / "image" / "store"
        self.store.mkdir(parents=True, exist_ok=True)
        # The storage remembers this path; a restart of the machine empties it.
        digest = hashlib.sha256(str(self.build).encode()).hexdigest()[:12]
        self._run = pathlib.Path("/run", f"quire-image-{digest}")
        self.storage = self._storage()
        self.podman = ("podman", "--log-level=error", *self.storage, f"--tmpdir={self._run}/podman",
                       "--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=file")
        self.namespaces = Namespaces()
        self.names = []

    def _storage(self):
        """Overlays, where the file system of `build` carries them; else copies."""
        for driver in "overlay", "vfs":
            storage = (f"--storage-driver={driver}", f"--root={self.store / driver}",
                       f"--runroot={self._run}/storage")
            done = run("buildah", *storage, "from", "scratch", check=False)
            if done.returncode == 0:
                container = done.stdout.strip()
                done = run("buildah", *storage, "mount", container, check=False)
                run("buildah", *storage, "rm", container)
            if done.returncode == 0:
                return storage
        raise AssertionError(f"buildah stores nothing below {self.store}: {done.stderr}")

    def image(self, target="cpu", tag="localhost/quire:test", *options):
        """Builds the image from the programs of `build`; what scripts/image prints, parsed."""
        environment = {**os.environ, "IMAGE_TOOL": " ".join(("buildah", *self.storage))}
        done = run(SOURCE / "scripts" / "image", target, "--bootstrap", "--from-build", self.build,
                   "--tag", tag, *options, env=environment, timeout=5 * PATIENCE)
        return json.loads(done.stdout)

    def mounted(self, tag):
        """The image's root file system, to be read until close()."""
        return pathlib.Path(run(*self.podman, "image", "mount", tag).stdout.strip())

    def start(self, *flags, tag="localhost/quire:test", options=(), network=None):
        """A container in the server's namespace; `options` are podman's, `flags` the server's."""
        name = f"quire-test-{os.getpid()}-{len(self.names)}"
        self.names.append(name)
        network = network or f"ns:/run/netns/{self.namespaces.server}"
        run(*self.podman, "run", "-d", "--name", name, *LOCKED, f"--network={network}", *options,
            tag, *flags)
        return Container(self, name)

    def close(self):
        for name in self.names:
            subprocess.run([*self.podman, "rm", "-f", "-t", "0", name], capture_output=True,
                           check=False)
        subprocess.run([*self.podman, "image", "umount", "--all", "--force"], capture_output=True,
                       check=False)
        self.namespaces.close()

    def in_client(self, program, *arguments):
        """The command line of one of our programs in the client's namespace."""
        return ["ip", "netns", "exec", self.namespaces.client,
                str(self.build / "bin" / program), *arguments]


class Container:
    """A container that was started."""

    def __init__(self, containers, name):
        self.containers, self.name = containers, name

    def podman(self, *words, **options):
        return run(*self.containers.podman, *words, **options)

    def state(self, field):
        return self.podman("inspect", "--format", f"{{{{.State.{field}}}}}", self.name
                           ).stdout.strip()

    def log(self):
        done = self.podman("logs", self.name)
        return done.stdout + done.stderr

    def await_ready(self, count=1):
        """Waits until the log says READY for the `count`th time."""
        deadline = time.monotonic() + PATIENCE
        while self.log().count(" READY ") < count:
            assert self.state("Running") == "true", self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)

    def pid(self):
        return int(self.state("Pid"))

    def exit_code(self):
        """Waits for the end."""
        return int(self.podman("wait", self.name).stdout)

    def execute(self, *command):
        """Runs a program of the image inside; the CompletedProcess."""
        return self.podman("exec", self.name, *command, check=False)
