#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Baton judged by the clients that people use, unmodified from PyPI.

Usage: test_clients.py [NAME ...]

Needs `pip install openai "tritonclient[http]" locust prometheus_client
requests` and two environment variables: BATON_BUILD (a build directory) and
BATON_TEST_MODEL (SmolLM2-135M-Instruct.Q4_1.gguf). BATON_CLIENTS_PYTHON may
name the Python that has the packages. What is missing is said and skipped; when
there is nothing to run, the exit status is 77. Prints a line for each test and
a last line `N passed, N failed, N skipped`.
"""
import asyncio
import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
from harness import Skip, wait_until  # noqa: E402

MODEL = "ensemble"
QUESTION = "The capital of France is"
README_BODY = '{"text_input": "The capital of France is", "max_tokens": 16, "bad_words": "", "stop_words": ""}'
GENERATE = "/v2/models/ensemble/generate"
SSE = "text/event-stream; charset=utf-8"
CHAT = [{"role": "user", "content": "Name three rivers."}]

# Made by transformers 4.x from the model file itself: AutoTokenizer with
# gguf_file, its pre-tokenizer set to Digits(individual_digits) then ByteLevel
# (as the model was made), len(apply_chat_template(messages,
# add_generation_prompt=True)). The first has the template's own system prompt.
CHAT_COUNTS = [
    (34, CHAT),
    (30, [{"role": "system", "content": "You answer in French."},
          {"role": "user", "content": "What is 2 + 1234?"}]),
    (61, [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello! \U0001f600"},
          {"role": "user", "content": "日本語で\n答えて"}]),
    (38, [{"role": "user", "content": "  spaces  and\n\n\ttabs "}]),
]

_modules = {}


def client_module(name):
    """A package from PyPI, or the test is skipped."""
    if name not in _modules:
        try:
            _modules[name] = importlib.import_module(name)
        except ImportError as why:
            raise Skip(f"{name} is not installed ({why})") from why
    return _modules[name]


def url(c):
    return f"http://{c.http[0]}:{c.http[1]}"


def openai_client(c, kind="OpenAI"):
    openai = client_module("openai")
    return getattr(openai, kind)(base_url=url(c) + "/v1", api_key="none", max_retries=0, timeout=120)


def expect(error, call):
    """@return the exception of this type that the call must raise."""
    try:
        answer = call()
    except error as e:
        return e
    raise AssertionError(f"no {error.__name__}, but {answer}")


def events_of(data):
    """The JSON of each SSE event of a whole body, every one valid UTF-8 by itself."""
    assert data.endswith(b"\n\n"), data[-40:]
    found = []
    for event in data.split(b"\n\n")[:-1]:
        text = event.decode("utf-8", "strict")
        if text.startswith(":"):
            continue  # a comment: it was silent for long
        assert text.startswith("data: ") and "\n" not in text, text
        found.append(text[6:] if text == "data: [DONE]" else json.loads(text[6:]))
    return found


# --- openai

def test_openai_lists_models(c):
    client = openai_client(c)
    models = client.models.list().data
    assert len(models) == 1 and models[0].object == "model" and models[0].created > 0, models
    assert client.models.retrieve(models[0].id).id == models[0].id
    assert client.models.retrieve(MODEL).id == MODEL
    e = expect(client_module("openai").NotFoundError, lambda: client.models.retrieve("gpt-4"))
    assert "gpt-4" in e.message and e.code == "model_not_found", e


def test_openai_completions_take_every_form_of_prompt(c):
    client = openai_client(c)
    one = client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=8, temperature=0)
    text = one.choices[0].text
    assert "Paris" in text and one.choices[0].finish_reason == "length", one
    assert one.usage.completion_tokens == 8, one.usage
    assert one.usage.total_tokens == one.usage.prompt_tokens + 8
    assert one.object == "text_completion" and one.id.startswith("cmpl-")

    both = client.completions.create(model=MODEL, prompt=[QUESTION, "1 2 3 4"], max_tokens=8, temperature=0)
    assert [x.index for x in both.choices] == [0, 1] and both.choices[0].text == text, both
    assert both.usage.completion_tokens == 16

    # "The capital of France is": ids of the Hugging Face tokenizer.
    ids = [504, 3575, 282, 4649, 314]
    of_ids = client.completions.create(model=MODEL, prompt=ids, max_tokens=8, temperature=0)
    assert of_ids.choices[0].text == text and of_ids.usage.prompt_tokens == one.usage.prompt_tokens == 5, of_ids
    of_lists = client.completions.create(model=MODEL, prompt=[ids, ids[:2]], max_tokens=8, temperature=0)
    assert [x.index for x in of_lists.choices] == [0, 1] and of_lists.choices[0].text == text
    assert of_lists.usage.prompt_tokens == 7


def test_openai_n_stop_and_seed(c):
    client = openai_client(c)

    def draw(seed, **more):
        return client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=16, temperature=1.2,
                                         seed=seed, **more)
    two = draw(7, n=2)
    assert [x.index for x in two.choices] == [0, 1] and two.choices[0].text != two.choices[1].text, two
    assert two.usage.prompt_tokens == 4 and two.usage.completion_tokens == 32, two.usage
    assert [x.text for x in draw(7, n=2).choices] == [x.text for x in two.choices]
    assert draw(7).choices[0].text == two.choices[0].text != draw(8).choices[0].text
    streamed = {0: "", 1: ""}
    for chunk in draw(7, n=2, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert [streamed[0], streamed[1]] == [x.text for x in two.choices], streamed

    whole = client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=16, temperature=0).choices[0].text
    # A word that no single token holds: it begins and ends inside tokens.
    word = whole[len(whole) // 2 - 5:len(whole) // 2 + 5]
    for stop in (word, [word], ["never said", word]):
        got = client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=16, temperature=0, stop=stop)
        assert got.choices[0].text == whole[:whole.index(word)], (whole, word, got)
        assert got.choices[0].finish_reason == "stop"
    pieces = [x.choices[0].text for x in client.completions.create(
        model=MODEL, prompt=QUESTION, max_tokens=16, temperature=0, stop=word, stream=True)]
    assert "".join(pieces) == whole[:whole.index(word)], pieces


def tokens_of(answer):
    """Its usage, less what was cached: that is more when it is asked again."""
    usage = answer.usage
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


def test_openai_stream_with_usage(c):
    client = openai_client(c)
    ask = dict(model=MODEL, prompt=QUESTION, max_tokens=8, temperature=0)
    whole = client.completions.create(**ask)
    chunks = list(client.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and tokens_of(chunks[-1]) == tokens_of(whole), chunks[-1]
    assert all(x.usage is None for x in chunks[:-1])
    assert "".join(x.choices[0].text for x in chunks[:-1]) == whole.choices[0].text
    assert [x.choices[0].finish_reason for x in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]
    assert len({x.id for x in chunks}) == 1
    counts = [x.usage.completion_tokens for x in client.completions.create(
        **ask, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})]
    assert counts[0] >= 1 and counts == sorted(counts) and counts[-1] == 8, counts
    without = list(client.completions.create(**ask, stream=True))
    assert all(len(x.choices) == 1 and x.usage is None for x in without)


def test_openai_chat(c):
    client = openai_client(c)
    ask = dict(model=MODEL, max_tokens=16, temperature=0)
    whole = client.chat.completions.create(messages=CHAT, **ask)
    message = whole.choices[0].message
    assert message.role == "assistant" and len(message.content) > 10, whole
    assert whole.id.startswith("chatcmpl-") and whole.object == "chat.completion"
    parts = [{"role": "user", "content": [{"type": "text", "text": "Name three rivers."}]}]
    newer = client.chat.completions.create(model=MODEL, messages=parts, max_completion_tokens=16, temperature=0)
    assert newer.choices[0].message.content == message.content and tokens_of(newer) == tokens_of(whole)

    chunks = list(client.chat.completions.create(messages=CHAT, stream=True, stream_options={"include_usage": True},
                                                 **ask))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].object == "chat.completion.chunk"
    assert all(x.choices[0].delta.role is None for x in chunks[1:-1])
    assert "".join(x.choices[0].delta.content or "" for x in chunks[:-1]) == message.content
    assert tokens_of(chunks[-1]) == tokens_of(whole) and chunks[-1].choices == []
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason

    # The helper on top of streams. It raises where a text ends for its length.
    ask = dict(model=MODEL, messages=[{"role": "user", "content": "Say only: yes"}], max_tokens=400, temperature=0)
    whole = client.chat.completions.create(**ask)
    assert whole.choices[0].finish_reason == "stop", whole
    with client.chat.completions.stream(**ask) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == whole.choices[0].message.content


def test_openai_chat_counts_the_tokens_of_the_template(c):
    client = openai_client(c)
    for count, messages in CHAT_COUNTS:
        usage = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=1).usage
        assert usage.prompt_tokens == count, (usage, count, messages)


def test_openai_errors_have_a_type_and_a_message(c):
    openai, client = client_module("openai"), openai_client(c)

    def complete(**body):
        return lambda: client.completions.create(**dict(dict(model=MODEL, prompt="a", max_tokens=1), **body))

    e = expect(openai.NotFoundError, complete(model="gpt-4"))
    assert "gpt-4" in e.message and e.code == "model_not_found" and e.param == "model", e
    e = expect(openai.BadRequestError, complete(max_tokens=100000))
    assert "100001" in e.message and "8192" in e.message and e.param == "max_tokens", e
    # What the decode worker's blocks can never hold, less than the model's context.
    held = int(c.metric(TRT + "kv_cache_block_metrics", kv_cache_block_type="max") / 2 *
               c.metric(TRT + "kv_cache_block_metrics", kv_cache_block_type="tokens_per"))
    assert 1000 < held < 8192, held
    e = expect(openai.BadRequestError, complete(max_tokens=held))
    assert str(held) in e.message and "kv-memory" in e.message and e.param == "max_tokens", e
    assert client.models.retrieve(MODEL).model_dump()["max_model_len"] == held
    assert e.type == "invalid_request_error" and e.code == "context_length_exceeded"
    for field, body in (("max_tokens", dict(max_tokens=0)), ("temperature", dict(temperature=-1)),
                        ("prompt", dict(prompt="")), ("prompt", dict(prompt=[])), ("prompt", dict(prompt=[99999999])),
                        ("n", dict(n=0)), ("logprobs", dict(logprobs=21)), ("suffix", dict(suffix="x"))):
        e = expect(openai.BadRequestError, complete(**body))
        assert e.param == field and field in e.message, (field, e)
        e = expect(openai.BadRequestError, complete(stream=True, **body))
        assert e.param == field, e
    e = expect(openai.BadRequestError, lambda: client.chat.completions.create(model=MODEL, messages=[]))
    assert e.param == "messages", e
    e = expect(openai.BadRequestError, lambda: client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]))
    assert "image_url" in e.message
    e = expect(openai.NotFoundError, lambda: client.embeddings.create(model=MODEL, input="a"))
    assert "/v1/embeddings" in e.message and e.code != "model_not_found", (e, e.code)
    # null means absent, and what is not known is left alone.
    answer = complete(extra_body={"stop": None, "seed": None, "logit_bias": None, "my_own": [1, {"a": 2}]})()
    assert len(answer.choices) == 1


def test_openai_logprobs_and_echo(c):
    openai = client_module("openai")
    client = openai_client(c)

    def complete(**more):
        more = dict(dict(model=MODEL, prompt=QUESTION, temperature=0, max_tokens=5), **more)
        return client.completions.create(**more).choices[0]

    plain = complete()
    assert plain.logprobs is None
    told = complete(logprobs=5)
    assert told.text == plain.text
    scores = told.logprobs
    assert "".join(scores.tokens) == told.text and len(scores.tokens) == 5
    assert scores.token_logprobs == [max(top.values()) for top in scores.top_logprobs]
    assert all(len(top) == 5 for top in scores.top_logprobs)
    # As evaluation harnesses ask: the prompt's own log-probs, and whether each token is the greedy one.
    ids = [504, 3575, 282, 4649, 314]  # "The capital of France is", by the file's own tokenizer: checked below
    for prompt, n_new in ((QUESTION, 1), (QUESTION, 0), (ids, 1)):
        echoed = complete(prompt=prompt, echo=True, logprobs=1, max_tokens=n_new)
        n = len(ids) + n_new
        assert echoed.text == QUESTION + (scores.tokens[0] if n_new else ""), echoed
        assert "".join(echoed.logprobs.tokens) == echoed.text
        for values in (echoed.logprobs.tokens, echoed.logprobs.token_logprobs, echoed.logprobs.top_logprobs,
                       echoed.logprobs.text_offset):
            assert len(values) == n, values
        assert echoed.logprobs.token_logprobs[0] is None
        assert all(max(top.values()) >= value for top, value in
                   list(zip(echoed.logprobs.top_logprobs, echoed.logprobs.token_logprobs))[1:])
        if n_new:
            assert echoed.logprobs.token_logprobs[-1] == scores.token_logprobs[0]
    assert complete(echo=True).text == QUESTION + plain.text
    assert complete(prompt=ids, echo=True).text == QUESTION + plain.text
    pieces = list(client.completions.create(model=MODEL, prompt=QUESTION, temperature=0, max_tokens=5, logprobs=5,
                                            echo=True, stream=True))
    told = [p.choices[0].logprobs for p in pieces if p.choices and p.choices[0].logprobs]
    assert [t for piece in told for t in piece.tokens][len(ids):] == scores.tokens
    assert [v for piece in told for v in piece.token_logprobs][len(ids):] == scores.token_logprobs

    def chat(**more):
        return client.chat.completions.create(model=MODEL, messages=CHAT, temperature=0, max_tokens=6, logprobs=True,
                                              **more)

    said = chat(top_logprobs=3).choices[0]
    content = said.logprobs.content
    assert "".join(t.token for t in content) == said.message.content and len(content) == 6
    assert b"".join(bytes(t.bytes) for t in content).decode() == said.message.content
    assert all(len(t.top_logprobs) == 3 and t.top_logprobs[0].logprob == t.logprob for t in content)
    streamed = [t for p in chat(top_logprobs=3, stream=True) if p.choices and p.choices[0].logprobs
                for t in p.choices[0].logprobs.content]
    assert streamed == content
    assert all(t.top_logprobs == [] for t in chat().choices[0].logprobs.content)
    e = expect(openai.BadRequestError, lambda: client.chat.completions.create(
        model=MODEL, messages=CHAT, top_logprobs=3))
    assert e.param == "top_logprobs", e
    c.wait_idle()


def test_openai_logit_bias_and_cache_salt(c):
    openai = client_module("openai")
    client = openai_client(c)

    def ids(**more):
        answer = client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=5, temperature=0,
                                           extra_body={"return_token_ids": True, "ignore_eos": True,
                                                       "cache_salt": "client test"}, **more)
        return answer.choices[0].model_dump()["token_ids"]

    plain = ids()
    assert ids(logit_bias={str(plain[0]): 100}) == [plain[0]] * 5
    assert plain[0] not in ids(logit_bias={str(plain[0]): -100})
    said = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=3,
                                          temperature=0, logit_bias={str(plain[0]): 100})
    word = client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=1, temperature=0)
    assert said.choices[0].message.content.strip() == " ".join([word.choices[0].text.strip()] * 3)
    e = expect(openai.BadRequestError, lambda: ids(logit_bias={str(plain[0]): 101}))
    assert e.param == "logit_bias", e
    e = expect(openai.BadRequestError, lambda: client.completions.create(
        model=MODEL, prompt="a", extra_body={"cache_salt": ""}))
    assert e.param == "cache_salt", e


def test_openai_closed_stream_is_cancelled(c):
    client = openai_client(c)
    stream = client.completions.create(model=MODEL, prompt="Count: 1, 2, 3,", max_tokens=2800, stream=True,
                                       extra_body={"ignore_eos": True})
    for _, _ in zip(range(3), stream):
        pass
    wait_until("it is active", lambda: c.metric("nv_trt_llm_request_metrics", request_type="active") >= 1)
    stream.close()
    wait_until("nothing is active", lambda: c.metric("nv_trt_llm_request_metrics", request_type="active") == 0)
    c.wait_idle()
    assert c.metric("baton_requests_in_flight") == 0


def test_openai_async_with_50_streams_at_once(c):
    client = openai_client(c, "AsyncOpenAI")

    async def one(i):
        text, finish = "", None
        stream = await client.completions.create(model=MODEL, prompt=f"Number {i % 10} and the", max_tokens=12,
                                                 temperature=0, stream=True, extra_body={"ignore_eos": True})
        async for chunk in stream:
            text += chunk.choices[0].text
            finish = chunk.choices[0].finish_reason or finish
        assert finish == "length", (i, finish, text)
        return text

    async def everyone():
        try:
            return await asyncio.gather(*(one(i) for i in range(50)))
        finally:
            await client.close()

    texts = asyncio.run(everyone())
    # The same prompt has the same answer, whoever was beside it.
    for i, text in enumerate(texts):
        assert text == texts[i % 10] and text, (i, text)
    c.wait_idle()


# --- tritonclient and what speaks as it does

def test_tritonclient_health_and_metadata(c):
    http = client_module("tritonclient.http")
    utils = client_module("tritonclient.utils")
    client = http.InferenceServerClient("%s:%d" % c.http)
    try:
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready(MODEL) and client.is_model_ready(MODEL, "1")
        assert not client.is_model_ready("other") and not client.is_model_ready(MODEL, "2")
        assert client.get_server_metadata()["name"] == "baton"
        metadata = client.get_model_metadata(MODEL)
        names = [x["name"] for x in metadata["inputs"]]
        assert metadata["name"] == MODEL and metadata["versions"] == ["1"] and metadata["platform"] == "ensemble"
        assert {"text_input", "max_tokens", "stream", "exclude_input_in_output"} <= set(names), names
        assert "text_output" in [x["name"] for x in metadata["outputs"]]
        e = expect(utils.InferenceServerException, lambda: client.get_model_metadata("other"))
        assert "other" in e.message() and e.status() == "404", e
        assert client.is_server_live()  # the connection is still good
    finally:
        client.close()


NUMPY_TYPES = {"BYTES": "object", "INT32": "int32", "UINT64": "uint64", "FP32": "float32", "BOOL": "bool"}


def triton_input(kind, name, datatype, rows, binary=True):
    """@param kind  tritonclient.http or its like. @param rows  a list of lists"""
    array = client_module("numpy").array(rows, dtype=NUMPY_TYPES[datatype])
    tensor = kind.InferInput(name, list(array.shape), datatype)
    if binary is None:  # gRPC's have no JSON
        tensor.set_data_from_numpy(array)
    else:
        tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def texts_of(result, name="text_output"):
    return [x.decode() if isinstance(x, bytes) else x for x in result.as_numpy(name).tolist()]


def test_tritonclient_infers_in_json_and_binary(c):
    http = client_module("tritonclient.http")
    client = http.InferenceServerClient("%s:%d" % c.http)
    whole = c.generate(QUESTION, 8)
    assert "Paris" in whole, whole
    try:
        for binary_in in (True, False):
            for binary_out in (True, False, None):
                inputs = [triton_input(http, "text_input", "BYTES", [[QUESTION.encode()]], binary_in),
                          triton_input(http, "max_tokens", "INT32", [[8]], binary_in),
                          triton_input(http, "temperature", "FP32", [[0.0]], binary_in)]
                outputs = None if binary_out is None else [
                    http.InferRequestedOutput("text_output", binary_data=binary_out)]
                result = client.infer(MODEL, inputs, outputs=outputs, request_id="id-7")
                assert texts_of(result) == [QUESTION + whole], (binary_in, binary_out, texts_of(result))
                answer = result.get_response()
                assert answer["id"] == "id-7" and answer["model_name"] == MODEL and answer["model_version"] == "1", answer
                raw = "binary_data_size" in answer["outputs"][0].get("parameters", {})
                assert raw == (binary_out is not False), answer
        alone = client.infer(MODEL, inputs + [triton_input(http, "exclude_input_in_output", "BOOL", [[True]])])
        assert texts_of(alone) == [whole]
        pending = client.async_infer(MODEL, inputs)
        assert texts_of(pending.get_result()) == [QUESTION + whole]
    finally:
        client.close()


def test_tritonclient_infers_a_batch_with_a_row_each(c):
    http = client_module("tritonclient.http")
    client = http.InferenceServerClient("%s:%d" % c.http)
    prompts = [QUESTION, "1 2 3 4", "Once upon a time"]
    try:
        def counts():
            stats, = client.get_inference_statistics("tensorrt_llm_bls")["model_stats"]
            return stats["inference_stats"]["success"]["count"], stats["inference_count"]
        before = counts()
        result = client.infer("tensorrt_llm_bls", [
            triton_input(http, "text_input", "BYTES", [[x.encode()] for x in prompts]),
            triton_input(http, "max_tokens", "INT32", [[4], [6], [8]]),
            triton_input(http, "stop_words", "BYTES", [[b""], [b" 7"], [b""]])])
        assert counts() == (before[0] + 1, before[1] + 3), "a request, and three inferences"
        expected = [p + c.generate(p, n, stop_words=s) for p, n, s in zip(prompts, (4, 6, 8), ("", " 7", ""))]
        assert texts_of(result) == expected, (texts_of(result), expected)
        assert result.as_numpy("batch_index").tolist() == [[0], [1], [2]]
    finally:
        client.close()


def test_tritonclient_gets_log_probs_and_logits(c):
    """They are those of /v1/completions, and the ids are the largest logits'."""
    http, np = client_module("tritonclient.http"), client_module("numpy")
    status, answer = c.post("/v1/completions", {"prompt": QUESTION, "max_tokens": 4, "temperature": 0, "logprobs": 0,
                                                "ignore_eos": True})
    assert status == 200, answer
    expected = np.array(answer["choices"][0]["logprobs"]["token_logprobs"])
    client = http.InferenceServerClient("%s:%d" % c.http)
    on = [triton_input(http, x, "BOOL", [[True]])
          for x in ("return_log_probs", "return_context_logits", "return_generation_logits")]
    try:
        text = [triton_input(http, "text_input", "BYTES", [[QUESTION.encode()]]),
                triton_input(http, "max_tokens", "INT32", [[4]])]
        ids = client.infer("preprocessing", [triton_input(http, "QUERY", "BYTES", [[QUESTION.encode()]]),
                                             triton_input(http, "REQUEST_OUTPUT_LEN", "INT32", [[4]])])
        ids = ids.as_numpy("INPUT_ID").tolist()
        tokens = [triton_input(http, "input_ids", "INT32", ids), triton_input(http, "request_output_len", "INT32", [[4]]),
                  triton_input(http, "exclude_input_in_output", "BOOL", [[True]])]
        results = [client.infer(MODEL, text + on), client.infer("tensorrt_llm", tokens + on)]
        for result in results:
            assert result.as_numpy("output_log_probs").tolist() == [[expected.astype(np.float32).tolist()]], expected
            assert result.as_numpy("cum_log_probs").tolist() == [[np.float32(expected.sum()).item()]]
            context, made = result.as_numpy("context_logits"), result.as_numpy("generation_logits")
            n_vocab = made.shape[-1]
            assert context.dtype == made.dtype == np.float32
            assert context.shape == (1, len(ids[0]), n_vocab) and made.shape == (1, 1, 4, n_vocab), (context.shape, made.shape)
            rows = made[0, 0].astype(np.float64)
            top = rows.max(axis=1)
            assert np.abs(-np.log(np.exp(rows - top[:, None]).sum(axis=1)) - expected).max() < 1e-5
            assert (context[0, -1] == made[0, 0, 0]).all()  # what the first token was drawn from
        assert made[0, 0].argmax(axis=1).tolist() == results[1].as_numpy("output_ids")[0, 0].tolist()
        named = client.infer(MODEL, text + on, outputs=[http.InferRequestedOutput("generation_logtis")])
        assert [x["name"] for x in named.get_response()["outputs"]] == ["generation_logtis"]
        assert (named.as_numpy("generation_logtis") == made).all()
        # One row of a batch asks: all have them, the shorter one with zeros behind.
        batch = client.infer(MODEL, [
            triton_input(http, "text_input", "BYTES", [[QUESTION.encode()], [b"1 2"]]),
            triton_input(http, "max_tokens", "INT32", [[4], [2]]),
            triton_input(http, "return_log_probs", "BOOL", [[True], [False]]),
            triton_input(http, "return_generation_logits", "BOOL", [[True], [False]])])
        rows = batch.as_numpy("generation_logits")
        assert rows.shape == (2, 1, 4, n_vocab) and (rows[0] == made[0]).all()
        assert rows[1, 0, 1].any() and not rows[1, 0, 2:].any()
        assert batch.as_numpy("output_log_probs")[1, 0].tolist()[2:] == [0, 0]
        plain = client.infer(MODEL, text)
        assert [x["name"] for x in plain.get_response()["outputs"]] == ["text_output"]
        many = [text[0], triton_input(http, "max_tokens", "INT32", [[1000]]), on[2]]
        wrong = expect(client_module("tritonclient.utils").InferenceServerException, lambda: client.infer(MODEL, many))
        assert "max-logits-bytes" in str(wrong), wrong
        # As text they are more than an answer may have; as they are they fit.
        tokens[1] = triton_input(http, "request_output_len", "INT32", [[90]])
        output = [http.InferRequestedOutput("generation_logits", binary_data=x) for x in (False, True)]
        wrong = expect(client_module("tritonclient.utils").InferenceServerException,
                       lambda: client.infer("tensorrt_llm", tokens + on, outputs=output[:1]))
        assert wrong.status() == "400" and "binary_data" in str(wrong), wrong
        result = client.infer("tensorrt_llm", tokens + on, outputs=output[1:])
        assert result.as_numpy("generation_logits").shape == (1, 1, 90, n_vocab)
    finally:
        client.close()


