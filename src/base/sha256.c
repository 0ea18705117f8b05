/* sha256.c - OpenSSL's; see sha256.h. */
#include "base/sha256.h"

#include <openssl/evp.h>
#include <pthread.h>

/* Where it is carried out is looked for once in a process: for each hash, as EVP_sha256() has it done, that
 * took locks and half of the time of a short one. */
static EVP_MD *found;

static void find(void)
{
    found = EVP_MD_fetch(NULL, "SHA256", NULL);
}

static const EVP_MD *algorithm(void)
{
    static pthread_once_t looked = PTHREAD_ONCE_INIT;
    pthread_once(&looked, find);
    return found ? found : EVP_sha256(); /* there was no memory for it at that moment */
}

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
    bool fine = ctx && EVP_DigestInit_ex2(ctx, algorithm(), NULL) == 1;
    for (size_t i = 0; fine && i < count; i++) fine = add_piece(ctx, pieces[i]);
    if (fine) fine = EVP_DigestFinal_ex(ctx, out, NULL) == 1;
    EVP_MD_CTX_free(ctx);
    return fine;
}
