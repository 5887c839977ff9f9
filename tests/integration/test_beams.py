# SPDX-License-Identifier: Apache-2.0
"""Beam search in a whole cluster: the answers are those of Hugging Face transformers, by one worker and handed over, and
what becomes of others changes nothing."""
import asyncio
import concurrent.futures
import itertools
import json
import math
import os
import random
import tempfile

from harness import PACED, Cluster, Stream, tiny_model, wait_until

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "beams.jsonl")
WAYS = {"local": dict(prefill=0, decode_args=["--local-prefill"]), "shm": {},
        "tcp": dict(worker_args=["--kv-transport", "network", "--tokens-per-block", "32", "--chunk-tokens", "32"])}
CLOSE = 1e-4  # for each token


def golden():
    """@return [(arguments of a model, [search, …]), …]"""
    models = []
    with open(GOLDEN, encoding="utf-8") as file:
        for line in file:
            entry = json.loads(line)
            if "model" in entry:
                models.append((entry["model"], []))
            elif models:
                models[-1][1].append(entry)
    return models


def model_of(directory, args):
    """The generator's --name value … as options of tiny_model()."""
    options, at = {}, 0
    while at < len(args):
        name = args[at][2:].replace("-", "_")
        has_value = at + 1 < len(args) and not args[at + 1].startswith("--")
        if name == "key":
            options.setdefault("key", []).append(args[at + 1])
        else:
            options[name] = args[at + 1] if has_value else True
        at += 2 if has_value else 1
    return tiny_model(directory, **options)


def tensor(name, kind, data, shape=None):
    return {"name": name, "datatype": kind, "shape": shape or [1, len(data)], "data": data}


def words(lists):
    """Lists of ids, and where each ends."""
    ids = [token for word in lists for token in word]
    ends = [sum(len(word) for word in lists[:i + 1]) for i in range(len(lists))]
    ends += [-1] * (len(ids) - len(ends))
    return ids + ends, [1, 2, len(ids)]


def inputs_of(search):
    early = {False: 0, True: 1, "never": 2}[search["early"]]
    inputs = [tensor("input_ids", "INT32", search["prompt"]), tensor("request_output_len", "INT32", [search["max_new"]]),
              tensor("beam_width", "INT32", [search["width"]]), tensor("len_penalty", "FP32", [search["lp"]]),
              tensor("early_stopping", "INT32", [early]), tensor("return_log_probs", "BOOL", [True]),
              tensor("exclude_input_in_output", "BOOL", [True])]
    if search["eos"]:
        inputs.append(tensor("end_id", "INT32", search["eos"]))
    if "min" in search:
        inputs.append(tensor("min_length", "INT32", [search["min"]]))
    if "rep" in search:
        inputs.append(tensor("repetition_penalty", "FP32", [search["rep"]]))
    if "bad" in search:
        inputs.append(tensor("bad_words_list", "INT32", *words(search["bad"])))
    return inputs


def ask(c, inputs):
    """@return ids, sum of log-probs and log-probs of each beam"""
    status, answer = c.post("/v2/models/tensorrt_llm/infer", {"inputs": inputs})
    assert status == 200, answer
    got = {out["name"]: out for out in answer["outputs"]}
    _, n, longest = got["output_ids"]["shape"]
    lengths, sums = got["sequence_length"]["data"], got["cum_log_probs"]["data"]
    assert got["sequence_length"]["shape"] == got["cum_log_probs"]["shape"] == [1, n], got
    each = got["output_log_probs"]["shape"][2]
    return [(got["output_ids"]["data"][i * longest:i * longest + lengths[i]], sums[i],
             got["output_log_probs"]["data"][i * each:(i + 1) * each]) for i in range(n)]


def check(c, search):
    got = ask(c, inputs_of(search))
    assert len(got) == len(search["answers"]), (search, got)
    for (ids, cum, each), (score, expected) in zip(got, search["answers"]):
        ends = expected[-1] in search["eos"]  # an end id is no output, but it counts
        assert ids == expected[:len(expected) - ends], (search, got)
        assert abs(sum(each) - cum) < CLOSE, (search, got)
        if "rep" not in search:  # whose score is of penalized log-probs
            assert abs(cum - score * len(expected) ** search["lp"]) < CLOSE * len(expected), (search, got)


