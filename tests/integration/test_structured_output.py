# SPDX-License-Identifier: Apache-2.0
"""Structured output through real processes: every answer that ends by itself is what its description asks for, at any
temperature and by each door's field; chunks, drafts, separate prefill and the death of a worker change no byte.

The model has random weights, so nothing but the grammar makes an answer fit."""
import concurrent.futures
import json
import random
import re
import tempfile

from harness import PACED, Cluster, tiny_model, wait_until

COMPLETIONS, CHAT, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/responses"
GENERATE = "/v2/models/ensemble/generate"
REGEXES = [r"[a-f0-9]{8}-(cat|dog)s?", r"(yes|no)(, (really|perhaps)){0,3}\.", r"\d{1,3}(\.\d{1,3}){3}", "é{2,5}ü|[α-ω]+!",
           r"[A-Z][a-z]{2,30}( [A-Z]\.)? [A-Z][a-z]+"]
CHOICES = [["yes", "no", "maybe so"], ["a", "ab", "abc"], ["früh", "spät"], ["one \"quoted\"", "new\nline"]]
PERSON = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3}, "married": {"type": "boolean"}},
    "required": ["name", "age", "tags", "married"], "additionalProperties": False}
SCHEMAS = [PERSON, {"type": "array", "items": {"type": "integer", "minimum": -5, "maximum": 5}, "minItems": 1, "maxItems": 6},
           {"enum": [1, "two", None, [3]]}, {"type": "string", "maxLength": 20}]
TAG = {"type": "structural_tag", "format": {"type": "tags_with_separator", "separator": "; ", "stop_after_first": False, "at_least_one": True, "tags": [
    {"type": "tag", "begin": "<n>", "content": {"type": "json_schema", "json_schema": {"enum": [1, "two"]}}, "end": "</n>"},
    {"type": "tag", "begin": "<b>", "content": {"type": "or", "elements": [{"type": "const_string", "value": "x"}, {"type": "regex", "pattern": "[ab]{3}"}]},
     "end": "</b>"}]}}
TAGGED = r"(<n>(1|\"two\")</n>|<b>(x|[ab]{3})</b>)(; (<n>(1|\"two\")</n>|<b>(x|[ab]{3})</b>))*"
EBNF = 'root ::= item (", " item){0,3} "."\nitem ::= [a-z]{1,6} | "(" item ")"\n'


def model_of(d, **more):
    return tiny_model(d, **dict(dict(layers=2, dim=64, heads=4, kv_heads=2, ffn=96, context=1024, seed=11), **more))


def fits(value, schema):
    """The keywords of SCHEMAS."""
    if "enum" in schema:
        return any(value == x and isinstance(value, type(x)) for x in schema["enum"])
    kind = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}[schema["type"]]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return False
    if kind is dict:
        return set(schema.get("required", ())) <= set(value) and all(
            k in schema["properties"] and fits(v, schema["properties"][k]) for k, v in value.items())
    if kind is list:
        return schema.get("minItems", 0) <= len(value) <= schema["maxItems"] and all(
            fits(v, schema["items"]) for v in value)
    if kind is str:
        return len(value) <= schema["maxLength"]
    return kind is bool or schema["minimum"] <= value <= schema["maximum"]


def is_of_ebnf(text):
    one = re.compile(r"\(*[a-z]{1,6}\)*")
    items = text[:-1].split(", ")
    return text.endswith(".") and 1 <= len(items) <= 4 and all(
        one.fullmatch(x) and x.count("(") == x.count(")") for x in items)


def holds(body, text):
    """Whether a text is what a body of descriptions() asks for."""
    if "regex" in body:
        return re.fullmatch(body["regex"], text) is not None
    if "guided_choice" in body:
        return text in body["guided_choice"]
    if "ebnf" in body:
        return is_of_ebnf(text)
    if "guided_json" in body:
        return fits(json.loads(text), body["guided_json"])
    return isinstance(json.loads(text), dict)


def descriptions():
    return ([{"regex": x} for x in REGEXES] + [{"guided_choice": x} for x in CHOICES] + [{"guided_json": x} for x in SCHEMAS] +
            [{"ebnf": EBNF}, {"response_format": {"type": "json_object"}}])