def test_tritonclient_chains_the_models_by_hand(c):
    """preprocessing, tensorrt_llm and postprocessing, one after the other, are what the ensemble does at once."""
    http = client_module("tritonclient.http")
    client = http.InferenceServerClient("%s:%d" % c.http)
    try:
        before = client.infer("preprocessing", [
            triton_input(http, "QUERY", "BYTES", [[QUESTION.encode()]]),
            triton_input(http, "REQUEST_OUTPUT_LEN", "INT32", [[8]])])
        # Ids of the Hugging Face tokenizer.
        assert before.as_numpy("INPUT_ID").tolist() == [[504, 3575, 282, 4649, 314]]
        assert before.as_numpy("REQUEST_INPUT_LEN").tolist() == [[5]]
        made = client.infer("tensorrt_llm", [
            triton_input(http, "input_ids", "INT32", before.as_numpy("INPUT_ID").tolist()),
            triton_input(http, "input_lengths", "INT32", before.as_numpy("REQUEST_INPUT_LEN").tolist()),
            triton_input(http, "request_output_len", "INT32", before.as_numpy("REQUEST_OUTPUT_LEN").tolist())])
        ids = made.as_numpy("output_ids")
        assert ids.shape == (1, 1, 13) and ids[0][0][:5].tolist() == [504, 3575, 282, 4649, 314], ids
        assert made.as_numpy("sequence_length").tolist() == [[13]]
        after = client.infer("postprocessing", [
            triton_input(http, "TOKENS_BATCH", "INT32", ids.tolist()),
            triton_input(http, "SEQUENCE_LENGTH", "INT32", [[13]])])
        assert texts_of(after, "OUTPUT") == [QUESTION + c.generate(QUESTION, 8)], texts_of(after, "OUTPUT")
    finally:
        client.close()


