#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a program as systemd would by a unit's hardening, as far as that takes no privilege: confined.py UNIT PROGRAM [ARGUMENT...]

System calls and families of sockets are refused as the unit says, and NoNewPrivileges holds."""
import ctypes
import errno
import os
import re
import socket
import subprocess
import sys

PR_SET_NO_NEW_PRIVS = 38
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
EQUAL = 4


def settings(path):
    """{key: [values]} of the unit, in their order"""
    out = {}
    with open(path, encoding="utf-8") as f:
        for key, value in re.findall(r"^(\w+)=(.*)$", f.read(), re.M):
            out.setdefault(key, []).append(value)
    return out


def calls_of(name):
    """What systemd's set, or name, of system calls stands for."""
    if not name.startswith("@"):
        return {name}
    out = subprocess.run(["systemd-analyze", "syscall-filter", name], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = set()
    for line in out.split("\n")[1:]:
        word = line.strip()
        if word and not word.startswith("#"):
            found |= calls_of(word)
    return found


def allowed_calls(unit):
    allowed = set()
    for value in unit["SystemCallFilter"]:
        words = {call for word in value.lstrip("~").split() for call in calls_of(word)}
        allowed = allowed - words if value.startswith("~") else allowed | words
    return allowed


class Comparison(ctypes.Structure):
    _fields_ = [("argument", ctypes.c_uint), ("operation", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def load_filter(unit):
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    refuse = ERRNO | getattr(errno, unit["SystemCallErrorNumber"][0])
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(refuse)))
    families = [getattr(socket, name) for name in unit["RestrictAddressFamilies"][0].split()]
    for name in sorted(allowed_calls(unit)):
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            continue  # of another architecture
        rules = [Comparison(0, EQUAL, family, 0) for family in families] if name == "socket" else [None]
        for rule in rules:
            done = library.seccomp_rule_add_array(context, ctypes.c_uint32(ALLOW), number, 1 if rule else 0,
                                                  ctypes.byref(rule) if rule else None)
            assert done == 0, (name, done)
    assert library.seccomp_load(context) == 0


def main():
    unit = settings(sys.argv[1])
    prctl = ctypes.CDLL(None).prctl
    assert unit["NoNewPrivileges"] == ["yes"] and prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    load_filter(unit)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
