#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commands of README and docs: run as they stand, or accounted for by name.

Usage: test_docs_commands.py [NAME ...]

Needs BATON_BUILD, BATON_TEST_MODEL (which is the default model, so nothing is fetched), curl, jq, openssl, and promtool
(setup/fetch_prometheus.py).
"""
import json
import os
import re
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "setup"))
import client_tests  # noqa: E402
import fetch_clients  # noqa: E402
import fetch_model  # noqa: E402
import fetch_prometheus  # noqa: E402
import harness  # noqa: E402
import docs_commands  # noqa: E402
from harness import wait_until  # noqa: E402

GUIDE = "docs/GUIDE.md"
FOLDER = tempfile.TemporaryDirectory(prefix="baton-test-")
ACCESS = os.path.join(FOLDER.name, "access.json")
DAY, WEEK, OUTAGE = "The first day", "The first week", "The first outage"
GOES_ON = "does not end"
NETWORK = "fetches from a server of others"
CLUSTER = "wants several hosts"
DAEMON = "wants systemd or Docker's daemon; tests/packaging has what they read"
LARGE = "takes too long, or hardware that is not everywhere"
SHORTHAND = "has ... or placeholders that a reader fills in"
# (page, how its commands begin, who runs them or the same with names of its own: a file of tests; or the reason why
# nobody does). The first that fits counts.
ACCOUNT = (
    (GUIDE, "", "tests/clients/test_docs_commands.py"),
    ("README.md", "./baton serve", "tests/clients/test_docs_commands.py"),
    ("README.md", "./baton test", GOES_ON + ": it is what runs this"),
    ("README.md", "./baton ask", "tests/clients/test_docs_commands.py"),
    ("README.md", "curl", "tests/clients/test_docs_commands.py"),
    ("README.md", "./baton package deb", "tests/packaging/test_deb.py"),
    ("README.md", "apt-get install", "tests/packaging/test_deb.py"),
    ("README.md", "baton serve", "tests/packaging/test_install.py"),
    ("CONTRIBUTING.md", "./baton test", "tests/launch/test_setup.py"),
    ("CONTRIBUTING.md", "meson setup", GOES_ON + ": ./baton test does it"),
    ("CONTRIBUTING.md", "ninja", GOES_ON + ": ./baton test does it"),
    ("CONTRIBUTING.md", "BATON_TESTS_DIR=tests build", GOES_ON + ": ./baton test does it"),
    ("docs/BEAM_SEARCH.md", "curl", "tests/integration/test_beams.py"),
    ("docs/CLIENTS.md", "curl -s http://127.0.0.1:8000/tokenize", "tests/clients/test_docs_commands.py"),
    ("docs/CLIENTS.md", "curl", "tests/clients/test_examples.py"),
    ("docs/CLIENTS.md", "BATON_URL=127.0.0.1:8000 ./baton load-test", "tests/clients/test_examples.py"),
    ("docs/CLIENTS.md", "pip install", NETWORK),
    ("docs/CLIENTS.md", "lm_eval run", "tests/clients/test_evaluation.py"),
    ("docs/CLIENTS.md", "cd examples", "tests/clients/test_examples.py"),
    ("docs/CLIENTS.md", "python3 ", "tests/clients/test_examples.py"),
    ("docs/CLIENTS.md", "export ", "tests/clients/test_coding_agents.py"),
    ("docs/CLIENTS.md", "./baton test clients", GOES_ON + ": it is what runs this"),
    ("docs/CLIENTS.md", "clients/bin/pip", NETWORK),
    ("docs/CLIENTS.md", "BATON_BUILD=", GOES_ON + ": it is what runs this"),
    ("docs/CONVERT.md", "./baton", "tests/cli/test_model_tools.py"),
    ("docs/FROM_TENSORRT_LLM.md", "cp -r", "tests/clients/test_examples.py"),
    ("docs/FROM_TENSORRT_LLM.md", "python3 examples/", "tests/clients/test_examples.py"),
    ("docs/FROM_TENSORRT_LLM.md", "./baton check", "tests/integration/test_model_repository.py"),
    ("docs/FROM_TENSORRT_LLM.md", "./baton serve", "tests/clients/test_examples.py"),
    ("docs/GPU_STATUS.md", "", SHORTHAND),
    ("docs/LORA.md", "", "tests/integration/test_lora.py"),
    ("docs/RUN.md", "./baton serve --model tiny.gguf --prefill 3", "tests/integration/test_cluster_admin.py"),
    ("docs/RUN.md", "./baton ask why", "tests/clients/test_docs_commands.py"),
    ("docs/RUN.md", "./baton ask --system", "tests/clients/test_docs_commands.py"),
    ("docs/RUN.md", "./baton ask", "tests/cli/test_ask.py"),
    ("docs/RUN.md", "cat report.txt |", "tests/integration/test_commands.py"),
    ("docs/RUN.md", "./baton batch", "tests/cli/test_batch.py"),
    ("docs/RUN.md", "./make-requests |", "tests/cli/test_batch.py"),
    ("docs/RUN.md", "./baton load-test", "tests/cli/test_load.py"),
    ("docs/RUN.md", "printf '{\"command\":\"status\"}", "tests/launch/run_admin.py"),
    ("docs/DEPLOY.md", "head -c 32", "tests/clients/test_docs_commands.py"),
    ("docs/DEPLOY.md", "build/", CLUSTER),
    ("docs/DEPLOY.md", "(umask 022", "tests/integration/test_munge.py"),
    ("docs/DEPLOY.md", "baton-router --cluster-key-file", "tests/integration/test_munge.py"),
    ("docs/DEPLOY.md", "docker", "tests/packaging/test_dockerfile.py"),
    ("docs/DEPLOY.md", "MODELS=/srv/models MODEL=model.gguf docker", "tests/packaging/test_compose.py"),
    ("docs/DEPLOY.md", "editor /etc/baton", "is a person's work"),
    ("docs/DEPLOY.md", "systemctl", DAEMON),
    ("docs/DEPLOY.md", "journalctl", DAEMON),
    ("docs/MODELS.md", "./baton list", "tests/clients/test_docs_commands.py"),
    ("docs/MODELS.md", "./baton pull", "tests/cli/test_pull.py"),
    ("docs/MODELS.md", "./baton rm", "tests/cli/test_pull.py"),
    ("docs/MODELS.md", "./baton load-model", "tests/launch/run_admin.py"),
    ("docs/MODELS.md", "./baton serve --model smollm2", "tests/cli/test_pull.py"),
    ("docs/TENANTS_AND_TLS.md", "./baton serve --tls", "tests/integration/test_tls.py"),
    ("docs/TENANTS_AND_TLS.md", "./baton serve --http 0.0.0.0:8000 --tls", "tests/integration/test_tenants.py"),
    ("docs/TENANTS_AND_TLS.md", "BATON_URL=https://gpu1", "tests/cli/test_ask.py"),
    ("docs/TENANTS_AND_TLS.md", "./baton key new", "tests/cli/test_key.py"),
    ("docs/MONITORING.md", "jq -r", "tests/clients/test_docs_commands.py"),
    ("docs/MONITORING.md", "jq -s", "tests/clients/test_docs_commands.py"),
    ("docs/MONITORING.md", "awk", "tests/clients/test_docs_commands.py"),
    ("docs/MONITORING.md", "install -m 600", "tests/clients/test_docs_commands.py"),
    ("docs/MONITORING.md", "./baton serve --otlp-traces-endpoint", "tests/clients/test_otlp.py"),
    ("docs/MONITORING.md", "SSL_CERT_FILE=/etc/ssl/internal-ca.pem ./baton serve --otlp-traces-endpoint", "tests/clients/test_otlp.py"),
    ("docs/PERFORMANCE.md", "./baton bench", LARGE),
    ("docs/ROBUSTNESS.md", "./baton bench robustness", "tests/bench/test_robustness.py"),
    ("docs/SLURM.md", "", "tests/slurm/test_slurm.sh"),
)


def commands_of(page):
    return [c for language, code in docs_commands.blocks(docs_commands.text_of(page)) if language in docs_commands.SHELLS
            for c in docs_commands.commands(code)]


def row_of(page, command):
    return next((row for row in ACCOUNT if row[0] == page and command.startswith(row[1])), None)


def test_documented_commands_are_parsed_without_comments(_):
    code = "# what\n./baton serve        # installs\na \\\n    b  # c\n\ncat <<END\n# kept\nEND\nx 'one\n# two' y\nz\n"
    assert docs_commands.commands(code) == ["./baton serve", "a \\\n    b  # c", "cat <<END\n# kept\nEND", "x 'one\n# two' y", "z"]


def test_every_documented_command_runs_or_has_a_reason(_):
    used = set()
    for page in docs_commands.PAGES:
        for command in commands_of(page):
            row = row_of(page, command)
            assert row, f"{page}: nobody runs `{command}`, and no reason is given: ACCOUNT of {__file__}"
            used.add(row)
        for language, code in docs_commands.blocks(docs_commands.text_of(page)):
            for line in code.split("\n") if language == "" else ():
                assert not docs_commands.PROGRAMS.match(line), f"{page}: a block with `{line}` is one of sh"
    assert set(ACCOUNT) == used, f"no command begins so any more: {set(ACCOUNT) - used}"
    for _, _, who in ACCOUNT:
        assert not who.startswith("tests/") or os.path.exists(os.path.join(harness.ROOT, who)), who


def blocks_of(title):
    return [code for language, code in docs_commands.blocks(docs_commands.section(GUIDE, title)) if language == "sh"]


def programs():
    return [fetch_prometheus.ensure(fetch_model.default_cache())]


def run_in_order(desk, title):
    """@return {its first words: what it printed} of the blocks"""
    return {docs_commands.commands(code)[0][:40]: desk.run(code) for code in blocks_of(title)}


def test_guide_and_other_server_commands_run(_):
    with docs_commands.Desk(programs()) as desk:
        said = run_in_order(desk, DAY)
        first = next(text for start, text in said.items() if start.startswith("./baton ask \"Name three"))
        assert '"finish_reason"' in first and re.search(r"^decode-0 +decode +\S+ +ready", first, re.M), first
        assert re.search(r"^baton_generation_tokens_total\S* [1-9]", "".join(said.values()), re.M), said
        assert "status=200" in said["./baton ask \"Name one more\" --max-tokens"], said
        run_commands_of_other_pages(desk)  # with its access log and trace

        said = run_in_order(desk, WEEK)
        assert any("SUCCESS" in text for text in said.values()), said
        assert os.path.getsize(os.path.join(desk.dir, "load.svg")) > 1000
        assert len(re.findall(r"^\S+-0 +\S+ +\S+ +ready", said["./baton restart decode-0"], re.M)) == 2, said

        said = run_in_order(desk, OUTAGE)
        up = next(text for start, text in said.items() if start.startswith("curl -s -o /dev/null"))
        assert up.startswith("200\n"), up
        with open(os.path.join(desk.dir, "evidence", "status.json"), encoding="utf-8") as f:
            assert {p["state"] for p in json.load(f)["processes"]} == {"ready"}
        check_expected_workers(os.path.join(desk.dir, "evidence", "metrics.txt"))
        parts = json.loads(next(text for start, text in said.items() if start.startswith("jq -s")))
        assert {"baton.prefill", "baton.decode"} <= set(parts) and all(ms > 0 for ms in parts.values()), parts


def text_of(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def check_expected_workers(path):
    """What the alert BatonWorkersMissing compares is there, with the same labels, and equal."""
    text = text_of(path)
    expected = dict(re.findall(r"^baton_expected_workers{(.*)} (\d+)$", text, re.M))
    up = re.findall(r'^baton_workers{(.*),state="up"} (\d+)$', text, re.M)
    up = {",".join(sorted(labels.split(","))): n for labels, n in up}
    assert len(expected) == 2, text
    for labels, n in expected.items():
        assert up[",".join(sorted(labels.split(",")))] == n == "1", (expected, up)


def run_commands_of_other_pages(desk):
    for page in docs_commands.PAGES:
        if page != GUIDE:
            for command in commands_of(page):
                if row_of(page, command)[2] == "tests/clients/test_docs_commands.py" and " serve" not in command and (
                        "access.json" not in command):
                    check_command(desk, page, command)


def test_documented_json_access_log_reader_works(c):
    c.complete("hello", 4)
    with docs_commands.Desk() as desk:
        os.symlink(ACCESS, os.path.join(desk.dir, "access.json"))
        command, = (x for x in commands_of("docs/MONITORING.md") if "access.json" in x)
        # A thread writes it, when it likes.
        wait_until("the request is in the access log", lambda: "/v1/completions" in text_of(ACCESS))
        assert json.loads(desk.run(command)) == [{"decode": "decode-0", "n": 1}]


def check_command(desk, page, command):
    said = desk.run(re.sub(r"^(\./baton ask (?:why|\"Why).*)$", r"\1 --max-tokens 20", command))
    if command.startswith(("curl", "./baton list", "jq")):  # what a small model with random weights says may be blank
        assert said.strip(), (page, command)


def missing():
    absent = [name for name in ("curl", "jq", "openssl") if shutil.which(name) is None]
    if absent:
        return f"not installed: {' '.join(absent)}"
    try:
        programs()
    except fetch_clients.CannotInstall as why:
        return str(why)
    return None


if __name__ == "__main__":
    sys.exit(client_tests.main(globals(), missing(), router_args=["--access-log", ACCESS, "--log-format", "json"]))
