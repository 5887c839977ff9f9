/* SPDX-License-Identifier: Apache-2.0 */
/** @file store_priv.h
 *
 * Used by the files of the store only: store.c (folder and index), put.c (one
 * object written, one read), journal.c (records), object_file.c (the form of
 * their files), shared_folder.c (locks, and folders of other stores).
 */
#ifndef BT_ROUTER_STORE_STORE_PRIV_H
#define BT_ROUTER_STORE_STORE_PRIV_H

#include <stdatomic.h>

#include "common/crypt/key.h"
#include "router/store/store.h"

#define BT_STORE_PART       ".part" /* end of the name of a file that is written */
#define BT_STORE_JOURNAL    ".journal"
#define BT_STORE_NAME_BYTES (BT_STORE_ID_BYTES + 16)
#define BT_STORE_FOLDER_BYTES \
    256 /* own folder of a store, with the zero byte */

#define BT_STORE_LOCK "lock" /* file whose lock a running store has */
/* Files that a sweep looks at in one go. */
#define BT_STORE_SWEEP_FILES 256u

typedef struct bt_store_sweep bt_store_sweep_t; /* shared_folder.c */

struct bt_store_space {
    bt_list_t link;    /* in store->spaces */
    bt_list_t objects; /* the oldest first */
    uint32_t n_objects, n_puts;
    uint64_t used_bytes; /* objects, and what puts have reserved */
    char name[BT_STORE_SPACE_BYTES];
};

/* Folder and key of a store. They never change, so any thread reads them. */
typedef struct bt_store_folder {
    int dir_fd, lock_fd; /* owned; -1: in memory */
    int shared_fd;       /* owned: the shared folder; -1: there is none */
    char own_name[BT_STORE_FOLDER_BYTES]; /* of dir_fd in the shared folder */
    bool has_key;
    uint8_t key[BT_KEY_BYTES];
} bt_store_folder_t;

struct bt_store {
    bt_store_folder_t folder;
    uint64_t limit_bytes, space_bytes;
    uint32_t ttl_s;
    uint32_t limit_objects;
    bool has_spaces;
    bt_list_t spaces;
    bt_list_t *buckets; /* owned */
    bt_hmap_t by_id;
    uint64_t used_bytes;
    uint32_t n_objects, n_puts;
    uint32_t n_of_kind[BT_STORE_N_KINDS];
    uint64_t n_evicted;
    uint64_t last_us;  /* created_us of the newest object; never goes back */
    uint64_t look_s;   /* no object of the index expires before this time, in
                          seconds since 1970; UINT64_MAX: there is none */
    bt_list_t evicted; /* objects whose files the next put removes, before it
                          makes one, or else a tick */
    bt_list_t leaving; /* objects whose files the pool removes; they count … */
    uint32_t n_leaving;     /* … as so many objects, … */
    uint64_t leaving_bytes; /* … which are charged so much */
    bt_list_t ended;        /* puts that were given up, with a part, … */
    bt_list_t parts;        /* … which the pool removes */
    bt_pool_job_t job;
    bt_pool_t *pool; /* where it is posted */
    bool is_removing;
    struct {
        void (*fn)(void *ctx, bt_stored_t *object);
        void *ctx;
    } on_remove[BT_STORE_N_KINDS];
    /* With a shared folder: what stores that do not run have left there. */
    bt_store_sweep_t *sweep; /* owned: the job goes on with it; NULL: none */
    bool is_swept;           /* it is over */
    uint64_t sweep_s;      /* the next one begins then, in seconds since 1970 */
    atomic_bool was_noted; /* an object that cannot be read was logged */
};

/* ---- object_file.c: header and chunks ---- */

#define BT_STORE_HEADER_BYTES 16
/* Length, flags, nonce, tag. */
#define BT_STORE_FRAME_BYTES (8 + BT_SEAL_NONCE_BYTES + BT_SEAL_TAG_BYTES)
/* Longest description: kind, times, two lengths, space, label. */
#define BT_STORE_ABOUT_BYTES \
    (1 + 8 + 8 + 1 + 2 + BT_STORE_SPACE_BYTES + BT_STORE_LABEL_BYTES)

/* Chunk in memory: its frame, then its bytes. */
typedef struct bt_store_chunk {
    size_t bytes;
    bool is_last;
    uint8_t frame[BT_STORE_FRAME_BYTES];
    uint8_t data[BT_STORE_CHUNK_BYTES];
} bt_store_chunk_t;

