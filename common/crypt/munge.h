/* SPDX-License-Identifier: Apache-2.0 */
/** @file munge.h
 *
 * Secrets that only one user's processes can read, on any machine of a cluster
 * that runs MUNGE: a credential is text created by munged, and munged of
 * another machine decodes it for the users for whom it was created. The only
 * includer of munge.h of libmunge is munge.c.
 *
 * Source: munge(3), munge_ctx(3), of MUNGE 0.5.
 */
#ifndef BT_COMMON_CRYPT_MUNGE_H
#define BT_COMMON_CRYPT_MUNGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/crypt/key.h"

/** True when a text begins as a credential does ("MUNGE:"). */
bool bt_munge_is_credential(const void *text, size_t bytes);

/**
 * Decodes a credential that this user created for this user only. Its age and
 * earlier decodings do not matter: it is read whenever a process starts, not a
 * one-time ticket.
 *
 * @param [in]  socket  munged's; NULL or "": libmunge's default
 * @param [out] data    its payload, @a cap bytes at most
 * @param [out] why     after a failure: the cause, a phrase; nothing of the
 *                      payload
 * @retval BT_ERR_UNAUTHORIZED  another user created it, or others may decode it
 * @retval BT_ERR_BAD_FILE      invalid according to munged, or too large
 * @retval BT_ERR_IO            munged does not answer
 * @retval BT_ERR_UNSUPPORTED   this build has no MUNGE
 */
BT_MUST_CHECK bt_status_t bt_munge_open(const char *credential,
                                        const char *socket, void *data,
                                        size_t cap, size_t *bytes_p,
                                        char why[BT_KEY_WHY_BYTES]);

#endif
