/* loop.c - once inside a program that has an event loop of its own.
 *
 *     cc loop.c -o loop $(pkg-config --cflags --libs once)
 *     printf 'a\nb\na\n' | ./loop /tmp/shop
 *
 * Every line of the standard input is a job, named by its text. A name is worked on once; a job
 * with the same name, now or in a later run, gets the stored answer. Nothing here blocks: the
 * handle is one more descriptor and one more timeout of the poll() that the program has anyway.
 */
#include <once/once.h>

#include <ctype.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct job {
    struct once *once;
    char name[128], result[128];
};

static unsigned jobs;

static void job_end(struct job *job, const char *how, struct once_bytes result)
{
    printf("%s: %s: %.*s\n", job->name, how, (int)result.len, (const char *)result.data);
    free(job);
    jobs--;
}

static void published(void *ctx, int result, struct once_answer *answer)
{
    struct job *job = ctx;
    if (result < 0)
        job_end(job, "no answer", once_str(answer->error.text));
    else if (answer->outcome == ONCE_OK)
        job_end(job, "worked", once_str(job->result));
    else
        job_end(job, once_outcome_name(answer->outcome), answer->value);
    once_answer_clear(answer);
}

/* The work. A real program would start a request here and publish when it is answered; the
 * lease is renewed by once_process() for as long as that takes. */
static void work(struct job *job, const struct once_lease *lease)
{
    for (size_t i = 0; job->name[i]; i++)
        job->result[i] = (char)toupper((unsigned char)job->name[i]);

    struct once_owned owned = ONCE_OWNED_INIT;
    struct once_error error;
    owned.scope = once_str("loop");
    owned.key = once_str(job->name);
    owned.token = lease->token;
    owned.value = once_str(job->result);
    if (once_publish_start(job->once, &owned, published, job, NULL, &error) < 0)
        job_end(job, "not published", once_str(error.text));
}

static void claimed(void *ctx, int result, struct once_answer *answer)
{
    struct job *job = ctx;
    if (result < 0)
        job_end(job, "no answer", once_str(answer->error.text));
    else if (answer->outcome == ONCE_CLAIMED)
        work(job, &answer->lease);
    else
        job_end(job, once_outcome_name(answer->outcome), answer->value);
    once_answer_clear(answer);
}

static void job_start(struct once *once, const char *name)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job) return;
    jobs++;
    job->once = once;
    snprintf(job->name, sizeof job->name, "%s", name);

    struct once_claim claim = ONCE_CLAIM_INIT;
    struct once_error error;
    claim.scope = once_str("loop");
    claim.key = once_str(job->name);
    if (once_claim_start(once, &claim, claimed, job, NULL, &error) < 0)
        job_end(job, "not started", once_str(error.text));
}

/* Returns 0 at the end of the input. */
static int read_jobs(struct once *once)
{
    static char line[128];
    static size_t len;
    char input[256];
    ssize_t n = read(STDIN_FILENO, input, sizeof input);
    for (ssize_t i = 0; i < n; i++) {
        if (input[i] != '\n') {
            if (len + 1 < sizeof line) line[len++] = input[i];
            continue;
        }
        line[len] = '\0';
        len = 0;
        job_start(once, line);
    }
    return n > 0;
}

int main(int argc, char **argv)
{
    struct once_config config = ONCE_CONFIG_INIT;
    struct once_error error;
    struct once *once;
    config.flags = ONCE_HOSTED;
    config.data_dir = argc > 1 ? argv[1] : ".";
    if (once_open(&config, &once, &error) < 0) {
        fprintf(stderr, "cannot open: %s\n", error.text);
        return 1;
    }
    struct pollfd fds[] = { { .fd = STDIN_FILENO, .events = POLLIN },
                            { .fd = once_fd(once), .events = POLLIN } };
    while (fds[0].fd >= 0 || jobs > 0) {
        int64_t timeout_ms = once_timeout_ms(once);
        int ready = poll(fds, 2, timeout_ms > 60000 ? 60000 : (int)timeout_ms);
        if (ready > 0 && fds[0].revents && !read_jobs(once)) fds[0].fd = -1;
        once_process(once);
    }
    once_close(once);
    return 0;
}
