// What a training step does between matrix products, for CPUs with AVX512-BF16: attention with its rotation, norms,
// SwiGLU and the loss, forward and backward. Matrix products with weights are PyTorch's. Called through ctypes by
// fused.py, which holds the shapes; plain.py-like reference code is in model.py, and `python fused.py` compares both.
//
// Attention reads the fused projection `qkv` [rows * length, (n_heads + 2 * n_kv) * 64] in bf16 and goes by blocks of
// 64 queries x 64 keys. Matrices are kept in the two forms that the dot-product instruction wants, both as 32-bit
// pairs of bf16: "pairs of columns" (packed_t, for products over the head's 64 columns) and "pairs of rows"
// (packed_n, for products over positions).
#include <immintrin.h>
#include <omp.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {
using bf16 = uint16_t;
constexpr int D = 64;        // head size
constexpr int BLOCK = 64;    // queries and keys per block
constexpr int MAX_LEN = 1024;

inline __m512 load(const bf16* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}
inline __m512i bits(__m512 x) { return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x)); }
inline void store(bf16* p, __m512 x) { _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(x)); }
inline __m512i pair(__m512 low, __m512 high) { return _mm512_or_si512(bits(low), _mm512_slli_epi32(bits(high), 16)); }

// exp(x) to about 2 units in the last place; x <= 88.
inline __m512 exp512(__m512 x) {
    x = _mm512_max_ps(x, _mm512_set1_ps(-87.f));
    __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(1.44269504f));
    __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 f = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693147182f), x);
    __m512 p = _mm512_set1_ps(1.f / 720);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.f / 120));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.f / 24));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.f / 6));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.f));
    return _mm512_scalef_ps(p, n);
}

// acc[4 rows][64 columns] += A [4, 2n] * B [2n, 64]. Element (r, p) of A is a pair at a[r * row + p * step]; B is n
// lines of four vectors.
inline void product(__m512 acc[4][4], const uint32_t* a, long row, long step, const __m512i* b, int n) {
    for (int p = 0; p < n; p++) {
        const __m512bh b0 = (__m512bh)b[p * 4], b1 = (__m512bh)b[p * 4 + 1];
        const __m512bh b2 = (__m512bh)b[p * 4 + 2], b3 = (__m512bh)b[p * 4 + 3];
        for (int r = 0; r < 4; r++) {
            const __m512bh x = (__m512bh)_mm512_set1_epi32((int)a[r * row + p * step]);
            acc[r][0] = _mm512_dpbf16_ps(acc[r][0], x, b0);
            acc[r][1] = _mm512_dpbf16_ps(acc[r][1], x, b1);
            acc[r][2] = _mm512_dpbf16_ps(acc[r][2], x, b2);
            acc[r][3] = _mm512_dpbf16_ps(acc[r][3], x, b3);
        }
    }
}
inline void zero(__m512 acc[4][4]) {
    for (int r = 0; r < 4; r++)
        for (int j = 0; j < 4; j++) acc[r][j] = _mm512_setzero_ps();
}
// The same into memory: c [4, 64] f32 += A * B.
inline void product_into(float* c, const uint32_t* a, long row, long step, const __m512i* b, int n) {
    __m512 acc[4][4];
    for (int r = 0; r < 4; r++)
        for (int j = 0; j < 4; j++) acc[r][j] = _mm512_loadu_ps(c + r * D + j * 16);
    product(acc, a, row, step, b, n);
    for (int r = 0; r < 4; r++)
        for (int j = 0; j < 4; j++) _mm512_storeu_ps(c + r * D + j * 16, acc[r][j]);
}

// One head's row, rotated by its position (halves i, i + 32), times `scale`. `direction` -1 turns back.
inline void rotate(const __m512 in[4], __m512 out[4], const float* cos, const float* sin, float direction, float scale) {
    for (int j = 0; j < 2; j++) {
        const __m512 c = _mm512_mul_ps(_mm512_loadu_ps(cos + j * 16), _mm512_set1_ps(scale));
        const __m512 s = _mm512_mul_ps(_mm512_loadu_ps(sin + j * 16), _mm512_set1_ps(scale * direction));
        out[j] = _mm512_fmsub_ps(in[j], c, _mm512_mul_ps(in[j + 2], s));
        out[j + 2] = _mm512_fmadd_ps(in[j + 2], c, _mm512_mul_ps(in[j], s));
    }
}
inline void load_row(const bf16* p, __m512 x[4]) { for (int j = 0; j < 4; j++) x[j] = load(p + j * 16); }
inline void store_row(bf16* p, const __m512 x[4]) { for (int j = 0; j < 4; j++) store(p + j * 16, x[j]); }

