# SPDX-License-Identifier: Apache-2.0
"""Calls of tools and thinking parts, with the grammar that each asks for, through real processes.

The model has random weights, so nothing but the grammar makes a call fit its tool."""
import concurrent.futures
import json
import os
import tempfile

from harness import PACED, Cluster, tiny_model, wait_until

CHAT = "/v1/chat/completions"
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 5}},
        "required": ["city", "days"], "additionalProperties": False}
OPEN = {"type": "object", "properties": {"zone": {"type": "string", "maxLength": 6}}, "required": ["zone"], "maxProperties": 1}
TOOLS = [{"type": "function", "function": {"name": "weather", "strict": True, "parameters": CITY}},
         {"type": "function", "function": {"name": "time", "parameters": OPEN}}]
TEMPLATE = ("{% for t in tools or [] %}{{ t | tojson }}<tool_call>{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
            "{% if opening == 'open' %}<think>\n{% elif opening == 'closed' %}<think>\n\n</think>\n\n{% endif %}")


def cluster(d, parser="hermes", reasoning="off", thinks=False, **more):
    model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=1024, seed=11, **({"thinks": True} if thinks else {}))
    path = os.path.join(d, "template.jinja")
    with open(path, "w", encoding="utf-8") as f:
        f.write(TEMPLATE)
    return Cluster(model, kv_memory="32m", router_args=["--chat-template", path, "--tool-call-parser", parser, "--reasoning-parser", reasoning],
                   **more)


def ask(c, seed, **more):
    body = dict({"messages": [{"role": "user", "content": f"call {seed}"}], "max_tokens": 400, "temperature": 1.5, "seed": seed}, **more)
    status, answer = c.post(CHAT, body, timeout=600)
    assert status == 200, (more, answer)
    return answer["choices"][0]


def fits(call):
    arguments = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "weather":
        return set(arguments) == {"city", "days"} and arguments["city"] in ("Rome", "Oslo") and arguments["days"] in range(1, 6)
    return call["function"]["name"] == "time" and set(arguments) == {"zone"} and len(arguments["zone"]) <= 6


def calls_of(choice):
    calls = choice["message"].get("tool_calls") or []
    for call in calls:
        assert fits(call), choice
    return calls