def test_tritonclient_compresses_both_ways(c):
    http = client_module("tritonclient.http")
    client = http.InferenceServerClient("%s:%d" % c.http)
    inputs = [triton_input(http, "text_input", "BYTES", [[QUESTION.encode()]]),
              triton_input(http, "max_tokens", "INT32", [[8]])]
    try:
        plain = texts_of(client.infer(MODEL, inputs))
        for there in ("gzip", "deflate", None):
            for back in ("gzip", "deflate", None):
                result = client.infer(MODEL, inputs, request_compression_algorithm=there,
                                      response_compression_algorithm=back)
                assert texts_of(result) == plain, (there, back)
    finally:
        client.close()


def test_tritonclient_receives_errors(c):
    http = client_module("tritonclient.http")
    utils = client_module("tritonclient.utils")
    client = http.InferenceServerClient("%s:%d" % c.http)
    text = triton_input(http, "text_input", "BYTES", [[QUESTION.encode()]])
    try:
        for more, outputs, words in (
                ([triton_input(http, "beam_width", "INT32", [[100]])], None, "beam_width"),
                ([triton_input(http, "lora_task_id", "UINT64", [[7]])], None, "lora_task_id"),
                ([triton_input(http, "no_such", "INT32", [[2]])], None, "no_such"),
                ([triton_input(http, "max_tokens", "INT32", [[0]])], None, "max_tokens"),
                ([], [http.InferRequestedOutput("no_such")], "no_such")):
            e = expect(utils.InferenceServerException, lambda m=more, o=outputs: client.infer(MODEL, [text] + m, outputs=o))
            assert e.status() == "400" and words in e.message(), e
        e = expect(utils.InferenceServerException, lambda: client.infer("other", [text]))
        assert e.status() == "404" and "other" in e.message(), e
        assert client.is_server_live()  # the connection is still good
    finally:
        client.close()


