#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every field of every dialect, in answers below and above each size at which another path writes them (BT_ANSWER_INLINE_BYTES:
the event loop or the pool), whole and streamed. The expected texts are the scripts of a model that says what it is told
to, and the request's own fields; a stream is put together as clients do. The router runs under ASan where
BATON_BUILD_ASAN names such a build.

Usage: test_long_answers.py [NAME ...]

Needs `pip install numpy`.
"""
import concurrent.futures
import json
import os
import socket
import struct
import sys
import tempfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402

PIECE = 60  # bytes of the script that a token has
LIMIT = 24 * 1024  # BT_ANSWER_INLINE_BYTES
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("weather", "time")]


def words(n, what):
    """A text of n bytes that ends with no space."""
    return " ".join(f"{what} {i}" for i in range(n // 6 + 1))[:n].rstrip().ljust(n, ".")


def calls(arguments):
    return "".join(f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(a)}}}\n</tool_call>' for name, a in arguments)


SHORT_CALLS = [("weather", {"city": "Oslo"}), ("time", {"city": "Rome"})]
LONG_CALLS = [("weather", {"city": words(14000, "Oslo")}), ("time", {"city": words(13000, "Rome")})]
# By a prompt's last character: what the model thinks, says and calls.
SCRIPTS = {
    "s": ("a thought", "a word", []),
    "t": ("a thought", "a word", SHORT_CALLS),
    "T": (words(30000, "step"), "a word", []),
    "C": ("a thought", words(30000, "word"), []),
    "A": ("a thought", "", LONG_CALLS),
    "M": (words(30000, "step"), words(3000, "word"), LONG_CALLS),
}
PLAIN = words(30000, "plain")
TEMPLATE = ("{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %} <tool_call>{% endif %}"
            "{% for m in messages %}{{ m.content[-1:] }}{% endfor %}")  # a long message takes one token of the context
METADATA = {f"key{i}": f"value {i} " + "x" * 200 for i in range(8)}


def script(parts):
    thought, content, arguments = parts
    return f"<think>{thought}</think>{content}{calls(arguments)}"


def make_cluster():
    import scripted_model  # pylint: disable=import-outside-toplevel
    folder = tempfile.mkdtemp(prefix="baton-long-")
    path, template = os.path.join(folder, "long.gguf"), os.path.join(folder, "long.jinja")
    scripted_model.write(path, dict({k: script(v) for k, v in SCRIPTS.items()}, P=PLAIN), step=PIECE)
    with open(template, "w", encoding="utf-8") as f:
        f.write(TEMPLATE)
    return path, ["--reasoning-parser", "think", "--tool-call-parser", "hermes", "--chat-template", template]


def post(c, path, body, status=200):
    got, answer = c.post(path, body)
    assert got == status, (path, got, str(answer)[:300])
    return answer


def events(c, path, body):
    """The data of each event of a stream."""
    status, _, data = c.request("POST", path, dict(body, stream=True))
    assert status == 200, (path, status, data[:300])
    lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def without(answer, *names):
    return {k: v for k, v in answer.items() if k not in names}


# --- chat

def chat_body(last, **more):
    return dict(model="long", messages=[{"role": "user", "content": "x" + last}], temperature=0, max_tokens=1500, tools=TOOLS, **more)


def put_together(chunks):
    """The choices of a streamed chat answer, in the form of a whole one, by index; and its usage."""
    choices, usage = {}, None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for piece in chunk["choices"]:
            choice = choices.setdefault(piece["index"], {"index": piece["index"], "message": {"role": "assistant", "content": ""},
                                                         "token_ids": [], "logprobs": None, "finish_reason": None})
            message, delta = choice["message"], piece["delta"]
            message["content"] += delta.get("content") or ""
            if "reasoning_content" in delta:
                message["reasoning_content"] = message.get("reasoning_content", "") + delta["reasoning_content"]
            for part in delta.get("tool_calls") or []:
                made = message.setdefault("tool_calls", [])
                if part["index"] == len(made):
                    made.append({"id": part["id"], "type": part["type"], "function": {"name": part["function"]["name"], "arguments": ""}})
                made[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
            choice["token_ids"] += piece.get("token_ids") or []
            if piece.get("logprobs"):
                choice["logprobs"] = choice["logprobs"] or {"content": [], "refusal": None}
                choice["logprobs"]["content"] += piece["logprobs"]["content"]
            choice["finish_reason"] = piece["finish_reason"] or choice["finish_reason"]
    return [choices[i] for i in sorted(choices)], usage


def comparable(choice):
    """Ids of calls are drawn anew in each answer; content that is null and none are one in a stream."""
    message = dict(choice["message"], content=choice["message"]["content"] or "")
    message.pop("refusal", None)
    message["tool_calls"] = [without(made, "id") for made in message.get("tool_calls") or []]
    return dict(choice, message=message)


def check_chat(c, last, **more):
    thought, content, arguments = SCRIPTS[last]
    body = chat_body(last, return_token_ids=True, logprobs=True, top_logprobs=2, **more)
    answer = post(c, "/v1/chat/completions", body)
    assert set(answer) == {"id", "object", "created", "model", "system_fingerprint", "choices", "usage"}, answer.keys()
    assert answer["id"].startswith("chatcmpl-") and answer["object"] == "chat.completion" and answer["model"] == "long", answer["id"]
    for i, choice in enumerate(answer["choices"]):
        message = choice["message"]
        assert choice["index"] == i and message["role"] == "assistant"
        assert (message["content"] or "") == content, (last, message["content"])
        assert message["reasoning_content"] == thought, last
        assert [(x["function"]["name"], json.loads(x["function"]["arguments"])) for x in message.get("tool_calls") or []] == arguments, last
        assert len({x["id"] for x in message.get("tool_calls") or []}) == len(arguments)
        assert choice["finish_reason"] == ("tool_calls" if arguments else "stop"), choice["finish_reason"]
        # The end id is a token, and has no text.
        assert len(choice["token_ids"]) == -(-len(script(SCRIPTS[last])) // PIECE) + 1, len(choice["token_ids"])
        scores = choice["logprobs"]["content"]
        assert "".join(s["token"] for s in scores).removesuffix("</s>") == script(SCRIPTS[last]), last
        assert all(len(s["top_logprobs"]) == 2 and s["logprob"] <= 0 for s in scores)
    n = sum(len(choice["token_ids"]) for choice in answer["choices"])
    assert answer["usage"]["completion_tokens"] == n, answer["usage"]
    streamed, usage = put_together(events(c, "/v1/chat/completions", dict(body, stream_options={"include_usage": True})))
    whole = [comparable(choice) for choice in answer["choices"]]
    assert whole == [comparable(choice) for choice in streamed], last
    assert without(usage, "prompt_tokens_details") == without(answer["usage"], "prompt_tokens_details"), usage


def test_chat_answers_have_every_field_whatever_their_size(c):
    for last in SCRIPTS:
        check_chat(c, last)
    check_chat(c, "t", n=2)
    check_chat(c, "M", n=2)


def test_chat_answers_around_the_size_of_the_pool_are_whole(c):
    """Content alone; a token is PIECE bytes, so one of these is the first that the pool writes."""
    for n in range(LIMIT // PIECE - 2, LIMIT // PIECE + 4):
        body = dict(chat_body("C", n=1), max_tokens=n)
        choice = post(c, "/v1/chat/completions", body)["choices"][0]
        said = script(SCRIPTS["C"])[:n * PIECE]
        assert choice["finish_reason"] == "length" and "<think>a thought</think>" + choice["message"]["content"] == said, n


def test_concurrent_long_answers_do_not_mix(c):
    def ask(k):
        last = "MACTtM"[k % 6]
        if k % 4 == 3:
            metadata = {"key": f"value {k} " + "x" * 400}
            body = dict(model="long", input="xC", temperature=0, max_output_tokens=900, metadata=metadata, instructions=f"{k}." * 3000)
            answer = post(c, "/v1/responses", body)
            return answer["metadata"] == metadata and answer["instructions"] == f"{k}." * 3000
        message = post(c, "/v1/chat/completions", chat_body(last))["choices"][0]["message"]
        made = [(x["function"]["name"], json.loads(x["function"]["arguments"])) for x in message.get("tool_calls") or []]
        return (message["reasoning_content"], message["content"] or "", made) == SCRIPTS[last]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(32)))


# --- responses

def check_response(c, last, instructions, metadata):
    thought, content, _ = SCRIPTS[last]
    body = dict(model="long", input="x" + last, temperature=0, max_output_tokens=1500, metadata=metadata)
    if instructions is not None:
        body["instructions"] = instructions
    answer = post(c, "/v1/responses", body)
    assert answer["metadata"] == metadata and answer["instructions"] == instructions, last
    assert answer["max_output_tokens"] == 1500 and answer["temperature"] == 0 and answer["status"] == "completed"
    kinds = {item["type"]: item for item in answer["output"]}
    assert kinds["message"]["content"][0]["text"] == content, last
    assert thought in json.dumps(kinds["reasoning"]), last
    last_event = events(c, "/v1/responses", body)[-1]
    assert last_event["type"] == "response.completed"
    streamed = last_event["response"]

    def plain(response):
        response = without(response, "id", "created_at", "completed_at", "usage")
        response["output"] = [without(item, "id") for item in response["output"]]
        return response

    assert plain(streamed) == plain(answer), last
    assert streamed["usage"]["output_tokens"] == answer["usage"]["output_tokens"]


def test_responses_have_every_field_whatever_their_size(c):
    for last in "sTC":
        for instructions in (None, "Be short.", words(30000, "rule")):
            check_response(c, last, instructions, METADATA)
    check_response(c, "s", "Be short.", {})


# --- Anthropic's messages

def message_body(last, **more):
    tools = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]
    return dict(model="long", messages=[{"role": "user", "content": "x" + last}], temperature=0, max_tokens=1500, tools=tools, **more)


def gathered(stream):
    """The message that a stream's events come to, as clients put it together."""
    message, texts = None, {}
    for event in stream:
        kind = event["type"]
        if kind == "message_start":
            message = event["message"]
        elif kind == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"])
            texts[event["index"]] = ""
        elif kind == "content_block_delta":
            delta = event["delta"]
            texts[event["index"]] += next(v for k, v in delta.items() if k != "type")
        elif kind == "content_block_stop":
            block = message["content"][event["index"]]
            key = {"text": "text", "thinking": "thinking", "tool_use": "input"}[block["type"]]
            block[key] = json.loads(texts[event["index"]]) if key == "input" else texts[event["index"]]
        elif kind == "message_delta":
            message.update(event["delta"], usage=event["usage"])
    assert kind == "message_stop", kind
    return message


