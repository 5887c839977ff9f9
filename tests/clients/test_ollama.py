#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ollama's API with the ollama package: chat and generate, whole and streamed, tools, results, thinking, formats, lists of models
and errors. Only the address and the model's name are ours. The default model answers what it can; where a model has to call a tool
or to think, one of scripted_model.py does. What the prompt is comes from OpenAI's door of the same server.

Usage: test_ollama.py [NAME ...]

Needs what setup/clients.txt names and the variables of test_clients.py.
"""
import asyncio
import datetime
import http.client
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

HELLO = [{"role": "user", "content": "Hello, world"}]
COLD = {"temperature": 0, "num_predict": 24}
DURATIONS = ("load_duration", "prompt_eval_duration", "eval_duration")


def client_of(c, kind="Client", **more):
    ollama = client_module("ollama")
    return getattr(ollama, kind)(host=url(c), timeout=120, **more)


def chat(c, messages, n, **more):
    """The answer of OpenAI's door."""
    status, answer = c.post("/v1/chat/completions", dict(model=MODEL, messages=messages, max_tokens=n, temperature=0, **more))
    assert status == 200, answer
    return answer


def test_chat_is_that_of_openai(c):
    answer = client_of(c).chat(model=MODEL, messages=HELLO, options=COLD)
    other = chat(c, HELLO, 24)
    assert answer.model == MODEL and answer.done is True and answer.message.role == "assistant", answer
    assert answer.message.content == other["choices"][0]["message"]["content"], answer
    assert answer.done_reason == other["choices"][0]["finish_reason"] == "length", answer
    assert (answer.prompt_eval_count, answer.eval_count) == (other["usage"]["prompt_tokens"], 24), answer
    assert answer.message.thinking is None and answer.message.tool_calls is None and answer.logprobs is None, answer
    now, created = datetime.datetime.now(datetime.timezone.utc), datetime.datetime.fromisoformat(answer.created_at)
    assert created.tzinfo and abs((now - created).total_seconds()) < 600, answer
    # The durations of the parts are those of the whole: the times are of one clock, and each has its part.
    assert answer.eval_duration > 0 and answer.prompt_eval_duration > 0, answer
    assert sum(getattr(answer, name) for name in DURATIONS) == answer.total_duration, answer


def test_stream_is_the_whole_answer(c):
    client = client_of(c)
    asked = dict(model=MODEL, messages=[{"role": "system", "content": "Be short."}, *HELLO], options=COLD)
    whole, parts = client.chat(**asked), list(client.chat(**asked, stream=True))
    assert len(parts) > 4 and [p.done for p in parts] == [False] * (len(parts) - 1) + [True], parts
    assert "".join(p.message.content for p in parts) == whole.message.content, (parts, whole)
    last = parts[-1]
    assert last.message.content == "" and last.done_reason == whole.done_reason and last.eval_count == whole.eval_count, last
    assert all(p.eval_count is None and p.done_reason is None and p.message.content for p in parts[:-1]), parts


def raw(c, path, body, method="POST"):
    """@return status, headers in lower case and body"""
    connection = http.client.HTTPConnection(*c.http, timeout=120)
    connection.request(method, path, json.dumps(body) if body is not None else None)
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
    connection.close()
    return found


def test_stream_is_lines_of_json_by_default(c):
    for path, body in (("/api/chat", {"messages": HELLO}), ("/api/generate", {"prompt": "Hello"})):
        status, headers, text = raw(c, path, dict(body, model=MODEL, options={"num_predict": 4}))
        assert status == 200 and headers["content-type"] == "application/x-ndjson", (status, headers)
        assert headers["cache-control"] == "no-cache" and headers["x-accel-buffering"] == "no", headers
        lines = text.split("\n")
        assert lines.pop() == "" and len(lines) > 2, lines
        assert [json.loads(line)["done"] for line in lines] == [False] * (len(lines) - 1) + [True], lines
        status, headers, text = raw(c, path, dict(body, model=MODEL, stream=False, options={"num_predict": 4}))
        assert status == 200 and headers["content-type"] == "application/json" and json.loads(text)["done"] is True, text


