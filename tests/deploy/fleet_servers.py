"""Servers, the two proxies of deploy/fleet in front of them, and clients, for fleet_test.py."""

import collections
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

import grpc
from processes import PATIENCE, await_true, free_port
from quire.v1 import control_pb2, control_pb2_grpc
from quire.v1 import inference_pb2, inference_pb2_grpc
from quire.v1 import sessions_pb2, sessions_pb2_grpc

FLEET = pathlib.Path(__file__).resolve().parents[2] / "deploy/fleet"
HEADER = "x-quire-session"
SHIPPED = {"a": (50051, 9464), "b": (50052, 9465), "c": (50053, 9466)}  # ports in the files


def program(name):
    """The path of a proxy's program; None if it is not installed."""
    return shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")


class Calls:
    """Calls over one channel; each may name a session, as the proxies see it."""

    def __init__(self, channel):
        self.channel = channel
        self.control = control_pb2_grpc.ControlStub(channel)
        self.inference = inference_pb2_grpc.InferenceStub(channel)
        self.sessions = sessions_pb2_grpc.SessionsStub(channel)

    def close(self):
        self.channel.close()

    def place(self, key=None):
        """The instance id of the server that answers calls of this session."""
        return self._place(key).result().instance_id

    def places(self, keys):
        """Session by session; many calls at a time."""
        found = {}
        keys = list(keys)
        for begin in range(0, len(keys), 200):
            calls = [(key, self._place(key)) for key in keys[begin : begin + 200]]
            found.update((key, call.result().instance_id) for key, call in calls)
        return found

    def _place(self, key):
        return self.control.GetServerInfo.future(
            control_pb2.GetServerInfoRequest(), timeout=PATIENCE, metadata=headers(key)
        )

    def turn(self, name, text, create=False, key=None):
        """One turn of a session: all of the answer. `key`: the header, if it is not the name."""
        return self.inference.GenerateUnary(
            request_of(text, 8, session_id=name, create_session=create),
            timeout=PATIENCE,
            metadata=headers(key or name),
        )

    def stream(self, key, text, tokens):
        """A running request; its first frame has been read."""
        call = self.inference.Generate(
            request_of(text, tokens), timeout=PATIENCE, metadata=headers(key)
        )
        next(call)
        return call

    def close_sessions(self):
        for name in self.session_names():
            request = sessions_pb2.CloseSessionRequest(session_id=name)
            self.sessions.Close(request, timeout=PATIENCE)

    def session_names(self):
        page = self.sessions.List(sessions_pb2.ListSessionsRequest(), timeout=PATIENCE)
        return sorted(session.session_id for session in page.sessions)


def headers(key):
    return [] if key is None else [(HEADER, key)]


def request_of(text, tokens, **fields):
    request = inference_pb2.GenerateRequest(text=text, **fields)
    request.sampling.temperature = 0
    request.stop.max_tokens = tokens
    request.stop.ignore_eos = True
    return request


class Server:
    """A quire-server on the CPU, on two ports that stay its own through restarts."""

    def __init__(self, binary, folder, *flags):
        self.port, self.admin_port = free_port(), free_port()
        self._log = pathlib.Path(folder, f"server-{self.port}.log")
        admin = pathlib.Path(folder, f"admin-{self.port}.sock")
        self._command = [
            *(binary, "--device", "cpu", "--port", str(self.port)),
            *("--metrics-port", str(self.admin_port), "--admin-uds", str(admin), *flags),
        ]
        self.admin = control_pb2_grpc.ControlStub(grpc.insecure_channel(f"unix:{admin}"))
        self.calls = Calls(grpc.insecure_channel(f"127.0.0.1:{self.port}"))
        self.start()

    def start(self):
        with open(self._log, "a") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)
        grpc.channel_ready_future(self.calls.channel).result(timeout=PATIENCE)
        self.instance = self.calls.place()

    def terminate(self):
        """Drains and ends; returns the exit code."""
        self.process.terminate()
        return self.process.wait(timeout=PATIENCE)

    def drain(self):
        self.admin.Drain(control_pb2.DrainRequest(), timeout=PATIENCE, wait_for_ready=True)

    def undrain(self):
        self.admin.Undrain(control_pb2.UndrainRequest(), timeout=PATIENCE, wait_for_ready=True)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.calls.close()
        if self.process.poll() is None:
            self.kill()