def bodies(seed, temperatures=(0, 1.5)):
    rng = random.Random(seed)
    return [dict(more, prompt=[rng.randint(20, 250) for _ in range(rng.randint(3, 40))], max_tokens=300,
                 seed=rng.getrandbits(63), temperature=t, return_token_ids=True)
            for more in descriptions() for t in temperatures]


def ask(c, body, path=COMPLETIONS):
    status, answer = c.post(path, body, timeout=600)
    assert status == 200, (status, answer, body)
    return answer["choices"][0]


def ask_all(c, requests, parallel=8):
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(lambda body: ask(c, body), requests))


def essence(choices):
    return [(x["text"], x["token_ids"], x["finish_reason"]) for x in choices]


def test_answers_are_those_of_requests_whose_logits_are_all_computed():
    """Where few tokens may come, the worker computes their logits alone, but for requests for log-probs."""
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        requests = bodies(9, (0, 0.7, 1.5))
        for i, body in enumerate(requests):
            body.update([{}, {"repetition_penalty": 1.3}, {"logit_bias": {"20": 5, "35": -100}}, {"top_p": 0.8, "frequency_penalty": 0.4}][i % 4])
        free = {"prompt": [7, 8, 9], "max_tokens": 20, "temperature": 1, "seed": 5, "return_token_ids": True}
        some = ask_all(c, [x for body in requests for x in (body, free)])
        every = ask_all(c, [dict(body, logprobs=1) for body in requests])
        assert essence(some[::2]) == essence(every)
        assert len(set(map(str, essence(some[1::2])))) == 1
        plain = ask_all(c, [dict(body, num_draft_tokens=0) for body in requests])
        assert essence(plain) == essence(every)


def test_every_answer_that_ends_is_what_its_description_asks_for():
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        n_ended = 0
        for seed in range(3):
            requests = bodies(seed, (0, 0.7, 1.5))
            for body, choice in zip(requests, ask_all(c, requests)):
                assert choice["finish_reason"] in ("stop", "length"), choice
                if choice["finish_reason"] == "stop":
                    assert holds(body, choice["text"]), (body, choice)
                    n_ended += 1
        # Of strings without a bound alone may some go on for 300 tokens.
        assert n_ended >= 3 * 3 * (len(descriptions()) - 2), n_ended
        c.wait_idle()
        made = c.total("baton_grammar_compilations_total", result="ok")
        assert made >= len(descriptions())  # two requests may compile at a time
        assert made + c.total("baton_grammar_cache_hits_total") == 9 * len(descriptions())
        assert c.metric("baton_grammar_compile_seconds_count") == made
        wait_until("the worker has told of its masks", lambda: c.total("baton_grammar_masks_total") > 1000)
        assert 0 < c.total("baton_grammar_mask_hits_total") < c.total("baton_grammar_masks_total")
        wait_until("both workers have told of their programs", lambda: c.total("baton_grammar_programs_total") == 2 * len(descriptions()))


def test_an_answer_is_the_same_whoever_computes_it():
    requests = bodies(5)
    with tempfile.TemporaryDirectory() as d:
        model = model_of(d)
        with Cluster(model, kv_memory="32m", worker_args=["--draft", "off"]) as c:
            choices = ask_all(c, requests)
            want = essence(choices)
            assert essence(ask_all(c, requests, parallel=1)) == want  # now with masks that are known
            c.wait_idle()
            assert c.total("baton_spec_decode_draft_tokens_total") == 0
        drafted = [dict(body, draft_input_ids=x["token_ids"][:9] + [70] + x["token_ids"][10:])
                   for body, x in zip(requests, choices)]
        for options in (dict(worker_args=["--draft-tokens", "4"]), dict(worker_args=["--draft", "self", "--draft-tokens", "3"]),
                        dict(worker_args=["--chunk-tokens", "16", "--grammar-cache", "0"]),
                        dict(prefill=0, decode_args=["--local-prefill"]), dict(prefill=2, decode=2)):
            with Cluster(model, kv_memory="32m", **options) as c:
                assert essence(ask_all(c, requests)) == want, options
                assert essence(ask_all(c, drafted)) == want, options
                if "--draft-tokens" in options.get("worker_args", ()):
                    wait_until("drafts were right", lambda c=c: c.total("baton_spec_decode_accepted_tokens_total") > 100)
                if options == dict(worker_args=["--draft-tokens", "4"]):  # else a model's take their place
                    wait_until("so were those of grammars", lambda c=c: c.total("baton_spec_decode_accepted_tokens_total", source="grammar") > 10)
                c.wait_idle()


