# SPDX-License-Identifier: Apache-2.0
"""llama.cpp as a peer: installs it, makes its files, starts bench/_llama_peer.py. All of it lies in the cache."""
import hashlib
import os
import subprocess
import sys

from _peers import cache, environment, lock, run
from _shared import HERE, Half

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"
# llama_ftype numbers of llama.h
FILE_TYPES = {"F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K_M": 15, "Q5_K_M": 17, "Q6_K": 18, "MXFP4": 38, "IQ4_NL": 25, "IQ4_XS": 30, "BF16": 32}
PEER = os.path.join(HERE, "_llama_peer.py")


def is_installed(python):
    check = f"import llama_cpp; raise SystemExit(llama_cpp.__version__ != '{VERSION}')"
    return os.path.exists(python) and subprocess.run([python, "-c", check], capture_output=True).returncode == 0


def place():
    """@return the folder, and the python of the virtual environment in it"""
    folder = os.path.join(cache(), f"{PACKAGE}-{VERSION}")
    return folder, os.path.join(folder, "bin", "python")


def is_here():
    return is_installed(place()[1])


def install():
    """@return the python of a virtual environment that has llama-cpp-python, built for this machine"""
    return environment(place()[0], is_installed, f"{PACKAGE} {VERSION}, which is compiled and takes minutes,", [
        (PACKAGE, ["--no-binary", PACKAGE, f"{PACKAGE}=={VERSION}"], {"CMAKE_BUILD_PARALLEL_LEVEL": str(len(os.sched_getaffinity(0)))})])


def files(python, model, types):
    """@return [(type, path)]: the model as a file of each type, made by llama.cpp's own quantizer"""
    stat = os.stat(model)
    key = hashlib.sha256(f"{os.path.realpath(model)} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:12]
    stem = os.path.splitext(os.path.basename(model))[0]
    out = []
    for name in types:
        if name == "own":
            out.append((name, model))
            continue
        path = os.path.join(cache(), f"{stem}-{key}-{name}.gguf")
        with lock():
            if not os.path.exists(path):
                print(f"making {path}", file=sys.stderr)
                part = path + ".part"
                run([python, PEER, "quantize", model, part, FILE_TYPES[name]], path + ".log", f"making {path}")
                os.rename(part, path)
        out.append((name, path))
    return out


def start(python, path, args):
    return Half([python, PEER, "run", path, args.chunk, max(args.prefill), max(args.batch), args.after, args.steps])
