# SPDX-License-Identifier: Apache-2.0
"""requests_doc.py says what the tables say, and finds what it cannot say."""
import json
import unittest

import requests_doc

MODELS = '''
#define SHARED_INPUTS               \\
    OPT("end_id", INT32, END_ID, 1), \\
    ALSO("seed", UINT64, SEED, 1)

static const bt_model_tensor_t a_inputs[] = {
    IN("text", BYTES, TEXT, -1, 3), /* the one */
    SHARED_INPUTS,
};

static const bt_model_tensor_t a_outputs[] = {
    OUT("out", BYTES, TEXT, -1),
};
    SPEC("a", BT_ROLE_TEXT, true, a_inputs,
         a_outputs),
    SPEC("ensemble", BT_ROLE_TEXT, true, a_inputs, a_outputs),
'''


def openapi(**fields):
    empty = {"type": "object", "properties": {}}
    schemas = {name: empty for _, name in requests_doc.REQUESTS}
    schemas["ChatRequest"] = {"type": "object", "required": ["b"], "properties": dict({
        "a": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**31 - 1, "description": "First."},
        "b": {"$ref": "#/components/schemas/Words"},
        "c": {"$ref": "#/components/schemas/NotYet"},
        "d": {"$ref": "#/components/schemas/Ignored"}}, **fields)}
    schemas["Words"] = {"description": "Some.", "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    schemas["NotYet"] = schemas["Ignored"] = {"description": "x"}
    return json.dumps({"components": {"schemas": schemas}})


def page(text=None):
    return "# A page\n\n" + requests_doc.BEGIN + (text or requests_doc.made(openapi(), MODELS)) + requests_doc.END


class RequestsDoc(unittest.TestCase):
    def test_it_says_what_the_tables_say(self):
        text = requests_doc.made(openapi(), MODELS)
        self.assertIn("| `a` | integer, 0 to 2^31 - 1 | First. |\n", text)
        self.assertLess(text.index("| `b` (needed) | string or list of string | Some. |\n"), text.index("| `a` |"))
        self.assertIn("asks for nothing: `c`.\n\nTaken, and without effect: `d`.", text)
        self.assertIn("### `a`, `ensemble`, and a model's own name\n", text)
        self.assertIn("| `text` (needed) | BYTES [-1, 3] | the prompt |\n| `end_id` | INT32 [1] |", text)
        self.assertIn("| `seed` | UINT64 [1] | the same seed, the same answer |\n\n| Output |", text)
        self.assertEqual([], requests_doc.check(page(), openapi(), MODELS))

    def test_what_is_not_current_or_cannot_be_said_is_found(self):
        for text, fields, models in (
                (page("old"), {}, MODELS),
                ("no marks", {}, MODELS),
                (page(), {"e": {"type": "boolean"}}, MODELS),
                (page(), {"e": {"type": "boolean", "description": "New."}}, MODELS),
                (page(), {}, MODELS.replace("END_ID, 1", "NEWER, 1")),
                (page(), {}, MODELS.replace('OPT("end_id"', 'HUH("end_id"')),
                (page(), {}, MODELS.replace("SPEC", "SPIC"))):
            self.assertEqual(1, len(requests_doc.check(text, openapi(**fields), models)), (text, fields))
