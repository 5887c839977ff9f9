# SPDX-License-Identifier: Apache-2.0
"""What schemathesis is told beside docs/openapi.json, which speaks of one field at a time: what fields mean together,
what only the served model knows, and that generating costs. test_openapi.py runs it."""
import json
import os

import jsonschema_rs
import schemathesis

MOST = 2            # tokens that are generated
N_VOCABULARY = 49152  # of the model of these tests
MODEL = "ensemble"
CHUNKS = {"/v1/completions": "CompletionChunk", "/v1/chat/completions": "ChatChunk", "/v1/responses": "ResponseEvent",
          "/v1/messages": "AnthropicEvent", "/inference/v1/generate": "InferenceChunk",
          "/v2/models/{model}/generate_stream": "Generated",
          "/v2/models/{model}/versions/{version}/generate_stream": "Generated"}
LINES = {"/api/chat": "OllamaChatLine", "/api/generate": "OllamaGenerateLine"}
LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_validators = {}


def is_positive(case):
    return case.meta is not None and case.meta.generation.mode.value == "positive"


def is_whole(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)


def cap(body):
    """Bound what a request costs, and nothing that may be wrong with it."""
    for name, most, largest in [(n, MOST, 2**31 - 1) for n in LENGTHS] + [("min_tokens", 1, 2**31 - 1), ("n", 2, 64)]:
        if is_whole(body.get(name)) and most < body[name] <= largest:
            body[name] = most
    options = body.get("options")
    if isinstance(options, dict) and is_whole(options.get("num_predict")) and MOST < options["num_predict"] <= 2**31 - 1:
        options["num_predict"] = MOST


def known_ids(value):
    """Token ids of this model, wherever there are some."""
    if isinstance(value, list):
        return [known_ids(v) for v in value]
    return value % N_VOCABULARY if is_whole(value) else value


# A description of the answer for each field that has one: they are in languages of their own, and one of them is enough.
DESCRIBED = {
    "response_format": {"type": "json_object"}, "structured_outputs": {"choice": ["a", "b"]}, "guided_json": {"type": "integer"},
    "guided_regex": "[a-z]+", "guided_choice": ["a"], "guided_grammar": 'root ::= "a"', "json_schema": "{}", "regex": "[a-z]+",
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "integer"}}},
    "output_format": {"type": "json_schema", "schema": {"type": "integer"}}, "ebnf": 'root ::= "a"', "grammar": 'root ::= "a"', "text": {"format": {"type": "json_object"}}, "format": {"type": "integer"},
    "structural_tag": {"type": "structural_tag", "format": {"type": "regex", "pattern": "[ab]{3}"}}}


def describe(body):
    given = [name for name in DESCRIBED if body.get(name) is not None]
    for name in given + ["complete_in_max_tokens", "guided_decoding_guide", "guided_decoding_guide_type", "guided_whitespace_pattern"]:
        body.pop(name, None)
    if given and not body.get("tools"):
        body[given[-1]] = DESCRIBED[given[-1]]
    if isinstance(body.get("guided_decoding_backend"), str):
        body["guided_decoding_backend"] = "xgrammar"


