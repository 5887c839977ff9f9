#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls of tools with the openai SDK, in each form that model families write them: whole and streamed, several at once,
answered, forced, and broken. Models of scripted_model.py say what the families' models say; templates are theirs.

Usage: test_tools.py [NAME ...]

Needs `pip install openai numpy` and the variables of test_clients.py.
"""
import asyncio
import json
import os
import sys
import tempfile
import typing

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
from test_clients import MODEL, client_module, expect, openai_client  # noqa: E402

TOOLS = [{"type": "function", "function": {"name": name, "description": f"Tells the {name}.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}} for name in ("weather", "time")]
OSLO, ROME = {"city": "Oslo"}, {"city": "Rome \u2600", "days": [1, 2.5], "more": {"deep": None, "on": True}}


def call(name, arguments, key="arguments"):
    return json.dumps({"name": name, key: arguments}, ensure_ascii=False)


HERMES = f"<tool_call>\n{call('weather', ROME)}\n</tool_call>", f"<tool_call>\n{call('time', OSLO)}\n</tool_call>"
LLAMA = call("weather", ROME, "parameters"), call("time", OSLO, "parameters")
MISTRAL = call("weather", ROME), call("time", OSLO)
# OpenAI's API has no arguments of null: what calls without any write, and what takes its place.
NOTHING = ("null", '""', '" "', '"null"', "{}")


def nothings(key="arguments"):
    return [f'{{"name": "time", "{key}": {x}}}' for x in NOTHING] + ['{"name": "time"}']


# What is said behind a prompt that ends with this character. O, T: one, two; S: beside text; B: broken; R: a result
# came; E, A: without arguments; a quote, a blank, a bracket: the answer was begun as a call.
FORMATS = {
    "hermes": dict(template="qwen2_5_tools.jinja", scripts={
        "O": HERMES[0], "T": "\n".join(HERMES), "S": "I look it up.\n" + HERMES[0],
        "B": "<tool_call>\n{\"name\": \"weather\", \"arguments\": [1]}\n</tool_call>",
        "E": "".join(f"<tool_call>\n{x}\n</tool_call>" for x in nothings()),
        "C": "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Os",
        " ": json.dumps(OSLO) + "}\n</tool_call>", '"': "weather\", \"arguments\": " + json.dumps(OSLO) + "}\n</tool_call>"}),
    "llama3": dict(template="llama3_1_tools.jinja", scripts={
        "O": LLAMA[0], "T": "; ".join(LLAMA), "E": "; ".join(nothings("parameters")), "B": "{\"name\": \"nobody\", \"parameters\": {}}",
        "C": "{\"name\": \"weather\", \"parameters\": {\"city\": \"Os",
        " ": json.dumps(OSLO) + "}", '"': "weather\", \"parameters\": " + json.dumps(OSLO) + "}"}),
    "mistral": dict(template="mistral_v3_tools.jinja", specials=["[TOOL_CALLS]", "[ARGS]"], scripts={
        "O": f"[TOOL_CALLS] [{MISTRAL[0]}]", "T": f"[TOOL_CALLS] [{', '.join(MISTRAL)}]",
        "S": f"I look it up.[TOOL_CALLS] [{MISTRAL[0]}]", "E": f"[TOOL_CALLS] [{', '.join(nothings())}]", "B": "[TOOL_CALLS] weather in Oslo",
        "C": "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Os",
        "N": f"[TOOL_CALLS]weather[ARGS]{json.dumps(ROME, ensure_ascii=False)}[TOOL_CALLS]time[ARGS]{json.dumps(OSLO)}",
        "A": "".join(f"[TOOL_CALLS]time[ARGS]{x}" for x in NOTHING),
        " ": json.dumps(OSLO) + "}]", '"': "weather\", \"arguments\": " + json.dumps(OSLO) + "}]"}),
    "pythonic": dict(template=None, args=["--tool-call-parser", "pythonic"], scripts={
        "O": "[weather(city='Rome \u2600', days=[1, 2.5], more={'deep': None, 'on': True})]",
        "T": "[weather(city='Rome \u2600', days=[1, 2.5], more={'deep': None, 'on': True}), time(city=\"Oslo\")]",
        "E": f"[{', '.join(['time()'] * (len(NOTHING) + 1))}]", "B": "[weather(city)]", "C": "[weather(city='Os",
        "(": "city='Oslo')]", "[": "weather(city='Oslo')]"}),
}
PYTHONIC = ("{% if tools %}Call as [f(a=1)]: {{ tools | tojson }}{% endif %}{% for m in messages %}\n{{ m.role }}: "
            "{{ m.content }}{% for c in m.tool_calls %}[{{ c.function.name }}({{ c.function.arguments | tojson }})]"
            "{% endfor %}{% endfor %}")
# A template of SmolLM2's kind, which has no place for tools, and one of Gemma's, which has none for a system message either and
# wants roles in turns: FORMATS["hermes"] is what is said then, too.
NO_TOOLS = {
    "smollm": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
    "gemma": "{% if messages[0].role == 'system' %}{{ raise_exception('There is no system role') }}{% endif %}{% for m in messages %}"
             "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles have to alternate') }}{% endif %}"
             "<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}"}
RESULT = "It is sunny in Oslo."
# The prompt ends with what the user or the tool said last, unless it ends with a call.
FIRST, LAST = "{%- set said = messages[-1].content | replace('\n</tool_response>', '') %}", "{{ said[-1:] }}"


class Model:
    """A cluster of a model that speaks a format."""

    def __init__(self, name, scripts=None, context=4096, first=FIRST):
        # pylint: disable-next=import-outside-toplevel
        import scripted_model
        format_ = dict(FORMATS["hermes"], template=None) if name in NO_TOOLS else FORMATS[name]
        self.scripts = scripts or dict(format_["scripts"], R=RESULT)
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "scripted.gguf")
        scripted_model.write(path, self.scripts, format_.get("specials", ()), context=context)
        template = os.path.join(self.folder.name, "template.jinja")
        text = NO_TOOLS.get(name, PYTHONIC)
        if format_["template"]:
            with open(os.path.join(HERE, "templates", format_["template"]), encoding="utf-8") as f:
                text = f.read()
        with open(template, "w", encoding="utf-8") as f:
            f.write(first + text + LAST)
        self.cluster = harness.Cluster(path, router_args=["--chat-template", template, *format_.get("args", ())])

    def __enter__(self):
        self.cluster.__enter__()
        self.client = openai_client(self.cluster)
        return self

    def __exit__(self, *what):
        try:
            self.cluster.__exit__(*what)
        finally:
            self.folder.cleanup()

    @staticmethod
    def ask(messages, **more):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return dict(dict(model="scripted", messages=messages, temperature=0, max_tokens=300, tools=TOOLS), **more)

    def whole(self, messages, **more):
        return self.client.chat.completions.create(**self.ask(messages, **more)).choices[0]

    def streamed(self, messages, **more):
        return gather(list(self.client.chat.completions.create(**self.ask(messages, **more), stream=True)))


class Gathered:
    """What a stream came to, as clients put it together."""

    def __init__(self):
        self.content, self.calls, self.finish_reason, self.n_deltas = "", [], None, 0


def gather(chunks):
    got = Gathered()
    for chunk in chunks:
        assert len(chunk.choices) == 1 and got.finish_reason is None, chunk
        got.content += chunk.choices[0].delta.content or ""
        got.finish_reason = chunk.choices[0].finish_reason
        for delta in chunk.choices[0].delta.tool_calls or []:
            got.n_deltas += 1
            if delta.index == len(got.calls):
                assert delta.type == "function" and delta.id and delta.function.name, delta
                got.calls.append([delta.id, delta.function.name, ""])
            assert delta.index == len(got.calls) - 1, delta
            assert delta.id in (None, got.calls[-1][0]) or got.calls[-1][2] == "", delta
            got.calls[-1][2] += delta.function.arguments
    return got


def written(choice):
    """(name, arguments as they are written) of each call of a whole or gathered answer."""
    if isinstance(choice, Gathered):
        return [(name, arguments) for _, name, arguments in choice.calls]
    return [(x.function.name, x.function.arguments) for x in choice.message.tool_calls or []]


def called(choice):
    return [(name, json.loads(arguments)) for name, arguments in written(choice)]


def text_of(choice):
    return choice.content if isinstance(choice, Gathered) else choice.message.content or ""


def check_calls(m, name):
    for read in (m.whole, m.streamed):
        one = read("Weather? O")
        assert called(one) == [("weather", ROME)], (name, one)
        assert text_of(one) == "" and one.finish_reason == "tool_calls", (name, one)
        two = read("Weather and time? T")
        assert called(two) == [("weather", ROME), ("time", OSLO)] and text_of(two) == "", (name, called(two))
        only = read("Weather and time? T", parallel_tool_calls=False)
        assert called(only) == [("weather", ROME)] and text_of(only) == "", (name, called(only))
        if "S" in m.scripts:
            beside = read("Weather? S")
            assert called(beside) == [("weather", ROME)] and text_of(beside) == "I look it up.", (name, beside)
        empty = read("Time? E")
        assert called(empty) == [("time", {})] * (len(NOTHING) + 1) and text_of(empty) == "", (name, empty)
        if "N" in m.scripts:
            named = read("Weather and time? N")
            assert called(named) == [("weather", ROME), ("time", OSLO)], (name, called(named))
            empty = read("Time? A")
            assert called(empty) == [("time", {})] * len(NOTHING) and text_of(empty) == "", (name, empty)
    message = m.whole("Weather and time? T").message
    assert message.content is None and len({x.id for x in message.tool_calls}) == 2, message
    if name == "mistral":
        assert all(len(x.id) == 9 for x in message.tool_calls), message
    if name != "pythonic":  # its calls are told when they are whole
        assert m.streamed("Weather? O").n_deltas > 5


def check_broken(m, name):
    """What is no call is what it is: text."""
    said = m.scripts["B"]
    for read in (m.whole, m.streamed):
        broken = read("Weather? B")
        assert text_of(broken) == said and called(broken) == [], (name, text_of(broken))
        assert broken.finish_reason == "stop", (name, broken)
    # What ends within a call is that call, as far as it came: OpenAI's clients are told to look at its arguments.
    for read in (m.whole, m.streamed):
        cut = read("Weather? C")
        assert written(cut) == [("weather", '{"city":"Os' if name == "pythonic" else '{"city": "Os')], (name, cut)
        assert text_of(cut) == "" and cut.finish_reason == "stop", (name, cut)
    # Without tools, and where none may be called, nothing is looked for.
    for more in (dict(tools=client_module("openai").NOT_GIVEN), dict(tool_choice="none")):
        plain = m.whole("Weather? O", **more, extra_body={"skip_special_tokens": False})
        assert plain.message.content == m.scripts["O"] and not plain.message.tool_calls, (name, plain)
        assert plain.finish_reason == "stop", plain


def check_forced(m, name):
    named = {"type": "function", "function": {"name": "weather"}}
    for read in (m.whole, m.streamed):
        for choice in (named, "required"):
            got = read("Weather? ", tool_choice=choice)
            assert called(got) == [("weather", OSLO)] and text_of(got) == "", (name, choice, got, text_of(got))
            assert got.finish_reason == "tool_calls", (name, got)


def check_round_trip(m, name):
    """As agents do it: the answer goes back as it came, with what the tools said."""
    messages = [{"role": "user", "content": "Weather? O"}]
    message = m.whole(messages).message
    messages += [message.model_dump(exclude_none=True),
                 {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny R"}]
    for read in (m.whole, m.streamed):
        end = read(messages)
        assert text_of(end) == RESULT and called(end) == [] and end.finish_reason == "stop", (name, end)


def check_strict(m, name):
    """The client makes a strict function of a class, and objects of the arguments."""
    openai, pydantic = client_module("openai"), client_module("pydantic")

    class Place(pydantic.BaseModel):
        city: typing.Literal["Bergen", "Lima"]
        days: int = pydantic.Field(ge=1, le=7)

    tools = [openai.pydantic_function_tool(Place, name="weather")]
    named = {"type": "function", "function": {"name": "weather"}}
    for more in (dict(tool_choice=named), dict(tool_choice="required"), dict(tool_choice="required", temperature=1)):
        more["parallel_tool_calls"] = False
        got = m.client.chat.completions.parse(**m.ask("Weather? ", **dict(more, tools=tools))).choices[0]
        assert got.finish_reason == "tool_calls" and got.message.tool_calls, (name, got)
        assert all(isinstance(x.function.parsed_arguments, Place) for x in got.message.tool_calls), (name, got)
    # The script's calls are of Rome: the grammar has other cities.
    got = m.whole("Weather? O", tools=tools, parallel_tool_calls=False)
    assert got.message.tool_calls or got.finish_reason != "tool_calls", (name, got)
    for one in got.message.tool_calls or []:
        assert got.finish_reason == "length" or Place.model_validate_json(one.function.arguments), (name, got)


def check_async(m, name):
    async def run():
        client = openai_client(m.cluster, "AsyncOpenAI")
        whole = await client.chat.completions.create(**m.ask("Weather and time? T"))
        assert called(whole.choices[0]) == [("weather", ROME), ("time", OSLO)], (name, whole)
        stream = await client.chat.completions.create(**m.ask("Weather and time? T"), stream=True)
        got = gather([chunk async for chunk in stream])
        assert called(got) == [("weather", ROME), ("time", OSLO)], (name, got.calls)
        await client.close()

    asyncio.run(run())


def check_helpers(m, name):
    """The SDK's own accumulator."""
    with m.client.chat.completions.stream(**m.ask("Weather and time? T")) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.done" in kinds, (name, kinds)
    assert called(final) == [("weather", ROME), ("time", OSLO)], (name, final)


