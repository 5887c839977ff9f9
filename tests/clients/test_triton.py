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
import json
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
    import tritonclient.http as by_http
    from test_grpc import SERVICE, Stream, address, code_of, service_pb2
    from test_seed_requests import client, fields, ids_request, switches, tensor, text_request
    from tritonclient.utils import InferenceServerException

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


def metadata(c, model):
    return json.loads(c.request("GET", f"/v2/models/{model}")[2])


def wanted(kind, names):
    return [(by_grpc if kind == "grpc" else by_http).InferRequestedOutput(x) for x in names]


def streamed(model, batch=1):
    return [("streaming" if model == "tensorrt_llm" else "stream", "BOOL", [[True]] * batch)]


def ask_stream(s, request_id, model, inputs, outputs=None, **options):
    s.client.async_stream_infer(model, inputs, request_id=request_id, outputs=outputs, **options)


# --- outputs


# Of each model what a request without switches gets: the backend computes the others where an input asks for them
# (model_instance_state.cc: a response has an output that is both wanted and there).
ALWAYS = {"tensorrt_llm": {"output_ids", "sequence_length", "batch_index"}, "ensemble": {"text_output", "batch_index"},
          "tensorrt_llm_bls": {"text_output", "batch_index"}, "postprocessing": {"OUTPUT"},
          "preprocessing": {"INPUT_ID", "REQUEST_INPUT_LEN", "DECODER_INPUT_ID", "REQUEST_DECODER_INPUT_LEN",
                            "BAD_WORDS_IDS", "STOP_WORDS_IDS", "EMBEDDING_BIAS", "REQUEST_OUTPUT_LEN", "OUT_END_ID",
                            "OUT_PAD_ID"}}
SWITCHED = {"return_log_probs": {"cum_log_probs", "output_log_probs"}, "return_context_logits": {"context_logits"},
            "return_generation_logits": {"generation_logits"}}


def check_outputs(c, kinds=("http", "grpc")):
    for model in MODELS:
        listed = [x["name"] for x in metadata(c, model)["outputs"]]
        expected = ALWAYS[model]
        for kind in kinds:
            with client(c, kind) as t:
                got = fields(t.infer(model, request_of(kind, model), outputs=wanted(kind, listed)))
                assert set(got) == expected, (kind, model, got)
                for name in listed:
                    got = fields(t.infer(model, request_of(kind, model), outputs=wanted(kind, [name])))
                    assert set(got) == expected & {name}, (kind, model, name, got)
                for switch, names in SWITCHED.items() if model in GENERATE else ():
                    got = fields(t.infer(model, request_of(kind, model, *switches(switch)), outputs=wanted(kind, listed)))
                    assert set(got) == expected | names, (kind, model, switch, got)
                    # Those that are not named are not computed.
                    got = fields(t.infer(model, request_of(kind, model, *switches(switch)),
                                         outputs=wanted(kind, sorted(expected))))
                    assert set(got) == expected, (kind, model, switch, got)


def test_every_metadata_output_may_be_requested_and_uncomputed_ones_are_omitted(c):
    check_outputs(c)
    s = Stream(c)
    for model in MODELS:
        listed = [x["name"] for x in metadata(c, model)["outputs"]]
        for more in ((), streamed(model)) if model in GENERATE else ((),):
            ask_stream(s, model, model, request_of("grpc", model, *more), wanted("grpc", listed))
            answers = answers_of(s, model)
            assert all({x.name for x in r.outputs} == ALWAYS[model] for r in answers), (model, answers)
    s.close()


def test_output_that_the_metadata_does_not_list_is_an_error_in_tritons_words(c):
    for model in MODELS:
        words = f"unexpected inference output 'logits' for model '{model}'"
        for kind in ("http", "grpc"):
            with client(c, kind) as t:
                try:
                    got = t.infer(model, request_of(kind, model), outputs=wanted(kind, ["logits"]))
                    raise AssertionError(f"no error, but {got}")
                except InferenceServerException as wrong:
                    assert words in wrong.message(), (kind, model, wrong)
        s = Stream(c)
        ask_stream(s, "1", model, request_of("grpc", model), wanted("grpc", ["logits"]))
        code, text = code_of(s.next)
        assert words in text, (model, code, text)
        s.close()