def agree(path, body):
    """What each field allows, made into what they allow together."""
    if "model" in body:
        body["model"] = MODEL
    for name in ("prompt", "tokens", "token_ids"):
        if name in body:
            body[name] = known_ids(body[name])
    if isinstance(body.get("logit_bias"), dict):
        body["logit_bias"] = {str(int(k) % N_VOCABULARY): v for k, v in body["logit_bias"].items()}
    if body.get("stop_token_ids") is not None:
        body["stop_token_ids"] = known_ids(body["stop_token_ids"])
    body.pop("timeout_ms", None)  # a request may well take more than 1 ms
    body.pop("timeout", None)
    body.pop("ttft_target_ms", None)
    body.pop("itl_target_ms", None)
    if not isinstance(body.get("tool_choice"), str) or not body.get("tools"):
        body["tool_choice"] = "auto"  # a call needs tools, and one of theirs
    body.pop("best_of", None)     # at least n, and not streamed
    if body.get("continue_final_message"):
        body["continue_final_message"] = False  # needs a message of the assistant
    if not body.get("logprobs"):
        body.pop("top_logprobs", None)
    if body.get("stream") or body.get("use_beam_search"):
        body.pop("prompt_logprobs", None)  # no event has them
    if body.get("max_tokens") == 0:
        body["echo"] = True
        body["min_tokens"] = 0
    if path.startswith("/v1/responses"):
        body.pop("previous_response_id", None)  # of one that is stored
    if path.startswith("/v1/responses") and isinstance(body.get("input"), list):
        # What was thought alone is no question; and all of 1024 are more than the context.
        body["input"] = body["input"][-4:] + [{"role": "user", "content": "a"}]
    if isinstance(body.get("bad_words"), (str, list)):
        words = [body["bad_words"]] if isinstance(body["bad_words"], str) else body["bad_words"]
        body["bad_words"] = [w[:8] for w in words[:8]]  # of few tokens
    if isinstance(body.get("messages"), list):
        body["messages"] = body["messages"][-4:]
    if path.startswith("/v1/messages"):
        agree_as_messages(body)
    if path.startswith("/api/"):
        agree_as_ollama(body)
    if path == "/v1/completions" and isinstance(body.get("prompt"), list):
        body["prompt"] = body["prompt"][:2]
    if "embedding_bias_words" in body or "embedding_bias_weights" in body:
        body.pop("embedding_bias_words", None)
        body.pop("embedding_bias_weights", None)
    for name in ("return_context_logits", "return_generation_logits"):
        body.pop(name, None)      # many bytes
    body.pop("parameters", None)
    for name in ("thinking_token_budget", "thinking_budget_tokens"):
        body.pop(name, None)      # needs a model that thinks
    for tool in body["tools"] if isinstance(body.get("tools"), list) else ():
        if isinstance(tool, dict) and isinstance(tool.get("function"), dict) and tool["function"].get("strict") is True:
            tool["function"]["parameters"] = {"type": "object", "properties": {}, "additionalProperties": False}
    if path.startswith("/v1/responses") and isinstance(body.get("tools"), list):
        body["tools"] = body["tools"][:1]  # names are different
        for tool in body["tools"]:
            spaces = tool.get("tools") if isinstance(tool, dict) else None
            if isinstance(spaces, list):
                tool["tools"] = spaces[:1]
            for one in (tool, *(spaces[:1] if isinstance(spaces, list) else ())):
                if isinstance(one, dict) and one.get("strict") is True:
                    one["parameters"] = {"type": "object", "properties": {}, "additionalProperties": False}
        if not any(isinstance(tool, dict) and (tool.get("type") in ("function", "custom") or tool.get("tools")) for tool in body["tools"]):
            body["tool_choice"] = "auto"
    describe(body)
    body.pop("dry_sequence_breakers", None)  # of texts that are in one token
    if isinstance(body.get("allowed_token_ids"), list):
        body["allowed_token_ids"] = known_ids(body["allowed_token_ids"])
    if isinstance(body.get("repetition_detection"), dict):
        body["repetition_detection"] = {"max_pattern_size": 3, "min_pattern_size": 1, "min_count": 2}
    if body.get("use_beam_search") or (body.get("beam_width") or 0) > 1:
        for name in ("use_beam_search", "beam_width", "num_return_sequences"):
            body.pop(name, None)  # what goes with beams is another test's


def agree_as_messages(body):
    """Whose role has which blocks, and what needs tools."""
    blocks = {"user": ("text", "tool_result"), "system": ("text",), "assistant": ("text", "thinking", "redacted_thinking", "tool_use")}
    for message in body.get("messages") or ():
        if isinstance(message.get("content"), list):
            message["content"] = [b for b in message["content"] if b.get("type") in blocks[message["role"]]] or "a"
    if isinstance(body.get("messages"), list):
        body["messages"].append({"role": "user", "content": "a"})
    body["tool_choice"] = {"type": "auto"}
    if isinstance(body.get("thinking"), dict) and body["thinking"].get("budget_tokens") is None:
        body["thinking"]["type"] = "adaptive"
    for tool in body.get("tools") or ():
        if tool.get("strict") is True:
            tool["input_schema"] = {"type": "object", "properties": {}, "additionalProperties": False}


