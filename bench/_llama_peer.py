# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's half of benchmarks (bench/_peer_half.py says what `run` answers); runs in the environment of bench/_llama.py.

    _llama_peer.py quantize IN.gguf OUT.gguf FTYPE [IMATRIX.gguf]
    _llama_peer.py scatter SOURCE.gguf F32.gguf SEED
    _llama_peer.py run MODEL.gguf CHUNK MAX_PREFILL MAX_BATCH AFTER STEPS
    _llama_peer.py drafts MODEL.gguf THREADS CONTEXT N,...

`drafts` answers a line of JSON {"drafts", "ids", "n", "temperature", "seed"} with {"ids", "seconds", "ttft"}: n tokens behind the
prompt; drafts: 0, or one of the Ns, by LlamaPromptLookupDecoding of llama-cpp-python.
"""
import ctypes
import json
import math
import os
import struct
import sys
import time

import llama_cpp as lib
import numpy
from _peer_half import Sequences, answer, cells, work_of
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

# The library keeps the bare pointer.
SILENT = lib.llama_log_callback(lambda *_: None)


MXFP4_FTYPE, MXFP4, Q8_0 = 38, 39, 8  # LLAMA_FTYPE_MOSTLY_MXFP4_MOE; ggml_type


def tensors_of(data):
    """Of a GGUF file: {name: (dims, type, where its data is)}"""
    at = 8

    def take(kind):
        nonlocal at
        value, = struct.unpack_from("<" + kind, data, at)
        at += struct.calcsize("<" + kind)
        return value

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return bytes(data[at - n:at]).decode(errors="replace")

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            item, n = take("I"), take("Q")
            return [value(item) for _ in range(n)]
        return take("BbHhIif?__Qqd"[kind])

    n_tensors, n_keys = take("Q"), take("Q")
    alignment = 32
    for _ in range(n_keys):
        key, found = text(), value(take("I"))
        alignment = found if key == "general.alignment" else alignment
    tensors = {}
    for _ in range(n_tensors):
        name = text()
        dims = [take("Q") for _ in range(take("I"))]
        kind = take("I")
        tensors[name] = dims, kind, take("Q")
    begin = -(-at // alignment) * alignment
    return {name: (dims, kind, begin + offset) for name, (dims, kind, offset) in tensors.items()}


def imatrix_of(path):
    """The means that llama.cpp's own tool makes of an importance matrix: {name: floats}"""
    with open(path, "rb") as f:
        data = f.read()
    tensors = tensors_of(data)

    def floats(name):
        dims, _, at = tensors[name]
        return struct.unpack_from(f"<{math.prod(dims)}f", data, at)

    out = {}
    for name in (n.removesuffix(".in_sum2") for n in tensors if n.endswith(".in_sum2")):
        sums, counts = floats(name + ".in_sum2"), floats(name + ".counts")
        columns = len(sums) // len(counts)
        out[name] = [s / counts[i // columns] if counts[i // columns] else 1.0 for i, s in enumerate(sums)]
    return out


def scatter(source, target, seed):
    """Move each number of target, which is source as F32, at random inside the step of the block that it has in source:
    where it might have been before it was rounded to Q4_1 or Q8_0."""
    blocks = {3: 20, 8: 34}  # bytes of 32 numbers, which begin with the step, as F16
    rng = numpy.random.default_rng(seed)
    old = numpy.memmap(source, dtype=numpy.uint8, mode="r")
    new = numpy.memmap(target, dtype=numpy.uint8, mode="r+")
    places = tensors_of(new)
    for name, (dims, kind, at) in tensors_of(old).items():
        if kind not in blocks:
            continue
        n = math.prod(dims)
        steps = old[at:at + n // 32 * blocks[kind]].reshape(-1, blocks[kind])[:, :2].copy().view(numpy.float16)
        x = new[places[name][2]:][:4 * n].view(numpy.float32).reshape(-1, 32)
        x += numpy.abs(steps.astype(numpy.float32)) * rng.uniform(-0.5, 0.5, size=x.shape).astype(numpy.float32)
    new.flush()
    return 0


def quantize(source, target, ftype, imatrix=None):
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = ftype, True, os.cpu_count()
    kept = []
    if imatrix:
        means = imatrix_of(imatrix)
        items = (lib.llama_model_imatrix_data * (len(means) + 1))()
        for item, (name, values) in zip(items, means.items()):
            kept.append((ctypes.c_float * len(values))(*values))
            item.name, item.data, item.size = name.encode(), kept[-1], len(values)
        params.imatrix = items
    if ftype == MXFP4_FTYPE:
        # By itself it makes experts alone MXFP4, and all else Q8_0.
        types = (lib.llama_model_tensor_override * 3)((b"attn_(q|k|v|qkv|output)\\.weight", MXFP4),
                                                      (b"ffn_(up|gate|down)\\.weight", MXFP4), (None, 0))
        params.tt_overrides = types
        params.token_embedding_type = params.output_tensor_type = Q8_0
    return lib.llama_model_quantize(source.encode(), target.encode(), params)


class Calls:
    """What bench/_peer_half.py asks of this version of the library."""

    @staticmethod
    def clear(context):
        lib.llama_memory_clear(lib.llama_get_memory(context), True)

    @staticmethod
    def state_size(context, seq):
        return lib.llama_state_seq_get_size(context, seq)

    @staticmethod
    def get_state(context, data, size, seq):
        return lib.llama_state_seq_get_data(context, data, size, seq)

    @staticmethod
    def set_state(context, data, size, seq):
        return lib.llama_state_seq_set_data(context, data, size, seq)

    @staticmethod
    def set_threads(context, n):
        lib.llama_set_n_threads(context, n, n)


def sequences(path, work):
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}")
    params = lib.llama_context_default_params()
    params.n_ctx = cells(work)
    params.n_batch, params.n_ubatch, params.n_seq_max = max(work.chunk, work.max_batch), work.chunk, work.max_batch
    params.kv_unified = True
    context = lib.llama_init_from_model(model, params)
    if not context:
        raise SystemExit("llama.cpp makes no context")
    return Sequences(lib, Calls, context, lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model)), work)


