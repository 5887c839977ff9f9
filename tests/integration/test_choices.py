# SPDX-License-Identifier: Apache-2.0
"""Choices of one prompt: it is computed, sent and held once, and each choice is what a call of its own with its seed
gives, whatever becomes of the others."""
import asyncio
import tempfile

from harness import LONG_PROMPT, Cluster, Stream, endless_model, small_model, tiny_model, wait_until
from test_failures import until

N = 4
WAYS = {
    "shm": dict(worker_args=["--kv-transport", "shm"]),
    "tcp": dict(worker_args=["--kv-transport", "network"]),
    "local": dict(prefill=0, decode_args=["--local-prefill"]),
}
DRAWN = dict(temperature=0.9, top_p=0.95, top_k=40)
# In blocks of 16: less than one, whole ones, whole ones and a part.
LENGTHS = (5, 64, 200)


def prompt_of(n):
    return [(37 * i + n) % 200 + 20 for i in range(n)]


def choices(c, prompt, n, max_tokens=12, **more):
    body = dict(prompt=prompt, max_tokens=max_tokens, n=n, return_token_ids=True, **more)
    status, answer = c.post("/v1/completions", body)
    assert status == 200, (status, answer)
    assert [a["index"] for a in answer["choices"]] == list(range(n)), answer
    assert answer["usage"]["prompt_tokens"] == len(prompt), answer["usage"]
    return [(a["token_ids"], a["finish_reason"], a["text"]) for a in answer["choices"]]


def singles(c, prompt, n, seed, **more):
    return [choices(c, prompt, 1, seed=seed + i, **more)[0] for i in range(n)]


class Count:
    """What the workers have computed and sent, against what they should have, without a prefix cache."""

    def __init__(self, cluster, is_sent=True):
        self.c, self.is_sent = cluster, is_sent
        self.tokens = self.transfers = 0

    def add(self, length, groups=1, max_tokens=2):
        """So many groups (or single calls) with a prompt of so many tokens."""
        self.tokens += groups * length
        self.transfers += groups if self.is_sent and max_tokens > 1 else 0
        # What workers count comes with their next report.
        wait_until(f"{self.tokens} tokens computed, {self.transfers} transfers", lambda: (
            self.c.total("baton_worker_prompt_tokens_total") == self.tokens and
            self.c.total("baton_kv_transfers_total") == self.transfers))
        return self.c.total("baton_kv_transfer_bytes_total")


def check_bytes(c, prompt):
    """Choices and calls of their own give the same."""
    drawn = dict(DRAWN, ignore_eos=True)
    got = choices(c, prompt, N, seed=100, **drawn)
    yield 1, 2
    one = singles(c, prompt, N, 100, **drawn)
    assert got == one, (len(prompt), got, one)
    assert len({tuple(ids) for ids, _, _ in got}) > 1, got  # seeds matter
    yield N, 2
    # They end at times of their own, by an end id, a stop word, or their first token.
    stop = [got[1][2][2:4]]
    some = choices(c, prompt, N, 40, seed=7, stop=stop, **DRAWN)
    assert some == singles(c, prompt, N, 7, max_tokens=40, stop=stop, **DRAWN)
    yield N + 1, 2
    assert choices(c, prompt, 2, 1, seed=3, **DRAWN) == singles(c, prompt, 2, 3, max_tokens=1, **DRAWN)
    yield 3, 1
    same = choices(c, prompt, 3, temperature=0)
    assert same[0] == same[1] == same[2], same
    yield 1, 2
    assert choices(c, prompt, N, seed=100, **drawn) == got
    yield 1, 2


def check_way(model, way, cache):
    more = dict(WAYS[way])
    more["worker_args"] = more.get("worker_args", []) + ["--prefix-cache", cache, "--chunk-tokens", "48"]
    with Cluster(model, **more) as c:
        count = Count(c, way != "local")
        for length in LENGTHS:
            sent = []
            for groups, max_tokens in check_bytes(c, prompt_of(length)):
                if cache == "off":
                    sent.append(count.add(length, groups, max_tokens))
            if sent:  # the KV of a group is that of one of its calls
                assert sent[1] - sent[0] == N * (sent[5] - sent[4]), sent
        c.wait_idle()


def small(d):
    return tiny_model(d, layers=3, dim=96, heads=6, kv_heads=3, ffn=160, context=1024, seed=5)


