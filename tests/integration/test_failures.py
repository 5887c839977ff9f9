# SPDX-License-Identifier: Apache-2.0
"""Workers that die, stop, never come or do not fit."""
import asyncio
import http.client
import itertools
import json
import os
import signal
import subprocess
import tempfile
import threading
import time

from harness import (BUILD, ENDLESS, LONG_PROMPT, PACED, Cluster, Process, Stream, endless_model, slow_model, small_model,
                     tiny_model, wait_until)
from launch import Launch

SILENCE = (4000, 6000)  # ms; a busy machine is silent for 2 s
HANGS = 120.0  # seconds; whoever takes longer never ends
SOON = ["--worker-wait-ms", "500"]  # of a router that waits for no worker to come back
BODY = {"prompt": "tell me everything", "max_tokens": 600, "temperature": 0, "stream": True, "ignore_eos": True}
ENDLESS_BODY = dict(BODY, max_tokens=ENDLESS)


async def until(what, condition):
    """wait_until for a test whose streams go on meanwhile"""
    end = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end, f"not within {HANGS} s: {what}"
        await asyncio.sleep(0.005)


async def stream_and(c, after, action, body=None):
    """Open a stream, act as soon as some events are there. @return (stream, seconds from the action to the stream's
    end)"""
    s = Stream(c.http, "/v1/completions", body or BODY)
    task = asyncio.ensure_future(s.run())
    await until("the stream has begun", lambda: len(s.events) >= after or task.done())
    assert not task.done(), s.events[-1:]
    action()
    acted = time.monotonic()
    await asyncio.wait_for(task, HANGS)
    return s, time.monotonic() - acted


_texts = []


def whole_text(c):
    """What BODY gives, always (I1): the first cluster is asked."""
    if not _texts:
        _texts.append(c.complete(BODY["prompt"], BODY["max_tokens"], temperature=0, ignore_eos=True)["text"])
    return _texts[0]


def ended_with_an_error(s, whole):
    message, = s.errors()
    message = message if isinstance(message, str) else message["message"]
    assert len(message) > 10, message
    # What came before is right; an endless answer begins as a short one does.
    assert s.text()[:len(whole)] == whole[:len(s.text())], s.text()


def next_one_works(c):
    wait_until("the next request works", lambda: c.post(
        "/v1/completions", {"prompt": "next", "max_tokens": 8})[0] == 200)
    c.wait_idle()


