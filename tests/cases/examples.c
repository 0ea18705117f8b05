/* examples.c - tests that end in every way there is; tests/cases/run knows how each has to be told. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int steps;

static void suite_init(void)
{
    steps++;
}

static void test_init(void)
{
    cr_assert(steps == 1, "the suite's comes first");
    steps++;
}

static void fini(void)
{
    printf("fini after %d\n", steps);
}

TestSuite(example, .init = suite_init, .fini = fini, .timeout = 20);

Test(example, passes, .init = test_init)
{
    printf("ok 99 - not a result\n");
    cr_assert(steps == 2);
    cr_expect_str_eq("a", "a");
}

Test(example, is_not_changed_by_others)
{
    cr_assert(steps == 1);
}

Test(example, fails)
{
    steps = 7;
    cr_assert_eq(steps, 8, "seven is not %d", 8);
    printf("behind an assertion that failed\n");
}

Test(example, fails_and_goes_on)
{
    cr_expect_str_eq("left", "right");
    printf("behind an expectation that failed\n");
}

static void *assert_there(void *unused)
{
    cr_assert(!steps, "in a thread");
    return unused;
}

Test(example, fails_in_a_thread)
{
    pthread_t thread;
    pthread_create(&thread, NULL, assert_there, NULL);
    pthread_join(thread, NULL);
}

Test(example, is_killed)
{
    raise(SIGKILL);
}

Test(example, ends_the_process)
{
    exit(3);
}

Test(example, hangs, .timeout = 1)
{
    if (fork() == 0) pause(); /* what it has started ends with it */
    pause();
}

Test(example, is_skipped)
{
    cr_skip_test("because of %s", "this");
}
