# SPDX-License-Identifier: Apache-2.0
"""Token ids in and out, as vLLM's /inference/v1/generate, and log-probs of prompts: held against /v1/completions of the
same server, whose ids and log-probs other tests hold against PyTorch. The forms are those of vLLM's GenerateResponse,
GenerateStreamResponse and Logprob."""
import json
import os
import tempfile

from harness import ROOT, Cluster, small_model
from test_tenants import served

PATH = "/inference/v1/generate"
PROMPT = [72, 101, 108, 108, 111, 44, 32, 119]


def answer(c, body, path=PATH):
    status, got = c.post(path, body)
    assert status == 200, (status, got)
    return got


def generate(c, token_ids=PROMPT, **params):
    return answer(c, {"token_ids": token_ids, "sampling_params": params})


def complete(c, prompt=PROMPT, **params):
    return answer(c, dict(params, prompt=prompt, return_token_ids=True), "/v1/completions")


def refused(c, body, path=PATH):
    """@return the field and the sentence"""
    status, got = c.post(path, body)
    assert status == 400, (status, got)
    return got["error"]["param"], got["error"]["message"]


def plain(choices):
    return [(x["index"], x["token_ids"], x["finish_reason"]) for x in choices]


DRAWN = [
    dict(temperature=0, max_tokens=12),
    dict(seed=7, max_tokens=12, n=3, temperature=0.9, top_p=0.9),
    dict(seed=8, max_tokens=9, top_k=5, repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.5, min_p=0.01),
    dict(seed=9, max_tokens=9, ignore_eos=True, logit_bias={"70": 100}),
    dict(seed=3, max_tokens=8, allowed_token_ids=[65, 66, 67]),
    dict(seed=4, max_tokens=20, structured_outputs={"regex": "[ab]{3}c"}),
]


def test_ids_are_those_of_completions():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d)) as c:
        for params in DRAWN:
            got, want = generate(c, **params), complete(c, **params)
            assert plain(got["choices"]) == plain(want["choices"]), (params, got, want)
            for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
                assert got["usage"][name] == want["usage"][name], (params, got["usage"])
            assert set(got) == {"request_id", "model", "created", "choices", "usage", "prompt_logprobs", "kv_transfer_params"}
            assert all(set(x) == {"index", "logprobs", "finish_reason", "token_ids"} for x in got["choices"]), got
            assert got["prompt_logprobs"] is None and got["kv_transfer_params"] is None
            assert got["request_id"].startswith("generate-tokens-"), got
        # Without max_tokens the answer is as long as a chat's, not vLLM's 16 of a class that nobody filled.
        assert len(generate(c, temperature=0, ignore_eos=True)["choices"][0]["token_ids"]) > 16
        assert answer(c, {"token_ids": PROMPT, "request_id": "mine \"\u00e9", "sampling_params": {"max_tokens": 1}})["request_id"] == "mine \"\u00e9"
        c.wait_idle()


def test_stops_end_the_ids():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d)) as c:
        ids = generate(c, temperature=0, max_tokens=12, ignore_eos=True)["choices"][0]["token_ids"]
        assert len(ids) == 12
        stop = ids[5]
        first = ids.index(stop)
        got = generate(c, temperature=0, max_tokens=12, ignore_eos=True, stop_token_ids=[stop])["choices"][0]
        assert (got["token_ids"], got["finish_reason"]) == (ids[:first + 1], "stop"), got
        # No end token is drawn before min_tokens: another one stands in the first one's place.
        got = generate(c, temperature=0, max_tokens=12, ignore_eos=True, stop_token_ids=[stop], min_tokens=first + 2)["choices"][0]
        assert len(got["token_ids"]) >= first + 2 and stop not in got["token_ids"][:first + 2], got
        assert got["token_ids"][:first] == ids[:first]
        # A word's last token is the answer's last.
        text = complete(c, temperature=0, max_tokens=12, ignore_eos=True)["choices"][0]["text"]
        word = next(x for x in text[3:] if x.isascii())
        params = dict(temperature=0, max_tokens=12, ignore_eos=True, stop=[word])
        got, want = generate(c, **params), complete(c, **params)
        assert got["choices"][0]["finish_reason"] == "stop" and plain(got["choices"]) == plain(want["choices"]), (got, want)
        c.wait_idle()


