#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page at / in a real browser: watching the cluster, and explaining requests. As test_page.py.

Usage: test_page_watch.py [NAME ...]
"""
import json
import os
import sys
import tempfile
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import harness  # noqa: E402
from harness import wait_until  # noqa: E402
from launch import Launch  # noqa: E402
import page_cluster  # noqa: E402
from page_cluster import CHECK, DESK, LOOKS, NAME, WORKERS, address, axe, let_go_on, say, wait_done, write_model  # noqa: E402

browser = None  # of all tests: page_cluster.main()
CARD = "[...document.querySelectorAll('.worker:not(.router)')].find((x) => x.querySelector('.worker-name').textContent === '%s')"
OPEN = "document.querySelector('#watch .notice').hidden && document.querySelector('#watch .worker.router')"


def opened(c, place="watch", **look):
    """Pages of the tests before have left their places by then: there are few."""
    wait_until("who has gone is not counted", lambda: cluster(c)["router"]["watchers"] <= len(browser.pages))
    return browser.page(f"{address(c)}/#/{place}", **dict(DESK, **look))


def ask(c, text="Where is it.", **more):
    status, answer = c.post("/v1/chat/completions", dict(messages=[{"role": "user", "content": text}], **more))
    assert status == 200, answer
    return answer


def cluster(c, path=""):
    status, _, data = c.request("GET", "/v2/cluster" + path)
    assert status == 200, data
    return json.loads(data)


def recorded(c, request):
    """A request is written down when its workers have ended it, which may be after its answer."""
    wait_until("it is written down", lambda: c.request("GET", "/v2/cluster/requests/" + urllib.parse.quote(request))[0] == 200)


def streams(page):
    """How often it asked for the event stream."""
    return sum(url.endswith("/v2/cluster/events") for url, _ in page.headers)


def order(c, worker, **what):
    status, _, data = c.request("POST", "/v2/cluster/workers/" + worker, json.dumps(what), {"Content-Type": "application/json"})
    assert status in (200, 202), (status, data)


# --- watch

def test_page_draws_workers_as_the_api_reports_them(c):
    with opened(c) as page:
        page.wait(OPEN)
        page.wait("document.querySelectorAll('.worker:not(.router)').length === 3")
        for worker in cluster(c)["workers"]:
            told = page.run(f"""(() => {{
                const card = {CARD % worker['name']};
                return [card.closest('.zone').className, card.dataset.state, card.querySelector('.facts').innerText];
            }})()""")
            assert told[0] == f"zone {worker['role']}" and told[1] == worker["state"], told
            assert f"of {worker['seats']}" in told[2] and f"of {worker['blocks']:,}" in told[2], (worker, told)
        assert "version " in page.text(".worker.router") and page.text("#standing") == "ready"
        # While it works its seats are taken.
        with opened(c, "talk") as other:
            other.wait("document.querySelector('#talk .title')")
            let_go_on(other)
            say(other, "How long?")
            page.wait("[...document.querySelectorAll('.zone.decode .seats i.taken, .zone.decode .meter i')].some((x) => x.classList.contains('taken') || "
                      "parseFloat(x.style.inlineSize) > 0)")
            other.key("Escape")
            other.wait("!document.querySelector('#talk.busy')")
    c.wait_idle()


COUNT = """new Promise((done) => {
    window.moved = 0;
    window.said = [];
    new MutationObserver((list) => { window.moved += list.reduce((n, x) => n + x.addedNodes.length, 0); })
        .observe(document.querySelector('.flights'), { childList: true, subtree: true });
    const line = document.querySelector('.handover-line');
    new MutationObserver(() => { window.said.push(line.textContent); }).observe(line, { childList: true, subtree: true, characterData: true });
    done(true);
})"""


def test_hand_overs_are_animated_unless_reduced_motion(c):
    with opened(c) as page, opened(c, motion=False) as calm:
        for one in (page, calm):
            one.wait(OPEN)
            one.wait("document.querySelectorAll('.worker:not(.router)').length === 3")
            one.run(COUNT)
        for i in range(3):
            ask(c, f"{i} where is it.")
        for one in (page, calm):
            one.wait("window.said.some((x) => /^[1-9]\\d* hand-overs? in the last 10 s\\. The last: prefill-0 to decode-[01], .*iB in /.test(x))")
        page.wait("window.moved > 0")
        assert calm.run("window.moved") == 0
        # What has arrived is gone from the drawing.
        page.wait("document.querySelectorAll('.flights :is(path, circle)').length === 0")
    c.wait_idle()


WATCHED = """(() => {
    window.seen = {};
    const note = () => {
        for (const item of document.querySelectorAll('.events li')) {
            window.seen[item.dataset.id] ??= Date.now();
        }
        const card = %s;
        const state = card?.dataset.state ?? 'none';
        if (state !== window.state) {
            window.state = state;
            (window.states ??= []).push(state);
        }
    };
    note();
    new MutationObserver(note).observe(document.querySelector('#watch'), { childList: true, subtree: true, attributes: true });
    return true;
})()""" % (CARD % "decode-1")


def happened(c, kind, worker):
    """@return events of a worker, as the router has them"""
    return [e for e in cluster(c)["events"] if e["kind"] == kind and e["worker"] == worker]


def hold(c, page, kind, worker, before):
    """One more event than before: on the page as well, by the stream that it follows and not because it asked again."""
    wait_until(f"{kind} {worker}", lambda: len(happened(c, kind, worker)) > before)
    event = happened(c, kind, worker)[-1]
    page.wait(f"window.seen[{json.dumps(event['id'])}]")
    assert streams(page) == 1, page.headers


def test_page_shows_a_lost_worker_and_its_return(c):
    with opened(c) as page:
        page.wait(OPEN)
        page.wait(f"({CARD % 'decode-1'})?.dataset.state === 'up'")
        page.run(WATCHED)
        n_lost, n_joined = (len(happened(c, kind, "decode-1")) for kind in ("worker_lost", "worker_joined"))
        lost = c.decodes[1]
        os.kill(lost.pid, 9)
        hold(c, page, "worker_lost", "decode-1", n_lost)
        page.wait("window.state === 'gone'")
        lost.popen.wait()
        c.processes.remove(lost)
        lost.close()
        c.decodes[1] = c.start_worker("decode", 1)
        hold(c, page, "worker_joined", "decode-1", n_joined)
        page.wait("window.state === 'up'")
        states = page.run("window.states")
        assert [s for s in states if s in ("up", "gone")] == ["up", "gone", "up"], states
    wait_until("all is as before", c.all_joined)


def test_page_shows_a_restarting_worker_as_missing(_):
    with tempfile.TemporaryDirectory() as folder:
        path, options = write_model(folder)
        with Launch("--model", path, *options) as launch:
            at = "http://" + launch.process("router")["http"].removeprefix("http://")
            name = next(n for n in launch.processes() if "decode" in n)
            with browser.page(at + "/#/watch", **DESK) as page:
                page.wait(OPEN)
                page.wait(f"({CARD % name})?.dataset.state === 'up'")
                page.run(WATCHED.replace("decode-1", name))
                os.kill(int(launch.process(name)["pid"]), 9)
                page.wait("window.states.some((x) => ['missing', 'gone'].includes(x))")
                page.wait("window.state === 'up'", "the launcher has started it again")
                # It is one card, whatever became of it, and the loss and the return are told.
                assert page.run(f"[...document.querySelectorAll('.worker-name')].filter((x) => x.textContent === '{name}').length") == 1
                kinds = page.run("[...document.querySelectorAll('.events li')].map((x) => x.dataset.kind)")
                assert kinds.index("worker_joined") < kinds.index("worker_lost"), kinds
                page.wait(f"({CARD % name}).querySelector('.worker-note').innerText.includes('started again 1 time')")


def test_page_marks_a_retried_request(c):
    with opened(c) as page, opened(c, "talk") as talk:
        page.wait(OPEN)
        talk.wait("document.querySelector('#talk .title')")
        let_go_on(talk)
        say(talk, "How long?")
        busy = wait_until("it is generated", lambda: [
            w["name"] for w in cluster(c)["workers"] if w["role"] == "decode" and w["batch_generation"] > 0])
        index = int(busy[0].rpartition("-")[2])
        lost = c.decodes[index]
        os.kill(lost.pid, 9)
        page.wait("document.querySelector('.events li[data-kind=request_rerun] a')")
        length = talk.run("document.querySelector('.message.assistant .said').textContent.length")
        talk.wait(f"document.querySelector('.message.assistant .said').textContent.length > {length}", "the other one goes on with it")
        talk.key("Escape")
        talk.wait("!document.querySelector('#talk.busy')")
        lost.popen.wait()
        c.processes.remove(lost)
        lost.close()
        link = "document.querySelector('.events li[data-kind=request_rerun] a')"
        recorded(c, page.run(f"decodeURIComponent({link}.hash.split('/')[2])"))
        page.click(".events li[data-kind=request_rerun] a")
        page.wait("document.querySelector('.detail-says')?.innerText.includes('It took 2 attempts')")
        text = page.text("#explain .detail")
        for word in ("Attempt 1", "Given up", "Attempt 2", busy[0], "was given up by its client"):
            assert word in text, (word, text)
        c.decodes[index] = c.start_worker("decode", index)
        wait_until("all is as before", c.all_joined)
    c.wait_idle()


def test_page_moves_a_worker_on_role_change(c):
    with opened(c) as page:
        page.wait(OPEN)
        page.wait(f"({CARD % 'prefill-0'})?.closest('.zone').matches('.prefill')")
        order(c, "prefill-0", role="both")
        page.wait(f"({CARD % 'prefill-0'})?.closest('.zone').matches('.both')")
        page.wait("document.querySelector('.events li[data-kind=worker_role]')")
        order(c, "prefill-0", role="prefill")
        page.wait(f"({CARD % 'prefill-0'})?.closest('.zone').matches('.prefill')")
        assert page.run("document.querySelector('.zone.both').hidden")


def test_charts_show_the_values_of_the_history(c):
    with opened(c) as page:
        page.wait(OPEN)
        for _ in range(4):
            ask(c, ttft_target_ms=60000, itl_target_ms=60000)
        page.wait("[...document.querySelectorAll('.chart')].find((x) => x.innerText.startsWith('Targets met') && x.getBoundingClientRect().width > 0)",
                  "a step of the history is whole")
        assert page.text("[data-stat=met]").split() == ["Targets", "met", "100", "%"], page.text("[data-stat=met]")
        labels = page.run("[...document.querySelectorAll('.plot')].filter((x) => x.getBoundingClientRect().width > 0).map((x) => x.getAttribute('aria-label'))")
        assert len(labels) == 6 and labels[0].startswith("Time to first token, the last ") and "p99: now" in labels[0], labels
        # The points are the router's, one for each step.

        def marks():
            return len(page.run("document.querySelector('.plot-line').getAttribute('d')").replace("L", "M").split("M")) - 1
        wait_until("the page has each point", lambda: marks() == sum(
            x is not None for x in cluster(c)["history"]["series"][0]["ttft_p50_ms"]) > 0)
        # Arrow keys go along it.
        page.run("document.querySelector('.plot').focus()")
        page.key("ArrowLeft")
        page.key("End")
        page.wait("/^\\d\\d:\\d\\d:\\d\\d$/.test(document.querySelector('.chart .when').innerText)")
        page.key("Home")
        page.wait("document.querySelector('.plot-cross').getAttribute('x1') > 0")
    c.wait_idle()


def test_chart_axis_fits_its_labels(c):
    with opened(c) as page:
        page.wait(OPEN)
        for value, words in ((3, "3 ms"), (123456, "150,000 ms")):
            cut = page.run("""(async () => {
                const { Chart } = await import('./page/chart.js');
                const chart = new Chart('A chart', [{ name: 'a', kind: 'first', label: 'a', of: () => [%d] }], String, { unit: ' ms' });
                document.querySelector('main section:not([hidden])').append(chart.element);
                chart.width = 300;
                chart.update({ unixMs: [Date.now()], stepMs: 5000 }, '');
                const left = chart.svg.getBoundingClientRect().left;
                const texts = [...chart.grid.querySelectorAll('.plot-y')];
                const cut = texts.filter((x) => x.getBoundingClientRect().left < left).map((x) => x.textContent);
                return [texts.map((x) => x.textContent), cut];
            })()""" % value)
            assert words in cut[0] and cut[1] == [], cut


def test_phases_of_a_request_fit_beside_the_list(c):
    recorded(c, ask(c)["id"])
    with opened(c, "explain") as page:
        for width in (390, 1080, 1100, 1280, 1440):
            page.look(width=width, height=800)
            page.run("location.hash = '#/explain'")
            page.wait("document.querySelector('.requests tbody tr a')")
            if width < 1080:
                page.click(".requests tbody tr a")
            # In a narrow window the phases replace the list.
            page.wait("document.querySelector('#explain%s .waterfall tbody tr')" % (".one" if width < 1080 else ""))
            cut = page.run("[...document.querySelectorAll('#explain .scroll')].filter((x) => x.scrollWidth > x.clientWidth).map((x) => [x.ariaLabel, x.scrollWidth, x.clientWidth])")
            assert cut == [], (width, cut)


def test_page_reconnects_its_event_stream_without_duplicates(c):
    with opened(c) as page:
        page.wait(OPEN)
        page.wait("document.querySelectorAll('.events li').length > 0")
        page.run("location.hash = '#/talk'")
        wait_until("its place is free", lambda: cluster(c)["router"]["watchers"] == 0)
        for duty in ("off", "on"):
            order(c, "decode-1", duty=duty)
        wait_until("it is told", lambda: cluster(c)["events"][-1]["kind"] == "worker_on")
        page.run("location.hash = '#/watch'")
        page.wait("document.querySelector('.events li')?.dataset.kind === 'worker_on'")
        ids = page.run("[...document.querySelectorAll('.events li')].map((x) => x.dataset.id)")
        assert ids[::-1] == [e["id"] for e in cluster(c)["events"]], ids
        page.hear_until(lambda: streams(page) > 1, "it follows again")
        asked = [x for url, x in page.headers if url.endswith("/v2/cluster/events")]
        assert len(asked) == 2 and asked[1].get("Last-Event-ID") == ids[0], asked


def test_page_waits_for_a_free_event_stream(c):
    with opened(c) as first, opened(c) as second:
        for page in (first, second):
            page.wait(OPEN)
        with opened(c) as third:
            third.wait("document.querySelector('#watch .notice')?.innerText.includes('Try now')")
            assert third.run("document.querySelector('#watch .watch-content').classList.contains('stale')"), "what came once is shown"
            second.run("location.hash = '#/talk'")
            third.wait(OPEN)  # by itself
            third.check("status of 503")


def test_page_resumes_after_a_router_restart(_):
    with tempfile.TemporaryDirectory() as folder:
        path, options = write_model(folder)
        port = harness.free_port()
        with harness.Cluster(path, worker_args=WORKERS, router_args=options + ["--http", f"127.0.0.1:{port}"]) as own:
            with opened(own) as page:
                page.wait(OPEN)
                own.router.kill()
                page.wait("document.querySelector('#watch .notice')?.innerText.includes('The view has stopped')")
                assert page.run("document.querySelectorAll('.worker:not(.router)').length") == 2, "the last that came is there"
                own.router.popen.wait()
                own.processes.remove(own.router)
                own.router.close()
                own.router = own.start_router()
                wait_until("it is ready again", lambda: own.router.is_ready())
                own.read_addresses()
                page.wait(OPEN)
                page.wait(f"({CARD % 'decode-0'})?.dataset.state === 'up'")
                page.check("ERR_")


def test_page_backs_off_while_the_server_is_down(c):
    """The waits double up to half a minute, each a quarter more or less, and what the server asks for counts."""
    with opened(c, "talk") as page:
        page.wait("document.querySelector('#talk .title')")
        told = page.run("""(async () => {
            const { Feed } = await import('./page/feed.js');
            const [fetch, timer] = [window.fetch, window.setTimeout];
            const waits = [];
            let after = null;
            window.fetch = async () => { if (after === null) { throw new TypeError('away'); } return new Response('{}', { status: 503, headers: { 'Retry-After': after } }); };
            const feed = new Feed();
            let next = null;
            window.setTimeout = (work, ms) => { if (ms !== 30000) { waits.push(ms); next = work; } return 0; };
            feed.start();
            for (let i = 0; i < 9; i++) {
                while (next === null) { await new Promise((wake) => timer(wake, 0)); }
                const work = next;
                next = null;
                after = i === 7 ? '40' : null;
                work();
            }
            while (next === null) { await new Promise((wake) => timer(wake, 0)); }
            feed.stop();
            window.fetch = fetch;
            window.setTimeout = timer;
            return waits;
        })()""")
        due = [1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 40000, 30000]
        assert len(told) == len(due) and all(0.75 * d <= t <= 1.25 * d for t, d in zip(told, due)), told


# --- explain

ANSWER = "decodeURIComponent(document.querySelector('.message.assistant .acts a').hash.split('/')[2])"
# The first two questions for a request are answered as those for one whose workers have not ended it yet.
NOT_YET = """(() => {
    const plain = window.fetch;
    window.asked = 0;
    window.fetch = (url, more) => String(url).includes('/v2/cluster/requests/') && ++window.asked < 3
        ? Promise.resolve(new Response('{"error": "not here"}', { status: 404 })) : plain(url, more);
})()"""
# Questions for a request are asked once release() is called.
HOLD = """(() => {
    const plain = window.fetch;
    const held = new Promise((release) => { window.release = release; });
    window.fetch = (url, more) => String(url).includes('/v2/cluster/requests/') ? held.then(() => plain(url, more)) : plain(url, more);
})()"""


def test_explain_shows_the_phases_of_an_answer(c):
    with opened(c, "talk") as page:
        page.wait("document.querySelector('#talk .title')")
        say(page, "Where is it.")
        wait_done(page, 1)
        recorded(c, page.run(ANSWER))
        page.run(NOT_YET)
        page.click(".message.assistant .acts a")
        page.wait("document.querySelector('.waterfall tbody tr')")
        assert page.run("window.asked") == 3, "it asks again where it is not written down yet"
        answer = page.run("decodeURIComponent(location.hash.split('/')[2])")
        told = cluster(c, "/requests/" + answer)
        shown = page.run("[...document.querySelectorAll('.waterfall tbody tr')].map((x) => [x.dataset.phase, Number(x.querySelector('[data-ms]').dataset.ms)])")
        assert shown == [[s["name"], s["length_ms"]] for s in told["phases"]], (shown, told)
        # It adds up: to the microsecond, the sum that the page shows is how long it took.
        assert abs(float(page.run("document.querySelector('[data-sum]').dataset.sum")) - told["duration_ms"]) < 0.01, told
        assert abs(sum(length for _, length in shown) - told["duration_ms"]) < 0.01
        text = page.text("#explain .detail")
        for word in (f"Request {told['id']}", NAME, told["prefill"], told["decode"], "Why there", told["tries"][0]["cause"], told["answer_id"]):
            assert word in text, (word, text)
        # The same prompt again: once the prefill worker has ended an earlier one, its KV is there, and that is said.
        wait_until("the prompt is in the cache", lambda: ask(c)["usage"]["prompt_tokens_details"]["cached_tokens"] > 0)
        page.run("location.hash = '#/talk'")
        page.click(".message.user [aria-label='Ask this again']")
        page.wait("document.querySelector('.message.assistant .pager')?.innerText.includes('2 / 2')")
        wait_done(page, 1)
        recorded(c, page.run(ANSWER))
        page.run(HOLD)
        page.click(".message.assistant .acts a")
        page.wait("location.hash.startsWith('#/explain/')")
        page.wait("document.querySelector('.detail') === null", what="the earlier answer is gone before this one is there")
        page.run("window.release()")
        page.wait("/Of \\d+ prompt tokens \\d+ were in the cache/.test(document.querySelector('.detail-says')?.innerText)")
        # A part of the time alone.
        page.click(".segments button:nth-child(2)")
        page.wait("document.querySelector('.segments button:nth-child(2)').getAttribute('aria-pressed') === 'true'")
        page.wait("[...document.querySelectorAll('.waterfall tbody tr')].every((x) => x.dataset.phase !== 'decode')")
    c.wait_idle()


def test_explain_has_no_decode_before_the_first_token(c):
    """Also where the second token came with the first, and so is no later by the router's clock."""
    with opened(c, "talk") as page:
        page.wait("document.querySelector('#talk .title')")
        shown = page.run("""import(new URL('waterfall.js', document.querySelector('script[src]').src)).then(({ Waterfall }) => {
            const phase = (name, at, start_ms, length_ms) => ({ name, at, start_ms, length_ms });
            const all = new Waterfall({ duration_ms: 3, first_token_ms: 2.6, phases: [phase('prefill', 'prefill', 0, 2.5),
                phase('decode', 'decode', 2.5, 0.5)] });
            const rows = () => [...all.element.querySelectorAll('tbody tr')].map((x) => x.dataset.phase);
            const out = [rows()];
            all.element.querySelectorAll('.segments button')[1].click();
            return [...out, rows()]; })""")
        assert shown == [["prefill", "decode"], ["prefill"]], shown
    c.wait_idle()