def test_tritonclient_aio_infers(c):
    client_module("aiohttp")
    http = client_module("tritonclient.http.aio")
    plain = c.generate(QUESTION, 8)

    async def run():
        async with http.InferenceServerClient("%s:%d" % c.http) as client:
            inputs = [triton_input(http, "text_input", "BYTES", [[QUESTION.encode()]]),
                      triton_input(http, "max_tokens", "INT32", [[8]])]
            results = await asyncio.gather(*[
                client.infer(MODEL, inputs, request_id=str(i), request_compression_algorithm=("gzip", None)[i % 2],
                             response_compression_algorithm=("deflate", "gzip", None)[i % 3]) for i in range(8)])
            assert [x.get_response()["id"] for x in results] == [str(i) for i in range(8)]
            assert all(texts_of(x) == [QUESTION + plain] for x in results)
    asyncio.run(run())


def described(client_call, c):
    """Every describing call of tritonclient, whether its answers are awaited or not. @return what they said"""
    said = {}
    for name in ("ensemble", "tensorrt_llm_bls", "tensorrt_llm", "preprocessing", "postprocessing"):
        config = client_call("get_model_config", name)
        metadata = client_call("get_model_metadata", name)
        assert config["name"] == metadata["name"] == name, config
        assert [x["name"] for x in config["input"]] == [x["name"] for x in metadata["inputs"]]
        assert [[-1] + x["dims"] for x in config["input"]] == [x["shape"] for x in metadata["inputs"]]
        assert config["max_batch_size"] > 0 and config["backend"] or config["platform"], config
        streams = config["model_transaction_policy"]["decoupled"]
        assert streams == (name not in ("preprocessing", "postprocessing")), (name, streams)
        said[name] = config
    steps = said["ensemble"]["ensemble_scheduling"]["step"]
    assert said["ensemble"]["platform"] == "ensemble", said["ensemble"]
    assert [x["model_name"] for x in steps] == ["preprocessing", "tensorrt_llm", "postprocessing"], steps
    for step in steps:  # a client walks them: each name is one of that model's tensors
        names = {x["name"] for x in said[step["model_name"]]["input"]}
        assert set(step["input_map"]) <= names, set(step["input_map"]) - names
        names = {x["name"] for x in said[step["model_name"]]["output"]}
        assert set(step["output_map"]) <= names, set(step["output_map"]) - names
    index = client_call("get_model_repository_index")
    assert {x["name"] for x in index} >= set(said) and all(x["state"] == "READY" for x in index), index
    everything = client_call("get_inference_statistics")["model_stats"]
    assert {x["name"] for x in everything} == {x["name"] for x in index}, everything
    return said


