# SPDX-License-Identifier: Apache-2.0
"""What gpu-check.py and gpu-roofline.py run: out of the project's own build where there is one, or, on a machine with no
more than a C and C++ compiler, nvcc and python3, compiled straight into a folder. Which sources those are, and how they
are compiled, is read from the meson.build files."""
import ast
import concurrent.futures
import os
import re
import shutil
import subprocess

from _shared import ROOT

CUDA_BIN = "/usr/local/cuda/bin"
WATCHED = ("kernels", "common", "tests/simt", "tests/kernels", "bench")


class BuildError(Exception):
    pass


def text_of(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return re.sub(r"(?m)#.*$", "", f.read())


def strings(text):
    return re.findall(r"'([^']*)'", text)


def call(path, begin):
    """@return the strings between a call's brackets"""
    text = text_of(path)
    at = text.index(begin) + len(begin)
    depth, end = 1, at
    while depth:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text[end], 0)
        end += 1
    return strings(text[at:end - 1])


def with_suffix(names, *suffixes):
    return [n for n in names if n.endswith(suffixes)]


def sources_of(folder):
    """The files of a module."""
    return [f"{folder}/{n}" for n in call(f"{folder}/meson.build", "sources = files(")]


def tiers():
    """@return {instruction tier: (sources, flags)}"""
    text = text_of("kernels/meson.build")
    flags = ast.literal_eval(re.search(r"tiers = (\{.*?\})", text, re.S)[1])
    always = strings(re.search(r"tier_args = (\[.*?\])", text)[1])
    names = re.findall(r"'cpu' / tier \+ '(\w+\.c)'", text)
    return {tier: ([f"kernels/cpu/{tier}{n}" for n in names], always + own) for tier, own in flags.items()}


def c_flags():
    """Those that change what the code does."""
    wanted = call("meson.build", "add_project_arguments(cc.get_supported_arguments(")
    return ["-std=gnu17", "-O2", "-D_GNU_SOURCE", "-pthread", "-ffunction-sections"] + [f for f in wanted if f.startswith("-f")]


def plugin_sources():
    """Their names, without a suffix."""
    return call("kernels/cuda/meson.build", "cuda_sources = [")


def cuda_sources():
    return [f"kernels/cuda/{n}.cu" for n in plugin_sources()]


def cuda_flags(architecture):
    """architecture: such as "90"; None: those that the project builds for"""
    text = text_of("kernels/cuda/meson.build").replace("meson.project_source_root()", f"'{ROOT}'")
    flags = strings(re.search(r"cuda_flags = \[(.*?)\]\s*\n\s*python3", text, re.S)[1])
    flags = [f + ROOT if f == "-I" else f for f in flags if f != ROOT]
    if architecture:
        at = [i for i, f in enumerate(flags) if f == "-gencode"]
        flags = [f for i, f in enumerate(flags) if not any(i in (a, a + 1) for a in at)]
        flags += ["-gencode", f"arch=compute_{architecture},code=sm_{architecture}"]
    return flags


def simt_sources():
    own = call("tests/simt/meson.build", "static_library('bt_simt',") + call("tests/simt/meson.build", "cuda_sim_sources = [")
    own += [n + "_sim.cc" for n in plugin_sources()]
    return [f"tests/simt/{n}" for n in with_suffix(own, ".cc")]


def simt_flags():
    return ["-std=c++17", "-O2", "-fPIC", "-pthread", "-D_GNU_SOURCE", "-I" + os.path.join(ROOT, "tests/simt"),
            *call("tests/simt/meson.build", "simt_args = [")]


def find_nvcc():
    return shutil.which("nvcc") or shutil.which("nvcc", path=CUDA_BIN)


def newest():
    """When the last of all sources changed."""
    return max(os.path.getmtime(os.path.join(folder, f)) for top in WATCHED
               for folder, _, files in os.walk(os.path.join(ROOT, top)) for f in files
               if f.endswith((".c", ".h", ".cc", ".cu", ".build", ".py")))


