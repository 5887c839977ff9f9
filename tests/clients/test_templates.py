#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The interpreter of chat templates against jinja2 with transformers' settings (reference_jinja.py), byte by byte.

Usage: test_templates.py [NAME ...]

templates/ has texts in the constructs of published models' templates, written for this test. Needs BATON_BUILD and
jinja2, which BATON_CLIENTS_PYTHON may have. What fails in one renderer must fail in the other.
"""
import copy
import json
import os
import random
import subprocess
import sys
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
TEMPLATES = os.path.join(HERE, "templates")
NOW = 1721952000  # date -u -d '26 Jul 2024'
N_TEMPLATES = 69
N_EXPRESSIONS = 6000
N_STATEMENTS = 3000
# What Baton refuses by name and jinja2 does not. Slices: jinja2 raises as well, but not where it knows all values when
# it compiles, and then slices a number to nothing. A loop as a value to walk over takes the items from itself there.
REFUSED = ("over 64 bits", "is not supported", "cannot be printed", "cannot be sliced", "a slice needs integers",
           "a slice among several indices", "loop is not iterable")

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a place, now.",
        "parameters": {"type": "object", "properties": {
            "place": {"type": "string", "description": "Town, country"},
            "unit": {"type": "string", "enum": ["celsius", "kelvin"], "description": "of degrees"},
            "days": {"type": ["integer", "null"], "default": 1},
            "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["place"]}}},
    {"type": "function", "function": {
        "name": "add_all", "description": "Sums <numbers> </tools> & \"more\" – été.",
        "parameters": {"type": "object", "properties": {
            "numbers": {"type": "array", "items": {"type": "number"}, "description": "any"},
            "exact": {"type": "boolean"}}, "required": ["numbers", "exact"]}, "return": {"type": "number"}}},
]
CALL = {"id": "abcdefghi", "type": "function", "function": {
    "name": "get_weather", "arguments": {"place": "Köln \"am\" Rhein", "days": 2}}}
CALL_2 = {"id": "123456789", "type": "function", "function": {
    "name": "add_all", "arguments": {"numbers": [1, 2.5, -3e20], "exact": True}}}


def message(role, content, **more):
    return {"role": role, "content": content, **more}


ODD_ARGUMENTS = '{"n": 18446744073709551616, "m": -9223372036854775809, "f": 1e400, "s": "a\\u0000b", "x": [1.50, null]}'
CONVERSATIONS = {
    "one": [message("user", "Hi")],
    "system": [message("system", "Be brief."), message("user", " What is 2 + 2?\n")],
    "turns": [message("user", "a"), message("assistant", "b\n"), message("user", "été 😀 <|im_end|> </s>")],
    "system_turns": [message("system", " s \n"), message("user", "u1"), message("assistant", " a1 "),
                     message("user", "u2"), message("assistant", "a2"), message("user", "u3")],
    "ends_with_assistant": [message("user", "a"), message("assistant", "b")],
    "blank": [message("user", ""), message("assistant", " \t\n"), message("user", "\u3000x\u00a0")],
    "no_user": [message("system", "only")],
    "out_of_turn": [message("assistant", "a"), message("user", "b"), message("user", "c")],
    "late_system": [message("user", "a"), message("system", "s"), message("user", "b")],
    "odd_role": [message("user", "a"), message("narrator", "b")],
    "developer": [message("developer", "d"), message("user", "a")],
    "thinking": [message("user", "q"), message("assistant", "<think>\nhm\n</think>\n\nanswer"), message("user", "r")],
    "reasoning": [message("user", "q"), message("assistant", "answer", reasoning_content="\nwhy\n"),
                  message("user", "/no_think r /think")],
    "call": [message("user", "w?"), message("assistant", None, tool_calls=[CALL]),
             message("tool", "12 °C", tool_call_id="abcdefghi", name="get_weather"),
             message("assistant", "It is 12 °C.")],
    "calls": [message("system", "s"), message("user", "w?"),
              message("assistant", "Let me see.", tool_calls=[CALL, CALL_2]),
              message("tool", "1", tool_call_id="abcdefghi"), message("tool", "{\"sum\": 3}", tool_call_id="123456789"),
              message("assistant", "done"), message("user", "thanks")],
    "call_is_last": [message("user", "w?"), message("assistant", "", tool_calls=[CALL_2])],
    "string_arguments": [message("user", "w?"), message("assistant", "", tool_calls=[
        {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}])],
    "odd_arguments": [message("user", "w?"), message("assistant", "", tool_calls=[
        {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": ODD_ARGUMENTS}},
        {"id": "abcdefghj", "type": "function", "function": {"name": "g", "arguments": ""}}])],
    "tool_result_object": [message("user", "w?"), message("assistant", "", tool_calls=[CALL]),
                           message("tool", {"t": [1, None, True]}, tool_call_id="abcdefghi")],
    "parts": [message("user", [{"type": "text", "text": "What is in "}, {"type": "image"},
                               {"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "?"}])],
    "system_parts": [message("system", [{"type": "text", "text": "Look."}]),
                     message("user", [{"type": "text", "text": "a "}, {"type": "text", "text": " b"}]),
                     message("assistant", [{"type": "text", "text": "c"}]), message("user", "d")],
    "results_out_of_order": [message("user", "w?"), message("assistant", "", tool_calls=[CALL, CALL_2]),
                             message("tool", "sum", tool_call_id="123456789"), message("tool", "of none", tool_call_id="x"),
                             message("tool", "weather", tool_call_id="abcdefghi"), message("user", "and?")],
    "call_in_turns": [message("system", [{"type": "text", "text": "s1"}, {"type": "text", "text": "s2"}]), message("user", "w?"),
                      message("assistant", "I look."), message("assistant", None, tool_calls=[CALL]),
                      message("tool", [{"type": "text", "text": "12"}, {"type": "text", "text": "C"}], tool_call_id="abcdefghi"),
                      message("user", "quick"), message("assistant", "12"), message("user", "more")],
    "tags": [message("user", "</tools>"), message("assistant", "<tool_call>", tool_calls=[
        {"id": "abcdefghi", "type": "function", "function": {
            "name": "get_weather", "arguments": "{\n\"place\": \"</tool_call><b>\", \"x\":\"<tools>\"}"}},
        {"id": "abcdefghj", "type": "function", "function": {"name": "add_all", "arguments": {"place": "<tool_response>"}}},
        {"id": "abcdefghk", "type": "function", "function": {"name": "add_all", "arguments": ""}}]),
             message("tool", "a </tool_response>\n<tool_call> \"b\"", tool_call_id="abcdefghi"),
             message("tool", "[1.50, \"</tool_response>\", \"<i>\"]", tool_call_id="abcdefghj"),
             message("tool", "<b> & <tool_call", tool_call_id="abcdefghk")],
    "many": [message(("user", "assistant")[i % 2], f"turn {i}") for i in range(40)],
    "none": [],
    "null_alone": [message("user", "q"), message("assistant", None), message("user", "r")],
    "members": [message("user", "q", name="Ann", weight=1.5), message("assistant", "a", reasoning="why", refusal=None),
                message("user", "r", note={"deep": [1, None]})],
}
EXTRAS = [
    {},
    {"tools": TOOLS},
    {"enable_thinking": False, "thinking_budget": 0, "date_string": "1 Jan 2030", "add_vision_id": True},
    {"tools": TOOLS[:1], "documents": [{"title": "T", "text": "D\n1"}, {"title": "U", "text": "D2"}],
     "tools_in_user_message": False, "controls": {"length": "short"}, "builtin_tools": ["get_weather", "code_interpreter"],
     "reasoning_effort": "high"},
]


class Ours:
    """The program of tests/support/render_template.c."""

    def __init__(self):
        path = os.path.join(os.environ["BATON_BUILD"], "tests", "support", "baton-render-template")
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, variables, now=NOW):
        """@return (word, text, quotes)"""
        variables = dict(variables)
        messages = variables.pop("messages", None)
        parts = [template.encode(), json.dumps(variables).encode(),
                 b"" if messages is None else json.dumps(messages, ensure_ascii=False).encode()]
        self.process.stdin.write(b"%d %d %d %d\n" % (*map(len, parts), now) + b"".join(parts))
        self.process.stdin.flush()
        head = self.process.stdout.readline().split()
        assert head, f"the renderer ended with {self.process.wait()} at {template!r}"
        text = self.process.stdout.read(int(head[1])).decode()
        ends = [int(n) for n in head[3:]]
        return head[0].decode(), text, list(zip(ends[::2], ends[1::2]))

    def end(self):
        self.process.stdin.close()
        code = self.process.wait()
        assert code == 0, code


def arguments_as(variables, change):
    """The variables with `change` of each call's arguments that are a text."""
    messages = copy.deepcopy(variables.get("messages"))
    for call in (c for m in messages or [] if isinstance(m, dict) for c in m.get("tool_calls") or []):
        if isinstance(call["function"]["arguments"], str):
            call["function"]["arguments"] = change(call["function"]["arguments"] or "{}")
    return {**variables, "messages": messages}


