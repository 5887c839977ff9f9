/* SPDX-License-Identifier: Apache-2.0 */
/** @file convert_options.h
 *
 * Command line of `./baton convert`: its own options, and those of
 * TensorRT-LLM's convert_checkpoint.py and trtllm-build, which have their usual
 * effect, or print a note that they have none here, or are rejected.
 */
#ifndef BT_CONVERT_MAIN_OPTIONS_H
#define BT_CONVERT_MAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/convert/convert.h"

#define BT_CONVERT_PATH_BYTES 4096u

typedef struct bt_convert_args {
    const char *in;
    char out[BT_CONVERT_PATH_BYTES];
    const bt_quantize_mix_t *mix;
    uint32_t n_threads; /**< 0: one per core */
    /** Importance matrix file; "": none. Computed from imatrix_text if that is
     *  given. */
    char imatrix[BT_CONVERT_PATH_BYTES];
    const char *imatrix_text;
    uint32_t imatrix_window; /**< tokens per window; 0: default */
    bool overwrite;
    bool help;
} bt_convert_args_t;

/**
 * Parses the command line.
 *
 * @param [in]  notes  receives a line for each option that has no effect here
 * @param [out] why    On failure the reason, for the user.
 * @retval BT_ERR_INVALID_PARAM
 */
BT_MUST_CHECK bt_status_t bt_convert_args_parse(int argc,
                                                const char *const *argv,
                                                FILE *notes, char *why,
                                                size_t why_bytes,
                                                bt_convert_args_t *args_p);

/** Prints the --help text. */
void bt_convert_args_help(FILE *out);

#endif
