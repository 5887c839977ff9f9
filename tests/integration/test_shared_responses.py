# SPDX-License-Identifier: Apache-2.0
"""Stored responses of routers that share a folder (--response-store-dir): each finds, continues and deletes those of all,
for each tenant apart, and while the router that has them is dead."""
import json
import os
import signal
import stat
import subprocess
import tempfile

from fleet import Fleet
from harness import BUILD, PROGRAMS, Cluster, free_port, small_model, wait_until
from launch import Launch
from test_stored_responses import SECRET, ask, create, said, text_of
from test_tenants import Keys

NEVER = "resp_" + "0" * 32


class Shared(Fleet):
    """Two routers with a folder; `at(i)` says which one is asked."""

    def at(self, i):
        self.http = self.https[i]
        return self

    def start_again(self, i):
        """kill -9 of a router, and another one in its place."""
        router = self.routers[i]
        router.kill(signal.SIGKILL)
        router.popen.wait()
        router.close()
        self.processes.remove(router)
        self.add_router(i)
        self.read_address(i)


def user(text):
    return {"role": "user", "content": text}


def write_key(path, text="a key of more than sixteen bytes"):
    with open(path, "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as f:
        f.write(text)
    return path


def files_of(folder):
    """@return {id: path} of the objects in the folders of all routers"""
    return {name: os.path.join(root, name) for root, _, names in os.walk(folder) for name in names if name != "lock"}


def test_conversation_goes_from_router_to_router():
    with tempfile.TemporaryDirectory() as d:
        folder, key = os.path.join(d, "shared"), write_key(os.path.join(d, "key"))
        with Shared(small_model(d), router_args=["--response-store-dir", folder, "--store-key", key]) as c:
            items, previous, made = [], None, []
            for i, text in enumerate(("Once", SECRET, "a time", "there was")):
                items.append(user(text))
                response = create(c.at(i % 2), text, previous_response_id=previous)
                whole = create(c.at(1 - i % 2), items, store=False)
                assert response["store"] is True and text_of(response) == text_of(whole), (response, whole)
                assert response["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
                count = dict(input=text, previous_response_id=previous)
                for k in range(2):
                    assert ask(c.at(k), body=count, path="/input_tokens") == \
                        (200, {"object": "response.input_tokens", "input_tokens": whole["usage"]["input_tokens"]})
                items.append(said(response))
                made.append(response)
                previous = response["id"]
            for response in made:
                listed = [ask(c.at(k), "GET", f"/{response['id']}/input_items") for k in range(2)]
                assert listed[0] == listed[1] and listed[0][0] == 200, listed
                for k in range(2):
                    assert ask(c.at(k), "GET", "/" + response["id"]) == (200, response)
                    assert ask(c.at(k), "POST", f"/{response['id']}/cancel")[0] == 400
            # Closed to other users, and nothing of it can be read without the key.
            files = files_of(folder)
            assert sorted(files) == sorted(r["id"] for r in made) and len({os.path.dirname(p) for p in files.values()}) == 2, files
            for path in files.values():
                with open(path, "rb") as f:
                    data = f.read()
                assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and SECRET.encode() not in data, path
                assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700, path
            # Deleted at the other one, it is gone at both, at once.
            assert ask(c.at(0), "DELETE", "/" + made[1]["id"])[0] == 200
            assert made[1]["id"] not in files_of(folder)
            for k in range(2):
                for method, end in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
                    assert ask(c.at(k), method, f"/{made[1]['id']}{end}")[0] == 404, (k, method, end)
                for at in (1, 3):
                    status, answer = ask(c.at(k), body=dict(input="x", previous_response_id=made[at]["id"]))
                    assert status == 400 and answer["error"]["code"] == "previous_response_not_found", answer
                    assert made[1]["id"] in answer["error"]["message"], answer
            assert SECRET not in c.logs()


def test_responses_outlive_the_router_that_made_them():
    with tempfile.TemporaryDirectory() as d:
        folder = os.path.join(d, "shared")
        with Shared(small_model(d), router_args=["--response-store-dir", folder]) as c:
            first = create(c.at(0), "Once")
            c.routers[0].kill(signal.SIGSTOP)  # it answers nobody
            assert ask(c.at(1), "GET", "/" + first["id"]) == (200, first)
            second = create(c.at(1), "upon", previous_response_id=first["id"])
            c.routers[0].kill(signal.SIGCONT)
            c.start_again(0)
            assert ask(c.at(0), "GET", "/" + second["id"]) == (200, second)
            third = create(c.at(0), "a time", previous_response_id=second["id"])
            c.start_again(1)
            for response in (first, second, third):
                for k in range(2):
                    assert ask(c.at(k), "GET", "/" + response["id"]) == (200, response)
            whole = create(c.at(1), [user("Once"), said(first), user("upon"), said(second), user("a time")], store=False)
            assert text_of(whole) == text_of(third)


def test_tenant_finds_no_response_of_another_at_any_router():
    with tempfile.TemporaryDirectory() as d:
        keys = Keys(d, a="", b="")
        folder = os.path.join(d, "shared")
        with Shared(small_model(d), router_args=["--response-store-dir", folder, "--api-keys", keys.path]) as c:
            a, b = keys.of("a"), keys.of("b")
            mine = create(c.at(0), SECRET, a)
            for k in range(2):
                def same(call):
                    got, other = call(mine["id"]), call(NEVER)
                    assert got[0] in (400, 404), got
                    assert (got[0], json.dumps(got[1]).replace(mine["id"], NEVER)) == (other[0], json.dumps(other[1])), (got, other)

                c.at(k)
                for method, end in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
                    same(lambda i, m=method, e=end: ask(c, m, f"/{i}{e}", headers=b))
                    assert ask(c, method, f"/{mine['id']}{end}")[0] == 401
                same(lambda i: ask(c, body=dict(input="x", previous_response_id=i), headers=b))
                same(lambda i: ask(c, path="/input_tokens", body=dict(input="x", previous_response_id=i), headers=b))
                assert ask(c, "GET", "/" + mine["id"], headers=a) == (200, mine)
            assert SECRET not in c.logs()


def refused(model, *args):
    """@return what a router says that does not start"""
    ports = [word for name in ("http", "metrics", "grpc") for word in ("--" + name, "127.0.0.1:0")]
    done = subprocess.run([os.path.join(BUILD, PROGRAMS["router"]), "--model", model, "--listen", f"ipc://{model}.ipc", "--insecure",
                           *ports, *args], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0, done
    return done.stderr


def test_router_needs_a_name_and_the_key_of_the_others():
    with tempfile.TemporaryDirectory() as d:
        folder, key = os.path.join(d, "shared"), write_key(os.path.join(d, "key"))
        model = small_model(d)
        with Shared(model, router_args=["--response-store-dir", folder]) as c:
            first = create(c.at(0), "Once")
            text = refused(model, "--response-store-dir", folder, "--name", "router-0")
            assert "another router has it" in text and "router-0@" in text, text
            c.router_args += ["--store-key", key]
            c.start_again(1)
            for _ in range(2):
                assert ask(c.at(1), "GET", "/" + first["id"])[0] == 404
            assert c.routers[1].log().count("of another key") == 1, c.routers[1].log()
            assert ask(c.at(0), "GET", "/" + first["id"]) == (200, first)
        for args, words in ((["--response-store-dir", folder, "--response-store-limit", "0"], "stores no"),
                            (["--response-store-dir", folder, "--name", "a/b"], "no name of a folder"),
                            (["--store-key", key], "--response-store-dir"),
                            (["--response-store-dir", os.path.join(d, "no", "where")], "No such file")):
            text = refused(model, *args)
            assert words in text, (args, text)


def test_routers_of_one_launch_share_responses():
    with tempfile.TemporaryDirectory() as d:
        folder = os.path.join(d, "shared")
        with Launch("--model", small_model(d), "--routers", "2", "--response-store-dir", folder) as launch:
            https = [launch.process(f"router-{i}")["http"] for i in range(2)]
            body = dict(input="Once", max_output_tokens=4, temperature=0)
            status, first = launch.post(https[0], "/v1/responses", body)
            assert status == 200 and first["store"] is True, first
            status, second = launch.post(https[1], "/v1/responses", dict(body, previous_response_id=first["id"]))
            assert status == 200 and second["previous_response_id"] == first["id"], second
            holders = {os.path.basename(os.path.dirname(p)).split("@")[0] for p in files_of(folder).values()}
            assert holders == {"router-0", "router-1"}, holders


def test_conversations_go_on_behind_one_port():
    """The kernel deals out connections: no turn knows which router it meets."""
    with tempfile.TemporaryDirectory() as d:
        folder, address = os.path.join(d, "shared"), f"127.0.0.1:{free_port()}"
        with Launch("--model", small_model(d), "--routers", "2", "--reuse-http-port", "--response-store-dir", folder,
                    http=address) as launch:
            turns = []

            def met_both():
                previous = turns[-1] if len(turns) % 6 else None  # a conversation of six turns is within the context
                status, answer = launch.post(address, "/v1/responses", dict(input="a", max_output_tokens=2, previous_response_id=previous))
                assert status == 200 and answer["previous_response_id"] == previous, answer
                turns.append(answer["id"])
                where = {name: os.path.dirname(path) for name, path in files_of(folder).items()}
                return any(i % 6 and where[turns[i]] != where[turns[i - 1]] for i in range(1, len(turns)))

            wait_until("a turn has met another router than the turn before it", met_both)


def test_expired_responses_of_a_router_that_is_gone_are_removed():
    """A router looks at what others have left each hour, or as often as responses expire."""
    with tempfile.TemporaryDirectory() as d:
        folder, model = os.path.join(d, "shared"), small_model(d)
        args = ["--response-store-dir", folder, "--response-store-ttl-s", "2"]

        def left():
            """@return id of a response that a router has left; None: its time was over before the router was"""
            with Cluster(model, router_args=[*args, "--name", "old"]) as c:
                response = create(c, SECRET)
            return response["id"] if response["id"] in files_of(folder) else None

        response = wait_until("a router leaves a response", left, 120)
        # Its time is over once that of a later one is.
        with Cluster(model, router_args=[*args, "--name", "new"]) as c:
            later = create(c, "later")
            wait_until("a later one has expired", lambda: ask(c, "GET", "/" + later["id"])[0] == 404)
            assert ask(c, "GET", "/" + response)[0] == 404
        with Cluster(model, router_args=[*args, "--name", "new"]) as c:
            wait_until("the old one's files are removed", lambda: not files_of(folder))
