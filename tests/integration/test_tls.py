# SPDX-License-Identifier: Apache-2.0
"""The router over TLS, with Python's ssl as the client."""
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile

from harness import ENDLESS, ROOT, Cluster, Skip, endless_model, small_model, wait_until
from launch import Launch

ASK = os.path.join(ROOT, "tools", "cli", "ask.py")


def make_identity(directory, name, issuer=None, files=("cert", "key")):
    """@return (certificate, key) of 127.0.0.1, signed by the issuer or by itself, made by the openssl command."""
    paths = [os.path.join(directory, f"{name}.{kind}") for kind in files]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
               "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]]
    if issuer:
        command += ["-CA", issuer[0], "-CAkey", issuer[1], "-addext", "basicConstraints=critical,CA:FALSE"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        raise Skip("there is no openssl command") from None
    os.chmod(paths[1], 0o600)
    return paths


def tls_options(cert, key, *more):
    return ["--tls-cert", cert, "--tls-key", key, *more]


def context_of(cert, mine=None):
    context = ssl.create_default_context(cafile=cert)
    if mine:
        context.load_cert_chain(*mine)
    return context


def connect(c, context):
    connection = http.client.HTTPSConnection(*c.http, timeout=60, context=context)
    connection.connect()
    return connection


def subject(connection):
    return dict(pair for (pair,) in connection.sock.getpeercert()["subject"])["commonName"]


def answers(c):
    """Bodies of whole answers and of streams, and of an error."""
    out = []
    for path, body in (("generate", {}), ("generate_stream", {"stream": True}), ("generate", {"max_tokens": -3})):
        ask = dict(text_input="once upon a time", max_tokens=24, temperature=0, **{k: v for k, v in body.items()
                                                                                 if k == "stream"})
        ask.update(body)
        status, headers, data = c.request("POST", f"/v2/models/ensemble/{path}", ask)
        out.append((status, headers.get("Content-Type"), data))
    assert [a[0] for a in out] == [200, 200, 400], out
    assert out[1][2].count(b"data: {") > 5
    return out


def ask(c, *arguments, address=None, env=None):
    """@return (exit code, what baton ask printed, what it complained about)"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BATON_")}
    environment.update(env or {}, BATON_URL=address or "https://%s:%d" % c.http)
    greedy = ("--temperature", "0", "--max-tokens", "4")  # a sampled answer of these models may end at its first token
    run = subprocess.run([sys.executable, ASK, "hello", *greedy, *arguments], env=environment, check=False,
                         capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    return run.returncode, run.stdout, run.stderr


def check_ask(c, cert, plain):
    secure, port = "https://%s:%d" % c.http, "%s:%d" % c.http
    assert ask(c, "--cacert", cert)[0] == 0
    code, text, trouble = ask(c, address=port, env={"BATON_CACERT": cert})
    assert code == 0 and text.strip() and trouble == "[cut at 4 tokens]\n", (code, text, trouble)
    for arguments, address, words in (
            ((), secure, "is not to be trusted: self-signed certificate"),
            ((), port, "this port speaks TLS: use https://"),
            (("--cacert", cert), "%s:%d" % plain, "does not speak TLS"),
            (("--cacert", cert), "http://" + port, "--cacert is for https"),
            (("--cacert", "/nowhere"), port, "cannot read /nowhere")):
        code, _, trouble = ask(c, *arguments, address=address)
        assert code == 1 and words in trouble, (arguments, address, code, trouble)


def check_leaving(c):
    """A stream whose client goes away is canceled."""
    connection = connect(c, c.tls)
    connection.request("POST", "/v2/models/ensemble/generate_stream",
                       json.dumps(dict(text_input="a", max_tokens=ENDLESS, stream=True)))
    answer = connection.getresponse()
    line = answer.readline()
    while line == b"\n" or line.startswith(b":"):
        line = answer.readline()
    assert line.startswith(b"data: "), line
    answer.close()
    connection.close()
    c.wait_idle()


def check_one_byte_at_a_time(c):
    """Every byte in a segment of its own, in the handshake and in the request."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = c.tls.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with socket.create_connection(c.http, timeout=60) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def go(call):
            while True:
                try:
                    value = call()
                    done = True
                except ssl.SSLWantReadError:
                    value, done = None, False
                for byte in outgoing.read():
                    sock.sendall(bytes([byte]))
                if done:
                    return value
                data = sock.recv(65536)
                assert data
                incoming.write(data)

        go(tls.do_handshake)
        go(lambda: tls.write(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        assert go(lambda: tls.read(65536)).startswith(b"HTTP/1.1 200 ")


def test_answers_over_tls_equal_plain_ones():
    with tempfile.TemporaryDirectory() as d:
        cert, key = make_identity(d, "baton")
        model = endless_model(d)
        with Cluster(model) as c:
            plain = answers(c)
        with Cluster(model, router_args=tls_options(cert, key)) as c:
            c.tls = context_of(cert)
            assert "serving tiny at https://127.0.0.1:" in c.router.log(), c.router.log()
            assert answers(c) == plain
            assert c.metric("baton_workers", role="decode", state="up") == 1  # without TLS
            check_leaving(c)
            check_one_byte_at_a_time(c)
            check_ask(c, cert, c.metrics_at)


def test_certificate_and_key_are_renewed_together():
    with tempfile.TemporaryDirectory() as d:
        cert, key = make_identity(d, "first")
        second = make_identity(d, "second")
        with Cluster(small_model(d), router_args=tls_options(cert, key, "--log-level", "info")) as c:
            both = context_of(cert)
            both.load_verify_locations(second[0])
            old = connect(c, both)
            assert subject(old) == "first"

            os.replace(second[0], cert)  # half of the new pair
            c.router.kill(signal.SIGHUP)
            wait_until("the refusal", lambda: "key values mismatch; the previous files stay in use" in c.router.log())
            assert subject(connect(c, both)) == "first"
            os.replace(second[1], key)
            c.router.kill(signal.SIGHUP)
            wait_until("the new pair", lambda: 'TLS for new connections: certificate of "second"' in c.router.log())
            assert subject(connect(c, both)) == "second"
            old.request("GET", "/v2/health/ready")
            assert old.getresponse().status == 200


def shown_by(address, context):
    """@return the common name of the certificate of https://ADDR:PORT"""
    host, _, port = address.removeprefix("https://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as sock, \
            context.wrap_socket(sock, server_hostname=host) as tls:
        return dict(pair for (pair,) in tls.getpeercert()["subject"])["commonName"]


def test_launcher_passes_tls_options_to_its_routers():
    with tempfile.TemporaryDirectory() as d:
        cert, key = make_identity(d, "first")
        second = make_identity(d, "second")
        both = context_of(cert)
        both.load_verify_locations(second[0])
        with Launch("--model", small_model(d), "--routers", "2", *tls_options(cert, key)) as launch:
            addresses = [p["http"] for p in launch.processes().values() if p["http"]]
            assert len(addresses) == 2 and all(a.startswith("https://127.0.0.1:") for a in addresses), addresses
            assert f"  HTTP     {addresses[0]}\n           {addresses[1]}\n" in launch.output(), launch.output()
            assert [shown_by(a, both) for a in addresses] == ["first", "first"]
            code, text, trouble = ask(None, "--cacert", cert, address=addresses[1])
            assert code == 0 and text.strip(), trouble
            os.replace(second[1], key)
            os.replace(second[0], cert)
            launch.popen.send_signal(signal.SIGHUP)
            wait_until("both show the new one", lambda: [shown_by(a, both) for a in addresses] == ["second"] * 2)


def test_client_certificates_are_required_with_a_ca():
    with tempfile.TemporaryDirectory() as d:
        cert, key = make_identity(d, "baton")
        ca = make_identity(d, "ca")
        guest, stranger = make_identity(d, "guest", ca), make_identity(d, "stranger")
        with Cluster(small_model(d), router_args=tls_options(cert, key, "--tls-client-ca", ca[0])) as c:
            c.tls = context_of(cert, guest)
            assert c.request("GET", "/v2/health/ready")[0] == 200
            for mine in (None, stranger):
                c.tls = context_of(cert, mine)
                try:
                    status = c.request("GET", "/v2/health/ready")[0]
                    raise AssertionError(f"served: {status}")
                except (ssl.SSLError, ConnectionError):
                    pass
            code, _, trouble = ask(c, "--cacert", cert)
            assert code == 1 and "wants a certificate of ours" in trouble, trouble
            assert ask(c, "--cacert", cert, "--cert", guest[0], "--key", guest[1])[0] == 0


def test_invalid_tls_files_fail_the_start():
    with tempfile.TemporaryDirectory() as d:
        cert, key = make_identity(d, "baton")
        _, other = make_identity(d, "other")
        loose = make_identity(d, "loose")
        os.chmod(loose[1], 0o644)
        model = small_model(d)
        for files, code, words in ((tls_options(cert, other), 78, "key values mismatch"),
                                   (tls_options(*loose), 78, "its mode is 0644"),
                                   (tls_options(cert, "/nowhere"), 78, "key /nowhere: No such file"),
                                   (["--tls-cert", cert], 2, "--tls-cert needs --tls-key")):
            c = Cluster(model, router_args=files)
            try:
                router = c.start_router()
                ended = router.popen.wait(60)
                assert ended == code and words in router.log(), (files, ended, router.log())
            finally:
                c.__exit__(None, None, None)
