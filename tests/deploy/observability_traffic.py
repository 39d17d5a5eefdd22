"""Traffic for observability_test.py: of every kind on one server, and at a guarded one."""

import subprocess
import threading

import quire

LONG = quire.Options(ignore_eos=True, max_tokens=2000)


def start_load(server, *flags):
    command = [server.binary.with_name("quire-load"), "--server", server.target]
    return subprocess.Popen(
        [*command, "--max-concurrency", "16", "--ignore-eos", "--duration", "600", *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class GuardedTraffic:
    """Answers, refusals by a limit, by the door and by TLS on a guarded server, until stop()."""

    def __init__(self, server):
        self._server = server
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(4)]
        self._threads.append(threading.Thread(target=self._be_refused))
        for thread in self._threads:
            thread.start()

    def _ask(self):
        """Four ask, one may run and one may wait: the limit refuses the others."""
        while not self._ending.wait(0.05):
            self._try(self._server.client, max_tokens=40)

    def _be_refused(self):
        while not self._ending.wait(0.2):
            with self._server.connect(api_key=None) as stranger:
                self._try(stranger, max_tokens=1)
            with quire.QuireClient(self._server.target, timeout=5, retries=None) as plaintext:
                self._try(plaintext, max_tokens=1)

    @staticmethod
    def _try(client, **options):
        try:
            client.generate_text("Once", quire.Options(ignore_eos=True, **options))
        except quire.QuireError:
            pass

    def stop(self):
        self._ending.set()
        for thread in self._threads:
            thread.join()


class Load:
    """Traffic of every kind on one server, until stop()."""

    def __init__(self, server):
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._talk, args=(server, i)) for i in range(4)]
        self._threads.append(threading.Thread(target=self._cancel, args=(server,)))
        self._threads.append(threading.Thread(target=self._load, args=(server,)))
        for thread in self._threads:
            thread.start()

    def _talk(self, server, number):
        """Sessions that come back after others have taken the device: their KV is restored."""
        client, round_ = server.client, 0
        options = quire.Options(max_tokens=40, ignore_eos=True)
        while not self._ending.is_set():
            round_ += 1
            for turn in range(3):
                for name in range(4):
                    client.generate_text(
                        "A prompt that begins alike. " * 4 if turn == 0 else f"Turn {turn}.",
                        options,
                        session_id=f"talk-{number}-{name}-{round_ % 3}",
                        create_session=True,
                    )
            client.generate_text("A prompt that begins alike. " * 4, options)
            client.sessions.close(f"talk-{number}-0-{round_ % 3}")

    def _cancel(self, server):
        while not self._ending.wait(0.2):
            stream = server.client.generate("Once upon a time", LONG)
            next(iter(stream))
            stream.cancel()
            try:
                server.client.generate_text("too long " * 3000, LONG)
            except quire.QuireError:
                pass

    def _load(self, server):
        client = start_load(
            server, "--random-input-len", "32:200", "--random-output-len", "8:40"
        )
        self._ending.wait()
        client.kill()
        client.wait()

    def stop(self):
        self._ending.set()
        for thread in self._threads:
            thread.join()


def read(stream):
    """To its end, or to its error."""
    try:
        for _ in stream:
            pass
    except quire.QuireError:
        pass
