#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Baton's gRPC door judged by the clients that people use, unmodified from PyPI.

Usage: test_grpc.py [NAME ...]

As test_clients.py: needs BATON_BUILD, BATON_TEST_MODEL and the packages
tritonclient[grpc], grpcio-health-checking and grpcio-reflection, which
BATON_CLIENTS_PYTHON may have.
"""
import asyncio
import gzip
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import adapters  # noqa: E402
import client_tests  # noqa: E402
import harness  # noqa: E402
from harness import wait_until  # noqa: E402
from other_user import passed_on  # noqa: E402

MODEL = "ensemble"
QUESTION = b"The capital of France is"
SERVICE = "/inference.GRPCInferenceService/"
try:
    import grpc
    import numpy as np
    import tritonclient.grpc as triton
    from google.protobuf import text_format
    from tritonclient.grpc import service_pb2
    from tritonclient.utils import InferenceServerException
    MISSING = None
except ImportError as why:  # the runner says so
    MISSING = why


def address(c):
    return f"{c.grpc[0]}:{c.grpc[1]}"


def client(c, **options):
    return triton.InferenceServerClient(address(c), **options)


def tensor(name, values, kind):
    made = triton.InferInput(name, list(values.shape), kind)
    made.set_data_from_numpy(values)
    return made


def question(max_tokens=8, text=QUESTION, **more):
    made = [tensor("text_input", np.array([[text]], dtype=object), "BYTES"),
            tensor("max_tokens", np.array([[max_tokens]], dtype=np.int32), "INT32")]
    if more.get("min_length"):
        made.append(tensor("min_length", np.array([[more["min_length"]]], dtype=np.int32), "INT32"))
    if more.get("stream"):
        made.append(tensor("stream", np.array([[True]]), "BOOL"))
    return made


def code_of(call):
    """@return (code, text) of the error that the call must raise."""
    try:
        answer = call()
    except InferenceServerException as error:
        return error.status(), error.message()
    except grpc.RpcError as error:
        return str(error.code()), error.details()
    raise AssertionError(f"no error, but {answer}")


class Stream:
    """One ModelStreamInfer; answers gather in a queue."""

    def __init__(self, c, **options):
        self.client, self.answers = client(c), queue.Queue()
        self.client.start_stream(lambda result, error: self.answers.put((result, error)), **options)

    def ask(self, request_id, **more):
        options = {k: more.pop(k) for k in ("enable_empty_final_response", "parameters", "outputs") if k in more}
        self.client.async_stream_infer(more.pop("model", MODEL), more.pop("inputs", None) or question(**more),
                                       request_id=request_id, **options)

    def next(self):
        result, error = self.answers.get(timeout=60)
        if error is not None:
            raise error
        return result.get_response(), result

    def close(self, cancel=False):
        self.client.stop_stream(cancel_requests=cancel)
        self.client.close()


# --- calls that are answered at once


def test_grpc_server_and_model_calls_answer(c):
    with client(c) as t:
        assert t.is_server_live() and t.is_server_ready() and t.is_model_ready(MODEL) and t.is_model_ready(MODEL, "1")
        assert not t.is_model_ready("nobody") and not t.is_model_ready(MODEL, "2")
        server = t.get_server_metadata()
        assert server.name == "baton" and "statistics" in server.extensions, server
        over_http = c.request("GET", f"/v2/models/{MODEL}/config")[2]
        config = t.get_model_config(MODEL, as_json=True)["config"]
        import json
        told = json.loads(over_http)
        assert config["name"] == told["name"] == MODEL
        assert [x["name"] for x in config["input"]] == [x["name"] for x in told["input"]]
        assert [x["data_type"] for x in config["output"]] == [x["data_type"] for x in told["output"]]
        assert bool(config["model_transaction_policy"].get("decoupled")) == told["model_transaction_policy"]["decoupled"]
        metadata = t.get_model_metadata(MODEL)
        told = c.request("GET", f"/v2/models/{MODEL}")[2]
        told = json.loads(told)
        assert metadata.platform == told["platform"] and list(metadata.versions) == told["versions"]
        assert [(x.name, x.datatype, list(x.shape)) for x in metadata.inputs] == [
            (x["name"], x["datatype"], x["shape"]) for x in told["inputs"]]
        index = {m.name: m.state for m in t.get_model_repository_index().models}
        assert index[MODEL] == "READY" and "tensorrt_llm" in index, index
        for call in (lambda: t.get_model_config("nobody"), lambda: t.get_model_metadata("nobody"),
                     lambda: t.get_inference_statistics("nobody"), lambda: t.infer("nobody", question())):
            code, text = code_of(call)
            assert code == "StatusCode.NOT_FOUND" and "nobody" in text, (code, text)


def test_grpc_settings_and_shared_memory_calls_answer(c):
    with client(c) as t:
        log = t.get_log_settings(as_json=True)["settings"]
        assert "log_info" in log, log
        trace = t.get_trace_settings(as_json=True)["settings"]
        assert "trace_level" in trace, trace
        assert not t.get_cuda_shared_memory_status().regions
        t.unregister_cuda_shared_memory()
        assert code_of(lambda: t.register_cuda_shared_memory("a", b"AAAA", 0, 8))[0] == "StatusCode.UNIMPLEMENTED"
        assert not t.get_system_shared_memory_status().regions
        t.unregister_system_shared_memory()
        code, text = code_of(lambda: t.register_system_shared_memory("a", "/a", 8))
        assert code == "StatusCode.UNIMPLEMENTED" and "--shared-memory off" in text, (code, text)
        asked = question()
        asked[0] = triton.InferInput("text_input", [1, 1], "BYTES")
        asked[0].set_shared_memory("a", 8)
        code, text = code_of(lambda: t.infer(MODEL, asked))
        assert code == "StatusCode.INVALID_ARGUMENT" and "text_input: shared_memory_region" in text, (code, text)
        assert "--shared-memory off" in text and "system_shared_memory" not in t.get_server_metadata().extensions, text


def test_health_service(c):
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    with grpc.insecure_channel(address(c)) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "inference.GRPCInferenceService"):
            assert health.Check(health_pb2.HealthCheckRequest(service=name)).status == 1
        assert code_of(lambda: health.Check(health_pb2.HealthCheckRequest(service="x")))[0] == "StatusCode.NOT_FOUND"
        watch = health.Watch(health_pb2.HealthCheckRequest(service=""))
        assert next(watch).status == 1
        watch.cancel()
        assert next(health.Watch(health_pb2.HealthCheckRequest(service="x"))).status == 3


def test_grpc_reflection_equals_the_clients_descriptors(c):
    from google.protobuf.descriptor_pool import DescriptorPool
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
    with grpc.insecure_channel(address(c)) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert "inference.GRPCInferenceService" in database.get_services()
        pool = DescriptorPool(database)
        theirs = service_pb2.DESCRIPTOR
        ours = pool.FindServiceByName("inference.GRPCInferenceService")
        assert [m.name for m in ours.methods] == [
            m.name for m in theirs.services_by_name["GRPCInferenceService"].methods]
        for name, message in theirs.message_types_by_name.items():
            told = pool.FindMessageTypeByName("inference." + name)
            assert [(f.name, f.number, f.type) for f in told.fields] == [
                (f.name, f.number, f.type) for f in message.fields], name


def test_grpc_unknown_names_are_denied(c):
    def call_as(name, metadata=None):
        with grpc.insecure_channel(address(c), [("grpc.default_authority", name)]) as channel:
            channel.unary_unary(SERVICE + "ServerLive", lambda x: x, lambda x: x)(b"", metadata=metadata, timeout=30)
            return "OK", ""

    for name in ("localhost", "localhost:8001", "127.0.0.1", "127.8.8.8:1", "[::1]:8001", "203.0.113.5"):
        assert call_as(name)[0] == "OK", name
    for name, metadata in (("evil.example", None), ("localhost.evil.example:8001", None), ("10.0.0.1x", None),
                           ("localhost", (("origin", "https://evil.example"),))):
        code, text = code_of(lambda: call_as(name, metadata))  # pylint: disable=cell-var-from-loop
        assert code == "StatusCode.PERMISSION_DENIED" and "--allowed-hosts" in text, (name, code, text)


def test_grpc_response_metadata_has_the_request_id(c):
    def ids(method, request, metadata=None, call_of="unary_unary"):
        with grpc.insecure_channel(address(c)) as channel:
            call = getattr(channel, call_of)(SERVICE + method, lambda x: x, lambda x: x)
            if call_of == "unary_unary":
                future = call.future(request, metadata=metadata)
                future.exception()  # it has ended
            else:
                future = call(iter([]), metadata=metadata)
                assert not list(future)
            heads = list(future.initial_metadata()) + list(future.trailing_metadata())
            return [value for key, value in heads if key == "x-request-id"]

    mine = (("x-request-id", "run-7/a"),)
    assert ids("ServerLive", b"", mine) == ["run-7/a"]
    assert ids("ModelInfer", b"", mine) == ["run-7/a"], "an error has it, too"
    assert ids("ModelStreamInfer", None, mine, "stream_stream") == ["run-7/a"]
    # Those that are refused before they begin have it as well.
    assert ids("NoSuchMethod", b"", mine) == ["run-7/a"]
    assert ids("ServerLive", b"", mine + (("origin", "https://evil.example"),)) == ["run-7/a"]
    assert len(ids("NoSuchMethod", b"")[0]) == 32
    fresh = ids("ServerLive", b"") + ids("ServerLive", b"") + ids("ServerLive", b"", (("x-request-id", "a b"),))
    assert len(set(fresh)) == 3 and all(len(x) == 32 for x in fresh), fresh


def test_grpc_loads_and_unloads_models_through_the_launcher(c):
    import tempfile
    from launch import Launch
    with client(c) as t:
        for call in (t.load_model, t.unload_model):
            code, text = code_of(lambda: call(MODEL))  # pylint: disable=cell-var-from-loop
            assert code == "StatusCode.INVALID_ARGUMENT" and "no launcher" in text, (code, text)
        code, text = code_of(lambda: t.load_model(MODEL, config="{}"))
        assert code == "StatusCode.INVALID_ARGUMENT" and text.startswith("config:"), (code, text)
        code, text = code_of(lambda: t.load_model("a/b"))
        assert code == "StatusCode.INVALID_ARGUMENT" and "no model's name" in text, (code, text)
        call = service_pb2.RepositoryModelUnloadRequest(repository_name="other", model_name=MODEL)
        code, text = code_of(lambda: t._client_stub.RepositoryModelUnload(call))  # pylint: disable=protected-access
        assert code == "StatusCode.INVALID_ARGUMENT" and "repository_name" in text, (code, text)
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        with Launch("--model", f"a={harness.small_model(directory)}") as launch:
            at = [line.split()[1] for line in launch.output().splitlines() if line.split()[:1] == ["gRPC"]][0]
            with triton.InferenceServerClient(at) as t:
                assert t.is_model_ready("a")
                # Triton's names are the first model's.
                t.unload_model("tensorrt_llm", unload_dependents=True)
                assert not t.is_model_ready("a"), "an order is answered when it has come true"
                assert code_of(lambda: t.infer("a", question(2)))[0] == "StatusCode.UNAVAILABLE"
                t.load_model("a")
                assert t.is_model_ready("a"), "an order is answered when it has come true"
                assert t.infer("a", question(2)).get_response().model_name == "a"
                code, text = code_of(lambda: t.load_model("nothing"))
                assert code == "StatusCode.INVALID_ARGUMENT" and "failed to load 'nothing'" in text, (code, text)
                # Who leaves takes nothing back, and holds no place.
                for _ in range(20):
                    code_of(lambda: t.unload_model("nothing", client_timeout=0.001))
                t.unload_model("a")
                assert not t.is_model_ready("a")


def test_adapters_are_models_of_those_who_see_them(c):
    shape = dict(layers=2, dim=64, heads=4, kv_heads=2, ffn=128)
    mine = {"x-tenant": "acme"}
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        model = harness.tiny_model(directory, context=512, seed=1, type="f32", embedding_type="f32", **shape)
        adapters.Adapter(8, 5, shape).peft(os.path.join(directory, "lora", "one"))
        args = ["--lora-dir", os.path.join(directory, "lora")]
        with harness.Cluster(model, worker_args=args, router_args=args + ["--tenant-header", "x-tenant"]) as own, client(own) as t:
            for name, more in (("sql", {}), ("own", {"tenant": "acme"})):
                assert own.request("POST", "/v1/load_lora_adapter",
                                   json.dumps(dict(lora_name=name, lora_path="one", **more)))[0] == 200

            def index(headers=None):
                return {m.name: m.state for m in t.get_model_repository_index(headers=headers).models}

            assert t.is_model_ready("sql") and t.get_model_metadata("sql").name == "sql"
            assert not t.is_model_ready("sql:latest") and not t.is_model_ready("own")
            assert code_of(lambda: t.get_model_metadata("own"))[0] == "StatusCode.NOT_FOUND"
            assert t.is_model_ready("own", headers=mine) and t.get_model_metadata("own", headers=mine).name == "own"
            assert index().get("sql") == "READY" and "own" not in index()
            assert index(mine).get("own") == "READY"
            assert t.infer("own", question(2), headers=mine).get_response().model_name == "own"


def test_commands_without_keys_are_those_of_the_servers_own_user(c):
    if os.geteuid() != 0:
        raise harness.Skip("only root has another user")
    with passed_on(c.grpc) as other, triton.InferenceServerClient("%s:%d" % other) as t, client(c) as own:
        for order in ("load_model", "unload_model"):
            code, text = code_of(lambda: getattr(t, order)(MODEL))  # pylint: disable=cell-var-from-loop
            assert code == "StatusCode.PERMISSION_DENIED" and "--admin-without-keys anybody" in text, (order, code, text)
        for settings in ("update_log_settings", "update_trace_settings"):
            code, text = code_of(lambda: getattr(t, settings)(settings={}))  # pylint: disable=cell-var-from-loop
            assert code == "StatusCode.PERMISSION_DENIED", (settings, code, text)
            assert getattr(own, settings)(settings={}) is not None
        assert t.infer(MODEL, question(2)).as_numpy("text_output") is not None, "who may not order may ask"


# --- infer


def test_grpc_infer_equals_http(c):
    text = c.generate(QUESTION.decode(), 8)
    with client(c) as t:
        answer = t.infer(MODEL, question(), request_id="abc", outputs=[triton.InferRequestedOutput("text_output")])
        assert answer.get_response().id == "abc"
        assert answer.as_numpy("text_output")[0].decode().endswith(text.removeprefix(QUESTION.decode())), text
        ids = np.array([[504, 3575, 282, 4649, 314]], dtype=np.int32)
        asked = [tensor("input_ids", ids, "INT32"), tensor("request_output_len", np.array([[6]], dtype=np.int32), "INT32"),
                 tensor("input_lengths", np.array([[5]], dtype=np.int32), "INT32")]
        answer = t.infer("tensorrt_llm", asked)
        shape = answer.as_numpy("output_ids").shape
        assert shape[:2] == (1, 1) and answer.as_numpy("sequence_length").shape == (1, 1), shape


def switch(*names):
    return [tensor(x, np.array([[True]]), "BOOL") for x in names]


def test_grpc_stream_has_log_probs_by_piece_and_logits_at_its_end(c):
    """The logits are more bytes than --client-buffer-bytes, and a last word follows them at once."""
    status, answer = c.post("/v1/completions", {"prompt": QUESTION.decode(), "max_tokens": 4, "temperature": 0,
                                                "logprobs": 0, "ignore_eos": True})
    assert status == 200, answer
    expected = np.array(answer["choices"][0]["logprobs"]["token_logprobs"]).astype(np.float32).tolist()
    asked = switch("return_log_probs", "return_context_logits", "return_generation_logits")
    with client(c) as t:
        whole = t.infer(MODEL, question(4) + asked)
    assert whole.as_numpy("output_log_probs").tolist() == [[expected]]
    s = Stream(c)
    s.ask("1", inputs=question(4, stream=True) + asked, enable_empty_final_response=True)
    scores, last = [], None
    while True:
        answer, result = s.next()
        if answer.parameters["triton_final_response"].bool_param:
            break
        assert last is None, "more behind the logits"
        scores += result.as_numpy("output_log_probs")[0, 0].tolist()
        last = result if result.as_numpy("context_logits") is not None else None
    s.close()
    assert scores == expected, (scores, expected)
    for name in ("cum_log_probs", "context_logits", "generation_logits"):
        assert (last.as_numpy(name) == whole.as_numpy(name)).all(), name
    assert last.as_numpy("context_logits").nbytes + last.as_numpy("generation_logits").nbytes > 1 << 20
    # Rows of a batch that are told one by one share the buffer.
    texts = tensor("text_input", np.array([[QUESTION], [QUESTION]], dtype=object), "BYTES")
    s = Stream(c)
    s.ask("2", inputs=[texts, question(4)[1]] + asked)
    try:
        s.next()
        raise AssertionError("no error")
    except InferenceServerException as error:
        assert "client-buffer-bytes" in str(error), error
    s.close()


def test_grpc_batch_of_three_answers_once(c):
    texts = np.array([[b"One"], [b"Two"], [b"Three"]], dtype=object)
    asked = [tensor("text_input", texts, "BYTES"),
             tensor("max_tokens", np.array([[4], [5], [6]], dtype=np.int32), "INT32")]
    with client(c) as t:
        answer = t.infer(MODEL, asked).as_numpy("text_output")
        assert answer.shape[0] == 3, answer
        alone = [t.infer(MODEL, question(4 + i, texts[i][0])).as_numpy("text_output")[0] for i in range(3)]
        assert [x for x in answer.reshape(-1)] == alone, (answer, alone)


def test_grpc_errors_have_the_documented_codes(c):
    with client(c) as t:
        code, text = code_of(lambda: t.infer(MODEL, question(max_tokens=-1)))
        assert code == "StatusCode.INVALID_ARGUMENT" and "max_tokens" in text, (code, text)
        unknown = question() + [tensor("text_outputs", np.array([[1]], dtype=np.int32), "INT32")]
        code, text = code_of(lambda: t.infer(MODEL, unknown))
        assert code == "StatusCode.INVALID_ARGUMENT" and "text_outputs" in text, (code, text)
        huge = question(text=b"x" * (9 << 20))
        code, text = code_of(lambda: t.infer(MODEL, huge))
        assert code == "StatusCode.RESOURCE_EXHAUSTED" and "--max-body-bytes" in text, (code, text)
        code, _ = code_of(lambda: t.infer(MODEL, question(2800, min_length=2800), client_timeout=0.1))
        assert code == "StatusCode.DEADLINE_EXCEEDED", code
        code, text = code_of(lambda: t.infer(MODEL, question(), model_version="7"))
        assert code == "StatusCode.NOT_FOUND", (code, text)
    with grpc.insecure_channel(address(c)) as channel:
        call = channel.unary_unary(SERVICE + "NoSuchCall", lambda x: x, lambda x: x)
        assert code_of(lambda: call(b""))[0] == "StatusCode.UNIMPLEMENTED"
        call = channel.unary_unary(SERVICE + "ModelInfer", lambda x: x, lambda x: x)
        code, text = code_of(lambda: call(b"\xff\xff\xff"))
        assert code == "StatusCode.INVALID_ARGUMENT" and "ModelInferRequest" in text, (code, text)
    c.wait_idle()


def test_grpc_gzip_works_both_ways(c):
    long_text = b"The capital of France is Paris. " * 64
    with client(c) as t:
        plain = t.infer(MODEL, question(2, long_text)).as_numpy("text_output")[0]
        packed = t.infer(MODEL, question(2, long_text), compression_algorithm="gzip").as_numpy("text_output")[0]
        assert plain == packed and len(plain) > 1024
        code, text = code_of(lambda: t.infer(MODEL, question(2), compression_algorithm="deflate"))
        assert code == "StatusCode.UNIMPLEMENTED" and "gzip" in text, (code, text)
        bomb = question(2, b"x" * (9 << 20))
        code, text = code_of(lambda: t.infer(MODEL, bomb, compression_algorithm="gzip"))
        assert code == "StatusCode.RESOURCE_EXHAUSTED" and "--max-body-bytes" in text, (code, text)
    assert gzip  # the packed form is grpcio's own


# --- streams


def test_grpc_stream_ends_each_of_its_requests(c):
    whole = c.generate(QUESTION.decode(), 8)
    s = Stream(c)
    s.ask("pieces", stream=True, enable_empty_final_response=True)
    s.ask("whole")
    s.ask("wrong", max_tokens=-1)
    s.ask("nobody", model="nobody")
    pieces, wholes, errors, ended = [], [], [], False
    while not ended or len(wholes) < 1 or len(errors) < 2:
        try:
            response, result = s.next()
        except InferenceServerException as error:
            errors.append(error.message())
            continue
        if response.id == "pieces":
            ended = response.parameters["triton_final_response"].bool_param
            if ended:
                assert not response.outputs
            else:
                pieces.append(result.as_numpy("text_output")[0].decode())
        else:
            assert response.id == "whole" and response.parameters["triton_final_response"].bool_param
            wholes.append(result.as_numpy("text_output")[0].decode())
    assert len(pieces) > 2 and "".join(pieces).endswith(whole.removeprefix(QUESTION.decode())), (pieces, whole)
    assert len(wholes) == 1 and wholes[0].endswith(whole.removeprefix(QUESTION.decode())), (wholes, whole)
    assert any("max_tokens" in e for e in errors) and any("nobody" in e for e in errors), errors
    s.close()


def test_grpc_model_config_parses_as_config_pbtxt(c):
    """Written by protobuf's own text_format; the launcher's --check reads it and starts nothing."""
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory:
        for name in ("preprocessing", "tensorrt_llm", "postprocessing", "ensemble", "tensorrt_llm_bls"):
            config = client(c).get_model_config(name).config
            assert config.version_policy.latest.num_versions == 1, config
            os.makedirs(os.path.join(directory, name))
            with open(os.path.join(directory, name, "config.pbtxt"), "w", encoding="utf-8") as f:
                f.write(text_format.MessageToString(config))
        done = subprocess.run([os.path.join(harness.BUILD, "launcher/baton-launch"), "--check", "--model", c.model,
                               "--model-repository", directory], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
                              timeout=120, check=False)
        assert done.returncode == 0, done


def test_grpc_half_close_waits_for_running_requests(c):
    def requests():
        yield triton._utils._get_inference_request(  # pylint: disable=protected-access
            model_name=MODEL, inputs=question(24, stream=True), model_version="", request_id="1", outputs=None,
            sequence_id=0, sequence_start=False, sequence_end=False, priority=0, timeout=None, parameters=None)

    with grpc.insecure_channel(address(c)) as channel:
        call = channel.stream_stream(SERVICE + "ModelStreamInfer", service_pb2.ModelInferRequest.SerializeToString,
                                     service_pb2.ModelStreamInferResponse.FromString)(requests())
        answers = list(call)
        assert len(answers) >= 20 and not any(a.error_message for a in answers), len(answers)
        assert call.code() == grpc.StatusCode.OK


def test_grpc_64_streams_share_one_connection(c):
    with grpc.insecure_channel(address(c)) as channel:
        stub = channel.stream_stream(SERVICE + "ModelStreamInfer", service_pb2.ModelInferRequest.SerializeToString,
                                     service_pb2.ModelStreamInferResponse.FromString)
        texts = [None] * 64

        def run(i):
            request = triton._utils._get_inference_request(  # pylint: disable=protected-access
                model_name=MODEL, inputs=question(6, stream=True), model_version="", request_id=str(i), outputs=None,
                sequence_id=0, sequence_start=False, sequence_end=False, priority=0, timeout=None, parameters=None)
            answers = list(stub(iter([request])))
            assert all(a.infer_response.id == str(i) for a in answers)
            texts[i] = b"".join(a.infer_response.raw_output_contents[0][4:] for a in answers)

        runners = [threading.Thread(target=run, args=(i,)) for i in range(64)]
        for r in runners:
            r.start()
        for r in runners:
            r.join(120)
        assert None not in texts and len(set(texts)) == 1, set(texts)
    c.wait_idle()


def test_grpc_cancel_frees_seat_and_blocks(c):
    key = 'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"}'
    for leave in ("cancel", "close"):
        s = Stream(c)
        s.ask("long", max_tokens=2800, min_length=2800, stream=True)
        s.next()
        wait_until("it has blocks", lambda: c.metrics()[key] > 0)
        if leave == "cancel":
            s.close(cancel=True)
        else:
            s.client._client_stub = None  # pylint: disable=protected-access
            s.client.stop_stream(cancel_requests=True)
            s.client._channel.close()  # pylint: disable=protected-access
        c.wait_idle()
        wait_until("the blocks are free", lambda: c.metrics()[key] == 0)


def test_grpc_asyncio_client_works(c):
    import tritonclient.grpc.aio as aio

    async def run():
        async with aio.InferenceServerClient(address(c)) as t:
            assert await t.is_server_live() and await t.is_server_ready() and await t.is_model_ready(MODEL)
            assert (await t.get_server_metadata()).name == "baton"
            assert (await t.get_model_config(MODEL)).config.name == MODEL
            assert (await t.get_model_metadata(MODEL)).name == MODEL
            assert (await t.get_inference_statistics(MODEL)).model_stats
            assert (await t.get_model_repository_index()).models
            answers = await asyncio.gather(*(t.infer(MODEL, question(4), request_id=str(i)) for i in range(8)))
            assert [a.get_response().id for a in answers] == [str(i) for i in range(8)]

            async def requests():
                for i in range(3):
                    yield {"model_name": MODEL, "inputs": question(5, stream=True), "request_id": str(i)}

            seen = {}
            async for result, error in t.stream_infer(requests()):
                assert error is None, error
                seen[result.get_response().id] = seen.get(result.get_response().id, 0) + 1
            assert set(seen) == {"0", "1", "2"} and min(seen.values()) > 1, seen

    asyncio.run(run())


def test_grpc_load_generator_counts_agree_with_metrics(c):
    def counts(t):
        s = t.get_inference_statistics("tensorrt_llm").model_stats[0]
        return s.inference_stats.success.count, s.inference_stats.queue.count, s.inference_count

    with client(c) as t:
        before = counts(t)
        for i in range(200):
            t.infer(MODEL, question(1 + i % 3))
        def grew():
            return [b - a for a, b in zip(before, counts(t))]
        wait_until("they are counted", lambda: min(grew()) >= 200)
        assert grew() == [200, 200, 200], grew()


def test_grpc_keep_alive_and_large_messages_work(c):
    options = triton.KeepAliveOptions(keepalive_time_ms=1000, keepalive_timeout_ms=5000,
                                      keepalive_permit_without_calls=True, http2_max_pings_without_data=0)
    with client(c, keepalive_options=options) as t:
        assert t.is_server_live()
        end = time.monotonic() + 7.5  # some pings, and the time of an answer to the first
        wait_until("pings were answered", lambda: time.monotonic() > end)
        assert t.is_server_live()
        code, text = code_of(lambda: t.infer(MODEL, question(text=b"word " * 280000)))  # 2 MB: over the context
        assert code == "StatusCode.INVALID_ARGUMENT" and "tokens" in text, (code, text)


def test_grpc_over_tls(c):
    import tempfile
    from test_tls import make_identity, tls_options
    with tempfile.TemporaryDirectory() as d:
        cert, key = make_identity(d, "server")
        with harness.Cluster(c.model, router_args=tls_options(cert, key)) as secure:
            with triton.InferenceServerClient(address(secure), ssl=True, root_certificates=cert) as t:
                assert t.is_server_live()
                whole = t.infer(MODEL, question(6)).as_numpy("text_output")[0]
                with client(c) as plain:
                    assert plain.infer(MODEL, question(6)).as_numpy("text_output")[0] == whole
            with grpc.insecure_channel(address(secure)) as channel:
                call = channel.unary_unary(SERVICE + "ServerLive", lambda x: x, lambda x: x)
                code, _ = code_of(lambda: call(b"", timeout=10))
                assert code in ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED"), code


def both_doors_refuse(c, text):
    """@return code and text of gRPC, status and text of Triton's JSON, of a request with this text"""
    body = {"inputs": [{"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": [text]},
                       {"name": "max_tokens", "shape": [1, 1], "datatype": "INT32", "data": [1]}]}
    with client(c) as t:
        code, said = code_of(lambda: t.infer(MODEL, question(1, text.encode())))
    status, answer = c.post(f"/v2/models/{MODEL}/infer", body)
    return code, said, status, answer["error"]


