# SPDX-License-Identifier: Apache-2.0
"""Hostile descriptions of answers: each is a 400 that names its field and the place in it, others are served meanwhile,
and nothing stays behind. What is large and can be held exactly is held."""
import concurrent.futures
import json
import re
import socket
import string
import tempfile
import threading

from harness import PACED, Cluster, wait_until
from test_structured_output import CHAT, COMPLETIONS, GENERATE, RESPONSES, ask, ask_all, bodies, essence, model_of

SELF = {"$ref": "#"}
AMBIGUOUS = "the answer cannot be followed further: its grammar is ambiguous in more than 64 ways"
NAMES = [a + b + c for a in string.ascii_letters for b in string.ascii_letters for c in string.digits]


def nested(depth):
    return '{"not":' * depth + "true" + "}" * depth


def hostile_schemas():
    """(schema, or its JSON; what the refusal says)"""
    defs = {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"anyOf": [{"not": {"$ref": "#/$defs/a"}}]}}
    return [
        (SELF, "applies itself"), ({"allOf": [SELF]}, "applies itself"), ({"anyOf": [SELF, {"type": "null"}]}, "applies itself"),
        ({"not": SELF}, "applies itself"), ({"if": SELF}, "applies itself"), ({"$ref": "#/$defs/a", "$defs": defs}, "applies itself"),
        ({"$id": "http://x/y", "$ref": "http://x/y"}, "applies itself"), ({"$dynamicRef": "#x", "$dynamicAnchor": "x"}, "applies itself"),
        ({"type": "object", "properties": {"x": SELF}, "required": ["x"]}, "no text is in the grammar"),
        ({"$ref": "#/nope"}, "/$ref: there is no such schema"), ({"$ref": "#/" + "a/" * 30000}, "/$ref: there is no such schema"),
        ({"$ref": "file:///etc/passwd"}, "/$ref: references to other documents"), ({"enum": list(range(10001))}, "/enum: has more than 10000"),
        ({"description": "x" * (1 << 20)}, "is longer than 65536 bytes"),
        ({"properties": {str(i): {} for i in range(100_000)}}, "is longer than 65536 bytes"),
        ({"properties": {x: {} for x in NAMES[:7000]}}, "too many"), ({"required": NAMES[:9000]}, "too many steps"),
        ({"type": "object", "properties": {"k" * 65000: {}}, "required": ["k" * 65000]}, "65536 bytes"),
        (nested(10_000), "is longer than 65536 bytes"), (nested(5000), "nested too deeply"), (nested(70), "nested too deeply"),
        ('{"const":"\\ud800"}', "half of a surrogate pair at byte 10"), ('{"properties":{"\\udfff":{}}}', "half of a surrogate pair at byte 16"),
        ({"pattern": r"(a)\1"}, "/pattern: regex, byte 3: back references"), ({"pattern": "(?=a)"}, "/pattern: regex, byte 0: look-ahead"),
        ({"type": "string", "pattern": "^(a|b)*a(a|b){20}$"}, "/pattern: |too many|more than"),
        ({"multipleOf": 10**300, "type": "integer"}, "/multipleOf: "), ({"multipleOf": 0}, "/multipleOf: must be above 0"),
        ({"type": "integer", "minimum": 5, "maximum": 1}, "no value satisfies it"), ({"type": "string", "minLength": 5, "maxLength": 1}, "no value"),
        ('{"minimum":-1e99999999}', "/minimum: numbers of more than 400 digits"), ('{"maximum":' + "9" * 60000 + "}", "/maximum: numbers of"),
        ({"type": "string", "maxLength": -1}, "/maxLength: must be a whole number"), (False, "no value satisfies it"),
        ({"properties": [1]}, "/properties: must be an object"), ({"allOf": [{"items": 3}]}, "/allOf/0/items: must be a schema"),
    ]


