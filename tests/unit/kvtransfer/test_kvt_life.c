/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a link, a region and a transfer: every step that the drawing of
 * kvt_life.h has, and none besides; then the same on regions of a process, by
 * the messages, calls and clock that cause the steps. */
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "kvtransfer/kvt_core.h"
#include "tests/unit/kvtransfer/pair.h"

#define N_STATES    BT_KVT_REGION_N_STATES
#define N_INPUTS    BT_KVT_REGION_N_INPUTS
#define POOL_BYTES  (64u << 10)
#define PIECE_BYTES 512u

/* ---- the tables ---- */

/* By hand from the drawing. A row per state, a column per input, as the enums
 * have them; the letter is the state that comes of it, '.' is refused. */
static const char letters[] = "ODLKFXRVQSC"; /* K: done, X: failed, written */
static const char *const region_steps[N_STATES] = {
    /* begin piece part last confirm stop | proven fail close drained late */
    [BT_KVT_REGION_IS_OPEN] = "DOOL.F.FR..",
    [BT_KVT_REGION_IS_DIRECT] = "DDDL.F.XQ..",
    [BT_KVT_REGION_IS_LISTED] = ".L...FKFR..",
    [BT_KVT_REGION_IS_DONE] = ".....K..R..",
    [BT_KVT_REGION_IS_FAILED] = ".....F..R..",
    [BT_KVT_REGION_IS_FAILED_DIRECT] = ".....F..Q..",
    [BT_KVT_REGION_IS_DRAINING] = "....RR...CV",
    [BT_KVT_REGION_IS_OVERDUE] = "....VV...C.",
    [BT_KVT_REGION_IS_QUARANTINED] = "....RR....S",
    [BT_KVT_REGION_IS_STUCK] = "....VV.....",
    [BT_KVT_REGION_IS_CLOSED] = "...........",
};

/* post: P posting, F finished, L listed, E ending, X ended. */
static const char xfer_letters[] = "PFLEX";
static const char *const xfer_steps[BT_KVT_XFER_N_STATES] = {
    /* proven | post finish listed end returned */
    [BT_KVT_XFER_IS_POSTING] = ".PF.E.", [BT_KVT_XFER_IS_FINISHED] = "...LE.",
    [BT_KVT_XFER_IS_LISTED] = "E...E.",  [BT_KVT_XFER_IS_ENDING] = ".....X",
    [BT_KVT_XFER_IS_ENDED] = "......",
};

/* N new, G greeting, O open, B broken, L lost, X gone. */
static const char link_letters[] = "NGOBLX";
static const char *const link_steps[BT_KVT_LINK_N_STATES] = {
    /* ack | hello send_failed lose gone */
    [BT_KVT_LINK_IS_NEW] = ".GBLX",  [BT_KVT_LINK_IS_GREETING] = "OGBLX",
    [BT_KVT_LINK_IS_OPEN] = "..BLX", [BT_KVT_LINK_IS_BROKEN] = "...LX",
    [BT_KVT_LINK_IS_LOST] = "....X", [BT_KVT_LINK_IS_GONE] = ".....",
};

static bool is_the_senders(int input)
{
    return input <= BT_KVT_REGION_ON_STOP;
}

static void link_transitions_match_the_documented_table(void **state)
{
    (void)state;
    for (int from = 0; from < BT_KVT_LINK_N_STATES; from++) {
        assert_int_equal(strlen(link_steps[from]), BT_KVT_LINK_N_INPUTS);
        for (int input = 0; input < BT_KVT_LINK_N_INPUTS; input++) {
            const char want = link_steps[from][input];
            bt_kvt_link_state_t to = BT_KVT_LINK_N_STATES;
            const bt_status_t status = bt_kvt_link_next(
                (bt_kvt_link_state_t)from, (bt_kvt_link_input_t)input, &to);

            if (want == '.') {
                assert_int_equal(status, BT_ERR_STALE);
                assert_int_equal(to, BT_KVT_LINK_N_STATES);
            } else {
                assert_int_equal(status, BT_OK);
                assert_int_equal(link_letters[to], want);
            }
        }
    }
}

