# SPDX-License-Identifier: Apache-2.0
"""Tensors over HTTP: the five models against each other and against the other routes, of real processes."""
import gzip
import json
import os
import struct
import tempfile
import threading
import zlib

from harness import ENDLESS, Cluster, endless_model, free_port, small_model, wait_until


def tensor(name, datatype, shape, data):
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def infer(c, model, inputs, **more):
    status, answer = c.post(f"/v2/models/{model}/infer", dict(inputs=inputs, **more))
    assert status == 200, (status, answer)
    return answer


def output(answer, name):
    return next(x for x in answer["outputs"] if x["name"] == name)


def prompt(*texts):
    return tensor("text_input", "BYTES", [len(texts), 1], list(texts))


def check_ids_are_those_of_completions(c):
    ids = [5, 17, 33]
    made = c.complete(ids, 6, ignore_eos=True, temperature=0)["token_ids"]
    answer = infer(c, "tensorrt_llm", [
        tensor("input_ids", "INT32", [1, 3], ids), tensor("input_lengths", "INT32", [1, 1], [3]),
        tensor("request_output_len", "INT32", [1, 1], [6]), tensor("end_id", "INT32", [1, 1], [-1])])
    got = output(answer, "output_ids")
    assert got["shape"] == [1, 1, len(got["data"])] and got["data"][:3] == ids, got
    assert made[:len(got["data"]) - 3] == got["data"][3:], (made, got)
    # The sequence that comes first ends it, and stays.
    words = [made[1], made[2]]
    answer = infer(c, "tensorrt_llm", [
        tensor("input_ids", "INT32", [1, 3], ids), tensor("request_output_len", "INT32", [1, 1], [6]),
        tensor("stop_words_list", "INT32", [1, 2, 2], [words, [2, -1]]),
        tensor("exclude_input_in_output", "BOOL", [1, 1], [True])])
    assert output(answer, "output_ids")["data"] == made[:3], answer
    # A banned first token is not drawn.
    answer = infer(c, "tensorrt_llm", [
        tensor("input_ids", "INT32", [1, 3], ids), tensor("request_output_len", "INT32", [1, 1], [1]),
        tensor("bad_words_list", "INT32", [1, 2, 1], [made[0], 1]),
        tensor("exclude_input_in_output", "BOOL", [1, 1], [True])])
    assert output(answer, "output_ids")["data"] != made[:1], answer


def check_text_is_that_of_generate(c):
    texts = [c.generate(x, 5) for x in ("a", "b c", "hello")]
    answer = infer(c, "ensemble", [prompt("a", "b c", "hello"), tensor("max_tokens", "INT32", [3, 1], [5, 5, 5]),
                                   tensor("exclude_input_in_output", "BOOL", [3, 1], [True] * 3)], id="77")
    assert answer["id"] == "77" and output(answer, "text_output")["data"] == texts, (answer, texts)
    answer = infer(c, "tiny", [prompt("a"), tensor("max_tokens", "INT32", [1, 1], [5])])
    assert answer["model_name"] == "tiny" and output(answer, "text_output")["data"] == ["a" + texts[0]], answer
    # A bias so great that one token is all that comes.
    answer = infer(c, "ensemble", [
        prompt("a"), tensor("max_tokens", "INT32", [1, 1], [3]), tensor("embedding_bias_words", "BYTES", [1, 1], ["Q"]),
        tensor("embedding_bias_weights", "FP32", [1, 1], [100.0])])
    assert output(answer, "text_output")["data"] == ["aQQQ"], answer


def check_packed(c):
    text = json.dumps({"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1, 1],
                                   "parameters": {"binary_data_size": 9}},
                                  tensor("max_tokens", "INT32", [1, 1], [3])],
                       "parameters": {"binary_data_output": True}}).encode()
    body = text + struct.pack("<I", 5) + b"hello"
    headers = {"Inference-Header-Content-Length": str(len(text))}
    plain = c.request("POST", "/v2/models/ensemble/infer", body, headers)
    assert plain[0] == 200 and "Content-Encoding" not in plain[1], plain
    for length in ("", "-1", "+5", "1,1", "0x10", "18446744073709551616"):
        status, _, data = c.request("POST", "/v2/models/ensemble/infer", body, {"Inference-Header-Content-Length": length})
        assert status == 400 and b"Inference-Header-Content-Length" in data, (length, status, data)
    for coding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        status, answer, data = c.request("POST", "/v2/models/ensemble/infer", pack(body),
                                         dict(headers, **{"Content-Encoding": coding, "Accept-Encoding": coding}))
        assert status == 200 and answer["Content-Encoding"] == coding, (status, answer)
        assert zlib.decompress(data, 47) == plain[2], data
    # Three hundred million blanks in three hundred thousand bytes.
    status, _, data = c.request("POST", "/v2/models/ensemble/infer", gzip.compress(b" " * 300000000),
                                {"Content-Encoding": "gzip"})
    assert status == 413, (status, data)
    wait_until("the room of bodies is free again",
               lambda: c.metric("baton_http_memory_bytes", kind="requests") < 65536)


