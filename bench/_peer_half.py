# SPDX-License-Identifier: Apache-2.0
"""What the halves of peers that are libraries of the llama.cpp family do; each runs in its peer's own environment.

A half prints a line of JSON, then answers commands as bench/_engine_run.c does:

    threads N   from now on
    prefill N   one sequence of N random tokens, micro-batches of CHUNK, logits of
                the last one: {"seconds"}
    decode B    B sequences that hold AFTER tokens each: STEPS steps of one token
                for each, with logits: {"seconds"}

The states of the sequences that decode are computed once and put back before each
decode, which is not timed; nothing else is in the cache then.
"""
import collections
import ctypes
import json
import random
import sys
import time

# chunk: tokens of a micro-batch; max_prefill, max_batch, after, steps: of bench/quants.py
Work = collections.namedtuple("Work", "chunk max_prefill max_batch after steps")


def work_of(words):
    return Work(*(int(x) for x in words))


def cells(work):
    """Positions that a cache has room for: the longest prompt, or all sequences that decode."""
    return -(-max(work.max_prefill, work.max_batch * (work.after + work.steps)) // 256) * 256


class Sequences:
    """Sequences in one context of the library, and what is timed with them.

    calls: what the versions of the library name differently, each of the context first: clear(context),
    state_size(context, seq), get_state(context, bytes, size, seq), set_state(context, bytes, size, seq), and
    set_threads(context, n)."""

    def __init__(self, lib, calls, context, n_vocab, work):
        self.lib, self.calls, self.context, self.n_vocab, self.work = lib, calls, context, n_vocab, work
        self.batch = lib.llama_batch_init(max(work.chunk, work.max_batch), 0, 1)
        self.random = random.Random(1)
        self.states = []

    def decode_rows(self, rows):
        """rows: (position, sequence, whether its logits are wanted)"""
        b = self.batch
        b.n_tokens = len(rows)
        for i, (position, seq, wanted) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i] = self.random.randrange(100, self.n_vocab - 100), position, 1
            b.seq_id[i][0], b.logits[i] = seq, wanted
        if self.lib.llama_decode(self.context, b) != 0:
            raise SystemExit("llama_decode failed")
        self.lib.llama_synchronize(self.context)

    def fill(self, n, seq):
        for pos in range(0, n, self.work.chunk):
            self.decode_rows([(p, seq, p == n - 1) for p in range(pos, min(pos + self.work.chunk, n))])

    def prefill(self, n):
        self.calls.clear(self.context)
        start = time.perf_counter()
        self.fill(n, 0)
        return time.perf_counter() - start

    def save_states(self):
        self.calls.clear(self.context)
        for seq in range(self.work.max_batch):
            self.fill(self.work.after, seq)
        for seq in range(self.work.max_batch):
            size = self.calls.state_size(self.context, seq)
            state = (ctypes.c_uint8 * size)()
            if self.calls.get_state(self.context, state, size, seq) == 0:
                raise SystemExit("the peer does not save a sequence")
            self.states.append(state)

    def decode(self, n):
        if not self.states:
            self.save_states()
        self.calls.clear(self.context)
        for seq in range(n):
            state = self.states[seq]
            if self.calls.set_state(self.context, state, len(state), seq) == 0:
                raise SystemExit("the peer does not restore a sequence")
        start = time.perf_counter()
        for step in range(self.work.steps):
            self.decode_rows([(self.work.after + step, seq, 1) for seq in range(n)])
        return time.perf_counter() - start

    def threads(self, n):
        self.calls.set_threads(self.context, n)
        return 0.0


def answer(version, commands):
    """commands: {word: function of a number that returns seconds}"""
    print(json.dumps({"version": version}), flush=True)
    for line in sys.stdin:
        name, n = line.split()
        print(json.dumps({"seconds": commands[name](int(n))}), flush=True)
