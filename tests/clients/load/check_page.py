#!/usr/bin/python3
"""Checks one report page as XML, by another parser than the code that wrote it: check_page.py PAGE.

Well-formed, nothing fetched from elsewhere, no script, every coordinate inside its drawing, every
drawing described in words, every table headed.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

XHTML = '{http://www.w3.org/1999/xhtml}'
SVG = '{http://www.w3.org/2000/svg}'
FETCHING = ('src', 'href', 'srcset', 'data', 'action', 'poster', 'background')


def complaints(root):
    parents = {child: parent for parent in root.iter() for child in parent}
    for element in root.iter():
        tag = element.tag.replace(XHTML, '').replace(SVG, '')
        if tag in ('script', 'link', 'iframe', 'object', 'embed', 'img', 'base'):
            yield f'<{tag}> has no place on this page'
        for name, value in element.attrib.items():
            if name in FETCHING or name.startswith('on') or 'url(' in value:
                yield f'<{tag} {name}={value!r}> could fetch or run something'
        if tag == 'style' and re.search(r'url\(|@import|https?:', element.text or ''):
            yield 'the style sheet fetches something'
        if tag == 'path':
            yield from bad_path(element.get('d', ''), parents[element])
        if tag == 'span' and 'left:' in element.get('style', ''):
            places = re.findall(r'(?:left|top):(-?[\d.]+)%', element.get('style'))
            if len(places) != 2 or not all(0 <= float(p) <= 100 for p in places):
                yield f'a label lies at {element.get("style")}'
        words = element.get('aria-label', '')
        if element.get('role') == 'img' and len(words) < 10:
            yield 'a drawing without words'
        if tag == 'table' and element.find(f'.//{XHTML}th[@scope]') is None:
            yield 'a table without a head'


def bad_path(d, svg):
    width, height = (float(n) for n in svg.get('viewBox').split()[2:])
    if not re.fullmatch(r'([ML]-?[\d.]+ -?[\d.]+|[hv]-?[\d.]+)+', d):
        yield f'not a path: {d[:60]!r}'
        return
    for x, y in re.findall(r'[ML](\S+?) ([^MLhv]+)', d):
        if not (0 <= float(x) <= width and 0 <= float(y) <= height):
            yield f'({x}, {y}) lies outside {width} x {height}'


def main():
    with open(sys.argv[1], encoding='utf-8') as file:
        text = file.read()
    found = list(complaints(ElementTree.fromstring(text)))
    print('\n'.join(found[:20]))
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
