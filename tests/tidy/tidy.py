#!/usr/bin/python3
"""The rules of CONTRIBUTING.md that a machine can check, over the whole tree: tidy.py [ROOT].
tidy.py --table prints the figures of the tree that stand in CONTRIBUTING.md.

Each rule is a function that takes a Tree and yields complaints (path, line, what). Known exceptions
stand, each with its reason, in tests/tidy/allowed.txt, a list that may only shrink.
"""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import cpp_scan
import english
import shape

CPP = ('.h', '.cc', '.cu', '.cuh')
SKIPPED = {'.git', 'build', '.cache', '__pycache__', '.pytest_cache', 'node_modules', 'shared'}
MAX_LINES = {'.h': 250, '.cuh': 250, '.cc': 600, '.cu': 700, '.py': 600}
MAX_TEST_LINES, MAX_COLUMNS, MAX_FUNCTION, MAX_KERNEL = 900, 100, 70, 150
MAX_PARAMETERS, MAX_NESTING = 5, 4
MAX_TEXT_BYTES = 1 << 20  # what is larger is data

# Who may include whom: zone -> what it may see beside itself. A file belongs to its longest prefix.
ZONES = {
    'kernels/': [],
    'kernels/cpu/': ['kernels/'],
    'kernels/cuda/': ['kernels/'],
    'engine/base/': ['kernels/'],
    'engine/values/': ['kernels/', 'engine/base/'],
    'engine/grammar/': ['kernels/', 'engine/base/'],
    'engine/masks/': ['kernels/', 'engine/base/', 'engine/values/', 'engine/grammar/'],
    'engine/schedule/': ['kernels/', 'engine/base/', 'engine/values/', 'engine/masks/'],
    'engine/model/': ['kernels/', 'engine/base/', 'engine/values/'],
    'engine/worker/': ['kernels/', 'engine/base/', 'engine/values/', 'engine/schedule/',
                       'engine/model/', 'flags/refusal_exit.h'],
    'engine/worker/program/worker_main.cc': ['engine/worker/', 'version/'],
    'engine/worker/program/cuda_': ['kernels/', 'kernels/cuda/', 'engine/base/', 'engine/model/',
                                    'engine/worker/'],
    'engine/': ['kernels/', 'kernels/cpu/host_limits.h', 'engine/base/', 'engine/values/',
                'engine/grammar/', 'engine/masks/', 'engine/schedule/', 'engine/model/',
                'engine/worker/'],
    'server/text/': ['kernels/check.h', 'engine/base/'],
    'server/': ['kernels/check.h', 'kernels/cpu/host_limits.h', 'engine/', 'engine/base/',
                'engine/values/', 'engine/grammar/', 'engine/masks/', 'engine/schedule/',
                'engine/model/', 'engine/worker/', 'server/text/', 'server/tracing/', 'flags/',
                'proto/', 'version/'],
    'server/tracing/': ['engine/base/', 'engine/values/', 'server/metrics/otlp_metrics.h',
                        'proto/'],
    'clients/connect/': ['flags/'],
    'clients/cpp/': ['clients/connect/', 'flags/', 'proto/', 'version/'],
    'clients/load/': ['clients/connect/', 'flags/', 'proto/', 'version/'],
    'flags/': [],
    'proto/': [],
    'version/': [],
    'tests/': None,  # everything
    'bench/': None,
}
PROTO_INCLUDES = ('quire/v1/', 'google/rpc/', 'grpc/health/', 'grpc/reflection/', 'xds/',
                  'opentelemetry/', 'field/')
RPC_HEADER = re.compile(
    r'grpc|google/protobuf|quire/v1/|google/rpc/|opentelemetry/|field/|xds/')
RPC_PLACES = ('server/', 'clients/', 'tests/server/', 'tests/clients/', 'tests/e2e/', 'tests/fuzz/',
              'bench/')
CUDA_HEADER = re.compile(r'cuda|cublas|nccl|cooperative_groups')
CUDA_PLACES = ('kernels/cuda/', 'engine/worker/program/cuda_', 'tests/gpu/', 'bench/gpu/')

BANNED_WORDS = {'manager', 'helper', 'helpers', 'util', 'utils', 'misc', 'common', 'handler',
                'impl'}
