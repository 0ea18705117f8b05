/* mutation.c - see mutation.h. */
#include "core/mutation.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/text.h"
#include "core/record.h"

enum { WITH_RESPONSE = 1, WITHOUT_RESPONSE = 2 };

static int check_text(struct bytes text, size_t bytes_max, const char *what, struct err *reterr)
{
    if (text.len > bytes_max)
        return err_set(reterr, ERR_LIMIT, "the %s has %zu bytes; at most %zu are allowed", what,
                       text.len, bytes_max);
    if (!text_is_plain_utf8(text))
        return err_set(reterr, ERR_INVALID,
                       "the %s is not UTF-8 text without control characters", what);
    return 0;
}

static int check_name(struct bytes text, const char *what, struct err *reterr)
{
    if (text.len == 0) return err_set(reterr, ERR_INVALID, "the %s is empty", what);
    return check_text(text, MUTATION_NAME_BYTES_MAX, what, reterr);
}

int mutation_check(const struct mutation *m, struct err *reterr)
{
    int r = check_name(m->user, "user id", reterr);
    if (!r) r = check_name(m->request, "request id", reterr);
    if (!r) r = check_text(m->method, MUTATION_METHOD_BYTES_MAX, "method", reterr);
    if (r) return r;
    if (m->fingerprint.len > FINGERPRINT_BYTES_MAX)
        return err_set(reterr, ERR_LIMIT,
                       "the fingerprint has %zu bytes; at most %d are allowed: hash it",
                       m->fingerprint.len, FINGERPRINT_BYTES_MAX);
    return 0;
}

int mutation_epoch_check(struct bytes epoch, struct err *reterr)
{
    return check_text(epoch, MUTATION_EPOCH_BYTES_MAX, "epoch", reterr);
}

struct blob *mutation_pack(struct bytes epoch, const struct bytes *response)
{
    struct buf frame;
    CHECK(epoch.len <= MUTATION_EPOCH_BYTES_MAX);
    buf_init(&frame, MUTATION_FRAME_BYTES_MAX + (response ? response->len : 0));
    buf_byte(&frame, response ? WITH_RESPONSE : WITHOUT_RESPONSE);
    buf_byte(&frame, (uint8_t)epoch.len);
    buf_add(&frame, epoch);
    if (response) buf_add(&frame, *response);
    struct blob *packed = buf_failed(&frame) ? NULL : blob_new(buf_bytes(&frame));
    buf_fini(&frame);
    return packed;
}

bool mutation_unpack(const struct blob *packed, struct mutation_kept *ret)
{
    struct reader r = { .left = blob_bytes(packed) };
    uint8_t kind = reader_byte(&r);
    struct bytes epoch = reader_take(&r, reader_byte(&r));
    if (r.short_read || (kind != WITH_RESPONSE && kind != WITHOUT_RESPONSE)) return false;
    if (kind == WITHOUT_RESPONSE && r.left.len) return false;
    *ret = (struct mutation_kept){ epoch, r.left, kind == WITH_RESPONSE };
    return true;
}
