/* buffered_test.c - what happens to runs while they are in the buffer, and on their way out of it. */
#include "engine/runs_scene_test.h"

static struct scene s;

/* Whatever is triggered after the first two goes to the buffer and stays there. */
static void open_tripped(void)
{
    scene_open(&s, 1);
    expect(trigger(&s, "", "0"), OUTCOME_OK);
    expect(trigger(&s, "", "0"), OUTCOME_OK);
}

static void close_scene(void)
{
    scene_close(&s);
}

TestSuite(buffered, .init = open_tripped, .fini = close_scene);

static struct run_id buffered_run(const char *key)
{
    struct asked a = expect(trigger(&s, key, "{\"n\":[]}"), OUTCOME_OK);
    cr_assert(a.buffered);
    struct run_id id = id_of(&a);
    return id;
}

static struct asked in_ledger(const struct run_id *id)
{
    struct asked got = expect(get(&s, id), OUTCOME_OK);
    cr_assert(!got.buffered, "still in the buffer");
    return got;
}

static struct run_change tags(const char *framed)
{
    return (struct run_change){ .kind = RUN_ADD_TAGS, .body = bytes_str(framed) };
}

static struct run_change increment(void)
{
    return (struct run_change){
        .kind = RUN_OPERATE,
        .body = bytes_str("[{\"type\":\"increment\",\"key\":\"n\",\"value\":1}]"),
    };
}

/* ---- the way out ---- */

Test(buffered, runs_arrive_in_the_ledger_as_they_were_accepted)
{
    struct run_id id = buffered_run("k");
    struct run_stats stats = drain(&s);
    cr_assert(stats.drained == 2 && stats.aliased == 0, "%llu",
              (unsigned long long)stats.drained);
    struct asked got = in_ledger(&id);
    cr_assert(bytes_eq(got.rows.rows[0]->payload, bytes_str("{\"n\":[]}")));
    struct asked again = expect(trigger(&s, "k", "{\"n\":[]}"), OUTCOME_CACHED);
    struct run_id same = id_of(&again);
    cr_assert(run_id_eq(&id, &same));
}

Test(buffered, tags_metadata_and_their_limits_survive)
{
    struct run_id id = buffered_run("k");
    expect(change(&s, &id, tags("\1a\1b")), OUTCOME_OK);
    expect(change(&s, &id, tags("\1a\1c")), OUTCOME_OK);
    struct asked full = change(&s, &id, tags("\1d\1e\1f\1g\1h\1i\1j\1k"));
    expect(full, OUTCOME_REFUSED);
    cr_assert(full.reason != NULL);
    struct run_change set = { .kind = RUN_SET_METADATA, .body = bytes_str("{\"x\":[]}") };
    expect(change(&s, &id, set), OUTCOME_OK);
    set.version = 7;
    expect(change(&s, &id, set), OUTCOME_CONFLICT);
    expect(change(&s, &id, increment()), OUTCOME_OK);
    struct asked before = expect(get(&s, &id), OUTCOME_OK);
    cr_assert(before.buffered);
    drain(&s);
    struct asked after = in_ledger(&id);
    cr_assert(bytes_eq(after.rows.rows[0]->tags, bytes_str("\1a\1b\1c")));
    cr_assert(bytes_eq(after.rows.rows[0]->metadata, before.rows.rows[0]->metadata));
    cr_assert(bytes_eq(after.rows.rows[0]->metadata, bytes_str("{\"x\":[],\"n\":1}")));
}

Test(buffered, fifty_increments_at_once_all_count)
{
    struct run_id id = buffered_run("k");
    struct asked many[50];
    for (size_t i = 0; i < 50; i++) {
        struct run_args args = about(ASK_CHANGE, &id);
        args.change = increment();
        ask_start(&s, &args, &many[i]);
    }
    world_settle(&s.world);
    for (size_t i = 0; i < 50; i++) expect(many[i], OUTCOME_OK);
    struct asked got = expect(get(&s, &id), OUTCOME_OK);
    cr_assert(bytes_eq(got.rows.rows[0]->metadata, bytes_str("{\"n\":50}")));
    drain(&s);
    got = in_ledger(&id);
    cr_assert(bytes_eq(got.rows.rows[0]->metadata, bytes_str("{\"n\":50}")));
}

