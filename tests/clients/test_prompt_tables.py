#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prompt tables by tritonclient, unmodified from PyPI, over HTTP, gRPC and shared memory.

Usage: test_prompt_tables.py [NAME ...]

As test_clients.py: needs BATON_BUILD and the packages tritonclient[http,grpc], which BATON_CLIENTS_PYTHON may have. The
model is a small one, whose file has its embeddings as numbers: a table of them is held against the token ids themselves.
"""
import contextlib
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
import split_model  # noqa: E402
import test_lora_triton as lora  # noqa: E402
from adapters import Adapter  # noqa: E402
from test_lora_triton import clients, put  # noqa: E402

MODEL = "tensorrt_llm"
IDS = [(7 * i * i + 11 * i) % 250 + 3 for i in range(60)]
PLACES = range(20, 45)
try:
    import numpy as np
    import tritonclient.http as over_http
    import tritonclient.utils.shared_memory as shm
    from tritonclient.utils import InferenceServerException
    MISSING = None
except ImportError as why:  # the runner says so
    MISSING = why


@contextlib.contextmanager
def cluster(kind="F16", args=()):
    """@return (cluster, the model's embeddings (vocabulary, width))"""
    with tempfile.TemporaryDirectory() as d:
        path = harness.tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1, embedding_type=kind)
        with open(path, "rb") as f:
            tensors = split_model.read(f.read())[2]
        dims, _, data = next(t[1:] for t in tensors if t[0] == b"token_embd.weight")
        rows = np.frombuffer(data, np.float16 if kind == "F16" else np.float32, dims[0] * dims[1])
        with harness.Cluster(path, router_args=["--shared-memory", "on", *args], worker_args=list(args)) as c:
            yield c, rows.reshape(dims[1], dims[0])


def asked(module, ids, seed=1):
    made = [put(module, "input_ids", np.array([ids], np.int32), "INT32"),
            put(module, "input_lengths", np.array([[len(ids)]], np.int32), "INT32"),
            put(module, "request_output_len", np.array([[8]], np.int32), "INT32"),
            put(module, "runtime_top_k", np.array([[20]], np.int32), "INT32"),
            put(module, "temperature", np.array([[0.9]], np.float32), "FP32"),
            put(module, "random_seed", np.array([[seed]], np.uint64), "UINT64"),
            put(module, "exclude_input_in_output", np.array([[True]]), "BOOL"),
            put(module, "return_generation_logits", np.array([[True]]), "BOOL")]
    return made


def answer(t, inputs):
    result = t.infer(MODEL, inputs)
    return result.as_numpy("output_ids").tolist(), result.as_numpy("generation_logits").tobytes()


def with_rows(embeddings):
    """@return (ids of which some are rows, the rows)"""
    distinct = sorted({IDS[i] for i in PLACES})
    ids = [len(embeddings) + distinct.index(x) if i in PLACES else x for i, x in enumerate(IDS)]
    return ids, embeddings[distinct][None]


def size(module, rows):
    return put(module, "prompt_vocab_size", np.array([[rows.shape[1]]], np.int32), "INT32")


def test_rows_of_the_model_are_its_tokens_at_both_doors(_):
    for kind, dtype in (("F16", "FP16"), ("F32", "FP32")):
        with cluster(kind) as (c, embeddings):
            ids, rows = with_rows(embeddings)
            answers = []
            for module, t in clients(c):
                answers.append(answer(t, asked(module, IDS)))
                answers.append(answer(t, asked(module, ids) + [put(module, "prompt_embedding_table", rows, dtype), size(module, rows)]))
                other = rows.copy()
                other[0, 3] *= 2
                changed = answer(t, asked(module, ids) + [put(module, "prompt_embedding_table", other, dtype), size(module, rows)])
                assert changed[1] != answers[0][1], "the rows do not matter"
            assert answers[1:] == answers[:1] * 3, [a[0] for a in answers]


def test_table_and_adapter_in_one_request_are_both_used(_):
    """The model's own rows with an adapter's three tensors are the ids with the adapter; the table's KV is the adapter's alone."""
    with cluster(args=["--lora-cache-host-memory=64m"]) as (c, embeddings):
        ids, rows = with_rows(embeddings)
        for number, (module, t) in enumerate(clients(c), 1):
            table = [put(module, "prompt_embedding_table", rows, "FP16"), size(module, rows)]
            made = lora.weights(module, lora.tensors(Adapter(8, 5, lora.SHAPE)))
            plain = answer(t, asked(module, ids) + table)
            both = answer(t, asked(module, ids) + table + [lora.task(module, number), *made])
            assert both == answer(t, asked(module, IDS) + [lora.task(module, number)])
            assert both[1] != plain[1] and plain == answer(t, asked(module, IDS))
            for _ in range(2):
                assert answer(t, asked(module, ids) + table + [lora.task(module, number)]) == both
                assert answer(t, asked(module, ids) + table) == plain


