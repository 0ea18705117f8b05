/* sha256.c - OpenSSL's; see sha256.h. */
#include "base/sha256.h"

#include <openssl/evp.h>

static bool add_piece(EVP_MD_CTX *ctx, struct bytes piece)
{
    uint8_t len[8];
    for (size_t i = 0; i < sizeof len; i++) len[i] = (uint8_t)(piece.len >> (56 - 8 * i));
    return EVP_DigestUpdate(ctx, len, sizeof len) == 1 &&
           EVP_DigestUpdate(ctx, piece.data, piece.len) == 1;
}

bool sha256_pieces(const struct bytes *pieces, size_t count, uint8_t out[SHA256_BYTES])
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool fine = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1;
    for (size_t i = 0; fine && i < count; i++) fine = add_piece(ctx, pieces[i]);
    if (fine) fine = EVP_DigestFinal_ex(ctx, out, NULL) == 1;
    EVP_MD_CTX_free(ctx);
    return fine;
}
