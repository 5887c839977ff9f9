/* SPDX-License-Identifier: Apache-2.0 */
/* Values, and their effects by their rows of the table. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"
#include "common/repository/take_priv.h"

__attribute__((format(printf, 3, 4))) void
bt_take_refuse(reading_t *r, const bt_pbtxt_field_t *field, const char *fmt,
               ...)
{
    char text[BT_TAKE_PATH_BYTES + 256];
    va_list args;

    if (r->status != BT_OK) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    snprintf(r->why, BT_REPO_WHY_BYTES, "%.400s:%u: %s", r->path,
             (unsigned)field->line, text);
    r->status = BT_ERR_INVALID_PARAM;
}

/* The notes are truncated at the buffer's size. */
void bt_repository_note(bt_repository_t *repository, uint32_t index,
                        const char *path, const char *why)
{
    char *notes = repository->notes[index];
    const size_t n = strlen(notes);
    char text[BT_TAKE_PATH_BYTES + 128];

    snprintf(text, sizeof(text), "%s (%s)", path, why);
    if (strstr(notes, text) == NULL) {
        snprintf(notes + n, BT_REPO_NOTES_BYTES - n, "%s%s",
                 (n > 0) ? ", " : "", text);
    }
}

/* ---- fields ---- */

void *bt_take_list(reading_t *r, uint32_t first, const char *name, size_t size)
{
    size_t n = 1;
    void *list;

    BT_PBTXT_FOR_EACH(field, r->tree, first)
    {
        n += (strcmp(field->name, name) == 0) ? 1 : 0;
    }
    list = bt_calloc(n, size);
    if (list == NULL) {
        r->status = BT_ERR_NO_MEMORY;
    }
    return list;
}

bool bt_take_is_message(reading_t *r, const bt_pbtxt_field_t *field)
{
    if (field->kind != BT_PBTXT_MESSAGE) {
        bt_take_refuse(r, field, "%s should be { fields }", field->name);
    }
    return field->kind == BT_PBTXT_MESSAGE;
}

bool bt_take_is_value(reading_t *r, const bt_pbtxt_field_t *field,
                      const char *path)
{
    if (field->kind == BT_PBTXT_MESSAGE) {
        bt_take_refuse(r, field, "%s should be one value", path);
    }
    return field->kind != BT_PBTXT_MESSAGE;
}

void bt_take_fields(reading_t *r, const bt_pbtxt_field_t *message,
                    bt_take_field_fn *take, void *to)
{
    if (!bt_take_is_message(r, message)) {
        return;
    }
    BT_PBTXT_FOR_EACH(field, r->tree, message->first)
    {
        take(r, field, to);
        if (r->status != BT_OK) {
            return;
        }
    }
}

/* ---- values ---- */

int64_t bt_take_number(reading_t *r, const bt_pbtxt_field_t *field,
                       const char *path, int64_t min, int64_t max)
{
    char *end;
    long long value;

    errno = 0;
    value = strtoll(field->text, &end, 10);
    if ((field->bytes == 0) || (*end != '\0') || (errno != 0) ||
        (value < min) || (value > max) ||
        (strlen(field->text) != field->bytes)) {
        bt_take_refuse(r, field,
                       "%s: '%.64s' is not a whole number from %" PRId64
                       " to %" PRId64,
                       path, field->text, min, max);
        return 0;
    }
    return value;
}

bool bt_take_bool(reading_t *r, const bt_pbtxt_field_t *field, const char *path)
{
    static const char *const yes[] = {"true", "True", "t", "1"};
    static const char *const no[] = {"false", "False", "f", "0"};

    for (size_t i = 0; i < BT_ARRAY_LEN(yes); i++) {
        if (strcmp(field->text, yes[i]) == 0) {
            return true;
        }
        if (strcmp(field->text, no[i]) == 0) {
            return false;
        }
    }
    bt_take_refuse(r, field, "%s: '%.64s' is neither true nor false", path,
                   field->text);
    return false;
}

