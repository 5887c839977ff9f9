# SPDX-License-Identifier: Apache-2.0
"""Values that JSON can say and few fields can take, in every field of every dialect: a request with one works, or its
error names the field and the value as it was sent; whole and streamed alike. What JSON can say is RFC 8259's; seeds are
int(seed) % 2**64 as Python computes it."""
import http.client
import json
import os
import tempfile

from harness import Cluster, small_model, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
INFERENCE = "/inference/v1/generate"
OLLAMA = "/api/chat"
PLAIN_ERRORS = (MESSAGES, "/api/")  # name fields in their text alone
GENERATE = "/v2/models/ensemble/generate"
INFER = "/v2/models/ensemble/infer"

# Path -> its schema in docs/openapi.json, a body that works, can it be streamed.
DIALECTS = {
    COMPLETIONS: ("CompletionRequest", {"prompt": '"hi"', "max_tokens": "1"}, True),
    CHAT: ("ChatRequest", {"messages": '[{"role":"user","content":"hi"}]', "max_tokens": "1"}, True),
    RESPONSES: ("ResponseRequest", {"input": '"hi"', "max_output_tokens": "1"}, True),
    MESSAGES: ("AnthropicRequest", {"messages": '[{"role":"user","content":"hi"}]', "max_tokens": "1"}, True),
    "/v1/messages/count_tokens": ("AnthropicCountRequest", {"messages": '[{"role":"user","content":"hi"}]'}, False),
    INFERENCE: ("InferenceRequest", {"token_ids": "[5]", "sampling_params": '{"max_tokens":1}'}, True),
    OLLAMA: ("OllamaChatRequest", {"messages": '[{"role":"user","content":"hi"}]', "options": '{"num_predict":1}', "stream": "false"}, True),
    "/api/generate": ("OllamaGenerateRequest", {"prompt": '"hi"', "options": '{"num_predict":1}', "stream": "false"}, True),
    GENERATE: ("GenerateRequest", {"text_input": '"hi"', "max_tokens": "1"}, True),
    "/tokenize": ("TokenizeRequest", {"prompt": '"hi"'}, False),
    "/detokenize": ("DetokenizeRequest", {"tokens": "[5]"}, False),
}
TEMPLATE = """{# <tool_call> #}{% if tools %}{{ tools|tojson }}{% endif %}{{ a }}{% for d in documents or [] %}{{ d.title }}{% endfor %}
{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}(
{%- if c.function.arguments is mapping %}{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}
{%- else %}{{ c.function.arguments }}{% endif %}){% endfor %}{% endfor %}"""
# Fields that go together.
BESIDE = {"embedding_bias_words": {"embedding_bias_weights": "1"}, "embedding_bias_weights": {"embedding_bias_words": '"a"'}}
DEEP = "[" * 70 + "]" * 70
# As written -> what of it an error says.
VALUES = {
    "9223372036854775808": "9223372036854775808",
    "18446744073709551616": "18446744073709551616",
    "1180591620717411303424": "1180591620717411303424",
    "-1": "-1",
    "1e400": "1e400",
    "1.5": "1.5",
    '"\\u0000"': "\\u0000",
    '"\\ud800"': "\ufffd",
    '""': "",
    "null": "",
    DEEP: "nested too deeply",
}
# Within fields: path, the field, how a value gets there.
INNER = [
    (CHAT, "messages", '[{"role":%s,"content":"x"}]'),
    (CHAT, "messages", '[{"role":"user","content":%s}]'),
    (CHAT, "messages", '[{"role":"user","content":[{"type":"text","text":%s}]}]'),
    (CHAT, "messages", '[{"role":"user","content":[{"type":%s,"text":"x"}]}]'),
    (CHAT, "messages", '[{"role":"user","content":"x","name":%s}]'),
    (CHAT, "messages", '[{"role":"user","content":"x","other":%s}]'),
    (CHAT, "messages", '[{"role":"user","content":"x"},{"role":"assistant","content":"y","reasoning_content":%s}]'),
    (CHAT, "messages", '[{"role":"assistant","content":null,"tool_calls":[{"id":%s,"function":{"name":"f"}}]}]'),
    (CHAT, "messages", '[{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":%s}}]}]'),
    (CHAT, "messages", '[{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":%s}}]}]'),
    (CHAT, "messages", '[{"role":"assistant","content":null,"tool_calls":%s}]'),
    (CHAT, "messages", '[{"role":"user","content":"q"},{"role":"tool","tool_call_id":%s,"content":"x"}]'),
    (CHAT, "tools", '[{"type":"function","function":{"name":%s}}]'),
    (CHAT, "tools", '[{"type":%s,"function":{"name":"f"}}]'),
    (CHAT, "tools", '[{"type":"function","function":{"name":"f","parameters":{"properties":{"a":{"maximum":%s}}}}}]'),
    (CHAT, "tools", '[{"type":"function","function":{"name":"f","description":%s}}]'),
    (MESSAGES, "messages", '[{"role":%s,"content":"x"}]'),
    (MESSAGES, "messages", '[{"role":"user","content":%s}]'),
    (MESSAGES, "messages", '[{"role":"user","content":[{"type":%s,"text":"x"}]}]'),
    (MESSAGES, "messages", '[{"role":"user","content":[{"type":"text","text":%s}]}]'),
    (MESSAGES, "messages", '[{"role":"user","content":[{"type":"text","text":"x","other":%s}]}]'),
    (MESSAGES, "messages", '[{"role":"user","content":[{"type":"tool_result","tool_use_id":%s}]}]'),
    (MESSAGES, "messages", '[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":%s}]}]'),
    (MESSAGES, "messages", '[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","is_error":%s}]}]'),
    (MESSAGES, "messages", '[{"role":"assistant","content":[{"type":"tool_use","id":%s,"name":"f","input":{}}]},{"role":"user","content":"x"}]'),
    (MESSAGES, "messages", '[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":%s,"input":{}}]},{"role":"user","content":"x"}]'),
    (MESSAGES, "messages", '[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":%s}]},{"role":"user","content":"x"}]'),
    (MESSAGES, "messages", '[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"a":%s}}]},{"role":"user","content":"x"}]'),
    (MESSAGES, "messages", '[{"role":"assistant","content":[{"type":"thinking","thinking":%s}]},{"role":"user","content":"x"}]'),
    (MESSAGES, "messages", '[{"role":"user","content":"x"},{"role":"assistant","content":%s}]'),
    (MESSAGES, "system", '[{"type":"text","text":%s}]'),
    (MESSAGES, "tools", '[{"name":%s,"input_schema":{}}]'),
    (MESSAGES, "tools", '[{"name":"f","input_schema":%s}]'),
    (MESSAGES, "tools", '[{"name":"f","input_schema":{"properties":{"a":{"maximum":%s}}}}]'),
    (MESSAGES, "tools", '[{"name":"f","description":%s,"input_schema":{}}]'),
    (MESSAGES, "tools", '[{"name":"f","type":%s,"input_schema":{}}]'),
    (MESSAGES, "tools", '[{"name":"f","strict":%s,"input_schema":{}}]'),
    (MESSAGES, "tool_choice", '{"type":%s}'),
    (MESSAGES, "tool_choice", '{"type":"auto","disable_parallel_tool_use":%s}'),
    (MESSAGES, "thinking", '{"type":%s}'),
    (MESSAGES, "thinking", '{"type":"enabled","budget_tokens":%s}'),
    (MESSAGES, "output_config", '{"format":%s}'),
    (MESSAGES, "output_config", '{"format":{"type":"json_schema","schema":%s}}'),
    (INFERENCE, "token_ids", "[%s]"),
    (INFERENCE, "stream_options", '{"include_usage":%s}'),
    (INFERENCE, "sampling_params", '{"max_tokens":1,"temperature":%s}'),
    (INFERENCE, "sampling_params", '{"max_tokens":1,"other":%s}'),
    (INFERENCE, "sampling_params", '{"max_tokens":1,"logprobs":%s}'),
    (INFERENCE, "sampling_params", '{"max_tokens":1,"prompt_logprobs":%s}'),
    (INFERENCE, "sampling_params", '{"max_tokens":1,"stop_token_ids":%s}'),
    (INFERENCE, "sampling_params", '{"max_tokens":1,"stop_token_ids":[%s]}'),
    (INFERENCE, "sampling_params", '{"max_tokens":1,"extra_args":%s}'),
    (OLLAMA, "messages", '[{"role":%s,"content":"x"}]'),
    (OLLAMA, "messages", '[{"role":"user","content":%s}]'),
    (OLLAMA, "messages", '[{"role":"user","content":"x","images":%s}]'),
    (OLLAMA, "messages", '[{"role":"user","content":"x","other":%s}]'),
    (OLLAMA, "messages", '[{"role":"user","content":"x"},{"role":"assistant","content":"y","thinking":%s},{"role":"user","content":"x"}]'),
    (OLLAMA, "messages", '[{"role":"assistant","tool_calls":%s},{"role":"user","content":"x"}]'),
    (OLLAMA, "messages", '[{"role":"assistant","tool_calls":[{"id":%s,"function":{"name":"f"}}]},{"role":"user","content":"x"}]'),
    (OLLAMA, "messages", '[{"role":"assistant","tool_calls":[{"function":{"name":%s}}]},{"role":"user","content":"x"}]'),
    (OLLAMA, "messages", '[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":%s}}]},{"role":"user","content":"x"}]'),
    (OLLAMA, "messages", '[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"a":%s}}}]},{"role":"user","content":"x"}]'),
    (OLLAMA, "messages", '[{"role":"user","content":"q"},{"role":"tool","tool_name":%s,"content":"x"}]'),
    (OLLAMA, "messages", '[{"role":"user","content":"q"},{"role":"tool","tool_call_id":%s,"content":"x"}]'),
    (OLLAMA, "tools", '[{"type":"function","function":{"name":%s}}]'),
    *((OLLAMA, "options", '{"num_predict":1,"' + name + '":%s}') for name in (
        "temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "stop", "repeat_penalty", "repeat_last_n", "presence_penalty",
        "frequency_penalty", "mirostat", "num_ctx", "num_thread", "other")),
    (OLLAMA, "options", '{"num_predict":%s,"stop":["a","e","i","o","u"," "]}'),
    (CHAT, "stream_options", '{"include_usage":%s}'),
    (CHAT, "stream_options", '{"other":%s}'),
    (CHAT, "response_format", '{"type":%s}'),
    (CHAT, "logit_bias", '{"5":%s}'),
    (CHAT, "chat_template_kwargs", '{"a":%s}'),
    (CHAT, "documents", '[{"title":%s}]'),
    (CHAT, "metadata", '{"a":%s}'),
    (CHAT, "stop", '["a",%s]'),
    (CHAT, "nobody_knows", '{"a":[%s]}'),
    (COMPLETIONS, "prompt", '["a",%s]'),
    (COMPLETIONS, "prompt", "[5,%s]"),
    (COMPLETIONS, "stop_token_ids", "[%s]"),
    (RESPONSES, "metadata", '{"a":%s}'),
    (RESPONSES, "input", '[{"role":"user","content":[{"type":"input_text","text":%s}]}]'),
    (RESPONSES, "input", '[{"type":%s,"role":"user","content":"x"}]'),
    (RESPONSES, "text", '{"format":{"type":%s}}'),
    (GENERATE, "parameters", '{"temperature":%s}'),
    (GENERATE, "parameters", '{"other":%s}'),
    (GENERATE, "stop_words", '["a",%s]'),
    (GENERATE, "embedding_bias_words", "[%s]"),
    (GENERATE, "random_seed", "[[%s]]"),
    ("/detokenize", "tokens", "[5,%s]"),
]


