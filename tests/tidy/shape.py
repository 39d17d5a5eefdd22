"""The shape of the tree: rooms, the direction of includes, and the size of classes over all their
files. Rules for tidy.py, and the table of figures that CONTRIBUTING.md shows.
"""

import collections
import os
import re
import statistics

import cpp_scan

MAX_FOLDER, MAX_CHAIN, MAX_VIRTUALS = 30, 12, 15
MAX_BEHAVED_TYPES, MAX_TYPES = 3, 6  # in a header: classes with methods; of any kind
MAX_CLASS_LINES, MAX_CLASS_METHODS = 500, 40
PRODUCT = ('kernels/', 'engine/', 'server/', 'flags/', 'clients/cpp/', 'clients/load/')
CLONE = 12  # lines
TYPE = re.compile(r'\b(?:class|struct|union|enum(?:\s+class)?)\s+(?:\[\[\w+\]\]\s*)?'
                  r'(?:alignas\([^)]*\)\s*)?((?:\w+::)*\w+)[^;{}()]*\{')


def product(tree):
    return [p for p in tree.code() if p.startswith(PRODUCT)]


def include_graph(tree):
    """Our own includes of every product file."""
    def targets(path):
        names = re.findall(r'^\s*#\s*include\s*"([^"]+)"', tree.text(path), flags=re.M)
        return [n for n in names if n in tree.texts]
    return {path: targets(path) for path in product(tree)}


def two_way_pairs(graph):
    """Pairs of folders that include each other, each with one include of the rarer direction."""
    edges = collections.defaultdict(list)
    for path, names in graph.items():
        for name in names:
            if os.path.dirname(path) != os.path.dirname(name):
                edges[os.path.dirname(path), os.path.dirname(name)].append((path, name))
    for (a, b), found in sorted(edges.items()):
        if a < b and (b, a) in edges:
            yield min(found, edges[b, a], key=len)[0]


def longest_chain(graph):
    """The longest way along includes, from a source down to a header that includes nothing."""
    longest = {}

    def of(path):
        if path not in longest:
            longest[path] = [path]  # for the length of this call: a cycle ends here
            longest[path] = [path] + max((of(n) for n in graph.get(path, [])), key=len, default=[])
        return longest[path]
    return max((of(path) for path in graph), key=len, default=[])


def classes(text):
    """Name, line and body of every class and struct defined in the text, nested ones too."""
    code = cpp_scan.code_only(text)
    for match in TYPE.finditer(code):
        open_at = match.end() - 1
        body = code[open_at:cpp_scan.close_of(code, open_at)]
        yield match.group(1), code.count('\n', 0, match.start()) + 1, body


def namespace_types(text):
    """Name and body of the types that are defined at namespace level."""
    inner = 0
    code = cpp_scan.code_only(text)
    for match in TYPE.finditer(code):
        if match.start() >= inner:
            open_at = match.end() - 1
            inner = cpp_scan.close_of(code, open_at)
            yield match.group(1), code[open_at:inner]


def own_statements(body):
    """The declarations of a class body itself, without those of the types nested in it."""
    depth, start = 0, 1
    for i, c in enumerate(body):
        depth += (c in '({') - (c in ')}')
        ends = (c == ';' and depth == 1) or (c == '}' and depth == 1)
        if ends:
            yield body[start:i + 1]
            start = i + 1


def num_methods(body):
    count = 0
    for statement in own_statements(body):
        statement = re.sub(r'\b(public|private|protected):', '', statement)
        head = re.split(r'[{=]', re.sub(r'<[^<>]*(<[^<>]*>)?[^<>]*>', '', statement))[0]
        plain = not re.match(r'\s*(using|friend|static_assert|enum|struct|class)\b', statement)
        if plain and re.search(r'[~\w]\s*\(', head) and '= delete' not in statement:
            count += 1
    return count


def class_sizes(tree):
    """Of every class: where it is, its methods, and its lines over all files."""
    sizes = {}
    for path in product(tree):
        for name, line, body in classes(tree.text(path)):
            methods = num_methods(body)
            if methods:
                sizes[path, name] = [line, methods, body.count('\n') + 1]
    by_name = collections.defaultdict(list)
    for path, name in sizes:
        by_name[name.split('::')[-1]].append((path, name))
    for path in product(tree):
        for function in cpp_scan.functions(tree.text(path)):
            owner = function.name.split('::')[-2:-1]
            for key in by_name.get(owner[0], []) if owner else []:
                near = os.path.dirname(key[0]) == os.path.dirname(path)
                if near and (key[0] == path or key[0].endswith(('.h', '.cuh'))):
                    sizes[key][2] += function.lines
                    break
    return sizes


def rooms(tree):
    folders = collections.Counter(os.path.dirname(p) for p in product(tree))
    for folder, count in sorted(folders.items()):
        if not tree.ratchet('folder', folder, count, MAX_FOLDER):
            yield folder, 1, f'{count} files; at most {MAX_FOLDER} in one folder'