def test_beams_are_those_of_transformers():
    """Three families with 48 settings of width, length penalty and early stopping each, and with other end ids, lengths,
    a penalty and bad words."""
    every = set(itertools.product((1, 2, 4, 8), (-1, 0, 1, 2), (False, True, "never")))
    models = golden()
    assert len(models) == 3
    for args, searches in models:
        assert every <= {(s["width"], s["lp"], s["early"]) for s in searches}, args
        with tempfile.TemporaryDirectory() as d:
            model = model_of(d, args)
            for way in ("local", "shm"):
                with Cluster(model, **WAYS[way]) as c, concurrent.futures.ThreadPoolExecutor(4) as pool:
                    list(pool.map(lambda search: check(c, search), searches))
                    c.wait_idle()


def rows_of(c, sequences):
    """The log-probs behind sequences of one length, of the logits that a request for one token returns."""
    flat = [token for sequence in sequences for token in sequence]
    n = len(sequences)
    inputs = [tensor("input_ids", "INT32", flat, [n, len(sequences[0])]), tensor("request_output_len", "INT32", [1] * n, [n, 1]),
              tensor("return_generation_logits", "BOOL", [True] * n, [n, 1])]
    status, answer = c.post("/v2/models/tensorrt_llm/infer", {"inputs": inputs})
    assert status == 200, answer
    logits = next(out for out in answer["outputs"] if out["name"] == "generation_logits")
    width = logits["shape"][-1]
    assert logits["shape"] == [n, 1, 1, width], logits["shape"]
    rows = []
    for i in range(n):
        row = logits["data"][i * width:(i + 1) * width]
        most = max(row)
        total = most + math.log(sum(math.exp(x - most) for x in row))
        rows.append([x - total for x in row])
    return rows


def search_of_tensorrt_llm(c, prompt, width, lp, early, end, max_new, more_at_last):
    """Beam search as batchBeamKernel of TensorRT-LLM has it (beamSearchKernelsTemplate.h): a step's best 2 * width
    candidates, from the best; an end among the first width goes to the finished (the CBA), of which the worst gives way;
    others are beams until there are width. At the end, unless it is done, beams join the finished.

    @param more_at_last  whether, at the greatest length, beams join only where fewer ends than width are finished, but then
                         those behind the first width candidates, too; otherwise the first width candidates all are finished
    @return [(normed score, ids), …], best first
    """
    def normed(score, ids):
        return score / len(ids) ** lp

    beams, finished = [(0.0, [])], []
    for step in range(1, max_new + 1):
        candidates = [(score + p, beam, token) for beam, ((score, _), row) in enumerate(
            zip(beams, rows_of(c, [prompt + ids for _, ids in beams]))) for token, p in enumerate(row)]
        candidates = sorted(candidates, key=lambda x: (-x[0], x[1], x[2]))[:2 * width]
        following = []
        for i, (score, beam, token) in enumerate(candidates):
            ids = beams[beam][1] + [token]
            if i < width and (token == end or (step == max_new and not more_at_last)):
                finished = sorted(finished + [(normed(score, ids), ids)], key=lambda x: -x[0])[:width]
            elif token != end and (step < max_new or more_at_last):
                following.append((score, ids))
            if len(following) == width:
                break
        beams = following
        if len(finished) == width:
            attainable = normed(beams[0][0], [0] * (max_new if early > 1 and lp > 0 else step)) if beams else -math.inf
            if early == 1 or finished[-1][0] >= attainable:
                return finished
    return sorted(finished + [(normed(*beam), beam[1]) for beam in beams], key=lambda x: -x[0])[:width]


def test_beams_follow_the_rules_of_tensorrt_llm():
    """Its length penalties and its three early stops, against a search of one-token requests; its default is 0 and 1."""
    draw = random.Random(11)
    n_different = 0
    with tempfile.TemporaryDirectory() as d, Cluster(tiny_model(d, context=256, seed=5), **WAYS["local"]) as c:
        for i in range(27):
            prompt = [draw.randrange(1, 200) for _ in range(draw.randint(3, 9))]
            width, lp, early, max_new = 2 + i % 3, (0.0, 1.0, -0.5, 2.0)[i % 4], i // 9, draw.randint(4, 9)
            free = search_of_tensorrt_llm(c, prompt, width, lp, early, None, max_new, True)
            end = draw.choice(free[0][1][1:] + free[-1][1][1:])
            expected = search_of_tensorrt_llm(c, prompt, width, lp, early, end, max_new, False)
            n_different += expected != search_of_tensorrt_llm(c, prompt, width, lp, early, end, max_new, True)
            got = ask(c, inputs_of(dict(prompt=prompt, max_new=max_new, width=width, lp=lp, eos=[end],
                                        early=(False, True, "never")[early])))
            for (ids, cum, _), (score, with_end) in zip(got, expected):
                assert ids == [token for token in with_end if token != end], (i, got, expected)
                assert abs(cum - score * len(with_end) ** lp) < CLOSE * len(with_end), (i, got, expected)
            assert len(got) == len(expected) == width, (i, got, expected)
        c.wait_idle()
    assert n_different < 9, n_different


