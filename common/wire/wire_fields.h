/* SPDX-License-Identifier: Apache-2.0 */
/** @file wire_fields.h
 *
 * Private to common/wire: the fields of each message, in one table that the
 * encoder and the decoder both walk, so that they cannot disagree.
 */
#ifndef BT_COMMON_WIRE_WIRE_FIELDS_H
#define BT_COMMON_WIRE_WIRE_FIELDS_H

#include <stddef.h>
#include <stdint.h>

#include "common/wire/wire.h"

typedef enum field_kind {
    FIELD_U32,        /**< min <= value <= max */
    FIELD_U64,        /**< any */
    FIELD_I32,        /**< any */
    FIELD_F32,        /**< any; bt_sampling_check() has the ranges */
    FIELD_NAME,       /**< char[max], control characters refused */
    FIELD_TEXT,       /**< char[max], control characters made spaces */
    FIELD_BLOB,       /**< uint8_t *, count at `count`, at most max */
    FIELD_IDS,        /**< uint32_t *, count at `count`, min .. max */
    FIELD_DRAFTS,     /**< as FIELD_IDS, beside it in one message */
    FIELD_LISTS,      /**< as FIELD_IDS, beside both in one message */
    FIELD_END_IDS,    /**< uint32_t[BT_MAX_END_IDS], count at `count`: the
                           first BT_WIRE_FIRST_END_IDS of them */
    FIELD_MORE_IDS,   /**< end ids beyond those, added later */
    FIELD_BAD,        /**< bt_bad_word_t *, count at `count`, at most max */
    FIELD_BIASES,     /**< bt_logit_bias_t *, count at `count`, at most max */
    FIELD_TOKENS,     /**< bt_token_t *, count at `count`, at most max */
    FIELD_SCORES,     /**< bt_token_score_t *, count at `count`, at most max */
    FIELD_SAMPLING,   /**< bt_sampling_t, by its own table */
    FIELD_PROCESSORS, /**< bt_processor_options_t, by its own table; an empty
                           list when all are off */
    FIELD_ONLY,       /**< blob of a list of one item, else empty */
    FIELD_ITEMS,      /**< list (`items`), count at `count`, at most max; the
                           blob of a list of one is in an earlier FIELD_ONLY */
} field_kind_t;

typedef struct field_list field_list_t;

typedef struct field {
    field_kind_t kind;
    size_t offset;
    size_t count; /**< offset of the count (arrays only) */
    uint32_t min;
    uint32_t max;
    /** Default of a later U32 that was not sent: the value of this earlier
     *  field; NULL: `otherwise`. Other kinds: zero and empty. */
    const struct field *like;
    uint32_t otherwise;
    const field_list_t *items; /**< ONLY, ITEMS: fields of one item; one is a
                                    BLOB */
    size_t item_bytes;         /**< size of an item's structure */
} field_t;

struct field_list {
    const field_t *fields;
    size_t n;
    size_t n_required; /**< fields of the first version; a peer may lack the
                            rest */
};

/** Returns the fields of messages of @a type, or NULL for an unknown type. */
const field_list_t *bt_wire_fields(uint32_t type);
const field_list_t *bt_wire_sampling_fields(void);
const field_list_t *bt_wire_processor_fields(void);
const field_list_t *bt_wire_token_fields(void);

/** Returns the one field of kind BLOB. */
const field_t *bt_wire_blob_of(const field_list_t *items);

/** Checks rules that tie several fields together. @return 1: valid */
int bt_wire_message_fits(const bt_msg_t *msg);

/**
 * Validates one msgpack object without building anything.
 * @retval BT_ERR_BAD_MESSAGE  not exactly one whole object in @a bytes, or
 *     nested or split up more than any message is
 */
BT_MUST_CHECK bt_status_t bt_wire_scan(const uint8_t *data, size_t bytes);

#endif