def test_required_calls_have_arguments_that_fit_in_every_form():
    named = {"type": "function", "function": {"name": "weather"}}
    for parser in ("hermes", "mistral", "llama3"):
        with tempfile.TemporaryDirectory() as d, cluster(d, parser) as c:
            for seed in range(12):
                choice = ask(c, seed, tools=TOOLS, tool_choice="required")
                assert choice["finish_reason"] in ("tool_calls", "length"), (parser, choice)
                if choice["finish_reason"] == "tool_calls":
                    assert calls_of(choice) and not choice["message"]["content"], (parser, choice)
                choice = ask(c, seed, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
                assert choice["finish_reason"] == "tool_calls" and len(calls_of(choice)) == 1, (parser, choice)
                choice = ask(c, seed, tools=TOOLS, tool_choice=named)
                assert choice["finish_reason"] == "tool_calls", (parser, choice)
                assert [x["function"]["name"] for x in calls_of(choice)] == ["weather"], (parser, choice)
            # An answer that goes on as long as it can has several; the last one may be cut.
            n_several = 0
            for seed in range(8):
                choice = ask(c, seed, tools=TOOLS, tool_choice="required", ignore_eos=True)
                calls = choice["message"]["tool_calls"]
                assert all(fits(x) for x in calls[:-1]), (parser, choice)
                n_several += len(calls) > 1
            assert n_several > 0, parser
            c.wait_idle()


def test_harmony_messages_are_a_fitting_call_or_a_fitting_answer():
    fmt = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": CITY}}
    with tempfile.TemporaryDirectory() as d, cluster(d, "harmony", "harmony") as c:
        ends = set()
        for seed in range(12):
            for choice_of, names in (("required", {"weather", "time"}), ({"type": "function", "function": {"name": "weather"}}, {"weather"})):
                choice = ask(c, seed, tools=TOOLS, tool_choice=choice_of)
                assert choice["finish_reason"] == "tool_calls" and not choice["message"]["content"], choice
                (call,) = calls_of(choice)
                assert call["function"]["name"] in names, choice
            for more in ({}, {"tools": TOOLS}):
                choice = ask(c, seed, response_format=fmt, **more)
                ends.add(choice["finish_reason"])
                if choice["finish_reason"] == "tool_calls":
                    assert calls_of(choice) and more, choice
                elif choice["finish_reason"] == "stop":
                    assert set(json.loads(choice["message"]["content"])) == {"city", "days"}, choice
            choice = ask(c, seed, tools=TOOLS, max_tokens=60)
            if choice["finish_reason"] == "tool_calls":
                calls_of(choice)
        assert {"stop", "tool_calls"} <= ends, ends
        c.wait_idle()


def test_answers_with_a_description_and_tools_are_one_or_the_other():
    fmt = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": CITY}}
    with tempfile.TemporaryDirectory() as d, cluster(d) as c:
        kinds = set()
        for seed in range(30):
            choice = ask(c, seed, tools=TOOLS, response_format=fmt)
            assert choice["finish_reason"] in ("stop", "tool_calls", "length"), choice
            kinds.add(choice["finish_reason"])
            if choice["finish_reason"] == "tool_calls":
                assert calls_of(choice), choice
            if choice["finish_reason"] == "stop":
                assert set(json.loads(choice["message"]["content"])) == {"city", "days"}, choice
        assert {"stop", "tool_calls"} <= kinds, kinds
        choice = ask(c, 1, tools=TOOLS, response_format=fmt, tool_choice="none")
        assert set(json.loads(choice["message"]["content"])) == {"city", "days"}, choice
        c.wait_idle()


def test_text_beside_strict_tools_is_free():
    with tempfile.TemporaryDirectory() as d, cluster(d) as c:
        for seed in range(5):
            choice = ask(c, seed, tools=TOOLS, max_tokens=40)
            calls_of(choice)
            if choice["finish_reason"] == "length":
                assert choice["message"]["content"], choice
        c.wait_idle()
        assert c.total("baton_grammar_compilations_total", kind="structural_tag", result="ok") == 1
        # Without a strict tool nothing is held, and nothing is compiled.
        ask(c, 1, tools=TOOLS[1:], max_tokens=20)
        c.wait_idle()
        assert c.total("baton_grammar_compilations_total") == 1


def test_thinking_comes_first_and_the_description_holds_behind_it():
    with tempfile.TemporaryDirectory() as d, cluster(d, reasoning="think", thinks=True) as c:
        for seed in range(6):
            # The budget closes the part; random weights hardly do.
            more = dict(guided_regex="[ab]{3}", chat_template_kwargs={"opening": "open"}, thinking_token_budget=9)
            choice = ask(c, seed, **more)
            assert choice["finish_reason"] == "stop", choice
            assert choice["message"]["reasoning_content"] and len(choice["message"]["content"]) == 3, choice
            assert set(choice["message"]["content"]) <= set("ab"), choice
            # A prompt that has closed it: no thinking.
            choice = ask(c, seed, guided_regex="[ab]{3}", chat_template_kwargs={"opening": "closed"})
            assert choice["finish_reason"] == "stop" and set(choice["message"]["content"]) <= set("ab"), choice
            assert not choice["message"].get("reasoning_content"), choice
            # The answer may open it by itself.
            choice = ask(c, seed, guided_regex="[ab]{3}", thinking_token_budget=9)
            assert choice["finish_reason"] == "stop" and len(choice["message"]["content"]) == 3, choice
        choice = ask(c, 1, guided_regex="[ab]{3}", chat_template_kwargs={"opening": "open"}, max_tokens=20)
        assert choice["finish_reason"] == "length" and not choice["message"]["content"], choice
        choice = ask(c, 1, tools=TOOLS, response_format={"type": "json_object"}, chat_template_kwargs={"opening": "open"},
                        thinking_token_budget=5, max_tokens=500)
        assert choice["message"]["reasoning_content"], choice
        if choice["finish_reason"] == "tool_calls":
            assert calls_of(choice), choice
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["message"]["content"]), dict), choice
        # A forced call ends the thinking part.
        choice = ask(c, 1, tools=TOOLS, tool_choice="required", chat_template_kwargs={"opening": "open"}, parallel_tool_calls=False)
        assert choice["finish_reason"] == "tool_calls" and len(calls_of(choice)) == 1, choice
        c.wait_idle()


