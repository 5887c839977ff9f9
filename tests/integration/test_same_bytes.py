# SPDX-License-Identifier: Apache-2.0
"""I1: the tokens of a request depend on the request and the model alone."""
import concurrent.futures
import os
import signal
import tempfile

from harness import Cluster, default_model, tiny_model, wait_until
from trace_lines import read

N_PROMPTS = 32
WAYS = {
    "shm": dict(worker_args=["--kv-transport", "shm"]),
    "tcp": dict(worker_args=["--kv-transport", "network"]),
    "local": dict(prefill=0, decode_args=["--local-prefill"]),
}
WORDS = ("the quick brown fox jumps over a lazy dog while seven wizards boxed "
         "quietly near an old stone bridge and counted every falling leaf").split()


def prompts():
    out = []
    for i in range(N_PROMPTS):
        n = 3 + (i * 37) % 150
        out.append(" ".join(WORDS[(i * 7 + j * (1 + i % 5)) % len(WORDS)] for j in range(n)))
    return out


def ask_all(c, texts, parallel, max_tokens):
    """[(greedy ids, seeded ids)] in the order of the prompts."""
    def one(job):
        i, seeded = job
        more = dict(temperature=0.9, top_p=0.95, top_k=40, seed=1000 + i) if seeded else dict(temperature=0)
        return c.complete(texts[i], max_tokens, patience=600, ignore_eos=True, **more)["token_ids"]

    jobs = [(i, s) for i in range(len(texts)) for s in (False, True)]
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(one, jobs))


def options(way, chunk, cache="off"):
    """Without the prefix cache, since what is found in it is not computed by chunks of this size."""
    more = {k: list(v) if isinstance(v, list) else v for k, v in WAYS[way].items()}
    more["worker_args"] = more.get("worker_args", []) + ["--chunk-tokens", str(chunk), "--prefix-cache", cache]
    more["decode_args"] = more.get("decode_args", []) + ["--max-batch-size", "16"]
    return more


def compare(model, ways, chunks, batches, max_tokens, kv_memory, texts):
    reference = None
    for way in ways:
        for chunk in chunks:
            with Cluster(model, kv_memory=kv_memory, **options(way, chunk)) as c:
                for parallel in batches:
                    got = ask_all(c, texts, parallel, max_tokens)
                    assert all(len(ids) == max_tokens for ids in got)
                    if reference is None:
                        reference = got
                    wrong = [i for i, (a, b) in enumerate(zip(reference, got)) if a != b]
                    assert not wrong, f"{way}, chunk {chunk}, {parallel} at a time: prompts {wrong} differ"
                c.wait_idle()
    # Not all the same answer, and seeds matter.
    assert len({tuple(ids) for ids in reference}) > N_PROMPTS


def test_same_bytes_of_a_small_model_on_every_path():
    """3 ways x 3 chunk sizes x alone and 16 at a time, 32 prompts greedy and
    seeded; a small random model, so that the whole matrix is quick."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=3, dim=96, heads=6, kv_heads=3, ffn=160, context=1024, seed=5)
        compare(model, ["shm", "tcp", "local"], [16, 64, 512], [1, 16], 12, "64m", prompts())


def sharing(c):
    """@return how many processes have memory that is a link's"""
    n = 0
    for process in c.processes:
        with open(f"/proc/{process.pid}/maps", encoding="utf-8") as f:
            n += "memfd:baton-link" in f.read()
    return n


def test_same_bytes_over_nng_and_shared_memory_links():
    """Shared memory on one side only is none."""
    texts = prompts()
    reference = None
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=3, dim=96, heads=6, kv_heads=3, ffn=160, context=1024, seed=5)
        for router, worker in (("auto", "auto"), ("nng", "nng"), ("auto", "nng"), ("nng", "auto")):
            more = options("shm", 64)
            more["worker_args"] += ["--link-transport", worker]
            with Cluster(model, kv_memory="64m", router_args=["--link-transport", router], **more) as c:
                got = ask_all(c, texts, 16, 12)
                reference = reference or got
                wrong = [i for i, (a, b) in enumerate(zip(reference, got)) if a != b]
                assert not wrong, f"router {router}, workers {worker}: {wrong} differ"
                wanted = 3 if router == worker == "auto" else 0
                wait_until(f"{wanted} processes share memory", lambda c=c, n=wanted: sharing(c) == n)
                c.wait_idle()


