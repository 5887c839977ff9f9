/* SPDX-License-Identifier: Apache-2.0 */
/** @file batch_priv.h
 *
 * Shared by the files of batches only: batches.c (all of them), batch.c (the
 * life of one), batch_end.c and batch_write.c (the files of its results),
 * batch_state.c (what is kept of it), batch_disk.c (jobs of the pool),
 * batch_input.c and batch_check.c (the lines of the input), batch_run.c (lines
 * as requests, and their answers), batch_line.c (a line as text).
 */
#ifndef BT_ROUTER_BATCH_BATCH_PRIV_H
#define BT_ROUTER_BATCH_BATCH_PRIV_H

#include "router/batch/batch.h"
#include "router/request/request.h"

#define BT_BATCH_ID_CHARS    512 /* longest custom_id, in bytes */
#define BT_BATCH_CODE_BYTES  48
#define BT_BATCH_WHY_BYTES   256
#define BT_BATCH_MAX_ERRORS  16u
#define BT_BATCH_RETRY_US    1000000u /* after a failure of the disk */
#define BT_BATCH_AHEAD       32u      /* lines read ahead of those that run */
#define BT_BATCH_AHEAD_BYTES ((size_t)4 << 20)
#define BT_BATCH_SLICE_BYTES ((size_t)1 << 20) /* of a file, for one job */
#define BT_BATCH_AROUND_BODY ((size_t)8 << 10) /* of a line, at most */

/* Time without lines and jobs after which a batch holds no open files. */
#define BT_BATCH_IDLE_US 10000000u

/* Tries of a line whose generation workers had, and which failed with 503 or
 * 504: the error of the last one is its answer. */
#define BT_BATCH_LINE_TRIES 3u

/* Endpoint of a batch. */
typedef struct bt_batch_endpoint {
    const char *path;
    bt_api_dialect_t dialect;
} bt_batch_endpoint_t;

typedef enum bt_batch_status {
    BT_BATCH_VALIDATING,
    BT_BATCH_IN_PROGRESS,
    BT_BATCH_FINALIZING,
    BT_BATCH_CANCELLING,
    BT_BATCH_COMPLETED,
    BT_BATCH_EXPIRED,
    BT_BATCH_FAILED,
    BT_BATCH_CANCELLED,
    BT_BATCH_N_STATUSES,
} bt_batch_status_t;

/* Memory that the requests' budget counts; `all` NULL: none. */
typedef struct bt_batch_held {
    bt_batches_t *all;
    uint64_t bytes;
} bt_batch_held_t;

/* Line of the input. */
typedef struct bt_batch_line {
    bt_list_t link; /* in batch->ready, or unlinked while it runs */
    uint32_t index; /* from 0 */
    char *custom_id;
    bt_strbuf_t body;
    const char *refusal; /* why it is answered 400 without a request; NULL */
    uint32_t n_failed;   /* tries that count: BT_BATCH_LINE_TRIES */
    bt_batch_held_t held;
} bt_batch_line_t;

/* Line as the input has it. */
typedef struct bt_batch_text {
    const char *text;
    size_t bytes;
    bool is_cut; /* it is longer than a line may be: its beginning */
} bt_batch_text_t;

typedef struct bt_batch_check bt_batch_check_t; /* batch_check.c */
typedef struct bt_batch_write bt_batch_write_t; /* batch_write.c */

/* Result of a line: a record of the journal, 'R', index (u32), whether it
 * succeeded (u8), and the line of the output or the error file. */
#define BT_BATCH_RESULT_HEAD 6
typedef struct bt_batch_result {
    bt_list_t link;
    uint32_t index;
    bool ok;
    bt_strbuf_t record;
    bt_batch_held_t held;
} bt_batch_result_t;

/* Results that a journal has. */
typedef struct bt_batch_found {
    uint32_t n_ok, n_failed;
    uint64_t ok_bytes, failed_bytes;
} bt_batch_found_t;

/* Owner of batches that have not ended: a space. It has one at least. */
typedef struct bt_batch_owner {
    bt_list_t link;    /* in batches->owners */
    bt_list_t batches; /* whose turn it is, first */
    uint32_t n;        /* of them */
    bool is_checking;  /* one of them */
    char space[BT_STORE_SPACE_BYTES];
} bt_batch_owner_t;