/* Returns the prefix of a kind's ids. */
const char *bt_store_prefix(bt_store_kind_t kind);
/* Finds the kind of an id. @return false: it is none */
bool bt_store_id_kind(const char *id, bt_store_kind_t *kind_p);

void bt_store_header_make(const bt_store_folder_t *folder,
                          uint8_t header[BT_STORE_HEADER_BYTES]);
/* Writes a chunk at the end of a file: n bytes of its data, which are sealed in
 * place.
 * @retval BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_store_chunk_write(const bt_store_folder_t *folder,
                                               const char *id, uint64_t index,
                                               bt_store_chunk_t *chunk, int fd);
/* Reads the chunk at an offset, and checks it.
 * @retval BT_ERR_CORRUPT, BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_store_chunk_read(const bt_store_folder_t *folder,
                                              const char *id, uint64_t index,
                                              int fd, uint64_t offset,
                                              bt_store_chunk_t *chunk);
/* Encodes kind, times, space and label of an object as a chunk's data. */
void bt_store_about_encode(const bt_stored_t *object, const char *space,
                           bt_store_chunk_t *chunk);
/* Reads header and description of a file of a folder, and its length.
 * @param [out] object  kind, times, bytes, label (owned), head_bytes
 * @retval BT_ERR_CORRUPT, BT_ERR_IO, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_store_file_open(const bt_store_folder_t *folder,
                                             int dir_fd, const char *id,
                                             int *fd_p, bt_stored_t *object,
                                             char space[BT_STORE_SPACE_BYTES],
                                             bt_store_chunk_t *chunk);

/* ---- put.c ---- */

/* Removes the parts of puts that have ended; any thread. */
void bt_store_remove_parts(const bt_list_t *puts);
/* Frees them, and removes those parts that are still there. */
void bt_store_free_puts(bt_list_t *puts);

/* ---- journal.c ---- */

/* Writes the name of an object's journal, and an ending. */
void bt_store_journal_name(const char *id, const char *ending,
                           char name[BT_STORE_NAME_BYTES]);

/* ---- shared_folder.c ---- */

/* Opens the folder that an object is in. @param holder  NULL: the store's own
 * @return -1: errno has the reason */
int bt_store_open_holder(const bt_store_folder_t *folder, const char *holder);
/* Takes the lock of the store's own folder. Failures are logged, but one.
 * @retval BT_ERR_NOT_FOUND  not logged: the folder was removed meanwhile
 * @retval BT_ERR_BUSY       another store has it
 * @retval BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_store_lock(bt_store_folder_t *folder,
                                        const char *path);
/* Begins to remove files that have expired, or were never completed, from the
 * folders of stores that do not run: those whose lock is free. NULL: no memory
 */
bt_store_sweep_t *bt_store_sweep_begin(bt_store_t *store, uint64_t now_s);
/* Looks at BT_STORE_SWEEP_FILES more; any thread. @return false: it is over */
bool bt_store_sweep_go_on(bt_store_sweep_t *sweep);
void bt_store_sweep_end(bt_store_sweep_t *sweep); /* NULL is allowed */

/* ---- store.c ---- */

/* True for the name of an id and an ending. @param [out] id  the id */
bool bt_store_names_id(const char *name, const char *ending,
                       char id[BT_STORE_ID_BYTES]);

/* Bytes below a limit. */
static inline uint64_t bt_store_headroom(uint64_t limit, uint64_t used)
{
    return (used < limit) ? limit - used : 0;
}
/* Changes what a space, and the store, hold. */
void bt_store_charge(bt_store_t *store, bt_store_space_t *space,
                     uint64_t more_bytes, uint64_t less_bytes);
/* Returns the space of a name, which it makes if needed. NULL: no memory. */
bt_store_space_t *bt_store_space_get(bt_store_t *store, const char *name);
/* Removes the files of objects in a list, in which they stay; any thread. */
void bt_store_unlink_all(const bt_store_t *store, const bt_list_t *objects);
/* Moves what is in a list behind what is in another one. */
void bt_store_move_all(bt_list_t *from, bt_list_t *to);
/* Drops the references that a list has. */
void bt_store_free_all(bt_list_t *objects);
/* Frees a space that holds nothing. */
void bt_store_space_leave(bt_store_t *store, bt_store_space_t *space);
/* Puts an object into the index, whose reference it takes over. */
void bt_store_add(bt_store_t *store, bt_store_space_t *space,
                  bt_stored_t *object);

#endif
