/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/stderr_tail.h"

#include <stdio.h>
#include <string.h>

void bt_stderr_tail_reset(bt_stderr_tail_t *words)
{
    words->n_lines = 0;
    words->next = 0;
    words->len = 0;
}

static void end_line(bt_stderr_tail_t *words)
{
    words->lines[words->next][words->len] = '\0';
    words->len = 0;
    words->next = (words->next + 1) % BT_LAST_WORDS_LINES;
    /* The slot being written is the oldest line's: at most one less is held
     * while a line is open, and all of them are between two lines. */
    if (words->n_lines < BT_LAST_WORDS_LINES) {
        words->n_lines++;
    }
}

void bt_stderr_tail_add(bt_stderr_tail_t *words, const char *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (data[i] == '\n') {
            end_line(words);
        } else if (words->len + 1 < BT_LAST_WORDS_BYTES) {
            if ((words->len == 0) && (words->n_lines == BT_LAST_WORDS_LINES)) {
                words->n_lines--;
            }
            words->lines[words->next][words->len++] = data[i];
        }
    }
}

void bt_stderr_tail_finish(bt_stderr_tail_t *words)
{
    if (words->len > 0) {
        end_line(words);
    }
}

const char *bt_stderr_tail_line(const bt_stderr_tail_t *words, uint32_t i)
{
    uint32_t oldest;

    if (i >= words->n_lines) {
        return NULL;
    }
    oldest = (words->next + BT_LAST_WORDS_LINES - words->n_lines) %
             BT_LAST_WORDS_LINES;
    return words->lines[(oldest + i) % BT_LAST_WORDS_LINES];
}

/* The text of a line "TIME error NAME: TEXT", or NULL. */
static const char *text_of_line(const char *line)
{
    const char *const level = strstr(line, " error ");
    const char *const colon = (level == NULL) ? NULL : strstr(level, ": ");

    return (colon == NULL) ? NULL : colon + strlen(": ");
}

/* The text of a line in JSON, as log.c writes it. Characters escaped by number
 * (control characters) stay as they are. */
static bool copy_json_text(const char *line, char *out)
{
    static const char key[] = "\"message\":\"";
    const char *at = strstr(line, key);

    if ((strstr(line, "\"level\":\"error\"") == NULL) || (at == NULL)) {
        return false;
    }
    for (at += sizeof(key) - 1; (*at != '\0') && (*at != '"'); at++) {
        if ((*at == '\\') && ((at[1] == '"') || (at[1] == '\\'))) {
            at++;
        }
        *out++ = *at; /* never longer than the line */
    }
    *out = '\0';
    return true;
}

void bt_stderr_tail_cause(const bt_stderr_tail_t *words,
                          char cause[BT_LAST_WORDS_BYTES])
{
    const char *last = "";
    const char *line;

    cause[0] = '\0';
    for (uint32_t i = 0; (line = bt_stderr_tail_line(words, i)) != NULL; i++) {
        const char *const text = text_of_line(line);

        if (text != NULL) {
            snprintf(cause, BT_LAST_WORDS_BYTES, "%s", text);
        } else if (!copy_json_text(line, cause) && (line[0] != '\0')) {
            last = line;
        }
    }
    if (cause[0] == '\0') {
        snprintf(cause, BT_LAST_WORDS_BYTES, "%s", last);
    }
}
