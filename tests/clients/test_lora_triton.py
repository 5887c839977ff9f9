#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters by Triton's tensors lora_task_id, lora_weights and lora_config, by tritonclient, unmodified from PyPI, over HTTP,
gRPC and shared memory.

Usage: test_lora_triton.py [NAME ...]

As test_clients.py: needs BATON_BUILD and the packages tritonclient[http,grpc], which BATON_CLIENTS_PYTHON may have. Adapters are
held against the same matrices in a folder as PEFT saves it.
"""
import concurrent.futures
import contextlib
import os
import socket
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
from adapters import ATTENTION, Adapter  # noqa: E402
from fleet import Fleet  # noqa: E402

SHAPE = dict(layers=2, dim=64, heads=4, kv_heads=2, ffn=128)
# TensorRT-LLM, tensorrt_llm/lora_manager.py (LORA_MODULE_IDS) and examples/hf_lora_convert.py (hf_modules_to_trtllm_modules).
MODULE_IDS = {"self_attn.q_proj": 1, "self_attn.k_proj": 2, "self_attn.v_proj": 3, "self_attn.o_proj": 4, "mlp.gate_proj": 5,
              "mlp.down_proj": 6, "mlp.up_proj": 7}
NOT_CACHED = "LoRA task %d not found in cache. Please send LoRA weights with request"
try:
    import numpy as np
    import tritonclient.grpc as over_grpc
    import tritonclient.http as over_http
    import tritonclient.utils.shared_memory as shm
    from tritonclient.utils import InferenceServerException
    MISSING = None
except ImportError as why:  # the runner says so
    MISSING = why


def tensors(adapter, kind=None, extra=0):
    """What hf_lora_convert.py makes of an adapter: B with its scale, rows of A and B with zeros up to one width.
    @return (lora_weights, lora_config)"""
    rows, config = [], []
    for (layer, module), (a, b, _, _) in adapter.parts.items():
        rows.append(np.concatenate([np.array(a, np.float32), np.array(b, np.float32) * np.float32(adapter.alpha / adapter.rank)]))
        config.append([MODULE_IDS[module], layer, adapter.rank])
    width = max(len(r) for r in rows) + extra
    return np.stack([np.pad(r, (0, width - len(r))) for r in rows])[None].astype(kind or np.float32), np.array([config], np.int32)


@contextlib.contextmanager
def cluster(adapters=(), memory="64m", router_args=(), worker_args=(), **shape):
    """@param adapters: those that the server has as folders, by name"""
    with tempfile.TemporaryDirectory() as d:
        path = harness.tiny_model(d, context=256, seed=1, type="f32", embedding_type="f32", **dict(SHAPE, **shape))
        args = [f"--lora={name}={a.peft(os.path.join(d, name))}" for name, a in dict(adapters).items()]
        args.append(f"--lora-cache-host-memory={memory}")
        with harness.Cluster(path, router_args=args + ["--shared-memory", "on", *router_args], worker_args=[*args, *worker_args]) as c:
            yield c


def clients(c):
    return [(over_http, over_http.InferenceServerClient("%s:%d" % c.http)),
            (over_grpc, over_grpc.InferenceServerClient("%s:%d" % c.grpc))]


def put(module, name, values, kind):
    made = module.InferInput(name, list(values.shape), kind)
    made.set_data_from_numpy(values)
    return made


def task(module, number, n=1):
    return put(module, "lora_task_id", np.full((n, 1), number, np.uint64), "UINT64")


def weights(module, both, dtype="FP32"):
    return [put(module, "lora_weights", both[0], dtype), put(module, "lora_config", both[1], "INT32")]


PROMPT = "one two three four"


def asked(module, *more, prompts=(PROMPT,)):
    n = len(prompts)
    return [put(module, "text_input", np.array([[p] for p in prompts], object), "BYTES"),
            put(module, "max_tokens", np.full((n, 1), 8, np.int32), "INT32"),
            put(module, "exclude_input_in_output", np.full((n, 1), True), "BOOL"),
            put(module, "return_generation_logits", np.full((n, 1), True), "BOOL"), *more]


def answer(t, module, *more, model="ensemble", prompts=(PROMPT,)):
    """@return text and logits of each prompt, and nothing else of the answer that could differ"""
    result = t.infer(model, asked(module, *more, prompts=prompts))
    return result.as_numpy("text_output").tolist(), result.as_numpy("generation_logits").tobytes()


def refused(t, module, *more, prompts=(PROMPT,)):
    try:
        t.infer("ensemble", asked(module, *more, prompts=prompts))
    except InferenceServerException as e:
        return e.message()
    raise AssertionError("it was not refused")


def test_first_use_needs_all_three_then_the_id_is_enough(_):
    """The sequence of tensorrtllm_backend's docs/lora.md, over HTTP and gRPC, against the folder; the model itself stays as it is."""
    adapter = Adapter(8, 5, SHAPE)
    with cluster({"folder": adapter}) as c:
        for number, (module, t) in enumerate(clients(c), 1):
            base, want = answer(t, module), answer(t, module, model="folder")
            assert base != want
            assert refused(t, module, task(module, number)) == NOT_CACHED % number
            assert answer(t, module, task(module, number), *weights(module, tensors(adapter))) == want
            assert answer(t, module, task(module, number)) == want
            assert answer(t, module, task(module, number), *weights(module, tensors(adapter))) == want
            assert answer(t, module) == base
            assert refused(t, module, task(module, 0)) == NOT_CACHED % 0
            assert refused(t, module, task(module, 2 ** 64 - 1)) == NOT_CACHED % (2 ** 64 - 1)