def test_async_client_streams(c):
    async def run():
        client = client_of(c, "AsyncClient")
        whole = await client.chat(model=MODEL, messages=HELLO, options=COLD)
        parts = [part async for part in await client.chat(model=MODEL, messages=HELLO, options=COLD, stream=True)]
        assert "".join(p.message.content for p in parts) == whole.message.content and parts[-1].done, parts
        made = await client.generate(model=MODEL, prompt="Hello, world", options=COLD)
        assert made.response == whole.message.content, made

    asyncio.run(run())


def test_generate_has_the_chat_template_unless_it_is_raw(c):
    client = client_of(c)
    made = client.generate(model=MODEL, prompt="Hello, world", system="Be short.", options=COLD)
    other = chat(c, [{"role": "system", "content": "Be short."}, *HELLO], 24)
    assert made.response == other["choices"][0]["message"]["content"] and made.done, made
    assert made.prompt_eval_count == other["usage"]["prompt_tokens"], made
    parts = list(client.generate(model=MODEL, prompt="Hello, world", system="Be short.", options=COLD, stream=True))
    assert "".join(p.response for p in parts) == made.response and parts[-1].done_reason == made.done_reason, parts
    plain = client.generate(model=MODEL, prompt="The capital of France is", raw=True, options=COLD)
    status, text = c.post("/v1/completions", dict(model=MODEL, prompt="The capital of France is", max_tokens=24, temperature=0))
    assert status == 200 and plain.response == text["choices"][0]["text"] and "Paris" in plain.response, (plain, text)
    assert plain.prompt_eval_count == text["usage"]["prompt_tokens"], plain


def test_last_message_of_the_assistant_is_continued(c):
    messages = [{"role": "user", "content": "What is the capital of France?"}, {"role": "assistant", "content": "The capital of"}]
    answer = client_of(c).chat(model=MODEL, messages=messages, options=dict(COLD, num_predict=6))
    other = chat(c, messages, 6, continue_final_message=True, add_generation_prompt=False)
    assert answer.message.content == other["choices"][0]["message"]["content"] and "France" in answer.message.content, answer


def test_options_are_those_of_openai(c):
    """Seeds, and what cuts, penalizes and ends: drawn as by OpenAI's door, under Ollama's names."""
    client = client_of(c)
    ours = dict(seed=7, temperature=0.9, top_k=40, top_p=0.95, min_p=0.01, repeat_penalty=1.1, presence_penalty=0.5, frequency_penalty=0.25)
    theirs = {{"repeat_penalty": "repetition_penalty"}.get(k, k): v for k, v in ours.items()}
    answer = client.chat(model=MODEL, messages=HELLO, options=dict(ours, num_predict=24))
    status, other = c.post("/v1/chat/completions", dict(theirs, model=MODEL, messages=HELLO, max_tokens=24))
    assert status == 200 and answer.message.content == other["choices"][0]["message"]["content"], (answer, other)
    cold = client.chat(model=MODEL, messages=HELLO, options=COLD).message.content
    word = cold.split()[2]
    ended = client.chat(model=MODEL, messages=HELLO, options=dict(COLD, stop=["no such word", word]))
    assert ended.message.content == cold[:cold.index(word)] and ended.done_reason == "stop", (cold, ended)
    # Without a bound the answer ends where the model ends it, or at the context: behind what 24 tokens had.
    free = client.chat(model=MODEL, messages=HELLO, options=dict(COLD, num_predict=-1, stop=["\n\n\n"]))
    assert free.eval_count > 24 and free.message.content.startswith(cold), free


