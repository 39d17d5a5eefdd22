"""Builds the package: what pyproject.toml says, and stubs made from the repository's protos."""

import importlib.util
import pathlib

from setuptools import setup
from setuptools.command.build_py import build_py

# By its path: `import quire` needs what is only made here.
STUBS = pathlib.Path(__file__).resolve().parent / "quire" / "stubs.py"
spec = importlib.util.spec_from_file_location("stubs", STUBS)
stubs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stubs)


class BuildWithStubs(build_py):
    """build_py, and then quire/v1 beside the copied modules."""

    def run(self):
        super().run()
        stubs.generate(stubs.REPOSITORY_PROTOS, pathlib.Path(self.build_lib))


setup(cmdclass={"build_py": BuildWithStubs})
