# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters: one model, and many that are it and a little more, in one batch."""
import asyncio
import json
import os
import tempfile

import admin_socket
from adapters import ATTENTION, Adapter
from harness import PACED, Cluster, Process, Stream, small_model, tiny_model, wait_until
from launch import Launch
from test_failures import stream_and

SHAPE = dict(layers=2, dim=64, heads=4, kv_heads=2, ffn=128)
PROMPT = "one two three four five six seven eight and then some more words of it"
BODY = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True}


def model_of(directory):
    return tiny_model(directory, context=512, seed=1, type="f32", embedding_type="f32", **SHAPE)


def options(**adapters):
    return [f"--lora={name}={path}" for name, path in adapters.items()]


def answer(c, model=None, **more):
    body = dict(BODY, **more)
    if model is not None:
        body["model"] = model
    status, said = c.post("/v1/completions", body, timeout=120)
    assert status == 200, (status, said)
    return said


def ids(c, model=None, **more):
    return answer(c, model, **more)["choices"][0]["token_ids"]


def cached(said):
    return said["usage"]["prompt_tokens_details"]["cached_tokens"]


def all_at_once(c, names):
    async def one(name):
        body = dict(BODY, stream=True, **({} if name is None else {"model": name}))
        stream = await Stream(c.http, "/v1/completions", body).run()
        assert stream.status == 200, stream.error
        return [t for e in stream.events for x in e["choices"] for t in x.get("token_ids") or []]

    async def run():
        return await asyncio.gather(*(one(name) for name in names))

    return asyncio.run(run())


def test_adapter_answers_as_the_model_with_its_weights_merged():
    """Seven matrices of each layer, of a folder as PEFT saves it and of a GGUF file, against a model file into whose
    weights scale B A was added: all of float32, where both ways to compute differ by roundings alone."""
    with tempfile.TemporaryDirectory() as directory:
        model = model_of(directory)
        whole = Adapter(8, 5, SHAPE)
        part = Adapter(13, 6, SHAPE, ATTENTION)
        merged = {"whole": whole.merge(model, os.path.join(directory, "whole.gguf")),
                  "part": part.merge(model, os.path.join(directory, "part.gguf"))}
        expected = {}
        for name, path in merged.items():
            with Cluster(path) as c:
                expected[name] = ids(c)
        lora = options(whole=whole.peft(os.path.join(directory, "w")), part=part.peft(os.path.join(directory, "p")),
                       again=whole.gguf(os.path.join(directory, "again.gguf")))
        with Cluster(model, worker_args=lora, router_args=lora) as c:
            base = ids(c)
            assert base == ids(c, "tiny")
            assert ids(c, "whole") == expected["whole"] == ids(c, "again")
            assert ids(c, "part") == expected["part"]
            assert len({tuple(x) for x in (base, expected["whole"], expected["part"])}) == 3
            status, said = c.post("/v1/chat/completions", {"model": "part", "messages": [{"role": "user", "content": "hi"}],
                                                           "max_tokens": 4, "temperature": 0})
            assert status == 200 and said["model"] == "part", said


def test_adapter_of_the_attention_beside_experts():
    for architecture, more in {"qwen3moe": dict(experts=8, experts_used=2, expert_ffn=32),
                               "olmoe": dict(experts=8, experts_used=3, ffn=32),
                               "granitemoe": dict(experts=8, experts_used=3, ffn=32)}.items():
        with tempfile.TemporaryDirectory() as directory:
            model = tiny_model(directory, architecture=architecture, context=512, seed=1, type="f32", embedding_type="f32",
                               **dict(SHAPE, **more))
            adapter = Adapter(8, 5, SHAPE, ATTENTION, turns=architecture == "granitemoe")
            with Cluster(adapter.merge(model, os.path.join(directory, "merged.gguf"))) as c:
                expected = ids(c)
            lora = options(a=adapter.peft(os.path.join(directory, "a")))
            with Cluster(model, worker_args=lora, router_args=lora) as c:
                assert ids(c, "a") == expected != ids(c), architecture


