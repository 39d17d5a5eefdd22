"""The Python environment of scripts/python-tools, for tests of other programs and their clients."""
import os
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def interpreter():
    """Path of its Python; raises unittest.SkipTest where the environment was not made."""
    python = os.environ.get('PYTHON_TOOLS') or ROOT / 'build/python-tools/bin/python3'
    if not Path(python).exists():
        raise unittest.SkipTest('scripts/python-tools has not made build/python-tools')
    return str(python)
