# SPDX-License-Identifier: Apache-2.0
"""Operations of the CUDA back end at the shapes of an 8B model: what must be moved, what the machine of the tests
(tests/simt) counts, and what an estimate makes of that. For gpu-roofline.py, gpu-check.py and tests/simt."""
import concurrent.futures
import json
import os
import re
import subprocess
import tempfile

HEADS, KV_HEADS, HEAD_DIM, DIM, FFN_DIM = 32, 8, 128, 4096, 14336
PANEL, SECTOR = 32, 32
KV_TYPES = ("f16", "bf16", "int8", "fp8")
# A type for each quantized pack of kernels/pack/format.h.
TYPES = ("Q4_0", "Q4_K", "Q6_K", "Q8_0", "TQ2_0", "Q2_K", "Q4_1", "Q5_0", "Q5_1", "Q5_K", "IQ4_NL", "MXFP4", "NVFP4",
         "IQ4_XS", "Q3_K")
# By tensor cores; E4M3_BF16 is the same bytes and the same kernels.
TENSOR_TYPES = ("BF16", "F16", "E4M3")
FEW_ROWS, MANY_ROWS = (1, 4, 8), (512,)
FEW_PANELS, MANY_PANELS = 1, 8  # of a block
MATRICES = (("attention out", DIM, DIM), ("down", DIM, FFN_DIM))  # name, outputs, inputs
CONTEXT = 1024
PRODUCT_OPS = 2 * 16 * 8 * 16  # of one product of matrices by a warp
# Of loads of global memory, and of shared memory, those places of a kernel are its hot loops that have this share, and
# of kernels those count that have it of all sectors.
HOT = 0.05
COLUMNS = ("load_sectors", "load_sectors_once", "store_sectors", "store_sectors_once", "wavefronts", "conflicts", "products",
           "blocks")

# Tests of tests/integration that a cluster on a GPU passes; a rehearsal runs the first.
CLUSTER_TESTS = ("test_kv_is_transferred_from_device_to_device", "test_simulated_device_gives_the_bytes_of_the_cpu",
                 "test_draft_model_on_a_simulated_device_gives_the_bytes_of_the_cpu", "test_simulated_device_samples_the_tokens_of_the_cpu",
                 "test_tensor_profile_agrees_with_the_cpu_on_certain_tokens", "test_overlapped_steps_give_the_same_bytes",
                 "test_device_logits_are_close_to_the_cpus", "test_experts_on_a_device_give_the_tokens_of_the_cpu",
                 "test_adapters_on_a_device_give_the_tokens_of_the_cpu")


class Meter:
    """Single operations on the machine of the tests, each in a process of its own."""

    def __init__(self, program, plugins):
        self.program, self.plugins = program, plugins

    def count(self, *commands, numerics=()):
        """@return (answers, counts by kernels, places of their sources)"""
        with tempfile.NamedTemporaryFile(prefix="bt-count-") as table:
            env = dict(os.environ, BATON_PLUGIN_DIR=self.plugins, BATON_SIMT_RACES="0", BATON_SIMT_COUNT=table.name)
            words = "".join(" ".join(str(w) for w in c) + "\n" for c in commands)
            try:
                done = subprocess.run([self.program, "cuda_sim", "1024", *numerics], input=words, capture_output=True, text=True, env=env)
                if done.returncode != 0:
                    raise SystemExit(f"{' '.join(map(str, commands[-1]))}: {done.stderr.strip()}")
                return ([json.loads(line) for line in done.stdout.splitlines()], rows_of(table.name),
                        rows_of(table.name + ".lines"))
            finally:
                if os.path.exists(table.name + ".lines"):
                    os.unlink(table.name + ".lines")


def rows_of(path):
    with open(path, encoding="utf-8") as f:
        names, *rows = [line.rstrip("\n").split("\t") for line in f]
    return [{n: int(v) if v.isdigit() else v for n, v in zip(names, row)} for row in rows]


def hot_places(lines):
    """@return (used, conflicts): of hot loads the share of their sectors' bytes that is used, the least of all places;
    of hot accesses to shared memory, conflicts"""
    used, conflicts = 1.0, 0
    every = sum(r["sectors"] for r in lines)
    for kernel in {r["kernel"] for r in lines}:
        mine = [r for r in lines if r["kernel"] == kernel]
        if sum(r["sectors"] for r in mine) < HOT * every:
            continue
        loads = [r for r in mine if r["space"] == "global" and r["access"] == "load"]
        shared = [r for r in mine if r["space"] == "shared"]
        sectors, waves = sum(r["sectors"] for r in loads), sum(r["wavefronts"] for r in shared)
        used = min([used] + [r["bytes"] / (SECTOR * r["sectors"]) for r in loads if r["sectors"] > HOT * sectors])
        conflicts += sum(r["conflicts"] for r in shared if r["wavefronts"] > HOT * waves)
    return used, conflicts


