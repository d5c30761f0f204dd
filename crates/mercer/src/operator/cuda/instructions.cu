// Instructions of tensor cores, and copies to shared memory.
//
// #define GROUP       whether those of compute capability 9.0 alone are used

typedef unsigned int word;

INLINE void mma(float (&c)[4], const word (&a)[4], word b0, word b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
INLINE void mma_half(float (&c)[4], const word (&a)[4], word b0, word b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
INLINE word address(const float *p) { return (word)__cvta_generic_to_shared(p); }
// Loads four blocks of eight rows of 16 bytes. Lane l gives the address of row l%8 of block l/8 and receives word l%4 of row
// l/4 of each block.
INLINE void load4(word (&r)[4], const float *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address(p)));
}
INLINE void copy16(float *to, const float *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address(to)), "l"(from));
}
INLINE void copies_commit() { asm volatile("cp.async.commit_group;"); }
template <int PENDING> INLINE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING)); }

// Rounds to the nearest TF32 in one instruction, because tensor cores read only the upper 19 bits. Infinity is kept; NaN is
// not, but finite points and parameters give NaN only as 0·∞.
INLINE word tf32(float x) { return __float_as_uint(x) + 0x1000u; }

// x = hi + lo, both read as TF32: hi is x itself, of which tensor cores read the upper bits; lo is the rest, of which they
// drop the bits below 2⁻²¹ of x (2⁻²³ on average).
INLINE word low_half(float x) { return __float_as_uint(x - __uint_as_float(__float_as_uint(x) & 0xffffe000u)); }

// The same, but the compiler cannot keep the halves of a whole loop in registers.
INLINE word low_half_here(word x) {
    word hi;
    asm volatile("and.b32 %0, %1, 0xffffe000;" : "=r"(hi) : "r"(x));
    return __float_as_uint(__uint_as_float(x) - __uint_as_float(hi));
}

#if GROUP
INLINE void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void group_wait() { asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory"); }

// A barrier in shared memory: a phase of it ends with `count` arrivals and all the bytes that were announced.
typedef unsigned long long barrier;
INLINE word address(const barrier *p) { return (word)__cvta_generic_to_shared(p); }
INLINE void barrier_start(barrier *p, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(p)), "r"(count) : "memory");
}
// Barriers that were started become visible to copies.
INLINE void barriers_show() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
INLINE void barrier_arrive(barrier *p) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(p)) : "memory"); }
// Arrives and announces bytes.
INLINE void barrier_expect(barrier *p, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(p)), "r"(bytes) : "memory");
}
// Waits for the end of the phase with this parity; the first one is 0.
INLINE void barrier_wait(barrier *p, int parity) {
    asm volatile("{.reg .pred done;\n"
                 "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra AGAIN;\n}" ::"r"(address(p)), "r"(parity) : "memory");
}
// Copies bytes, a multiple of 16, to shared memory, and tells the barrier.
INLINE void copy_block(float *to, const float *from, int bytes, barrier *p) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(address(p)) : "memory");
}
#endif
