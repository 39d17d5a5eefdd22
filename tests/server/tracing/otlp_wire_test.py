#!/usr/bin/python3
"""proto/opentelemetry/trace_service.proto against the OpenTelemetry project's own descriptors."""
# Covers proto/opentelemetry/trace_service.proto

import json
import pathlib
import subprocess
import tempfile
import unittest

from google.protobuf import descriptor_pb2, json_format

ROOT = pathlib.Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "tests" / "testdata" / "otlp" / "descriptors.json"


def ours():
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "set")
        subprocess.run(["protoc", f"--proto_path={ROOT}/proto", f"--descriptor_set_out={out}",
                        "opentelemetry/trace_service.proto"], check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]


def walk(messages, prefix=""):
    """Every message with its name behind the package, nested ones too."""
    for message in messages:
        yield prefix + message.name, message
        yield from walk(message.nested_type, prefix + message.name + ".")


def enums(file):
    for enum in file.enum_type:
        yield enum.name, enum
    for name, message in walk(file.message_type):
        for enum in message.enum_type:
            yield f"{name}.{enum.name}", enum


class OtlpWireTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ours = ours()
        reference = json_format.ParseDict(json.loads(REFERENCE.read_text()),
                                          descriptor_pb2.FileDescriptorSet())
        cls.messages, cls.enums, cls.packages = {}, {}, {}
        for file in reference.file:
            cls.messages.update(walk(file.message_type))
            cls.enums.update(enums(file))
            for service in file.service:
                cls.packages[service.name] = (file.package, service)

    def simple(self, type_name):
        """A type's name without its package: all of ours are in one."""
        words = type_name.lstrip(".").split(".")
        return ".".join(word for word in words if word[:1].isupper())

    def test_every_field_has_the_number_and_type_of_the_protocol(self):
        count = 0
        for name, message in walk(self.ours.message_type):
            theirs = {field.name: field for field in self.messages[name].field}
            for field in message.field:
                expected = theirs[field.name]
                where = f"{name}.{field.name}"
                self.assertEqual(field.number, expected.number, where)
                self.assertEqual(field.type, expected.type, where)
                self.assertEqual(field.label, expected.label, where)
                self.assertEqual(self.simple(field.type_name), self.simple(expected.type_name))
                self.assertEqual(field.HasField("oneof_index"), expected.HasField("oneof_index"))
                count += 1
        self.assertGreater(count, 30)

    def test_every_enumerator_has_the_number_of_the_protocol(self):
        count = 0
        for name, enum in enums(self.ours):
            theirs = {value.name: value.number for value in self.enums[name].value}
            for value in enum.value:
                self.assertEqual(value.number, theirs[value.name], value.name)
                count += 1
        self.assertEqual(count, 6)

    def test_the_service_has_the_path_of_the_protocol(self):
        package, service = self.packages["TraceService"]
        self.assertEqual(self.ours.package, package)
        self.assertEqual([m.name for m in self.ours.service[0].method],
                         [m.name for m in service.method])


if __name__ == "__main__":
    unittest.main()
