#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Thoughts and calls of tools in every form that the router knows: marks as text and as control tokens of the vocabulary,
with and without tools in the request, whole and streamed, and cut at every token. Models of scripted_model.py say it.

Expected values: the scripts, by hand; the reasons of an end and the form of what is cut are those of OpenAI's API
reference ("The chat completion object": finish_reason, and the note on arguments of functions).

Usage: test_answer_forms.py [NAME ...]

Needs `pip install numpy`.
"""
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
from test_long_answers import comparable, events, post, put_together  # noqa: E402

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("weather", "time")]
NAMED = {"type": "function", "function": {"name": "weather"}}
OTHER = "<|other|>"  # a control token that is no mark
# Marks of thoughts, and whatever comes between a mark and a text of a script.
THOUGHTS = {
    "think": ("<think>", "</think>"),
    "seed": ("<seed:think>", "</seed:think>"),
    "mistral": ("[THINK]", "[/THINK]"),
    "thinking": ("<thinking>", "</thinking>"),
    "thought": ("<thought>", "</thought>"),
    "reasoning": ("<reasoning>", "</reasoning>"),
    "granite": ("Here is my thought process:", "Here is my response:"),
}
ROME, OSLO = '{"city": "Rome \u2600", "days": [1, 2.5], "more": {"on": true}}', '{"city": "Oslo"}'
TWO = [("weather", ROME), ("time", OSLO)]


def call(name, arguments, key="arguments"):
    return f'{{"name": "{name}", "{key}": {arguments}}}'


# What a model writes for the calls TWO, and the marks in it.
CALLS = {
    "hermes": (["<tool_call>", "</tool_call>"], [
        "\n".join(f"<tool_call>\n{call(*made)}\n</tool_call>" for made in TWO)]),
    "mistral": (["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"], [
        f"[TOOL_CALLS] [{', '.join(call(*made) for made in TWO)}]",
        "".join(f"[TOOL_CALLS]{name}[ARGS]{arguments}" for name, arguments in TWO),
        "".join(f"[TOOL_CALLS]{name}[CALL_ID]abcdefghi[ARGS]{arguments}" for name, arguments in TWO)]),
    "llama3": (["<|python_tag|>"], [
        "<|python_tag|>" + "; ".join(call(*made, "parameters") for made in TWO)]),
    "pythonic": (["<|python_start|>", "<|python_end|>"], [
        "<|python_start|>[weather(city='Rome \u2600', days=[1, 2.5], more={'on': True}), time(city=\"Oslo\")]<|python_end|>"]),
}
TEMPLATE = ("{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}")
THOUGHT, WORDS = "a thought, and more of it", "I look it up."


class Form:
    """A cluster of a model that thinks and calls in a form, or in one of the two. Its scripts say the same with marks that
    are text, and with marks that are control tokens."""

    def __init__(self, reasoning, tools):
        # pylint: disable-next=import-outside-toplevel
        import scripted_model
        self.reasoning, self.tools = reasoning, tools
        self.write_scripts()
        letters = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        self.last, scripts = {}, {}
        for name, text in self.said.items():
            for as_tokens in (False, True):
                letter = self.last[name, as_tokens] = next(letters)
                scripts[letter] = (text, self.specials if as_tokens else [OTHER])
        self.folder = tempfile.TemporaryDirectory()
        path, template = (os.path.join(self.folder.name, name) for name in ("forms.gguf", "forms.jinja"))
        scripted_model.write(path, scripts, step=5)
        with open(template, "w", encoding="utf-8") as f:
            f.write(TEMPLATE)
        self.cluster = harness.Cluster(path, router_args=["--chat-template", template, "--reasoning-parser", reasoning or "off",
                                                          "--tool-call-parser", tools or "off"])

    def write_scripts(self):
        """Sets what the model says by name, and the marks in it."""
        opened, closed = THOUGHTS[self.reasoning] if self.reasoning else ("", "")
        marks, variants = CALLS[self.tools] if self.tools else ([], [])
        self.marks = marks
        self.specials = [m for m in (opened, closed, *marks, OTHER) if m]
        self.thinks = f"{opened}\n{THOUGHT}\n{closed}\n\n" if self.reasoning else ""
        self.said = {"plain": self.thinks + OTHER + WORDS}
        for i, text in enumerate(variants):
            self.said[f"calls {i}"] = self.thinks + WORDS + "\n" + text
            self.said[f"only calls {i}"] = text
            bare = text.removeprefix(marks[0]) if self.tools in ("llama3", "pythonic") else None
            if bare:
                self.said[f"bare calls {i}"] = self.thinks + bare

    def __enter__(self):
        self.cluster.__enter__()
        return self

    def __exit__(self, *what):
        try:
            self.cluster.__exit__(*what)
        finally:
            self.folder.cleanup()

    def both(self, last, **more):
        """The choice of a whole answer, which the stream of the same request is equal to."""
        body = dict({"model": "forms", "messages": [{"role": "user", "content": "x" + last}], "temperature": 0,
                     "max_tokens": 300, "return_token_ids": True}, **more)
        whole = post(self.cluster, "/v1/chat/completions", body)["choices"][0]
        chunks = events(self.cluster, "/v1/chat/completions", body)
        first, end = chunks[0]["choices"][0], chunks[-1]["choices"][0]
        assert first["delta"] == {"role": "assistant", "content": ""} and first["finish_reason"] is None, first
        assert end["delta"] == {} and end["finish_reason"] == whole["finish_reason"], end
        assert all(c["choices"][0]["finish_reason"] is None for c in chunks[:-1]), chunks
        (streamed,), _ = put_together(chunks)
        assert comparable(streamed) == comparable(whole), (whole, streamed)
        assert whole["message"].get("tool_calls") != []
        return whole


class HarmonyForm(Form):
    """The same of a model that writes messages of the Harmony format."""

    def write_scripts(self):
        start = "<|start|>assistant"
        made = [f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}" for name, arguments in TWO]
        self.marks = [f"<|{m}|>" for m in ("start", "channel", "message", "constrain", "end", "call", "return")]
        self.specials = [*self.marks, OTHER]
        self.thinks = f"<|channel|>analysis<|message|>{THOUGHT}<|end|>{start}"
        preamble = f"<|channel|>commentary<|message|>{WORDS}<|end|>{start}"
        final = "<|channel|>final<|message|>"
        self.said = {
            "plain": self.thinks + final + OTHER + WORDS + "<|return|>",
            "call": self.thinks + preamble + made[0] + "<|call|>",
            "only call": f" to=functions.weather<|channel|>commentary json<|message|>{ROME}<|call|>",
            "two calls": f"{self.thinks}{made[0]}<|call|>{start}{made[1]}<|call|>",
        }


def told(choice):
    """What a client sees: thought, content, calls with their arguments as they are written."""
    message = choice["message"]
    calls = [(made["function"]["name"], made["function"]["arguments"]) for made in message.get("tool_calls") or []]
    return message.get("reasoning_content", ""), message["content"] or "", calls


def same_calls(got, wanted):
    return [(n, json.loads(a)) for n, a in got] == [(n, json.loads(a)) for n, a in wanted]


def is_object(arguments):
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def check_marks(m):
    """Wherever the marks are in the vocabulary, the answer is the same."""
    thought = THOUGHT if m.reasoning else ""
    for (name, as_tokens), last in m.last.items():
        for shows in (False, True):
            ask = {"skip_special_tokens": False} if shows else {}
            about = (m.reasoning, m.tools, name, as_tokens, shows)
            if name == "plain":
                got = m.both(last, **ask, **({"tools": TOOLS} if m.tools else {}))
                assert told(got) == (thought, (OTHER if shows else "") + WORDS, []), (about, got)
                assert got["finish_reason"] == "stop", about
                if m.reasoning:  # and as it was said, where the client wants that
                    got = m.both(last, **ask, separate_reasoning=False)
                    assert told(got) == ("", m.thinks + (OTHER if shows else "") + WORDS, []), (about, got)
                continue
            got = m.both(last, **ask, tools=TOOLS)
            wanted = ("", "") if name.startswith("only") else (thought, "") if name.startswith("bare") else (thought, WORDS)
            assert told(got)[:2] == wanted and same_calls(told(got)[2], TWO), (about, told(got))
            assert got["finish_reason"] == "tool_calls", about
            assert (got["message"]["content"] is None) == (wanted[1] == ""), (about, got)
            # Without tools, and where none may be called, nothing is looked for: control tokens are as in any text.
            for none in ({}, {"tools": TOOLS, "tool_choice": "none"}):
                got = m.both(last, **ask, **none)
                text = m.said[name].removeprefix(m.thinks)
                for mark in m.marks if as_tokens and not shows else ():
                    text = text.replace(mark, "")
                assert told(got)[1:] == (text.lstrip() if told(got)[0] else text, []), (about, told(got))
                assert got["finish_reason"] == "stop", about


def check_cuts(m):
    """Cut at every token: what is there of the answer, in the form of the whole one."""
    for (name, as_tokens), last in m.last.items():
        if m.tools and name == "plain" or name.startswith("only"):
            continue
        ask = {"tools": TOOLS} if m.tools else {}
        full = m.both(last, **ask)
        thought, content, calls = told(full)
        n_before = 0
        for n in range(1, len(full["token_ids"])):
            got = m.both(last, **ask, max_tokens=n)
            about = (m.reasoning, m.tools, name, as_tokens, n, told(got))
            assert got["finish_reason"] == "length" and got["token_ids"] == full["token_ids"][:n], about
            cut_thought, cut_content, cut_calls = told(got)
            if as_tokens:  # a mark is there or it is not
                assert (thought + " ").startswith(cut_thought.rstrip()), about
                if "bare" not in name or cut_calls:
                    assert content.startswith(cut_content.rstrip()), about
            assert not any(mark in cut_content for mark in m.marks), about
            assert n_before <= len(cut_calls) <= len(calls), about
            n_before = len(cut_calls)
            for (got_name, got_arguments), (full_name, full_arguments) in zip(cut_calls, calls):
                # Half a character at the end is U+FFFD.
                assert got_name == full_name and full_arguments.startswith(got_arguments.rstrip("\ufffd")), about
            for made, wanted in zip(cut_calls[:-1], calls):  # all but the last one are complete
                assert made == wanted, about


def check_stops(m):
    """A stop word anywhere, also within marks and calls."""
    for (name, as_tokens), last in m.last.items():
        text = m.said[name]
        if not name.startswith("calls"):
            continue
        for i, at in enumerate(range(0, len(text) - 4, 11)):
            word = text[at:at + 4]
            got = m.both(last, stop=[word], tools=TOOLS, include_stop_str_in_output=i % 2 == 0)
            calls = told(got)[2]
            assert same_calls(calls[:-1], TWO[:len(calls) - 1] if calls else []), (name, word, calls)
            assert got["finish_reason"] == "stop" or is_object(calls[-1][1]), (name, as_tokens, word, got)


def check_forced(m):
    """The model ends at once behind the beginning of a call, which is the prompt's and not its words. Where calls follow a
    grammar, it may not end before the call does."""
    if m.tools != "pythonic":
        for more in ({"max_tokens": 1}, {}):
            named = m.both("", tools=TOOLS, tool_choice=NAMED, **more)
            (name, arguments), = told(named)[2]
            assert told(named)[:2] == ("", "") and name == "weather" and named["message"]["content"] is None, named
            assert named["finish_reason"] == "length" or isinstance(json.loads(arguments), dict), named
            assert arguments.startswith("{") and named["finish_reason"] in ("length", "tool_calls"), named
            whichever = m.both("", tools=TOOLS, tool_choice="required", **more)
            assert told(whichever)[:2] == ("", "") and whichever["finish_reason"] in ("length", "tool_calls"), whichever
        return
    for more, reason in (({"max_tokens": 1}, ("length", "stop")), ({}, ("stop",))):
        named = m.both("", tools=TOOLS, tool_choice=NAMED, **more)
        assert told(named) == ("", "", [("weather", "")]), named
        assert named["finish_reason"] in reason and named["message"]["content"] is None, named
        whichever = m.both("", tools=TOOLS, tool_choice="required", **more)
        assert told(whichever) == ("", "", []) and whichever["finish_reason"] in reason, whichever


def check_harmony(m):
    """Messages of the format are reasoning, content and calls; expected values by hand from m.said."""
    for as_tokens in (False, True):
        def both(name, tokens=as_tokens, **more):
            return m.both(m.last[name, tokens], **more)

        for tools in ({}, {"tools": TOOLS}):
            assert told(both("plain", **tools)) == (THOUGHT, WORDS, []), tools
            assert told(both("plain", separate_reasoning=False, **tools)) == ("", THOUGHT + "\n" + WORDS, []), tools
        got = both("call", tools=TOOLS)
        assert told(got) == (THOUGHT, WORDS, TWO[:1]) and got["finish_reason"] == "tool_calls", got
        got = both("only call", tools=TOOLS)
        assert told(got) == ("", "", TWO[:1]) and got["message"]["content"] is None, got
        got = both("two calls", tools=TOOLS)
        assert told(got) == (THOUGHT, "", TWO), got
        assert told(both("two calls", tools=TOOLS, parallel_tool_calls=False)) == (THOUGHT, "", TWO[:1])
        # Nobody asked for calls: what is said to a tool is not for the user.
        got = both("call")
        assert told(got) == (THOUGHT + "\n" + ROME, WORDS, []) and got["finish_reason"] == "stop", got
    # The marks of the thinking part are several tokens.
    assert told(m.both(m.last["plain", True], thinking_token_budget=100)) == (THOUGHT, WORDS, [])
    for choice in (NAMED, "required"):  # the prompt ends with the beginning of the message
        got = m.both("", tools=TOOLS, tool_choice=choice)
        assert got["finish_reason"] in ("tool_calls", "length") and told(got)[:2] == ("", ""), got
        assert choice == "required" or told(got)[2][0][0] == "weather", got


def check(reasoning, tools, *parts):
    with Form(reasoning, tools) as m:
        for part in parts:
            part(m)


def test_hermes_tool_calls_follow_a_think_block(_):
    check("think", "hermes", check_marks, check_cuts, check_stops, check_forced)


def test_mistral_tool_calls_follow_reasoning(_):
    check("mistral", "mistral", check_marks, check_cuts, check_stops, check_forced)


def test_llama_3_tool_calls_follow_reasoning(_):
    check("thinking", "llama3", check_marks, check_cuts, check_stops, check_forced)


def test_pythonic_tool_calls_follow_seed_reasoning(_):
    check("seed", "pythonic", check_marks, check_cuts, check_stops, check_forced)


def test_tool_calls_without_reasoning_are_parsed(_):
    check(None, "hermes", check_marks)


def test_other_reasoning_formats_are_parsed(_):
    for reasoning in ("thought", "reasoning", "granite"):
        check(reasoning, None, check_marks, check_cuts)


def test_harmony_messages_are_reasoning_content_and_calls(_):
    with HarmonyForm("harmony", "harmony") as m:
        check_harmony(m)
        check_cuts(m)


if __name__ == "__main__":
    sys.exit(client_tests.main(dict(globals()), model_of=None))
