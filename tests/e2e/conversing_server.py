"""A quire-server on the CPU, and a client of its sessions."""
import quire
from running_server import RunningServer

CPU = ("--device", "cpu")


class ConversingServer(RunningServer):
    """Ends with its `with` block."""

    def __init__(self, *flags, environment=None):
        super().__init__(*CPU, *flags, environment=environment)
        self.client = quire.QuireClient(self.target, timeout=120)
        self.sessions = self.client.sessions

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.client.close()
        self.stop()