def settings_and_orders(client_call, wrong):
    """The log, the trace, shared memory, models: what a client may order of a router without a launcher."""
    was = client_call("get_log_settings")
    assert was["log_info"] is True and was["log_error"] is True and was["log_verbose_level"] == 0, was
    now = client_call("update_log_settings", {"log_verbose_level": 1})
    assert now["log_verbose_level"] == 1 == client_call("get_log_settings")["log_verbose_level"], now
    assert client_call("update_log_settings", {"log_verbose_level": 0}) == was
    wrong("log_file", "update_log_settings", {"log_file": "/tmp/other"})
    trace = client_call("get_trace_settings")
    assert trace["trace_level"] == ["OFF"] == client_call("get_trace_settings", MODEL)["trace_level"], trace
    assert client_call("update_trace_settings", settings={"trace_level": ["OFF"], "trace_rate": None}) == trace
    wrong("trace_rate", "update_trace_settings", settings={"trace_rate": "9"})
    wrong("--trace-file", "update_trace_settings", settings={"trace_level": ["TIMESTAMPS"]})
    for kind in ("system", "cuda"):
        assert client_call(f"get_{kind}_shared_memory_status") == []
        client_call(f"unregister_{kind}_shared_memory")
    wrong("--shared-memory off", "register_system_shared_memory", "a", "/a", 64)
    wrong("shared memory", "register_cuda_shared_memory", "a", b"x", 0, 64)
    wrong("no launcher", "load_model", MODEL)
    wrong("no launcher", "unload_model", MODEL)


