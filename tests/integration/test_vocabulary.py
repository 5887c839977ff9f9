# SPDX-License-Identifier: Apache-2.0
"""Rows of a model's matrices that no token stands for are nobody's: not drawn, not taken."""
import tempfile

from harness import Cluster, tiny_model

C = "/v1/completions"
N_VOCAB = 288
WAYS = [
    {"temperature": 0},
    {"temperature": 1.8, "seed": 3},
    {"temperature": 1.8, "seed": 3, "n": 3},
    {"temperature": 1.2, "seed": 4, "top_p": 0.8},
    {"temperature": 0, "logit_bias": {"70": 2.5}},
    {"temperature": 0, "frequency_penalty": 1.5},
]


def answers(directory, **rows):
    """What a cluster over such a model says in all WAYS, and its ids beyond the vocabulary are refused by name."""
    model = tiny_model(directory, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, vocab=N_VOCAB, context=256, seed=1,
                       **rows)
    with Cluster(model) as c:
        texts = []
        for way in WAYS:
            body = dict({"prompt": "the words and the", "max_tokens": 40, "ignore_eos": True}, **way)
            status, data = c.post(C, body)
            assert status == 200, (rows, way, status, data)
            texts.append([(choice["text"], choice["finish_reason"]) for choice in data["choices"]])
        for body, name in (({"prompt": [N_VOCAB], "max_tokens": 2}, "prompt"),
                           ({"prompt": "a", "max_tokens": 2, "logit_bias": {str(N_VOCAB): 100}}, "logit_bias")):
            status, data = c.post(C, body)
            assert status == 400, (rows, body, status, data)
            message = data["error"]["message"]
            assert name in message and f"token id {N_VOCAB}" in message, message
            assert data["error"]["param"] == name, data
        c.wait_idle()
        return texts


def test_vocabulary_rows_without_a_token_are_never_sampled():
    with tempfile.TemporaryDirectory() as d:
        plain = answers(d)
        for rows in ({"padding": 32}, {"unused": 20, "padding": 12}):
            assert answers(d, **rows) == plain, rows
