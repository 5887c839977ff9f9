#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy, with the checks of .clang-tidy, on product sources that a change touches, and on one for each header of it.

Usage: tidy.py BUILD [--all | --since REV]
BUILD is a folder that meson has configured for clang. --since: files that differ from REV (default: HEAD~5), uncommitted ones
included. --all: every product source. Prints what clang-tidy finds. Exit code 0 when it finds nothing.
"""
import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def is_product(path):
    return path.endswith(".c") and not path.startswith(("tests/", "bench/"))


def changed(root, rev):
    """Files of the work tree that differ from `rev`, new ones included; None: there is no such revision."""
    git = ["git", "-C", root]
    diff = subprocess.run(git + ["diff", "--name-only", "--diff-filter=d", rev, "--"], capture_output=True, text=True)
    if diff.returncode != 0:
        return None
    new = subprocess.run(git + ["ls-files", "--others", "--exclude-standard"], capture_output=True, text=True)
    return sorted(set((diff.stdout + new.stdout).split("\n")) - {""})


def includer(header, sources, read):
    """The first of `sources` that includes `header`, by preference one of its folder; None: no source does."""
    line = f'#include "{header}"'
    near = sorted(sources, key=lambda path: (os.path.dirname(path) != os.path.dirname(header), path))
    return next((path for path in near if line in read(path)), None)


def compiled(build):
    """Sources, relative to ROOT, that BUILD compiles."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        return {os.path.relpath(os.path.join(row["directory"], row["file"]), ROOT) for row in json.load(file)}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def run(tool, build, path):
    found = subprocess.run([tool, "-p", build, "--quiet", path], cwd=ROOT, capture_output=True, text=True)
    return found.returncode, found.stdout.strip() or (found.stderr.strip() if found.returncode != 0 else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true")
    which.add_argument("--since", metavar="REV", default="HEAD~5")
    args = parser.parse_args()
    tool = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    if tool is None:
        print("clang-tidy is not installed")
        return 1
    sources = compiled(args.build)
    touched = sources if args.all else changed(ROOT, args.since)
    if touched is None:
        print(f"no revision {args.since}: nothing to compare with")
        return 0
    wanted = {path for path in touched if is_product(path) and path in sources}
    headers = [path for path in touched if path.endswith(".h") and not path.startswith(("tests/", "bench/"))]
    product = [path for path in sources if is_product(path)]
    wanted |= {path for path in (includer(header, product, read) for header in headers) if path}
    n_bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for status, text in pool.map(lambda path: run(tool, args.build, path), sorted(wanted)):
            n_bad += status != 0
            if text:
                print(text)
    print(f"{len(wanted)} files, {n_bad} with findings")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
