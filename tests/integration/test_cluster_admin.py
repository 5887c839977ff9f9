# SPDX-License-Identifier: Apache-2.0
"""A cluster without a launcher: several routers, commands through any of them, workers that come, change and go under
load. No request fails."""
import json
import os
import signal
import tempfile
import threading
import time

from fleet import PROMPT, Fleet, Load
from harness import Process, small_model, wait_until


def states(workers):
    return {name: w["state"] for name, w in workers.items()}


def test_commands_reach_a_worker_through_any_router():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Fleet(small_model(directory)) as fleet:
        fleet.add("decode")
        fleet.all_see("three workers", lambda w: len(w) == 3)
        shown = fleet.admin(1, "status")
        assert "router router-1" in shown and "decode-2" in shown, shown
        assert {w["name"] for w in json.loads(fleet.admin(0, "status", "--json"))["workers"]} == set(fleet.workers)

        # Drained through one, it is so for both, and says so; then it serves again.
        fleet.admin(0, "drain", "decode-1")
        fleet.all_see("it is drained", lambda w: states(w)["decode-1"] == "drained")
        fleet.admin(1, "drain", "decode-2")
        fleet.all_see("so is the other", lambda w: states(w)["decode-2"] == "drained")
        late = []
        waiting = threading.Thread(target=lambda: late.append(fleet.complete(PROMPT, max_tokens=4)))
        waiting.start()
        wait_until("it waits", lambda: fleet.cluster(0)["models"][0]["running"] == 1)
        assert not late
        fleet.admin(1, "undrain", fleet.seen(0)["decode-1"]["id"])
        waiting.join(60)
        assert late[0]["token_ids"], late
        fleet.all_see("it is back", lambda w: states(w)["decode-1"] == "up")
        assert states(fleet.seen(0))["decode-2"] == "drained"

        # A role: of one that is drained, too.
        fleet.admin(1, "role", "decode-2", "both")
        fleet.all_see("it is both", lambda w: w["decode-2"]["role"] == "both")
        fleet.leave(0, "decode-2")
        fleet.all_see("it left", lambda w: set(w) == {"prefill-0", "decode-1"})


def test_commands_that_cannot_be_are_refused_by_name():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Fleet(small_model(directory)) as fleet:
        assert "nobody: no worker here has this name or id" in fleet.admin(0, "drain", "nobody", code=1)
        assert "not 'decoder'" in fleet.admin(0, "role", "decode-1", "decoder", code=2)
        assert "takes a worker and a role" in fleet.admin(0, "role", "decode-1", code=2)
        assert "a launcher's" in fleet.admin(0, "restart", "decode-1", code=2)
        fleet.start_worker("decode", 1)  # another one of this name
        wait_until("two of one name", lambda: fleet.names(0).count("decode-1") == 2)
        assert "several workers have this name" in fleet.admin(0, "drain", "decode-1", code=1)
        for body, why in ((b"", "the command is empty"), ({"role": "router"}, "prefill, decode or both"),
                          ({"role": 3}, "prefill, decode or both"), ({"duty": "away"}, "on, off"),
                          ({"roles": "both"}, "nothing else"), ("[1]", ""), ({"role": "both", "x": None}, "nothing else")):
            status, _, data = fleet.request("POST", "/v2/cluster/workers/prefill-0", body)
            assert status == 400 and why in data.decode(), (body, status, data)
        status, _, data = fleet.request("GET", "/v2/cluster/workers/prefill-0")
        assert status == 405, (status, data)
        assert states(fleet.seen(0)) == {"prefill-0": "up", "decode-1": "up"}


def test_a_cluster_grows_changes_and_shrinks_under_load():
    """1+1 to 3+3 and back; each instance has each role once; each is started anew. Not one request fails."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Fleet(small_model(directory)) as fleet:
        with Load(fleet) as load:
            fleet.add("prefill", "prefill", "decode", "decode")
            fleet.all_see("3 + 3", lambda w: set(states(w).values()) == {"up"} and len(w) == 6)
            load.goes_on()

            for i, (name, worker) in enumerate(list(fleet.workers.items())):
                role = worker.role
                other = "decode" if role == "prefill" else "prefill"
                for wish in (other, "both", role):
                    fleet.admin(i % 2, "role", name, wish)
                fleet.all_see("it is what it was", lambda w, n=name, r=role: w[n]["role"] == r)
            load.goes_on()

            for i, (name, worker) in enumerate(list(fleet.workers.items())):
                fleet.leave(i % 2, name)
                fleet.add(worker.role)
                fleet.all_see("the new one is here", lambda w: set(w) == set(fleet.workers)
                              and set(states(w).values()) == {"up"})
            load.goes_on()

            for i, name in enumerate([n for r in ("prefill", "decode") for n, w in fleet.workers.items() if w.role == r]):
                if i % 3 != 0:
                    fleet.leave(i % 2, name)
            fleet.all_see("1 + 1", lambda w: len(w) == 2)
            load.goes_on()
        assert not load.failed, load.failed
        print(f"    {sum(load.n_done)} requests, none failed")


# What a decode worker can do is its own: a seat, and steps of 60 ms that it waits out, of which a request is 23.
SLOW = ["--simulate-step-us", "60000", "--max-batch-size", "1", "--draft", "off"]
ANSWER_S = 23 * 0.06


def seconds_for(load, n):
    """...that n more answers take, of clients that always wait for one."""
    start, before = time.monotonic(), sum(load.n_done)
    wait_until("so many more answers", lambda: load.failed or sum(load.n_done) >= before + n)
    assert not load.failed, load.failed
    return time.monotonic() - start


def test_workers_that_come_bring_what_they_can_do():
    """3 + 3 give at least twice the answers of 1 + 1, on any number of cores: their steps are waited for, not computed."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            Fleet(small_model(directory), worker_args=SLOW) as fleet, Load(fleet, 9) as load:
        few = seconds_for(load, 4)
        fleet.add("prefill", "prefill", "decode", "decode")
        fleet.all_see("3 + 3", lambda w: set(states(w).values()) == {"up"} and len(w) == 6)
        seconds_for(load, 9)  # those that waited for the one
        many = seconds_for(load, 12)
        assert few >= 3 * ANSWER_S, few  # one was under way
        print(f"    {4 / few:.2f} answers/s of 1 + 1, {12 / many:.2f} of 3 + 3: {3 * few / many:.2f} times")
        assert 3 * few / many >= 2, (few, many)
        for name in [n for n in fleet.workers if n not in ("prefill-0", "decode-1")]:
            fleet.leave(0, name)
        assert seconds_for(load, 4) >= 3 * ANSWER_S