// [n, 64] bf16 rows `stride` elements apart -> pairs of rows.
inline void pack_n(const bf16* rows, long stride, int n, __m512i* out) {
    for (int p = 0; p < n / 2; p++)
        for (int j = 0; j < 4; j++) {
            const __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(rows + 2 * p * stride + j * 16)));
            const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(rows + (2 * p + 1) * stride + j * 16)));
            out[p * 4 + j] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
        }
}
// [n, 64] bf16 rows -> for each block of 64 rows, pairs of columns.
inline void pack_t(const bf16* rows, long stride, int n, __m512i* out) {
    const __m512i lanes = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                             _mm512_set1_epi32((int)stride / 2));
    for (int block = 0; block < n / BLOCK; block++)
        for (int j = 0; j < 4; j++) {
            const int32_t* from = (const int32_t*)(rows + (block * BLOCK + j * 16) * stride);
            for (int p = 0; p < D / 2; p++) out[(block * 32 + p) * 4 + j] = _mm512_i32gather_epi32(lanes, from + p, 4);
        }
}

struct Shape {
    int rows, length, heads, kv;
    long width() const { return (long)(heads + 2 * kv) * D; }
};

// Buffers of one thread.
struct Scratch {
    alignas(64) __m512i kt[MAX_LEN * 2], kn[MAX_LEN * 2], vt[MAX_LEN * 2], qn[128], gn[128];
    alignas(64) bf16 k[MAX_LEN * D], q[BLOCK * D], p[4 * MAX_LEN], ds[BLOCK * BLOCK];
    alignas(64) float s[4 * MAX_LEN], dq[BLOCK * D], dk[MAX_LEN * D], dv[MAX_LEN * D], delta[BLOCK];
    alignas(64) uint32_t pairs_p[BLOCK / 2 * BLOCK], pairs_ds[BLOCK / 2 * BLOCK];
};
Scratch& scratch() {
    static thread_local std::vector<char> memory(sizeof(Scratch) + 64);
    return *(Scratch*)(((uintptr_t)memory.data() + 63) & ~(uintptr_t)63);
}

void rotate_rows(const bf16* in, long stride, bf16* out, const float* cos, const float* sin, int first, int n, float scale) {
    for (int i = 0; i < n; i++) {
        __m512 x[4], y[4];
        load_row(in + i * stride, x);
        rotate(x, y, cos + (first + i) * 32, sin + (first + i) * 32, 1.f, scale);
        store_row(out + i * D, y);
    }
}

// Keys [from, to) are seen by one query, of the block of keys at `base`, vector `j`.
inline __mmask16 seen(int base, int j, int from, int to) {
    const int a = std::clamp(from - base - j * 16, 0, 16), b = std::clamp(to - base - j * 16, 0, 16);
    return (__mmask16)(((1u << b) - 1) & ~((1u << a) - 1));
}

void attend(const Shape& s, const bf16* qkv, const int32_t* start, const float* cos, const float* sin, bf16* out,
            float* lse, int row, int kv) {
    Scratch& w = scratch();
    const long width = s.width(), out_width = (long)s.heads * D;
    const bf16* base = qkv + (long)row * s.length * width;
    start += row * s.length;
    rotate_rows(base + (s.heads + kv) * D, width, w.k, cos, sin, 0, s.length, 1.f);
    pack_t(w.k, D, s.length, w.kt);
    pack_n(base + (s.heads + s.kv + kv) * D, width, s.length, w.kn);  // values, here
    const int group = s.heads / s.kv;
    for (int head = kv * group; head < (kv + 1) * group; head++)
        for (int first = 0; first < s.length; first += BLOCK) {
            rotate_rows(base + first * width + head * D, width, w.q, cos, sin, first, BLOCK, 0.125f);
            const int low = start[first] / BLOCK * BLOCK, high = first + BLOCK;
            for (int i = 0; i < BLOCK; i += 4) {
                __m512 acc[4][4], max[4];
                for (int r = 0; r < 4; r++) max[r] = _mm512_set1_ps(-1e30f);
                for (int key = low; key < high; key += BLOCK) {
                    zero(acc);
                    product(acc, (const uint32_t*)w.q + i * 32, 32, 1, w.kt + key * 2, 32);
                    for (int r = 0; r < 4; r++)
                        for (int j = 0; j < 4; j++) {
                            const int at = first + i + r;
                            const __m512 x = _mm512_mask_mov_ps(_mm512_set1_ps(-1e30f), seen(key, j, start[at], at + 1), acc[r][j]);
                            max[r] = _mm512_max_ps(max[r], x);
                            _mm512_store_ps(w.s + r * MAX_LEN + key - low + j * 16, x);
                        }
                }
                float sum[4];
                for (int r = 0; r < 4; r++) {
                    const __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(max[r]));
                    __m512 total = _mm512_setzero_ps();
                    for (int key = 0; key < high - low; key += 16) {
                        const __m512 x = _mm512_sub_ps(_mm512_load_ps(w.s + r * MAX_LEN + key), top);
                        const __m512 p = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-1e29f), _CMP_GT_OQ), exp512(x));
                        total = _mm512_add_ps(total, p);
                        store(w.p + r * MAX_LEN + key, p);
                    }
                    sum[r] = _mm512_reduce_add_ps(total);
                    lse[((long)row * s.heads + head) * s.length + first + i + r] = _mm512_cvtss_f32(top) + std::log(sum[r]);
                }
                zero(acc);
                product(acc, (const uint32_t*)w.p, MAX_LEN / 2, 1, w.kn + low * 2, (high - low) / 2);
                for (int r = 0; r < 4; r++) {
                    bf16* to = out + ((long)row * s.length + first + i + r) * out_width + head * D;
                    for (int j = 0; j < 4; j++) store(to + j * 16, _mm512_mul_ps(acc[r][j], _mm512_set1_ps(1.f / sum[r])));
                }
            }
        }
}

