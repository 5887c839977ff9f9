# SPDX-License-Identifier: Apache-2.0
"""Prompt tables over HTTP, of real processes. A table made of the model's own embeddings is held against the token ids
themselves: the model computes the same numbers, so the answer and its logits are equal to the bit."""
import array
import concurrent.futures
import json
import struct
import tempfile

import split_model
from harness import PACED, Cluster, slow_model, tiny_model, wait_until
from test_draft_heads import head, target

F32, F16 = 0, 1  # types of GGUF
DTYPE = {F32: "FP32", F16: "FP16"}
SHAPE = dict(layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1)


def embeddings(path):
    """@return (ids of the vocabulary, datatype, bytes of a row, all rows)"""
    with open(path, "rb") as f:
        tensors = split_model.read(f.read())[2]
    dims, kind, data = next(t[1:] for t in tensors if t[0] == b"token_embd.weight")
    row = dims[0] * (4 if kind == F32 else 2)
    return dims[1], DTYPE[kind], row, data[:dims[1] * row]


def rows_of(model, ids, scale=None):
    """Rows of the model's own embeddings as a table. @return (datatype, bytes)"""
    _, dtype, row, data = embeddings(model)
    rows = b"".join(data[i * row:(i + 1) * row] for i in ids)
    if scale is not None:  # one multiplication in 32 bits, as the model's
        assert dtype == "FP32"
        values = array.array("f", rows)
        rows = array.array("f", [x * scale for x in values]).tobytes()
    return dtype, rows


def infer(c, tensors, outputs=(), path="/v2/models/tensorrt_llm/infer", wanted=200):
    """Sends raw tensors: (name, datatype, shape, bytes). @return {name: (shape, bytes)} or the error's text"""
    head = {"inputs": [{"name": n, "datatype": d, "shape": s, "parameters": {"binary_data_size": len(b)}}
                       for n, d, s, b in tensors]}
    if outputs:
        head["outputs"] = [{"name": n, "parameters": {"binary_data": True}} for n in outputs]
    head = json.dumps(head).encode()
    status, headers, data = c.request("POST", path, head + b"".join(t[3] for t in tensors),
                                      {"Inference-Header-Content-Length": str(len(head))}, timeout=120)
    assert status == wanted, (status, data[:500])
    if status != 200:
        return json.loads(data)["error"]
    n = int(headers.get("Inference-Header-Content-Length", len(data)))
    at, found = n, {}
    for out in json.loads(data[:n])["outputs"]:
        size = out["parameters"]["binary_data_size"]
        found[out["name"]] = (out["shape"], data[at:at + size])
        at += size
    return found


def ints(name, values, datatype="INT32"):
    code = {"INT32": "i", "UINT64": "Q"}[datatype]
    return (name, datatype, [1, len(values)], struct.pack(f"<{len(values)}{code}", *values))


def prompt(ids, n=8, **more):
    made = [ints("input_ids", ids), ints("input_lengths", [len(ids)]), ints("request_output_len", [n]), ints("end_id", [-1])]
    for name, value in more.items():
        made.append((name, "BOOL", [1, 1], bytes([value])) if isinstance(value, bool) else
                    (name, "FP32", [1, 1], struct.pack("<f", value)) if isinstance(value, float) else ints(name, [value]))
    return made


def table(dtype, rows, n, width, size=None):
    return [("prompt_embedding_table", dtype, [1, n, width], rows), ints("prompt_vocab_size", [n if size is None else size])]


def answer(c, tensors):
    """@return (new ids, logits that they come from)"""
    got = infer(c, tensors, ["output_ids", "generation_logits"])
    return struct.unpack(f"<{len(got['output_ids'][1]) // 4}i", got["output_ids"][1]), got["generation_logits"][1]


ASKS = dict(exclude_input_in_output=True, return_generation_logits=True)


