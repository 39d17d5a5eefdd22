#!/usr/bin/python3
"""The protos compile for other languages into packages of one name, as their options say."""

import pathlib
import subprocess
import tempfile
import unittest

from google.protobuf import descriptor_pb2

PROTOS = pathlib.Path(__file__).resolve().parents[2] / "proto"
NAMES = sorted(str(path.relative_to(PROTOS)) for path in (PROTOS / "quire").rglob("*.proto"))


class ProtoLanguagesTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.out = pathlib.Path(scratch.name)

    def protoc(self, *arguments):
        subprocess.run(["protoc", f"--proto_path={PROTOS}", *arguments, *NAMES], check=True)

    def test_every_file_has_the_same_packages(self):
        self.protoc(f"--descriptor_set_out={self.out}/set")
        files = descriptor_pb2.FileDescriptorSet.FromString((self.out / "set").read_bytes()).file
        self.assertEqual(len(files), len(NAMES))
        for file in files:
            options = file.options
            self.assertEqual(file.package, "quire.v1")
            # protoc-gen-go wants a path, and a name that is no keyword or version.
            self.assertEqual(options.go_package, "quire/v1;quirev1", file.name)
            self.assertEqual(options.java_package, "quire.v1", file.name)
            self.assertEqual(options.csharp_namespace, "Quire.V1", file.name)
            self.assertTrue(options.java_multiple_files, file.name)

    def test_java_csharp_php_and_ruby_compile(self):
        self.protoc(*(f"--{name}_out={self.out}" for name in ("java", "csharp", "php", "ruby")))
        for path in ("quire/v1/GenerateRequest.java", "quire/v1/InferenceProto.java",
                     "Inference.cs", "Quire/V1/GenerateRequest.php",
                     "quire/v1/inference_pb.rb"):  # fmt: skip
            self.assertTrue((self.out / path).is_file(), path)
        self.assertIn("namespace Quire.V1 {", (self.out / "Inference.cs").read_text())


if __name__ == "__main__":
    unittest.main()
