/* SPDX-License-Identifier: Apache-2.0 */
/** @file normal.h
 *
 * Normalization of a text before it is split and looked up: Unicode's normal
 * forms, the replacement table of a SentencePiece file, and the smaller steps
 * that tokenizer.json files name.
 *
 * Threads: constant once loaded; each call has its own bt_normal_work_t.
 * Source: Unicode Standard Annex 15; SentencePiece's precompiled_charsmap, a
 *         double array by S. Kanda ("Space- and Time-Efficient String
 *         Dictionaries", 2018, section 3) and the texts it points into.
 */
#ifndef BT_INFERENCE_TOKENIZER_NORMAL_H
#define BT_INFERENCE_TOKENIZER_NORMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "inference/tokenizer/regex.h"

#define BT_NORMAL_MAX_STEPS 16u
/** most bytes of normalized text */
#define BT_NORMAL_MAX_BYTES ((size_t)1 << 30)

typedef enum bt_normal_form {
    BT_NORMAL_NONE,
    BT_NORMAL_NFC,
    BT_NORMAL_NFD,
    BT_NORMAL_NFKC,
    BT_NORMAL_NFKD,
} bt_normal_form_t;

typedef enum bt_normal_kind {
    BT_NORMAL_FORM,
    BT_NORMAL_CHARSMAP, /**< replace the longest matching key, as
                             SentencePiece does */
    /** Replace as the Hugging Face library does: a cluster of less than 6 bytes
     *  that begins with a key is replaced as a whole by the value of the
     *  shortest key; in other clusters each character is replaced by itself. */
    BT_NORMAL_CHARSMAP_CLUSTERS,
    BT_NORMAL_ONE_SPACE, /**< remove spaces at the ends, and repeated spaces */
    BT_NORMAL_STRIP_LEFT,
    BT_NORMAL_STRIP_RIGHT,
    BT_NORMAL_PREPEND,         /**< prepend `to`, unless the text is empty */
    BT_NORMAL_REPLACE,         /**< replace every `from` by `to` */
    BT_NORMAL_REPLACE_PATTERN, /**< replace every match of the pattern by
                                    `to` */
    BT_NORMAL_LOWERCASE,
} bt_normal_kind_t;

typedef struct bt_normal_step {
    bt_normal_kind_t kind;
    bt_normal_form_t form;
    char *from; /**< owned; NULL where the kind has none */
    char *to;
    bt_alphabet_t alphabet; /**< owned, like the regex; for REPLACE_PATTERN */
    bt_regex_t regex;
} bt_normal_step_t;

typedef struct bt_normal {
    bt_normal_step_t steps[BT_NORMAL_MAX_STEPS];
    uint32_t n;
    uint32_t *units; /**< owned; double array of the charsmap */
    size_t n_units;
    char *texts; /**< owned; texts that its values point to; ends with 0 */
    size_t n_texts;
} bt_normal_t;

/** Intermediate texts between the steps. Zero-initialise. */
typedef struct bt_normal_work {
    struct bt_normal_text {
        uint8_t *bytes; /**< owned */
        size_t n, cap;
        /** Owned; for each byte whether a byte that it was made of was marked.
         *  NULL where nothing is marked. */
        uint8_t *marks;
        size_t marks_cap;
        const uint8_t *marked; /**< marks of the source text */
        size_t from, to;       /**< range of the source text that the next
                                    bytes stand for */
    } texts[2];
    uint32_t *codes; /**< owned; code points of one run, for the normal forms */
    size_t codes_cap;
} bt_normal_work_t;

/** Adds a step.
 *  @param [in] from, to  copied; NULL for none; `from` is the pattern of
 *          BT_NORMAL_REPLACE_PATTERN
 *  @param [out] why  on failure the reason, but for BT_ERR_NO_MEMORY
 *  @retval BT_ERR_TOO_LARGE  more than BT_NORMAL_MAX_STEPS
 *  @retval BT_ERR_UNSUPPORTED, BT_ERR_BAD_FILE, BT_ERR_TOO_LARGE,
 *          BT_ERR_NO_MEMORY  as bt_regex_compile() */
BT_MUST_CHECK bt_status_t bt_normal_add(bt_normal_t *normal,
                                        bt_normal_kind_t kind,
                                        bt_normal_form_t form, const char *from,
                                        const char *to, char *why,
                                        size_t why_bytes);

/** Sets the table of BT_NORMAL_CHARSMAP and BT_NORMAL_CHARSMAP_CLUSTERS.
 *  @param [in] blob  bytes of the table as in the file
 *  @retval BT_ERR_BAD_FILE, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_normal_set_charsmap(bt_normal_t *normal,
                                                 const uint8_t *blob, size_t n);
void bt_normal_fini(bt_normal_t *normal);

/**
 * Applies all steps. Cost: linear in the bytes of the texts between them.
 *
 * @param [in]  text   Valid UTF-8.
 * @param [out] out_p  The text itself, or work's until the next call; UTF-8.
 * @param [in,out] marks_p  NULL, or 0 or 1 for each byte of the text; becomes
 *         the marks of the output, valid as long as *out_p. A byte is marked if
 *         it was made of a marked one.
 * @retval BT_ERR_TOO_LARGE  more than BT_NORMAL_MAX_BYTES
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_normalize(const bt_normal_t *normal,
                                       bt_normal_work_t *work,
                                       const uint8_t *text, size_t bytes,
                                       const uint8_t **out_p, size_t *n_p,
                                       const uint8_t **marks_p);
void bt_normal_work_fini(bt_normal_work_t *work);

/** Converts a text to a normal form (normal_form.c).
 *  @param [out] out  appended to
 *  @param [in,out] unchanged_p  set where the text already is in the form; then
 *          nothing is written */
BT_MUST_CHECK bt_status_t bt_normal_to_form(bt_normal_form_t form,
                                            bt_normal_work_t *work,
                                            const uint8_t *text, size_t bytes,
                                            struct bt_normal_text *out,
                                            bool *unchanged_p);

/** Converts every letter to lower case (normal_form.c). */
BT_MUST_CHECK bt_status_t bt_normal_lowercase(const uint8_t *text, size_t bytes,
                                              struct bt_normal_text *out);

/** Appends bytes; refuses more than BT_NORMAL_MAX_BYTES. The source range that
 *  they stand for is in out->from and out->to. */
BT_MUST_CHECK bt_status_t bt_normal_put(struct bt_normal_text *out,
                                        const void *bytes, size_t n);
/** Appends text[from … to - 1] of the source text of @a out, unchanged. */
BT_MUST_CHECK bt_status_t bt_normal_copy(struct bt_normal_text *out,
                                         const uint8_t *text, size_t from,
                                         size_t to);

#endif