def check_equal(c, model, ids, places, n=8, scale=None, **more):
    """The tokens at these places as rows of a table: one row for each token, though it stands there twice."""
    n_vocab, _, row, _ = embeddings(model)
    width = row // (2 if embeddings(model)[1] == "FP16" else 4)
    distinct = sorted({ids[i] for i in places})
    dtype, rows = rows_of(model, distinct, scale)
    asked = [n_vocab + distinct.index(x) if i in places else x for i, x in enumerate(ids)]
    want = answer(c, prompt(ids, n, **ASKS, **more))
    got = answer(c, prompt(asked, n, **ASKS, **more) + table(dtype, rows, len(distinct), width))
    assert len(want[0]) == n and want[1], want[0]
    assert got == want, (places, got[0], want[0])
    return got


IDS = [(7 * i * i + 11 * i) % 250 + 3 for i in range(90)]
PLACES = [[0], [len(IDS) - 1], list(range(len(IDS))), list(range(20, 55)), [3, 17, 18, 89]]


def test_rows_of_the_model_are_its_tokens():
    for kind in ("F32", "F16"):
        with tempfile.TemporaryDirectory() as d:
            model = tiny_model(d, embedding_type=kind, **SHAPE)
            with Cluster(model) as c:
                for places in PLACES:
                    check_equal(c, model, IDS, places)
                    # Drawn with all that looks at the prompt's tokens but does not count them.
                    check_equal(c, model, IDS, places, temperature=0.8, random_seed=5, runtime_top_k=20)
                c.wait_idle()


def test_scaled_embeddings_and_learned_positions():
    for arch, scale, more in (("gemma", 8.0, dict(kv_heads=4, tied=True)), ("gpt2", None, dict(kv_heads=4))):
        with tempfile.TemporaryDirectory() as d:
            model = tiny_model(d, architecture=arch, embedding_type="F32", **dict(SHAPE, **more))
            with Cluster(model) as c:
                for places in PLACES[:3]:
                    check_equal(c, model, IDS, places, scale=scale)


def test_chunks_cut_the_rows_anywhere():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, embedding_type="F32", **SHAPE)
        answers = set()
        for args in (["--max-num-tokens", "64", "--tokens-per-block", "16"], ["--max-num-tokens", "16", "--tokens-per-block", "16"], []):
            with Cluster(model, worker_args=args) as c:
                answers.add(check_equal(c, model, IDS, list(range(10, 70))))
        assert len(answers) == 1, "the size of chunks changed the answer"


def test_ranks_and_stages_compute_rows():
    """The first rank alone has the table. Embeddings are a sum over ranks, each with its words, and rows are in it."""
    for arch, scale, more in (("llama", None, {}), ("gemma", 8.0, dict(kv_heads=4, tied=True))):
        with tempfile.TemporaryDirectory() as d:
            model = tiny_model(d, architecture=arch, embedding_type="F32", **dict(SHAPE, **more))
            answers = set()
            for prefill, decode in (((2, 1), (1, 1)), ((1, 2), (2, 1)), ((2, 2), (1, 2))):
                with Cluster(model, worker_args=["--reduction-parts", "2", "--chunk-tokens", "16"],
                             prefill_args=["--tp", str(prefill[0]), "--pp", str(prefill[1])],
                             decode_args=["--tp", str(decode[0]), "--pp", str(decode[1])]) as c:
                    answers.add(check_equal(c, model, IDS, PLACES[3], scale=scale))
                    check_equal(c, model, IDS, PLACES[1], scale=scale)
                    c.wait_idle()
            assert len(answers) == 1, "ranks changed the answer"


def ask(c, asked, tensors):
    """@return (the answer, blocks of the prompt that were not computed again)"""
    got = infer(c, prompt(asked, 6, return_kv_cache_reuse_stats=True, **ASKS) + tensors,
                ["output_ids", "generation_logits", "kv_cache_reused_blocks"])
    return (got["output_ids"][1], got["generation_logits"][1]), struct.unpack("<i", got["kv_cache_reused_blocks"][1])[0]


