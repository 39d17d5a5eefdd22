#!/usr/bin/python3
"""The Python client as a package: its source distribution builds alone, and its requirements follow
from its generated code."""

import importlib.util
import pathlib
import re
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
        self.assertEqual(len(modules), 6, modules)
        subprocess.run([sys.executable, "-c", "import quire; quire.QuireClient('localhost:1')"],
                       env={"PYTHONPATH": str(self.scratch / "lib")}, cwd=self.scratch,
                       check=True)  # fmt: skip

    def test_requirements_are_what_generated_code_checks(self):
        text = (CLIENT / "setup.py").read_text()
        names = {"re": re}
        exec(text[text.index("def needed") : text.index("class BuildWithStubs")], names)
        (self.scratch / "old_pb2.py").write_text("_builder.BuildMessageAndEnumDescriptors()\n")
        self.assertEqual(names["needed"](self.scratch), ["protobuf>=3.20", "grpcio>=1.51"])
        (self.scratch / "new_pb2.py").write_text(
            "_runtime_version.ValidateProtobufRuntimeVersion(\n"
            "    _runtime_version.Domain.PUBLIC,\n    6,\n    31,\n    1,\n    '',\n")
        (self.scratch / "new_pb2_grpc.py").write_text("GRPC_GENERATED_VERSION = '1.74.0'\n")
        self.assertEqual(names["needed"](self.scratch), ["protobuf>=6.31.1", "grpcio>=1.74.0"])


if __name__ == "__main__":
    unittest.main()
