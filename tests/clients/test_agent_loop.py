#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An agent's loop of 20 tool calls over each API that has chats, with the SDK of each: the default model, greedy, calls what it
is told to, gets each result back and says something in the end. The turns are the same, so the calls and the text are.

Usage: test_agent_loop.py [NAME ...]

Needs what setup/clients.txt names and the variables of test_clients.py.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
from test_anthropic import COLD, client_of  # noqa: E402
from test_clients import MODEL, client_module, openai_client  # noqa: E402

TURNS = 20
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["city", "days"], "additionalProperties": False}
WORDS, SYSTEM, QUESTION = "Tells the weather.", "You plan trips.", "Where is it warm this week?"


def result(turn):
    return f"{turn + 7} degrees, \"windy\" <b>& {'rain' if turn % 3 else 'sun'}</b>"


def by_chat(c):
    """@return the calls' arguments, as text, and the last text"""
    client, calls = openai_client(c), []
    asked = dict(model=MODEL, temperature=0, max_tokens=48, parallel_tool_calls=False,
                 tools=[{"type": "function", "function": {"name": "weather", "description": WORDS, "parameters": SCHEMA, "strict": True}}])
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    for turn in range(TURNS):
        message = client.chat.completions.create(messages=messages, tool_choice="required", **asked).choices[0].message
        calls.append(message.tool_calls[0].function.arguments)
        messages += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": result(turn)}]
    return calls, client.chat.completions.create(messages=messages, tool_choice="none", **asked).choices[0].message.content


def by_responses(c):
    client, calls = openai_client(c), []
    asked = dict(model=MODEL, temperature=0, max_output_tokens=48, parallel_tool_calls=False, instructions=SYSTEM,
                 tools=[{"type": "function", "name": "weather", "description": WORDS, "parameters": SCHEMA, "strict": True}])
    items = [{"role": "user", "content": QUESTION}]
    for turn in range(TURNS):
        call, = client.responses.create(input=items, tool_choice="required", **asked).output
        calls.append(call.arguments)
        items += [call.model_dump(exclude_none=True), {"type": "function_call_output", "call_id": call.call_id, "output": result(turn)}]
    return calls, client.responses.create(input=items, tool_choice="none", **asked).output_text


def by_messages(c):
    client, calls = client_of(c).messages, []
    asked = dict(model=MODEL, max_tokens=48, extra_body=COLD, system=SYSTEM,
                 tools=[{"name": "weather", "description": WORDS, "input_schema": SCHEMA, "strict": True}])
    messages = [{"role": "user", "content": QUESTION}]
    for turn in range(TURNS):
        answer = client.create(messages=messages, tool_choice={"type": "any", "disable_parallel_tool_use": True}, **asked)
        call, = answer.content
        calls.append(json.dumps(call.input))
        messages += [{"role": "assistant", "content": answer.content},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": result(turn)}]}]
    last = client.create(messages=messages, tool_choice={"type": "none"}, **asked)
    return calls, "".join(block.text for block in last.content)


def by_ollama(c):
    """Ollama's API has no tool_choice, and its package sends what it knows: the request is made by hand, and the turns by the package."""
    ollama, calls = client_module("ollama"), []
    tools = [{"type": "function", "function": {"name": "weather", "description": WORDS, "parameters": SCHEMA, "strict": True}}]
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]

    def ask(choice):
        status, answer = c.post("/api/chat", dict(model=MODEL, messages=messages, tools=tools, tool_choice=choice, parallel_tool_calls=False,
                                                  options={"temperature": 0, "num_predict": 48}, stream=False))
        assert status == 200, answer
        return ollama.ChatResponse(**answer).message

    for turn in range(TURNS):
        message = ask("required")
        call, = message.tool_calls
        calls.append(json.dumps(call.function.arguments))
        messages += [message.model_dump(exclude_none=True), {"role": "tool", "tool_name": call.function.name, "content": result(turn)}]
    return calls, ask("none").content


def test_loop_of_20_calls_is_the_same_over_each_api(c):
    calls, text = by_chat(c)
    assert len(calls) == TURNS and text.strip(), (calls, text)
    places = [json.loads(x) for x in calls]
    assert all(set(p) == {"city", "days"} and 1 <= p["days"] <= 9 and len(p["city"]) <= 12 for p in places), places
    for other in (by_responses, by_messages, by_ollama):
        got, said = other(c)
        assert [json.loads(x) for x in got] == places, (other.__name__, got, calls)
        assert said == text, (other.__name__, said, text)


if __name__ == "__main__":
    sys.exit(client_tests.main({k: v for k, v in globals().items() if k.startswith("test_loop")}))