def hostile():
    """(fields of a request, field that the refusal names, what it says: one of these)"""
    yield from (({"guided_json": x}, "guided_json", says) for x, says in hostile_schemas())
    for x, says in [("(" * 60000, "over 4096"), ("(" * 300 + "a" + ")" * 300, "byte 200: more than 200"), ("a{1099511627776}", "byte 1: the count"),
                    ("a{5,2}", "byte 1: the counts are out of order"), ("(?<=a)b", "byte 0: look-behind"), ("(?P<x>a)(?P=x)", "back references"),
                    ("(a|b)*a(a|b){20}", "more than|too many"), ("[", "byte 0: "), ("a^b", "no text is in"), ("\ud800", "half of a surrogate"),
                    ("\0", "zero character")]:
        yield {"guided_regex": x}, "guided_regex", says
    for x, says in [([], "at least one"), ([1], "choice 0 is no string"), ([str(i) for i in range(100_000)], "is longer than 65536 bytes"),
                    (["a"] * 10001, "more than 10000 choices"), (["\ud800"], "surrogate pair at byte 2")]:
        yield {"guided_choice": x}, "guided_choice", says
    deep = "".join(f'r{i} ::= r{i + 1} "x" r{i + 1}\n' for i in range(2000))
    for x, says in [('root ::= root "a" | "b"', "left recursion"), ('root ::= x "a"\nx ::= "" | root', "left recursion"),
                    ("root ::= foo", "line 1: rule foo is not defined"), ("root ::= " + "|".join('"a"' for _ in range(10**6)), "longer than 65536"),
                    ("root ::= " + "(" * 20000 + '"a"', "line 1: parentheses are nested"), ('root ::= "a" root', "no text is in the grammar"),
                    ("root ::= r0\n" + deep + 'r2000 ::= "y"\n', "more than 255 rules in one another"), ('root ::= "a', "line 1: a literal has no end"),
                    ('root ::= "a"{0,99999999999}', "line 1: a number")]:
        yield {"guided_grammar": x}, "guided_grammar", says


def refusal(c, body, path=COMPLETIONS):
    status, answer = c.post(path, dict(body, prompt="a", max_tokens=4))
    return status, (answer["error"]["param"], answer["error"]["message"]) if "error" in answer else answer


def test_hostile_descriptions_are_refused_by_field_and_place():
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        for _ in range(2):  # the second time many are known
            for body, field, says in hostile():
                status, (param, message) = refusal(c, body)
                assert status == 400 and param == field and any(x in message for x in says.split("|")), (str(body)[:200], status, param, message)
                assert len(message) < 1000
        # Lines of bytes that are no text, and NUL where none may be.
        for raw in (b'{"prompt":"a","guided_json":"\xff"}', b'{"prompt":"a","guided_json":{"a\0b":1}}', b'{"prompt":"a","regex":"\xed\xa0\x80"}'):
            assert c.request("POST", COMPLETIONS, raw)[0] == 400
        # The last of equal keys counts.
        assert ask(c, {"prompt": "a", "guided_json": '{"const":"x","const":"y"}'})["text"] == '"y"'
        c.wait_idle()