def test_ranks_and_preemption_change_no_byte():
    requests = bodies(6) + [dict(prompt=[70, i], max_tokens=300, seed=i, temperature=1, regex="([a-z]{1,9} ){60,90}", return_token_ids=True)
                            for i in range(12)]
    parts = ["--reduction-parts", "2"]  # the sums of two ranks, however many there are
    with tempfile.TemporaryDirectory() as d:
        model = model_of(d)
        with Cluster(model, kv_memory="32m", worker_args=parts) as c:
            want = essence(ask_all(c, requests))
        for options in (dict(decode_args=["--tp", "2"]), dict(prefill_args=["--tp", "2"], decode_args=["--pp", "2"]),
                        dict(decode_args=["--scheduler-policy", "max_utilization", "--decode-order", "fcfs", "--kv-tokens", "512"])):
            with Cluster(model, kv_memory="64m", **dict(options, worker_args=parts)) as c:
                assert essence(ask_all(c, requests, parallel=16)) == want, options
                c.wait_idle()
                if "--kv-tokens" in options["decode_args"]:
                    wait_until("sequences were preempted", lambda c=c: c.total("baton_worker_preemptions_total") > 0)


def test_the_death_of_a_decode_worker_in_mid_answer_changes_no_byte():
    schema = {"type": "array", "items": {"type": "string", "minLength": 5, "maxLength": 10}, "minItems": 20, "maxItems": 30}
    body = {"prompt": [70, 71, 72], "max_tokens": 700, "seed": 9, "temperature": 1, "guided_json": schema, "return_token_ids": True}
    with tempfile.TemporaryDirectory() as d:
        model = model_of(d)
        with Cluster(model, kv_memory="32m") as c:
            want = ask(c, body)
            items = json.loads(want["text"])
            assert 20 <= len(items) <= 30 and all(5 <= len(x) <= 10 for x in items)
            c.wait_idle()
        assert len(want["token_ids"]) > 100
        with Cluster(model, kv_memory="32m", decode=2, worker_args=PACED) as c, concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask, c, body)

            def serving():
                return [p for p in c.decodes if c.metric("baton_worker_active_requests", worker=p.name) > 0]

            wait_until("a worker has the request", lambda: c.total("baton_generation_tokens_total") > 20 and serving())
            serving()[0].kill()
            assert essence([answer.result()]) == essence([want])
            assert c.total("baton_retries_total") >= 1


def test_every_answer_is_whole_within_its_tokens_where_that_is_asked_for():
    with tempfile.TemporaryDirectory() as d:
        model = model_of(d)
        n_cut = 0
        want = None
        for options in (dict(), dict(worker_args=["--draft-tokens", "4"]), dict(prefill=0, decode_args=["--local-prefill"])):
            with Cluster(model, kv_memory="32m", **options) as c:
                requests = [dict(body, max_tokens=n, complete_in_max_tokens=True) for seed, n in ((1, 80), (2, 100), (3, 150))
                            for body in bodies(seed, (0, 1.5))]
                choices = ask_all(c, requests)
                for body, choice in zip(requests, choices):
                    assert holds(body, choice["text"]), (body, choice)
                    n_cut += choice["finish_reason"] == "length"
                want = want or essence(choices)
                assert essence(choices) == want, options
                c.wait_idle()
        assert n_cut > 0  # of JSON objects and strings without a bound
        with Cluster(model, kv_memory="32m") as c:
            # A thinking part, calls of tools: the shortest answer counts, and is told where it does not fit.
            for more, text in (({"guided_regex": "[a-z]{30,}"}, "the shortest answer may take 30 tokens, and it may have 20"),
                               ({}, "complete_in_max_tokens needs a description of the answer")):
                status, answer = c.post(COMPLETIONS, dict(more, prompt="a", max_tokens=20, complete_in_max_tokens=True))
                assert status == 400 and answer["error"]["param"] == "complete_in_max_tokens" and text in answer["error"]["message"], answer
            c.wait_idle()


