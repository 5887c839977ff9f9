/* SPDX-License-Identifier: Apache-2.0 */
/** @file model_hint.h  What --model may have meant, where it names no path. */
#ifndef BT_COMMON_CONFIG_MODEL_HINT_H
#define BT_COMMON_CONFIG_MODEL_HINT_H

#include <stddef.h>

/** For the user: a near name beside it, a copy in the cache of the Hugging Face
 *  Hub ($HF_HUB_CACHE, $HF_HOME), or how to get one. */
void bt_model_hint(const char *path, char *hint, size_t hint_bytes);

#endif