Test(buffered, a_canceled_one_lands_canceled_and_is_never_leased)
{
    struct run_id id = buffered_run("k");
    struct run_change cancel = { .kind = RUN_CANCEL };
    expect(change(&s, &id, cancel), OUTCOME_OK);
    expect(change(&s, &id, cancel), OUTCOME_OK);
    drain(&s);
    struct asked got = in_ledger(&id);
    cr_assert(got.rows.rows[0]->state == RUN_CANCELED && got.rows.rows[0]->finished_at_ms > 0);
    expect(change(&s, &id, cancel), OUTCOME_OK);
    struct asked leased = expect(ask(&s, lease_args(10, 0)), OUTCOME_OK);
    for (size_t i = 0; i < leased.rows.count; i++)
        cr_assert(!run_id_eq(&leased.rows.rows[i]->id, &id));
}

Test(buffered, only_a_delayed_one_is_rescheduled)
{
    struct run_id at_once = buffered_run("k");
    struct run_change later = { .kind = RUN_RESCHEDULE, .at_ms = s.world.wall_ms + 900000 };
    expect(change(&s, &at_once, later), OUTCOME_REFUSED);
    struct run_args args = trigger_args("d", "1");
    args.delay_ms = 60000;
    struct asked delayed = expect(ask(&s, args), OUTCOME_OK);
    struct run_id id = id_of(&delayed);
    expect(change(&s, &id, later), OUTCOME_OK);
    drain(&s);
    struct asked got = in_ledger(&id);
    cr_assert(got.rows.rows[0]->delay_until_ms == later.at_ms);
    cr_assert(strcmp(run_status(got.rows.rows[0], s.world.wall_ms), "DELAYED") == 0);
}

Test(buffered, nobody_can_have_leased_it)
{
    struct run_id id = buffered_run("k");
    struct run_change beat = { .kind = RUN_HEARTBEAT, .lease_ms = -1, .token = token_of(1) };
    struct asked lost = expect(change(&s, &id, beat), OUTCOME_LOST);
    cr_assert(lost.rows.count == 1 &&
              run_id_eq(&lost.rows.rows[0]->id, &id)); /* as in the ledger */
}

Test(buffered, a_replay_is_a_new_run)
{
    struct run_id id = buffered_run("k");
    struct asked replayed = expect(ask(&s, about(ASK_REPLAY, &id)), OUTCOME_OK);
    struct run_id fresh = id_of(&replayed);
    cr_assert(!run_id_eq(&id, &fresh));
    expect(get(&s, &fresh), OUTCOME_OK);
    expect(get(&s, &id), OUTCOME_OK);
    drain(&s);
    expect(ask(&s, about(ASK_REPLAY, &id)), OUTCOME_OK);
}

/* ---- keys ---- */

static struct run_id put_behind(const char *key, const char *payload);

static struct asked reset(const char *key)
{
    struct run_args args = RUN_ARGS_INIT;
    args.question = ASK_RESET;
    args.task = bytes_str("mail");
    args.key = bytes_str(key);
    return ask(&s, args);
}

Test(buffered, a_key_is_reset_and_stays_reset_in_the_ledger)
{
    struct run_id id = buffered_run("k");
    expect(reset("k"), OUTCOME_OK);
    struct run_id fresh = buffered_run("k");
    cr_assert(!run_id_eq(&id, &fresh));
    struct run_stats stats = drain(&s);
    cr_assert(stats.aliased == 0);
    cr_assert(!in_ledger(&id).rows.rows[0]->key_held);
    cr_assert(in_ledger(&fresh).rows.rows[0]->key_held);
}

/* As in the ledger: a key whose time is over is nobody's, whoever had it. */
Test(buffered, a_key_that_has_expired_is_not_there_to_be_reset)
{
    struct run_args args = trigger_args("k", "1");
    args.key_ms = 60000;
    struct asked first = expect(ask(&s, args), OUTCOME_OK);
    struct run_id id = id_of(&first);
    cr_assert(first.buffered);
    world_advance(&s.world, 60000);
    expect(reset("k"), OUTCOME_ABSENT);
    struct run_id behind = put_behind("k", "1");
    expect(reset("k"), OUTCOME_OK); /* it was in the ledger's hands by then */
    cr_assert(!in_ledger(&behind).rows.rows[0]->key_held);
    expect(reset("k"), OUTCOME_ABSENT);
    cr_assert(expect(get(&s, &id), OUTCOME_OK).buffered);
}