# --- what is advertised is served


# A value that asks for nothing special, by type; of what cannot be 0 or empty, by name.
NEUTRAL = {"INT32": 0, "INT64": 0, "UINT64": 0, "UINT8": 0, "FP32": 0.0, "FP16": 0.0, "BOOL": False, "BYTES": b""}
SPECIAL = {"INT32": 7, "INT64": 7, "UINT64": 7, "UINT8": 7, "FP32": 0.7, "FP16": 0.7, "BOOL": True, "BYTES": b"x"}
VALUES = {"text_input": b"abc", "QUERY": b"abc", "max_tokens": 2, "REQUEST_OUTPUT_LEN": 2, "request_output_len": 2,
          "input_ids": 5, "input_lengths": 1, "repetition_penalty": 1.0, "TOKENS_BATCH": 70, "SEQUENCE_LENGTH": 1, "beam_width": 1}
LIST_OF_WORDS = ("bad_words_list", "stop_words_list")


def neutral(kind, listed, batch=1, values=None):
    """An input of the metadata with a value for each row."""
    value = (values or NEUTRAL)[listed["datatype"]]
    if values is None:
        value = -1 if listed["name"] in LIST_OF_WORDS else VALUES.get(listed["name"], value)
    for size in reversed([1 if n == -1 else n for n in listed["shape"][1:]]):
        value = [value] * size
    return tensor(kind, listed["name"], listed["datatype"], [value] * batch)


def check_inputs(c, kinds=("http", "grpc")):
    """Each listed input is accepted, alone and with all others. @return those whose every value is refused but neutral ones"""
    refused = set()
    for model in MODELS:
        listed = metadata(c, model)["inputs"]
        assert all(x["shape"][0] == -1 for x in listed), listed
        needed = {x.name() for x in request_of("grpc", model)}
        for kind in kinds:
            with client(c, kind) as t:
                everything = [neutral(kind, x) for x in listed if x["name"] != "stop"]
                assert fields(t.infer(model, everything)), (kind, model)
                for one in listed:
                    if one["name"] in needed | {"stop"}:
                        continue
                    rest = [neutral(kind, x) for x in listed if x["name"] in needed]
                    more = [one] if not one["name"].lower().startswith("embedding_bias_") else [
                        x for x in listed if x["name"].lower().startswith("embedding_bias_")]
                    assert fields(t.infer(model, rest + [neutral(kind, x) for x in more])), (kind, model, one)
                    try:
                        t.infer(model, rest + [neutral(kind, x, values=SPECIAL) for x in more])
                    except InferenceServerException as wrong:
                        words = one["name"] if one["name"] in NOT_ALONE else f"input '{one['name']}' "
                        assert words in wrong.message(), (kind, model, one, wrong)
                        refused |= {one["name"]} if "is not supported yet" in wrong.message() else set()
    return refused


# Those that need what is not here: draft models and images.
NOT_HERE = {"decoder_text_input", "image_input", "draft_logits"}
# Of an adapter, which this server does not take, and tensors.
LORA = {"lora_task_id", "lora_weights", "lora_config"}
# Of a prompt table: each needs the other, and tensors.
TABLE = {"prompt_embedding_table", "prompt_vocab_size"}
# Of a search: it needs a beam_width; of a description: its kind and its text.
NOT_ALONE = {"num_return_sequences", "guided_decoding_guide", "guided_decoding_guide_type"}


