# SPDX-License-Identifier: Apache-2.0
"""Chat templates behind a router: what POST /tokenize makes of messages, as text, and what jinja2 makes of them.

A router takes 16 models, so some routers without workers serve all templates, each as the template of a model that is a
vocabulary of bytes and nothing else. Its ids, put together, are the prompt that the model would get.
"""
import json
import os
import re
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))
import harness  # noqa: E402
import reference_jinja  # noqa: E402
import scripted_model  # noqa: E402

MODELS_OF_A_ROUTER = 16


class Router(harness.Cluster):
    def __init__(self, folder, templates, *args):
        models = []
        for name, template in templates.items():
            path = os.path.join(folder, name + ".gguf")
            self.pieces = scripted_model.write_vocabulary(path, name, template)
            models.append(f"{name}={path}")
        more = [x for model in models[1:] for x in ("--model", model)]
        super().__init__(models[0], prefill=0, decode=0, router_args=[*args, *more])
        self.socket, self.ignored = None, ""

    def start(self, seconds=120):
        """It is not ready without workers; it answers what needs none."""
        self.router = self.start_router()
        found = harness.wait_until("the address", lambda: re.search(
            r"serving .*? at http://([\d.]+):(\d+)", self.router.log()) or self._check_alive(), seconds)
        self.http = (found[1], int(found[2]))
        return self

    def ask(self, path, body):
        """@return (status, head, JSON): of a connection that stays, for thousands of questions"""
        if self.socket is None:
            self.socket = socket.create_connection(self.http)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = json.dumps(body, ensure_ascii=False).encode()
        self.socket.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                            % (path.encode(), len(data)) + data)
        got = b""
        while b"\r\n\r\n" not in got:
            got += self.receive()
        head, _, rest = got.partition(b"\r\n\r\n")
        length = int(re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)[1])
        while len(rest) < length:
            rest += self.receive()
        return int(head.split(b" ", 2)[1]), head.decode(), json.loads(rest)

    def receive(self):
        data = self.socket.recv(1 << 20)
        assert data, "the router has closed the connection:\n" + self.router.log()[-2000:]
        return data

    def prompt(self, model, **body):
        """@return (text, None), or (None, the error's message)"""
        status, head, answer = self.ask("/tokenize", dict(model=model, **body))
        found = re.search(r"(?i)\r\nx-baton-ignored-fields: *([^\r]*)", head)
        self.ignored = found[1] if found else ""
        if status != 200:
            assert status == 400, (status, answer)
            return None, answer["error"]["message"]
        return b"".join(self.pieces[i] for i in answer["tokens"]).decode(), None


class Served:
    """All templates. with Served({name: text}) as served: served.prompt(name, messages=…)"""

    def __init__(self, templates, *args):
        self.folder = tempfile.TemporaryDirectory()
        names = list(templates)
        self.routers = []
        self.by_name = {}
        self.ignored = ""  # of the last answer: X-Baton-Ignored-Fields
        for i in range(0, len(names), MODELS_OF_A_ROUTER):
            some = names[i:i + MODELS_OF_A_ROUTER]
            self.routers.append(Router(self.folder.name, {n: templates[n] for n in some}, *args))
            self.by_name.update(dict.fromkeys(some, self.routers[-1]))

    def __enter__(self):
        for router in self.routers:
            router.__enter__()
        return self

    def __exit__(self, *what):
        for router in self.routers:
            if what[0] is None:
                codes = router.stop()
                assert not any(codes.values()), (codes, router.logs())
            router.__exit__(*what)
        self.folder.cleanup()

    def prompt(self, name, **body):
        got = self.by_name[name].prompt(name, **body)
        self.ignored = self.by_name[name].ignored
        return got

    def ask(self, name, path, **body):
        return self.by_name[name].ask(path, dict(model=name, **body))


# --- what jinja2 makes of them

def attempt(template, messages, **variables):
    """@return the text, or None where it raises"""
    try:
        return reference_jinja.render(template, {
            "tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True,
            **variables, "messages": messages})
    except Exception:  # pylint: disable=broad-except
        return None


