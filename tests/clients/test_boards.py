#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The boards and alerts of packaging/observability/, judged by promtool and by a Prometheus that scrapes a live router.

Usage: test_boards.py [NAME ...]

Needs BATON_BUILD, BATON_TEST_MODEL, PyYAML, and prometheus with promtool (setup/fetch_prometheus.py).
"""
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "setup"))
import client_tests  # noqa: E402
import fetch_clients  # noqa: E402
import fetch_model  # noqa: E402
import fetch_prometheus  # noqa: E402
import harness  # noqa: E402
import promql  # noqa: E402
from harness import wait_until  # noqa: E402

FOLDER = os.path.join(harness.ROOT, "packaging", "observability")
RULES = os.path.join(FOLDER, "alerts.yml")
BOARDS = ("baton.json", "baton-drilldown.json")
OF_SCRAPES = {"up": set()}  # what Prometheus adds by itself
LABELS_OF_SCRAPES = {"job", "instance", "le"}
# What `check metrics` says of names that are Triton's.
NOT_OURS = re.compile(r"^nv_\S+ ")


def program(name):
    return os.path.join(fetch_prometheus.ensure(fetch_model.default_cache()), name)


def promtool(*arguments, text=None, codes=(0,)):
    run = subprocess.run([program("promtool"), *arguments], input=text, capture_output=True, text=True, timeout=120,
                         check=False)
    assert run.returncode in codes, f"promtool {arguments}: {run.returncode}\n{run.stdout}{run.stderr}"
    return run.stdout + run.stderr


def alerts():
    import yaml
    with open(RULES, encoding="utf-8") as f:
        return [rule for group in yaml.safe_load(f)["groups"] for rule in group["rules"]]


def panels():
    for name in BOARDS:
        with open(os.path.join(FOLDER, "grafana", name), encoding="utf-8") as f:
            board = json.load(f)
        for panel in board["panels"]:
            yield board, panel


def queries():
    """@return [(where, expression)] of the boards, with values for Grafana's variables"""
    found = []
    for board, panel in panels():
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "5s")
            found.append((f"{board['title']}: {panel['title']}",
                          re.sub(r"\$\w+", ".*", expression)))
    return found


def table():
    """@return {name: {label: values, or None where they are many}}, as the router's own table has it"""
    text = subprocess.run([os.path.join(harness.BUILD, harness.PROGRAMS["router"]), "--print-metrics-doc"], check=True,
                          capture_output=True, text=True).stdout
    families = {}
    for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| ", text, re.M):
        known = {}
        for part in labels.split("; "):
            values = re.fullmatch(r"`(\w+)` = (.*)", part)
            if values:
                known[values[1]] = set(values[2].split(", "))
            else:
                known.update((label, None) for label in re.findall(r"`(\w+)`", part))
        for end in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            families[name + end] = known
    return families


def check_names(where, expression, families):
    series, grouped = promql.parts_of(expression)
    assert series, where
    labels = set()
    for name, matchers in series:
        known = families.get(name, OF_SCRAPES.get(name))
        assert known is not None, f"{where}: there is no metric {name}"
        labels |= set(known)
        for label, operator, value in matchers:
            assert label in known or label in LABELS_OF_SCRAPES, f"{where}: {name} has no label {label}"
            values = known[label] if label in known else None
            if values and operator in ("=", "!="):
                assert value in values, f"{where}: {name} has no {label}={value}"
            if values and operator == "=~" and value != ".*":
                assert all(v in values for v in value.split("|")), f"{where}: {name}: {label}=~{value}"
    assert grouped <= labels | LABELS_OF_SCRAPES, f"{where}: no series has {grouped - labels}"


def test_promql_parser_finds_all_metric_names(_):
    series, labels = promql.parts_of(
        'histogram_quantile(0.9, sum by (model, le) (rate(a_bucket{x="1,2", y=~"a|b"}[5m]))) > on (z) max(b) / 2 or vector(0)')
    assert series == [("a_bucket", [("x", "=", "1,2"), ("y", "=~", "a|b")]), ("b", [])], series
    assert labels == {"model", "le", "z"}