/* Leases everything, as a drainer does that is killed then. */
static struct token lease_all(int64_t lease_ms)
{
    struct buffer_ask lease = { .limit = 100, .token = token_of(77), .lease_ms = lease_ms };
    struct op *op = op_new(VERB_DRAIN_LEASE, NULL, NULL);
    op->buffer = &lease;
    world_run(&s.world, s.store, op);
    cr_assert(!op->err.code && lease.entries.count > 0);
    op_free(op);
    buffer_ask_clear(&lease);
    return token_of(77);
}

Test(buffered, a_change_waits_for_a_drainer_and_gives_up_in_time)
{
    struct run_id id = buffered_run("k");
    struct asked a;
    struct run_args args = about(ASK_CHANGE, &id);
    args.change = tags("\1a");
    lease_all(30000);
    ask_start(&s, &args, &a);
    world_advance(&s.world, 1900);
    cr_assert(a.finished == 0);
    world_advance(&s.world, 600);
    expect(a, OUTCOME_TIMED_OUT);
}

Test(buffered, a_drainer_that_dies_loses_nothing)
{
    struct run_id id = buffered_run("k");
    lease_all(30000);
    cr_assert(drain(&s).drained == 0);
    world_advance(&s.world, 30000);
    cr_assert(drain(&s).drained == 2);
    in_ledger(&id);
}

/* A drainer that has written it and died before it said so. */
static void write_and_die(const struct run_id *id)
{
    lease_all(30000);
    struct buffer_ask look = { .env = bytes_str("test"), .id = *id };
    struct op *op = op_new(VERB_ENTRY_GET, NULL, NULL);
    op->buffer = &look;
    world_run(&s.world, s.store, op);
    struct run run;
    cr_assert(run_decode(look.entries.rows[0]->run, &run));
    struct run_ask put = {
        .env = look.env, .run = &run, .changes = look.entries.rows[0]->changes, .drains = true
    };
    struct op *write = op_new(VERB_RUN_PUT, NULL, NULL);
    write->run = &put;
    world_run(&s.world, s.store, write);
    cr_assert(write->out.outcome == OUTCOME_OK && put.put == PUT_INSERT);
    op_free(write);
    run_ask_clear(&put);
    op_free(op);
    buffer_ask_clear(&look);
}

/* Then somebody changed the run, in the ledger. */
Test(buffered, what_is_written_twice_is_there_once_with_everything)
{
    struct run_id id = buffered_run("k");
    expect(change(&s, &id, tags("\1a")), OUTCOME_OK);
    write_and_die(&id);
    expect(change(&s, &id, tags("\1b")), OUTCOME_OK);
    world_advance(&s.world, 30000);
    drain(&s);
    struct asked got = in_ledger(&id);
    cr_assert(bytes_eq(got.rows.rows[0]->tags, bytes_str("\1a\1b")));
}

/* Leases the run and ends it so; others of the queue are done. */
static void work_on(const struct run_id *id, enum run_change_kind kind)
{
    struct asked leased = expect(ask(&s, lease_args(100, 0)), OUTCOME_OK);
    bool there = false;
    for (size_t i = 0; i < leased.rows.count; i++) {
        const struct run *r = leased.rows.rows[i];
        struct run_change end = { .kind = RUN_COMPLETE, .token = r->token };
        bool it = run_id_eq(&r->id, id);
        if (it && kind == RUN_FAIL)
            end =
                (struct run_change){ .kind = kind, .token = r->token, .body = bytes_str("1") };
        there |= it;
        expect(change(&s, &r->id, end), OUTCOME_OK);
    }
    cr_assert(there, "it was not leased");
}

/* While the entry still looks as if it waited: a final state stays, whoever tells it. */
Test(buffered, a_reset_tells_of_the_run_in_the_ledger)
{
    struct run_id id = buffered_run("k");
    struct asked before = expect(reset("k"), OUTCOME_OK);
    cr_assert(before.buffered && before.rows.count == 1);
    struct run_id other = buffered_run("k");
    write_and_die(&other);
    work_on(&other, RUN_COMPLETE);
    world_advance(&s.world, 30000); /* its lease: nobody has it now */
    struct asked after = expect(reset("k"), OUTCOME_OK);
    cr_assert(!after.buffered && after.rows.count == 1);
    cr_assert(run_id_eq(&after.rows.rows[0]->id, &other) && !run_id_eq(&id, &other));
    cr_assert(after.rows.rows[0]->state == RUN_COMPLETED && !after.rows.rows[0]->key_held);
    expect(reset("k"), OUTCOME_ABSENT);
}

