/* SPDX-License-Identifier: Apache-2.0 */
/* Values, and their effects by their rows of the table. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/repository/take_priv.h"

#define FIELD_BYTES 256

__attribute__((format(printf, 3, 4))) bt_status_t
bt_take_refuse(const reading_t *r, const bt_pbtxt_field_t *field,
               const char *fmt, ...)
{
    char text[FIELD_BYTES + 256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    snprintf(r->why, BT_REPO_WHY_BYTES, "%.400s:%u: %s", r->path,
             (unsigned)field->line, text);
    return BT_ERR_INVALID_PARAM;
}

/* The notes are truncated at the buffer's size. */
void bt_repository_note(bt_repository_t *repository, uint32_t index,
                        const char *path, const char *why)
{
    char *notes = repository->notes[index];
    const size_t n = strlen(notes);
    char text[FIELD_BYTES + 128];

    snprintf(text, sizeof(text), "%s (%s)", path, why);
    if (strstr(notes, text) == NULL) {
        snprintf(notes + n, BT_REPO_NOTES_BYTES - n, "%s%s",
                 (n > 0) ? ", " : "", text);
    }
}

/* ---- fields ---- */

uint32_t bt_take_count(const bt_pbtxt_t *tree, uint32_t first, const char *name)
{
    uint32_t n = 0;

    BT_PBTXT_FOR_EACH(field, tree, first)
    {
        n += (strcmp(field->name, name) == 0) ? 1 : 0;
    }
    return n;
}

bt_status_t bt_take_is_message(const reading_t *r,
                               const bt_pbtxt_field_t *field)
{
    if (field->kind != BT_PBTXT_MESSAGE) {
        return bt_take_refuse(r, field, "%s should be { fields }", field->name);
    }
    return BT_OK;
}

bt_status_t bt_take_fields(const reading_t *r, const bt_pbtxt_field_t *message,
                           bt_take_field_fn *take, void *to)
{
    bt_status_t status = bt_take_is_message(r, message);

    if (status != BT_OK) {
        return status;
    }
    BT_PBTXT_FOR_EACH(field, r->tree, message->first)
    {
        status = take(r, field, to);
        if (status != BT_OK) {
            return status;
        }
    }
    return BT_OK;
}

bt_status_t bt_take_is_value(const reading_t *r, const bt_pbtxt_field_t *field,
                             const char *path)
{
    if (field->kind == BT_PBTXT_MESSAGE) {
        return bt_take_refuse(r, field, "%s should be one value", path);
    }
    return BT_OK;
}

/* ---- values ---- */

bt_status_t bt_take_number(const reading_t *r, const bt_pbtxt_field_t *field,
                           const char *path, int64_t min, int64_t max,
                           int64_t *value_p)
{
    char *end;
    long long value;

    errno = 0;
    value = strtoll(field->text, &end, 10);
    if ((field->bytes == 0) || (*end != '\0') || (errno != 0) ||
        (value < min) || (value > max) ||
        (strlen(field->text) != field->bytes)) {
        return bt_take_refuse(r, field,
                              "%s: '%.64s' is not a whole number from %" PRId64
                              " to %" PRId64,
                              path, field->text, min, max);
    }
    *value_p = value;
    return BT_OK;
}

bt_status_t bt_take_bool(const reading_t *r, const bt_pbtxt_field_t *field,
                         const char *path, bool *value_p)
{
    static const char *const yes[] = {"true", "True", "t", "1"};
    static const char *const no[] = {"false", "False", "f", "0"};

    for (size_t i = 0; i < BT_ARRAY_LEN(yes); i++) {
        if (strcmp(field->text, yes[i]) == 0) {
            *value_p = true;
            return BT_OK;
        }
        if (strcmp(field->text, no[i]) == 0) {
            *value_p = false;
            return BT_OK;
        }
    }
    return bt_take_refuse(r, field, "%s: '%.64s' is neither true nor false",
                          path, field->text);
}

/* A number of at most 1 as percent, rounded up, so that none becomes 0. */
static bt_status_t take_percent(const reading_t *r,
                                const bt_pbtxt_field_t *field, const char *path,
                                int64_t *percent_p)
{
    char *end;
    const double value = strtod(field->text, &end);

    if ((field->bytes == 0) || (*end != '\0') || !(value > 0) ||
        !(value <= 1)) {
        return bt_take_refuse(r, field,
                              "%s: '%.64s' is not a number above 0, at most 1",
                              path, field->text);
    }
    *percent_p = (int64_t)(value * 100);
    *percent_p += ((double)*percent_p < value * 100) ? 1 : 0;
    return BT_OK;
}

/* Position of a word in "a, b, c", or NULL. Case-insensitive, as Python
 * writes True. */
static const char *find_word(const char *values, const char *text)
{
    const size_t n = strlen(text);

    while (*values != '\0') {
        const size_t length = strcspn(values, ",");

        if ((length == n) && (strncasecmp(values, text, n) == 0)) {
            return values;
        }
        values += length;
        values += strspn(values, ", ");
    }
    return NULL;
}

static bool is_one_of(const char *values, const char *text)
{
    return find_word(values, text) != NULL;
}

static bool is_first(const bt_repo_field_t *row, const bt_pbtxt_field_t *field)
{
    const size_t n = strcspn(row->values, ",");

    return (strlen(field->text) == n) &&
           (strncasecmp(row->values, field->text, n) == 0);
}

/* ---- options ---- */

