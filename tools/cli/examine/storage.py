# SPDX-License-Identifier: Apache-2.0
"""Folders: packed weights, models, run directories."""
import os

from .machine import MIB, mib

DEFAULT_MODEL = 92 * MIB  # packed, and about as much as its file


def base(machine):
    """$XDG_CACHE_HOME/baton or ~/.cache/baton, as inference/packed/packed_writer.c and tools/cli/model_store.py have it"""
    cache, home = machine.environment.get("XDG_CACHE_HOME", ""), machine.environment.get("HOME", "")
    if cache.startswith("/"):
        return cache + "/baton"
    return home + "/.cache/baton" if home.startswith("/") else None


def nearest(path):
    """The folder itself, or the first above it that is there."""
    while not os.path.isdir(path) and path not in ("", "/"):
        path = os.path.dirname(path)
    return path or "/"


def room(path):
    info = os.statvfs(path)
    return info.f_bavail * info.f_frsize, bool(info.f_flag & os.ST_RDONLY)


def wanted_bytes(machine):
    """About what packing the models takes."""
    sizes = [os.path.getsize(path) for path in machine.options.get("models", []) if os.path.isfile(path)]
    return sum(sizes) or DEFAULT_MODEL


def folder(machine, findings, about, path, needs, fix, without):
    there = nearest(path)
    try:
        free, is_ro = room(there)
        owner = os.stat(there).st_uid
    except OSError as why:
        findings.warning(about, f"{path}: {why.strerror}: {without}", fix)
        return
    _, kind, _ = machine.mount_of(os.path.realpath(there))
    if is_ro or not os.access(there, os.W_OK | os.X_OK):
        why = "its file system is read-only" if is_ro else f"user {os.geteuid()} may not write {there}, of user {owner}"
        findings.warning(about, f"{path} cannot be written ({why}): {without}", fix)
    elif there == path and owner not in (os.geteuid(), 0):
        findings.warning(about, f"{path} is user {owner}'s, and this is user {os.geteuid()}: what another user left there is not used",
                         fix)
    elif free < needs:
        findings.warning(about, f"{path} has {mib(free)} left, and some {mib(needs)} are needed: {without}", fix)
    elif kind.startswith("nfs"):
        findings.note(about, f"{path} is on {kind}: locks (flock) have to work there", fix)
    else:
        findings.ok(about, f"{path}{'' if there == path else ' (not there yet)'}, {mib(free)} left")


def caches(machine, findings):
    option = machine.options.get("weight-cache", "auto")
    root = base(machine)
    if option != "off" and option == "auto" and root is None:
        findings.warning("weight cache", "neither XDG_CACHE_HOME nor HOME is set: each worker packs for itself, at each start",
                         "--weight-cache DIR")
    elif option != "off":
        folder(machine, findings, "weight cache", option if option != "auto" else root + "/weights", wanted_bytes(machine),
               "--weight-cache DIR, of one that can be written", "each worker packs for itself, at each start, into memory of its own")
    models = machine.options.get("models-dir") or root
    if models and not machine.options.get("models"):
        folder(machine, findings, "models", models, DEFAULT_MODEL, "--models-dir DIR, of one that can be written",
               "no model can be fetched")


def run_directory(machine, findings):
    """launcher/run_dir.c: the first of these that takes one"""
    places = [machine.environment.get("XDG_RUNTIME_DIR"), machine.environment.get("TMPDIR"), "/tmp"]
    for place in places:
        # A socket's name has 107 bytes; the longest of ours is baton-XXXXXX/baton-XXXXXX/ and 16 digits.
        if place and place.startswith("/") and os.access(place, os.W_OK | os.X_OK):
            if len(place) > 60:
                findings.warning("run directory", f"{place} has so long a name that sockets in it may not fit", "XDG_RUNTIME_DIR=/tmp")
            return
    findings.problem("run directory", "no directory for sockets can be made in XDG_RUNTIME_DIR, TMPDIR or /tmp",
                     "XDG_RUNTIME_DIR=DIR, of one that can be written")


def examine(machine, findings):
    caches(machine, findings)
    run_directory(machine, findings)