def check(name):
    with Model(name) as m:
        for part in (check_calls, check_broken, check_forced, check_round_trip, check_async, check_helpers):
            part(m, name)
        if name != "pythonic":
            check_strict(m, name)


def test_hermes_and_qwen_tool_calls_are_parsed(_):
    check("hermes")


def test_llama_3_tool_calls_are_parsed(_):
    check("llama3")


def test_mistral_tool_calls_are_parsed(_):
    check("mistral")


def test_pythonic_tool_calls_are_parsed(_):
    check("pythonic")


def test_invalid_tools_are_refused(_):
    bad = client_module("openai").BadRequestError
    with Model("hermes") as m:
        for more, param in ((dict(tools=[{"type": "web_search"}]), "tools"), (dict(tools=[{"function": {}}]), "tools"),
                            (dict(tool_choice={"type": "function", "function": {"name": "tea"}}), "tool_choice"),
                            (dict(tools=[], tool_choice="required"), "tool_choice"),
                            (dict(messages=[{"role": "assistant", "tool_calls": [{"id": "1"}]}]), "messages")):
            e = expect(bad, lambda more=more: m.whole(**dict(dict(messages="Hi"), **more)))
            assert e.param == param, (more, e)


# --- models whose templates show no tools


def test_tools_of_a_template_without_them_are_called_as_others(_):
    for name in NO_TOOLS:
        check(name)


