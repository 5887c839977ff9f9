# SPDX-License-Identifier: Apache-2.0
"""--kv-dtype: what it takes, and what differs is refused."""
import re
import tempfile

from harness import Cluster, default_model, small_model, wait_until
from test_failures import expect_refusal
from test_same_bytes import WORDS, options

# 2 x 30 layers x 3 heads x 16 tokens = 2880 vectors of 64; int8 and fp8 have 4 bytes of scale with each.
BLOCK_BYTES = {"bf16": 2880 * 128, "f16": 2880 * 128, "int8": 2880 * (64 + 4),
               "fp8": 2880 * (64 + 4)}


def test_worker_with_another_kv_type_is_refused_by_name():
    with tempfile.TemporaryDirectory() as d:
        model = small_model(d)
        with Cluster(model, worker_args=["--kv-dtype", "int8"]) as c:
            # Elements of one size: f16 and bf16 differ in nothing else.
            expect_refusal(c, c.start_worker("decode", 9, ["--kv-dtype", "f16"]),
                           "decode-9 stores KV as type 0, but ")
            expect_refusal(c, c.start_worker("prefill", 9, ["--kv-dtype", "bf16"]),
                           "prefill-9 stores KV as type 1, but ")
            # The same, with scales.
            expect_refusal(c, c.start_worker("decode", 9, ["--kv-dtype", "fp8"]),
                           "decode-9 stores KV as type 3, but ")


def test_smaller_kv_type_gives_more_blocks():
    model = default_model()
    for kv_type, block_bytes in BLOCK_BYTES.items():
        with Cluster(model, kv_memory="64m", worker_args=["--kv-dtype", kv_type]) as c:
            for worker in c.prefills + c.decodes:
                wait_until("pool's size logged", lambda w=worker: "KV blocks" in w.log())
                found = re.search(r"(\d+) (\w+) KV blocks of 16 tokens", worker.log())
                assert found, worker.log()
                assert found.group(2) == kv_type
                assert int(found.group(1)) == (64 << 20) // block_bytes, worker.log()
            assert c.complete("The capital of France is", 2, temperature=0)["text"] == " Paris."


def test_early_sent_layers_include_their_scales():
    """Of a prompt that is long enough, finished layers leave during its last chunk; the scales lie behind all. On a
    busy machine the layers may all be there at the first look, so it is asked until some left early."""
    model = default_model()
    text = " ".join(WORDS[i * 7 % len(WORDS)] for i in range(200))  # some 250 tokens
    answers = []
    for way, overlap in (("local", "none"), ("shm", "layers"), ("tcp", "layers")):
        more = options(way, 512)
        more["worker_args"] += ["--kv-dtype", "int8"]
        with Cluster(model, kv_memory="128m", prefill_args=["--kv-overlap", overlap], **more) as c:
            def pieces(cluster=c):
                """of the KV of one answer"""
                before = cluster.metric("baton_kv_transfer_descriptors_total")
                answers.append(cluster.complete(text, 12, temperature=0, ignore_eos=True)["token_ids"])
                cluster.wait_idle()
                return cluster.metric("baton_kv_transfer_descriptors_total") - before
            if way == "local":
                assert pieces() == 0
            else:
                # Whole blocks would be 20 pieces at most.
                wait_until(f"layers left early, {way}", lambda: pieces() > 40)
    assert all(a == answers[0] for a in answers), answers
