# SPDX-License-Identifier: Apache-2.0
"""Options of a request that reach the workers' own state."""
import tempfile

from harness import Cluster, tiny_model, wait_until

PROMPT = [3 + i * 7 % 250 for i in range(70)]  # four whole blocks of 16 and 6 more
FOUND = 64


def prefilled(c):
    """(computed, found) prompt tokens of the prefill worker, of one and the same of its messages."""
    m = c.metrics()
    return tuple(sum(v for k, v in m.items() if k.startswith(name + "{") and "prefill-0" in k)
                 for name in ("baton_worker_prompt_tokens_total", "baton_worker_prompt_tokens_reused_total"))


def test_salts_share_no_blocks():
    """A prompt under a salt finds what was computed under that salt, and nothing else; the answer is the same."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, context=1024, seed=3)
        with Cluster(model, kv_memory="64m", worker_args=["--prefix-cache", "on"]) as c:
            answers = set()
            before = prefilled(c)
            for salt, found in ((None, 0), ("one", 0), ("two", 0), ("two", FOUND), (None, FOUND), ("three", 0),
                                ("one", FOUND), ("one ", 0), ("three", FOUND)):
                answers.add(tuple(c.complete(PROMPT, 4, temperature=0, cache_salt=salt)["token_ids"]))
                wait_until(f"the prompt of salt {salt} is counted",
                           lambda n=sum(before) + len(PROMPT): sum(prefilled(c)) >= n)
                after = prefilled(c)
                assert after == (before[0] + len(PROMPT) - found, before[1] + found), (salt, before, after)
                before = after
            assert len(answers) == 1


def test_logit_bias_in_both_phases():
    """Token #1 is the prefill worker's, the others the decode worker's, or all are a decode worker's alone."""
    for way in (dict(prefill=1), dict(prefill=0, decode_args=["--local-prefill"])):
        with tempfile.TemporaryDirectory() as d:
            with Cluster(tiny_model(d, layers=2, context=1024, seed=3), kv_memory="64m", **way) as c:
                def ask(**more):
                    return c.complete(PROMPT, 8, ignore_eos=True, **more)["token_ids"]

                plain = ask(temperature=0)
                assert ask(temperature=0, logit_bias={}) == plain
                assert ask(temperature=0, logit_bias={"77": 100}) == [77] * 8
                assert ask(temperature=1, seed=5, logit_bias={"78": 100}) == [78] * 8
                without = ask(temperature=0, logit_bias={str(i): -100 for i in set(plain)})
                assert not set(without) & set(plain), (plain, without)
                # A ban comes after the bias, and company is not touched by it.
                assert 77 not in ask(temperature=0, logit_bias={"77": 100, "79": 90}, repetition_penalty=1.0,
                                     stop_token_ids=[77], min_tokens=8)
                status, answer = c.post("/v1/completions", dict(prompt=PROMPT, logit_bias={"1000000": 1}))
                assert status == 400 and answer["error"]["param"] == "logit_bias", answer
                assert ask(temperature=0) == plain
