# SPDX-License-Identifier: Apache-2.0
"""The page of `./baton bench all`: one file that asks for nothing, with no script. Its style is named by its hash, so that
nothing else can add one (Content-Security-Policy)."""
import base64
import hashlib
import html
import os
import xml.etree.ElementTree as ElementTree

from _shared import BUSY_PERCENT, charts

SVG = "http://www.w3.org/2000/svg"
# What a figure may be made of (tools/cli/charts.py).
ELEMENTS = {f"{{{SVG}}}{name}" for name in ("svg", "title", "desc", "style", "g", "rect", "line", "polyline", "path", "circle", "text")}
STATUS = {"ok": "ran", "failed": "failed", "skipped": "could not run", "interrupted": "interrupted"}

STYLE = charts.STYLE + """
:root{color-scheme:light dark;--ink:#1f2328;--soft:#596069;--paper:#fff;--line:#dfe3e8;--code:#f4f6f8;--link:#1f6fc4;--good:#1a7a48;--bad:#c4323f}
@media (prefers-color-scheme:dark){:root{--ink:#e8eaed;--soft:#a5adb7;--paper:#14171c;--line:#2d333b;--code:#1d2127;--link:#5aa4f0;--good:#4fc487;--bad:#f47a80}}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:932px;margin:0 auto;padding:16px}
h1{font-size:1.6rem;margin:.6em 0 .2em}h2{font-size:1.25rem;margin:2.2em 0 .2em;padding-top:.6em;border-top:1px solid var(--line)}
p{margin:.3em 0}a{color:var(--link)}:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.soft{color:var(--soft)}.skip{position:absolute;left:-99em}.skip:focus{position:static}
table{border-collapse:collapse;width:100%;margin:.6em 0}caption{text-align:left;font-weight:600;padding:.3em 0}
th,td{text-align:left;vertical-align:top;padding:.25em .8em .25em 0;border-bottom:1px solid var(--line);overflow-wrap:anywhere}th[scope=row]{font-weight:500;white-space:nowrap}
thead th{white-space:nowrap}td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.ok{color:var(--good)}.failed,.interrupted{color:var(--bad)}.skipped{color:var(--soft)}
figure{margin:.8em 0}figure svg{max-width:100%;height:auto;border:1px solid var(--line);border-radius:6px}
pre{background:var(--code);padding:.8em;overflow-x:auto;font-size:.8rem;line-height:1.35;border-radius:6px}
code{font-size:.88em;overflow-wrap:anywhere}
@media print{figure,pre{break-inside:avoid}}
"""


def digest():
    return base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()


def escape(value):
    return html.escape(str(value))


def drawing(path):
    """@return the figure as elements of the page, without its own style, which the page has; or why there is none"""
    try:
        root = ElementTree.parse(path).getroot()
    except FileNotFoundError:
        return '<p class="soft">It drew no figure.</p>'
    except (OSError, ElementTree.ParseError) as error:
        return f'<p class="failed">Its figure cannot be read: {escape(error)}</p>'
    strange = [e.tag for e in root.iter() if e.tag not in ELEMENTS]
    strange += [a for e in root.iter() for a in e.attrib if a.startswith("on") or a.endswith("href") or a == "style"]
    if root.tag != f"{{{SVG}}}svg" or strange:
        return f'<p class="failed">Its figure is not one of tools/cli/charts.py: {escape(", ".join(strange[:3]) or root.tag)}</p>'
    for style in root.findall(f"{{{SVG}}}style"):
        root.remove(style)
    for e in root.iter():
        e.tag = e.tag.removeprefix(f"{{{SVG}}}")
    return f"<figure>{ElementTree.tostring(root, encoding='unicode', short_empty_elements=False)}</figure>"


def contents(path, most=200_000):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read(most)
    except OSError:
        return ""


def block(name, what, text):
    """A table as it was printed. It scrolls by the keyboard too."""
    return f'<pre tabindex="0" role="region" aria-label="{escape(name)}: {what}">{escape(text.rstrip())}</pre>'


def rows(caption, pairs):
    body = "".join(f'<tr><th scope="row">{escape(k)}</th><td>{escape(v)}</td></tr>' for k, v in pairs)
    return f"<table><caption>{caption}</caption><tbody>{body}</tbody></table>"


