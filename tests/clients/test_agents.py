#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agent frameworks that are told the address, a key and a model's name, and nothing else: langchain, openai-agents,
pydantic-ai, smolagents and LlamaIndex, with models whose chat templates show no tools.

A model of scripted_model.py calls the tool and answers with what it has told; the default model calls what it must.
docs/TEMPLATES.md, "Tools as text".

Usage: test_agents.py [NAME ...]

Needs the variables of test_clients.py and what setup/clients.txt names.
"""
import asyncio
import contextlib
import os
import sys
import typing

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))
import client_tests  # noqa: E402
from test_clients import MODEL, client_module, url  # noqa: E402
from test_structured_clients import server  # noqa: E402
from test_tools import Model  # noqa: E402

QUESTION, TOLD, RESULT = "How is the weather in Oslo? O", "sunny, by the sensor R", "It is sunny in Oslo."
CALL = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
FINAL = 'final_answer", "arguments": {"answer": "It is sunny in Oslo."}}\n</tool_call>'


def get_weather(city: str) -> str:
    """Tells the weather of a city.

    Args:
        city: its name
    """
    ASKED.append(city)
    return TOLD


ASKED = []


@contextlib.contextmanager
def scripted():
    """The question's last letter leads to the call, the result's to the answer; a call that is required begins behind its
    mark and ends the agent's run."""
    with Model("smollm", {"O": f"<tool_call>\n{CALL}\n</tool_call>", "R": RESULT, '"': FINAL}, context=16384) as m, server(m.cluster):
        ASKED.clear()
        yield m.cluster


def test_langchain_agent_calls_a_tool_and_answers(_):
    openai, tools = client_module("langchain_openai"), client_module("langchain_core.tools")
    messages = client_module("langchain_core.messages")
    tool = tools.tool(get_weather)
    with scripted() as c:
        model = openai.ChatOpenAI(base_url=url(c) + "/v1", api_key="none", model="scripted").bind_tools([tool])
        for stream in (False, True):
            talk = [messages.SystemMessage("Be brief."), messages.HumanMessage(QUESTION)]
            for _ in range(2):
                if stream:
                    pieces = list(model.stream(talk))
                    said = pieces[0]
                    for piece in pieces[1:]:
                        said += piece
                    assert len(pieces) > 2, pieces
                else:
                    said = model.invoke(talk)
                talk += [said] + [tool.invoke(call) for call in said.tool_calls]
            assert [m.type for m in talk[2:]] == ["AIMessageChunk" if stream else "ai", "tool", "AIMessageChunk" if stream else "ai"], talk
            assert talk[2].tool_calls[0]["args"] == {"city": "Oslo"} and talk[-1].content == RESULT, talk
    assert ASKED == ["Oslo"] * 2, ASKED


def test_langchain_model_calls_the_tool_that_it_must(c):
    openai, pydantic = client_module("langchain_openai"), client_module("pydantic")

    class Forecast(pydantic.BaseModel):
        """Tells the weather of the next days."""
        city: typing.Literal["Oslo", "Lima"]
        days: int = pydantic.Field(ge=1, le=7)

    model = openai.ChatOpenAI(base_url=url(c) + "/v1", api_key="none", model=MODEL, temperature=0)
    for choice in ("any", "Forecast"):
        got = model.bind_tools([Forecast], tool_choice=choice, parallel_tool_calls=False).invoke("Weather in Lima, please.")
        (call,) = got.tool_calls
        assert call["name"] == "Forecast" and Forecast(**call["args"]), got


def test_openai_agents_calls_a_tool_and_answers(_):
    agents = client_module("agents")

    async def run():
        for api in ("chat_completions", "responses"):
            agents.set_default_openai_api(api)
            helper = agents.Agent(name="Helper", instructions="Be brief.", model="scripted", tools=[agents.function_tool(get_weather)])
            assert (await agents.Runner.run(helper, QUESTION)).final_output == RESULT, api
            streamed = agents.Runner.run_streamed(helper, QUESTION)
            told = [event.type async for event in streamed.stream_events()]
            assert streamed.final_output == RESULT and told.count("raw_response_event") > 10, (api, told)

    with scripted():
        asyncio.run(run())
    assert ASKED == ["Oslo"] * 4, ASKED


def test_pydantic_ai_calls_a_tool_and_answers(_):
    pydantic_ai = client_module("pydantic_ai")
    with scripted():
        agent = pydantic_ai.Agent("openai-chat:scripted", tools=[get_weather], retries=0)
        assert agent.run_sync(QUESTION).output == RESULT
    assert ASKED == ["Oslo"], ASKED


def test_smolagents_calls_the_tool_that_ends_its_run(_):
    """It requires a call in each step."""
    smolagents = client_module("smolagents")
    with scripted() as c:
        model = smolagents.OpenAIServerModel(model_id="scripted", api_base=url(c) + "/v1", api_key="none")
        agent = smolagents.ToolCallingAgent(tools=[smolagents.tool(get_weather)], model=model, verbosity_level=0)
        assert agent.run(QUESTION) == RESULT
        assert [len(step.tool_calls or []) for step in agent.memory.steps[1:]] == [1], agent.memory.steps


def test_smolagents_code_agent_runs_its_code_and_answers(_):
    """Its tools are functions of the code that the model writes; what that prints ends in None."""
    smolagents = client_module("smolagents")
    code = 'I ask the sensor.\n<code>\nprint(get_weather(city="Oslo"))\n</code>'
    end = 'I know it.\n<code>\nfinal_answer("It is sunny in Oslo.")\n</code>'
    with Model("smollm", {"O": code, "e": end}, context=16384) as m:
        ASKED.clear()
        model = smolagents.OpenAIServerModel(model_id="scripted", api_base=url(m.cluster) + "/v1", api_key="none")
        agent = smolagents.CodeAgent(tools=[smolagents.tool(get_weather)], model=model, verbosity_level=0)
        assert agent.run(QUESTION) == RESULT
        assert TOLD in agent.memory.steps[1].observations, agent.memory.steps[1]
    assert ASKED == ["Oslo"], ASKED


def test_llama_index_agent_calls_a_tool_and_answers(_):
    like, workflow = client_module("llama_index.llms.openai_like"), client_module("llama_index.core.agent.workflow")

    async def run(c):
        llm = like.OpenAILike(model="scripted", api_base=url(c) + "/v1", api_key="none", is_chat_model=True,
                              is_function_calling_model=True, context_window=16384)
        agent = workflow.FunctionAgent(tools=[get_weather], llm=llm, system_prompt="Be brief.")
        return str(await agent.run(QUESTION))

    with scripted() as c:
        assert asyncio.run(run(c)) == RESULT
    assert ASKED == ["Oslo"], ASKED


if __name__ == "__main__":
    sys.exit(client_tests.main(dict(globals())))