def test_strict_schemas_that_are_long_are_refused_before_they_are_looked_at():
    names = [f"p{i:06d}" for i in range(100_000)]
    schema = {"type": "object", "properties": {x: {} for x in names}, "required": names[::-1], "additionalProperties": False}
    body = {"messages": [{"role": "user", "content": "x"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}}
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        status, answer = c.post(CHAT, body)
        assert status == 400 and "response_format is longer than 65536 bytes" in answer["error"]["message"], answer
        assert answer["error"]["param"] == "response_format"


def test_large_descriptions_that_can_be_held_are():
    chain = {"$ref": "#/$defs/d0", "$defs": dict({f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(1500)}, d1500={"enum": [41, 42]})}
    texts = [({"regex": "(a|a)*b"}, "a*b"), ({"regex": "(a+)+$"}, "a+"), ({"regex": "(x{1000}){2}"}, "x{1,2000}"),
             ({"guided_json": {"enum": list(range(10_000))}}, r"\d{1,4}"), ({"guided_json": chain}, "4[12]"),
             ({"guided_json": {"type": "string", "maxLength": 1 << 20}}, '".*'), ({"guided_choice": NAMES[:5000]}, r"[a-zA-Z]{2}\d"),
             ({"guided_choice": [""]}, ""), ({"guided_choice": ["a\0b"]}, "a\0b"), ({"guided_json": {"const": "\"\\\n\x7f\u2028é😀"}}, ".*"),
             ({"guided_json": '{"type":"object","properties":{"a\\u0000b":{"type":"null"}},"required":["a\\u0000b"],"additionalProperties":false}'}, ".*"),
             ({"ebnf": 'root ::= "(" root ")" | "x"'}, r"\(*x?\)*")]
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        for more, pattern in texts:
            for seed in range(3):
                got = ask(c, dict(more, prompt="a", max_tokens=40, seed=seed, temperature=1))
                assert got["finish_reason"] in ("stop", "length") and re.fullmatch(pattern, got["text"], re.S), (str(more)[:100], got)
                if got["finish_reason"] == "stop" and "const" in str(more):
                    assert json.loads(got["text"]) == more["guided_json"]["const"], got
                if got["finish_reason"] == "stop" and "u0000" in str(more):
                    assert json.loads(got["text"]) == {"a\0b": None}, got
        c.wait_idle()


def check_ends_alone(c, bad):
    """Requests that cannot be followed to their end, beside others that are answered as if they were alone."""
    requests = bodies(8, (1,))
    want = essence(ask_all(c, requests))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        failing = [pool.submit(c.post, COMPLETIONS, dict(bad, seed=i)) for i in range(8)]
        streamed = pool.submit(c.request, "POST", COMPLETIONS, dict(bad, stream=True, seed=1))
        assert essence(ask_all(c, requests)) == want
        for x in failing:
            status, answer = x.result()
            assert status == 400 and answer["error"]["param"] in bad and AMBIGUOUS in answer["error"]["message"], answer
        assert AMBIGUOUS in streamed.result()[2].decode()
    status, answer = c.post(COMPLETIONS, dict(bad, n=3, seed=1))
    assert status == 400 and AMBIGUOUS in answer["error"]["message"], answer
    c.wait_idle()
    assert essence(ask_all(c, requests)) == want


def test_a_grammar_that_is_too_ambiguous_ends_its_request_alone():
    """300 texts at a time: one for each a that may be the one in the middle."""
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        check_ends_alone(c, {"prompt": "a", "max_tokens": 400, "temperature": 1, "regex": "(a|b)*a(a|b){300}"})


def test_a_mask_over_its_fuel_ends_its_request_alone():
    """60,000 tokens "w0", "w1" …, each to be read in up to 58 texts at a time, of four frames each: within the limit of texts, but a mask
    has fuel for 64 frames a token. A vocabulary of 300 tokens needs less than any mask may take, and the same answers go on."""
    grammar = """root ::= [w0-9]* [w0-4] tail "!"
        tail ::= item{58}
        item ::= x | "(" item ")"
        x ::= y | "{" item "}"
        y ::= [w0-9] | "<" item ">"
        """
    bad = {"prompt": "a", "max_tokens": 150, "temperature": 1, "ebnf": grammar}
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d, vocab=60_000), kv_memory="32m") as c:
        check_ends_alone(c, bad)
        known = c.post(COMPLETIONS, dict(bad, max_tokens=2, seed=1))  # the first masks are small
        assert known[0] == 200 and re.fullmatch(r"w\d+w\d+", known[1]["choices"][0]["text"]), known
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        for seed in range(8):
            assert ask(c, dict(bad, seed=seed))["finish_reason"] in ("stop", "length")


