#!/usr/bin/python3
"""Each rule of tidy.py fails on a tree made to break it, and a tidy tree passes all of them."""

import tempfile
import unittest
import unittest.mock
from pathlib import Path

import cpp_scan
import tidy

CLEAN = {
    'engine/foo.h': '// Foo: a small thing that counts calls.\n#pragma once\n\nint Foo();\n',
    'engine/foo.cc': '// One call is one count, and nothing else.\n#include "engine/foo.h"\n\n'
                     'int Foo() { return 1; }\n',
    'engine/CMakeLists.txt': 'quire_library(quire_foo SRCS foo.cc)\n',
    'tests/engine/foo_test.cc': '// Foo counts what it was asked to count.\n'
                                '#include "engine/foo.h"\n',
    'tests/engine/CMakeLists.txt': 'quire_test(foo_test SRCS foo_test.cc)\n',
    'scripts/go': '#!/usr/bin/env bash\n# Goes on.\nset -euo pipefail\n',
    'docs/page.md': '# A page\n\nSee [the other](other.md#its-head) and `engine/foo.h`.\n',
    'docs/other.md': '# Its head\n',
}
# Host names of a registry and the like must not stand here either.
REGISTRY = 'py' + 'pi.org'


def source(body, first='// A file that exists to be judged by a rule.'):
    return f'{first}\n{body}\n'


def function(lines=0, parameters='', nesting=0):
    inner = '  Call();\n' * lines + 'if (x) {\n' * nesting + '}\n' * nesting
    return source(f'void F({parameters}) {{\n{inner}}}')