// Probabilities and their gradients of one block, in the forms that the three products over it want.
void block_gradients(Scratch& w, const bf16* g, long g_width, const float* lse, const int32_t* start, int first, int key) {
    for (int i = 0; i < BLOCK; i += 4) {
        __m512 p[4][4], ds[4][4];
        zero(p), zero(ds);
        product(p, (const uint32_t*)w.q + i * 32, 32, 1, w.kt + key * 2, 32);
        product(ds, (const uint32_t*)(g + i * g_width), g_width / 2, 1, w.vt + key * 2, 32);
        for (int r = 0; r < 4; r++) {
            const int at = first + i + r;
            for (int j = 0; j < 4; j++) {
                p[r][j] = _mm512_maskz_mov_ps(seen(key, j, start[at], at + 1),
                                              exp512(_mm512_sub_ps(p[r][j], _mm512_set1_ps(lse[at]))));
                ds[r][j] = _mm512_mul_ps(p[r][j], _mm512_sub_ps(ds[r][j], _mm512_set1_ps(w.delta[i + r])));
                store(w.ds + (i + r) * BLOCK + j * 16, ds[r][j]);
            }
        }
        for (int r = 0; r < 4; r += 2)
            for (int j = 0; j < 4; j++) {
                _mm512_store_si512(w.pairs_p + (i + r) / 2 * BLOCK + j * 16, pair(p[r][j], p[r + 1][j]));
                _mm512_store_si512(w.pairs_ds + (i + r) / 2 * BLOCK + j * 16, pair(ds[r][j], ds[r + 1][j]));
            }
    }
}