static bt_repo_setting_t *add_setting(const reading_t *r,
                                      const bt_pbtxt_field_t *field,
                                      const char *path, const char *option)
{
    bt_repository_t *repository = r->repository;
    bt_repo_setting_t *setting;

    if (repository->n_settings == BT_REPO_MAX_SETTINGS) {
        (void)bt_take_refuse(r, field, "%s: more than %d fields set options",
                             path, BT_REPO_MAX_SETTINGS);
        return NULL;
    }
    setting = &repository->settings[repository->n_settings++];
    *setting = (bt_repo_setting_t){.option = option};
    snprintf(setting->where, sizeof(setting->where), "%.120s:%u: %.50s",
             r->path, (unsigned)field->line, path);
    return setting;
}

static bt_status_t set_text(const reading_t *r, const bt_pbtxt_field_t *field,
                            const char *path, const char *option,
                            const char *value)
{
    bt_repo_setting_t *setting = add_setting(r, field, path, option);

    if (setting == NULL) {
        return BT_ERR_INVALID_PARAM;
    }
    snprintf(setting->value, sizeof(setting->value), "%s", value);
    return BT_OK;
}

bt_status_t bt_take_set_number(const reading_t *r,
                               const bt_pbtxt_field_t *field, const char *path,
                               const char *option, int64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, value);
    return set_text(r, field, path, option, text);
}

/* The row's spelling: MAX_UTILIZATION becomes max_utilization. */
static bt_status_t set_choice(const reading_t *r, const bt_pbtxt_field_t *field,
                              const char *path, const bt_repo_field_t *row)
{
    const char *word = find_word(row->values, field->text);
    char text[64];

    snprintf(text, sizeof(text), "%.*s", (int)strlen(field->text),
             (word != NULL) ? word : field->text);
    return set_text(r, field, path, row->option, text);
}

/* The value is not checked here: an engine must not become the default
 * model. The launcher checks it (launcher/preflight.h). */
static bt_status_t take_model_path(const reading_t *r,
                                   const bt_pbtxt_field_t *field,
                                   const char *path)
{
    bt_repo_setting_t *setting = add_setting(r, field, path, "model");

    if (setting == NULL) {
        return BT_ERR_INVALID_PARAM;
    }
    setting->path = field->text;
    return BT_OK;
}

bt_status_t bt_take_effect(const reading_t *r, const bt_repo_field_t *row,
                           const bt_pbtxt_field_t *field, const char *path)
{
    int64_t number = 0;
    bool flag = false;
    bt_status_t status;

    if (strcmp(row->option, "model") == 0) {
        return take_model_path(r, field, path);
    }
    if (strcmp(row->option, "kv-free-percent") == 0) {
        status = take_percent(r, field, path, &number);
    } else if (strncmp(row->values, "true", 4) == 0) {
        status = bt_take_bool(r, field, path, &flag);
        if (status == BT_OK) {
            const bool is_switch = strcmp(row->option, "prefix-cache") == 0;

            return set_text(r, field, path, row->option,
                            is_switch ? (flag ? "on" : "off")
                                      : (flag ? "yes" : "no"));
        }
    } else if (row->values[0] != '\0') {
        return set_choice(r, field, path, row);
    } else {
        status = bt_take_number(r, field, path, 1, UINT32_MAX, &number);
    }
    return (status == BT_OK)
               ? bt_take_set_number(r, field, path, row->option, number)
               : status;
}

/* ---- any field, by its row ---- */

bt_status_t bt_take_check_row(const reading_t *r, const bt_repo_field_t *row,
                              const bt_pbtxt_field_t *field, const char *path)
{
    switch (row->fate) {
    case BT_REPO_NOTED:
        bt_repository_note(r->repository, r->index, path, row->note);
        return BT_OK;
    case BT_REPO_REFUSED:
        return bt_take_refuse(r, field, "%s is not served: %s", path,
                              row->note);
    case BT_REPO_ONLY:
        /* The first value is the behaviour anyway; others are noted. */
        if (is_one_of(row->values, field->text) && !is_first(row, field)) {
            bt_repository_note(r->repository, r->index, path, row->note);
        }
        if (!is_one_of(row->values, field->text)) {
            return bt_take_refuse(
                r, field, "%s: '%.64s' is not served: %s%s%s%s", path,
                field->text, row->note, (row->values[0] != '\0') ? " (" : "",
                row->values, (row->values[0] != '\0') ? ")" : "");
        }
        return BT_OK;
    case BT_REPO_EFFECT:
        if ((row->values[0] != '\0') &&
            (strncmp(row->values, "true", 4) != 0) &&
            !is_one_of(row->values, field->text)) {
            return bt_take_refuse(r, field, "%s: '%.64s' is none of %s", path,
                                  field->text, row->values);
        }
        return BT_OK;
    default:
        return BT_OK;
    }
}

const bt_repo_field_t *bt_take_find_row(const reading_t *r,
                                        const bt_pbtxt_field_t *field,
                                        const char *path)
{
    const bt_repo_field_t *row = bt_repo_field_find(r->name, path);

    if (row == NULL) {
        (void)bt_take_refuse(r, field, "%s: model %s has no such field here",
                             path, r->name);
    }
    return row;
}

bool bt_take_is_open(const reading_t *r, const bt_pbtxt_field_t *field,
                     const char *path)
{
    if (field->unfilled) {
        bt_repository_note(r->repository, r->index, path, "not filled in");
        return true;
    }
    return false;
}