def test_an_error_of_ambiguity_names_its_field_and_no_worker():
    regex = "(a|b)*a(a|b){300}"
    guide = {"guided_decoding_guide_type": "regex", "guided_decoding_guide": regex}
    sampled = {"temperature": 1, "seed": 1}
    tensors = {"text_input": ("BYTES", ["a"]), "max_tokens": ("INT32", [400]), "temperature": ("FP32", [1.0]),
               **{name: ("BYTES", [value]) for name, value in guide.items()}}
    infer = {"inputs": [{"name": name, "datatype": kind, "shape": [1, 1], "data": data} for name, (kind, data) in tensors.items()]}
    generate = dict(guide, text_input="a", max_tokens=400, **sampled)
    chat = dict(sampled, messages=[{"role": "user", "content": "a"}], max_tokens=400)
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        for path, body, field in (
                (COMPLETIONS, dict(sampled, prompt="a", max_tokens=400, structured_outputs={"regex": regex}), "structured_outputs.regex"),
                (CHAT, dict(chat, guided_regex=regex), "guided_regex"),
                (RESPONSES, dict(sampled, input="a", max_output_tokens=400, regex=regex), "regex"),
                (GENERATE, generate, "guided_decoding_guide"), (GENERATE + "_stream", generate, "guided_decoding_guide"),
                ("/v2/models/ensemble/infer", infer, "guided_decoding_guide")):
            for stream in (False, True) if path.startswith("/v1/") else (False,):
                status, _, data = c.request("POST", path, dict(body, stream=True) if stream else body)
                text = data.decode()
                assert AMBIGUOUS in text and field + ": the answer" in text and not any(x in text for x in ("prefill-0", "decode-0", "worker")), (path, text)
                assert status == 400 or stream or path.endswith("_stream"), (path, status, text)
                if path.startswith("/v1/"):
                    assert f'"param":"{field}"' in text.replace(" ", ""), (path, text)
        c.wait_idle()


def test_others_are_served_while_grammars_are_compiled():
    """A tenant's 96 hostile ones; another tenant's requests, with and without a grammar, are answered meanwhile."""
    def body(i):
        return {"prompt": "a", "max_tokens": 1, "user": "x" * (3000 * (i % 2)),
                "guided_json": {"type": "string", "title": str(i), "allOf": [{"pattern": x} for x in ("a.*b", "b.*c", "c.*d", "d.*e", "e.*f", "f.*g")]}}

    with tempfile.TemporaryDirectory() as d, \
            Cluster(model_of(d), kv_memory="32m", router_args=["--tenant-header", "x-tenant"]) as c, \
            concurrent.futures.ThreadPoolExecutor(64) as pool:
        before = c.metrics()
        storm = [pool.submit(c.request, "POST", COMPLETIONS, body(i), {"x-tenant": "storm"}, None, 600) for i in range(96)]
        n = 0
        while not all(x.done() for x in storm):
            for more in ({}, {"regex": "[a-z]{5}"}):
                status, _, data = c.request("POST", COMPLETIONS, dict(more, prompt="a b c", max_tokens=8, user="y" * 3000), {"x-tenant": "other"})
                assert status == 200, data
            assert c.request("GET", "/v2/health/ready")[0] == 200
            n += 1
        assert {x.result()[0] for x in storm} <= {200, 400}
        after = c.metrics()
        loop, whole = (after[x] - before[x] for x in ("baton_event_loop_turn_seconds_sum", "process_cpu_seconds_total"))
        slow = after["baton_event_loop_turn_seconds_count"] - before["baton_event_loop_turn_seconds_count"] - (
            after['baton_event_loop_turn_seconds_bucket{le="0.001"}'] - before['baton_event_loop_turn_seconds_bucket{le="0.001"}'])
        assert n > 0
        print(f"    {n} rounds meanwhile; {loop:.2f} s of the event loop, {whole:.2f} s of the router, {slow:.0f} turns over 1 ms")
        assert loop < whole / 2, (loop, whole)
        c.wait_idle()


def test_tenants_and_salts_share_no_compiled_grammar():
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m", router_args=["--tenant-header", "x-tenant"]) as c:
        def made():
            return c.total("baton_grammar_compilations_total"), c.total("baton_grammar_cache_hits_total")

        want = 0
        for tenant, salt in (("a", None), ("b", None), ("a", "x"), ("a", "y"), (None, None)):
            want += 1
            for again in range(2):
                hits = made()[1]
                body = dict({"prompt": "a", "regex": "[ab]{3}"}, **({"cache_salt": salt} if salt else {}))
                assert c.request("POST", COMPLETIONS, body, {"x-tenant": tenant} if tenant else {})[0] == 200
                assert made() == (want, hits + again), (tenant, salt)


