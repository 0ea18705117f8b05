/* cursor.c - see cursor.h. */
#include "daemon/cursor.h"

#include "base/text.h"

int cursor_read(struct bytes text, uint8_t *memory, struct key *ret_key, struct err *reterr)
{
    size_t len = text.len / 2;
    bool fits = len >= 3 && len <= KEY_FRAME_BYTES_MAX && hex_decode(text, memory, len);
    if (!fits || memory[0] < 1 || memory[0] + 2u > len)
        return err_set(reterr, ERR_INVALID, "invalid cursor: it is not what a page gave");
    struct key key = key_unframe(bytes_of(memory, len));
    int r = key_check(&key, reterr);
    if (!r) *ret_key = key;
    return r;
}

bool cursor_write(const struct scan *page, char out[CURSOR_TEXT_BYTES])
{
    uint8_t frame[KEY_FRAME_BYTES_MAX];
    if (!page->more || page->count == 0) return false;
    hex_encode(bytes_of(frame, key_frame(&page->rows[page->count - 1].key, frame)), out);
    return true;
}