def test_every_input_of_the_metadata_is_accepted_alone_and_with_all_others(c):
    assert check_inputs(c) == NOT_HERE
    for model in ("ensemble", "tensorrt_llm_bls"):
        for one in metadata(c, model)["inputs"]:
            if one["name"].startswith("embedding_bias_"):
                continue  # both or none
            for values, refused in ((None, False), (SPECIAL, one["name"] in NOT_HERE | NOT_ALONE | TABLE | LORA)):
                value = values[one["datatype"]] if values else VALUES.get(one["name"], NEUTRAL[one["datatype"]])
                value = value.decode() if isinstance(value, bytes) else value
                status, answer = c.post(f"/v2/models/{model}/generate", {"text_input": "abc", "max_tokens": 8,
                                                                         one["name"]: value})
                assert (status == 200) is not refused, (model, one, value, answer)
                assert status == 200 or one["name"] in answer["error"], answer


def test_config_fields_of_the_backend_are_served_ignored_or_refused_by_name(_):
    """The names in all_models/inflight_batcher_llm/*/config.pbtxt that the documentation does not have."""
    from test_model_repository import fill
    with tempfile.TemporaryDirectory() as d:
        model = harness.small_model(d)
        where = fill(os.path.join(d, "repository"), engine_dir=model)
        with harness.Cluster(model, router_args=["--model-repository", where]) as c:
            more = check_inputs(c, ("grpc",)) - NOT_HERE
            assert {"image_url_input", "IMAGE_URL", "context_phase_params",
                    "retention_decode_priority", "lookahead_window_size", "mrope_position_deltas"} <= more, sorted(more)
            check_outputs(c, ("grpc",))
            with client(c, "grpc") as t:
                got = fields(t.infer("ensemble", request_of("grpc", "ensemble", ("min_tokens", "INT32", [[6]])),
                                     outputs=wanted("grpc", ["text_output", "arrival_time_ns", "sequence_index"])))
            assert set(got) == {"text_output"}, got


def test_preprocessing_gives_decoder_inputs_as_tensorrt_llms_does(c):
    """preprocessing/1/model.py: decoder_input_id = pad_id * ones((batch, 1)), and 1 of them; else DECODER_QUERY's ids."""
    def ask(*more, batch=2):
        got = t.infer("preprocessing", request_of(kind, "preprocessing", *more, batch=batch))
        return [got.as_numpy(x).tolist() for x in ("DECODER_INPUT_ID", "REQUEST_DECODER_INPUT_LEN", "OUT_PAD_ID")]

    for kind in ("http", "grpc"):
        with client(c, kind) as t:
            ids, lengths, pads = ask()
            assert ids == pads and lengths == [[1], [1]], (ids, lengths, pads)
            ids, lengths, pads = ask(("PAD_ID", "INT32", [[9]] * 2))
            assert ids == pads == [[9], [9]] and lengths == [[1], [1]], (ids, lengths, pads)
            words = t.infer("preprocessing", [tensor(kind, "QUERY", "BYTES", [[b"xy"], [b"z"]]),
                                              tensor(kind, "REQUEST_OUTPUT_LEN", "INT32", [[1], [1]])])
            ids, lengths, _ = ask(("DECODER_QUERY", "BYTES", [[b"xy"], [b"z"]]))
            assert ids == words.as_numpy("INPUT_ID").tolist(), ids
            assert lengths == words.as_numpy("REQUEST_INPUT_LEN").tolist() != [[1], [1]], lengths
            ids, lengths, pads = ask(("DECODER_QUERY", "BYTES", [[b""], [b"z"]]))
            assert lengths == [[1], words.as_numpy("REQUEST_INPUT_LEN").tolist()[1]] and ids[0][0] == pads[0][0], ids


