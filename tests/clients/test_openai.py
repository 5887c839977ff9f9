#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The OpenAI door judged by the openai SDK: the options of vLLM's server that its users send beside the API's own, and
the routes around completions and chat.

Usage: test_openai.py [NAME ...]

Needs `pip install openai` and the variables of test_clients.py.
"""
import asyncio
import concurrent.futures
import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import typing

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
from test_clients import MODEL, QUESTION, client_module, expect, openai_client  # noqa: E402

HI = [{"role": "user", "content": "Say hello."}]


def complete(client, **more):
    extra = more.pop("extra", {})
    return client.completions.create(**dict(dict(model=MODEL, prompt=QUESTION, max_tokens=8, temperature=0,
                                                 extra_body=extra), **more))


def chat(client, messages=None, **more):
    extra = more.pop("extra", {})
    return client.chat.completions.create(**dict(dict(model=MODEL, messages=messages or HI, max_tokens=8,
                                                      temperature=0, extra_body=extra), **more))


class Tap:
    """Passes connections on to a server, and keeps what comes back, of each by itself."""

    def __init__(self, address):
        self.address, self.answers = address, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://%s:%d" % self.listener.getsockname()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.address)
            self.answers.append(bytearray())
            threading.Thread(target=self.copy, args=(client, server, None), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, client, self.answers[-1]), daemon=True).start()

    @staticmethod
    def copy(source, target, kept):
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                if kept is not None:
                    kept += piece
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


# --- options of completions and chat

def test_best_of_returns_the_best_choice(c):
    client = openai_client(c)
    ask = dict(prompt="Once upon a time", temperature=1.3, seed=11, max_tokens=6, logprobs=0)
    each = complete(client, n=4, **ask).choices

    def mean(choice):
        return sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs)

    best = complete(client, best_of=4, n=2, **ask)
    expected = sorted(each, key=mean, reverse=True)[:2]
    assert [x.text for x in best.choices] == [x.text for x in expected], (best, each)
    assert [x.index for x in best.choices] == [0, 1] and best.usage.completion_tokens == 24, best.usage
    del ask["logprobs"]
    told = complete(client, best_of=4, **ask).choices
    assert len(told) == 1 and told[0].text == expected[0].text and told[0].logprobs is None, told
    e = expect(client_module("openai").BadRequestError, lambda: complete(client, best_of=2, stream=True))
    assert e.param == "best_of", e


def test_sampling_options_reach_the_sampler(c):
    client = openai_client(c)
    greedy = complete(client).choices[0].text
    ask = dict(temperature=1.5, seed=3)
    assert complete(client, **ask).choices[0].text != greedy
    for extra in ({"min_p": 1.0}, {"top_k": 1}):
        assert complete(client, extra=extra, **ask).choices[0].text == greedy, extra
        assert chat(client, extra=extra, **ask).choices[0].message.content == chat(client).choices[0].message.content
    assert complete(client, top_p=1e-9, **ask).choices[0].text == greedy
    e = expect(client_module("openai").BadRequestError, lambda: complete(client, extra={"min_p": 2}))
    assert e.param == "min_p", e
    once = complete(client, extra={"repetition_penalty": 1.0}).choices[0].text
    assert once == greedy
    ids = complete(client, max_tokens=24, extra={"repetition_penalty": 50.0, "return_token_ids": True}).choices[0]
    ids = ids.model_dump()["token_ids"]
    assert len(ids) == len(set(ids)), ids


def test_finish_reason_tells_stop_and_length(c):
    client = openai_client(c)
    whole = complete(client, max_tokens=16).choices[0].text
    word = whole[4:9]
    kept = complete(client, max_tokens=16, stop=word, extra={"include_stop_str_in_output": True}).choices[0]
    assert kept.text == whole[:whole.index(word) + len(word)] and kept.finish_reason == "stop", (whole, kept)
    pieces = complete(client, max_tokens=16, stop=word, stream=True, extra={"include_stop_str_in_output": True})
    assert "".join(p.choices[0].text for p in pieces) == kept.text
    many = [f"never {i}" for i in range(63)] + [word]
    assert complete(client, max_tokens=16, stop=many).choices[0].text == whole[:whole.index(word)]
    # By token ids, and not before so many tokens.
    ids = complete(client, extra={"return_token_ids": True}).choices[0].model_dump()["token_ids"]
    short = complete(client, extra={"stop_token_ids": [ids[2]], "return_token_ids": True}).choices[0]
    assert short.finish_reason == "stop" and short.model_dump()["token_ids"] == ids[:3], short
    later = complete(client, extra={"stop_token_ids": [ids[2]], "min_tokens": 4, "return_token_ids": True}).choices[0]
    assert len(later.model_dump()["token_ids"]) >= 4, later
    # The end of a turn, which is a token and no text unless both are asked for.
    ended = chat(client, max_tokens=64)
    assert ended.choices[0].finish_reason == "stop", ended
    shown = chat(client, max_tokens=64, extra={"skip_special_tokens": False, "include_stop_str_in_output": True})
    assert shown.choices[0].message.content == ended.choices[0].message.content + "<|im_end|>", shown
    n = ended.usage.completion_tokens
    on = chat(client, max_tokens=n + 4, extra={"ignore_eos": True})
    assert on.usage.completion_tokens == n + 4 and on.choices[0].finish_reason == "length", on


def test_chat_continues_its_last_message(c):
    client = openai_client(c)
    said = chat(client, max_tokens=12).choices[0].message.content
    begun = HI + [{"role": "assistant", "content": said[:5]}]
    on = chat(client, begun, max_tokens=12,
              extra={"continue_final_message": True, "add_generation_prompt": False})
    full = chat(client, begun, max_tokens=1)
    open_end = chat(client, max_tokens=1, extra={"add_generation_prompt": False}).usage.prompt_tokens
    opening = chat(client, max_tokens=1).usage.prompt_tokens - open_end  # "<|im_start|>assistant\n"
    assert opening in (3, 4), opening
    # Nor "<|im_end|>\n" behind the message.
    assert full.usage.prompt_tokens - on.usage.prompt_tokens == opening + 2, (full.usage, on.usage)
    e = expect(client_module("openai").BadRequestError,
               lambda: chat(client, extra={"continue_final_message": True}))
    assert e.param == "continue_final_message", e


def test_messages_in_every_form_are_accepted(c):
    client = openai_client(c)
    plain = chat(client, [{"role": "system", "content": "Be brief."}] + HI)
    forms = [
        [{"role": "developer", "content": "Be brief."}, HI[0]],
        [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
         {"role": "user", "name": "Ada", "content": [{"type": "text", "text": "Say hello."}]}],
    ]
    for messages in forms:
        got = chat(client, messages, user="me", metadata={"a": "b"}, store=False, service_tier="auto")
        assert got.choices[0].message.content == plain.choices[0].message.content, messages
        assert got.usage.prompt_tokens == plain.usage.prompt_tokens
    limited = chat(client, max_tokens=None, max_completion_tokens=3)
    assert limited.usage.completion_tokens == 3, limited.usage
    assert chat(client, response_format={"type": "text"}).choices[0].message.content
    openai = client_module("openai")
    for more, field in ((dict(response_format={"type": "xml"}), "response_format.type"),
                        (dict(extra={"chat_template": "x"}), "chat_template")):
        e = expect(openai.BadRequestError, lambda m=more: chat(client, **m))
        assert e.param == field, e


def event_class():
    pydantic = client_module("pydantic")

    class Guest(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        age: int = pydantic.Field(ge=0, le=130)

    class Event(pydantic.BaseModel):
        kind: typing.Literal["party", "meeting"]
        guests: list[Guest] = pydantic.Field(max_length=2)
        note: typing.Optional[str] = pydantic.Field(max_length=30)
        outside: bool
    return Event


def test_parse_gives_an_object_of_the_clients_class(c):
    """The client makes a strict schema of the class, and an object of the answer."""
    client, event = openai_client(c), event_class()
    for temperature in (0, 1.5):
        for seed in range(3):
            got = client.chat.completions.parse(model=MODEL, messages=[{"role": "user", "content": "A party for Ada, please."}],
                                                response_format=event, max_tokens=400, temperature=temperature, seed=seed)
            assert got.choices[0].finish_reason == "stop", got
            assert isinstance(got.choices[0].message.parsed, event), got
            said = client.responses.parse(model=MODEL, input="A party for Ada, please.", text_format=event, store=False,
                                          max_output_tokens=400, temperature=temperature)
            assert isinstance(said.output_parsed, event), said
            assert said.text.format.type == "json_schema" and said.text.format.name == "Event", said.text
    with client.chat.completions.stream(model=MODEL, messages=HI, response_format=event, max_tokens=400, temperature=1) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, event)
    openai = client_module("openai")
    loose = {"type": "json_schema", "json_schema": {"name": "loose", "strict": True, "schema": {"type": "object", "properties": {}}}}
    e = expect(openai.BadRequestError, lambda: chat(client, response_format=loose))
    assert e.param == "response_format" and "Invalid schema for response_format 'loose': In context=()" in e.message, e


def test_fields_of_other_servers_describe_an_answer(c):
    client = openai_client(c)
    for extra, pattern in (({"guided_choice": ["yes", "no"]}, "yes|no"), ({"guided_regex": "[a-c]{5}"}, "[a-c]{5}"),
                           ({"structured_outputs": {"regex": r"\d{4}-\d\d"}}, r"\d{4}-\d\d"), ({"ebnf": 'root ::= "x"{3}'}, "xxx"),
                           ({"guided_json": {"enum": ["a", 5]}}, '"a"|5')):
        for temperature in (0, 2):
            text = chat(client, temperature=temperature, max_tokens=40, extra=extra).choices[0].message.content
            assert re.fullmatch(pattern, text), (extra, text)


def test_usage_counts_cached_tokens(c):
    client = openai_client(c)
    prompt = "The quick brown fox jumps over the lazy dog. " * 20
    ask = dict(prompt=prompt, extra={"cache_salt": "usage test"})
    first = complete(client, **ask).usage
    again = complete(client, **ask).usage
    one = complete(client, **dict(ask, max_tokens=1)).usage
    assert first.prompt_tokens_details.cached_tokens == 0, first
    for usage in (again, one):
        assert first.prompt_tokens // 2 < usage.prompt_tokens_details.cached_tokens < first.prompt_tokens, usage
    counts = [p.usage for p in complete(client, stream=True, stream_options={
        "include_usage": True, "continuous_usage_stats": True}, **ask)]
    assert {u.prompt_tokens_details.cached_tokens for u in counts} == {again.prompt_tokens_details.cached_tokens}
    assert counts[0].completion_tokens == 1 and counts[-1].completion_tokens == 8, counts


def test_prediction_is_accepted_with_everything_and_counted(c):
    client = openai_client(c)
    options = dict(max_tokens=32, temperature=0.7, seed=5, logprobs=True, top_logprobs=2, presence_penalty=0.2)
    first = chat(client, **options)
    text = first.choices[0].message.content
    assert first.usage.completion_tokens_details.accepted_prediction_tokens is None
    again = chat(client, prediction={"type": "content", "content": text}, **options)
    assert again.choices == first.choices
    details = again.usage.completion_tokens_details
    assert details.accepted_prediction_tokens >= again.usage.completion_tokens - 2, again.usage  # how text is cut at its ends
    assert details.rejected_prediction_tokens <= 2, again.usage
    other = chat(client, prediction={"type": "content", "content": [{"type": "text", "text": "Nothing of this is said. " * 9}]},
                 **options)
    assert other.choices == first.choices
    assert other.usage.completion_tokens == first.usage.completion_tokens
    assert other.usage.completion_tokens_details.rejected_prediction_tokens > 30, other.usage
    parts = list(chat(client, stream=True, stream_options={"include_usage": True},
                      prediction={"type": "content", "content": text}, **options))
    assert "".join(p.choices[0].delta.content or "" for p in parts if p.choices) == text
    assert parts[-1].usage.completion_tokens_details == details
    wrong = expect(client_module("openai").BadRequestError, lambda: chat(client, prediction={"type": "content", "content": 5}))
    assert wrong.param == "prediction", wrong


def test_stream_lists_token_ids(c):
    client = openai_client(c)
    ids = complete(client, extra={"return_token_ids": True}).choices[0].model_dump()["token_ids"]
    pieces = list(complete(client, stream=True, extra={"return_token_ids": True}))
    assert [i for p in pieces for i in p.choices[0].model_dump()["token_ids"]] == ids, pieces


def test_unknown_fields_are_named_in_a_header(c):
    client = openai_client(c)
    raw = client.completions.with_raw_response.create(model=MODEL, prompt=QUESTION, max_tokens=1,
                                                      extra_body={"temprature": 0.1, "my_own": {"a": 1}})
    assert raw.headers["x-baton-ignored-fields"] == "temprature, my_own", raw.headers
    assert len(raw.parse().choices) == 1
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=HI, max_tokens=1, user="me")
    assert "x-baton-ignored-fields" not in raw.headers


# --- models, tokens, health

def test_models_list_describes_serving_limits(c):
    client = openai_client(c)
    model = client.models.list().data[0].model_dump()
    assert model == client.models.retrieve(model["id"]).model_dump()
    assert model["max_model_len"] > 1000 and model["chat_template"] == "own", model
    assert model["default_sampling"] == {"from": "server", "temperature": 0.7, "top_p": 0.95, "top_k": 0, "min_p": 0.1,
                                         "repetition_penalty": 1}, model
    # And so it is drawn: as a request that says all of it.
    silent = client.chat.completions.create(model=MODEL, messages=HI, max_tokens=12, seed=5)
    said = chat(client, max_tokens=12, seed=5, temperature=0.7, top_p=0.95, extra={"min_p": 0.1, "top_k": 0})
    assert silent.choices[0].message.content == said.choices[0].message.content


def test_operator_sampling_defaults_override_the_models(_):
    with tempfile.TemporaryDirectory() as d:
        model = harness.tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1,
                                   key=["general.sampling.temp=f:50", "general.sampling.top_k=u:100"])
        said = {"from": "option", "temperature": 0, "top_p": 0.5, "top_k": 100, "min_p": 0, "repetition_penalty": 1}
        with harness.Cluster(model, router_args=["--override-generation-config",
                                                 '{"temperature":0,"top_p":0.5}']) as c:
            client = openai_client(c)
            assert client.models.list().data[0].model_dump()["default_sampling"] == said, client.models.list().data[0]
            asked = dict(prompt="abc", max_tokens=12, ignore_eos=True, seed=3)
            silent, greedy = c.complete(**asked), c.complete(**asked, temperature=0)
            assert silent["token_ids"] == greedy["token_ids"]
            # What a request says counts; the rest is the operator's, then the file's.
            warm = c.complete(**asked, temperature=50)["token_ids"]
            assert warm == c.complete(**asked, temperature=50, top_p=0.5, top_k=100)["token_ids"] != silent["token_ids"]


def test_tokenize_and_detokenize(c):
    def post(path, body):
        status, _, data = c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})[:3]
        return status, json.loads(data)

    status, told = post("/tokenize", {"model": MODEL, "prompt": QUESTION, "return_token_strs": True})
    # The ids of the Hugging Face tokenizer, as in test_clients.py.
    assert status == 200 and told["tokens"] == [504, 3575, 282, 4649, 314] and told["count"] == 5, told
    assert "".join(told["token_strs"]) == QUESTION and told["max_model_len"] > 1000
    assert post("/detokenize", {"model": MODEL, "tokens": told["tokens"]}) == (200, {"prompt": QUESTION})
    client = openai_client(c)
    _, chat_tokens = post("/tokenize", {"model": MODEL, "messages": HI})
    assert chat_tokens["count"] == chat(client, max_tokens=1).usage.prompt_tokens
    _, text = post("/detokenize", {"tokens": chat_tokens["tokens"]})
    assert text["prompt"].endswith("<|im_start|>assistant\n"), text
    info = json.loads(c.request("GET", "/tokenizer_info")[2])
    assert (info["bos_token"], info["eos_token"]) == ("<|im_start|>", "<|im_end|>"), info
    assert post("/tokenize", {"prompt": info["eos_token"], "add_special_tokens": False})[1]["tokens"] == [2]
    status, error = post("/tokenize", {"model": "gpt-4", "prompt": "a"})
    assert status == 404 and error["error"]["code"] == "model_not_found", error


def test_health_version_and_metrics_are_on_this_port(c):
    for path in ("/health", "/version", "/metrics", "/v1/models"):
        status, _, data = c.request("GET", path)[:3]
        assert status == 200, (path, status)
        if path == "/version":
            assert json.loads(data)["version"][0].isdigit(), data


def test_each_of_64_stop_token_ids_ends_the_answer(c):
    client = openai_client(c)

    def ids(**more):
        answer = client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=8, temperature=0,
                                           extra_body=dict(more, return_token_ids=True)).choices[0]
        return answer.token_ids, answer.finish_reason
    whole, _ = ids()
    others = [40000 + i for i in range(63)]
    end = whole[4]
    assert not set(others) & set(whole) and whole.index(end) == 4, whole
    for at in (0, 7, 8, 63):
        drawn, why = ids(stop_token_ids=others[:at] + [end] + others[at:])
        assert why == "stop" and drawn[:4] == whole[:4] and len(drawn) <= 5, (at, drawn, why)
    late, _ = ids(stop_token_ids=others + [end], min_tokens=6)
    assert end not in late[:6] and len(late) >= 6, late
    e = expect(client_module("openai").BadRequestError, lambda: ids(stop_token_ids=others + [1, 2]))
    assert e.param == "stop_token_ids" and "more than 64 ids" in e.message, e


# --- responses

def test_responses_whole_and_streamed(c):
    client = openai_client(c)
    ask = dict(model=MODEL, input="Say hello.", max_output_tokens=64, temperature=0)
    whole = client.responses.create(**ask)
    same = chat(client, max_tokens=64)
    assert whole.output_text == same.choices[0].message.content, whole
    assert whole.status == "completed" and whole.output[0].role == "assistant" and whole.id.startswith("resp_")
    assert whole.usage.input_tokens == same.usage.prompt_tokens
    assert whole.usage.output_tokens == same.usage.completion_tokens
    cut = client.responses.create(**dict(ask, max_output_tokens=2))
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens", cut

    events = list(client.responses.create(**ask, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type for e in events][:4] == ["response.created", "response.in_progress", "response.output_item.added",
                                            "response.content_part.added"]
    deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text and len(deltas) > 1
    assert events[-1].type == "response.completed" and events[-1].response.output_text == whole.output_text
    assert events[-1].response.usage.output_tokens == whole.usage.output_tokens
    with client.responses.stream(**ask) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == whole.output_text


def test_responses_take_messages_and_instructions(c):
    client, openai = openai_client(c), client_module("openai")
    messages = [{"role": "user", "content": [{"type": "input_text", "text": "Say hello."}]}]
    got = client.responses.create(model=MODEL, input=messages, instructions="Be brief.", max_output_tokens=16,
                                  temperature=0, store=False)
    same = chat(client, [{"role": "system", "content": "Be brief."}] + HI, max_tokens=16)
    assert got.output_text == same.choices[0].message.content and got.instructions == "Be brief.", got
    for more, param in ((dict(store="yes"), "store"), (dict(conversation="conv_1"), "conversation"),
                        (dict(tools=[{"type": "file_search"}]), "tools"), (dict(max_output_tokens=0), "max_output_tokens")):
        e = expect(openai.BadRequestError, lambda m=more: client.responses.create(model=MODEL, input="a", **m))
        assert e.param == param and param in e.message, e
    e = expect(openai.NotFoundError, lambda: client.responses.create(model="gpt-4", input="a"))
    assert e.code == "model_not_found", e


def test_responses_async(c):
    client = openai_client(c, "AsyncOpenAI")

    async def ask():
        texts = []
        async for event in await client.responses.create(model=MODEL, input="Say hello.", max_output_tokens=8,
                                                         temperature=0, stream=True):
            if event.type == "response.output_text.delta":
                texts.append(event.delta)
        whole = await client.responses.create(model=MODEL, input="Say hello.", max_output_tokens=8, temperature=0)
        await client.close()
        return "".join(texts), whole.output_text

    streamed, whole = asyncio.run(ask())
    assert streamed == whole and whole


def test_responses_stream_begins_before_the_first_token(c):
    client = openai_client(c)
    c.prefills[0].kill(signal.SIGSTOP)  # no token comes while it sleeps
    try:
        events = iter(client.responses.create(model=MODEL, input="Say hello.", max_output_tokens=4, temperature=0,
                                              stream=True, metadata={"of": "a test"}))
        begin = [next(events), next(events)]
    finally:
        c.prefills[0].kill(signal.SIGCONT)
    assert [e.type for e in begin] == ["response.created", "response.in_progress"], begin
    assert begin[0].response.status == "in_progress" and begin[0].response.metadata == {"of": "a test"}, begin
    rest = list(events)
    assert rest[0].type == "response.output_item.added" and rest[-1].response.metadata == {"of": "a test"}, rest
    openai = client_module("openai")
    e = expect(openai.BadRequestError,
               lambda: client.responses.create(model=MODEL, input="a", metadata={"k": "v" * 513}))
    assert e.param == "metadata", e


# A text that goes on as it began: what is thought for a number is its name.
THINKS = """Q: 1
A: [THINK]one[/THINK]1
Q: 2
A: [THINK]two[/THINK]2
Q: 4
A: [THINK]four[/THINK]4
Q: {% for m in messages %}{{ m.content }}
A: {% endfor %}[THINK]"""


def test_responses_separate_reasoning(c):
    path = os.path.join(c.dir, "thinks.jinja")
    with open(path, "w", encoding="utf-8") as file:
        file.write(THINKS)
    with harness.Cluster(c.model, router_args=["--chat-template", path, "--reasoning-parser", "mistral"]) as thinker:
        client = openai_client(thinker)
        ask = dict(model=MODEL, input="3", max_output_tokens=24, temperature=0, extra_body={"stop": ["\n"]})
        whole = client.responses.create(**ask)
        assert [x.type for x in whole.output] == ["reasoning", "message"], whole
        thought = whole.output[0].content[0].text
        assert thought and whole.output_text and "THINK]" not in thought + whole.output_text, whole
        same = chat(client, [{"role": "user", "content": "3"}], max_tokens=24, stop=["\n"]).choices[0].message
        assert (same.reasoning_content, same.content) == (thought, whole.output_text), (same, whole)
        assert 0 < whole.usage.output_tokens_details.reasoning_tokens < whole.usage.output_tokens, whole.usage

        events = list(client.responses.create(**ask, stream=True))
        assert [e.sequence_number for e in events] == list(range(len(events)))
        assert "".join(e.delta for e in events if e.type == "response.reasoning_text.delta") == thought
        assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
        added = [(e.output_index, e.item.type) for e in events if e.type == "response.output_item.added"]
        assert added == [(0, "reasoning"), (1, "message")], added
        assert [x.model_dump(exclude={"id"}) for x in events[-1].response.output] == [
            x.model_dump(exclude={"id"}) for x in whole.output]
        with client.responses.stream(**ask) as stream:
            for _ in stream:
                pass
            final = stream.get_final_response()
        assert final.output[0].content[0].text == thought and final.output_text == whole.output_text

        # An answer as it came is the next question's past; what was thought for it is not.
        past = [{"role": "user", "content": "3"}] + [x.model_dump(exclude_none=True) for x in whole.output]
        told = dict(ask, input=past + [{"role": "user", "content": "5"}])
        plain = dict(ask, input=[past[0], {"role": "assistant", "content": whole.output_text},
                                 {"role": "user", "content": "5"}])
        assert client.responses.create(**told).usage.input_tokens == client.responses.create(**plain).usage.input_tokens
        cut = client.responses.create(**dict(ask, max_output_tokens=1))
        assert [x.type for x in cut.output] == ["reasoning"] and cut.status == "incomplete", cut


def test_sdk_ignores_sse_comments(_):
    """Context phases of two seconds and more: what is streamed then is what is answered whole."""
    openai, httpx, httpx_sse = client_module("openai"), client_module("httpx"), client_module("httpx_sse")
    words = "word " * 10
    asked = dict(model="tiny", max_tokens=4, temperature=0)
    with tempfile.TemporaryDirectory() as d, harness.Cluster(
            harness.small_model(d), prefill_args=["--simulate-token-us", "60000", "--chunk-tokens", "512"],
            router_args=["--sse-keepalive-s", "1"]) as c, Tap(c.http) as tap:
        client = openai.OpenAI(base_url=tap.url + "/v1", api_key="none", max_retries=0, timeout=60)
        messages = [{"role": "user", "content": words}]

        def chat_streamed():
            return "".join(x.choices[0].delta.content or "" for x in client.chat.completions.create(
                messages=messages, stream=True, **asked))

        def by_httpx_sse():
            with httpx.Client(timeout=60) as h, httpx_sse.connect_sse(
                    h, "POST", tap.url + "/v1/completions", json=dict(asked, prompt=words, stream=True)) as source:
                data = [event.data for event in source.iter_sse()]
            assert data.pop() == "[DONE]", data
            return "".join(json.loads(x)["choices"][0]["text"] for x in data)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            streamed = [x.result() for x in [pool.submit(f) for f in (chat_streamed, by_httpx_sse)]]
        # The first one is silent for little more than two seconds, which a busy router may miss.
        assert sum(b": keep-alive\n\n" in bytes(x) for x in tap.answers) >= len(streamed) - 1, tap.answers
        whole = [client.chat.completions.create(messages=messages, **asked).choices[0].message.content,
                 client.completions.create(prompt=words, **asked).choices[0].text]
        assert streamed == whole, (streamed, whole)


def missing():
    return None if importlib.util.find_spec("openai") else "openai is not installed"


def test_sdk_reports_key_and_limit_errors(c):
    """As the SDK has it: its key is a bearer token, 401 and 429 are exceptions of their own."""
    from test_tenants import Keys
    openai = client_module("openai")
    with tempfile.TemporaryDirectory() as d:
        keys = Keys(d, acme="tokens-per-second=1 burst-tokens=200")
        with harness.Cluster(harness.small_model(d), router_args=["--api-keys", keys.path]) as locked:
            base = "http://%s:%d/v1" % locked.http

            def ask(key, n=100):
                client = openai.OpenAI(base_url=base, api_key=key, max_retries=0)
                return client.completions.with_raw_response.create(model="tiny", prompt="a", max_tokens=n, extra_body={"ignore_eos": True})

            answer = ask(keys.keys["acme"])
            assert answer.headers["x-ratelimit-limit-tokens"] == "200"
            assert answer.parse().usage.completion_tokens == 100
            try:
                ask("wrong")
                raise AssertionError("a wrong key was taken")
            except openai.AuthenticationError as error:
                assert error.code == "invalid_api_key", error
            try:
                ask(keys.keys["acme"], n=190)  # 90 s too early
                raise AssertionError("more than the bucket had was let through")
            except openai.RateLimitError as error:
                assert (error.code, error.type) == ("rate_limit_exceeded", "tokens"), error
                assert int(error.response.headers["retry-after"]) >= 1


if __name__ == "__main__":
    sys.exit(client_tests.main(globals(), missing()))
