"""The page of results over commits: one HTML file, no script, no network, readable on a phone.

By machine, then by area: a line for each figure in order of commits, with its floor and its limit.
Radio buttons and style sheets filter; a browser without them shows everything.
"""

import html
import re

from . import comparison, series as results

WIDTH, HEIGHT, PAD = 260, 44, 4
MARKED = ("worse", "better")

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #667080; --line: #d9dee5; --mark: #2563c9;
  --bad: #b42318; --good: #1a7f4b; --paper: #fff; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #98a2b3; --line: #333a45;
  --mark: #7aa7f7; --bad: #f2867c; --good: #6fcf97; --paper: #14171c; --card: #1b1f26; } }
html { scroll-padding-top: 1rem; }
body { font: 16px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 0 auto; max-width: 70rem; padding: 1rem; }
h1 { font-size: 1.4rem; margin: .2rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .2rem; }
h3 { font-size: 1rem; margin: 0; }
p, .soft { color: var(--soft); margin: .2rem 0; font-size: .9rem; }
a { color: var(--mark); text-decoration: none; } a:hover { text-decoration: underline; }
nav { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .5rem .8rem; margin: .8rem 0; font-size: .95rem; }
nav div { margin: .35rem 0; } nav a { display: inline-block; padding: .15rem .6rem .15rem 0; }
input[name=show] { margin: .2rem .3rem .2rem .8rem; } label { font-size: .95rem; }
details.area { border-top: 1px solid var(--line); padding: .6rem 0; }
summary { cursor: pointer; padding: .2rem 0; } summary h3 { display: inline; }
.figures { display: grid; gap: .9rem 1.5rem; margin: .6rem 0 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); }
.figure { min-width: 0; } .figure:target { outline: 2px solid var(--mark); outline-offset: .3rem; }
.figure > div { display: flex; justify-content: space-between; gap: .5rem; }
.name { overflow-wrap: anywhere; } .small { font-size: .8rem; }
.value { font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { width: 100%; height: 44px; display: block; }
polyline, line { fill: none; stroke: var(--mark); stroke-width: 1.5;
  vector-effect: non-scaling-stroke; }
polyline.dot { stroke-width: 6; stroke-linecap: round; }
polyline.dot.worse { stroke: var(--bad); stroke-width: 8; }
polyline.dot.better { stroke: var(--good); stroke-width: 8; }
line.floor { stroke: var(--good); stroke-dasharray: 5 4; stroke-width: 1; }
line.must { stroke: var(--bad); stroke-dasharray: 2 4; stroke-width: 1; }
.worse { color: var(--bad); } .better { color: var(--good); }
.badge { color: var(--paper); background: var(--bad); border-radius: .3rem; padding: 0 .35rem;
  font-size: .8rem; white-space: nowrap; } .badge.better { background: var(--good); }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
td { padding: 0 .8rem 0 0; } td:last-child { text-align: right; padding: 0; }
#worse:checked ~ main .figure:not(.is-worse), #missed:checked ~ main .figure:not(.is-missed),
#changed:checked ~ main .figure:not(.is-changed) { display: none; }
#worse:checked ~ main .group:not(:has(.is-worse)),
#missed:checked ~ main .group:not(:has(.is-missed)),
#changed:checked ~ main .group:not(:has(.is-changed)) { display: none; }
"""

FILTERS = (
    ("all", "all"),
    ("worse", "worse than before"),
    ("changed", "worse or better"),
    ("missed", "beyond a limit"),
)


def number(value):
    """Three or four digits, as one reads them."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6:
        return f"{value / 1e6:.4g} M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def slug(*words):
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


def title_of(series):
    """The figure's name within its area."""
    return " · ".join(part for part in (series.name, series.label, series.figure) if part)


def anchor(series):
    return slug(series.place, title_of(series))


def scale(series):
    """The value at the top. A floor is always in the picture, a limit only if it is near: a far one
    would press the line flat."""
    top = max([v.value for v in series.values] + [series.floor or 0])
    near = series.must is not None and 0 < series.must <= 1.5 * top
    return max(top, series.must if near else 0, 1e-12), near


def dot(kind, x, y):
    return f'<polyline class="dot {kind}" points="{x:.1f},{y:.1f} {x:.1f},{y:.1f}"/>'


def plot(series, verdicts):
    """A line from zero up with a dot at the last value and at each that is worse or better, and
    dashed lines for floor and limit. Empty if there is nothing to compare the one value with."""
    top, limit_is_near = scale(series)

    def height(value):
        return HEIGHT - PAD - (HEIGHT - 2 * PAD) * max(value, 0) / top

    levels = [("floor", series.floor)] if series.floor else []
    levels += [("must", series.must)] if limit_is_near else []
    if len(series.values) < 2 and not levels:
        return ""
    step = (WIDTH - 2 * PAD) / max(len(series.values) - 1, 1)
    single = len(series.values) == 1
    spots = [
        (WIDTH - PAD if single else PAD + step * i, height(v.value))
        for i, v in enumerate(series.values)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    dots = [dot(verdict, *spot) for spot, verdict in zip(spots, verdicts) if verdict in MARKED]
    lines = [
        f'<line class="{kind}" x1="{PAD}" x2="{WIDTH - PAD}" y1="{height(value):.1f}" '
        f'y2="{height(value):.1f}"/>'
        for kind, value in levels
    ]
    label = f"{title_of(series)}: {', '.join(number(v.value) for v in series.values[-8:])}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img">'
        f"<title>{html.escape(label)}</title>"
        f'<polyline points="{line}"/>{"".join(lines)}{dot("last", *spots[-1])}{"".join(dots)}'
        "</svg>"
    )


def change(series):
    """The change of the last value from the one before, in words and colour."""
    if len(series.values) < 2:
        return ""
    before, after = series.values[-2].value, series.last
    ratio = series.worsening(before, after)
    if ratio is None:
        return ""
    threshold = 1 + comparison.THRESHOLD
    kind = "worse" if ratio > threshold else "better" if ratio < 1 / threshold else "soft"
    return f' <span class="{kind}">{(after / before - 1) * 100:+.1f} %</span>'


def facts(series):
    """Floor, limit and target of the last value."""
    parts = ["less is better" if series.smaller else "more is better"]
    share = series.share_of_floor()
    if share is not None:
        parts.append(f"floor {number(series.floor)}, {share:.0%} of it reached")
    if series.must is not None:
        parts.append(f"limit {number(series.must)}")
    if series.aim is not None:
        parts.append(f"target {number(series.aim)}")
    if series.note:
        parts.append(series.note)
    return " · ".join(parts)


def table(series):
    """The values with their commits, for those who cannot point at a line."""
    if len(series.values) < 2:
        value = series.values[0]
        return f'<p class="small">{html.escape(stamp(value))}</p>'
    rows = "".join(
        f"<tr><td>{html.escape(stamp(v))}</td><td>{number(v.value)}</td></tr>"
        for v in reversed(series.values[-40:])
    )
    count = len(series.values)
    return (f'<details class="small"><summary class="soft">{count} results</summary>'
            f"<table>{rows}</table></details>")


def stamp(value):
    star = "*" if value.modified else ""
    return f"{value.date} {value.commit or 'not committed'}{star}".strip()


def badges(series, verdict):
    out = ""
    if verdict in MARKED:
        out += f' <span class="badge {verdict}">{verdict}</span>'
    if series.missed():
        out += ' <span class="badge">beyond its limit</span>'
    return out


def figure_block(series, title):
    verdicts = series.verdicts()
    kinds = {"is-changed": verdicts[-1] in MARKED, "is-worse": verdicts[-1] == "worse",
             "is-missed": series.missed()}
    classes = " ".join(["figure", *(name for name, holds in kinds.items() if holds)])
    unit = f" {html.escape(series.unit)}" if series.unit else ""
    return (
        f'<div class="{classes}" id="{anchor(series)}"><div>'
        f'<span class="name">{html.escape(title)}{badges(series, verdicts[-1])}</span>'
        f'<span class="value">{number(series.last)}{unit}{change(series)}</span></div>'
        f'<div class="soft small">{html.escape(facts(series))}</div>'
        f"{plot(series, verdicts)}{table(series)}</div>"
    )


def grouped(items, key):
    out = {}
    for item in items:
        out.setdefault(key(item), []).append(item)
    return out


def area_block(place, area, in_area):
    """An area's figures. Those of one point of a benchmark stand together, below its name."""
    parts = [f'<details class="area group" open id="{slug(place, area)}">'
             f'<summary><h3>{html.escape(area)}</h3> <span class="soft">{len(in_area)}</span>'
             "</summary>"]
    for point, figures in grouped(in_area, lambda s: (s.name, s.label) if s.figure else ()).items():
        parts.append('<div class="group">')
        if point:
            parts.append(f"<p>{html.escape(' · '.join(filter(None, point)))}</p>")
        parts.append('<div class="figures">')
        parts += [figure_block(s, s.figure or s.name) for s in figures]
        parts.append("</div></div>")
    parts.append("</details>")
    return "".join(parts)


def in_order(areas):
    known = [name for name, _ in results.AREAS]
    return sorted(areas, key=lambda a: known.index(a) if a in known else len(known))


def links(found):
    return " ".join(f'<a href="#{anchor(s)}">{html.escape(title_of(s))}</a>' for s in found)


def navigation(by_place):
    lines = []
    for place, in_place in by_place.items():
        areas = grouped(in_place, lambda s: s.area)
        targets = " ".join(f'<a href="#{slug(place, area)}">{html.escape(area)}</a>'
                           for area in in_order(areas))
        lines.append(f"<div><b>{html.escape(place)}</b><br/>{targets}</div>")
    return f"<nav>{''.join(lines)}</nav>" if lines else ""


def attention(all_series):
    """The figures that a reader should look at first."""
    worse = [s for s in all_series if s.verdicts()[-1] == "worse"]
    missed = [s for s in all_series if s.missed()]
    lines = []
    if worse:
        lines.append(f'<div><b class="worse">Worse than before:</b> {links(worse)}</div>')
    if missed:
        lines.append(f'<div><b class="worse">Beyond a limit:</b> {links(missed)}</div>')
    if not lines:
        return "<p>No figure is worse or beyond a limit.</p>"
    return f"<nav>{''.join(lines)}</nav>"


def introduction(all_series):
    count = sum(len(s.values) for s in all_series)
    commits = {v.commit for s in all_series for v in s.values if v.commit}
    dates = [v.date for s in all_series for v in s.values if v.date]
    last = f", the last of {max(dates)}" if dates else ""
    return (
        f"<p>{count} results of {len(all_series)} figures from {len(commits)} commits{last}. A "
        "line runs from zero; its last dot is the value beside its name, with the change since the "
        "result before. Dashed lines are the floor (green) and the limit (red). A badge says "
        '"worse" or "better" if the value differs from those before by more than 5 % and more than '
        "their own spread explains; whether a commit is the cause, only bench/compare can tell. "
        "* marks a modified tree.</p>"
    )


def filters():
    return "".join(
        f'<input type="radio" name="show" id="{key}"{" checked" if key == "all" else ""}/>'
        f'<label for="{key}">{text}</label>'
        for key, text in FILTERS
    )


def render(all_series):
    """The page, whole."""
    by_place = grouped(all_series, lambda s: s.place)
    parts = []
    for place, in_place in by_place.items():
        parts.append(f'<section class="group"><h2>{html.escape(place)}</h2>')
        areas = grouped(in_place, lambda s: s.area)
        parts += [area_block(place, area, areas[area]) for area in in_order(areas)]
        parts.append("</section>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Quire: results over commits</title><style>{STYLE}</style></head><body>"
        f"<h1>Results over commits</h1>{introduction(all_series)}{attention(all_series)}"
        f"{navigation(by_place)}{filters()}<main>" + "\n".join(parts) + "</main></body></html>\n"
    )
