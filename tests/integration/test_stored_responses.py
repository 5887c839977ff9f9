# SPDX-License-Identifier: Apache-2.0
"""Stored responses: a conversation goes on after the router was killed, is closed to other tenants, bounded, and part of
no log."""
import json
import os
import tempfile

from harness import Cluster, small_model, wait_until
from test_store import killed_router
from test_tenants import served

SECRET = "zanzibar"  # no word of the harness, its models or its options


def ask(c, method="POST", path="", body=None, headers=None):
    """@return (status, JSON)"""
    status, _, data = c.request(method, "/v1/responses" + path, body, headers)
    return status, json.loads(data)


def create(c, text, headers=None, **more):
    status, answer = ask(c, body=dict(dict(input=text, temperature=0, max_output_tokens=6), **more), headers=headers)
    assert status == 200, (status, answer)
    return answer


def text_of(response):
    return "".join(part["text"] for item in response["output"] for part in item["content"])


def said(response):
    return {"role": "assistant", "content": text_of(response)}


def test_conversation_goes_on_after_a_kill():
    with tempfile.TemporaryDirectory() as d:
        folder, key = os.path.join(d, "store"), os.path.join(d, "key")
        with open(key, "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write("a key of more than sixteen bytes")
        with Cluster(small_model(d), router_args=["--store", folder, "--store-key", key]) as c:
            first = create(c, "Once")
            assert first["store"] is True, first
            second = create(c, "upon", previous_response_id=first["id"])
            killed_router(c)
            assert ask(c, "GET", f"/{first['id']}") == (200, first)
            third = create(c, "a time", previous_response_id=second["id"])
            whole = create(c, [{"role": "user", "content": "Once"}, said(first), {"role": "user", "content": "upon"}, said(second),
                               {"role": "user", "content": "a time"}], store=False)
            assert text_of(third) == text_of(whole) and third["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
            assert whole["store"] is False
            assert ask(c, "DELETE", f"/{first['id']}")[0] == 200
            status, answer = ask(c, body=dict(input="x", previous_response_id=third["id"]))
            assert status == 400 and answer["error"]["code"] == "previous_response_not_found", answer
            names = sorted(n for n in os.listdir(os.path.join(folder, "responses")) if n != "lock")
            assert names == sorted([second["id"], third["id"]]), names


def test_responses_that_a_kill_interrupts_are_whole_or_gone():
    with tempfile.TemporaryDirectory() as d:
        folder = os.path.join(d, "store")
        with Cluster(small_model(d), router_args=["--store", folder]) as c:
            for round_ in range(4):
                kept = [create(c, f"{round_} {i}") for i in range(5)]
                part = os.path.join(folder, "responses", f"resp_{round_:032x}.part")
                with open(part, "wb") as f:  # as a kill leaves it
                    f.write(b"BTSTORE\1")
                killed_router(c)
                assert not os.path.exists(part)
                for response in kept:
                    assert ask(c, "GET", f"/{response['id']}") == (200, response)


def test_tenant_cannot_read_or_continue_responses_of_another():
    never = "resp_" + "0" * 32
    with served(small_model, dict(router_args=["--response-store-limit", "64k"]), a="", b="") as (c, keys):
        a, b = keys.of("a"), keys.of("b")
        mine = create(c, SECRET, a, store=True)

        def same(call):
            """What b reads of a's response is what it reads of one that never was."""
            got, other = call(mine["id"]), call(never)
            assert got[0] in (400, 404), got
            assert (got[0], json.dumps(got[1]).replace(mine["id"], never)) == (other[0], json.dumps(other[1])), (got, other)

        for method, end in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
            same(lambda i, m=method, e=end: ask(c, m, f"/{i}{e}", headers=b))
            assert ask(c, method, f"/{mine['id']}{end}")[0] == 401
        same(lambda i: ask(c, body=dict(input="x", previous_response_id=i), headers=b))
        same(lambda i: ask(c, path="/input_tokens", body=dict(input="x", previous_response_id=i), headers=b))
        # b fills its half and more: a keeps what it has, and b the newest.
        theirs = [create(c, "b", b, store=True)["id"] for _ in range(12)]
        assert ask(c, "GET", f"/{mine['id']}", headers=a) == (200, mine)
        there = [ask(c, "GET", f"/{i}", headers=b)[0] for i in theirs]
        assert there == sorted(there, reverse=True) and there[0] == 404 and there[-1] == 200, there


def test_no_log_has_texts_of_stored_responses():
    with tempfile.TemporaryDirectory() as d:
        access = os.path.join(d, "access")
        with Cluster(small_model(d), router_args=["--access-log", access, "--log-level", "debug"]) as c:
            one = create(c, SECRET, store=True, metadata={"k": SECRET}, instructions=SECRET)
            two = create(c, SECRET, store=True, previous_response_id=one["id"])
            assert SECRET in json.dumps(ask(c, "GET", f"/{two['id']}/input_items"))
            assert ask(c, "GET", f"/{two['id']}/input_items?after={SECRET}")[0] == 400
            assert ask(c, "DELETE", f"/{one['id']}")[0] == 200
            assert ask(c, body=dict(input=SECRET, previous_response_id=two["id"]))[0] == 400
            assert ask(c, body=dict(input=SECRET, previous_response_id=SECRET))[0] == 400

            def access_log():
                with open(access, encoding="utf-8") as f:
                    return f.read()

            wait_until("the access log has the last request", lambda: access_log().count("status=400") == 3)
            text = c.logs() + access_log()
        assert "/v1/responses" in text and SECRET not in text


def test_limits_of_stored_responses():
    with tempfile.TemporaryDirectory() as d:
        model = small_model(d)
        with Cluster(model, router_args=["--response-store-limit", "0"]) as c:
            for more, param in ((dict(store=True), "store"), (dict(previous_response_id="resp_1"), "previous_response_id")):
                status, answer = ask(c, body=dict(input="x", **more))
                assert status == 400 and answer["error"]["param"] == param, answer
            status, answer = ask(c, "GET", "/resp_1")
            assert status == 501 and "--response-store-limit" in answer["error"]["message"], answer
            assert not [name for name in c.metrics() if "response_store" in name or 'kind="response"' in name]
        with Cluster(model, router_args=["--response-store-limit", "8k"]) as c:
            status, answer = ask(c, body=dict(input="x" * 9000, store=True))
            assert status == 413 and "--response-store-limit" in answer["error"]["message"], answer
            one = create(c, "a", store=True)
            two = create(c, "b", store=True)  # a page of 4 KiB counts for each
            assert ask(c, "GET", f"/{one['id']}")[0] == 404 and ask(c, "GET", f"/{two['id']}") == (200, two)
            # Without the word nothing is stored in memory.
            assert create(c, "c")["store"] is False
            metrics = c.metrics()
            assert metrics['baton_store_objects{kind="response"}'] == metrics["baton_response_store_evictions_total"] == 1, metrics
            assert 4096 < metrics["baton_response_store_bytes"] <= metrics["baton_response_store_limit_bytes"] == 8192, metrics
            assert "baton_store_bytes" not in metrics and 'baton_store_objects{kind="file"}' not in metrics


def test_hostile_ids_find_nothing():
    ids = ["..", "%2e%2e", "lock", "resp_", "resp_" + "0" * 31, "resp_" + "0" * 33, "resp_" + "G" * 32, "file-" + "0" * 32,
           "resp_" + "0" * 900, "%00", "resp_%00", "a%2fb", "'\"", "%ff"]
    with tempfile.TemporaryDirectory() as d:
        with Cluster(small_model(d), router_args=["--store", os.path.join(d, "store")]) as c:
            for i in ids:
                for method, end in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
                    status, _, _ = c.request(method, f"/v1/responses/{i}{end}")
                    assert status in (400, 404), (i, method, end, status)
                status, answer = ask(c, body=dict(input="x", previous_response_id=i))
                assert status == 400 and answer["error"]["param"] == "previous_response_id", (i, answer)
            assert create(c, "still there")["status"] in ("completed", "incomplete")
