"""What is done to the server while it serves, in lanes that run beside each other, by a seed."""

import os
import pathlib
import random
import resource
import signal
import subprocess
import threading
import time


class MemoryGroup:
    """A control group whose memory is limited, of version 1 or 2; without the right, none."""

    def __init__(self, name, limit_mib):
        roots = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control",
                  "memory.max_usage_in_bytes"),
                 ("/sys/fs/cgroup", "memory.max", "memory.events", "memory.peak"))
        self.folder = None
        for root, limit, kills, peak in roots:
            folder = pathlib.Path(root, name)
            try:
                folder.mkdir()
                (folder / limit).write_text(str(limit_mib << 20))
            except OSError:
                if folder.exists():
                    folder.rmdir()
                continue
            self.folder, self.kills, self.peak = folder, folder / kills, folder / peak
            return

    def inside(self, command):
        """The command that runs it in the group, with all that it starts."""
        if self.folder is None:
            return command
        # By a shell: a fork of this process would wait for the threads of its own gRPC.
        join = f"echo $$ > '{self.folder}/cgroup.procs'; exec \"$@\""
        return ["/bin/sh", "-c", join, "sh", *command]

    def figures(self):
        """The most memory that it held, how often it met its limit, and whom the kernel killed."""
        if self.folder is None:
            return "no control group: memory was not limited"
        words = self.kills.read_text().split()
        counts = dict(zip(words[::2], words[1::2]))
        failures = self.folder / "memory.failcnt"  # of version 1; the other has it as an event
        return {"peak_mib": int(self.peak.read_text()) >> 20 if self.peak.exists() else None,
                "limit_hits": int(failures.read_text() if failures.exists() else counts["max"]),
                "oom_kills": int(counts["oom_kill"])}

    def close(self):
        if self.folder is None:
            return
        deadline = time.monotonic() + 60
        # A worker outlives its server by a moment.
        while (self.folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.folder.rmdir()


class Disk:
    """A folder that can be filled: a file system of its own, or a limit of its files' sizes."""

    def __init__(self, folder, mib):
        self.folder = folder
        self.mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", folder], capture_output=True,
            check=False).returncode == 0

    def fill(self, pid):
        if not self.mounted:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
            return
        try:
            with open(self.folder / "filling", "wb", buffering=0) as file:
                while file.write(bytes(1 << 16)):
                    pass
        except OSError:
            pass  # it is full

    def free(self, pid):
        if self.mounted:
            (self.folder / "filling").unlink(missing_ok=True)
        else:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)

    def close(self):
        if self.mounted:
            subprocess.run(["umount", self.folder], check=True)


class Lane(threading.Thread):
    """Faults one after another: each of them once in a drawn order, then drawn ones."""

    def __init__(self, world, seed, faults, pause):
        super().__init__(daemon=True, name="faults")
        self.world, self.chance = world, random.Random(seed)
        self.faults, self.pause = faults, pause
        self.counts = dict.fromkeys((fault.__name__ for fault in faults), 0)
        self.first = self.chance.sample(faults, len(faults))  # those that have not come yet

    def run(self):
        with self.world.judge.watching(self.name):
            while not self.world.stopped.wait(self.chance.uniform(*self.pause)):
                if not self.world.servers.up.wait(1):
                    continue
                fault = self.first[-1] if self.first else self.chance.choice(self.faults)
                if fault(self.world, self.chance):
                    self.counts[fault.__name__] += 1
                    del self.first[-1:]


def signal_worker(world, number):
    pid = world.servers.life.worker()
    try:
        if pid is not None:
            os.kill(pid, number)
            if number != signal.SIGCONT:
                world.servers.blows.append(time.monotonic())
        return pid is not None
    except ProcessLookupError:
        return False


def kill_worker(world, chance):
    return signal_worker(world, signal.SIGKILL)


def stop_worker(world, chance):
    return signal_worker(world, signal.SIGSTOP)


def drain_server(world, chance):
    world.servers.end(signal.SIGTERM)
    return True


def kill_server(world, chance):
    world.servers.end(signal.SIGKILL)
    return True


def fill_disk(world, chance):
    world.servers.life.disk_failed = True
    pid = world.servers.life.process.pid
    try:
        world.disk.fill(pid)
        world.stopped.wait(chance.uniform(1, 4))
    finally:
        # One that started meanwhile found a full disk.
        world.servers.life.disk_failed = True
        world.disk.free(world.servers.life.process.pid)
    return True


def starve_descriptors(world, chance):
    world.servers.starve(chance.uniform(1, 3))
    return True


def flood_with_resets(world, chance):
    world.servers.life.flooded = True
    world.flood.set()
    world.stopped.wait(chance.uniform(1, 4))
    world.flood.clear()
    world.servers.life.flooded = True  # of one that started meanwhile too
    return True


def lanes(world, seed):
    """The lanes of a run; `pause` is the shortest and longest time between two faults."""
    return [
        Lane(world, seed + 1, [kill_worker, kill_worker, stop_worker, drain_server, kill_server],
             (0.5, 3)),
        Lane(world, seed + 2, [fill_disk], (3, 8)),
        Lane(world, seed + 3, [starve_descriptors, flood_with_resets], (1, 4)),
    ]