static void region_transitions_match_the_documented_table(void **state)
{
    int n_legal = 0;

    (void)state;
    for (int from = 0; from < N_STATES; from++) {
        assert_int_equal(strlen(region_steps[from]), N_INPUTS);
        for (int input = 0; input < N_INPUTS; input++) {
            const char want = region_steps[from][input];
            bt_kvt_region_state_t to = N_STATES;
            const bt_status_t status = bt_kvt_region_next(
                (bt_kvt_region_state_t)from, (bt_kvt_region_input_t)input, &to);

            if (want == '.') {
                assert_int_equal(status, is_the_senders(input)
                                             ? BT_ERR_STALE
                                             : BT_ERR_INVALID_PARAM);
                assert_int_equal(to, N_STATES);
            } else {
                assert_int_equal(status, BT_OK);
                assert_int_equal(letters[to], want);
                n_legal++;
            }
        }
    }
    assert_int_equal(n_legal, 37); /* letters above, counted */
}

static void transfer_transitions_match_the_documented_table(void **state)
{
    (void)state;
    for (int from = 0; from < BT_KVT_XFER_N_STATES; from++) {
        assert_int_equal(strlen(xfer_steps[from]), BT_KVT_XFER_N_INPUTS);
        for (int input = 0; input < BT_KVT_XFER_N_INPUTS; input++) {
            const char want = xfer_steps[from][input];
            bt_kvt_xfer_state_t to = BT_KVT_XFER_N_STATES;
            const bt_status_t status = bt_kvt_xfer_next(
                (bt_kvt_xfer_state_t)from, (bt_kvt_xfer_input_t)input, &to);

            if (want == '.') {
                assert_int_equal(status, (input == BT_KVT_XFER_ON_PROVEN)
                                             ? BT_ERR_STALE
                                             : BT_ERR_INVALID_PARAM);
                assert_int_equal(to, BT_KVT_XFER_N_STATES);
            } else {
                assert_int_equal(status, BT_OK);
                assert_int_equal(xfer_letters[to], want);
            }
        }
    }
}

/* Invariant I2: bytes are free only when nobody writes to them, and who had
 * leave to write is out by its own word or end. */
static void region_waits_for_every_possible_writer(void **state)
{
    (void)state;
    for (int from = 0; from < N_STATES; from++) {
        const bool written =
            bt_kvt_region_is_written((bt_kvt_region_state_t)from);
        const bool closing =
            bt_kvt_region_is_closing((bt_kvt_region_state_t)from);

        for (int input = 0; input < N_INPUTS; input++) {
            bt_kvt_region_state_t to;

            if (bt_kvt_region_next((bt_kvt_region_state_t)from,
                                   (bt_kvt_region_input_t)input,
                                   &to) != BT_OK) {
                continue;
            }
            if (to == BT_KVT_REGION_IS_CLOSED) {
                assert_int_equal(input, BT_KVT_REGION_ON_DRAINED);
                assert_false(written);
                assert_true(closing);
            }
            if (written && !bt_kvt_region_is_written(to)) {
                assert_true((input == BT_KVT_REGION_ON_LAST) ||
                            (input == BT_KVT_REGION_ON_CONFIRM) ||
                            (input == BT_KVT_REGION_ON_STOP));
            }
            if (!written && bt_kvt_region_is_written(to)) {
                assert_int_equal(input, BT_KVT_REGION_ON_BEGIN);
                assert_int_equal(from, BT_KVT_REGION_IS_OPEN);
            }
            assert_true(!closing || bt_kvt_region_is_closing(to));
            assert_true((input != BT_KVT_REGION_ON_CLOSE) ||
                        bt_kvt_region_is_closing(to));
        }
    }
}