def compare_kv_type(kv_type):
    """Over shared memory and the network, by chunks of different sizes, alone and beside
    others, computed and from the prefix caches of both sides."""
    texts = prompts()
    reference = None
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=3, dim=96, heads=6, kv_heads=3, ffn=160, context=1024, seed=5)
        for way, chunk, parallel, cache in (("shm", 512, 16, "off"), ("tcp", 16, 4, "off"), ("shm", 64, 16, "on"),
                                            ("tcp", 64, 16, "on"), ("local", 64, 16, "off")):
            more = options(way, chunk, cache)
            more["worker_args"] += ["--kv-dtype", kv_type]
            with Cluster(model, kv_memory="64m", **more) as c:
                for again in range(2 if cache == "on" else 1):
                    got = ask_all(c, texts, parallel, 12)
                    reference = reference or got
                    wrong = [i for i, (a, b) in enumerate(zip(reference, got)) if a != b]
                    assert not wrong, f"{kv_type}, {way}, chunk {chunk}, cache {cache}, time {again}: {wrong} differ"
                c.wait_idle()
                if cache == "on":
                    wait_until("blocks reused", lambda: reused(c) > 0)
    assert len({tuple(ids) for ids in reference}) > len(texts)


def test_same_bytes_kv_in_f16():
    compare_kv_type("f16")


def test_same_bytes_kv_in_int8():
    compare_kv_type("int8")


def test_same_bytes_kv_in_fp8():
    compare_kv_type("fp8")


def test_same_bytes_with_the_prefix_cache():
    """Everything three times: found in the cache, beside others, and where memory is so short that it is evicted."""
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=3, dim=96, heads=6, kv_heads=3, ffn=160, context=1024, seed=5)
        system = " ".join(WORDS[i * 5 % len(WORDS)] for i in range(40)) + ". "
        texts = [(system if i % 2 else "") + text for i, text in enumerate(prompts())]
        with Cluster(model, kv_memory="64m", **options("shm", 64)) as c:
            reference = ask_all(c, texts, 16, 12)
            assert reused(c) == 0
        for way in WAYS:
            for kv_memory in ("64m", "3m"):
                with Cluster(model, kv_memory=kv_memory, **options(way, 64, "on")) as c:
                    before = 0
                    for parallel in (1, 16, 16):
                        assert ask_all(c, texts, parallel, 12) == reference, (way, kv_memory, parallel)
                        c.wait_idle()
                        wait_until(f"blocks reused, {way} {kv_memory}", lambda n=before: reused(c) > n)
                        before = reused(c)


def reused(c):
    return c.metric("nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type="reused")


def test_same_bytes_of_a_shared_queue():
    """A decode worker with --local-prefill takes some of many long prompts, beside its batch, the prefill worker the
    others; alone each of them goes to the prefill worker. That one is stopped until all are shared out, so that they
    queue up however fast it is."""
    texts = [" ".join(WORDS[(i * 7 + j * (1 + i % 5)) % len(WORDS)] for j in range(180)) for i in range(N_PROMPTS)]
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=3, dim=96, heads=6, kv_heads=3, ffn=160, context=2048, seed=7)
        more = options("shm", 64)
        more["decode_args"] += ["--local-prefill"]
        with Cluster(model, kv_memory="64m", **more) as c:
            reference = ask_all(c, texts[:4], 1, 12)
            c.wait_idle()
            assert c.metric("baton_kv_transfers_total") == len(reference)

            def asked():
                m = c.metrics()
                return sum(v for k, v in m.items() if k.startswith(("baton_requests_in_flight{",
                                                                    "baton_request_duration_seconds_count{")))

            before = asked()
            c.prefills[0].kill(signal.SIGSTOP)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                asking = pool.submit(ask_all, c, texts, 2 * N_PROMPTS, 12)
                try:
                    wait_until("all are asked", lambda: asked() == before + 2 * N_PROMPTS)
                finally:
                    c.prefills[0].kill(signal.SIGCONT)
                shared = asking.result()
            c.wait_idle()
            moved = c.metric("baton_kv_transfers_total") - len(reference)
        assert shared[:len(reference)] == reference
        assert 0 < moved < len(shared), moved
        assert all(len(ids) == 12 for ids in shared)


