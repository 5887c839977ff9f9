#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Anthropic's Messages with the anthropic SDK: whole, streamed, tools, results, thinking, formats, counted tokens and errors.
Only the address, the key and the model's name are ours. The default model answers what it can; where a model has to call a
tool or to think, one of scripted_model.py does. What the prompt is comes from OpenAI's door of the same server.

Usage: test_anthropic.py [NAME ...]

Needs what setup/clients.txt names and the variables of test_clients.py.
"""
import asyncio
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
from test_clients import MODEL, client_module, expect, url  # noqa: E402
import test_tools as tool_models  # noqa: E402

COLD = {"temperature": 0}  # the SDK has no such argument, as Anthropic's newest models have none
HELLO = [{"role": "user", "content": "Hello, world"}]
TOOLS = [{"name": t["function"]["name"], "description": t["function"]["description"], "input_schema": t["function"]["parameters"]}
         for t in tool_models.TOOLS]


def client_of(c, kind="Anthropic", **more):
    anthropic = client_module("anthropic")
    return getattr(anthropic, kind)(**dict(dict(base_url=url(c), api_key="none", max_retries=0, timeout=120), **more))


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def chat(c, messages, n, **more):
    """The answer of OpenAI's door."""
    status, answer = c.post("/v1/chat/completions", dict(model=MODEL, messages=messages, max_tokens=n, temperature=0, **more))
    assert status == 200, answer
    return answer


def test_message_is_that_of_the_chat(c):
    message = client_of(c).messages.create(model=MODEL, max_tokens=24, messages=HELLO, extra_body=COLD)
    other = chat(c, HELLO, 24)
    assert message.id.startswith("msg_") and message.type == "message" and message.role == "assistant" and message.model == MODEL
    assert text_of(message) == other["choices"][0]["message"]["content"], message
    reason = {"length": "max_tokens", "stop": "end_turn"}[other["choices"][0]["finish_reason"]]
    assert message.stop_reason == reason and message.stop_sequence is None, message
    usage = message.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == other["usage"]["prompt_tokens"], usage
    assert usage.output_tokens == other["usage"]["completion_tokens"] and usage.cache_creation_input_tokens == 0, usage


def test_stream_is_the_whole_message(c):
    client = client_of(c)
    asked = dict(model=MODEL, max_tokens=24, messages=HELLO, extra_body=COLD, system="Be short.")
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(texts) > 3 and "".join(texts) == text_of(whole) == text_of(final), texts
    assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens, final
    kinds = [event.type for event in client.messages.create(**asked, stream=True)]
    assert kinds[:2] == ["message_start", "content_block_start"] and kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"], kinds
    assert set(kinds[2:-3]) == {"content_block_delta"}, kinds


def test_async_client_streams(c):
    async def run():
        client = client_of(c, "AsyncAnthropic")
        asked = dict(model=MODEL, max_tokens=8, messages=HELLO, extra_body=COLD)
        whole = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            text = "".join([piece async for piece in stream.text_stream])
        await client.close()
        assert text == text_of(whole), text

    asyncio.run(run())


