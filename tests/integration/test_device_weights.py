# SPDX-License-Identifier: Apache-2.0
"""Packed weights of a device: from the file that the host's workers share, whatever their numeric profile."""
import os
import tempfile

from harness import Cluster, tiny_model
from test_cuda_sim import left_nothing, plugin, ranks_cluster
from test_fp8_weights import SHAPE as FP8_SHAPE
from test_hf_folders import fp8_folder
from test_weight_cache import lines

SHAPE = dict(layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=128, seed=5)
SAID = (": built in ", ": found and verified in ", " cannot be kept in ", "building them again")


def start(model, cache, *sides, **more):
    """@return tokens, and how many workers built, found, did without, found a wrong one"""
    both = [["--backend", "cpu"] if side == "cpu" else ["--backend", "cuda_sim", "--numerics", side] for side in sides]
    with Cluster(model, prefill_args=both[0], decode_args=both[1], worker_args=["--compute-watchdog-ms", "600000", "--chunk-tokens", "64"],
                 env=dict(plugin(), BATON_WEIGHT_CACHE=cache), **more) as c:
        counts = tuple(lines(c, text) for text in SAID)
        ids = c.complete("a b c", 4, patience=600, ignore_eos=True, temperature=0)["token_ids"]
        left_nothing(c)
    return ids, counts


def test_device_loads_weights_from_the_packed_file():
    with tempfile.TemporaryDirectory() as d:
        model, cache = tiny_model(d, **SHAPE), os.path.join(d, "cache")
        want, counts = start(model, "off", "exact", "exact")
        assert counts == (0, 0, 0, 0), counts
        assert start(model, cache, "exact", "exact") == (want, (1, 1, 0, 0))
        assert start(model, cache, "exact", "cpu") == (want, (0, 2, 0, 0))
        assert start(model, cache, "tensor", "tensor")[1] == (0, 2, 0, 0)
        path, = (os.path.join(cache, name) for name in os.listdir(cache))
        os.chmod(path, 0o600)
        with open(path, "r+b") as file:
            file.seek(5000)
            byte = file.read(1)
            file.seek(5000)
            file.write(bytes([byte[0] ^ 0x10]))
        ids, counts = start(model, cache, "exact", "exact")
        assert ids == want and counts[0] == 1 and counts[3] >= 1, (ids, counts)
        assert start(model, os.path.join(model, "no", "folder"), "exact", "exact") == (want, (0, 0, 2, 0))


def test_device_and_cpu_weights_are_separate_packed_files():
    with tempfile.TemporaryDirectory() as d:
        cache = os.path.join(d, "cache")
        folder = fp8_folder(tiny_model(d, **FP8_SHAPE), os.path.join(d, "folder"), (64, 64), False)
        want, counts = start(folder, cache, "exact", "cpu")
        assert counts == (2, 0, 0, 0), counts
        assert start(folder, cache, "exact", "cpu") == (want, (0, 2, 0, 0))


def test_each_shard_of_a_model_has_its_own_packed_file():
    with tempfile.TemporaryDirectory() as d:
        model, cache = tiny_model(d, **SHAPE), os.path.join(d, "cache")
        said = []
        for want in ((2, 2), (0, 4)):
            with ranks_cluster(model, "cuda_sim", "2x1", "2x1", 2, races=False, env={"BATON_WEIGHT_CACHE": cache}) as c:
                said.append(c.complete("a b c", 4, patience=600, ignore_eos=True, temperature=0)["token_ids"])
                assert tuple(lines(c, text) for text in SAID[:2]) == want, (want, [p.log() for p in c.prefills])
                left_nothing(c)
        assert said[0] == said[1]
