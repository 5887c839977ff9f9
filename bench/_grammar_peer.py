#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llguidance or XGrammar on one thread, for bench/grammar.py.

Usage: _grammar_peer.py llguidance|xgrammar MODEL.gguf
A line of standard input is a case, {"kind", "source", "answers": [[ID, …], …]}; its
line has {"first_ns" (compile and first mask), "runs": [{"what", "mask_ns"}]} or
{"error"}, in the words of _grammar_run.c. Each answer begins anew with what was
compiled. Times are of the process's CPU. Neither library writes JSON with an order
of its own or limits white space here: both have their defaults, but for XGrammar's
strict_mode, which would refuse members that the schema allows.
"""
import ctypes
import importlib.metadata
import json
import os
import sys
import tempfile
import time
from unittest import mock

import tokenizers

from _tokenizer_peer import CONTROL, Gguf, load


def characters():
    """@return the byte of each character that byte-level BPE writes it as (GPT-2's bytes_to_unicode)"""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in plain]
    return {**{chr(b): b for b in plain}, **{chr(256 + i): b for i, b in enumerate(rest)}}


class Vocabulary:
    def __init__(self, path):
        self.path = path
        fields = Gguf(path).fields
        if fields.get("tokenizer.ggml.model") != "gpt2":
            sys.exit("only byte-level BPE vocabularies can be compared")
        of, types = characters(), fields["tokenizer.ggml.token_type"]
        self.special = [i for i, kind in enumerate(types) if kind == CONTROL]
        special = set(self.special)
        self.tokens = [text.encode() if i in special else bytes(of[c] for c in text) if all(c in of for c in text) else text.encode()
                       for i, text in enumerate(fields["tokenizer.ggml.tokens"])]
        self.end = fields["tokenizer.ggml.eos_token_id"]
        self.n_words = -(-len(self.tokens) // 32)


class Llguidance:
    def __init__(self, vocabulary):
        import llguidance
        self.lib, self.version = llguidance, llguidance.__version__
        tokenizer = load(vocabulary.path)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()  # which tells it that tokens are bytes
        with tempfile.TemporaryDirectory(prefix="baton-grammar-") as folder:
            path = os.path.join(folder, "tokenizer.json")
            tokenizer.save(path)
            self.tokenizer = llguidance.LLTokenizer(path, n_vocab=len(vocabulary.tokens), eos_token=vocabulary.end)
        self.mask = (ctypes.c_uint32 * vocabulary.n_words)()
        self.at, self.bytes = ctypes.addressof(self.mask), ctypes.sizeof(self.mask)

    def compile(self, kind, source):
        of = {"json_schema": lambda: self.lib.LLMatcher.grammar_from_json_schema(source),
              "json_object": lambda: self.lib.LLMatcher.grammar_from_json_schema('{"type": "object"}'),
              "regex": lambda: self.lib.LLMatcher.grammar_from_regex(source),
              "choice": lambda: self.lib.LLMatcher.grammar_from_lark("start: " + " | ".join(json.dumps(x) for x in json.loads(source)))}
        matcher = self.lib.LLMatcher(self.tokenizer, of[kind](), log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    @staticmethod
    def begin(compiled):
        return compiled.deep_copy()

    def fill(self, matcher):
        matcher.unsafe_compute_mask_ptr(self.at, self.bytes)

    @staticmethod
    def take(matcher, token):
        matcher.consume_token(token)


class Xgrammar:
    def __init__(self, vocabulary):
        # PyTorch and transformers (gigabytes) are imported, but neither makes masks: an array of numpy holds them.
        import tvm_ffi  # noqa: F401 (before: it would look into PyTorch)
        sys.modules.update({name: mock.MagicMock() for name in ("torch", "transformers")})
        import numpy
        import xgrammar
        self.lib, self.version = xgrammar, importlib.metadata.version("xgrammar")
        info = xgrammar.TokenizerInfo(vocabulary.tokens, stop_token_ids=[vocabulary.end])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.array = numpy.zeros((1, vocabulary.n_words), dtype=numpy.int32)
        self.mask = self.array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint32))

    def compile(self, kind, source):
        of = {"json_schema": lambda: self.compiler.compile_json_schema(source, strict_mode=False),
              "json_object": lambda: self.compiler.compile_json_schema('{"type": "object"}', strict_mode=False),
              "regex": lambda: self.compiler.compile_regex(source),
              "choice": lambda: self.compiler.compile_grammar("root ::= " + " | ".join(json.dumps(x) for x in json.loads(source)))}
        return of[kind]()

    def begin(self, compiled):
        return self.lib.GrammarMatcher(compiled)

    def fill(self, matcher):
        matcher.fill_next_token_bitmask(self.array)

    @staticmethod
    def take(matcher, token):
        if not matcher.accept_token(token):
            raise ValueError("a token of the mask is not accepted")


def follow(engine, matcher, tokens, end):
    """@return what came of an answer, and the times of its masks, each with the token before"""
    times, clock, fill, take, mask = [], time.process_time_ns, engine.fill, engine.take, engine.mask
    for i, token in enumerate([*tokens, end]):
        begin = clock()
        if i > 0:
            take(matcher, tokens[i - 1])
        fill(matcher)
        times.append(clock() - begin)
        if not mask[token // 32] >> token % 32 & 1:
            return ("open" if token == end else f"refused {i}"), times
    return "whole", times


def answer(engine, end, case):
    begin = time.process_time_ns()
    try:
        compiled = engine.compile(case["kind"], case["source"])
        engine.fill(engine.begin(compiled))
    except Exception as error:  # whatever they raise on what they do not take
        return {"error": str(error).strip()[:300] or type(error).__name__}
    out = {"first_ns": time.process_time_ns() - begin, "runs": []}
    for tokens in case["answers"]:
        try:
            what, times = follow(engine, engine.begin(compiled), tokens, end)
        except Exception:
            what, times = "failed", []
        out["runs"].append({"what": what, "mask_ns": times})
    return out


def main():
    vocabulary = Vocabulary(sys.argv[2])
    engine = {"llguidance": Llguidance, "xgrammar": Xgrammar}[sys.argv[1]](vocabulary)
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no answer
    print(json.dumps({"version": engine.version}), file=lines, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(engine, vocabulary.end, json.loads(line))), file=lines, flush=True)


if __name__ == "__main__":
    main()