BROKEN = [  # rule, changed files, what the complaint must say
    ('layering', {'engine/schedule/a.h': source('#include "engine/model/b.h"')}, 'model/b.h'),
    ('layering', {'engine/model/a.h': source('#include "engine/schedule/b.h"')}, 'schedule/b.h'),
    ('layering', {'engine/foo.h': source('#include "server/b.h"')}, 'server/b.h'),
    ('layering', {'engine/values/a.h': source('#include "engine/engine.h"')}, 'engine/engine.h'),
    ('layering', {'kernels/a.h': source('#include "engine/foo.h"')}, 'engine/foo.h'),
    ('layering', {'kernels/cpu/a.h': source('#include "kernels/cuda/b.h"')}, 'kernels/cuda/b.h'),
    ('layering', {'clients/cpp/a.h': source('#include "engine/foo.h"')}, 'engine/foo.h'),
    ('layering', {'server/a.h': source('#include "tests/b.h"')}, 'tests/b.h'),
    ('layering', {'engine/foo.h': source('#include <grpcpp/server.h>')}, 'gRPC and protobuf'),
    ('layering', {'server/text/a.h': source('#include "quire/v1/inference.pb.h"')}, 'gRPC'),
    ('layering', {'engine/worker/a.h': source('#include <cuda_runtime.h>')}, 'kernels/cuda/'),
    ('include_cycles', {'engine/foo.h': source('#include "engine/bar.h"'),
                        'engine/bar.h': source('#include "engine/foo.h"')}, 'cycle'),
    ('dead_headers', {'engine/alone.h': source('')}, 'nobody includes'),
    ('file_lengths', {'engine/foo.h': source('\n' * 260)}, 'at most 250'),
    ('file_lengths', {'engine/foo.cc': source('\n' * 610)}, 'at most 600'),
    ('file_lengths', {'tests/engine/foo_test.cc': source('\n' * 910)}, 'at most 900'),
    ('function_sizes', {'engine/foo.cc': function(lines=69)}, 'F has 71 lines'),
    ('function_sizes', {'engine/foo.cc': function(
        parameters='int a, int b, int c, int d, P<q, r> e, int f')}, 'F has 6 parameters'),
    ('function_sizes', {'engine/foo.cc': function(nesting=5)}, 'F nests 5 deep'),
    ('function_sizes', {'scripts_x.py': '"""A script that is one function."""\ndef long():\n'
                                        + '    pass\n' * 71}, 'long has 72 lines'),
    ('columns', {'engine/foo.cc': source('// ' + 'x' * 98)}, '101 columns'),
    ('columns', {'a.proto': source('// ' + 'x' * 98)}, '101 columns'),
    ('banned_names', {'engine/foo_utils.cc': source('')}, '"utils"'),
    ('banned_names', {'engine/foo.h': source('class FooManager {};')}, '"manager"'),
    ('banned_names', {'engine/foo.h': source('struct FooV2 {};')}, '"v2"'),
    ('bans', {'engine/foo.cc': source('auto* x = getenv("A");')}, 'mains only'),
    ('bans', {'engine/foo.cc': source('void F() { std::cout << 1; }')}, 'do not print'),
    ('bans', {'engine/foo.cc': source('void F() { printf("x"); }')}, 'do not print'),
    ('bans', {'engine/foo.cc': source('void F() { std::this_thread::sleep_for(d); }')}, 'wait for'),
    ('bans', {'engine/foo.cc': source('void F() { throw 1; }')}, 'absl::Status'),
    ('bans', {'engine/foo.h': source('using namespace std;')}, 'not in a header'),
    ('bans', {'engine/foo.cc': source('#ifdef QUIRE_CUDA\n#endif')}, 'CMake chooses'),
    ('leftovers', {'engine/foo.cc': source('// TO' 'DO: later')}, 'open an issue'),
    ('listed_sources', {'engine/bar.cc': source('')}, 'no CMakeLists.txt'),
    ('tested_sources', {'engine/bar.cc': source('')}, 'no bar_test.cc'),
    ('tested_sources', {'engine/foo.cc': source('#include "engine/foo.h"\n#include "engine/bar.h"'),
                        'engine/bar.h': source(''), 'engine/bar.cc': source('')}, 'no bar_test.cc'),
    ('tested_sources', {'tests/engine/foo_test.cc': source('// Covers engine/none.cc')},
     'no such file'),
    ('rooms', {f'engine/many/f{i}.h': source('') for i in range(31)}, '31 files'),
    ('directions', {'engine/foo.h': source('#include "engine/base/bar.h"'),
                    'engine/base/bar.h': source('#include "engine/values/foo.h"'),
                    'engine/base/baz.h': source('#include "engine/foo.h"')}, 'one direction'),
    ('directions', {f'engine/f{i}.h': source(f'#include "engine/f{i + 1}.h"')
                    for i in range(13)}, 'a chain of 13 includes'),
    ('types', {'engine/foo.h': source('struct A {};\n' * 7)}, 'defines 7 types'),
    ('types', {'engine/foo.h': source('class A {\n  int B();\n};\n' * 4)}, '4 types with methods'),
    ('interfaces', {'engine/foo.h': source(
        'class A {\n' + '  virtual void B(int c) = 0;\n' * 16 + '};')}, '16 virtual methods'),
    ('large_classes', {'engine/foo.h': source('class A {\n' + '  void B();\n' * 41 + '};')},
     '41 methods'),
    ('large_classes', {'engine/foo.h': source('class A {\n  void B();\n  void C();\n};'),
                       'engine/foo.cc': source('void A::B() {\n' + '  D();\n' * 300 + '}'),
                       'engine/foo_more.cc': source('void A::C() {\n' + '  D();\n' * 300 + '}')},
     'A has 608 lines'),
    ('plain_english', {'engine/foo.cc': source('int x;  // nobody waits')}, '"nobody"'),
    ('plain_english', {'engine/foo.cc': source('// What waits is counted.')}, 'begin with'),
    ('plain_english', {'docs/page.md': 'Pages for the taking.'}, 'reusable'),
    ('first_lines', {'engine/foo.cc': '#include "engine/foo.h"\n'}, 'one sentence'),
    ('first_lines', {'engine/foo.cc': '// foo\n'}, 'one sentence'),
    ('first_lines', {'tool.py': 'import os\n'}, 'one sentence'),
    ('links', {'docs/page.md': '[gone](gone.md)'}, 'no such file'),
    ('links', {'docs/page.md': '[other](other.md#nowhere)'}, 'no such heading'),
    ('links', {'docs/page.md': 'see `engine/gone.cc`'}, 'no such file'),
    ('named_documents', {'engine/foo.h': source('// See docs/gone.md.')}, 'no such document'),
    ('documented', {'server/metrics/metrics.cc': source('f("quire_steps_total");'),
                    'docs/metrics.md': '# Metrics\n'}, 'is not documented'),
    ('documented', {'server/metrics/metrics.cc': source(''),
                    'docs/metrics.md': '# M\n`quire_gone_total`\n'}, 'documented but not in'),
    ('scripts', {'scripts/go': '# no interpreter\n'}, 'no #! line'),
    ('scripts', {'scripts/go': '#!/usr/bin/env bash\n# Goes on.\n'}, 'set -euo pipefail'),
    ('scripts', {'scripts/data': '#!/bin/sh\n'}, 'not executable'),
    ('forbidden_words', {'docs/page.md': f'get it from https://{REGISTRY}/x'}, 'no place'),
    ('forbidden_words', {'docs/page.md': 'lies in /wo' 'rk/main'}, 'no place'),
    ('formatting', {'engine/foo.cc': source('int   Foo( ) { return 1; }')}, 'clang-format'),
    ('unused_exceptions', {'tests/tidy/allowed.txt': 'file engine/foo.cc 900  # long ago\n'},
     'no exception any more'),
]


