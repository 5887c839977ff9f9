# SPDX-License-Identifier: Apache-2.0
"""A rolling upgrade from the version before, which is built from this repository's history: with --long only."""
import os
import shutil
import signal
import subprocess
import tempfile

from fleet import Fleet, Load
from harness import BUILD, PROGRAMS, ROOT, Skip, small_model, wait_until

# The last build before STATS said duty and still_ms, exports said record_runs, and instances had stages.
BEFORE = "d65cdb8f2940fcacbbedfa15f86fecd6ada76be0"


def build_before():
    """@return the build folder of the version before, made once"""
    base = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "baton", "before-" + BEFORE[:12])
    build = os.path.join(base, "build")
    wanted = [PROGRAMS[role] for role in ("router", "prefill", "decode")]
    if all(os.path.exists(os.path.join(build, program)) for program in wanted):
        return build
    if subprocess.run(["git", "-C", ROOT, "cat-file", "-e", BEFORE + "^{commit}"], capture_output=True, check=False).returncode != 0:
        raise Skip(f"the history of this clone does not have {BEFORE[:12]}")
    shutil.rmtree(base, ignore_errors=True)
    os.makedirs(base)
    archive = subprocess.run(["git", "-C", ROOT, "archive", BEFORE], stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", base], input=archive, check=True)
    for command in (["meson", "setup", build, base, "-Dbuildtype=release", "-Dtests=disabled", "-Dcuda=disabled"],
                    ["ninja", "-C", build, *wanted]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return build


def up(fleet, i, role):
    """How many a router sees. By its metrics, which every version has."""
    fleet.metrics_at = fleet.metrics_of[i]
    return fleet.total("baton_workers", role=role, state="up")


def wait_up(fleet, n_prefill, n_decode):
    for i, router in fleet.routers.items():
        if router.alive():
            wait_until(f"router-{i} sees {n_prefill} + {n_decode}", lambda i=i: (
                up(fleet, i, "prefill"), up(fleet, i, "decode")) == (n_prefill, n_decode))


def replace_worker(fleet, name):
    """The new one first, then the old one drains."""
    old = fleet.workers.pop(name)
    fleet.add(old.role)
    wait_up(fleet, *(2 + (role == old.role) for role in ("prefill", "decode")))
    old.kill(signal.SIGTERM)
    fleet.take_away(old)
    wait_up(fleet, 2, 2)


def replace_router(fleet, load, i):
    load.leave(i)
    old = fleet.routers[i]
    old.kill(signal.SIGTERM)
    fleet.take_away(old)
    fleet.add_router(i)
    fleet.read_address(i)
    wait_up(fleet, 2, 2)
    load.come_back()
    load.goes_on()


def test_a_rolling_upgrade_from_the_version_before():
    """Decode workers, prefill workers, routers, as docs/WIRE.md has it, and back again: not one request fails or differs."""
    if not os.environ.get("BATON_LONG"):
        raise Skip("builds the version before; with --long")
    before = build_before()
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            Fleet(small_model(directory), build=before) as fleet:
        fleet.add("prefill", "decode")
        wait_up(fleet, 2, 2)
        with Load(fleet) as load:
            for build in (BUILD, before):
                fleet.build = build
                for role in ("decode", "prefill"):
                    for name in [name for name, worker in fleet.workers.items() if worker.role == role]:
                        replace_worker(fleet, name)
                    load.goes_on()
                for i in range(2):
                    replace_router(fleet, load, i)
        assert not load.failed, load.failed
        print(f"    {sum(load.n_done)} requests, none failed")