def test_end_to_end_test_of_tensorrt_llms_backend(c):
    """The requests of tools/inflight_batcher_llm/end_to_end_test.py, test_functionality_ifb with --test-bls and all
    switches on: the parts by themselves give what the chain gives."""
    on = switches("return_log_probs", "return_context_logits", "return_generation_logits")
    none = [[b""]]
    for kind in ("http", "grpc"):
        with client(c, kind) as t:
            for i, (prompt, n) in enumerate(((b"abc def", 5), (b"Once upon a time", 9))):
                made = t.infer("preprocessing", [
                    tensor(kind, "QUERY", "BYTES", [[prompt]]), tensor(kind, "BAD_WORDS_DICT", "BYTES", none),
                    tensor(kind, "STOP_WORDS_DICT", "BYTES", none), tensor(kind, "REQUEST_OUTPUT_LEN", "INT32", [[n]])],
                    request_id=str(i))
                names = {"input_ids": "INPUT_ID", "decoder_input_ids": "DECODER_INPUT_ID",
                         "input_lengths": "REQUEST_INPUT_LEN", "request_output_len": "REQUEST_OUTPUT_LEN",
                         "end_id": "OUT_END_ID", "pad_id": "OUT_PAD_ID"}
                ids = t.infer("tensorrt_llm", [tensor(kind, to, "INT32", made.as_numpy(x)) for to, x in names.items()]
                              + [tensor(kind, *x) for x in on], request_id=str(i))
                text = t.infer("postprocessing", [tensor(kind, "TOKENS_BATCH", "INT32", ids.as_numpy("output_ids")),
                                                  tensor(kind, "SEQUENCE_LENGTH", "INT32", ids.as_numpy("sequence_length"))],
                               request_id=str(i)).as_numpy("OUTPUT")
                for model in ("ensemble", "tensorrt_llm_bls"):
                    whole = t.infer(model, [
                        tensor(kind, "text_input", "BYTES", [[prompt]]), tensor(kind, "max_tokens", "INT32", [[n]]),
                        tensor(kind, "bad_words", "BYTES", none), tensor(kind, "stop_words", "BYTES", none)]
                        + [tensor(kind, *x) for x in on], request_id=str(i), outputs=wanted(kind, [
                            "text_output", "cum_log_probs", "output_log_probs", "context_logits", "generation_logits"]))
                    assert whole.as_numpy("text_output").tolist() == text.tolist(), (text, whole.as_numpy("text_output"))
                    for name in ("cum_log_probs", "output_log_probs", "context_logits", "generation_logits"):
                        assert (whole.as_numpy(name) == ids.as_numpy(name)).all(), name
                    assert whole.as_numpy("context_logits").shape[:2] == (1, made.as_numpy("INPUT_ID").size)
                    assert whole.as_numpy("generation_logits").shape[:3] == (1, 1, n)


# --- how tokens are drawn


# temperature, top_k, top_p (None: left out), and whether the most probable token is drawn always: the rule of TensorRT-LLM
# (layers/topKSamplingLayer.cu: k 0 and p 0 is k 1; topPSamplingLayer.cu: k above 0 skips it; defaultDecodingParams.h: k and
# p are 0 where they are left out; runtime/samplingConfig.h: temperature 0 is k 1; backend's utils.cc: p 0 is left out).
DRAWS = [
    (None, None, None, True), (1.0, None, None, True), (50.0, None, None, True), (50.0, 0, 0.0, True), (50.0, 0, None, True),
    (50.0, None, 0.0, True), (50.0, 1, None, True), (50.0, 1, 0.9, True), (0.0, 40, 0.9, True), (0.0, None, 1.0, True),
    (50.0, 40, None, False), (50.0, 40, 0.0, False), (50.0, None, 0.999, False), (50.0, 0, 1.0, False),
    (50.0, None, 1.0, False), (50.0, 40, 0.999, False),
]


def draw_by_infer(kind, model, row, seed):
    names = ("temperature", "runtime_top_k", "runtime_top_p") if model == "tensorrt_llm" else ("temperature", "top_k", "top_p")
    more = [(name, "INT32" if i == 1 else "FP32", [[value]])
            for i, (name, value) in enumerate(zip(names, row)) if value is not None]
    return request_of(kind, model, *more, ("random_seed", "UINT64", [[seed]]), n=12)


