#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write unicode_clusters.c: which characters belong to the one before them, as runs.

usage: make_unicode_clusters.py > unicode_clusters.c   (needs the packages tokenizers, sentencepiece and regex)

The library replaces characters of a cluster together, so each character is asked for with a table of replacements whose
only key is what stands before it: where the cluster is replaced as a whole, the character is gone. Which characters
nothing belongs to, and which belong to the one behind them, is known from the package regex; those that can be asked for
in the same way have to agree.
"""
import io
import sys
import tempfile

import regex
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import normalizers

NONE, JOINS, CONTROL, PREPEND = range(4)
CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
MAX_CHANGED = 40


def replacing(keys):
    """A normalizer with a table that makes each of these a Z."""
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as table:
        table.writelines("%X\t5A\n" % key for key in keys)
        table.flush()
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["abc abd ade"] * 9), model_writer=out, vocab_size=12, minloglevel=2,
            hard_vocab_limit=False, normalization_rule_tsv=table.name)
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(out.getvalue())
    return normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)


def known(name):
    pattern = regex.compile(r"\p{Grapheme_Cluster_Break=%s}" % name)
    return [c for c in CODES if pattern.match(chr(c))]


def main():
    of = [NONE] * 0x110000
    letter = replacing([0x61])
    for c in CODES:
        if letter.normalize_str("a" + chr(c)) == "Z":
            of[c] = JOINS
    changed = 0
    for names, kind in ((("Control", "CR", "LF"), CONTROL), (("Prepend",), PREPEND)):
        for c in (c for name in names for c in known(name)):
            if of[c] == NONE:
                of[c] = kind
    asked = [c for c in CODES if 0 < c < 0x10000 and of[c] in (CONTROL, PREPEND)] + list(range(0x21, 0x5A))
    table = replacing(asked)
    for c in asked:
        joined = table.normalize_str(chr(c) + "\u0301") == "Z"
        behind = table.normalize_str(chr(c) + "\u4e2d") == "Z"
        if joined == (of[c] == CONTROL) or behind != (of[c] == PREPEND and c < 0x800):
            changed += 1
            print("not as known: %04X" % c, file=sys.stderr)
    if changed > MAX_CHANGED:
        sys.exit("%d characters are not what the package regex says" % changed)
    runs = [c for c in range(0x110000) if c == 0 or of[c] != of[c - 1]]
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Written by make_unicode_clusters.py; do not edit. */")
    print("/* clang-format off */")
    print('#include "inference/tokenizer/unicode.h"\n')
    print("const uint32_t bt_unicode_n_cluster_runs = %du;" % len(runs))
    print("const uint32_t bt_unicode_cluster_runs[] = {")
    for i in range(0, len(runs), 10):
        print("    " + " ".join("0x%x," % (c << 2 | of[c]) for c in runs[i:i + 10]))
    print("};")


if __name__ == "__main__":
    main()