BANNED_LAST_WORDS = {'new', 'ex', 'v2', 'v3', 'v4'}
# Words that have no place in this tree (registries' hosts, paths of one machine, who typed a line),
# as digests, so that this list does not contain them either.
FORBIDDEN = set("""
a4aa2ac280bb c899567ee906 8b5bb5eb9d75 0dc11026ac75 789e46d79514 3d01f3609be8 eb7e11c7f9ec
00a7dc5a0cc3 9da5f32d9641 71741fe2460a e680c440a2e9 1ba4e37997a2 a0f007d863a0 e514b0d3b056
4db460c55b85 317d2d52829b 43c04ed1dabe c70eca6b0f88 3ea125d0bff3
94a168d2da57 d298391b0743 746d1113c358 7023691fe477 fa107f7c78fb 0c9a453fad61 94a6b4475803
""".split())


class Tree:
    """The files below a root, read once."""

    def __init__(self, root):
        self.root = Path(root)
        self.texts = {}
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(f for f in folders if f not in SKIPPED)
            for name in sorted(set(names) - SKIPPED):
                path = Path(folder, name)
                self.texts[str(path.relative_to(self.root))] = None
        self.allowed = {}
        for number, line in enumerate(self.lines('tests/tidy/allowed.txt'), 1):
            words = line.split('#')[0].split()
            if words:
                self.allowed[(words[0], words[1])] = [words[2], number, '#' in line]
        self.used = set()

    def text(self, path):
        if path not in self.texts:
            return ''
        if self.texts[path] is None:
            file = self.root / path
            data = file.read_bytes() if file.stat().st_size < MAX_TEXT_BYTES else b''
            self.texts[path] = '' if b'\0' in data[:8192] else data.decode('utf-8', 'replace')
        return self.texts[path]

    def lines(self, path):
        return self.text(path).split('\n')

    def code(self, *suffixes):
        return [p for p in self.texts if p.endswith(suffixes or CPP)]

    def ratchet(self, rule, subject, value, limit):
        """Whether value passes: within the limit, or exactly what allowed.txt grants."""
        granted = self.allowed.get((rule, subject))
        if granted:
            self.used.add((rule, subject))
            return value == int(granted[0])
        return value <= limit


def is_test(path):
    return path.startswith(('tests/', 'bench/'))


def is_main(path):
    return path.endswith(('/main.cc', '_main.cc'))


def zone_of(path):
    if path.startswith(PROTO_INCLUDES):
        return 'proto/'
    return max((z for z in ZONES if path.startswith(z)), key=len, default=None)


def includes(tree, path):
    for number, line in enumerate(tree.lines(path), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)', line)
        if match:
            yield number, match.group(2), match.group(1) == '"'


def layering(tree):
    for path in tree.code():
        zone = zone_of(path)
        for number, name, own in includes(tree, path):
            target = zone_of(name)
            if own and target and zone and target != zone and ZONES[zone] is not None:
                if target not in ZONES[zone] and name not in ZONES[zone]:
                    yield path, number, f'{zone} may not include {name}'
            if RPC_HEADER.match(name) and (
                    not path.startswith(RPC_PLACES) or path.startswith('server/text/')):
                yield path, number, f'{name}: gRPC and protobuf belong to server/ and clients/'
            if CUDA_HEADER.match(name) and not path.startswith(CUDA_PLACES):
                yield path, number, f'{name}: CUDA headers belong to kernels/cuda/'


def include_cycles(tree):
    graph = {p: [n for _, n, own in includes(tree, p) if own and n in tree.texts]
             for p in tree.code('.h', '.cuh')}
    done = set()

    def visit(path, trail):
        if path in trail:
            yield path, 1, 'include cycle: ' + ' -> '.join(trail[trail.index(path):] + [path])
        elif path not in done:
            for name in graph.get(path, []):
                yield from visit(name, trail + [path])
            done.add(path)
    for path in graph:
        yield from visit(path, [])


def dead_headers(tree):
    included = {name for p in tree.code() for _, name, _ in includes(tree, p)}
    for path in tree.code('.h', '.cuh'):
        if path not in included:
            yield path, 1, 'nobody includes this header'


def generated(tree, path):
    """A file whose first line names the script of this tree that wrote it."""
    match = re.search(r'Generated by (\S+?)[.:,]?(\s|$)', tree.lines(path)[0])
    return bool(match) and match.group(1) in tree.texts


