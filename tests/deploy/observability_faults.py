"""Servers in trouble, and what makes it, for observability_test.py."""

import os
import signal
import socket
import subprocess
import threading
import time

import quire
from observability_servers import (
    ExpiringServer, GpuServer, GuardedServer, NotACollector, Server
)
from observability_traffic import LONG, read, start_load
from processes import PATIENCE, await_true


class Faults:
    """Servers in trouble. made() lists which alert fires on which of them; steps() make it so."""

    def __init__(self, test, binary):
        self.killed = test.start()
        self.drained = test.start()
        self.restarting = test.start("--no-log-requests")
        self.worker = test.start("--worker-process", "on")
        self.stalled = test.start(
            *("--worker-process", "on", "--worker-step-timeout", "80"),
            *("--session-idle-offload-after", "2"),
        )
        self.full = test.start("--max-num-seqs", "1", "--max-num-queued-reqs", "4")
        self.tight = test.start(
            *("--num-blocks-override", "40", "--kv-offloading-size", "0.002"),
            *("--session-idle-offload-after", "0"),
        )
        self.slow = test.start("--slow-reader-timeout", "1")
        self.crowded = test.start(descriptors=96)
        self.silent = test.start(stderr="/dev/full")
        self.gpu = test.cleaned(GpuServer())
        collector = test.cleaned(NotACollector())
        self.guarded = test.cleaned(GuardedServer(binary, "--otlp-endpoint", collector.address))
        self.expiring = test.cleaned(ExpiringServer(binary))
        self.disk = self._on_a_small_disk(test)
        self._ends = {instance: threading.Event() for _, instance in self.made()}

    def _on_a_small_disk(self, test):
        self._folder = folder = test.folder / "disk"
        folder.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], capture_output=True
        )
        if mounted.returncode != 0:
            print("not shown: QuireSessionDirectoryFailing needs the right to mount")
            return None
        test.addClassCleanup(subprocess.run, ["umount", folder], check=True)
        return test.start("--session-dir", folder)

    def made(self):
        pairs = [
            ("QuireServerDown", self.killed),
            ("QuireNotReady", self.drained),
            ("QuireRestarting", self.restarting),
            ("QuireWorkersReplaced", self.worker),
            ("QuireAnswersFailed", self.worker),
            ("QuireEngineFault", self.worker),
            ("QuireStepStalled", self.stalled),
            ("QuireKvCopiesFailing", self.stalled),
            ("QuireRequestsRefused", self.full),
            ("QuireFirstTokenLate", self.full),
            ("QuireKvCacheFull", self.tight),
            ("QuireHostMemoryFull", self.tight),
            ("QuireSlowReadersShed", self.slow),
            ("QuireConnectionsRefused", self.crowded),
            ("QuireLogDropped", self.silent),
            ("QuireGpuThrottled", self.gpu),
            ("QuireGpuErrors", self.gpu),
            ("QuireCallersRefused", self.guarded),
            ("QuireKeyFileRefused", self.guarded),
            ("QuireSpansLost", self.guarded),
            ("QuireCertificateExpiring", self.expiring),
            ("QuireCertificateExpired", self.expiring),
            ("QuireTlsFilesRefused", self.expiring),
            ("QuireSessionDirectoryFailing", self.disk),
            ("QuireTurnsUnsaved", self.disk),
        ]
        return [(alert, server.instance) for alert, server in pairs if server is not None]

    def instances(self):
        return list(self._ends)

    def end(self, instance):
        """Its alerts have fired."""
        self._ends[instance].set()

    def steps(self):
        steps = [
            self.killed.kill,
            self.drained.client.drain,
            self._restart,
            self._kill_workers,
            self._stop_the_worker,
            self._fill_the_queue,
            self._fill_memory,
            self._read_nothing,
            self._crowd,
            self._log_into_a_full_disk,
            self._heat,
            self._let_strangers_ask,
            self._spoil_the_keys,
            self._let_the_certificate_expire,
        ]
        return steps + ([self._fill_the_disk] if self.disk else [])

    def _ended(self, server, seconds=0.0):
        """Whether the fault is over; waits so long for that."""
        return self._ends[server.instance].wait(seconds)

    @staticmethod
    def _together(count, function):
        threads = [threading.Thread(target=function, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _restart(self):
        while not self._ended(self.restarting, 0.6):
            self.restarting.restart()

    def _kill_workers(self):
        """Three times under a running request, and, when the alerts were seen, once more."""
        server = self.worker
        stream = server.client.generate("Once", quire.Options(ignore_eos=True, max_tokens=4000))
        threading.Thread(target=read, args=(stream,), daemon=True).start()
        for deaths in range(1, 4):
            await_true(lambda: server.metric("quire_requests_running"), "a running request")
            os.kill(server.workers()[0], signal.SIGKILL)
            await_true(
                lambda: server.metric("quire_engine_recoveries_total") == deaths  # noqa: B023
                and not server.metric("quire_engine_recovering"),
                "new workers",
            )
        self._ended(server, PATIENCE)
        os.kill(server.workers()[0], signal.SIGKILL)
        server.process.wait(PATIENCE)

    def _stop_the_worker(self):
        """Right after a turn, whose KV is to be copied to the host."""
        client = self.stalled.client
        options = quire.Options(max_tokens=60, ignore_eos=True)
        client.generate_text("Once", options, session_id="a", create_session=True)
        worker = self.stalled.workers()[0]
        os.kill(worker, signal.SIGSTOP)
        stream = client.generate("Once", LONG)
        self._ended(self.stalled, PATIENCE)
        os.kill(worker, signal.SIGCONT)
        stream.cancel()

    def _fill_the_queue(self):
        def ask_again(_):
            while not self._ended(self.full, 0.05):
                read(self.full.client.generate("Once", LONG))

        self._together(8, ask_again)

    def _fill_memory(self):
        """More sequences than the device holds, and more idle sessions than the host does."""
        options = quire.Options(max_tokens=300, ignore_eos=True)

        def converse(number):
            turn = 0
            while not self._ended(self.tight):
                turn += 1
                self.tight.client.generate_text(
                    "Once", options, session_id=f"{number}-{turn}", create_session=True
                )

        self._together(8, converse)

    def _read_nothing(self):
        """A client with many streams stands still, with all its buffers."""
        client = start_load(self.slow, "--random-input-len", "8", "--random-output-len", "3500")
        await_true(lambda: self.slow.metric("quire_streams_open"), "streams")
        client.send_signal(signal.SIGSTOP)
        self._ended(self.slow, PATIENCE)
        client.kill()
        client.wait()

    def _crowd(self):
        path = self.crowded.target.removeprefix("unix:")
        while not self._ended(self.crowded, 0.2):
            sockets = [socket.socket(socket.AF_UNIX) for _ in range(120)]
            for each in sockets:
                each.connect(path)
            self._ended(self.crowded, 0.2)
            for each in sockets:
                each.close()

    def _log_into_a_full_disk(self):
        while not self._ended(self.silent, 0.1):
            self.silent.client.generate_text("Once", quire.Options(max_tokens=1))

    def _heat(self):
        series = 'model_name="llama",gpu="0",{},uuid="GPU-1"}}'
        hot = series.format('reason="hardware_thermal"')
        self.gpu.add("quire_gpu_clocks_limited{" + hot, 1)
        errors = series.format('kind="uncorrected"')
        count = 0
        while not self._ended(self.gpu, 0.5):
            count += 1
            self.gpu.add("quire_gpu_ecc_errors_total{" + errors, count)

    def _let_strangers_ask(self):
        """Beyond 60 refusals a minute each takes a second, so several ask at once."""

        def ask(_):
            with self.guarded.connect(api_key=None) as stranger:
                while not self._ended(self.guarded, 0.1):
                    read(stranger.generate("Once", LONG))

        self._together(8, ask)

    def _spoil_the_keys(self):
        """A caller with a key of before is served, and the collector refuses its spans."""
        self.guarded.keys.write_text('{"keys": [')
        while not self._ended(self.guarded, 0.2):
            self.guarded.client.generate_text("Once", quire.Options(max_tokens=1))

    def _let_the_certificate_expire(self):
        """Then the files are spoiled. A busy machine may see a certificate only when it is over."""
        seconds = 5
        while not 0 < self._certificate_left() < 3600:
            seconds *= 2
            self.expiring.certify(seconds)
            self._ended(self.expiring, seconds / 2)
        await_true(lambda: self._certificate_left() < 0, "the certificate's end")
        self._ended(self.expiring, 3)  # a few scrapes long
        self.expiring.certificate.write_text("no certificate")

    def _certificate_left(self):
        end = self.expiring.metric("quire_tls_certificate_expiry_timestamp_seconds")
        return end - time.time()

    def _fill_the_disk(self):
        with open(self._folder / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass  # no space is left
        options = quire.Options(max_tokens=20)
        number = 0
        while not self._ended(self.disk, 0.1):
            number += 1
            self.disk.client.generate_text(
                "Once", options, session_id=f"s{number}", create_session=True
            )
