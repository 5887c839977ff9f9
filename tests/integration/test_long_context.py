# SPDX-License-Identifier: Apache-2.0
"""A prompt that fills a context of 131,072 tokens (20,000 of them but in the long form): handed over, in chunks of other
sizes, with what the prefix cache has, the same bytes. A model of one layer: that a position sees all others is what
takes the time."""
import os
import random
import tempfile
import threading

from harness import Cluster, tiny_model, wait_until
from test_same_bytes import options, reused

CONTEXT = 131072
N_NEW = 12
SHAPE = dict(layers=1, dim=32, heads=2, kv_heads=1, ffn=64, context=CONTEXT, seed=3, rope_factors=True)


def long_prompt():
    rng = random.Random(5)
    n = CONTEXT - N_NEW if os.environ.get("BATON_LONG") else 20000
    return [rng.randrange(3, 259) for _ in range(n)]


def answer(cluster, prompt):
    got = cluster.complete(prompt, N_NEW, patience=500, temperature=0, ignore_eos=True)["token_ids"]
    assert len(got) == N_NEW
    return got


def test_prompt_that_fills_a_long_context_is_answered():
    prompt = long_prompt()
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, **SHAPE)
        with Cluster(model, kv_memory="32m", **options("local", 2048)) as c:
            want = answer(c, prompt)
            other = answer(c, prompt[::-1])
        assert want != other
        with Cluster(model, kv_memory="32m", **options("tcp", 512, "on")) as c:
            short = []
            beside = threading.Thread(target=lambda: short.append(c.complete(prompt[:8], N_NEW, temperature=0)))
            beside.start()
            assert answer(c, prompt) == want
            beside.join()
            assert short, "no answer beside the long prompt"
            c.wait_idle()
            before = reused(c)
            assert answer(c, prompt) == want
            wait_until("the prompt was found again", lambda: reused(c) - before >= (len(prompt) - 1) // 16)
            status, error = c.post("/v1/completions", {"prompt": prompt + [7] * CONTEXT, "max_tokens": 1})
            assert status == 400 and str(CONTEXT) in str(error), (status, str(error)[:300])