def state(entry):
    return f'<span class="{escape(entry["status"])}">{STATUS.get(entry["status"], escape(entry["status"]))}</span>'


def notes(entry, report):
    """What must be known of its figures."""
    figures = entry["figures"] or {}
    if entry["why"]:
        yield f"Why: {entry['why']}"
    for peer in entry["without"]:
        yield f"Without {peer['name']}, which is not here: {peer['how']}."
    if figures.get("busy") or figures.get("cpu_others_percent", 0) > BUSY_PERCENT:
        yield "Other programs were running: its figures are not to be quoted."
    if entry.get("tree") != report["tree"]:
        yield f"Of an earlier run, {entry['begun']}: commit {entry.get('commit', 'unknown')}."
    if entry.get("quick") != report["quick"]:
        yield "With its shortest settings." if entry.get("quick") else "With its whole settings."


def section(entry, report, folder):
    name = escape(entry["name"])
    out = [f'<section aria-labelledby="{name}"><h2 id="{name}">{name}</h2>', f"<p>{escape(entry['question'])}</p>",
           f"<p>{state(entry)}, {entry['seconds']:.0f} s: <code>./baton bench {name} {escape(' '.join(map(repr_word, entry['options'])))}</code></p>"]
    out += [f"<p>{escape(note)}</p>" for note in notes(entry, report)]
    if entry["status"] == "ok":
        out.append(drawing(os.path.join(folder, entry["name"] + ".svg")))
    table = contents(os.path.join(folder, entry["name"] + ".txt"))
    if table:
        out.append(block(entry["name"], "table", table))
    log = contents(os.path.join(folder, entry["name"] + ".log"))[-4000:]
    if log and entry["status"] != "ok":
        out.append(f"<details><summary>The end of its log</summary>{block(entry['name'], 'log', log)}</details>")
    there = [kind for kind in ("txt", "json", "svg", "log") if os.path.exists(os.path.join(folder, f"{entry['name']}.{kind}"))]
    out.append('<p class="soft">Files: ' + ", ".join(f'<a href="{name}.{k}">{name}.{k}</a>' for k in there) + "</p></section>")
    return "\n".join(out)


def repr_word(word):
    return word if word and " " not in word else f'"{word}"'


def summary(report):
    body = "".join(f'<tr><th scope="row"><a href="#{escape(e["name"])}">{escape(e["name"])}</a></th><td>{state(e)}</td>'
                   f'<td class="n">{e["seconds"]:.0f}</td><td>{escape(e["why"] or e["question"])}</td></tr>' for e in report["benches"])
    return ('<table><caption>Benchmarks</caption><thead><tr><th scope="col">name</th><th scope="col">how it went</th>'
            f'<th scope="col">seconds</th><th scope="col">what it asks, or why it has no answer</th></tr></thead><tbody>{body}</tbody></table>')


def page(report, folder):
    """@return the text of index.html"""
    dirty = ", with changes that are in no commit" if report["dirty"] else ""
    told = [f"Commit {report['commit']}{dirty}; {report['date']}."]
    if report["quick"]:
        told.append("Shortest settings: that all of it runs, not how quick it is.")
    if report["interrupted"]:
        told.append("It was interrupted; the same command goes on from here.")
    policy = f"default-src 'none'; style-src 'sha256-{digest()}'; base-uri 'none'; form-action 'none'"
    peers = [(name, version or "not here") for name, version in report["peers"].items()]
    lost = [e for e in report["benches"] if e["status"] != "ok"]
    missing = rows("What did not run, and why", [(e["name"], f"{STATUS.get(e['status'], e['status'])}: {e['why']}") for e in lost]) if lost else ""
    return "\n".join([
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">',
        f"<title>Baton: benchmarks at {escape(report['commit'])}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
        '<a class="skip" href="#report">To the report</a>\n<main id="report">\n<h1>Baton: benchmarks</h1>',
        "".join(f'<p class="soft">{escape(words)}</p>' for words in told), summary(report), missing,
        rows("Machine", report["machine"].items()), rows("Peers and tools", peers),
        *(section(e, report, folder) for e in report["benches"]), "</main>\n</body>\n</html>\n"])
