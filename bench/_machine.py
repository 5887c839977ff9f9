# SPDX-License-Identifier: Apache-2.0
"""On what a report was measured: the machine, the sources, the versions of what is compared with."""
import contextlib
import glob
import hashlib
import os
import platform
import re
import shutil
import subprocess

import _ik
import _llama
from _shared import ROOT, cpu_model


def first_line(path, otherwise=""):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.readline().strip() or otherwise
    except OSError:
        return otherwise


def said(argv, pattern="(.*)"):
    """@return what the pattern finds in the output of a command, or None"""
    if shutil.which(argv[0]) is None:
        return None
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
        found = re.search(pattern, done.stdout + done.stderr)
        return found.group(1).strip() if found else None
    return None


def caches():
    out = []
    for folder in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*")):
        level, kind, size = (first_line(os.path.join(folder, name)) for name in ("level", "type", "size"))
        shared = first_line(os.path.join(folder, "shared_cpu_list"))
        if size:
            out.append(f"L{level} {kind.lower()} {size}" + (f" for cores {shared}" if shared not in ("", "0") else ""))
    return ", ".join(out) or "not told"


def memory():
    found = re.search(r"(\d+)", first_line("/proc/meminfo"))
    return f"{int(found.group(1)) / 2**20:.1f} GiB" if found else "not told"


def machine():
    flags = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as f:
        flags = next((line for line in f if line.startswith("flags")), "")
    wide = [name for name in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile") if name in flags.split()]
    return {"CPU": cpu_model(), "cores": f"{len(os.sched_getaffinity(0))} that this may use of {os.cpu_count()}",
            "instructions": ", ".join(wide) or "not told", "virtual": "yes" if "hypervisor" in flags.split() else "not told",
            "caches": caches(), "memory": memory(), "kernel": f"{platform.system()} {platform.release()}",
            "governor": first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "not told"),
            "large pages": first_line("/sys/kernel/mm/transparent_hugepage/enabled", "not told"),
            "load before": f"{os.getloadavg()[0]:.2f}"}


def git(*words):
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True)
    return done.stdout if done.returncode == 0 else b""


def sources():
    """@return {"commit", "dirty", "tree"}: tree tells two states of the same commit apart"""
    commit = git("describe", "--always", "--abbrev=12", "--exclude=*").decode().strip() or "unknown"
    changed = git("status", "--porcelain").decode(errors="replace")
    seen = hashlib.sha256(git("diff", "--binary", "HEAD"))
    for name in git("ls-files", "-o", "--exclude-standard", "-z").split(b"\0"):
        with contextlib.suppress(OSError), open(os.path.join(os.fsencode(ROOT), name), "rb") as f:
            seen.update(name + b"\0" + f.read())
    return {"commit": commit, "dirty": bool(changed), "tree": f"{commit}-{seen.hexdigest()[:12]}" if changed else commit}


def peers():
    """@return {name: version, or None where it is not here}"""
    return {"llama.cpp (llama-cpp-python)": _llama.VERSION if _llama.is_here() else None,
            "ik_llama.cpp (ik-llama-cpp-python)": _ik.VERSION if _ik.is_here() else None,
            "UCX (ucx_perftest)": said(["ucx_info", "-v"], r"[Vv]ersion:?\s*(\S+)") if shutil.which("ucx_perftest") else None,
            "valgrind": said(["valgrind", "--version"], r"valgrind-(\S+)"),
            "nvcc": said(["nvcc", "--version"], r"release (\S+),"),
            "compiler (cc)": said(["cc", "--version"], r"(.*)"), "Python": platform.python_version()}