def rendered(template, variables, now=NOW):
    """@return the text, or None where it fails"""
    import reference_jinja
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return reference_jinja.render(template, variables, now), None
    except Exception as error:  # pylint: disable=broad-except
        return None, f"{type(error).__name__}: {error}"


def reference(template, variables, now=NOW):
    """Arguments of calls that are a text of JSON are read first, as vLLM does; where a template joins or
    prints them, which Python does with no object, or as none that is JSON, they are the text, as
    transformers passes them."""
    if "messages" not in variables:
        return rendered(template, variables, now)
    as_objects = arguments_as(variables, json.loads)
    text, error = rendered(template, as_objects, now)
    objects = [c["function"]["arguments"] for m in as_objects["messages"] or [] if isinstance(m, dict)
               for c in m.get("tool_calls") or []]
    if as_objects["messages"] != variables["messages"] and (error or any(o and repr(o) in text for o in objects)):
        return rendered(template, arguments_as(variables, lambda sent: sent), now)
    return text, error


def difference(ours, template, variables):
    """@return why the two do not agree, or None; and whether both gave a text"""
    want, error = reference(template, variables)
    word, got, _ = ours.render(template, variables)
    if word == "ok" and want == got:
        return None, True
    if word != "ok" and want is None:
        return None, False
    if want is not None and (" at 0x" in want or any(r in got for r in REFUSED)):
        return None, False
    return f"jinja2 {(want, error)!r}\nours   {(word, got)!r}", False


