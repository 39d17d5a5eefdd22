"""Builds the package: modules generated from the protos, and the versions that they need."""

import importlib.util
import pathlib
import re
import shutil
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
# Loaded by its path: `import quire` needs the modules that are generated here.
spec = importlib.util.spec_from_file_location("stubs", HERE / "quire" / "stubs.py")
stubs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stubs)
# A source distribution brings the protos along.
PROTOS = HERE / "proto" if (HERE / "proto").is_dir() else stubs.REPOSITORY_PROTOS


def needed(generated):
    """The dependencies of the generated modules below a folder, as they check them on import."""
    text = "".join(path.read_text() for path in sorted(generated.rglob("*.py")))
    runtime = re.search(r"Domain\.PUBLIC,\s*(\d+),\s*(\d+),\s*(\d+)", text)
    grpc = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", text)
    return [
        f"protobuf>={'.'.join(runtime.groups()) if runtime else '3.20'}",
        f"grpcio>={grpc.group(1) if grpc else '1.51'}",
    ]


class BuildWithStubs(build_py):
    """build_py, and then quire/v1 beside the copied modules."""

    def run(self):
        super().run()
        stubs.generate(PROTOS, pathlib.Path(self.build_lib))


class SdistWithProtos(sdist):
    """sdist, with the protos that a build from it compiles."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for name in stubs.PROTOS:
            copy = pathlib.Path(base_dir, "proto", name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(PROTOS / name, copy)


with tempfile.TemporaryDirectory() as folder:
    stubs.generate(PROTOS, pathlib.Path(folder))
    requirements = needed(pathlib.Path(folder))
setup(
    cmdclass={"build_py": BuildWithStubs, "sdist": SdistWithProtos},
    install_requires=requirements,
)