def test_grpc_router_without_memory_answers_unavailable(_):
    with tempfile.TemporaryDirectory() as d:
        with harness.Cluster(harness.small_model(d), router_args=["--router-memory", "1m"]) as c:
            wait_until("the router knows what it has", lambda: c.post("/tokenize", {"prompt": "hello " * 17000})[0] == 503)
            code, said, status, error = both_doors_refuse(c, "hello " * 17000)
            assert code == "StatusCode.UNAVAILABLE" and "router-memory" in said, (code, said)
            assert status == 503 and "router-memory" in error, (status, error)


def test_grpc_client_over_its_memory_share_gets_resource_exhausted(_):
    with tempfile.TemporaryDirectory() as d:
        with harness.Cluster(harness.small_model(d), router_args=["--http-memory", "32m", "--max-body-bytes", "8m"]) as c:
            found = []

            def ask():
                with client(c) as t:
                    found.append(code_of(lambda: t.infer(MODEL, question(1, b"word " * 400_000))))

            def some_are_refused():
                threads = [threading.Thread(target=ask) for _ in range(20)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
                return any(code == "StatusCode.RESOURCE_EXHAUSTED" and "http-memory" in text for code, text in found)
            wait_until("some are refused for their share", some_are_refused)
            assert c.metric("baton_memory_refused_total", reason="client") > 0
            c.wait_idle()


def test_grpc_api_keys_are_metadata(c):
    """Also of a stream that is older than the keys in force."""
    import tempfile
    from test_observe import fields_of
    from test_tenants import Keys, hang_up
    with tempfile.TemporaryDirectory() as d:
        keys = Keys(d, acme="requests=1", ops="admin")
        log = os.path.join(d, "access.log")
        with harness.Cluster(harness.small_model(d), router_args=["--api-keys", keys.path, "--access-log", log],
                             **client_tests.under_asan()) as locked:
            acme = {"authorization": "Bearer " + keys.keys["acme"]}
            with client(locked) as t:
                assert t.is_server_live() and t.is_server_ready()
                for headers in (None, {"authorization": "Bearer wrong"}, {"authorization": keys.keys["acme"]},
                                {"x-api-key": "x" * 5000}):
                    code, text = code_of(lambda: t.infer(MODEL, question(), headers=headers))
                    assert code == "StatusCode.UNAUTHENTICATED" and "API key" in text, (code, text)
                assert code_of(lambda: t.get_model_metadata(MODEL))[0] == "StatusCode.UNAUTHENTICATED"
                assert t.get_model_metadata(MODEL, headers={"x-api-key": keys.keys["acme"]}).name == MODEL
                t.infer(MODEL, question(), headers=acme)
                # The access log has the tenant of a request that is refused, too.
                assert code_of(lambda: t.infer("absent", question(), headers=acme))[0] == "StatusCode.NOT_FOUND"
                calls = lambda: [x for x in map(fields_of, open(log, encoding="utf-8").read().splitlines()) if x["path"].endswith("/ModelInfer")]
                wait_until("both are logged", lambda: [x["status"] for x in calls()][-2:] == ["200", "404"])
                assert [x["tenant"] for x in calls()][-2:] == ["acme", "acme"], calls()
                code, text = code_of(lambda: t.unload_model("x", headers=acme))
                assert code == "StatusCode.PERMISSION_DENIED" and "admin" in text, (code, text)
                code, _ = code_of(lambda: t.unload_model("x", headers={"authorization": "Bearer " + keys.keys["ops"]}))
                assert code not in ("StatusCode.PERMISSION_DENIED", "StatusCode.UNAUTHENTICATED"), code
            s = Stream(locked, headers=acme)
            s.ask("1", max_tokens=4)
            s.next()
            keys.write(ops="admin")
            hang_up(locked, keys, "1 keys of 1 tenants")
            s.ask("2", max_tokens=4)
            code, text = code_of(s.next)
            assert "not one of this server's" in text, (code, text)
            s.close()
            assert not any(locked.stop().values()), locked.logs()


# --- the runner


def test_grpc_drain_ends_streams_and_connections(c):
    """Last: the cluster stops."""
    s = Stream(c)
    s.ask("1", max_tokens=40, stream=True, enable_empty_final_response=True)
    s.next()
    stopper = threading.Thread(target=lambda: c.router.kill(15))
    stopper.start()
    while not s.next()[0].parameters["triton_final_response"].bool_param:
        pass
    stopper.join()
    s.close()
    wait_until("the router ends", lambda: not c.router.alive())
    assert c.router.popen.returncode == 0


if __name__ == "__main__":
    sys.exit(client_tests.main(globals(), MISSING and f"packages of PyPI are not installed: {MISSING}"))
