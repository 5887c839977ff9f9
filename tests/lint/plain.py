# SPDX-License-Identifier: Apache-2.0
"""Names that are retired, and doc comments that cannot be read alone."""
import re

RENAMED = "docs/RENAMED.md"
ROW = re.compile(r"\| (file|prefix|symbol) \| `([^`]+)` \|")
NAME = re.compile(r"[A-Za-z_]\w*")
DOC = re.compile(r"/\*\*<?(?!\*)\s*(?:@file \S+\s*)?((?:.|\n)*?)\*/")
# A reader of one comment does not see the one before: it says what it speaks of.
DANGLING = re.compile(r"(?:\s*\*\s*)*(the same|it|its|of|what|who|whose|whoever|those|they|them|theirs|likewise|as above)\b",
                      re.I)


def retired(page):
    """@return {kind: names} of the page's table"""
    names = {"file": set(), "prefix": set(), "symbol": set()}
    for kind, name in ROW.findall(page):
        names[kind].add(name.rstrip("*"))
    return names


def retired_names(page, paths, texts):
    """paths: of all files; texts: {path: text} of C"""
    names = retired(page)
    bad = [f"{path}: {RENAMED} retired this name of a file" for path in paths if path.rsplit(".", 1)[0] in names["file"]]
    prefixes = tuple(sorted(names["prefix"]))
    for path, text in texts.items():
        for n, line in enumerate(text.split("\n"), 1):
            for word in NAME.findall(line):
                if word in names["symbol"] or word.startswith(prefixes):
                    bad.append(f"{path}:{n}: {RENAMED} retired {word}")
    return bad


def dangling(texts):
    """texts: {path: text} of C"""
    bad = []
    for path, text in texts.items():
        for doc in DOC.finditer(text):
            word = DANGLING.match(doc[1])
            if word:
                line = text.count("\n", 0, doc.start()) + 1
                bad.append(f'{path}:{line}: a doc comment that begins with "{word[1]}" cannot be read alone')
    return bad
