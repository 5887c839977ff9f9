# SPDX-License-Identifier: Apache-2.0
"""A job of several routers and of instances whose ranks are on several nodes. usage: BATON_BUILD=… test_layouts.py"""
import json
import os
import sys
import tempfile

from slurm_jobs import Job, Load, SlurmCluster, run_tests

from harness import Cluster, tiny_model

WORDS = "the quick brown fox jumps over a lazy dog while seven wizards boxed quietly near an old stone bridge".split()
N_REQUESTS = 200


def model_of(directory):
    return tiny_model(directory, layers=3, dim=96, heads=8, kv_heads=4, head_dim=16, ffn=160, context=1024, seed=5)


def bodies(n):
    """Prompts of 3 to 150 words, every second drawn with a seed of its own."""
    out = []
    for i in range(n):
        words = [WORDS[(i * 7 + j * (1 + i % 5)) % len(WORDS)] for j in range(3 + i * 37 % 148)]
        body = dict(prompt=f"{i} " + " ".join(words), max_tokens=12, ignore_eos=True, return_token_ids=True, temperature=0)
        if i % 2 == 1:
            body.update(temperature=0.9, top_p=0.95, top_k=40, seed=1000 + i)
        out.append(body)
    return out


def answers_on_one_machine(model, asked, prefill_tp, decode_tp, sum_parts):
    more = ["--sum-parts", str(sum_parts)]
    with Cluster(model, prefill=2, decode=2, kv_memory="64m", worker_args=more,
                 prefill_args=["--tp", str(prefill_tp)], decode_args=["--tp", str(decode_tp)]) as c:
        got = []
        for body in asked:
            status, answer = c.post("/v1/completions", body)
            assert status == 200, (status, answer)
            got.append(answer["choices"][0]["token_ids"])
    return got


def sent_by(cluster, node):
    """Bytes, of all that it sent."""
    return int(cluster.on(node, "cat", "/sys/class/net/eth0/statistics/tx_bytes"))


def peers_of(cluster, node):
    """Addresses that it has connections to."""
    lines = cluster.on(node, "ss", "-Htn", "state", "established").split("\n")
    return {line.split()[3].rsplit(":", 1)[0] for line in lines if line}


def test_two_routers_and_ranks_on_four_nodes():
    """200 requests, through both: the same tokens as of the same layout on one machine. KV goes rank to rank over the
    network, and nothing is left when the job is cancelled."""
    asked = bodies(N_REQUESTS)
    with tempfile.TemporaryDirectory() as d, SlurmCluster(4) as cluster:
        model = model_of(d)
        want = answers_on_one_machine(model, asked, 2, 1, 2)
        assert len({tuple(ids) for ids in want}) > N_REQUESTS / 2
        job = Job(cluster, model, "-N4", ROUTERS="2", PREFILL="2", PREFILL_TP="2", DECODE="2", RANKS_PER_NODE="1")
        job.wait_ready()
        assert len(job.routers()) == 2 and len(set(job.routers())) == 2, job.routers()
        ranks = {node: len(cluster.pids(node, "^[^ ]*/baton-prefill-worker .*--tp=2")) for node in cluster.nodes}
        assert ranks == dict.fromkeys(cluster.nodes, 1), ranks
        # n4 has rank 1 of prefill-1 alone
        begin = sent_by(cluster, "n4")

        got = Load(job, asked, parallel=8, repeat=False).end()
        wrong = [a for a in got if a.get("ids") != want[a["i"]]]
        assert not wrong, f"{len(wrong)} of {len(got)} differ, as {json.dumps(wrong[0])}, not {want[wrong[0]['i']]}"
        assert len(got) == N_REQUESTS
        assert {a["router"] for a in got} == {0, 1}
        handed = [job.metric(router, "baton_kv_transfers_total") for router in job.routers()]
        assert sum(handed) == N_REQUESTS, handed
        assert job.said("prefill-1: KV goes to decode-0 by network") and job.said("prefill-1: KV goes to decode-1 by network")
        decoders = {"10.77.0.11", "10.77.0.12"}
        assert decoders < peers_of(cluster, "n4"), "rank 1 of prefill-1 has no connection to them"
        kv = sum(job.metric(router, "baton_kv_transfer_bytes_total") for router in job.routers())
        sent = sent_by(cluster, "n4") - begin
        print(f"KV of all: {kv / 1e6:.1f} MB; the second rank of one instance sent {sent / 1e6:.1f} MB over the network")
        assert sent > kv / 16, (sent, kv)

        job.cancel()
        job.wait_said("baton.sbatch: stopped", seconds=40)
        assert job.said("router-0: ended with 0") and job.said("router-1: ended with 0")
        job.wait_gone()
        cluster.wait_for_nodes()


if __name__ == "__main__":
    tests = [test_two_routers_and_ranks_on_four_nodes]
    sys.exit(run_tests([t for t in tests if all(w in t.__name__ for w in sys.argv[1:])]))