def check_draws(c):
    names = ("temperature", "top_k", "top_p")
    first = {}
    with client(c, "http") as http, client(c, "grpc") as by_call:
        s = Stream(c)
        for row in DRAWS:
            for model in GENERATE:
                output = "output_ids" if model == "tensorrt_llm" else "text_output"
                drawn = []
                for seed in (1, 2):
                    drawn += [t.infer(model, draw_by_infer(kind, model, row, seed)).as_numpy(output).tolist()
                              for kind, t in (("http", http), ("grpc", by_call))]
                ask_stream(s, "1", model, draw_by_infer("grpc", model, row, 2))
                drawn.append(by_grpc.InferResult(answers_of(s, "1")[0]).as_numpy(output).tolist())
                if model != "tensorrt_llm":
                    for seed in (1, 2):
                        body = {x: v for x, v in zip(names, row) if v is not None}
                        status, answer = c.post(f"/v2/models/{model}/generate",
                                                dict(body, text_input="abc", max_tokens=12, random_seed=seed))
                        assert status == 200, answer
                        drawn.append([answer["text_output"].encode()])
                greedy = first.setdefault(model, drawn[0])
                assert all(x == greedy for x in drawn) if row[3] else all(x != greedy for x in drawn), (row, model, drawn)
                # What one seed draws it draws at each door.
                assert drawn[0] == drawn[1] and drawn[2] == drawn[3] == drawn[4], (row, model, drawn)
        s.close()


def test_most_probable_token_is_drawn_unless_a_distribution_is_asked_for(c):
    check_draws(c)


def test_model_sampling_defaults_do_not_apply_to_triton_requests(_):
    with tempfile.TemporaryDirectory() as d:
        model = harness.tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1,
                                   key=["general.sampling.temp=f:50", "general.sampling.top_k=u:100"])
        with harness.Cluster(model) as c:
            drawn = json.loads(c.request("GET", "/v1/models")[2])["data"][0]["default_sampling"]
            assert (drawn["from"], drawn["temperature"], drawn["top_k"]) == ("file", 50, 100), drawn
            asked = dict(prompt="abc", max_tokens=12, ignore_eos=True)
            assert c.complete(**asked, seed=1)["token_ids"] != c.complete(**asked, temperature=0)["token_ids"]
            check_draws(c)


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


def test_answer_that_ends_by_its_end_id_has_a_final_response_with_outputs(c):
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


def test_each_request_of_a_stream_has_one_final_response(c):
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


def test_stopped_and_stopping_request_each_have_a_final_response(_):
    """model_instance_state.cc answers a stop request with a response without outputs, flagged as the final one."""
    with tempfile.TemporaryDirectory() as d, harness.Cluster(harness.small_model(d), decode_args=harness.PACED) as c:
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


def test_text_held_for_a_stop_word_is_sent_when_the_request_is_stopped(_):
    """As at any other end. Each token is three characters, of which four are always held back."""
    import scripted_model  # pylint: disable=import-outside-toplevel
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "endless.gguf")
        scripted_model.write(path, {"E": "######"}, endless="E")
        with harness.Cluster(path, decode_args=harness.PACED) as c:
            s = Stream(c)
            more = (("stop_words", "BYTES", [[b"####x"]]), ("exclude_input_in_output", "BOOL", [[True]]))
            ask_stream(s, "whole", "ensemble", text_request("grpc", ["xE"], 1900, *more))
            ask_stream(s, "stream", "ensemble", text_request("grpc", ["xE"], 1900, *more, *streamed("ensemble")))
            texts, n_final = {"whole": "", "stream": ""}, 0
            while n_final < 4:
                response, result = s.next()
                if response.outputs:
                    texts[response.id] += result.as_numpy("text_output").item().decode()
                    if 0 < len(texts["stream"]) and response.id == "stream" and more:
                        more = None
                        for name in texts:
                            ask_stream(s, name, "ensemble", [tensor("grpc", *x) for x in switches("stop")])
                n_final += bool(final_of(response))
            s.close()
            for text in texts.values():
                assert text and text == "#" * len(text) and len(text) % 3 == 0, texts
            c.wait_idle()