class Client:
    """One connection that stays."""

    def __init__(self, address):
        self.conn = http.client.HTTPConnection(*address, timeout=60)

    def post(self, path, body):
        self.conn.request("POST", path, body if isinstance(body, bytes) else body.encode())
        answer = self.conn.getresponse()
        return answer.status, answer.read().decode()


def body_of(members):
    return "{" + ",".join(f'"{k}":{v}' for k, v in members.items()) + "}"


def error_of(text):
    error = json.loads(text)["error"]
    return (error, None) if isinstance(error, str) else (error["message"], error.get("param"))


def says(field, shown, path, text):
    """Whether an error names the field, or one that the value was of, and the value."""
    message, param = error_of(text)
    if path != GENERATE and not path.startswith(PLAIN_ERRORS):
        assert param is not None or "nested too deeply" in message, message
    inside = ("temperature", "logprobs", "stop_token_ids", "extra_args")
    named = field in message or (field in ("parameters", "sampling_params") and any(name in message for name in inside))
    if shown == "nested too deeply":  # or whatever else an array is no value for
        return named
    return named and shown in message


# Texts in a language of their own: what is wrong in them is said by its place.
DESCRIPTIONS = {"guided_json", "json_schema", "guided_grammar", "grammar", "ebnf", "guided_regex", "regex", "structural_tag",
                "guided_decoding_guide", "guided_decoding_guide_type"}
