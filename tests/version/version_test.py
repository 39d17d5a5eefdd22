"""Every program says the same version and build; the commit comes from the checkout, from
-DQUIRE_COMMIT, or is "unknown" in a tarball. Run as: version_test.py SOURCE_DIR BIN_DIR."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE, BIN = sys.argv[1], sys.argv[2]
del sys.argv[1:3]
PROGRAMS = ('quire-server', 'quire-worker', 'quire', 'quire-load')
LINE = re.compile(r'(\S+) (\d+\.\d+\.\d+) \(commit ([0-9a-f]{12}|unknown), (\S+ [\d.]+), '
                  r'(no CUDA|CUDA [\d.]+), (\w+)\)\n')


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=50).stdout


class PrintedVersion(unittest.TestCase):
    def test_all_programs_of_a_build_say_the_same(self):
        facts = set()
        for program in PROGRAMS:
            path = os.path.join(BIN, program)
            if os.path.exists(path):
                shown = LINE.fullmatch(output_of(path, '--version'))
                self.assertTrue(shown, program)
                self.assertEqual(shown.group(1), program)
                facts.add(shown.groups()[1:])
        self.assertEqual(len(facts), 1, facts)


class WrittenFacts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.output = os.path.join(self.folder, 'this_build.cc')

    def write(self, **more):
        values = {'OUTPUT': self.output, 'SOURCE_DIR': self.folder, 'VERSION': '1.2.3',
                  'COMPILER': 'GNU 12.2.0', 'CUDA': 'none', 'BUILD_TYPE': 'Release', **more}
        output_of('cmake', *(f'-D{name}={value}' for name, value in values.items()),
                  '-P', os.path.join(SOURCE, 'version', 'write_this_build.cmake'))
        with open(self.output) as file:
            return re.findall(r'"([^"]*)"', file.read().split('kFacts')[1])

    def git(self, *arguments):
        return output_of('git', '-C', self.folder, '-c', 'user.name=n', '-c', 'user.email=e@x.y',
                         '-c', 'init.defaultBranch=b', *arguments).strip()

    def test_a_tarball_has_no_commit(self):
        self.assertEqual(self.write(), ['1.2.3', 'unknown', 'GNU 12.2.0', 'none', 'Release'])

    def test_the_commit_is_that_of_the_checkout(self):
        self.git('init', '-q')
        self.assertEqual(self.write()[1], 'unknown')  # no commit yet
        for message in 'first', 'second':
            self.git('commit', '-q', '--allow-empty', '-m', message)
            self.assertEqual(self.write()[1], self.git('rev-parse', 'HEAD')[:12])

    def test_a_folder_inside_a_checkout_has_no_commit(self):
        self.git('init', '-q')
        self.git('commit', '-q', '--allow-empty', '-m', 'of another project')
        inner = os.path.join(self.folder, 'unpacked')
        os.mkdir(inner)
        self.assertEqual(self.write(SOURCE_DIR=inner)[1], 'unknown')

    def test_a_given_commit_wins(self):
        self.git('init', '-q')
        self.git('commit', '-q', '--allow-empty', '-m', 'first')
        self.assertEqual(self.write(COMMIT='0123456789ab')[1], '0123456789ab')

    def test_the_same_facts_leave_the_file_alone(self):
        self.write(COMMIT='0123456789ab')
        os.utime(self.output, ns=(1, 1))
        self.write(COMMIT='0123456789ab')
        self.assertEqual(os.stat(self.output).st_mtime_ns, 1)


if __name__ == '__main__':
    unittest.main(verbosity=2)