def all_templates():
    names = sorted(n for n in os.listdir(TEMPLATES) if n.endswith(".jinja"))
    for name in names:
        with open(os.path.join(TEMPLATES, name), encoding="utf-8") as file:
            yield name[:-6], file.read()


def all_variables():
    for name, messages in CONVERSATIONS.items():
        for i, extra in enumerate(EXTRAS):
            for prompt in (True, False):
                yield f"{name}/{i}/{prompt}", {
                    "tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>",
                    **extra, "messages": messages, "add_generation_prompt": prompt}


def served_difference(served, shown, name, variables):
    """As difference(), for messages that go through HTTP; what is no variable of ours is chat_template_kwargs."""
    import served_templates
    messages, tools = variables["messages"], variables["tools"]
    kwargs = {k: v for k, v in variables.items() if k not in (
        "messages", "tools", "documents", "bos_token", "eos_token", "add_generation_prompt")}
    got, error = served.prompt(name, messages=messages, tools=tools, documents=variables["documents"],
                               add_generation_prompt=variables["add_generation_prompt"], chat_template_kwargs=kwargs)
    if not served_templates.is_served(messages):
        return (f"taken: {got!r}", False) if error is None else (None, False)
    sent = [dict(m, content=[{"type": "text", "text": p["refusal"]} if p["type"] == "refusal" else p for p in m["content"]])
            if isinstance(m.get("content"), list) else m for m in messages]
    told = dict(variables, tools=tools if shown.tools else None,
                messages=[shown.message(m) for m in shown.with_tools_as_text(sent, tools)])
    want, why = reference(shown.template, told, shown.now)
    if want != got and "strftime_now" in shown.template:
        shown.now = int(time.time())  # it may be another day by now
        want, why = reference(shown.template, told, shown.now)
    if want == got:
        return None, got is not None
    return f"jinja2 {(want, why)!r}\nserved {(got, error)!r}", False


