# SPDX-License-Identifier: Apache-2.0
"""/v1/batches: every line is answered once, whatever is killed meanwhile, and nobody else sees it."""
import json
import os
import signal
import tempfile
import threading

from harness import Cluster, small_model, tiny_model, wait_until
from test_commands import command
from test_store import call, killed_router, upload
from test_tenants import hang_up, served

COMPLETIONS = "/v1/completions"


def line(i, url=COMPLETIONS, **body):
    return {"custom_id": f"request-{i}", "method": "POST", "url": url,
            "body": dict(dict(model="ensemble", prompt=f"number {i}", max_tokens=2, temperature=0, ignore_eos=True), **body)}


def lines_of(objects):
    return b"".join(json.dumps(x).encode() + b"\n" for x in objects)


def post(c, path, body, headers=None):
    status, _, data = c.request("POST", path, body, headers)
    return status, json.loads(data)


def begin(c, objects, endpoint=COMPLETIONS, headers=None, **more):
    file = upload(c, objects if isinstance(objects, bytes) else lines_of(objects), headers)
    status, batch = post(c, "/v1/batches", dict(input_file_id=file["id"], endpoint=endpoint, completion_window="24h", **more), headers)
    assert status == 200 and batch["object"] == "batch" and batch["status"] == "validating", batch
    return batch


def look(c, batch, headers=None):
    status, batch = call(c, "GET", "/v1/batches/" + batch["id"], headers=headers)
    assert status == 200, batch
    return batch


ENDED = ("completed", "failed", "expired", "cancelled")


def ended(c, batch, seconds=120, headers=None):
    wait_until("the batch ends", lambda: look(c, batch, headers)["status"] in ENDED, seconds)
    return look(c, batch, headers)


def results(c, batch, headers=None):
    """@return (output, errors): {custom_id: line}; each has its own."""
    found = []
    for key in ("output_file_id", "error_file_id"):
        rows = {}
        if batch[key]:
            status, data = call(c, "GET", f"/v1/files/{batch[key]}/content", headers=headers)
            assert status == 200, data
            for text in data.decode().splitlines():
                row = json.loads(text)
                assert row["custom_id"] not in rows, f"{row['custom_id']} is there twice"
                rows[row["custom_id"]] = row
        found.append(rows)
    return found


def test_batch_answers_as_a_client_would_be():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d), router_args=["--store", os.path.join(d, "store")]) as c:
        asked = {f"request-{i}": line(i, seed=i, temperature=0.8) for i in range(40)}
        asked["request-7"]["body"]["max_tokens"] = -1
        asked["request-9"]["body"]["model"] = "nobody's"
        batch = begin(c, asked.values(), metadata={"a": "b", "\u00e4": "\""})
        done = ended(c, batch)
        assert done["status"] == "completed" and done["errors"] is None, done
        assert done["request_counts"] == {"total": 40, "completed": 38, "failed": 2}, done
        assert done["metadata"] == {"a": "b", "\u00e4": "\""} and done["completed_at"] >= done["created_at"], done
        output, errors = results(c, done)
        assert set(errors) == {"request-7", "request-9"} and set(output) | set(errors) == set(asked)
        assert errors["request-7"]["response"]["status_code"] == 400 and errors["request-9"]["response"]["status_code"] == 404
        assert "max_tokens" in errors["request-7"]["response"]["body"]["error"]["message"], errors
        for name, row in output.items():
            status, answer = post(c, COMPLETIONS, asked[name]["body"])
            assert status == 200 and row["error"] is None and row["response"]["status_code"] == 200
            assert row["response"]["body"]["choices"] == answer["choices"], (row, answer)
        names = {f["id"]: f for f in call(c, "GET", "/v1/files?purpose=batch_output")[1]["data"]}
        assert set(names) == {done["output_file_id"], done["error_file_id"]}, names
        c.wait_idle()