def generated(llama, task):
    """n tokens behind the ids, none of which is there from the request before"""
    llama.reset()
    llama.set_seed(task["seed"])
    ids, started, first = [], time.monotonic(), 0
    for token in llama.generate(task["ids"], temp=task["temperature"], top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0):
        ids.append(token)
        if len(ids) == 1:
            first = time.monotonic()
        if len(ids) == task["n"]:
            break
    return {"ids": ids, "seconds": time.monotonic() - first, "ttft": first - started}


def with_drafts(path, threads, context, numbers):
    # It keeps all logits where it drafts, but has no room for those behind the first batch unless it is told to keep them.
    llamas = {n: lib.Llama(path, n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False, logits_all=n > 0,
                           draft_model=LlamaPromptLookupDecoding(num_pred_tokens=n) if n > 0 else None) for n in [0, *numbers]}
    print(json.dumps({"version": lib.__version__}), flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        print(json.dumps(generated(llamas[task["drafts"]], task)), flush=True)
    return 0


def main():
    lib.llama_log_set(SILENT, None)
    lib.llama_backend_init()
    if sys.argv[1] == "quantize":
        return quantize(sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:])
    if sys.argv[1] == "scatter":
        return scatter(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    if sys.argv[1] == "drafts":
        return with_drafts(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), [int(n) for n in sys.argv[5].split(",")])
    peer = sequences(sys.argv[2], work_of(sys.argv[3:]))
    answer(lib.__version__, {"threads": peer.threads, "prefill": peer.prefill, "decode": peer.decode})
    return 0


if __name__ == "__main__":
    sys.exit(main())