/** States that can come of @a from, as bits. */
static unsigned reachable(bt_kvt_region_state_t from)
{
    unsigned seen = 1u << from;

    for (unsigned before = 0; before != seen;) {
        before = seen;
        for (int s = 0; s < N_STATES; s++) {
            for (int input = 0; ((seen >> s) & 1u) && (input < N_INPUTS);
                 input++) {
                bt_kvt_region_state_t to;

                if (bt_kvt_region_next((bt_kvt_region_state_t)s,
                                       (bt_kvt_region_input_t)input,
                                       &to) == BT_OK) {
                    seen |= 1u << to;
                }
            }
        }
    }
    return seen;
}

static void region_states_start_open_and_end_closed(void **state)
{
    (void)state;
    assert_int_equal(reachable(BT_KVT_REGION_IS_OPEN), (1u << N_STATES) - 1);
    for (int s = 0; s < N_STATES; s++) {
        assert_true(reachable((bt_kvt_region_state_t)s) >>
                        BT_KVT_REGION_IS_CLOSED &
                    1u);
    }
}

/* ---- a process and a sender that says what it likes ---- */

typedef struct world {
    pair_t pair;
    track_t *t;
    bt_kvt_region_t *region;
    bt_kvt_lease_t lease;
    bt_kvt_piece_t piece; /* that was given a buffer */
} world_t;

static void say(world_t *w, bt_kvt_msg_t msg)
{
    static uint8_t buf[BT_KVT_MAX_MSG];
    bt_kvt_t *kvt = w->pair.receiver;
    bt_kvt_link_t *link = bt_kvt_link_find(kvt, PAIR_SENDER);
    size_t bytes = 0;

    msg.from = PAIR_SENDER;
    msg.nonce = link->peer_nonce;
    msg.lease = w->lease;
    assert_int_equal(
        bt_kvt_msg_encode(&msg, link->peer_key, buf, sizeof(buf), &bytes),
        BT_OK);
    assert_ptr_equal(bt_kvt_take_message(kvt, link, buf, bytes), link);
}

/** A manifest of the whole region, with a hash that is right for zeros; @a
 *  first: of its first record, where a hole fails the region. */
static void say_part(world_t *w, bool last, uint32_t first)
{
    static const uint8_t zeros[PIECE_BYTES];
    bt_kvt_record_t records[2];
    uint32_t n = 0;

    for (uint64_t at = first; at < 2; at++, n++) {
        records[n] =
            (bt_kvt_record_t){.offset = at * PIECE_BYTES, .bytes = PIECE_BYTES};
        assert_int_equal(
            bt_kvt_memory_hash(
                w->pair.receiver,
                &(bt_hash_piece_t){.src = zeros, .n = PIECE_BYTES}, 1,
                bt_kvt_record_seed(&w->lease, records[n].offset, PIECE_BYTES),
                &records[n].hash),
            BT_OK);
    }
    say(w, (bt_kvt_msg_t){.type = BT_KVT_MSG_PART,
                          .direct = w->region->state == BT_KVT_REGION_IS_DIRECT,
                          .last = last,
                          .first_record = first,
                          .n_records = (last || (first > 0)) ? n : 1,
                          .records = records});
}

/** Ask for a buffer for the region's second half. */
static bool take_piece(world_t *w)
{
    uint8_t header[BT_KVT_PIECE_BYTES];
    bt_kvt_region_t *region = NULL;
    bt_kvt_piece_t piece = {.from = PAIR_SENDER,
                            .lease = w->lease,
                            .offset = PIECE_BYTES,
                            .bytes = PIECE_BYTES};

    memcpy(piece.secret, w->region->secret, sizeof(piece.secret));
    bt_kvt_piece_encode(&piece, header);
    return bt_kvt_region_take(w->pair.receiver, header, sizeof(header),
                              PIECE_BYTES, &w->piece, &region) != NULL;
}

static void give_back(world_t *w)
{
    bt_kvt_region_landed(w->region, PIECE_BYTES, PIECE_BYTES, true);
}

static void let_pass(world_t *w, uint64_t ms)
{
    (void)bt_kvt_progress(w->pair.receiver, ++w->pair.now_ms, PAIR_BUDGET);
    w->pair.now_ms += ms;
    (void)bt_kvt_progress(w->pair.receiver, w->pair.now_ms, PAIR_BUDGET);
}

