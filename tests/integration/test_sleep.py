# SPDX-License-Identifier: Apache-2.0
"""Workers that sleep give their memory back, and answer as before when they have woken; prefix caches that are emptied."""
import json
import os
import shutil
import signal
import tempfile

from fleet import Fleet
from harness import PACED, Cluster, endless_model, small_model, tiny_model, wait_until
from launch import Launch
from test_standby import is_ready
from test_tenants import served
from test_training_loops import Asked, begun
from test_weight_updates import allowing, answer_of, check_all, fresh, make_models, update

PROMPT = "one two three four five six seven eight and then some more words of it"


def command(c, path, code=200, at=None):
    status, _, data = c.request("POST", path, "", at=at, timeout=120)
    assert status == code, (path, status, data)
    return json.loads(data)


def sleeping(c, at=None):
    status, _, data = c.request("GET", "/is_sleeping", at=at)
    assert status == 200, (status, data)
    return json.loads(data)["is_sleeping"]


def sleep(c, n=2, at=None, query=""):
    said = command(c, "/sleep" + query, at=at)
    assert said == {"status": "sleeping", "num_workers": n, "num_missing_workers": 0}, said
    assert sleeping(c, at)


def wake(c, n=2, at=None, missing=0):
    said = command(c, "/wake_up", at=at)
    assert said == {"status": "awake", "num_workers": n, "num_missing_workers": missing}, said
    assert not sleeping(c, at)


def memory_of(pid):
    """@return {"anon", "file", "shmem", "total"}: resident bytes, as proc(5) has them"""
    found = {}
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        for line in f:
            name, _, rest = line.partition(":")
            if name in ("RssAnon", "RssFile", "RssShmem", "VmRSS"):
                found[name.removeprefix("Rss").lower().replace("vmrss", "total")] = int(rest.split()[0]) << 10
    return found


def state_of(c, name, at=None):
    workers = json.loads(c.request("GET", "/v2/cluster", at=at)[2])["workers"]
    return {w["name"]: w["state"] for w in workers}.get(name)