def test_adapters_in_one_batch_give_what_they_give_alone():
    with tempfile.TemporaryDirectory() as directory:
        model = model_of(directory)
        ranks = {"a1": 1, "a8": 8, "a13": 13, "a64": 64, "b8": 8, "b1": 1, "b13": 13}
        lora = options(**{name: Adapter(rank, 20 + i, SHAPE).peft(os.path.join(directory, name))
                          for i, (name, rank) in enumerate(ranks.items())})
        with Cluster(model) as c:
            plain = ids(c)
        with Cluster(model, worker_args=lora + ["--prefix-cache=off"], router_args=lora) as c:
            names = [None] + list(ranks)
            alone = [ids(c, name) for name in names]
            assert alone[0] == plain, "the base model's answer changed"
            assert len({tuple(x) for x in alone}) == len(names)
            for _ in range(3):
                assert all_at_once(c, names + [None]) == alone + [plain]


def test_adapters_share_no_cached_prompt():
    """K and V of a prompt depend on the adapter."""
    long = PROMPT * 4
    with tempfile.TemporaryDirectory() as directory:
        model = model_of(directory)
        lora = options(a=Adapter(8, 5, SHAPE).peft(os.path.join(directory, "a")),
                       b=Adapter(8, 6, SHAPE).peft(os.path.join(directory, "b")))
        with Cluster(model, worker_args=lora, router_args=lora) as c:
            first = {name: answer(c, name, prompt=long) for name in (None, "a", "b")}
            assert [cached(said) for said in first.values()] == [0, 0, 0], first
            for name, said in first.items():
                again = answer(c, name, prompt=long)
                assert cached(again) > 0, (name, again)
                assert again["choices"][0]["token_ids"] == said["choices"][0]["token_ids"]


def test_adapter_goes_on_when_its_worker_dies():
    with tempfile.TemporaryDirectory() as directory:
        model = model_of(directory)
        lora = options(a=Adapter(8, 5, SHAPE).peft(os.path.join(directory, "a")))
        body = dict(BODY, model="a", max_tokens=200, stream=True)
        with Cluster(model, worker_args=lora + PACED, router_args=lora) as c:
            whole = ids(c, "a", max_tokens=200)

            def replace():
                c.decodes[0].kill()
                c.start_worker("decode", 1)

            stream, _ = asyncio.run(stream_and(c, 5, replace, body))
            assert not stream.errors(), stream.errors()
            assert c.total("baton_retries_total") == 1
            said = [t for e in stream.events for x in e["choices"] for t in x.get("token_ids") or []]
            assert said == whole


def test_adapters_are_models_with_a_parent():
    with tempfile.TemporaryDirectory() as directory:
        model = model_of(directory)
        path = Adapter(8, 5, SHAPE).peft(os.path.join(directory, "a"))
        lora = options(sql=path)
        with Cluster(model, worker_args=lora, router_args=lora) as c:
            status, _, data = c.request("GET", "/v1/models")
            models = {m["id"]: m for m in json.loads(data)["data"]}
            assert status == 200 and set(models) == {"tiny", "sql"}, models
            assert models["tiny"]["parent"] is None
            assert models["sql"]["parent"] == "tiny" and models["sql"]["root"] == path, models["sql"]
            status, _, data = c.request("GET", "/v1/models/sql")
            assert status == 200 and json.loads(data) == models["sql"]
            status, said = c.post("/v1/completions", dict(BODY, model="other"))
            assert status == 404 and "'other' is not served here; this is 'tiny, sql'" in said["error"]["message"], said


def refusal(directory, model, path, *args):
    """@return what a worker says that does not start with the adapter"""
    process = Process("decode", "decode-0", ["--model", model, "--join", f"ipc://{directory}/none.ipc", "--kv-memory", "16m",
                                             f"--lora=x={path}", *args], directory)
    try:
        wait_until("the worker has ended", lambda: not process.alive())
        return process.log()
    finally:
        process.close()