def test_chained_models_agree_with_the_ensemble():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d)) as c:
        check_ids_are_those_of_completions(c)
        check_text_is_that_of_generate(c)
        check_packed(c)
        c.wait_idle()
        assert not any(c.stop().values())


def test_stop_request_ends_a_request_by_id():
    with tempfile.TemporaryDirectory() as d, Cluster(endless_model(d)) as c:
        answers = []
        runner = threading.Thread(target=lambda: answers.append(c.post("/v2/models/tensorrt_llm/infer", {
            "id": "mine", "inputs": [tensor("input_ids", "INT32", [1, 2], [5, 6]),
                                     tensor("request_output_len", "INT32", [1, 1], [ENDLESS]),
                                     tensor("end_id", "INT32", [1, 1], [-1])]}, timeout=600)))
        runner.start()
        wait_until("it generates", lambda: c.metric("baton_generation_tokens_total", model="tiny") >= 3)
        stop = {"id": "mine", "inputs": [tensor("stop", "BOOL", [1, 1], [True])]}
        status, answer = c.post("/v2/models/tensorrt_llm/infer", dict(stop, id="other"))
        assert status == 200 and answer["outputs"] == [] and not answers, answer
        status, answer = c.post("/v2/models/tensorrt_llm/infer", stop)
        assert status == 200 and answer["outputs"] == [] and answer["id"] == "mine", answer
        runner.join(60)
        status, answer = answers[0]
        assert status == 200, answer
        ids = output(answer, "output_ids")["data"]
        assert ids[:2] == [5, 6] and 5 <= len(ids) < ENDLESS, len(ids)
        c.wait_idle()


def test_request_stopped_before_it_runs_has_an_empty_answer():
    # Requests are held for a second, and a stop that finds one running on a slow machine is tried again.
    with tempfile.TemporaryDirectory() as d, Cluster(endless_model(d), router_args=["--max-queue-delay-us", "1000000"]) as c:
        def whole(answers):
            answers.append(infer(c, "ensemble", [
                prompt("a", "b"), tensor("max_tokens", "INT32", [2, 1], [ENDLESS] * 2),
                tensor("return_log_probs", "BOOL", [2, 1], [True] * 2),
                tensor("exclude_input_in_output", "BOOL", [2, 1], [True] * 2)], id="mine"))

        def stopped():
            answers = []
            runner = threading.Thread(target=whole, args=(answers,))
            runner.start()
            wait_until("it is there", lambda: [json.loads(c.request("GET", "/v2/cluster")[2])["queue"][k] for k in ("arriving", "running")] != [0, 0])
            assert infer(c, "ensemble", [tensor("stop", "BOOL", [1, 1], [True])], id="mine")["outputs"] == []
            runner.join(60)
            return output(answers[0], "text_output")["data"] == ["", ""]

        wait_until("a request is stopped while it is held", stopped)
        c.wait_idle()
        assert not any(c.stop().values())


def invocation(text):
    return {"inputs": [prompt(text), tensor("max_tokens", "INT32", [1, 1], [3])]}


def check_sagemaker(c, expected):
    status, _, data = c.request("GET", "/ping")
    assert (status, data) == (200, b""), (status, data)
    status, answer = c.post("/invocations", invocation("a"))
    assert status == 200 and answer["model_name"] == "ensemble", answer
    assert output(answer, "text_output")["data"] == [expected], answer
    # Tensors behind the JSON, whose length the type of the content says.
    head = json.dumps({"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1, 1],
                                   "parameters": {"binary_data_size": 5}}, tensor("max_tokens", "INT32", [1, 1], [3])]}).encode()
    kind = f"application/vnd.sagemaker-triton.binary+json;json-header-size={len(head)}"
    status, _, data = c.request("POST", "/invocations", head + struct.pack("<I", 1) + b"a", {"Content-Type": kind})
    assert status == 200 and output(json.loads(data), "text_output")["data"] == [expected], data


def check_vertex(c, at, expected):
    status, _, data = c.request("GET", "/health-of-vertex", at=at)
    assert status == 200, (status, data)
    status, _, data = c.request("POST", "/predict-of-vertex", invocation("a"), at=at)
    assert status == 200 and output(json.loads(data), "text_output")["data"] == [expected], data
    # Sent on to another path of this server.
    for path, body in (("v2/models/ensemble/generate", {"text_input": "a", "max_tokens": 3}),
                       ("v2/models/tiny/infer", invocation("a"))):
        status, _, data = c.request("POST", "/predict-of-vertex", body, {"X-Vertex-Ai-Triton-Redirect": path}, at=at)
        answer = json.loads(data)
        text = answer.get("text_output") or output(answer, "text_output")["data"][0]
        assert status == 200 and text == expected, (path, data)
    status, _, data = c.request("POST", "/predict-of-vertex", {}, {"X-Vertex-Ai-Triton-Redirect": "v2/none"}, at=at)
    assert status == 404, (status, data)


