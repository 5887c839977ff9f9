/* SPDX-License-Identifier: Apache-2.0 */
/** @file hf_folder.h  Writes folders of models, right ones and wrong ones, for
 *  tests. Failures fail the test. */
#ifndef BT_TESTS_SUPPORT_HF_FOLDER_H
#define BT_TESTS_SUPPORT_HF_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"

/** A new folder below TMPDIR. @return its path, in a static buffer */
const char *bt_hf_folder_make(void);
/** Remove it with all that is in it. */
void bt_hf_folder_remove(const char *dir);

void bt_hf_folder_write(const char *dir, const char *name, const void *data,
                        size_t bytes);
void bt_hf_folder_text(const char *dir, const char *name, const char *text);

/** One safetensors file: header and data, tensor by tensor. */
typedef struct bt_st_file {
    bt_strbuf_t header;
    bt_strbuf_t data;
} bt_st_file_t;

void bt_st_file_init(bt_st_file_t *file);
/** @param [in] shape  As JSON has it: "4,2"; "" for a number alone. */
void bt_st_file_add(bt_st_file_t *file, const char *name, const char *dtype,
                    const char *shape, const void *data, size_t bytes);
/** Write it and forget it. */
void bt_st_file_write(bt_st_file_t *file, const char *dir, const char *name);

/** The numbers of a tensor, as numbers() of golden/make_hf_golden.py makes them
 *  by the same dtype and fill; @a out has room for 8 bytes each.
 *  @return bytes */
size_t bt_hf_folder_numbers(const char *name, const char *dtype,
                            const char *fill, uint64_t n, uint8_t *out);

/** A tokenizer.json of byte-level BPE with @a n tokens, the first 256 those of
 *  the bytes as far as there is room, without merges. */
void bt_hf_folder_tokenizer(const char *dir, uint32_t n);

#endif
