# SPDX-License-Identifier: Apache-2.0
"""Fuzzed requests with drafts: whatever drafts, by whichever worker, whole or streamed, and though a worker dies, an answer
has the tokens, the text and the bits of log-probs that it has without drafts (I1)."""
import concurrent.futures
import itertools
import json
import os
import tempfile
import threading
import typing

from harness import Cluster, Skip, tiny_model, wait_until
from test_draft_heads import head, target
from test_speculation import ask, ask_all, assert_same, check_counters, fuzzed, longer, small, smaller

FEW, MANY = 16, 10000  # requests of a cluster; of all of them
PARALLEL = 8


class Drafter(typing.NamedTuple):
    """Who drafts: options of the workers, and fields of the request, by its number, its answer and another's."""
    name: str
    options: tuple
    source: str = ""  # which counter must have grown
    fields: typing.Callable = lambda i, ids, text, other: {}
    again: bool = False  # asked before: answers of earlier requests are there
    draft_model: typing.Callable = None  # makes its file in a folder
    model: typing.Callable = small  # a file with the logits of this one


def prediction(i, ids, text, other):
    """Right, wrong from the middle on, of another request, ids that are not of the vocabulary, and none."""
    return [{"draft_input_ids": ids}, {"draft_input_ids": ids[:len(ids) // 2] + other}, {"draft_input_ids": other or [5]},
            {"draft_input_ids": [2147483647, 0, 1] * 9}, {"prediction": {"type": "content", "content": text}},
            {"num_draft_tokens": i % 3}][i % 6]


def other_weights(d):
    return tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=1024, seed=8)


def head_of_small(d):
    return head(d, key=["target_layers=l:0,1,2", "target_hidden_size=u:64"])


def small_with_mtp(d):
    return target(d, nextn=True)


NO_CORPUS = ("--draft-corpus", "0")
# A row for each way to get drafts.
DRAFTERS = [
    Drafter("none", ("--draft", "off")),
    Drafter("n-grams", (*NO_CORPUS, "--draft-tokens", "16"), "ngram"),
    Drafter("predictions", (*NO_CORPUS, "--draft-tokens", "16"), "prediction", prediction),
    Drafter("corpus", ("--draft-tokens", "8"), "corpus", again=True),
    Drafter("itself", (*NO_CORPUS, "--draft", "self:q4_0", "--draft-tokens", "4"), "model"),
    Drafter("another file of its shape", (*NO_CORPUS, "--draft-tokens", "3"), "model", draft_model=other_weights),
    Drafter("a model of another shape", (*NO_CORPUS, "--draft-tokens", "4"), "model", draft_model=longer),
    Drafter("a model of another shape, few blocks", (*NO_CORPUS, "--draft-tokens", "4", "--kv-tokens", "2048"), "model", draft_model=smaller),
    Drafter("EAGLE-3", (*NO_CORPUS, "--draft-tokens", "4"), "model", draft_model=head_of_small),
    Drafter("MTP", (*NO_CORPUS, "--draft", "mtp", "--draft-tokens", "4"), "model", model=small_with_mtp),
    Drafter("what pays, of all but a model", (), "", prediction, True),
    Drafter("what pays, of all", ("--draft", "self"), "", prediction, True),
]
PATHS = {"handed over": dict(prefill=1), "local": dict(prefill=0, decode_args=["--local-prefill"])}


def joined(raw):
    """@return the choices of a stream, as a whole answer has them"""
    choices = {}
    for event in raw.decode().split("\n\n"):
        if not event.startswith("data: {"):
            continue
        for piece in json.loads(event[6:])["choices"]:
            whole = choices.setdefault(piece["index"], piece)
            if whole is piece:
                continue
            whole["text"] += piece["text"]
            whole["token_ids"] += piece["token_ids"]
            whole["finish_reason"] = piece["finish_reason"]
            for name, values in (piece.get("logprobs") or {}).items():
                whole["logprobs"][name] += values
    return [choices[i] for i in sorted(choices)]


def stream(c, body):
    status, _, raw = c.request("POST", "/v1/completions", dict(body, stream=True), timeout=600)
    assert status == 200, (status, raw, body)
    return joined(raw)


class Half:
    """Calls something when half of them came."""

    def __init__(self, n, call):
        self.lock, self.left, self.call = threading.Lock(), n // 2, call

    def one_came(self):
        with self.lock:
            self.left -= 1
            is_half = self.left == 0
        if is_half:
            self.call()


def ask_while_one_dies(c, bodies):
    """Every second one as a stream; when half of the answers came, a decode worker is killed.
    @return choices in order"""
    half = Half(len(bodies), c.decodes[0].kill)

    def one(numbered):
        i, body = numbered
        got = (stream if i % 2 else ask)(c, body)
        half.one_came()
        return got

    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        return list(pool.map(one, enumerate(bodies)))


def drafted(drafter, bodies, want):
    """The requests with the drafter's fields."""
    out = []
    for i, (body, choices) in enumerate(zip(bodies, want)):
        other = want[(i + 1) % len(want)][0]["token_ids"]
        out.append({**body, **drafter.fields(i, choices[0]["token_ids"], choices[0]["text"], other)})
    return out


def compare(drafter, path, bodies, want):
    """@return drafts, right ones; of the worker that lives on"""
    way = f"{drafter.name}, {path}"
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as other:
        options = [*drafter.options, *(("--draft-model", drafter.draft_model(other)) if drafter.draft_model else ())]
        with Cluster(drafter.model(d), **PATHS[path], decode=2, worker_args=options) as c:
            return compare_in(c, drafter, way, bodies, want)


def compare_in(c, drafter, way, bodies, want):
    requests = drafted(drafter, bodies, want)
    if drafter.again:
        assert_same(want, ask_all(c, bodies, PARALLEL), bodies, way)
    assert_same(want, ask_while_one_dies(c, requests), requests, way)
    c.wait_idle()
    if drafter.source:
        def counted():
            """All drafts may have been those of the worker that died."""
            if c.total("baton_spec_decode_draft_tokens_total", source=drafter.source) == 0:
                assert_same(want, ask_all(c, requests, PARALLEL), requests, way)
            return c.total("baton_spec_decode_draft_tokens_total", source=drafter.source) > 0
        wait_until(f"{way}: drafts are counted", counted)
        c.wait_idle()
    return check_counters(c)


def fuzz(rows, n, seed):
    """n requests, dealt out to rows of (drafter, path)."""
    bodies = fuzzed(n, seed)
    with tempfile.TemporaryDirectory() as d:
        with Cluster(small(d), prefill=0, decode_args=["--local-prefill"], worker_args=["--draft", "off"]) as c:
            want = ask_all(c, bodies, PARALLEL)
            assert check_counters(c) == (0, 0)
    n_compared = n_all_right = 0
    for i, (drafter, path) in enumerate(rows):
        mine, expected = bodies[i::len(rows)], want[i::len(rows)]
        n_drafts, n_right = compare(drafter, path, mine, expected)
        n_compared, n_all_right = n_compared + len(mine), n_all_right + n_right
        assert drafter.name != "none" or n_drafts == 0
        print(f"    {drafter.name}, {path}: {len(mine)} requests, {n_drafts:.0f} drafts, {n_right:.0f} right", flush=True)
    print(f"    {n_compared} requests, 0 differences", flush=True)
    assert n_compared == n < n_all_right


def test_fuzzed_requests_have_the_same_bytes_whatever_drafts():
    """Each drafter on one of the paths, in turn."""
    rows = list(zip(DRAFTERS, itertools.cycle(PATHS)))
    fuzz(rows, FEW * len(rows), 1)


def test_same_bytes_of_10000_fuzzed_requests_whatever_drafts():
    """Each drafter on each path."""
    if not os.environ.get("BATON_LONG"):
        raise Skip("in --long")
    fuzz(list(itertools.product(DRAFTERS, PATHS)), MANY, 2)
