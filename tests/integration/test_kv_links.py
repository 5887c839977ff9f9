# SPDX-License-Identifier: Apache-2.0
"""Ready means that a request would be answered: KV can go from prefill to decode workers, by a link that has been proven.

Control messages go over eth0 and KV over eth1, whose path between two hosts is blocked as by a firewall that drops."""
import contextlib
import json
import tempfile
import threading

from harness import UnprovenCluster, small_model, wait_until
from hosts import Network

SILENCE = (4000, 5000)  # milliseconds: suspect, dead; a busy machine is silent for 2 s


@contextlib.contextmanager
def blocked(hosts, model, blocks, prefill_hosts=1, decode_args=(), **more):
    """Prefill workers on the first hosts, decode workers on the last. @param blocks  host i does not answer host k"""
    with tempfile.TemporaryDirectory() as d, Network(*hosts, interfaces=2) as net:
        for i, k in blocks:
            net.block(net.hosts[i], f"10.79.0.{k + 1}")
        with UnprovenCluster(model(d), hosts=net.hosts[:prefill_hosts], decode_hosts=net.hosts[prefill_hosts:], silence=SILENCE,
                     prefill_args=["--kv-net-devices", "eth1"], decode_args=["--kv-net-devices", "eth1", *decode_args], **more) as c:
            yield net, c


def ask(c, n=8):
    return c.post("/v1/completions", {"prompt": "hello", "max_tokens": n, "temperature": 0, "ignore_eos": True})


def test_blocked_kv_link_is_not_ready_and_is_named_until_it_recovers():
    with blocked("ab", small_model, [(1, 0)], router_args=["--worker-wait-ms", "300"]) as (net, c):
        wait_until("it is named", c.unreachable)
        pair, = c.unreachable()
        said = pair["text"]
        assert said == f"prefill-0 cannot reach decode-0 at {pair['address']}: no answer for 5 s (a firewall?)", said
        assert pair["address"].startswith("10.79.0.2:") and pair["address"].endswith(" on eth1"), pair
        assert c.ready() == 503 and c.links("proven") == 0 and c.links("failed") == 1
        assert c.metric("baton_kv_link_failed", prefill="prefill-0", decode="decode-0", at=pair["address"],
                        reason="no answer for 5 s (a firewall?)") == 1
        assert said in c.prefills[0].log() and said in c.router.log()
        assert c.prefills[0].log().count(said) == 1, "it is said at each try"
        assert json.loads(c.request("GET", "/v2/cluster")[2])["unreachable"] == [pair]
        status, answer = ask(c)
        assert status == 503 and "prefill-0 cannot reach decode-0: no answer" in answer["error"]["message"], answer
        assert c.post("/v1/completions", {"prompt": "hello", "max_tokens": 1})[0] == 200  # its KV goes nowhere

        net.unblock(net.hosts[1], "10.79.0.1")
        wait_until("it is ready", lambda: c.ready() == 200)
        assert ask(c)[0] == 200 and not c.unreachable()
        assert c.links("proven") == 1 and not c.series("baton_kv_link_failed")
        c.wait_idle()

        net.block(net.hosts[1], "10.79.0.1")  # while nothing goes over it
        wait_until("it is noticed", lambda: c.ready() == 503)
        assert c.unreachable()[0]["text"] == said


def test_requests_use_the_prefill_worker_with_a_kv_link():
    """Of two one is blocked: it is given nothing, and nobody waits for it."""
    with blocked("abc", small_model, [(2, 0)], prefill_hosts=2, prefill=2) as (_, c):
        wait_until("it is ready", lambda: c.ready() == 200)
        assert [ask(c)[0] for _ in range(12)] == [200] * 12
        wait_until("the other is named", c.unreachable)
        assert [ask(c)[0] for _ in range(12)] == [200] * 12
        assert c.total("baton_retries_total") == 0
        assert {(u["prefill"], u["decode"]) for u in c.unreachable()} == {("prefill-0", "decode-0")}
        assert c.total("baton_worker_prompt_tokens_total", worker="prefill-0") == 0


def test_kv_link_blocked_in_use_is_abandoned():
    """What is on its way runs again through the other prefill worker, and new requests avoid the pair until it is well."""
    with blocked("abc", small_model, [], prefill_hosts=2, prefill=2) as (net, c):
        wait_until("both reach", lambda: c.links("proven") == 2)
        want = ask(c, 64)
        answers = []
        stop = threading.Event()

        def client():
            while not stop.is_set():
                answers.append(ask(c, 64))

        clients = [threading.Thread(target=client) for _ in range(4)]
        for one in clients:
            one.start()
        wait_until("some are answered", lambda: len(answers) > 4)
        net.block(net.hosts[2], "10.79.0.1")
        wait_until("the pair is left", c.unreachable)
        n = len(answers)
        wait_until("others are answered", lambda: len(answers) > n + 8)
        stop.set()
        for one in clients:
            one.join()
        wrong = [a for a in answers if a[0] != 200 or a[1]["choices"] != want[1]["choices"]]
        assert not wrong, wrong[:2]
        assert c.ready() == 200
        c.wait_idle()
        before = c.total("baton_worker_prompt_tokens_total", worker="prefill-0")
        assert [ask(c)[0] for _ in range(6)] == [200] * 6
        assert c.total("baton_worker_prompt_tokens_total", worker="prefill-0") == before
        net.unblock(net.hosts[2], "10.79.0.1")
        wait_until("it is used again", lambda: not c.unreachable() and c.links("proven") == 2)


def test_locally_prefilling_worker_waits_for_no_kv_link():
    with blocked("ab", small_model, [(1, 0)], decode_args=["--local-prefill"]) as (_, c):
        wait_until("it is ready", lambda: c.ready() == 200)
        wait_until("the pair is named", c.unreachable)
        assert c.ready() == 200 and ask(c)[0] == 200


def listening(host, address):
    """Ports of that address at which anybody on the host listens."""
    wanted = "".join(f"{int(byte):02X}" for byte in reversed(address.split(".")))
    rows = [line.split() for line in host.run("cat", "/proc/net/tcp").splitlines()[1:]]
    return sorted(int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[1].split(":")[0] == wanted)


def test_kv_ports_are_within_the_configured_range():
    """Two for each worker; one for whom none is left says so, and does not wait for ever."""
    with blocked("ab", small_model, [], decode=2, decode_args=["--kv-port-range", "20000-20003"]) as (net, c):
        wait_until("it is ready", lambda: c.ready() == 200 and c.links("proven") == 2)
        assert ask(c)[0] == 200
        assert listening(net.hosts[1], "10.79.0.2") == [20000, 20001, 20002, 20003]
        more = c.start_worker("decode", 2)
        assert more.popen.wait(60) != 0
        assert "fewer than two ports of --kv-port-range 20000-20003 are free there" in more.log(), more.log()