def test_beams_and_drafts_with_rows():
    """A search's beams begin behind the rows, and no drafter drafts one."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, embedding_type="F32", **SHAPE)
        for args in ([], ["--draft", "self"]):
            with Cluster(model, decode_args=args) as c:
                for places in (PLACES[1], PLACES[3]):
                    check_equal(c, model, IDS, places, n=24)
                    ids = [x if i % 9 else 40 for i, x in enumerate(IDS)]  # n-grams that come again, of rows too
                    check_equal(c, model, ids[:30] * 3, places, n=24)
                if not args:
                    n_vocab, dtype, row, _ = embeddings(model)
                    ids = [n_vocab + i - 20 if 20 <= i < 55 else x for i, x in enumerate(IDS)]
                    tensors = table(dtype, rows_of(model, IDS[20:55])[1], 35, row // 4)
                    want = infer(c, prompt(IDS, 8, beam_width=3, exclude_input_in_output=True), ["output_ids"])
                    got = infer(c, prompt(ids, 8, beam_width=3, exclude_input_in_output=True) + tensors, ["output_ids"])
                    assert got == want and want["output_ids"][0][:2] == [1, 3], (got, want)
                c.wait_idle()


def test_draft_models_and_heads_are_not_shown_rows():
    """They have no such rows, and one that is shown an id that it does not have drafts nothing any more."""
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as other, tempfile.TemporaryDirectory() as third:
        model = target(d, embedding_type="F32")
        n_vocab, dtype, row, _ = embeddings(model)
        rows = prompt([n_vocab + i for i in range(len(IDS))], 24, **ASKS) + table(dtype, rows_of(model, IDS)[1], len(IDS), row // 4)
        for drafts in (["--draft-model", target(third, layers=1, seed=8)], ["--draft-model", head(other)]):
            for path in (dict(decode_args=drafts), dict(prefill=0, decode_args=["--local-prefill"] + drafts)):
                path["decode_args"] += ["--draft-tokens", "4"]
                with Cluster(model, **path) as c:
                    got = answer(c, rows)
                    assert got == answer(c, prompt(IDS, 24, **ASKS)) == answer(c, rows)
                    wait_until("the plain one has drafts", lambda c=c: c.total("baton_spec_decode_draft_tokens_total", source="model") > 0)
                    c.wait_idle()


def test_large_tables_are_counted_and_given_back():
    """Sixteen at a time, of 6.9 MiB each: all answers are those of one alone, or the server says that it has no memory."""
    with tempfile.TemporaryDirectory() as d, concurrent.futures.ThreadPoolExecutor(16) as pool:
        model = tiny_model(d, embedding_type="F32", **SHAPE)
        n_vocab, dtype, row, _ = embeddings(model)
        n = (6900 << 10) // row
        ids = [n_vocab + n - 1 - i for i in range(20)]
        tensors = prompt(ids, 8, **ASKS) + table(dtype, rows_of(model, [(7 * i) % 250 for i in range(n)])[1], n, row // 4)
        with Cluster(model, router_args=["--http-memory", "64m", "--max-body-bytes", "16m"], decode_args=PACED) as c:
            want = answer(c, tensors)

            def one(_):
                head = {"inputs": [{"name": n, "datatype": t, "shape": s, "parameters": {"binary_data_size": len(b)}}
                                   for n, t, s, b in tensors], "outputs": [{"name": "output_ids", "parameters": {"binary_data": True}}]}
                head = json.dumps(head).encode()
                status, _, data = c.request("POST", "/v2/models/tensorrt_llm/infer", head + b"".join(t[3] for t in tensors),
                                            {"Inference-Header-Content-Length": str(len(head))}, timeout=120)
                assert status in (200, 429, 503), (status, data[:300])
                return status, data[-32:]

            got = list(pool.map(one, range(48)))
            assert {x[1] for x in got if x[0] == 200} == {struct.pack("<8i", *want[0])}, "an answer is another one's"
            assert answer(c, tensors) == want
            long = tensors[:2] + [ints("request_output_len", [150])] + tensors[3:]
            running = pool.submit(answer, c, long)
            wait_until("the table is counted while its answer is made", lambda: c.total("baton_http_memory_bytes") >= len(tensors[-2][3]))
            assert len(running.result(120)[0]) == 150
            wait_until("all memory is given back", lambda: c.total("baton_http_memory_bytes") < 1 << 20)
            c.wait_idle()


def check_cached(c, asked, tensors, want):
    """Asks again until the workers have put the blocks of the request before into their caches."""
    def is_cached():
        got, n = ask(c, asked, tensors)
        assert got == want and n in (0, len(asked) // 16), n
        return n > 0
    wait_until("the prompt is cached", is_cached)


def test_equal_tables_share_kv_and_others_do_not():
    """Another table differs in one bit of one number, and one has a further row, which no id is of."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, embedding_type="F32", **SHAPE)
        n_vocab, dtype, row, _ = embeddings(model)
        ids = [n_vocab + i % 3 if 30 <= i < 60 else x for i, x in enumerate(IDS)]
        rows = rows_of(model, [5, 6, 7])[1]
        other = table(dtype, rows[:6] + bytes([rows[6] ^ 0x40]) + rows[7:], 3, row // 4)
        rows = table(dtype, rows, 3, row // 4)
        longer = table(dtype, rows[0][3] + rows[0][3][:row], 4, row // 4)
        extra = rows + [ints("prompt_table_extra_ids", [9] * len(ids), "UINT64")]
        plain = [[5, 6, 7][i % 3] if 30 <= i < 60 else x for i, x in enumerate(IDS)]
        with Cluster(model) as c:
            first, n = ask(c, ids, rows)
            assert n == 0, n
            check_cached(c, ids, rows, first)
            changed, n = ask(c, ids, other)
            assert n == 0 and changed[1] != first[1], n
            for asked, tensors in ((ids, longer), (ids, extra), (plain, [])):
                got, n = ask(c, asked, tensors)
                assert n == 0 and got == first, n
                check_cached(c, asked, tensors, first)
            check_cached(c, ids, other, changed)
            check_cached(c, ids, rows, first)


def test_echo_has_the_ids_of_the_client():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, embedding_type="F32", **SHAPE)
        n_vocab, dtype, row, _ = embeddings(model)
        ids = [5, n_vocab, n_vocab + 1, n_vocab, 9]
        with Cluster(model) as c:
            got = infer(c, prompt(ids, 4, exclude_input_in_output=False) + table(dtype, rows_of(model, [7, 8])[1], 2, row // 4), ["output_ids", "sequence_length"])
            out = struct.unpack("<9i", got["output_ids"][1])
            assert list(out[:5]) == ids and max(out[5:]) < n_vocab, out


def test_rows_count_for_no_penalty_and_no_banned_word():
    """A prompt whose most probable next token is in it: as tokens a penalty takes it away, as rows it does not. So with a
    banned word that begins as the prompt ends."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, embedding_type="F32", **SHAPE)
        n_vocab, dtype, row, _ = embeddings(model)

        def first(ids, *more, **options):
            got = infer(c, prompt(ids, 1, exclude_input_in_output=True, **options) + list(more), ["output_ids"])
            return struct.unpack("<i", got["output_ids"][1])[0]

        def as_rows(ids):
            return [n_vocab + i for i in range(len(ids))], table(dtype, rows_of(model, ids)[1], len(ids), row // 4)

        with Cluster(model) as c:
            ids = next(x for x in (IDS[i:] for i in range(60)) if first(x) in x)
            best = first(ids)
            asked, rows = as_rows(ids)
            word = ("bad_words_list", "INT32", [1, 2, 2], struct.pack("<4i", ids[-1], best, 2, -1))
            again = ints("no_repeat_ngram_size", [1])
            for more, options in (([], dict(repetition_penalty=100.0)), ([], dict(presence_penalty=100.0)), ([word], {}), ([again], {})):
                assert first(ids, *more, **options) != best, (more, options)
                assert first(asked, *rows, *more, **options) == best, (more, options)


def test_tables_that_do_not_fit_are_refused():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, embedding_type="F32", **SHAPE)
        n_vocab, dtype, row, _ = embeddings(model)
        rows, width = rows_of(model, [7, 8])[1], row // 4
        ids = [5, n_vocab, n_vocab + 1]
        nan = rows[:4] + struct.pack("<f", float("nan")) + rows[8:]
        cases = [
            (ids, table(dtype, rows, 2, width)[:1], "needs the input 'prompt_vocab_size'"),
            (ids, table(dtype, rows, 2, width)[1:], "needs the input 'prompt_embedding_table'"),
            (ids, table(dtype, rows, 2, width, size=3), "is 3, but prompt_embedding_table has 2 rows"),
            (ids + [n_vocab + 2], table(dtype, rows, 2, width), f"ids 0 to {n_vocab - 1}, and prompt_embedding_table those up to {n_vocab + 1}"),
            (ids, table(dtype, rows, 4, width // 2), f"rows of {width // 2} elements; embeddings of model tiny have {width}"),
            (ids, table(dtype, nan, 2, width), "has a number that is not finite"),
            (ids, table("FP64", rows, 1, width), "must be FP16, BF16 or FP32, got FP64"),
            (ids, table("FP16", bytes(8 << 20), (8 << 20) // 2 // width, width), "a table may have up to 7340032"),
            (ids, [], f"this model has ids 0 to {n_vocab - 1}"),
        ]
        with Cluster(model, router_args=["--max-body-bytes", "16m"]) as c:
            for asked, tensors, why in cases:
                said = infer(c, prompt(asked) + tensors, wanted=400)
                assert why in said, (said, why)
            c.wait_idle()


def busy(c, role):
    """@return the process of a worker that has accepted a request"""
    return next((p for p in c.processes if p.role == role and p.alive()
                 and c.total("baton_worker_active_requests", worker=p.name) > 0), None)


def test_workers_that_die_change_nothing():
    """Their requests are run again by the router, which has kept the table."""
    with tempfile.TemporaryDirectory() as d, concurrent.futures.ThreadPoolExecutor(1) as pool:
        model = slow_model(d, embedding_type="F32")
        n_vocab, dtype, row, _ = embeddings(model)
        ids = [n_vocab + i % 7 if i % 3 else x for i, x in enumerate(IDS * 4)]
        tensors = prompt(ids, 100, **ASKS) + table(dtype, rows_of(model, range(10, 17))[1], 7, row // 4)
        with Cluster(model, prefill=2, decode=2, prefill_args=["--chunk-tokens", "16", "--simulate-step-us", "100000"], decode_args=PACED) as c:
            want = answer(c, tensors)
            for n, role in enumerate(("decode", "prefill")):
                wait_until("nobody has any", lambda: not busy(c, "decode") and not busy(c, "prefill"))
                running = pool.submit(answer, c, tensors[:3] + [ints("random_seed", [n])] + tensors[3:])
                wait_until(f"a {role} worker has it", lambda r=role: busy(c, r)).kill()
                assert running.result(120) == want, f"the death of the {role} worker changed the answer"
            assert c.total("baton_retries_total") >= 1


def test_paused_sequences_compute_their_rows_again():
    """At the decode worker, which has the table, too: its pool has room for three of eight, and nothing is cached."""
    with tempfile.TemporaryDirectory() as d, concurrent.futures.ThreadPoolExecutor(8) as pool:
        model = tiny_model(d, embedding_type="F32", **dict(SHAPE, context=1024))
        n_vocab, dtype, row, _ = embeddings(model)
        ids = [n_vocab + i % 7 if i % 3 else x for i, x in enumerate(IDS[:48])]
        tensors = prompt(ids, 160, **ASKS) + table(dtype, rows_of(model, range(10, 17))[1], 7, row // 4)
        small = ["--scheduler-policy", "max_utilization", "--kv-tokens", "640", "--max-batch-size", "8"]
        with Cluster(model, worker_args=["--prefix-cache", "off"], decode_args=small + PACED) as c:
            want = answer(c, tensors)
            assert list(pool.map(lambda _: answer(c, tensors), range(8))) == [want] * 8
            wait_until("the pauses are counted", lambda: c.total("baton_worker_recomputed_tokens_total") > 0)