def freed_by(role, transport, backend="cpu", env=None):
    """A worker is killed in the middle of the first of six long prompts, with the others behind it.
    @return seconds until the other one holds nothing."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(endless_model(d), kv_memory="256m", env=env, router_args=SOON,
                     worker_args=["--chunk-tokens", "16", "--kv-transport", transport, "--backend", backend]) as c:
            body = dict(BODY, prompt=LONG_PROMPT)

            def leases(of):
                return c.total("baton_kv_leases", role=of)

            def held():
                # Only the living tell, so after the kill these are the survivor's.
                return (leases("prefill") + leases("decode"),
                        c.total("nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type="used"))

            async def go():
                streams = [Stream(c.http, "/v1/completions", body) for _ in range(6)]
                tasks = [asyncio.ensure_future(s.run()) for s in streams]
                # The prefill worker sends what it has of the first one; the others have room at both.
                await until("the prompts are under way",
                            lambda: leases("prefill") >= 1 and leases("decode") == len(streams))
                before = held()
                assert not any(s.events for s in streams), [s.events for s in streams]
                (c.prefills if role == "prefill" else c.decodes)[0].kill()
                killed = time.monotonic()
                await until("the other worker holds nothing", lambda: not any(held()))
                seconds = time.monotonic() - killed
                await asyncio.wait_for(asyncio.gather(*tasks), HANGS)
                assert all(s.errors() or s.status == 503 for s in streams), [s.status for s in streams]
                return before, seconds
            return asyncio.run(go())


def test_blocks_of_a_dead_worker_are_freed_at_once():
    """Silence would tell only after 20 s (Cluster.PATIENT): it is the death itself that is noticed. On a machine with
    nothing else to do all is free within 0.3 s."""
    for transport in ("shm", "network"):
        for role in ("prefill", "decode"):
            (leases, blocks), seconds = freed_by(role, transport)
            print(f"    {transport}, {role} worker killed: {leases:.0f} leases, {blocks:.0f} blocks free after "
                  f"{seconds:.2f} s")
            assert 1000 * seconds < Cluster.PATIENT[0], seconds


def test_silent_sender_that_may_still_write_is_ended():
    """A stopped prefill worker could write into revoked leases when it goes on
    (shared memory): the decode worker sets the blocks aside, says so, and past
    the limit ends it (I2)."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(endless_model(d), kv_memory="256m", silence=SILENCE,
                     worker_args=["--chunk-tokens", "16", "--kv-transport", "shm", "--quarantine-ms", "4000"]) as c:
            body = dict(BODY, prompt=LONG_PROMPT)

            def set_aside():
                return c.total("baton_kv_blocks", role="decode", state="quarantined")

            async def go():
                tasks = [asyncio.ensure_future(Stream(c.http, "/v1/completions", body).run()) for _ in range(4)]
                # It has written into the first lease at least, and will need that for long. Before, it is no writer.
                await until("the prompts are under way", lambda: c.total("baton_kv_leases", role="prefill") >= 1 and
                            c.metric("baton_kv_bytes_total", direction="sent") > 0)
                c.prefills[0].kill(signal.SIGSTOP)
                await until("blocks are set aside", lambda: set_aside() > 0)
                await until("the limit", lambda: not c.prefills[0].alive())
                await asyncio.wait_for(asyncio.gather(*tasks), HANGS)
            asyncio.run(go())
            assert c.prefills[0].popen.poll() == -signal.SIGKILL, c.decodes[0].log()
            assert "past the quarantine limit" in c.decodes[0].log()
            c.wait_idle()
            wait_until("nothing is set aside", lambda: set_aside() == 0)
            c.start_worker("prefill", 1)
            next_one_works(c)


def test_kill_decode_worker_mid_request():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(endless_model(d), kv_memory="128m", router_args=SOON) as c:
            whole = c.complete(BODY["prompt"], 20, temperature=0, ignore_eos=True)["text"]
            s, seconds = asyncio.run(stream_and(c, 3, c.decodes[0].kill, ENDLESS_BODY))
            ended_with_an_error(s, whole)
            # A new worker comes, as the launcher would start it; the next works.
            c.start_worker("decode", 1)
            next_one_works(c)
            print(f"    decode worker killed: the stream ended after {seconds:.2f} s with an error")


def test_kill_prefill_worker_mid_request():
    """Its part is done: the stream goes on."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(slow_model(d)) as c:
            whole = whole_text(c)
            s, seconds = asyncio.run(stream_and(c, 3, c.prefills[0].kill))
            assert s.done and not s.errors() and s.text() == whole, s.events[-1:]
            c.start_worker("prefill", 1)
            next_one_works(c)
            print(f"    prefill worker killed: the stream was complete after {seconds:.2f} s")


def test_kill_prefill_worker_during_context_phase():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(endless_model(d), kv_memory="128m", worker_args=["--chunk-tokens", "16"], router_args=SOON) as c:
            async def go():
                s = Stream(c.http, "/v1/completions", dict(BODY, prompt=LONG_PROMPT))
                task = asyncio.ensure_future(s.run())
                await until("it is active",
                            lambda: c.metric("nv_trt_llm_request_metrics", request_type="active") > 0)
                c.prefills[0].kill()
                await asyncio.wait_for(task, HANGS)
                return s
            s = asyncio.run(go())
            assert s.status != 200 or s.errors(), (s.status, s.events[-1:])
            c.start_worker("prefill", 1)
            next_one_works(c)


def test_interrupted_request_runs_elsewhere_with_the_same_bytes():
    """Two decode workers: the one that has the stream dies; the text goes on."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(slow_model(d), prefill=1, decode=2, decode_args=PACED) as c:
            whole = whole_text(c)

            def cpu_ticks(process):
                with open(f"/proc/{process.pid}/stat", encoding="ascii") as f:
                    return int(f.read().split()[13])

            before = {p.name: cpu_ticks(p) for p in c.decodes}

            def kill_the_busy_one():
                max(c.decodes, key=lambda p: cpu_ticks(p) - before[p.name]).kill()
            s, seconds = asyncio.run(stream_and(c, 60, kill_the_busy_one))
            assert s.done and not s.errors(), s.events[-1:]
            assert s.text() == whole
            assert c.total("baton_retries_total") == 1
            print(f"    went on after the death of its decode worker, done {seconds:.2f} s later")
            c.wait_idle()


