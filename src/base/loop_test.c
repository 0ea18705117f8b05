/* loop_test.c - what runs when: sources, due timers, tasks; and that nothing starves. */
#include "base/loop.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <unistd.h>

static struct loop loop;
static char order[64];
static size_t at;

static void mark(char c)
{
    if (at < sizeof order - 1) order[at++] = c;
}

static void setup(void)
{
    loop_init(&loop, 100);
}

TestSuite(loop, .init = setup);

static void timer_a(struct timer *t)
{
    (void)t;
    mark('a');
}

static void timer_b(struct timer *t)
{
    (void)t;
    mark('b');
}

static void task_t(struct task *t)
{
    (void)t;
    mark('t');
}

static void source_s(struct source *s)
{
    (void)s;
    mark('s');
}

static void expect_order(const char *want)
{
    cr_assert(strcmp(order, want) == 0, "%s, expected %s", order, want);
}

Test(loop, a_timer_fires_at_its_time_and_once)
{
    struct timer a;
    timer_init(&a, timer_a);
    timer_set(&loop, &a, 110);
    cr_assert(timer_is_set(&a) && loop_next_ms(&loop, 100) == 10);
    loop_turn(&loop, 109);
    expect_order("");
    loop_turn(&loop, 110);
    expect_order("a");
    cr_assert(!timer_is_set(&a) && loop_next_ms(&loop, 110) == -1);
    loop_turn(&loop, 200);
    expect_order("a");
}

Test(loop, timers_fire_in_order_of_time_then_of_setting)
{
    struct timer a, b, c;
    timer_init(&a, timer_a);
    timer_init(&b, timer_b);
    timer_init(&c, timer_a);
    timer_set(&loop, &b, 120);
    timer_set(&loop, &a, 110);
    timer_set(&loop, &c, 120);
    loop_turn(&loop, 130);
    expect_order("aba");
}

Test(loop, setting_a_timer_again_moves_it)
{
    struct timer a;
    timer_init(&a, timer_a);
    timer_set(&loop, &a, 110);
    timer_set(&loop, &a, 120);
    loop_turn(&loop, 110);
    expect_order("");
    loop_turn(&loop, 120);
    expect_order("a");
}

Test(loop, a_stopped_timer_does_not_fire)
{
    struct timer a;
    timer_init(&a, timer_a);
    timer_set(&loop, &a, 110);
    timer_stop(&loop, &a);
    timer_stop(&loop, &a);
    cr_assert(loop_next_ms(&loop, 100) == -1);
    loop_turn(&loop, 200);
    expect_order("");
}

Test(loop, sources_come_before_timers_and_timers_before_tasks)
{
    struct timer a;
    struct task t;
    struct source s = { .run = source_s };
    timer_init(&a, timer_a);
    task_init(&t, task_t);
    source_add(&loop, &s);
    task_post(&loop, &t);
    timer_set(&loop, &a, 100);
    cr_assert(loop_next_ms(&loop, 100) == 0);
    loop_turn(&loop, 100);
    expect_order("sat");
    loop_turn(&loop, 100);
    expect_order("sats"); /* a source is looked at in every turn */
    source_remove(&s);
}

Test(loop, a_task_posted_twice_runs_once)
{
    struct task t;
    task_init(&t, task_t);
    task_post(&loop, &t);
    task_post(&loop, &t);
    loop_turn(&loop, 100);
    loop_turn(&loop, 100);
    expect_order("t");
}

Test(loop, a_stopped_task_does_not_run)
{
    struct task t;
    task_init(&t, task_t);
    task_post(&loop, &t);
    task_stop(&t);
    loop_turn(&loop, 100);
    expect_order("");
}

static struct task again;
static struct timer busy;

static void post_again(struct task *t)
{
    mark('t');
    task_post(&loop, t);
}

static void set_again(struct timer *t)
{
    mark('a');
    timer_set(&loop, t, loop.now_ms);
}

