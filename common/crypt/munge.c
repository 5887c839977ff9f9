/* SPDX-License-Identifier: Apache-2.0 */
#include "common/crypt/munge.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "MUNGE:"

bool bt_munge_is_credential(const void *text, size_t bytes)
{
    return (bytes >= sizeof(PREFIX) - 1) &&
           (memcmp(text, PREFIX, sizeof(PREFIX) - 1) == 0);
}

#if defined(BT_HAVE_MUNGE)
#include <munge.h>
#include <stdlib.h>

/* Errors after which munged has still decoded the credential. */
static bool is_opened(munge_err_t err)
{
    return (err == EMUNGE_SUCCESS) || (err == EMUNGE_CRED_EXPIRED) ||
           (err == EMUNGE_CRED_REWOUND) || (err == EMUNGE_CRED_REPLAYED);
}

static bt_status_t refused(munge_ctx_t ctx, munge_err_t err,
                           char why[BT_KEY_WHY_BYTES])
{
    const char *text = munge_ctx_strerror(ctx);

    snprintf(why, BT_KEY_WHY_BYTES, "munged: %s",
             (text != NULL) ? text : munge_strerror(err));
    switch (err) {
    case EMUNGE_SOCKET:
    case EMUNGE_TIMEOUT:
    case EMUNGE_NO_MEMORY:
    case EMUNGE_SNAFU:
        return BT_ERR_IO;
    case EMUNGE_CRED_UNAUTHORIZED:
        return BT_ERR_UNAUTHORIZED;
    default:
        return BT_ERR_BAD_FILE;
    }
}

/* Any other creator would know the cluster's key, and so would any other
 * user who may decode it. */
static bt_status_t is_ours(munge_ctx_t ctx, uid_t from,
                           char why[BT_KEY_WHY_BYTES])
{
    uid_t only = (uid_t)MUNGE_UID_ANY;

    if (from != geteuid()) {
        snprintf(why, BT_KEY_WHY_BYTES,
                 "user %u made this credential, and this is user %u",
                 (unsigned)from, (unsigned)geteuid());
        return BT_ERR_UNAUTHORIZED;
    }
    if ((munge_ctx_get(ctx, MUNGE_OPT_UID_RESTRICTION, &only) !=
         EMUNGE_SUCCESS) ||
        (only != geteuid())) {
        snprintf(why, BT_KEY_WHY_BYTES,
                 "this credential is not for user %u alone: make it with munge "
                 "--restrict-uid=%u",
                 (unsigned)geteuid(), (unsigned)geteuid());
        return BT_ERR_UNAUTHORIZED;
    }
    return BT_OK;
}

bt_status_t bt_munge_open(const char *credential, const char *socket,
                          void *data, size_t cap, size_t *bytes_p,
                          char why[BT_KEY_WHY_BYTES])
{
    munge_ctx_t ctx = munge_ctx_create();
    uid_t from = (uid_t)MUNGE_UID_ANY;
    gid_t group;
    void *payload = NULL;
    int n = 0;
    munge_err_t err = EMUNGE_SUCCESS;
    bt_status_t status;

    if (ctx == NULL) {
        snprintf(why, BT_KEY_WHY_BYTES, "no memory");
        return BT_ERR_NO_MEMORY;
    }
    if ((socket != NULL) && (socket[0] != '\0')) {
        err = munge_ctx_set(ctx, MUNGE_OPT_SOCKET, socket);
    }
    if (err == EMUNGE_SUCCESS) {
        err = munge_decode(credential, ctx, &payload, &n, &from, &group);
    }
    status = is_opened(err) ? is_ours(ctx, from, why) : refused(ctx, err, why);
    if ((status == BT_OK) && ((n < 0) || ((size_t)n > cap))) {
        snprintf(why, BT_KEY_WHY_BYTES,
                 "%d bytes are in the credential, and at most %zu are taken", n,
                 cap);
        status = BT_ERR_BAD_FILE;
    }
    if (status == BT_OK) {
        if (n > 0) {
            memcpy(data, payload, (size_t)n);
        }
        *bytes_p = (size_t)n;
    }
    if (payload != NULL) {
        explicit_bzero(payload, (n > 0) ? (size_t)n : 0);
        free(payload);
    }
    munge_ctx_destroy(ctx);
    return status;
}
#else
bt_status_t bt_munge_open(const char *credential, const char *socket,
                          void *data, size_t cap, size_t *bytes_p,
                          char why[BT_KEY_WHY_BYTES])
{
    (void)credential;
    (void)socket;
    (void)data;
    (void)cap;
    (void)bytes_p;
    snprintf(why, BT_KEY_WHY_BYTES,
             "it is a MUNGE credential, and this build has no libmunge");
    return BT_ERR_UNSUPPORTED;
}
#endif