def test_triton_request_stopped_before_it_runs_has_an_empty_answer(_):
    """--max-queue-delay-us holds it back."""
    with tempfile.TemporaryDirectory() as d:
        with harness.Cluster(harness.small_model(d), router_args=["--max-queue-delay-us", "1000000"]) as c:
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


def test_unary_answer_has_no_final_response_parameter(c):
    with client(c, "grpc") as t:
        for model in MODELS:
            answer = t.infer(model, request_of("grpc", model), parameters=None).get_response()
            assert not answer.parameters, answer


def test_triton_prefixed_parameters_are_checked_with_tritons_errors(c):
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


# --- stop, health, ids


def test_stop_request_without_an_id_is_an_error_in_the_backends_words(c):
    """model_instance_state.cc, handleStopRequest."""
    words = "Trying to stop a request but request ID is not provided"
    for model in GENERATE:
        for kind in ("http", "grpc"):
            with client(c, kind) as t:
                try:
                    got = t.infer(model, [tensor(kind, *x) for x in switches("stop")])
                    raise AssertionError(f"no error, but {got}")
                except InferenceServerException as wrong:
                    assert wrong.message() == words, (kind, model, wrong)
                assert not fields(t.infer(model, [tensor(kind, *x) for x in switches("stop")], request_id="nobody's"))
        s = Stream(c)
        ask_stream(s, "", model, [tensor("grpc", *x) for x in switches("stop")])
        assert words in code_of(s.next)[1], model
        s.close()


def test_answer_without_a_body_has_no_content_type(c):
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/ensemble/ready", "/health"):
        status, headers, body = c.request("GET", path)
        assert status == 200 and not body and headers["Content-Length"] == "0" and "Content-Type" not in headers, headers
    status, headers, body = c.request("POST", "/v2/systemsharedmemory/unregister", "{}")
    assert status == 200 and not body and "Content-Type" not in headers, headers
    assert c.request("HEAD", "/v2/models/ensemble/config")[1]["Content-Type"] == "application/json"


def test_ids_outside_the_vocabulary_are_refused_or_folded(c):
    """benchmark_core_model.py, token_norm_dist: ids are any numbers below 2^31."""
    with client(c, "grpc") as t:
        metadata_of = t.infer("tensorrt_llm", request_of("grpc", "tensorrt_llm", *switches("return_context_logits")))
        n = metadata_of.as_numpy("context_logits").shape[2]
        assert t.infer("tensorrt_llm", ids_request("grpc", [n - 1], 2)).as_numpy("output_ids")[0, 0, 0] == n - 1
        for one in (n, 2**31 - 1):
            code, text = code_of(lambda: t.infer("tensorrt_llm", ids_request("grpc", [5, one], 2)))  # pylint: disable=cell-var-from-loop
            assert f"input_ids has token id {one}; this model has ids 0 to {n - 1}" in text, (code, text)
            assert "--out-of-vocabulary-ids modulo" in text, text
    with tempfile.TemporaryDirectory() as d:
        with harness.Cluster(harness.small_model(d), router_args=["--out-of-vocabulary-ids", "modulo"]) as folds:
            ids = [0, n - 1, n, n + 7, 2**31 - 1]
            folded = [x % n for x in ids]
            for kind in ("http", "grpc"):
                with client(folds, kind) as t:
                    answers = [t.infer("tensorrt_llm", ids_request(kind, x, 4)).as_numpy("output_ids")[0, 0].tolist()
                               for x in (ids, folded)]
                    assert answers[0] == answers[1] and answers[0][:5] == folded, answers
            assert folds.complete(ids, 4, temperature=0)["token_ids"] == folds.complete(folded, 4, temperature=0)["token_ids"]
            # Text of an id that is not there is none.
            assert folds.post("/detokenize", {"tokens": [n]})[0] == 400


# --- statistics


BASE = ("request_success", "request_failure", "count", "exec_count", "request_duration_us", "queue_duration_us",
        "compute_input_duration_us", "compute_infer_duration_us", "compute_output_duration_us", "pending_request_count")


