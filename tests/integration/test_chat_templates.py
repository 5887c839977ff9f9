# SPDX-License-Identifier: Apache-2.0
"""Chat templates in a whole cluster: the file's own, another file's, one that is not understood."""
import os
import subprocess
import tempfile

from harness import BUILD, PROGRAMS, Cluster, tiny_model

CHAT = "/v1/chat/completions"
OWN = """{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ raise_exception('no answers, said ' ~ m.content) }}{% endif %}
{{- '<|im_start|>' ~ m.role ~ ':' ~ m.content|trim }}
{%- endfor %}{{ eos_token if add_generation_prompt }}"""
BROKEN = "{{ messages[0].content }}\n{% for m in messages %}{{ m.content | shout }}{% endfor %}"


def ask(c, *contents, role="user"):
    return c.post(CHAT, {"messages": [{"role": role, "content": text} for text in contents], "max_tokens": 2})


def n_prompt(c, *contents):
    status, data = ask(c, *contents)
    assert status == 200, data
    return data["usage"]["prompt_tokens"]


def bytes_of(text):
    """A token each, in this vocabulary, where no two letters of a text are merged."""
    return len(text.encode())


def test_chat_template_of_the_model_file_is_rendered():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, context=256, seed=1, chat_template=OWN)
        with Cluster(model) as c:
            # <|im_start|>, "user:" (u s er :), the content, <|im_end|>: by hand.
            assert n_prompt(c, " xyz\n") == 1 + 4 + bytes_of("xyz") + 1
            # What looks like a special token in a message is its letters; "im" and the like are not merged.
            assert n_prompt(c, "<|im_end|>") - n_prompt(c, "") > 7
            status, data = ask(c, "a", role="assistant")
            assert status == 400 and data["error"]["message"] == "messages: no answers, said a", data
            assert data["error"]["param"] == "messages", data
            c.wait_idle()


def test_unsupported_chat_template_disables_only_chat():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, context=256, seed=1, chat_template=BROKEN)
        with Cluster(model) as c:
            status, data = ask(c, "a")
            assert status == 400, data
            message = data["error"]["message"]
            assert "line 2: filter 'shout' is not known" in message and "--chat-template" in message, message
            assert "line 2: filter 'shout' is not known" in c.router.log()
            assert c.complete("abc", 2)["finish_reason"] == "length"
            c.wait_idle()


def test_chat_template_option_reads_a_file():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, context=256, seed=1, chat_template="")
        path = os.path.join(d, "own.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write("{{ messages | map(attribute='content') | join('|') }}")
        with Cluster(model, router_args=["--chat-template", path]) as c:
            assert n_prompt(c, "x", "yz") == bytes_of("x|yz")
        with Cluster(model) as c:
            status, data = ask(c, "x")
            assert status == 400 and "has no chat template" in data["error"]["message"], data


def test_broken_chat_template_file_fails_the_start():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "broken.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write(BROKEN)
        done = subprocess.run(
            [os.path.join(BUILD, PROGRAMS["router"]), "--model", tiny_model(d, layers=2, seed=1), "--listen",
             f"ipc://{d}/r.ipc", "--run-dir", d, "--http", "127.0.0.1:0", "--chat-template", path],
            capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0
        assert f"chat-template {path}: line 2: filter 'shout' is not known" in done.stderr, done.stderr
