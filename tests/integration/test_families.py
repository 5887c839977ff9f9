# SPDX-License-Identifier: Apache-2.0
"""Families of decoders in a whole cluster: handed over, in chunks, with what the prefix cache has, the same bytes."""
import tempfile

from harness import Cluster, tiny_model, wait_until
from test_same_bytes import WORDS, options, reused

# Two that differ from llama in most: windows that alternate, norms behind, caps, GELU, a scaled embedding; and learned
# positions, layer norms, biases, one fused matrix. Prompts are longer than the window.
FAMILIES = {
    "gemma2": dict(architecture="gemma2", layers=4, head_dim=24, context=512, seed=44, window=40, soft_cap=20,
                   key="final_logit_softcapping=f:3"),
    "gpt2": dict(architecture="gpt2", layers=3, kv_heads=4, ffn=256, context=512, seed=52),
    "cohere2": dict(architecture="cohere2", layers=5, context=512, seed=58, window=40, key="logit_scale=f:0.5"),
}
TEXTS = [" ".join(WORDS[(i * 7 + j * 3) % len(WORDS)] for j in range(12 + 30 * i)) for i in range(4)]


def ask(cluster, again):
    """Greedy and drawn; the second time the prefix cache has the prompts."""
    answers = []
    for _ in range(2 if again else 1):
        answers.append([cluster.complete(text, 10, ignore_eos=True, **more)["token_ids"]
                        for text in TEXTS for more in (dict(temperature=0), dict(temperature=0.9, seed=5))])
        cluster.wait_idle()
    return answers


def test_families_give_the_same_bytes_every_way():
    for name, shape in FAMILIES.items():
        with tempfile.TemporaryDirectory() as d:
            model = tiny_model(d, **shape)
            with Cluster(model, kv_memory="32m", **options("local", 512)) as c:
                want = ask(c, False)[0]
            assert len({tuple(ids) for ids in want}) > len(TEXTS), name
            for way, chunk in (("shm", 16), ("tcp", 64)):
                with Cluster(model, kv_memory="32m", **options(way, chunk, "on")) as c:
                    for got in ask(c, True):
                        assert got == want, f"{name}, {way}, chunks of {chunk}"
                    wait_until(f"blocks reused, {name}", lambda: reused(c) > 0)