def test_same_bytes_with_cost_based_placement():
    """With --local-prefill auto some are computed where they generate and some are not, and without a prefill worker
    all of them there; what was computed before is found again."""
    texts = prompts()[:16]

    def ways(c):
        return {w: c.metric("baton_attempts_total", reason=reason) for w, reason in
                (("pair", "default"), ("weighed", "cost"), ("no_prefill", "no_prefill_worker"), ("relief", "queue"))}

    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=3, dim=96, heads=6, kv_heads=3, ffn=160, context=1024, seed=8)
        with Cluster(model, kv_memory="64m", **options("shm", 64)) as c:
            reference = ask_all(c, texts, 16, 12)
        more = options("shm", 64, cache="on")
        more["decode_args"] += ["--local-prefill=auto"]
        with Cluster(model, kv_memory="64m", **more) as c:
            # Nothing is measured yet, then the first transfer is: on an idle machine it is what is saved.
            assert ask_all(c, texts[:1], 1, 12) == reference[:2]
            assert ways(c)["pair"] > 0, ways(c)
            wait_until("what things take", lambda: c.total("baton_cost_model_step_seconds", work="transfer") > 0)
            wait_until("one that costs less there", lambda: ask_all(c, texts[:1], 1, 12) == reference[:2]
                       and ways(c)["weighed"] > 0)
            for _ in range(2):
                assert ask_all(c, texts, 16, 12) == reference
            assert ways(c)["relief"] == ways(c)["no_prefill"] == 0, ways(c)
            c.prefills[0].kill()
            assert ask_all(c, texts, 16, 12) == reference
            assert ways(c)["no_prefill"] > 0, ways(c)
            c.wait_idle()


def test_same_bytes_with_clients_leaving_at_any_time():
    """Whole transfers, chunks, and layers of the last chunk: blocks large enough that it leaves in groups of layers."""
    texts = prompts()[4:32:4]
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=8, dim=512, heads=8, kv_heads=8, ffn=512, context=1024, seed=6)
        answers, whole = [], 0
        for way, overlap in (("shm", "none"), ("shm", "chunks"), ("shm", "layers"), ("tcp", "layers")):
            trace = os.path.join(d, f"{way}-{overlap}.jsonl")
            with Cluster(model, kv_memory="512m", prefill_args=["--kv-overlap", overlap],
                         router_args=["--trace-file", trace], **options(way, 512)) as c:
                def ask(cluster=c, path=trace):
                    """@return the pieces that the KV of all of them left in"""
                    before = len(read(path))
                    answers.append(ask_all(cluster, texts, 2, 8))
                    cluster.wait_idle()
                    wait_until("the ledgers", lambda: len(read(path)) == before + 2 * len(texts))
                    return sum(line.a["baton.kv.descriptors"] for line in read(path)[before:])
                pieces = ask()
                if overlap == "chunks":
                    whole = pieces
                elif way == "shm" and overlap == "layers" and pieces <= 2 * whole:
                    # On a busy machine all layers may be there at the first look.
                    wait_until("layers left early", lambda n=whole: ask() > 2 * n, 120)
        assert all(a == answers[0] for a in answers), [a == answers[0] for a in answers]


def test_same_bytes_default_model():
    """The default model on a diagonal of the matrix (the whole in --long)."""
    model = default_model()
    texts = prompts()
    if os.environ.get("BATON_LONG"):
        compare(model, ["shm", "tcp", "local"], [16, 64, 512], [1, 16], 16, "512m", texts)
        return
    reference = []
    for way, chunk, parallel in (("shm", 512, 16), ("tcp", 16, 1), ("local", 64, 16)):
        with Cluster(model, kv_memory="512m", **options(way, chunk)) as c:
            reference.append(ask_all(c, texts, parallel, 12))
    assert reference[0] == reference[1] == reference[2]
