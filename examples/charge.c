/* charge.c - charges an order once, however many threads, processes and retries try to.
 *
 *     cc charge.c -o charge $(pkg-config --cflags --libs once) -pthread
 *     ./charge /tmp/shop o-17     # one of four threads charges, all four have the receipt
 *     ./charge /tmp/shop o-17     # nobody charges, all four have the same receipt
 */
#include <once/once.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { CALLERS = 4 };

struct order {
    struct once *once;
    const char *id;
    char receipt[64];
};

static atomic_int charged;

/* The side effect. Runs in at most one caller at a time; its lease is renewed meanwhile. What
 * it returns is stored and given to everybody who asks for this key. */
static int charge(void *ctx, const struct once_lease *lease, struct once_bytes *ret_value)
{
    struct order *order = ctx;
    atomic_fetch_add(&charged, 1);
    snprintf(order->receipt, sizeof order->receipt, "receipt for %s, fence %llu", order->id,
             (unsigned long long)lease->fence);
    *ret_value = once_str(order->receipt);
    return 0;
}

static void *caller(void *ctx)
{
    struct order *order = ctx;
    struct once_answer answer;
    if (once_do(order->once, "orders", order->id, charge, order, &answer) < 0) {
        fprintf(stderr, "no answer: %s\n", answer.error.text);
    } else if (answer.has_value) {
        printf("%.*s\n", (int)answer.value.len, (const char *)answer.value.data);
    } else {
        printf("%s\n", once_outcome_text(answer.outcome));
    }
    once_answer_clear(&answer);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: charge DIRECTORY ORDER\n");
        return 2;
    }
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    struct once *once;
    config.data_dir = argv[1];
    if (once_open(&config, &once, &error) < 0) {
        fprintf(stderr, "cannot open: %s\n", error.text);
        return 1;
    }
    pthread_t threads[CALLERS];
    struct order orders[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        orders[i] = (struct order){ .once = once, .id = argv[2] };
        if (pthread_create(&threads[i], NULL, caller, &orders[i]) != 0) return 1;
    }
    for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
    printf("charged %d times by this process\n", atomic_load(&charged));
    once_close(once);
    return 0;
}
