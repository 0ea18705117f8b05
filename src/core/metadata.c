/* metadata.c - see metadata.h. */
#include "core/metadata.h"

int metadata_check(struct bytes metadata, struct err *reterr)
{
    (void)metadata;
    return err_set(reterr, ERR_UNSUPPORTED, "metadata: to come");
}

int metadata_check_operations(struct bytes operations, struct err *reterr)
{
    return metadata_check(operations, reterr);
}

int metadata_apply(struct bytes metadata, struct bytes operations, struct buf *out,
                   struct err *reterr)
{
    (void)operations, (void)out;
    return metadata_check(metadata, reterr);
}