/** A region of 2 pieces for whoever comes, of a receiver whose pool the sender
 *  can write. */
static void world_open(world_t *w)
{
    pair_open(&w->pair, &pair_kinds[PAIR_MEM_SHM], POOL_BYTES);
    pair_import(&w->pair);
    for (int i = 0; i < 10; i++) {
        (void)pair_pump(&w->pair);
    }
    w->t = pair_region(&w->pair, 1, 0, 0, PIECE_BYTES, 2 * PIECE_BYTES, 2);
    w->region = w->t->region;
    w->lease = w->region->lease;
    assert_int_equal(bt_kvt_link_find(w->pair.receiver, PAIR_SENDER)->remote,
                     BT_KVT_REMOTE_WRITES);
    assert_int_equal(w->region->state, BT_KVT_REGION_IS_OPEN);
}

static void world_close(world_t *w)
{
    w->t->closing = true; /* by whatever way */
    pair_close(&w->pair);
}

/** Bring the region there by messages, calls and the clock. */
static void go(world_t *w, bt_kvt_region_state_t to)
{
    switch (to) {
    case BT_KVT_REGION_IS_OPEN:
        break;
    case BT_KVT_REGION_IS_DIRECT:
        say(w, (bt_kvt_msg_t){.type = BT_KVT_MSG_BEGIN});
        break;
    case BT_KVT_REGION_IS_LISTED: /* and its bytes are not here */
        say_part(w, true, 0);
        break;
    case BT_KVT_REGION_IS_DONE:
        go(w, BT_KVT_REGION_IS_DIRECT);
        say_part(w, true, 0); /* zeros, as the pool has them */
        let_pass(w, 1);
        break;
    case BT_KVT_REGION_IS_FAILED:
        say_part(w, true, 1);
        break;
    case BT_KVT_REGION_IS_FAILED_DIRECT:
        go(w, BT_KVT_REGION_IS_DIRECT);
        say_part(w, true, 1);
        break;
    case BT_KVT_REGION_IS_DRAINING:
        assert_true(take_piece(w));
        bt_kvt_region_close(w->region);
        break;
    case BT_KVT_REGION_IS_OVERDUE:
        assert_true(take_piece(w));
        go(w, BT_KVT_REGION_IS_STUCK);
        say(w, (bt_kvt_msg_t){.type = BT_KVT_MSG_CONFIRM});
        break;
    case BT_KVT_REGION_IS_QUARANTINED:
        go(w, BT_KVT_REGION_IS_DIRECT);
        bt_kvt_region_close(w->region);
        break;
    case BT_KVT_REGION_IS_STUCK:
        go(w, BT_KVT_REGION_IS_QUARANTINED);
        let_pass(w, 2000); /* pair.h: quarantine_ms */
        break;
    case BT_KVT_REGION_IS_CLOSED:
        bt_kvt_region_close(w->region);
        break;
    case BT_KVT_REGION_N_STATES:
        fail();
    }
    assert_int_equal(w->region->state, to);
}

/** What the sender can do of itself. */
static void sender_does(world_t *w, bt_kvt_region_input_t input)
{
    switch (input) {
    case BT_KVT_REGION_ON_BEGIN:
        say(w, (bt_kvt_msg_t){.type = BT_KVT_MSG_BEGIN});
        break;
    case BT_KVT_REGION_ON_PIECE:
        (void)take_piece(w);
        break;
    case BT_KVT_REGION_ON_PART:
        say_part(w, false, 0);
        break;
    case BT_KVT_REGION_ON_LAST:
        say_part(w, true, 0);
        break;
    case BT_KVT_REGION_ON_CONFIRM:
        say(w, (bt_kvt_msg_t){.type = BT_KVT_MSG_CONFIRM});
        break;
    case BT_KVT_REGION_ON_STOP:
        say(w, (bt_kvt_msg_t){.type = BT_KVT_MSG_CANCEL});
        break;
    default:
        fail();
    }
}

