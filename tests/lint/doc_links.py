# SPDX-License-Identifier: Apache-2.0
"""Links of the documents, and the files that they name."""
import os
import re

LINK = re.compile(r"(?<!!)\[[^][]*(?:\[[^][]*\][^][]*)*\]\(([^()\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
HEADING = re.compile(r"^#+ (.*)$", re.M)
PATH = re.compile(r"`([\w./-]+\.(?:c|h|cu|py|sh|md|json|build))`")
# Pages whose files are those of this tree; the first one names some without their folder.
MAPS = ("docs/ARCHITECTURE.md", "README.md", "CONTRIBUTING.md", "docs/TESTING.md", "docs/GLOSSARY.md")


def anchors(text):
    """@return the anchors of a page's headings, as GitHub makes them"""
    found = set()
    for title in HEADING.findall(FENCE.sub("", text)):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
        found.add(re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-"))
    return found


def broken_links(pages, exists):
    """pages: {path: text} of Markdown; exists: whether the tree has a path"""
    bad = []
    for path, text in pages.items():
        for target in LINK.findall(FENCE.sub("", text)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            other = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
            if name and not exists(other):
                bad.append(f"{path}: {target}: no such file")
            elif anchor and other in pages and anchor not in anchors(pages[other]):
                bad.append(f"{path}: {target}: the page has no such heading")
    return bad


def missing_files(pages, paths):
    """Files in backquotes: by their path from the root, or the end of it. paths: of all files"""
    ends = set()
    for p in paths:
        parts = p.split("/")
        ends.update("/".join(parts[k:]) for k in range(len(parts)))
    return [f"{page}: `{name}` is no file of the tree" for page, text in pages.items() if page in MAPS
            for name in PATH.findall(text) if name not in ends and ("/" in name or page == MAPS[0])]


def greps_without_match(pages, read):
    """Rows of tables that say in which files to grep for what, and where none of the files has it. read: text of a path"""
    bad = []
    for page, text in pages.items():
        in_table = False
        for line in text.split("\n"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not line.startswith("|"):
                in_table = False
            elif "`grep` for" in cells:
                in_table = True
            elif in_table and not set(line) <= set("|-: "):
                wanted = re.findall(r"`([^`]+)`", cells[-1])
                files = PATH.findall(cells[-2])
                if not any(all(word in read(name) for word in wanted) for name in files):
                    bad.append(f"{page}: {', '.join(files)}: no {' and '.join(wanted)} there")
    return bad


def tests_without_match(pages, tests):
    """Words of `run.py WORD ...` that no integration test has in its name. tests: names of all"""
    return [f"{page}: run.py has no test whose name has {word}" for page, text in pages.items()
            for words in re.findall(r"run\.py ((?:(?:--[\w-]+|[a-z][a-z_0-9]*) ?)+)`", text)
            for word in words.split() if not word.startswith("--") and not any(word in name for name in tests)]
