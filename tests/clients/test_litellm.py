#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LiteLLM in front of each dialect: chats, completions and responses of OpenAI's, Anthropic's Messages, and Ollama's chat; whole,
streamed, with tools, formats and errors. Its library makes of each what OpenAI's SDK has, so one answer is compared with the door
that it came through, and the dialects with each other. Only address, key and the model's name are ours.

Usage: test_litellm.py [NAME ...]

Needs what setup/clients.txt names and the variables of test_clients.py.
"""
import asyncio
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
from test_clients import MODEL, client_module, expect, url  # noqa: E402
import test_tools as tool_models  # noqa: E402

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks GitHub for prices
HELLO = [{"role": "user", "content": "Hello, world"}]
# Providers of LiteLLM's, and the path that its address has behind the server's; hosted_vllm is for servers like vLLM's.
# Ollama's API has no tool_choice.
CHATS = {"openai": "/v1", "hosted_vllm": "/v1", "anthropic": "", "ollama_chat": ""}


def lite():
    module = client_module("litellm")
    module.suppress_debug_info = True
    module.telemetry = False
    return module


def of(c, provider, model=MODEL, **more):
    """Arguments of a call."""
    return dict(dict(model=f"{provider}/{model}", api_base=url(c) + CHATS.get(provider, "/v1"), api_key="none", max_retries=0,
                     timeout=120), **more)


def chat(c, provider, messages, n=24, **more):
    return lite().completion(**of(c, provider, messages=messages, max_tokens=n, temperature=0, **more))


def asked(c, path, body):
    status, answer = c.post(path, dict(model=MODEL, max_tokens=24, temperature=0, **body))
    assert status == 200, answer
    return answer


def together(chunks, messages):
    """@return the whole answer that LiteLLM makes of the chunks of a stream"""
    return lite().stream_chunk_builder(chunks, messages=messages)


def test_chat_is_that_of_the_server(c):
    answer = asked(c, "/v1/chat/completions", dict(messages=HELLO))
    want, usage = answer["choices"][0], answer["usage"]
    for provider in CHATS:
        got = chat(c, provider, HELLO)
        assert got.choices[0].message.content == want["message"]["content"], (provider, got)
        assert got.choices[0].finish_reason == want["finish_reason"] and got.choices[0].message.role == "assistant", (provider, got)
        assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (usage["prompt_tokens"], usage["completion_tokens"]), (provider, got)


def test_stream_is_the_whole_chat(c):
    for provider in CHATS:
        want = chat(c, provider, HELLO)
        chunks = list(chat(c, provider, HELLO, stream=True, stream_options={"include_usage": True}))
        texts = [x.choices[0].delta.content for x in chunks if x.choices and x.choices[0].delta.content]
        assert len(texts) > 3 and "".join(texts) == want.choices[0].message.content, (provider, texts)
        got = together(chunks, HELLO)
        assert got.choices[0].finish_reason == want.choices[0].finish_reason, (provider, got)
        assert got.usage.completion_tokens == want.usage.completion_tokens, (provider, got.usage, want.usage)
        assert got.usage.prompt_tokens == want.usage.prompt_tokens, (provider, got.usage, want.usage)


def test_async_calls_run_at_once(c):
    async def run(provider):
        questions = [[{"role": "user", "content": f"Count to {i}"}] for i in range(3)]
        calls = [of(c, provider, messages=q, max_tokens=8, temperature=0) for q in questions]
        wholes = await asyncio.gather(*(lite().acompletion(**call) for call in calls))
        stream = await lite().acompletion(**calls[0], stream=True)
        text = "".join([x.choices[0].delta.content or "" async for x in stream])
        assert text == wholes[0].choices[0].message.content, (provider, text)
        return [x.choices[0].message.content for x in wholes]

    texts = [asyncio.run(run(provider)) for provider in CHATS]
    assert texts[0] == texts[1] == texts[2] and len(set(texts[0])) > 1, texts


def test_system_turns_and_stops(c):
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello!"},
                {"role": "user", "content": "Who are you?"}]
    want = asked(c, "/v1/chat/completions", dict(messages=messages))["choices"][0]["message"]["content"]
    stop = want.split()[3]
    for provider in CHATS:
        assert chat(c, provider, messages).choices[0].message.content == want, provider
        cut = chat(c, provider, messages, stop=[stop])
        assert cut.choices[0].finish_reason == "stop" and stop not in cut.choices[0].message.content, (provider, cut)
        assert want.startswith(cut.choices[0].message.content), (provider, cut)


def test_completions(c):
    """text-completion-openai is OpenAI's /v1/completions."""
    prompt = "The capital of France is"
    want = asked(c, "/v1/completions", dict(prompt=prompt))
    call = of(c, "text-completion-openai", prompt=prompt, max_tokens=24, temperature=0)
    got = lite().text_completion(**call)
    assert got.choices[0].text == want["choices"][0]["text"] and got.usage.completion_tokens == want["usage"]["completion_tokens"], got
    assert got.choices[0].finish_reason == want["choices"][0]["finish_reason"], got
    pieces = [x.choices[0].text for x in lite().text_completion(**call, stream=True) if x.choices and x.choices[0].text]
    assert len(pieces) > 3 and "".join(pieces) == got.choices[0].text, pieces
    both = lite().text_completion(**dict(call, prompt=[prompt, "Once upon a"]))
    assert [x.index for x in both.choices] == [0, 1] and both.choices[0].text == got.choices[0].text != both.choices[1].text, both
    scored = lite().text_completion(**call, logprobs=2)
    logprobs = scored.choices[0].logprobs
    assert "".join(logprobs.tokens) == got.choices[0].text and len(logprobs.top_logprobs[0]) == 2, logprobs