ABOUT_TOOLS = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{"type": "function", "function": {"name": "weather", "description": "Tells the weather.", "parameters": {"type": "object", \
"properties": {"city": {"type": "string"}}, "required": ["city"]}}}
{"type": "function", "function": {"name": "time", "description": "Tells the time.", "parameters": {"type": "object", \
"properties": {"city": {"type": "string"}}, "required": ["city"]}}}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""
# SmolLM2's own template is that of the first two messages; its default system message gives way to the tools.
HISTORY = [{"role": "user", "content": "Weather and time in Oslo?"},
           {"role": "assistant", "content": None, "tool_calls": [
               {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
               {"id": "2", "type": "function", "function": {"name": "time", "arguments": '{"city": "Oslo"}'}}]},
           {"role": "tool", "tool_call_id": "2", "content": "noon"},
           {"role": "tool", "tool_call_id": "1", "content": "</tool_response>"}]
HISTORY_TEXT = """<|im_start|>user
Weather and time in Oslo?<|im_end|>
<|im_start|>assistant
<tool_call>
{"name": "weather", "arguments": {"city": "Oslo"}}
</tool_call>
<tool_call>
{"name": "time", "arguments": {"city": "Oslo"}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
"\\u003c/tool_response>"
</tool_response>
<tool_response>
noon
</tool_response><|im_end|>
<|im_start|>assistant
"""


def prompt_of(c, **body):
    status, got = c.post("/tokenize", dict(model=MODEL, **body))
    assert status == 200, got
    status, text = c.post("/detokenize", {"tokens": got["tokens"]})
    assert status == 200 and len(got["tokens"]) == got["count"], got
    return text["prompt"]


def test_prompt_of_default_model_has_tools_and_results(c):
    """The text is written by hand from docs/TEMPLATES.md, and from the template that the model's file has."""
    system = f"<|im_start|>system\n{ABOUT_TOOLS}<|im_end|>\n"
    assert prompt_of(c, messages=HISTORY, tools=TOOLS) == system + HISTORY_TEXT
    brief = [{"role": "system", "content": "Be brief."}, *HISTORY]
    assert prompt_of(c, messages=brief, tools=TOOLS) == system.replace("# Tools", "Be brief.\n\n# Tools") + HISTORY_TEXT
    # No tool may be called, and none is shown; what was called stays.
    for more in ({}, dict(tools=TOOLS, tool_choice="none")):
        assert prompt_of(c, messages=brief, **more) == "<|im_start|>system\nBe brief.<|im_end|>\n" + HISTORY_TEXT, more
    # The prompt that an answer was made of has as many tokens.
    answer = openai_client(c).chat.completions.create(model=MODEL, messages=HISTORY, tools=TOOLS, max_tokens=1)
    status, told = c.post("/tokenize", dict(model=MODEL, messages=HISTORY, tools=TOOLS))
    assert status == 200 and answer.usage.prompt_tokens == told["count"], (answer.usage, told["count"])


def test_default_model_calls_tools_that_are_required(c):
    openai, pydantic = client_module("openai"), client_module("pydantic")

    class Place(pydantic.BaseModel):
        city: typing.Literal["Bergen", "Lima"]
        days: int = pydantic.Field(ge=1, le=7)

    class Clock(pydantic.BaseModel):
        zone: typing.Literal["CET", "PET"]

    kinds = {"weather": Place, "time": Clock}
    tools = [openai.pydantic_function_tool(kind, name=name) for name, kind in kinds.items()]
    named = {"type": "function", "function": {"name": "time"}}
    client = openai_client(c)
    ask = dict(model=MODEL, messages=[{"role": "user", "content": "Weather in Lima?"}], tools=tools, max_tokens=200, temperature=0)
    for choice in ("required", named):
        for parallel in (False, True):
            more = dict(ask, tool_choice=choice, parallel_tool_calls=parallel)
            whole = client.chat.completions.create(**more).choices[0]
            for name, arguments in called(whole) if whole.finish_reason == "tool_calls" else called(whole)[:-1]:
                assert kinds[name].model_validate(arguments), (more, whole)
                assert choice == "required" or name == "time", whole
            assert whole.message.tool_calls and not whole.message.content, (more, whole)
            assert parallel or (len(whole.message.tool_calls) == 1 and whole.finish_reason == "tool_calls"), (more, whole)
            streamed = gather(list(client.chat.completions.create(**more, stream=True)))
            assert written(streamed) == written(whole) and streamed.finish_reason == whole.finish_reason, (streamed.calls, whole)


def test_agent_loop_of_twenty_calls_ends_the_same_each_time(_):
    """The model is told each result and calls the next step, as its script has it: a result that did not reach it would end the
    loop, or turn it."""
    steps = "abcdefghijklmnopqrst"
    assert len(steps) == 20
    scripts = {x: f'<tool_call>\n{{"name": "step", "arguments": {{"at": "{x}"}}}}\n</tool_call>' for x in steps}
    scripts["Z"] = "All twenty are done."
    tools = [{"type": "function", "function": {"name": "step", "parameters": {
        "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}]
    with Model("smollm", scripts, context=16384) as m:
        for read in (m.whole, m.whole, m.streamed, m.streamed):
            messages, made = [{"role": "user", "content": "Go a"}], []
            while (answer := read(messages, tools=tools)).finish_reason == "tool_calls":
                (name, arguments), = called(answer)
                assert name == "step" and text_of(answer) == "", answer
                made.append(arguments["at"])
                assert len(made) <= 20, made
                messages += [{"role": "assistant", "content": None, "tool_calls": [
                    {"id": str(len(made)), "type": "function", "function": {"name": name, "arguments": written(answer)[0][1]}}]},
                             {"role": "tool", "tool_call_id": str(len(made)), "content": f"done, next {(steps + 'Z')[len(made)]}"}]
            assert "".join(made) == steps and text_of(answer) == scripts["Z"], (made, answer)


if __name__ == "__main__":
    sys.exit(client_tests.main(dict(globals())))
