#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of the source tree that a compiler does not make.

Usage: lint.py [--compile CC] [CHECK ...]
Prints `ok NAME`, `not ok NAME` with reasons, or `skip NAME`, and a last line
`N passed, N failed, N skipped`. Exit code 0 when nothing failed.
"""
import os
import re
import shutil
import subprocess
import sys
import unittest

import doc_links
import layers
import openapi
import plain
import requests_doc
import tests_by_path

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Outside header -> the one folder (or file) that may include it.
ONE_INCLUDER = {
    r"mpi\.h": "common/cluster/",
    r"nng/.*": "common/link/",
    r"sodium\.h": "common/crypt/key.c",
    r"munge\.h": "common/crypt/key.c",
    r"msgpack\.h": "common/wire/",
    r"uc[pst]/.*": "kvtransfer/kvt_ucx_priv.h",
    r"cuda.*\.h|nccl\.h": ("kernels/cuda/", "bench/_gpu_peer.cu"),
    r"cublasLt\.h": "bench/_gpu_peer.cu",
    r"xxhash\.h": "common/base/hash.c",
    r"curl/": "router/otlp/client.c",
    r"zlib\.h": "common/zip/zip.c",
    r"event2/.*": ("router/net/", "router/triton/model_control.c", "router/launcher_client.c", "router/worker_links.c", "router/loop.c"),
    r"openssl/.*": ("router/net/tls.c", "bench/_router_load.c"),
    r"nghttp2/.*": "router/grpc/h2.c",
    r"protobuf-c/.*|.*\.pb-c\.h": "router/grpc/",
    r"cmocka\.h": ("tests/support/", "tests/simt/test_"),
}
BANNED = re.compile(r"(?<![\w.>])(strcpy|strcat|sprintf|vsprintf|atoi|atol|atof|strtok|gets|alloca)\s*\(")
# Where users' names are looked for, and what is measured or written by others.
TEXTS = (".c", ".h", ".cu", ".cc", ".py", ".sh", ".bash", ".sbatch", ".md", ".js", ".json", ".yml", ".yaml", ".1", ".5", ".conf",
         ".service", ".build", "baton", "baton-health")
NOT_OURS = ("tests/golden/", "tests/bench/", "docs/adr/")
MAX_FUNCTION_LINES = 120
MAX_COMPLEXITY = 20
MAX_FILE_LINES = 900


def tracked(*suffixes):
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
                         check=True, capture_output=True, text=True).stdout
    return [p for p in out.split("\n") if p.endswith(suffixes) and os.path.exists(os.path.join(ROOT, p))]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def sources():
    return tracked(".c", ".h", ".cu", ".cc")


def product():
    return [p for p in sources() if not p.startswith("tests/")]


def check_spdx():
    bad = []
    for path in tracked(".c", ".h", ".cu", ".cc", ".py", ".sh", ".js", ".css", ".html", "meson.build"):
        head = read(path)[:200]
        if path.endswith("meson.build") and len(read(path).split("\n")) < 15:
            continue
        if "SPDX-License-Identifier: Apache-2.0" not in head:
            bad.append(f"{path}: no SPDX line")
    return bad


def check_banned_calls():
    bad = []
    for path in sources():
        text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), read(path), flags=re.S)
        text = re.sub(r'"(\\.|[^"\\])*"', '""', text)
        for i, line in enumerate(text.split("\n"), 1):
            if BANNED.search(line):
                bad.append(f"{path}:{i}: banned call: {line.strip()}")
    return bad


def check_formats():
    """64 bits are printed by PRIu64 and its kind."""
    return [f"{path}:{i}: PRIu64 in place of %llu" for path in product() for i, line in enumerate(read(path).split("\n"), 1)
            if re.search(r'"[^"]*%[-+ #0-9.*]*ll[dioux]', line) and "scanf" not in line]


def check_one_includer():
    bad = []
    for path in sources():
        for inc in layers.includes(read(path)):
            for pattern, owners in ONE_INCLUDER.items():
                owners = (owners,) if isinstance(owners, str) else owners
                if re.fullmatch(pattern, inc) and not path.startswith(owners) and not path.startswith("tests/"):
                    bad.append(f"{path} includes {inc}, which only {', '.join(owners)} may")
    return bad


def read_layers():
    return layers.Layers({p: read(p) for p in product() + tracked("meson.build")})


def check_directions():
    return layers.directions(read_layers())


def check_unused_deps():
    return layers.unused(read_layers())


def check_links():
    return layers.links(read_layers())


def check_libraries():
    return layers.libraries(read_layers())


def check_openapi():
    return openapi.check(read("docs/openapi.json"), read("router/http/routes.c"),
                         read("router/api/api_fields.c"),
                         read("router/api/api.h") + read("common/wire/request.h"))


def check_requests_doc():
    return requests_doc.check(*(read(p) for p in (requests_doc.PAGE, requests_doc.OPENAPI, requests_doc.MODELS)))


def check_retired_names():
    return plain.retired_names(read(plain.RENAMED), tracked(""), {p: read(p) for p in sources()})


def check_retired_options():
    """And metrics, alerts and all else that users see."""
    texts = {p: read(p) for p in tracked(*TEXTS) if not p.startswith(NOT_OURS) and not os.path.islink(os.path.join(ROOT, p))}
    return plain.retired_by_users(read(plain.RENAMED), texts)


def check_help():
    return plain.long_help(read(plain.OPTIONS))


def check_doc_comments():
    return plain.dangling({p: read(p) for p in product()})


def check_commit_subjects():
    """Subjects of the last commits have at most 72 characters."""
    log = subprocess.run(["git", "log", "-3", "--no-merges", "--format=%h %s"], cwd=ROOT, capture_output=True, text=True)
    rows = [line.split(" ", 1) for line in log.stdout.splitlines()]  # none where there is no history
    return [f"{commit}: the subject has {len(subject)} characters: {subject}" for commit, subject in rows if len(subject) > 72]


def check_overloaded_words():
    """Identifiers with lane, window, group, room or place in another meaning than the one that is left."""
    return plain.overloaded({p: read(p) for p in product()})


def integration_tests():
    return [name for path in tracked(".py") if path.startswith("tests/integration/test_") for name in re.findall(r"^def (test_\w+)", read(path), re.M)]


def check_doc_links():
    """Links of the documents, the files that maps of the tree name, and the words to grep for in them."""
    pages = {p: read(p) for p in tracked(".md")}
    return (doc_links.broken_links(pages, lambda path: os.path.exists(os.path.join(ROOT, path))) +
            doc_links.missing_files(pages, tracked("")) + doc_links.greps_without_match(pages, read) +
            doc_links.tests_without_match(pages, integration_tests()))


def check_tests_by_path():
    """A source without a test beside its path in tests/unit."""
    return tests_by_path.check(tracked(""), read(tests_by_path.LIST))


def check_named_tests():
    """Tests that the stages name are there."""
    there = {name for path in tracked("meson.build") if path.startswith("tests/unit/")
             for name in re.findall(r"^(?:  |test\()'(\w+)'[:,]", read(path), re.M)}
    lists = re.search(r"^threaded_tests=\((.*?)\)", read("setup/test.sh"), re.M | re.S)[1].split()
    lists += re.findall(r"'(\w+)'", re.search(r"^long_tests = \[(.*?)\]", read("tests/unit/meson.build"), re.M | re.S)[1])
    return [f"no unit test is called {name}: setup/test.sh or tests/unit/meson.build" for name in lists
            if name not in there]


def check_itself():
    """The tests of the checks above."""
    found = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromNames(["test_doc_links", "test_layers", "test_openapi", "test_plain", "test_requests_doc",
                                                     "test_tests_by_path", "test_tidy"]).run(found)
    bad = [f"{test.id()}: {text.strip().splitlines()[-1]}" for test, text in found.failures + found.errors]
    return bad if found.testsRun else ["no test of the checks was found"]


def check_pure():
    return layers.impure({p: read(p) for p in product()})


def check_file_length():
    bad = []
    for path in sources():
        n = read(path).count("\n")
        if n > MAX_FILE_LINES and "_table" not in path:
            bad.append(f"{path}: {n} lines; one concept per file, at most {MAX_FILE_LINES}")
    return bad


def check_functions():
    if shutil.which("pmccabe") is None:
        return None
    files = [p for p in product() if p.endswith(".c")]
    out = subprocess.run(["pmccabe"] + files, cwd=ROOT, capture_output=True, text=True).stdout
    bad = []
    for line in out.split("\n"):
        parts = line.split("\t")
        if len(parts) < 6:
            continue
        # modified complexity, complexity, statements, first line, lines, name
        complexity, n_lines = int(parts[0]), int(parts[4])
        if n_lines > MAX_FUNCTION_LINES or complexity > MAX_COMPLEXITY:
            bad.append(f"{parts[5]}: {n_lines} lines, complexity {complexity}")
    return bad


def check_headers_alone():
    cc = shutil.which("gcc") or shutil.which("cc")
    if cc is None:
        return None
    bad = []
    flags = ["-std=gnu17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I.", "-fsyntax-only", "-x", "c"]
    # Kernels, and the machine that runs them.
    cxx = ["-std=c++17", "-DBT_SIMT", "-Wall", "-Wextra", "-I.", "-Itests/simt", "-fsyntax-only", "-x", "c++"]
    in_c = ("kernels/cuda/cuda.h", "tests/simt/faults.h")
    cxx_headers = [p for p in tracked(".h") if p.startswith(("kernels/cuda/", "tests/simt/")) and p not in in_c]
    mpi = subprocess.run(["pkg-config", "--cflags", "ompi-c", "ucx"], capture_output=True, text=True)
    flags += mpi.stdout.split() if mpi.returncode == 0 else []
    for path in [p for p in sources() if p.endswith(".h") and "kernels/cpu/" not in p]:
        run = subprocess.run([cc] + (cxx if path in cxx_headers else flags) + ["-"], cwd=ROOT, capture_output=True, text=True,
                             input=f'#include "{path}"\n#include "{path}"\n')
        if run.returncode != 0:
            bad.append(f"{path} does not compile alone: {run.stderr.strip().splitlines()[0]}")
    return bad


def check_format():
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    if tool is None:
        return None
    run = subprocess.run([tool, "--dry-run", "-Werror"] + sources(), cwd=ROOT, capture_output=True, text=True)
    names = sorted({line.split(":")[0] for line in run.stderr.split("\n") if "error:" in line})
    return [f"{n}: run clang-format -i" for n in names]


def check_spelling():
    if shutil.which("codespell") is None:
        return None
    files = [p for p in tracked(".c", ".h", ".cu", ".cc", ".md", ".py", ".sh") if "golden" not in p and "corpus" not in p]
    run = subprocess.run(["codespell", "-L", "fo,te,nd,fpr,hel,ot,ue,numer,ans,aks,crate,unparseable,inout,afterall,inflight,temprature,thi,strat", *files],
                         cwd=ROOT, capture_output=True, text=True)
    return [line for line in run.stdout.split("\n") if line]


def check_todo():
    bad = []
    for path in sources():
        for i, line in enumerate(read(path).split("\n"), 1):
            if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line) and not re.search(r"TODO\(#\d+\)", line):
                bad.append(f"{path}:{i}: a TODO needs an issue number")
    return bad


def check_large_files():
    bad = []
    for path in tracked(""):
        size = os.path.getsize(os.path.join(ROOT, path))
        if size > 1000000:
            bad.append(f"{path}: {size} bytes; no models, traces or binaries here")
    return bad


def main():
    checks = {name[6:]: fn for name, fn in globals().items() if name.startswith("check_")}
    wanted = sys.argv[1:] or list(checks)
    passed = failed = skipped = 0
    for name in wanted:
        reasons = checks[name]()
        if reasons is None:
            skipped += 1
            print(f"skip lint-{name}: its tool is not installed")
        elif reasons:
            failed += 1
            print(f"not ok lint-{name}")
            for reason in reasons:
                print(f"    {reason}")
        else:
            passed += 1
            print(f"ok lint-{name}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