def test_choices_of_one_prompt_follow_the_grammar_each_by_itself():
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        for more in descriptions():
            body = dict(more, prompt=[70, 71, 72, 73], max_tokens=300, seed=3, temperature=1.5, n=4)
            status, answer = c.post(COMPLETIONS, body, timeout=600)
            assert status == 200, answer
            assert len(answer["choices"]) == 4
            for choice in answer["choices"]:
                assert choice["finish_reason"] == "length" or holds(more, choice["text"]), (more, choice)
        texts = {x["text"] for x in c.post(COMPLETIONS, {"prompt": "a", "regex": "[a-z]{9}", "n": 4, "seed": 1, "temperature": 1.5})[1]["choices"]}
        assert len(texts) == 4, texts
        c.wait_idle()


def test_other_options_of_an_answer_do_not_break_it():
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        plain = {"prompt": "abc", "seed": 4, "temperature": 1, "max_tokens": 200}
        # A length cuts an answer, and so does a stop word.
        cut = ask(c, dict(plain, regex="[a-z]{100}", max_tokens=5))
        assert cut["finish_reason"] == "length" and re.fullmatch("[a-z]{1,99}", cut["text"]), cut
        cut = ask(c, dict(plain, regex="[a-z]{20}@[a-z]{20}", stop="@"))
        assert cut["finish_reason"] == "stop" and re.fullmatch("[a-z]{20}", cut["text"]), cut
        # End ids come when the text is whole, not before, and in any case then.
        for more in ({"ignore_eos": True}, {"min_tokens": 150}, {"bad_words": ["yes", "no"]}, {"logit_bias": {"2": -100}},
                     {"allowed_token_ids": [200, 201]}, {"no_repeat_ngram_size": 1}, {"repetition_penalty": 2},
                     {"bad_words": ["y", "n", "e", "o", "s"], "ignore_eos": True}):
            for choice in (["yes", "no"], ["yes"]):
                got = ask(c, dict(plain, guided_choice=choice, **more))
                assert got["finish_reason"] == "stop" and got["text"] in choice, (more, got)
        got = ask(c, dict(plain, guided_choice=["a", "ab", "abc"], ignore_eos=True))
        assert got["text"] == "abc" and got["finish_reason"] == "stop", got  # as long as it can go on
        # Bans count where they leave a token.
        texts = {ask(c, dict(plain, seed=i, guided_choice=["apple", "pear"], bad_words=["p", "pe", "pear"]))["text"] for i in range(8)}
        assert texts == {"apple"}, texts
        # A thinking part that nobody opens is not there.
        status, answer = c.post(CHAT, {"messages": [{"role": "user", "content": "x"}], "guided_choice": ["<think>no"], "seed": 1})
        assert status == 200 and answer["choices"][0]["finish_reason"] == "stop", answer
        c.wait_idle()


def test_log_probs_are_those_of_the_model():
    """Not of the tokens that the grammar leaves: each is that of the same token after the same ones, without a grammar."""
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        body = {"prompt": [70, 71, 72], "max_tokens": 60, "seed": 8, "temperature": 1, "guided_json": PERSON, "logprobs": 2,
                "return_token_ids": True}
        got = ask(c, body)
        again = ask(c, {"prompt": body["prompt"] + got["token_ids"], "max_tokens": 1, "echo": True, "logprobs": 2})
        n = len(got["logprobs"]["token_logprobs"])
        assert got["logprobs"]["token_logprobs"] == again["logprobs"]["token_logprobs"][3:3 + n]
        assert got["logprobs"]["top_logprobs"] == again["logprobs"]["top_logprobs"][3:3 + n]
        c.wait_idle()


def test_pieces_of_a_stream_are_the_whole_answer():
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        for more in descriptions():
            body = dict(more, prompt="abc", max_tokens=200, seed=2, temperature=1)
            want = ask(c, body)
            status, _, raw = c.request("POST", COMPLETIONS, dict(body, stream=True), timeout=600)
            pieces = [json.loads(x[6:])["choices"][0] for x in raw.decode().split("\n\n") if x.startswith("data: {")]
            assert status == 200 and "".join(x["text"] for x in pieces) == want["text"], (more, raw[-300:])
            assert pieces[-1]["finish_reason"] == want["finish_reason"]
        c.wait_idle()


