# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's driver and devices."""
import re

LEAST_SM = (8, 0)    # kernels/cuda/backend.cu, kLeastMajor
LEAST_DRIVER = 580   # of CUDA 13, with which the plugin is built (docs/GPU_STATUS.md)
QUERY = "--query-gpu=name,compute_cap,driver_version,memory.total"


def devices(machine):
    """(name, (8, 0), "580.65", MiB) of each, or None: nvidia-smi does not answer"""
    said = machine.command("nvidia-smi", QUERY, "--format=csv,noheader,nounits")
    if said is None:
        return None
    found = []
    for line in said.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 4 and re.fullmatch(r"\d+\.\d+", words[1]):
            found.append((words[0], tuple(map(int, words[1].split("."))), words[2], words[3]))
    return found


def has_plugin(machine):
    """Was what is built built with CUDA? None: nothing is, or it does not say."""
    said = machine.command(machine.build.paths["baton-launch"], "--print-build") if machine.build else None
    found = re.search(r"back ends: (.*)", said or "")
    return "cuda" in found[1].split(", ") if found else None


def examine(machine, findings):
    asked = machine.options.get("backend", "cpu")
    if asked == "cuda" and has_plugin(machine) is False:
        findings.problem("gpu", "--backend cuda, and this Baton was built without CUDA, as Debian packages are",
                         "--backend cpu, or a build where the CUDA toolkit (nvcc) is")
        return
    version = machine.read("/proc/driver/nvidia/version")
    if version is None:
        if asked in ("cuda",):
            findings.problem("gpu", "--backend cuda, and there is no NVIDIA driver", "--backend cpu, or the driver "
                             "(apt-get install nvidia-driver; in a container: docker run --gpus all)")
        else:
            findings.ok("gpu", "no NVIDIA driver: the CPU computes")
        return
    found = devices(machine)
    driver = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d+)\.(\S+)", version)
    said = f"driver {driver[1]}.{driver[2]}" if driver else "a driver of unknown version"
    if driver and int(driver[1]) < LEAST_DRIVER:
        findings.warning("gpu", f"{said} is older than {LEAST_DRIVER}, which the plugin's CUDA 13 needs", "a newer driver, or --backend cpu")
    if found is None:
        findings.warning("gpu", f"{said}, and nvidia-smi does not answer", "nvidia-smi, which says why; in a container: docker run --gpus all")
        return
    if not found:
        findings.warning("gpu", f"{said}, and no device", "--backend cpu; in a container: docker run --gpus all")
    for name, sm, _, memory in found:
        if sm < LEAST_SM:
            findings.warning("gpu", f"{name} is an sm_{sm[0]}{sm[1]}; sm_80 is the least", "--backend cpu, or --devices without it")
        else:
            text = f"{name}, sm_{sm[0]}{sm[1]}, {memory} MiB, {said}"
            if has_plugin(machine) is False:
                findings.note("gpu", f"{text}; this Baton was built without CUDA, as Debian packages are, and does not use it",
                              "a build where the CUDA toolkit (nvcc) is, and --backend cuda")
            else:
                findings.ok("gpu", text + ": --backend cuda" + ("" if asked != "cpu" else " (the default is cpu)"))
