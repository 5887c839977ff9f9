# SPDX-License-Identifier: Apache-2.0
"""What training loops ask of a server: a pause, and that it ends."""
import asyncio
import json
import tempfile
import threading

from harness import PACED, Cluster, Stream, endless_model, small_model, wait_until

LONG = 3000  # tokens, for 8 of which the KV has room; half a minute at least, with PACED
PROMPT = "one two three four five six seven eight"


def paused(c):
    status, _, data = c.request("GET", "/is_paused")
    assert status == 200, (status, data)
    return json.loads(data)["is_paused"]


def begun(c):
    return json.loads(c.request("GET", "/v2/cluster")[2])["queue"]["running"]


class Asked(threading.Thread):
    """A request that is under way."""

    def __init__(self, c, path, body=None):
        super().__init__()
        self.c, self.path, self.body, self.got = c, path, body, None
        self.start()

    def run(self):
        self.got = self.c.post(self.path, self.body, timeout=120)

    def answer(self):
        self.join(120)
        assert self.got, self.path
        return self.got


def test_pause_waits_for_those_that_run_and_holds_those_that_come():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            Cluster(small_model(directory), worker_args=PACED) as c:
        body = dict(prompt=PROMPT, max_tokens=100, n=2, seed=4, temperature=0.8, return_token_ids=True, ignore_eos=True)
        plain = c.post("/v1/completions", body)
        early = Asked(c, "/v1/completions", body)
        wait_until("it runs", lambda: begun(c) == 2)
        pause = Asked(c, "/pause?mode=wait")
        wait_until("a pause has begun", lambda: paused(c))
        late = Asked(c, "/v1/completions", body)
        status, answer = pause.answer()
        assert (status, answer) == (200, {"status": "paused"}), (status, answer)
        early.join(0.1)
        assert early.got and early.got[0] == 200, early.got
        wait_until("the later one is here", lambda: begun(c) == 2)
        assert late.got is None
        assert c.post("/resume", None) == (200, {"status": "resumed"})
        for one in (early, late):
            assert [x["token_ids"] for x in one.answer()[1]["choices"]] == [x["token_ids"] for x in plain[1]["choices"]]
        assert not paused(c)
        c.wait_idle()


def test_pause_aborts_and_is_resumed_by_somebody_else():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            Cluster(endless_model(directory), worker_args=PACED) as c:
        async def run():
            streams = [Stream(c.http, "/v1/completions", dict(prompt=f"{PROMPT} {i}", max_tokens=LONG, stream=True, ignore_eos=True))
                       for i in range(8)]
            tasks = [asyncio.create_task(s.run()) for s in streams]
            while not all(len(s.events) > 1 for s in streams):
                assert not any(t.done() for t in tasks)
                await asyncio.sleep(0)  # the others' turn
            paused_by = await asyncio.to_thread(c.post, "/pause", None)
            assert paused_by == (200, {"status": "paused"}), paused_by
            for task in tasks:
                await task
            assert all("aborted by POST /pause" in s.events[-1]["error"]["message"] for s in streams), [s.events[-1] for s in streams]
        asyncio.run(run())
        c.wait_idle()
        waiting = Asked(c, "/v1/completions", dict(prompt=PROMPT, max_tokens=4))
        wait_until("it is here", lambda: begun(c) == 1)
        assert waiting.got is None
        c.post("/resume", None)
        assert waiting.answer()[0] == 200, waiting.got

        # A pause that waits, and is over before the one that runs is.
        endless = Asked(c, "/v1/completions", dict(prompt=PROMPT, max_tokens=LONG, ignore_eos=True))
        wait_until("it runs", lambda: begun(c) == 1)
        pause = Asked(c, "/pause?mode=wait")
        wait_until("a pause has begun", lambda: paused(c))
        c.post("/resume", None)
        status, answer = pause.answer()
        assert status == 409 and "resumed before" in str(answer), (status, answer)
        assert endless.got is None
        c.post("/pause", None)
        assert endless.answer()[0] == 503, endless.got
        c.post("/resume", None)
        assert c.complete(PROMPT, 4)["token_ids"]


def test_pause_refuses_what_it_does_not_do():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Cluster(small_model(directory)) as c:
        for query, why in (("mode=keep", "keep is not supported"), ("clear_cache=true", "clear_cache"), ("x=1", "nothing else")):
            status, answer = c.post(f"/pause?{query}", None)
            assert status == 400 and why in str(answer), (query, status, answer)
        assert c.request("GET", "/pause")[0] == 405
        assert not paused(c)
