# SPDX-License-Identifier: Apache-2.0
"""Reads the file of --trace-file: one line of OTLP JSON for each request that ended."""
import json


def value_of(v):
    (kind, x), = v.items()
    if kind == "intValue":
        assert isinstance(x, str), v  # OTLP: 64-bit numbers are strings
        return int(x)
    return [value_of(i) for i in x["values"]] if kind == "arrayValue" else x


def attributes(thing):
    names = [a["key"] for a in thing["attributes"]]
    assert len(names) == len(set(names)), names
    return {a["key"]: value_of(a["value"]) for a in thing["attributes"]}


class Line:
    """One line, checked for its form; .a are the attributes of the request."""

    def __init__(self, text):
        resource, = json.loads(text)["resourceSpans"]
        scope, = resource["scopeSpans"]
        assert attributes(resource["resource"])["service.name"] == "baton-router"
        self.root, *self.parts = scope["spans"]
        self.a = attributes(self.root)
        self.status = self.root["status"].get("code", 0)
        self.finish, = self.a["gen_ai.response.finish_reasons"]
        at = int(self.root["startTimeUnixNano"])
        for part in self.parts:  # without gap or overlap (I7)
            assert part["parentSpanId"] == self.root["spanId"] and part["traceId"] == self.root["traceId"]
            assert int(part["startTimeUnixNano"]) == at, part
            at = int(part["endTimeUnixNano"])
        assert at == int(self.root["endTimeUnixNano"])
        spans = [self.root] + self.parts
        assert len({s["spanId"] for s in spans}) == len(spans)
        for s in spans:
            assert len(s["traceId"]) == 32 and len(s["spanId"]) == 16

    def part_us(self, name):
        return sum(int(p["endTimeUnixNano"]) - int(p["startTimeUnixNano"])
                   for p in self.parts if p["name"] == "baton." + name) // 1000


def read(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    return [Line(t) for t in text.split("\n")[:-1]] if text.endswith("\n") else []
