# SPDX-License-Identifier: Apache-2.0
"""The first prompt through the whole cluster, with the default model."""
import asyncio
import time

from harness import Cluster, Stream, default_model, wait_until

DISAGG = "nv_trt_llm_disaggregated_serving_metrics"


def test_first_prompt_paris():
    with Cluster(default_model(), kv_memory="256m") as c:
        assert len({p.pid for p in c.processes}) == 3
        before = c.metric(DISAGG, disaggregated_serving_type="request_count")
        status, answer = c.post("/v2/models/ensemble/generate",
                                {"text_input": "The capital of France is", "max_tokens": 16,
                                 "bad_words": "", "stop_words": ""})
        assert status == 200 and "Paris" in answer["text_output"], answer
        assert list(answer)[:6] == ["model_name", "model_version", "sequence_end", "sequence_id",
                                    "sequence_start", "text_output"], answer
        assert c.metric(DISAGG, disaggregated_serving_type="request_count") == before + 1
        assert c.metric(DISAGG, disaggregated_serving_type="kv_cache_transfer_ms") > 0

        # The same words through every door.
        text = answer["text_output"]
        same = c.complete("The capital of France is", temperature=0)
        assert text.endswith(same["text"]), (text, same)

        async def stream(path, body):
            return await Stream(c.http, path, body).run()

        s = asyncio.run(stream("/v2/models/ensemble/generate_stream",
                               {"text_input": "The capital of France is", "max_tokens": 16, "stream": True}))
        assert s.status == 200 and s.text() == same["text"], (s.text(), same)
        s = asyncio.run(stream("/v1/completions", {"prompt": "The capital of France is", "max_tokens": 16,
                                                   "temperature": 0, "stream": True,
                                                   "stream_options": {"include_usage": True}}))
        assert s.done and s.text() == same["text"]
        assert s.events[-1]["choices"] == [] and s.events[-1]["usage"]["completion_tokens"] == 16

        status, answer = c.post("/v1/chat/completions",
                                {"messages": [{"role": "user", "content": "Name the capital of France."}],
                                 "max_tokens": 24, "temperature": 0})
        assert status == 200 and "Paris" in answer["choices"][0]["message"]["content"], answer
        assert answer["usage"]["prompt_tokens"] > 10
        c.wait_idle()


def test_stop_and_bad_words():
    with Cluster(default_model(), kv_memory="256m") as c:
        prompt = "Count: one, two, three, four, five, six,"
        whole = c.complete(prompt, 24, temperature=0)["text"]
        # A stop word in the middle of what is coming anyway, spanning tokens.
        middle = whole.strip()[6:13]
        cut = c.complete(prompt, 24, temperature=0, stop=[middle])
        assert cut["text"] == whole[:whole.index(middle)], (whole, middle, cut)
        assert cut["finish_reason"] == "stop"
        # A banned word does not come.
        word = whole.split()[0].strip(",.")
        out = c.generate(prompt, 24, bad_words=[word])
        assert word not in out.replace(prompt, "").split(), (word, out)
        c.wait_idle()


def test_first_prompt_ledger_sums_to_the_counter():
    """kv_cache_transfer_ms is the sum of the requests' own ledgers."""
    with Cluster(default_model(), kv_memory="256m") as c:
        start = time.monotonic()
        for i in range(5):
            c.complete(f"Number {i} is", 4, temperature=0)
        # One token ends at the prefill worker: its KV reaches nobody.
        c.complete("Only one token", 1, temperature=0)
        wait_until("five hand-overs counted",
                   lambda: c.metric(DISAGG, disaggregated_serving_type="request_count") == 5)
        total = c.metric(DISAGG, disaggregated_serving_type="kv_cache_transfer_ms")
        count = c.metrics()
        hist = [v for k, v in count.items() if k.startswith("baton_kv_transfer_ms_sum")]
        if hist:
            assert abs(hist[0] - total) < 1e-6 * max(total, 1)
        assert 0 < total < 1000 * (time.monotonic() - start)
        c.wait_idle()
