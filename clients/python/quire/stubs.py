"""The modules quire.v1.*: found, or made from the repository's protos.

An installed package contains them. In a checkout they are made once and kept in the user's cache,
with grpcio-tools if it is installed, else with protoc.

The compiler only parses the protos; the modules are written here. Those that compilers write depend
on their version: since 2024 they refuse a protobuf or grpcio older than the compiler, and a
protobuf two major versions newer. The modules here ask for no version, and hold nothing but
descriptors and the names of methods.
"""

import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

REPOSITORY_PROTOS = pathlib.Path(__file__).resolve().parents[3] / "proto"
PROTOS = tuple(
    f"quire/v1/{name}.proto" for name in ("inference", "control", "sessions", "jobs")
)

MESSAGES = '''"""Messages of {proto}; generated."""
{imports}
from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile({serialized!r})
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, {module!r}, globals())
'''
SERVICES = '''"""Clients and servers of {proto}; generated."""
import grpc
{imports}
'''
SERVICE = '''

class {name}Stub:
    """Calls {full_name}; `channel` is of grpc or grpc.aio."""

    def __init__(self, channel):
{stubs}


class {name}Servicer:
    """To be derived from: each method answers UNIMPLEMENTED."""
{servicers}

def add_{name}Servicer_to_server(servicer, server):
    handlers = {{
{handlers}
    }}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler({full_name!r}, handlers),))
'''
STUB = """\
        self.{name} = channel.{kind}(
            {path!r},
            request_serializer={request}.SerializeToString,
            response_deserializer={response}.FromString)"""
SERVICER = """
    def {name}(self, request, context):
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details("Method not implemented!")
        raise NotImplementedError("Method not implemented!")
"""
HANDLER = """\
        {name!r}: grpc.{kind}_rpc_method_handler(
            servicer.{name},
            request_deserializer={request}.FromString,
            response_serializer={response}.SerializeToString),"""


class StubsMissing(ImportError):
    """The generated modules are not installed and cannot be generated; says what to do."""


def _compiler():
    """The command of the proto compiler, without arguments."""
    if importlib.util.find_spec("grpc_tools"):
        return [sys.executable, "-m", "grpc_tools.protoc"]
    protoc = shutil.which("protoc")
    if protoc:
        return [protoc]
    raise StubsMissing(
        "quire: the generated gRPC modules are missing and no compiler was found; "
        "install protobuf-compiler, or the Python package grpcio-tools"
    )


def _descriptors(protos):
    """The FileDescriptorSet of PROTOS in the folder `protos`, without the files they import."""
    from google.protobuf import descriptor_pb2

    missing = [name for name in PROTOS if not (protos / name).is_file()]
    if missing:
        raise StubsMissing(f"quire: {protos / missing[0]} is missing; install the package instead")
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch, "protos.bin")
        command = [*_compiler(), f"--proto_path={protos}", f"--descriptor_set_out={out}", *PROTOS]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StubsMissing(f"quire: {' '.join(command)} failed:\n{done.stderr}")
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def _module(proto):
    return proto.removesuffix(".proto").replace("/", ".") + "_pb2"


def _service(file, service, modules):
    """The source of a service's classes; `modules` has the module of each message."""

    def message(name):
        name = name.removeprefix(".")
        return f"{modules[name]}.{name.rpartition('.')[2]}"

    full_name = f"{file.package}.{service.name}"
    methods = [
        {
            "name": method.name,
            "path": f"/{full_name}/{method.name}",
            "kind": ("stream" if method.client_streaming else "unary")
            + ("_stream" if method.server_streaming else "_unary"),
            "request": message(method.input_type),
            "response": message(method.output_type),
        }
        for method in service.method
    ]
    parts = {
        key: "\n".join(template.format(**method) for method in methods)
        for key, template in (("stubs", STUB), ("servicers", SERVICER), ("handlers", HANDLER))
    }
    return SERVICE.format(name=service.name, full_name=full_name, **parts)


def generate(protos, out):
    """Writes quire/v1/*_pb2.py and *_pb2_grpc.py below `out`, from the folder `protos`."""
    files = _descriptors(protos).file
    modules = {
        f"{file.package}.{message.name}": _module(file.name)
        for file in files
        for message in file.message_type
    }
    for file in files:
        module = _module(file.name)
        path = out / (module.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        imports = "".join(f"import {_module(name)}\n" for name in file.dependency)
        path.write_text(
            MESSAGES.format(
                proto=file.name,
                imports=imports,
                serialized=file.SerializeToString(deterministic=True),
                module=module,
            )
        )
        imports = "".join(f"import {name}\n" for name in sorted(set(modules.values())))
        services = "".join(_service(file, service, modules) for service in file.service)
        path.with_name(path.stem + "_grpc.py").write_text(
            SERVICES.format(proto=file.name, imports=imports) + services
        )


def _cached():
    """The folder with the modules of exactly these protos; the first call makes it."""
    digest = hashlib.sha256(pathlib.Path(__file__).read_bytes())
    for name in PROTOS:
        digest.update((REPOSITORY_PROTOS / name).read_bytes())
    base = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = base / "quire" / f"stubs-{digest.hexdigest()[:16]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = pathlib.Path(tempfile.mkdtemp(dir=folder.parent))
        generate(REPOSITORY_PROTOS, fresh)
        try:
            fresh.rename(folder)  # atomic, also if two processes start at once
        except OSError:
            shutil.rmtree(fresh)
    return folder


def make_importable(package_path):
    """Makes `import quire.v1.inference_pb2` work; `package_path` is quire.__path__."""
    if any((pathlib.Path(p) / "v1" / "inference_pb2.py").is_file() for p in package_path):
        return
    if not REPOSITORY_PROTOS.is_dir():
        raise StubsMissing("quire: quire.v1 is missing from this installation; install it again")
    package_path.append(str(_cached() / "quire"))
