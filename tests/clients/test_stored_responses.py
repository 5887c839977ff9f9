#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stored responses with the openai SDK and openai-agents: conversations of several turns by previous_response_id say what
the same conversation says that is given whole, with calls of tools in between, whole and streamed; responses are
retrieved and deleted, and their input is listed page by page.

Usage: test_stored_responses.py [NAME ...]

Needs `pip install openai openai-agents numpy` and the variables of test_clients.py.
"""
import asyncio
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
from test_clients import MODEL, client_module, expect, openai_client  # noqa: E402
from test_response_tools import TOOLS, calls_of, gather, said  # noqa: E402
from test_tools import RESULT, ROME, Model  # noqa: E402

TURNS = ["Once upon a time", "there was a king", "who had a horse", "and then?"]


def create(client, text, **more):
    return client.responses.create(**dict(dict(model=MODEL, input=text, temperature=0, max_output_tokens=12, store=True), **more))


def user(text):
    return {"role": "user", "content": text}


def test_turns_say_what_the_whole_conversation_says(c):
    client = openai_client(c)
    for instructions in (None, "Be brief."):
        items, previous = [], None
        for text in TURNS:
            chained = create(client, text, previous_response_id=previous, instructions=instructions)
            end, streamed = gather(create(client, text, previous_response_id=previous, instructions=instructions, stream=True))
            items.append(user(text))
            whole = create(client, items, instructions=instructions, store=False)
            assert said(chained) == said(whole) == said(end) == said(end, streamed), (chained, whole, end)
            assert chained.usage.input_tokens == whole.usage.input_tokens == end.usage.input_tokens, (chained, whole)
            assert chained.previous_response_id == end.previous_response_id == previous and chained.store and not whole.store
            counted = client.responses.input_tokens.count(model=MODEL, input=text, previous_response_id=previous,
                                                          instructions=instructions)
            assert counted.input_tokens == whole.usage.input_tokens, (counted, whole)
            # The stream's response is continued next, as well as the whole one: they say the same.
            previous = end.id if previous is None else chained.id
            items += chained.output
    # Instructions are those of the response alone.
    ruled = create(client, "Hello", instructions="Speak like a king.")
    chained = create(client, "Again", previous_response_id=ruled.id)
    whole = create(client, [user("Hello"), *ruled.output, user("Again")], store=False)
    assert chained.usage.input_tokens == whole.usage.input_tokens and said(chained) == said(whole), (chained, whole)


def test_branches_share_what_they_continue(c):
    client = openai_client(c)
    root = create(client, TURNS[0])
    for text in TURNS[1:]:
        branch = create(client, text, previous_response_id=root.id)
        whole = create(client, [user(TURNS[0]), *root.output, user(text)], store=False)
        assert said(branch) == said(whole), (branch, whole)


def test_calls_of_tools_between_turns(_):
    with Model("hermes") as m:
        def ask(items, **more):
            return m.client.responses.create(**dict(dict(model="scripted", input=items, temperature=0, max_output_tokens=300,
                                                         tools=TOOLS, store=True), **more))

        for stream in (False, True):
            first = ask("Weather? O") if not stream else gather(ask("Weather? O", stream=True))[0]
            assert calls_of(first) == [("weather", ROME)], first
            output = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "sunny R"}
            second = ask([output], previous_response_id=first.id)
            assert said(second) == [("message", RESULT)], second
            end, items = gather(ask([output], previous_response_id=first.id, stream=True))
            assert said(end) == said(end, items) == said(second), (end, second)
            whole = ask([user("Weather? O"), *first.output, output], store=False)
            assert said(whole) == said(second) and whole.usage.input_tokens == second.usage.input_tokens, (whole, second)
            third = ask("Weather and time? T", previous_response_id=second.id)
            whole = ask([user("Weather? O"), *first.output, output, *second.output, user("Weather and time? T")], store=False)
            assert said(third) == said(whole) and len(calls_of(third)) == 2, (third, whole)
            assert third.usage.input_tokens == whole.usage.input_tokens, (third, whole)
            kept = list(m.client.responses.input_items.list(second.id))
            assert [(x.type, x.call_id, x.output) for x in kept] == [("function_call_output", output["call_id"], "sunny R")], kept


def test_responses_are_retrieved_deleted_and_listed(c):
    client, openai = openai_client(c), client_module("openai")
    texts = [f"turn {i}" for i in range(7)]
    made = create(client, [user(t) for t in texts], metadata={"k": "v"})
    assert client.responses.retrieve(made.id) == made
    assert client.responses.retrieve(made.id, include=["reasoning.encrypted_content"]) == made
    for order in ("asc", "desc"):
        for limit in (1, 3, 7, 100):
            page = client.responses.input_items.list(made.id, order=order, limit=limit)
            assert page.has_more == (limit < 7) and len(page.data) == min(limit, 7), page
            assert (page.first_id, page.last_id) == (page.data[0].id, page.data[-1].id), page
            found = list(page)  # the SDK asks for the pages that follow
            wanted = texts if order == "asc" else texts[::-1]
            assert [x.content[0].text for x in found] == wanted and len({x.id for x in found}) == 7, found
    e = expect(openai.BadRequestError, lambda: client.responses.cancel(made.id))
    assert "Cannot cancel a synchronous response" in e.message, e
    e = expect(openai.BadRequestError, lambda: client.responses.retrieve(made.id, stream=True))
    assert e.param == "stream", e
    assert client.responses.delete(made.id) is None
    calls = (client.responses.retrieve, client.responses.delete, client.responses.cancel,
             lambda i: list(client.responses.input_items.list(i)))
    for call in calls:
        e = expect(openai.NotFoundError, lambda call=call: call(made.id))
        assert e.body["message"] == f"Response with id '{made.id}' not found.", e
    e = expect(openai.BadRequestError, lambda: create(client, "x", previous_response_id=made.id))
    assert (e.code, e.param) == ("previous_response_not_found", "previous_response_id"), e
    assert e.body["message"] == f"Previous response with id '{made.id}' not found.", e
    # In memory only what is asked for is stored.
    assert not create(client, "x", store=False).store
    left_out = client.responses.create(model=MODEL, input="x", max_output_tokens=2)
    assert not left_out.store
    expect(openai.NotFoundError, lambda: client.responses.retrieve(left_out.id))


def test_agents_continue_by_previous_response_id(_):
    agents = client_module("agents")
    with Model("hermes") as m:
        agents.set_tracing_disabled(True)
        agents.set_default_openai_client(openai_client(m.cluster, "AsyncOpenAI"), use_for_tracing=False)
        agents.set_default_openai_api("responses")
        settings = agents.ModelSettings(temperature=0, max_tokens=300, store=True)
        agent = agents.Agent(name="King", model="scripted", model_settings=settings)

        async def run():
            first = await agents.Runner.run(agent, "Sunny? R")
            more = dict(previous_response_id=first.last_response_id)
            second = await agents.Runner.run(agent, "And now? R", **more)
            whole = await agents.Runner.run(agent, first.to_input_list() + [user("And now? R")])
            alone = await agents.Runner.run(agent, "And now? R")
            assert second.final_output == whole.final_output == RESULT, (second, whole)
            n = [x.raw_responses[-1].usage.input_tokens for x in (second, whole, alone)]
            assert n[0] == n[1] > n[2], n
            streamed = agents.Runner.run_streamed(agent, "And now? R", **more)
            async for _ in streamed.stream_events():
                pass
            assert streamed.final_output == RESULT and streamed.raw_responses[-1].usage.input_tokens == n[0], streamed

        asyncio.run(run())


if __name__ == "__main__":
    sys.exit(client_tests.main(dict(globals())))
