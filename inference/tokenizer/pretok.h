/* SPDX-License-Identifier: Apache-2.0 */
/** @file pretok.h
 *
 * Pre-tokenizers, which split a text into words before merging. Each is the
 * hand-written scanner of one regular expression; merges never cross a split.
 *
 *     gpt-2      '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+|
 *                 ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *     smollm     each \p{N} alone, then gpt-2 on every piece between
 *     llama-bpe  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|
 *                \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
 *                \s+(?!\S)|\s+
 *     qwen2      llama-bpe with \p{N} for \p{N}{1,3}
 *
 * Threads: pure functions.
 */
#ifndef BT_INFERENCE_TOKENIZER_PRETOK_H
#define BT_INFERENCE_TOKENIZER_PRETOK_H

#include <stddef.h>
#include <stdint.h>

typedef enum bt_pretok {
    BT_PRETOK_GPT2,
    BT_PRETOK_SMOLLM,
    BT_PRETOK_LLAMA_BPE,
    BT_PRETOK_QWEN2,
    BT_PRETOK_SPLITS, /**< no scanner: see splits.h */
} bt_pretok_t;

/**
 * Returns the length of the first word. Cost: over a whole text, linear in its
 * bytes.
 *
 * @param [in] text   Valid UTF-8.
 * @param [in] bytes  At least 1.
 * @return bytes of the word, 1 .. @a bytes
 */
size_t bt_pretok_next(bt_pretok_t pretok, const uint8_t *text, size_t bytes);

#endif
