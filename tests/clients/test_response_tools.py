#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tools over OpenAI's Responses with the openai SDK and openai-agents: calls of functions, beside reasoning and text,
whole and streamed, answered and forced, on both sides of the size from which answers are written at the pool; the fields
that Codex sends. Models of scripted_model.py say what the families' models say (test_tools.py).

Usage: test_response_tools.py [NAME ...]

Needs `pip install openai openai-agents numpy` and the variables of test_clients.py.
"""
import contextlib
import json
import os
import re
import sys
import tempfile
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
from test_clients import client_module, expect, openai_client, url  # noqa: E402
from test_tools import TOOLS as CHAT_TOOLS  # noqa: E402
from test_tools import FIRST, HERMES, LAST, OSLO, RESULT, ROME, FORMATS, Model  # noqa: E402

# BT_ANSWER_INLINE_BYTES (router/http/answer.h): longer answers are written at the pool.
INLINE_BYTES = 24 * 1024
TOOLS = [{"type": "function", "name": name, "description": f"Tells the {name}.", "strict": False, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}} for name in ("weather", "time")]
PLAIN = {"type": "function", "name": "weather", "parameters": TOOLS[0]["parameters"]}


def create(client, text, **more):
    items = [{"role": "user", "content": text}] if isinstance(text, str) else text
    return client.responses.create(**dict(dict(model="scripted", input=items, temperature=0, max_output_tokens=300, tools=TOOLS), **more))


def gather(stream):
    """Check the events of a stream against one another. @return (the last event's response, its items as the events made them)"""
    items, open_at, end = [], None, None
    for number, event in enumerate(stream):
        assert event.sequence_number == number and end is None, event
        kind = event.type.removeprefix("response.")
        if kind in ("created", "in_progress"):
            assert event.response.status == "in_progress" and event.response.output == [], event
        elif kind == "output_item.added":
            assert open_at is None and event.output_index == len(items) and event.item.status == "in_progress", event
            open_at = event.output_index
            items.append({"item": event.item, "text": "", "done": None})
            assert getattr(event.item, "content", []) == [], event
        elif kind in ("completed", "incomplete"):
            assert open_at is None, event
            end = event.response
            assert end.status == kind, event
        else:
            assert event.output_index == open_at, (event, open_at)
            item = items[open_at]
            if kind == "output_item.done":
                assert event.item.id == item["item"].id and item["done"] is not None, event
                item["item"], open_at = event.item, None
                continue
            assert event.item_id == item["item"].id, event
            if kind.endswith(".delta"):
                assert item["done"] is None and event.delta, event
                item["text"] += event.delta
            elif kind.endswith(".done") and kind != "content_part.done":
                item["done"] = next(getattr(event, x) for x in ("text", "arguments", "input") if hasattr(event, x))
                assert item["done"] == item["text"], event
    for item in items:
        whole = item["item"]
        said = (whole.content[0].text if hasattr(whole, "content") else getattr(whole, "arguments", None) or getattr(whole, "input", ""))
        assert said == item["text"] == item["done"], item
    return end, [x["item"] for x in items]


def said(response, items=None):
    """What an answer has, item by item: (type, text) or (type, name, arguments)."""
    found = []
    for x in response.output if items is None else items:
        if x.type in ("function_call", "custom_tool_call"):
            found.append((x.type, x.name, x.arguments if x.type == "function_call" else x.input))
        else:
            found.append((x.type, "".join(part.text for part in x.content)))
    return found


def both(client, text, **more):
    """Ask for an answer whole and as a stream; both say the same. @return the whole one"""
    whole = create(client, text, **more)
    end, items = gather(create(client, text, stream=True, **more))
    assert said(whole) == said(end) == said(end, items), (said(whole), said(end), said(end, items))
    assert [x.status for x in whole.output] == [x.status for x in end.output] == [x.status for x in items], (whole, items)
    assert (whole.status, whole.incomplete_details, whole.usage.output_tokens) == (end.status, end.incomplete_details, end.usage.output_tokens)
    ids = [x.id for x in whole.output]
    assert len(set(ids)) == len(ids) and all(ids), whole
    return whole


def calls_of(response):
    return [(x.name, json.loads(x.arguments)) for x in response.output if x.type == "function_call"]


@contextlib.contextmanager
def scripted(scripts, template=None, specials=(), router_args=(), **more):
    """A client of a model that says these scripts, with Qwen's template."""
    # pylint: disable-next=import-outside-toplevel
    import scripted_model
    with tempfile.TemporaryDirectory() as folder:
        model, path = os.path.join(folder, "scripted.gguf"), os.path.join(folder, "template.jinja")
        scripted_model.write(model, scripts, specials, **more)
        if template is None:
            with open(os.path.join(HERE, "templates", "qwen2_5_tools.jinja"), encoding="utf-8") as f:
                template = FIRST + f.read() + LAST
        with open(path, "w", encoding="utf-8") as f:
            f.write(template)
        with harness.Cluster(model, router_args=["--chat-template", path, *router_args]) as c:
            yield c


def check_calls(name):
    with Model(name) as m:
        one = both(m.client, "Weather? O")
        assert calls_of(one) == [("weather", ROME)] and len(one.output) == 1 and one.status == "completed", one
        assert one.output[0].status == "completed" and one.output_text == "" and one.output[0].call_id != one.output[0].id, one
        two = both(m.client, "Weather and time? T")
        assert calls_of(two) == [("weather", ROME), ("time", OSLO)], two
        assert two.output[0].call_id != two.output[1].call_id and two.parallel_tool_calls, two
        only = both(m.client, "Weather and time? T", parallel_tool_calls=False)
        assert calls_of(only) == [("weather", ROME)] and not only.parallel_tool_calls, only
        if "S" in m.scripts:
            beside = both(m.client, "Weather? S")
            assert said(beside)[0] == ("message", "I look it up.") and calls_of(beside) == [("weather", ROME)], beside
            assert [x.type for x in beside.output] == ["message", "function_call"], beside
        # What is no call is text; what ends within one is that call, as far as it came.
        assert said(both(m.client, "Weather? B")) == [("message", m.scripts["B"])]
        cut = both(m.client, "Weather? C")
        assert said(cut) == [("function_call", "weather", '{"city":"Os' if name == "pythonic" else '{"city": "Os')], cut
        assert cut.status == "completed" and cut.output[0].status == "incomplete", cut
        none = both(m.client, "Weather? O", tool_choice="none")
        assert calls_of(none) == [] and none.tool_choice == "none" and len(none.tools) == 2, none
        for choice in ({"type": "function", "name": "weather"}, "required"):
            got = both(m.client, "Weather? ", tool_choice=choice)
            assert calls_of(got) == [("weather", OSLO)] and got.status == "completed", got
            assert got.tool_choice == choice or got.tool_choice.to_dict() == choice, got
        assert [x.to_dict() for x in one.tools] == TOOLS and one.tool_choice == "auto", one.tools
        # The answer goes back as it came, with what the tool said: as a string, and as parts.
        for output in ("sunny R", [{"type": "input_text", "text": "sunny R"}]):
            items = [{"role": "user", "content": "Weather? O"}, *one.output,
                     {"type": "function_call_output", "call_id": one.output[0].call_id, "output": output}]
            assert said(both(m.client, items)) == [("message", RESULT)], (name, output)


def test_hermes_calls_are_items(_):
    check_calls("hermes")


def test_llama_3_calls_are_items(_):
    check_calls("llama3")


def test_mistral_calls_are_items(_):
    check_calls("mistral")


def test_pythonic_calls_are_items(_):
    check_calls("pythonic")


THOUGHT = "<think>\nI need both.\n</think>\n\n"
BETWEEN = f"{THOUGHT}First the weather.\n{HERMES[0]}\nNow the time.\n{HERMES[1]}\nThat is all."


def long(n):
    """An answer with reasoning, text and three calls, of n bytes of arguments each."""
    calls = "\n".join(f'<tool_call>\n{{"name": "weather", "arguments": {{"city": "{c * n}"}}}}\n</tool_call>' for c in "abc")
    return f"<think>\n{'r' * n}\n</think>\n\n{'t' * n}\n{calls}"


def test_items_stand_in_the_order_of_the_answer(_):
    template = ("{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}{% for m in messages %}\n{{ m.role }}: {{ m.reasoning_content }} {{ m.content }}"
                "{% for c in m.tool_calls %} {{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %} {{ m.tool_call_id }}{% endfor %}"
                "\n{{ messages[-1].content[-1:] }}")
    with scripted({"B": BETWEEN, "L": long(20), "X": long(30000)}, template, router_args=["--reasoning-parser", "think"], step=2000, context=4096) as c:
        client = openai_client(c)
        got = both(client, "B")
        assert [(x.type, x.status) for x in got.output] == [
            ("reasoning", "completed"), ("message", "completed"), ("function_call", "completed"), ("message", "completed"),
            ("function_call", "completed"), ("message", "completed")], got
        assert [x[1] for x in said(got) if x[0] in ("message", "reasoning")] == ["I need both.", "First the weather.", "\nNow the time.", "\nThat is all."], got
        chat = client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "B"}], temperature=0, tools=CHAT_TOOLS).choices[0].message
        assert chat.content == got.output_text and len(chat.tool_calls) == 2, chat
        assert calls_of(got) == [("weather", ROME), ("time", OSLO)], got
        for letter, n in (("L", 20), ("X", 30000)):
            got = both(client, letter)
            assert [x.type for x in got.output] == ["reasoning", "message"] + ["function_call"] * 3, got
            assert said(got)[0][1] == "r" * n and said(got)[1][1] == "t" * n, letter
            assert calls_of(got) == [("weather", {"city": x * n}) for x in "abc"], letter
            size = sum(len(part) for item in said(got) for part in item[1:])
            assert (size > INLINE_BYTES) == (letter == "X"), size
        # A turn goes back as one message of the assistant.
        got = both(client, "L")
        items = [{"role": "user", "content": "L"}, *got.output]
        items += [{"type": "function_call_output", "call_id": x.call_id, "output": "fine"} for x in got.output if x.type == "function_call"]
        counted = client.responses.with_raw_response.create(model="scripted", input=items + [{"role": "user", "content": "B"}], tools=TOOLS, temperature=0,
                                                            max_output_tokens=300)
        assert counted.headers.get("x-baton-ignored-fields") is None, counted.headers
        assert said(counted.parse())[0] == ("reasoning", "I need both.")