/* While the entry still looks as if it waited. */
Test(buffered, a_trigger_is_told_of_the_run_in_the_ledger)
{
    struct run_id id = buffered_run("k");
    write_and_die(&id);
    work_on(&id, RUN_COMPLETE);
    struct asked again = expect(trigger(&s, "k", "{\"n\":[]}"), OUTCOME_CACHED);
    struct run_id same = id_of(&again);
    cr_assert(run_id_eq(&id, &same) && !again.buffered);
    cr_assert(again.rows.rows[0]->state == RUN_COMPLETED);
}

Test(buffered, a_run_that_failed_has_no_key_although_its_entry_has)
{
    struct run_args args = trigger_args("k", "1");
    args.run.attempts_max = 1;
    struct asked first = expect(ask(&s, args), OUTCOME_OK);
    struct run_id id = id_of(&first);
    cr_assert(first.buffered);
    write_and_die(&id);
    work_on(&id, RUN_FAIL);
    struct asked second = expect(ask(&s, args), OUTCOME_OK);
    struct run_id fresh = id_of(&second);
    cr_assert(!run_id_eq(&id, &fresh));
    world_advance(&s.world, 30000);
    cr_assert(drain(&s).aliased == 0);
    struct asked third = expect(ask(&s, args), OUTCOME_CACHED);
    struct run_id same = id_of(&third);
    cr_assert(run_id_eq(&fresh, &same));
    cr_assert(in_ledger(&id).rows.rows[0]->state == RUN_FAILED);
}

/* ---- two ids for one key: half of a fleet did not see coord ---- */

/* Somebody puts a run with this key and payload into the ledger, without a claim. */
static struct run_id put_behind(const char *key, const char *payload)
{
    struct run_ask put = { .env = bytes_str("test") };
    uint8_t random[10] = { 1 }, hash[SHA256_BYTES];
    fingerprint_of(payload, hash);
    struct run run = { .env = put.env,
                       .task = bytes_str("mail"),
                       .queue = bytes_str("mail"),
                       .payload = bytes_str(payload),
                       .fingerprint = bytes_of(hash, sizeof hash),
                       .key = bytes_str(key),
                       .key_held = true,
                       .key_until_ms = s.world.wall_ms + 86400000,
                       .state = RUN_QUEUED,
                       .created_at_ms = s.world.wall_ms,
                       .available_at_ms = s.world.wall_ms,
                       .attempts_max = 3 };
    run_id_make(s.world.wall_ms, random, &run.id);
    put.run = &run;
    struct op *op = op_new(VERB_RUN_PUT, NULL, NULL);
    op->run = &put;
    world_run(&s.world, s.store, op);
    cr_assert(!op->err.code && put.put == PUT_INSERT);
    op_free(op);
    run_ask_clear(&put);
    return run.id;
}

Test(buffered, a_second_id_becomes_an_alias_with_all_that_was_done_to_it)
{
    struct run_id alias = buffered_run("k");
    expect(change(&s, &alias, tags("\1a")), OUTCOME_OK);
    expect(change(&s, &alias, increment()), OUTCOME_OK);
    struct run_id canonical = put_behind("k", "{\"n\":[]}");
    expect(change(&s, &canonical, tags("\1b")), OUTCOME_OK);
    cr_assert(drain(&s).aliased == 1);
    struct asked by_alias = in_ledger(&alias), by_id = in_ledger(&canonical);
    struct run *a = by_alias.rows.rows[0], *b = by_id.rows.rows[0];
    cr_assert(run_id_eq(&a->id, &canonical) && run_id_eq(&a->canonical, &canonical));
    cr_assert(bytes_eq(a->tags, b->tags) && bytes_eq(b->tags, bytes_str("\1b\1a")));
    cr_assert(bytes_eq(b->metadata, bytes_str("{\"n\":1}")));
    expect(change(&s, &alias, (struct run_change){ .kind = RUN_CANCEL }), OUTCOME_OK);
    cr_assert(in_ledger(&canonical).rows.rows[0]->state == RUN_CANCELED);
}