def agree_as_ollama(body):
    """Whose messages have calls, and what goes without a chat template."""
    for message in body.get("messages") or ():
        if message["role"] != "assistant":
            message.pop("tool_calls", None)
    if isinstance(body.get("messages"), list):
        body["messages"].append({"role": "user", "content": "a"})
    if body.get("raw"):
        body.pop("system", None)
    if isinstance(body.get("model"), str):
        body["model"] = MODEL
    if "name" in body:
        body["name"] = MODEL


def bound(body):
    """An answer of Ollama's API that says no bound has the context's."""
    if body.get("options") is None:
        body["options"] = {}
    options = body["options"]
    if isinstance(options, dict):
        n = options.get("num_predict")
        if n is None or (is_whole(n) and -2 <= n <= 0):
            options["num_predict"] = MOST


def in_64_bits(value):
    """Whatever stands in fields that nobody reads: larger integers are refused anywhere."""
    if isinstance(value, dict):
        return {k: in_64_bits(v) for k, v in value.items()}
    if isinstance(value, list):
        return [in_64_bits(v) for v in value]
    return 0 if isinstance(value, int) and not -2**63 <= value < 2**63 else value


@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body
    if case.method.upper() != "POST" or not isinstance(body, dict):
        return
    body = json.loads(json.dumps(body))
    generates = "completions" in case.path or case.path == "/v1/messages" or "responses" in case.path or "generate" in case.path \
        or case.path == "/api/chat"
    if is_positive(case):
        body = in_64_bits(body)
        agree(case.path, body)
        if isinstance(body.get("sampling_params"), dict):
            inner = body["sampling_params"]
            inner["stream"] = body.get("stream")
            agree("", inner)
            for name in ("stream", "tool_choice"):
                inner.pop(name, None)
    if case.path == "/inference/v1/generate":
        if body.get("sampling_params") is None:
            body["sampling_params"] = {"max_tokens": MOST}
        if isinstance(body["sampling_params"], dict):
            cap(body["sampling_params"])
            if body["sampling_params"].get("max_tokens") is None:
                body["sampling_params"]["max_tokens"] = MOST
    elif generates:
        cap(body)
        if case.path in LINES:
            bound(body)
            case.body = body
            return
        lengths = [n for n in LENGTHS if (n == "max_output_tokens") == (case.path == "/v1/responses")
                   and (n != "max_completion_tokens" or "completions" in case.path)]
        if not any(body.get(n) is not None for n in lengths) and case.path != "/v1/messages":  # which has to have one
            body[lengths[0]] = MOST
    case.body = body


def validator(name):
    if name not in _validators:
        with open(os.environ["BATON_OPENAPI"], encoding="utf-8") as file:
            schemas = json.load(file)["components"]["schemas"]
        _validators[name] = jsonschema_rs.validator_for(
            {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}})
    return _validators[name]


@schemathesis.check
def events_are_documented(ctx, response, case):
    """Each event of a stream has the schema that the file names for it, and OpenAI's end with [DONE]."""
    kinds = [v for k, v in response.headers.items() if k.lower() == "content-type"]
    if response.status_code == 200 and kinds and "ndjson" in str(kinds[0]):
        lines = response.text.split("\n")
        assert lines.pop() == "" and lines, response.text
        for line in lines:
            errors = [e.message for e in validator(LINES[case.path]).iter_errors(json.loads(line))]
            assert not errors, f"{LINES[case.path]}: {errors[0]}: {line}"
        return
    if response.status_code != 200 or not kinds or "event-stream" not in str(kinds[0]):
        return
    name = CHUNKS[case.path]
    events = response.text.split("\n\n")
    assert events[-1] == "", events[-1]
    data = [e.split("data: ", 1)[1] for e in events[:-1] if not e.startswith(":")]
    if "completions" in case.path or case.path == "/inference/v1/generate":
        assert data.pop() == "[DONE]", data[-1]
    assert data, "no event"
    for text in data:
        event = json.loads(text)
        if set(event) == {"error"}:
            continue
        errors = [e.message for e in validator(name).iter_errors(event)]
        assert not errors, f"{name}: {errors[0]}: {text}"
