/* drain_test.c - the drainer: what it may still write, what it does with what it cannot write. */
#include "engine/runs_scene_test.h"

static struct scene s;

/* Whatever is triggered after the first two goes to the buffer and stays there. */
static void open_tripped(void)
{
    scene_open(&s, 1);
    expect(trigger(&s, "", "0"), OUTCOME_OK);
    expect(trigger(&s, "", "0"), OUTCOME_OK);
    drain(&s);
}

static void close_scene(void)
{
    scene_close(&s);
}

TestSuite(drain, .init = open_tripped, .fini = close_scene);

static struct run_id buffered_run(const char *key)
{
    struct asked a = expect(trigger(&s, key, "1"), OUTCOME_OK);
    cr_assert(a.buffered);
    return id_of(&a);
}

static struct run *in_ledger(const struct run_id *id)
{
    struct asked got = expect(get(&s, id), OUTCOME_OK);
    cr_assert(!got.buffered, "still in the buffer");
    return got.rows.rows[0];
}

static bool is_leased_by_a_worker(const struct run_id *id)
{
    bool leased = false;
    struct asked a = expect(ask(&s, lease_args(100, 0)), OUTCOME_OK);
    for (size_t i = 0; i < a.rows.count; i++) leased |= run_id_eq(&a.rows.rows[i]->id, id);
    return leased;
}

/* ---- a drainer that is late ---- */

enum { LEASE_MS = LEASE_MS_DEFAULT };

/* A drainer whose writes are on their way to the ledger, for as long as it takes. The engine of the
 * scene is somebody else. */
static struct engine *drainer_held(void)
{
    s.store = faulty_open(s.store, &s.world.env);
    faulty_set(s.store, VERB_RUN_PUT, FAULT_HOLD, FAULTY_ALWAYS);
    struct engine *drainer = drainer_open(&s, 0);
    world_settle(&s.world);
    cr_assert(faulty_held(s.store) > 0, "nothing is on its way");
    return drainer;
}

static void let_go(void)
{
    faulty_heal(s.store);
    faulty_let_go(s.store);
    world_settle(&s.world);
}

static const struct run_change cancel = { .kind = RUN_CANCEL };

/* Its lease has lapsed, so the cancel was taken by the buffer, and acknowledged: what the drainer has
 * read before that must not become a run. */
Test(drain, what_was_canceled_since_its_lease_lapsed_is_not_written_as_it_was)
{
    struct run_id id = buffered_run("k");
    struct engine *drainer = drainer_held();
    world_advance(&s.world, LEASE_MS);
    struct asked canceled = expect(change(&s, &id, cancel), OUTCOME_OK);
    cr_assert(canceled.buffered);
    let_go();
    cr_assert(!is_leased_by_a_worker(&id));
    world_advance(&s.world, 2000);
    cr_assert(in_ledger(&id)->state == RUN_CANCELED);
    struct run_stats stats = drainer_close(&s, drainer);
    cr_assert(stats.drained == 1 && stats.drain_failed == 0, "it costs no attempt");
}

/* A commit takes its time: what is written when the lease is about to lapse may be there after it. */
Test(drain, what_may_come_too_late_is_not_written_and_goes_back)
{
    struct run_id id = buffered_run("k");
    struct engine *drainer = drainer_held();
    world_advance(&s.world, LEASE_MS - 3000);
    faulty_heal(s.store);
    faulty_set(s.store, VERB_DRAIN_LEASE, FAULT_REFUSE, FAULTY_ALWAYS);
    faulty_let_go(s.store);
    world_settle(&s.world);
    struct asked got = expect(get(&s, &id), OUTCOME_OK);
    cr_assert(got.buffered, "it was written");
    got = expect(change(&s, &id, cancel), OUTCOME_OK);
    cr_assert(got.buffered, "its lease is over");
    faulty_heal(s.store);
    world_advance(&s.world, 2000);
    cr_assert(in_ledger(&id)->state == RUN_CANCELED);
    cr_assert(drainer_close(&s, drainer).drain_retried == 1);
}

/* The entry let go of its key before somebody else took it. */
Test(drain, what_is_too_late_becomes_no_alias)
{
    struct run_id id = buffered_run("k");
    struct engine *drainer = drainer_held();
    world_advance(&s.world, LEASE_MS);
    struct run_args reset = RUN_ARGS_INIT;
    reset.question = ASK_RESET;
    reset.task = bytes_str("mail");
    reset.key = bytes_str("k");
    expect(ask(&s, reset), OUTCOME_OK);
    faulty_heal(s.store);
    struct asked other = expect(trigger(&s, "k", "1"), OUTCOME_OK); /* the gate has opened */
    cr_assert(!other.buffered);
    let_go();
    world_advance(&s.world, 2000);
    struct run *run = in_ledger(&id);
    cr_assert(run_id_eq(&run->id, &id) && !run->canonical.text[0]);
    cr_assert(drainer_close(&s, drainer).aliased == 0);
}

/* Several rounds are on their way, and each has its own lease. */
Test(drain, rounds_that_are_in_time_are_written)
{
    struct run_id first = buffered_run("a");
    struct engine *drainer = drainer_held();
    world_advance(&s.world, LEASE_MS - 6000);
    for (int i = 0; i < 2; i++) expect(trigger(&s, "", "0"), OUTCOME_OK); /* another burst */
    struct run_id second = buffered_run("b");
    world_advance(&s.world, 2000);
    cr_assert(faulty_held(s.store) > 1, "there is one round only");
    let_go();
    cr_assert(expect(get(&s, &second), OUTCOME_OK).buffered == false);
    world_advance(&s.world, 2000);
    in_ledger(&first);
    drainer_close(&s, drainer);
}
