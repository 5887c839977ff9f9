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
