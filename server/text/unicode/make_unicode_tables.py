#!/usr/bin/env python3
"""Writes unicode_tables.cc: the character classes that tokenizer patterns see.

The classes are those of Unicode 16.0, as in the regular expressions of `tokenizers` 0.23; the NFC
of that package is the one of Unicode 9.0. Needs Python 3.11 (whose unicodedata is 14.0, as PCRE2
10.42's), `pip install unicodedata2==16.0.0`, and Debian's unicode-data for the ages.

usage: make_unicode_tables.py > unicode_tables.cc
"""

import re
import unicodedata as unicode14

import unicodedata2 as unicode16

assert unicode14.unidata_version == "14.0.0", unicode14.unidata_version
assert unicode16.unidata_version == "16.0.0", unicode16.unidata_version

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(code_points):
    out = []
    for c in sorted(code_points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def newer_than_unicode9():
    old = set()
    for line in open("/usr/share/unicode/DerivedAge.txt", encoding="utf-8"):
        found = re.match(r"([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*;\s*(\d+)\.", line)
        if found and int(found[3]) <= 9:
            old.update(range(int(found[1], 16), int(found[2] or found[1], 16) + 1))
    return [c for c in CODE_POINTS if c not in old]


def canonical(c):
    return unicode16.decomposition(chr(c)) and not unicode16.decomposition(chr(c)).startswith("<")


def print_table(name, comment, rows):
    print(f"// {comment}")
    print(f"const CodeRange {name}[] = {{")
    line = "   "
    for first, last in rows:
        cell = f" {{0x{first:X}, 0x{last:X}}},"
        if len(line) + len(cell) > 100:
            print(line)
            line = "   "
        line += cell
    print(line)
    print("};")
    print(f"const size_t {name}Size = std::size({name});")
    print()


def main():
    category = {c: unicode16.category(chr(c)) for c in CODE_POINTS}
    letters = ranges(c for c in CODE_POINTS if category[c][0] == "L")
    numbers = ranges(c for c in CODE_POINTS if category[c][0] == "N")

    new = newer_than_unicode9()
    seconds = {
        int(unicode16.decomposition(chr(c)).split()[-1], 16) for c in CODE_POINTS if canonical(c)
    }
    inert = ranges(c for c in new if unicode16.combining(chr(c)) or canonical(c) or c in seconds)

    print(
        "// Character classes of Unicode 16.0, by make_unicode_tables.py, not by hand."
    )
    print('#include "server/text/unicode/unicode_tables.h"')
    print()
    print("#include <iterator>")
    print()
    print("namespace quire {")
    print()
    print("// clang-format off")
    print_table("kLetterRanges", r"\p{L}", letters)
    print_table("kNumberRanges", r"\p{N}", numbers)
    print_table(
        "kNfcInertRanges",
        "Take part in normalization today but were unassigned in Unicode 9.0.",
        inert,
    )

    since14 = []
    for name in sorted(set(category.values()) - {"Cn", "Co", "Cs"}):
        added = [
            c for c in CODE_POINTS if category[c] == name and unicode14.category(chr(c)) != name
        ]
        since14 += [(name, first, last) for first, last in ranges(added)]
    moved = [c for c in CODE_POINTS if unicode14.category(chr(c)) not in ("Cn", category[c])]
    print(
        "// General categories that Unicode 14.0 does not give: code points assigned since"
        f" ({len(moved)} moved)."
    )
    print("const CategoryRange kSinceUnicode14[] = {")
    line = "   "
    for name, first, last in since14:
        cell = f' {{"{name}", 0x{first:X}, 0x{last:X}}},'
        if len(line) + len(cell) > 100:
            print(line)
            line = "   "
        line += cell
    print(line)
    print("};")
    print("const size_t kSinceUnicode14Size = std::size(kSinceUnicode14);")
    print("// clang-format on")
    print()
    print("}  // namespace quire")


if __name__ == "__main__":
    main()
