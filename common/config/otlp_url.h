/* SPDX-License-Identifier: Apache-2.0 */
/** @file otlp_url.h
 *
 * Parser of --otlp-traces-endpoint: the URL to which traces are sent.
 */
#ifndef BT_COMMON_CONFIG_OTLP_URL_H
#define BT_COMMON_CONFIG_OTLP_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_OTLP_HOST_BYTES 256u
#define BT_OTLP_PATH_BYTES 512u

/** URL of an OTLP collector. */
typedef struct bt_otlp_url {
    bool is_tls;                   /**< https:// */
    char host[BT_OTLP_HOST_BYTES]; /**< name or address, without [ ] */
    char port[8];
    char authority[BT_OTLP_HOST_BYTES + 16]; /**< for the Host header */
    char path[BT_OTLP_PATH_BYTES];           /**< ends with /v1/traces */
} bt_otlp_url_t;

/**
 * Parses `http[s]://HOST[:PORT][/PATH]`. /v1/traces is appended to a PATH that
 * does not end with it, as OTLP's specification requires for a base URL.
 *
 * @param [out] url_p  only on BT_OK
 * @param [out] why_p  otherwise the reason, static: "it …"
 * @retval BT_ERR_INVALID_PARAM
 */
BT_MUST_CHECK bt_status_t bt_otlp_url_read(const char *text,
                                           bt_otlp_url_t *url_p,
                                           const char **why_p);

#endif
