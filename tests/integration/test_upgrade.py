# SPDX-License-Identifier: Apache-2.0
"""A rolling upgrade to the next version of the protocol and back: with --long only.

The next version is this tree, built with BT_WIRE_TEST_NEXT: it speaks protocol 4 and 5, and its HELLO has one field more."""
import json
import os
import shutil
import signal
import subprocess
import tempfile

from fleet import Fleet, Load
from harness import BUILD, PROGRAMS, ROOT, Skip, small_model, wait_until


def is_of_this_tree(build):
    try:
        with open(os.path.join(build, "meson-info", "meson-info.json"), encoding="utf-8") as f:
            return json.load(f)["directories"]["source"] == ROOT
    except FileNotFoundError:
        return False


def build_next():
    """@return the build folder of the next version, whose objects stay for the next run"""
    build = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "baton", "next")
    commands = [["ninja", "-C", build, *(PROGRAMS[role] for role in ("router", "prefill", "decode"))]]
    if not is_of_this_tree(build):
        shutil.rmtree(build, ignore_errors=True)
        commands.insert(0, ["meson", "setup", build, ROOT, "-Dbuildtype=release", "-Dtests=disabled", "-Dcuda=disabled",
                            "-Dc_args=-DBT_WIRE_TEST_NEXT"])
    for command in commands:
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


def spoken(fleet):
    """@return the protocols of the links that are there: a log has those of the router before, too"""
    last = {(router.name, line.split(" worker ", 1)[1].split()[0]): line.rsplit("protocol ", 1)[1].split(",")[0]
            for router in fleet.routers.values() for line in router.log().splitlines() if " joined: " in line}
    return {last[router.name, worker] for router in fleet.routers.values() for worker in fleet.workers}


def test_rolling_upgrade_to_the_next_protocol_and_back_loses_nothing():
    """Decode workers, prefill workers, routers, as docs/WIRE.md has it, and back again: not one request fails or differs."""
    if not os.environ.get("BATON_LONG"):
        raise Skip("builds the next version; with --long")
    later = build_next()
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Fleet(small_model(directory), build=BUILD) as fleet:
        fleet.add("prefill", "decode")
        wait_up(fleet, 2, 2)
        with Load(fleet) as load:
            for build in (later, BUILD):
                fleet.build = build
                for role in ("decode", "prefill"):
                    for name in [name for name, worker in fleet.workers.items() if worker.role == role]:
                        replace_worker(fleet, name)
                    load.goes_on()
                for i in range(2):
                    replace_router(fleet, load, i)
                assert spoken(fleet) == {"5" if build == later else "4"}, spoken(fleet)
        assert not load.failed, load.failed
        print(f"    {sum(load.n_done)} requests, none failed")