def complaints(changes, rule=None):
    """What the rules, or one of them, say of the clean tree with these files changed."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**CLEAN, **changes}.items():
            file = Path(root, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        Path(root, 'scripts/go').chmod(0o755)
        tree = tidy.Tree(root)
        return [(r.__name__, *c) for r in tidy.RULES if rule in (None, r.__name__) for c in r(tree)]


class TidyTest(unittest.TestCase):
    def test_a_tidy_tree_passes(self):
        self.assertEqual(complaints({}), [])

    def test_every_rule_can_fail(self):
        for rule, changes, words in BROKEN:
            with self.subTest(rule=rule, files=sorted(changes)):
                found = complaints(changes, rule)
                self.assertTrue(any(words in c[-1] for c in found), f'wanted {words!r}: {found}')
        self.assertEqual({b[0] for b in BROKEN}, {r.__name__ for r in tidy.RULES})

    def test_limits_are_inclusive(self):
        self.assertEqual(complaints({'engine/foo.cc': function(lines=68)}, 'function_sizes'), [])
        self.assertEqual(complaints({'engine/foo.cc': function(nesting=4)}, 'function_sizes'), [])
        self.assertEqual(complaints({'engine/foo.cc': source('// ' + 'x' * 97)}, 'columns'), [])

    def test_the_ratchet_only_shrinks(self):
        long = function(lines=80)
        for granted, passes in ((82, True), (83, False), (81, False)):
            allowed = f'function engine/foo.cc:F {granted}  # a table\n'
            found = complaints({'engine/foo.cc': long, 'tests/tidy/allowed.txt': allowed},
                               'function_sizes')
            self.assertEqual(not found, passes, f'{granted}: {found}')

    def test_an_exception_needs_its_reason(self):
        found = complaints({'engine/foo.cc': function(lines=80),
                            'tests/tidy/allowed.txt': 'function engine/foo.cc:F 82\n'})
        self.assertIn('no reason', ' '.join(str(c) for c in found))

    def test_a_part_is_tested_by_whoever_says_so(self):
        part = {'engine/part.h': source(''), 'engine/part.cc': source('#include "engine/part.h"'),
                'engine/foo.cc': source('#include "engine/foo.h"\n#include "engine/part.h"')}
        self.assertEqual(len(complaints(part, 'tested_sources')), 1)
        for says, passes in (('// Covers engine/none.h, engine/part.cc', True),
                             ('// Covers engine/part.h', True), ('// covers engine/part.cc', False),
                             ('const char k[] = "// Covers engine/part.cc";', False)):
            found = complaints({**part, 'tests/engine/foo_test.cc': source(says),
                                'engine/none.h': source('')}, 'tested_sources')
            self.assertEqual([c[1] for c in found if 'part' in c[1]],
                             [] if passes else ['engine/part.cc'], says)

    def test_a_missing_formatter_is_no_silence(self):
        for which in (lambda tool: None, lambda tool: '/bin/echo'):  # none, or of another version
            with unittest.mock.patch('tidy.shutil.which', which):
                found = complaints({}, 'formatting')
            self.assertIn('scripts/deps', ' '.join(c[-1] for c in found))

    def test_a_foreach_lists_sources_by_their_stems(self):
        found = complaints({
            'tests/engine/CMakeLists.txt': 'foreach(op foo bar)\n  quire_test(${op}_test SRCS '
                                           '${op}_test.cc)\nendforeach()\n',
            'tests/engine/bar_test.cc': source(''), 'tests/engine/baz_test.cc': source('')},
            'listed_sources')
        self.assertEqual([c[1] for c in found], ['tests/engine/baz_test.cc'])

    def test_words_in_comments_and_strings_are_no_code(self):
        body = '// throw, std::cout, getenv(x)\nconst char* kText = "throw usleep() \\" getenv(";'
        self.assertEqual(complaints({'engine/foo.cc': source(body)}, 'bans'), [])


class CppScanTest(unittest.TestCase):
    def names(self, text):
        return [(f.name, f.parameters, f.lines, f.nesting) for f in cpp_scan.functions(text)]

    def test_finds_functions_of_every_shape(self):
        text = '''
namespace a { namespace {
struct S { int x{1}; std::vector<int> v = {1, 2}; S(int a, int b) : x{a}, v{b} { Go({1, 2}); } };
enum class E { kA, kB };
constexpr int kTable[] = {1, 2, 3};
template <typename T, typename U>
T Free(std::map<T, U> m, std::function<void(int, int)> f = {}) noexcept {
  for (auto& x : m) { if (x) { f(1, 2); } }
  return [&] { return 1; }();
}
bool operator==(const S& a, const S& b) { return a.x == b.x; }
TEST_F(SuiteTest, DoesIt) {
  Run("}");
}
} }
'''
        self.assertEqual(self.names(text), [
            ('S', 2, 1, 0), ('Free', 2, 4, 2), ('operator==', 2, 1, 0),
            ('SuiteTest.DoesIt', 0, 3, 0)])

    def test_digit_separators_and_characters_do_not_confuse_it(self):
        text = "void F() {\n  int x = 1'000'000; char c = '{'; G('\\'', '}');\n}\nvoid H() {}\n"
        self.assertEqual(self.names(text), [('F', 0, 3, 0), ('H', 0, 1, 0)])


if __name__ == '__main__':
    unittest.main()
