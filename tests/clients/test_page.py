#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page at / in a real browser: talking. Each test ends with no complaint of the browser (script, console, policy,
accessibility), and nothing asked of anybody but the router.

Usage: test_page.py [NAME ...]

Needs Debian's chromium, `pip install numpy axe-playwright-python`, and the variables of test_clients.py.
"""
import json
import os
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import harness  # noqa: E402
from browser import SHIFT  # noqa: E402
from harness import wait_until  # noqa: E402
import page_cluster  # noqa: E402
from page_cluster import (CHECK, DESK, HOSTILE, LOOKS, NAME, WORKERS, address, answers, axe, let_go_on, say, wait_done,  # noqa: E402
                          write_model)
from test_tenants import Keys  # noqa: E402

TITLE = "document.querySelector('#talk .title')"
browser = None  # of all tests: page_cluster.main()


def opened(c, place="talk", **look):
    return browser.page(f"{address(c)}/#/{place}", **dict(DESK, **look))


# --- what is served

def test_page_is_complete_and_cached(c):
    with opened(c) as page:
        page.wait(TITLE)
        files = [x for x in page.answered if "/page/" in x[0]]
        assert len(files) > 20 and all(status == 200 for _, status, _, _ in files), files
        assert {x[2].get("content-encoding", x[2].get("Content-Encoding")) for x in files} == {"gzip"}, files
        page.answered.clear()
        page.reload()
        page.wait(TITLE)
        again = [x for x in page.answered if "/page/" in x[0]]
        told = {url.rsplit("/", 1)[1]: status for url, status, _, _ in again if "icon" not in url}
        assert len(told) >= len(files) - 1 and set(told.values()) == {304}, told


def test_page_html_cannot_inject_scripts(c):
    with opened(c) as page:
        page.wait(TITLE)
        for script in ("document.body.innerHTML = '<b>x</b>'", "new DOMParser().parseFromString('<b>', 'text/html')",
                       "document.createElement('script').text = 'x'", "eval('1')", "setTimeout('1', 0)",
                       "document.body.setAttribute('onclick', 'window.ran = 1')"):
            told = page.run(f"(() => {{ try {{ {script}; return 'done'; }} catch (error) {{ return error.name; }} }})()")
            assert told in ("TypeError", "EvalError"), (script, told)
        page.run("document.body.append(Object.assign(document.createElement('img'), { src: 'http://x.example/a.png' }))")
        wait_until("it is told", lambda: page.run("0") == 0 and any("x.example" in x for x in page.complaints))
        page.check("policy", "Content Security Policy", "TrustedHTML", "TrustedScript", "x.example", "security")


# --- talking

def test_page_streams_an_answer_with_its_timings(c):
    with opened(c) as page:
        page.wait(TITLE)
        assert page.text("#talk .title") == NAME
        say(page, "Where is it.")
        wait_done(page, 1)
        assert answers(page) == ["The baton is here."]
        figures = page.text(".message.assistant .figures")
        for word in ("TTFT", "Tokens 7", "Took"):  # "Speed" where the tokens came apart: the endless answer's
            assert word in figures, figures
        assert page.run("document.activeElement === document.querySelector('#talk .input')"), "a second one can follow"
        say(page, "And now!")
        wait_done(page, 2)
        assert answers(page)[1] == "The baton is there."
        # What was said is there after a reload of this tab, and in no other.
        page.reload()
        wait_done(page, 2)
        assert answers(page) == ["The baton is here.", "The baton is there."]
        assert page.run("localStorage.length") == 0
        with opened(c) as other:
            other.wait(TITLE)
        page.click("#talk .composer [aria-label='New conversation']")
        page.wait(TITLE)
    c.wait_idle()


def test_page_stops_an_endless_answer(c):
    with opened(c) as page:
        page.wait(TITLE)
        let_go_on(page)
        for stop in (lambda: page.click("#talk [aria-label=Stop]"), lambda: page.key("Escape")):
            say(page, "How long?")
            page.wait("document.querySelector('.message.assistant[aria-busy] .said')?.textContent.length > 200")
            page.wait("document.querySelector('.message.assistant[aria-busy] .figures').innerText.includes('tokens/s')")
            stop()
            page.wait("!document.querySelector('#talk.busy')")
            figures = page.text(".message.assistant:last-child .figures")
            assert "stopped by you" in figures and "Speed" in figures, figures
            page.click("#talk .composer [aria-label='New conversation']")
            page.wait(TITLE)
    c.wait_idle()  # the cluster has stopped, too


def test_page_edits_and_resends_any_message(c):
    with opened(c) as page:
        page.wait(TITLE)
        say(page, "Where is it.")
        wait_done(page, 1)
        say(page, "And then!")
        wait_done(page, 2)
        # The first message is another one: what followed is of the version before.
        page.click(".message.user [aria-label='Edit this message']")
        page.run("document.querySelector('.editor').select()")
        page.type("Somewhere else!")
        page.click(".edit [type=submit]")
        wait_done(page, 1)
        assert answers(page) == ["The baton is there."]
        assert "1 / 2" not in page.text(".thread") and "2 / 2" in page.text(".message.user .pager")
        page.click(".message.user .pager button")
        wait_done(page, 2)
        assert answers(page) == ["The baton is here.", "The baton is there."]
        # An answer again, and an answer as it was not: the model is sent what stands there.
        page.click(".message.assistant [aria-label='Answer again']")
        wait_done(page, 1)
        assert "2 / 2" in page.text(".message.assistant .pager")
        page.click(".message.assistant [aria-label='Edit this answer']")
        page.run("document.querySelector('.editor').select()")
        page.type("It is lost")
        page.key("Enter", 2)
        page.wait("document.querySelector('.message.assistant .said').textContent === 'It is lost'")
        page.run("window.sent = []; window.plain = fetch; window.fetch = (url, more) => { window.sent.push(more.body); return window.plain(url, more); }")
        say(page, "Really.")
        wait_done(page, 2)
        sent = json.loads(page.run("window.sent[0]"))
        assert sent["messages"] == [{"role": "user", "content": "Where is it."}, {"role": "assistant", "content": "It is lost"},
                                    {"role": "user", "content": "Really."}], sent
        page.click(".message.user [aria-label='Ask this again']")
        wait_done(page, 1)
        assert "4 / 4" in page.text(".message.assistant .pager"), page.text(".message.assistant .pager")
    c.wait_idle()


def test_page_settings_reach_the_server_and_errors_are_shown(c):
    with opened(c) as page:
        page.wait(TITLE)
        assert page.run("document.querySelector('[name=temperature]').placeholder") == "0.7"
        page.click("#talk .settings-form textarea")
        page.type("Be brief.")
        page.click("[name=temperature]")
        page.type("warm")
        say(page, "Where is it.")
        page.wait("document.activeElement === document.querySelector('[name=temperature]')")
        assert "Temperature must be a number." in page.text("#talk .composer")
        page.run("document.activeElement.select()")
        page.type("0")
        for name, value in (("max_tokens", "2"), ("top_k", "1"), ("top_p", "0.5"), ("seed", "7")):
            page.click(f"[name={name}]")
            page.type(value)
        assert page.text("#talk .badge") == "6"
        page.click("#talk .input")
        page.key("Enter")
        wait_done(page, 1)
        assert "cut at the limit of tokens" in page.text(".message.assistant .figures")
        # The command that is copied is this very call.
        page.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        page.click(".message.assistant [aria-label='Copy as curl']")
        command = page.wait("window.copied")
        body = json.loads(shlex.split(command)[-1])
        assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is it."}]
        assert {k: body[k] for k in ("temperature", "max_tokens", "top_k", "top_p", "seed", "model", "stream")} == {
            "temperature": 0, "max_tokens": 2, "top_k": 1, "top_p": 0.5, "seed": 7, "model": NAME, "stream": True}, body
        # And it runs in a shell, as it stands.
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0 and "data: [DONE]" in done.stdout, done
        # An error of the server says what field it is about, and goes there.
        page.click("[name=max_tokens]")
        page.run("document.activeElement.select()")
        page.type("9" * 15)
        page.click("#talk .input")
        page.type("Where is it.")
        page.key("Enter")
        page.wait("document.querySelector('.message.assistant:last-child .trouble:not([hidden])')")
        assert "max_tokens" in page.text(".message.assistant:last-child .trouble"), page.text(".thread")
        page.check("status of 400")
    c.wait_idle()


def test_page_shows_model_output_as_text(c):
    with opened(c) as page:
        page.wait(TITLE)
        say(page, "<b>Show</b> #")
        wait_done(page, 1)
        said = ".message.assistant .said"
        shape = page.run(f"[...document.querySelectorAll('{said} :is(h3, strong, em, ol, ul, li, pre, code, a, img, script, b)')].map((x) => x.localName)")
        assert shape == ["h3", "strong", "em", "code", "a", "ol", "li", "li", "ul", "li", "pre", "code", "a"], shape
        assert page.run(f"document.querySelector('{said} pre').textContent") == "def f(a):\n    return a < 1\n"
        link = page.run(f"(({{ href, rel, target }}) => [href, rel, target])(document.querySelector('{said} a'))")
        assert link == ["https://a.example/r", "noopener noreferrer nofollow", "_blank"] and "(a.example)" in answers(page)[0], link
        assert "<script>alert(1)</script><img src=x onerror=alert(1)>" in answers(page)[0], answers(page)
        assert page.text(".message.user .said") == "<b>Show</b> #"
        assert "javascript:" in HOSTILE and not page.run("document.querySelector('.thread a[href^=\"javascript\"], img, script:not([src])')")
    c.wait_idle()


# --- modules by themselves

def test_page_cost_per_token_is_constant(c):
    """Of an answer some hundreds of times as long a piece is drawn as quickly, within the same number of elements."""
    with opened(c) as page:
        page.wait(TITLE)
        for kind, piece in (("paragraphs", "A few words of text, and **some** of `them`.\\n\\n"), ("one line", "word "), ("code", "x = 1\\n"),
                            ("a list", "- an item\\n"), ("stars", "*a **b "), ("brackets", "[["), ("ticks", "`` ` "), ("quotes", "> > > > > > > > > a\\n")):
            told = page.run(f"""(async () => {{
                const {{ MarkdownView }} = await import('./page/markdown.js');
                const element = document.createElement('div');
                const view = new MarkdownView(element);
                const piece = '{piece}'.repeat(Math.ceil(400 / '{piece}'.length));
                let parsed = 0;
                const replace = Element.prototype.replaceChildren;
                Element.prototype.replaceChildren = function (...nodes) {{
                    parsed += nodes.reduce((n, node) => n + (node.textContent ?? node).length, 0);
                    return replace.apply(this, nodes);
                }};
                if ('{kind}' === 'code') {{ view.append('```\\n'); }}
                let most = 0;
                for (let i = 0; i < 500; i++) {{
                    parsed = 0;
                    view.append(piece);
                    most = Math.max(most, parsed);
                }}
                Element.prototype.replaceChildren = replace;
                view.finish();
                return [most, element.querySelectorAll('*').length, element.children.length, view.all.length];
            }})()""")
            drawn, elements, sections, length = told
            assert length >= 200_000 and drawn < 40_000, (kind, told)
            assert sections <= 301 and elements < 120_000, (kind, told)


def test_page_draws_streamed_text_as_the_whole(c):
    """Cut at every place, also within a fence."""
    text = ("# Title\n\ntext *a* b\nmore\n\n- one\n- two\n  1. deep\n\n  still two\n\n```js\nlet a = `x`;\n  ``` no end\n```\n"
            "after\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n> more\n\n---\nend")
    with opened(c) as page:
        page.wait(TITLE)
        told = page.run(f"""(async () => {{
            const {{ MarkdownView, drawMarkdown }} = await import('./page/markdown.js');
            const text = {json.dumps(text)};
            const whole = document.createElement('div');
            drawMarkdown(whole, text);
            const bad = [];
            for (const step of [1, 2, 3, 7]) {{
                const element = document.createElement('div');
                const view = new MarkdownView(element);
                for (let i = 0; i < text.length; i += step) {{ view.append(text.slice(i, i + step)); }}
                view.finish();
                if (!element.isEqualNode(whole)) {{
                    element.normalize(); whole.normalize();
                    if (!element.isEqualNode(whole)) {{ bad.push([step, element.innerHTML, whole.innerHTML]); }}
                }}
            }}
            return [bad, [...whole.querySelectorAll('*')].map((x) => x.localName).filter((x) => !['div', 'button', 'svg', 'path', 'span'].includes(x))];
        }})()""")
        assert told[0] == [], told[0]
        assert told[1] == ["h3", "p", "em", "ul", "li", "li", "p", "ol", "li", "p", "pre", "code", "p", "table", "thead", "tr", "th", "th", "tbody", "tr", "td",
                           "td", "blockquote", "p", "hr", "p"], told[1]


def test_page_memory_is_bounded_over_days(c):
    """A day of points each five seconds, events and models that come and go."""
    with opened(c) as page:
        page.wait(TITLE)
        told = page.run("""(async () => {
            const { History, Events } = await import('./page/history.js');
            const history = new History();
            const events = new Events();
            for (let i = 0; i < 17280; i++) {
                const series = [{ model: null, ended: [i] }, { model: 'm' + Math.floor(i / 100), ended: [1] }];
                history.append({ step_ms: 5000, unix_ms: [i * 5000], series });
                history.append({ step_ms: 5000, unix_ms: [i * 5000], series }); /* told twice */
                events.add({ id: `a-${i}` });
                events.add({ id: `a-${i}` });
            }
            const all = history.column(null, 'ended');
            return [history.unixMs.length, all.length, all[0], all[179], history.series.size, events.list.length, events.ids.size, events.lastId(),
                history.column('m172', 'ended').length];
        })()""")
        assert told == [180, 180, 17100, 17279, 3, 256, 256, "a-17279", 180], told


def test_page_parses_sse_as_the_standard_says(c):
    """The HTML standard, 9.2.6, whatever the pieces: also with the line ends of all three kinds."""
    stream = ": hello\n\nretry: 2000\n\nevent: state\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\nid: 7\rdata:x\r\rdata: a\ndata\ndata:  b\n\nevent: none\n\ndata: cut"
    expected = [["message", None, 2000, ""], ["state", None, None, '{"a":\n1}'], ["message", "7", None, "x"], ["message", None, None, "a\n\n b"]]
    with opened(c) as page:
        page.wait(TITLE)
        for step in (1, 2, 5, 1000):
            told = page.run(f"""(async () => {{
                const {{ EventCutter }} = await import('./page/api.js');
                const cutter = new EventCutter();
                const text = {json.dumps(stream)};
                const found = [];
                for (let i = 0; i < text.length; i += {step}) {{ found.push(...cutter.feed(text.slice(i, i + {step}))); }}
                return found.map(({{ event, id, retry, data }}) => [event, id, retry, data]);
            }})()""")
            assert told == expected, (step, told)


def test_page_shows_any_server_reply_as_answer_or_error(c):
    """Not ours, broken, cut, an error in the middle: what came is kept, and it is said why there is no more."""
    def chunk(text, **more):
        return "data: " + json.dumps(dict({"id": "x", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}, **more)) + "\n\n"

    end = 'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    cases = [
        (chunk("a") + end, "stop", None), (chunk("a"), "broken", "before the answer was whole"), ("", "refused", "before the answer was whole"),
        (chunk("a") + "data: {\n\n", "broken", "no answer"), (chunk("a") + "data: null\n\n", "broken", "no answer"), ("data: 7\n\n", "refused", "no answer"),
        ("<html>\n\n", "refused", "before"), (chunk("a") + 'data: {"error": {"message": "the worker is gone", "code": 503}}\n\n', "broken", "the worker is gone"),
        (chunk("a") + 'data: {"error": "plain"}\n\n', "broken", "plain"), (chunk("a") + "data: {}\n\n" + end, "stop", None),
        ('data: {"choices": [{"delta": {"content": 7, "reasoning_content": {}}}]}\n\n' + end, "stop", None),
        (chunk("a", usage={"completion_tokens": 1, "prompt_tokens": None}) + end, "stop", None)]
    with opened(c) as page:
        page.wait(TITLE)
        for text, finish, why in cases:
            told = page.run(f"""(async () => {{
                const {{ answer }} = await import('./page/answer.js');
                const plain = window.fetch;
                window.fetch = async () => new Response({json.dumps(text)}, {{ headers: {{ 'Content-Type': 'text/event-stream' }} }});
                let said = '';
                const about = await answer({{}}, new AbortController().signal, (what, piece) => {{ said += what === 'text' ? piece : ''; }});
                window.fetch = plain;
                return [about.finish, about.error?.message ?? null, said];
            }})()""")
            assert told[0] == finish and (told[1] is None if why is None else why in told[1]), (text, told)
            assert told[2] == ("a" if 'content": "a"' in text else ""), (text, told)
        # And whatever lies in this tab's storage, the page begins.
        for kept in ("{", "null", '{"talk": {"nodes": [null], "nextId": 1}}', '{"talk": {"nodes": [{"id": 0, "role": "root", "children": [7], "chosen": 0}], "nextId": 1}}',
                     '{"talk": {"nodes": [], "nextId": 1}, "model": 7}'):
            page.run(f"sessionStorage.setItem('baton.talk', {json.dumps(kept)})")
            page.reload()
            page.wait(TITLE)


# --- who looks at it

def tab_to(page, selector, most=60):
    """Press Tab until an element has the focus. Each stop is an element that can be seen, and shows that it is there."""
    for _ in range(most):
        page.key("Tab")
        told = page.run(f"""(() => {{
            const at = document.activeElement;
            const box = at.getBoundingClientRect();
            const style = getComputedStyle(at);
            return [at.matches({json.dumps(selector)}), at !== document.body && box.width > 0, at.matches(':focus-visible'),
                style.outlineStyle !== 'none' || at.matches('.input'), at.outerHTML.slice(0, 120)];
        }})()""")
        if not told[1]:
            continue  # the browser's own, between the end and the beginning
        assert told[2] and told[3], f"the focus cannot be seen: {told[4]}"
        if told[0]:
            return
    raise AssertionError(f"Tab does not come to {selector}")


def test_page_works_by_keyboard_alone(c):
    with opened(c) as page:
        page.wait(TITLE)
        page.run("document.activeElement.blur()")
        tab_to(page, ".skip")
        page.key("Enter")
        assert page.run("document.activeElement.id") == "main"
        tab_to(page, "#talk .input")
        page.type("Where")
        page.key("Enter", SHIFT, "\r")
        page.type("is it.")
        page.key("Enter")
        wait_done(page, 1)
        assert page.text(".message.user .said") == "Where\nis it."
        page.run("scrollTo(0, 0); document.querySelector('.brand').focus()")
        tab_to(page, ".message.user [aria-label='Edit this message']")
        page.key("Enter")
        page.wait("document.activeElement.matches('.editor')")
        page.key("Escape")
        page.wait("document.activeElement.matches(\".message.user [aria-label='Edit this message']\")")
        tab_to(page, ".message.assistant [aria-label='Answer again']")
        page.key("Space")
        wait_done(page, 1)
        page.wait("document.querySelector('.message.assistant .pager')?.innerText.includes('2 / 2')")
        page.run("document.querySelector('.brand').focus()")
        tab_to(page, "#theme")
        page.key("Space")
        page.wait("getComputedStyle(document.documentElement).colorScheme === 'dark'")
        page.reload()
        wait_done(page, 1)
        assert page.run("getComputedStyle(document.documentElement).colorScheme") == "dark", "it is kept"
        page.run("document.activeElement.blur()")
        tab_to(page, "[data-place=watch]")
        page.key("Enter")
        page.wait("document.querySelector('#talk').hidden && document.title.startsWith('Watch')")
        page.check("status of 404", "status of 403")  # where the router tells nothing yet
    c.wait_idle()


def test_chat_page_passes_the_accessibility_checker(c):
    with opened(c) as page:
        page.wait(TITLE)
        world = page.isolated()
        page.run(axe() + "; 0", world)

        def find(what):
            for look in LOOKS:
                page.look(**look)
                if look.get("phone") and what == "talk":
                    page.click("#talk .composer [aria-expanded]")
                    page.wait("document.querySelector('.sheet').matches(':modal')")
                    found = page.run(CHECK, world)
                    assert not found, ("sheet", look, json.dumps(found, indent=1))
                    page.key("Escape")
                found = page.run(CHECK, world)
                assert not found, (what, look, json.dumps(found, indent=1))
                assert page.run("document.documentElement.scrollWidth <= innerWidth"), (what, look)

        find("blank")
        say(page, "Show #")
        wait_done(page, 1)
        find("talk")


def test_page_respects_reduced_motion(c):
    with opened(c, motion=False) as page:
        page.wait(TITLE)
        let_go_on(page)
        say(page, "How long?")
        page.wait("document.querySelector('.message.assistant[aria-busy] .said')?.textContent.length > 100")
        assert page.run("document.getAnimations().length") == 0
        page.key("Escape")
        wait_done(page, 1)
    c.wait_idle()


# --- when it fails

def test_page_recovers_from_a_server_restart_mid_answer(_):
    with tempfile.TemporaryDirectory() as folder:
        path, options = write_model(folder)
        port = harness.free_port()
        with harness.Cluster(path, worker_args=WORKERS, router_args=options + ["--http", f"127.0.0.1:{port}"]) as own:
            with opened(own) as page:
                page.wait(TITLE)
                let_go_on(page)
                say(page, "How long?")
                page.wait("document.querySelector('.message.assistant[aria-busy] .said')?.textContent.length > 200")
                own.router.kill()
                page.wait("document.querySelector('.message.assistant .trouble:not([hidden])')")
                assert "broke off" in page.text(".message.assistant .trouble"), page.text(".thread")
                assert len(answers(page)[0]) > 200, "what came is kept"
                page.wait("document.querySelector('#standing').innerText === 'offline'")
                page.click(".message.user [aria-label='Ask this again']")
                page.wait("document.querySelector('.message.assistant .trouble')?.innerText.includes('cannot be reached')")
                own.router.popen.wait()
                own.processes.remove(own.router)
                own.router.close()
                own.router = own.start_router()
                wait_until("it is ready again", lambda: own.router.is_ready())
                own.read_addresses()
                wait_until("workers are back", own.all_joined)
                page.click(".message.assistant .trouble button")
                page.wait("document.querySelector('.message.assistant[aria-busy] .said')?.textContent.length > 100")
                page.key("Escape")
                page.wait("!document.querySelector('#talk.busy')")
                page.wait("document.querySelector('#standing').innerText === 'online'")
                page.check("ERR_")  # of connections, which the browser itself notes


def enter_key(page, key):
    page.wait("document.querySelector('#key:not([hidden])')")
    page.click("#key")
    page.wait("document.activeElement.matches('#key-input')")
    page.run("document.activeElement.select()")
    page.type(key)
    page.key("Enter")
    page.wait("!document.querySelector('#key-dialog').open")


# The next answer to /v1/models waits for window.held().
HOLD_MODELS = """(() => {
    const plain = window.fetch;
    window.fetch = async (url, more) => {
        const answer = await plain(url, more);
        if (String(url).endsWith('/v1/models') && window.held === undefined) {
            window.heldStatus = answer.status;
            await new Promise((wake) => { window.held = wake; });
        }
        return answer;
    };
})()"""


def test_page_asks_for_an_api_key_and_keeps_it_in_the_tab(_):
    with tempfile.TemporaryDirectory() as folder:
        path, options = write_model(folder)
        keys = Keys(folder, acme="", ops="admin")
        with harness.Cluster(path, worker_args=WORKERS, router_args=options + ["--api-keys", keys.path]) as own:
            with opened(own) as page:
                page.wait("document.querySelector('#talk .trouble')")
                assert "wants an API key" in page.text("#talk"), page.text("#talk")
                assert page.text("#standing") == "key wanted"
                # The answer to a wrong key comes when another one is in use already: it says nothing of that.
                page.run(HOLD_MODELS)
                enter_key(page, "baton-wrong")
                page.wait("window.held !== undefined")
                assert page.run("window.heldStatus") == 401
                enter_key(page, keys.keys["acme"])
                page.run("window.held()")
                page.wait(TITLE)
                say(page, "Where is it.")
                wait_done(page, 1)
                assert answers(page) == ["The baton is here."]
                # It is in this tab's storage alone: in no address, no command, no other tab, nowhere in the page.
                page.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
                page.click(".message.assistant [aria-label='Copy as curl']")
                assert "$BATON_API_KEY" in page.wait("window.copied") and keys.keys["acme"] not in page.run("window.copied")
                assert keys.keys["acme"] not in page.run("document.documentElement.outerHTML + location.href + JSON.stringify({ ...localStorage })")
                assert not any(keys.keys["acme"] in x for x in page.requests)
                # To look at the cluster takes a tenant that is admin; its key opens the view at once.
                for place in ("watch", "explain"):
                    page.run(f"location.hash = '#/{place}'")
                    page.wait(f"document.querySelector('#{place}').innerText.includes('This key may not look')")
                page.run("location.hash = '#/watch'")
                enter_key(page, keys.keys["ops"])
                page.wait("document.querySelectorAll('.tenants tbody tr').length === 2 && document.querySelector('.worker.router')")
                rows = page.run("[...document.querySelectorAll('.tenants tbody tr')].map((x) => x.innerText.split(/\\s+/)[0])")
                assert sorted(rows) == ["acme", "ops"], rows
                page.run("location.hash = '#/talk'")
                page.reload()
                page.wait("document.querySelector('.message.assistant')")
                page.click("#key")
                page.click("#key-forget")
                page.wait("document.querySelector('#talk .trouble')")
                assert page.run("sessionStorage.getItem('baton.key')") is None
                with opened(own) as other:
                    other.wait("document.querySelector('#talk .trouble')")
                    other.check("status of 401")
                page.check("status of 401", "status of 403")


if __name__ == "__main__":
    sys.exit(page_cluster.main(globals()))