def test_every_doors_fields_describe_an_answer():
    fmt = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    doors = [(COMPLETIONS, {"response_format": fmt}), (CHAT, {"response_format": fmt}),
             (CHAT, {"response_format": {"type": "json_object", "schema": PERSON}}),
             (CHAT, {"structured_outputs": {"json": PERSON}}), (CHAT, {"structured_outputs": {"json": json.dumps(PERSON)}}),
             (CHAT, {"structured_outputs": {"json": PERSON, "disable_any_whitespace": True}}),
             (COMPLETIONS, {"guided_json": PERSON}), (CHAT, {"guided_json": json.dumps(PERSON)}),
             (CHAT, {"json_schema": json.dumps(PERSON)}), (CHAT, {"json_schema": PERSON}),
             (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "person", "strict": True, "schema": PERSON}}}),
             (GENERATE, {"guided_decoding_guide_type": "json_schema", "guided_decoding_guide": json.dumps(PERSON)})]
    texts = [(CHAT, {"structured_outputs": {"regex": "[ab]{3}"}}, "[ab]{3}"), (COMPLETIONS, {"guided_regex": "[ab]{3}"}, "[ab]{3}"),
             (CHAT, {"regex": "[ab]{3}"}, "[ab]{3}"), (CHAT, {"structured_outputs": {"choice": ["ab", "ba"]}}, "ab|ba"),
             (CHAT, {"structured_outputs": {"grammar": 'root ::= "ab" | "ba"'}}, "ab|ba"),
             (CHAT, {"guided_grammar": 'start: a~1..3\na: "ab" | B\nB: /b/ "a"\n'}, "(ab|ba){1,3}"),
             (CHAT, {"structured_outputs": {"grammar": 'start: DIGIT ["," %json {"enum": [1]}]\n%import common.DIGIT'}}, "[0-9](,1)?"),
             (CHAT, {"guided_grammar": 'root ::= "ab" | "ba"'}, "ab|ba"), (CHAT, {"grammar": 'root ::= "ab" | "ba"'}, "ab|ba"),
             (RESPONSES, {"guided_choice": ["ab", "ba"]}, "ab|ba"), (GENERATE, {"guided_decoding_guide_type": "regex", "guided_decoding_guide": "[ab]{3}"}, "[ab]{3}"),
             (GENERATE, {"guided_decoding_guide_type": "ebnf_grammar", "guided_decoding_guide": 'root ::= "ab" | "ba"'}, "ab|ba"),
             (GENERATE, {"parameters": {"guided_decoding_guide_type": "regex", "guided_decoding_guide": "[ab]{3}"}}, "[ab]{3}"),
             (CHAT, {"response_format": TAG}, TAGGED), (CHAT, {"structural_tag": TAG}, TAGGED), (COMPLETIONS, {"structural_tag": json.dumps(TAG)}, TAGGED),
             (CHAT, {"structured_outputs": {"structural_tag": json.dumps(TAG)}}, TAGGED),
             (GENERATE, {"guided_decoding_guide_type": "structural_tag", "guided_decoding_guide": json.dumps(TAG)}, TAGGED)]
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        for seed in range(3):
            for path, more in doors:
                text = text_of(c, path, more, seed)
                assert fits(json.loads(text), PERSON), (path, more, text)
                if "disable_any_whitespace" in str(more):
                    assert text == json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False), text
            for path, more, pattern in texts:
                text = text_of(c, path, more, seed)
                assert re.fullmatch(pattern, text), (path, more, text)
            assert isinstance(json.loads(text_of(c, GENERATE, {"guided_decoding_guide_type": "json"}, seed, 400)), dict)
        answer = c.post(RESPONSES, {"input": "x", "text": {"format": {"type": "json_object"}}, "max_output_tokens": 20})[1]
        assert answer["text"] == {"format": {"type": "json_object"}}, answer
        status, answer = c.post("/v2/models/ensemble/infer", {"inputs": [
            {"name": name, "datatype": kind, "shape": [2, 1], "data": data} for name, kind, data in (
                ("text_input", "BYTES", ["a", "b"]), ("max_tokens", "INT32", [40, 40]), ("exclude_input_in_output", "BOOL", [True, True]),
                ("guided_decoding_guide_type", "BYTES", ["regex", "json_schema"]),
                ("guided_decoding_guide", "BYTES", ["[ab]{7}", '{"enum":[17]}']))]})
        assert status == 200, answer
        data = next(x["data"] for x in answer["outputs"] if x["name"] == "text_output")
        assert re.fullmatch("[ab]{7}", data[0]) and data[1] == "17", data
        c.wait_idle()


