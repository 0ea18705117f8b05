/* resolver_test.c - names that resolve, do not, or not now; and who has gone meanwhile. */
#include "base/resolver.h"

#include "tests/support/names.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>

static struct loop loop;
static struct resolver resolver;
static unsigned times;
static char why[64];

static void told(struct resolver *r, const char *text)
{
    (void)r;
    times++;
    snprintf(why, sizeof why, "%s", text ? text : "");
}

static void setup(void)
{
    struct err err;
    loop_init(&loop, 0);
    cr_assert_eq(loop_open(&loop, &err), 0);
    resolver_init(&resolver, &loop, told);
    names_say("127.0.0.1");
}

static void teardown(void)
{
    resolver_clear(&resolver);
    loop_fini(&loop); /* which checks that no descriptor is left */
}

TestSuite(resolver, .init = setup, .fini = teardown);

static void until_told(unsigned n)
{
    while (times < n) {
        loop_sleep(&loop, 1000);
        loop_turn(&loop, 0);
    }
}

static void until_waiting(unsigned n)
{
    while (names_waiting() != n) sched_yield();
}

static void expect_address(size_t i, const char *want)
{
    char text[NI_MAXHOST] = "none";
    const struct addrinfo *a = resolver_address(&resolver, i);
    if (a) getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
    cr_expect_str_eq(text, want);
}

Test(resolver, an_address_is_its_own_answer_at_once)
{
    names_hang(); /* nobody is asked */
    resolver_ask(&resolver, "127.0.0.2", "6379");
    cr_assert_eq(times, 1);
    expect_address(0, "127.0.0.2");
    expect_address(1, "none");
    resolver_ask(&resolver, "::1", "6379");
    cr_assert_eq(times, 2);
    expect_address(0, "::1");
    const struct sockaddr_in6 *to =
        (const struct sockaddr_in6 *)resolver_address(&resolver, 0)->ai_addr;
    cr_expect_eq(ntohs(to->sin6_port), 6379);
}

Test(resolver, a_name_is_told_in_a_turn_with_all_its_addresses)
{
    names_say("127.0.0.1 127.0.0.2 ::1");
    resolver_ask(&resolver, NAMES_HOST, "1");
    cr_assert_eq(times, 0);
    until_told(1);
    cr_expect_str_eq(why, "");
    expect_address(0, "127.0.0.1");
    expect_address(1, "127.0.0.2");
    expect_address(2, "::1");
    expect_address(3, "none");
}

Test(resolver, this_machine_has_a_name)
{
    resolver_ask(&resolver, "localhost", "1");
    until_told(1);
    cr_expect(resolver_address(&resolver, 0), "%s", why);
}

Test(resolver, a_name_that_is_not_there_says_so_and_what_was_said_before_stays)
{
    names_say(NULL);
    resolver_ask(&resolver, NAMES_HOST, "1");
    until_told(1);
    cr_expect_str_eq(why, gai_strerror(EAI_NONAME));
    expect_address(0, "none");
    names_say("127.0.0.3");
    resolver_ask(&resolver, NAMES_HOST, "1");
    until_told(2);
    names_say(NULL);
    resolver_ask(&resolver, NAMES_HOST, "1");
    until_told(3);
    cr_expect_str_eq(why, gai_strerror(EAI_NONAME));
    expect_address(0, "127.0.0.3");
}

Test(resolver, who_asks_while_it_hangs_starts_no_second_lookup)
{
    names_hang();
    for (int i = 0; i < 5; i++) resolver_ask(&resolver, NAMES_HOST, "1");
    until_waiting(1);
    loop_turn(&loop, 0);
    cr_assert_eq(times, 0);
    names_go_on();
    until_told(1);
    expect_address(0, "127.0.0.1");
}

/* The lookup has nobody to tell any more, and nothing to tell it with. */
Test(resolver, who_asked_may_go_while_it_hangs)
{
    struct loop gone;
    struct err err;
    struct resolver *r = malloc(sizeof *r);
    loop_init(&gone, 0);
    cr_assert(r && loop_open(&gone, &err) == 0);
    resolver_init(r, &gone, told);
    names_hang();
    resolver_ask(r, NAMES_HOST, "1");
    until_waiting(1);
    resolver_clear(r);
    loop_fini(&gone);
    free(r);
    names_go_on();
    until_waiting(0);
    resolver_ask(&resolver, NAMES_HOST, "1");
    until_told(1); /* by the second one only */
    loop_turn(&loop, 0);
    cr_expect_eq(times, 1);
}

Test(resolver, what_was_asked_of_another_host_is_not_told)
{
    names_hang();
    resolver_ask(&resolver, NAMES_HOST, "1");
    until_waiting(1);
    resolver_clear(&resolver);
    resolver_ask(&resolver, "127.0.0.9", "1");
    names_go_on();
    until_waiting(0);
    loop_turn(&loop, 0);
    cr_expect_eq(times, 1);
    expect_address(0, "127.0.0.9");
}