def test_responses(c):
    call = of(c, "openai", input="Hello, world", max_output_tokens=24, temperature=0)
    want = asked(c, "/v1/chat/completions", dict(messages=HELLO))["choices"][0]["message"]["content"]
    got = lite().responses(**call)
    text = "".join(part.text for item in got.output for part in item.content)
    assert text == want and got.status == "incomplete" and got.usage.output_tokens == 24, got
    # Of a model that is not in its list it asks for the whole, and makes a stream of that.
    faked = [e for e in lite().responses(**call, stream=True) if e.type == "response.output_text.delta"]
    assert "".join(e.delta for e in faked) == want, faked
    lite().register_model({f"openai/{MODEL}": {"litellm_provider": "openai", "mode": "chat", "supports_native_streaming": True}})
    events = list(lite().responses(**call, stream=True))
    deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert len(deltas) > 3 and "".join(deltas) == want, deltas
    assert events[-1].type == "response.incomplete" and events[-1].response.usage.output_tokens == 24, events[-1]


def test_messages_of_anthropic(c):
    """Its function for clients of Anthropic's: what is asked and answered stays Anthropic's. (For a stream it wants its proxy's
    packages.)"""
    want = asked(c, "/v1/messages", dict(messages=HELLO))
    call = of(c, "anthropic", messages=HELLO, max_tokens=24, temperature=0)
    del call["max_retries"]

    async def run():
        got = await lite().anthropic.messages.acreate(**call)
        assert got["content"] == want["content"] and got["stop_reason"] == want["stop_reason"] == "max_tokens", got

    asyncio.run(run())


def test_format_is_followed(c):
    pydantic = client_module("pydantic")

    class Contact(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)
        age: int = pydantic.Field(ge=0, le=120)

    for provider in ("openai", "hosted_vllm"):
        got = chat(c, provider, [{"role": "user", "content": "John is 25 years old"}], 60, response_format=Contact,
                   extra_body={"complete_in_max_tokens": True})
        assert 0 <= Contact.model_validate_json(got.choices[0].message.content).age <= 120, (provider, got)


def test_errors_are_the_exceptions_of_the_library(c):
    known = lite().exceptions
    for provider in CHATS:
        error = expect(known.NotFoundError, lambda p=provider: lite().completion(**of(c, p, "nobody", messages=HELLO, max_tokens=4)))
        assert "nobody" in str(error), (provider, error)
        error = expect(known.BadRequestError, lambda p=provider: lite().completion(**of(c, p, messages=HELLO, max_tokens=4, top_p=-3)))
        assert "top_p" in str(error), (provider, error)
        error = expect(known.BadRequestError, lambda p=provider: lite().completion(
            **of(c, p, messages=[{"role": "user", "content": "many words " * 20000}], max_tokens=4)))
        assert error.status_code == 400, (provider, error)
    error = expect(known.NotFoundError, lambda: lite().text_completion(**of(c, "text-completion-openai", "nobody", prompt="a")))
    assert "nobody" in str(error), error
    error = expect(known.BadRequestError, lambda: lite().responses(**of(c, "openai", input="a", temperature=-1)))
    assert "temperature" in str(error), error


def test_keys_are_sent(_):
    known = lite().exceptions
    from test_tenants import Keys  # pylint: disable=import-outside-toplevel
    with tempfile.TemporaryDirectory() as folder:
        keys = Keys(folder, acme="")
        with harness.Cluster(harness.default_model(), router_args=["--api-keys", keys.path]) as c:
            for provider in CHATS:
                call = of(c, provider, messages=HELLO, max_tokens=2)
                assert lite().completion(**dict(call, api_key=keys.keys["acme"])).choices, provider
                expect(known.AuthenticationError, lambda call=call: lite().completion(**dict(call, api_key="sk-wrong")))


# --- tools

def called(message):
    return [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or []]


def test_tools_are_called(_):
    with tool_models.Model("hermes") as m:
        for provider in CHATS:
            for stream in (False, True):
                def ask(text, provider=provider, stream=stream, **more):
                    messages = text if isinstance(text, list) else [{"role": "user", "content": text}]
                    got = lite().completion(**of(m.cluster, provider, "scripted", messages=messages, tools=tool_models.TOOLS,
                                                 max_tokens=300, temperature=0, stream=stream, **more))
                    return (together(list(got), messages) if stream else got).choices[0]

                where = (provider, stream)
                one = ask("Weather? O")
                assert called(one.message) == [("weather", tool_models.ROME)] and one.finish_reason == "tool_calls", (where, one)
                if where != ("ollama_chat", True):  # it does not look at the index that Ollama's streams have, and makes one call of two
                    two = ask("Weather and time? T")
                    assert called(two.message) == [("weather", tool_models.ROME), ("time", tool_models.OSLO)], (where, two)
                    assert len({call.id for call in two.message.tool_calls}) == 2, (where, two)
                beside = ask("Weather? S")
                assert called(beside.message) == [("weather", tool_models.ROME)], (where, beside)
                assert beside.message.content.strip() == "I look it up.", (where, beside)
                for choice in ("required", {"type": "function", "function": {"name": "weather"}}) if provider != "ollama_chat" else ():
                    forced = ask("Weather? ", tool_choice=choice)
                    assert called(forced.message) == [("weather", tool_models.OSLO)], (where, choice, forced)
                    assert called(ask("Weather? O", tool_choice="none").message) == [], where
                end = ask([{"role": "user", "content": "Weather? O"}, one.message.model_dump(exclude_none=True),
                           {"role": "tool", "tool_call_id": one.message.tool_calls[0].id, "content": "sunny R"}])
                assert end.message.content == tool_models.RESULT and end.finish_reason == "stop", (where, end)


if __name__ == "__main__":
    sys.exit(client_tests.main(globals()))
