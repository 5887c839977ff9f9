# SPDX-License-Identifier: Apache-2.0
"""Weights that are replaced while the cluster serves: every answer is of one version, which it names, and is that of a
cluster that was started with those weights."""
import asyncio
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import struct
import tempfile
import threading

from cgroups import Group
from fleet import Fleet
from harness import PACED, Cluster, Stream, tiny_model, wait_until
from launch import Launch

PROMPTS = [f"{word} and then some more words that fill a block of the cache, {i}" for i, word in enumerate(
    "one two three four".split())]
TOKENS = 24


def gguf_floats(data):
    """(offset, count) of each tensor of F32 in a GGUF file, by the format's description (ggml/docs/gguf.md)."""
    at = 4
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def number(form):
        nonlocal at
        value, = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal at
        n = number("Q")
        at += n
        return data[at - n:at].decode("utf-8", "replace")

    def skip(kind):
        nonlocal at
        if kind == 8:
            text()
        elif kind == 9:
            inner, n = number("I"), number("Q")
            for _ in range(n):
                skip(inner)
        else:
            at += sizes[kind]

    number("I")
    n_tensors, n_pairs = number("Q"), number("Q")
    alignment = 32
    for _ in range(n_pairs):
        key, kind = text(), number("I")
        if key == "general.alignment":
            alignment, = struct.unpack_from("<I", data, at)
        skip(kind)
    found = []
    for _ in range(n_tensors):
        text()
        count = 1
        for _ in range(number("I")):
            count *= number("Q")
        kind, offset = number("I"), number("Q")
        if kind == 0:
            found.append((offset, count))
    start = (at + alignment - 1) // alignment * alignment
    assert found
    return [(start + offset, count) for offset, count in found]


def perturbed(model, path, seed):
    """A copy whose tensors of F32 are each times something between 0.5 and 1.5."""
    with open(model, "rb") as f:
        data = bytearray(f.read())
    draw = random.Random(seed)
    for offset, count in gguf_floats(data):
        values = struct.unpack_from(f"<{count}f", data, offset)
        struct.pack_into(f"<{count}f", data, offset, *(v * (0.5 + draw.random()) for v in values))
    with open(path, "wb") as f:
        f.write(data)
    return path


def make_models(directory, n=2):
    """@return {version: path}, the first of which is called default."""
    model = tiny_model(directory, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=512, seed=1)
    versions = {"default": model}
    for i in range(1, n + 1):
        versions[f"step-{i}"] = perturbed(model, os.path.join(directory, f"step-{i}.gguf"), i)
    return versions


def body_of(i, **more):
    return dict(prompt=PROMPTS[i], max_tokens=TOKENS, seed=i, temperature=0.9, logprobs=2, return_token_ids=True, ignore_eos=True,
                **more)


def answer_of(c, i, at=None, **more):
    status, _, data = c.request("POST", "/v1/completions", body_of(i, **more), at=at, timeout=120)
    assert status == 200, (status, data)
    return json.loads(data)


def essence(answer):
    """Tokens and log-probs of each choice."""
    return [(x["token_ids"], x["logprobs"]["token_logprobs"], x["logprobs"]["top_logprobs"]) for x in answer["choices"]]


def fresh(model, **more):
    """What a cluster that is started with a model answers."""
    with Cluster(model, **more) as c:
        return [essence(answer_of(c, i)) for i in range(len(PROMPTS))]


def allowing(directory, *worker_args):
    allowed = ["--allow-weight-updates", directory]
    return dict(worker_args=allowed + list(worker_args), router_args=allowed)


def update(c, path, version, at=None, code=200, **more):
    status, _, data = c.request("POST", "/update_weights_from_disk", dict(model_path=path, weight_version=version, **more), at=at,
                                timeout=120)
    assert status == code, (status, data)
    return json.loads(data)


def check_all(c, version, expected, at=None):
    for i, one in enumerate(expected[version]):
        answer = answer_of(c, i, at)
        assert answer["weight_version"] == version, answer["weight_version"]
        assert essence(answer) == one, (version, i)