def test_tritonclient_reads_metadata_and_controls_models(c):
    http = client_module("tritonclient.http")
    utils = client_module("tritonclient.utils")
    client = http.InferenceServerClient("%s:%d" % c.http)
    try:
        def call(name, *args, **more):
            return getattr(client, name)(*args, **more)

        def wrong(part, name, *args, **more):
            e = expect(utils.InferenceServerException, lambda: call(name, *args, **more))
            assert part in e.message() and e.status() == "400", e
        described(call, c)
        settings_and_orders(call, wrong)
    finally:
        client.close()


def test_tritonclient_aio_reads_metadata_and_controls_models(c):
    aio = client_module("tritonclient.http.aio")
    utils = client_module("tritonclient.utils")
    loop = asyncio.new_event_loop()

    async def make():
        return aio.InferenceServerClient("%s:%d" % c.http)
    client = loop.run_until_complete(make())
    try:
        def call(name, *args, **more):
            return loop.run_until_complete(getattr(client, name)(*args, **more))

        def wrong(part, name, *args, **more):
            e = expect(utils.InferenceServerException, lambda: call(name, *args, **more))
            assert part in e.message() and e.status() == "400", e
        assert call("is_server_live") and call("is_server_ready") and call("is_model_ready", MODEL)
        assert call("get_server_metadata")["name"] == "baton"
        described(call, c)
        settings_and_orders(call, wrong)
    finally:
        loop.run_until_complete(client.close())
        loop.close()