def totals(kernels):
    """Of all kernels of an operation, but of the one that makes rows 8 or 16 bits no blocks."""
    out = {c: sum(k[c] for k in kernels) for c in COLUMNS}
    out["blocks"] = max(k["blocks"] for k in kernels if "quantize" not in k["kernel"] and "halves" not in k["kernel"])
    return out


def finish(what, counts, lines, must, n_ops, pipe):
    used, conflicts = hot_places(lines)
    once = SECTOR * (counts["load_sectors_once"] + counts["store_sectors_once"])
    return dict(what, **counts, must_bytes=must, bytes=once, ratio=once / must,
                requested_bytes=SECTOR * (counts["load_sectors"] + counts["store_sectors"]), used=used, hot_conflicts=conflicts,
                ops=n_ops, pipe=pipe)


def count_matmul(meter, kind, name, n_out, n_in, rows):
    """The panels of one block and of two tell what each more costs."""
    per = FEW_PANELS if rows <= max(FEW_ROWS) else MANY_PANELS
    runs = [meter.count(("weight", kind, PANEL * per * n, n_in, 1), ("matmul", rows, 1, 0)) for n in (1, 2)]
    (_, one, _), (answers, two, lines) = runs
    one, two = totals(one), totals(two)
    n = n_out // (PANEL * per)
    counts = {c: one[c] + (n - 1) * (two[c] - one[c]) for c in COLUMNS}
    scale = n_out // (2 * PANEL * per)
    packed, in_file = answers[1]["packed_bytes"] * scale, answers[1]["bytes"] * scale
    return finish({"op": "matmul", "name": name, "type": kind, "rows": rows, "file_bytes": in_file}, counts, lines,
                  packed + 4 * rows * (n_in + n_out), 2 * rows * n_in * n_out, "dp4a" if rows <= max(FEW_ROWS) else "int8")


def count_attention(meter, kind, seqs):
    """Of one sequence: each has blocks of its own."""
    answers, kernels, lines = meter.count(("kv", kind, HEADS, KV_HEADS, HEAD_DIM, 1, CONTEXT - 1, 1, 1), ("attention", 1, 0))
    counts = {c: v * seqs for c, v in totals(kernels).items()}
    must = CONTEXT * answers[1]["kv_token_bytes"] + 8 * HEADS * HEAD_DIM
    return finish({"op": "attention", "name": f"decode at {CONTEXT}", "type": kind, "rows": seqs}, counts, lines, seqs * must,
                  4 * seqs * HEADS * HEAD_DIM * CONTEXT, "f32")


