# SPDX-License-Identifier: Apache-2.0
"""What sampling parameters, lengths and words can be at their extremes: an answer or an error of the client's, and the
workers go on as before."""
import json
import random
import tempfile
import threading

from harness import Cluster, tiny_model

C = "/v1/completions"
G = "/v2/models/ensemble/generate"
N_VOCAB, CONTEXT = 288, 256
GREEDY = "the greedy answer"
ONE_OF_MANY = {str(i): -100 for i in range(N_VOCAB) if i != 70}

# (fields, status or GREEDY: 200 with the tokens of temperature 0)
CASES = [
    ({"temperature": 1e-38}, GREEDY), ({"temperature": 1e-5, "top_p": 0.5}, GREEDY), ({"temperature": 100}, 200),
    ({"temperature": 100.1}, 400), ({"temperature": -1e-38}, 400),
    ({"temperature": 1, "top_p": 1e-38}, GREEDY), ({"temperature": 1, "top_p": 1e-300}, GREEDY),
    ({"temperature": 100, "top_p": 0.99999994}, 200), ({"temperature": 1, "top_p": 1.0000001}, 400),
    ({"temperature": 100, "top_k": 1}, GREEDY), ({"temperature": 100, "top_k": 287}, 200),
    ({"temperature": 100, "top_k": 2**31 - 1}, 200), ({"top_k": 2**31}, 400), ({"top_k": -2}, 400),
    ({"temperature": 1, "repetition_penalty": 100}, 200), ({"temperature": 0, "repetition_penalty": 0.01}, 200),
    ({"repetition_penalty": 1e38}, 400), ({"repetition_penalty": 0}, 400),
    ({"presence_penalty": -2, "frequency_penalty": 2, "temperature": 1}, 200), ({"presence_penalty": 1e38}, 400),
    ({"frequency_penalty": -1e38}, 400), ({"min_p": 1.5}, 400), ({"temperature": 100, "min_p": 1}, GREEDY),
    ({"logit_bias": {"70": 100}, "temperature": 1}, 200), ({"logit_bias": {"70": 1e38}}, 400),
    ({"logit_bias": {"70": -1e38}}, 400), ({"logit_bias": ONE_OF_MANY, "temperature": 1}, 200),
    ({"logit_bias": {"-1": 1}}, 400), ({"logit_bias": {"4294967296": 1}}, 400),
    ({"min_tokens": 12, "stop_token_ids": [0, 1, 2]}, 200), ({"min_tokens": 13}, 400),
    ({"stop": [""]}, GREEDY), ({"stop": []}, GREEDY), ({"stop": ["", "", ""]}, GREEDY), ({"stop": "\x00"}, 400),
    ({"bad_words": [""]}, GREEDY), ({"seed": 2**63 - 1}, GREEDY), ({"seed": 2**63}, GREEDY), ({"seed": -2**62}, GREEDY),
    ({"max_tokens": 2**31 - 1}, 400), ({"max_tokens": 2**31}, 400), ({"max_tokens": 0}, 400),
    ({"prompt": [5] * (CONTEXT - 1), "max_tokens": 1}, 200), ({"prompt": [5] * (CONTEXT - 1), "max_tokens": 2}, 400),
    ({"prompt": [5] * CONTEXT, "max_tokens": 1}, 400), ({"prompt": [5], "max_tokens": CONTEXT - 1}, 200),
    ({"prompt": [5], "max_tokens": CONTEXT}, 400), ({"prompt": []}, 400), ({"prompt": ""}, 400),
    ({"prompt": [[5], []]}, 400), ({"n": 64, "temperature": 100}, 200), ({"n": 65}, 400),
]
NO_JSON = ['"temperature": NaN', '"temperature": Infinity', '"temperature": 1e999', '"logit_bias": {"70": NaN}',
           '"presence_penalty": -1e999', '"max_tokens": 1e999']


def check(c, fields, want, greedy):
    body = dict({"prompt": "the words and the", "max_tokens": 12, "temperature": 0, "ignore_eos": True,
                 "return_token_ids": True}, **fields)
    status, answer = c.post(C, body)
    assert status == (200 if want == GREEDY else want), (fields, status, answer)
    if want == 400:
        assert answer["error"]["message"], answer
    elif want == GREEDY:
        assert answer["choices"][0]["token_ids"] == greedy, (fields, answer)


def mixed(r):
    """Several of them at once, whatever they say."""
    body = {"prompt": r.choice(["a", "the words", [5] * r.randrange(1, CONTEXT + 1)]), "max_tokens": r.randrange(1, 40)}
    for fields, _ in r.sample(CASES, r.randrange(1, 6)):
        body.update(fields)
    body["n"] = r.choice([1, 1, 2, 5])
    return body


def mix(c, seed, n, wrong):
    r = random.Random(seed)
    for _ in range(n):
        body = mixed(r)
        status, answer = c.post(C, body)
        if status not in (200, 400):
            wrong.append((body, status, answer))


def test_parameters_at_their_extremes():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=1, dim=64, heads=4, kv_heads=2, ffn=128, vocab=N_VOCAB, context=CONTEXT, seed=1,
                           padding=32)
        with Cluster(model, kv_memory="2m") as c:
            greedy = c.complete("the words and the", 12, temperature=0, ignore_eos=True)["token_ids"]
            for fields, want in CASES:
                check(c, fields, want, greedy)
            for text in NO_JSON:
                status, _, data = c.request("POST", C, '{"prompt": "a", "max_tokens": 2, %s}' % text)
                assert status == 400 and json.loads(data)["error"]["message"], (text, status, data)
            status, answer = c.post(C, {"prompt": "a", "max_tokens": 9, "logit_bias": ONE_OF_MANY, "temperature": 1,
                                        "return_token_ids": True, "ignore_eos": True})
            assert status == 200 and set(answer["choices"][0]["token_ids"]) == {70}, answer
            wrong = []
            clients = [threading.Thread(target=mix, args=(c, seed, 100, wrong)) for seed in range(4)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            assert not wrong, wrong[:3]
            check(c, {}, GREEDY, greedy)
            c.wait_idle()
            codes = c.stop()
            assert not any(codes.values()), codes