def test_clients_that_leave_leave_nothing():
    """While their grammar is compiled, while they wait, and in the middle of an answer that nobody reads."""
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m", worker_args=PACED) as c:
        for i in range(60):
            body = json.dumps({"prompt": "a", "max_tokens": 500, "stream": i % 2 == 0, "temperature": 1, "seed": i,
                               "regex": f"([a-z]{{1,9}} ){{{90 + i}}}" if i % 3 else f"[ab]*{i}a[ab]{{20}}"}).encode()
            with socket.create_connection(c.http) as s:
                s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (COMPLETIONS.encode(), len(body)) + body)
                if i % 4 == 0 and i % 3:
                    assert s.recv(64).startswith(b"HTTP/1.1 200 "), i
        assert ask(c, {"prompt": "a", "regex": "[ab]{3}"})["finish_reason"] == "stop"
        c.wait_idle()
        wait_until("no request is left", lambda: sum(c.series("baton_worker_active_requests")) == 0)


def test_options_that_contradict_a_grammar():
    nothing = {str(i): -100 for i in range(256)}
    plain = {"prompt": "abc", "seed": 4, "temperature": 1, "max_tokens": 50}
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        for more in ({"logit_bias": nothing}, {"logit_bias": nothing, "min_tokens": 40, "ignore_eos": True}, {"best_of": 3}, {"top_k": 1},
                     {"min_p": 1}, {"logprobs": 3}, {"frequency_penalty": 2, "presence_penalty": 2}, {"temperature": 0, "logit_bias": nothing}):
            got = ask(c, dict(plain, regex="[a-z]{5}", **more))
            assert re.fullmatch("[a-z]{5}", got["text"]) and got["finish_reason"] == "stop", (more, got)
        assert re.fullmatch("abc[a-z]{5}", ask(c, dict(plain, regex="[a-z]{5}", echo=True, logprobs=1))["text"])
        cut = ask(c, dict(plain, regex="[a-z]{5}", max_tokens=1))
        assert cut["finish_reason"] == "length" and re.fullmatch("[a-z]{1,5}", cut["text"]), cut
        status, answer = c.post(COMPLETIONS, dict(plain, prompt=["a", "b", "cd"], n=2, regex="[a-z]{5}"))
        assert status == 200 and len(answer["choices"]) == 6 and all(re.fullmatch("[a-z]{5}", x["text"]) for x in answer["choices"]), answer
        # One row of a batch that is wrong fails the batch, by its field.
        def batch(regexes):
            n = len(regexes)
            return {"inputs": [{"name": name, "datatype": kind, "shape": [n, 1], "data": data} for name, kind, data in (
                ("text_input", "BYTES", ["a"] * n), ("max_tokens", "INT32", [9] * n), ("guided_decoding_guide_type", "BYTES", ["regex"] * n),
                ("guided_decoding_guide", "BYTES", regexes))]}
        assert c.post("/v2/models/ensemble/infer", batch(["[ab]", "[abc]{3}"] * 8))[0] == 200
        status, answer = c.post("/v2/models/ensemble/infer", batch(["[ab]"] * 7 + ["(a"]))
        assert status == 400 and "guided_decoding_guide" in answer["error"], answer
        assert c.post(GENERATE, {"text_input": "a", "guided_decoding_guide_type": "regex", "guided_decoding_guide": "("})[0] == 400
        c.wait_idle()


def test_a_reader_that_stops_reading_delays_nobody():
    body = json.dumps({"prompt": "a", "max_tokens": 900, "stream": True, "temperature": 1, "seed": 1, "regex": "[a-z ]{800}", "logprobs": 5}).encode()
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        sockets = [socket.create_connection(c.http) for _ in range(8)]
        for s in sockets:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (COMPLETIONS.encode(), len(body)) + body)
            assert s.recv(13) == b"HTTP/1.1 200 "
        for i in range(20):
            assert ask(c, {"prompt": "a", "regex": "[a-z]{5}", "seed": i})["finish_reason"] == "stop"
        threads = [threading.Thread(target=s.close) for s in sockets]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        c.wait_idle()
