# SPDX-License-Identifier: Apache-2.0
"""Random JSON Schemas, of draft 2020-12 and of draft 7, of small values, so that keywords often meet in one value."""
import random

NAMES = ["a", "b", "ab", "c", "é", "x\"y"]
SCALARS = [None, True, False, 0, 1, -3, 2.5, "a", "ab", "", "\n", 10, 100.25]
VALUES = SCALARS + [[], [1], ["a", 2], {}, {"a": 1}, {"b": "a", "a": None}]
TYPES = ["null", "boolean", "string", "number", "integer", "array", "object"]
PATTERNS = ["^a", "b$", "^[a-c]{0,4}$", "^x|y$", "[0-9]", "^(ab)*$", "^.{2,5}$", "^[^a]*$", "a.?b", "^\\w+$", "^é", "^$",
            "^(a|b)+c?$", "\\d{2}", "^[A-Z][a-z]{1,6}$"]
NAME_PATTERNS = ["^a", "b$", "^[a-c]$", "é", "^x", "^.{2}$", "[b-d]", ".*"]
FORMATS = ["date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "uri-reference",
           "json-pointer", "relative-json-pointer", "regex", "iri", "idn-email", "idn-hostname", "uri-template", "iri-reference"]
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
BOUNDS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]
STEPS = [1, 2, 3, 5, 7, 12, 100, 0.5, 0.1, 0.01, 0.25, 2.5, 0.3]