def test_boards_and_rules_use_existing_metrics(_):
    families = table()
    assert len(families) > 90 and families["baton_kv_blocks"]["state"] == {"used", "free", "cached", "quarantined"}
    for where, expression in queries() + [(rule["alert"], rule["expr"]) for rule in alerts()]:
        check_names(where, expression, families)
    for board, panel in panels():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                name, label = re.fullmatch(r"label_values\((\w+)(?:{.*})?, (\w+)\)", variable["definition"]).groups()
                assert label in families[name], variable
        assert panel["type"] == "row" or panel["targets"], panel["title"]


def test_committed_boards_are_current(_):
    run = subprocess.run([sys.executable, os.path.join(FOLDER, "boards.py"), "--check"], capture_output=True, text=True,
                         check=False)
    assert run.returncode == 0, run.stderr
    for name in BOARDS:
        with open(os.path.join(FOLDER, "grafana", name), encoding="utf-8") as f:
            board = json.load(f)
        taken = set()
        ids = [p["id"] for p in board["panels"]]
        assert len(ids) == len(set(ids))
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
            taken |= cells


def test_alert_rules_are_valid_and_documented(_):
    assert f"{len(alerts())} rules found" in promtool("check", "rules", RULES)
    with open(os.path.join(harness.ROOT, "docs", "MONITORING.md"), encoding="utf-8") as f:
        anchors = {re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-")
                   for line in re.findall(r"^#+ (.*)$", f.read(), re.M)}
    for rule in alerts():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page == "docs/MONITORING.md" and anchor == rule["alert"].lower() and anchor in anchors, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket") and rule["annotations"]["summary"].endswith("."), rule


# --- each alert fires where it should, and not where it should not

ASKED = 'baton_http_requests_total{route="/v1/completions", method="POST", instance="r", '
W = 'worker="decode-0", role="decode", model="m"'
CUT = 'prefill="prefill-0", decode="decode-0", at="10.0.0.2:20001 on eth0", reason="no answer for 2.5 s (a firewall?)", model="m"'


def blocks(used, free, quarantined=0):
    return {f'baton_kv_blocks{{{W}, instance="r", state="{state}"}}': f"{n}x60"
            for state, n in (("used", used), ("free", free), ("cached", 0), ("quarantined", quarantined))}


def first_token(rate_below_1s, rate_above):
    name = 'baton_time_to_first_token_seconds_bucket{instance="r", model="m", '
    return {name + f'le="{le}"}}': f"0+{n}x60" for le, n in (
        ("1", rate_below_1s), ("10", rate_below_1s + rate_above), ("+Inf", rate_below_1s + rate_above))}


def loop_delay(late):
    name = 'baton_event_loop_delay_seconds_bucket{instance="r", '
    return {name + f'le="{le}"}}': f"0+{n}x60" for le, n in (("0.01", 1200 - late), ("0.1", 1200), ("+Inf", 1200))}


def workers(n, role="decode"):
    return {f'baton_workers{{instance="r", model="m", role="{r}", state="{s}"}}': f"{n if (r, s) == (role, 'up') else 0}x60"
            for r in ("prefill", "decode", "both") for s in ("up", "suspect", "draining")}


def lost(role, left=0, others=0):
    """Of two workers each, those of a role go between minutes 10 and 11. `others`: of both roles."""
    kept = {f'baton_workers{{instance="r", model="m", role="{r}", state="up"}}': f"{n}x60" for r, n in (
        ("prefill", 2), ("decode", 2), ("both", others))}
    return dict(kept, **{f'baton_workers{{instance="r", model="m", role="{role}", state="up"}}': f"2x10 {left}x60"})


def failures(cause, each_minute, jump="0"):
    return {f'baton_attempt_failures_total{{instance="r", model="m", reason="{cause}"}}': f"{jump}+{each_minute}x60",
            'baton_attempts_total{instance="r", model="m", path="disaggregated", reason="default"}': "0+100x60"}