def test_choices_equal_separate_requests():
    with tempfile.TemporaryDirectory() as d:
        model = small(d)
        for way in WAYS:
            for cache in ("off", "on"):
                check_way(model, way, cache)


def test_choices_over_the_group_size_form_several_groups():
    """Half of 8 seats are a group: 9 choices are 4, 4 and 1, and each waits for its turn."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(small(d), decode_args=["--max-batch-size", "8"], worker_args=["--prefix-cache", "off"]) as c:
            prompt = prompt_of(100)
            got = choices(c, prompt, 9, seed=50, ignore_eos=True, **DRAWN)
            Count(c).add(100, 3)
            assert got == singles(c, prompt, 9, 50, ignore_eos=True, **DRAWN)
            c.wait_idle()


def by_choice(stream):
    texts = {}
    for event in stream.events:
        for choice in event.get("choices", []):
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts


def killed(role, when):
    """Two workers of the role; the one that has the group is killed when when(cluster, stream) holds. All choices go on
    as calls of their own would."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(endless_model(d), prefill=2, decode=2, kv_memory="256m",
                     worker_args=["--chunk-tokens", "16", "--prefix-cache", "off", "--simulate-step-us", "20000"]) as c:
            body = dict(prompt=LONG_PROMPT[:2000], max_tokens=100, n=3, seed=21, ignore_eos=True, **DRAWN)
            workers = c.prefills if role == "prefill" else c.decodes

            def busy():
                active = [c.total("baton_worker_active_requests", worker=w.name) for w in workers]
                return active.index(max(active)) if max(active) >= 3 else None

            async def go():
                s = Stream(c.http, "/v1/completions", dict(body, stream=True))
                task = asyncio.ensure_future(s.run())
                await until("a worker has them", lambda: task.done() or (busy() is not None and when(c, s)))
                assert not task.done(), s.events[-1:]
                workers[busy()].kill()
                await asyncio.wait_for(task, 300)
                return s
            s = asyncio.run(go())
            assert s.done and not s.errors(), s.events[-1:]
            assert c.total("baton_retries_total") >= 3
            wait_until("the next one is served", lambda: c.post(
                "/v1/completions", {"prompt": "next", "max_tokens": 2})[0] == 200)
            status, answer = c.post("/v1/completions", body, timeout=300)
            assert status == 200, answer
            whole = {a["index"]: a["text"] for a in answer["choices"]}
            assert by_choice(s) == whole
            c.wait_idle()


def test_choices_survive_the_death_of_their_prefill_worker():
    killed("prefill", lambda c, s: not s.events)


def test_choices_survive_the_death_of_their_decode_worker():
    killed("decode", lambda c, s: len(s.events) > 10)


def test_client_that_leaves_frees_all_choices():
    """While the prompt is computed, and while the choices are drawn."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(endless_model(d), kv_memory="256m", worker_args=["--chunk-tokens", "16"]) as c:
            body = dict(prompt=LONG_PROMPT[:2000], max_tokens=20000, n=3, stream=True, ignore_eos=True)

            async def go(n_events):
                s = Stream(c.http, "/v1/completions", body)
                task = asyncio.ensure_future(s.run())
                await until("it is under way", lambda: len(s.events) >= n_events and
                            c.total("baton_worker_active_requests") >= 3)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            for n_events in (0, 10):
                asyncio.run(go(n_events))
                c.wait_idle()
            assert c.post("/v1/completions", {"prompt": "next", "max_tokens": 2, "n": 2})[0] == 200


def test_each_prompt_of_a_request_is_its_own_group():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(small_model(d), worker_args=["--prefix-cache", "off"]) as c:
            prompts = [prompt_of(20), prompt_of(33)]
            body = dict(prompt=prompts, n=3, seed=9, max_tokens=6, ignore_eos=True, return_token_ids=True, **DRAWN)
            status, answer = c.post("/v1/completions", body)
            assert status == 200, answer
            count = Count(c)
            count.transfers = 1
            count.add(20 + 33)
            got = [a["token_ids"] for a in answer["choices"]]
            assert got == [choices(c, prompts[i // 3], 1, 6, seed=9 + i, ignore_eos=True, **DRAWN)[0][0]
                           for i in range(6)]
            c.wait_idle()
