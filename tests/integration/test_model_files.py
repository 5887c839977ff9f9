# SPDX-License-Identifier: Apache-2.0
"""Models in several files, and of tensor types that are packed in other ways than they lie in the file."""
import os
import tempfile

from harness import Cluster, Process, tiny_model
from split_model import split
from test_failures import bad_start

PROMPT = "a tale of many parts"


def model_of(directory, kind, **more):
    return tiny_model(directory, layers=2, dim=256, heads=8, kv_heads=2, ffn=512, context=256, seed=5, type=kind, **more)


def answer(model, worker_model=None, **more):
    with Cluster(worker_model or model, **more) as c:
        return c.complete(PROMPT, 24, temperature=0, ignore_eos=True)["token_ids"]


class MixedCluster(Cluster):
    """The router opens one part of the model, workers others."""
    parts = ()

    def start_router(self):
        self.model = self.parts[0]
        return super().start_router()

    def start_worker(self, role, index, extra=()):
        self.model = self.parts[1 if role == "prefill" else 2]
        return super().start_worker(role, index, extra)


def test_split_model_opens_by_any_of_its_files():
    with tempfile.TemporaryDirectory() as d:
        whole = model_of(d, "IQ4_XS", mixed_type="IQ4_NL", embedding_type="MXFP4")
        want = answer(whole)
        MixedCluster.parts = split(whole, 3)
        os.unlink(whole)
        with MixedCluster(MixedCluster.parts[0]) as c:
            assert c.complete(PROMPT, 24, temperature=0, ignore_eos=True)["token_ids"] == want


def test_missing_model_part_is_named_by_routers_and_workers():
    with tempfile.TemporaryDirectory() as d:
        parts = split(model_of(d, "Q3_K"), 3)
        os.unlink(parts[2])
        words = ["part 3 of 3", os.path.basename(parts[2]), "No such file"]
        bad_start(["--model", parts[1]], words)
        router = Process("router", "router", ["--model", parts[0], "--http", "127.0.0.1:0"], d)
        router.popen.wait(60)
        log = router.log()
        router.close()
        assert router.popen.returncode != 0
        assert all(w in log for w in words), log


def test_every_packing_gives_the_same_bytes_in_every_tier():
    """One type of each way that books and few bits are packed."""
    for kind in ("IQ4_NL", "NVFP4", "IQ3_XXS", "IQ2_XS", "TQ1_0", "Q2_K"):
        with tempfile.TemporaryDirectory() as d:
            model = model_of(d, kind)
            answers = [answer(model, env={"BATON_CPU_TIER": tier}) for tier in ("plain", "avx2", "avx512")]
            assert all(a == answers[0] for a in answers), (kind, answers)
