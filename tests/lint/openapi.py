# SPDX-License-Identifier: Apache-2.0
"""Does docs/openapi.json say what the tables in C say? Each path of router/http/routes.c with its methods, and each
field of router/api/api_fields.c in the request of each dialect that has it, with its type and bounds, and nothing
that no table has. Works on texts, so that a test can alter them (test_openapi.py)."""
import json
import re

DIALECTS = {
    "BT_API_C": "CompletionRequest",
    "BT_API_H": "ChatRequest",
    "BT_API_R": "ResponseRequest",
    "BT_API_T": "TokenizeRequest",
    "BT_API_D": "DetokenizeRequest",
    "BT_API_G": "GenerateRequest",
    "BT_API_M": "AnthropicRequest",
    "BT_API_I": "InferenceRequest",
    "BT_API_S": "SamplingParams",
    "BT_API_LC": "OllamaChatRequest",
    "BT_API_LG": "OllamaGenerateRequest",
}
TOGETHER = {"BT_API_O": ["BT_API_C", "BT_API_H"], "BT_API_A": ["BT_API_G", "BT_API_C", "BT_API_H"], "BT_API_L": ["BT_API_LC", "BT_API_LG"]}
OPTIONS, OLLAMA = "ollama_options[] = {", "OllamaOptions"  # the fields of one field
METHODS = {"READ": {"get"}, "POST": {"post"}, "READ_OR_POST": {"get", "post"}, "READ_OR_DELETE": {"get", "delete"}, "DELETE": {"delete"}}
NUMBERS = {"BT_SCHED_MAX_BEAMS": 64, "INT32_MAX": 2**31 - 1, "UINT32_MAX": 2**32 - 1, "MAX_I64": 2**63 - 1}
KINDS = {"BOOL": "boolean", "NOT": "boolean", "U32": "integer", "FLOAT": "number"}
ROW = re.compile(r"^ *(?:([A-Z_0-9]+)\(|\{)(.*?)[)}],$", re.M)


def table(text, start, end):
    """@return the text between two marks, without comments."""
    begin = text.index(start) + len(start)
    return re.sub(r"/\*.*?\*/", "", text[begin:text.index(end, begin)], flags=re.S)


def routes(text):
    """@return {path: methods} of routes.c."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    words = dict(re.findall(r"^#define (MODEL\w*) +(.+)$", text, re.M))
    shared = re.search(r"#define SHARED_MEMORY.*?\n\n", text, re.S).group(0).replace("\\\n", "")
    found = {}

    def add(expression, methods):
        for _ in range(2):  # one stands for another
            for word in words:
                expression = re.sub(rf"\b{word}\b", words[word], expression)
        found["".join(re.findall(r'"([^"]*)"', expression))] = METHODS[methods]

    rows = table(text, "main_routes[] = {", "\n};")
    for expression, methods in re.findall(r"\{([^,{}]*(?:\{\w+\}[^,{}]*)*), (\w+), \w+(?:, \w+)?\}", rows):
        add(expression, methods)
    for at in re.findall(r'SHARED_MEMORY\(("[^"]+")', rows):
        for suffix, methods in re.findall(r'\bat ("[^"]+"), (\w+)', shared):
            add(at + suffix, methods)
    return found


def fields(text, headers, start="fields[] = {"):
    """@return a list of (name, dialects, macro or None, the other arguments) of api_fields.c, with the numbers that
    the headers define in their places."""
    found = []
    defined = dict(re.findall(r"^#define (BT_(?:API_)?MAX_\w+) +(\d+)\b", headers, re.M))
    for macro, inside in ROW.findall(table(text, start, "\n};")):
        parts = [p.strip() for p in inside.split(",")]
        who = []
        for word in re.findall(r"BT_API_\w+", parts[1]):
            who += TOGETHER.get(word, [word])
        found.append((parts[0].strip('"'), who, macro or None, [defined.get(p, p) for p in parts[2:]]))
    return found


def number(text):
    return NUMBERS[text] if text in NUMBERS else float(text)


class Document:
    def __init__(self, text):
        self.all = json.loads(text)
        self.schemas = self.all["components"]["schemas"]

    def follow(self, schema):
        while "$ref" in schema:
            schema = self.schemas[schema["$ref"].rsplit("/", 1)[1]]
        return schema

    def properties(self, name):
        """@return {field: list of its schemas} of a request, over its forms."""
        schema = self.schemas[name]
        found = {}
        for form in schema.get("oneOf", [schema]):
            for key, value in form["properties"].items():
                found.setdefault(key, []).append(value)
        return found


def types_of(schema):
    types = schema.get("type", [])
    return set([types] if isinstance(types, str) else types)


def check_field(document, request, row, given):
    """@return what is wrong with a field of a request."""
    name, _, macro, rest = row
    where = f"{request}.{name}"
    bad = []
    for schema in given:
        reference = schema.get("$ref", "").rsplit("/", 1)[-1]
        if (macro == "NOT_YET") != (reference == "NotYet"):
            bad.append(f"{where}: the table and the file differ in whether it is there yet")
        if macro == "IGNORED" and name != "parameters" and reference != "Ignored":
            bad.append(f"{where}: the table ignores it, the file does not say so")
        if macro != "IGNORED" and reference == "Ignored":
            bad.append(f"{where}: the file says that it is ignored, the table does not")
        schema = document.follow(schema)
        if macro in KINDS and types_of(schema) not in ({KINDS[macro], "null"}, {"null"}) and "enum" not in schema:
            bad.append(f"{where}: the table has {KINDS[macro]}, the file {schema.get('type')}")
        bounds = rest[2:4] if macro is None else rest[-2:] if len(rest) >= 2 else []
        if macro in ("U32", "FLOAT") or (macro is None and bounds and types_of(schema) & {"integer", "number"}):
            low = schema.get("minimum", schema.get("exclusiveMinimum"))
            if [low, schema.get("maximum")] != [number(b) for b in bounds]:
                bad.append(f"{where}: the table has {' to '.join(bounds)}, the file {low} to {schema.get('maximum')}")
    return bad


def check(openapi, routes_c, fields_c, headers):
    """@return what differs, a line each."""
    document = Document(openapi)
    bad = []
    in_table = routes(routes_c)
    in_file = {path: {m for m in methods if m in ("get", "post", "delete")} for path, methods in document.all["paths"].items()}
    for path in sorted(set(in_table) | set(in_file)):
        if in_table.get(path) != in_file.get(path):
            there, here = sorted(in_table.get(path, [])), sorted(in_file.get(path, []))
            bad.append(f"{path}: routes.c has {there}, the file {here}")
    rows = fields(fields_c, headers)
    for dialect, request in DIALECTS.items():
        given = document.properties(request)
        of_table = {row[0]: row for row in rows if dialect in row[1]}
        bad += [f"{request}.{n}: no table has it" for n in given if n not in of_table]
        for name, row in of_table.items():
            bad += check_field(document, request, row, given[name]) if name in given else [
                f"{request}.{name}: the table has it, the file does not"]
    options = {row[0].removeprefix("options."): row for row in fields(fields_c, headers, OPTIONS)} if OPTIONS in fields_c else {}
    given = document.properties(OLLAMA) if OLLAMA in document.schemas else {}
    bad += [f"{OLLAMA}.{n}: one of table and file has it" for n in set(given) ^ set(options)]
    for name in set(given) & set(options):
        bad += check_field(document, OLLAMA, (name, *options[name][1:]), given[name])
    return [f"docs/openapi.json: {b}" for b in bad]
