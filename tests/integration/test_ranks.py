# SPDX-License-Identifier: Apache-2.0
"""Instances of several ranks: every layout of both sides, and what becomes of one whose rank ends or stops."""
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading

from hosts import Network
from harness import PACED, Cluster, Skip, UnprovenCluster, children_of, is_there, slow_model, tiny_model, wait_until
from test_same_bytes import ask_all, options, prompts, reused

TEXTS = prompts()[::4]


def model_of(directory):
    return tiny_model(directory, layers=3, dim=96, heads=8, kv_heads=4, head_dim=16, ffn=160, context=1024, seed=5)


def split(text):
    """"2x3" = 2 ranks of each of 3 stages. @return (tp, pp)"""
    tp, _, pp = str(text).partition("x")
    return int(tp), int(pp or 1)


def n_ranks(text):
    tp, pp = split(text)
    return tp * pp


def layout(prefill, decode, way="shm", chunk=64, cache="off", more_workers=()):
    more = options(way, chunk, cache)
    more["worker_args"] += list(more_workers)
    for side, ranks in (("prefill_args", prefill), ("decode_args", decode)):
        tp, pp = split(ranks)
        more[side] = more.get(side, []) + ["--tp", str(tp), "--pp", str(pp)]
    return more


def check_layouts(cases, sum_parts):
    """Each (prefill, decode, way, chunk, parallel, cache) gives what the first one does, and leaves no rank behind."""
    with tempfile.TemporaryDirectory() as d:
        model = model_of(d)
        want = None
        for prefill, decode, way, chunk, parallel, cache in cases:
            more = layout(prefill, decode, way, chunk, cache, ["--reduction-parts", str(sum_parts)])
            with Cluster(model, kv_memory="64m", **more) as c:
                ranks = [pid for worker in c.prefills + c.decodes for pid in children_of(worker.pid)]
                assert len(ranks) == (0 if way == "local" else n_ranks(prefill) - 1) + n_ranks(decode) - 1, ranks
                for _ in range(2 if cache == "on" else 1):
                    got = ask_all(c, TEXTS, parallel, 12)
                    want = want or got
                    wrong = [i for i, (a, b) in enumerate(zip(want, got)) if a != b]
                    assert not wrong, f"{prefill} to {decode}, {way}, chunks of {chunk}: {wrong} differ"
                c.wait_idle()
                if cache == "on":
                    wait_until("blocks reused", lambda c=c: reused(c) > 0)
            wait_until("no rank is left", lambda ranks=ranks: not any(is_there(pid) for pid in ranks))
        assert len({tuple(ids) for ids in want}) > len(TEXTS)


def test_every_rank_layout_gives_the_same_bytes():
    """With the same --reduction-parts it does not matter how many ranks either side has: by shared memory and the network, in
    small chunks and large, alone and beside others, computed and found in the prefix cache."""
    check_layouts((
        (1, 1, "shm", 512, 8, "off"), (1, 2, "shm", 16, 4, "on"), (1, 2, "tcp", 64, 8, "off"),
        (2, 1, "tcp", 16, 4, "on"), (2, 1, "shm", 64, 8, "off"), (2, 2, "shm", 64, 8, "on"),
        (2, 2, "local", 16, 8, "on"), (4, 2, "tcp", 64, 8, "off"), (2, 4, "shm", 512, 4, "off"),
        (4, 1, "shm", 16, 8, "off"), (1, 4, "tcp", 512, 1, "off")), 4)


def test_pipeline_stages_give_the_same_bytes():
    """Layers in stages on either side, of one rank and of several."""
    check_layouts((
        ("1x1", "1x1", "shm", 512, 8, "off"), ("1x1", "1x2", "shm", 64, 8, "on"), ("1x2", "1x1", "tcp", 16, 4, "off"),
        ("1x2", "2x2", "shm", 512, 8, "on"), ("2x2", "1x2", "tcp", 64, 4, "off"), ("1x1", "1x3", "local", 64, 8, "on")), 2)


def test_ranks_hand_over_blocks_with_scales():
    with tempfile.TemporaryDirectory() as d:
        model = model_of(d)
        want = None
        for prefill, decode, way in ((2, 2, "local"), (1, 2, "shm"), (2, 1, "tcp")):
            more = layout(prefill, decode, way, 64, "off", ["--kv-dtype", "int8", "--reduction-parts", "2"])
            with Cluster(model, kv_memory="64m", **more) as c:
                got = ask_all(c, TEXTS, 8, 12)
                want = want or got
                wrong = [i for i, (a, b) in enumerate(zip(want, got)) if a != b]
                assert not wrong, f"tp {prefill} to {decode}, {way}: {wrong} differ"
                c.wait_idle()


