#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Coding agents as people start them: Claude Code over Messages and Codex over Responses, with their own prompts and tools. Only
the address, a key and the model's name are given. A scripted model asks for a command, which they run, and says what came of it.

Usage: test_coding_agents.py [NAME ...]

Needs the variables of test_clients.py; with BATON_TEST_LONG set, what setup/fetch_coding_agents.py fetches, 277 MB.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "setup"))
import client_tests  # noqa: E402
import fetch_coding_agents  # noqa: E402
import fetch_model  # noqa: E402
import harness  # noqa: E402
from test_clients import url  # noqa: E402
from test_tools import Model  # noqa: E402

QUESTION, RESULT = "Make the file. O", "The file is there."
COMMAND = "echo made > made.txt; echo all done R"
# Both put messages of the system behind the user's.
FIRST = ("{%- set ns = namespace(said='') %}{%- for m in messages if m.role in ('user', 'tool') and m.content %}"
         "{%- set ns.said = m.content | replace('\n</tool_response>', '') | trim %}{%- endfor %}{%- set said = ns.said %}")


def program(name):
    """@return its path"""
    if not os.environ.get("BATON_TEST_LONG"):
        raise harness.Skip("in --long")
    return os.path.join(fetch_coding_agents.ensure(fetch_model.default_cache()), name)


def ask(name, arguments, home, **more):
    """Run an agent where nobody is at the terminal and no other host is reached. @return its lines of JSON"""
    environment = dict({k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}, HOME=home,
                       HTTPS_PROXY="http://127.0.0.1:9", HTTP_PROXY="http://127.0.0.1:9", NO_PROXY="127.0.0.1,localhost", **more)
    done = subprocess.run([program(name), *arguments], cwd=os.path.join(home, "work"), env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    with open(os.path.join(home, "work", "made.txt"), encoding="utf-8") as made:
        assert made.read() == "made\n"
    return lines


def scripted(tool, arguments):
    call = json.dumps({"name": tool, "arguments": arguments})
    return Model("hermes", {"O": f"<tool_call>\n{call}\n</tool_call>", "R": RESULT}, context=65536, first=FIRST)


def test_claude_code_runs_a_command_and_answers(_):
    with scripted("Bash", {"command": COMMAND, "description": "Makes it"}) as m, tempfile.TemporaryDirectory() as home:
        os.mkdir(os.path.join(home, "work"))
        lines = ask("claude", ["-p", QUESTION, "--allowedTools", "Bash", "--output-format", "stream-json", "--verbose"], home,
                    ANTHROPIC_BASE_URL=url(m.cluster), ANTHROPIC_API_KEY="none", ANTHROPIC_MODEL="scripted",
                    ANTHROPIC_DEFAULT_HAIKU_MODEL="scripted",
                    CLAUDE_CODE_MAX_OUTPUT_TOKENS="400", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")
        end = lines[-1]
        assert end["type"] == "result" and end["is_error"] is False and end["result"] == RESULT, end
        uses = [block for line in lines if line["type"] == "assistant" for block in line["message"]["content"]
                if block["type"] == "tool_use"]
        assert [(x["name"], x["input"]["command"]) for x in uses] == [("Bash", COMMAND)], uses
        assert end["usage"]["output_tokens"] > 2, end


def test_codex_runs_a_command_and_answers(_):
    with scripted("exec_command", {"cmd": COMMAND}) as m, tempfile.TemporaryDirectory() as home:
        os.mkdir(os.path.join(home, "work"))
        settings = {"model": "scripted", "model_provider": "baton", "model_providers.baton.name": "Baton",
                    "model_providers.baton.base_url": url(m.cluster) + "/v1", "model_providers.baton.wire_api": "responses"}
        words = [word for key, value in settings.items() for word in ("-c", f"{key}={json.dumps(value)}")]
        lines = ask("codex", ["exec", "--json", "--skip-git-repo-check", "--ephemeral",
                    "--dangerously-bypass-approvals-and-sandbox", *words, QUESTION], home)
        items = [line["item"] for line in lines if line["type"] == "item.completed"]
        commands = [item for item in items if item["type"] == "command_execution"]
        assert [(x["exit_code"], x["aggregated_output"]) for x in commands] == [(0, "all done R\n")], items
        assert items[-1]["type"] == "agent_message" and items[-1]["text"] == RESULT, items
        assert lines[-1]["type"] == "turn.completed", lines[-1]


if __name__ == "__main__":
    sys.exit(client_tests.main(globals()))
