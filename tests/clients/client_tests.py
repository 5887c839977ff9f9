# SPDX-License-Identifier: Apache-2.0
"""What the files of clients' tests share: one cluster of the default model for all tests of a file."""
import contextlib
import os
import sys
import time
import traceback

import harness
from harness import Skip


def use_clients_python():
    """Begin again in the Python that has the clients' packages, where another one is named."""
    other = os.environ.get("BATON_CLIENTS_PYTHON", "")
    if other and os.path.realpath(os.path.dirname(other)) != os.path.realpath(os.path.dirname(sys.executable)):
        os.execv(other, [other] + sys.argv)


def under_asan():
    """Options of a cluster whose router runs under ASan, where BATON_BUILD_ASAN names such a build: it ends with another code than 0."""
    build = os.environ.get("BATON_BUILD_ASAN", "")
    if not os.path.exists(os.path.join(build, harness.PROGRAMS["router"])):
        return {}
    return dict(router_build=build, env={"ASAN_OPTIONS": "exitcode=86:detect_leaks=1", "UBSAN_OPTIONS": "halt_on_error=1:exitcode=87"})


def main(members, missing=None, model_of=harness.default_model, **options):
    """Run the functions test_* among `members`, or those that the command line names. missing: why none can run;
    model_of: gives the model's path, None: the tests have clusters of their own; options: of the cluster."""
    use_clients_python()
    wanted = sys.argv[1:]
    tests = [(n, t) for n, t in members.items() if n.startswith("test_") and (
        not wanted or any(w in n for w in wanted))]
    if not tests:
        print("0 passed, 0 failed, 0 skipped")
        return 0
    passed = failed = skipped = 0
    try:
        if missing:
            raise Skip(missing)
        model = model_of() if model_of else None
    except Skip as why:
        print(f"skip: {why}\n0 passed, 0 failed, {len(tests)} skipped")
        return 77
    with harness.Cluster(model, **options) if model else contextlib.nullcontext() as c:
        for name, test in tests:
            start = time.monotonic()
            try:
                test(c)
                passed += 1
                print(f"ok {name} ({time.monotonic() - start:.1f} s)", flush=True)
            except Skip as why:
                skipped += 1
                print(f"skip {name}: {why}", flush=True)
            except Exception:  # pylint: disable=broad-except
                failed += 1
                traceback.print_exc(file=sys.stdout)
                print(f"not ok {name} ({time.monotonic() - start:.1f} s)", flush=True)
        codes = c.stop() if c else {}
        if any(codes.values()):
            failed += 1
            print(f"not ok stop: {codes}\n{c.logs()}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0