def test_model_of_ids_and_parts_of_a_prompt_that_are_cached(_):
    """Two adapters, the model and the same prompt in turns: KV of one is never found for another."""
    first, second = Adapter(8, 5, SHAPE), Adapter(4, 6, SHAPE, ATTENTION)
    with cluster({"first": first, "second": second}) as c:
        module, t = clients(c)[0]
        want = [answer(t, module), answer(t, module, model="first"), answer(t, module, model="second")]
        assert len({w[1] for w in want}) == 3
        answer(t, module, task(module, 1), *weights(module, tensors(first)))
        answer(t, module, task(module, 2), *weights(module, tensors(second)))
        for _ in range(2):
            assert [answer(t, module), answer(t, module, task(module, 1)), answer(t, module, task(module, 2))] == want
        ids = [put(module, "input_ids", np.array([[5, 6, 7, 8]], np.int32), "INT32"),
               put(module, "request_output_len", np.array([[8]], np.int32), "INT32")]
        outputs = [t.infer("tensorrt_llm", ids + more).as_numpy("output_ids").tolist()
                   for more in ([], [task(module, 1)], [task(module, 2)])]
        assert outputs[0] != outputs[1] != outputs[2] != outputs[0], outputs


def test_tensors_lie_in_shared_memory(_):
    adapter = Adapter(8, 5, SHAPE)
    with cluster({"folder": adapter}) as c:
        both = tensors(adapter)
        size = both[0].nbytes + both[1].nbytes
        key = f"/shmlora-{os.getpid()}"
        handle = shm.create_shared_memory_region("lora", key, size, create_only=True)
        try:
            shm.set_shared_memory_region(handle, list(both))
            for number, (module, t) in enumerate(clients(c), 1):
                t.register_system_shared_memory("lora", key, size)
                lent = [module.InferInput("lora_weights", list(both[0].shape), "FP32"),
                        module.InferInput("lora_config", list(both[1].shape), "INT32")]
                lent[0].set_shared_memory("lora", both[0].nbytes)
                lent[1].set_shared_memory("lora", both[1].nbytes, offset=both[0].nbytes)
                assert refused(t, module, task(module, number)) == NOT_CACHED % number
                want = answer(t, module, model="folder")
                assert answer(t, module, task(module, number), *lent) == want
                t.unregister_system_shared_memory("lora")
                assert answer(t, module, task(module, number)) == want
        finally:
            shm.destroy_shared_memory_region(handle)