class Bare:
    """Compiles into a folder."""

    def __init__(self, folder):
        self.folder, self.left_out, self.changed = folder, [], newest()
        self.cc, self.cxx, self.nvcc = shutil.which("cc"), shutil.which("c++"), find_nvcc()
        os.makedirs(folder, exist_ok=True)

    def __str__(self):
        return f"by compilers alone, in {self.folder}"

    def run(self, *command):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise BuildError(f"{' '.join(command[-3:])}: {(done.stderr or done.stdout).strip()[-1500:]}")

    def compile(self, work):
        """work: [(compiler and flags, source)] @return objects; of what lacks a header of others, none"""
        def one(item):
            command, source = item
            path = os.path.join(self.folder, source.replace("/", "_") + ".o")
            if os.path.exists(path) and os.path.getmtime(path) > self.changed:
                return path
            try:
                self.run(*command, "-I" + ROOT, "-c", os.path.join(ROOT, source), "-o", path)
            except BuildError as error:
                header = re.search(r"(?:fatal error: )([\w./]+\.h): No such file", str(error))
                if not header:
                    raise
                self.left_out.append(f"{source}: no {header[1]}")
                return None
            return path

        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return [path for path in pool.map(one, work) if path]

    def library(self):
        """kernels, common/base, common/kv: an archive, of which programs take what they need."""
        flags = [self.cc, *c_flags(), "-fPIC"]
        work = [(flags, s) for m in ("kernels", "common/base", "common/kv") for s in sources_of(m)]
        if os.uname().machine == "x86_64":
            work += [(flags + own, s) for names, own in tiers().values() for s in names]
        path = os.path.join(self.folder, "libbaton.a")
        objects = self.compile(work)
        if os.path.exists(path):
            os.unlink(path)
        self.run("ar", "rcs", path, *objects)
        return path

    def program(self, name, sources, library):
        objects = self.compile([([self.cc, *c_flags()], s) for s in sources])
        path = os.path.join(self.folder, name)
        # What nothing calls goes, and with it what that would need of other libraries (hashes of xxhash).
        self.run(self.cc, "-pthread", "-Wl,--gc-sections", "-o", path, *objects, library, "-lm", "-ldl")
        return path

    def programs(self):
        """@return {"kcheck", "gpu-run"}, and the library for the plugins"""
        if not self.cc:
            raise BuildError("no C compiler is here")
        library = self.library()
        kcheck = [f"tests/kernels/{n}" for n in with_suffix(call("tests/kernels/meson.build", "executable('kcheck',"), ".c")]
        half = with_suffix(call("bench/meson.build", "static_library('bt_bench_half',") +
                           call("bench/meson.build", "executable('gpu-run',"), ".c")
        return {"kcheck": self.program("kcheck", kcheck, library),
                "gpu-run": self.program("gpu-run", [f"bench/{n}" for n in half], library)}

    def simulated(self):
        """@return the folder of baton_cuda_sim.so; behind programs()"""
        if not self.cxx:
            raise BuildError("no C++ compiler is here")
        objects = self.compile([([self.cxx, *simt_flags()], s) for s in simt_sources()])
        self.run(self.cxx, "-shared", "-pthread", "-Wl,--gc-sections", "-o", os.path.join(self.folder, "baton_cuda_sim.so"), *objects,
                 os.path.join(self.folder, "libbaton.a"), "-lm", "-ldl")
        return self.folder

    def cuda(self, architecture):
        """@return the folder of baton_cuda.so; behind programs()"""
        if not self.nvcc:
            raise BuildError("no nvcc is here")
        objects = self.compile([([self.nvcc, *cuda_flags(architecture)], s) for s in cuda_sources()])
        nccl = [] if any("nccl" in what for what in self.left_out) else ["-lnccl"]
        self.run(self.nvcc, "-shared", "-nodlink", "-cudart", "static", "-o", os.path.join(self.folder, "baton_cuda.so"),
                 *objects, os.path.join(self.folder, "libbaton.a"), *nccl)
        return self.folder

    def cluster(self):
        """Its programs need libraries that compilers alone do not bring. @return None: there is none"""

    def peer(self, architecture):
        path = os.path.join(self.folder, "gpu-peer")
        if not os.path.exists(path) or os.path.getmtime(path) < self.changed:
            self.run(self.nvcc, "-std=c++17", "-O2", *(["-arch", "sm_" + architecture] if architecture else []), "-o", path,
                     os.path.join(ROOT, "bench/_gpu_peer.cu"), "-lcublasLt")
        return path


class Own(Bare):
    """The same out of a build folder of the project."""

    def __init__(self, build, folder, changes=True):
        super().__init__(folder)
        self.build, self.changes = build, changes

    def __str__(self):
        return f"by the project's own build, in {self.build}"

    def make(self, *targets):
        if not self.changes:
            return
        if not os.path.exists(os.path.join(self.build, "build.ninja")):
            self.run("meson", "setup", self.build, ROOT, "-Dbuildtype=release")
        self.run("ninja", "-C", self.build, *targets)

    def programs(self):
        self.make("tests/kernels/kcheck", "bench/gpu-run")
        return {"kcheck": os.path.join(self.build, "tests/kernels/kcheck"), "gpu-run": os.path.join(self.build, "bench/gpu-run")}

    def simulated(self):
        self.make("tests/simt/baton_cuda_sim.so")
        return os.path.join(self.build, "tests/simt")

    def cluster(self):
        """@return the folder of what a cluster of the tests needs"""
        self.make("router/baton-router", "worker/main/baton-prefill-worker", "worker/main/baton-decode-worker",
                  "tests/support/baton-tiny-model")
        return self.build

    def cuda(self, architecture):
        self.make("kernels/cuda/baton_cuda.so")
        return os.path.join(self.build, "kernels/cuda")


def prepare(builder, simt, sm):
    """@return (programs, folder of the plugin: of the rehearsal's, of the GPU's if its architecture is told, or None)"""
    programs = builder.programs()
    return programs, builder.simulated() if simt else builder.cuda(sm) if sm else None


def choose(folder, bare=False, simt=False, sm=None, changes=True):
    """By the project's own build (BATON_BUILD, if there is one) where that can be, else by compilers alone.
    changes: whether that is brought up to date; not by its own tests
    @return (builder, programs, folder of the plugin, why it is not the project's own build: "" where it is)"""
    build = os.environ.get("BATON_BUILD", "")
    if not os.path.exists(os.path.join(build, "build.ninja")):
        build = os.path.join(folder, "meson")
    why = "--bare asks for it"
    if not bare:
        if shutil.which("meson") and shutil.which("ninja"):
            try:
                own = Own(build, folder, changes)
                return own, *prepare(own, simt, sm), ""
            except BuildError as error:
                why = f"the project's own build fails: {' '.join(str(error).split())[-300:]}"
        else:
            why = "meson and ninja are not here"
    builder = Bare(folder)
    return builder, *prepare(builder, simt, sm), why