def test_answers_that_are_cut_say_where(_):
    with scripted({"O": HERMES[0], "S": "I look it up.\n" + HERMES[0], "T": "\n".join(HERMES)}) as c:
        client = openai_client(c)
        got = both(client, "S", max_output_tokens=2)
        assert (got.status, got.incomplete_details.reason) == ("incomplete", "max_output_tokens"), got
        assert [(x.type, x.status) for x in got.output] == [("message", "incomplete")], got
        got = both(client, "O", max_output_tokens=20)
        assert got.status == "incomplete" and [(x.type, x.status) for x in got.output] == [("function_call", "incomplete")], got
        whole = both(client, "T")
        n = both(client, "O").usage.output_tokens
        got = both(client, "T", max_output_tokens=n + 1)
        assert got.status == "incomplete" and said(got)[0] == said(whole)[0] and got.output[0].status == "completed", got


def test_what_is_no_tool_is_refused_by_name(_):
    bad = client_module("openai").BadRequestError
    with Model("hermes") as m:
        def refused(param, words, **more):
            e = expect(bad, lambda: create(m.client, **dict(dict(text="Weather? O"), **more)))
            assert e.param == param and words in e.message, (more, e)

        for kind in ("file_search", "code_interpreter", "computer_use_preview", "mcp", "image_generation", "local_shell"):
            refused("tools", f"tools[0] is of type \"{kind}\"", tools=[{"type": kind}])
        refused("tools", "tools[0].name", tools=[{"type": "function", "name": "a b"}])
        refused("tools", "tools[1].name: a tool before is called weather", tools=[PLAIN, PLAIN])
        refused("tools", "tools[0].parameters", tools=[dict(PLAIN, parameters=[1])])
        refused("tools", "'additionalProperties' is required", tools=[dict(PLAIN, strict=True)])
        refused("tool_choice", "no tool is called tea", tool_choice={"type": "function", "name": "tea"})
        refused("tool_choice", "no tool is called tea", tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "tea"}]})
        refused("tool_choice", "must be none, auto, required", tool_choice={"type": "file_search"})
        refused("tool_choice", "there are no tools", tools=[], tool_choice="required")
        refused("include", "include[1]", include=["reasoning.encrypted_content", "message.output_text.logprobs"])
        refused("reasoning", "reasoning.effort", reasoning={"effort": "much"})
        for item, words in (({"type": "function_call", "name": "weather", "arguments": "{}"}, ".call_id"),
                            ({"type": "function_call", "call_id": "1", "name": "weather", "arguments": {}}, ".arguments"),
                            ({"type": "function_call_output", "call_id": "1"}, ".output"),
                            ({"type": "function_call_output", "call_id": "1", "output": [{"type": "input_image", "image_url": "data:"}]}, ".output"),
                            ({"type": "custom_tool_call", "call_id": "1", "name": "weather"}, ".input"),
                            ({"type": "item_reference", "id": "msg_1"}, "item_reference"), ({"type": "web_search_call", "id": "ws_1"}, "web_search_call")):
            refused("input", words, text=[{"role": "user", "content": "O"}, item])