def test_adapter_that_is_not_computed_is_refused_by_name():
    with tempfile.TemporaryDirectory() as directory:
        model = model_of(directory)
        adapter = Adapter(8, 5, SHAPE)
        wide = Adapter(8, 5, dict(SHAPE, dim=128))

        def at(name):
            return os.path.join(directory, name)

        for path, args, reason in (
                (adapter.peft(at("dora"), use_dora=True), (), "use_dora is not supported"),
                (adapter.peft(at("bias"), bias="all"), (), "bias all is not supported"),
                (adapter.peft(at("saved"), modules_to_save=["lm_head"]), (), "modules_to_save is not supported"),
                (adapter.peft(at("pissa"), init_lora_weights="pissa"), (), "init_lora_weights pissa"),
                (wide.peft(at("wide")), (), "outputs, the model's has"),
                (adapter.peft(at("rank")), ("--max-lora-rank=4",), "rank 8, and adapters of at most 4 are taken"),
                (adapter.gguf(at("other.gguf"), **{"general.architecture": "qwen2"}), (), "another architecture"),
                (at("missing"), (), "No such file")):
            log = refusal(directory, model, path, *args)
            assert reason in log, (reason, log)


def load(c, name, path, at=None, **more):
    status, _, data = c.request("POST", "/v1/load_lora_adapter", json.dumps(dict(lora_name=name, lora_path=path, **more)), at=at)
    return status, data.decode()


def unload(c, name):
    status, _, data = c.request("POST", "/v1/unload_lora_adapter", json.dumps({"lora_name": name}))
    return status, data.decode()


def names(c):
    return sorted(m["id"] for m in json.loads(c.request("GET", "/v1/models")[2])["data"])


def test_adapter_is_loaded_and_unloaded_at_run_time():
    with tempfile.TemporaryDirectory() as directory:
        model = model_of(directory)
        folder = os.path.join(directory, "lora")
        os.mkdir(folder)
        one, two = Adapter(8, 5, SHAPE), Adapter(13, 6, SHAPE, ATTENTION)
        one.peft(os.path.join(folder, "one"))
        two.gguf(os.path.join(folder, "two.gguf"))
        one.peft(os.path.join(directory, "outside"))
        os.symlink(os.path.join(directory, "outside"), os.path.join(folder, "link"))
        named = options(one=os.path.join(folder, "one"), two=os.path.join(folder, "two.gguf"))
        with Cluster(model, worker_args=named, router_args=named) as c:
            expected = {name: ids(c, name, prompt=PROMPT * 3) for name in ("one", "two")}
        later = ["--lora-dir=" + folder]
        with Cluster(model, worker_args=later + PACED, router_args=later) as c:
            assert names(c) == ["tiny"]
            assert load(c, "a", "one") == (200, "Success: LoRA adapter 'a' added successfully.")
            assert names(c) == ["a", "tiny"]
            assert ids(c, "a", prompt=PROMPT * 3) == expected["one"]
            status, text = load(c, "a", "two.gguf")
            assert status == 400 and "The lora adapter 'a' has already been loaded." in text, text
            # Other content by the same name: nothing of before is found in the cache.
            assert load(c, "a", "two.gguf", load_inplace=True)[0] == 200
            said = answer(c, "a", prompt=PROMPT * 3)
            assert said["choices"][0]["token_ids"] == expected["two"] and cached(said) == 0, said
            assert load(c, "b", os.path.join(folder, "two.gguf"))[0] == 200
            assert cached(answer(c, "b", prompt=PROMPT * 3)) > 0  # the same content by another name
            for path, code, reason in (("link", 400, "it is not below --lora-dir"), ("../outside", 400, "it is not below --lora-dir"),
                                       ("nothing", 404, "No such file"), (model, 400, "it is not below"), (".", 400, "it is not below")):
                status, text = load(c, "c", path)
                assert status == code and reason in text, (path, status, text)
            for name in ("tiny", "ensemble", "a b", ""):
                assert load(c, name, "one")[0] == 400
            # What runs goes on, what comes is answered as for an unknown model.
            body = dict(BODY, model="a", max_tokens=200, stream=True)

            def take():
                assert unload(c, "a") == (200, "Success: LoRA adapter 'a' removed successfully.")

            stream, _ = asyncio.run(stream_and(c, 5, take, body))
            assert not stream.errors(), stream.errors()
            status, said = c.post("/v1/completions", dict(BODY, model="a"))
            assert status == 404, said
            status, text = unload(c, "a")
            assert status == 404 and "The lora adapter 'a' cannot be found." in text, text
            # A worker that comes later loads what is offered before it gets a request that has it.
            c.decodes[0].kill()
            c.start_worker("decode", 1)
            assert ids(c, "b", prompt=PROMPT * 3) == expected["two"]
            assert unload(c, "b")[0] == 200
            assert names(c) == ["tiny"]
        with Cluster(model) as c:
            status, text = load(c, "a", "one")
            assert status == 403 and "--lora-dir" in text, text