def text_of(c, prompt=PROMPT, **more):
    status, answer = c.post("/v1/completions", dict(dict(prompt=prompt, max_tokens=24, seed=3, temperature=0.8, ignore_eos=True,
                                                         return_token_ids=True), **more), timeout=120)
    assert status == 200, (status, answer)
    return answer["choices"][0]["token_ids"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def check_memory(directory, weight_cache):
    """Weights of 80 MiB and more, and a pool of 64 MiB, go; what stays is a few MiB of the program."""
    model = tiny_model(directory, layers=2, dim=1024, heads=8, kv_heads=2, ffn=4096, context=512, seed=1, type="f32")
    weights = os.path.getsize(model)
    assert weights > (80 << 20)
    with Cluster(model, worker_args=["--weight-cache", weight_cache] if weight_cache else []) as c:
        before = text_of(c)
        workers = c.prefills + c.decodes

        def all_of_it():
            """A pool is touched while its worker is idle."""
            return all(memory_of(w.pid)["total"] > weights // 2 + (60 << 20) for w in workers)
        wait_until("the memory is there", all_of_it)
        awake = [memory_of(w.pid) for w in workers]
        sleep(c)
        asleep = [memory_of(w.pid) for w in workers]
        for was, now in zip(awake, asleep):
            assert was["total"] - now["total"] > (weights // 2) + (56 << 20), (was, now)
            assert now["shmem"] < (4 << 20) and now["file"] < (24 << 20) and now["anon"] < (24 << 20), (was, now)
        wake(c)
        assert text_of(c) == (before[0], 0)
        wait_until("the memory is there again", all_of_it)
        c.wait_idle()
    names = "anon file shmem total".split()
    print("    awake, asleep, MiB:", *(f"{name} {awake[1][name] >> 20}, {asleep[1][name] >> 20};" for name in names))


def test_sleep_gives_memory_back_and_answers_are_as_before():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        for cache in ("", "off"):
            check_memory(directory, cache)


def test_sleep_under_load_waits_or_aborts_and_holds_those_that_come():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            Cluster(small_model(directory), worker_args=PACED) as c:
        body = dict(prompt=PROMPT, max_tokens=100, seed=4, temperature=0.8, return_token_ids=True, ignore_eos=True)
        plain = c.post("/v1/completions", body)[1]["choices"][0]["token_ids"]
        early = [Asked(c, "/v1/completions", body) for _ in range(8)]
        wait_until("they run", lambda: begun(c) == 8)
        put = Asked(c, "/sleep?level=1&mode=wait")
        wait_until("it is begun", lambda: sleeping(c))
        late = [Asked(c, "/v1/completions", body) for _ in range(4)]
        status, answer = put.answer()
        assert status == 200 and answer["status"] == "sleeping", (status, answer)
        for one in early:
            assert one.answer()[1]["choices"][0]["token_ids"] == plain
        wait_until("the later ones are here", lambda: begun(c) == 4)
        # Not for want of workers: only a deadline ends one that waits for workers that sleep.
        status, answer = c.post("/v1/completions", dict(body, timeout_ms=300))
        assert status == 504 and "deadline" in str(answer), (status, answer)
        assert all(one.got is None for one in late)
        # Twice, and twice the other way.
        sleep(c)
        assert c.request("GET", "/v2/health/live")[0] == 200
        assert c.request("GET", "/v2/health/ready")[0] == 503
        wake(c)
        wake(c)
        for one in late:
            assert one.answer()[1]["choices"][0]["token_ids"] == plain
        c.wait_idle()
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            Cluster(endless_model(directory), worker_args=PACED) as c:
        endless = dict(prompt=PROMPT, max_tokens=3000, ignore_eos=True)
        running = [Asked(c, "/v1/completions", endless) for _ in range(4)]
        wait_until("they run", lambda: begun(c) == 4)
        sleep(c)
        for one in running:
            status, answer = one.answer()
            assert status == 503 and "aborted by POST /sleep" in str(answer), (status, answer)
        wake(c)
        # Woken before those that run have ended.
        running = Asked(c, "/v1/completions", endless)
        wait_until("it runs", lambda: begun(c) == 1)
        put = Asked(c, "/sleep?mode=wait")
        wait_until("it is begun", lambda: sleeping(c))
        wake(c)
        status, answer = put.answer()
        assert status == 409 and "woken before" in str(answer), (status, answer)
        assert running.got is None
        c.post("/pause", None)
        assert running.answer()[0] == 503
        c.post("/resume", None)
        assert text_of(c, max_tokens=4)[0]


def test_sleep_is_for_those_who_may_give_commands():
    with served(acme="", ops="admin") as (c, keys):
        for headers, code in (({}, 401), ({"Authorization": "Bearer sk-of-nobody"}, 401), (keys.of("acme"), 403)):
            for method, path in (("POST", "/sleep"), ("POST", "/wake_up"), ("GET", "/is_sleeping"), ("POST", "/reset_prefix_cache")):
                status, _, data = c.request(method, path, "" if method == "POST" else None, headers)
                assert status == code, (path, status, data)
        assert "to sleep" not in c.router.log()
        for path in ("/sleep", "/reset_prefix_cache", "/wake_up"):
            assert c.request("POST", path, "", keys.of("ops"))[0] == 200, path


def test_what_sleep_does_not_do_is_refused_by_name():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Cluster(small_model(directory)) as c:
        for path, why in (("/sleep?level=2", "level 2, which forgets the weights, is not supported"), ("/sleep?level=0", "level"),
                          ("/sleep?mode=keep", "keep is not supported"), ("/sleep?x=1", "nothing else"),
                          ("/wake_up?tags=weights", "name both, or none"), ("/wake_up?tags=cuda", "weights and kv_cache"),
                          ("/wake_up?x=1", "nothing else"),
                          ("/reset_prefix_cache?reset_running_requests=true", "requests that run keep their KV blocks"),
                          ("/reset_prefix_cache?x=1", "nothing else")):
            assert why in str(command(c, path, 400)), path
        for path in ("/sleep", "/wake_up", "/reset_prefix_cache"):
            assert c.request("GET", path)[0] == 405
        assert c.post("/is_sleeping", None)[0] == 405
        assert not sleeping(c)
        assert command(c, "/wake_up?tags=weights&tags=kv_cache")["num_workers"] == 2  # it is awake
        assert text_of(c)[0]


def test_reset_prefix_cache_empties_every_worker():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            Cluster(make_models(directory, 0)["default"], prefill=2, decode=2, worker_args=PACED) as c:
        first, _ = text_of(c)
        for _ in range(8):  # on whichever pair
            text_of(c)
        assert text_of(c)[1] > 0
        another = PROMPT + " of another"
        running = Asked(c, "/v1/completions", dict(prompt=another, max_tokens=200, ignore_eos=True))
        wait_until("it runs", lambda: begun(c) == 1)
        wait_until("its prompt is cached", lambda: text_of(c, another, max_tokens=1)[1] > 0)
        said = command(c, "/reset_prefix_cache?reset_external=true")
        assert said["status"] == "reset" and said["num_workers"] == 4 and said["num_blocks"] > 0, said
        assert running.got is None and running.answer()[0] == 200
        c.wait_idle()
        # The one that ran has left nothing there.
        empty = {"status": "reset", "num_workers": 4, "num_blocks": 0}
        again = command(c, "/reset_prefix_cache")
        assert again == empty, again
        assert text_of(c, another, max_tokens=1)[1] == 0
        assert text_of(c) == (first, 0)
        assert text_of(c)[0] == first
        assert command(c, "/reset_prefix_cache")["num_blocks"] > 0
        sleep(c, 4)
        again = command(c, "/reset_prefix_cache")  # of workers that have none
        assert again == empty, again
        wake(c, 4)
        assert text_of(c) == (first, 0)


def test_sleeping_workers_that_are_killed_come_back_asleep():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            Cluster(small_model(directory), decode=2) as c:
        before = text_of(c)[0]
        sleep(c, 3)
        killed = c.decodes[1]
        killed.kill()
        killed.popen.wait()
        wait_until("it is gone", lambda: state_of(c, "decode-1") is None)
        c.decodes[1] = c.start_worker("decode", 1)
        wait_until("it sleeps too", lambda: "asleep: weights and KV pool are given back" in c.decodes[1].log())
        wait_until("the router knows", lambda: state_of(c, "decode-1") == "asleep")
        assert sleeping(c)
        c.decodes[0].kill()  # and is not replaced
        c.decodes[0].popen.wait()
        wait_until("it is gone", lambda: state_of(c, "decode-0") is None)
        wake(c)
        assert text_of(c)[0] == before
        # A router that was not there learns of it from the workers.
        sleep(c)
        c.router.kill()
        c.router.popen.wait()
        c.router = c.start_router()
        # It is not ready, and answers.
        wait_until("it is there", lambda: not c.router.is_ready() and "grpc " in c.router.ready_text)
        c.read_addresses()
        wait_until("it knows that they sleep", lambda: sleeping(c) and state_of(c, "decode-1") == "asleep"
                   and state_of(c, "prefill-0") == "asleep")
        late = Asked(c, "/v1/completions", dict(prompt=PROMPT, max_tokens=4))
        wait_until("one waits", lambda: begun(c) == 1)
        wake(c)
        assert late.answer()[0] == 200


def test_workers_that_die_while_they_wake_are_missing_and_may_come_back():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            Cluster(small_model(directory), decode=2) as c:
        before = text_of(c)[0]
        sleep(c, 3)
        dying = c.decodes[1]
        dying.kill(signal.SIGSTOP)  # it is told, and takes nothing in
        waking = Asked(c, "/wake_up")
        wait_until("the others are awake", lambda: c.here()[0] == 1 and state_of(c, "decode-0") == "up")
        assert waking.got is None
        dying.kill()
        dying.popen.wait()
        assert text_of(c)[0] == before  # the others serve
        c.decodes[1] = c.start_worker("decode", 1)
        status, said = waking.answer()
        assert status == 200 and said == {"status": "awake", "num_workers": 3, "num_missing_workers": 0}, (status, said)
        assert text_of(c)[0] == before


def test_worker_that_cannot_be_woken_sleeps_on_and_is_told_again():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        model = small_model(directory)
        aside = os.path.join(directory, "aside.gguf")
        with Cluster(model) as c:
            before = text_of(c)[0]
            sleep(c)
            os.rename(model, aside)
            said = command(c, "/wake_up", 503)
            assert "could not be woken" in str(said) and "of 2 workers are awake" in str(said), said
            for one in ("decode-0", "prefill-0"):
                assert state_of(c, one) == "asleep"
            assert "cannot be woken (" in c.decodes[0].log()
            # Another file in its place is not the one of before.
            os.mkdir(os.path.join(directory, "other"))
            shutil.copy(tiny_model(os.path.join(directory, "other"), layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=512, seed=9),
                        model)
            wait_until("they are told again, by and by", lambda: "is not the one of before the sleep" in c.decodes[0].log()
                       or c._check_alive())
            assert "could not be woken" in str(command(c, "/wake_up", 503))
            os.rename(aside, model)
            wake(c)
            assert text_of(c)[0] == before


def test_launched_workers_sleep_and_are_started_again_asleep():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Launch("--model", small_model(directory)) as launch:
        address = launch.process("router")["http"]

        def post(path, body=None):
            return launch.post(address, path, body, timeout=120)
        body = dict(prompt=PROMPT, max_tokens=16, seed=3, temperature=0.8, return_token_ids=True)
        before = post("/v1/completions", body)[1]["choices"][0]["token_ids"]
        pids = {name: x["pid"] for name, x in launch.processes().items()}
        status, said = post("/sleep")
        assert status == 200 and said["num_workers"] == 2, (status, said)
        os.kill(pids["decode-0"], signal.SIGKILL)
        wait_until("it was started again", lambda: launch.process("decode-0")["pid"] not in (None, 0, pids["decode-0"]))
        status, said = post("/sleep")  # answered when it sleeps, too
        assert status == 200 and said["num_workers"] == 2, (status, said)
        status, said = post("/wake_up")
        assert status == 200 and said["num_workers"] == 2, (status, said)
        assert post("/v1/completions", body)[1]["choices"][0]["token_ids"] == before
        assert launch.process("prefill-0")["pid"] == pids["prefill-0"]


def test_standby_that_replaces_a_sleeping_worker_sleeps_too():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            Launch("--model", small_model(directory), "--standby", "1") as launch:
        address = launch.process("router")["http"]

        def post(path, body=None):
            return launch.post(address, path, body, timeout=120)
        body = dict(prompt=PROMPT, max_tokens=16, seed=3, temperature=0.8, return_token_ids=True)
        before = post("/v1/completions", body)[1]["choices"][0]["token_ids"]
        wait_until("a standby is ready", lambda: is_ready(launch, "standby-0"))
        standby, killed = launch.process("standby-0")["pid"], launch.process("decode-0")["pid"]
        status, said = post("/sleep")
        assert status == 200 and said["num_workers"] == 2, (status, said)
        os.kill(killed, signal.SIGKILL)
        wait_until("the standby replaces it", lambda: launch.process("decode-0")["pid"] == standby)
        status, said = post("/sleep")
        assert status == 200 and said["num_workers"] == 2, (status, said)
        status, said = post("/wake_up")
        assert status == 200 and said["num_workers"] == 2, (status, said)
        assert post("/v1/completions", body)[1]["choices"][0]["token_ids"] == before


def test_replaced_weights_are_those_of_a_worker_that_wakes():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        versions = make_models(directory, 2)
        expected = {version: fresh(path) for version, path in versions.items()}
        with Cluster(versions["default"], **allowing(directory)) as c:
            update(c, "step-1.gguf", "step-1")
            check_all(c, "step-1", expected)
            sleep(c)
            assert "wake them by POST /wake_up first" in str(update(c, "step-2.gguf", "step-2", code=409))
            wake(c)
            check_all(c, "step-1", expected)
            sleep(c)
            wake(c)
            update(c, "step-2.gguf", "step-2")
            check_all(c, "step-2", expected)
            # One that was started with others while it slept has them loaded when it wakes.
            sleep(c)
            c.decodes[0].kill()
            c.decodes[0].popen.wait()
            c.decodes[0] = c.start_worker("decode", 0)
            wait_until("it sleeps", lambda: state_of(c, "decode-0") == "asleep")
            command(c, "/wake_up")
            check_all(c, "step-2", expected)


def test_worker_whose_weights_are_gone_wakes_for_the_next_ones():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        versions = make_models(directory, 2)
        expected = {version: fresh(path) for version, path in versions.items()}
        with Cluster(versions["default"], **allowing(directory)) as c:
            update(c, "step-1.gguf", "step-1")
            check_all(c, "step-1", expected)
            sleep(c)
            os.remove(versions["step-1"])  # as a loop does that keeps the last step alone
            said = command(c, "/wake_up", 503)
            assert "cannot load the weights in force; replace them" in str(said), said
            update(c, "step-2.gguf", "step-2")
            check_all(c, "step-2", expected)
            sleep(c)
            wake(c)
            check_all(c, "step-2", expected)


def test_other_routers_learn_of_sleep_and_of_its_end():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Fleet(small_model(directory)) as fleet:
        one, other = fleet.https[0], fleet.https[1]
        before = answer_of(fleet, 0, at=one)["choices"][0]["token_ids"]
        sleep(fleet, at=one)
        wait_until("the other one knows", lambda: sleeping(fleet, other))
        wake(fleet, at=other)
        wait_until("the first one knows", lambda: not sleeping(fleet, one))
        for at in (one, other):
            assert answer_of(fleet, 0, at=at)["choices"][0]["token_ids"] == before
