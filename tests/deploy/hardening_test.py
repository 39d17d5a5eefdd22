#!/usr/bin/python3
"""The traces of QUIRE_HARDENING in the programs, as readelf shows them: hardening_test.py BIN."""

import pathlib
import platform
import re
import subprocess
import sys
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
PROGRAMS = sorted(file for file in BIN.rglob("quire*") if file.is_file())
ENDBR64 = b"\xf3\x0f\x1e\xfa"  # where an indirect jump may land


def readelf(program, *what):
    done = subprocess.run(["readelf", "--wide", *what, program], check=True, capture_output=True,
                          text=True)
    return done.stdout


class HardeningTest(unittest.TestCase):
    def check_all(self, check):
        for program in PROGRAMS:
            with self.subTest(program=program.relative_to(BIN).as_posix()):
                check(program)

    def test_all_programs_are_there(self):
        names = {program.name for program in PROGRAMS}
        self.assertLessEqual({"quire", "quire-load", "quire-server", "quire-worker"}, names)

    def test_addresses_are_random(self):
        def check(program):
            self.assertRegex(readelf(program, "--file-header"), r"Type:\s+DYN")
            self.assertRegex(readelf(program, "--dynamic"), r"\(FLAGS_1\)\s+Flags:.*\bPIE\b")

        self.check_all(check)

    def test_tables_of_the_linker_are_read_only_before_main(self):
        def check(program):
            self.assertIn("GNU_RELRO", readelf(program, "--program-headers"))
            self.assertRegex(readelf(program, "--dynamic"), r"\(FLAGS_1\)\s+Flags:.*\bNOW\b")

        self.check_all(check)

    def test_nothing_is_writable_and_executable(self):
        def check(program):
            headers = readelf(program, "--program-headers")
            flags = re.findall(r"^  (\w+)(?:\s+0x\w+){5} ([RWE ]{3}) ", headers, re.M)
            self.assertIn(("GNU_STACK", "RW "), flags)
            self.assertEqual([each for each in flags if {"W", "E"} <= set(each[1])], [])

        self.check_all(check)

    def test_stacks_have_canaries_and_buffers_bounds(self):
        def check(program):
            symbols = readelf(program, "--dyn-syms")
            self.assertIn(" __stack_chk_fail@", symbols)
            self.assertRegex(symbols, r" __\w+_chk@GLIBC")

        self.check_all(check)

    @unittest.skipIf(platform.machine() != "x86_64", "endbr64 is of x86-64")
    def test_functions_are_marked_for_indirect_jumps(self):
        def check(program):
            self.assertGreater(program.read_bytes().count(ENDBR64), 1000)

        self.check_all(check)


if __name__ == "__main__":
    unittest.main(verbosity=2)