# Integers that this server takes none of, whatever they are.
NOT_TAKEN = {"lora_task_id"}


def check(client, path, field, value, base, streams):
    """The same whole and streamed. @return the status"""
    shown = VALUES[value[1]]
    members = {**base, **BESIDE.get(field, {}), field: value[0] % value[1] if "%s" in value[0] else value[1]}
    whole = client.post(path, body_of(members))
    label = (path, field, value[0], value[1][:40])
    assert whole[0] in (200, 400) or (whole[0] == 404 and field == "model"), (label, whole)
    if whole[0] == 400:
        is_described = field in DESCRIPTIONS and value[1].startswith('"')
        is_not_taken = field in NOT_TAKEN and "is not taken: this server" in whole[1]
        assert says(field, "" if is_described or is_not_taken else shown, path, whole[1]), (label, whole[1])
    if streams and field not in ("stream", "streaming") and "prompt_logprobs" not in (field + value[0]):  # not streamed
        if path == GENERATE:
            other = client.post(path + "_stream", body_of(members))
        else:
            other = client.post(path, body_of({**members, "stream": "true".ljust(len(members.get("stream", "")))}))  # of equal bytes
        assert other[0] == whole[0], (label, whole, other)
        if whole[0] == 200:
            is_lines = path.startswith("/api/")
            begin, failed = ('{"model":', '{"error":') if is_lines else (("data: ", "event: "), '"error":{')
            assert other[1].startswith(begin) and failed not in other[1], (label, other[1])
        else:
            assert error_of(other[1]) == error_of(whole[1]), (label, whole, other)
    return whole[0]