def test_types_of_weights_are_f32_f16_and_bf16(_):
    """Numbers that all three types have: one answer. A width beyond the longest row is zeros; a fourth column says DoRA, 0."""
    adapter = Adapter(8, 5, SHAPE)
    for part in adapter.parts.values():
        for values in part[:2]:
            values[:] = [round(v * 256) / 1024 for v in values]
    with cluster({"folder": adapter}) as c:
        module, t = clients(c)[0]
        want = answer(t, module, model="folder")
        f32, config = tensors(adapter)
        assert (f32.astype(np.float16) == f32).all()
        assert answer(t, module, task(module, 1), *weights(module, (f32.astype(np.float16), config), "FP16")) == want
        bf16 = module.InferInput("lora_weights", list(f32.shape), "BF16")
        bf16._raw_data = (f32.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        bf16._parameters["binary_data_size"] = len(bf16._raw_data)
        assert answer(t, module, task(module, 2), bf16, put(module, "lora_config", config, "INT32")) == want
        wide = np.concatenate([config, np.zeros_like(config[..., :1])], axis=-1)
        assert answer(t, module, task(module, 3), *weights(module, (tensors(adapter, extra=9)[0], wide))) == want
        bare = (f32[0], config[0])  # without the batch's dimension
        assert answer(t, module, task(module, 4), *weights(module, bare)) == want


def test_fused_modules_are_their_parts(_):
    """attn_qkv (0): A once, rows of q, k and v; mlp_gate_up (18): rows of up, then of gate, exchanged against Hugging Face's."""
    adapter = Adapter(8, 5, SHAPE)
    for layer in range(SHAPE["layers"]):  # one A
        for a, b in (("self_attn.k_proj", "self_attn.q_proj"), ("self_attn.v_proj", "self_attn.q_proj"), ("mlp.up_proj", "mlp.gate_proj")):
            adapter.parts[layer, a][0][:] = adapter.parts[layer, b][0]
    rows, config = [], []
    for layer in range(SHAPE["layers"]):
        def part(name, side):
            return np.array(adapter.parts[layer, name][side], np.float32) * np.float32(adapter.alpha / adapter.rank if side else 1)
        for number, names in ((0, ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")), (4, ("self_attn.o_proj",)),
                              (18, ("mlp.up_proj", "mlp.gate_proj")), (6, ("mlp.down_proj",))):
            rows.append(np.concatenate([part(names[0], 0)] + [part(n, 1) for n in names]))
            config.append([number, layer, adapter.rank])
    width = max(len(r) for r in rows)
    both = np.stack([np.pad(r, (0, width - len(r))) for r in rows])[None], np.array([config], np.int32)
    with cluster({"folder": adapter}) as c:
        module, t = clients(c)[0]
        assert answer(t, module, task(module, 1), *weights(module, both)) == answer(t, module, model="folder")


def test_what_cannot_be_is_refused_and_leaves_nothing(_):
    adapter = Adapter(8, 5, SHAPE)
    f32, config = tensors(adapter)
    with cluster(router_args=["--max-lora-rank=16"], worker_args=["--max-lora-rank=16"]) as c:
        for module, t in clients(c):
            def of(rows, keys, dtype="FP32"):
                return refused(t, module, task(module, 9), *weights(module, (rows, keys), dtype))

            def changed(column, value, row=0):
                keys = config.copy()
                keys[0, row, column] = value
                return of(f32, keys)

            def number(at, value):
                rows = f32.copy()
                rows[0, 0, at] = value
                return of(rows, config)

            one, two = weights(module, (f32, config))
            assert "lora_task_id must be set for LoRA inference" in refused(t, module, one, two)
            assert "lora_task_id must be set for LoRA inference" in refused(t, module, two)
            assert "input 'lora_weights' needs the input 'lora_config'" in refused(t, module, task(module, 9), one)
            assert "input 'lora_config' needs the input 'lora_weights'" in refused(t, module, task(module, 9), two)
            assert "Expected dim1 lora_weights and lora_keys to have the same size" in of(f32[:, 1:].copy(), config)
            assert "Expected dim2 of lora_keys to have a size in [3, 4]" in of(f32, config[..., :2].copy())
            assert "input 'lora_weights' must have the shape" in of(f32.reshape(-1), config)
            assert "module id 26, which no module has" in changed(0, 26)
            assert "module id -1, which no module has" in changed(0, -1)
            assert changed(0, 9) == "lora module cross_attn_q not enabled for this model"
            assert "Expected layerId to be in the range [0, numModelLayers): row 0 of lora_config has layer 2" in changed(1, 2)
            assert "Expected layerId to be in the range [0, numModelLayers)" in changed(1, -2 ** 31)
            assert "Expected adapterSize to be > 0" in changed(2, 0)
            assert changed(2, 17) == "Invalid low_rank (17). low_rank must be smaller than mMaxLowRank (16)"
            assert "lora_weights has to few values for attn_q" in changed(2, 16)
            assert "numbers behind both matrices of attn_q with rank 7" in changed(2, 7)
            assert "it has attn_q of layer 0 twice" in changed(0, 1, row=1) or "behind both matrices" in changed(0, 1, row=1)
            assert "attn_q has numbers that are not finite" in number(0, np.nan)
            assert "attn_q has numbers that are not finite" in number(8 * 64, np.inf)
            dora = np.concatenate([config, np.ones_like(config[..., :1])], axis=-1)
            assert "of DoRA, which is not computed" in of(f32, dora)
            assert "must be FP16, BF16 or FP32, got FP64" in of(f32.astype(np.float64), config, "FP64")
            assert "must come in a batch of one row" in refused(t, module, task(module, 9, 2), *weights(
                module, (np.repeat(f32, 2, 0), np.repeat(config, 2, 0))), prompts=["a", "b"])
            assert refused(t, module, task(module, 9)) == NOT_CACHED % 9
            assert t.is_server_ready()


def test_oldest_task_is_evicted(_):
    """Room for three adapters and a half: the fourth evicts the one that was used longest ago."""
    made = [Adapter(8, seed, SHAPE) for seed in range(5)]
    size = 4 * sum(len(part[0]) + len(part[1]) for part in made[0].parts.values())
    with cluster(memory=str(size * 7 // 2)) as c:
        module, t = clients(c)[0]
        want = {i: answer(t, module, task(module, i), *weights(module, tensors(made[i]))) for i in range(3)}
        assert len({w[1] for w in want.values()}) == 3
        assert answer(t, module, task(module, 0)) == want[0]  # 1 is the oldest now
        want[3] = answer(t, module, task(module, 3), *weights(module, tensors(made[3])))
        assert refused(t, module, task(module, 1)) == NOT_CACHED % 1
        for i in (0, 2, 3):
            assert answer(t, module, task(module, i)) == want[i]
        # Back again, and other weights by an id that nobody uses.
        assert answer(t, module, task(module, 1), *weights(module, tensors(made[1]))) == want[1]
        other = answer(t, module, task(module, 3), *weights(module, tensors(made[4])))
        assert other != want[3] and answer(t, module, task(module, 3)) == other
        large = Adapter(40, 9, SHAPE)
        assert "and the cache has" in refused(t, module, task(module, 7), *weights(module, tensors(large)))


def test_adapter_belongs_to_the_tenant_that_sent_it(_):
    adapters = {name: Adapter(8, seed, SHAPE) for name, seed in (("acme", 5), ("umbrella", 6))}
    with cluster(adapters, router_args=["--tenant-header=x-tenant"]) as c:
        module, t = clients(c)[0]

        def ask(tenant, *more, model="ensemble"):
            result = t.infer(model, asked(module, *more), headers={"x-tenant": tenant} if tenant else None)
            return result.as_numpy("text_output").tolist(), result.as_numpy("generation_logits").tobytes()

        def denied(tenant):
            try:
                ask(tenant, task(module, 1))
            except InferenceServerException as e:
                return e.message()
            raise AssertionError("another tenant's adapter")

        want = {name: ask(None, model=name) for name in adapters}
        assert ask("acme", task(module, 1), *weights(module, tensors(adapters["acme"]))) == want["acme"]
        assert denied("umbrella") == denied(None) == NOT_CACHED % 1
        assert ask("umbrella", task(module, 1), *weights(module, tensors(adapters["umbrella"]))) == want["umbrella"]
        assert ask("acme", task(module, 1)) == want["acme"]


def test_rows_of_a_batch_have_their_tasks(_):
    first, second = Adapter(8, 5, SHAPE), Adapter(4, 6, SHAPE, ATTENTION)
    with cluster({"first": first, "second": second}) as c:
        module, t = clients(c)[0]
        prompts = ["one two", "three four five"]
        want = answer(t, module, model="first", prompts=prompts)
        answer(t, module, task(module, 1), *weights(module, tensors(first)))
        answer(t, module, task(module, 2), *weights(module, tensors(second)))
        assert answer(t, module, task(module, 1, 2), prompts=prompts) == want
        assert answer(t, module, task(module, 1), prompts=prompts) == want  # one row for all

        def ids(*numbers):
            return put(module, "lora_task_id", np.array([[n] for n in numbers], np.uint64), "UINT64")

        alone = [answer(t, module, model=name, prompts=[p])[0] for name, p in zip(("second", "first"), prompts)]
        assert answer(t, module, ids(2, 1), prompts=prompts)[0] == [x for one in alone for x in one]
        assert refused(t, module, ids(1, 3), prompts=prompts) == NOT_CACHED % 3
        try:
            answer(t, module, task(module, 1), model="first")
            raise AssertionError("an adapter upon an adapter")
        except InferenceServerException as e:
            assert "'first' is a LoRA adapter itself" in e.message()


def test_generate_takes_the_id_of_a_task(_):
    adapter = Adapter(8, 5, SHAPE)
    with cluster({"folder": adapter}) as c:
        module, t = clients(c)[0]

        def generate(path="generate", model="ensemble", **more):
            status, said = c.post(f"/v2/models/{model}/{path}", dict(text_input=PROMPT, max_tokens=8, exclude_input_in_output=True, **more))
            return said["text_output"] if status == 200 else (status, said["error"])

        assert generate(lora_task_id=7) == (400, NOT_CACHED % 7)
        want = answer(t, module, task(module, 7), *weights(module, tensors(adapter)))[0]
        assert [generate(lora_task_id=7)] == [x.decode() for x in np.ravel(want)]
        assert generate() == generate(model="tiny") != generate(lora_task_id=7) == generate(model="folder")
        assert generate(lora_weights=[1.0])[0] == 400


def test_server_without_the_cache_says_so(_):
    with cluster(memory="0") as c:
        for module, t in clients(c):
            assert "without --lora-cache-host-memory" in refused(t, module, task(module, 1))
            assert "without --lora-cache-host-memory" in refused(
                t, module, task(module, 1), *weights(module, tensors(Adapter(8, 5, SHAPE))))


def test_worker_that_comes_later_gets_the_adapter(_):
    """The decode worker dies; the one in its place has the adapter before it has a request."""
    adapter = Adapter(8, 5, SHAPE)
    with cluster({"folder": adapter}) as c:
        module, t = clients(c)[0]
        want = answer(t, module, model="folder")
        assert answer(t, module, task(module, 1), *weights(module, tensors(adapter))) == want
        c.decodes[0].kill()
        c.start_worker("decode", 1)
        assert answer(t, module, task(module, 1)) == want


def test_routers_know_the_same_tasks(_):
    """Two routers with one folder: what one was sent the other has by its id, the first weights of an id count, what is evicted is
    gone for both, and a router that is started again knows what is there. Without the folder each has its own."""
    made = [Adapter(8, seed, SHAPE) for seed in range(5)]
    size = 4 * sum(len(part[0]) + len(part[1]) for part in made[0].parts.values())
    with tempfile.TemporaryDirectory() as folder:
        path = harness.tiny_model(folder, context=256, seed=1, type="f32", embedding_type="f32", **SHAPE)
        cache = [f"--lora-cache-host-memory={size * 7 // 2}"]
        shared = f"--lora-task-dir={folder}/tasks"

        def routers(fleet):
            return [over_http.InferenceServerClient("%s:%d" % fleet.https[i]) for i in range(2)]

        with Fleet(path, router_args=[*cache, shared], worker_args=cache) as fleet:
            a, b = routers(fleet)
            assert refused(b, over_http, task(over_http, 1)) == NOT_CACHED % 1
            want = {1: answer(a, over_http, task(over_http, 1), *weights(over_http, tensors(made[1])))}
            assert answer(b, over_http, task(over_http, 1)) == want[1] != answer(b, over_http)
            assert answer(b, over_http, task(over_http, 1), *weights(over_http, tensors(made[1]))) == want[1]
            # Other weights: of no use to either, whether the router has the adapter or not.
            want[2] = answer(b, over_http, task(over_http, 2), *weights(over_http, tensors(made[2])))
            assert "LoRA task 2 is known with other weights" in refused(a, over_http, task(over_http, 2), *weights(over_http, tensors(made[3])))
            assert answer(a, over_http, task(over_http, 2)) == want[2]
            assert "LoRA task 2 is known with other weights" in refused(b, over_http, task(over_http, 2), *weights(over_http, tensors(made[3])))
            assert answer(b, over_http, task(over_http, 2)) == want[2]
            # Room for three: a fourth evicts 1, which was used longest ago, for both.
            want[3] = answer(a, over_http, task(over_http, 3), *weights(over_http, tensors(made[3])))
            assert answer(b, over_http, task(over_http, 2)) == want[2]
            want[4] = answer(b, over_http, task(over_http, 4), *weights(over_http, tensors(made[4])))
            for t in (a, b):
                assert refused(t, over_http, task(over_http, 1)) == NOT_CACHED % 1
                for number in (2, 3, 4):
                    assert answer(t, over_http, task(over_http, number)) == want[number]
            # Evicted, and sent to the other one with other weights: both have these.
            want[1] = answer(b, over_http, task(over_http, 1), *weights(over_http, tensors(made[0])))
            assert answer(a, over_http, task(over_http, 1)) == want[1]
            fleet.routers[0].kill()
            fleet.routers[0].popen.wait(60)  # until then its address is in use
            fleet.processes.remove(fleet.routers[0])
            fleet.routers[0].close()
            fleet.add_router(0)
            fleet.read_address(0)
            assert answer(routers(fleet)[0], over_http, task(over_http, 1)) == want[1]
        assert all(os.stat(os.path.join(folder, "tasks", name)).st_mode & 0o777 == 0o600 for name in os.listdir(f"{folder}/tasks"))
        with Fleet(path, router_args=cache, worker_args=cache) as fleet:
            a, b = routers(fleet)
            answer(a, over_http, task(over_http, 1), *weights(over_http, tensors(made[1])))
            assert refused(b, over_http, task(over_http, 1)) == NOT_CACHED % 1


def test_weights_whose_task_another_router_evicted_are_taken_again(_):
    """A router that still has the adapter is sent all three tensors, as TensorRT-LLM's clients may with each request."""
    made = [Adapter(8, 30 + i, SHAPE) for i in range(2)]
    size = tensors(made[0])[0].nbytes
    with tempfile.TemporaryDirectory() as folder:
        path = harness.tiny_model(folder, context=256, seed=1, type="f32", embedding_type="f32", **SHAPE)
        cache = [f"--lora-cache-host-memory={size * 3 // 2}"]
        with Fleet(path, router_args=[*cache, f"--lora-task-dir={folder}/tasks"], worker_args=cache) as fleet:
            a, b = (over_http.InferenceServerClient("%s:%d" % fleet.https[i]) for i in range(2))
            want = answer(a, over_http, task(over_http, 1), *weights(over_http, tensors(made[0])))
            answer(b, over_http, task(over_http, 2), *weights(over_http, tensors(made[1])))
            assert answer(a, over_http, task(over_http, 1), *weights(over_http, tensors(made[0]))) == want
            assert answer(b, over_http, task(over_http, 1)) == want
            assert refused(b, over_http, task(over_http, 2)) == NOT_CACHED % 2


def test_two_who_send_other_weights_by_one_id_get_theirs_or_a_refusal(_):
    made = [Adapter(8, 40 + i, SHAPE) for i in range(2)]
    with cluster({"a0": made[0], "a1": made[1]}) as c:
        module, t = clients(c)[0]
        want = [answer(t, module, model=f"a{i}") for i in range(2)]

        def send(number, i):
            own = module.InferenceServerClient("%s:%d" % c.http)
            try:
                return answer(own, module, task(module, number), *weights(module, tensors(made[i])))
            except InferenceServerException as e:
                assert "with other weights" in e.message(), e
                return None

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for number in range(100, 130):
                got = list(pool.map(send, (number, number), (0, 1)))
                assert all(g in (want[i], None) for i, g in enumerate(got)) and any(got), (number, got)
                assert answer(t, module, task(module, number)) in [g for g in got if g]


def test_client_that_leaves_while_its_adapter_is_loaded_leaves_nothing(_):
    """What it sent may be there or not; the next one who sends it is answered, and another one too."""
    adapter = Adapter(8, 50, SHAPE)
    with cluster({"folder": adapter}) as c:
        module, t = clients(c)[0]
        want = answer(t, module, model="folder")
        for number in range(200, 240):
            body, head = module.InferenceServerClient.generate_request_body(asked(module, task(module, number), *weights(module, tensors(adapter))))
            with socket.create_connection(c.http) as s:
                s.sendall(f"POST /v2/models/ensemble/infer HTTP/1.1\r\nHost: b\r\nContent-Length: {len(body)}\r\n"
                          f"Inference-Header-Content-Length: {head}\r\n\r\n".encode() + body)
            if number % 4 == 0:
                assert answer(t, module, task(module, number), *weights(module, tensors(adapter))) == want
        assert answer(t, module, task(module, 300), *weights(module, tensors(adapter))) == want
        c.wait_idle()


def write_npy(folder, number, both):
    """As hf_lora_convert.py saves them."""
    at = os.path.join(folder, str(number))
    os.makedirs(at)
    np.save(os.path.join(at, "model.lora_weights.npy"), both[0])
    np.save(os.path.join(at, "model.lora_config.npy"), both[1])


def test_adapters_of_lora_prefetch_dir_are_there_from_the_start(_):
    """For all tenants; other weights by such an id are refused, and nothing evicts it."""
    adapter, other = Adapter(8, 5, SHAPE), Adapter(8, 6, SHAPE)
    with tempfile.TemporaryDirectory() as folder:
        write_npy(folder, 0, tensors(adapter))
        write_npy(folder, 18446744073709551615, tensors(other))
        with cluster({"folder": adapter, "other": other}, router_args=[f"--lora-prefetch-dir={folder}", "--tenant-header=x-tenant"]) as c:
            for module, t in clients(c):
                assert answer(t, module, task(module, 0)) == answer(t, module, model="folder")
                assert answer(t, module, task(module, 2 ** 64 - 1)) == answer(t, module, model="other")
                assert answer(t, module, task(module, 0), *weights(module, tensors(adapter))) == answer(t, module, model="folder")
                assert "LoRA task 0 is of --lora-prefetch-dir with other weights" in refused(
                    t, module, task(module, 0), *weights(module, tensors(other)))
            module, t = clients(c)[0]
            result = t.infer("ensemble", asked(module, task(module, 0)), headers={"x-tenant": "acme"})
            assert result.as_numpy("text_output").tolist() == answer(t, module, model="folder")[0]


if __name__ == "__main__":
    sys.exit(client_tests.main(dict(globals()), MISSING, model_of=None))