def directions(tree):
    graph = include_graph(tree)
    for path, name in two_way_pairs(graph):
        yield path, 1, (f'includes {name}, whose folder includes this one: folders look in one '
                        'direction')
    chain = longest_chain(graph)
    if not tree.ratchet('chain', 'includes', len(chain), MAX_CHAIN):
        yield chain[0], 1, (f'a chain of {len(chain)} includes, at most {MAX_CHAIN}: '
                            + ' -> '.join(chain))


def types(tree):
    for path in product(tree):
        if path.endswith(('.h', '.cuh')):
            bodies = [body for _, body in namespace_types(tree.text(path))]
            behaved = sum(num_methods(body) > 0 for body in bodies)
            if not tree.ratchet('types', path, len(bodies), MAX_TYPES):
                yield path, 1, f'defines {len(bodies)} types; at most {MAX_TYPES} in a header'
            if not tree.ratchet('behaved', path, behaved, MAX_BEHAVED_TYPES):
                yield path, 1, (f'defines {behaved} types with methods; at most '
                                f'{MAX_BEHAVED_TYPES} in a header')


def interfaces(tree):
    for path in product(tree):
        for name, line, body in classes(tree.text(path)):
            count = len(re.findall(r'\bvirtual\s+(?!~)', body))
            if not tree.ratchet('virtuals', f'{path}:{name}', count, MAX_VIRTUALS):
                yield path, line, f'{name} has {count} virtual methods; at most {MAX_VIRTUALS}'


def large_classes(tree):
    for (path, name), (line, methods, lines) in class_sizes(tree).items():
        subject = f'{path}:{name}'
        if not tree.ratchet('methods', subject, methods, MAX_CLASS_METHODS):
            yield path, line, f'{name} has {methods} methods; at most {MAX_CLASS_METHODS}'
        if not tree.ratchet('class', subject, lines, MAX_CLASS_LINES):
            yield path, line, (f'{name} has {lines} lines over all its files; at most '
                               f'{MAX_CLASS_LINES}')


def clone_share(tree):
    """Share of product lines in a run of CLONE lines that stands somewhere else as well. Blank
    lines, comments, brackets and includes do not count."""
    runs, total = collections.defaultdict(list), 0
    for path in product(tree):
        code = cpp_scan.code_only(tree.text(path)).split('\n')
        lines = [re.sub(r'\s+', '', x) for x in code]
        lines = [x for x in lines if len(x) > 2 and not x.startswith('#')]
        total += len(lines)
        for i in range(len(lines) - CLONE + 1):
            runs['\n'.join(lines[i:i + CLONE])].append((path, i))
    cloned = {(path, i + k) for places in runs.values() if len(places) > 1
              for path, i in places for k in range(CLONE)}
    return len(cloned) / max(total, 1)


def table(tree):
    """The figures of the tree as rows of a Markdown table: what, measured, limit."""
    lengths = {p: len(tree.lines(p)) - 1 for p in tree.code()}
    own = [lengths[p] for p in product(tree)]
    functions = [f for p in tree.code() for f in cpp_scan.functions(tree.text(p))]
    graph = include_graph(tree)
    sizes = class_sizes(tree)
    longest = max(sizes, key=lambda key: sizes[key][2])
    widest = max(sizes, key=lambda key: sizes[key][1])
    folders = collections.Counter(os.path.dirname(p) for p in product(tree))
    fullest = max(folders, key=folders.get)
    virtuals = {name: len(re.findall(r'\bvirtual\s+(?!~)', body)) for p in product(tree)
                for name, _, body in classes(tree.text(p))}
    broadest = max(virtuals, key=virtuals.get)
    over = sum(f.lines > 60 for f in functions)
    top_k = sum('top_k' in tree.text(p) for p in product(tree))
    yield 'lines of a product file, median / longest', (
        f'{statistics.median(own):.0f} / {max(own)}'), '600'
    yield 'lines of any C++ file, median / longest', (
        f'{statistics.median(lengths.values()):.0f} / {max(lengths.values())}'), '900'
    yield 'functions of more than 60 lines', f'{over} of {len(functions)}', '70 lines each'
    yield 'files in one folder, most', f'{folders[fullest]} ({fullest})', str(MAX_FOLDER)
    yield 'pairs of folders that include each other', str(len(list(two_way_pairs(graph)))), '0'
    yield 'longest chain of includes', str(len(longest_chain(graph))), str(MAX_CHAIN)
    yield 'lines of a class over all its files, most', (
        f'{sizes[longest][2]} ({longest[1]})'), str(MAX_CLASS_LINES)
    yield 'methods of a class, most', f'{sizes[widest][1]} ({widest[1]})', str(MAX_CLASS_METHODS)
    yield 'virtual methods of an interface, most', (
        f'{virtuals[broadest]} ({broadest})'), str(MAX_VIRTUALS)
    yield (f'product lines that repeat {CLONE} lines of another place',
           f'{clone_share(tree):.2%}', '-')
    yield 'product files that say top_k', str(top_k), '-'


RULES = [rooms, directions, types, interfaces, large_classes]
