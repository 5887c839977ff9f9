# SPDX-License-Identifier: Apache-2.0
"""The peer's half of bench/engine.py; runs in the environment of bench/_llama.py.

    _llama_peer.py quantize IN.gguf OUT.gguf FTYPE
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
import os
import random
import sys
import time

import llama_cpp as lib

# The library keeps the bare pointer.
SILENT = lib.llama_log_callback(lambda *_: None)


def quantize(source, target, ftype):
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = ftype, True, os.cpu_count()
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
        return quantize(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    peer = Peer(sys.argv[2], *(int(x) for x in sys.argv[3:]))
    print(json.dumps({"version": lib.__version__}), flush=True)
    for line in sys.stdin:
        name, n = line.split()
        seconds = {"threads": peer.threads, "prefill": peer.prefill, "decode": peer.decode}[name](int(n))
        print(json.dumps({"seconds": seconds}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
