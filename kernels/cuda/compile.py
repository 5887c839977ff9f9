#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles one source of the plugin and keeps what the assembler says of its kernels.

Usage: compile.py OUTPUT.o OUTPUT.usage COMMAND...
COMMAND is nvcc's with all that it needs; `-Xptxas -v` is added here. What the assembler says goes to OUTPUT.usage
(resources.py reads it), everything else where it would have gone.
"""
import subprocess
import sys


def main(obj, usage, *command):
    done = subprocess.run([*command, "-Xptxas", "-v", "-o", obj], stderr=subprocess.PIPE, text=True)
    said = done.stderr.splitlines(keepends=True)
    # The line behind "Function properties" has no mark of its own.
    of_ptxas = [line.startswith("ptxas info") or "bytes stack frame" in line for line in said]
    with open(usage, "w", encoding="utf-8") as out:
        out.writelines(line for line, mine in zip(said, of_ptxas) if mine)
    sys.stderr.writelines(line for line, mine in zip(said, of_ptxas) if not mine)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