def test_load_generator_session_counts_match(c):
    """Metadata, configuration and statistics; 200 requests from 16 threads, half by generate and half by infer;
    statistics again."""
    http = client_module("tritonclient.http")
    numpy = client_module("numpy")
    requests = 200
    client = http.InferenceServerClient("%s:%d" % c.http)

    def counts(name):
        stats, = client.get_inference_statistics(name)["model_stats"]
        assert stats["name"] == name and stats["version"] == "1", stats
        found = {x: stats["inference_stats"][x] for x in (
            "success", "fail", "queue", "compute_input", "compute_infer", "compute_output")}
        found["inference_count"] = stats["inference_count"]
        found["execution_count"] = stats["execution_count"]
        return found

    def generate(_, i):
        status, answer = c.post(GENERATE, {"text_input": [f"{i} is"], "max_tokens": 2, "stream": False})
        assert status == 200 and answer["model_name"] == MODEL, answer

    def infer(mine, i):
        text = http.InferInput("text_input", [1, 1], "BYTES")
        text.set_data_from_numpy(numpy.array([[f"{i} is".encode()]], dtype=object))
        size = http.InferInput("max_tokens", [1, 1], "INT32")
        size.set_data_from_numpy(numpy.array([[2]], dtype=numpy.int32))
        assert mine.infer(MODEL, [text, size], request_id=str(i)).as_numpy("text_output") is not None

    failures = []

    def some(first):
        try:
            mine = http.InferenceServerClient("%s:%d" % c.http)  # one belongs to its thread
            for i in range(first, requests, 16):
                (infer if (i // 16) % 2 else generate)(mine, i)
            mine.close()
        except Exception as e:  # pylint: disable=broad-except
            failures.append(e)
    names = ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing", "tensorrt_llm_bls")
    try:
        assert client.get_model_metadata(MODEL) and client.get_model_config(MODEL)
        before = {x: counts(x) for x in names}
        page = c.metrics()
        threads = [threading.Thread(target=some, args=(i,)) for i in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not failures, failures[0]
        after = {x: counts(x) for x in names}
        for name in names:
            sent = 0 if name == "tensorrt_llm_bls" else requests
            for key, value in after[name].items():
                was = before[name][key]
                if key.endswith("_count"):
                    assert value - was == sent, (name, key, was, value)
                elif key == "fail":
                    assert value == was, (name, was, value)
                else:
                    assert value["count"] - was["count"] == sent, (name, key, was, value)
        for key in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
            assert after[MODEL][key]["ns"] > before[MODEL][key]["ns"], key
        # The same cells as the page's.
        now = c.metrics()
        for key, name in (("inference_count", "nv_inference_count"), ("execution_count", "nv_inference_exec_count")):
            series = name + '{model="tensorrt_llm",version="1"}'
            assert now[series] - page[series] == requests and now[series] == after["tensorrt_llm"][key], series
    finally:
        client.close()


def test_requests_keep_one_connection(c):
    requests = client_module("requests")
    with requests.Session() as session:
        answers = [session.post(url(c) + GENERATE, data=README_BODY).json() for _ in range(3)]
        assert all("Paris" in x["text_output"] for x in answers), answers
        assert answers[0] == answers[2]
        assert set(answers[0]) == {"model_name", "model_version", "sequence_id", "sequence_start", "sequence_end",
                                   "text_output"}, answers[0]
        answer = session.post(url(c) + GENERATE + "_stream", data=README_BODY)
        assert answer.headers["Content-Type"] == SSE, answer.headers
        events = events_of(answer.content)
        assert QUESTION + "".join(x["text_output"] for x in events) == answers[0]["text_output"]
        assert session.post(url(c) + GENERATE, data="{").status_code == 400
        packed = requests.post(url(c) + GENERATE, data=gzip.compress(README_BODY.encode()),
                               headers={"Content-Encoding": "gzip"})
        assert packed.status_code == 200 and packed.json() == answers[0], packed.text
        packed = requests.post(url(c) + GENERATE, data=b"no gzip", headers={"Content-Encoding": "gzip"})
        assert packed.status_code == 400 and "Content-Encoding" in packed.json()["error"], packed.text
        assert session.get(url(c) + "/health").status_code == 200
        assert session.head(url(c) + "/metrics").status_code == 200
        adapter = session.get_adapter(url(c))
        pools = adapter.poolmanager.pools
        assert sum(pools[k].num_connections for k in pools.keys()) == 1
    assert c.metric("baton_http_connections") >= 1  # the one that asks


def test_genai_perf_style_body(c):
    body = {"text_input": [QUESTION], "stream": True, "max_tokens": 8}
    status, answer = c.post(GENERATE, body)
    assert status == 200 and "Paris" in answer["text_output"], answer
    # What the tool sends for the streamed form, and [1, 1] tensors.
    status, _, data = c.request("POST", GENERATE + "_stream", dict(body, max_tokens=[[8]], temperature=[0.0]))
    assert status == 200
    assert QUESTION + "".join(x["text_output"] for x in events_of(data)) == answer["text_output"]
    status, more = c.post(GENERATE, dict(body, my_parameter="x", another={"a": [1]}))
    assert status == 200 and more == answer, "unknown keys are request parameters"


def test_curl_line_of_the_readme(c):
    with open(os.path.join(harness.ROOT, "README.md"), encoding="utf-8") as f:
        line = re.search(r"^curl -s .*$", f.read(), re.M).group(0)
    line = line.replace("127.0.0.1:8000", "%s:%d" % c.http)
    done = subprocess.run(["sh", "-c", line + " -i"], stdout=subprocess.PIPE, check=True, timeout=60)
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"Content-Type: application/json\r\n" in head + b"\r\n", head
    assert "Paris" in json.loads(body)["text_output"], body


def test_stop_words_and_bad_words(c):
    whole = c.generate(QUESTION, 16)
    for none in ("", [], [""], None):
        assert c.generate(QUESTION, 16, stop_words=none, bad_words=none) == whole
    word = whole[len(whole) // 2 - 5:len(whole) // 2 + 5]
    assert c.generate(QUESTION, 16, stop_words=["never said", word]) == whole[:whole.index(word)]
    _, _, data = c.request("POST", GENERATE + "_stream",
                           {"text_input": QUESTION, "max_tokens": 16, "stop_words": [word]})
    assert "".join(x["text_output"] for x in events_of(data)) == whole[:whole.index(word)]
    for bad in ("Paris", ["Paris"], ["London", "Paris"]):
        got = c.generate(QUESTION, 16, bad_words=bad)
        assert "Paris" not in got and got, got


def test_streams_never_cut_a_character(c):
    wide = 0
    # What is said often enough goes on; at temperature 5 any token may come, pieces of characters too.
    for prompt, seed, temperature in (("日本語 " * 24, 0, 0.0), ("\U0001f600 \U0001f680 " * 16, 1, 0.0),
                                      ("한국어 日本語 " * 16, 2, 0.8), ("日本 \U0001f600 " * 16, 3, 5.0)):
        ask = {"prompt": prompt.strip(), "max_tokens": 48, "temperature": temperature, "seed": seed,
               "ignore_eos": True}
        status, whole = c.post("/v1/completions", ask)
        assert status == 200, whole
        text = whole["choices"][0]["text"]
        _, headers, data = c.request("POST", "/v1/completions", dict(ask, stream=True))
        assert headers["Content-Type"] == SSE
        events = events_of(data)
        assert events.pop() == "[DONE]"
        assert "".join(x["choices"][0]["text"] for x in events) == text, (events, text)
        wide += sum(ord(x) > 0x7FF and x != "�" for x in text)
    assert wide >= 20, f"{wide}: the answers were meant to have characters of 3 and 4 bytes"


# --- metrics

TRT = "nv_trt_llm_"
# Families, labels in their order, and values: the text that the TensorRT-LLM
# backend's documentation prints, and the values that newer versions add.
PRINTED = """
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="context",version="1"}
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"}
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"}
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"}
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"}
nv_trt_llm_runtime_memory_metrics{memory_type="pinned",model="tensorrt_llm",version="1"}
nv_trt_llm_runtime_memory_metrics{memory_type="gpu",model="tensorrt_llm",version="1"}
nv_trt_llm_runtime_memory_metrics{memory_type="cpu",model="tensorrt_llm",version="1"}
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="tensorrt_llm",version="1"}
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"}
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="free",model="tensorrt_llm",version="1"}
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"}
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="reused",model="tensorrt_llm",version="1"}
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"}
nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="micro_batch_id",model="tensorrt_llm",version="1"}
nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="generation_requests",model="tensorrt_llm",version="1"}
nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="total_context_tokens",model="tensorrt_llm",version="1"}
nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="paused_requests",model="tensorrt_llm",version="1"}
nv_trt_llm_general_metrics{general_type="iteration_counter",model="tensorrt_llm",version="1"}
nv_trt_llm_general_metrics{general_type="timestamp",model="tensorrt_llm",version="1"}
nv_trt_llm_disaggregated_serving_metrics{disaggregated_serving_type="kv_cache_transfer_ms",model="tensorrt_llm",version="1"}
nv_trt_llm_disaggregated_serving_metrics{disaggregated_serving_type="request_count",model="tensorrt_llm",version="1"}
nv_llm_input_token_len_bucket{model="tensorrt_llm",response_metric_type="total_input_tokens",version="1",le="10"}
nv_llm_output_token_len_bucket{model="tensorrt_llm",response_metric_type="total_output_tokens",version="1",le="+Inf"}
nv_inference_request_success{model="tensorrt_llm",version="1"}
nv_inference_request_failure{model="tensorrt_llm",version="1"}
nv_inference_count{model="tensorrt_llm",version="1"}
nv_inference_exec_count{model="tensorrt_llm",version="1"}
nv_inference_request_duration_us{model="tensorrt_llm",version="1"}
nv_inference_queue_duration_us{model="tensorrt_llm",version="1"}
nv_inference_compute_input_duration_us{model="tensorrt_llm",version="1"}
nv_inference_compute_infer_duration_us{model="tensorrt_llm",version="1"}
nv_inference_compute_output_duration_us{model="tensorrt_llm",version="1"}
""".split()
TYPES = {"nv_trt_llm_request_metrics": "gauge", "nv_trt_llm_disaggregated_serving_metrics": "counter",
         "nv_trt_llm_general_metrics": "gauge", "nv_llm_input_token_len": "histogram",
         "nv_llm_output_token_len": "histogram", "nv_inference_request_success": "counter"}


def test_metrics_are_well_formed(c):
    parser = client_module("prometheus_client.parser")
    c.generate(QUESTION, 4)
    status, headers, data = c.request("GET", "/metrics", at=c.metrics_at)
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4"), headers
    text = data.decode("utf-8", "strict")
    lines = text.split("\n")
    for word in ("HELP", "TYPE"):
        heads = [x.split()[2] for x in lines if x.startswith(f"# {word} ")]
        assert len(heads) == len(set(heads)), f"{word} twice: {sorted(heads)}"
    families = list(parser.text_string_to_metric_families(text))
    assert all(f.documentation and f.type in ("counter", "gauge", "histogram") and f.samples for f in families)
    seen = [(s.name, tuple(sorted(s.labels.items()))) for f in families for s in f.samples]
    assert len(seen) == len(set(seen)), "a series twice"
    assert len(seen) == sum(1 for x in lines if x and not x.startswith("#"))
    series = {x.rpartition(" ")[0] for x in lines}
    for wanted in PRINTED:
        assert wanted in series, wanted
    # Nothing more in the families whose text others parse.
    extra = [x for x in series if x.startswith(TRT) and x not in PRINTED]
    assert not extra, extra
    for name, kind in TYPES.items():
        assert f"# TYPE {name} {kind}" in lines, name
    for name in ("nv_llm_input_token_len", "nv_llm_output_token_len"):
        bounds = [re.search(r'le="([^"]*)"', x).group(1) for x in lines if x.startswith(name + "_bucket")]
        assert bounds == ["10", "50", "100", "500", "1000", "+Inf"], bounds
    assert abs(c.metric(TRT + "general_metrics", general_type="timestamp") - time.time()) < 60
    # The same text on the main port.
    _, _, other = c.request("GET", "/metrics")
    assert {x.rpartition(" ")[0] for x in other.decode().split("\n")} == series


def test_metrics_change_with_their_events(_):
    """One seat: a running request, one that waits for it, and both gone."""
    names = ("active", "scheduled", "context", "waiting")
    # Small chunks: both phases of the long request take long enough to be seen, however fast the machine is.
    with harness.Cluster(harness.default_model(), decode_args=["--max-batch-size", "1", "--draft", "off"], kv_memory="256m",
                         prefill_args=["--chunk-tokens", "16"]) as c:
        def request_metric(kind):
            return c.metric(TRT + "request_metrics", request_type=kind)

        def kv(kind):
            return c.metric(TRT + "kv_cache_block_metrics", kv_cache_block_type=kind)

        def batcher(kind):
            return c.metric(TRT + "inflight_batcher_metrics", inflight_batcher_specific_metric=kind)

        before = c.metrics()
        assert request_metric("max") == 1 and not any(request_metric(x) for x in names)
        assert kv("used") == 0 and kv("fraction") == 0 and kv("free") == kv("max") > 0 and kv("tokens_per") > 0
        assert c.metric(TRT + "runtime_memory_metrics", memory_type="cpu") > 0

        long = dict(prompt="word " * 2000, max_tokens=6000, ignore_eos=True, temperature=0)
        done = []

        def run():
            done.append(c.post("/v1/completions", long, timeout=600)[0])

        # Read all the time: the context phase of the long prompt must show.
        seen = {}
        stop = threading.Event()

        def watch():
            while not stop.is_set():
                for k, v in c.metrics().items():
                    seen[k] = max(v, seen.get(k, 0))
                stop.wait(0.05)

        watcher = threading.Thread(target=watch)
        watcher.start()
        runners = []
        leaver = None
        try:
            leaver = openai_client(c).completions.create(model=MODEL, stream=True, **{
                k: v for k, v in long.items() if k != "ignore_eos"}, extra_body={"ignore_eos": True})
            next(iter(leaver))
            wait_until("one generates", lambda: batcher("generation_requests") == 1, 60)
            assert request_metric("active") == 1
            assert kv("used") >= 2000 // kv("tokens_per") and kv("free") < kv("max")
            assert 0 < kv("fraction") <= 1
            runners.append(threading.Thread(target=lambda: done.append(
                c.post("/v1/completions", dict(prompt="a", max_tokens=2, ignore_eos=True), timeout=600)[0])))
            runners[0].start()
            wait_until("one waits", lambda: request_metric("waiting") >= 1, 60)
            assert batcher("generation_requests") == 1
            steps = c.metric(TRT + "general_metrics", general_type="iteration_counter")
            wait_until("iterations go on",
                       lambda: c.metric(TRT + "general_metrics", general_type="iteration_counter") > steps)
            leaver.close()  # the seat is free: the other one runs
            runners[0].join(60)
            assert done == [200], done
        finally:
            stop.set()
            watcher.join()
            if leaver is not None:
                leaver.close()
            for r in runners:
                r.join(60)
        c.wait_idle()
        key = 'nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="%s",version="1"}'
        still = [x for x in names if not seen.get(key % x)]
        assert not still, f"never moved: {still}"
        assert max(v for k, v in seen.items() if "total_context_tokens" in k) > 0
        after = c.metrics()

        def grew(name):
            return after[name] - before[name]

        tail = '{model="tensorrt_llm",version="1"}'
        transfers = TRT + 'disaggregated_serving_metrics{disaggregated_serving_type="%s",model="tensorrt_llm",version="1"}'
        assert grew(transfers % "request_count") == 2, "two sequences reached the decode worker"
        assert grew(transfers % "kv_cache_transfer_ms") > 0
        assert grew("nv_inference_request_success" + tail) == 1
        assert grew("nv_inference_request_failure" + tail) == 1, "the one that left"
        for name in ("request", "compute_input", "compute_infer", "queue", "compute_output"):
            assert grew(f"nv_inference_{name}_duration_us" + tail) > 0, name
        assert grew("nv_inference_count" + tail) == 1 and grew("nv_inference_exec_count" + tail) == 1
        assert after['nv_llm_output_token_len_count{model="tensorrt_llm",response_metric_type='
                     '"total_output_tokens",version="1"}'] == 1
        assert not any(c.metric(TRT + "request_metrics", request_type=x) for x in names)
        assert kv("used") == 0 and kv("free") == kv("max")


def test_metrics_count_each_transfer_once(c):
    def count():
        return c.metric(TRT + "disaggregated_serving_metrics", disaggregated_serving_type="request_count")

    def lengths(which):
        return c.metric(f"nv_llm_{which}_token_len_sum"), c.metric(f"nv_llm_{which}_token_len_count")

    start, inputs, outputs = count(), lengths("input"), lengths("output")
    for _ in range(3):
        c.complete([504, 3575, 282, 4649, 314], 6, ignore_eos=True)
    wait_until("three transfers", lambda: count() == start + 3)
    assert lengths("input") == (inputs[0] + 15, inputs[1] + 3)
    assert lengths("output") == (outputs[0] + 18, outputs[1] + 3)
    c.complete([504, 3575, 282, 4649, 314], 1)  # ends with token #1: nothing is sent
    c.wait_idle()
    assert count() == start + 3


# --- a load generator

LOCUSTFILE = """
import json
from locust import FastHttpUser, task
class Reader(FastHttpUser):
    @task
    def stream(self):
        with self.client.post("/v1/completions", json={"prompt": "a", "max_tokens": 4, "stream": True},
                              stream=True, catch_response=True) as r:
            text = r.stream.read().decode()
            if text.endswith("\\n\\ndata: [DONE]\\n\\n"):
                r.success()
            else:
                r.failure(text[-80:])
    @task
    def whole(self):
        self.client.post("/v2/models/ensemble/generate", json={"text_input": "a", "max_tokens": 4})
"""


def test_locust_run_has_no_failure(c):
    if importlib.util.find_spec("locust") is None:
        raise Skip("locust is not installed")
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "load.py")
        with open(path, "w", encoding="utf-8") as f:
            f.write(LOCUSTFILE)
        done = subprocess.run(
            [sys.executable, "-m", "locust", "-f", path, "--headless", "-u", "6", "-r", "6", "-t", "4s", "-H", url(c),
             "--json", "--skip-log-setup"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)
        text = done.stdout.decode(errors="replace")
        assert done.returncode == 0, text[-3000:]
        stats = json.loads(text[text.index("["):text.rindex("]") + 1])
    assert len(stats) == 2 and all(x["num_requests"] > 0 and x["num_failures"] == 0 for x in stats), stats
    c.wait_idle()


# --- the runner

PACKAGES = ("openai", "tritonclient", "requests", "locust", "prometheus_client")


def missing():
    if any(importlib.util.find_spec(x) for x in PACKAGES):
        return None
    return "none of these packages is installed: " + " ".join(PACKAGES)


if __name__ == "__main__":
    sys.exit(client_tests.main(globals(), missing()))