/* C7: it is another run's key. */
Test(buffered, a_second_id_of_another_payload_is_a_failed_run_that_can_be_replayed)
{
    struct run_id id = buffered_run("k");
    expect(change(&s, &id, tags("\1a")), OUTCOME_OK);
    expect(change(&s, &id, increment()), OUTCOME_OK);
    struct run_id other = put_behind("k", "2");
    struct run_stats stats = drain(&s);
    cr_assert(stats.aliased == 0 && stats.parked == 1 && stats.drain_failed == 0);
    struct asked got = in_ledger(&id);
    struct run *run = got.rows.rows[0];
    cr_assert(run_id_eq(&run->id, &id) && run->state == RUN_FAILED);
    cr_assert(memmem(run->error.data, run->error.len, other.text, RUN_ID_BYTES));
    cr_assert(bytes_eq(run->payload, bytes_str("{\"n\":[]}")));
    cr_assert(bytes_eq(run->tags, bytes_str("\1a")));
    cr_assert(bytes_eq(run->metadata, bytes_str("{\"n\":1}")));
    struct run *unharmed = in_ledger(&other).rows.rows[0];
    cr_assert(unharmed->state == RUN_QUEUED && unharmed->tags.len == 0);
    struct asked replayed = expect(ask(&s, about(ASK_REPLAY, &id)), OUTCOME_OK);
    cr_assert(bytes_eq(replayed.rows.rows[0]->payload, bytes_str("{\"n\":[]}")));
}

/* ---- lists ---- */

Test(buffered, lists_have_both_newest_first_and_nothing_twice)
{
    char key[16];
    for (int i = 0; i < 7; i++) {
        world_advance(&s.world, 1);
        snprintf(key, sizeof key, "k%d", i);
        buffered_run(key);
    }
    drain(&s);
    world_advance(&s.world, 2);
    for (int i = 0; i < 3; i++) expect(trigger(&s, "", "1"), OUTCOME_OK);
    world_advance(&s.world, 1);
    for (int i = 0; i < 4; i++) buffered_run("");
    struct run_args args = RUN_ARGS_INIT;
    args.question = ASK_LIST;
    args.limit = 3;
    struct run_id last = { 0 };
    size_t seen = 0;
    for (bool more = true; more;) {
        args.before = last;
        struct asked page = expect(ask(&s, args), OUTCOME_OK);
        for (size_t i = 0; i < page.rows.count; i++) {
            const struct run_id *id = &page.rows.rows[i]->id;
            cr_assert(!last.text[0] || strcmp(id->text, last.text) < 0, "%s after %s", id->text,
                      last.text);
            last = *id;
            seen++;
        }
        more = page.rows.more;
    }
    cr_assert(seen == 2 + 7 + 3 + 4, "%zu", seen);
}

/* ---- the drainer ---- */

/* Rates that divide a second and rates that do not. */
Test(buffered, a_rate_is_kept_and_made_use_of)
{
    static const int64_t rates[] = { 3, 70, 600 };
    for (unsigned i = 0; i < 1000; i++) buffered_run("");
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        int64_t drained = (int64_t)drain_for(&s, 1000, rates[i]).drained;
        cr_assert(drained <= rates[i], "%lld at %lld a second", (long long)drained,
                  (long long)rates[i]);
        cr_assert(drained >= rates[i] - 1 - rates[i] / 20, "%lld at %lld a second",
                  (long long)drained, (long long)rates[i]);
    }
}

/* However late a ledger is, it does not get more in a second than the rate: neither while it is late nor
 * when all of that comes to its end at once. */
Test(buffered, a_ledger_that_is_late_gets_no_more_than_the_rate)
{
    enum { RATE = 100 };
    for (unsigned i = 0; i < 500; i++) buffered_run("");
    s.store = faulty_open(s.store, &s.world.env);
    faulty_set(s.store, VERB_RUN_PUT, FAULT_HOLD, FAULTY_ALWAYS);
    struct engine *drainer = drainer_open(&s, RATE);
    world_advance(&s.world, 3000);
    unsigned sent = faulty_count(s.store, VERB_RUN_PUT);
    cr_assert(sent > 0 && sent <= RATE, "%u", sent);
    faulty_heal(s.store);
    faulty_let_go(s.store);
    world_advance(&s.world, 990);
    sent = faulty_count(s.store, VERB_RUN_PUT);
    cr_assert(sent <= RATE, "%u", sent);
    world_advance(&s.world, 1100);
    unsigned later = faulty_count(s.store, VERB_RUN_PUT) - sent;
    cr_assert(later >= RATE / 2 && later <= RATE + RATE / 10, "it goes on: %u", later);
    drainer_close(&s, drainer);
}