/* A number of at most 1 as percent, rounded up, so that none becomes 0. */
static int64_t take_percent(reading_t *r, const bt_pbtxt_field_t *field,
                            const char *path)
{
    char *end;
    const double value = strtod(field->text, &end);
    int64_t percent;

    if ((field->bytes == 0) || (*end != '\0') || !(value > 0) ||
        !(value <= 1)) {
        bt_take_refuse(r, field,
                       "%s: '%.64s' is not a number above 0, at most 1", path,
                       field->text);
        return 0;
    }
    percent = (int64_t)(value * 100);
    return percent + (((double)percent < value * 100) ? 1 : 0);
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

static bool is_first(const bt_repo_field_t *row, const bt_pbtxt_field_t *field)
{
    const size_t n = strcspn(row->values, ",");

    return (strlen(field->text) == n) &&
           (strncasecmp(row->values, field->text, n) == 0);
}

/* ---- options ---- */

/* @return NULL: there are too many; reported */
static bt_repo_setting_t *add_setting(reading_t *r,
                                      const bt_pbtxt_field_t *field,
                                      const char *path, const char *option)
{
    bt_repository_t *repository = r->repository;
    bt_repo_setting_t *setting;

    if (repository->n_settings == BT_REPO_MAX_SETTINGS) {
        bt_take_refuse(r, field, "%s: more than %d fields set options", path,
                       BT_REPO_MAX_SETTINGS);
        return NULL;
    }
    setting = &repository->settings[repository->n_settings++];
    *setting = (bt_repo_setting_t){.option = option};
    snprintf(setting->where, sizeof(setting->where), "%.120s:%u: %.50s",
             r->path, (unsigned)field->line, path);
    return setting;
}

static void set_text(reading_t *r, const bt_pbtxt_field_t *field,
                     const char *path, const char *option, const char *value)
{
    bt_repo_setting_t *setting = add_setting(r, field, path, option);

    if (setting != NULL) {
        snprintf(setting->value, sizeof(setting->value), "%s", value);
    }
}

void bt_take_set_number(reading_t *r, const bt_pbtxt_field_t *field,
                        const char *path, const char *option, int64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, value);
    set_text(r, field, path, option, text);
}

/* The row's spelling: MAX_UTILIZATION becomes max_utilization. */
static void set_choice(reading_t *r, const bt_pbtxt_field_t *field,
                       const char *path, const bt_repo_field_t *row)
{
    const char *word = find_word(row->values, field->text);
    char text[64];

    snprintf(text, sizeof(text), "%.*s", (int)strlen(field->text),
             (word != NULL) ? word : field->text);
    set_text(r, field, path, row->option, text);
}

/* The value is not checked here: an engine must not become the default
 * model. The launcher checks it (launcher/preflight.h). */
static void take_model_path(reading_t *r, const bt_pbtxt_field_t *field,
                            const char *path)
{
    bt_repo_setting_t *setting = add_setting(r, field, path, "model");

    if (setting != NULL) {
        setting->path = field->text;
    }
}

void bt_take_effect(reading_t *r, const bt_repo_field_t *row,
                    const bt_pbtxt_field_t *field, const char *path)
{
    const char *option = row->option;

    if (strcmp(option, "model") == 0) {
        take_model_path(r, field, path);
    } else if (strcmp(option, "lora-prefetch-dir") == 0) {
        set_text(r, field, path, option, field->text);
    } else if (strcmp(option, "lora-cache-host-memory") == 0) {
        bt_take_set_number(r, field, path, option,
                           bt_take_number(r, field, path, 0, (int64_t)1 << 50));
    } else if (strcmp(option, "kv-free-percent") == 0) {
        bt_take_set_number(r, field, path, option,
                           take_percent(r, field, path));
    } else if (strncmp(row->values, "true", 4) == 0) {
        const bool is_switch = strcmp(option, "prefix-cache") == 0;
        const bool flag = bt_take_bool(r, field, path);

        set_text(r, field, path, option,
                 is_switch ? (flag ? "on" : "off") : (flag ? "yes" : "no"));
    } else if (row->values[0] != '\0') {
        set_choice(r, field, path, row);
    } else {
        bt_take_set_number(r, field, path, option,
                           bt_take_number(r, field, path, 1, UINT32_MAX));
    }
}

/* ---- any field, by its row ---- */

void bt_take_check_row(reading_t *r, const bt_repo_field_t *row,
                       const bt_pbtxt_field_t *field, const char *path)
{
    const bool is_named = find_word(row->values, field->text) != NULL;
    const bool has_values = row->values[0] != '\0';

    switch (row->fate) {
    case BT_REPO_NOTED:
        bt_repository_note(r->repository, r->index, path, row->note);
        break;
    case BT_REPO_REFUSED:
        bt_take_refuse(r, field, "%s is not served: %s", path, row->note);
        break;
    case BT_REPO_ONLY:
        /* The first value is the behaviour anyway; others are noted. */
        if (!is_named) {
            bt_take_refuse(r, field, "%s: '%.64s' is not served: %s%s%s%s",
                           path, field->text, row->note, has_values ? " (" : "",
                           row->values, has_values ? ")" : "");
        } else if (!is_first(row, field)) {
            bt_repository_note(r->repository, r->index, path, row->note);
        }
        break;
    case BT_REPO_EFFECT:
        if (has_values && (strncmp(row->values, "true", 4) != 0) && !is_named) {
            bt_take_refuse(r, field, "%s: '%.64s' is none of %s", path,
                           field->text, row->values);
        }
        break;
    default:
        break;
    }
}

const bt_repo_field_t *bt_take_find_row(reading_t *r,
                                        const bt_pbtxt_field_t *field,
                                        const char *prefix, const char *name,
                                        char path[BT_TAKE_PATH_BYTES])
{
    const bt_repo_field_t *row;

    snprintf(path, BT_TAKE_PATH_BYTES, "%s%.100s", prefix, name);
    row = bt_repo_field_find(r->name, path);
    if (row == NULL) {
        bt_take_refuse(r, field, "%s: model %s has no such field here", path,
                       r->name);
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
