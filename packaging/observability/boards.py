#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the Grafana boards beside this file from what stands below.

Usage: boards.py [--check]

Writes grafana/baton.json and grafana/baton-drilldown.json; --check says whether they are what this makes. A panel is a
title, what it answers, a unit of Grafana's, and its queries with legends. Series with the label `worker` are the same at
every router, so they are `max by (worker, …)`; all others are summed over routers (docs/METRICS.md).
"""
import json
import os
import sys

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "grafana")
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
MODEL, WORKER = 'model=~"$model"', 'model=~"$model", worker=~"$worker"'
ASKED = 'route=~"/v1/.*|.*/generate|.*/generate_stream|.*/infer|/invocations|.*/Model(Stream)?Infer"'
RATE = "[$__rate_interval]"


def rate(name, labels=MODEL, by="model"):
    return f"sum by ({by}) (rate({name}{{{labels}}}{RATE}))"


def quantile(q, name, labels=MODEL, by="model, "):
    return f"histogram_quantile({q}, sum by ({by}le) (rate({name}_bucket{{{labels}}}{RATE})))"


def mean(name, labels=MODEL, by="model"):
    return f"{rate(name + '_sum', labels, by)} / {rate(name + '_count', labels, by)}"


def of_worker(name, labels="", by="worker"):
    return f"max by ({by}) ({name}{{{WORKER}{', ' if labels else ''}{labels}}})"


def worker_rate(name, labels="", by="worker"):
    return f"max by ({by}) (rate({name}{{{WORKER}{', ' if labels else ''}{labels}}}{RATE}))"


def quantiles(name, labels=MODEL):
    return [(quantile(q, name, labels), f"{{{{model}}}} p{round(100 * float(q))}") for q in ("0.5", "0.9", "0.99")]


def panel(title, text, unit, *queries, kind="timeseries", width=8, stack=False, red=None):
    return {"title": title, "text": text, "unit": unit, "queries": queries, "kind": kind, "width": width,
            "stack": stack, "red": red}


def number(title, text, unit, query, red=None):
    return panel(title, text, unit, (query, ""), kind="stat", width=4, red=red)


OVERVIEW = [
    ("Is it healthy?", [
        number("Answers that are errors", "5xx among what was asked of models.", "percentunit",
               f'(sum(rate(baton_http_requests_total{{code=~"5..", {ASKED}}}{RATE})) or vector(0)) / '
               f"sum(rate(baton_http_requests_total{{{ASKED}}}{RATE}))", red=0.01),
        number("First token, p99", "What one client in a hundred waits for, or longer.", "s",
               quantile("0.99", "baton_time_to_first_token_seconds", by=""), red=5),
        number("Requests in flight", "Sequences whose clients wait.", "short",
               f"sum(baton_requests_in_flight{{{MODEL}}})"),
        number("Tokens a second", "As they are generated.", "short",
               f"sum(rate(baton_generation_tokens_total{{{MODEL}}}{RATE}))"),
        number("Workers up", "At one router: each knows all of them.", "short",
               f'max(sum by (instance) (baton_workers{{{MODEL}, state="up"}}))'),
        number("Workers missing", "Those that the launcher means to run and that are not here.", "short",
               f"sum(clamp_min(max by (role, model) (baton_expected_workers{{{MODEL}}}) - on (role, model) "
               f'max by (role, model) (sum by (instance, role, model) (baton_workers{{{MODEL}, state="up"}})), 0))', red=1),
        panel("Answers by status", "All routes; 499 is a client that left.", "reqps",
              ("sum by (code) (rate(baton_http_requests_total" + RATE + "))", "{{code}}"), stack=True),
        panel("Requests turned away", "Refused before they were started, and run again after a failure.", "reqps",
              (rate("baton_requests_refused_total"), "{{model}} refused"),
              (rate("baton_retries_total"), "{{model}} run again")),
        panel("Failed attempts, by reason", "docs/MONITORING.md, BatonAttemptFailures and BatonLeasesExpire.", "reqps",
              (rate("baton_attempt_failures_total", by="model, reason"), "{{model}} {{reason}}")),
    ]),
    ("Where does time go?", [
        panel("Time to first token", "From arrival to token #1.", "s", *quantiles("baton_time_to_first_token_seconds")),
        panel("Time between tokens", "As the router gets them.", "s", *quantiles("baton_inter_token_latency_seconds")),
        panel("Whole time", "Of sequences that ended well.", "s", *quantiles("baton_request_duration_seconds")),
        panel("Means along the way of a request",
              "Waiting for the context phase, then KV: grant, what of the transfer nothing hid, hand-over, next iteration.",
              "s", *((mean(f"baton_{name}_seconds"), f"{{{{model}}}} {name}") for name in (
                  "queue", "kv_grant_wait", "kv_transfer_tail", "kv_verify", "kv_join_wait")), width=12),
        panel("Promised times", "Of sequences that had a target: met, missed, refused since they would have missed.",
              "reqps", (rate("baton_slo_sequences_total", by="model, target, result"),
                        "{{model}} {{target}} {{result}}"), width=12, stack=True),
    ]),
    ("What limits it?", [
        panel("Sequences that wait in the router", "For workers: above 0 for long, there are too few.", "short",
              (f"sum by (model) (baton_requests_waiting{{{MODEL}}})", "{{model}}")),
        panel("Requests that wait at workers",
              "By the role that they wait for: prompts for their context phase at prefill workers, others for a seat or "
              "blocks at decode workers. Those that wait for KV have room; prefill or the network keeps them.", "short",
              (f"sum by (role, model) (max by (worker, role, model) (baton_worker_queued_requests{{{MODEL}}}))",
               "{{model}} {{role}}"),
              (f"sum by (model) (max by (worker, model) (baton_worker_waiting_for_kv_requests{{{MODEL}}}))",
               "{{model}} for KV")),
        panel("Seats taken", "Of a role's workers: requests in the batch or before it.", "percentunit",
              (f"sum by (role, model) (max by (worker, role, model) (baton_worker_active_requests{{{MODEL}}})) / "
               f"sum by (role, model) (max by (worker, role, model) (baton_worker_seats{{{MODEL}}}))",
               "{{model}} {{role}}"), red=1),
        panel("KV pool taken, fullest worker", "Used or set aside; what only the prefix cache holds is free.",
              "percentunit",
              (f"max by (role, model) (sum by (instance, worker, role, model) (baton_kv_blocks{{{MODEL}, "
               'state=~"used|quarantined"}) / sum by (instance, worker, role, model) '
               f"(baton_kv_blocks{{{MODEL}}}))", "{{model}} {{role}}"), red=0.95),
        panel("Tokens a second", "Computed prompts, found in prefix caches, generated.", "short",
              (rate("baton_prompt_tokens_total"), "{{model}} prompt"),
              (rate("baton_prompt_tokens_cached_total"), "{{model}} prompt, found"),
              (rate("baton_generation_tokens_total"), "{{model}} generated")),
        panel("Cores that workers use", "User and system time.", "short",
              (f"sum by (role, model) (max by (worker, role, model) (rate(baton_worker_cpu_seconds_total{{{MODEL}}}{RATE})))",
               "{{model}} {{role}}"), stack=True),
        panel("Router: event loop is late", "p99; above 50 ms the router is what limits.", "s",
              (quantile("0.99", "baton_event_loop_delay_seconds", "", "instance, "), "{{instance}}"), red=0.05),
    ]),
]

DRILLDOWN = [
    ("Workers", [
        panel("Takes requests", "0: silent, or draining.", "short",
              (of_worker("baton_worker_up", by="worker, role"), "{{worker}} {{role}}")),
        panel("Requests of a worker",
              "Accepted, and of them those that wait for their turn, those that wait for KV, and those that stand still.",
              "short",
              (of_worker("baton_worker_active_requests"), "{{worker}} accepted"),
              (of_worker("baton_worker_queued_requests"), "{{worker}} queued"),
              (of_worker("baton_worker_waiting_for_kv_requests"), "{{worker}} waiting for KV"),
              (of_worker("baton_worker_paused_requests"), "{{worker}} paused")),
        panel("Batch", "Sequences in the last iteration, by phase.", "short",
              (of_worker("baton_worker_batch_requests", by="worker, phase"), "{{worker}} {{phase}}"), stack=True),
        panel("Iterations a second", "", "short", (worker_rate("baton_worker_iterations_total"), "{{worker}}")),
        panel("Tokens a second", "Prompt tokens computed, found again, generated.", "short",
              (worker_rate("baton_worker_prompt_tokens_total"), "{{worker}} prompt"),
              (worker_rate("baton_worker_prompt_tokens_reused_total"), "{{worker}} found"),
              (worker_rate("baton_worker_generation_tokens_total"), "{{worker}} generated")),
        panel("Cores", "Its own use, and what others lent it.", "short",
              (worker_rate("baton_worker_cpu_seconds_total"), "{{worker}}"),
              (worker_rate("baton_worker_borrowed_core_cpu_seconds_total"), "{{worker}} lent"),
              (worker_rate("baton_worker_donated_seconds_total"), "{{worker}} gave way")),
        panel("Memory", "Weights and KV, and what is resident.", "bytes",
              (of_worker("baton_worker_memory_bytes", by="worker, memory"), "{{worker}} {{memory}}"),
              (of_worker("baton_worker_resident_memory_bytes"), "{{worker}} resident")),
        panel("Started again", "By the launcher.", "short",
              ("max by (worker) (baton_worker_restarts_total)", "{{worker}}")),
        panel("What steps take, as learned", "An iteration whatever is in it; how far off forecasts were.", "s",
              (of_worker("baton_cost_model_step_seconds", by="worker, work"), "{{worker}} {{work}}"),
              (of_worker("baton_cost_model_error_ratio", by="worker, work"), "{{worker}} {{work}} off (ratio)")),
    ]),
    ("KV", [
        panel("Blocks", "", "short", (of_worker("baton_kv_blocks", by="worker, state"), "{{worker}} {{state}}"),
              stack=True),
        panel("Leases and transfers", "Open now.", "short", (of_worker("baton_kv_leases"), "{{worker}}")),
        panel("Prefix cache", "Blocks found again a second.", "short",
              (worker_rate("baton_kv_blocks_reused_total"), "{{worker}}")),
        panel("Sequences paused", "Gave up their blocks, went on, and what was computed once more for it.", "short",
              (worker_rate("baton_worker_preemptions_total"), "{{worker}} pauses"),
              (worker_rate("baton_worker_preemption_resumes_total"), "{{worker}} resumes"),
              (worker_rate("baton_worker_recomputed_tokens_total"), "{{worker}} tokens again")),
        panel("Windows", "Blocks of layers that see a window, and those let go of.", "short",
              (of_worker("baton_kv_window_blocks"), "{{worker}} used"),
              (worker_rate("baton_kv_blocks_window_evicted_total"), "{{worker}} let go of a second")),
        panel("Refused", "Stale or foreign writes, wrong checksums, strangers.", "short",
              (rate("baton_kv_stale_discarded_total"), "{{model}} stale"),
              (rate("baton_kv_checksum_failures_total"), "{{model}} checksum"),
              (worker_rate("baton_kv_unauthenticated_messages_total"), "{{worker}} foreign")),
    ]),
    ("Hand-over", [
        panel("Wait for the grant", "Finished KV waited for room at the decode worker.", "s",
              *quantiles("baton_kv_grant_wait_seconds")),
        panel("Transfer", "KV under way and checked.", "s", *quantiles("baton_kv_transfer_seconds")),
        panel("Tail", "What of it nothing hid.", "s", *quantiles("baton_kv_transfer_tail_seconds")),
        panel("Hand-over and join", "From the last byte to the batch.", "s",
              *quantiles("baton_kv_verify_seconds"), *quantiles("baton_kv_join_wait_seconds")),
        panel("Bytes a second", "Proved complete; sent and received.", "Bps",
              (rate("baton_kv_transfer_bytes_total"), "{{model}} proved"),
              (rate("baton_kv_bytes_total", by="model, direction"), "{{model}} {{direction}}")),
        panel("Bytes of a descriptor", "How well blocks were merged.", "bytes",
              (f"{rate('baton_kv_transfer_bytes_total')} / {rate('baton_kv_transfer_descriptors_total')}", "{{model}}")),
        panel("Paths of attempts", "", "reqps", (rate("baton_attempts_total", by="model, path, reason"), "{{model}} {{path}} {{reason}}"),
              stack=True),
        panel("Staged", "Between device memory and the host's; or from device to device.", "Bps",
              (worker_rate("baton_worker_kv_staged_bytes_total"), "{{worker}}"),
              (worker_rate("baton_worker_kv_device_bytes_total"), "{{worker}} to a device"),
              (worker_rate("baton_worker_kv_stage_waits_total"), "{{worker}} waits")),
    ]),
    ("Tenants", [
        panel("Tokens a second", "Generated for each.", "short",
              ("sum by (tenant) (rate(baton_tenant_generation_tokens_total" + RATE + "))", "{{tenant}}"), stack=True),
        panel("Prompt tokens a second", "", "short",
              ("sum by (tenant) (rate(baton_tenant_prompt_tokens_total" + RATE + "))", "{{tenant}}"), stack=True),
        panel("Under way", "Those that wait included.", "short",
              ("sum by (tenant) (baton_tenant_requests_in_flight)", "{{tenant}}"), stack=True),
        panel("Refused", "For more tokens than its rate, more at once than it may, or no room for anybody.", "reqps",
              ("sum by (tenant, reason) (rate(baton_tenant_refused_total" + RATE + "))", "{{tenant}} {{reason}}")),
        panel("Without a key", "", "reqps", ("sum(rate(baton_requests_unauthorized_total" + RATE + "))", "refused")),
    ]),
    ("Routers", [
        panel("Event loop: late by", "", "s",
              *((quantile(q, "baton_event_loop_delay_seconds", "", "instance, "), f"{{{{instance}}}} p{p}")
                for q, p in (("0.5", 50), ("0.99", 99)))),
        panel("Event loop: CPU time of a turn", "p99.", "s",
              (quantile("0.99", "baton_event_loop_turn_seconds", "", "instance, "), "{{instance}}")),
        panel("Cores", "All threads.", "short",
              ("sum by (instance) (rate(process_cpu_seconds_total{job=\"baton\"}" + RATE + "))", "{{instance}}")),
        panel("Connections and limits", "", "short",
              ("sum by (instance) (baton_http_connections)", "{{instance}} connections"),
              ("sum by (instance, reason) (rate(baton_http_limited_total" + RATE + "))", "{{instance}} {{reason}} a second")),
        panel("Memory", "Bodies under way, answers that were not read, resident.", "bytes",
              ("sum by (instance, kind) (baton_http_memory_bytes)", "{{instance}} {{kind}}"),
              ("sum by (instance) (process_resident_memory_bytes{job=\"baton\"})", "{{instance}} resident")),
        panel("Lost lines and spans", "Of traces, access logs, logs; spans for the collector of --otlp-traces-endpoint.", "short",
              ("sum by (instance) (rate(baton_trace_lines_dropped_total" + RATE + "))", "{{instance}} trace"),
              ("sum by (instance) (rate(baton_access_log_lines_dropped_total" + RATE + "))", "{{instance}} access log"),
              ("sum by (instance) (rate(baton_log_lines_dropped_total" + RATE + "))", "{{instance}} log"),
              ("sum by (instance, result) (rate(baton_otlp_spans_total{result!=\"sent\"}" + RATE + "))",
               "{{instance}} spans {{result}}")),
    ]),
]


def targets(queries):
    return [{"datasource": DATASOURCE, "expr": query, "legendFormat": legend, "refId": chr(ord("A") + i)}
            for i, (query, legend) in enumerate(queries)]


def thresholds(red):
    steps = [{"color": "green", "value": None}] + ([{"color": "red", "value": red}] if red is not None else [])
    return {"mode": "absolute", "steps": steps}


def made(p, x, y, number_of):
    custom = {"fillOpacity": 15 if p["stack"] else 0, "showPoints": "never",
              "stacking": {"mode": "normal" if p["stack"] else "none", "group": "A"},
              "thresholdsStyle": {"mode": "off" if p["red"] is None else "line"}}
    panel_ = {"id": number_of, "type": p["kind"], "title": p["title"], "description": p["text"],
              "datasource": DATASOURCE, "gridPos": {"x": x, "y": y, "w": p["width"], "h": 4 if p["kind"] == "stat" else 8},
              "targets": targets(p["queries"]),
              "fieldConfig": {"defaults": {"unit": p["unit"], "min": 0, "thresholds": thresholds(p["red"])}, "overrides": []}}
    if p["kind"] == "stat":
        panel_["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
    else:
        panel_["fieldConfig"]["defaults"]["custom"] = custom
        panel_["options"] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return panel_


def laid_out(rows):
    panels, y = [], 0
    for title, row in rows:
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        x, y, height = 0, y + 1, 0
        for p in row:
            if x + p["width"] > 24:
                x, y, height = 0, y + height, 0
            panels.append(made(p, x, y, len(panels) + 1))
            x, height = x + p["width"], max(height, panels[-1]["gridPos"]["h"])
        y += height
    return panels


def variable(name, query):
    return {"name": name, "label": name, "type": "query", "datasource": DATASOURCE, "definition": query,
            "query": {"query": query, "refId": name}, "multi": True, "includeAll": True, "allValue": ".*", "refresh": 2,
            "sort": 1, "current": {"text": "All", "value": "$__all"}}


def board(title, uid, rows, variables, other):
    return {
        "title": title, "uid": uid, "tags": ["baton"], "schemaVersion": 38, "editable": True, "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"}, "timezone": "browser", "panels": laid_out(rows),
        "links": [{"title": other[0], "type": "link", "url": f"/d/{other[1]}", "keepTime": True, "includeVars": True}],
        "templating": {"list": [{"name": "datasource", "label": "datasource", "type": "datasource",
                                 "query": "prometheus", "refresh": 1}] + [variable(*v) for v in variables]},
    }


MODELS = ("model", "label_values(baton_requests_in_flight, model)")
WORKERS = ("worker", 'label_values(baton_worker_up{model=~"$model"}, worker)')
BOARDS = {
    "baton.json": board("Baton", "baton", OVERVIEW, [MODELS], ("Drill-down", "baton-drilldown")),
    "baton-drilldown.json": board("Baton: drill-down", "baton-drilldown", DRILLDOWN, [MODELS, WORKERS],
                                  ("Overview", "baton")),
}


def main(arguments):
    stale = []
    for name, content in BOARDS.items():
        path, text = os.path.join(HERE, name), json.dumps(content, indent=1) + "\n"
        if arguments == ["--check"]:
            with open(path, encoding="utf-8") as f:
                stale += [name] if f.read() != text else []
        else:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
    if stale:
        print(f"{' '.join(stale)}: not what packaging/observability/boards.py makes; run it", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
