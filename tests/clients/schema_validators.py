# SPDX-License-Identifier: Apache-2.0
"""Whether a text is a JSON value that a schema describes, by two implementations of JSON Schema that have nothing in common
with Baton's: jsonschema of Python, and jsonschema-rs of Rust. Formats are asserted.

Names that a schema does not have may be there twice in a text; the last of them counts.
"""
import decimal
import json
import re
import sys

import jsonschema
import jsonschema_rs

decimal.getcontext().prec = 400  # digits of a remainder
sys.setrecursionlimit(10000)  # jsonschema has some five frames a level, and texts some hundred levels


KINDS = {
    "draft4": (jsonschema.Draft4Validator, jsonschema_rs.Draft4Validator),
    "draft6": (jsonschema.Draft6Validator, jsonschema_rs.Draft6Validator),
    "draft7": (jsonschema.Draft7Validator, jsonschema_rs.Draft7Validator),
    "draft2019-09": (jsonschema.Draft201909Validator, jsonschema_rs.Draft201909Validator),
    "draft2020-12": (jsonschema.Draft202012Validator, jsonschema_rs.Draft202012Validator),
}


def not_json(name):
    raise ValueError(f"{name} is not JSON")


def parse(text, parse_float=float):
    """@param text  UTF-8. ValueError where it is not JSON"""
    return json.loads(text.decode(), parse_float=parse_float, parse_constant=not_json)


def strings_of(schema, keyword):
    """All strings that stand at a keyword, and all member names at `patternProperties`."""
    if isinstance(schema, list):
        for item in schema:
            yield from strings_of(item, keyword)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == keyword:
                yield from [value] if isinstance(value, str) else list(value) if isinstance(value, dict) else []
            yield from strings_of(value, keyword)


def patterns_of(schema):
    return list(strings_of(schema, "pattern")) + list(strings_of(schema, "patternProperties"))


def python_agrees(schema, formats):
    """Whether Python's jsonschema means the same by a schema: it takes formats that it cannot check for satisfied, also below
    `not`; its patterns are Python's, not those of ECMA-262; it compiles the empty pattern of patternProperties away."""
    patterns = patterns_of(schema)
    return set(strings_of(schema, "format")) <= set(formats) and not any(re.search(r"\\[dDwWsSpPcbBxu]|\$|^$", p) for p in patterns)


def applied(schema):
    """The references that a schema applies to the value itself, not to parts of it."""
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("$ref"), str):
        yield schema["$ref"]
    for key in ("not", "if", "then", "else"):
        yield from applied(schema.get(key))
    for key in ("allOf", "anyOf", "oneOf"):
        for item in schema.get(key, ()):
            yield from applied(item)
    for key in ("dependentSchemas", "dependencies"):
        for item in schema.get(key, {}).values():
            yield from applied(item)


def applies_itself(document):
    """Whether a schema of a document, or of its definitions, may apply itself to one value without end: what Baton never comes
    to may be so, and jsonschema is lost in it."""
    schemas = {"#": document} if isinstance(document, dict) else {}
    for place in ("$defs", "definitions"):
        for name, schema in schemas.get("#", {}).get(place, {}).items():
            schemas[f"#/{place}/{name}"] = schema
    for name in schemas:
        found, todo = set(), [name]
        while todo:
            for other in applied(schemas.get(todo.pop())):
                if other == name:
                    return True
                if other not in found:
                    found.add(other)
                    todo.append(other)
    return False


class Validators:
    """@param text  of the schema, UTF-8
    @param draft  of one without $schema"""

    def __init__(self, text, draft="draft2020-12"):
        schema = parse(text)
        exact, fast = KINDS[draft]
        if isinstance(schema, dict) and "$schema" in schema:
            fast, exact = jsonschema_rs.validator_cls_for(schema), jsonschema.validators.validator_for(schema)
        self.fast = fast(schema, validate_formats=True, offline=True)
        # A dot of ECMA-262 matches none of these, one of the validators does.
        self.unknown = re.compile(r"[\r\u2028\u2029]|\\r|\\u2028|\\u2029|\\u000[dD]" if any("." in x for x in patterns_of(schema)) else r"(?!)")
        self.exact = None
        if python_agrees(schema, exact.FORMAT_CHECKER.checkers) and not applies_itself(schema):
            self.exact = exact(parse(text, decimal.Decimal), format_checker=exact.FORMAT_CHECKER)

    def fault(self, text):
        """@return why a text is not of the schema, or None: it is, or nobody here can say"""
        try:
            value = parse(text)
        except ValueError as error:
            return f"not JSON: {error}"
        if self.unknown.search(text.decode()):
            return None
        if not self.fast.is_valid(value):
            return f"jsonschema-rs: {next(iter(self.fast.iter_errors(value))).message}"
        error = self.exact and next(self.exact.iter_errors(parse(text, decimal.Decimal)), None)
        return error and f"jsonschema: {error.message}"