def test_log_probs_after_a_replacement_are_those_of_a_fresh_start():
    """Twice in a row, back again, and with drafts."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        versions = make_models(directory)
        expected = {version: fresh(path) for version, path in versions.items()}
        assert expected["default"] != expected["step-1"] != expected["step-2"] != expected["default"]
        with Cluster(versions["default"], **allowing(directory, "--draft", "ngram")) as c:
            check_all(c, "default", expected)
            check_all(c, "default", expected)  # its prompts are cached now
            packed = os.path.join(c.dir, "weights")
            first = {f for f in os.listdir(packed) if f.endswith(".packed")}
            for name, version in (("step-1.gguf", "step-1"), ("step-2.gguf", "step-2"), ("tiny.gguf", "default")):
                said = update(c, name, version)
                assert said["success"] and said["num_workers"] == 2 and said["num_missing_workers"] == 0, said
                check_all(c, version, expected)
                assert json.loads(c.request("GET", "/get_weight_version")[2]) == {"weight_version": version}
            c.wait_idle()
            # What was packed of weights that are not in force any more is removed; the last ones are those of the start again.
            assert {f for f in os.listdir(packed) if f.endswith(".packed")} == first and len(first) == 1
            update(c, "step-1.gguf", "step-1")
            update(c, "tiny.gguf", "default")
            c.wait_idle()
            # Those of the start stay, though they were a replacement too.
            assert {f for f in os.listdir(packed) if f.endswith(".packed")} == first
            for path in ("/v2/models/ensemble/generate", "/v1/chat/completions"):
                status, answer = c.post(path, dict(text_input="a", messages=[dict(role="user", content="a")], max_tokens=3))
                assert status == 200 and answer["weight_version"] == "default", (status, answer)
            status, answer = c.post("/v2/models/ensemble/infer", dict(inputs=[
                dict(name="text_input", datatype="BYTES", shape=[1, 1], data=["a"]),
                dict(name="max_tokens", datatype="INT32", shape=[1, 1], data=[3])]))
            assert status == 200 and answer["parameters"] == {"weight_version": "default"}, (status, answer)
        with Cluster(versions["default"], prefill=0, decode_args=["--local-prefill"], **allowing(directory, "--draft", "self")) as c:
            check_all(c, "default", expected)
            assert update(c, versions["step-1"], "step-1")["num_workers"] == 1
            check_all(c, "step-1", expected)


def test_answers_under_a_replacement_are_each_of_one_version():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        versions = make_models(directory)
        expected = {version: fresh(path) for version, path in versions.items()}
        seen = {version: 0 for version in versions}
        over = threading.Event()

        async def client(c, i):
            """Asks until it is over."""
            while not over.is_set():
                stream = await Stream(c.http, "/v1/completions", body_of(i % len(PROMPTS), stream=True)).run()
                assert stream.status == 200, (stream.status, stream.events)
                events = [e for e in stream.events if isinstance(e, dict)]
                named = {e["weight_version"] for e in events}
                assert len(named) == 1, named
                version = named.pop()
                ids = [t for e in events for x in e["choices"] for t in x.get("token_ids") or []]
                scores = [s for e in events for x in e["choices"] for s in (x["logprobs"] or {}).get("token_logprobs", [])]
                assert [(ids, scores)] == [x[:2] for x in expected[version][i % len(PROMPTS)]], (version, i)
                seen[version] += 1

        async def steps(c):
            """Each version has answers of its own before the next one comes."""
            async def some_of(version):
                before = seen[version]
                while seen[version] < before + 32:
                    assert not any(t.done() for t in tasks), [t.exception() for t in tasks if t.done()]
                    await asyncio.sleep(0.01)  # the clients' turn
            tasks = [asyncio.create_task(client(c, i)) for i in range(32)]
            await some_of("default")
            for version in ("step-1", "step-2"):
                said = await asyncio.to_thread(update, c, versions[version], version)
                assert said["num_missing_workers"] == 0, said
                await some_of(version)
            over.set()
            await asyncio.gather(*tasks)

        with Cluster(versions["default"], prefill=2, decode=2, **allowing(directory, *PACED)) as c:
            asyncio.run(steps(c))
            c.wait_idle()
            check_all(c, "step-2", expected)
        print(f"    {seen}")


def test_weights_that_do_not_fit_are_refused_by_name_and_change_nothing():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            tempfile.TemporaryDirectory(prefix="baton-test-") as outside:
        versions = make_models(directory, 1)
        expected = {"default": fresh(versions["default"])}
        os.mkdir(os.path.join(directory, "other"))
        wide = tiny_model(os.path.join(directory, "other"), layers=2, dim=64, heads=4, kv_heads=2, ffn=256, context=512, seed=1)
        with open(os.path.join(directory, "rubbish.gguf"), "wb") as f:
            f.write(b"GGUF rubbish")
        with open(versions["default"], "rb") as f:
            data = f.read()
        word, other = "Ġand".encode(), "Ġanb".encode()
        assert data.count(word) == 1 and data.count(other) == 0
        with open(os.path.join(directory, "words.gguf"), "wb") as f:
            f.write(data.replace(word, other))
        beyond = perturbed(versions["default"], os.path.join(outside, "beyond.gguf"), 3)
        os.symlink(beyond, os.path.join(directory, "link.gguf"))
        with Cluster(versions["default"], **allowing(directory)) as c:
            for path, why in ((wide, "settings"), ("words.gguf", "tokenizer"), ("rubbish.gguf", "rubbish.gguf"),
                              ("none.gguf", "No such file"), (beyond, "not below"), ("link.gguf", "not below"),
                              ("../" + os.path.basename(outside) + "/beyond.gguf", "not below")):
                said = update(c, path, "wrong", code=400)
                assert why in str(said) and "worker " in str(said), (path, said)
            for more, why in (({"load_format": "dummy"}, "load_format"), ({"flush_cache": False}, "flush_cache"),
                              ({"weight_version": ""}, "weight_version"), ({"weight_version": "x" * 64}, "weight_version"),
                              ({"keep_pause": True}, "keep_pause"), ({"model_path": ""}, "model_path")):
                status, answer = c.post("/update_weights_from_disk", dict(dict(model_path="step-1.gguf", weight_version="x"), **more))
                assert status == 400 and why in str(answer), (more, status, answer)
            check_all(c, "default", expected)
        with Cluster(versions["default"], worker_args=["--allow-weight-updates", directory]) as c:
            assert "--allow-weight-updates" in str(update(c, "step-1.gguf", "step-1", code=403))
        with Cluster(versions["default"], router_args=["--allow-weight-updates", directory]) as c:
            said = update(c, "step-1.gguf", "step-1", code=409)
            assert "replaces no weights" in str(said), said


def test_requests_that_run_are_ended_on_demand():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        versions = make_models(directory, 1)
        expected = {"step-1": fresh(versions["step-1"])}
        with Cluster(versions["default"], **allowing(directory, "--draft", "off", "--simulate-step-us", "100000")) as c:
            got = []
            asked = threading.Thread(target=lambda: got.append(c.post("/v1/completions", dict(
                body_of(0), max_tokens=400), timeout=120)))
            asked.start()
            wait_until("it runs", lambda: json.loads(c.request("GET", "/v2/cluster")[2])["queue"]["running"] == 1)
            update(c, "step-1.gguf", "step-1", abort_all_requests=True)
            asked.join()
            assert got[0][0] == 503 and "aborted by POST /update_weights_from_disk" in str(got[0][1]), got
            check_all(c, "step-1", expected)


def test_workers_that_die_meanwhile_and_come_back_load_them_too():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        versions = make_models(directory, 1)
        expected = {"step-1": fresh(versions["step-1"])}
        with Cluster(versions["default"], decode=2, **allowing(directory)) as c:
            killed = c.decodes[1]
            updates = []
            asked = threading.Thread(target=lambda: updates.append(update(c, "step-1.gguf", "step-1")))
            killed.kill(signal.SIGSTOP)  # it answers nothing and is killed in the middle
            asked.start()
            wait_until("the others have checked them",
                       lambda: "weights step-1 at step-1.gguf are being checked" in c.router.log())
            killed.kill()
            killed.popen.wait()
            asked.join()
            assert updates and updates[0]["num_workers"] == 2, updates
            check_all(c, "step-1", expected)

            # One that is started with the model of before is no use until it has the new weights.
            c.decodes[1] = c.start_worker("decode", 5)
            wait_until("it has them", lambda: c.here() == (1, 2))
            wait_until("it says so", lambda: "step-1.gguf, cpu" in c.decodes[1].log())
            c.decodes[0].kill()
            c.decodes[0].popen.wait()
            check_all(c, "step-1", expected)


def test_other_routers_learn_of_a_replacement():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        versions = make_models(directory, 2)
        expected = {version: fresh(path) for version, path in versions.items()}
        with Fleet(versions["default"], **allowing(directory)) as fleet:
            for n, version in enumerate(("step-1", "step-2")):
                update(fleet, versions[version], version, at=fleet.https[n])
                fleet.all_see("both workers", lambda w: {x["state"] for x in w.values()} == {"up"} and len(w) == 2)
                for i in range(2):
                    check_all(fleet, version, expected, at=fleet.https[i])


class Asked(threading.Thread):
    """A call that is under way."""

    def __init__(self, function, *args, **kwargs):
        super().__init__()
        self.call, self.got, self.error = lambda: function(*args, **kwargs), None, None
        self.start()

    def run(self):
        try:
            self.got = self.call()
        except BaseException as e:  # pylint: disable=broad-except
            self.error = e

    def answer(self):
        self.join(120)
        if self.error is not None:
            raise self.error
        assert not self.is_alive()
        return self.got


@contextlib.contextmanager
def running(address):
    """A request that has begun, and is left at the end."""
    connection = http.client.HTTPConnection(*address, timeout=120)
    connection.request("POST", "/v1/completions", json.dumps(dict(body_of(0, stream=True), max_tokens=400)))
    answer = connection.getresponse()
    assert answer.status == 200 and answer.read(1), answer.read()
    yield
    answer.close()
    connection.close()


def test_a_file_that_is_lost_before_it_is_loaded_leaves_a_worker_that_can_load_another():
    """A request of another router keeps the decode worker from loading what it has looked at."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        versions = make_models(directory, 1)
        expected = {"step-1": fresh(versions["step-1"])}
        os.mkdir(os.path.join(directory, "other"))
        wide = tiny_model(os.path.join(directory, "other"), layers=2, dim=64, heads=4, kv_heads=2, ffn=256, context=512, seed=1)
        changes = (("gone", os.unlink), ("cut", lambda path: os.truncate(path, 20000)),
                   ("another", lambda path: os.replace(wide, path)))
        with Fleet(versions["default"], **allowing(directory, "--draft", "off", "--simulate-step-us", "50000")) as fleet:
            prefill, decode = fleet.workers["prefill-0"], fleet.workers["decode-1"]
            for n, (version, change) in enumerate(changes):
                path = shutil.copy(versions["step-1"], os.path.join(directory, version + ".gguf"))
                with running(fleet.https[1]):
                    lost = Asked(update, fleet, path, version, at=fleet.https[0], code=503)
                    wait_until("the decode worker is to load it", lambda v=version: f"weights {v} are to be loaded" in decode.log())
                    wait_until("the prefill worker has it", lambda p=path: f"ready: {p}" in prefill.log())
                    change(path)
                wait_until("it serves again", lambda n=n: decode.log().count(f"ready: {versions['default']}") == n + 2
                           or fleet._check_alive())
                assert f"weights {version} could not be loaded from {path}" in decode.log()
                if version == "another":
                    assert "have changed since they were looked at: it has other settings" in decode.log()
                said = str(lost.answer())
                assert f"weights {version} are in force, and 1 of 2 workers have them: worker decode-1: " in said, said
                assert "they could not be loaded" in said, said
                said = update(fleet, versions["step-1"], "step-1", at=fleet.https[1])
                assert said["num_workers"] == 2 and said["num_missing_workers"] == 0, said
                for i in range(2):
                    check_all(fleet, "step-1", expected, at=fleet.https[i])
                assert decode.log().count(" are to be loaded from ") == 2 * (n + 1), version  # not again and again


