#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/REQUESTS.md, made of what says what a request may have: docs/openapi.json, which openapi.py holds against the table
of fields in C, and the table of tensors in router/triton/models.c.

Usage: requests_doc.py [--write]

Without --write it says what differs. Works on texts, so that a test can alter them."""
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE, OPENAPI, MODELS = "docs/REQUESTS.md", "docs/openapi.json", "router/triton/models.c"
BEGIN, END = "<!-- made by tests/lint/requests_doc.py --write -->\n", "\n<!-- end -->\n"
REQUESTS = (
    ("POST /v1/chat/completions", "ChatRequest"),
    ("POST /v1/completions", "CompletionRequest"),
    ("POST /v1/responses", "ResponseRequest"),
    ("POST /v1/messages", "AnthropicRequest"),
    ("POST /v1/messages/count_tokens", "AnthropicCountRequest"),
    ("POST /inference/v1/generate", "InferenceRequest"),
    ("POST /inference/v1/generate, sampling_params", "SamplingParams"),
    ("POST /api/chat", "OllamaChatRequest"),
    ("POST /api/generate", "OllamaGenerateRequest"),
    ("POST /api/chat and /api/generate, options", "OllamaOptions"),
    ("POST /v2/models/NAME/generate and /generate_stream", "GenerateRequest"),
    ("POST /tokenize", "TokenizeRequest"),
    ("POST /detokenize", "DetokenizeRequest"),
)
LISTED = 14  # alternatives of one field that are named
# What an input means, by the C table's own word for it.
MEANINGS = {
    "TEXT": "the prompt", "DECODER_TEXT": "becomes DECODER_INPUT_ID, which models without an encoder do not read",
    "IDS": "token ids of the prompt", "N_IDS": "how many of them count; left out: all",
    "MAX_TOKENS": "tokens of the answer at most; left out: 16", "BAD_WORDS": "words that are never said",
    "STOP_WORDS": "words that end the answer", "BAD_WORD_IDS": "the same as ids, and where each word ends",
    "STOP_WORD_IDS": "words that end the answer, as ids, and where each ends",
    "BIAS_WORDS": "words whose tokens' logits are biased", "BIAS_WEIGHTS": "what is added, one for each of those words",
    "BIAS": "what is added to the logits, one for each token of the vocabulary", "END_ID": "a token that ends the answer",
    "PAD_ID": "fills rows that are shorter", "TOP_K": "of the most probable tokens, so many; 0: off",
    "TOP_P": "of the most probable tokens, as many as have this probability together; 1: of all, 0: off",
    "TEMPERATURE": "of a distribution that top_k or top_p asks for, 1 where it is left out; without both, or 0: the most probable token, always",
    "REPETITION_PENALTY": "divides logits of tokens that were there; 1: off",
    "PRESENCE_PENALTY": "taken off the logits of tokens that were there",
    "FREQUENCY_PENALTY": "the same for each time that they were there",
    "PROMPT_IGNORE": "tokens of the prompt's beginning that those two penalties do not count",
    "NO_REPEAT_NGRAM": "no sequence of so many tokens occurs twice; 0: off",
    "TOP_P_DECAY": "top_p is multiplied by it with each token; 1 and 0: off", "TOP_P_MIN": "least top_p of the decay",
    "TOP_P_RESET_ID": "a token that restores top_p; below 0: none",
    "MIN_LENGTH": "no end token is drawn before so many", "SEED": "the same seed, the same answer",
    "STREAM": "several responses, over gRPC's streams", "STOP": "ends the running request of this id",
    "EXCLUDE_INPUT": "the answer begins behind the prompt", "LOG_PROBS": "gives output_log_probs and cum_log_probs",
    "CONTEXT_LOGITS": "gives context_logits", "GENERATION_LOGITS": "gives generation_logits",
    "BEAM_WIDTH": "beams of a beam search; 0 and 1: none", "N_SEQUENCES": "answers of the beam search that are returned; 0: all",
    "LENGTH_PENALTY": "orders the answers by the sum of their log-probs / length to this power; left out: 0",
    "EARLY_STOPPING": "true: the search is over when as many answers as beams are finished; false: when no beam can improve them by its "
                      "present length. As a number 1 and 0; any other: by its greatest length. Left out: true",
    "GUIDE_TYPE": "structured output: what the guide is: json (any object, without a guide), json_schema, regex, ebnf_grammar, structural_tag",
    "GUIDE": "the schema, regular expression or grammar that the answer follows",
    "TABLE": "rows that stand for token ids from the vocabulary's size on, FP16, BF16 or FP32; refused in models that take text, "
             "unless all is 0",
    "TABLE_SIZE": "how many rows that table has; 0: there is none",
    "LORA_TASK": "number of an adapter that was sent with it, or comes with this request ([LORA.md](LORA.md#triton))",
    "LORA_WEIGHTS": "matrices of that adapter, FP16, BF16 or FP32; only with `lora_task_id` and `lora_config`",
    "LORA_CONFIG": "module id, layer and rank of each row of `lora_weights`",
    "TABLE_EXTRA_IDS": "only prompts with an equal table and equal numbers here share KV; 0: none",
    "NEUTRAL": "taken, and without effect",
    "DRAFT_IDS": "expected token ids of the answer: they change its time and no token; below 0: the end",
    "MAX_DRAFTS": "draft tokens of an iteration at most; 0: no speculative decoding",
    "DRAFT_THRESHOLD": "1, or 0 for off: a draft is accepted where it equals the sampled token",
    "PERF": "gives times, drafts and KV blocks of the request", "KV_REUSE": "gives the KV blocks of the request",
    "N_INPUT": "gives num_input_tokens", "N_OUTPUT": "gives num_output_tokens",
    "NOT_YET": "refused, unless its value asks for nothing", "TOKENS": "token ids that become text",
}
RESULTS = {
    "TEXT": "text", "IDS": "token ids", "N_IDS": "how many of them count", "CUM_LOG_PROBS": "sum of the log-probs",
    "LOG_PROBS": "of each token of the answer", "CONTEXT_LOGITS": "of the prompt", "GENERATION_LOGITS": "of the answer",
    "BATCH_INDEX": "which row of the batch this is", "BAD_WORD_IDS": "for tensorrt_llm", "STOP_WORD_IDS": "for tensorrt_llm",
    "BIAS": "for tensorrt_llm", "MAX_TOKENS": "as it came", "END_ID": "as it came, or the model's", "PAD_ID": "as it came, or the model's",
    "DECODER_IDS": "token ids of DECODER_QUERY, without it OUT_PAD_ID", "N_DECODER_IDS": "how many of them count",
    "PERF": "a number that return_perf_metrics or its like asks for",
    "NOT_GIVEN": "may be asked for, and is left out",
}


class Broken(Exception):
    """A table cannot be read, or says more than this knows."""


# --- fields of JSON

class Schemas:
    def __init__(self, text):
        self.all = json.loads(text)["components"]["schemas"]

    def of(self, schema):
        """@return the schema itself, and behind its reference what it leaves unsaid"""
        if "$ref" not in schema:
            return schema
        return dict(self.of(self.all[schema["$ref"].rsplit("/", 1)[1]]), **{k: v for k, v in schema.items() if k != "$ref"})

    def is_a(self, schema, name):
        return schema.get("$ref", "").endswith("/" + name)

    def properties(self, name):
        whole = self.all[name]
        found = dict(whole.get("properties", {}))
        for other in whole.get("oneOf", []):
            for field, schema in other.get("properties", {}).items():
                if schema != {"type": "null"}:
                    found.setdefault(field, schema)
        return found

    def needed(self, name):
        return set(self.all[name].get("required", []))

    def kind(self, schema):
        schema = self.of(schema)
        if "const" in schema:
            return json.dumps(schema["const"])
        if "enum" in schema:
            return ", ".join(json.dumps(v) for v in schema["enum"][:LISTED] if v is not None)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return " or ".join(dict.fromkeys(self.kind(s) for s in schema[word]))
        types = schema.get("type", "anything")
        names = [t for t in (types if isinstance(types, list) else [types]) if t != "null"]
        if names == ["array"] and "items" in schema:
            inner = self.kind(schema["items"])
            return "list" if inner == "object" or " or " in inner else f"list of {inner}"
        return " or ".join(names) + bounds_of(schema)


def bounds_of(schema):
    low, above, high = schema.get("minimum"), schema.get("exclusiveMinimum"), schema.get("maximum")
    if low is None and above is None:
        return ""
    start = f"above {above:g}" if low is None else f"{short(low)}"
    return f", {start} to {short(high)}"


def short(number):
    for bits in (31, 32, 63):
        if number == 2**bits - 1:
            return f"2^{bits} - 1"
        if number == -2**bits:
            return f"-2^{bits}"
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


def json_part(openapi):
    schemas, out = Schemas(openapi), []
    for title, name in REQUESTS:
        rows, refused, ignored = [], [], []
        for field, schema in sorted(schemas.properties(name).items(), key=lambda x: x[0] not in schemas.needed(name)):
            if schemas.is_a(schema, "NotYet"):
                refused.append(field)
                continue
            if schemas.is_a(schema, "Ignored"):
                ignored.append(field)
                continue
            text = schemas.of(schema).get("description")
            if not text:
                raise Broken(f"{OPENAPI}: {name}.{field} has no description")
            must = " (needed)" if field in schemas.needed(name) else ""
            rows.append(f"| `{field}`{must} | {schemas.kind(schema)} | {text} |")
        out.append(f"\n### `{title}`\n\n| Field | Type | What |\n|---|---|---|\n" + "\n".join(rows) + "\n")
        if refused:
            out.append("\nRefused by name, unless the value asks for nothing: " + names_of(refused) + ".\n")
        if ignored:
            out.append("\nTaken, and without effect: " + names_of(ignored) + ".\n")
    return "".join(out)


def names_of(fields):
    return ", ".join(f"`{f}`" for f in fields)


# --- tensors

ROW = re.compile(r'\b(IN|OPT|ALSO|OUT|OUT_ALSO)\("(\w+)", (\w+), (\w+), ([-\d, ]+)\)')


def tensors(text):
    """@return {name of the array: [(macro, name, type, word, dims)]} of models.c"""
    shared = {name: body for name, body in re.findall(r"^#define (\w+_INPUTS|\w+_OUTPUTS) +\\\n((?:.*\\\n)*.*)\n", text, re.M)}

    def rows(body):
        while re.search("|".join(shared), body):
            for name, other in shared.items():
                body = re.sub(rf"\b{name}\b", lambda _: other.replace("\\\n", "\n"), body)
        found = ROW.findall(body)
        if len(found) != len(re.findall(r'"\w+"', body)):
            raise Broken(f"{MODELS}: a row is none that requests_doc.py knows")
        return found
    return {name: rows(body) for name, body in
            re.findall(r"^static const bt_model_tensor_t (\w+)\[\] = \{\n(.*?)^\};", text, re.M | re.S)}


def tensor_part(models_c):
    found, out = tensors(models_c), []
    specs = re.findall(r'SPEC\("(\w+)", \w+, (?:true|false), (\w+),\s*(\w+)\)', models_c)
    if not specs:
        raise Broken(f"{MODELS}: there are no models")
    titles = {}
    for model, inputs, outputs in specs:
        titles.setdefault((inputs, outputs), []).append(model)
    for (inputs, outputs), models in titles.items():
        title = ", ".join(f"`{m}`" for m in models)
        if "ensemble" in models:
            title += ", and a model's own name"
        out.append(f"\n### {title}\n\n| Input | Type and shape | What |\n|---|---|---|\n")
        for macro, name, kind, word, dims in found[inputs]:
            # There is a length to fall back on, whatever clients are told of it: check_missing() of tensors_to_requests.c.
            must = " (needed)" if macro == "IN" and word != "MAX_TOKENS" else ""
            out.append(f"| `{name}`{must} | {kind} [{dims}] | {meaning(MEANINGS, word, name)} |\n")
        out.append("\n| Output | Type and shape | What |\n|---|---|---|\n")
        out += [f"| `{name}` | {kind} [{dims}] | {meaning(RESULTS, word, name)} |\n"
                for macro, name, kind, word, dims in found[outputs]]
    return "".join(out)


def meaning(table, word, name):
    if word not in table:
        raise Broken(f"{MODELS}: {name} means {word}, of which requests_doc.py knows nothing")
    return table[word]


# --- the page

def made(openapi, models_c):
    return ("\n## Fields of JSON\n" + json_part(openapi) + "\n## Tensors\n\nOf `POST /v2/models/NAME/infer` and gRPC's "
            "`ModelInfer`. Each has the batch's dimension in front; -1 is any.\n" + tensor_part(models_c))


def check(page, openapi, models_c):
    """@return what is wrong, a line each"""
    try:
        now = made(openapi, models_c)
    except Broken as why:
        return [str(why)]
    begin, end = page.find(BEGIN), page.find(END)
    if begin < 0 or end < 0 or page[begin + len(BEGIN):end] != now:
        return [f"{PAGE} is not current: python3 tests/lint/requests_doc.py --write"]
    return []


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def main(arguments):
    page, openapi, models_c = read(PAGE), read(OPENAPI), read(MODELS)
    if arguments == ["--write"]:
        begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
        with open(os.path.join(ROOT, PAGE), "w", encoding="utf-8") as file:
            file.write(page[:begin] + made(openapi, models_c) + page[end:])
        return 0
    bad = check(page, openapi, models_c)
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