def fields_of(schema):
    with open(os.path.join(HERE, "..", "..", "docs", "openapi.json"), encoding="utf-8") as file:
        schemas = json.load(file)["components"]["schemas"]

    def of(node):
        node = schemas[node["$ref"].rsplit("/", 1)[1]] if "$ref" in node else node
        found = set(node.get("properties", {}))
        for word in ("allOf", "anyOf", "oneOf"):
            found.update(*(of(part) for part in node.get(word, [])))
        return found

    fields = sorted(of(schemas[schema]))
    assert fields, schema
    return fields


def all_fields_answer(client):
    cases = [(path, field, "", value) for path, (schema, _, _) in DIALECTS.items()
             for field in fields_of(schema) + ["nobody_knows"] for value in VALUES]
    cases += [(*inner, value) for inner in INNER for value in VALUES]
    wrong = []
    for path, field, inner, value in cases:
        try:
            check(client, path, field, (inner, value), DIALECTS[path][1], DIALECTS[path][2])
        except AssertionError as error:
            wrong.append(str(error))
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong)


def what_nobody_reads_is_taken(client):
    """Whatever is in a field that is ignored, a tool's schema or a call's arguments, but for what is nested too deeply."""
    for value in VALUES:
        want = 400 if value == DEEP else 200
        for path, (_, base, streams) in DIALECTS.items():
            for field in ["nobody_knows"] + (["user"] if path.startswith("/v1/") and not path.startswith(PLAIN_ERRORS) else []):
                status = check(client, path, field, ("", value), base, streams)
                assert status == want, (path, field, value, status)