def test_bf16_rows_are_those_of_f32(_):
    with cluster("F32") as (c, embeddings):
        ids, rows = with_rows(embeddings)
        bits = rows.view(np.uint32) >> 16  # cut off, not rounded: any BF16 will do
        raw, wide = bits.astype(np.uint16), (bits << 16).astype(np.uint32).view(np.float32)
        for module, t in clients(c):
            short = module.InferInput("prompt_embedding_table", list(rows.shape), "BF16")
            if module is over_http:
                short._raw_data = raw.tobytes()
                short._parameters["binary_data_size"] = raw.nbytes
            else:
                short._raw_content = raw.tobytes()
            got = answer(t, asked(module, ids) + [short, size(module, rows)])
            assert got == answer(t, asked(module, ids) + [put(module, "prompt_embedding_table", wide, "FP32"), size(module, rows)])


def test_tables_lie_in_shared_memory(_):
    with cluster() as (c, embeddings):
        ids, rows = with_rows(embeddings)
        key = f"/shmtable-{os.getpid()}"
        handle = shm.create_shared_memory_region("table", key, rows.nbytes + 64, create_only=True)
        try:
            shm.set_shared_memory_region(handle, [rows], offset=64)
            for module, t in clients(c):
                want = answer(t, asked(module, IDS))
                t.register_system_shared_memory("table", key, rows.nbytes + 64)
                lent = module.InferInput("prompt_embedding_table", list(rows.shape), "FP16")
                lent.set_shared_memory("table", rows.nbytes, offset=64)
                assert answer(t, asked(module, ids) + [lent, size(module, rows)]) == want
                t.unregister_system_shared_memory("table")
        finally:
            shm.destroy_shared_memory_region(handle)


def test_batches_have_a_table_for_each_row(_):
    """Two prompts in one request, each with a table of its own under equal ids."""
    with cluster() as (c, embeddings):
        n = len(embeddings)
        rows = np.stack([embeddings[[7, 8]], embeddings[[9, 10]]])
        ids = np.array([[5, n, n + 1], [5, n, n + 1]], np.int32)
        for module, t in clients(c):
            def ask(ids, *more):
                made = [put(module, "input_ids", ids, "INT32"), put(module, "request_output_len", np.full((2, 1), 6, np.int32), "INT32"),
                        put(module, "exclude_input_in_output", np.array([[True]] * 2), "BOOL"), *more]
                return t.infer(MODEL, made).as_numpy("output_ids").tolist()
            want = ask(np.array([[5, 7, 8], [5, 9, 10]], np.int32))
            assert want[0] != want[1]
            assert ask(ids, put(module, "prompt_embedding_table", rows, "FP16"),
                       put(module, "prompt_vocab_size", np.full((2, 1), 2, np.int32), "INT32")) == want


def test_refusals_name_the_tensor(_):
    with cluster() as (c, embeddings):
        ids, rows = with_rows(embeddings)
        bad = rows.copy()
        bad[0, 0, 0] = np.inf
        for module, t in clients(c):
            def refused(part, *tensors, ids=ids):
                try:
                    answer(t, asked(module, ids) + list(tensors))
                except InferenceServerException as wrong:
                    assert part in wrong.message(), (part, wrong.message())
                    return
                raise AssertionError(f"no error with {part!r}")
            table = put(module, "prompt_embedding_table", rows, "FP16")
            refused("input 'prompt_embedding_table' needs the input 'prompt_vocab_size'", table)
            refused("input 'prompt_vocab_size' needs the input 'prompt_embedding_table'", size(module, rows))
            refused("input 'prompt_vocab_size' is 3, but prompt_embedding_table has", table,
                    put(module, "prompt_vocab_size", np.array([[3]], np.int32), "INT32"))
            refused("input 'prompt_embedding_table' has a number that is not finite",
                    put(module, "prompt_embedding_table", bad, "FP16"), size(module, rows))
            refused("prompt_embedding_table has rows of 32 elements; embeddings of model tiny have 64",
                    put(module, "prompt_embedding_table", rows[:, :, :32].copy(), "FP16"), size(module, rows))
            refused("and prompt_embedding_table those up to", table, size(module, rows), ids=ids + [len(embeddings) + rows.shape[1]])
            assert t.is_server_ready()


if __name__ == "__main__":
    sys.exit(client_tests.main(dict(globals()), MISSING, model_of=None))
