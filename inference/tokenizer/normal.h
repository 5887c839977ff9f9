/* SPDX-License-Identifier: Apache-2.0 */
/** @file normal.h
 *
 * What is done to a text before it is cut and looked up: Unicode's normal
 * forms, the replacement table of a SentencePiece file, and the smaller steps
 * that tokenizer.json files name.
 *
 * Threads: constant once loaded; each call has its own bt_normal_work_t.
 * Source:  Unicode Standard Annex 15; SentencePiece's precompiled_charsmap, a
 *          double array by S. Kanda ("Space- and Time-Efficient String
 *          Dictionaries", 2018, section 3) and the texts it points into.
 */
#ifndef BT_INFERENCE_TOKENIZER_NORMAL_H
#define BT_INFERENCE_TOKENIZER_NORMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "inference/tokenizer/regex.h"

#define BT_NORMAL_MAX_STEPS 16u
#define BT_NORMAL_MAX_BYTES ((size_t)1 << 30) /**< of what comes out */

typedef enum bt_normal_form {
    BT_NORMAL_NONE,
    BT_NORMAL_NFC,
    BT_NORMAL_NFD,
    BT_NORMAL_NFKC,
    BT_NORMAL_NFKD,
} bt_normal_form_t;

typedef enum bt_normal_kind {
    BT_NORMAL_FORM,
    BT_NORMAL_CHARSMAP,
    BT_NORMAL_ONE_SPACE, /**< no space at the ends, no two in a row */
    BT_NORMAL_STRIP_LEFT,
    BT_NORMAL_STRIP_RIGHT,
    BT_NORMAL_PREPEND,         /**< to, unless the text is empty */
    BT_NORMAL_REPLACE,         /**< every from by to */
    BT_NORMAL_REPLACE_PATTERN, /**< every match of the pattern by to */
    BT_NORMAL_LOWERCASE,
} bt_normal_kind_t;

typedef struct bt_normal_step {
    bt_normal_kind_t kind;
    bt_normal_form_t form;
    char *from; /**< owned; NULL where the kind has none */
    char *to;
    bt_alphabet_t alphabet; /**< owned, as the regex; of REPLACE_PATTERN */
    bt_regex_t regex;
} bt_normal_step_t;

typedef struct bt_normal {
    bt_normal_step_t steps[BT_NORMAL_MAX_STEPS];
    uint32_t n;
    uint32_t *units; /**< owned; the double array of the charsmap */
    size_t n_units;
    char *texts; /**< owned; what its values point to; ends with 0 */
    size_t n_texts;
} bt_normal_t;

/** Texts between the steps. Zero-initialise. */
typedef struct bt_normal_work {
    struct bt_normal_text {
        uint8_t *bytes; /**< owned */
        size_t n, cap;
        /** Owned; of each byte whether one that it was made of was marked.
         *  NULL where nothing is marked. */
        uint8_t *marks;
        size_t marks_cap;
        const uint8_t *marked; /**< those of the text that it is made of */
        size_t from, to;       /**< of that, what the next bytes stand for */
    } texts[2];
    uint32_t *codes; /**< owned; of one run, for the forms */
    size_t codes_cap;
} bt_normal_work_t;

/** Any kind but BT_NORMAL_REPLACE_PATTERN.
 *  @param [in] from, to  copied; NULL for none
 *  @retval BT_ERR_TOO_LARGE  more than BT_NORMAL_MAX_STEPS
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_normal_add(bt_normal_t *normal,
                                        bt_normal_kind_t kind,
                                        bt_normal_form_t form, const char *from,
                                        const char *to);

/** A BT_NORMAL_REPLACE_PATTERN. @param [in] to  copied
 *  @retval BT_ERR_UNSUPPORTED, BT_ERR_BAD_FILE, BT_ERR_TOO_LARGE,
 *          BT_ERR_NO_MEMORY  as bt_regex_compile() and bt_normal_add(); why is
 *                            set */
BT_MUST_CHECK bt_status_t bt_normal_add_pattern(bt_normal_t *normal,
                                                const char *pattern,
                                                const char *to, char *why,
                                                size_t why_bytes);

/** The table that BT_NORMAL_CHARSMAP uses.
 *  @param [in] blob  its bytes as in the file
 *  @retval BT_ERR_BAD_FILE, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_normal_set_charsmap(bt_normal_t *normal,
                                                 const uint8_t *blob, size_t n);
void bt_normal_fini(bt_normal_t *normal);

/**
 * All steps. Cost: linear in the bytes of the texts between them.
 *
 * @param [in]  text   Valid UTF-8.
 * @param [out] out_p  The text itself, or work's until the next call; UTF-8.
 * @param [in,out] marks_p  NULL, or 0 or 1 for each byte of the text; becomes
 *                     that of what comes out, as long as this. A byte is marked
 *                     that was made of one.
 * @retval BT_ERR_TOO_LARGE  more than BT_NORMAL_MAX_BYTES
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_normalize(const bt_normal_t *normal,
                                       bt_normal_work_t *work,
                                       const uint8_t *text, size_t bytes,
                                       const uint8_t **out_p, size_t *n_p,
                                       const uint8_t **marks_p);
void bt_normal_work_fini(bt_normal_work_t *work);

/** normal_form.c: one step. @param [out] out  grows
 *  @param [in,out] unchanged_p  set where the text is in the form already; then
 *                               nothing is written */
BT_MUST_CHECK bt_status_t bt_normal_to_form(bt_normal_form_t form,
                                            bt_normal_work_t *work,
                                            const uint8_t *text, size_t bytes,
                                            struct bt_normal_text *out,
                                            bool *unchanged_p);

/** normal_form.c: every letter in lower case. */
BT_MUST_CHECK bt_status_t bt_normal_lowercase(const uint8_t *text, size_t bytes,
                                              struct bt_normal_text *out);

/** Append; refuses more than BT_NORMAL_MAX_BYTES. What it stands for is in
 *  out->from and out->to. */
BT_MUST_CHECK bt_status_t bt_normal_put(struct bt_normal_text *out,
                                        const void *bytes, size_t n);
/** Append text[from … to - 1] of the text that @a out is made of, as it is. */
BT_MUST_CHECK bt_status_t bt_normal_copy(struct bt_normal_text *out,
                                         const uint8_t *text, size_t from,
                                         size_t to);

#endif