def over_two_interfaces(net, model, decode, check, kind=Cluster):
    """Two ranks on host a hand over to `decode` of them on host b, where all have eth0 and eth1 in turn."""
    more = layout(2, decode, "tcp", 512, "off", ["--reduction-parts", "2"])
    for side in ("prefill_args", "decode_args"):
        more[side] += ["--kv-net-devices", "eth0,eth1"]
    with kind(model, kv_memory="256m", hosts=net.hosts[:1], decode_hosts=net.hosts[1:], **more) as c:
        check(c)


def test_each_rank_transfers_kv_on_its_own_interface():
    """KV of two ranks to two crosses both interfaces at a time, half of it each. One rank has one interface, which the
    second of two does not reach: that is said, by name."""
    prompt = [3 + k % 250 for k in range(4000)]

    def halves(c):
        before = [net.received_bytes(net.hosts[1], f"eth{k}") for k in range(2)]
        c.complete(prompt, 4, temperature=0, ignore_eos=True)
        got = [net.received_bytes(net.hosts[1], f"eth{k}") - before[k] for k in range(2)]
        kv = c.total("baton_kv_transfer_bytes_total")
        assert sum(got) > kv > 8e6, (got, kv)
        assert 0.4 < got[0] / sum(got) < 0.6, got

    def refused(c):
        wait_until("it is named", c.unreachable)
        assert c.ready() == 503
        assert c.unreachable()[0]["text"].startswith("prefill-0 cannot reach decode-0 at 10.78.0.2:"), c.unreachable()
        assert "this process uses interface eth1, but its peer is reached over eth0: see --kv-net-devices" in c.prefills[0].log()

    with tempfile.TemporaryDirectory() as d, Network("a", "b", interfaces=2) as net:
        model = tiny_model(d, layers=4, dim=64, heads=8, kv_heads=8, head_dim=64, ffn=64, context=4096, seed=5)
        over_two_interfaces(net, model, 2, halves)
        over_two_interfaces(net, model, 1, refused, UnprovenCluster)


def test_every_pair_of_layouts_with_long():
    """{1, 2, 4} ranks x {1, 2} stages on either side."""
    if not os.environ.get("BATON_LONG"):
        raise Skip("36 clusters; with --long")
    layouts = [f"{tp}x{pp}" for tp in (1, 2, 4) for pp in (1, 2)]
    check_layouts([(prefill, decode, ("shm", "tcp")[i % 2], (16, 64, 512)[i % 3], 8, "off")
                   for i, (prefill, decode) in enumerate(itertools.product(layouts, layouts))], 4)


def test_pipeline_stages_with_attention_windows_give_the_same_bytes():
    """Of its six groups of one layer each a stage has three, and none of the others."""
    ids = [[3 + (k * k * (i + 1) + 7 * k) % 250 for k in range(700)] for i in range(3)]
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, architecture="gemma3", layers=6, kv_heads=2, heads=4, dim=64, head_dim=16, context=1024,
                           window=64, seed=44)
        want = None
        for prefill, decode, way in (("1x1", "1x1", "shm"), ("1x1", "1x2", "shm"), ("1x2", "1x1", "tcp"), ("2x2", "1x4", "shm")):
            more = layout(prefill, decode, way, 32, "off", ["--reduction-parts", "2", "--kv-dtype", "int8"])
            with Cluster(model, kv_memory="64m", **more) as c:
                got = [c.complete(p, 12, temperature=0, ignore_eos=True)["token_ids"] for p in ids]
                want = want or got
                assert got == want, f"{prefill} to {decode}, {way}"
                wait_until("blocks slid", lambda c=c: c.total("baton_kv_blocks_window_evicted_total") > 0)
                c.wait_idle()


def disturb(c, worker, sig):
    """A rank gets a signal in the middle of an answer. @return the answer, and that of nobody being disturbed"""
    ask = dict(temperature=0, ignore_eos=True, patience=120)
    want = c.complete("in the middle of it", 200, **ask)["token_ids"]
    answers = []
    client = threading.Thread(
        target=lambda: answers.append(c.complete("in the middle of it", 200, **ask)["token_ids"]))
    before = c.total("baton_generation_tokens_total")
    client.start()
    wait_until("it generates", lambda: c.total("baton_generation_tokens_total") > before + 20)

    def busy_ones():
        return [w for w in worker if c.metric("baton_worker_active_requests", worker=w.name) > 0]

    wait_until("one worker has it", lambda: len(busy_ones()) == 1)
    busy = busy_ones()
    pid = children_of(busy[0].pid)[-1]  # of the last stage
    os.kill(pid, sig)
    wait_until("its instance ends", lambda: not busy[0].alive())
    wait_until("so does the rank", lambda: not is_there(pid))
    client.join()
    return answers[0], want


