/* SPDX-License-Identifier: Apache-2.0 */
/** @file multipart.h
 *
 * Reads a body of multipart/form-data that lies in memory: its parts, one after
 * the other, without a copy of what is in them.
 *
 *     --B\r\n
 *     Content-Disposition: form-data; name="purpose"\r\n
 *     \r\n
 *     batch\r\n                          ─▶ name "purpose", data "batch"
 *     --B--\r\n
 *
 * Strict where leniency lets two readers see different parts: a delimiter is a
 * whole line, nothing stands before the first or after the last, a name is
 * given once, and text in another coding (filename*, base64) is refused.
 *
 * Threads: pure functions.
 * Source:  RFC 7578, RFC 2046 (5.1.1), and the HTML standard (form submission)
 *          for what browsers escape; backslashes as curl and Python's clients
 *          write them.
 */
#ifndef BT_ROUTER_HTTP_MULTIPART_H
#define BT_ROUTER_HTTP_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

#define BT_MULTIPART_DELIMITER_BYTES 76 /**< "\r\n--" and 70 characters */
#define BT_MULTIPART_NAME_BYTES      64
#define BT_MULTIPART_FILENAME_BYTES  256
#define BT_MULTIPART_HEAD_BYTES      4096u /**< limit on one part's headers */

typedef struct bt_multipart {
    const char *at, *end; /**< rest of the body, borrowed */
    char delimiter[BT_MULTIPART_DELIMITER_BYTES]; /**< "\r\n--B" */
    size_t delimiter_bytes;
    bool is_over;
} bt_multipart_t;

typedef struct bt_multipart_part {
    char name[BT_MULTIPART_NAME_BYTES];
    bool is_file; /**< the part has a filename */
    char filename[BT_MULTIPART_FILENAME_BYTES];
    const char *data; /**< in the body */
    size_t bytes;
} bt_multipart_part_t;

/** Begins with a body.
 *  @param [in]  content_type  the header; NULL: absent
 *  @param [out] why_p         on failure: a phrase, static
 *  @retval BT_ERR_UNSUPPORTED  not multipart/form-data
 *  @retval BT_ERR_BAD_MESSAGE  its boundary is none, or the body does not
 *    begin with it */
BT_MUST_CHECK bt_status_t bt_multipart_init(bt_multipart_t *multipart,
                                            const char *content_type,
                                            const char *body, size_t bytes,
                                            const char **why_p);
/** Reads the next part. Linear in its bytes.
 *  @param [out] why_p  on BT_ERR_BAD_MESSAGE: a phrase, static
 *  @retval BT_ERR_NOT_FOUND    there are no more
 *  @retval BT_ERR_BAD_MESSAGE */
BT_MUST_CHECK bt_status_t bt_multipart_next(bt_multipart_t *multipart,
                                            bt_multipart_part_t *part_p,
                                            const char **why_p);

#endif
