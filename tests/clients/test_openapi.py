#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The HTTP port held against docs/openapi.json by schemathesis: whatever it makes of the file, right or wrong, no
answer has a status, type or body that is not in the file, and none says that the server failed.

Usage: test_openapi.py [NAME ...]

Needs `pip install schemathesis` and the variables of test_clients.py. The same requests each time: no seed is drawn.
"""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))
import client_tests  # noqa: E402
import harness  # noqa: E402
from test_clients import url  # noqa: E402

# The model's own refuses tools.
TEMPLATE = ("{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
            "{% for call in m.tool_calls %}{{ call | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
FILE = os.path.join(harness.ROOT, "docs", "openapi.json")
CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
          "positive_data_acceptance", "negative_data_rejection", "unsupported_method", "events_are_documented"]


def hold(c, paths, examples, checks=tuple(CHECKS), phases="examples,coverage,fuzzing"):
    """@return how many operations and requests were tried; fails with what schemathesis found."""
    environment = dict(os.environ, PYTHONPATH=HERE, SCHEMATHESIS_HOOKS="openapi_hooks", BATON_OPENAPI=FILE,
                       PYTHONDONTWRITEBYTECODE="1")
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run", FILE,
             "--url", url(c), "--phases", phases, "--checks", ",".join(checks), "--include-path-regex", paths,
             "--max-examples", str(examples), "--generation-deterministic", "--seed", "1",
             "--generation-codec", "ascii", "--generation-allow-x00", "false", "--no-shrink", "--continue-on-failure",
             "--no-color", "--request-timeout", "120"],
            cwd=directory, env=environment, capture_output=True, text=True, check=False)
    what = done.stdout[done.stdout.find("= FAILURES ="):].splitlines()
    assert done.returncode == 0, "\n".join(line[:600] for line in what[:120]) + done.stderr[-2000:]
    return done.stdout


def figures(out):
    """@return operations and requests of what schemathesis says at the end."""
    operations = re.search(r"Tested: (\d+)", out)
    requests = re.search(r"(\d+) generated", out)
    return int(operations.group(1)), int(requests.group(1))


def test_openai_paths_match_the_openapi_file(c):
    tried = figures(hold(c, r"^/(v1/.*|inference/.*|openapi.json|tokenize|detokenize|tokenizer_info|health|version|metrics|ping|page/.*|)$", 5))
    assert tried[0] == 34 and tried[1] > 1000, tried
    print(f"# {tried[0]} operations, {tried[1]} requests")
    c.wait_idle()


def test_ollama_paths_match_the_openapi_file(c):
    """But for those that are refused, with a status that says so."""
    tried = figures(hold(c, r"^/api/(chat|generate|tags|ps|show|version)$", 3))
    assert tried[0] == 6 and tried[1] > 200, tried
    print(f"# {tried[0]} operations, {tried[1]} requests")
    c.wait_idle()


def test_triton_paths_match_the_openapi_file(c):
    """The file says less of tensors and orders than what is allowed: that depends on the model."""
    loose = [x for x in CHECKS if x not in ("positive_data_acceptance", "negative_data_rejection")]
    tried = figures(hold(c, r"^/(v2(?!.*\{version\}).*|invocations)$", 1, loose))
    assert tried[0] == 36 and tried[1] > 500, tried
    same = figures(hold(c, r"^/v2.*\{version\}", 1, loose, "fuzzing"))
    assert same[0] == 9, same
    print(f"# {tried[0] + same[0]} operations, {tried[1] + same[1]} requests")
    c.wait_idle()


def test_training_loop_paths_match_the_openapi_file(c):
    """What is valid is refused, too: an order while another one is carried out, a file of weights that is not there."""
    loose = [x for x in CHECKS if x != "positive_data_acceptance"]
    tried = figures(hold(c, r"^/(pause|resume|is_paused|sleep|wake_up|is_sleeping|reset_prefix_cache|update_weights_from_disk|"
                            r"get_weight_version|v1/(un)?load_lora_adapter)$", 1, loose))
    assert tried[0] == 11 and tried[1] > 100, tried
    print(f"# {tried[0]} operations, {tried[1]} requests")
    for path in ("/wake_up", "/resume"):
        status, answer = c.post(path, None)
        assert status == 200, (path, answer)
    assert c.complete("Hello, world")
    c.wait_idle()


def missing():
    return None if importlib.util.find_spec("schemathesis") else "schemathesis is not installed"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        template = os.path.join(folder, "template.jinja")
        with open(template, "w", encoding="utf-8") as text:
            text.write(TEMPLATE)
        code = client_tests.main(globals(), missing(), router_args=["--chat-template", template, "--tool-call-parser", "hermes",
                                                                         "--store", os.path.join(folder, "store"),
                                                                         "--max-event-streams", "0"])  # who reads on never ends
    sys.exit(code)
