# SPDX-License-Identifier: Apache-2.0
"""--batching-strategy V1 and --decode-order: who generates with whom, and that no token depends on it."""
import asyncio
import tempfile

from harness import PACED, Cluster, Stream, slow_model, tiny_model, wait_until
from test_pausing import POOL, ask_all, total

STATIC = ["--batching-strategy", "V1"]
WAYS = {
    "static": [*STATIC],
    "static, by length": [*STATIC, "--decode-order", "length"],
    "static, with pauses": [*STATIC, "--decode-order", "fcfs", "--scheduler-policy", "max_utilization", "--kv-tokens", str(POOL)],
    "in flight, by length": ["--decode-order", "length", "--max-batch-size", "4"],
}


def test_same_bytes_in_every_batch_and_order():
    """Requests of every kind, alone in flight and all at once; and at one worker for both phases."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=3, dim=96, heads=6, kv_heads=3, ffn=160, context=1024, seed=5)
        with Cluster(model) as c:
            reference = ask_all(c, 1)
        for way, decode in WAYS.items():
            static = STATIC if STATIC[0] in decode else []
            for local in (False, True):
                more = dict(prefill=0, decode_args=["--local-prefill", *decode]) if local else dict(decode_args=decode)
                with Cluster(model, router_args=static, **more) as c:
                    got = ask_all(c, len(reference))
                    wrong = [i for i, (a, b) in enumerate(zip(reference, got)) if a != b]
                    assert not wrong, f"{way}, local {local}: {wrong} differ"
                    if "pauses" in way:
                        wait_until("there were pauses", lambda: total(c, "preemptions") > 0)
                    c.wait_idle()


def test_late_request_waits_for_the_batch_only_in_static_batching():
    """A short answer asked for when a long one has begun to come: in flight it has ended long before; in a static batch its
    first token, which is the prefill worker's, comes, and the second one when the long answer is whole."""
    async def who_is_first(c):
        long = Stream(c.http, "/v1/completions", body(400))
        short = Stream(c.http, "/v1/completions", body(3))
        task = asyncio.create_task(long.run())
        while len(long.events) < 8:
            await asyncio.sleep(0.001)
        await short.run()
        ended_first = not long.done
        await task
        assert not long.errors() and not short.errors() and long.done and short.done
        return ended_first, short.text(), len(long.events)

    def body(n):
        return dict(prompt=[5, 6, 7, 8], max_tokens=n, temperature=0, ignore_eos=True, stream=True)

    with tempfile.TemporaryDirectory() as d:
        model = slow_model(d)
        said = []
        for options, is_first in (([], True), (STATIC, False)):
            with Cluster(model, decode_args=[*options, *PACED], router_args=options) as c:
                ended_first, text, _ = asyncio.run(who_is_first(c))
                assert ended_first == is_first, options
                said.append(text)
                c.wait_idle()
        assert said[0] == said[1]

