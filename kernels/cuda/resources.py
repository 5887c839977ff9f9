#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A table of what each kernel of the plugin takes: registers, shared memory, stack, spills, and how many of its warps
a multiprocessor can have at a time.

Usage: resources.py OUTPUT.txt FILE.usage...
       resources.py --check TABLE.txt        fails where a kernel of the table spills registers
A FILE.usage is of compile.py, beside its source of the same name.

Limits of a multiprocessor: CUDA C++ Programming Guide, "Compute Capabilities".
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
WARPS, BLOCKS, REGISTERS = 64, 32, 65536
SHARED = {"sm_80": 164 << 10, "sm_90": 228 << 10}
SHARED_OF_SYSTEM = 1 << 10  # of each block
REGISTER_UNIT = 256  # that a warp takes them by

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?, (\d+) bytes smem)?")


def kernels(text):
    """(mangled name, architecture, registers, shared bytes, stack bytes, spilled bytes) of each."""
    name = arch = None
    stack = spilled = 0
    for line in text.splitlines():
        if found := ENTRY.search(line):
            name, arch = found.groups()
        elif found := STACK.search(line):
            stack, spilled = int(found[1]), int(found[2]) + int(found[3])
        elif (found := USED.search(line)) and name:
            yield name, arch, int(found[1]), int(found[2] or 0), stack, spilled
            name = None


def occupancy(arch, threads, registers, shared):
    """Warps of a multiprocessor, of the most that it can have."""
    warps = (threads + 31) // 32
    of_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    blocks = min(BLOCKS, WARPS // warps, REGISTERS // (of_warp * warps), SHARED[arch] // (shared + SHARED_OF_SYSTEM))
    return blocks * warps / WARPS


def threads_of(source):
    """Threads of its blocks, as the source says it."""
    with open(source, encoding="utf-8") as file:
        text = file.read()
    values = dict(re.findall(r"const uint32_t (k\w+) = ([^;]+);", text))
    expression = values.get("kThreads", "256")
    while words := re.findall(r"k[A-Z]\w*", expression):
        for word in words:
            expression = expression.replace(word, f"({values[word]})")
    if not re.fullmatch(r"[\d\s()*+]+", expression):
        raise SystemExit(f"{source}: kThreads is {expression}")
    return eval(expression)  # digits, sums and products


def enumerators(header, prefix):
    with open(os.path.join(HERE, header), encoding="utf-8") as file:
        return re.findall(rf"^    {prefix}(\w+)(?: = \d+)?,", file.read(), re.M)


def readable(names):
    """Names and their constants, these by their own names where they have one."""
    if not names:
        return []
    known = {"bt_pack": enumerators("../pack/format.h", "BT_PACK_"),
             "bt_kv_type": enumerators("../kernels.h", "BT_KV_"),
             "BtRowsKind": enumerators("steps.h", "BT_ROWS_")}
    said = subprocess.run(["c++filt", *names], capture_output=True, text=True, check=True).stdout.splitlines()
    plain = [re.sub(r"\(anonymous namespace\)::|^void ", "", name) for name in said]
    plain = [re.sub(r"\((\w+)\)(\d+)", lambda found: known[found[1]][int(found[2])], name) for name in plain]
    return [re.sub(r"u(?=[,>])", "", name.split("(")[0]) for name in plain]


def main(output, *usages):
    rows = []
    for usage in usages:
        with open(usage, encoding="utf-8") as file:
            found = list(kernels(file.read()))
        stem = os.path.basename(usage).removesuffix(".usage")
        threads = threads_of(os.path.join(HERE, stem + ".cu"))
        names = readable([name for name, *_ in found])
        rows += [(stem, plain, arch, registers, shared, stack, spilled, occupancy(arch, threads, registers, shared))
                 for plain, (_, arch, registers, shared, stack, spilled) in zip(names, found)]
    with open(output, "w", encoding="utf-8") as out:
        out.write(f"{'source':14} {'kernel':38} {'arch':6} {'regs':>4} {'shared':>7} {'stack':>5} {'spills':>6} "
                  f"{'warps':>5}\n")
        for stem, name, arch, registers, shared, stack, spilled, warps in sorted(rows):
            out.write(f"{stem:14} {name:38} {arch:6} {registers:4} {shared:7} {stack:5} {spilled:6} {warps:5.0%}\n")


def check(table):
    """Other compilers than ours may spill: that is a slower kernel, and no reason not to build."""
    with open(table, encoding="utf-8") as file:
        head, *lines = file.read().splitlines()
    rows = [line.rsplit(maxsplit=6) for line in lines]
    spills = [" ".join(row[0].split()[1:] + row[1:2]) for row in rows if row[5] != "0"]
    if not rows or head.split()[-2] != "spills":
        raise SystemExit(f"{table} has no kernels")
    if spills:
        raise SystemExit("registers are spilled by " + ", ".join(spills))
    print(f"{len(rows)} kernels, and none spills registers")


if __name__ == "__main__":
    check(sys.argv[2]) if sys.argv[1] == "--check" else main(*sys.argv[1:])