def test_page_lists_and_filters_requests(c):
    for i in range(3):
        recorded(c, ask(c, f"{i} and so on.")["id"])
    recorded(c, ask(c, "Late.", ttft_target_ms=0, max_tokens=1)["id"])
    with opened(c, "explain") as page:
        page.wait("document.querySelectorAll('.requests tbody tr').length >= 3")
        ids = page.run("[...document.querySelectorAll('.requests tbody tr')].map((x) => x.dataset.id)")
        assert ids == [r["id"] for r in cluster(c, "/requests?limit=50")["requests"]], ids
        page.wait("document.querySelector('.detail-title')?.innerText === 'Request " + ids[0] + "'")
        page.click(f"tr[data-id='{ids[1]}'] a")
        page.wait("document.querySelector('.detail-title')?.innerText === 'Request " + ids[1] + "'")
        page.run("(() => { const s = document.querySelector('#explain select'); s.value = 'failed'; s.dispatchEvent(new Event('change')); })()")
        page.wait("document.querySelector('#explain .none').innerText.includes('None of those that are kept')")
        page.run("location.hash = '#/explain/999999999'")
        page.wait("document.querySelector('.detail-part').innerText.includes('not among those that are kept')")
        page.check("status of 404")
    c.wait_idle()


def test_watch_page_passes_the_accessibility_checker(c):
    script = axe()
    for i in range(2):
        recorded(c, ask(c, f"{i} for axe.")["id"])
    with opened(c) as page:
        page.wait(OPEN)
        page.wait("document.querySelectorAll('.events li').length > 0 && document.querySelectorAll('.worker:not(.router)').length === 3")
        world = page.isolated()
        page.run(script + "; 0", world)

        def find(what):
            for look in LOOKS:
                page.look(**look)
                found = page.run(CHECK, world)
                assert not found, (what, look, json.dumps(found, indent=1))
                assert page.run("document.documentElement.scrollWidth <= innerWidth"), (what, look)

        find("watch")
        page.run("location.hash = '#/explain'")
        page.wait("document.querySelector('.requests tbody tr a')")
        find("list")
        page.click(".requests tbody tr a")
        page.wait("document.querySelector('.waterfall')")
        find("request")


if __name__ == "__main__":
    sys.exit(page_cluster.main(globals(), ["--max-event-streams", "2"], decode=2))
