/* SPDX-License-Identifier: Apache-2.0 */
/** @file served.h
 *
 * The model as the router sees it: its file's identity, its tokenizer, its
 * chat template and its names. The file stays open: the tokenizer may lend
 * text from it.
 *
 * Threads: immutable after load.
 */
#ifndef BT_ROUTER_FRONTEND_SERVED_H
#define BT_ROUTER_FRONTEND_SERVED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "inference/gguf/gguf.h"
#include "inference/tokenizer/chat.h"
#include "inference/tokenizer/tokenizer.h"

#define BT_SERVED_NAME_BYTES 256

typedef struct bt_served {
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    const bt_chat_template_t *chat;  /**< NULL: none was recognised */
    char name[BT_SERVED_NAME_BYTES]; /**< printable, never empty */
    bt_hash128_t identity;
    uint32_t context_tokens;
    int64_t created; /**< seconds since 1970, of the file */
} bt_served_t;

/**
 * Open the model file that the options name.
 *
 * A chat template that is not recognised is no error here: chat requests then
 * get one that names --chat-template.
 *
 * @retval BT_OK
 * @retval others  Logged, with the file and the reason.
 */
BT_MUST_CHECK bt_status_t bt_served_load(const bt_config_t *config,
                                         bt_served_t *served_p);
void bt_served_close(bt_served_t *served); /**< also of a zeroed one */

/** True for every name under which clients may ask for the model: its own,
 *  "ensemble" and "tensorrt_llm_bls". */
bool bt_served_is_named(const bt_served_t *served, const char *name);

#endif
