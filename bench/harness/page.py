"""The page of results over commits: one HTML file, no script, no network, readable on a phone.

Built from bench/results/history: a line for each judged figure, by machine, in order of commits.
"""

import html
import json

from . import comparison

WIDTH, HEIGHT, PAD = 260, 44, 4

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #667080; --line: #d9dee5; --mark: #2563c9;
  --bad: #b42318; --good: #1a7f4b; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #98a2b3; --line: #333a45;
  --mark: #7aa7f7; --bad: #f2867c; --good: #6fcf97; --paper: #14171c; } }
body { font: 16px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 0 auto; max-width: 62rem; padding: 1rem; }
h1 { font-size: 1.4rem; margin: .2rem 0; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .2rem; }
p, .soft { color: var(--soft); margin: .2rem 0; font-size: .9rem; }
details { border-top: 1px solid var(--line); padding: .5rem 0; }
summary { cursor: pointer; font-weight: 600; padding: .3rem 0; }
.figures { display: grid; gap: .9rem 1.5rem; margin: .5rem 0 1rem;
  grid-template-columns: repeat(auto-fill, minmax(16rem, 1fr)); }
.figure > div { display: flex; justify-content: space-between; gap: .5rem; }
.name { overflow-wrap: anywhere; }
.value { font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { width: 100%; height: 44px; display: block; }
polyline { fill: none; stroke: var(--mark); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
polyline.last { stroke-width: 6; stroke-linecap: round; }
.worse { color: var(--bad); } .better { color: var(--good); }
"""


def number(value):
    """Three or four digits, as one reads them."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6:
        return f"{value / 1e6:.4g} M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def read(folder):
    """Every result of the history, oldest commit first; a commit's last result of a day counts."""
    entries = []
    for path in sorted(folder.glob("*/*/*.json")):
        entry = json.loads(path.read_text())
        for key in ("name", "size", "date", "commit", "machine", "points"):
            if key not in entry:
                raise ValueError(f"{path}: no {key!r}: not a result of bench/run")
        entries.append(entry)
    entries.sort(key=lambda e: (e.get("commit_date") or e["date"], e["date"]))
    return entries


def place(entry):
    """The facts that two comparable figures share: the machine, the size and the model."""
    machine = entry["machine"]
    gpus = machine.get("gpus")
    where = f"{len(gpus)} × {gpus[0].split(',')[0]}" if gpus else machine["cpu"]
    return f"{where}, {machine['cores']} cores · size {entry['size']} · {entry.get('model', '')}"


def series(entries):
    """{place: {name: {label: {figure: [(commit, value)]}}}} in the order of entries."""
    out = {}
    for entry in entries:
        by_label = out.setdefault(place(entry), {}).setdefault(entry["name"], {})
        commit = entry["commit"] + ("*" if entry.get("modified") else "")
        for point in entry["points"]:
            for figure, value in point["figures"].items():
                values = by_label.setdefault(point["label"], {}).setdefault(figure, [])
                values.append((commit, value))
    return out


def plot(values):
    """A line from zero up, with a dot at the last value; the commits are its title. Empty for a
    single value."""
    if len(values) < 2:
        return ""
    top = max(max(v for _, v in values), 1e-12)
    step = (WIDTH - 2 * PAD) / max(len(values) - 1, 1)
    spots = [
        (PAD + step * i, HEIGHT - PAD - (HEIGHT - 2 * PAD) * max(v, 0) / top)
        for i, (_, v) in enumerate(values)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    last = "{:.1f},{:.1f}".format(*spots[-1])
    title = "\n".join(f"{commit}: {number(v)}" for commit, v in values[-20:])
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img">'
        f"<title>{html.escape(title)}</title>"
        f'<polyline points="{line}"/><polyline class="last" points="{last} {last}"/>'
        "</svg>"
    )


def change(figure, values):
    """The change of the last value from the one before, in words and colour."""
    if len(values) < 2:
        return ""
    ratio = comparison.worsening(figure, values[-2][1], values[-1][1])
    if ratio is None:
        return ""
    threshold = 1 + comparison.THRESHOLD
    kind = "worse" if ratio > threshold else "better" if ratio < 1 / threshold else "soft"
    percent = (values[-1][1] / values[-2][1] - 1) * 100
    return f' <span class="{kind}">{percent:+.1f} %</span>'


def figure_block(figure, values):
    better = "less" if comparison.smaller_is_better(figure) else "more"
    return (
        f'<div class="figure"><div><span class="name">{html.escape(figure.replace("_", " "))} '
        f'<span class="soft">{better} is better</span></span>'
        f'<span class="value">{number(values[-1][1])}{change(figure, values)}</span></div>'
        f"{plot(values)}</div>"
    )


def render(entries):
    """The page, whole."""
    parts = []
    for where, by_name in series(entries).items():
        parts.append(f"<h2>{html.escape(where)}</h2>")
        for name, by_label in sorted(by_name.items()):
            parts.append(f"<details open><summary>{html.escape(name)}</summary>")
            for label, by_figure in by_label.items():
                parts.append(f"<p>{html.escape(label)}</p><div class='figures'>")
                parts += [figure_block(f, values) for f, values in by_figure.items()]
                parts.append("</div>")
            parts.append("</details>")
    last = entries[-1] if entries else {"date": "", "commit": ""}
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Quire: results over commits</title><style>{STYLE}</style></head><body>"
        "<h1>Results over commits</h1>"
        f"<p>{len(entries)} results, the last of {html.escape(last['date'][:10])} at commit "
        f"{html.escape(last['commit'])}. A line runs from zero; its last dot is the value beside "
        "its name, with the change since the result before. What is noise, and what is not, only "
        "bench/compare can tell. * marks a modified tree.</p>"
        + "\n".join(parts)
        + "</body></html>\n"
    )