def test_batch_of_10000_lines_survives_kills():
    """kill -9 of the router, of the prefill worker and of the decode worker, again and again: each line is answered once."""
    n = 10000
    with tempfile.TemporaryDirectory() as d, Cluster(
            tiny_model(d), router_args=["--store", os.path.join(d, "store"), "--batch-lines-in-flight", "64"]) as c:
        batch = begin(c, (line(i, max_tokens=1 + i % 3) for i in range(n)))
        for k in range(6):
            count = look(c, batch)["request_counts"]["completed"]
            wait_until("some lines are answered", lambda count=count: look(c, batch)["request_counts"]["completed"] > count + 300, 300)
            if k % 3 == 0:
                killed_router(c)
                after = look(c, batch)
                assert after["request_counts"]["completed"] > count and after["status"] == "in_progress", after
            else:
                role = "prefill" if k % 3 == 1 else "decode"
                workers = c.prefills if role == "prefill" else c.decodes
                workers[0].kill(signal.SIGKILL)
                workers[0].popen.wait()
                workers[0].close()
                c.processes.remove(workers[0])
                workers[0] = c.start_worker(role, 0)
        done = ended(c, batch, 600)
        assert done["status"] == "completed" and done["request_counts"] == {"total": n, "completed": n, "failed": 0}, done
        output, errors = results(c, done)
        assert errors == {} and set(output) == {f"request-{i}" for i in range(n)}
        for i in (0, 1, 4999, n - 1):
            body = output[f"request-{i}"]["response"]["body"]
            assert body["usage"]["completion_tokens"] == 1 + i % 3, body
        folder = os.listdir(os.path.join(d, "store"))
        assert len([x for x in folder if x.startswith("file-")]) == 2, folder  # input and output


def test_batch_whose_file_is_wrong_says_which_line():
    good = line(0)
    cases = [(b"", "empty_file", None), (b"\n \n", "empty_file", None), (b"{}\n", "invalid_custom_id", 1),
             (lines_of([good]) + b"\n{\n", "invalid_json_line", 3), (b"[]", "invalid_json_line", 1),
             (lines_of([good, line(1), good]), "duplicate_custom_id", 3),
             (lines_of([dict(good, method="GET")]), "invalid_method", 1),
             (lines_of([dict(good, url="/v1/chat/completions")]), "mismatched_endpoint", 1),
             (lines_of([dict(good, body=1)]), "invalid_body", 1), (lines_of([dict(good, more=1)]), "unknown_parameter", 1),
             (lines_of([line(0, stream=True)]), "invalid_body", 1), (b"\xff\n", "invalid_json_line", 1)]
    with tempfile.TemporaryDirectory() as d, Cluster(tiny_model(d), router_args=["--store", os.path.join(d, "store")]) as c:
        for data, code, number in cases:
            done = ended(c, begin(c, data))
            assert done["status"] == "failed" and done["output_file_id"] is None and done["failed_at"], done
            error = done["errors"]["data"][0]
            assert (error["code"], error["line"]) == (code, number), (data, error)
        before = call(c, "GET", "/v1/batches?limit=100")[1]["data"]
        killed_router(c)
        assert call(c, "GET", "/v1/batches?limit=100")[1]["data"] == before and len(before) == len(cases)


def test_fields_of_a_batch_are_refused_by_name():
    with tempfile.TemporaryDirectory() as d, Cluster(tiny_model(d), router_args=["--store", os.path.join(d, "store")]) as c:
        good = dict(input_file_id=upload(c, lines_of([line(0)]))["id"], endpoint=COMPLETIONS, completion_window="24h")
        status, answer = post(c, "/v1/batches", dict(good, input_file_id="file-0"))
        assert status == 404 and answer["error"]["param"] == "input_file_id", answer
        for field, value in (("input_file_id", "x" * 64), ("input_file_id", None), ("endpoint", "/v1/embeddings"), ("endpoint", 1),
                             ("completion_window", "1h"), ("metadata", {"a": 1}), ("metadata", {str(i): "" for i in range(17)}),
                             ("output_expires_after", {"anchor": "created_at", "seconds": 1})):
            status, answer = post(c, "/v1/batches", dict(good, **{field: value}))
            assert status == 400 and answer["error"]["param"] == field, (field, value, answer)
        for field in good:
            status, answer = post(c, "/v1/batches", {k: v for k, v in good.items() if k != field})
            assert status == 400 and answer["error"]["param"] == field, (field, answer)
        status, answer = post(c, "/v1/batches", dict(good, priority=1))
        assert status == 400 and "priority is no field" in answer["error"]["message"], answer
        assert call(c, "GET", "/v1/batches")[1]["data"] == []
        done = ended(c, begin(c, [line(0)], output_expires_after={"anchor": "created_at", "seconds": 3600}))
        file = call(c, "GET", "/v1/files/" + done["output_file_id"])[1]
        assert file["expires_at"] - file["created_at"] == 3600, file