class Proxy:
    """A proxy of deploy/fleet: its file, with the addresses of this test."""

    def __init__(self, folder, certificate, servers):
        self.folder = pathlib.Path(folder)
        self.certificate = certificate
        self.port, self.plain_port = free_port(), free_port()
        self.servers = dict(servers)
        self.down = set()
        self.config = self.folder / self.file
        self.write()
        self.process = None

    def replaced(self, text, *changes):
        for shipped, here in changes:
            assert shipped in text, f"{self.file} has no {shipped}"
            text = text.replace(shipped, str(here))
        return text

    def write(self):
        self.config.write_text(self.render((FLEET / self.file).read_text()))

    def checked(self):
        """The program's own verdict on the file: its exit code and its words."""
        done = subprocess.run(self.check_command(), capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def start(self):
        self.process = subprocess.Popen(
            self.run_command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.await_port()

    def await_port(self):
        def answers():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return True
            return self.process.poll() is not None

        await_true(answers, "the proxy listens")
        assert self.process.poll() is None, self.checked()

    def connect(self):
        credentials = grpc.ssl_channel_credentials(self.certificate.read_bytes())
        # A channel of its own for each caller, as clients in processes of their own have.
        options = [("grpc.use_local_subchannel_pool", 1)]
        return Calls(grpc.secure_channel(f"localhost:{self.port}", credentials, options))

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=PATIENCE)


class HAProxy(Proxy):
    name, file = "haproxy", "haproxy.cfg"
    notices_a_drain = True
    cut_off = grpc.StatusCode.UNKNOWN  # "Stream removed"

    def render(self, text):
        changes = [
            ("bind :8443", f"bind 127.0.0.1:{self.port}"),
            ("127.0.0.1:8081", f"127.0.0.1:{self.plain_port}"),
            ("/etc/haproxy/quire.pem", self.certificate),
            ("/run/haproxy/", f"{self.folder}/"),
        ]
        for name, (port, admin) in SHIPPED.items():
            shipped = f"server {name} 127.0.0.1:{port}"
            changes.append((shipped, f"server {name} 127.0.0.1:{self.servers[name].port}"))
            changes.append((f" port {admin}\n", f" port {self.servers[name].admin_port}\n"))
        text = self.replaced(text, *changes)
        if "d" in self.servers:
            d = self.servers["d"]
            text += f"\n    server d 127.0.0.1:{d.port} id 4 port {d.admin_port}\n"
        return text

    def check_command(self):
        return [program("haproxy"), "-c", "-f", self.config]

    def run_command(self):
        return [program("haproxy"), "-W", "-db", "-f", self.config]

    def reload(self):
        self.write()
        self.process.send_signal(signal.SIGUSR2)

    def state(self, server):
        """The proxy's own line on a server: UP, DOWN or the checks on its way there; empty before
        the proxy listens."""
        with socket.socket(socket.AF_UNIX) as stats:
            try:
                stats.connect(f"{self.folder}/quire.sock")
            except (FileNotFoundError, ConnectionRefusedError):
                return ""
            stats.sendall(b"show stat\n")
            lines = stats.makefile().read().splitlines()
        return next(line for line in lines if line.startswith(f"quire,{server},"))


class HAProxyToTls(HAProxy):
    """HAProxy with the file's line of a server elsewhere, `servers["d"]`, and no other server."""

    def render(self, text):
        d = self.servers["d"]
        lines = text.splitlines(keepends=True)
        text = "".join(line for line in lines if not re.match(r" +server [abc] ", line))
        return self.replaced(
            text,
            ("    # server d 10.0.0.14:50051", f"    server d 127.0.0.1:{d.grpc_port}"),
            ("port 9464 ssl", f"port {d.port} ssl"),
            ("verifyhost gpu-4.example", "verifyhost localhost"),
            ("/etc/haproxy/ca.pem", d.certificate),
            ("/etc/haproxy/client.pem", self.certificate),
            ("bind :8443", f"bind 127.0.0.1:{self.port}"),
            ("127.0.0.1:8081", f"127.0.0.1:{self.plain_port}"),
            ("/etc/haproxy/quire.pem", self.certificate),
            ("/run/haproxy/", f"{self.folder}/"),
        )


class Nginx(Proxy):
    name, file = "nginx", "nginx.conf"
    notices_a_drain = False
    cut_off = grpc.StatusCode.INTERNAL

    def render(self, text):
        user = "root" if os.geteuid() == 0 else None
        paths = "".join(
            f"    {part}_temp_path {self.folder};\n"
            for part in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        changes = [
            ("user www-data;\n", f"user {user};\n" if user else ""),
            ("worker_processes auto", "worker_processes 2"),
            ("/run/nginx.pid", self.folder / "nginx.pid"),
            ("listen 8443", f"listen 127.0.0.1:{self.port}"),
            ("127.0.0.1:8081", f"127.0.0.1:{self.plain_port}"),
            ("/etc/nginx/quire.pem", self.certificate),
            ("http {\n", "http {\n" + paths),
        ]
        for name, (port, _) in SHIPPED.items():
            here = f"server 127.0.0.1:{self.servers[name].port}"
            line = f"server 127.0.0.1:{port} weight=64 max_fails=1 fail_timeout=5s"
            down = " down" if name in self.down else ""
            changes.append((line, line.replace(f"server 127.0.0.1:{port}", here) + down))
        text = self.replaced(text, *changes)
        if "d" in self.servers:
            line = f"server 127.0.0.1:{self.servers['d'].port} weight=64;\n        keepalive 64;"
            text = self.replaced(text, ("keepalive 64;", line))
        return text

    def check_command(self):
        return [program("nginx"), "-t", "-q", "-c", self.config, "-e", self.folder / "error.log"]

    def run_command(self):
        command = [program("nginx"), "-c", self.config, "-e", self.folder / "error.log"]
        return [*command, "-g", "daemon off;"]

    def reload(self):
        self.write()
        self.process.send_signal(signal.SIGHUP)


def counted(places):
    """How many sessions each server has, by its instance id."""
    return collections.Counter(places.values())