def test_routers_come_and_go_in_a_directory():
    """Workers find them while they serve; what a killed one leaves behind harms nobody."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Fleet(small_model(directory), meet=True) as fleet:
        assert len(os.listdir(fleet.meet)) == 2
        for name, text in (("x.router", "rubbish"), ("y.router", f"ipc://{fleet.dir}/nobody.ipc\n"), ("note", "")):
            with open(os.path.join(fleet.meet, name), "w", encoding="ascii") as f:
                f.write(text)
        with Load(fleet, 2) as load:
            fleet.add_router(2)
            fleet.read_address(2)
            wait_until("both workers found it", lambda: len(fleet.seen(2)) == 2)
            assert load.ask(2) == load.first
            fleet.add("decode")
            wait_until("so does one that comes later", lambda: [len(fleet.seen(i)) for i in range(3)] == [3, 3, 3])
            fleet.admin(2, "drain", "decode-2", "--and-stop")
            assert fleet.workers["decode-2"].popen.wait(60) == 0
            load.goes_on()

            fleet.routers[2].kill()
            fleet.routers[2].popen.wait()
            assert len(os.listdir(fleet.meet)) == 6  # its file is left
            load.goes_on()
        assert not load.failed, load.failed
        # Who ends in order takes its file away, and the workers leave it.
        fleet.routers[1].kill(signal.SIGTERM)
        assert fleet.routers[1].popen.wait(60) == 0
        assert len(os.listdir(fleet.meet)) == 5
        for name in os.listdir(fleet.meet):
            if name != "note":
                os.unlink(os.path.join(fleet.meet, name))
        for name in ("prefill-0", "decode-1"):
            wait_until("the worker left the two that are gone", lambda n=name:
                       fleet.workers[n].log().count("is gone from the join directory") >= 2)
        # Not the one whose link is up.
        assert load.ask(0) == load.first


def test_an_address_that_is_no_address_is_no_meeting_place():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Fleet(small_model(directory)) as fleet:
        for listen, meet, why in (("tcp://0.0.0.0:0", fleet.meet, "workers elsewhere cannot use the address"),
                                  (fleet.control_url(9), fleet.meet + "/not", "No such file or directory")):
            router = Process("router", "refused", [
                "--model", fleet.model, "--listen", listen, "--cluster-key-file", fleet.key, "--run-dir", fleet.dir, "--http",
                "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--join-dir", meet], directory)
            assert router.popen.wait(60) != 0
            assert why in router.log(), router.log()
            router.close()
        assert os.listdir(fleet.meet) == []


def test_a_wrong_worker_that_comes_first_does_not_lock_out_the_right_ones():
    """The measure is who came first, until others could serve and it cannot."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Fleet(small_model(directory)) as fleet:
        right = [fleet.workers.pop(name) for name in ("prefill-0", "decode-1")]
        first = fleet.complete(PROMPT, max_tokens=4, seed=3)["token_ids"]
        for worker in right:
            worker.kill(signal.SIGTERM)
            assert worker.popen.wait(60) == 0
        fleet.all_see("nobody is here", lambda w: not w)
        wrong = fleet.start_worker("prefill", 9, ["--tokens-per-block", "32"])
        fleet.all_see("the wrong one is", lambda w: set(w) == {"prefill-9"})
        fleet.add("prefill", "decode")
        wait_until("the right ones are refused by name", lambda: all(
            "32" in w.log() and "tokens-per-block" in w.log() for w in fleet.workers.values()))
        fleet.all_see("then they are let in", lambda w: set(w) == set(fleet.workers))
        assert fleet.complete(PROMPT, max_tokens=4, seed=3)["token_ids"] == first
        wait_until("the wrong one is refused by name", lambda: "prefill-9 has 32" in wrong.log())
