#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Triton's own clients and test programs rely on, at the HTTP and the gRPC door, for all five models.

Usage: test_triton.py [NAME ...]

Needs BATON_BUILD and tritonclient[grpc,http], which BATON_CLIENTS_PYTHON may have. The model is a small one of the
build's own tool; it answers at once.

Where a value comes from stands at the test: Triton's documentation (server: docs/user_guide/decoupled_models.md,
docs/protocol), its gRPC server (src/grpc/stream_infer_handler.cc), TensorRT-LLM's sampling layers and its Triton backend.
"""
import importlib.util
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402

NEEDED = ("tritonclient", "grpc", "numpy", "geventhttpclient")
MISSING = [x for x in NEEDED if importlib.util.find_spec(x) is None]
if not MISSING:
    import grpc
    import tritonclient.grpc as by_grpc
    from test_grpc import SERVICE, Stream, address, code_of, service_pb2
    from test_seed_requests import client, switches, tensor, text_request

MODELS = ("preprocessing", "tensorrt_llm", "postprocessing", "ensemble", "tensorrt_llm_bls")
GENERATE = ("tensorrt_llm", "ensemble", "tensorrt_llm_bls")
FOLDER = tempfile.TemporaryDirectory(prefix="baton-test-")


def request_of(kind, model, *more, n=6, batch=1):
    """A request that the model answers; kind: the door."""
    if model == "preprocessing":
        return [tensor(kind, "QUERY", "BYTES", [[b"abc"]] * batch),
                tensor(kind, "REQUEST_OUTPUT_LEN", "INT32", [[n]] * batch)] + [tensor(kind, *x) for x in more]
    if model == "postprocessing":
        return [tensor(kind, "TOKENS_BATCH", "INT32", [[[70, 71, 72]]] * batch),
                tensor(kind, "SEQUENCE_LENGTH", "INT32", [[3]] * batch)] + [tensor(kind, *x) for x in more]
    if model == "tensorrt_llm":
        return [tensor(kind, "input_ids", "INT32", [[5, 6, 7]] * batch),
                tensor(kind, "input_lengths", "INT32", [[3]] * batch),
                tensor(kind, "request_output_len", "INT32", [[n]] * batch)] + [tensor(kind, *x) for x in more]
    return text_request(kind, ["abc"] * batch, n, *more)


def streamed(model, batch=1):
    return [("streaming" if model == "tensorrt_llm" else "stream", "BOOL", [[True]] * batch)]


def ask_stream(s, request_id, model, inputs, outputs=None, **options):
    s.client.async_stream_infer(model, inputs, request_id=request_id, outputs=outputs, **options)


# --- triton_final_response


def final_of(response):
    """What the parameter says; every response of a stream must have it."""
    return response.parameters["triton_final_response"].bool_param if (
        "triton_final_response" in response.parameters) else None


def answers_of(s, request_id):
    """The responses of a request until the last one."""
    answers = []
    while not answers or final_of(answers[-1]) is False:
        answers.append(s.next()[0])
        assert answers[-1].id == request_id, answers[-1]
    return answers


def check_finals(answers, has_empty):
    """True in the last one and only there; has_empty: that one has no outputs, and else all have some."""
    assert [final_of(r) for r in answers] == [False] * (len(answers) - 1) + [True], answers
    assert [len(r.outputs) > 0 for r in answers] == [True] * (len(answers) - 1) + [not has_empty], answers
    assert all(len(r.raw_output_contents) == len(r.outputs) for r in answers), answers


def test_every_response_of_a_stream_says_whether_it_is_the_final_one(c):
    """decoupled_models.md, "Knowing When a Decoupled Inference Request is Complete"; models that are not decoupled say true
    in their one response, and have no empty one (stream_infer_handler.cc, StreamInferResponseComplete)."""
    s = Stream(c)
    for model in MODELS:
        decoupled = model in GENERATE
        for opt_in in (False, True):
            ask_stream(s, "7", model, request_of("grpc", model), enable_empty_final_response=opt_in)
            answers = answers_of(s, "7")
            check_finals(answers, opt_in and decoupled)
            assert len(answers) == 1 + (opt_in and decoupled), (model, answers)
            if not decoupled:
                continue
            ask_stream(s, "8", model, request_of("grpc", model, *streamed(model)), enable_empty_final_response=opt_in)
            answers = answers_of(s, "8")
            check_finals(answers, opt_in)
            assert len(answers) == 6 + opt_in, (model, answers)
            # Rows of a batch: as they end, or as they go on.
            for more in ((), streamed(model, 3)):
                ask_stream(s, "9", model, request_of("grpc", model, *more, batch=3), enable_empty_final_response=opt_in)
                answers = answers_of(s, "9")
                check_finals(answers, opt_in)
                assert len(answers) == (18 if more else 3) + opt_in, (model, answers)
    s.close()
    assert s.answers.empty()


def test_an_answer_that_ends_by_its_end_id_has_a_final_response_with_outputs(c):
    """The end id is no token of the answer, so the last response adds nothing; clients read its outputs all the same."""
    with client(c, "grpc") as t:
        ids = t.infer("tensorrt_llm", request_of("grpc", "tensorrt_llm")).as_numpy("output_ids")[0, 0, 3:].tolist()
    cut = next(i for i in range(2, 6) if ids[i] not in ids[:i])
    s = Stream(c)
    for opt_in in (False, True):
        ask_stream(s, "1", "tensorrt_llm", request_of("grpc", "tensorrt_llm", *streamed("tensorrt_llm"),
                                                      ("end_id", "INT32", [[ids[cut]]])),
                   enable_empty_final_response=opt_in)
        answers = answers_of(s, "1")
        check_finals(answers, opt_in)
        made = [x for r in answers if r.outputs for x in by_grpc.InferResult(r).as_numpy("output_ids")[0, 0].tolist()]
        assert made == ids[:cut], (made, ids)
        # Text that ends by a stop word is held back, and ends in the same way.
        ask_stream(s, "2", "ensemble", request_of("grpc", "ensemble", *streamed("ensemble"),
                                                  ("end_id", "INT32", [[ids[cut]]]), n=40),
                   enable_empty_final_response=opt_in)
        check_finals(answers_of(s, "2"), opt_in)
    s.close()


def test_requests_of_one_stream_each_have_one_final_response_and_an_error_is_one(c):
    def requests():
        for i, (model, inputs) in enumerate((
                ("ensemble", request_of("grpc", "ensemble", *streamed("ensemble"))),
                ("ensemble", request_of("grpc", "ensemble", n=0)),
                ("tensorrt_llm", request_of("grpc", "tensorrt_llm", *streamed("tensorrt_llm"))),
                ("nobody", request_of("grpc", "ensemble")),
                ("postprocessing", request_of("grpc", "postprocessing")))):
            yield by_grpc._utils._get_inference_request(  # pylint: disable=protected-access
                model_name=model, inputs=inputs, model_version="", request_id=str(i), outputs=None, sequence_id=0,
                sequence_start=False, sequence_end=False, priority=0, timeout=None, parameters=None)

    with grpc.insecure_channel(address(c)) as channel:
        answers = list(channel.stream_stream(
            SERVICE + "ModelStreamInfer", service_pb2.ModelInferRequest.SerializeToString,
            service_pb2.ModelStreamInferResponse.FromString)(requests()))
    for i in range(5):
        mine = [a for a in answers if a.infer_response.id == str(i)]
        finals = [final_of(a.infer_response) for a in mine]
        assert finals == [False] * (len(mine) - 1) + [True], (i, mine)
        assert bool(mine[-1].error_message) == (i in (1, 3)), (i, mine)
    assert len(answers) == 6 + 1 + 6 + 1 + 1, answers


def test_a_stopped_request_and_the_one_that_stops_it_each_have_a_final_response(c):
    """model_instance_state.cc answers a stop request with a response without outputs, flagged as the final one."""
    s = Stream(c)
    ask_stream(s, "1", "tensorrt_llm", request_of("grpc", "tensorrt_llm", *streamed("tensorrt_llm"),
                                                  ("end_id", "INT32", [[-1]]), n=250))
    first, _ = s.next()
    assert final_of(first) is False, first
    ask_stream(s, "1", "tensorrt_llm", [tensor("grpc", *x) for x in switches("stop")])
    finals = []
    while len(finals) < 2:
        response, _ = s.next()
        assert response.id == "1" and final_of(response) is not None, response
        finals += [sorted(x.name for x in response.outputs)] if final_of(response) else []
    assert sorted(finals) == [[], ["output_ids", "sequence_length"]], finals
    s.close()
    c.wait_idle()


def test_a_request_that_is_stopped_before_it_runs_is_answered_without_an_answer(_):
    """--queue-delay-us holds it back."""
    with tempfile.TemporaryDirectory() as d:
        with harness.Cluster(harness.small_model(d), router_args=["--queue-delay-us", "1000000"]) as c:
            cases = [(model, batch, more) for model in ("ensemble", "tensorrt_llm") for batch in (1, 2)
                     for more in ((), streamed(model, batch))]
            s = Stream(c)
            for i, (model, batch, more) in enumerate(cases):
                ask_stream(s, str(i), model, request_of("grpc", model, *more, batch=batch))
                ask_stream(s, str(i), model, [tensor("grpc", *x) for x in switches("stop")])
            by_id = {str(i): [] for i in range(len(cases))}
            while sum(map(bool, map(final_of, sum(by_id.values(), [])))) < 2 * len(cases):
                response, _ = s.next()
                by_id[response.id].append(response)
            s.close()
            for i, (model, batch, more) in enumerate(cases):
                answers = by_id[str(i)]
                assert sorted(map(final_of, answers)) == [False] * ((1 if more else batch) - 1) + [True] * 2, answers
                assert sum(not r.outputs for r in answers) == 1, answers
                made = [by_grpc.InferResult(r) for r in answers if r.outputs]
                if model == "ensemble":
                    assert all(x.as_numpy("text_output").tolist() == [b""] for x in made), answers
                else:  # the prompt is in front of what is no stream
                    assert all(x.as_numpy("output_ids").size == (0 if more else 3) for x in made), answers


def test_a_unary_answer_says_nothing_of_a_final_response(c):
    with client(c, "grpc") as t:
        for model in MODELS:
            answer = t.infer(model, request_of("grpc", model), parameters=None).get_response()
            assert not answer.parameters, answer


def test_parameters_with_tritons_prefix_are_checked_in_its_words(c):
    """infer_handler.cc, SetInferenceRequestMetadata and SetStateParameterFromTritonParameter."""
    request = by_grpc._utils._get_inference_request(  # pylint: disable=protected-access
        model_name="ensemble", inputs=request_of("grpc", "ensemble"), model_version="", request_id="", outputs=None,
        sequence_id=0, sequence_start=False, sequence_end=False, priority=0, timeout=None, parameters=None)
    with grpc.insecure_channel(address(c)) as channel:
        call = channel.unary_unary(SERVICE + "ModelInfer", service_pb2.ModelInferRequest.SerializeToString,
                                   service_pb2.ModelInferResponse.FromString)
        request.parameters["triton_enable_empty_final_response"].string_param = "true"
        code, text = code_of(lambda: call(request))
        assert code == "StatusCode.INVALID_ARGUMENT" and text == (
            "invalid value type for 'triton_enable_empty_final_response' parameter, expected bool_param."), (code, text)
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        assert call(request).outputs
        request.parameters["triton_other"].bool_param = True
        code, text = code_of(lambda: call(request))
        assert code == "StatusCode.INVALID_ARGUMENT" and text == (
            "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with "
            "'triton_' are allowed: triton_enable_empty_final_response"), (code, text)


if __name__ == "__main__":
    sys.exit(client_tests.main(globals(), MISSING and f"packages of PyPI are not installed: {' '.join(MISSING)}",
                               model_of=lambda: harness.small_model(FOLDER.name)))
