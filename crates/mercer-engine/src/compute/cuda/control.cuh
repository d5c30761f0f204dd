// What the kernels of a training step share: the chunk's control words, and how a step that is not finite is noted.
//
// control: [0] the step within the chunk, [1] the first step that was not finite, counted from one (0: none), [2] what was
// not finite in it. record [steps, 1 + k]: a step's loss and its eigenvalues.

typedef unsigned int u32;
typedef unsigned long long u64;

#define STEP 0
#define BAD 1
#define WHAT 2

#define PSI 1
#define IMAGE 2
#define GRADIENT 3
#define LOSS 4
#define PROBLEM 5

// Notes the first step that is not finite. Returns whether this or an earlier one was not.
__device__ bool spoiled(u32* control, int what) {
    bool was = control[BAD] != 0;
    __syncthreads();
    if (!was && what && threadIdx.x == 0) {
        control[BAD] = control[STEP] + 1;
        control[WHAT] = what;
    }
    __syncthreads();
    return was || what;
}
