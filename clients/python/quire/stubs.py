"""The protobuf and gRPC modules quire.v1.*: found, or generated from the repository's protos.

An installed package contains them. In a checkout they are generated once and kept in the user's
cache, by grpcio-tools if it is installed, else by protoc with grpc_python_plugin.
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
PROTOS = ("quire/v1/inference.proto", "quire/v1/control.proto", "quire/v1/sessions.proto")


class StubsMissing(ImportError):
    """The generated modules are not installed and cannot be generated; says what to do."""


def _compiler():
    """The command of the proto compiler, without arguments."""
    if importlib.util.find_spec("grpc_tools"):
        return [sys.executable, "-m", "grpc_tools.protoc"]
    protoc, plugin = shutil.which("protoc"), shutil.which("grpc_python_plugin")
    if protoc and plugin:
        return [protoc, f"--plugin=protoc-gen-grpc_python={plugin}"]
    raise StubsMissing(
        "quire: the generated gRPC modules are missing and no compiler was found; "
        "install protobuf-compiler and protobuf-compiler-grpc, or the Python package grpcio-tools"
    )


def generate(protos, out):
    """Generates quire/v1/*_pb2.py and *_pb2_grpc.py below `out` from the folder `protos`."""
    missing = [name for name in PROTOS if not (protos / name).is_file()]
    if missing:
        raise StubsMissing(f"quire: {protos / missing[0]} is missing; install the package instead")
    out.mkdir(parents=True, exist_ok=True)
    command = [*_compiler(), f"--proto_path={protos}", f"--python_out={out}"]
    command += [f"--grpc_python_out={out}", *PROTOS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StubsMissing(f"quire: {' '.join(command)} failed:\n{done.stderr}")


def _cached():
    """The folder with the stubs of exactly these protos; the first call generates it."""
    digest = hashlib.sha256(repr(_compiler()).encode())
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
