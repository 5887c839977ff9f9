# SPDX-License-Identifier: Apache-2.0
"""openapi.py finds what it is there for: what agrees gives no reason, and the same with one thing altered gives one."""
import json
import unittest

import openapi

ROUTES = """
#define MODEL         "/v2/models/{model}"
#define MODEL_VERSION MODEL "/versions/{version}"
#define SHARED_MEMORY(at, status, add)   \\
    {at "/status", READ, status},        \\
    {                                    \\
        at "/region/{name}", POST, add   \\
    }

static const route_t main_routes[] = {
    {"/", READ, bt_route_welcome}, /* {"/not", READ, there} */
    {MODEL "/infer", POST, infer},
    {MODEL_VERSION, READ, bt_route_model},
    {"/v2/logging", READ_OR_POST, bt_route_log},
    SHARED_MEMORY("/v2/memory", bt_route_status,
                  bt_route_register),
};
"""
FIELDS = """
static const bt_api_field_t fields[] = {
    OWN("prompt", BT_API_C | BT_API_T, bt_api_read_prompt),
    U32("n", BT_API_O, n, 1, BT_API_MAX_PROMPTS),
    {"top_p", BT_API_C, read_top_p, AT(sampling.top_p), 0, 1},
    BOOL("echo", BT_API_C, echo),
    NOT_YET("suffix", BT_API_C),
    IGNORED("user", BT_API_C),
};
"""


HEADER = "#define BT_API_MAX_PROMPTS    64 /* choices */\n"


def request(**properties):
    return {"type": "object", "properties": properties}


def document():
    whole = {"type": ["integer", "null"], "minimum": 1, "maximum": 64}
    return {
        "paths": {"/": {"get": {}}, "/v2/models/{model}/infer": {"post": {}},
                  "/v2/models/{model}/versions/{version}": {"get": {}}, "/v2/logging": {"get": {}, "post": {}},
                  "/v2/memory/status": {"get": {}}, "/v2/memory/region/{name}": {"post": {}}},
        "components": {"schemas": {
            "NotYet": {}, "Ignored": {}, "ResponseRequest": request(), "DetokenizeRequest": request(), "AnthropicRequest": request(),
            "InferenceRequest": request(), "SamplingParams": request(),
            "OllamaChatRequest": request(), "OllamaGenerateRequest": request(), "OllamaOptions": request(),
            "GenerateRequest": request(), "TokenizeRequest": {"oneOf": [request(prompt={"type": "string"})]},
            "ChatRequest": request(n=whole),
            "CompletionRequest": request(
                prompt={}, n=whole, top_p={"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
                echo={"type": ["boolean", "null"]}, suffix={"$ref": "#/components/schemas/NotYet"},
                user={"$ref": "#/components/schemas/Ignored"})}}}


def reasons(alter=lambda paths, fields: None, routes_c=ROUTES, fields_c=FIELDS, headers=HEADER):
    whole = document()
    alter(whole["paths"], whole["components"]["schemas"]["CompletionRequest"]["properties"])
    return openapi.check(json.dumps(whole), routes_c, fields_c, headers)


class OpenApi(unittest.TestCase):
    def one(self, part, *arguments, **more):
        found = reasons(*arguments, **more)
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])

    def test_what_agrees_gives_no_reason(self):
        self.assertEqual(reasons(), [])

    def test_a_path_of_one_side_alone(self):
        self.one("/more", lambda p, f: p.update({"/more": {"get": {}}}))
        self.one("/v2/memory/status", lambda p, f: p.pop("/v2/memory/status"))
        self.one("/v2/logging", lambda p, f: p["/v2/logging"].pop("post"))

    def test_a_field_of_one_side_alone(self):
        self.one("CompletionRequest.more: no table", lambda p, f: f.update(more={}))
        self.one("CompletionRequest.user: the table has it", lambda p, f: f.pop("user"))
        self.one("ChatRequest.echo", fields_c=FIELDS.replace('"echo", BT_API_C', '"echo", BT_API_O'))

    def test_a_type_or_a_bound_that_differs(self):
        self.one("boolean", lambda p, f: f["echo"].update(type="string"))
        self.one("top_p", lambda p, f: f["top_p"].update(maximum=2))
        self.assertEqual(len(reasons(fields_c=FIELDS.replace("n, 1,", "n, 0,"))), 2)
        self.assertEqual(len(reasons(headers=HEADER.replace("64", "65"))), 2)

    def test_what_is_not_there_yet_or_without_effect(self):
        self.one("suffix", lambda p, f: f.update(suffix={"type": "string"}))
        self.one("prompt", lambda p, f: f.update(prompt={"$ref": "#/components/schemas/NotYet"}))
        self.one("user", lambda p, f: f.update(user={"type": "string"}))
        self.one("prompt", lambda p, f: f.update(prompt={"$ref": "#/components/schemas/Ignored"}))