struct bt_batch {
    bt_list_t link; /* in its owner, batches->ended or batches->gone */
    bt_batches_t *all;
    bt_batch_owner_t *owner; /* NULL: it has ended, or is gone */
    bool is_checking;        /* one of those that are counted */
    bt_batch_held_t check_held;
    bt_batch_held_t held;
    bt_stored_t *object; /* a reference; NULL: it is being made */
    char space[BT_STORE_SPACE_BYTES];
    bt_tenant_t *tenant; /* a reference; NULL: not looked for yet */

    /* Parameters: the bytes of the object. */
    const bt_batch_endpoint_t *endpoint;
    char input_id[BT_STORE_ID_BYTES];
    char *metadata; /* JSON; NULL: none */
    uint64_t output_life_s;

    /* State: the last record 'S' of the journal. */
    bt_batch_status_t status;
    bt_batch_status_t ending; /* FINALIZING, CANCELLING: what follows */
    uint64_t at_s[BT_BATCH_N_STATUSES]; /* 0: not yet */
    uint32_t n_lines;
    uint32_t n_ok, n_failed; /* results in the journal */
    char *errors;            /* a list, as JSON; NULL: none */
    char output_id[BT_STORE_ID_BYTES], error_id[BT_STORE_ID_BYTES];

    uint64_t ok_bytes, failed_bytes; /* lines of the two files */
    uint64_t id_bytes;               /* of all custom_ids */
    uint8_t *done;          /* owned: a bit for each line that has a result */
    uint64_t wait_until_us; /* no line begins before */
    bool is_cancel_kept;    /* CANCELLING: the journal has it */
    bt_list_t cancels;      /* calls that wait for that */
    uint32_t n_running, n_ready;
    size_t ready_bytes;
    bt_list_t ready;   /* lines that may run */
    bt_list_t running; /* line requests */
    bt_list_t results; /* results that are not in the journal */
    uint64_t results_bytes;

    /* One job at a time; what it has is its own until it is done. */
    bt_work_t work;
    bool has_job;
    uint64_t job_us; /* when the last one ended */
    bool goes_on;    /* the job is to be posted again */
    bt_status_t job_status;
    void (*next)(bt_batch_t *batch);
    bt_store_journal_t *journal; /* NULL: ended */
    bt_store_reader_t *reader;   /* of the input; NULL: not open */
    bt_stored_t *input;          /* a reference; NULL: not looked for yet */
    bt_strbuf_t partial;         /* beginning of the next line */
    const char *chunk;           /* rest of what the reader gave */
    size_t chunk_bytes;
    uint64_t input_at;  /* bytes of the input before it */
    uint64_t paused_at; /* byte at which it is read on; 0: its first line */
    size_t slice_bytes; /* read by this job */
    bt_batch_check_t *check; /* owned; NULL: none is under way */
    bt_batch_write_t *write; /* owned; NULL: none is under way */
    uint32_t next_index,
        next_number;       /* of lines; without and with empty ones */
    bool is_read;          /* all lines were read */
    uint32_t n_wanted;     /* lines that a job may read */
    size_t most_bytes;     /* and bytes of them */
    bt_stored_t *stale[2]; /* files of an earlier try: removed */
    bool are_stale_gone;   /* from the disk */
    bool is_refused;       /* the store had no space for the files: logged */
    bool is_miscounted;    /* the journal has other results: `found` */
    bt_batch_found_t found;
    bt_list_t fresh, saving;
    bt_strbuf_t state_text, final_text;
    bt_store_put_t *output, *error_file;
};

struct bt_batches {
    bt_frontend_t *front;
    bt_list_t owners; /* the next one to have a turn first */
    bt_list_t ended;
    bt_list_t gone; /* without an object: to be freed */
    uint32_t n_running, n_checks;
    uint64_t held_bytes; /* of memory */
    size_t inline_bytes; /* longer answers are written by the pool */
    bt_turn_work_t news; /* looks at batches at the end of the turn */
};

/* ---- batches.c ---- */

/* Memory of a batch that has not ended: chunks of input and journal, and
 * itself. */
#define BT_BATCH_OPEN_BYTES                              \
    (2 * BT_STORE_CHUNK_BYTES + BT_BATCH_MAX_LINES / 8 + \
     sizeof(struct bt_batch) + 4096)

/* Counts memory until bt_batch_give(). */
void bt_batch_hold(bt_batches_t *batches, bt_batch_held_t *held,
                   uint64_t bytes);
void bt_batch_give(bt_batch_held_t *held);
/* Returns how many bytes of lines a batch may read ahead of those that run now.
 */
