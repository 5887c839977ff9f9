/* SPDX-License-Identifier: Apache-2.0 */
/** @file munge.h
 *
 * Secrets that only a user's own processes can read, on any machine of a
 * cluster that runs MUNGE: a credential is text that munged made, and munged of
 * another machine opens for those whom it was made for. The only includer of
 * munge.h of libmunge is munge.c.
 *
 * Source: munge(3), munge_ctx(3), of MUNGE 0.5.
 */
#ifndef BT_COMMON_CRYPT_MUNGE_H
#define BT_COMMON_CRYPT_MUNGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/crypt/key.h"

/** Does this begin as a credential does ("MUNGE:")? */
bool bt_munge_is_credential(const void *text, size_t bytes);

/**
 * What is in a credential that this user made for this user alone. How old it
 * is and whether it was opened before is no matter: it is a letter to be read
 * as often as processes start, not a ticket.
 *
 * @param [in]  socket  munged's; NULL or "": as libmunge was built
 * @param [out] data    its payload, @a cap bytes at most
 * @param [out] why     after a failure: the cause, a phrase; nothing of what
 *                      is in it
 * @retval BT_ERR_UNAUTHORIZED  another user made it, or others may open it too
 * @retval BT_ERR_BAD_FILE      munged says it is none, or it is too large
 * @retval BT_ERR_IO            munged does not answer
 * @retval BT_ERR_UNSUPPORTED   this build has no MUNGE
 */
BT_MUST_CHECK bt_status_t bt_munge_open(const char *credential,
                                        const char *socket, void *data,
                                        size_t cap, size_t *bytes_p,
                                        char why[BT_KEY_WHY_BYTES]);

#endif