def test_weights_of_a_type_that_memory_does_not_hold_are_refused():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        shape = dict(layers=2, dim=1024, heads=8, kv_heads=2, ffn=4096, context=512, seed=1)
        paths = {}
        for kind in ("q4_0", "f32"):
            os.mkdir(os.path.join(directory, kind))
            paths[kind] = tiny_model(os.path.join(directory, kind), type=kind, **shape)
        small, large = (os.path.getsize(paths[kind]) for kind in ("q4_0", "f32"))
        # What the small ones need, with their scratch, and some more; the large ones take more than that beside the same scratch.
        room = 140 << 20
        assert small < (20 << 20) and large > (110 << 20), (small, large)
        with Group("memory", limit_in_bytes=room) as memory, \
                Cluster(paths["q4_0"], **allowing(directory, "--kv-tokens", "2048")) as c:
            with open(memory.folder + "/cgroup.procs", "w", encoding="ascii") as f:
                f.write(str(c.decodes[0].pid))
            said = update(c, paths["f32"], "large", code=400)
            assert "decode-0: " in str(said) and "cannot start with it (out of memory)" in str(said), said
            assert "not enough memory: the model takes" in c.decodes[0].log()
            assert update(c, paths["q4_0"], "small")["num_workers"] == 2


def test_launched_workers_replace_weights_and_load_them_after_a_crash():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        versions = make_models(directory, 1)
        expected = {version: fresh(path) for version, path in versions.items()}
        with Launch("--model", versions["default"], "--allow-weight-updates", directory) as launch:
            address = launch.process("router")["http"]

            def check(version):
                for i, one in enumerate(expected[version]):
                    status, answer = launch.post(address, "/v1/completions", body_of(i), timeout=120)
                    assert status == 200 and answer["weight_version"] == version and essence(answer) == one, (version, status)
            check("default")
            pids = {name: x["pid"] for name, x in launch.processes().items()}
            status, said = launch.post(address, "/update_weights_from_disk", dict(
                model_path="step-1.gguf", weight_version="step-1"), timeout=120)
            assert status == 200 and said["num_workers"] == 2, (status, said)
            assert {name: x["pid"] for name, x in launch.processes().items()} == pids  # in place
            check("step-1")
            os.kill(pids["decode-0"], signal.SIGKILL)
            check("step-1")
            wait_until("it was started again", lambda: launch.process("decode-0")["pid"] not in (None, 0, pids["decode-0"]))
            check("step-1")