def test_log_probs_are_those_of_completions():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d)) as c:
        params = dict(seed=5, max_tokens=7, ignore_eos=True)
        echoed = complete(c, echo=True, logprobs=20, **params)["choices"][0]["logprobs"]["token_logprobs"]
        n = len(PROMPT)
        for asked, top in ((0, 2), (3, 0), (2, 5), (20, 20), (5, None), (None, 4)):
            more = {k: v for k, v in (("logprobs", asked), ("prompt_logprobs", top)) if v is not None}
            got = generate(c, **params, **more)
            choice = got["choices"][0]
            if asked is None:
                assert choice["logprobs"] is None, choice
            else:
                check_answer(choice, asked, echoed[n:], complete(c, logprobs=asked, **params)["choices"][0])
            if top is None:
                assert got["prompt_logprobs"] is None, got
            else:
                check_prompt(got["prompt_logprobs"], PROMPT, echoed[:n], top)
        many = generate(c, n=2, prompt_logprobs=1, **params)
        check_prompt(many["prompt_logprobs"], PROMPT, echoed[:n], 1)
        assert generate(c, token_ids=[5], prompt_logprobs=2, max_tokens=1)["prompt_logprobs"] == [None]
        c.wait_idle()


def check_answer(choice, n_top, logprobs, other):
    content = choice["logprobs"]["content"]
    assert set(choice["logprobs"]) == {"content"} and choice["token_ids"] == other["token_ids"]
    assert [x["token"] for x in content] == [f"token_id:{i}" for i in choice["token_ids"]]
    assert [x["logprob"] for x in content] == logprobs == other["logprobs"]["token_logprobs"], (content, logprobs)
    for token, best in zip(content, other["logprobs"]["top_logprobs"]):
        assert set(token) == {"token", "logprob", "bytes", "top_logprobs"} and token["bytes"] is None
        tops = [x["logprob"] for x in token["top_logprobs"]]
        assert len(tops) == n_top and tops == sorted(tops, reverse=True)
        assert set(tops) | {token["logprob"]} == set(best.values()), (token, best)


def check_prompt(got, prompt, logprobs, n_top):
    """vLLM's list: null, and for each other token its own entry first, and then the others of the best n_top."""
    assert len(got) == len(prompt) and got[0] is None and logprobs[0] is None, got
    for entries, token, logprob in zip(got[1:], prompt[1:], logprobs[1:]):
        assert list(entries)[0] == str(token) and entries[str(token)]["logprob"] == logprob, (entries, token, logprob)
        assert all(set(x) == {"logprob", "rank", "decoded_token"} for x in entries.values())
        ranks = {x["rank"]: x["logprob"] for x in entries.values()}
        own = entries[str(token)]["rank"]
        assert set(range(1, n_top + 1)) <= set(ranks), (ranks, n_top)
        assert len(entries) == n_top + (own is None or own > n_top), entries
        best = [ranks[k] for k in sorted(k for k in ranks if k is not None)]
        assert best == sorted(best, reverse=True), ranks
        if own is None and best:
            assert logprob <= best[-1], ranks