Test(loop, what_becomes_due_in_a_turn_waits_for_the_next)
{
    task_init(&again, post_again);
    timer_init(&busy, set_again);
    task_post(&loop, &again);
    timer_set(&loop, &busy, 100);
    loop_turn(&loop, 100);
    expect_order("at"); /* each ran once: neither starves the other */
    loop_turn(&loop, 100);
    expect_order("atat");
    timer_stop(&loop, &busy);
    task_stop(&again);
}

static struct timer victim;

static void stop_victim(struct timer *t)
{
    (void)t;
    mark('b');
    timer_stop(&loop, &victim);
}

Test(loop, a_timer_may_stop_one_that_is_due_in_the_same_turn)
{
    struct timer killer;
    timer_init(&killer, stop_victim);
    timer_init(&victim, timer_a);
    timer_set(&loop, &killer, 105);
    timer_set(&loop, &victim, 106);
    loop_turn(&loop, 110);
    expect_order("b");
}

Test(loop, time_does_not_go_back)
{
    loop_turn(&loop, 150);
    loop_turn(&loop, 120);
    cr_assert(loop.now_ms == 150);
    loop_update(&loop, 140);
    cr_assert(loop.now_ms == 150);
    loop_update(&loop, 160);
    cr_assert(loop.now_ms == 160);
}

Test(loop, a_closed_loop_may_be_woken)
{
    loop_wake(&loop);
    loop_turn(&loop, 100);
}

static void open_loop(void)
{
    struct err err;
    cr_assert(loop_open(&loop, &err) == 0);
}

Test(loop, wake_ends_a_sleep_once)
{
    open_loop();
    struct pollfd fd = { .fd = loop.fd, .events = POLLIN };
    loop_wake(&loop);
    loop_wake(&loop);
    loop_sleep(&loop, -1);
    cr_assert(poll(&fd, 1, 0) == 0, "still readable after one sleep");
}

struct pipe_io {
    struct io io;
    int write_fd;
    unsigned calls, events;
    struct pipe_io *remove;
};

static void pipe_ready(struct io *io, unsigned events)
{
    struct pipe_io *p = container_of(io, struct pipe_io, io);
    p->calls++;
    p->events = events;
    if (p->remove) io_remove(&loop, &p->remove->io);
}

static void pipe_open(struct pipe_io *p)
{
    int fds[2];
    struct err err;
    cr_assert(pipe(fds) == 0);
    *p = (struct pipe_io){ .io = { .fd = fds[0], .events = POLLIN, .ready = pipe_ready },
                           .write_fd = fds[1] };
    cr_assert(io_add(&loop, &p->io, &err) == 0);
}

static void pipe_close(struct pipe_io *p)
{
    close(p->io.fd);
    close(p->write_fd);
}

Test(loop, a_descriptor_is_told_while_it_is_readable)
{
    struct pipe_io p;
    open_loop();
    pipe_open(&p);
    loop_turn(&loop, 100);
    cr_assert(p.calls == 0);
    cr_assert(write(p.write_fd, "x", 1) == 1);
    loop_sleep(&loop, -1);
    loop_turn(&loop, 100);
    cr_assert(p.calls == 1 && p.events == POLLIN);
    io_want(&loop, &p.io, 0);
    loop_turn(&loop, 100);
    cr_assert(p.calls == 1, "told although it was not asked for");
    io_want(&loop, &p.io, POLLIN);
    close(p.write_fd);
    loop_turn(&loop, 100);
    cr_assert(p.calls == 2 && (p.events & POLLIN) && (p.events & POLLHUP));
    io_remove(&loop, &p.io);
    close(p.io.fd);
}

Test(loop, a_descriptor_removed_by_another_is_not_told)
{
    struct pipe_io p[2];
    open_loop();
    for (int i = 0; i < 2; i++) {
        pipe_open(&p[i]);
        cr_assert(write(p[i].write_fd, "x", 1) == 1);
    }
    p[0].remove = &p[1];
    p[1].remove = &p[0];
    loop_turn(&loop, 100);
    cr_assert(p[0].calls + p[1].calls == 1);
    cr_assert(loop.ios == 1);
    io_remove(&loop, p[0].calls ? &p[0].io : &p[1].io);
    for (int i = 0; i < 2; i++) pipe_close(&p[i]);
}