def check_loss(sig, decode):
    with tempfile.TemporaryDirectory() as d:
        model = slow_model(d)
        with Cluster(model, decode=2, kv_memory="64m", silence=(1500, 3000),
                     **layout(1, decode, more_workers=["--reduction-parts", "2", *PACED])) as c:
            got, want = disturb(c, c.decodes, sig)
            assert got == want
            c.wait_idle()


def test_dead_rank_ends_its_instance_but_no_request():
    check_loss(signal.SIGKILL, 2)


def test_dead_stage_ends_its_instance_but_no_request():
    check_loss(signal.SIGKILL, "1x2")


def test_stopped_stage_rank_ends_its_instance_but_no_request():
    check_loss(signal.SIGSTOP, "2x2")


def starve(pid):
    """Only one core for a process, which eight others share. @return them"""
    core = {min(os.sched_getaffinity(0))}
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), core)
    os.setpriority(os.PRIO_PROCESS, pid, 19)
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.setpriority(os.PRIO_PROCESS, int(thread), 19)
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    for hog in hogs:
        os.sched_setaffinity(hog.pid, core)
    return hogs


def test_starved_rank_zero_ends_without_error_when_it_is_stopped():
    """Its ranks end while it still closes its own part: once it took that for a failure."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(model_of(d), kv_memory="64m", **layout(1, "2x2", more_workers=["--reduction-parts", "2"])) as c:
            c.complete("a b c", 6, temperature=0, ignore_eos=True)
            c.wait_idle()
            hogs = starve(c.decodes[0].pid)
            try:
                codes = c.stop(300)
            finally:
                for hog in hogs:
                    hog.kill()
                    hog.wait()
            assert not any(codes.values()), codes


def many(prefill, decode, way="shm"):
    """So many seats that an instance's sequences go through its stages in lots, of 16 and more."""
    more = layout(prefill, decode, way, 64, "off", ["--reduction-parts", "2"])
    more["decode_args"] += ["--max-batch-size", "64"]
    return more


def test_microbatches_of_many_sequences_give_the_same_bytes():
    with tempfile.TemporaryDirectory() as d:
        model = model_of(d)
        want = None
        for prefill, decode, way in (("1x1", "1x1", "shm"), ("1x2", "1x2", "shm"), ("1x1", "2x2", "tcp"), ("1x1", "1x3", "local")):
            with Cluster(model, kv_memory="64m", **many(prefill, decode, way)) as c:
                got = ask_all(c, prompts(), 64, 40)
                want = want or got
                wrong = [i for i, (a, b) in enumerate(zip(want, got)) if a != b]
                assert not wrong, f"{prefill} to {decode}, {way}: {wrong} differ"
                c.wait_idle()


def test_dead_stage_with_microbatches_in_flight_fails_no_request():
    with tempfile.TemporaryDirectory() as d, \
            Cluster(slow_model(d), decode=2, kv_memory="256m", silence=(1500, 3000), **many(1, "1x2")) as c:
        texts = [text[:60] for text in prompts()]
        want = ask_all(c, texts, 64, 24)
        answers = []
        client = threading.Thread(target=lambda: answers.append(ask_all(c, texts, 64, 24)))
        before = c.total("baton_generation_tokens_total")
        client.start()
        wait_until("they generate", lambda: c.total("baton_generation_tokens_total") > before + 300, 60)
        pid = children_of(c.decodes[0].pid)[-1]
        os.kill(pid, signal.SIGKILL)
        wait_until("its instance ends", lambda: not c.decodes[0].alive())
        client.join()
        assert answers[0] == want
        c.wait_idle()


def test_unshardable_model_is_refused_by_name():
    with tempfile.TemporaryDirectory() as d:
        model = tiny_model(d, layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1)
        for args, why in ((["--tp", "3"], "over 3 ranks: the model has 2 KV heads"),
                          (["--pp", "3"], "over 3 stages: the model has 2 layers"),
                          (["--tp", "2", "--pp", "9"], "18 ranks (--tp 2 x --pp 9) are asked for; an instance has 16")):
            c = Cluster(model, prefill=0, decode_args=["--local-prefill", *args])
            try:
                c.start_router()
                worker = c.start_worker("decode", 0)
                wait_until("it ends", lambda worker=worker: not worker.alive())
                assert why in worker.log(), worker.log()
            finally:
                c.stop()