def bodies():
    """Searches at the doors of text."""
    for i in range(6):
        prompt = "which of many beams is the best one? " * (1 + i)
        yield "/v1/completions", dict(prompt=prompt, max_tokens=10 + 7 * i, use_beam_search=True, n=2 + i % 3, ignore_eos=True,
                                      logprobs=0, length_penalty=0.5 * i)
        yield "/v2/models/ensemble/generate", dict(text_input=prompt, max_tokens=30 - 3 * i, beam_width=3, num_return_sequences=2,
                                                   ignore_eos=True, return_log_probs=True, early_stopping="never",
                                                   return_num_output_tokens=True, return_num_input_tokens=True)
    yield "/v1/chat/completions", dict(messages=[{"role": "user", "content": "hello"}], max_tokens=12, use_beam_search=True,
                                       n=2, best_of=4)
    # One token, which just fits the context; its first log-probs are the decode worker's.
    yield "/v1/completions", dict(prompt=[5 + i % 90 for i in range(1023)], max_tokens=1, use_beam_search=True, n=3, logprobs=0)
    yield "/v1/completions", dict(prompt=["one", "two and more"], max_tokens=9, use_beam_search=True, n=2, echo=True)


def answers(c, at_a_time):
    def one(request):
        status, answer = c.post(*request, timeout=300)
        assert status == 200, (request, answer)
        return answer.get("choices") or [answer[name] for name in (
            "text_output", "cum_log_probs", "output_log_probs", "num_output_tokens", "num_input_tokens")]

    with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
        return list(pool.map(one, bodies()))


def test_beams_are_the_same_on_every_path_and_in_company():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=3, dim=96, heads=6, kv_heads=3, ffn=160, context=1024, seed=5)
        with Cluster(model, **WAYS["local"]) as c:
            expected = answers(c, 1)
        assert len(expected[-1]) == 4 and [choice["index"] for choice in expected[-1]] == [0, 1, 2, 3], expected[-1]
        assert len(expected[1][0]) == 2 and expected[1][1] == sorted(expected[1][1], reverse=True), expected[1]
        assert expected[1][3] == [30, 30] and isinstance(expected[1][4], int), expected[1]
        for way in WAYS:
            with Cluster(model, **WAYS[way]) as c:
                assert answers(c, 6) == expected, way
                assert answers(c, 2) == expected, way  # prompts are cached
                c.wait_idle()


def test_beams_give_way_and_begin_again_with_the_same_answers():
    """Three that came before fit the 40 blocks to their ends (11 each), but not beside the search (at most 22): whenever
    one gives way, it is the search."""
    before = dict(prompt="a", max_tokens=150, temperature=0, ignore_eos=True)
    search = dict(prompt="give way", max_tokens=100, use_beam_search=True, n=3, ignore_eos=True, logprobs=0)
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=3, dim=96, heads=6, kv_heads=3, ffn=160, context=1024, seed=5)
        for way in ("local", "shm"):
            more = dict(WAYS[way], decode_args=WAYS[way].get("decode_args", []) + [
                "--kv-tokens", "640", "--scheduler-policy", "max_utilization", "--decode-order", "fcfs", *PACED])
            with Cluster(model, **more) as c, concurrent.futures.ThreadPoolExecutor(3) as pool:
                expected = c.post("/v1/completions", search, timeout=300)[1]["choices"]
                c.wait_idle()

                def gave_way():
                    asked = [pool.submit(c.post, "/v1/completions", before, 300) for _ in range(3)]
                    wait_until("all three run", lambda: c.total("baton_worker_active_requests", role="decode") == 3)
                    status, answer = c.post("/v1/completions", search, timeout=300)
                    assert status == 200 and answer["choices"] == expected, (way, answer, expected)
                    assert all(one.result()[0] == 200 for one in asked)
                    return c.total("baton_worker_preemptions_total") > 0

                wait_until("a search gives way", gave_way)
                c.wait_idle()