def test_templates_render_as_transformers_renders_them(_):
    """Every conversation with every template, with and without a generation prompt: over HTTP, in and out."""
    import served_templates
    templates = dict(all_templates())
    assert len(templates) >= N_TEMPLATES, len(templates)
    n_texts = n_all = 0
    n_as_text = 0
    with served_templates.Served(templates, "--tool-call-parser", "hermes") as served:
        for name, template in templates.items():
            shown = served_templates.Shown(template)
            n_as_text += not shown.tools
            n_mine = 0
            for label, variables in all_variables():
                why, rendered = served_difference(served, shown, name, variables)
                assert why is None, f"{name} {label}\n{why}"
                n_mine += rendered
                n_all += 1
            assert n_mine >= 20, f"{name}: {n_mine} conversations only are rendered at all"
            n_texts += n_mine
    assert n_as_text > 30, n_as_text  # and they are shown tools as text
    print(f"{len(templates)} templates, {n_as_text} of them without tools, {n_all} requests, {n_texts} of them texts")


# For messages that templates of text models have no place for. name: (template, messages, prompt, header)
USER = message("user", "q")
SENT = {
    "names": ("{% for m in messages %}{{ m.role }} {{ m.name }} {{ m.x.y | tojson }} {{ m.content }}|{% endfor %}",
              [message("observer", "q", name="Ann", x={"y": [1.0, None, True], "z": 1}, unheard="of")],
              "observer Ann [1.0, null, true] q|", "messages[0].x.z, messages[0].unheard"),
    "dropped": ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
                [message("system", "s"), USER], "q", "messages[0].content"),
    "thought": ("{% for m in messages %}{{ m.reasoning_content }}/{{ m.content }}|{% endfor %}",
                [USER, message("assistant", "a", reasoning="why")], "/q|why/a|", ""),
    "thought_too": ("{% for m in messages %}{{ m['reasoning'] }}/{{ m.content }}|{% endfor %}",
                    [USER, message("assistant", "a", reasoning_content="why")], "/q|why/a|", ""),
    "unthought": ("{% for m in messages %}{{ m.content }}|{% endfor %}",
                  [USER, message("assistant", "a", reasoning_content="why", refusal=None, annotations=[])],
                  "q|a|", "messages[1].reasoning_content"),
    "calls": ("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}|{% endfor %}",
              [USER, message("assistant", None, tool_calls=[CALL, dict(CALL, more=1)]), message("assistant", "b", tool_calls=[])],
              "q|get_weatherget_weather|b|",
              "messages[1].tool_calls[0].function.arguments, messages[1].tool_calls[1].function.arguments, "
              "messages[1].tool_calls[1].more"),
    "developer": ("{% for m in messages %}{{ m.role }} {{ m.content }}|{% endfor %}",
                  [message("developer", "d"), USER], "system d|user q|", ""),
    "developers": ("{# developer #}{% for m in messages %}{{ m.role }} {{ m.content }}|{% endfor %}",
                   [message("developer", "d"), USER], "developer d|user q|", ""),
    "joined": ("{% for m in messages %}{{ m.content }}|{% endfor %}",
               [message("user", [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                                 {"type": "refusal", "refusal": "b"}])], "a\nb|", "messages[0].content[0].cache_control"),
    "one_part": ("{% for m in messages %}{{ m.content[0].text }}|{% endfor %}",
                 [message("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), USER], "a\nb|q|", ""),
    "any_form": ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
                 "<{{ p.text }}>{% endfor %}{% endif %}|{% endfor %}",
                 [USER, message("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), USER],
                 "q|<a><b>|q|", ""),
    "zero": ("{% for m in messages %}{{ m.content }}|{% endfor %}", [message("user", "a\0b")], "a\0b|", ""),
}


def test_messages_reach_the_template_as_they_were_sent(_):
    """And what it does not look at is named in a header. Prompts: as jinja2 renders these messages; by hand."""
    import served_templates
    with served_templates.Served({name: row[0] for name, row in SENT.items()}) as served:
        for name, (template, messages, prompt, header) in SENT.items():
            got, error = served.prompt(name, messages=messages)
            assert got == prompt, (name, got, error)
            shown = served_templates.Shown(template)
            assert prompt == reference(template, {"messages": [shown.message(m) for m in messages]})[0], name
            assert served.ignored == header, (name, served.ignored)
        # At every depth of the body, and as much as a header may have.
        more = {"chat_template_kwargs": {"known": 1, "unheard": 2}, "documents": [{"x": 1}], "unheard": {"of": 1},
                "tool_choice": {"type": "function", "function": {"name": "f", "x": 1}, "y": 1},
                "tools": [{"type": "function", "function": {"name": "f", "strict": True, "strict2": 1}}]}
        got, error = served.prompt("unthought", messages=[USER], **more)
        assert got == (served_templates.BEFORE_TOOLS + json.dumps(more["tools"][0]) + served_templates.BEHIND_TOOLS
                       + '|q|<tool_call>\n{"name": "f", "arguments": '), (got, error)
        assert served.ignored == "unheard, tool_choice.y, tool_choice.function.x, documents, chat_template_kwargs.known, chat_template_kwargs.unheard", served.ignored
    tools = ("{% for t in tools or [] %}{{ t.function.name }}{{ known }}{% endfor %}"
             "{% for m in messages %}{{ m.content }}{% endfor %}")
    with served_templates.Served({"tools": tools}, "--tool-call-parser", "hermes") as served:
        got, error = served.prompt("tools", messages=[USER], **more)
        assert got and got.startswith("f1q"), (got, error)
        assert served.ignored == (
            "unheard, tool_choice.y, tool_choice.function.x, tools[0].function.strict2, documents, "
            "chat_template_kwargs.unheard"), served.ignored
        many = [message("user", "q", **{f"unheard{k}": 1 for k in range(100)})] * 3
        assert served.prompt("tools", messages=many)[0] == "qqq"
        assert 900 < len(served.ignored) <= 1024 and served.ignored.endswith(", ..."), served.ignored


def test_items_of_a_response_are_messages_of_a_chat(_):
    """What was reasoned is the next message's reasoning_content. A template that raises tells what it was given."""
    import served_templates
    text = ("{% set all %}{% for m in messages %}{{ m.role }} {{ m.reasoning_content }}/{{ m.content }}|{% endfor %}{% endset %}"
            "{{ raise_exception(all) }}")
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "why"}]}
    answer = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "a", "annotations": [], "logprobs": []}, {"type": "refusal", "refusal": "no"}]}
    asked = {"role": "user", "content": [{"type": "input_text", "text": "q", "x": 1}], "y": 1}
    with served_templates.Served({"text": text}) as served:
        for body, prompt, header in (
                ({"input": "q"}, "user /q|", ""),
                ({"input": "q", "instructions": "i"}, "system /i|user /q|", ""),
                ({"input": [asked, reasoning, answer, asked], "instructions": "i"},
                 "system /i|user /q|assistant why/a\nno|user /q|",
                 "input[0].y, input[0].content[0].x, input[3].y, input[3].content[0].x"),
                ({"input": [reasoning, USER], "text": {"format": {"type": "text", "x": 1}, "verbosity": "low"}},
                 "user /q|", "input[0], text.format.x")):
            status, head, data = served.ask("text", "/v1/responses", **body)
            assert status == 400 and data["error"]["message"] == "messages: " + prompt, (body, data)
            named = [line.split(": ", 1)[1] for line in head.split("\r\n") if line.lower().startswith("x-baton-ignored")]
            assert named == [header] * bool(header), (body, named)