def test_cancelled_batch_keeps_what_it_has():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d), router_args=["--store", os.path.join(d, "store"),
                                                                                 "--batch-lines-in-flight", "2"]) as c:
        batch = begin(c, (line(i, max_tokens=16) for i in range(3000)))
        wait_until("some lines are answered", lambda: look(c, batch)["request_counts"]["completed"] >= 5)
        status, answer = post(c, f"/v1/batches/{batch['id']}/cancel", {})
        assert status == 200 and answer["status"] == "cancelling" and answer["cancelling_at"], answer
        done = ended(c, batch)
        assert done["status"] == "cancelled" and done["cancelled_at"], done
        output, errors = results(c, done)
        assert errors == {} and 5 <= len(output) == done["request_counts"]["completed"] < 3000, done
        status, answer = post(c, f"/v1/batches/{batch['id']}/cancel", {})
        assert status == 400 and "cancelled" in answer["error"]["message"], answer
        c.wait_idle()


def test_cancel_holds_whatever_is_killed_then():
    """kill -9 of the router when the answer to a cancel has come: no line runs after that; metrics and log tell of those that did."""
    with tempfile.TemporaryDirectory() as d, Cluster(
            small_model(d), router_args=["--store", os.path.join(d, "store"), "--batch-lines-in-flight", "2", "--log-format", "json",
                                         "--access-log", os.path.join(d, "access.json")]) as c:
        for n in range(3):
            batch = begin(c, (line(i, max_tokens=8) for i in range(2000)))
            wait_until("some lines are answered", lambda batch=batch: look(c, batch)["request_counts"]["completed"] >= 5)
            metrics = c.metrics()
            assert metrics['baton_batches{status="in_progress"}'] == 1 and metrics['baton_batches{status="cancelled"}'] == n, metrics
            assert metrics['baton_batch_lines_total{result="completed"}'] >= 5, metrics
            # Of each batch that has ended: input and output; of this one the input.
            assert metrics['baton_store_objects{kind="file"}'] == 2 * n + 1, metrics
            assert metrics['baton_store_objects{kind="batch"}'] == n + 1, metrics
            assert metrics["baton_store_bytes"] > 4096 * (3 * n + 2) and metrics["baton_store_limit_bytes"] == 10 << 30, metrics
            status, answer = post(c, f"/v1/batches/{batch['id']}/cancel", {})
            assert status == 200 and answer["status"] == "cancelling", answer
            killed_router(c)
            assert look(c, batch)["status"] in ("cancelling", "cancelled")
            done = ended(c, batch)
            assert done["status"] == "cancelled" and done["request_counts"]["failed"] == 0, done
            assert len(results(c, done)[0]) == done["request_counts"]["completed"] >= 5, done
            assert c.metrics()['baton_batch_lines_total{result="completed"}'] == 0, "a line ran"
        last = begin(c, [line(i, max_tokens=8) for i in range(3)])
        assert ended(c, last)["status"] == "completed"

        def logged():
            """Of killed routers what they had written, of the one that runs every line."""
            with open(os.path.join(d, "access.json"), encoding="utf-8") as file:
                found = [row for row in map(json.loads, (text for text in file if text.endswith("\n"))) if row.get("method") == "BATCH"]
            return found if sum(last["id"] in row["path"] for row in found) == 3 else None
        rows = wait_until("lines are in the access log", logged)
        assert {row["route"] for row in rows} == {COMPLETIONS} and {row["status"] for row in rows} <= {200, 499}, rows[:3]
        assert rows[0]["path"].startswith("/v1/batches/batch_") and "client" not in rows[0], rows[0]
        assert all(row["prompt"] > 0 for row in rows if row["status"] == 200), rows[:3]
        c.wait_idle()