ROLES = ("user", "system", "assistant", "tool")
# docs/TEMPLATES.md, "Tools as text".
BEFORE_TOOLS = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
"""
BEHIND_TOOLS = """
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""
TAG = re.compile("<(?=/?tool(?:s|_call|_response)>)")
CALL = {"id": "callprobe", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer", "description": "d"}}, "required": ["a"]}}}


def part(text):
    return {"type": "text", "text": text, "unheard_of": 1}


def conversation(role, content):
    user = {"role": "user", "content": "u"}
    return {"user": [{"role": "user", "content": content}],
            "system": [{"role": "system", "content": content}, user],
            "assistant": [user, {"role": "assistant", "content": content}, user],
            "tool": [user, {"role": "assistant", "content": "", "tool_calls": [CALL]},
                     {"role": "tool", "name": "f", "tool_call_id": "callprobe", "content": content}]}[role]


def escaped(text):
    return TAG.sub(r"\\u003c", text)


def call_text(call):
    function = call["function"]
    arguments = function.get("arguments")
    if isinstance(arguments, str):  # of an object; any other text is a text
        try:
            read = json.loads(arguments or "{}")
        except ValueError:
            read = None
        arguments = read if isinstance(read, dict) else arguments
    arguments = escaped(json.dumps({} if arguments is None else arguments, ensure_ascii=False))
    name = escaped(json.dumps(function["name"], ensure_ascii=False))
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'


def result_text(content):
    if TAG.search(content):
        try:
            json.loads(content)
        except ValueError:
            content = json.dumps(content, ensure_ascii=False)
        content = escaped(content)
    return f"<tool_response>\n{content}\n</tool_response>"


def plain(content):
    return "\n".join(p["text"] for p in content) if isinstance(content, list) else content or ""


class Shown:
    """What a template shows, as docs/TEMPLATES.md has it: by what jinja2 renders."""

    def __init__(self, template):
        self.template = template
        self.now = int(time.time())
        self.strings, self.parts = {"user": True}, {"user": 0}
        self.null = {True: True, False: True}  # beside calls, without them
        self.developer = "developer" in template
        for role in ROLES:
            strings = self.shows(role, "wordA", "wordA")
            parts = 2 if self.shows(role, [part("wordA"), part("wordB")], "wordA", "wordB") else (
                1 if self.shows(role, [part("wordA")], "wordA") else 0)
            if not strings and not parts:
                strings, parts = self.strings["user"], self.parts["user"]
            self.strings[role], self.parts[role] = strings, parts
        user = {"role": "user", "content": "u"}
        self.null = {calls: self.shows_null([user, dict({"role": "assistant"}, **more)] + ([] if calls else [user]))
                     for calls, more in ((True, {"tool_calls": [CALL]}), (False, {}))}

        # What a template must show for it to be left alone with tools.
        self.system = self.is_in(conversation("system", "wordA"), "wordA")
        called = dict(CALL, function=dict(CALL["function"], name="wordA"))
        self.history = self.is_in([user, {"role": "assistant", "content": "", "tool_calls": [called]},
                                   {"role": "tool", "name": "f", "tool_call_id": "callprobe", "content": "wordB"}], "wordA", "wordB")
        self.alternates = self.is_in([user]) and not self.is_in([user, user])
        # By its name, its description or that of its argument; in any case.
        tools = [json.loads(json.dumps(dict(TOOL, function=dict(TOOL["function"], name="wordtool"))).replace('"d"', '"wordtool"'))] * 2
        self.tools = any("wordtool" in (attempt(template, [self.message(m) for m in messages], tools=tools) or "").lower()
                         for messages in ([user], conversation("system", "s")))

    def is_in(self, messages, *words):
        text = attempt(self.template, [self.message(m) for m in messages])
        return text is not None and all(w in text for w in words)

    def with_tools_as_text(self, messages, tools):
        """What the template is given in place of these messages, where it shows no tools."""
        if self.tools or (not tools and self.history):
            return messages
        shown = BEFORE_TOOLS + "\n".join(escaped(json.dumps(t, ensure_ascii=False)) for t in tools) + BEHIND_TOOLS if tools else ""
        made = []  # (message, is it another than what was sent)

        def add(message, is_made):
            before, was_made = made[-1] if made else ({"role": None}, False)
            if self.alternates and (is_made or was_made) and before["role"] == message["role"] in ("user", "assistant"):
                made[-1] = (dict(before, content=plain(before["content"]) + "\n" + plain(message["content"])), True)
            else:
                made.append((message, is_made))

        if shown and not (messages[0]["role"] in ("system", "developer") if self.system else any(m["role"] == "user" for m in messages)):
            add({"role": "system" if self.system else "user", "content": shown}, True)
            shown = ""
        at, calls = 0, []
        while at < len(messages):
            message = messages[at]
            rest = {k: v for k, v in message.items() if k != "tool_calls"}
            text = plain(message.get("content"))
            at += 1
            if message["role"] == "tool":
                results = [message]
                while at < len(messages) and messages[at]["role"] == "tool":
                    results.append(messages[at])
                    at += 1
                ids = [c.get("id") for c in calls]
                results.sort(key=lambda r, ids=ids: ids.index(r.get("tool_call_id")) if r.get("tool_call_id") in ids else len(ids))
                add({"role": "user", "content": "\n".join(result_text(plain(r["content"])) for r in results)}, True)
            elif message.get("tool_calls"):
                calls = message["tool_calls"]
                add(dict(rest, content="\n".join([text] * bool(text) + [call_text(c) for c in calls])), True)
            elif shown and (self.system or message["role"] == "user"):
                parts = [text] * bool(text)
                add(dict(rest, content="\n\n".join(parts + [shown] if self.system else [shown] + parts)), True)
                shown = ""
            else:
                add(message, False)
        return [m for m, _ in made]

    def attempt(self, messages, but=None):
        for tools in (None, [TOOL]):
            text = attempt(self.template, [self.message(m, but) for m in messages], tools=tools)
            if text is not None:
                return text
        return None

    def shows(self, role, content, *words):
        text = self.attempt(conversation(role, content), but=role)
        return text is not None and all(w in text for w in words) and "unheard_of" not in text

    def names(self, member):
        return re.search(rf"\b{member}\b", re.sub("enable_reasoning|reasoning_effort", "", self.template)) is not None

    def shows_null(self, messages):
        self.null = {True: True, False: True}
        texts = [self.attempt([dict(m, content=content) if m["role"] == "assistant" else m for m in messages])
                 for content in (None, "")]
        return texts[1] is None or (texts[0] is not None and texts[0].count("None") <= texts[1].count("None"))

    def message(self, message, but=None):
        """The message as the template gets it."""
        message = dict(message)
        role = message["role"] if message["role"] in ROLES else "system" if message["role"] == "developer" else "user"
        if message["role"] == "developer" and not self.developer:
            message["role"] = "system"
        content = message.get("content")
        strings, parts = self.strings.get(role, self.strings["user"]), self.parts.get(role, self.parts["user"])
        if content is None and not self.null[bool(message.get("tool_calls"))]:
            content = ""
        if isinstance(content, list):
            content = [{"type": "text", "text": p["refusal"]} if p["type"] == "refusal" else p for p in content]
        if role != but:
            if isinstance(content, list) and parts < 2 and (strings or len(content) > 1):
                content = "\n".join(p["text"] for p in content)
            if isinstance(content, str) and not strings and parts:
                content = [{"type": "text", "text": content}]
        message["content"] = content
        for sent, known in (("reasoning", "reasoning_content"), ("reasoning_content", "reasoning")):
            if sent in message and known not in message and self.names(known) and not self.names(sent):
                message[known] = message[sent]
        return message


def is_served(messages):
    """What the API refuses before a template sees it: no messages, and contents that are no text."""
    def is_text(content):
        return content is None or isinstance(content, str) or (
            isinstance(content, list) and all(p.get("type") in ("text", "refusal") for p in content))
    return bool(messages) and all(is_text(m.get("content")) for m in messages)
