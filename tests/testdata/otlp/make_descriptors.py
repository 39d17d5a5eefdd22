#!/usr/bin/env python3
"""Writes descriptors.json: the messages of OTLP as the OpenTelemetry project publishes them.

Needs the Python package opentelemetry-proto (written from 1.45.2). Run it by hand, when the tests
should know a later version. The file is a FileDescriptorSet: names, numbers and types of fields. It
is the tests' independent reference for the bytes that Quire sends.
"""

import json
import pathlib

from google.protobuf import descriptor_pb2, json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2


def collect(file, files):
    for needed in file.dependencies:
        collect(needed, files)
    if file.name not in files:
        files[file.name] = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(files[file.name])
        files[file.name].ClearField("options")  # of other languages


def main():
    files = {}
    collect(trace_service_pb2.DESCRIPTOR, files)
    content = json_format.MessageToDict(descriptor_pb2.FileDescriptorSet(file=files.values()))
    text = ",\n".join(json.dumps(file) for file in content["file"])
    out = pathlib.Path(__file__).with_name("descriptors.json")
    out.write_text('{"file": [\n' + text + "\n]}\n")


if __name__ == "__main__":
    main()
