# SPDX-License-Identifier: Apache-2.0
"""Instruction sets and what the kernels make of them; cores, and who shares them."""
from .machine import cores_of

# kernels/dispatch.c, bt_cpu_tier_detect(): what each tier asks for.
AVX2 = ("avx2", "fma", "f16c")
AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni")
BF16 = "avx512_bf16"  # kernels/cpu/avx512_attn.c, avx512_bf16.c: products of bf16
TIERS = ("plain", "avx2", "avx512")
PASS_ON = "of a virtual machine: pass the host's CPU on (QEMU: -cpu host)"


def flags(machine):
    fields = machine.fields("/proc/cpuinfo")
    return set(fields.get("flags", fields.get("Features", "")).split())


def tier_of(found):
    if not set(AVX2) <= found:
        return "plain"
    return "avx512" if set(AVX512) <= found else "avx2"


def instructions(machine, findings):
    fields, found = machine.fields("/proc/cpuinfo"), flags(machine)
    name = fields.get("model name", fields.get("CPU part", "unknown"))
    said = (machine.probe.get("cpu") or "").partition("/")[2]
    tier = said or tier_of(found)
    asked = machine.environment.get("BATON_CPU_TIER", "")
    text = f"{name}: kernels of tier {tier}" + (" (so the worker's program says)" if said else "")
    if "Features" in fields:
        findings.note("cpu", f"{text}; of ARM there are the portable kernels alone, though it has "
                      f"{', '.join(sorted(found & {'asimd', 'asimddp', 'i8mm', 'bf16', 'sve'})) or 'no NEON'}")
    elif asked and asked not in TIERS:
        findings.warning("cpu", f"BATON_CPU_TIER={asked} is no tier and has no effect", "unset BATON_CPU_TIER")
    elif asked and TIERS.index(tier) < TIERS.index(tier_of(found)):
        findings.warning("cpu", f"{text}, because of BATON_CPU_TIER={asked}; it could be {tier_of(found)}", "unset BATON_CPU_TIER")
    elif tier == "plain":
        findings.warning("cpu", f"{text}, many times slower: it has no {', '.join(f for f in AVX2 if f not in found)}", PASS_ON)
    elif tier == "avx2":
        findings.note("cpu", f"{text}: it has no {', '.join(f for f in AVX512 if f not in found)}; with AVX-512 and VNNI prompts "
                      "are computed faster", PASS_ON)
    else:
        findings.ok("cpu", text + (", with bf16 products" if BF16 in found else ""))
    amx = sorted(f for f in found if f.startswith("amx_"))
    if amx:
        findings.note("cpu", f"{', '.join(amx)}: this version does not use AMX")


def quota(machine):
    """Cores' time that the cgroup leaves, as worker/cores.c reads it, or None."""
    words = (machine.read("/sys/fs/cgroup/cpu.max") or "").split()
    return -(-int(words[0]) // int(words[1])) if len(words) == 2 and words[0].isdigit() and int(words[1]) else None


def cores(machine, findings):
    allowed, online = machine.allowed_cores(), cores_of(machine.read("/sys/devices/system/cpu/online"))
    limit = quota(machine)
    n = min(len(allowed), limit or len(allowed))
    text = f"{len(allowed)} of {len(online) or len(allowed)} cores may be used"
    if limit is not None and limit < len(allowed):
        text += f", for the time of {limit} (cgroup cpu.max)"
    siblings = {tuple(sorted(cores_of(machine.read(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"))))
                for core in allowed} - {()}
    if siblings and len(siblings) < len(allowed):
        text += f"; they are {len(siblings)} physical ones, two threads of one compute no faster than one"
    nodes = [name for name in machine.list("/sys/devices/system/node") if name[:4] == "node" and name[4:].isdigit()]
    if len(nodes) > 1:
        text += f"; {len(nodes)} memory nodes, each with a copy of the weights"
    if n == 0:
        return
    if n < 2:
        findings.warning("cores", text + ": prefill and decode share one",
                         "allow two cores or more (taskset, cpus of the container, cpu.max of the cgroup)")
    else:
        findings.ok("cores", text)
    beyond = own_quota(machine)
    if beyond is not None and beyond < n:
        findings.warning("cores", f"a cgroup of this process leaves the time of {beyond} cores, where Baton does not look "
                         "(it reads /sys/fs/cgroup/cpu.max)", f"--threads-prefill {max(1, beyond // 2)} --threads-decode {max(1, beyond // 2)}")


def own_quota(machine):
    """What a nested cgroup of version 2, or one of version 1, leaves."""
    found = []
    for line in (machine.read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        place = path.rstrip("/")
        while place and controllers == "":
            words = (machine.read(f"/sys/fs/cgroup{place}/cpu.max") or "").split()
            if len(words) == 2 and words[0].isdigit():
                found.append(-(-int(words[0]) // int(words[1])))
            place = place.rpartition("/")[0]
        if "cpu" in controllers.split(","):
            at = f"/sys/fs/cgroup/cpu{path.rstrip('/')}"
            time, period = machine.number(at + "/cpu.cfs_quota_us"), machine.number(at + "/cpu.cfs_period_us")
            if time and time > 0 and period:
                found.append(-(-time // period))
    return min(found, default=None)


def examine(machine, findings):
    instructions(machine, findings)
    cores(machine, findings)