def test_calls_are_the_same_with_drafts_and_after_a_death():
    body = dict(tools=TOOLS, tool_choice="required")
    with tempfile.TemporaryDirectory() as d:
        with cluster(d, worker_args=["--draft", "off"]) as c:
            want = [ask(c, seed, **body) for seed in range(6)]
            longest = ask(c, 3, ignore_eos=True, **body)
            c.wait_idle()
        for choice in want:
            calls_of(choice)

        def parts(choice):
            return choice["finish_reason"], [x["function"] for x in choice["message"].get("tool_calls") or []]

        for options in (dict(worker_args=["--draft-tokens", "4"]), dict(prefill=0, decode_args=["--local-prefill"])):
            with cluster(d, **options) as c:
                assert [parts(ask(c, seed, **body)) for seed in range(6)] == [parts(x) for x in want], options
                c.wait_idle()
        with cluster(d, decode=2, worker_args=PACED) as c, concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask, c, 3, ignore_eos=True, **body)

            def serving():
                return [p for p in c.decodes if c.metric("baton_worker_active_requests", worker=p.name) > 0]

            wait_until("a worker has the request", lambda: c.total("baton_generation_tokens_total") > 5 and serving())
            serving()[0].kill()
            assert parts(answer.result()) == parts(longest)


def test_tools_that_cannot_be_held_are_refused_in_openais_words():
    def tool(schema, strict=True):
        return [{"type": "function", "function": {"name": "f", "strict": strict, "parameters": schema}}]

    remote = dict(CITY, properties={"city": {"$ref": "http://example.com/a"}, "days": {}})
    with tempfile.TemporaryDirectory() as d, cluster(d) as c:
        for schema, text in (({"type": "object", "properties": {}}, "In context=(), 'additionalProperties' is required to be supplied and to be false."),
                             (dict(CITY, required=["city"]), "Missing 'days'."),
                             (remote, "/properties/city/$ref: references to other documents are not supported")):
            status, answer = c.post(CHAT, {"messages": [{"role": "user", "content": "x"}], "tools": tool(schema)})
            assert status == 400 and answer["error"]["param"] == "tools", answer
            assert answer["error"]["message"].startswith("Invalid schema for function 'f': ") and text in answer["error"]["message"], answer
        # The tool at fault is named, whichever it is, and whatever asks for it.
        good = [dict(tool(CITY)[0], function=dict(tool(CITY)[0]["function"], name=f"good{i}")) for i in range(1)]
        for more in ({}, {"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}):
            status, answer = c.post(CHAT, dict(more, messages=[{"role": "user", "content": "x"}], tools=good + tool(remote)))
            assert status == 400 and answer["error"]["message"].startswith("Invalid schema for function 'f': /properties/city/$ref: "), answer
        # A tool that is not strict is called with any object then.
        choice = ask(c, 1, tools=tool(remote, False), tool_choice="required", parallel_tool_calls=False, max_tokens=500)
        if choice["finish_reason"] == "tool_calls":
            assert isinstance(json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]), dict), choice
        c.wait_idle()
    with tempfile.TemporaryDirectory() as d, cluster(d, "pythonic") as c:
        body = {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS, "max_tokens": 3}
        status, headers, _ = c.request("POST", CHAT, body)[:3]
        assert status == 200 and dict(headers).get("X-Baton-Ignored-Fields") == "tools.function.strict", headers
        status, answer = c.post(CHAT, dict(body, guided_choice=["a"]))
        assert status == 400 and "tools together are not supported with this model's tool calls" in answer["error"]["message"], answer