void attend_backward(const Shape& s, const bf16* qkv, const bf16* out, const bf16* grad, const float* lse,
                     const int32_t* start, const float* cos, const float* sin, bf16* dqkv, int row, int kv) {
    Scratch& w = scratch();
    const long width = s.width(), out_width = (long)s.heads * D;
    const bf16* base = qkv + (long)row * s.length * width;
    bf16* to = dqkv + (long)row * s.length * width;
    start += row * s.length;
    rotate_rows(base + (s.heads + kv) * D, width, w.k, cos, sin, 0, s.length, 1.f);
    pack_t(w.k, D, s.length, w.kt);
    pack_n(w.k, D, s.length, w.kn);
    pack_t(base + (s.heads + s.kv + kv) * D, width, s.length, w.vt);
    std::memset(w.dk, 0, sizeof(float) * s.length * D);
    std::memset(w.dv, 0, sizeof(float) * s.length * D);
    const int group = s.heads / s.kv;
    for (int head = kv * group; head < (kv + 1) * group; head++)
        for (int first = 0; first < s.length; first += BLOCK) {
            const bf16* g = grad + ((long)row * s.length + first) * out_width + head * D;
            const bf16* o = out + ((long)row * s.length + first) * out_width + head * D;
            rotate_rows(base + first * width + head * D, width, w.q, cos, sin, first, BLOCK, 0.125f);
            pack_n(w.q, D, BLOCK, w.qn);
            pack_n(g, out_width, BLOCK, w.gn);
            for (int i = 0; i < BLOCK; i++) {
                __m512 sum = _mm512_setzero_ps();
                for (int j = 0; j < 4; j++)
                    sum = _mm512_fmadd_ps(load(g + i * out_width + j * 16), load(o + i * out_width + j * 16), sum);
                w.delta[i] = _mm512_reduce_add_ps(sum);
            }
            std::memset(w.dq, 0, sizeof w.dq);
            for (int key = start[first] / BLOCK * BLOCK; key <= first; key += BLOCK) {
                block_gradients(w, g, out_width, lse + ((long)row * s.heads + head) * s.length, start, first, key);
                for (int i = 0; i < BLOCK; i += 4) {
                    product_into(w.dv + (key + i) * D, w.pairs_p + i, 1, BLOCK, w.gn, 32);
                    product_into(w.dk + (key + i) * D, w.pairs_ds + i, 1, BLOCK, w.qn, 32);
                    product_into(w.dq + i * D, (const uint32_t*)w.ds + i * 32, 32, 1, w.kn + key * 2, 32);
                }
            }
            for (int i = 0; i < BLOCK; i++) {
                __m512 x[4], y[4];
                for (int j = 0; j < 4; j++) x[j] = _mm512_load_ps(w.dq + i * D + j * 16);
                rotate(x, y, cos + (first + i) * 32, sin + (first + i) * 32, -1.f, 0.125f);
                store_row(to + (first + i) * width + head * D, y);
            }
        }
    for (int i = 0; i < s.length; i++) {
        __m512 x[4], y[4];
        for (int j = 0; j < 4; j++) x[j] = _mm512_load_ps(w.dk + i * D + j * 16);
        rotate(x, y, cos + i * 32, sin + i * 32, -1.f, 1.f);
        store_row(to + i * width + (s.heads + kv) * D, y);
        for (int j = 0; j < 4; j++) x[j] = _mm512_load_ps(w.dv + i * D + j * 16);
        store_row(to + i * width + (s.heads + s.kv + kv) * D, x);
    }
}
}  // namespace

extern "C" {
// out [rows * length, heads * 64] and lse [rows, heads, length] of causal attention within documents; start [rows *
// length] is, for each position, the first of its document; cos and sin are [1024, 32].
void attention(const bf16* qkv, const int32_t* start, const float* cos, const float* sin, bf16* out, float* lse, int rows,
               int length, int heads, int kv) {
    const Shape s{rows, length, heads, kv};
#pragma omp parallel for schedule(dynamic, 1)
    for (int unit = 0; unit < rows * kv; unit++) attend(s, qkv, start, cos, sin, out, lse, unit / kv, unit % kv);
}

// dqkv, from the gradient of out.
void attention_backward(const bf16* qkv, const bf16* out, const bf16* grad, const float* lse, const int32_t* start,
                        const float* cos, const float* sin, bf16* dqkv, int rows, int length, int heads, int kv) {
    const Shape s{rows, length, heads, kv};
#pragma omp parallel for schedule(dynamic, 1)
    for (int unit = 0; unit < rows * kv; unit++)
        attend_backward(s, qkv, out, grad, lse, start, cos, sin, dqkv, unit / kv, unit % kv);
}

// sum = x + y (y may be null), h = sum / rms(sum) * weight. All [n, dim]; scale [n] is 1 / rms.
void add_norm(const float* x, const bf16* y, const float* weight, float* sum, bf16* h, float* scale, long n, int dim, float eps) {
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        __m512 squares = _mm512_setzero_ps();
        for (int j = 0; j < dim; j += 16) {
            __m512 v = _mm512_loadu_ps(x + i * dim + j);
            if (y) v = _mm512_add_ps(v, load(y + i * dim + j));
            _mm512_storeu_ps(sum + i * dim + j, v);
            squares = _mm512_fmadd_ps(v, v, squares);
        }
        scale[i] = 1.f / std::sqrt(_mm512_reduce_add_ps(squares) / dim + eps);
        for (int j = 0; j < dim; j += 16)
            store(h + i * dim + j, _mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(sum + i * dim + j), _mm512_set1_ps(scale[i])),
                                                 _mm512_loadu_ps(weight + j)));
    }
}