/** The step that follows by itself when nothing is left to be written. */
static bt_kvt_region_state_t settled(const world_t *w, bt_kvt_region_state_t s)
{
    return (((s == BT_KVT_REGION_IS_DRAINING) ||
             (s == BT_KVT_REGION_IS_OVERDUE)) &&
            (w->region->n_receiving == 0))
               ? BT_KVT_REGION_IS_CLOSED
               : s;
}

static void sender_events_follow_the_region_table(void **state)
{
    (void)state;
    for (int from = 0; from < N_STATES; from++) {
        for (int input = 0; is_the_senders(input); input++) {
            world_t w;
            bt_kvt_region_state_t want = (bt_kvt_region_state_t)from;
            uint64_t discarded;

            world_open(&w);
            go(&w, (bt_kvt_region_state_t)from);
            discarded = w.pair.receiver->counters.stale_discarded;
            if (region_steps[from][input] != '.') {
                want =
                    (bt_kvt_region_state_t)(strchr(letters,
                                                   region_steps[from][input]) -
                                            letters);
            }
            sender_does(&w, (bt_kvt_region_input_t)input);
            assert_int_equal(w.region->state, settled(&w, want));
            if ((region_steps[from][input] == '.') &&
                (input == BT_KVT_REGION_ON_PIECE)) {
                assert_int_equal(w.pair.receiver->counters.stale_discarded,
                                 discarded + 1);
            }
            world_close(&w);
        }
    }
}

static void events_after_a_peer_exit_are_ignored(void **state)
{
    (void)state;
    for (int from = 0; from < N_STATES; from++) {
        const char *step = &region_steps[from][BT_KVT_REGION_ON_STOP];
        world_t w;
        bt_kvt_region_state_t want = (bt_kvt_region_state_t)from;

        world_open(&w);
        go(&w, (bt_kvt_region_state_t)from);
        if ((from <= BT_KVT_REGION_IS_DIRECT) && (w.region->link == NULL)) {
            world_close(&w); /* nobody's yet */
            continue;
        }
        if (*step != '.') {
            want = (bt_kvt_region_state_t)(strchr(letters, *step) - letters);
        }
        bt_kvt_mem_net_kill(w.pair.net, PAIR_SENDER);
        let_pass(&w, 1);
        assert_int_equal(w.region->state, settled(&w, want));
        world_close(&w);
    }
}

/* ---- the steps that are ours ---- */

static void lost_but_living_peer_keeps_its_region_quarantined(void **state)
{
    static const char *const why = "a test";
    world_t w;

    (void)state;
    world_open(&w);
    go(&w, BT_KVT_REGION_IS_DIRECT);
    bt_kvt_link_lost(bt_kvt_link_find(w.pair.receiver, PAIR_SENDER), false,
                     why);
    assert_int_equal(w.region->state, BT_KVT_REGION_IS_FAILED_DIRECT);
    assert_int_equal(w.region->status, BT_ERR_PEER_LOST);
    bt_kvt_region_close(w.region);
    assert_int_equal(w.region->state, BT_KVT_REGION_IS_QUARANTINED);
    bt_kvt_link_lost(w.region->link, true, why);
    assert_int_equal(w.region->state, BT_KVT_REGION_IS_CLOSED);
    world_close(&w);

    world_open(&w);
    go(&w, BT_KVT_REGION_IS_LISTED);
    bt_kvt_link_lost(bt_kvt_link_find(w.pair.receiver, PAIR_SENDER), false,
                     why);
    assert_int_equal(w.region->state, BT_KVT_REGION_IS_FAILED);
    world_close(&w);
}