def base_metrics(c):
    """{model: {name: value}} of nv_inference_*."""
    found = {}
    for series, value in c.metrics().items():
        name, _, labels = series.partition("{")
        if name.startswith("nv_inference_"):
            model = labels.split('model="')[1].split('"')[0]
            found.setdefault(model, {})[name.removeprefix("nv_inference_")] = value
    return found


def check_sums(c):
    for model in MODELS:
        stats = json.loads(c.request("GET", f"/v2/models/{model}/stats")[2])["model_stats"][0]["inference_stats"]
        parts = sum(stats[x]["ns"] for x in ("queue", "compute_input", "compute_infer", "compute_output"))
        # Each is printed in whole microseconds.
        assert abs(parts - stats["success"]["ns"]) <= 4000 * max(1, stats["success"]["count"]), (model, stats)
        assert stats["success"]["ns"] > 0, (model, stats)


def test_every_model_of_the_repository_has_base_metrics_and_its_durations_add_up(_):
    """As base_metrics_verification_tests.py: equal numbers of requests of all models that one ensemble has, and every
    duration has moved. Triton has no series of models that its repository has not."""
    with tempfile.TemporaryDirectory() as d:
        model = harness.small_model(d)
        with harness.Cluster(model) as c:
            assert {m: set(v) for m, v in base_metrics(c).items()} == {m: set(BASE) for m in MODELS}
            with client(c, "http") as t:
                for i in range(5):
                    t.infer("ensemble", request_of("http", "ensemble", n=3 + i))
            s = Stream(c)
            ask_stream(s, "1", "ensemble", request_of("grpc", "ensemble", *streamed("ensemble"), n=40))
            assert len(answers_of(s, "1")) > 1
            s.close()
            chain = [m for m in MODELS if m != "tensorrt_llm_bls"]

            def told():
                found = base_metrics(c)
                return found if all(found[m]["count"] == 6 and found[m]["request_duration_us"] for m in chain) and (
                    found["tensorrt_llm"]["compute_infer_duration_us"]) and not found["ensemble"]["pending_request_count"] else None
            found = harness.wait_until("durations follow", told)
            for name in ("request_success", "request_failure", "count", "pending_request_count"):
                assert len({found[m][name] for m in chain}) == 1, (name, found)
            assert found["ensemble"]["request_success"] == 6 and not any(found["tensorrt_llm_bls"].values()), found
            assert found["ensemble"]["exec_count"] == found["tensorrt_llm"]["exec_count"] == 6, found
            for name in BASE[4:9]:
                assert found["ensemble"][name] > 0 or name == "queue_duration_us", (name, found)
            with client(c, "http") as t:
                t.infer("tensorrt_llm_bls", request_of("http", "tensorrt_llm_bls", batch=3))
                t.infer("preprocessing", request_of("http", "preprocessing"))
                t.infer("postprocessing", request_of("http", "postprocessing"))
            harness.wait_until("durations follow", lambda: base_metrics(c)["tensorrt_llm_bls"]["compute_infer_duration_us"])
            check_sums(c)
        from test_model_repository import fill
        where = fill(os.path.join(d, "repository"), engine_dir=model)
        os.remove(os.path.join(where, "tensorrt_llm_bls", "config.pbtxt"))
        with harness.Cluster(model, router_args=["--model-repository", where]) as c:
            assert set(base_metrics(c)) == set(chain), base_metrics(c)


def test_request_metrics_have_the_values_of_the_backends_reporter(c):
    """custom_metrics_reporter.cc, request_labels_."""
    labels = {x.split('request_type="')[1].split('"')[0] for x in c.metrics() if x.startswith("nv_trt_llm_request_metrics{")}
    assert labels == {"active", "max", "scheduled", "context", "waiting"}, labels


if __name__ == "__main__":
    sys.exit(client_tests.main(globals(), MISSING and f"packages of PyPI are not installed: {' '.join(MISSING)}",
                               model_of=lambda: harness.small_model(FOLDER.name)))
