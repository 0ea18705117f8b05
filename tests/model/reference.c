/* reference.c - see reference.h. */
#include "tests/model/reference.h"

void reference_init(struct reference *m)
{
    /* Framing matters: a:b + c, a + b:c, ab + c and a + bc are four keys. */
    static const char *const keys[REFERENCE_KEYS][2] = {
        { "a", "b:c" },
        { "a", "bc" },
        { "a", "d" },
        { "a:b", "c" },
        { "ab", "c" },
        { "orders", "\xc3\xbc-1" },
        { "orders", "\xc3\xbc-2" },
        { "z", "k" },
    };
    *m = (struct reference){ 0 };
    for (size_t i = 0; i < REFERENCE_KEYS; i++)
        m->slots[i].key = (struct key){ bytes_str(keys[i][0]), bytes_str(keys[i][1]) };
}

static void slot_drop(struct reference *m, struct slot *s)
{
    if (s->record.fence > m->fence_floor) m->fence_floor = s->record.fence;
    blob_unref(s->record.value);
    s->used = false;
}

void reference_fini(struct reference *m)
{
    for (size_t i = 0; i < REFERENCE_KEYS; i++)
        if (m->slots[i].used) slot_drop(m, &m->slots[i]);
}

static void slot_put(struct slot *s, const struct record *next)
{
    struct blob *before = s->used ? s->record.value : NULL;
    uint8_t fingerprint[FINGERPRINT_BYTES_MAX];
    size_t len = next->fingerprint.len;
    if (len) memcpy(fingerprint, next->fingerprint.data, len);
    if (len) memcpy(s->fingerprint, fingerprint, len);
    s->record = *next;
    s->record.fingerprint = bytes_of(s->fingerprint, len);
    blob_ref(s->record.value);
    blob_unref(before);
    s->used = true;
}

void reference_apply(struct reference *m, size_t at, struct op *op)
{
    struct slot *s = &m->slots[at];
    struct moment now = { .now_ms = m->now_ms, .fence_floor = m->fence_floor };
    struct verdict v = op_decide(op, s->used ? &s->record : NULL, now);
    if (v.change == CHANGE_PUT) slot_put(s, &v.next);
    if (v.change == CHANGE_DROP) slot_drop(m, s);
    op->changed = v.change != CHANGE_NONE;
}

static bool gone(const struct reference *m, const struct slot *s)
{
    struct moment now = { .now_ms = m->now_ms };
    return s->used && rules_expire(&s->record, NULL, now).change == CHANGE_DROP;
}

size_t reference_gone(const struct reference *m)
{
    size_t count = 0;
    for (size_t i = 0; i < REFERENCE_KEYS; i++) count += gone(m, &m->slots[i]);
    return count;
}

void reference_expire(struct reference *m)
{
    for (size_t i = 0; i < REFERENCE_KEYS; i++)
        if (gone(m, &m->slots[i])) slot_drop(m, &m->slots[i]);
}

struct store_stats reference_stats(const struct reference *m)
{
    struct store_stats st = { .fence_floor = m->fence_floor, .now_ms = m->now_ms };
    for (size_t i = 0; i < REFERENCE_KEYS; i++) {
        const struct slot *s = &m->slots[i];
        if (!s->used) continue;
        if (!record_live(&s->record, m->now_ms))
            st.gone++;
        else if (s->record.state == RECORD_DONE)
            st.done++;
        else if (m->now_ms < s->record.lease_until_ms)
            st.pending++;
        else
            st.lapsed++;
    }
    return st;
}