def comes_back(c, role):
    """The only worker of a role is killed and started anew later than a router once waited for one (2 s)."""
    worker, = c.decodes if role == "decode" else c.prefills
    worker.kill()
    c.processes.remove(worker)
    worker.popen.wait()
    threading.Timer(3, lambda: c.start_worker(role, 1)).start()


def test_interrupted_requests_wait_for_the_only_worker_of_a_role():
    """As long as a request that has just come would (--worker-wait-ms); the text goes on with the same bytes."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(slow_model(d), worker_args=["--chunk-tokens", "16"]) as c:
            whole = whole_text(c)
            s, _ = asyncio.run(stream_and(c, 3, lambda: comes_back(c, "decode")))
            assert s.done and not s.errors() and s.text() == whole, s.events[-1:]
        with Cluster(endless_model(d), kv_memory="128m", worker_args=["--chunk-tokens", "16"]) as c:
            body = dict(BODY, prompt="word " * 500, max_tokens=8)
            whole = c.complete(body["prompt"], body["max_tokens"], temperature=0, ignore_eos=True, cache_salt="whole")["text"]

            async def go():
                s = Stream(c.http, "/v1/completions", body)
                task = asyncio.ensure_future(s.run())
                await until("it is active",
                            lambda: c.metric("nv_trt_llm_request_metrics", request_type="active") > 0)
                comes_back(c, "prefill")
                await asyncio.wait_for(task, HANGS)
                return s
            s = asyncio.run(go())
            assert s.done and not s.errors() and s.text() == whole, (s.status, s.events[-1:])
            c.wait_idle()


def test_no_request_fails_while_the_only_worker_of_a_role_is_killed_repeatedly():
    """Four times here, 20 with --long and by turns of the roles. The launcher starts it again after 0.5 to 4 s, or 30, and requests
    wait, those that were interrupted and those that come: not for --worker-wait-ms, but as long as the launcher means to."""
    kills, wait_ms = (20, "10000") if os.environ.get("BATON_LONG") else (4, "3000")  # less than the last pauses
    with tempfile.TemporaryDirectory() as d, Launch("--model", slow_model(d), "--worker-wait-ms", wait_ms) as launch:
        address, metrics = (launch.process("router")[name] for name in ("http", "metrics"))
        answers, over = [], threading.Event()

        def client(i):
            for k in itertools.count():
                if over.is_set():
                    return
                body = {"prompt": f"client {i} asks {k}", "max_tokens": 30, "temperature": 0, "ignore_eos": True}
                try:
                    answers.append(launch.post(address, "/v1/completions", body, 300))
                except (OSError, http.client.HTTPException) as why:
                    answers.append((0, repr(why)))
        clients = [threading.Thread(target=client, args=(i,)) for i in range(4)]
        for thread in clients:
            thread.start()
        try:
            for k in range(kills):
                name = "prefill-0" if kills > 4 and k % 2 else "decode-0"
                served = len(answers)
                wait_until("requests are served", lambda: len(answers) >= served + 4, 120)
                pid = launch.process(name)["pid"]
                os.kill(int(pid), signal.SIGKILL)
                wait_until("another one runs", lambda: launch.process(name)["pid"] not in (pid, 0), 120)
        finally:
            over.set()
            for thread in clients:
                thread.join(300)
        failed = [answer for answer in answers if answer[0] != 200]
        assert not failed, (len(answers), failed[:4])
        reruns = launch.metric(metrics, "baton_retries_total")
        print(f"{kills} kills, {len(answers)} requests, none failed, {reruns:.0f} re-run")
        assert reruns > 0, "the kills met requests"


def test_stopped_worker_is_found_and_its_requests_end():
    """SIGSTOP: silence is noticed by heartbeats."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(endless_model(d), kv_memory="128m", silence=SILENCE, router_args=SOON) as c:
            whole = c.complete(BODY["prompt"], 20, temperature=0, ignore_eos=True)["text"]
            victim = c.decodes[0]
            s, _ = asyncio.run(stream_and(c, 3, lambda: victim.kill(signal.SIGSTOP), ENDLESS_BODY))
            victim.kill(signal.SIGCONT)
            ended_with_an_error(s, whole)
            next_one_works(c)