def counter(series, text):
    return {series: text}


# (alert, minute, series when it fires, labels then, series when it does not). A sample each minute.
CASES = [
    ("BatonRouterDown", 5, {'up{job="baton", instance="r"}': "1 1 0x60"}, {"job": "baton", "instance": "r"},
     {'up{job="baton", instance="r"}': "0 1x60", 'up{job="other", instance="x"}': "0x60"}),
    ("BatonRoleLost", 12, lost("prefill"), {"instance": "r", "model": "m", "role": "prefill"}, lost("prefill", 1)),
    ("BatonRoleLost", 12, lost("decode"), {"instance": "r", "model": "m", "role": "decode"}, lost("decode", others=1)),
    ("BatonRoleLost", 15, None, None, workers(0)),  # it starts, or never had any
    ("BatonRoleLost", 12, None, None,  # one that is started again
     counter('baton_workers{instance="r", model="m", role="decode", state="up"}', "2x10 0 2x60")),
    ("BatonRoleLost", 12, None, None, workers(1)),  # no worker computes prompts alone, and none ever did
    ("BatonNoDecodeWorkers", 15, workers(0), {"model": "m"}, workers(1)),
    ("BatonNoDecodeWorkers", 15, workers(3, "prefill"), {"model": "m"}, workers(1, "both")),
    ("BatonNoDecodeWorkers", 5, None, None, workers(0)),  # it starts
    ("BatonHighErrorRate", 15, {ASKED + 'code="200"}': "0+100x60", ASKED + 'code="503"}': "0+3x60"}, {},
     {ASKED + 'code="200"}': "0+1000x60", ASKED + 'code="503"}': "0+3x60"}),
    ("BatonHighErrorRate", 15, None, None, {  # not ready yet, and one lone failure
        ASKED.replace("/v1/completions", "/v2/health/ready") + 'code="503"}': "0+60x60",
        ASKED + 'code="500"}': "0x10 1x60"}),
    ("BatonHighErrorRate", 15, None, None, {ASKED + 'code="200"}': "0x60", ASKED + 'code="500"}': "7x60"}),  # idle since
    ("BatonHighTtft", 20, first_token(10, 2), {"model": "m"}, first_token(1000, 1)),
    ("BatonHighTtft", 20, None, None, first_token(0, 0)),
    ("BatonSloMissed", 25,
     {f'baton_slo_sequences_total{{instance="r", model="m", target="itl", result="{r}"}}': f"0+{n}x60"
      for r, n in (("met", 9), ("missed", 1), ("refused", 0))}, {"model": "m", "target": "itl"},
     {f'baton_slo_sequences_total{{instance="r", model="m", target="itl", result="{r}"}}': f"0+{n}x60"
      for r, n in (("met", 99), ("missed", 1), ("refused", 90))}),
    ("BatonRequestsQueued", 20, counter('baton_requests_waiting{instance="r", model="m"}', "4x60"), {"model": "m"},
     counter('baton_requests_waiting{instance="r", model="m"}', "4x12 0 4x60")),
    ("BatonKvPoolFull", 15, blocks(96, 4), {"worker": "decode-0", "role": "decode", "model": "m"}, blocks(90, 10)),
    ("BatonLeasesExpire", 25, failures("lease_expired", 3), {"model": "m"}, failures("lease_expired", 0, "50")),
    ("BatonEventLoopLate", 20, loop_delay(60), {"instance": "r"}, loop_delay(2)),
    ("BatonFdLimitNear", 10, {'process_open_fds{job="baton", instance="r"}': "900x60",
                              'process_max_fds{job="baton", instance="r"}': "1000x60"},
     {"job": "baton", "instance": "r"}, {'process_open_fds{job="baton", instance="r"}': "100x60",
                                         'process_max_fds{job="baton", instance="r"}': "1000x60"}),
    ("BatonWorkersMissing", 15,
     dict(workers(1), **{'baton_expected_workers{instance="r", role="decode", model="m"}': "2x60"}),
     {"instance": "r", "role": "decode", "model": "m"},
     dict(workers(2), **{'baton_expected_workers{instance="r", role="decode", model="m"}': "2x60"})),
    ("BatonWorkersMissing", 8, None, None,  # it starts
     dict(workers(1), **{'baton_expected_workers{instance="r", role="decode", model="m"}': "2x60"})),
    ("BatonWorkerRestarts", 40, counter('baton_worker_restarts_total{instance="r", worker="w"}', "0x20 1x5 2x5 3x60"),
     {"worker": "w"}, counter('baton_worker_restarts_total{instance="r", worker="w"}', "7x20 8x10 9x60")),
    ("BatonKvLinkFailed", 10, counter(f'baton_kv_link_failed{{{CUT}, instance="r"}}', "1x60"),
     {"model": "m", "prefill": "prefill-0", "decode": "decode-0", "at": "10.0.0.2:20001 on eth0",
      "reason": "no answer for 2.5 s (a firewall?)"},
     counter(f'baton_kv_link_failed{{{CUT}, instance="r"}}', "1x1 _x60")),
    ("BatonAttemptFailures", 30, failures("transfer", 1), {"model": "m", "reason": "transfer"}, failures("deadline", 9)),
    ("BatonKvCorrupt", 30, counter('baton_kv_checksum_failures_total{instance="r", model="m"}', "0x20 1x60"),
     {"model": "m"}, counter('baton_kv_checksum_failures_total{instance="r", model="m"}', "5x90")),
    ("BatonKvBlocksQuarantined", 15, blocks(1, 9, 2), {"worker": "decode-0", "role": "decode", "model": "m"},
     {f'baton_kv_blocks{{{W}, instance="r", state="quarantined"}}': "2x8 0 2x60"}),
    ("BatonLogLinesDropped", 20,
     {f'baton_{n}_total{{instance="r"}}': t for n, t in (("trace_lines_dropped", "0x15 9x60"),
                                                          ("access_log_lines_dropped", "0x60"), ("log_lines_dropped", "0x60"))},
     {"instance": "r"},
     {f'baton_{n}_total{{instance="r"}}': "9x60" for n in ("trace_lines_dropped", "access_log_lines_dropped", "log_lines_dropped")}),
    ("BatonLogLinesDropped", 20, counter(f'baton_worker_log_lines_dropped_total{{{W}, instance="r"}}', "0x15 3x60"),
     {"worker": "decode-0", "role": "decode", "model": "m"},
     counter(f'baton_worker_log_lines_dropped_total{{{W}, instance="r"}}', "3x60")),
    ("BatonSpansDropped", 20, counter('baton_otlp_spans_total{instance="r", result="dropped"}', "0x15 9x60"),
     {"instance": "r"}, {'baton_otlp_spans_total{instance="r", result="sent"}': "0+9x60",
                         'baton_otlp_spans_total{instance="r", result="dropped"}': "9x60"}),
    ("BatonUnauthorizedRequests", 30, counter('baton_requests_unauthorized_total{instance="r"}', "0+120x60"), {"instance": "r"},
     counter('baton_requests_unauthorized_total{instance="r"}', "0+6x60")),
    ("BatonKvUnauthenticated", 20, counter(f'baton_kv_unauthenticated_messages_total{{{W}, instance="r"}}', "0x15 1x60"),
     {"worker": "decode-0", "role": "decode", "model": "m"},
     counter(f'baton_kv_unauthenticated_messages_total{{{W}, instance="r"}}', "1x60")),
]


