"""cmake --install, the Debian package and the systemd unit. Run as: package_test.py BUILD_DIR."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 100
MAX_EXPOSURE = 2.0  # of systemd-analyze security: 0 is the best, 10 the worst


def run(*command, **options):
    options = {"capture_output": True, "text": True, "check": True, "timeout": PATIENCE, **options}
    return subprocess.run([str(word) for word in command], **options)


def exit_codes_of_configuration():
    """The exit codes of docs/configuration.md that a restart would repeat."""
    text = (SOURCE / "docs/configuration.md").read_text()
    rows = re.findall(r"^\| (\d) \| (.*) \|$", text, re.M)
    return {code for code, meaning in rows
            if re.search("bad configuration|cannot listen|cannot be loaded", meaning)}


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = pathlib.Path(cls.folder.name)
        run("cmake", "--install", BUILD, "--prefix", "/usr",
            env={**os.environ, "DESTDIR": cls.folder.name})
        cls.unit = cls.root / "usr/lib/systemd/system/quire.service"

    def test_files(self):
        for path in ("bin/quire-server", "bin/quire-worker", "bin/quire", "bin/quire-load",
                     "share/man/man1/quire-server.1", "share/man/man1/quire.1",
                     "share/man/man1/quire-load.1",
                     "share/bash-completion/completions/quire-server",
                     "share/zsh/vendor-completions/_quire",
                     "share/fish/vendor_completions.d/quire-load.fish",
                     "share/quire/models/demo/model.safetensors"):
            self.assertTrue((self.root / "usr" / path).is_file(), path)
        run("bash", "-n", self.root / "usr/share/bash-completion/completions/quire")

    def test_the_server_finds_its_worker_and_the_demo_model(self):
        server = self.root / "usr/bin/quire-server"
        planned = run(server, "--dry-run", "--device", "cpu", "--worker-process", "on").stdout
        self.assertIn(str(self.root / "usr/share/quire/models/demo"), planned)

    def test_the_settings_are_accepted(self):
        settings = self.root / "etc/quire/server.json"
        json.loads(settings.read_text())
        with tempfile.TemporaryDirectory() as state:
            run(self.root / "usr/bin/quire-server", "--config", settings, "--session-dir",
                f"{state}/sessions", "--dry-run", "--device", "cpu")

    def test_an_install_keeps_changed_settings(self):
        settings = self.root / "etc/quire/server.json"
        before = settings.read_text()
        self.addCleanup(settings.write_text, before)
        settings.write_text("{}")
        run("cmake", "--install", BUILD, "--prefix", "/usr",
            env={**os.environ, "DESTDIR": str(self.root)})
        self.assertEqual(settings.read_text(), "{}")

    def test_another_prefix_is_in_the_unit(self):
        with tempfile.TemporaryDirectory() as prefix:
            run("cmake", "--install", BUILD, "--prefix", prefix,
                env={k: v for k, v in os.environ.items() if k != "DESTDIR"})
            unit = pathlib.Path(prefix, "lib/systemd/system/quire.service").read_text()
            self.assertIn(f"ExecStart={prefix}/bin/quire-server --config {prefix}/etc/quire/",
                          unit)
            self.assertTrue(pathlib.Path(prefix, "etc/quire/server.json").is_file())

    def value(self, key):
        return re.search(f"^{key}=(.*)$", self.unit.read_text(), re.M).group(1)

    def test_restarts_end_where_they_would_repeat_an_error(self):
        self.assertEqual(set(self.value("RestartPreventExitStatus").split()),
                         exit_codes_of_configuration())
        self.assertEqual(self.value("Restart"), "on-failure")
        self.assertGreaterEqual(int(self.value("StartLimitBurst")), 1)

    def test_the_time_to_stop_covers_the_drain(self):
        settings = json.loads((self.root / "etc/quire/server.json").read_text())
        drain = int(settings["shutdown-timeout"].rstrip("s"))
        self.assertNotIn("drain-delay", settings)  # default 0
        self.assertGreaterEqual(int(self.value("TimeoutStopSec").rstrip("s")), drain + 5)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_accepts_the_unit(self):
        # Outside of its place, so that no other unit of the machine is looked at.
        unit = self.root / "quire.service"
        unit.write_text(self.unit.read_text().replace("/usr/bin/quire-server", "/bin/true"))
        shown = run("systemd-analyze", "verify", "--man=no", unit)
        self.assertNotIn("quire.service", shown.stderr)
        shown = run("systemd-analyze", "security", "--offline=true", unit).stdout
        exposure = float(re.search(r"exposure level for \S+: ([\d.]+)", shown).group(1))
        self.assertLessEqual(exposure, MAX_EXPOSURE)
        print(f"systemd-analyze security: {exposure}")


class NoGpu(unittest.TestCase):
    def test_a_host_without_a_driver_is_told_so(self):
        server = BUILD / "bin/quire-server"
        if "no CUDA" in run(server, "--version").stdout:
            self.skipTest("this build has no CUDA backend")
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has an NVIDIA driver")
        done = run(server, "--device", "cuda", "--port", "0", "--metrics-port", "0", check=False)
        self.assertEqual(done.returncode, 5)
        self.assertIn("no NVIDIA driver", done.stderr)
        self.assertIn("--gpus all", done.stderr)
        self.assertIn("--device cpu", done.stderr)


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for tool in "cpack", "dpkg-deb", "dpkg-shlibdeps":
            if shutil.which(tool) is None:
                raise unittest.SkipTest(f"{tool} is not installed")
        # The package without the GPU, which each build can make.
        made = run("cpack", "--config", "CPackCpuConfig.cmake", cwd=BUILD).stdout
        cls.path = re.search(r"package: (\S+\.deb) generated", made).group(1)
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        run("dpkg-deb", "-R", cls.path, cls.folder.name)

    def field(self, name):
        return run("dpkg-deb", "-f", self.path, name).stdout.strip()

    def test_it_depends_on_the_libraries_it_links(self):
        needed = self.field("Depends")
        for library in "libgrpc++", "libprotobuf", "libssl", "libstdc++6", "libc6":
            self.assertIn(library, needed)
        self.assertNotIn("-dev", needed)

    def test_version_and_settings(self):
        shown = run(BUILD / "bin/quire-server", "--version").stdout
        self.assertTrue(shown.startswith(f"quire-server {self.field('Version')} ("), shown)
        control = pathlib.Path(self.folder.name, "DEBIAN")
        self.assertEqual((control / "conffiles").read_text(), "/etc/quire/server.json\n")
        for script in "postinst", "prerm", "postrm":
            run("sh", "-n", control / script)

    def test_programs_are_stripped_and_need_neither_cuda_nor_the_build(self):
        programs = list(pathlib.Path(self.folder.name, "usr/bin").iterdir())
        self.assertEqual(len(programs), 4)
        for program in programs:
            shown = run("readelf", "-SdW", program).stdout
            self.assertNotIn(".symtab", shown)
            self.assertNotIn("libcu", shown)
            self.assertNotIn("RUNPATH", shown)


if __name__ == "__main__":
    unittest.main(verbosity=2)
