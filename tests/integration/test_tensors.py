# SPDX-License-Identifier: Apache-2.0
"""Tensors over HTTP: the five models against each other and against the other routes, of real processes."""
import gzip
import json
import struct
import tempfile
import threading
import zlib

from harness import ENDLESS, Cluster, endless_model, small_model, wait_until


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
               lambda: c.metric("baton_http_memory_bytes", what="requests") < 65536)


def test_the_models_agree_with_each_other():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d)) as c:
        check_ids_are_those_of_completions(c)
        check_text_is_that_of_generate(c)
        check_packed(c)
        c.wait_idle()
        assert not any(c.stop().values())


def test_a_request_ends_early_by_its_id():
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