def count_tensor_matmul(meter, kind, name, n_out, n_in, rows):
    """The same by tensor cores: all that a block has of outputs, and twice of it. What they multiply counts, also where
    there is no row."""
    per = 1 if rows <= 64 else 4
    runs = [meter.count(("weight", kind, PANEL * per * n, n_in, 1), ("matmul", rows, 1, 0), numerics=("tensor",)) for n in (1, 2)]
    (_, one, _), (answers, two, lines) = runs
    one, two = totals(one), totals(two)
    n = n_out // (PANEL * per)
    counts = {c: one[c] + (n - 1) * (two[c] - one[c]) for c in COLUMNS}
    packed = answers[1]["packed_bytes"] * (n_out // (2 * PANEL * per))
    return finish({"op": "tensor matmul", "name": name, "type": kind, "rows": rows, "file_bytes": packed}, counts, lines,
                  packed + 4 * rows * (n_in + n_out), PRODUCT_OPS * counts["products"], "bf16")


def count_tensor_attention(meter, kind, rows, seqs):
    """A chunk of a prompt's rows or one that decodes, up to CONTEXT positions: of one head of keys, and of 64 rows at
    most, as many times as there are."""
    group, some = HEADS // KV_HEADS, min(rows, 64)
    answers, kernels, lines = meter.count(("kv", kind, group, 1, HEAD_DIM, some, CONTEXT - some, 1, 1), ("attention", 1, 0),
                                          numerics=("tensor",))
    times = KV_HEADS * seqs
    counts = {c: v * times * (rows // some) for c, v in totals(kernels).items()}
    must = times * (CONTEXT * answers[1]["kv_token_bytes"] + rows * 8 * group * HEAD_DIM)
    # What others of the same sequence have read comes from a cache.
    own = times * (rows // some - 1) * CONTEXT * answers[1]["kv_token_bytes"] // SECTOR
    counts["load_sectors_once"] -= own
    name = f"decode at {CONTEXT}" if rows == 1 else f"{rows} rows up to {CONTEXT}"
    return finish({"op": "tensor attention", "name": name, "type": kind, "rows": seqs}, counts, lines, must,
                  PRODUCT_OPS * counts["products"], "bf16")


COUNTS = {"attention": count_attention, "matmul": count_matmul, "tensor attention": count_tensor_attention,
          "tensor matmul": count_tensor_matmul}


def few_tensor_work():
    return ([("tensor attention", kind, 1, 1) for kind in KV_TYPES] +
            [("tensor matmul", kind, *MATRICES[0], rows) for kind in TENSOR_TYPES for rows in FEW_ROWS])


def tensor_work():
    return (few_tensor_work() + [("tensor attention", kind, 1, 32) for kind in ("bf16", "int8")] +
            [("tensor attention", kind, 512, 1) for kind in ("bf16", "int8")] +
            [("tensor matmul", kind, *MATRICES[0], rows) for kind in TENSOR_TYPES for rows in (32, *MANY_ROWS)])


def few_row_work():
    return ([("attention", kind, 1) for kind in KV_TYPES] +
            [("matmul", kind, *MATRICES[0], rows) for kind in TYPES for rows in FEW_ROWS] +
            [("matmul", "Q4_K", *MATRICES[1], rows) for rows in FEW_ROWS])


def all_work():
    return (few_row_work() + [("attention", kind, seqs) for kind in KV_TYPES for seqs in (32,)] +
            [("matmul", kind, *MATRICES[0], rows) for kind in ("Q4_K", "Q8_0") for rows in MANY_ROWS] + tensor_work())


def count_all(meter, work, step=lambda: None):
    def one(item):
        op, *rest = item
        row = COUNTS[op](meter, *rest)
        step()
        return row

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(one, work))


def write_between(path, name, text):
    """Replaces what stands between the marks of that name in a page."""
    begin, end = f"<!-- {name}: written by the benchmark -->\n", f"<!-- end of {name} -->"
    with open(path, encoding="utf-8") as f:
        page = f.read()
    found = re.search(re.escape(begin) + ".*?" + re.escape(end), page, re.S)
    if not found:
        raise SystemExit(f"{path} has no marks {begin.strip()} and {end}")
    with open(path, "w", encoding="utf-8") as f:
        f.write(page[:found.start()] + begin + text.rstrip("\n") + "\n" + end + page[found.end():])


# ---- estimates: never measured ----

# Bytes and operations per second, by the data sheets of the A100 SXM 40 GB and of the H100 SXM; dense. The clock is the one
# that their figures of bfloat16 come of.
# "dp4a" and "f32": multiply-adds of 64 lanes (H100: f32 of 128) and 8 or 2 operations for each clock of a multiprocessor;
# that dp4a has the rate of integer multiply-adds is an assumption. "shared": wavefronts; "sectors": bytes from the
# second cache to the multiprocessors, 64 for each clock, which requested sectors go through as if the first had none.
CARDS = {
    "A100": {"memory": 1.555e12, "bf16": 312e12, "int8": 624e12, "sms": 108, "clock": 1.41e9, "f32_lanes": 64},
    "H100": {"memory": 3.35e12, "bf16": 989e12, "int8": 1979e12, "sms": 132, "clock": 1.83e9, "f32_lanes": 128},
}


def estimate(card, row):
    """@return {"us", "bound", "of_memory"}: the time that the slowest part takes at the least. Multiprocessors without a
    block do nothing: that is most of them where there are few sequences."""
    c = CARDS[card]
    clocks = min(c["sms"], row["blocks"]) * c["clock"]
    busy = min(1.0, row["blocks"] / c["sms"])
    peak = {"int8": c["int8"] * busy, "bf16": c["bf16"] * busy, "dp4a": clocks * 64 * 8,
            "f32": clocks * 2 * c["f32_lanes"]}[row["pipe"]]
    parts = {"memory": row["bytes"] / c["memory"], row["pipe"]: row["ops"] / peak, "shared": row["wavefronts"] / clocks,
             "sectors": row["requested_bytes"] / (64 * clocks)}
    bound = max(parts, key=parts.get)
    return {"us": 1e6 * parts[bound], "bound": bound, "of_memory": parts["memory"] / parts[bound],
            "parts_us": {name: 1e6 * s for name, s in parts.items()}}