def test_search_whose_worker_dies_is_run_again_with_the_same_answers():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, context=512, seed=5)
        path, body = "/v1/completions", dict(prompt="again", max_tokens=150, use_beam_search=True, n=4, ignore_eos=True)
        with Cluster(model, decode=2, decode_args=PACED) as c, concurrent.futures.ThreadPoolExecutor(1) as pool:
            _, expected = c.post(path, body, timeout=300)
            c.wait_idle()
            asked = pool.submit(c.post, path, body, 300)

            def searching():
                return [p for p in c.decodes if c.metric("baton_worker_active_requests", worker=p.name) > 0]

            wait_until("a worker searches", searching)
            searching()[0].kill()
            status, answer = asked.result()
            assert status == 200 and answer["choices"] == expected["choices"], (answer, expected)


def test_what_beams_do_not_go_with_is_refused_by_name():
    generate, stream = "/v2/models/ensemble/generate", "/v2/models/ensemble/generate_stream"
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, context=512, seed=5)
        with Cluster(model, prefill=0, decode_args=["--local-prefill", "--max-batch-size", "4"],
                     router_args=["--max-beam-width", "6"]) as c:
            for path, more, field in (
                    (generate, {"stop_words": ["a"]}, "stop_words"), (stream, {}, "generate_stream"),
                    (generate, {"draft_input_ids": [5]}, "draft_input_ids"), (generate, {"top_k": 5}, "top_k"),
                    (generate, {"beam_width": 7}, "max-beam-width"), (generate, {"beam_width": 5}, "more beams than"),
                    (generate, {"beam_search_diversity_rate": 0.5}, "beam_search_diversity_rate"),
                    (generate, {"return_generation_logits": True}, "return_generation_logits"),
                    (generate, {"allowed_token_ids": [70, 71, 72]}, "allowed_token_ids"),
                    ("/v1/completions", {"stream": True}, "stream"), ("/v1/completions", {"temperature": 0.5}, "temperature")):
                body = dict(text_input="a", max_tokens=4, beam_width=2) if path.startswith("/v2") else dict(
                    prompt="a", max_tokens=4, use_beam_search=True, n=2)
                status, answer = c.post(path, dict(body, **more))
                assert status == 400 and field in json.dumps(answer), (path, more, status, answer)
            status, answer = c.post("/v2/models/ensemble/infer", {"inputs": [
                {"name": name, "datatype": kind, "shape": [20, 1], "data": [value] * 20}
                for name, kind, value in (("text_input", "BYTES", "a"), ("max_tokens", "INT32", 4), ("beam_width", "INT32", 4))]})
            assert status == 400 and "beam_width" in answer["error"] and "20 rows" in answer["error"], answer
            c.wait_idle()
    with tempfile.TemporaryDirectory() as d:  # models with windows share no blocks
        with Cluster(tiny_model(d, architecture="gemma3", layers=3, head_dim=24, window=40, context=512,
                                key="attention.sliding_window_pattern=p:101")) as c:
            status, answer = c.post(generate, dict(text_input="a", max_tokens=4, beam_width=2))
            assert status == 400 and "beam_width" in json.dumps(answer), answer


async def leave(c, body, seconds):
    """A client that goes away in the middle, or just before or behind the end."""
    s = Stream(c.http, "/v1/completions", body)
    task = asyncio.ensure_future(s.run())
    await asyncio.wait([task], timeout=seconds)
    if not task.done():
        s.writer.transport.abort() if s.writer else task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return s.status


def test_canceled_searches_leave_the_pool_empty():
    """200 searches of random widths and lengths, of which most are left at random moments; 10,000 with --long."""
    n = 10000 if os.environ.get("BATON_LONG") else 200
    draw = random.Random(7)

    async def one(c, room):
        async with room:
            body = dict(prompt="p" * draw.randint(1, 60), max_tokens=draw.randint(1, 40), use_beam_search=True,
                        n=draw.randint(2, 6), ignore_eos=True, length_penalty=draw.uniform(-2, 2),
                        early_stopping=draw.choice([True, False, "never"]))
            return await leave(c, body, draw.choice([0.001, 0.005, 0.02, 0.05, 5]))

    async def all_of(c):
        room = asyncio.Semaphore(8)
        return await asyncio.gather(*(one(c, room) for _ in range(n)))

    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=3, dim=96, heads=6, kv_heads=3, ffn=160, context=1024, seed=5)
        for way in ("local", "shm"):
            more = dict(WAYS[way])
            more["worker_args"] = more.get("worker_args", []) + ["--prefix-cache", "off"]
            with Cluster(model, **more) as c:
                statuses = asyncio.run(all_of(c))
                assert set(statuses) <= {0, 200} and statuses.count(200) > n // 20, statuses
                c.wait_idle()
                wait_until("every block is back", lambda: c.total("nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type="used") == 0)