/** By its owner, in each state: what is closing is not closed again. */
static void region_can_be_closed_at_any_time(void **state)
{
    (void)state;
    for (int from = 0; from < N_STATES; from++) {
        const char step = region_steps[from][BT_KVT_REGION_ON_CLOSE];
        bt_kvt_region_state_t want = (bt_kvt_region_state_t)from;
        world_t w;

        world_open(&w);
        go(&w, (bt_kvt_region_state_t)from);
        if (step != '.') {
            want = (bt_kvt_region_state_t)(strchr(letters, step) - letters);
        }
        bt_kvt_region_close(w.region);
        assert_int_equal(w.region->state, settled(&w, want));
        assert_int_equal(w.pair.receiver->counters.regions_quarantined,
                         (w.region->state == BT_KVT_REGION_IS_QUARANTINED) ||
                             (w.region->state == BT_KVT_REGION_IS_STUCK));
        assert_int_equal(w.pair.receiver->counters.regions_open,
                         w.region->state != BT_KVT_REGION_IS_CLOSED);
        world_close(&w);
    }
}

static void closed_region_is_freed_with_its_last_buffer(void **state)
{
    static const bt_kvt_region_state_t closed[] = {BT_KVT_REGION_IS_DRAINING,
                                                   BT_KVT_REGION_IS_OVERDUE};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(closed); i++) {
        world_t w;

        world_open(&w);
        go(&w, closed[i]);
        let_pass(&w, 10000); /* the clock does not: a buffer is written */
        assert_int_equal(w.region->state, closed[i]);
        give_back(&w);
        assert_int_equal(w.region->state, BT_KVT_REGION_IS_CLOSED);
        world_close(&w);
    }
}

/** @return true when @a wrong ended the process that did it */
static bool aborts(bt_kvt_region_state_t from, bt_kvt_region_input_t input)
{
    const struct rlimit no_core = {0, 0};
    int status = 0;
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        static bt_kvt_t kvt;
        bt_kvt_region_t region = {.kvt = &kvt, .state = from};

        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)!freopen("/dev/null", "w", stderr);
        (void)bt_kvt_region_move(&region, input, BT_OK);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) && (WTERMSIG(status) == SIGABRT);
}

static void illegal_own_transition_aborts_the_process(void **state)
{
    (void)state;
    for (int from = 0; from < N_STATES; from++) {
        for (int input = BT_KVT_REGION_ON_PROVEN; input < N_INPUTS; input++) {
            if (region_steps[from][input] == '.') {
                assert_true(aborts((bt_kvt_region_state_t)from,
                                   (bt_kvt_region_input_t)input));
            }
        }
    }
    /* ...and what a sender can cause never does. */
    assert_false(aborts(BT_KVT_REGION_IS_CLOSED, BT_KVT_REGION_ON_LAST));
}

/* ---- transfers ---- */

/** A transfer in a state: its source is in a device that holds its copies back
 *  where it is to be ENDING. */
static bt_kvt_xfer_t *xfer_go(world_t *w, bt_kvt_xfer_state_t to)
{
    const bool staged = to == BT_KVT_XFER_IS_ENDING;
    bt_kvt_xfer_t *x;

    pair_open(&w->pair, &pair_kinds[staged ? PAIR_MEM_STAGED : PAIR_MEM_SHM],
              POOL_BYTES);
    pair_import(&w->pair);
    for (int i = 0; i < 10; i++) {
        (void)pair_pump(&w->pair);
    }
    w->t = pair_region(&w->pair, 1, PAIR_SENDER, 0, PIECE_BYTES,
                       2 * PIECE_BYTES, 2);
    w->region = w->t->region;
    w->lease = w->region->lease;
    assert_int_equal(pair_prep(&w->pair, w->t), BT_OK);
    x = w->t->xfer;
    w->pair.sender_device.withheld = true;
    if (to != BT_KVT_XFER_IS_POSTING) {
        assert_int_equal(pair_post(w->t, 0, w->t->bytes), BT_OK);
        assert_int_equal(bt_kvt_finish(x, "", 0), BT_OK);
    }
    if (to >= BT_KVT_XFER_IS_LISTED) {
        (void)bt_kvt_progress(w->pair.sender, ++w->pair.now_ms, PAIR_BUDGET);
    }
    if (to >= BT_KVT_XFER_IS_ENDING) {
        bt_kvt_cancel(x);
    }
    assert_int_equal(x->state, to);
    return x;
}