def file_lengths(tree):
    for path in tree.code(*CPP, '.py'):
        limit = MAX_TEST_LINES if is_test(path) else MAX_LINES[Path(path).suffix]
        count = len(tree.lines(path)) - 1
        if not generated(tree, path) and not tree.ratchet('file', path, count, limit):
            yield path, count, f'{count} lines; at most {limit}'


def function_sizes(tree):
    for path in tree.code():
        for f in cpp_scan.functions(tree.text(path)):
            limit = MAX_KERNEL if f.device else MAX_FUNCTION
            subject = f'{path}:{f.name}'
            if not tree.ratchet('function', subject, f.lines, limit):
                yield path, f.line, f'{f.name} has {f.lines} lines; at most {limit}'
            if not tree.ratchet('parameters', subject, f.parameters, MAX_PARAMETERS):
                yield path, f.line, (f'{f.name} has {f.parameters} parameters; at most '
                                     f'{MAX_PARAMETERS}, then a struct')
            if not is_test(path) and not tree.ratchet('nesting', subject, f.nesting, MAX_NESTING):
                yield path, f.line, f'{f.name} nests {f.nesting} deep; at most {MAX_NESTING}'
    for path in tree.code('.py'):
        for node in ast.walk(ast.parse(tree.text(path))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                count = node.end_lineno - node.lineno + 1
                if not tree.ratchet('function', f'{path}:{node.name}', count, MAX_FUNCTION):
                    yield path, node.lineno, f'{node.name} has {count} lines; at most 70'


def columns(tree):
    for path in tree.code(*CPP, '.py', '.proto', '.cmake', 'CMakeLists.txt'):
        if generated(tree, path):
            continue
        for number, line in enumerate(tree.lines(path), 1):
            if len(line) > MAX_COLUMNS and 'http' not in line:
                yield path, number, f'{len(line)} columns; at most {MAX_COLUMNS}'


def banned_names(tree):
    def bad(words):
        words = [w.lower() for w in words if w]
        return next((w for w in words if w in BANNED_WORDS), None) or (
            words[-1] if words and words[-1] in BANNED_LAST_WORDS else None)
    for path in tree.code(*CPP, '.py'):
        word = bad(Path(path).stem.split('_'))
        if word:
            yield path, 1, f'file name says "{word}": name what it is'
        code = cpp_scan.code_only(tree.text(path)) if path.endswith(CPP) else tree.text(path)
        for match in re.finditer(r'^ *(?:class|struct|enum(?: class)?)\s+(\w+)', code, flags=re.M):
            word = bad(re.findall(r'[A-Z][a-z]+|[A-Z]\d+|[A-Z]+(?![a-z])|[a-z]+', match.group(1)))
            if word:
                number = code.count('\n', 0, match.start()) + 1
                yield path, number, f'{match.group(1)} says "{word}": name what it is'


BANS = [  # pattern, who may, what to do instead
    (r'\bgetenv\s*\(', lambda p: is_main(p) or is_test(p), 'environment is read in mains only'),
    (r'\bstd::(cout|cerr)\b|(?<![\w:])(?:std::)?(printf|puts)\s*\(',
     lambda p: is_main(p) or is_test(p), 'libraries do not print; log or take a stream'),
    (r'\b(sleep_for|sleep_until|usleep|nanosleep)\b|(?<![\w:])sleep\s*\(', is_test,
     'wait for the condition, not for a time'),
    (r'\bthrow\b', is_test, 'no exceptions of ours; return absl::Status'),
    (r'\busing\s+namespace\b', lambda p: not p.endswith('.h'), 'not in a header'),
    (r'#\s*if.*(CUDA|NVCC)', lambda p: p.startswith('kernels/cuda/'),
     'CMake chooses the files of a backend; no conditionals'),
]


def bans(tree):
    for path in tree.code():
        code = cpp_scan.code_only(tree.text(path)).split('\n')
        for pattern, may, instead in BANS:
            if may(path):
                continue
            for number, line in enumerate(code, 1):
                match = re.search(pattern, line)
                if match:
                    yield path, number, f'{match.group().strip()}: {instead}'


def leftovers(tree):
    mark = re.compile(r'\b(TO' r'DO|FIX' r'ME|XX' r'X|HA' r'CK)\b')
    for path in tree.code(*CPP, '.py', '.proto', '.md', 'CMakeLists.txt', '.cmake', '.yaml'):
        for number, line in enumerate(tree.lines(path), 1):
            match = mark.search(line)
            if match:
                yield path, number, f'{match.group()}: do it, or open an issue'


def listed_sources(tree):
    for path in tree.code('.cc', '.cu'):
        folder = Path(path).parent
        for parent in [folder, *folder.parents]:
            cmake = tree.text(str(parent / 'CMakeLists.txt'))
            words = set(re.split(r'[\s()"]+', cmake))
            for end in re.findall(r'\$\{\w+\}(\w*\.cc)', cmake):  # of a foreach over stems
                words |= {word + end for word in words}
            if str(Path(path).relative_to(parent)) in words:
                break
        else:
            yield path, 1, 'no CMakeLists.txt lists this file'


def header_of(tree, path):
    """The header a source implements: its own, or else the first of ours that it includes."""
    own = str(Path(path).with_suffix('.h'))
    if own in tree.texts:
        return own
    return next((name for _, name, ours in includes(tree, path) if ours), '')


def tested_sources(tree):
    """A source has a test of its name, or one that includes its header, or one that says so: a line
    `// Covers PATH, PATH` in the test. What only other sources include is not tested by that."""
    tests = {p for p in tree.texts if p.startswith('tests/')}
    names = {Path(p).stem for p in tests}
    covered = {n for p in tree.code() if p in tests for _, n, _ in includes(tree, p)}
    for path in tests:
        text = tree.text(path)
        for match in re.finditer(r'^(?://|#) Covers ((?:.*,\n(?://|#) )*.*)$', text, flags=re.M):
            for name in re.findall(r'[\w./-]+\.\w+', match.group(1)):
                covered.add(name)
                if name not in tree.texts:
                    number = text.count('\n', 0, match.start()) + 1
                    yield path, number, f'covers {name}: no such file'
    for path in tree.code('.cc', '.cu'):
        if is_main(path) or not path.startswith(('engine/', 'server/', 'kernels/', 'flags/')):
            continue
        if not {path, header_of(tree, path)} & covered and Path(path).stem + '_test' not in names:
            yield path, 1, (f'no {Path(path).stem}_test.cc, no test that includes its header or '
                            f'says "Covers {path}"')


def first_lines(tree):
    for path in tree.code(*CPP, '.proto', '.py'):
        if not tree.text(path).strip() or Path(path).name == '__init__.py':
            continue
        lines = [x for x in tree.lines(path) if not x.startswith('#!')]
        opener = {'.py': r'(# |""")'}.get(Path(path).suffix, '// ')
        if not re.match(opener + r'[A-Z`\w].* .* ', lines[0]):
            yield path, 1, 'the first line is a comment: one sentence on what this file is for'


def links(tree):
    for path in tree.code('.md'):
        text = re.sub(r'```.*?```', lambda m: '\n' * m.group().count('\n'), tree.text(path),
                      flags=re.S)
        targets = [(m.start(), m.group(1)) for m in re.finditer(r'\]\(([^)\s]+)\)', text)]
        for start, target in targets:
            number = text.count('\n', 0, start) + 1
            if re.match(r'\w+:', target):
                continue
            name, _, anchor = target.partition('#')
            file = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
            if not (tree.root / file).exists():
                yield path, number, f'{target}: no such file'
            elif anchor and anchor not in anchors(tree, file):
                yield path, number, f'{target}: no such heading'
        tops = '|'.join(sorted({p.split('/')[0] for p in tree.texts if '/' in p and p[0] != '.'}))
        for match in re.finditer(rf'`((?:{tops})/[\w./-]+)`', text):
            if not (tree.root / match.group(1)).exists():
                number = text.count('\n', 0, match.start()) + 1
                yield path, number, f'{match.group(1)}: no such file'


def named_documents(tree):
    """A comment that sends its reader to a document sends them to one that exists."""
    for path in tree.code(*CPP, '.py', '.proto', 'CMakeLists.txt', '.txt'):
        if path.startswith('tests/tidy/'):
            continue
        for number, line in enumerate(tree.lines(path), 1):
            for name in re.findall(r'\b(docs/[\w/.-]+\.md)', line):
                if not (tree.root / name).exists():
                    yield path, number, f'{name}: no such document'


def anchors(tree, path):
    heads = re.findall(r'^#+ (.*)$', tree.text(path), flags=re.M)
    return {re.sub(r'[^\w -]', '', h.lower()).replace(' ', '-') for h in heads}


def both_ways(tree, sources, pattern, doc, what):
    """What the pattern finds in the sources stands in doc, and what it finds in doc is in one."""
    if not (sources and tree.text(sources[0]) and tree.text(doc)):
        return
    names = {n: path for path in sources for n in re.findall(pattern, tree.text(path))}
    written = set(re.findall(r'(?<![\w-])' + pattern.strip('"'), tree.text(doc)))
    for name in sorted(set(names) - written):
        yield doc, 1, f'{what} {name} of {names[name]} is not documented'
    for name in sorted(written - set(names)):
        yield doc, 1, f'{what} {name} is documented but not in {" or ".join(sources)}'


def documented(tree):
    exporters = sorted(p for p in tree.code('.cc')
                       if p.startswith('server/') and ('/metrics/' in p or '_metrics.cc' in p))
    yield from both_ways(tree, exporters,
                         r'"((?:quire_|vllm:)[a-z0-9_]+)"', 'docs/metrics.md', 'metric')


def scripts(tree):
    for path in tree.texts:
        if not (path.startswith('scripts/') and path.count('/') == 1) and path != '.ci/run':
            continue
        if not os.access(tree.root / path, os.X_OK):
            yield path, 1, 'not executable'
        if not tree.text(path).startswith('#!'):
            yield path, 1, 'no #! line'
        elif 'bash' in tree.lines(path)[0] and 'set -euo pipefail' not in tree.text(path):
            yield path, 1, 'bash without set -euo pipefail'


def forbidden_words(tree):
    digests = {}
    for path in tree.texts:
        for number, line in enumerate(tree.lines(path), 1):
            for word in re.findall(r'(?<![\w./])/[a-z]+(?=/)|[a-z][a-z0-9.-]{4,}', line.lower()):
                word = word.rstrip('.-')
                if word not in digests:
                    digests[word] = hashlib.sha256(word.encode()).hexdigest()[:12]
                if digests[word] in FORBIDDEN:
                    yield path, number, f'"{word}" has no place in this tree'


def formatting(tree):
    """Only by the version the tree is formatted with: others differ in small things."""
    found = filter(None, map(shutil.which, ('clang-format-14', 'clang-format')))
    tools = [t for t in found if 'version 14.' in subprocess.run(
        [t, '--version'], capture_output=True, text=True, check=True).stdout]
    if not tools:
        yield '.clang-format', 1, 'clang-format of version 14 is missing: scripts/deps installs it'
        return
    files = [p for p in tree.code() if not generated(tree, p)]
    if not files:
        return
    run = subprocess.run([tools[0], '--dry-run', '--ferror-limit=1', *files], cwd=tree.root,
                         capture_output=True, text=True, check=False)
    warned = re.findall(r'^([^\s:]+):\d+:\d+: warning: code should be', run.stderr, flags=re.M)
    for path in sorted(set(warned)):
        yield path, 1, 'run clang-format -i on it'


def unused_exceptions(tree):
    for key, (_, number, reasoned) in tree.allowed.items():
        if key not in tree.used:
            yield 'tests/tidy/allowed.txt', number, f'{" ".join(key)} is no exception any more'
        if not reasoned:
            yield 'tests/tidy/allowed.txt', number, f'{" ".join(key)} has no reason after a #'


RULES = [layering, include_cycles, dead_headers, file_lengths, function_sizes, columns,
         banned_names, bans, leftovers, listed_sources, tested_sources, first_lines, links,
         named_documents, documented, scripts, forbidden_words, formatting, *shape.RULES,
         *english.RULES, unused_exceptions]  # last: it looks at what the others used


def main():
    arguments = [a for a in sys.argv[1:] if a != '--table']
    tree = Tree(arguments[0] if arguments else Path(__file__).resolve().parents[2])
    if '--table' in sys.argv[1:]:
        print('\n'.join(f'| {" | ".join(row)} |' for row in shape.table(tree)))
        return 0
    complaints = 0
    for rule in RULES:
        for path, line, what in rule(tree):
            print(f'{path}:{line}: {what} [{rule.__name__}]')
            complaints += 1
    print(f'tidy: {len(tree.texts)} files, {len(RULES)} rules, {complaints} complaints')
    return 1 if complaints else 0


if __name__ == '__main__':
    sys.exit(main())
