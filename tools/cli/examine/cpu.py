# SPDX-License-Identifier: Apache-2.0
"""Instruction sets and what the kernels make of them; cores, and who shares them."""
from .machine import cores_of

# kernels/dispatch.c, bt_cpu_tier_detect(): what each tier asks for.
AVX2 = ("avx2", "fma", "f16c")
AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni")
BF16 = "avx512_bf16"  # kernels/cpu/avx512_attn.c, avx512_ops.c: products of bf16
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


def cores(machine, findings):
    allowed, online = machine.allowed_cores(), cores_of(machine.read("/sys/devices/system/cpu/online"))
    limit = machine.limit("cpus")
    n = min(len(allowed), limit["most"] or len(allowed))
    text = f"{len(allowed)} of {len(online) or len(allowed)} cores may be used"
    if limit["by"]:
        text += f", for the time of {limit['most']} ({limit['by']})"
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
                         "allow two cores or more (taskset, cpus of the container, the quota of the cgroup)")
    else:
        findings.ok("cores", text)


def examine(machine, findings):
    instructions(machine, findings)
    cores(machine, findings)