def test_logprobs_are_those_of_openai(c):
    client = client_of(c)
    asked = dict(model=MODEL, messages=HELLO, options=dict(COLD, num_predict=5), logprobs=True, top_logprobs=2)
    answer = client.chat(**asked)
    other = chat(c, HELLO, 5, logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
    assert [(x.token, x.logprob) for x in answer.logprobs] == [(x["token"], x["logprob"]) for x in other], (answer, other)
    assert [[(y.token, y.logprob) for y in x.top_logprobs] for x in answer.logprobs] == [
        [(y["token"], y["logprob"]) for y in x["top_logprobs"]] for x in other], (answer, other)
    streamed = [x for part in client.chat(**asked, stream=True) for x in part.logprobs or ()]
    assert streamed == list(answer.logprobs), streamed


def test_format_is_followed(c):
    pydantic = client_module("pydantic")

    class Contact(pydantic.BaseModel, extra="forbid"):
        name: str = pydantic.Field(max_length=12)
        age: int = pydantic.Field(ge=0, le=120)

    client = client_of(c)
    asked = dict(model=MODEL, messages=[{"role": "user", "content": "John is 25 years old"}], options=dict(COLD, num_predict=80))
    made = client.chat(**asked, format=Contact.model_json_schema())
    assert 0 <= Contact.model_validate_json(made.message.content).age <= 120, made
    made = client.generate(model=MODEL, prompt="John is 25 years old", options=dict(COLD, num_predict=80), format=Contact.model_json_schema())
    assert Contact.model_validate_json(made.response).name, made
    status, _, text = raw(c, "/api/chat", dict(asked, format="json", complete_in_max_tokens=True, stream=False))
    assert status == 200 and isinstance(json.loads(json.loads(text)["message"]["content"]), dict), text


# --- models

def test_models_are_listed_and_shown(c):
    client = client_of(c)
    model, = client.list().models
    assert model.model.startswith("SmolLM2-135M-Instruct") and model.details.family == "llama" and model.details.format == "gguf", model
    assert model.size == os.path.getsize(harness.default_model()) and len(model.digest) == 32 and model.modified_at.tzinfo, model
    # 134515008 weights, as the model's card has it: 135M; Ollama writes two digits behind the point.
    assert model.details.parameter_size == "134.52M" and model.details.quantization_level == "Q4_1", model
    for name in (model.model, f"{model.model}:latest", MODEL):
        shown = client.show(name)
        assert shown.details == model.details and shown.modified_at == model.modified_at, shown
        assert shown.modelinfo["general.architecture"] == "llama" and shown.modelinfo["llama.context_length"] == 8192, shown
        assert shown.modelinfo["general.parameter_count"] == 134515008 and "completion" in shown.capabilities, shown
        assert "temperature" in shown.parameters, shown
    running, = client.ps().models
    assert running.model == model.model and running.digest == model.digest and running.context_length > 0, running
    assert running.expires_at > datetime.datetime.now(datetime.timezone.utc), running
    status, _, text = raw(c, "/api/version", None, "GET")
    assert status == 200 and json.loads(text)["version"], text


def test_latest_is_the_model(c):
    client = client_of(c)
    name = client.list().models[0].model
    one, other = (client.chat(model=m, messages=HELLO, options=COLD) for m in (name, name + ":latest"))
    assert one.message.content == other.message.content and other.model == name + ":latest", other
    error = expect(client_module("ollama").ResponseError, lambda: client.chat(model=name + ":other", messages=HELLO))
    assert error.status_code == 404 and ":other" in error.error, error
    error = expect(client_module("ollama").ResponseError, lambda: client.show(":latest"))
    assert error.status_code == 404, error


def test_request_without_a_prompt_loads_the_model(c):
    """As `ollama run` begins: the model is there already."""
    client = client_of(c)
    for keep in (None, "5m", 0):
        loaded = client.chat(model=MODEL, messages=[], keep_alive=keep)
        assert loaded.done and loaded.done_reason == "load" and loaded.message.content == "", loaded
        made = client.generate(model=MODEL, keep_alive=keep)
        assert made.done and made.done_reason == "load" and made.response == "", made
        line, = client.generate(model=MODEL, prompt="", keep_alive=keep, stream=True)
        assert line.done and line.done_reason == "load", line
    error = expect(client_module("ollama").ResponseError, lambda: client.generate(model="nobody"))
    assert error.status_code == 404, error


def test_models_are_not_managed_by_clients(c):
    ollama, client = client_module("ollama"), client_of(c)
    for call in (lambda: client.pull("llama3"), lambda: client.push("llama3"), lambda: client.create("a", from_="b"),
                 lambda: client.copy("a", "b"), lambda: client.delete("a")):
        error = expect(ollama.ResponseError, call)
        assert error.status_code == 501 and "cannot be pulled, pushed, created, copied or deleted" in error.error, error
    error = expect(ollama.ResponseError, lambda: list(client.pull("llama3", stream=True)))
    assert error.status_code == 501, error
    for method in ("HEAD", "POST"):
        assert raw(c, "/api/blobs/sha256:00", None, method)[0] == 501
    for call in (lambda: client.embed(MODEL, "a"), lambda: client.embeddings(MODEL, "a")):
        error = expect(ollama.ResponseError, call)
        assert error.status_code == 501 and "no embeddings yet" in error.error, error
    assert raw(c, "/api/delete", {}, "POST")[0] == 405


# --- errors

def test_errors_are_the_exceptions_of_the_package(c):
    ollama, client = client_module("ollama"), client_of(c)
    asked = dict(model=MODEL, messages=HELLO)
    for read in (lambda **a: client.chat(**a), lambda **a: list(client.chat(**a, stream=True))):
        error = expect(ollama.ResponseError, lambda r=read: r(**dict(asked, model="nobody")))
        assert error.status_code == 404 and "nobody" in error.error, error
        error = expect(ollama.ResponseError, lambda r=read: r(**dict(asked, messages=HELLO * 1025)))
        assert (error.status_code, error.error) == (400, "messages must have at most 1024 entries, got 1025"), error
        error = expect(ollama.ResponseError, lambda r=read: r(**asked, options={"num_predict": 10**6}))
        assert error.status_code == 400 and "options.num_predict" in error.error, error
        error = expect(ollama.ResponseError, lambda r=read: r(**dict(asked, messages=[dict(HELLO[0], images=[b"a"])])))
        assert error.status_code == 400 and "messages[0].images is not supported yet" in error.error, error
    for more in (dict(suffix="x"), dict(template="x"), dict(context=[1]), dict(images=[b"a"])):
        error = expect(ollama.ResponseError, lambda m=more: client.generate(model=MODEL, prompt="a", **m))
        assert error.status_code == 400 and f"{next(iter(more))} is not supported yet" in error.error, error
    status, _, text = raw(c, "/api/nothing", {})
    assert status == 404 and isinstance(json.loads(text)["error"], str), text


def test_unknown_fields_are_named(c):
    body = dict(model=MODEL, messages=HELLO, think="low", keep_alive="5m", other=1,
                options={"num_predict": 2, "num_ctx": 4096, "num_gpu": 1, "tfs_z": 0.5, "repeat_last_n": 64})
    status, headers, text = raw(c, "/api/chat", body)
    assert status == 200, text
    named = headers["x-baton-ignored-fields"].split(", ")
    # The default model does not think, and what loads a model is taken.
    assert sorted(named) == ["options.repeat_last_n", "options.tfs_z", "other", "think"], named


def test_keys_are_asked_for(_):
    ollama = client_module("ollama")
    from test_tenants import Keys  # pylint: disable=import-outside-toplevel
    with tempfile.TemporaryDirectory() as folder:
        keys = Keys(folder, acme="")
        with harness.Cluster(harness.default_model(), router_args=["--api-keys", keys.path]) as c:
            known, unknown = (client_of(c, headers={"Authorization": f"Bearer {key}"}) for key in (keys.keys["acme"], "sk-wrong"))
            asked = dict(model=MODEL, messages=HELLO, options={"num_predict": 2})
            assert known.chat(**asked).done and known.list().models
            for call in (lambda: unknown.chat(**asked), lambda: list(unknown.chat(**asked, stream=True)), unknown.list):
                error = expect(ollama.ResponseError, call)
                assert error.status_code == 401 and error.error, error


# --- tools

def asked_of(m, messages, **more):
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    return client_of(m.cluster), dict(dict(model="scripted", options={"temperature": 0, "num_predict": 300}, tools=tool_models.TOOLS,
                                           messages=messages), **more)


def whole(m, messages, **more):
    client, asked = asked_of(m, messages, **more)
    return client.chat(**asked)


def streamed(m, messages, **more):
    """What the parts come to, as the package's examples put them together."""
    client, asked = asked_of(m, messages, **more)
    parts = list(client.chat(**asked, stream=True))
    last = parts[-1]
    last.message.content = "".join(p.message.content or "" for p in parts)
    last.message.thinking = "".join(p.message.thinking or "" for p in parts) or None
    last.message.tool_calls = [x for p in parts for x in p.message.tool_calls or ()] or None
    return last


def called(answer):
    return [(x.function.name, x.function.arguments) for x in answer.message.tool_calls or ()]


def test_tools_are_called(_):
    for name in ("hermes", "llama3", "mistral"):
        with tool_models.Model(name) as m:
            for read in (whole, streamed):
                one = read(m, "Weather? O")
                assert called(one) == [("weather", tool_models.ROME)] and one.done_reason == "stop" and one.message.content == "", (name, one)
                two = read(m, "Weather and time? T")
                assert called(two) == [("weather", tool_models.ROME), ("time", tool_models.OSLO)], (name, two)
                if "S" in m.scripts:
                    beside = read(m, "Weather? S")
                    assert called(beside) == [("weather", tool_models.ROME)] and beside.message.content == "I look it up.", (name, beside)
                assert called(read(m, "Time? E")) == [("time", {})] * (len(tool_models.NOTHING) + 1), name
                broken = read(m, "Weather? B")
                assert called(broken) == [] and broken.message.content == m.scripts["B"], (name, broken)


def test_call_that_was_cut_is_left_out(_):
    """num_predict ends within it: there are no arguments to call a function with."""
    with tool_models.Model("hermes") as m:
        for read in (whole, streamed):
            cut = read(m, "Weather? O", options={"temperature": 0, "num_predict": 8})
            assert called(cut) == [] and cut.done_reason == "length", cut


def test_calls_of_a_stream_come_whole(_):
    """Each in a part of its own, the first one when the second begins."""
    with tool_models.Model("hermes") as m:
        client, asked = asked_of(m, "Weather and time? T")
        calls = [p.message.tool_calls for p in client.chat(**asked, stream=True) if p.message.tool_calls]
        assert [[x.function.name for x in each] for each in calls] == [["weather"], ["time"]], calls


def test_results_go_back_to_the_model(_):
    """As the package's examples do it: the answer's message goes back as it came, and the result with the tool's name. Templates
    of Mistral want ids, which Ollama's messages have not."""
    for name in ("hermes", "llama3", "mistral"):
        with tool_models.Model(name) as m:
            for result in ({"tool_name": "weather"}, {}):
                messages = [{"role": "user", "content": "Weather? O"}]
                first = whole(m, messages)
                messages += [first.message, {"role": "tool", "content": "sunny R", **result}]
                for read in (whole, streamed):
                    end = read(m, messages)
                    assert end.message.content == tool_models.RESULT and called(end) == [], (name, end)


def test_functions_are_tools(_):
    """The package makes a tool of a function."""
    def weather(city: str) -> str:
        """Tells the weather.

        Args:
            city: The place.
        """
        return city

    with tool_models.Model("hermes") as m:
        assert called(whole(m, "Weather? O", tools=[weather])) == [("weather", tool_models.ROME)]


def test_thinking_is_told_apart(_):
    import scripted_model  # pylint: disable=import-outside-toplevel
    template = ("{% for m in messages %}{{ m.role }}{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}: {{ m.content }}\n{% endfor %}"
                "{% if enable_thinking %}Y{% else %}N{% endif %}{# {{ reasoning_effort }} #}")
    with tempfile.TemporaryDirectory() as folder:
        path, jinja = os.path.join(folder, "think.gguf"), os.path.join(folder, "think.jinja")
        scripted_model.write(path, {"Y": "<think>One and one.</think>Two.", "N": "Two at once."}, specials=["<think>", "</think>"])
        with open(jinja, "w", encoding="utf-8") as f:
            f.write(template)
        with harness.Cluster(path, router_args=["--chat-template", jinja, "--reasoning-parser", "think"]) as c:
            client = client_of(c)
            asked = dict(model="think", messages=[{"role": "user", "content": "1 + 1?"}], options={"temperature": 0, "num_predict": 60})
            for think in (True, "low"):
                answer = client.chat(**asked, think=think)
                assert (answer.message.thinking, answer.message.content) == ("One and one.", "Two."), answer
                parts = list(client.chat(**asked, think=think, stream=True))
                assert "".join(p.message.thinking or "" for p in parts) == "One and one.", parts
                assert "".join(p.message.content for p in parts) == "Two.", parts
            made = client.generate(model="think", prompt="1 + 1?", think=True, options=asked["options"])
            assert (made.thinking, made.response) == ("One and one.", "Two."), made
            plain = client.chat(**asked, think=False)
            assert (plain.message.thinking, plain.message.content) == (None, "Two at once."), plain
            assert "thinking" in client.show("think").capabilities
            # What was thought goes back to the model: it is in the prompt.
            more = [*asked["messages"], answer.message, {"role": "user", "content": "Sure?"}]
            longer = client.chat(**dict(asked, messages=more)).prompt_eval_count
            more[1] = {"role": "assistant", "content": "Two."}
            assert longer - client.chat(**dict(asked, messages=more)).prompt_eval_count == len("(One and one.)")


if __name__ == "__main__":
    sys.exit(client_tests.main(globals()))
