// Views of images and rows; `view.rs` has the same formulas. One block of 256 threads makes a view.

typedef unsigned int u32;
typedef unsigned long long u64;

#define MINE(i, n) for (u32 i = threadIdx.x; i < (n); i += blockDim.x)

// What each of the numbers of a view is.
enum { TOP, LEFT, TALL, WIDE, MIRROR, BRIGHTNESS, CONTRAST, SATURATION, HUE, GREY, BLUR, SOLARISE, NOISE, HIDDEN, DROPPED, CELLS, COLUMNS, NUMBERS };

__device__ __forceinline__ float within(float v, float low, float high) { return fminf(fmaxf(v, low), high); }

__device__ __forceinline__ float luminance(float r, float g, float b) { return 0.299f * r + 0.587f * g + 0.114f * b; }

// A number in [0, 1) that follows from a seed, a column and a purpose.
__device__ float uniform(u32 seed, u32 column, u32 purpose) {
    u32 h = seed ^ (column * 0x9e3779b9u) ^ (purpose * 0x85ebca6bu);
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h = (h ^ (h >> 16)) * 0x846ca68bu;
    h += seed * 0xc2b2ae35u;
    h = (h ^ (h >> 15)) * 0x2c1b3c6du;
    h = (h ^ (h >> 12)) * 0x297a2d39u;
    return (float)((h ^ (h >> 15)) >> 8) / 16777216.0f;
}

// Cell i of a standardized row, with noise, hidden or dropped.
__device__ float disturbed(float v, const float* view, u32 i) {
    u32 cells = (u32)view[CELLS], columns = (u32)view[COLUMNS];
    if (uniform(cells, i, 0) < view[HIDDEN] || uniform(columns, i, 1) < view[DROPPED]) return 0.0f;
    if (view[NOISE] == 0.0f) return v;
    float u = 1.0f - uniform(cells, i, 2), w = uniform(cells, i, 3);
    return v + view[NOISE] * sqrtf(-2.0f * logf(u)) * cosf(6.28318531f * w);
}

// The pixel before a place of a part, the one after it, and how far it is between them.
struct Between {
    u32 before, after;
    float far;
};

__device__ Between between(float first, float size, u32 i, u32 n) {
    float at = within(((float)i + 0.5f) * (size / (float)n) - 0.5f, 0.0f, size - 1.0f), before = floorf(at);
    Between b = {(u32)(first + before), (u32)(first + fminf(before + 1.0f, size - 1.0f)), at - before};
    return b;
}

// Pixel i of a part of the image, brought to the size of the whole, and mirrored.
__device__ float shown(const float* view, u32 height, u32 width, const float* x, u32 i) {
    u32 col = i % width;
    Between v = between(view[TOP], view[TALL], i / width % height, height);
    Between u = between(view[LEFT], view[WIDE], view[MIRROR] > 0.5f ? width - 1 - col : col, width);
    const float* plane = x + (u64)(i / (height * width)) * height * width;
    float a = (1.0f - u.far) * plane[v.before * width + u.before] + u.far * plane[v.before * width + u.after];
    float b = (1.0f - u.far) * plane[v.after * width + u.before] + u.far * plane[v.after * width + u.after];
    return (1.0f - v.far) * a + v.far * b;
}

// Saturation, hue and the loss of colours of one pixel.
__device__ void coloured(const float* view, float white, u32 plane, float* pixel) {
    float rgb[3] = {pixel[0], pixel[plane], pixel[2 * plane]};
    float y = luminance(rgb[0], rgb[1], rgb[2]);
    for (int c = 0; c < 3; ++c) rgb[c] = within(y + view[SATURATION] * (rgb[c] - y), 0.0f, white);
    if (view[HUE] != 0.0f) {
        float r = rgb[0], g = rgb[1], b = rgb[2], sine = sinf(view[HUE]), cosine = cosf(view[HUE]);
        y = luminance(r, g, b);
        float p = 0.596f * r - 0.274f * g - 0.322f * b, q = 0.211f * r - 0.523f * g + 0.312f * b;
        float turned = cosine * p - sine * q;
        q = sine * p + cosine * q;
        rgb[0] = within(y + 0.956f * turned + 0.621f * q, 0.0f, white);
        rgb[1] = within(y - 0.272f * turned - 0.647f * q, 0.0f, white);
        rgb[2] = within(y - 1.106f * turned + 1.703f * q, 0.0f, white);
    }
    if (view[GREY] > 0.5f) rgb[0] = rgb[1] = rgb[2] = luminance(rgb[0], rgb[1], rgb[2]);
    for (int c = 0; c < 3; ++c) pixel[c * plane] = rgb[c];
}

// A Gaussian blur at pixel i; the edge goes on beyond the image.
__device__ float blurred(float deviation, int height, int width, const float* x, u32 i) {
    int radius = min((int)ceilf(2.0f * deviation), 4), row = i / width % height, col = i % width;
    const float* plane = x + (u64)(i / (height * width)) * height * width;
    float sum = 0.0f, weights = 0.0f;
    for (int down = -radius; down <= radius; ++down)
        for (int across = -radius; across <= radius; ++across) {
            float a = down / deviation, b = across / deviation, w = expf(-0.5f * a * a) * expf(-0.5f * b * b);
            sum += w * plane[min(max(row + down, 0), height - 1) * width + min(max(col + across, 0), width - 1)];
            weights += w;
        }
    return sum / weights;
}

// Two views of each row of x [., d], one after the other: views [count, NUMBERS], work, out [count, d]. Rows are images of `channels`
// planes, or no images where there are none.
extern "C" __global__ void views(u32 count, u32 d, u32 channels, u32 height, u32 width, float white, float scale, const float* views,
                                 const float* centre, const float* x, float* work, float* out) {
    __shared__ double part[256];
    for (u32 v = blockIdx.x; v < count; v += gridDim.x) {
        const float *view = views + (u64)v * NUMBERS, *from = x + (u64)(v / 2) * d;
        float *mine = out + (u64)v * d, *room = work + (u64)v * d;
        u32 plane = height * width;
        __syncthreads();
        if (channels == 0) {
            MINE(i, d) mine[i] = disturbed((from[i] - centre[i]) / scale, view, i);
            continue;
        }
        double sum = 0.0;
        MINE(i, d) {
            float value = within(shown(view, height, width, from, i) * view[BRIGHTNESS], 0.0f, white);
            u32 c = i / plane;
            float share = channels == 3 ? (c == 0 ? 0.299f : c == 1 ? 0.587f : 0.114f) : 1.0f / (float)channels;
            sum += share * value;
            mine[i] = value;
        }
        part[threadIdx.x] = sum;
        for (u32 half = 128; half; half >>= 1) {
            __syncthreads();
            if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        }
        __syncthreads();
        float mean = (float)(part[0] / plane), contrast = view[CONTRAST];
        if (contrast != 1.0f) MINE(i, d) mine[i] = within(mean + contrast * (mine[i] - mean), 0.0f, white);
        __syncthreads();
        if (channels == 3 && (view[SATURATION] != 1.0f || view[HUE] != 0.0f || view[GREY] > 0.5f))
            MINE(i, plane) coloured(view, white, plane, mine + i);
        __syncthreads();
        if (view[BLUR] > 0.0f) MINE(i, d) room[i] = blurred(view[BLUR], height, width, mine, i);
        __syncthreads();
        MINE(i, d) {
            float value = view[BLUR] > 0.0f ? room[i] : mine[i];
            if (value >= view[SOLARISE] * white) value = white - value;
            mine[i] = disturbed((value - centre[i]) / scale, view, i);
        }
    }
}