static void xfer_close(world_t *w)
{
    w->pair.sender_device.withheld = false;
    world_close(w);
}

/** As the receiver. */
static void answer(world_t *w, bt_kvt_msg_t msg)
{
    static uint8_t buf[BT_KVT_MAX_MSG];
    bt_kvt_t *kvt = w->pair.sender;
    bt_kvt_link_t *link = bt_kvt_link_find(kvt, PAIR_RECEIVER);
    size_t bytes = 0;

    msg.from = PAIR_RECEIVER;
    msg.nonce = link->peer_nonce;
    msg.lease = w->lease;
    assert_int_equal(
        bt_kvt_msg_encode(&msg, link->peer_key, buf, sizeof(buf), &bytes),
        BT_OK);
    assert_ptr_equal(bt_kvt_take_message(kvt, link, buf, bytes), link);
}

/** That all is there is believed of what was sent whole, and of nothing else;
 *  any other end of it is one. */
static void receiver_events_follow_the_transfer_table(void **state)
{
    static const struct {
        bt_kvt_msg_type_t type;
        bt_status_t says;
        bt_status_t comes[BT_KVT_XFER_N_STATES]; /* of it, by state */
    } ends[] = {
        {BT_KVT_MSG_RESULT,
         BT_OK,
         {BT_ERR_BAD_MESSAGE, BT_ERR_BAD_MESSAGE, BT_OK, BT_ERR_CANCELED,
          BT_ERR_CANCELED}},
        {BT_KVT_MSG_RESULT,
         BT_ERR_CORRUPT,
         {BT_ERR_CORRUPT, BT_ERR_CORRUPT, BT_ERR_CORRUPT, BT_ERR_CANCELED,
          BT_ERR_CANCELED}},
        {BT_KVT_MSG_RESULT,
         BT_ERR_EXISTS, /* no result of a region */
         {BT_ERR_BAD_MESSAGE, BT_ERR_BAD_MESSAGE, BT_ERR_BAD_MESSAGE,
          BT_ERR_CANCELED, BT_ERR_CANCELED}},
        {BT_KVT_MSG_REVOKE,
         BT_OK,
         {BT_ERR_STALE, BT_ERR_STALE, BT_ERR_STALE, BT_ERR_CANCELED,
          BT_ERR_CANCELED}},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(ends); i++) {
        for (int from = 0; from < BT_KVT_XFER_N_STATES; from++) {
            const bool held = from == BT_KVT_XFER_IS_ENDING;
            world_t w;
            const bt_kvt_xfer_t *x = xfer_go(&w, (bt_kvt_xfer_state_t)from);

            answer(&w, (bt_kvt_msg_t){.type = ends[i].type,
                                      .status = ends[i].says});
            assert_int_equal(x->state, held ? BT_KVT_XFER_IS_ENDING
                                            : BT_KVT_XFER_IS_ENDED);
            assert_int_equal(x->outcome, ends[i].comes[from]);
            xfer_close(&w);
        }
    }
}

static void late_calls_return_a_stale_status(void **state)
{
    static const bt_status_t comes[BT_KVT_XFER_N_STATES] = {
        BT_OK, BT_ERR_INVALID_PARAM, BT_ERR_INVALID_PARAM, BT_ERR_CANCELED,
        BT_ERR_CANCELED};

    (void)state;
    for (int from = 0; from < BT_KVT_XFER_N_STATES; from++) {
        world_t w;
        bt_kvt_xfer_t *x = xfer_go(&w, (bt_kvt_xfer_state_t)from);

        assert_int_equal(pair_post(w.t, 0, PIECE_BYTES), comes[from]);
        assert_int_equal(bt_kvt_finish(x, "", 0), comes[from]);
        bt_kvt_cancel(x);
        assert_int_equal(x->state, (from == BT_KVT_XFER_IS_ENDING)
                                       ? BT_KVT_XFER_IS_ENDING
                                       : BT_KVT_XFER_IS_ENDED);
        assert_int_equal(x->outcome, BT_ERR_CANCELED);
        xfer_close(&w);
    }
}

