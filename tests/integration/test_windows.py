# SPDX-License-Identifier: Apache-2.0
"""Models whose layers see a window of 512 tokens, asked with prompts of 8,192: what is held and sent is what the groups of
layers say, and the answers are those of workers that had all of it."""
import asyncio
import concurrent.futures
import tempfile

from harness import PACED, Cluster, Stream, tiny_model, wait_until
from test_own_memory import cluster as on_devices

WINDOW, PROMPT, ANSWER, TOKENS_PER_BLOCK = 512, 8192, 64, 16
CHUNK = 256  # half the window, as workers choose it
AHEAD = 40   # tokens, of who generates
SHAPE = dict(kv_heads=2, heads=4, dim=64, head_dim=16, context=PROMPT + 1024, window=WINDOW)
# Groups of how many layers, that keep all and that have the window (tests/unit/common/kv/test_kv_groups_plan.c has how they come about).
MODELS = {
    "gemma3": (dict(architecture="gemma3", layers=6, seed=44, **SHAPE), 1, 5, 1),
    "cohere2": (dict(architecture="cohere2", layers=8, seed=58, key="logit_scale=f:0.5", **SHAPE), 1, 3, 2),
    "phi3": (dict(architecture="phi3", layers=4, seed=5, **SHAPE), 0, 1, 4),
}
WAYS = {
    "local": dict(prefill=0, decode_args=["--local-prefill"]),
    "shm": dict(worker_args=["--kv-transport", "shm"]),
    "tcp": dict(worker_args=["--kv-transport", "network"]),
}


