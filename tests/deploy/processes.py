"""What tests that start programs of a deployment share: waits, free ports, a certificate."""

import pathlib
import socket
import subprocess
import time

PATIENCE = 90  # seconds: beyond it something hangs; never how long a thing should take


def await_true(condition, what):
    """Returns the condition's first true value; AssertionError that names it after PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"never: {what() if callable(what) else what}")
        time.sleep(0.05)


def free_port():
    """A port of this machine that was free a moment ago, and will likely stay so."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_certificate(folder):
    """A certificate for localhost and its key, as HAProxy finds them: NAME and NAME.key."""
    certificate = pathlib.Path(folder, "quire.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
        + ["-addext", "subjectAltName=DNS:localhost"]
        + ["-keyout", f"{certificate}.key", "-out", certificate],
        check=True,
        capture_output=True,
    )
    return certificate