size_t bt_batches_headroom(const bt_batches_t *batches);
/* Takes a batch out of the list in which it is. */
void bt_batch_leave_owner(bt_batch_t *batch);
/* Begins the turn of a check of lines. @return false: others have theirs */
bool bt_batch_may_check(bt_batch_t *batch);
void bt_batch_check_is_over(bt_batch_t *batch);

/* ---- batch.c ---- */

/* Does what is due, but for lines. */
void bt_batch_look(bt_batch_t *batch, uint64_t now_us);
void bt_batch_free(bt_batch_t *batch);

/* Moves a batch along an edge of batch.h, and notes the time. */
void bt_batch_move(bt_batch_t *batch, bt_batch_status_t status);
bool bt_batch_has_ended(const bt_batch_t *batch);
/* Looks at all batches soon. */
void bt_batches_wake(bt_batches_t *batches);
/* Ends a batch with one error, once what runs is given up. Without memory for
 * the error it goes on. */
void bt_batch_fail(bt_batch_t *batch, const char *code, const char *why);
/* Adds an error, unless there are some. @return false: no memory */
BT_MUST_CHECK bool bt_batch_set_error(bt_batch_t *batch, const char *code,
                                      const char *why);
/* Frees what a batch that has ended does not need. */
void bt_batch_drop_work(bt_batch_t *batch);
/* Writes a state that is to be kept. @return false: no memory, and it is tried
 * again later */
bool bt_batch_keep_state(bt_batch_t *batch, bt_batch_status_t status,
                         bt_strbuf_t *out);
/* Goes on after a job that saved a state. After a failure the journal is opened
 * again, to see what it has. */
void bt_batch_saved(bt_batch_t *batch);
uint64_t bt_batch_now_s(void);
/* Counts lines in the metrics. */
void bt_batch_count_lines(const bt_batch_t *batch, bt_process_cell_t result,
                          uint32_t n);
void bt_batch_line_free(bt_batch_line_t *line);
void bt_batch_result_free(bt_batch_result_t *result);
bool bt_batch_is_done(const bt_batch_t *batch, uint32_t index);
/* Sets the bit of a line. @return false: it was set */
bool bt_batch_mark(uint8_t *bits, uint32_t index);

/* ---- batch_state.c ---- */

const char *bt_batch_status_name(bt_batch_status_t status);
/* Finds an endpoint. NULL: there is none of this path */
const bt_batch_endpoint_t *bt_batch_endpoint(const char *path);
/* Writes the parameters, as the object has them. */
void bt_batch_write_params(const bt_batch_params_t *params, bt_strbuf_t *out);
/* @retval BT_ERR_CORRUPT, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_batch_read_params(const char *text, size_t bytes,
                                               bt_batch_t *batch);
/* Writes a record 'S' as if the batch had this status. */
void bt_batch_write_state(const bt_batch_t *batch, bt_batch_status_t status,
                          bt_strbuf_t *out);
/* Reads what follows the 'S'. @retval BT_ERR_CORRUPT, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_batch_read_state(const char *text, size_t bytes,
                                              bt_batch_t *batch);

/* ---- batch_line.c ---- */

/* Error of a line, as the batch's `errors` list it. */
typedef struct bt_batch_fault {
    char code[BT_BATCH_CODE_BYTES];
    const char *param; /* NULL: none */
    char why[BT_BATCH_WHY_BYTES];
    const char *refusal; /* static */
} bt_batch_fault_t;

/* Reads a line.
 * @param [in]  most       bytes of a body
 * @param [out] custom_id  its bytes and a zero
 * @param [out] body       the request's body, a copy; NULL: not wanted
 * @retval BT_ERR_INVALID_PARAM  it is none: code, param and why are filled
 * @retval BT_ERR_TOO_LARGE      it has a custom_id, and is answered 400:
 *     refusal is filled, body is not
 * @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_batch_line_parse(
    const bt_batch_text_t *line, const bt_batch_endpoint_t *endpoint,
    size_t most, char custom_id[BT_BATCH_ID_CHARS + 1], bt_strbuf_t *body,
    bt_batch_fault_t *fault_p);
/* Makes the result of a line that was answered.
 * @param [in] answer  JSON
 * @retval BT_ERR_TOO_LARGE, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_batch_result_answer(
    const bt_batch_line_t *line, const char *request_id, int http_status,
    const char *answer, size_t answer_bytes, bt_batch_result_t **result_p);
/* Makes the same in parts: the answer's JSON is appended to the record between
 * the two. @retval as bt_batch_result_answer() */
