/* SPDX-License-Identifier: Apache-2.0 */
/** @file settings_json.h
 *
 * Small bodies of orders: an object of settings, {"log_info": false,
 * "trace_level": ["OFF"], "trace_rate": null}. What is nested deeper than a
 * list of texts is refused by name; the same bounds hold as of bt_settings_t.
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_TRITON_SETTINGS_JSON_H
#define BT_ROUTER_TRITON_SETTINGS_JSON_H

#include "router/triton/describe.h"

/** @param [in] text  empty: no settings
 *  @retval BT_ERR_INVALID_PARAM  error_p is filled
 *  @retval BT_ERR_NO_MEMORY      error_p is filled */
BT_MUST_CHECK bt_status_t bt_settings_read(const char *text, size_t bytes,
                                           bt_settings_t *settings_p,
                                           bt_api_error_t *error_p);
/** The settings of the object under `key` of the outermost one, none if that is
 *  not there; otherwise the same. */
BT_MUST_CHECK bt_status_t bt_settings_read_under(const char *text, size_t bytes,
                                                 const char *key,
                                                 bt_settings_t *settings_p,
                                                 bt_api_error_t *error_p);

#endif