def test_unused_template_variables_are_an_error_on_request(_):
    import served_templates
    text = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with served_templates.Served({"text": text}, "--unknown-fields", "error") as served:
        assert served.prompt("text", messages=[USER])[0] == "q"
        for more, name in (({"x": 1}, "x"), ({"messages": [dict(USER, unheard="Ann")]}, "messages[0].unheard")):
            got, error = served.prompt("text", **dict({"messages": [USER]}, **more))
            assert got is None and error == f"not known here: {name}", (got, error)
    with served_templates.Served({"text": text}, "--unknown-fields", "ignore") as served:
        assert served.prompt("text", messages=[dict(USER, x=1)])[0] == "q" and served.ignored == "", served.ignored


def test_content_format_is_that_of_the_option(_):
    """As vLLM's option of the same name: string and openai."""
    import served_templates
    form = "{% for m in messages %}{{ m.content | tojson }}|{% endfor %}"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [USER, message("user", parts)]
    for option, prompt in (("string", '"q"|"a\\nb"|'), ("auto", '"q"|"a\\nb"|'),
                           ("openai", f'{json.dumps([{"type": "text", "text": "q"}])}|{json.dumps(parts)}|')):
        with served_templates.Served({"form": form}, "--chat-template-content-format", option) as served:
            assert served.prompt("form", messages=messages)[0] == prompt, (option, served.prompt("form", messages=messages))
    try:
        with served_templates.Served({"form": form}, "--chat-template", "chatml", "--chat-template-content-format", "openai"):
            raise AssertionError("a family has got lists")
    except AssertionError as why:
        assert "chat-template chatml supports only strings" in str(why), why