def test_messages_have_every_field_whatever_their_size(c):
    for last, (thought, content, arguments) in SCRIPTS.items():
        answer = post(c, "/v1/messages", message_body(last))
        assert set(answer) == {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}, answer.keys()
        expected = ([("thinking", thought)] + ([("text", content)] if content else [])
                    + [("tool_use", (name, given)) for name, given in arguments])
        said = {"thinking": lambda b: b["thinking"], "text": lambda b: b["text"], "tool_use": lambda b: (b["name"], b["input"])}
        assert [(b["type"], said[b["type"]](b)) for b in answer["content"]] == expected, last
        assert answer["stop_reason"] == ("tool_use" if arguments else "end_turn"), answer["stop_reason"]
        assert answer["usage"]["output_tokens"] == -(-len(script(SCRIPTS[last])) // PIECE) + 1, answer["usage"]
        streamed = gathered(events(c, "/v1/messages", message_body(last)))

        def plain(message):
            usage = without(message["usage"], "input_tokens", "cache_read_input_tokens")
            return dict(without(message, "id"), content=[without(b, "id") for b in message["content"]], usage=usage)

        assert plain(streamed) == plain(answer), last


# --- completions

def completion(c, n, **more):
    body = dict(model="long", prompt="xP", temperature=0, max_tokens=n, n=2, echo=True, logprobs=2, return_token_ids=True, **more)
    whole = post(c, "/v1/completions", body)
    assert set(whole) == {"id", "object", "created", "model", "system_fingerprint", "choices", "usage"}
    made = {}
    for event in events(c, "/v1/completions", body):
        for piece in event["choices"]:
            choice = made.setdefault(piece["index"], {"text": "", "token_ids": [], "tokens": [], "token_logprobs": [], "top_logprobs": [],
                                                      "text_offset": []})
            choice["text"] += piece["text"]
            choice["token_ids"] += piece.get("token_ids") or []
            for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                choice[name] += (piece["logprobs"] or {}).get(name, [])
            choice["finish_reason"] = piece["finish_reason"]
    for choice in whole["choices"]:
        assert choice["text"] == "xP" + PLAIN[:n * PIECE] and choice["finish_reason"] == "length", n
        flat = dict(without(choice, "logprobs", "index"), **choice["logprobs"])
        assert flat == made[choice["index"]], (n, {k for k in flat if flat[k] != made[choice["index"]][k]})


def test_completions_have_every_field_whatever_their_size(c):
    for n in (1, 20, 40, 90, 500):
        completion(c, n)


# --- token ids

def test_token_ids_have_every_field_whatever_their_size(c):
    ids = post(c, "/tokenize", dict(model="long", prompt=words(8000, "plain") + "P"))["tokens"]
    for n_prompt, n in ((1, 1), (40, 40), (150, 90), (1400, 500)):
        prompt, params = ids[-n_prompt:], dict(temperature=0, max_tokens=n, n=2, logprobs=2)
        whole = post(c, "/inference/v1/generate", dict(token_ids=prompt, sampling_params=dict(params, prompt_logprobs=3)))
        assert set(whole) == {"request_id", "model", "created", "choices", "usage", "prompt_logprobs", "kv_transfer_params"}
        echoed = post(c, "/v1/completions", dict(params, model="long", prompt=prompt, echo=True, return_token_ids=True))["choices"]
        made = {}
        for event in events(c, "/inference/v1/generate", dict(token_ids=prompt, sampling_params=params)):
            for piece in event["choices"]:
                choice = made.setdefault(piece["index"], {"index": piece["index"], "token_ids": [], "logprobs": {"content": []}})
                choice["token_ids"] += piece["token_ids"]
                choice["logprobs"]["content"] += piece["logprobs"]["content"]
                choice["finish_reason"] = piece["finish_reason"]
        assert len(prompt) == n_prompt and whole["choices"] == [made[0], made[1]], n
        scores = [None] + [entries[str(i)]["logprob"] for i, entries in zip(prompt[1:], whole["prompt_logprobs"][1:])]
        assert whole["prompt_logprobs"][0] is None and all(len(x) in (3, 4) for x in whole["prompt_logprobs"][1:]), n
        for choice, other in zip(whole["choices"], echoed):
            assert choice["token_ids"] == other["token_ids"] and len(choice["token_ids"]) == n
            assert scores + [x["logprob"] for x in choice["logprobs"]["content"]] == other["logprobs"]["token_logprobs"], n


# --- generate, tokenize, detokenize

def test_generate_has_every_field_whatever_its_size(c):
    for n in (1, 100, 410, 500):
        answer = post(c, "/v2/models/ensemble/generate", dict(
            id="my \"id\"", text_input="xP", max_tokens=n, temperature=0.0, return_log_probs=True, sequence_id=7, sequence_start=True, sequence_end=True,
            exclude_input_in_output=True))
        assert answer["id"] == "my \"id\"" and answer["model_name"] == "ensemble" and answer["model_version"] == "1", answer.keys()
        assert answer["sequence_id"] == 7 and answer["sequence_start"] and answer["sequence_end"]
        assert answer["text_output"] == PLAIN[:n * PIECE] and len(answer["output_log_probs"]) == n, n
        assert abs(sum(answer["output_log_probs"]) - answer["cum_log_probs"]) < 1e-6


def test_tokenize_and_detokenize_have_every_field_whatever_their_size(c):
    for n in (0, 10, 6143, 6145, 30000):
        text = words(n, "plain")
        answer = post(c, "/tokenize", dict(model="long", prompt=text or "x", return_token_strs=True, add_special_tokens=False))
        ids = answer["tokens"]
        assert answer["count"] == len(ids) == len(answer["token_strs"]) and answer["max_model_len"] == 2048, n
        back = post(c, "/detokenize", dict(model="long", tokens=ids))
        assert back == {"prompt": text or "x"}, n


# --- infer

def tensor(name, kind, values):
    return {"name": name, "datatype": kind, "shape": [len(values), 1], "data": values}


def infer_body(n, binary):
    """Two rows of the ensemble: tensors as JSON or raw."""
    return {"id": "seven", "inputs": [tensor("text_input", "BYTES", ["xP", "xC"]), tensor("max_tokens", "INT32", [n, n]),
                                      tensor("exclude_input_in_output", "BOOL", [True, True]), tensor("return_log_probs", "BOOL", [True, True])],
            "outputs": [{"name": name, "parameters": {"binary_data": binary}} for name in
                        ("text_output", "output_log_probs", "cum_log_probs", "batch_index")]}


def infer(c, n, binary, coding=None):
    """The outputs of `infer` of infer_body()."""
    request = infer_body(n, binary)
    status, headers, data = c.request("POST", "/v2/models/ensemble/infer", request, {"Accept-Encoding": coding} if coding else None)
    assert status == 200, data[:300]
    if coding:
        assert headers["Content-Encoding"] == coding
        data = zlib.decompress(data, 47)
    if not binary:
        answer = json.loads(data)
        assert answer["id"] == "seven" and answer["model_name"] == "ensemble" and answer["model_version"] == "1"
        return {o["name"]: o["data"] for o in answer["outputs"]}
    at = int(headers["Inference-Header-Content-Length"])
    answer, outputs = json.loads(data[:at]), {}
    assert answer["id"] == "seven" and answer["model_name"] == "ensemble" and answer["model_version"] == "1"
    for o in answer["outputs"]:
        size = o["parameters"]["binary_data_size"]
        raw, at, values = data[at:at + size], at + size, []
        if o["datatype"] == "BYTES":
            while raw:
                length = struct.unpack("<I", raw[:4])[0]
                values.append(raw[4:4 + length].decode())
                raw = raw[4 + length:]
        else:
            values = list(struct.unpack(f"<{size // 4}{'f' if o['datatype'] == 'FP32' else 'i'}", raw))
        outputs[o["name"]] = values
    assert at == len(data)
    return outputs


def test_infer_has_every_output_whatever_its_size(c):
    content = script(SCRIPTS["C"])
    for n in (1, 30, 205, 500):
        want = None
        for binary, coding in ((False, None), (True, None), (False, "gzip"), (True, "deflate")):
            got = infer(c, n, binary, coding)
            assert got["text_output"] == [PLAIN[:n * PIECE], content[:n * PIECE]], n
            assert [int(i) for i in got["batch_index"]] == [0, 1] and len(got["output_log_probs"]) == 2 * n
            floats = [struct.pack("<f", x) for x in got["output_log_probs"] + got["cum_log_probs"]]
            want = want or floats
            assert floats == want, (n, binary, coding)


# --- clients that leave

def leave(c, path, body, after):
    """Ask, and reset the connection once so many bytes of the answer are here; 0: at once."""
    data = json.dumps(body).encode()
    with socket.create_connection(c.http, timeout=60) as s:
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        while after > 0:
            piece = s.recv(min(after, 65536))
            assert piece, (path, after)
            after -= len(piece)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# --- Ollama's chat

def ollama_body(last, n=1500, **more):
    return dict(model="long", messages=[{"role": "user", "content": "x" + last}], options={"temperature": 0, "num_predict": n}, tools=TOOLS, **more)


def gathered_lines(lines):
    """The answer that a stream's lines come to, as clients put it together."""
    message = {"role": "assistant", "content": ""}
    for i, line in enumerate(lines):
        assert line["done"] == (i + 1 == len(lines)), line
        part = line["message"]
        message["content"] += part["content"]
        if "thinking" in part:
            message["thinking"] = message.get("thinking", "") + part["thinking"]
        if "tool_calls" in part:
            message["tool_calls"] = message.get("tool_calls", []) + part["tool_calls"]
    return dict(lines[-1], message=message)


def test_ollama_chats_have_every_field_whatever_their_size(c):
    durations = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
    for last, (thought, content, arguments) in SCRIPTS.items():
        answer = post(c, "/api/chat", ollama_body(last, stream=False))
        assert set(answer) == {"model", "created_at", "message", "done", "done_reason", "prompt_eval_count", "eval_count", *durations}, answer.keys()
        message = answer["message"]
        assert (message["role"], message["thinking"], message["content"]) == ("assistant", thought, content), last
        assert [(x["function"]["name"], x["function"]["arguments"]) for x in message.get("tool_calls", [])] == arguments, last
        assert answer["done"] is True and answer["done_reason"] == "stop", answer["done_reason"]
        assert answer["eval_count"] == -(-len(script(SCRIPTS[last])) // PIECE) + 1, answer["eval_count"]
        status, _, data = c.request("POST", "/api/chat", ollama_body(last))
        assert status == 200, data[:300]
        streamed = gathered_lines([json.loads(line) for line in data.decode().splitlines()])

        def plain(whole):
            calls_of = [without(x, "id") for x in whole["message"].get("tool_calls", [])]
            return dict(without(whole, "created_at", *durations), message=dict(whole["message"], tool_calls=calls_of))

        assert plain(streamed) == plain(answer), last


def test_clients_leaving_long_answers_do_not_affect_others(c):
    """While it is computed, written by the pool, or sent; the router runs under ASan, and a last answer is whole."""
    n = LIMIT // PIECE + 40
    whole = [("/v2/models/ensemble/infer", infer_body(n, False)), ("/v2/models/ensemble/infer", infer_body(n, True)),
             ("/inference/v1/generate", dict(token_ids=[5] * 300, sampling_params=dict(max_tokens=n, ignore_eos=True, prompt_logprobs=9))),
             ("/tokenize", dict(model="long", prompt=words(60000, "plain"), return_token_strs=True))]
    either = [("/v1/chat/completions", dict(chat_body("A", n=2, logprobs=True, top_logprobs=2), max_tokens=n)),
              ("/v1/responses", dict(model="long", input="xC", temperature=0, max_output_tokens=n, metadata=METADATA)),
              ("/v1/messages", dict(message_body("M"), max_tokens=n)), ("/api/chat", ollama_body("M", n)),
              ("/inference/v1/generate", dict(token_ids=[5] * 300, sampling_params=dict(temperature=0, max_tokens=n, n=2, logprobs=5, ignore_eos=True))),
              ("/v1/completions", dict(model="long", prompt=["xP", "xC"], temperature=0, max_tokens=n, logprobs=2, echo=True))]
    asked = whole + [(path, dict(body, stream=stream)) for path, body in either for stream in (False, True)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda job: leave(c, *job[1], job[0]), [(after, ask) for after in (0, 1, 20000) for ask in asked]):
            pass
    c.wait_idle()
    message = post(c, "/v1/chat/completions", chat_body("A"))["choices"][0]["message"]
    assert [json.loads(x["function"]["arguments"]) for x in message["tool_calls"]] == [a for _, a in LONG_CALLS]


if __name__ == "__main__":
    client_tests.use_clients_python()
    model, router_args = make_cluster()
    sys.exit(client_tests.main(dict(globals()), model_of=lambda: model, router_args=router_args, **client_tests.under_asan()))
