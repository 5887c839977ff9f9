# SPDX-License-Identifier: Apache-2.0
"""Requests that have an adapter go on after it was replaced or unloaded, wherever they are."""
import asyncio
import json
import os
import tempfile
import threading

from adapters import ATTENTION, Adapter
from harness import PACED, Cluster, Stream, open_fds, wait_until
from test_failures import stream_and, until
from test_lora import BODY, SHAPE, ids, load, model_of, unload

N = 200


def tokens_of(stream):
    assert stream.status == 200 and not stream.errors(), (stream.status, stream.errors())
    return [t for e in stream.events for x in e["choices"] for t in x.get("token_ids") or []]


def folder_of(directory):
    folder = os.path.join(directory, "lora")
    os.mkdir(folder)
    Adapter(8, 5, SHAPE).peft(os.path.join(folder, "one"))
    Adapter(13, 6, SHAPE, ATTENTION).peft(os.path.join(folder, "two"))
    return folder


def test_requests_that_wait_have_their_adapter_when_it_is_replaced_or_unloaded():
    with tempfile.TemporaryDirectory() as directory:
        later = ["--lora-dir=" + folder_of(directory)]
        with Cluster(model_of(directory), worker_args=later, router_args=later) as c:
            for name in ("one", "two"):
                assert load(c, name, name)[0] == 200
            expected = {name: ids(c, name) for name in ("one", "two")}
            assert expected["one"] != expected["two"]
            assert load(c, "a", "one")[0] == 200
            # Only requests keep the content from here on.
            for name in ("one", "two"):
                assert unload(c, name)[0] == 200

            async def run(content, act):
                assert c.post("/pause?mode=wait", {})[0] == 200
                streams = [Stream(c.http, "/v1/completions", dict(BODY, model="a", stream=True)) for _ in range(4)]
                tasks = [asyncio.ensure_future(s.run()) for s in streams]
                await until("they wait", lambda: c.total("baton_requests_waiting") == len(streams))
                assert act()[0] == 200
                assert c.post("/resume", {})[0] == 200
                await asyncio.gather(*tasks)
                assert [tokens_of(s) for s in streams] == [expected[content]] * len(streams)

            asyncio.run(run("one", lambda: load(c, "a", "two", load_inplace=True)))
            asyncio.run(run("two", lambda: unload(c, "a")))
            assert c.total("baton_retries_total") == 0
            for worker in c.prefills + c.decodes:
                wait_until("the worker has dropped both", lambda worker=worker: worker.log().count(" is dropped") >= 2)


def test_stream_whose_worker_dies_after_the_unload_goes_on():
    with tempfile.TemporaryDirectory() as directory:
        later = ["--lora-dir=" + folder_of(directory)]
        body = dict(BODY, model="a", max_tokens=N, stream=True)
        with Cluster(model_of(directory), worker_args=later + PACED, router_args=later) as c:
            assert load(c, "a", "one")[0] == 200
            whole = ids(c, "a", max_tokens=N)

            def act():
                assert unload(c, "a")[0] == 200
                c.decodes[0].kill()
                c.decodes[0] = c.start_worker("decode", 1)

            stream, _ = asyncio.run(stream_and(c, 5, act, body))
            assert tokens_of(stream) == whole
            assert c.total("baton_retries_total") == 1
            wait_until("the worker has dropped it", lambda: " is dropped" in c.decodes[0].log())


def contents(folder, n):
    """n adapters of different contents: one's matrices, each with a scale of its own."""
    first = Adapter(16, 5, SHAPE, alpha=1).peft(os.path.join(folder, "0"))
    with open(os.path.join(first, "adapter_config.json"), encoding="utf-8") as f:
        config = json.load(f)
    for i in range(1, n):
        os.mkdir(os.path.join(folder, str(i)))
        os.link(os.path.join(first, "adapter_model.safetensors"), os.path.join(folder, str(i), "adapter_model.safetensors"))
        with open(os.path.join(folder, str(i), "adapter_config.json"), "w", encoding="utf-8") as f:
            json.dump(dict(config, lora_alpha=1 + i / n), f)


def held(c, at_least=0):
    """@return how many adapters --lora-memory holds, for the first of which memory that is being given back is waited for"""
    i = 0
    while True:
        if i < at_least:
            wait_until(f"b{i} fits", lambda i=i: load(c, f"b{i}", str(i))[0] == 200)
        elif load(c, f"b{i}", str(i))[0] != 200:
            break
        i += 1
    for k in range(i):
        assert unload(c, f"b{k}")[0] == 200
    return i


def test_memory_of_adapters_that_come_and_go_under_load_is_given_back():
    """--lora-memory holds some 30 of 1,000 (CI: 120), and as many when all have come and gone."""
    n = 1000 if os.environ.get("BATON_TEST_LONG") else 120
    window = 24
    with tempfile.TemporaryDirectory() as directory:
        folder = os.path.join(directory, "lora")
        os.mkdir(folder)
        contents(folder, n)
        later = ["--lora-dir=" + folder]
        with Cluster(model_of(directory), worker_args=later + ["--lora-memory=4m"], router_args=later) as c:
            plain = ids(c)
            loaded, wrong, n_done = [], [], [0]
            over = threading.Event()

            def ask(seed):
                while not over.is_set():
                    known = loaded[:]
                    name = known[seed % len(known)] if known and seed % 3 else None
                    seed = seed * 5 + 7 & 0xffff
                    status, said = c.post("/v1/completions", dict(BODY, max_tokens=8, **({"model": name} if name else {})))
                    n_done[0] += 1
                    if status == 200 and name is None and said["choices"][0]["token_ids"] != plain[:8]:
                        wrong.append(said)
                    elif status != 200 and not (status == 404 and name is not None):  # unloaded meanwhile
                        wrong.append((name, status, said))

            clients = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
            most = held(c)
            assert window < most < n
            fds = {p.name: open_fds(p.pid) for p in c.processes}
            for t in clients:
                t.start()
            try:
                for i in range(n):
                    wait_until("it fits", lambda i=i: load(c, f"a{i}", str(i))[0] == 200)
                    loaded.append(f"a{i}")
                    if len(loaded) > window:
                        assert unload(c, loaded.pop(0))[0] == 200
                while loaded:
                    assert unload(c, loaded.pop(0))[0] == 200
            finally:
                over.set()
                for t in clients:
                    t.join()
            assert not wrong, wrong[:3]
            assert n_done[0] > 0 and ids(c) == plain
            assert held(c, most) == most
            wait_until("files are closed", lambda: all(open_fds(p.pid) <= fds[p.name] + 8 for p in c.processes))
            print(f"{n} adapters, {n_done[0]} requests beside them")