def expanded(text, labels):
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda m: labels[m[1]], text)


def test_each_alert_fires_only_on_its_condition(_):
    import yaml
    rules = {rule["alert"]: rule for rule in alerts()}
    assert {c[0] for c in CASES if c[2]} == set(rules) and {c[0] for c in CASES if c[4]} == set(rules)
    tests = []
    for name, minute, fires, labels, quiet in CASES:
        for series, expected in ((fires, [labels]), (quiet, [])):
            if series is not None:
                rule = rules[name]
                tests.append({
                    "interval": "1m",
                    "input_series": [{"series": s, "values": v} for s, v in series.items()],
                    "alert_rule_test": [{"eval_time": f"{minute}m", "alertname": name, "exp_alerts": [
                        {"exp_labels": dict(rule["labels"], **x),
                         "exp_annotations": {key: expanded(text, x) for key, text in rule["annotations"].items()}}
                        for x in expected]}]})
    with tempfile.TemporaryDirectory(prefix="baton-test-") as d:
        path = os.path.join(d, "tests.yml")
        with open(path, "w", encoding="utf-8") as f:
            yaml.safe_dump({"rule_files": [RULES], "evaluation_interval": "1m", "tests": tests}, f)
        promtool("test", "rules", path)


# --- a live router

def test_router_metrics_pass_promtool(c):
    c.complete("A", 2)
    _, _, page = c.request("GET", "/metrics", at=c.metrics_at)
    said = promtool("check", "metrics", text=page.decode(), codes=(0, 3))
    ours = [line for line in said.split("\n") if line and not NOT_OURS.match(line)]
    assert not ours, ours


