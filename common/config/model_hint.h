/* SPDX-License-Identifier: Apache-2.0 */
/** @file model_hint.h
 *
 * Hints for a --model that names no existing path.
 */
#ifndef BT_COMMON_CONFIG_MODEL_HINT_H
#define BT_COMMON_CONFIG_MODEL_HINT_H

#include <stdbool.h>
#include <stddef.h>

/**
 * True when the text is OWNER/REPO[@REVISION][:FILE], as `./baton pull` takes
 * it. A relative path of two words looks like that, too.
 * @param [out] repository_bytes_p  Length of OWNER/REPO.
 */
bool bt_model_is_hub_name(const char *text, size_t *repository_bytes_p);

/** Writes a hint for the user: a similar name beside the path, a copy in the
 *  cache of the Hugging Face Hub ($HF_HUB_CACHE, $HF_HOME), or how to get
 *  one. */
void bt_model_hint(const char *path, char *hint, size_t hint_bytes);

#endif
