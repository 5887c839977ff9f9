# SPDX-License-Identifier: Apache-2.0
"""What the tests of the page share: a model that says what it is told to, so that each answer is known, and a cluster of
it. What is said hangs on the last character of the message."""
import importlib.util
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import browser  # noqa: E402
import client_tests  # noqa: E402
import harness  # noqa: E402

# As bad as a name may be: it is text wherever it stands.
NAME = "<script>alert(1)<b>'&amp;"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> [a](javascript:alert(1)) ![b](http://x.example/b.png)"
MARKDOWN = ("## Hand-overs\n\nA **bold** word, *another*, `code()` and a [rule](https://a.example/r).\n\n"
            "1. first\n2. second\n   - below\n\n```python\ndef f(a):\n    return a < 1\n```\n\n" + HOSTILE + "\n")
SCRIPTS = {
    ".": "The baton is here.",
    "!": "The baton is there.",
    "#": MARKDOWN,
    "?": "On and on it goes, from hand to hand.\n\n",  # without an end
}
TEMPLATE = ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
            "{%- set said = messages[-1].content %}{{ said[-1:] }}")
# An endless answer is far from its end when a test has seen its beginning: a token in 2 ms at the earliest, that is two minutes.
CONTEXT = 65536
WORKERS = ["--kv-memory", "128m", "--draft", "off", "--simulate-step-us", "2000"]

DESK, PHONE = dict(width=1280, height=800), dict(width=390, height=844, phone=True)
LOOKS = [dict(size, theme=theme) for size in (DESK, PHONE) for theme in ("light", "dark")]
# What axe finds: [rule, what it is, the first elements].
CHECK = """(async () => {
    const told = await axe.run(document, { resultTypes: ['violations'] });
    return told.violations.map((x) => [x.id, x.help, x.nodes.slice(0, 3).map((n) => [n.target.join(' '), n.any.concat(n.all, n.none).map((y) => y.message).join('; ')])]);
})()"""


def write_model(folder):
    """@return (the model's path, options of a router that serves it)"""
    import scripted_model  # pylint: disable=import-outside-toplevel
    path = os.path.join(folder, "scripted.gguf")
    scripted_model.write(path, SCRIPTS, endless="?", context=CONTEXT)
    template = os.path.join(folder, "template.jinja")
    with open(template, "w", encoding="utf-8") as f:
        f.write(TEMPLATE)
    # A browser on a busy machine reads an endless answer slowly: it is not cut off for that, as it would be by default.
    return path, ["--chat-template", template, "--served-model-name", NAME, "--client-buffer-bytes", "64m"]


def missing():
    if importlib.util.find_spec("numpy") is None:
        return "numpy is not installed"
    try:
        browser.program()
    except harness.Skip as why:
        return str(why)
    return None


def main(members, router_args=(), **options):
    """client_tests.main() with such a cluster and with a browser, which is `browser` among the members."""
    client_tests.use_clients_python()  # before a browser is started
    why = missing()
    if why:
        return client_tests.main(members, why)
    with tempfile.TemporaryDirectory() as folder, browser.Browser() as members["browser"]:
        path, own = write_model(folder)
        return client_tests.main(members, None, lambda: path, worker_args=WORKERS, router_args=own + list(router_args), **options)


def address(c):
    return "http://%s:%d" % c.http


def axe():
    """The accessibility checker, as a script."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None:
        raise harness.Skip("axe is not installed")
    with open(os.path.join(os.path.dirname(found.origin), "axe.min.js"), encoding="utf-8") as f:
        return f.read()


def let_go_on(page):
    """Answers may be as long as there is room for."""
    page.run(f"""(() => {{
        const field = document.querySelector('[name=max_tokens]');
        field.value = {CONTEXT - 1000};
        field.dispatchEvent(new Event('input', {{ bubbles: true }}));
    }})()""")


def say(page, text):
    """Type a message and send it."""
    page.click("#talk .input")
    page.type(text)
    page.key("Enter")


def answers(page):
    """@return texts of the answers on the page. What is out of sight is not laid out, so innerText has none of it."""
    return page.run("[...document.querySelectorAll('.message.assistant .said')].map((x) => x.textContent.trim())")


def wait_done(page, n):
    """Until n answers are whole."""
    page.wait(f"document.querySelectorAll('.message.assistant:not([aria-busy]) .acts:not([hidden])').length === {n} && "
              "!document.querySelector('#talk.busy')", f"{n} answers are whole")