def spans(n_tokens):
    return -(-n_tokens // TOKENS_PER_BLOCK)


def most_in_window(ahead):
    """Spans that the window and what may be computed ahead of it can touch."""
    return spans(WINDOW - 1 + ahead) + 1


def sent_of_window(n_tokens=PROMPT):
    return spans(n_tokens) - (n_tokens + 1 - WINDOW) // TOKENS_PER_BLOCK


def page_bytes(layers, kv_type):
    """K and V of 2 heads of 16 dimensions and 16 tokens, int8 with a scale of 4 bytes for each vector."""
    return layers * 2 * 2 * TOKENS_PER_BLOCK * (16 + 4 if kv_type == "int8" else 2 * 16)


def prompt(i, n=PROMPT):
    """Token ids of which none is special."""
    return [3 + (k * k * (i + 1) + 7 * k + 31 * i) % 250 for k in range(n)]


def ask(c, i, n=PROMPT, max_tokens=ANSWER):
    drawn = dict(temperature=0.9, seed=5) if i % 2 else dict(temperature=0)
    return c.complete(prompt(i, n), max_tokens, ignore_eos=True, patience=300, **drawn)["token_ids"]


def in_one_step(model, kv_type="bf16", n_prompts=2):
    """By a worker that has all of the prompt in its pool, and computes it in one chunk."""
    with Cluster(model, prefill=0, kv_memory="64m", decode_args=["--local-prefill", "--chunk-tokens", str(PROMPT + 1024)],
                 worker_args=["--prefix-cache", "off", "--kv-dtype", kv_type]) as c:
        return [ask(c, i) for i in range(n_prompts)]


def slid(c):
    return c.total("baton_kv_blocks_window_evicted_total")


def check(name, way, kv_type, want):
    """In pools that hold what the groups say of one such request, and no block more."""
    shape, n_whole, n_windowed, layers = MODELS[name]
    page = page_bytes(layers, kv_type)
    context = n_whole * spans(PROMPT) + n_windowed * most_in_window(2 * CHUNK)
    both = n_whole * spans(PROMPT + ANSWER - 1) + n_windowed * most_in_window(2 * CHUNK)
    decode = n_whole * spans(PROMPT + ANSWER - 1) + n_windowed * most_in_window(AHEAD)
    sent = n_whole * spans(PROMPT) + n_windowed * sent_of_window()
    kept_whole = (n_whole + n_windowed) * spans(PROMPT)
    more = {k: list(v) if isinstance(v, list) else v for k, v in WAYS[way].items()}
    more["worker_args"] = more.get("worker_args", []) + ["--kv-dtype", kv_type]
    more["prefill_args"] = ["--kv-memory", str(context * page)]
    more["decode_args"] = more.get("decode_args", []) + ["--kv-memory", str((both if way == "local" else decode) * page)]
    with tempfile.TemporaryDirectory() as d:
        with Cluster(tiny_model(d, **shape), **more) as c:
            for i, answer in enumerate(want):
                assert ask(c, i) == answer, f"{name}, {way}, {kv_type}: prompt {i} differs"
            c.wait_idle()
            n_sent = 0 if way == "local" else len(want) * sent * page
            wait_until("what was sent is told", lambda: c.metric("baton_kv_bytes_total", direction="sent") >= n_sent)
            assert c.metric("baton_kv_bytes_total", direction="sent") == n_sent
            assert c.metric("baton_kv_bytes_total", direction="received") == n_sent
            assert slid(c) > 0
            assert c.total("baton_kv_window_blocks") == 0
    held = f"{both} blocks held" if way == "local" else f"{context} and {decode} blocks held, {sent} sent"
    print(f"    {name}, {way}, {kv_type}: {held} of {kept_whole} that the prompt has", flush=True)


def test_attention_windows_hold_and_send_only_their_blocks():
    for name, kv_type, ways in (("gemma3", "bf16", WAYS), ("gemma3", "int8", ["tcp"]), ("cohere2", "int8", ["shm"]),
                                ("phi3", "bf16", ["local", "tcp"])):
        with tempfile.TemporaryDirectory() as d:
            want = in_one_step(tiny_model(d, **MODELS[name][0]), kv_type)
        assert want[0] != want[1] and len(set(want[1])) > 8, name
        for way in ways:
            check(name, way, kv_type, want)


def test_windowed_prefix_is_found_up_to_the_divergence():
    """Long after the first one's window has slid over it, at both workers, and with the same answers."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, **MODELS["gemma3"][0])
        parted = prompt(0)[:5000] + prompt(1)[5000:]

        def answer(c):
            return c.complete(parted, 16, temperature=0, ignore_eos=True, patience=300)["token_ids"]
        with Cluster(model, prefill=0, decode_args=["--local-prefill"], worker_args=["--prefix-cache", "off"]) as c:
            want = answer(c)
        for way in WAYS:
            with Cluster(model, kv_memory="32m", **WAYS[way]) as c:
                first = ask(c, 0)
                assert answer(c) == want, way
                assert ask(c, 0) == first, way
                c.wait_idle()
                wait_until("tokens reused", lambda c=c: c.total("baton_worker_prompt_tokens_reused_total",
                                                                worker="decode-0") >= 4992 + PROMPT - 32)


def test_attention_windows_work_in_device_memory():
    """A device that takes whole tables at the beginning of each step; and choices of one prompt, each by itself."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, **MODELS["gemma3"][0])
        body = dict(prompt=prompt(0, 1500), max_tokens=40, n=2, temperature=0.9, seed=4, ignore_eos=True, return_token_ids=True)
        answers = []
        for prefill, decode in (("cpu", "cpu"), ("trap", "trap")):
            with on_devices(model, prefill, decode) as c:
                status, answer = c.post("/v1/completions", body, timeout=300)
                assert status == 200, answer
                answers.append([choice["token_ids"] for choice in answer["choices"]])
                c.wait_idle()
                wait_until("blocks slid", lambda c=c: slid(c) > 0)
        assert answers[0] == answers[1] and answers[0][0] != answers[0][1]


def stream_and_kill(c, body, n_events, whose):
    """@return the stream, of which some events came before one of these workers was killed, the one that is at work"""
    async def go():
        s = Stream(c.http, "/v1/completions", body)
        task = asyncio.ensure_future(s.run())

        def at_work():
            names = [p for p in whose if c.total("baton_worker_active_requests", worker=p.name) > 0]
            return names[0] if names else None
        while not (len(s.events) >= n_events and at_work()):
            assert not task.done(), "it is over before it could be killed"
            await asyncio.sleep(0.005)
        at_work().kill()
        await asyncio.wait_for(task, 300)
        return s
    return asyncio.run(go())


def test_windowed_request_survives_the_death_of_its_worker():
    """A prefill worker in the middle of its context phase, a decode worker in the middle of its answer: another one runs
    it again, and nothing is left behind."""
    shape = dict(MODELS["gemma3"][0], dim=192, ffn=768)
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, **shape)
        for transport, n_events, role in (("shm", 0, "prefill"), ("network", 100, "decode")):
            with Cluster(model, prefill=2, decode=2, kv_memory="32m", worker_args=[
                    "--kv-transport", transport, "--heartbeat-ms", "20", "--prefix-cache", "off", *PACED]) as c:
                body = dict(prompt=prompt(2), max_tokens=300, temperature=0.9, seed=3, ignore_eos=True, stream=True)
                whole = c.complete(body["prompt"], 300, temperature=0.9, seed=3, ignore_eos=True, patience=300)["text"]
                s = stream_and_kill(c, body, n_events, c.prefills if role == "prefill" else c.decodes)
                assert not s.errors() and s.finishes() == ["length"], (role, s.errors())
                assert s.text() == whole, role
                c.wait_idle()
                assert c.total("baton_kv_window_blocks") == 0
                assert [p.role for p in c.processes if not p.alive()] == [role]


def test_attention_windows_work_under_preemption():
    """Sequences that grow beside their windows, in a pool that has the windows of eight, and of the other layers half of
    what these have in the end."""
    shape, n_whole, n_windowed, layers = MODELS["cohere2"]
    blocks = 4 * n_whole * spans(700 + 500) + 8 * n_windowed * most_in_window(AHEAD)
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, **shape)

        def ask_all(c):
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                return list(pool.map(lambda i: ask(c, i, 700 + 25 * i, 500), range(8)))
        with Cluster(model, kv_memory="64m", worker_args=["--prefix-cache", "off"]) as c:
            want = ask_all(c)
            c.wait_idle()
        with Cluster(model, kv_memory="64m", decode_args=[
                "--kv-memory", str(blocks * page_bytes(layers, "bf16")), "--scheduler-policy", "max_utilization", *PACED]) as c:
            assert ask_all(c) == want
            c.wait_idle()
            wait_until("every pause is over, and there were some", lambda: (
                c.total("baton_worker_preemptions_total", worker="decode-0") ==
                c.total("baton_worker_preemption_resumes_total", worker="decode-0") > 0))
            assert slid(c) > 0
