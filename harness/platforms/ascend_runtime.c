/* What lowered MLIR calls at run time on a CPU: strided copies, and memory that ends with the program that asked for it. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* MLIR's descriptor of a memref of a known rank: `rank` sizes, then as many strides, in elements. */
struct ranked {
    char *allocated, *aligned;
    int64_t offset, extents[];
};

struct unranked {
    int64_t rank;
    struct ranked *memref;
};

static void copy_dims(char *to, const int64_t *to_strides, const char *from, const int64_t *from_strides,
                      const int64_t *sizes, int64_t rank, int64_t bytes)
{
    if (rank == 0 || (rank == 1 && to_strides[0] == 1 && from_strides[0] == 1)) {
        memmove(to, from, bytes * (rank ? sizes[0] : 1));
        return;
    }
    for (int64_t i = 0; i < sizes[0]; i++)
        copy_dims(to + i * to_strides[0] * bytes, to_strides + 1, from + i * from_strides[0] * bytes, from_strides + 1,
                  sizes + 1, rank - 1, bytes);
}

/* memref.copy; `bytes` of an element. */
void memrefCopy(int64_t bytes, struct unranked *from, struct unranked *to)
{
    int64_t rank = from->rank;
    const int64_t *sizes = from->memref->extents;
    for (int64_t i = 0; i < rank; i++)
        if (sizes[i] == 0)
            return;
    copy_dims(to->memref->aligned + to->memref->offset * bytes, to->memref->extents + rank,
              from->memref->aligned + from->memref->offset * bytes, sizes + rank, sizes, rank, bytes);
}

/* The lowering frees nothing. A program's buffers are kept in a list until it ends, and start as NaN: a read of what no
   load filled shows. */
struct buffer {
    struct buffer *next;
    char padding[56]; /* the buffer behind it starts at 64 bytes, a cache line */
};

static struct buffer *buffers;

void *program_alloc(uint64_t bytes)
{
    struct buffer *buffer = aligned_alloc(64, sizeof *buffer + (bytes + 127) / 64 * 64);
    if (!buffer)
        abort();
    memset(buffer + 1, 0xFF, bytes);
    buffer->next = buffers;
    buffers = buffer;
    return buffer + 1;
}

void program_free(void *buffer)
{
    (void)buffer;
}

void program_end(void)
{
    while (buffers) {
        struct buffer *next = buffers->next;
        free(buffers);
        buffers = next;
    }
}

/* For the interpreter, so that it and the lowered code have one exponential. */
void exponentials(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = expf(x[i]);
}