def test_completions_and_chats_have_log_probs_of_prompts():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d)) as c:
        params = dict(seed=5, max_tokens=3)
        prompts = [PROMPT, PROMPT[2:], [9]]
        echoed = complete(c, prompts, echo=True, logprobs=1, **params)["choices"]
        bare = complete(c, prompts, **params)["choices"]
        for more in ({}, {"logprobs": 1}, {"echo": True}, {"echo": True, "logprobs": 2}, {"n": 2}, {"best_of": 3}):
            got = complete(c, prompts, prompt_logprobs=3, **more, **params)["choices"]
            without = complete(c, prompts, **more, **params)["choices"]
            n = more.get("n", 1)
            for i, choice in enumerate(got):
                scores = echoed[i // n]["logprobs"]["token_logprobs"][:len(prompts[i // n])]
                check_prompt(choice.pop("prompt_logprobs"), prompts[i // n], scores, 3)
            assert got == without, (more, got, without)  # and nothing else is different
            assert "prompt_logprobs" not in without[0]
        assert plain(bare) == plain(echoed)
        messages = [{"role": "user", "content": "Hello"}]
        ids = answer(c, {"messages": messages}, "/tokenize")["tokens"]
        scores = complete(c, ids, echo=True, logprobs=0, max_tokens=1)["choices"][0]["logprobs"]["token_logprobs"][:len(ids)]
        body = {"messages": messages, "max_tokens": 4, "seed": 1, "logprobs": True, "top_logprobs": 1}
        with_it, without = (answer(c, dict(body, **more), "/v1/chat/completions") for more in ({"prompt_logprobs": 2}, {}))
        check_prompt(with_it["prompt_logprobs"], ids, scores, 2)
        assert with_it["choices"] == without["choices"] and "prompt_logprobs" not in without
        c.wait_idle()


def events(c, body):
    status, _, data = c.request("POST", PATH, body)
    assert status == 200, data
    pieces = data.decode().split("\n\n")
    assert pieces[-2:] == ["data: [DONE]", ""], pieces[-2:]
    return [json.loads(piece.removeprefix("data: ")) for piece in pieces[:-2]]


def test_streams_equal_wholes():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d)) as c:
        for params in DRAWN + [dict(seed=2, max_tokens=9, n=2, logprobs=3), dict(temperature=0, max_tokens=9, stop=["a", "e"], logprobs=0)]:
            body = {"token_ids": PROMPT, "sampling_params": params, "request_id": "r"}
            whole = answer(c, body)
            for options in (None, {"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}):
                got = events(c, dict(body, stream=True, stream_options=options))
                if options:
                    last = got.pop()
                    assert last["choices"] == [] and last["usage"]["total_tokens"] == whole["usage"]["total_tokens"], last
                assert all(set(x) == {"request_id", "choices", "usage"} and x["request_id"] == "r" for x in got), got
                assert all((x["usage"] is not None) == ("continuous_usage_stats" in (options or {})) for x in got), got
                for choice in whole["choices"]:
                    mine = [x["choices"][0] for x in got if x["choices"][0]["index"] == choice["index"]]
                    assert sum((x["token_ids"] for x in mine), []) == choice["token_ids"], (params, mine)
                    assert [x["finish_reason"] for x in mine] == [None] * (len(mine) - 1) + [choice["finish_reason"]], mine
                    assert len([x for x in mine if x["token_ids"]]) == len(choice["token_ids"]), mine  # one each
                    if choice["logprobs"] is None:
                        assert all(x["logprobs"] is None for x in mine)
                    else:
                        assert sum((x["logprobs"]["content"] for x in mine), []) == choice["logprobs"]["content"], params
        c.wait_idle()


def test_what_cannot_be_done_is_named():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d)) as c:
        n = len(answer(c, {"prompt": "a"}, "/tokenize")["tokens"])
        assert n > 0
        body = {"token_ids": PROMPT, "sampling_params": {"max_tokens": 1}}
        for more, field, words in (
                ({"token_ids": None}, "token_ids", "missing"), ({"token_ids": []}, "token_ids", "empty"),
                ({"token_ids": "a"}, "token_ids", "list of token ids"), ({"token_ids": ["a"]}, "token_ids", "integers"),
                ({"token_ids": [[5]]}, "token_ids", "integers"), ({"token_ids": [-1]}, "token_ids", "integers"),
                ({"token_ids": [5, 2**31 - 1]}, "token_ids", str(2**31 - 1)), ({"token_ids": [2**40]}, "token_ids", "integers"),
                ({"sampling_params": []}, "sampling_params", "object"),
                ({"kv_transfer_params": {"do_remote_decode": True}}, "kv_transfer_params", "not supported"),
                ({"ec_transfer_params": {"a": 1}}, "ec_transfer_params", "not supported"),
                ({"features": {"mm_hashes": {}}}, "features", "not supported"),
                ({"content_parts": [{"type": "text"}]}, "content_parts", "not supported"),
                ({"request_id": 5}, "request_id", "string"), ({"cache_salt": ""}, "cache_salt", "empty")):
            param, message = refused(c, dict(body, **more))
            assert param == field and field in message and words in message, (more, param, message)
        for more, field, words in (
                ({"max_tokens": 0}, "max_tokens", "from 1"), ({"min_tokens": 5, "max_tokens": 4}, "min_tokens", "above"),
                ({"max_tokens": 10**6}, "max_tokens", "context"), ({"n": 65}, "n", "64"), ({"temperature": -1}, "temperature", "-1"),
                ({"logprobs": 21}, "logprobs", "20"), ({"logprobs": -1}, "logprobs", "-1"), ({"prompt_logprobs": 21}, "prompt_logprobs", "20"),
                ({"prompt_logprobs": -1}, "prompt_logprobs", "-1"), ({"stop_token_ids": ["a"]}, "stop_token_ids", "a"),
                ({"logit_bias": {"999999": 1}}, "logit_bias", "999999"), ({"allowed_token_ids": [999999]}, "allowed_token_ids", "999999"),
                ({"logprob_token_ids": [5]}, "logprob_token_ids", "not supported"), ({"extra_args": {"a": 1}}, "extra_args", "not supported"),
                ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "no )")):
            param, message = refused(c, dict(body, sampling_params=more))
            assert param == field and words in message, (more, param, message)
        for path, given in ((PATH, dict(body, sampling_params={"prompt_logprobs": 0}, stream=True)),
                            ("/v1/completions", {"prompt": "a", "prompt_logprobs": 1, "stream": True}),
                            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "prompt_logprobs": 1, "stream": True}),
                            ("/v1/completions", {"prompt": "a", "prompt_logprobs": 1, "use_beam_search": True, "n": 2})):
            param, message = refused(c, given, path)
            assert param == "prompt_logprobs" and "prompt_logprobs" in message, (given, param, message)
        status, head, _ = c.request("POST", PATH, dict(body, sampling_params={"max_tokens": 1, "detokenize": False, "temprature": 1}, other=2))
        assert status == 200 and head["X-Baton-Ignored-Fields"] == "sampling_params.temprature, other", head
        c.wait_idle()
        with Cluster(small_model(d), router_args=["--unknown-fields", "error"]) as strict:
            param, message = refused(strict, dict(body, sampling_params={"temprature": 1}))
            assert message == "not known here: sampling_params.temprature (did you mean temperature?)", message


def test_the_description_is_served():
    with open(os.path.join(ROOT, "docs", "openapi.json"), "rb") as file:
        want = file.read()
    with served(ann="") as (c, keys):
        mine = keys.of("ann")
        status, head, data = c.request("GET", "/openapi.json", headers=mine)
        assert status == 200 and head["Content-Type"] == "application/json" and data == want, (status, head)
        status, _, data = c.request("GET", "/openapi.json", headers=dict(mine, **{"If-None-Match": head["ETag"]}))
        assert (status, data) == (304, b"")
        assert c.request("GET", "/openapi.json")[0] == 401
        assert c.request("GET", "/page/openapi.json")[0] == 404
        assert c.request("POST", "/openapi.json", b"{}", headers=mine)[0] == 405
        assert c.request("POST", PATH, {"token_ids": [5]})[0] == 401
        c.wait_idle()
