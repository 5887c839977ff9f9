#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Structured output by the libraries that its users have: langchain-openai, instructor, pydantic-ai, openai-agents and
tritonclient, each with the cases of its own documentation, in each of its modes, whole and streamed. Only the address and the
model are ours, and a temperature of 0 for the default model.

The default model answers what it can (with a template of tools laid over it: greedy, it is the same everywhere). What it
cannot, a model of scripted_model.py says as the documentation prints it. That a grammar held each of the answers, and not luck,
is what the router and the workers count.

Usage: test_structured_clients.py [NAME ...]

Needs the variables of test_clients.py and what setup/clients.txt names.
"""
import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
import typing

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
from test_clients import client_module, expect, url  # noqa: E402
from test_examples import at, line_of, run  # noqa: E402

MODEL = "tiny"
TEMPLATE = os.path.join(HERE, "templates", "qwen2_5_tools.jinja")


def answer(value):
    return json.dumps(value, ensure_ascii=False)


# What the prompt holds last, and what is said then: the answers that the libraries' documentations print.
WEATHER = {"city": "Tokyo", "temperature_range": "14-20C", "conditions": "Sunny with wind."}
SCRIPTS = {
    "Make sure to return a JSON blob": ("J", answer({"answer": "They are both the same weight.", "justification": "Both weigh a pound."})),
    "What is a Ford Explorer?": ("F", answer({"result": {"kind": "Vehicle", "data": {"name": "Ford Explorer", "wheels": 4}}})),
    "What is a MacBook?": ("M", answer({"result": {"kind": "Device", "data": {"name": "MacBook", "kind": "laptop"}}})),
    "go to a science fair": ("C", answer({"name": "Science fair", "date": "Friday", "participants": ["Alice", "Bob"]})),
    "What's the weather in Tokyo?": ("T", f'<tool_call>\n{answer({"name": "get_weather", "arguments": {"city": "Tokyo"}})}\n</tool_call>'),
    "John is 25 years old": ("U", answer({"name": "John", "age": 25})),
    "Sunny with wind.": ("R", answer(WEATHER)),
}
# Where a call is forced the prompt ends with its beginning: of any function, up to its name.
CALL = 'return_fruit", "arguments": ' + answer({"name": "banana", "color": "yellow"}) + "}\n</tool_call>"
SAID_LAST = ("{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}{% for m in messages %}\n{{ m.role }}: {{ m.content }}{% for c in m.tool_calls %} "
             "{{ c.function.name }}{% endfor %}{% endfor %}\n{% set said = messages[-1].content | string %}"
             + "".join("{%% if %s in said %%}%s{%% endif %%}" % (json.dumps(words), letter) for words, (letter, _) in SCRIPTS.items()))


@contextlib.contextmanager
def scripted():
    """A cluster of the model that says SCRIPTS."""
    # pylint: disable-next=import-outside-toplevel
    import scripted_model
    with tempfile.TemporaryDirectory() as folder:
        path, template = (os.path.join(folder, name) for name in ("scripted.gguf", "template.jinja"))
        scripted_model.write(path, {**dict(SCRIPTS.values()), '"': CALL}, context=4096)
        with open(template, "w", encoding="utf-8") as f:
            f.write(SAID_LAST)
        with harness.Cluster(path, router_args=["--chat-template", template, "--tool-call-parser", "hermes", "--served-model-name", MODEL]) as c:
            yield c


@contextlib.contextmanager
def server(c):
    """The libraries find it as they find OpenAI's, and report to nobody."""
    ours = {"OPENAI_BASE_URL": url(c) + "/v1", "OPENAI_API_KEY": "none", "LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def held(c, n, kind="json_schema"):
    """What is asked within are n requests that grammars held, of such descriptions; those of tools are structural tags."""
    def count():
        return c.total("baton_grammar_compilations_total", result="ok") + c.total("baton_grammar_cache_hits_total")

    before = count()
    yield
    assert count() - before == n, (count() - before, n)
    assert c.total("baton_grammar_compilations_total", kind=kind, result="ok"), kind


def classes():
    """The types that the documentations' cases ask for."""
    pydantic = client_module("pydantic")

    class User(pydantic.BaseModel):
        name: str
        age: int

    class AnswerWithJustification(pydantic.BaseModel):
        """An answer to the user question along with justification for the answer."""
        answer: str
        justification: typing.Optional[str] = pydantic.Field(default=..., description="A justification for the answer.")

    class Fruit(pydantic.BaseModel):
        name: str
        color: str

    class Vehicle(pydantic.BaseModel):
        name: str
        wheels: int

    class Device(pydantic.BaseModel):
        name: str
        kind: str

    class CalendarEvent(pydantic.BaseModel):
        name: str
        date: str
        participants: typing.List[str]

    class Weather(pydantic.BaseModel):
        city: str
        temperature_range: str
        conditions: str

    return {one.__name__: one for one in (User, AnswerWithJustification, Fruit, Vehicle, Device, CalendarEvent, Weather)}


# --- langchain-openai


def test_langchain_answers_are_objects_of_the_class(c):
    openai, kind = client_module("langchain_openai"), classes()["AnswerWithJustification"]
    question = "What weighs more a pound of bricks or a pound of feathers"
    with server(c):
        model = openai.ChatOpenAI(model=MODEL, temperature=0)
        for method, described, more in (("json_schema", "json_schema", {}), ("function_calling", "structural_tag", {}),
                                        ("function_calling", "structural_tag", {"strict": True})):
            with held(c, 1, described):
                got = model.with_structured_output(kind, method=method, **more).invoke(question)
            assert isinstance(got, kind) and got.answer, (method, more, got)
        with held(c, 1):
            got = model.with_structured_output(kind.model_json_schema(), method="json_schema").invoke(question)
        assert set(got) == {"answer", "justification"}, got


def check_langchain_s_json_mode(c):
    openai, kind = client_module("langchain_openai"), classes()["AnswerWithJustification"]
    with held(c, 1, "json_object"):
        model = openai.ChatOpenAI(model=MODEL).with_structured_output(kind, method="json_mode", include_raw=True)
        got = model.invoke("Answer the following question. Make sure to return a JSON blob with keys 'answer' and 'justification'.\n\n"
                           "What's heavier a pound of bricks or a pound of feathers?")
        assert got["parsed"] == kind(answer="They are both the same weight.", justification="Both weigh a pound."), got


# --- instructor


def check_instructor(c, mode, described):
    """One request each: no answer had to be asked for again."""
    instructor, kind = client_module("instructor"), classes()["User"]
    ask = dict(response_model=kind, max_retries=0, messages=[{"role": "user", "content": "John is 25 years old"}], temperature=0)
    mode = getattr(instructor.Mode, mode)
    client = instructor.from_provider(f"openai/{MODEL}", mode=mode)
    with held(c, 1, described):
        got = client.chat.completions.create(**ask)
    assert (got.name, got.age) == ("John", 25), (mode, got)
    pieces = list(client.chat.completions.create_partial(**ask))
    assert len(pieces) > 2 and (pieces[-1].name, pieces[-1].age) == ("John", 25), (mode, pieces)


def test_instructor_extracts_a_user_by_tools(c):
    with server(c):
        for mode in ("TOOLS", "TOOLS_STRICT"):
            check_instructor(c, mode, "structural_tag")


# --- pydantic-ai


def check_pydantic_ai(c):
    pydantic_ai, kinds = client_module("pydantic_ai"), classes()
    fruit, vehicle, device = (kinds[name] for name in ("Fruit", "Vehicle", "Device"))
    tools = [pydantic_ai.ToolOutput(fruit, name="return_fruit"), pydantic_ai.ToolOutput(vehicle, name="return_vehicle")]
    native = pydantic_ai.NativeOutput([fruit, vehicle], name="Fruit_or_vehicle", description="Return a fruit or vehicle.")
    prompted = pydantic_ai.PromptedOutput([vehicle, device], name="Vehicle or device", description="Return a vehicle or device.")
    own = pydantic_ai.PromptedOutput([vehicle, device], template="Gimme some JSON: {schema}")
    ford, banana, macbook = vehicle(name="Ford Explorer", wheels=4), fruit(name="banana", color="yellow"), device(name="MacBook", kind="laptop")
    cases = [
        (door, *case) for door in ("openai-chat", "openai-responses") for case in (
            (tools, "What is a banana?", banana, "structural_tag"), (native, "What is a Ford Explorer?", ford, "json_schema"), (prompted, "What is a MacBook?", macbook, "json_object"),
            (own, "What is a Ford Explorer?", ford, "json_object"))]
    for door, output, question, expected, kind in cases:
        agent = pydantic_ai.Agent(f"{door}:{MODEL}", output_type=output, retries=0)
        with held(c, 1, kind):
            got = agent.run_sync(question).output
        assert got == expected, (door, output, got)

    async def stream():
        async with pydantic_ai.Agent(f"openai-chat:{MODEL}", output_type=native).run_stream("What is a Ford Explorer?") as result:
            return [piece async for piece in result.stream_output(debounce_by=None)]

    assert asyncio.run(stream())[-1] == ford


# --- openai-agents


def check_openai_agents(c):
    agents, kinds = client_module("agents"), classes()
    weather, event = kinds["Weather"], kinds["CalendarEvent"]
    asked = []

    def get_weather(city: str) -> str:
        asked.append(city)
        return str(weather(**dict(WEATHER, city=city)))

    fair = "Alice and Bob are going to go to a science fair on Friday."
    expected = event(name="Science fair", date="Friday", participants=["Alice", "Bob"])
    helper = agents.Agent(name="Hello world", instructions="You are a helpful agent.", output_type=weather, model=MODEL,
                          tools=[agents.function_tool(get_weather)])

    async def ask_all():
        for api in ("responses", "chat_completions"):
            agents.set_default_openai_api(api)
            extractor = agents.Agent(name="Calendar extractor", instructions="Extract calendar events from text", output_type=event, model=MODEL)
            with held(c, 1):
                got = (await agents.Runner.run(extractor, fair)).final_output
            assert got == expected, (api, got)
            # Tools beside the type: a call, then the answer.
            asked.clear()
            with held(c, 2):
                got = (await agents.Runner.run(helper, "What's the weather in Tokyo?")).final_output
            assert got == weather(**WEATHER) and asked == ["Tokyo"], (api, got, asked)
            result = agents.Runner.run_streamed(helper, "What's the weather in Tokyo?")
            told = [one.type async for one in result.stream_events()]
            assert result.final_output == got and asked == ["Tokyo"] * 2 and told.count("raw_response_event") > 10, (api, told)

    asyncio.run(ask_all())


# --- what the default model cannot


def test_libraries_get_the_answers_of_their_documentation(_):
    with scripted() as c, server(c):
        check_langchain_s_json_mode(c)
        check_instructor(c, "JSON", "json_object")  # its schema is in the prompt alone
        check_instructor(c, "JSON_SCHEMA", "json_schema")
        check_pydantic_ai(c)
        check_openai_agents(c)
        harness.wait_until("the worker has told of its masks", lambda: c.total("baton_grammar_masks_total") > 100)


# --- tritonclient

# docs/guided_decoding.md of TensorRT-LLM's backend: the guides, and what their answers must be.
YEAR = "What is the year after 2024? Answer:"
YEAR_SCHEMA = answer({"properties": {"answer": {"title": "Answer", "type": "integer"}}, "required": ["answer"], "title": "Answer", "type": "object"})
GUIDES = (("json_schema", YEAR_SCHEMA, r'\{\s*"answer"\s*:\s*-?\d+\s*\}'), ("regex", r"\d+", r"\d+"), ("ebnf_grammar", "root ::= [0-9]+", r"[0-9]+"))


def test_triton_s_clients_take_each_guide(c):
    numpy = client_module("numpy")
    for module, address in (("tritonclient.http", c.http), ("tritonclient.grpc", c.grpc)):
        triton = client_module(module)

        def infer(kind, guide, max_tokens=30, temperature=0, triton=triton, address=address):
            values = {"text_input": ([[YEAR.encode()]], "BYTES", object), "max_tokens": ([[max_tokens]], "INT32", numpy.int32),
                      "temperature": ([[temperature]], "FP32", numpy.float32), "random_seed": ([[7]], "UINT64", numpy.uint64),
                      "exclude_input_in_output": ([[True]], "BOOL", bool),
                      "guided_decoding_guide_type": ([[kind.encode()]], "BYTES", object)}
            if guide:
                values["guided_decoding_guide"] = ([[guide.encode()]], "BYTES", object)
            inputs = []
            for name, (value, type_, dtype) in values.items():
                inputs.append(triton.InferInput(name, [1, 1], type_))
                inputs[-1].set_data_from_numpy(numpy.array(value, dtype=dtype))
            client = triton.InferenceServerClient(at(address))
            try:
                return client.infer("ensemble", inputs).as_numpy("text_output").reshape(-1)[0].decode()
            finally:
                client.close()

        for kind, guide, pattern in GUIDES:
            text = infer(kind, guide)
            assert re.fullmatch(pattern, text), (module, kind, text)
        assert infer("json", None).lstrip()[:1] in '{["-0123456789tfn', module
        e = expect(client_module("tritonclient.utils").InferenceServerException, lambda infer=infer: infer("regex", "("))
        assert "guided_decoding_guide" in e.message(), e
        # 300 texts at a time: one for each a that may be the one in the middle.
        e = expect(client_module("tritonclient.utils").InferenceServerException,
                   lambda infer=infer: infer("regex", "(a|b)*a(a|b){300}", 400, 1))
        assert e.message().startswith("guided_decoding_guide: the answer cannot be followed further") and "worker" not in e.message(), e


def test_end_to_end_client_takes_a_guide(c):
    ask = ["end_to_end_grpc_client.py", "-u", at(c.grpc), "-p", YEAR, "-o", "30", "--exclude-input-in-output"]
    kind, guide, pattern = GUIDES[0]
    out, _ = run(*ask, "--guided-decoding-guide-type", kind, "--guided-decoding-guide", guide)
    assert re.fullmatch(pattern, line_of(out, "Output")), (kind, out)


if __name__ == "__main__":
    sys.exit(client_tests.main(dict(globals()), router_args=["--chat-template", TEMPLATE, "--served-model-name", MODEL]))
