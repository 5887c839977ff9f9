#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What this machine can do, and what stands in the way of Baton on it.

  baton doctor [--json] [OPTION]...

OPTION are those of `baton serve` (a --config FILE too): its ports, folders and
interface are looked at. Nothing is changed, nothing has to be built before; where
something is, it is asked what only it knows. What is wrong with the options
themselves, and with a model, is told by `baton check`.

Each line has a level: ok, note, warning (Baton serves, worse than it could) or
problem (it does not start, or does not serve), and where not ok the line that
fixes it.

Exit status: 0, 1 where there are problems, 2 for a mistake in the options.
"""
import json
import os
import sys

from examine import cpu, gpu, kernel, leftovers, limits, memory, network, software, storage
from examine.findings import Findings
from examine.machine import Machine

ROOMS = (cpu, memory, limits, kernel, network, storage, leftovers, software, gpu)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ASK_S = 120
# Without a launcher that knows them all: those that are looked at here.
KNOWN = ("prefill", "decode", "routers", "http", "grpc", "metrics", "kv-net-devices", "kv-transport", "kv-memory", "weight-cache",
         "models-dir", "backend", "core-dumps", "reuse-http-port")


def as_json(text):
    try:
        said = json.loads(text)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def from_launcher(machine, words):
    """The options in force, what is wrong with them, and what its workers would take. @return whether it told"""
    status, out, _ = machine.run(machine.build.launch, "--check", "--json", *words, seconds=ASK_S)
    said = as_json(out) if status in (0, 1) else None
    if said is None:
        return False
    machine.options = {o["name"]: o["value"] for o in said["options"] if o["name"] != "model"}
    machine.options["models"] = [o["value"].partition("=")[2] if "=" in o["value"] else o["value"]
                                 for o in said["options"] if o["name"] == "model" and o["value"]]
    machine.shm_bytes = said.get("shm_bytes")  # of an older build: none
    machine.wrong = [f for f in said["findings"] if f["level"] == "problem" and f["about"] == "configuration"]
    return True


def limits_from_launcher(machine, words):
    """Those of cgroups, users and CPUs, read by what reads them at a start."""
    status, out, _ = machine.run(machine.build.launch, "--print-limits", machine.root or "/", *words, seconds=ASK_S)
    said = as_json(out) if status == 0 else None
    machine.limits = said if said and "threads_needed" in said else None  # of an older build: none


def by_hand(machine, words):
    """The same of the few that matter, before anything is built: command line over environment over file."""
    found, config = {}, machine.environment.get("BATON_CONFIG")
    for name in KNOWN:
        value = machine.environment.get("BATON_" + name.upper().replace("-", "_"))
        if value:
            found[name] = value
    given, rest = {}, list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word[2:].partition("=") if word.startswith("--") else ("", "", "")
        if not equals and rest and not rest[0].startswith("--"):
            value = rest.pop(0) if name in KNOWN + ("config", "port") and name not in ("core-dumps", "reuse-http-port") else value
        if name == "config":
            config = value
        elif name in KNOWN + ("port",):
            given[name] = value or "yes"
        elif name:
            machine.unknown.append("--" + name)
    said = {}
    if config:
        try:
            with open(config, encoding="utf-8", errors="replace") as f:
                for line in f:
                    key, equals, value = line.partition("#")[0].partition("=")
                    if equals and key.strip() in KNOWN + ("port",):
                        said[key.strip()] = value.strip()
        except OSError as why:
            print(f"baton doctor: {config}: {why.strerror}", file=sys.stderr)
            return False
    machine.options = {**said, **found, **given}
    port = machine.options.pop("port", None)
    if port:
        host = machine.options.get("http", "127.0.0.1:8000").rpartition(":")[0]
        machine.options["http"] = f"{host}:{port}"
    for name in ("prefill", "decode", "routers"):
        if not machine.options.get(name, "1").isdigit():
            del machine.options[name]  # ./baton check says what is wrong with it
    return True


def probe(machine):
    """What only the worker's program knows."""
    path = machine.build.paths.get("baton-prefill-worker")
    if path is None or not machine.is_real:
        return
    words = []
    for device in network.devices(machine):
        _, out, error = machine.run(path, "--probe", device, seconds=ASK_S)
        # UCX says what it has to say on standard output, too.
        said = as_json(out.rstrip("\n").rpartition("\n")[2])
        if said is None:
            return
        words += [as_json(line) for line in error.splitlines()]
        if not machine.probe or (machine.probe["kv_network"] and not said["kv_network"]):
            machine.probe = said  # of several the one that does not work
    machine.probe_words = "; ".join(dict.fromkeys(w["message"] for w in words if w and w.get("level") == "error"))


def tree_version(machine):
    """As told_version of the baton script; None: there is no tree."""
    try:
        with open(os.path.join(ROOT, "meson.build"), encoding="utf-8") as f:
            version = f.read().partition("version: '")[2].partition("'")[0]
    except OSError:
        return None
    status, out, _ = machine.run(os.path.join(ROOT, "setup/commit.sh"))
    commit = out.strip() if status == 0 else ""
    return version + (f" ({commit})" if commit else "") if version else None


def look(words, environment):
    """@param words  options of serve  @return findings, or None: it was said what is wrong with the words"""
    machine, findings = Machine(environment), Findings()
    machine.wrong, machine.unknown = [], []
    # The baton script says where its programs are.
    launch = environment.get("BATON_DOCTOR_LAUNCH") or os.path.join(ROOT, "build/launcher/baton-launch")
    if os.access(launch, os.X_OK):
        machine.build = software.Build(launch, environment.get("BATON_DOCTOR_LIBEXEC", ""))
        machine.tree = tree_version(machine)
    if not (machine.build and from_launcher(machine, words)) and not by_hand(machine, words):
        return None
    if machine.build:
        probe(machine)
        limits_from_launcher(machine, words)
    for wrong in machine.wrong:
        findings.problem("options", wrong["text"], "./baton check, with the same options")
    if machine.unknown:
        findings.note("options", f"not looked at before something is built: {', '.join(machine.unknown)}", "./baton serve builds")
    for room in ROOMS:
        room.examine(machine, findings)
    return findings


def main():
    words = sys.argv[1:]
    if any(word in ("--help", "-h") for word in words):
        print(__doc__)
        return 0
    findings = look([word for word in words if word != "--json"], dict(os.environ))
    if findings is None:
        return 2
    sys.stdout.write(findings.as_json() if "--json" in words else findings.as_text())
    return 1 if findings.count("problem") else 0


if __name__ == "__main__":
    sys.exit(main())
