# SPDX-License-Identifier: Apache-2.0
"""Requests that have an adapter go on after it was replaced or unloaded, wherever they are."""
import asyncio
import os
import tempfile

from adapters import ATTENTION, Adapter
from harness import PACED, Cluster, Stream, wait_until
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