def test_router_death_frees_the_workers():
    """A dead router's requests are cancelled by the workers (they would run for longer than this waits), and a new
    router serves with the same workers."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(endless_model(d), kv_memory="128m") as c:
            async def go():
                s = Stream(c.http, "/v1/completions", ENDLESS_BODY)
                task = asyncio.ensure_future(s.run())
                await until("the stream has begun", lambda: len(s.events) >= 3)
                c.router.kill()
                try:
                    await asyncio.wait_for(task, HANGS)
                except (asyncio.IncompleteReadError, ConnectionError, ValueError):
                    pass
            asyncio.run(go())
            c.processes.remove(c.router)
            c.router.popen.wait()
            c.router = c.start_router()
            wait_until("the workers joined the new router", c.router.is_ready)
            c.read_addresses()
            c.wait_idle()
            assert c.post("/v1/completions", {"prompt": "next", "max_tokens": 8})[0] == 200


def expect_refusal(c, worker, text):
    wait_until(f"refused because: {text}", lambda: text in worker.log() or text in c.router.log())
    assert c.post("/v1/completions", {"prompt": "others are served", "max_tokens": 4})[0] == 200


def test_worker_with_another_model_is_refused_by_name():
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as other_dir:
        model = small_model(d)
        other = tiny_model(other_dir, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=2)
        with Cluster(model) as c:
            c.model = other
            expect_refusal(c, c.start_worker("decode", 9), "model")


def test_worker_with_another_key_is_refused():
    with tempfile.TemporaryDirectory() as d:
        model = small_model(d)
        with Cluster(model) as c:
            with open(c.key, "w", encoding="utf-8") as f:
                f.write("another key, also long enough to be one")
            expect_refusal(c, c.start_worker("decode", 9), "key")


def test_start_without_workers_is_reported():
    with tempfile.TemporaryDirectory() as d:
        model = small_model(d)
        c = Cluster(model, router_args=["--worker-wait-ms", "300"])
        try:
            c.router = c.start_router()

            def bound():
                c.router.is_ready()
                return "metrics " in c.router.ready_text
            wait_until("the router listens", bound)
            c.read_addresses()
            assert c.request("GET", "/v2/health/live")[0] == 200
            assert c.request("GET", "/v2/health/ready")[0] != 200
            status, answer = c.post("/v1/completions", {"prompt": "hello", "max_tokens": 4})
            assert status == 503 and "worker" in str(answer), (status, answer)
        finally:
            c.__exit__(None, None, None)


def test_worker_without_router_logs_a_warning():
    with tempfile.TemporaryDirectory() as d:
        c = Cluster(small_model(d))
        try:
            worker = c.start_worker("decode", 0)
            warning = f"no router has answered for 3 s at {c.url}: this worker serves no router"
            wait_until("it says that it is alone", lambda: warning in worker.log() or not worker.alive())
            c.router = c.start_router()  # its patience is not at an end
            wait_until("it joins", lambda: "router router joined" in worker.log())
            assert worker.log().count("no router has answered") == 1, worker.log()
        finally:
            c.__exit__(None, None, None)


def test_cluster_key_is_replaced_while_clients_are_served():
    """File and SIGHUP; whoever starts anew in between has the new key."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(small_model(d), prefill=2, decode=2) as c:
            def serves():
                assert c.post("/v1/completions", {"prompt": "hello", "max_tokens": 8})[0] == 200

            def learns(p):
                p.kill(signal.SIGHUP)
                wait_until(f"{p.name} has read it", lambda: "new links use the new cluster key" in p.log())

            def comes_again(workers, role, k):
                workers[k].kill()
                workers[k].popen.wait()
                workers[k].close()
                c.processes.remove(workers[k])
                wait_until("it is missed", lambda: c.total("baton_workers", role=role, state="up") == 1)
                workers[k] = c.start_worker(role, k)
                wait_until("it is back", lambda: c.all_joined() or c._check_alive())

            def nothing_fails():
                before = c.total("baton_attempt_failures_total")
                for _ in range(12):
                    serves()
                return c.total("baton_attempt_failures_total") == before

            serves()
            with open(c.key + ".new", "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
                f.write("a new key that is long enough")
            os.rename(c.key + ".new", c.key)
            learns(c.router)
            serves()
            comes_again(c.prefills, "prefill", 0)  # the new one
            learns(c.decodes[0])
            learns(c.decodes[1])
            for _ in range(4):
                serves()
            comes_again(c.decodes, "decode", 0)
            learns(c.prefills[1])
            wait_until("all know the new one", nothing_fails)
            c.router.kill(signal.SIGHUP)
            os.chmod(c.key, 0o644)
            c.prefills[1].kill(signal.SIGHUP)
            wait_until("it is refused", lambda: "the previous one is kept" in c.prefills[1].log())
            serves()
            codes = c.stop()
            assert set(codes.values()) == {0}, (codes, c.logs())


def test_refused_key_file_names_the_reason():
    with tempfile.TemporaryDirectory() as d:
        model = small_model(d)
        for role in ("router", "decode"):
            key = os.path.join(d, "key")
            for content, mode, why in ((b"a key that is long enough", 0o644,
                                        "its mode is 0644, which lets others at it: chmod 600"),
                                       (b"short\n", 0o600, "it has 5 bytes, and at least 16 are needed"),
                                       (None, 0, "No such file or directory")):
                if content is None:
                    os.unlink(key)
                else:
                    with open(key, "wb") as f:
                        f.write(content)
                    os.chmod(key, mode)
                args = ["--model", model, "--cluster-key-file", key]
                args += ["--listen", f"ipc://{d}/r.ipc", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--grpc", "127.0.0.1:0"] \
                    if role == "router" else ["--join", f"ipc://{d}/r.ipc", "--kv-memory", "16m", "--run-dir", d]
                process = Process(role, f"{role}-{mode}", args, d)
                process.popen.wait(60)
                log = process.log()
                process.close()
                assert process.popen.returncode == 78, (role, process.popen.returncode, log)
                assert f"error {role}: cluster key {key}: {why}\n" in log or \
                    f"error decode-0: cluster key {key}: {why}\n" in log, log


def bad_start(args, words):
    with tempfile.TemporaryDirectory() as d:
        worker = Process("decode", "decode", args, d)
        worker.popen.wait(60)
        log = worker.log()
        worker.close()
        assert worker.popen.returncode == 78, worker.popen.returncode
        assert all(w in log for w in words), log


def test_unsupported_architecture_is_named_before_tokenizer_errors():
    """By every process: whoever reads only the last line must not look for another tokenizer."""
    with tempfile.TemporaryDirectory() as d:
        path = d + "/odd.gguf"
        with open(tiny_model(d, architecture="llama"), "rb") as f:
            data = f.read()
        name = b"tokenizer.ggml.model"
        at = data.index(name) + len(name) + 12  # behind the value's type and length
        with open(path, "wb") as f:
            f.write((data[:at] + b"?" + data[at + 1:]).replace(b"llama", b"lemon"))
        done = subprocess.run([os.path.join(BUILD, "launcher/baton-launch"), "--model", path, "--http", "127.0.0.1:0",
                               "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
                              env=dict(os.environ, XDG_RUNTIME_DIR=d))
        assert done.returncode == 78, done
        said = [line for line in done.stdout.splitlines() if "the model's architecture lemon is not supported; supported: llama" in line]
        assert any("router" in line for line in said), done.stdout
        assert "tokenizer" not in done.stdout, done.stdout


def test_bad_model_files_are_named():
    with tempfile.TemporaryDirectory() as d:
        good = small_model(d)
        bad_start(["--model", d + "/nothing.gguf"], ["nothing.gguf"])
        with open(good, "rb") as f:
            data = f.read()
        with open(d + "/cut.gguf", "wb") as f:
            f.write(data[:len(data) // 2])
        bad_start(["--model", d + "/cut.gguf"], ["cut.gguf", "byte"])
        with open(d + "/magic.gguf", "wb") as f:
            f.write(b"NOPE" + data[4:])
        bad_start(["--model", d + "/magic.gguf"], ["GGUF"])
        with open(d + "/arch.gguf", "wb") as f:
            f.write(data.replace(b"llama", b"lemon"))
        bad_start(["--model", d + "/arch.gguf"], ["lemon"])
        # In the tensor's entry (GGUF v3) its name is followed by n_dims, two sizes and the type: 15 is Q8_K.
        at = data.index(b"blk.0.attn_q.weight") + len(b"blk.0.attn_q.weight") + 4 + 8 + 8
        with open(d + "/type.gguf", "wb") as f:
            f.write(data[:at] + (15).to_bytes(4, "little") + data[at + 4:])
        bad_start(["--model", d + "/type.gguf"], ["blk.0.attn_q.weight", "Q8_K"])
        bad_start(["--model", good, "--kv-memory", "900g"], ["missing", "MiB"])


def test_deadline_error_names_the_phase():
    """Workers keep the deadline, too: whoever looks first, a request that generates was in its decode phase."""
    def told(c, ms):
        """(pieces before the error, its message)"""
        status, _, data = c.request("POST", "/v1/completions", {
            "prompt": "hello", "max_tokens": ENDLESS, "ignore_eos": True, "timeout_ms": ms, "stream": True})
        assert status in (200, 504), (status, data)
        events = [json.loads(line.removeprefix(b"data: ")) for line in data.split(b"\n") if line.startswith((b"data: {", b"{"))]
        return len(events) - 1, events[-1]["error"]["message"]

    with tempfile.TemporaryDirectory() as d:
        model = endless_model(d)
        for how in ({}, {"prefill": 0, "decode_args": ["--local-prefill"]}):  # the latter: both phases at one worker
            with Cluster(model, **how) as c:
                ms, n_generating = 100, 0
                while n_generating < 8:
                    n, message = told(c, ms)
                    if n < 2:
                        ms = min(2 * ms, 30000)  # this machine is slow
                        continue
                    n_generating += 1
                    assert message == f"the request's deadline of {ms} ms passed in phase decode, worker decode-0", (how, message)


def test_lease_without_kv_has_its_own_counter():
    """An autoscaler reads it: the prefill worker is too slow, here because it is stopped."""
    with tempfile.TemporaryDirectory() as d, Cluster(
            small_model(d), router_args=["--request-timeout-ms", "3000"]) as c:
        c.prefills[0].kill(signal.SIGSTOP)
        status, answer = c.post("/v1/completions", {"prompt": "hello", "max_tokens": 8})
        assert status == 504, answer
        c.prefills[0].kill(signal.SIGCONT)
        failures = {cause: c.metric("baton_attempt_failures_total", reason=cause)
                    for cause in ("lease_expired", "transfer", "refused", "worker_lost", "deadline", "other")}
        assert failures == dict.fromkeys(failures, 0) | {"lease_expired": 1}, failures
        next_one_works(c)
