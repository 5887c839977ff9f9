#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How large the source tree is, and how it reads.

Usage: figures.py [REVISION ...]

One column for each git revision, and one for the working tree. Product code is all C outside tests/.
"""
import os
import re
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
C = (".c", ".h", ".cu", ".cuh", ".cc")
# The objects that a chat request is handed through in the router.
PATH_OF_A_REQUEST = ("bt_stream", "bt_conn", "bt_exchange", "visit", "bt_visit", "bt_visit_how", "bt_reply", "bt_reply_facts",
                     "bt_call", "bt_call_source", "bt_call_tally", "bt_intake", "bt_answer", "bt_http_request", "bt_row", "bt_input",
                     "bt_request_facts", "bt_request_job", "bt_api_request", "bt_prepared", "bt_prompt",
                     "bt_choice", "choice", "bt_gen_spec", "bt_gen", "bt_attempt", "bt_leg", "bt_ledger", "bt_record", "bt_request")
LINK = (("common/link/link_priv.h", "bt_link"), ("common/rpc/rpc_inner.h", "bt_rpc_link"))  # now, and before
OPTIONS = "common/config/config_options.h"


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


def tree(revision):
    """@return {path: bytes} of all files of a revision; "": of the working tree"""
    if not revision:
        paths = git("ls-files", "-co", "--exclude-standard").decode().split("\n")
        return {p: open(os.path.join(ROOT, p), "rb").read() for p in paths
                if p and os.path.isfile(os.path.join(ROOT, p))}
    out = {}
    names = [line.split("\t", 1) for line in git("ls-tree", "-r", revision).decode().split("\n") if line]
    blobs = [(meta.split()[2], path) for meta, path in names if meta.split()[1] == "blob"]
    told = subprocess.run(["git", "cat-file", "--batch"], cwd=ROOT, check=True, capture_output=True,
                          input="".join(f"{blob}\n" for blob, _ in blobs).encode()).stdout
    at = 0
    for _, path in blobs:
        end = told.index(b"\n", at)
        size = int(told[at:end].split()[2])
        out[path] = told[end + 1:end + 1 + size]
        at = end + 2 + size
    return out


def members(text, struct):
    """The lines of a structure's body"""
    found = re.search(r"^struct %s \{\n(.*?)^\}|^typedef struct %s \{\n(.*?)^\}" % (struct, struct), text, re.M | re.S)
    return re.sub(r"/\*.*?\*/", "", (found[1] or found[2]) if found else "", flags=re.S).split("\n")


def booleans(lines):
    return sum(len(line.split(",")) for line in lines if re.match(r"\s+bool ", line))


def figures(files):
    product = {p: text.decode("utf-8", "replace") for p, text in files.items() if p.endswith(C) and not p.startswith("tests/")}
    tests = {p: text for p, text in files.items() if p.endswith(C) and p.startswith("tests/")}
    router = "\n".join(text for p, text in product.items() if p.startswith("router/"))
    lengths = sorted(text.count("\n") for text in product.values())
    options = re.search(r"#define BT_CONFIG_N_OPTIONS\s+(\d+)", product.get(OPTIONS, ""))
    return {
        "product C, lines": sum(lengths),
        "product C, files": len(lengths),
        "median lines of a file": int(statistics.median(lengths)),
        "files under 100 lines": sum(n < 100 for n in lengths),
        "tests in C, lines": sum(text.count(b"\n") for text in tests.values()),
        "top-level folders": len({p.split("/")[0] for p in files if "/" in p and not p.startswith(".")}),
        "structs on the path of a request": sum(bool(re.search(r"^(?:typedef )?struct %s \{" % s, router, re.M))
                                                for s in PATH_OF_A_REQUEST),
        "booleans in a control link": max(booleans(members(product.get(path, ""), struct)) for path, struct in LINK),
        "options in the table": int(options[1]) if options else 0,
    }


def main():
    columns = [(r[:12], figures(tree(r))) for r in sys.argv[1:]] + [("now", figures(tree("")))]
    print(" " * 34 + "".join(f"{name:>14}" for name, _ in columns))
    for row in columns[0][1]:
        print(f"{row:34}" + "".join(f"{told[row]:14,}" for _, told in columns))


if __name__ == "__main__":
    main()
