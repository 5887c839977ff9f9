# SPDX-License-Identifier: Apache-2.0
"""Names that are retired, help texts that are too long, and doc comments that cannot be read alone."""
import re

RENAMED = "docs/RENAMED.md"
KINDS_OF_CODE = ("file", "prefix", "symbol")
# What users see: these names are looked for in code, scripts and documentation.
KINDS_OF_USERS = ("option", "metric", "alert", "phase", "command", "log")
ROW = re.compile(r"\| (\w+) \| `([^`]+)` \|")
NAME = re.compile(r"[A-Za-z_]\w*")
DOC = re.compile(r"/\*\*<?(?!\*)\s*(?:@file \S+\s*)?((?:.|\n)*?)\*/")
# A reader of one comment does not see the one before: it says what it speaks of.
DANGLING = re.compile(r"(?:\s*\*\s*)*(the same|it|its|of|what|who|whose|whoever|those|they|them|theirs|likewise|as above)\b",
                      re.I)
OPTIONS = "common/config/config_options.c"
MAX_HELP = 100
OPTION = re.compile(r"^    [A-Z0-9]+\((?:COMMON|ADVANCED|INTERNAL), \"([\w-]+)\"(.*?)\),$", re.M | re.S)
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# Pages that list the old names; other programs whose options have such names.
# Words that had several meanings: the one that is left (docs/GLOSSARY.md), and the files and names that may have it.
ONE_MEANING = {
    "lane": ("an element of a SIMD register, or a thread of a warp", r"kernels/|inference/model/|inference/quantize/|bench/", r""),
    "window": ("the positions that a layer attends to, or HTTP/2's flow control",
               r"common/(config|kv|sched|wire)/|inference/|kernels/|(prefill_|decode_)?worker/|tools/|bench/|"
               r"router/(core|grpc|http/cluster_state|observe|triton|watch)", r""),
    "group": ("layers whose KV has one shape; heads of grouped-query attention; weights of one scale; Triton's instance_group",
              r"common/(kv|sched|wire|cluster)/|inference/|kernels/|kvtransfer/|(prefill_|decode_)?worker/|tools/|bench/",
              r"instance_group|INSTANCE_GROUP|^bt_kv_groups?_|^kv_groups$|InstanceGroup"),
    "room": ("none: a budget, a limit, headroom, or what can be written", r"", r""),
    "place": ("to place a request on workers", r"", r"(^|_)sched_place|SCHED_PLACE|^place$|^place_local$|^in_place$"),
}
MAY_SAY = {"CHANGELOG.md": KINDS_OF_USERS, "docs/RENAMED.md": KINDS_OF_USERS, "tests/lint/plain.py": KINDS_OF_USERS,
           "tests/lint/test_plain.py": KINDS_OF_USERS}
OTHERS = {"--model-name": ("examples/", "tests/clients/test_examples.py"), "--key-file": ("tests/slurm/cluster.sh",)}


def retired(page):
    """@return {kind: names} of the page's table"""
    names = {kind: set() for kind in KINDS_OF_CODE + KINDS_OF_USERS}
    for kind, name in ROW.findall(page):
        if kind in names:
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


def pattern(names):
    """A pattern of names that stand alone: not inside a longer one."""
    found = []
    for name in names:
        before = r"(?<![\w-])" if name.startswith("-") else r"(?<!\w)" if name[0].isalnum() else ""
        after = r"(?![\w-])" if name[-1].isalnum() else ""
        found.append(before + re.escape(name) + after)
    return re.compile("|".join(sorted(found, key=len, reverse=True)))


def retired_by_users(page, texts):
    """texts: {path: text} of code, scripts and documentation"""
    names = set().union(*(retired(page)[kind] for kind in KINDS_OF_USERS))
    bad = []
    for path, text in texts.items():
        if path in MAY_SAY:
            continue
        text = text.replace("\\\\-", "-").replace("\\-", "-")  # as groff writes it
        there = [name for name in names if name in text]  # a pattern of all names takes a hundred times as long
        for found in pattern(there).finditer(text) if there else ():
            if not path.startswith(OTHERS.get(found[0], ("\0",))):
                line = text.count("\n", 0, found.start()) + 1
                bad.append(f"{path}:{line}: {RENAMED} retired {found[0]}")
    return bad


def long_help(table):
    """table: the source of the options"""
    bad = []
    rows = OPTION.findall(table)
    for name, row in rows:
        # The last but one argument is the help; its literals follow each other.
        arguments = re.sub(r'"\s*\n\s*"', "", row)
        texts = LITERAL.findall(arguments)
        if len(texts) < 2 or not texts[-2]:
            bad.append(f"{OPTIONS}: --{name} has no help")
        elif len(texts[-2].replace("\\\\", "\\").replace('\\"', '"')) > MAX_HELP:
            bad.append(f"{OPTIONS}: the help of --{name} has {len(texts[-2])} characters, at most {MAX_HELP}; more is for its details")
    return bad if rows else [f"{OPTIONS}: no option was found"]


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


def overloaded(texts):
    """Identifiers with one of the overloaded words outside its one meaning. texts: {path: text} of C"""
    bad = []
    for path, text in texts.items():
        code = re.sub(r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
        for n, line in enumerate(code.split("\n"), 1):
            for name in NAME.findall("" if line.startswith("#include") else line):
                for part in {part.rstrip("s") for part in name.lower().split("_")} & set(ONE_MEANING):
                    meaning, where, names = ONE_MEANING[part]
                    if not (where and re.match(where, path)) and not (names and re.search(names, name)):
                        bad.append(f"{path}:{n}: {name}: '{part}' is {meaning}")
    return bad