def test_tool_choice_holds_the_tools_that_it_allows(_):
    with Model("hermes") as m:
        # The script calls the weather: it may not.
        allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "time"}]}
        for read in (dict(), dict(temperature=1, extra_body={"seed": 7})):
            got = create(m.client, "Weather? O", tool_choice=allowed, **read)
            assert all(name == "time" for name, _ in calls_of(got)), got
        got = both(m.client, "Weather? O", tool_choice=dict(allowed, tools=[{"type": "function", "name": "weather"}]))
        assert calls_of(got) == [("weather", ROME)], got
        got = create(m.client, "Weather? ", tool_choice=dict(allowed, mode="required"))
        assert got.output[0].type == "function_call" and got.output[0].name == "time", got
        # Without `strict` a schema is held as it is.
        closed = dict(PLAIN, parameters={"type": "object", "properties": {"city": {"enum": ["Bergen"]}}, "required": ["city"], "additionalProperties": False})
        got = both(m.client, "Weather? ", tools=[closed], tool_choice="required", parallel_tool_calls=False)
        assert calls_of(got) == [("weather", {"city": "Bergen"})], got


def test_fields_of_codex_are_taken(_):
    """What codex-rs sends (codex-api/src/common.rs, ResponsesApiRequest), with the tools of its version 0.147."""
    space = {"type": "namespace", "name": "agents", "description": "Sub-agents.", "tools": [dict(PLAIN, name="close", strict=False)]}
    close = '<tool_call>\n{"name": "agents.close", "arguments": {"city": "Oslo"}}\n</tool_call>'
    body = dict(model="scripted", instructions="You are a coding agent.", tools=[*TOOLS, space, {"type": "web_search", "external_web_access": False},
                                                                                      {"type": "tool_search", "execution": "client"}],
                tool_choice="auto", parallel_tool_calls=False, reasoning={"effort": "low", "summary": "auto"}, store=False, stream=True,
                include=["reasoning.encrypted_content"], prompt_cache_key="01a22c71", service_tier="auto", text={"verbosity": "low"},
                client_metadata={"thread_id": "1"}, input=[
                    {"type": "message", "id": "msg_1", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
                    {"type": "message", "id": "msg_2", "role": "user", "content": [{"type": "input_text", "text": "N"}]}])
    with scripted({"N": close, "R": RESULT}) as c:
        def ask(more=()):
            sent = dict(body, input=[*body["input"], *more])
            request = urllib.request.Request(url(c) + "/v1/responses", json.dumps(sent).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                events = [json.loads(line[6:]) for line in answer.read().decode().split("\n") if line.startswith("data: ")]
                return events, answer.headers.get("X-Baton-Ignored-Fields")

        events, ignored = ask()
        assert ignored == "tools[3], tools[4], reasoning.effort", ignored
        items = [x["item"] for x in events if x["type"] == "response.output_item.done"]
        assert [(x["type"], x["namespace"], x["name"], json.loads(x["arguments"])) for x in items] == [("function_call", "agents", "close", OSLO)], items
        assert events[-1]["type"] == "response.completed", events[-1]
        # It sends items back without their ids and states.
        call = {k: items[0][k] for k in ("type", "call_id", "name", "namespace", "arguments")}
        events, _ = ask([call, {"type": "function_call_output", "call_id": call["call_id"], "output": "closed R"}])
        assert events[-1]["response"]["output"][0]["content"][0]["text"] == RESULT, events[-1]


# Codex's grammar of its tool apply_patch (codex-rs, tool_apply_patch.lark), and a patch of its documentation.
PATCH_GRAMMAR = """start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""
PATCH = """*** Begin Patch
*** Add File: hello.txt
+Hello "world" \\o/ \u2600
*** Update File: src/app.py
*** Move to: src/main.py
@@ def greet():
-\tprint("Hi")
+\tprint("Hello, world!")
*** Delete File: obsolete.txt
*** End Patch
"""


def custom(name, syntax=None, definition=None):
    more = {"format": {"type": "grammar", "syntax": syntax, "definition": definition}} if syntax else {}
    return {"type": "custom", "name": name, "description": "Does it.", **more}


def custom_call(name, text):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"input": {json.dumps(text, ensure_ascii=False)}}}}}\n</tool_call>'


def test_custom_tools_get_texts_of_their_grammars(_):
    bad = client_module("openai").BadRequestError
    tools = [custom("apply_patch", "lark", PATCH_GRAMMAR), custom("when", "regex", r"\d{4}-\d\d"), custom("note"), TOOLS[0]]
    scripts = {"P": custom_call("apply_patch", PATCH), "W": custom_call("when", "tomorrow"), "N": custom_call("note", "a\n\"b\""), "R": RESULT,
               "B": custom_call("apply_patch", PATCH) + "\n" + HERMES[0]}
    with scripted(scripts, context=8192) as c:
        client = openai_client(c)
        got = both(client, "P", tools=tools)
        assert said(got) == [("custom_tool_call", "apply_patch", PATCH)], got
        assert got.output[0].status == "completed" and got.output[0].id.startswith("ctc_"), got
        assert said(both(client, "N", tools=tools)) == [("custom_tool_call", "note", "a\n\"b\"")]
        two = both(client, "B", tools=tools)
        assert [x.type for x in two.output] == ["custom_tool_call", "function_call"] and calls_of(two) == [("weather", ROME)], two
        # Its script's text is none of the grammar's: what comes is one, or was cut.
        for more in (dict(), dict(temperature=1, extra_body={"seed": 5})):
            got = create(client, "W", tools=tools, **more)
            for one in got.output:
                if one.type == "custom_tool_call" and one.name == "when" and one.status == "completed":
                    assert re.fullmatch(r"\d{4}-\d\d", one.input), one
        got = both(client, "", tools=tools, tool_choice={"type": "custom", "name": "when"})
        assert got.output[0].name == "when" and re.fullmatch(r"\d{4}-\d\d", got.output[0].input), got
        # What goes back is the call that came.
        items = [{"role": "user", "content": "P"}, {k: v for k, v in got.output[0].to_dict().items() if k in ("type", "call_id", "name", "input")},
                 {"type": "custom_tool_call_output", "call_id": got.output[0].call_id, "output": "done R"}]
        assert said(both(client, items, tools=tools)) == [("message", RESULT)]
        for syntax, definition, words in (("lark", "start: a\na: b \"x\" | \"y\"\nb: a", "recurs"), ("lark", "start: %json {}", "%json within"),
                                          ("regex", "(", "Invalid grammar for tool 'c'"), ("lark", "start: x", "Invalid grammar for tool 'c'")):
            for choice in ("auto", {"type": "custom", "name": "c"}):
                e = expect(bad, lambda s=syntax, d=definition, t=choice: create(client, "P", tools=[TOOLS[0], custom("c", s, d)], tool_choice=t))
                assert e.param == "tools" and words in e.message, (definition, e)


def test_reasoning_effort_is_the_templates_variable(_):
    """Of templates with enable_thinking (Qwen 3), and with reasoning_effort (gpt-oss)."""
    template = ("{{ '<tool_call>' if tools }}{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking is defined and not enable_thinking %}N"
                "{% elif reasoning_effort is defined %}{{ reasoning_effort[:1] }}{% else %}D{% endif %}")
    with scripted({"N": "no thoughts", "D": "default", "l": "low", "h": "high"}, template) as c:
        client = openai_client(c)
        for effort, words in (("none", "no thoughts"), ("low", "low"), ("high", "high")):
            assert create(client, "a", reasoning={"effort": effort}, tools=[]).output_text == words
            got = client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "a"}], reasoning_effort=effort, temperature=0)
            assert got.choices[0].message.content == words, got
        assert create(client, "a", tools=[]).output_text == "default"
        # What the client says itself comes first.
        assert create(client, "a", tools=[], reasoning={"effort": "low"}, extra_body={"chat_template_kwargs": {"enable_thinking": False}}).output_text == "no thoughts"


def test_input_tokens_are_counted_as_they_are_used(_):
    bad = client_module("openai").BadRequestError
    with scripted({"O": HERMES[0], "R": RESULT}) as c:
        client = openai_client(c)
        call = create(client, "O").output[0]
        items = [{"role": "user", "content": "O"}, call.to_dict(), {"type": "function_call_output", "call_id": call.call_id, "output": "R"}]
        for more in (dict(input="Hello R"), dict(input=items, tools=TOOLS), dict(input=items, tools=[*TOOLS, custom("note")], instructions="Be brief."),
                     dict(input="Hello ", tools=TOOLS, tool_choice="required")):
            counted = client.responses.input_tokens.count(model="scripted", **more)
            used = client.responses.create(model="scripted", temperature=0, max_output_tokens=2, **more).usage.input_tokens
            assert (counted.object, counted.input_tokens) == ("response.input_tokens", used), (more, counted, used)
        # More than the context is counted, too.
        assert client.responses.input_tokens.count(model="scripted", input="a" * 5000).input_tokens > 5000
        e = expect(bad, lambda: client.responses.input_tokens.count(model="scripted", input=[]))
        assert e.param == "input", e


def test_helpers_of_the_sdk_understand_calls(_):
    pydantic, openai = client_module("pydantic"), client_module("openai")

    class Weather(pydantic.BaseModel):
        city: str

    with Model("hermes") as m:
        tools = [openai.pydantic_function_tool(Weather, name="weather")]
        tools = [{"type": "function", **x["function"]} for x in tools]
        with m.client.responses.stream(**dict(model="scripted", input="Weather? ", tools=tools, tool_choice="required", temperature=0, max_output_tokens=300,
                                              parallel_tool_calls=False)) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
        assert "response.function_call_arguments.delta" in kinds, kinds
        assert Weather.model_validate_json(final.output[0].arguments), final
        parsed = m.client.responses.parse(model="scripted", input="Weather? ", tools=tools, tool_choice="required", temperature=0, max_output_tokens=300,
                                          parallel_tool_calls=False)
        assert parsed.output[0].parsed_arguments == Weather(**OSLO).model_dump() or parsed.output[0].parsed_arguments == Weather(**OSLO), parsed


def test_openai_agents_run_loops_of_tools_over_responses(_):
    """The agent asks one tool, then another with what the first said, and answers."""
    agents = client_module("agents")
    first = '<tool_call>\n{"name": "find_city", "arguments": {"of": "the king"}}\n</tool_call>'
    second = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    called = []

    def find_city(of: str) -> str:
        """Find where somebody lives."""
        called.append(of)
        return "Oslo 2"

    def weather(city: str) -> str:
        """Tell the weather."""
        called.append(city)
        return "sunny R"

    with scripted({"1": first, "2": second, "R": RESULT}) as c:
        agents.set_tracing_disabled(True)
        agents.set_default_openai_client(openai_client(c, "AsyncOpenAI"), use_for_tracing=False)
        agents.set_default_openai_api("responses")
        settings = agents.ModelSettings(temperature=0, max_tokens=200)
        agent = agents.Agent(name="Weather", instructions="You help.", model="scripted", model_settings=settings,
                             tools=[agents.function_tool(find_city), agents.function_tool(weather)])

        async def run():
            got = await agents.Runner.run(agent, "How is the weather where the king lives? 1")
            assert got.final_output == RESULT and called == ["the king", "Oslo"], (got, called)
            streamed = agents.Runner.run_streamed(agent, "How is the weather where the king lives? 1")
            kinds = [event.name async for event in streamed.stream_events() if event.type == "run_item_stream_event"]
            assert streamed.final_output == RESULT and called == ["the king", "Oslo"] * 2, (streamed, called)
            assert kinds == ["tool_called", "tool_output"] * 2 + ["message_output_created"], kinds

        # pylint: disable-next=import-outside-toplevel
        import asyncio
        asyncio.run(run())


if __name__ == "__main__":
    sys.exit(client_tests.main(dict(globals())))
