"""Builds wheels with the modules made from the protos, and source distributions with the protos."""

import importlib.util
import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
# Loaded by its path: `import quire` needs the modules that are made here.
spec = importlib.util.spec_from_file_location("stubs", HERE / "quire" / "stubs.py")
stubs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stubs)
# A source distribution brings the protos along.
PROTOS = HERE / "proto" if (HERE / "proto").is_dir() else stubs.REPOSITORY_PROTOS


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


setup(cmdclass={"build_py": BuildWithStubs, "sdist": SdistWithProtos})