def whole_bodies_answer(client):
    for path, (_, base, _) in DIALECTS.items():
        body = body_of(base).encode()
        status, text = client.post(path, b"\xef\xbb\xbf" + body)  # a byte order mark
        assert status == 200, (path, text)
    answers = []

    def refused():  # 503 while the server has no room for it
        answers.append(client.post(GENERATE, body_of({"text_input": '"x"', "x": "[" + "1," * (1 << 20) + "1]"})))
        return answers[-1][0] != 503

    wait_until("room for a large body", refused)
    assert answers[-1][0] == 400 and "x: too many values" in answers[-1][1], answers[-1]
    status, text = client.post("/tokenize", '{"prompt":""}')
    assert status == 200 and json.loads(text)["count"] == len(json.loads(text)["tokens"]) <= 1, text
    status, text = client.post("/tokenize", '{"prompt":"","add_special_tokens":false}')
    assert status == 200 and json.loads(text) == {**json.loads(text), "count": 0, "tokens": []}, text
    status, text = client.post("/detokenize", '{"tokens":[]}')
    assert status == 200 and json.loads(text) == {"prompt": ""}, text
    # A zero character is text, as any: it comes back.
    status, text = client.post("/tokenize", '{"prompt":"a\\u0000b","add_special_tokens":false}')
    assert status == 200, text
    status, text = client.post("/detokenize", json.dumps({"tokens": json.loads(text)["tokens"]}))
    assert json.loads(text) == {"prompt": "a\0b"}, text
    status, text = client.post(COMPLETIONS, '{"prompt":"a\\u0000b","max_tokens":1,"echo":true}')
    assert status == 200 and json.loads(text)["choices"][0]["text"].startswith("a\0b"), text
    # Metadata comes back as it was written.
    status, text = client.post(RESPONSES, '{"input":"x","max_output_tokens":1,"metadata":{"a":"\\ud800" , "b" : "\\u0000"}}')
    assert status == 200 and '"metadata":{"a":"\\ud800","b":"\\u0000"}' in text, text


def infer(seed, datatype="UINT64"):
    inputs = [{"name": "text_input", "datatype": "BYTES", "shape": [1, 1], "data": ["hi"]},
              {"name": "max_tokens", "datatype": "INT32", "shape": [1, 1], "data": [12]},
              {"name": "temperature", "datatype": "FP32", "shape": [1, 1], "data": [1.0]},
              {"name": "top_k", "datatype": "INT32", "shape": [1, 1], "data": [50]}]
    return json.dumps({"inputs": inputs})[:-2] + \
        f',{{"name":"random_seed","datatype":"{datatype}","shape":[1,1],"data":[{seed}]}}]}}'


def seeds_are_modulo_two_to_the_64(client):
    doors = [
        (COMPLETIONS, '{"prompt":"hi","max_tokens":12,"temperature":1,"seed":%s}', lambda a: a["choices"][0]["text"]),
        (GENERATE, '{"text_input":"hi","max_tokens":12,"temperature":1,"top_k":50,"random_seed":%s}', lambda a: a["text_output"]),
        (INFER, None, lambda a: [o["data"] for o in a["outputs"] if o["name"] == "text_output"]),
    ]
    for path, body, text_of in doors:
        drawn = {}
        for seed in ("-1", "0", "7", "9223372036854775808", "-9223372036854775808", "18446744073709551615",
                     "18446744073709551616", "1180591620717411303431", "1e400"):
            status, text = client.post(path, infer(seed) if body is None else body % seed)
            assert status == 200, (path, seed, text)
            number = 10 ** 400 if seed == "1e400" else int(seed)
            text = text_of(json.loads(text))
            assert drawn.setdefault(number % 2 ** 64, text) == text, (path, seed)
        assert len(drawn) == 4 and len({str(t) for t in drawn.values()}) > 1, drawn