def test_system_and_turns_are_those_of_the_chat(c):
    """Blocks and strings, a system of several blocks, and marks for a cache, which change nothing."""
    mark = {"type": "ephemeral"}
    message = client_of(c).messages.create(
        model=MODEL, max_tokens=12, extra_body=COLD,
        system=[{"type": "text", "text": "Be short."}, {"type": "text", "text": "Be kind.", "cache_control": mark}],
        messages=[{"role": "user", "content": [{"type": "text", "text": "Hi.", "cache_control": mark}]},
                  {"role": "assistant", "content": [{"type": "text", "text": "Hello!"}]}, {"role": "user", "content": "Who are you?"}])
    other = chat(c, [{"role": "system", "content": "Be short.\nBe kind."}, {"role": "user", "content": "Hi."},
                     {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Who are you?"}], 12)
    assert text_of(message) == other["choices"][0]["message"]["content"], message


def test_last_message_of_the_assistant_is_continued(c):
    messages = [{"role": "user", "content": "What is the capital of France?"}, {"role": "assistant", "content": "The capital of"}]
    message = client_of(c).messages.create(model=MODEL, max_tokens=6, extra_body=COLD, messages=messages)
    other = chat(c, messages, 6, continue_final_message=True, add_generation_prompt=False)
    assert text_of(message) == other["choices"][0]["message"]["content"], message
    assert "France" in text_of(message), message


def test_stop_sequence_is_named(c):
    client = client_of(c)
    asked = dict(model=MODEL, max_tokens=24, messages=HELLO, extra_body=COLD)
    words = text_of(client.messages.create(**asked)).split()
    met = client.messages.create(**asked, stop_sequences=["no such word", words[2]])
    assert met.stop_reason == "stop_sequence" and met.stop_sequence == words[2], (words, met)
    assert words[2] not in text_of(met), met
    with client.messages.stream(**asked, stop_sequences=[words[2]]) as stream:
        final = stream.get_final_message()
    assert final.stop_reason == "stop_sequence" and final.stop_sequence == words[2] and text_of(final) == text_of(met), final


def test_tokens_are_counted_as_the_prompt_has_them(c):
    client = client_of(c)
    asked = dict(model=MODEL, messages=HELLO, system="Be short.")
    usage = client.messages.create(**asked, max_tokens=1).usage
    assert client.messages.count_tokens(**asked).input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_format_is_followed(c):
    """parse() makes a schema of a class, and an object of the answer."""
    pydantic = client_module("pydantic")

    class Contact(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)
        age: int = pydantic.Field(ge=0, le=120)

    message = client_of(c).messages.parse(model=MODEL, max_tokens=60, output_format=Contact, extra_body=dict(COLD, complete_in_max_tokens=True),
                                          messages=[{"role": "user", "content": "John is 25 years old"}])
    assert isinstance(message.parsed_output, Contact) and 0 <= message.parsed_output.age <= 120, message


def test_errors_are_the_exceptions_of_the_sdk(c):
    anthropic, client = client_module("anthropic"), client_of(c)
    asked = dict(model=MODEL, max_tokens=4, messages=HELLO)
    error = expect(anthropic.NotFoundError, lambda: client.messages.create(**dict(asked, model="nobody")))
    assert error.body["type"] == "error" and error.body["error"]["type"] == "not_found_error" and error.request_id, error.body
    error = expect(anthropic.BadRequestError, lambda: client.messages.create(**dict(asked, messages=[])))
    assert error.body["error"] == {"type": "invalid_request_error", "message": "messages must have from 1 to 1024 entries, got 0"}, error.body
    image = [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]}]
    error = expect(anthropic.BadRequestError, lambda: client.messages.create(**dict(asked, messages=image)))
    assert "blocks of type \"image\" are not supported yet" in str(error), error
    error = expect(anthropic.BadRequestError, lambda: client.messages.create(**dict(asked, max_tokens=10**6)))
    assert "max_tokens" in str(error), error
    status, answer = c.post("/v1/messages/count_tokens", {})
    assert status == 400 and answer == {"type": "error", "error": {"type": "invalid_request_error", "message": "messages is missing"}}, answer


def test_unknown_fields_are_named(c):
    raw = client_of(c).messages.with_raw_response.create(model=MODEL, max_tokens=2, messages=HELLO, thinking={"type": "enabled", "budget_tokens": 1024},
                                                         extra_body={"container_of": 1, "output_config": {"effort": "low"}})
    named = raw.headers["X-Baton-Ignored-Fields"].split(", ")
    assert sorted(named) == ["container_of", "output_config.effort", "thinking"], named  # the default model does not think
    assert raw.parse().type == "message"


def test_keys_come_in_their_own_header(_):
    anthropic = client_module("anthropic")
    from test_tenants import Keys  # pylint: disable=import-outside-toplevel
    with tempfile.TemporaryDirectory() as folder:
        keys = Keys(folder, acme="")
        with harness.Cluster(harness.default_model(), router_args=["--api-keys", keys.path]) as c:
            asked = dict(model=MODEL, max_tokens=2, messages=HELLO)
            assert client_of(c, api_key=keys.keys["acme"]).messages.create(**asked).type == "message"
            error = expect(anthropic.AuthenticationError, lambda: client_of(c, api_key="sk-wrong").messages.create(**asked))
            assert error.body["error"]["type"] == "authentication_error", error.body


# --- tools

def asked_of(m, messages, **more):
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    return client_of(m.cluster).messages, dict(dict(model="scripted", max_tokens=300, extra_body=COLD, tools=TOOLS, messages=messages), **more)


def whole(m, messages, **more):
    door, asked = asked_of(m, messages, **more)
    return door.create(**asked)


def streamed(m, messages, **more):
    door, asked = asked_of(m, messages, **more)
    with door.stream(**asked) as stream:
        return stream.get_final_message()


def called(message):
    return [(block.name, block.input) for block in message.content if block.type == "tool_use"]


def test_tools_are_called(_):
    for name in ("hermes", "llama3", "mistral"):
        with tool_models.Model(name) as m:
            for read in (whole, streamed):
                one = read(m, "Weather? O")
                assert called(one) == [("weather", tool_models.ROME)] and one.stop_reason == "tool_use" and text_of(one) == "", (name, one)
                two = read(m, "Weather and time? T")
                assert called(two) == [("weather", tool_models.ROME), ("time", tool_models.OSLO)], (name, two)
                assert len({block.id for block in two.content}) == 2, two
                only = read(m, "Weather and time? T", tool_choice={"type": "auto", "disable_parallel_tool_use": True})
                assert called(only) == [("weather", tool_models.ROME)], (name, only)
                if "S" in m.scripts:
                    beside = read(m, "Weather? S")
                    assert [block.type for block in beside.content] == ["text", "tool_use"] and text_of(beside) == "I look it up.", beside
                for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
                    forced = read(m, "Weather? ", tool_choice=choice)
                    assert called(forced) == [("weather", tool_models.OSLO)] and forced.stop_reason == "tool_use", (name, choice, forced)
                none = read(m, "Weather? O", tool_choice={"type": "none"})
                assert called(none) == [] and none.stop_reason == "end_turn", (name, none)


def test_call_cut_by_max_tokens_is_what_came(_):
    with tool_models.Model("hermes") as m:
        message = whole(m, "Weather? C")
        assert called(message) == [("weather", {"INVALID_JSON": '{"city": "Os'})] and message.stop_reason == "end_turn", message
        # A stream says what there is; the SDK reads it as far as it is JSON.
        door, asked = asked_of(m, "Weather? C")
        pieces = [e.delta.partial_json for e in door.create(**asked, stream=True) if e.type == "content_block_delta"]
        assert "".join(pieces) == '{"city": "Os', pieces


def test_results_go_back_to_the_model(_):
    """As the SDK's examples do it: the answer's content goes back as it came."""
    with tool_models.Model("hermes") as m:
        for content in ("sunny R", [{"type": "text", "text": "sunny R"}]):
            messages = [{"role": "user", "content": "Weather? O"}]
            first = whole(m, messages)
            messages += [{"role": "assistant", "content": first.content},
                         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": first.content[0].id, "content": content}]}]
            for read in (whole, streamed):
                end = read(m, messages)
                assert text_of(end) == tool_models.RESULT and end.stop_reason == "end_turn", end


def test_tool_runner_runs_functions(_):
    """The SDK's own loop: it calls the function, and sends what it says until the model is done."""
    anthropic = client_module("anthropic")
    asked = []

    @anthropic.beta_tool
    def weather(city: str, days: list, more: dict) -> str:  # pylint: disable=unused-argument
        """Tells the weather.

        Args:
            city: The place.
            days: Which days.
            more: What else.
        """
        asked.append(city)
        return "sunny R"

    with tool_models.Model("hermes") as m:
        runner = client_of(m.cluster).beta.messages.tool_runner(
            model="scripted", max_tokens=300, extra_body=COLD, tools=[weather], messages=[{"role": "user", "content": "Weather? O"}])
        last = runner.until_done()
    assert asked == [tool_models.ROME["city"]] and text_of(last) == tool_models.RESULT, (asked, last)


def test_strict_tool_follows_its_schema(_):
    schema = {"type": "object", "properties": {"city": {"enum": ["Bergen", "Lima"]}}, "required": ["city"], "additionalProperties": False}
    tools = [{"name": "weather", "strict": True, "input_schema": schema}]
    with tool_models.Model("hermes") as m:
        for more in ({}, {"extra_body": {"temperature": 1}}):
            got = whole(m, "Weather? ", tools=tools, tool_choice={"type": "tool", "name": "weather", "disable_parallel_tool_use": True}, **more)
            assert [(n, a["city"] in ("Bergen", "Lima")) for n, a in called(got)] == [("weather", True)], got


def test_thinking_is_a_block(_):
    import scripted_model  # pylint: disable=import-outside-toplevel
    template = ("{% for m in messages %}{{ m.role }}{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}: {{ m.content }}\n{% endfor %}"
                "{% if enable_thinking %}Y{% else %}N{% endif %}")
    with tempfile.TemporaryDirectory() as folder:
        path, jinja = os.path.join(folder, "think.gguf"), os.path.join(folder, "think.jinja")
        scripted_model.write(path, {"Y": "<think>One and one.</think>Two.", "N": "Two at once."}, specials=["<think>", "</think>"])
        with open(jinja, "w", encoding="utf-8") as f:
            f.write(template)
        with harness.Cluster(path, router_args=["--chat-template", jinja, "--reasoning-parser", "think"]) as c:
            client = client_of(c)
            asked = dict(model="think", max_tokens=60, extra_body=COLD, messages=[{"role": "user", "content": "1 + 1?"}])
            on = {"type": "enabled", "budget_tokens": 1024}
            message = client.messages.create(**asked, thinking=on)
            assert [(b.type, getattr(b, "thinking", None) or b.text) for b in message.content] == [("thinking", "One and one."), ("text", "Two.")], message
            with client.messages.stream(**asked, thinking=on) as stream:
                final = stream.get_final_message()
            assert [b.model_dump() for b in final.content if b.type == "thinking"] == [b.model_dump() for b in message.content if b.type == "thinking"]
            assert text_of(final) == "Two.", final
            for off in ({}, {"thinking": {"type": "disabled"}}):
                plain = client.messages.create(**asked, **off)
                assert [b.type for b in plain.content] == ["text"] and text_of(plain) == "Two at once.", plain
            # What was thought goes back to the model: it is in the prompt.
            messages = asked["messages"] + [{"role": "assistant", "content": message.content}, {"role": "user", "content": "Sure?"}]
            longer = client.messages.count_tokens(model="think", messages=messages).input_tokens
            messages[1] = {"role": "assistant", "content": message.content[1:]}
            assert longer - client.messages.count_tokens(model="think", messages=messages).input_tokens == len("(One and one.)")


if __name__ == "__main__":
    sys.exit(client_tests.main(globals()))