def test_cloud_service_routes_and_port_are_served():
    """SageMaker's are always there; Vertex AI's where its variables say, at its port, too."""
    with tempfile.TemporaryDirectory() as d:
        port = free_port()
        variables = {"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": str(port), "AIP_HEALTH_ROUTE": "/health-of-vertex",
                     "AIP_PREDICT_ROUTE": "/predict-of-vertex",
                     "BATON_INSECURE": "true"}
        with Cluster(small_model(d), env=variables) as c:
            expected = "a" + c.generate("a", 3)
            check_sagemaker(c, expected)
            for at in (("127.0.0.1", port), c.http):
                check_vertex(c, at, expected)
        # Without the mode they are nothing.
        with Cluster(small_model(d), env=dict(variables, AIP_MODE="OTHER")) as c:
            assert c.request("GET", "/health-of-vertex")[0] == 404
            try:
                c.request("GET", "/health-of-vertex", at=("127.0.0.1", port))
                raise RuntimeError("somebody listens")
            except ConnectionRefusedError:
                pass


def test_admin_and_settings_bodies_may_be_compressed():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d)) as c:
        def send(path, body, coding, pack):
            status, _, data = c.request("POST", path, pack(json.dumps(body).encode()), {"Content-Encoding": coding})
            return status, json.loads(data)
        for coding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
            status, answer = send("/v2/logging", {"log_verbose_level": 1}, coding, pack)
            assert status == 200 and answer["log_verbose_level"] == 1, answer
            status, answer = send("/v2/logging", {"log_verbose_level": 0}, coding, pack)
            assert status == 200 and answer["log_verbose_level"] == 0, answer
            status, answer = send("/v2/repository/index", {"ready": True}, coding, pack)
            assert status == 200 and any(x["name"] == "tiny" for x in answer), answer
            status, answer = send("/v2/trace/setting", {"trace_level": ["TIMESTAMPS"]}, coding, pack)
            assert status == 400 and "--trace-file" in answer["error"], answer
            status, answer = send("/v2/repository/models/tiny/load", {}, coding, pack)
            assert status == 400 and "no launcher" in answer["error"], answer
        status, answer = send("/v2/logging", {}, "gzip", lambda x: b"no gzip")
        assert status == 400 and "Content-Encoding" in answer["error"], answer
        status, answer = send("/v2/logging", " " * 10000000, "gzip", gzip.compress)
        assert status == 413 and "unpacked" in answer["error"], answer


def events(data):
    return [json.loads(x[6:]) for x in data.decode().split("\n\n") if x]


def test_non_decoupled_model_answers_whole_and_refuses_streams():
    """As TensorRT-LLM's backend says it; the other door is in tests/clients."""
    with tempfile.TemporaryDirectory() as d:
        for name in ("tensorrt_llm", "tensorrt_llm_bls"):
            os.makedirs(os.path.join(d, "repository", name))
            with open(os.path.join(d, "repository", name, "config.pbtxt"), "w", encoding="utf-8") as f:
                f.write(f'name: "{name}"\nmodel_transaction_policy {{ decoupled: {str(name == "tensorrt_llm_bls").lower()} }}\n')
        with Cluster(small_model(d), router_args=["--model-repository", os.path.join(d, "repository")]) as c:
            body = {"text_input": "a", "max_tokens": 3}
            for model in ("ensemble", "tensorrt_llm"):
                assert json.loads(c.request("GET", f"/v2/models/{model}/config")[2])[
                    "model_transaction_policy"] == {"decoupled": False}, model
                status, answer = c.post(f"/v2/models/{model}/generate_stream", body)
                assert status == 400 and "only supported if model is deployed using decoupled mode" in answer["error"], answer
                status, answer = c.post(f"/v2/models/{model}/generate", body)
                assert status == 200, answer
            status, _, data = c.request("POST", "/v2/models/tensorrt_llm_bls/generate_stream", body)
            assert status == 200 and len(events(data)) > 1, data


def test_accumulating_chain_repeats_all_text_in_each_response():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d), router_args=["--accumulate-tokens"]) as c:
        body = {"text_input": "a", "max_tokens": 8}
        for model in ("tensorrt_llm_bls", "ensemble"):
            status, _, data = c.request("POST", f"/v2/models/{model}/generate_stream", body)
            pieces = [x["text_output"] for x in events(data)]
            assert status == 200 and len(pieces) > 2, pieces
            whole = pieces[-1] if model == "tensorrt_llm_bls" else "".join(pieces)
            assert whole == c.generate("a", 8), (model, pieces)
            if model == "tensorrt_llm_bls":
                assert all(b.startswith(a) for a, b in zip(pieces, pieces[1:])), pieces