def tensors_say_the_value(client):
    def refused(name, datatype, value, *words):
        inputs = [{"name": "text_input", "datatype": "BYTES", "shape": [1, 1], "data": ["hi"]}]
        body = json.dumps({"inputs": inputs})[:-2] + \
            f',{{"name":"{name}","datatype":"{datatype}","shape":[1,1],"data":[{value}]}}]}}'
        status, text = client.post(INFER, body)
        assert status == 400 and all(w in error_of(text)[0] for w in (name, *words)), (name, value, status, text)

    refused("max_tokens", "INT32", "9223372036854775808", "9223372036854775808")
    refused("max_tokens", "INT32", "1e400", "1e400")
    refused("max_tokens", "INT64", "1180591620717411303424", "1180591620717411303424")
    refused("max_tokens", "UINT64", "18446744073709551615", "18446744073709551615")
    refused("temperature", "FP32", "1e400", "1e400")
    refused("top_p", "FP32", "1.0000002", "1.00000024")
    refused("top_p", "FP64", "1.0000000000000002", "1.0000000000000002")
    refused("stop_words", "BYTES", '"\\u0000"', "zero character")


def top_p_zero_is_greedy(client):
    for path, body, text_of in (
            (COMPLETIONS, '{"prompt":"hi","max_tokens":12,%s}', lambda a: a["choices"][0]["text"]),
            (CHAT, '{"messages":[{"role":"user","content":"hi"}],"max_tokens":12,%s}',
             lambda a: a["choices"][0]["message"]["content"]),
            (RESPONSES, '{"input":"hi","max_output_tokens":12,%s}', lambda a: a["output"][0]["content"][0]["text"])):
        texts = set()
        for options in ('"temperature":0', '"top_p":0', '"temperature":2,"top_p":0.0', '"top_p":0,"temperature":2,"seed":5'):
            status, text = client.post(path, body % options)
            assert status == 200, (path, options, text)
            texts.add(text_of(json.loads(text)))
        assert len(texts) == 1, (path, texts)


def lengths_have_a_code_and_both_numbers(client):
    for path, body, n in (
            (CHAT, {"messages": [{"role": "user", "content": "word " * 400}], "max_tokens": 4}, None),
            (COMPLETIONS, {"prompt": "word " * 400, "max_tokens": 4}, None),
            (COMPLETIONS, {"prompt": [5] * 300, "max_tokens": 4}, 304),
            (COMPLETIONS, {"prompt": [5] * 10, "max_tokens": 250}, 260),
            (RESPONSES, {"input": "word " * 100000, "max_output_tokens": 4}, 1024)):
        status, text = client.post(path, json.dumps(body))
        error = json.loads(text)["error"]
        assert status == 400 and error["code"] == "context_length_exceeded", text
        assert "maximum context length is 256 tokens" in error["message"], text
        words = error["message"].split("you requested ")[1].removeprefix("more than ").split()
        asked = int(words[0])
        assert asked == n if n else asked > 256, text
    status, text = client.post(CHAT, '{"model":"nobody","messages":[{"role":"user","content":"hi"}]}')
    assert status == 404 and json.loads(text)["error"]["code"] == "model_not_found", text
    # A client whose address lacks /v1 reads OpenAI's form, Triton's reads its own.
    status, text = client.post("/chat/completions", "{}")
    assert status == 404 and "/chat/completions" in json.loads(text)["error"]["message"], text
    status, text = client.post("/v2/models/nobody/generate", "{}")
    assert status == 404 and isinstance(json.loads(text)["error"], str), text


def test_unusual_values_are_accepted_or_refused_by_name():
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "chat.jinja"), "w", encoding="utf-8") as file:
            file.write(TEMPLATE)
        with Cluster(small_model(d), router_args=["--chat-template", file.name]) as c:
            client = Client(c.http)
            whole_bodies_answer(client)
            seeds_are_modulo_two_to_the_64(client)
            tensors_say_the_value(client)
            top_p_zero_is_greedy(client)
            lengths_have_a_code_and_both_numbers(client)
            what_nobody_reads_is_taken(client)
            all_fields_answer(client)
            c.wait_idle()
