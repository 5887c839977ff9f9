# SPDX-License-Identifier: Apache-2.0
"""The peer's half of bench/engine.py and bench/quantizer.py; runs in the environment of bench/_llama.py.

    _llama_peer.py quantize IN.gguf OUT.gguf FTYPE [IMATRIX.gguf]
    _llama_peer.py scatter SOURCE.gguf F32.gguf SEED
    _llama_peer.py run MODEL.gguf CHUNK MAX_PREFILL MAX_BATCH AFTER STEPS

`run` prints a line of JSON, then answers commands as bench/_engine_run.c does:

    threads N   from now on
    prefill N   one sequence of N random tokens, micro-batches of CHUNK, logits of
                the last one: {"seconds"}
    decode B    B sequences that hold AFTER tokens each: STEPS steps of one token
                for each, with logits: {"seconds"}

The states of the sequences that decode are computed once and put back before each
decode, which is not timed; nothing else is in the cache then.
"""
import ctypes
import json
import math
import os
import random
import struct
import sys
import time

import llama_cpp as lib
import numpy

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


class Peer:
    def __init__(self, path, chunk, max_prefill, max_batch, after, steps):
        self.chunk, self.after, self.steps = chunk, after, steps
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        params = lib.llama_context_default_params()
        cells = max(max_prefill, max_batch * (after + steps))
        params.n_ctx = -(-cells // 256) * 256
        params.n_batch, params.n_ubatch, params.n_seq_max = max(chunk, max_batch), chunk, max_batch
        params.kv_unified = True
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit("llama.cpp makes no context")
        self.memory = lib.llama_get_memory(self.context)
        self.n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.batch = lib.llama_batch_init(max(chunk, max_batch), 0, 1)
        self.random = random.Random(1)
        self.max_batch = max_batch
        self.states = []

    def decode_rows(self, rows):
        """rows: (position, sequence, whether its logits are wanted)"""
        b = self.batch
        b.n_tokens = len(rows)
        for i, (position, seq, wanted) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i] = self.random.randrange(100, self.n_vocab - 100), position, 1
            b.seq_id[i][0], b.logits[i] = seq, wanted
        if lib.llama_decode(self.context, b) != 0:
            raise SystemExit("llama_decode failed")
        lib.llama_synchronize(self.context)

    def fill(self, n, seq):
        for pos in range(0, n, self.chunk):
            self.decode_rows([(p, seq, p == n - 1) for p in range(pos, min(pos + self.chunk, n))])

    def prefill(self, n):
        lib.llama_memory_clear(self.memory, True)
        start = time.perf_counter()
        self.fill(n, 0)
        return time.perf_counter() - start

    def save_states(self):
        lib.llama_memory_clear(self.memory, True)
        for seq in range(self.max_batch):
            self.fill(self.after, seq)
        for seq in range(self.max_batch):
            size = lib.llama_state_seq_get_size(self.context, seq)
            state = (ctypes.c_uint8 * size)()
            if lib.llama_state_seq_get_data(self.context, state, size, seq) == 0:
                raise SystemExit("llama.cpp does not save a sequence")
            self.states.append(state)

    def decode(self, n):
        if not self.states:
            self.save_states()
        lib.llama_memory_clear(self.memory, True)
        for seq in range(n):
            state = self.states[seq]
            if lib.llama_state_seq_set_data(self.context, state, len(state), seq) == 0:
                raise SystemExit("llama.cpp does not restore a sequence")
        start = time.perf_counter()
        for step in range(self.steps):
            self.decode_rows([(self.after + step, seq, 1) for seq in range(n)])
        return time.perf_counter() - start

    def threads(self, n):
        lib.llama_set_n_threads(self.context, n, n)
        return 0.0


def main():
    lib.llama_log_set(SILENT, None)
    lib.llama_backend_init()
    if sys.argv[1] == "quantize":
        return quantize(sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:])
    if sys.argv[1] == "scatter":
        return scatter(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    peer = Peer(sys.argv[2], *(int(x) for x in sys.argv[3:]))
    print(json.dumps({"version": lib.__version__}), flush=True)
    for line in sys.stdin:
        name, n = line.split()
        seconds = {"threads": peer.threads, "prefill": peer.prefill, "decode": peer.decode}[name](int(n))
        print(json.dumps({"seconds": seconds}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