def test_random_expressions_equal_jinja2(ours):
    import template_fuzz
    chance = random.Random(20261124)
    n_texts = 0
    for _ in range(N_EXPRESSIONS):
        template = "{{ " + template_fuzz.expression(chance, 3) + " }}"
        why, rendered = difference(ours, template, template_fuzz.VARIABLES)
        assert why is None, f"{template}\n{why}"
        n_texts += rendered
    assert n_texts > N_EXPRESSIONS // 4, n_texts


def test_random_blocks_equal_jinja2(ours):
    import template_fuzz
    chance = random.Random(20261125)
    n_texts = 0
    for _ in range(N_STATEMENTS):
        template = template_fuzz.statements(chance, 2)
        why, rendered = difference(ours, template, template_fuzz.VARIABLES)
        assert why is None, f"{template!r}\n{why}"
        n_texts += rendered
    assert n_texts > N_STATEMENTS // 4, n_texts


def runes(text):
    """Each of its letters and signs as one of Old Italic, which no template has; white space stays."""
    return "".join(c if c.isspace() else chr(0x10300 + ord(c) % 32) for c in text)


def in_runes(value, key=""):
    if isinstance(value, str):
        return value if key in ("role", "type") else runes(value)
    if isinstance(value, list):
        return [in_runes(v) for v in value]
    if isinstance(value, dict):
        return {k: in_runes(v, k) for k, v in value.items()}
    return value


def test_client_text_is_quoted_in_every_template(ours):
    """Contents in letters that templates have not: each such byte of a rendering must lie in a quote, and no byte of a
    special token that the template spells itself."""
    n_runes = n_tokens = 0
    for name, template in all_templates():
        for label, variables in all_variables():
            told = {**variables, "messages": in_runes(variables["messages"])}
            word, text, quotes = ours.render(template, told)
            if word != "ok":
                continue
            data = text.encode()
            quoted = bytearray(len(data))
            for begin, end in quotes:
                quoted[begin:end] = b"\1" * (end - begin)
            at = 0
            for char in text:
                n = len(char.encode())
                if 0x10300 <= ord(char) < 0x10320:
                    n_runes += 1
                    assert quoted[at:at + n] == b"\1" * n, f"{name} {label}: byte {at} of {text!r}"
                at += n
            for token in ("<|im_start|>", "<|im_end|>", "<|eot_id|>", "[INST]", "<start_of_turn>", "<|assistant|>"):
                begin = data.find(token.encode())
                while begin >= 0:
                    n_tokens += 1
                    assert not any(quoted[begin:begin + len(token)]), f"{name} {label}: {token} at {begin} of {text!r}"
                    begin = data.find(token.encode(), begin + 1)
    assert n_runes > 10000 and n_tokens > 1000, (n_runes, n_tokens)


def main():
    other = os.environ.get("BATON_CLIENTS_PYTHON", "")
    if other and os.path.realpath(os.path.dirname(other)) != os.path.realpath(os.path.dirname(sys.executable)):
        os.execv(other, [other] + sys.argv)
    tests = [(n, t) for n, t in globals().items() if n.startswith("test_") and (
        len(sys.argv) == 1 or any(w in n for w in sys.argv[1:]))]
    try:
        import jinja2  # noqa: F401  pylint: disable=unused-import
    except ImportError as why:
        print(f"skip: {why}\n0 passed, 0 failed, {len(tests)} skipped")
        return 77
    failed = 0
    for name, test in tests:
        ours = Ours()
        try:
            test(ours)
            ours.end()
            print(f"ok {name}", flush=True)
        except Exception:  # pylint: disable=broad-except
            failed += 1
            ours.process.kill()
            traceback.print_exc(file=sys.stdout)
            print(f"not ok {name}", flush=True)
    print(f"{len(tests) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
