#!/usr/bin/python3
"""The Python client as a package: its source distribution builds without the repository, and its
generated modules ask for no version of protobuf or grpcio."""

import importlib.util
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

CLIENT = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"


@unittest.skipUnless(importlib.util.find_spec("setuptools"), "setuptools is not installed")
class PackageTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def setup_py(self, folder, *arguments):
        done = subprocess.run([sys.executable, "setup.py", "-q", *arguments], cwd=folder,
                              capture_output=True, text=True, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_source_distribution_builds_without_the_repository(self):
        self.setup_py(CLIENT, "egg_info", "-e", self.scratch, "sdist", "-d", self.scratch)
        (archive,) = self.scratch.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(self.scratch)
        folder = self.scratch / archive.name.removesuffix(".tar.gz")
        self.setup_py(folder, "build_py", "-d", self.scratch / "lib")
        modules = sorted(path.name for path in (self.scratch / "lib/quire/v1").glob("*.py"))
        self.assertEqual(len(modules), 8, modules)
        for module in (self.scratch / "lib/quire/v1").glob("*.py"):
            self.assertNotRegex(module.read_text(), "runtime_version|GRPC_GENERATED_VERSION")
        subprocess.run([sys.executable, "-c", "import quire; quire.QuireClient('localhost:1')"],
                       env={"PYTHONPATH": str(self.scratch / "lib")}, cwd=self.scratch,
                       check=True)  # fmt: skip


if __name__ == "__main__":
    unittest.main()
