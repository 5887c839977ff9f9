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