def ask(address, path, **arguments):
    with urllib.request.urlopen(f"http://{address}{path}?{urllib.parse.urlencode(arguments)}", timeout=30) as answer:
        return json.load(answer)["data"]


# Of what is not there: no launcher, no tenants, and in a page without them no series.
MAY_BE_EMPTY = re.compile(r"baton_expected_workers|baton_worker_restarts_total|baton_tenant_|baton_kv_window_blocks"
                          r"|baton_target_sequences|baton_worker_cost_")


def test_prometheus_answers_every_board_panel(c):
    with tempfile.TemporaryDirectory(prefix="baton-test-") as d:
        path, address = os.path.join(d, "prometheus.json"), f"127.0.0.1:{harness.free_port()}"
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "500ms"},
                       "rule_files": [RULES],
                       "scrape_configs": [{"job_name": "baton", "static_configs": [
                           {"targets": ["%s:%d" % c.metrics_at]}]}]}, f)
        with open(os.path.join(d, "log"), "w", encoding="utf-8") as log, subprocess.Popen(
                [program("prometheus"), "--config.file", path, "--storage.tsdb.path", os.path.join(d, "data"),
                 "--web.listen-address", address, "--log.level", "warn"], stdout=log, stderr=log) as server:
            try:
                check_panels(c, address)
            finally:
                server.terminate()


def check_panels(c, address):
    left = dict.fromkeys(queries())

    def is_up():
        try:
            return ask(address, "/api/v1/query", query="up")["result"]
        except OSError:
            return False
    wait_until("prometheus scrapes", is_up)

    def answered():
        c.complete("Once upon a time", 8)
        for where, expression in list(left):
            if MAY_BE_EMPTY.search(expression) or ask(address, "/api/v1/query", query=expression)["result"]:
                del left[(where, expression)]
        return not left
    try:
        wait_until("every panel has a value", answered, 180)
    except AssertionError:
        raise AssertionError(f"nothing: {list(left)}") from None
    for where, expression in queries():  # also those without a series are asked for
        ask(address, "/api/v1/query", query=expression)
    # An idle cluster has no cause for any, not even for one that would fire later; what a busy machine is late with may
    # be counted against it for a while.
    late = {"BatonHighTtft", "BatonEventLoopLate"}

    def of_alerts():
        return [a["labels"]["alertname"] for a in ask(address, "/api/v1/alerts")["alerts"]]
    wait_until("no alert is near", lambda: not set(of_alerts()) - late)


def missing():
    if importlib.util.find_spec("yaml") is None:
        return "PyYAML of PyPI is not installed"
    try:
        fetch_prometheus.ensure(fetch_model.default_cache())
    except fetch_clients.CannotInstall as why:
        return str(why)
    return None


if __name__ == "__main__":
    sys.exit(client_tests.main(globals(), missing()))