class Schemas:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.n_defs = 0

    def often(self, share):
        return self.rng.random() < share

    def document(self):
        """@return a whole schema, with definitions that may call each other and themselves"""
        self.n_defs = self.rng.choice([0, 0, 1, 2])
        schema = self.schema(self.rng.choice([1, 2, 2, 3]))
        while not isinstance(schema, dict):
            schema = self.schema(2)
        if self.n_defs:
            schema = dict(schema, **{"$defs": {f"d{i}": self.schema(2) for i in range(self.n_defs)}})
        self.n_defs = 0
        return dict(of_draft_7(schema), **{"$schema": DRAFT_7}) if self.often(0.2) else schema

    def schema(self, depth):
        kinds = [self.of_type, self.values, self.string, self.number, self.reference, self.negation]
        if depth > 0:
            kinds += [self.object, self.object, self.object, self.array, self.array, self.combined, self.combined, self.conditional]
        schema = self.rng.choice(kinds)(depth)
        if isinstance(schema, dict) and depth > 0 and self.often(0.12):
            other = self.schema(depth - 1)
            if isinstance(other, dict):
                schema = dict(schema, **{k: v for k, v in other.items() if k not in schema})
        return schema

    def of_type(self, _):
        return self.rng.choice([True, {}, {"type": self.rng.choice(TYPES)}, {"type": self.rng.sample(TYPES[:5], 2)},
                                {"type": self.rng.sample(TYPES, 3)}])

    def values(self, _):
        if self.often(0.3):
            return {"const": self.rng.choice(VALUES)}
        return {"enum": [self.rng.choice(VALUES) for _ in range(self.rng.randint(1, 4))]}

    def string(self, _):
        schema = {"type": "string"} if self.often(0.8) else {}
        kind = self.rng.randrange(4)
        if kind == 0:
            schema["pattern"] = self.rng.choice(PATTERNS)
        elif kind == 1:
            schema["format"] = self.rng.choice(FORMATS)
        if kind != 1 or self.often(0.1):
            if self.often(0.5):
                schema["minLength"] = self.rng.randint(0, 12)
            if self.often(0.5):
                schema["maxLength"] = schema.get("minLength", 0) + self.rng.randint(0, 12)
        return schema

    def number(self, _):
        schema = {"type": self.rng.choice(["integer", "number"])} if self.often(0.85) else {}
        for key in BOUNDS:
            if self.often(0.35):
                schema[key] = self.rng.choice([self.rng.randint(-120, 120), round(self.rng.uniform(-20, 20), self.rng.randint(1, 3)),
                                               0, 10, 100, 99.5])
        if self.often(0.3):
            schema["multipleOf"] = self.rng.choice(STEPS)
        return schema

    def reference(self, depth):
        if not self.n_defs:
            return self.string(depth)
        return {"$ref": "#" if self.often(0.1) else f"#/$defs/d{self.rng.randrange(self.n_defs)}"}

    def negation(self, depth):
        return {"not": self.schema(depth - 1) if depth > 0 else self.rng.choice([{"type": self.rng.choice(TYPES)}, {"const": 1}])}

    def object(self, depth):
        rng, sub = self.rng, lambda: self.schema(depth - 1)
        schema = {"type": "object"} if self.often(0.8) else {}
        if self.often(0.85):
            schema["properties"] = {name: sub() for name in rng.sample(NAMES, rng.randint(0, 4))}
        if self.often(0.5):
            schema["required"] = rng.sample(NAMES, rng.randint(0, 3))
        if self.often(0.2):
            schema["patternProperties"] = {rng.choice(NAME_PATTERNS): sub() for _ in range(rng.randint(1, 2))}
        if self.often(0.45):
            schema["additionalProperties"] = rng.choice([False, False, sub()])
        if self.often(0.15):
            schema["minProperties"] = rng.randint(0, 3)
        if self.often(0.2):
            schema["maxProperties"] = rng.randint(0, 4)
        if self.often(0.1):
            schema["propertyNames"] = rng.choice([{"enum": ["a", "b", "zz"]}, {"not": {"enum": ["a"]}}, {"pattern": "^[a-c]"}, {"maxLength": 2}])
        if self.often(0.15):
            schema["dependentRequired"] = {rng.choice(NAMES): rng.sample(NAMES, rng.randint(0, 2)) for _ in range(rng.randint(1, 2))}
        if self.often(0.07):
            schema["dependentSchemas"] = {rng.choice(NAMES): sub()}
        if self.often(0.12):
            schema["unevaluatedProperties"] = rng.choice([False, False, sub()])
        return schema

    def array(self, depth):
        rng, sub = self.rng, lambda: self.schema(depth - 1)
        schema = {"type": "array"} if self.often(0.85) else {}
        if self.often(0.65):
            schema["items"] = sub()
        if self.often(0.35):
            schema["prefixItems"] = [sub() for _ in range(rng.randint(1, 3))]
        if self.often(0.4):
            schema["minItems"] = rng.randint(0, 3)
        if self.often(0.4):
            schema["maxItems"] = rng.randint(0, 4)
        if self.often(0.2):
            schema["contains"] = sub()
            if self.often(0.4):
                schema["minContains"] = rng.randint(0, 2)
            if self.often(0.4):
                schema["maxContains"] = rng.randint(0, 3)
        if self.often(0.15):
            schema["uniqueItems"] = True
        if self.often(0.1):
            schema["unevaluatedItems"] = rng.choice([False, sub()])
        return schema

    def combined(self, depth):
        return {self.rng.choice(["anyOf", "allOf", "oneOf"]): [self.schema(depth - 1) for _ in range(self.rng.randint(1, 3))]}

    def conditional(self, depth):
        schema = self.object(depth) if self.often(0.4) else {}
        schema["if"] = self.schema(depth - 1)
        for key in ("then", "else"):
            if self.often(0.7):
                schema[key] = self.schema(depth - 1)
        return schema


def of_draft_7(schema):
    """@return what is nearest to a schema in draft 7, where $ref leaves all beside it out"""
    if isinstance(schema, list):
        return [of_draft_7(x) for x in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if key in ("unevaluatedProperties", "unevaluatedItems", "minContains", "maxContains") or (
                key == "format" and value in ("duration", "uuid")):
            continue
        if key in ("const", "enum", "required"):
            out[key] = value
        elif key in ("properties", "patternProperties", "$defs", "dependentSchemas"):
            name = {"$defs": "definitions", "dependentSchemas": "dependencies"}.get(key, key)
            out[name] = dict(out.get(name, {}), **{k: of_draft_7(v) for k, v in value.items()})
        elif key == "dependentRequired":
            out["dependencies"] = dict(value, **out.get("dependencies", {}))
        elif key == "prefixItems":
            out["items"] = of_draft_7(value)
        elif key == "items":
            out["additionalItems" if "prefixItems" in schema else "items"] = of_draft_7(value)
        elif key == "$ref":
            out[key] = value.replace("$defs", "definitions")
        else:
            out[key] = of_draft_7(value)
    return out