def test_tenants_never_see_batches_of_others():
    with tempfile.TemporaryDirectory() as folder, served(
            tiny_model, dict(router_args=["--store", folder]), a="requests=2", b="") as (c, keys):
        a, b = keys.of("a"), keys.of("b")
        batch = begin(c, (line(i) for i in range(50)), headers=a)
        assert call(c, "GET", "/v1/batches/" + batch["id"], headers=b)[0] == 404
        assert post(c, f"/v1/batches/{batch['id']}/cancel", {}, b)[0] == 404
        assert call(c, "GET", "/v1/batches", headers=b)[1]["data"] == []
        status, answer = post(c, "/v1/batches", dict(input_file_id=batch["input_file_id"], endpoint=COMPLETIONS,
                                                     completion_window="24h"), b)
        assert status == 404 and answer["error"]["param"] == "input_file_id", answer
        done = ended(c, batch, headers=a)  # two at a time: what is refused for that comes later
        assert done["request_counts"] == {"total": 50, "completed": 50, "failed": 0}, done
        assert call(c, "GET", f"/v1/files/{done['output_file_id']}/content", headers=b)[0] == 404
        assert len(results(c, done, a)[0]) == 50
        other = begin(c, (line(i, max_tokens=64) for i in range(5000)), headers=b)
        wait_until("some lines are answered", lambda: look(c, other, b)["request_counts"]["completed"] >= 1)
        keys.write(a="")  # b is gone
        hang_up(c, keys, "tenants")
        killed_router(c)
        wait_until("the batch has failed", lambda: c.metrics()['baton_batches{status="failed"}'] == 1)
        keys.write(a="", b="")
        hang_up(c, keys, "tenants")
        done = look(c, other, b)
        assert done["status"] == "failed", done
        assert done["errors"]["data"][0]["code"] == "tenant_gone", done


def test_clients_come_before_batches():
    """One seat: a client's request that comes while lines wait is served before them."""
    with tempfile.TemporaryDirectory() as d, Cluster(
            small_model(d), prefill=0, decode_args=["--local-prefill", "--max-batch-size", "1", "--simulate-step-us", "2000"],
            router_args=["--store", os.path.join(d, "store"), "--batch-lines-in-flight", "30"]) as c:
        batch = begin(c, (line(i, max_tokens=32) for i in range(60)))
        wait_until("lines run", lambda: look(c, batch)["request_counts"]["completed"] >= 1)
        answers = []
        clients = [threading.Thread(target=lambda: answers.append((c.complete("hi", 4), look(c, batch)["request_counts"]["completed"])))
                   for _ in range(2)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        assert max(n for _, n in answers) < 30, answers  # they did not wait for all that were there
        assert ended(c, batch)["request_counts"]["completed"] == 60


def test_batch_command_runs_a_file():
    """./baton batch with a real router: whole, with lines that fail, cancelled and resumed, and without --store."""
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d), router_args=["--store", os.path.join(d, "store")]) as c:
        path = os.path.join(d, "in.jsonl")
        with open(path, "wb") as file:
            file.write(lines_of([line(i) for i in range(20)]))
        status, text, said = command(c, "batch.py", path, "--delete")
        assert (status, text) == (0, "") and ": 20 of 20 lines answered; see " in said, (status, said)
        with open(os.path.join(d, "in.output.jsonl"), "rb") as file:
            rows = {row["custom_id"]: row["response"] for row in map(json.loads, file)}
        assert set(rows) == {f"request-{i}" for i in range(20)} and all(row["status_code"] == 200 for row in rows.values()), rows
        assert not os.path.exists(os.path.join(d, "in.errors.jsonl")) and call(c, "GET", "/v1/files")[1]["data"] == []
        status, text, said = command(c, "batch.py", piped=lines_of([line(0), line(1, model="nobody's")]).decode())
        assert status == 1 and "1 of 2 lines answered, 1 failed" in said, (status, said)
        assert [json.loads(row)["response"]["status_code"] for row in text.split("\n")[:-1]] == [200, 404], text
        status, text, said = command(c, "batch.py", piped=lines_of([line(0), line(1, url="/v1/responses")]).decode())
        assert (status, text) == (1, "") and "baton: standard input:2: " in said and " is failed: 0 of " in said, (status, said)
        batch = begin(c, (line(i, max_tokens=64) for i in range(3000)))
        status, text, said = command(c, "batch.py", "--cancel", batch["id"])
        assert status == 0 and f"{batch['id']} is cancelling" in said, (status, said)
        status, text, said = command(c, "batch.py", "--resume", batch["id"], "-o", "-")
        assert status == 1 and f"{batch['id']} is cancelled: {text.count(chr(10))} of " in said, (status, said)
        c.wait_idle()
    with tempfile.TemporaryDirectory() as d, Cluster(tiny_model(d)) as c:
        status, text, said = command(c, "batch.py", piped=lines_of([line(0)]).decode())
        assert (status, text) == (1, "") and "--store DIR" in said, (status, said)