def test_adapters_are_those_of_one_model_of_a_launch():
    """Another model's workers would get them too, and a router that starts again would refuse two models with adapters."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        model = model_of(directory)
        os.mkdir(os.path.join(directory, "other"))
        other = small_model(os.path.join(directory, "other"))
        path = Adapter(8, 5, SHAPE).peft(os.path.join(directory, "sql"))
        for option, name in ((f"--lora=sql={path}", "--lora"), ("--lora-dir=" + directory, "--lora-dir")):
            with Launch("--model", model, option) as launch:
                try:
                    launch.admin("load-model", f"b={other}")
                    assert False, "it is loaded"
                except admin_socket.Refused as e:
                    assert str(e) == f"b is not loaded beside tiny: adapters ({name}) are those of one model", e
                http = launch.process("router")["http"]
                status, said = launch.post(http, "/v1/completions", {"model": "b", "prompt": PROMPT, "max_tokens": 1})
                assert status == 404, said
                # The model itself is unloaded and loaded as before.
                launch.admin("unload-model", "tiny", "wait=yes")
                launch.admin("load-model", "tiny", "wait=yes")
                wait_until("it is served again", lambda: launch.post(
                    http, "/v1/completions", {"model": "tiny", "prompt": PROMPT, "max_tokens": 1})[0] == 200)


def test_adapters_have_series_of_their_own():
    """Counted by hand: two answers of 24 tokens with a, one request of two such with b, one of the base model."""
    with tempfile.TemporaryDirectory() as directory:
        model = model_of(directory)
        folder = os.path.join(directory, "lora")
        os.mkdir(folder)
        for name in ("one", "two"):
            Adapter(8, 5 + len(name), SHAPE, ATTENTION).peft(os.path.join(folder, name))
        lora = ["--lora-dir=" + folder, *options(a=os.path.join(folder, "one"))]
        with Cluster(model, worker_args=lora, router_args=lora) as c:
            assert load(c, "b", "two")[0] == 200
            assert load(c, "c", "none")[0] == 404
            prompt = answer(c)["usage"]["prompt_tokens"]
            answer(c, "a")
            answer(c, "a")
            answer(c, "b", n=2, temperature=1, seed=3)
            want = {"a": (2, 2 * prompt, 48), "b": (2, 2 * prompt, 48)}
            for name, counts in want.items():
                found = tuple(c.metric(f"baton_adapter_{what}_total", adapter=name)
                              for what in ("requests", "prompt_tokens", "generation_tokens"))
                assert found == counts, (name, found, counts)
                wait_until("nothing runs", lambda name=name: c.metric("baton_adapter_requests_in_flight", adapter=name) == 0)
            assert c.metric("baton_adapters", by="name") == 2
            assert [c.metric("baton_adapter_loads_total", result=r) for r in ("ok", "failed")] == [1, 0]
            # A request goes on behind the unloading, and its series when the adapter comes back.
            assert unload(c, "b")[0] == 200
            assert c.metric("baton_adapters", by="name") == 1
            assert load(c, "b", "two")[0] == 200
            answer(c, "b")
            assert c.metric("baton_adapter_requests_total", adapter="b") == 3


def test_adapters_behind_the_first_64_share_a_series():
    with tempfile.TemporaryDirectory() as directory:
        model = model_of(directory)
        path = Adapter(1, 5, SHAPE, ATTENTION).peft(os.path.join(directory, "a"))
        lora = options(**{f"a{i}": path for i in range(67)})
        with Cluster(model, worker_args=lora, router_args=lora) as c:
            for name in ("a0", "a63", "a64", "a66"):
                answer(c, name, max_tokens=1)
            assert [c.metric("baton_adapter_requests_total", adapter=name) for name in ("a0", "a63", "other")] == [1, 1, 2]
            assert len(c.series("baton_adapter_requests_total")) == 65
