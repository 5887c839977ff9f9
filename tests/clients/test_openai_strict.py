#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The openai SDK in strict mode, which holds every answer and every event against the SDK's own types, over all routes that
both have: models, completions, chat and responses, whole and streamed, with tools, thoughts, log-probs, several choices,
echo, usage, and errors.

Two of the SDK's types are narrower than what OpenAI's servers send, and are widened here: the finish_reason of a streamed
completion is null until its end, and the first token of a prompt has no log-prob (API reference, "The completion object").

Usage: test_openai_strict.py [NAME ...]

Needs `pip install openai numpy`.
"""
import asyncio
import importlib.util
import os
import sys
import typing

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
from test_answer_forms import NAMED, THOUGHT, TOOLS, TWO, WORDS, Form, same_calls  # noqa: E402
from test_clients import client_module, expect  # noqa: E402

MODEL = "forms"


def strict(cluster, kind="OpenAI"):
    openai = client_module("openai")
    return getattr(openai, kind)(base_url="http://%s:%d/v1" % cluster.http, api_key="none", max_retries=0, timeout=60,
                                 _strict_response_validation=True)


def widen_two_types():
    # pylint: disable-next=import-outside-toplevel
    from openai.types import Completion, CompletionChoice, completion_choice
    logprobs = completion_choice.Logprobs
    for model, name, kind in (
            (CompletionChoice, "finish_reason", typing.Optional[CompletionChoice.model_fields["finish_reason"].annotation]),
            (logprobs, "token_logprobs", typing.Optional[typing.List[typing.Optional[float]]]),
            (logprobs, "top_logprobs", typing.Optional[typing.List[typing.Optional[typing.Dict[str, float]]]])):
        model.model_fields[name].annotation = kind
    for model in (logprobs, CompletionChoice, Completion):
        model.model_rebuild(force=True)


def check_models(client, _):
    models = client.models.list().data
    assert [m.id for m in models] == [MODEL]
    assert client.models.retrieve(MODEL) == models[0]


def check_completions(client, m):
    letter = m.last["plain", False]
    for n in (1, 2):
        for logprobs in (None, 2):
            for echo in (False, True):
                ask = dict(model=MODEL, prompt="x" + letter, max_tokens=7, n=n, logprobs=logprobs, echo=echo, temperature=0)
                whole = client.completions.create(**ask)
                assert len(whole.choices) == n and all(x.finish_reason == "length" for x in whole.choices), whole
                for options in (None, {"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}):
                    chunks = list(client.completions.create(**ask, stream=True, stream_options=options))
                    texts = [""] * n
                    for choice in (x for chunk in chunks for x in chunk.choices):
                        texts[choice.index] += choice.text
                    assert texts == [x.text for x in whole.choices], (texts, whole)
                    check_usage(chunks, whole, options)


def check_usage(chunks, whole, options):
    usages = [chunk.usage for chunk in chunks]
    if not options:
        assert usages == [None] * len(chunks)
        return
    last = chunks[-1]
    assert last.choices == [] and last.usage.total_tokens == whole.usage.total_tokens, last
    assert last.usage.completion_tokens_details.reasoning_tokens == whole.usage.completion_tokens_details.reasoning_tokens
    assert all(usages) if "continuous_usage_stats" in options else not any(usages[:-1]), usages


def check_chat(client, m):
    for name in ("plain", "calls 0"):
        for n, logprobs, tools in ((1, None, False), (2, 2, False), (1, None, True), (2, 2, True)):
            ask = dict(model=MODEL, messages=[{"role": "user", "content": "x" + m.last[name, True]}], temperature=0, n=n,
                       max_tokens=300, logprobs=bool(logprobs), top_logprobs=logprobs, **({"tools": TOOLS} if tools else {}))
            whole = client.chat.completions.create(**ask)
            calls = tools and name != "plain"
            for choice in whole.choices:
                assert choice.finish_reason == ("tool_calls" if calls else "stop"), choice
                assert choice.message.reasoning_content == THOUGHT, choice
                made = [(x.function.name, x.function.arguments) for x in choice.message.tool_calls or []]
                assert same_calls(made, TWO if calls else []), choice
            for options in (None, {"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}):
                chunks = list(client.chat.completions.create(**ask, stream=True, stream_options=options))
                content = [""] * n
                for choice in (x for chunk in chunks for x in chunk.choices):
                    content[choice.index] += choice.delta.content or ""
                assert content == [x.message.content for x in whole.choices], (content, whole)
                check_usage(chunks, whole, options)
                for i in range(n):
                    mine = [x for chunk in chunks for x in chunk.choices if x.index == i]
                    assert mine[0].delta.model_dump(exclude_unset=True) == {"role": "assistant", "content": ""}, mine[0]
                    assert mine[-1].delta.model_dump(exclude_unset=True) == {} and mine[-1].finish_reason, mine[-1]
                    assert not any(x.finish_reason for x in mine[:-1]), mine
        with client.chat.completions.stream(**{**ask, "n": 1}) as stream:
            for _ in stream:
                pass
            made = stream.get_final_completion().choices[0].message
        assert made.content == WORDS, made


def check_forced_and_cut(client, m):
    ask = dict(model=MODEL, tools=TOOLS, temperature=0)
    for choice in (NAMED, "required"):
        message = [{"role": "user", "content": "x"}]
        got = client.chat.completions.create(**ask, messages=message, tool_choice=choice, max_tokens=1).choices[0]
        assert (got.message.content or "") == "" and got.finish_reason in ("length", "stop"), got
    for n in (3, 20, 40):
        message = [{"role": "user", "content": "x" + m.last["calls 0", True]}]
        got = client.chat.completions.create(**ask, messages=message, max_tokens=n).choices[0]
        assert got.finish_reason == "length", got
        assert list(client.chat.completions.create(**ask, messages=message, max_tokens=n, stream=True))


def check_responses(client, m):
    for n, status in ((300, "completed"), (9, "incomplete"), (2, "incomplete")):
        ask = dict(model=MODEL, input="x" + m.last["plain", True], temperature=0, max_output_tokens=n)
        for more in ({}, {"metadata": {"a": "b"}}, {"instructions": "Be brief.", "store": False}):
            whole = client.responses.create(**ask, **more)
            assert whole.status == status, whole
            usage = whole.usage
            assert usage.input_tokens + usage.output_tokens == usage.total_tokens, usage
            assert 0 <= usage.input_tokens_details.cached_tokens + usage.input_tokens_details.cache_write_tokens <= usage.input_tokens
            assert 0 < usage.output_tokens_details.reasoning_tokens <= usage.output_tokens, usage
            events = list(client.responses.create(**ask, **more, stream=True))
            assert events[-1].type == "response." + status and events[-1].response.output_text == whole.output_text
        with client.responses.stream(**ask) as stream:
            for _ in stream:
                pass
            if status == "completed":
                assert stream.get_final_response().output_text == WORDS


def check_cache_tokens(client, _):
    """What is kept of a prompt is found again: blocks of 16 tokens, but for the last token."""
    ask = dict(model=MODEL, input="".join(chr(ord("a") + i % 26) for i in range(100)), max_output_tokens=1)
    first, again = (client.responses.create(**ask).usage for _ in range(2))
    assert first.input_tokens_details.cached_tokens == 0, first
    kept = first.input_tokens_details.cache_write_tokens
    assert kept == first.input_tokens // 16 * 16 == again.input_tokens_details.cached_tokens, (first, again)
    assert again.input_tokens_details.cache_write_tokens == 0, again


def check_errors(client, _):
    openai = client_module("openai")
    hi = [{"role": "user", "content": "x"}]
    for create, more in ((client.completions.create, {"prompt": "x"}), (client.chat.completions.create, {"messages": hi}),
                         (client.responses.create, {"input": "x"})):
        for stream in (False, True):
            e = expect(openai.NotFoundError, lambda c=create, s=stream, o=more: c(model="gpt-4", stream=s, **o))
            assert e.code == "model_not_found" and e.param == "model" and e.type == "invalid_request_error", e
            e = expect(openai.BadRequestError, lambda c=create, s=stream, o=more: c(model=MODEL, stream=s, temperature=-1, **o))
            assert e.param == "temperature" and e.type == "invalid_request_error", e
    expect(openai.NotFoundError, lambda: client.models.retrieve("gpt-4"))
    expect(openai.NotFoundError, lambda: client.embeddings.create(model=MODEL, input="x"))


def check_async(cluster, m):
    async def run():
        async with strict(cluster, "AsyncOpenAI") as client:
            ask = dict(model=MODEL, messages=[{"role": "user", "content": "x" + m.last["plain", True]}], temperature=0)
            whole = await client.chat.completions.create(**ask)
            chunks = [chunk async for chunk in await client.chat.completions.create(**ask, stream=True)]
            content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            assert content == whole.choices[0].message.content == WORDS, (content, whole)
            response = await client.responses.create(model=MODEL, input="x" + m.last["plain", True], temperature=0)
            assert response.output_text == WORDS, response
            assert [model.id async for model in client.models.list()] == [MODEL]

    asyncio.run(run())


def test_every_answer_has_the_types_of_the_sdk(_):
    widen_two_types()
    with Form("think", "hermes") as m:
        client = strict(m.cluster)
        for check in (check_models, check_completions, check_chat, check_forced_and_cut, check_responses, check_cache_tokens,
                      check_errors):
            check(client, m)
        check_async(m.cluster, m)


def missing():
    return None if importlib.util.find_spec("openai") else "openai is not installed"


if __name__ == "__main__":
    sys.exit(client_tests.main(dict(globals()), missing(), model_of=None))