BT_MUST_CHECK bt_status_t bt_batch_result_begin(const bt_batch_line_t *line,
                                                const char *request_id,
                                                int http_status,
                                                bt_batch_result_t **result_p);
BT_MUST_CHECK bt_status_t bt_batch_result_end(bt_batch_result_t *result);
/* Reads a record of the journal. @return false: it is no result */
bool bt_batch_read_result(const void *data, size_t bytes, uint32_t *index_p,
                          bool *ok_p);
/* Appends a line of the error file for one that did not run. */
void bt_batch_write_unanswered(const char *custom_id, const char *code,
                               const char *why, bt_strbuf_t *out);

/* ---- batch_end.c ---- */

/* Begins the files of results; the batch has ended once they are kept. */
void bt_batch_begin_files(bt_batch_t *batch, uint64_t now_us);
/* Gives up what was reserved for them. */
void bt_batch_drop_files(bt_batch_t *batch);
void bt_batch_forget_stale(bt_batch_t *batch);

/* ---- batch_disk.c ---- */

/* Reads what is kept of a batch, at the start; blocks.
 * @retval BT_ERR_CORRUPT, BT_ERR_IO, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_batch_load(bt_batch_t *batch);
/* Posts a job, whose done() calls next(). While the job says that it goes on,
 * it is posted again instead, so that jobs of others have their turn. */
void bt_batch_post(bt_batch_t *batch, void (*run)(bt_pool_job_t *job),
                   void (*next)(bt_batch_t *batch));
/* Each posts a job. */
/* Appends results, and reads lines if there are few. */
void bt_batch_work(bt_batch_t *batch, void (*next)(bt_batch_t *batch));
/* Appends state_text, if there is any, to the journal. */
void bt_batch_save(bt_batch_t *batch, void (*next)(bt_batch_t *batch));
/* Opens the journal, unless it is open, and reads up to its end; in a job.
 * @retval BT_ERR_CORRUPT, BT_ERR_IO, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_batch_open_journal(bt_batch_t *batch);
/* Appends state_text, if there is any, to the journal, in a job. @retval as
 * bt_batch_open_journal() */
BT_MUST_CHECK bt_status_t bt_batch_append_state(bt_batch_t *batch);
/* Closes reader and journal; lines are read from the first one again. */
void bt_batch_close_files(bt_batch_t *batch);
/* Closes them while there is nothing to do: they are opened where they were. */
void bt_batch_pause_files(bt_batch_t *batch);

/* ---- batch_input.c ---- */

/* Opens the input at its first line, or where it was paused, unless it is open.
 * @retval BT_ERR_NOT_FOUND, BT_ERR_CORRUPT, BT_ERR_IO, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_batch_input_open(bt_batch_t *batch);
void bt_batch_input_close(bt_batch_t *batch);
/* Closes the input between two jobs, and remembers its next line. */
void bt_batch_input_pause(bt_batch_t *batch);
/* Reads the next line that is not empty, with its end.
 * @param [out] line  valid until the next call
 * @retval BT_ERR_NOT_FOUND  there are no more
 * @retval BT_ERR_CORRUPT, BT_ERR_IO, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_batch_input_next(bt_batch_t *batch,
                                              bt_batch_text_t *line);

/* ---- batch_write.c ---- */

/* Posts a job that writes output and error file, then the last state. In next()
 * bt_batch_end_write() is due.
 * @retval BT_ERR_CORRUPT  as job_status: `is_miscounted`, and nothing is kept
 */
void bt_batch_finalize(bt_batch_t *batch, void (*next)(bt_batch_t *batch));
void bt_batch_end_write(bt_batch_t *batch);

/* ---- batch_check.c ---- */

/* Posts a job that checks all lines; it ends early once the batch is not
 * VALIDATING any more. In next() either of the other two is due. */
void bt_batch_validate(bt_batch_t *batch, void (*next)(bt_batch_t *batch));
/* Takes over what the check found: errors, or how many lines there are. */
void bt_batch_take_check(bt_batch_t *batch);
/* Forgets what it found. */
void bt_batch_end_check(bt_batch_t *batch);

/* ---- batch_run.c ---- */

/* True if a line is ready, and there is headroom for it. */
bool bt_batch_can_run_line(const bt_batch_t *batch, uint64_t now_us);
/* Begins it. */
void bt_batch_run_line(bt_batch_t *batch, uint64_t now_us);
/* Gives up lines that run, and drops those that are ready. */
void bt_batch_drop_lines(bt_batch_t *batch);

#endif
