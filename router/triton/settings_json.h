/* SPDX-License-Identifier: Apache-2.0 */
/** @file settings_json.h
 *
 * Parses small JSON bodies: an object of settings, {"log_info": false,
 * "trace_level": ["OFF"], "trace_rate": null}. A value nested deeper than a
 * list of strings is rejected with its name; the limits of bt_settings_t
 * apply.
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_TRITON_SETTINGS_JSON_H
#define BT_ROUTER_TRITON_SETTINGS_JSON_H

#include "router/triton/metadata.h"

/** Parses an object of settings.
 *  @param [in] text  empty: no settings
 *  @retval BT_ERR_INVALID_PARAM  error_p is filled
 *  @retval BT_ERR_NO_MEMORY      error_p is filled */
BT_MUST_CHECK bt_status_t bt_settings_read(const char *text, size_t bytes,
                                           bt_settings_t *settings_p,
                                           bt_api_error_t *error_p);
/** Parses the settings in the object at `key` of the outermost object; no
 *  settings if the key is absent.
 *  @param [in] text  empty: no settings
 *  @retval BT_ERR_INVALID_PARAM  error_p is filled
 *  @retval BT_ERR_NO_MEMORY      error_p is filled */
BT_MUST_CHECK bt_status_t bt_settings_read_under(const char *text, size_t bytes,
                                                 const char *key,
                                                 bt_settings_t *settings_p,
                                                 bt_api_error_t *error_p);

#endif
