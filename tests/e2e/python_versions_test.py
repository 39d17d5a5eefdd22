#!/usr/bin/python3
"""The package built by itself and installed beside the oldest and the newest protobuf and grpcio
that its metadata allows: python_versions_test.py QUIRE_SERVER FOLDER."""

import email
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

TREE = pathlib.Path(__file__).resolve().parents[2]
SERVER, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
TESTS = (["python_client_test.py"], ["python_sessions_test.py"], ["python_connection_test.py"],
         ["python_retries_test.py", SERVER], ["python_aio_test.py", SERVER])  # fmt: skip
# Of pip, if the index of packages cannot be reached, or has no wheel for this Python or machine.
NO_PACKAGES = r"\(from versions: none\)|No matching distribution|Could not find a version"


def environment():
    """Without the checkout's client, and without settings of the user."""
    dropped = ("PYTHONPATH", "QUIRE_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    return kept | {"XDG_CONFIG_HOME": str(FOLDER), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def run(*command, cwd=FOLDER):
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True,
                          check=False)  # fmt: skip


def install(venv, *requirements):
    """Installs packages into a virtual environment, or skips the test and says why."""
    python = venv / "bin" / "python"
    if not python.exists():
        done = run(sys.executable, "-m", "venv", venv)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
    # Builds of grpcio from its source take many minutes.
    done = run(python, "-m", "pip", "install", "--quiet", "--upgrade", "--retries", "1",
               "--only-binary", ":all:", *requirements)  # fmt: skip
    check(done)
    return python


def check(done):
    """Fails if a command has, and skips if it could not fetch packages."""
    if done.returncode != 0 and re.search(NO_PACKAGES, done.stdout + done.stderr):
        raise unittest.SkipTest(f"packages cannot be installed here: {done.stderr.strip()}")
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)


@unittest.skipUnless(importlib.util.find_spec("ensurepip"), "python3-venv is not installed")
class VersionsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        FOLDER.mkdir(parents=True, exist_ok=True)
        python = install(FOLDER / "build", "build")
        # The copy holds the files of a checkout, without the leftovers of builds in it.
        with tempfile.TemporaryDirectory() as copy:
            for part in ("clients/python", "proto", "LICENSE"):
                source, target = TREE / part, pathlib.Path(copy, part)
                target.parent.mkdir(parents=True, exist_ok=True)
                if source.is_dir():
                    leftovers = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
                    shutil.copytree(source, target, symlinks=True, ignore=leftovers)
                else:
                    shutil.copy(source, target)
            shutil.rmtree(FOLDER / "dist", ignore_errors=True)
            # Builds the source distribution, and then the wheel from it alone.
            done = run(python, "-m", "build", "--outdir", FOLDER / "dist", f"{copy}/clients/python")
        check(done)
        (cls.sdist,) = (FOLDER / "dist").glob("*.tar.gz")
        (cls.wheel,) = (FOLDER / "dist").glob("*.whl")
        with zipfile.ZipFile(cls.wheel) as wheel:
            cls.files = wheel.namelist()
            (metadata,) = (name for name in cls.files if name.endswith("/METADATA"))
            cls.metadata = email.message_from_bytes(wheel.read(metadata))

    def lowest(self):
        """The requirements of the metadata with each `>=` made `==`."""
        required = [r for r in self.metadata.get_all("Requires-Dist") if "extra" not in r]
        self.assertEqual(len(required), 2, required)
        for requirement in required:
            self.assertRegex(requirement, r"^(grpcio|protobuf)>=[\d.]+$")
        return [requirement.replace(">=", "==") for requirement in required]

    def passes_everywhere(self, venv, *requirements):
        python = install(FOLDER / venv, *requirements)
        done = run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall",
                   self.wheel)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        where = run(python, "-W", "error", "-c", "import quire.aio; print(quire.__file__)")
        self.assertIn(str(FOLDER / venv), where.stdout, where.stderr)
        for name, *arguments in TESTS:
            with self.subTest(name):
                done = run(python, TREE / "tests/e2e" / name, *arguments)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertNotIn("skipped", done.stderr)

    def test_the_oldest_versions(self):
        self.passes_everywhere("oldest", *self.lowest())

    def test_the_newest_versions(self):
        self.passes_everywhere("newest", "grpcio", "protobuf")

    def test_distributions_are_complete(self):
        with tarfile.open(self.sdist) as tar:
            names = {name.partition("/")[2] for name in tar.getnames()}
            licence = next(name for name in tar.getnames() if name.endswith("/LICENSE"))
            text = tar.extractfile(licence).read()
        protos = {str(p.relative_to(TREE)) for p in (TREE / "proto/quire/v1").glob("*.proto")}
        self.assertLessEqual({"LICENSE", "README.md", "pyproject.toml", *protos}, names)
        self.assertEqual(text, (TREE / "LICENSE").read_bytes())
        modules = {str(p.relative_to(TREE / "clients/python"))
                   for p in (TREE / "clients/python/quire").glob("*.py")}  # fmt: skip
        stubs = {f"quire/v1/{pathlib.Path(p).stem}_{kind}.py" for p in protos
                 for kind in ("pb2", "pb2_grpc")}  # fmt: skip
        self.assertLessEqual({"quire/py.typed", *modules, *stubs}, set(self.files))
        self.assertTrue(any(name.endswith("/licenses/LICENSE") for name in self.files))
        self.assertEqual(self.metadata["License"], "Apache-2.0")
        self.assertIn("# Quire's Python client", self.metadata.get_payload())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