// dx [n, dim] += what came through the norm (dx is set where `fresh`), dy its bf16 copy, dweight [dim] += its gradient.
void add_norm_backward(const bf16* dh, const float* sum, const float* scale, const float* weight, float* dx, bf16* dy,
                       float* dweight, long n, int dim, int fresh) {
#pragma omp parallel
    {
        std::vector<float> local(dim, 0.f);
#pragma omp for
        for (long i = 0; i < n; i++) {
            const __m512 r = _mm512_set1_ps(scale[i]);
            __m512 dot = _mm512_setzero_ps();
            for (int j = 0; j < dim; j += 16) {
                const __m512 g = load(dh + i * dim + j), unit = _mm512_mul_ps(_mm512_loadu_ps(sum + i * dim + j), r);
                _mm512_storeu_ps(&local[j], _mm512_fmadd_ps(g, unit, _mm512_loadu_ps(&local[j])));
                dot = _mm512_fmadd_ps(_mm512_mul_ps(g, _mm512_loadu_ps(weight + j)), unit, dot);
            }
            const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(dot) / dim);
            for (int j = 0; j < dim; j += 16) {
                const __m512 g = load(dh + i * dim + j), unit = _mm512_mul_ps(_mm512_loadu_ps(sum + i * dim + j), r);
                __m512 v = _mm512_mul_ps(r, _mm512_fnmadd_ps(unit, mean, _mm512_mul_ps(g, _mm512_loadu_ps(weight + j))));
                if (!fresh) v = _mm512_add_ps(v, _mm512_loadu_ps(dx + i * dim + j));
                _mm512_storeu_ps(dx + i * dim + j, v);
                store(dy + i * dim + j, v);
            }
        }
#pragma omp critical
        for (int j = 0; j < dim; j++) dweight[j] += local[j];
    }
}

// gate_up [n, 2 * dim] -> silu(gate) * up [n, dim].
void swiglu(const bf16* gate_up, bf16* out, long n, int dim) {
#pragma omp parallel for
    for (long i = 0; i < n; i++)
        for (int j = 0; j < dim; j += 16) {
            const __m512 g = load(gate_up + i * 2 * dim + j), u = load(gate_up + i * 2 * dim + dim + j);
            const __m512 e = exp512(_mm512_min_ps(_mm512_sub_ps(_mm512_setzero_ps(), g), _mm512_set1_ps(80.f)));
            store(out + i * dim + j, _mm512_div_ps(_mm512_mul_ps(g, u), _mm512_add_ps(e, _mm512_set1_ps(1.f))));
        }
}

// In place: gate_up becomes its gradient.
void swiglu_backward(bf16* gate_up, const bf16* grad, long n, int dim) {
    const __m512 one = _mm512_set1_ps(1.f);
#pragma omp parallel for
    for (long i = 0; i < n; i++)
        for (int j = 0; j < dim; j += 16) {
            const __m512 g = load(gate_up + i * 2 * dim + j), u = load(gate_up + i * 2 * dim + dim + j);
            const __m512 e = exp512(_mm512_min_ps(_mm512_sub_ps(_mm512_setzero_ps(), g), _mm512_set1_ps(80.f)));
            const __m512 sigmoid = _mm512_div_ps(one, _mm512_add_ps(e, one)), d = load(grad + i * dim + j);
            const __m512 slope = _mm512_mul_ps(sigmoid, _mm512_fmadd_ps(g, _mm512_sub_ps(one, sigmoid), one));
            store(gate_up + i * 2 * dim + j, _mm512_mul_ps(_mm512_mul_ps(d, u), slope));
            store(gate_up + i * 2 * dim + dim + j, _mm512_mul_ps(d, _mm512_mul_ps(g, sigmoid)));
        }
}

// Cross entropy. In place: logits [n, vocab] become the gradient of sum(weight * loss); loss [n] is unweighted.
void cross_entropy(bf16* logits, const int32_t* target, const float* weight, float* loss, long n, int vocab) {
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        bf16* row = logits + i * vocab;
        uint32_t raw = (uint32_t)row[target[i]] << 16;
        float at_target;
        std::memcpy(&at_target, &raw, 4);
        __m512 max = load(row), sum = _mm512_setzero_ps();
        for (int j = 16; j < vocab; j += 16) max = _mm512_max_ps(max, load(row + j));
        const __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(max));
        for (int j = 0; j < vocab; j += 16) sum = _mm512_add_ps(sum, exp512(_mm512_sub_ps(load(row + j), top)));
        const float lse = _mm512_cvtss_f32(top) + std::log(_mm512_reduce_add_ps(sum));
        loss[i] = lse - at_target;
        const __m512 shift = _mm512_set1_ps(lse), w = _mm512_set1_ps(weight[i]);
        for (int j = 0; j < vocab; j += 16) store(row + j, _mm512_mul_ps(w, exp512(_mm512_sub_ps(load(row + j), shift))));
        const __m512 g = _mm512_set1_ps(weight[i] * (std::exp(-loss[i]) - 1.f));
        row[target[i]] = (bf16)_mm512_cvtsi512_si32(bits(g));
    }
}
}