def text_of(c, path, more, seed, n=300):
    """Retries with other seeds where a length cuts the answer: its strings have bounds, numbers have not."""
    body = {COMPLETIONS: {"prompt": "abc", "max_tokens": n, "seed": seed}, RESPONSES: {"input": "abc", "max_output_tokens": n, "seed": seed},
            CHAT: {"messages": [{"role": "user", "content": "abc"}], "max_tokens": n, "seed": seed},
            GENERATE: {"text_input": "abc", "max_tokens": n, "random_seed": seed, "temperature": 1, "exclude_input_in_output": True}}[path]
    status, answer = c.post(path, dict(body, **more), timeout=600)
    assert status == 200, (path, more, answer)
    if path == RESPONSES:
        return answer["output"][0]["content"][0]["text"]
    if path == GENERATE:
        return answer["text_output"]
    return answer["choices"][0]["text"] if path == COMPLETIONS else answer["choices"][0]["message"]["content"]


def test_descriptions_that_are_refused_name_their_field_and_place():
    def fmt(schema, **more):
        return {"response_format": {"type": "json_schema", "json_schema": dict({"name": "math", "schema": schema}, **more)}}

    wrong = [({"guided_regex": "(a"}, "guided_regex", "guided_regex: "), ({"guided_regex": r"(a)\1"}, "guided_regex", "guided_regex: "),
             ({"guided_choice": []}, "guided_choice", "choices must be a list of at least one string"),
             ({"guided_grammar": "root ::= root"}, "guided_grammar", "no text is in the grammar"), ({"guided_json": "{"}, "guided_json", "not JSON"),
             ({"guided_json": {"type": "number of things"}}, "guided_json", "guided_json: "),
             (fmt({"type": "object"}, strict=True), "response_format",
              "Invalid schema for response_format 'math': In context=(), 'additionalProperties' is required to be supplied and to be false."),
             (fmt({"type": "object", "properties": {"x": {}}, "additionalProperties": False}, strict=True), "response_format",
              "Invalid schema for response_format 'math': In context=(), 'required' is required to be supplied and to be an array "
              "including every key in properties. Missing 'x'."),
             (fmt({"$ref": "http://example.com/a.json"}), "response_format", "Invalid schema for response_format 'math': "),
             ({"structural_tag": "{}"}, "structural_tag", "structural_tag: the structural tag: format is missing"),
             ({"structural_tag": {"format": {"type": "sequence", "elements": [{"type": "json_schema", "json_schema": {"type": "x"}}]}}}, "structural_tag",
              "structural_tag: /format/elements/0/json_schema/type: "),
             ({"guided_grammar": "start: A"}, "guided_grammar", "line 1: rule A is not defined"),
             ({"guided_grammar": "start: a{B}"}, "guided_grammar", "line 1: a template is not supported"),
             ({"guided_json": {}, "guided_choice": ["a"]}, "guided_choice", "both describe the answer"),
             ({"guided_choice": ["a"], "use_beam_search": True, "n": 2}, "guided_choice", "beam search")]
    with tempfile.TemporaryDirectory() as d, Cluster(model_of(d), kv_memory="32m") as c:
        for _ in range(2):  # the second time the refusal is known
            for more, field, text in wrong:
                status, answer = c.post(CHAT, dict(more, messages=[{"role": "user", "content": "x"}]))
                assert status == 400, (more, status, answer)
                assert answer["error"]["param"] == field and text in answer["error"]["message"], (more, answer)
                assert answer["error"]["type"] == "invalid_request_error"
        assert c.post(COMPLETIONS, {"prompt": "a", "max_tokens": 4})[0] == 200
        c.wait_idle()