static void source_is_released_after_the_device_copy(void **state)
{
    world_t w;
    const bt_kvt_xfer_t *x = xfer_go(&w, BT_KVT_XFER_IS_ENDING);

    (void)state;
    for (int i = 0; i < 20; i++) {
        (void)bt_kvt_progress(w.pair.sender, ++w.pair.now_ms, PAIR_BUDGET);
        assert_int_equal(x->state, BT_KVT_XFER_IS_ENDING);
    }
    w.pair.sender_device.withheld = false;
    for (int i = 0; (i < 20) && (x->state != BT_KVT_XFER_IS_ENDED); i++) {
        (void)bt_kvt_progress(w.pair.sender, ++w.pair.now_ms, PAIR_BUDGET);
    }
    assert_int_equal(x->state, BT_KVT_XFER_IS_ENDED);
    xfer_close(&w);
}

/* BEGIN is sent again until it is answered, so there can be more answers. */
static void only_the_first_reply_to_begin_counts(void **state)
{
    const bt_kvt_msg_t no = {.type = BT_KVT_MSG_BEGIN_ACK,
                             .status = BT_ERR_STALE};
    const bt_kvt_msg_t yes = {.type = BT_KVT_MSG_BEGIN_ACK, .status = BT_OK};
    world_t w;
    bt_kvt_xfer_t *x;

    (void)state;
    world_open(&w);
    assert_int_equal(pair_prep(&w.pair, w.t), BT_OK);
    x = w.t->xfer;
    answer(&w, yes); /* unasked */
    answer(&w, no);
    assert_int_equal(x->state, BT_KVT_XFER_IS_POSTING);
    assert_int_equal(x->leave, BT_KVT_LEAVE_NONE);
    assert_int_equal(pair_post(w.t, 0, PIECE_BYTES), BT_OK);
    (void)bt_kvt_progress(w.pair.sender, ++w.pair.now_ms, PAIR_BUDGET);
    assert_int_equal(x->leave, BT_KVT_LEAVE_ASKED);
    answer(&w, yes);
    assert_int_equal(x->leave, BT_KVT_LEAVE_GIVEN);
    answer(&w, no);
    assert_int_equal(x->state, BT_KVT_XFER_IS_POSTING);
    assert_int_equal(x->leave, BT_KVT_LEAVE_GIVEN);
    world_close(&w);

    world_open(&w);
    assert_int_equal(pair_prep(&w.pair, w.t), BT_OK);
    x = w.t->xfer;
    assert_int_equal(pair_post(w.t, 0, PIECE_BYTES), BT_OK);
    (void)bt_kvt_progress(w.pair.sender, ++w.pair.now_ms, PAIR_BUDGET);
    answer(&w, no);
    assert_int_equal(x->state, BT_KVT_XFER_IS_ENDED);
    assert_int_equal(x->outcome, BT_ERR_STALE);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(link_transitions_match_the_documented_table),
        BT_TEST(region_transitions_match_the_documented_table),
        BT_TEST(transfer_transitions_match_the_documented_table),
        BT_TEST(region_waits_for_every_possible_writer),
        BT_TEST(region_states_start_open_and_end_closed),
        BT_TEST(sender_events_follow_the_region_table),
        BT_TEST(events_after_a_peer_exit_are_ignored),
        BT_TEST(lost_but_living_peer_keeps_its_region_quarantined),
        BT_TEST(region_can_be_closed_at_any_time),
        BT_TEST(closed_region_is_freed_with_its_last_buffer),
        BT_TEST(illegal_own_transition_aborts_the_process),
        BT_TEST(receiver_events_follow_the_transfer_table),
        BT_TEST(late_calls_return_a_stale_status),
        BT_TEST(source_is_released_after_the_device_copy),
        BT_TEST(only_the_first_reply_to_begin_counts),
    };

    bt_log_init("test_kvt_life", BT_LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
