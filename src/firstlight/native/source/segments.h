// Attention within segments of a batch of rows: each row sees all rows of its own segment.
//
// Encoders of pictures attend so: the patches of several pictures, or of the windows of one, lie one
// behind the other, and `bounds` says where each begins. Keys and values are laid out once a head,
// each segment from a panel of its own on, so that a row's result does not depend on what stands
// before its segment. Then tiles of queries meet blocks of keys; softmax goes along (Milakov and
// Gimelshein 2018, arXiv:1805.02867). Rows behind the last segment become zero.
//
// n: rows, heads, key dim, value dim, strides of q (row, head), of k, of v, segments, rows of a
// segment if there are no bounds, stride of cos and sin. f: scale. p: q, k, v, cos and sin (float32
// [rows, key dim], or null), bounds (int32 [segments + 1], ascending, or null), memory, out.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "codes.h"
#include "elementwise.h"
#include "instruction.h"
#include "vectors.h"

namespace firstlight {

constexpr int SEGMENT_TILE = 96;                // rows of a piece, a multiple of six
constexpr int KEY_VECTORS = 4;                  // of a block of keys
constexpr int SEGMENT_KEYS = KEY_VECTORS * LANES;
constexpr int TURNED = 512;                     // columns of a head that there is room for

inline std::int64_t whole(std::int64_t n) { return (n + LANES - 1) / LANES * LANES; }

// Where rows and segments are, and where a segment's keys and values are laid out.
template <class T>
struct Segments {
  const Instruction& i;
  std::int64_t rows, heads, key_dim, value_dim, count, each;
  const std::int32_t* bounds;

  explicit Segments(const Instruction& from)
      : i(from), rows(from.n[0]), heads(from.n[1]), key_dim(from.n[2]), value_dim(from.n[3]),
        count(from.n[10]), each(from.n[11]), bounds((const std::int32_t*)from.p[5]) {}

  std::int64_t tiles() const { return (rows + SEGMENT_TILE - 1) / SEGMENT_TILE; }

  // Bounds are data of a batch: whatever they hold, nothing beyond the rows is touched.
  std::int64_t bound(std::int64_t s) const {
    return bounds == nullptr ? s * each : std::clamp<std::int64_t>(bounds[s], 0, rows);
  }
  // The first segment that ends behind `row`; `count` if there is none.
  std::int64_t segment_of(std::int64_t row) const {
    std::int64_t low = 0, high = count;
    while (low < high) {
      std::int64_t middle = (low + high) / 2;
      if (bound(middle + 1) > row) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  // Keys before a segment's own, in whole panels: enough for all segments before it.
  std::int64_t place(std::int64_t s) const { return whole(bound(s)) + s * LANES; }
  std::int64_t room() const { return whole(rows) + (count + 1) * LANES; }
  T* keys(std::int64_t head, std::int64_t s) const {
    return (T*)i.p[6] + head * room() * key_dim + place(s) * key_dim;
  }
  T* values(std::int64_t head, std::int64_t s) const {
    return (T*)i.p[6] + heads * room() * key_dim + (head * room() + place(s)) * whole(value_dim);
  }

  // A head of a row of q (which = 0) or k (1), turned in float32 if there are cosines.
  void take_head(int which, std::int64_t row, std::int64_t head, T* result) const {
    const T* from = (const T*)i.p[which] + row * i.n[4 + 2 * which] + head * i.n[5 + 2 * which];
    if (i.p[3] == nullptr) {
      std::copy_n(from, key_dim, result);
      return;
    }
    const float* cos = (const float*)i.p[3] + row * i.n[12];
    const float* sin = (const float*)i.p[4] + row * i.n[12];
    std::int64_t half = key_dim / 2;
    if (half % LANES == 0) {
      for (std::int64_t c = 0; c < half; c += LANES) {
        f32x16 low = load16(from + c), high = load16(from + half + c);
        store16(result + c, low * load16(cos + c) - high * load16(sin + c));
        store16(result + half + c, high * load16(cos + half + c) + low * load16(sin + half + c));
      }
      return;
    }
    for (std::int64_t c = 0; c < half; ++c) {
      float low = widen(from[c]), high = widen(from[half + c]);
      narrow(low * cos[c] - high * sin[c], result + c);
      narrow(high * cos[half + c] + low * sin[half + c], result + half + c);
    }
  }
};

// Sixteen columns of one value, or of two neighbours, as a panel holds them; null is zeros.
inline void put_step(const float* const (&from)[1], std::int64_t c, int live, float* to) {
  store16(to, from[0] ? take(from[0] + c, live) : f32x16{});
}
inline void put_step(const bf16* const (&from)[2], std::int64_t c, int live, bf16* to) {
  u32x16 even = (u32x16)(from[0] ? take(from[0] + c, live) : f32x16{});
  u32x16 odd = (u32x16)(from[1] ? take(from[1] + c, live) : f32x16{});
  store(to, even >> 16 | odd);
}

// Keys of one head as panels of sixteen over the columns, values as panels of sixteen columns over
// sixteen keys. What a last panel lacks is zero.
template <class T>
struct SegmentPanels {
  static constexpr int STEP = Along<T>::K;
  const Segments<T>& a;
  std::int64_t head;

  // The key at place `at` of segment s; row -1 is zeros.
  void key(std::int64_t s, std::int64_t at, std::int64_t row) const {
    T flat[TURNED];
    if (row < 0) std::fill_n(flat, a.key_dim, T{});
    else a.take_head(1, row, head, flat);
    T* to = a.keys(head, s) + at / LANES * LANES * a.key_dim + at % LANES * STEP;
    for (std::int64_t c = 0; c < a.key_dim; c += STEP)
      std::memcpy(to + c * LANES, flat + c, STEP * sizeof(T));
  }

  // The values from place `at` on that one step of a product takes; those of row and behind it.
  void value(std::int64_t s, std::int64_t at, std::int64_t row, std::int64_t live_rows) const {
    const T* from[STEP];
    for (int k = 0; k < STEP; ++k)
      from[k] = k >= live_rows ? nullptr
                               : (const T*)a.i.p[2] + (row + k) * a.i.n[8] + head * a.i.n[9];
    std::int64_t columns = whole(a.value_dim);
    T* to = a.values(head, s) + at / LANES * LANES * columns + at % LANES * LANES;
    for (std::int64_t c = 0; c < columns; c += LANES)
      put_step(from, c, int(std::min<std::int64_t>(LANES, a.value_dim - c)), to + c * LANES);
  }
};

// A piece is a head and a tile of rows. A step of values belongs to its first row's piece.
template <class T>
void lay_out_segments(const Instruction& i, std::uint32_t piece) {
  constexpr int STEP = Along<T>::K;
  Segments<T> a(i);
  std::int64_t begin = piece % a.tiles() * SEGMENT_TILE;
  std::int64_t end = std::min(begin + SEGMENT_TILE, a.rows), s = a.segment_of(begin);
  SegmentPanels<T> panels{a, piece / a.tiles()};
  for (std::int64_t row = begin; row < end; ++row) {
    while (s < a.count && a.bound(s + 1) <= row) ++s;
    if (s == a.count) return;
    if (row < a.bound(s)) continue;
    std::int64_t at = row - a.bound(s), last = a.bound(s + 1) - a.bound(s);
    panels.key(s, at, row);
    if (at % STEP == 0) panels.value(s, at, row, last - at);
    if (at + 1 < last) continue;
    for (std::int64_t pad = last; pad < whole(last); ++pad) {
      panels.key(s, pad, -1);
      if (pad % STEP == 0) panels.value(s, pad, row, 0);
    }
  }
}

// The largest of sixteen, in four steps.
inline float most_of(f32x16 v) {
  v = larger(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  v = larger(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  return v[0];
}

template <class T>
struct SegmentMemory {
  std::vector<T> q, weights;
  std::vector<float> scores, sums, most, total, shrink;

  void fit(std::int64_t key_dim, std::int64_t wide) {
    q.resize(SEGMENT_TILE * key_dim);
    weights.resize(SEGMENT_TILE * SEGMENT_KEYS);
    scores.resize(SEGMENT_TILE * SEGMENT_KEYS);
    sums.resize(SEGMENT_TILE * wide);
    most.resize(SEGMENT_TILE);
    shrink.resize(SEGMENT_TILE);
    total.resize(SEGMENT_TILE * LANES);
  }
};

// Some rows of one segment against all of its keys.
template <class T>
struct SegmentTile {
  static constexpr int STEP = Along<T>::K;
  const Segments<T>& a;
  SegmentMemory<T>& m;
  std::int64_t head, first, rows, s, wide;

  void run() {
    std::int64_t length = a.bound(s + 1) - a.bound(s);
    const T* keys = a.keys(head, s);
    const T* values = a.values(head, s);
    take_queries();
    std::fill_n(m.sums.data(), rows * wide, 0.0f);
    std::fill_n(m.total.data(), rows * LANES, 0.0f);
    std::fill_n(m.most.data(), rows, -std::numeric_limits<float>::infinity());
    for (std::int64_t b = 0; b < length; b += SEGMENT_KEYS) {
      int live = int(std::min<std::int64_t>(SEGMENT_KEYS, length - b));
      const T* block = keys + b * a.key_dim;
      switch ((live + LANES - 1) / LANES) {
        case 4: score<4>(block); soften<4>(live); break;
        case 3: score<3>(block); soften<3>(live); break;
        case 2: score<2>(block); soften<2>(live); break;
        default: score<1>(block); soften<1>(live);
      }
      weigh(values + b * wide, live);
    }
    put_results();
  }

  void take_queries() {
    for (std::int64_t r = 0; r < rows; ++r)
      a.take_head(0, first + r, head, m.q.data() + r * a.key_dim);
  }

  template <class Fn>
  void several(Fn fn) const {
    std::int64_t r = 0;
    for (; r + 6 <= rows; r += 6) fn.template operator()<6>(r);
    for (; r + 2 <= rows; r += 2) fn.template operator()<2>(r);
    if (r < rows) fn.template operator()<1>(r);
  }

  // Scores with V vectors of keys.
  template <int V>
  void score(const T* keys) {
    several([&]<int R>(std::int64_t r) {
      f32x16 acc[R][V] = {};
      const T* q = m.q.data() + r * a.key_dim;
      for (std::int64_t c = 0; c < a.key_dim; c += STEP) {
        typename Along<T>::Weight w[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v)
          w[v] = load<typename Along<T>::Weight>(keys + v * LANES * a.key_dim + c * LANES);
#pragma GCC unroll 6
        for (int k = 0; k < R; ++k)
#pragma GCC unroll 4
          for (int v = 0; v < V; ++v)
            acc[k][v] = Along<T>::add(acc[k][v], w[v], q + k * a.key_dim + c);
      }
      for (int k = 0; k < R; ++k)
        for (int v = 0; v < V; ++v)
          store(m.scores.data() + (r + k) * SEGMENT_KEYS + v * LANES, acc[k][v]);
    });
  }

  // Scores become weights; what was summed up before will shrink with a new maximum.
  template <int V>
  void soften(int live) {
    const float none = -std::numeric_limits<float>::infinity();
    const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    i32x16 seen = lane < live - (V - 1) * LANES;
    const float scale = float(a.i.f[0]) * 1.44269504f;
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* scores = m.scores.data() + r * SEGMENT_KEYS;
      T* weights = m.weights.data() + r * SEGMENT_KEYS;
      f32x16 v[V];
      for (int c = 0; c < V; ++c) v[c] = load16(scores + c * LANES) * scale;
      v[V - 1] = seen ? v[V - 1] : splat(none);
      f32x16 highest = v[0];
      for (int c = 1; c < V; ++c) highest = larger(highest, v[c]);
      float before = m.most[r], most = std::max(before, most_of(highest));
      f32x16 total{};
      for (int c = 0; c < V; ++c) {
        f32x16 e = power_of_two(v[c] - most);
        if (c == V - 1) e = seen ? e : f32x16{};
        store16(weights + c * LANES, e);
        total += e;
      }
      float shrink = before == most ? 1.0f : power_of_two(splat(before - most))[0];
      m.most[r] = most, m.shrink[r] = shrink;
      float* sum = m.total.data() + r * LANES;
      store16(sum, load16(sum) * shrink + total);
    }
  }

  // Adds the block's values, sixteen columns and P panels of them at a time.
  template <int P>
  void weigh(const T* values, std::int64_t steps, std::int64_t column) {
    several([&]<int R>(std::int64_t r) {
      f32x16 acc[R][P];
      float* sums = m.sums.data() + r * wide + column;
      for (int k = 0; k < R; ++k)
        for (int p = 0; p < P; ++p)
          acc[k][p] = load16(sums + k * wide + p * LANES) * m.shrink[r + k];
      const T* x = m.weights.data() + r * SEGMENT_KEYS;
      for (std::int64_t at = 0; at < steps; at += STEP) {
        const T* from = values + at / LANES * LANES * wide + column * LANES + at % LANES * LANES;
        typename Along<T>::Weight w[P];
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p)
          w[p] = load<typename Along<T>::Weight>(from + p * LANES * LANES);
#pragma GCC unroll 6
        for (int k = 0; k < R; ++k)
#pragma GCC unroll 4
          for (int p = 0; p < P; ++p)
            acc[k][p] = Along<T>::add(acc[k][p], w[p], x + k * SEGMENT_KEYS + at);
      }
      for (int k = 0; k < R; ++k)
        for (int p = 0; p < P; ++p) store16(sums + k * wide + p * LANES, acc[k][p]);
    });
  }

  void weigh(const T* values, int live) {
    std::int64_t column = 0, steps = (live + STEP - 1) / STEP * STEP;
    for (; column + 4 * LANES <= wide; column += 4 * LANES) weigh<4>(values, steps, column);
    switch ((wide - column) / LANES) {
      case 3: return weigh<3>(values, steps, column);
      case 2: return weigh<2>(values, steps, column);
      case 1: return weigh<1>(values, steps, column);
    }
  }

  void put_results() {
    for (std::int64_t r = 0; r < rows; ++r) {
      T* out = (T*)a.i.p[7] + ((first + r) * a.heads + head) * a.value_dim;
      const float* sums = m.sums.data() + r * wide;
      float total = sum(load16(m.total.data() + r * LANES));
      along(a.value_dim,
            [&](std::int64_t c, int live) { put(out + c, load16(sums + c) / total, live); });
    }
  }
};

// A piece is a head and a tile of rows, whatever segments they belong to.
template <class T>
void attend_segments(const Instruction& i, std::uint32_t piece) {
  static thread_local SegmentMemory<T> memory;
  Segments<T> a(i);
  std::int64_t head = piece / a.tiles(), row = piece % a.tiles() * SEGMENT_TILE;
  std::int64_t end = std::min(row + SEGMENT_TILE, a.rows), wide = whole(a.value_dim);
  memory.fit(a.key_dim, wide);
  auto blank = [&](std::int64_t to) {
    for (; row < to; ++row)
      std::fill_n((T*)i.p[7] + (row * a.heads + head) * a.value_dim, a.value_dim, T{});
  };
  for (std::int64_t s = a.segment_of(row); s < a.count && row < end; ++s) {
    blank(std::min(end, a.bound(s)));
    std::int64_t stop = std::min(end, a.bound(s + 1));
    if (row < stop) SegmentTile<T>{a, memory, head, row, stop - row, s, wide}.run();
    row = std::max(row, stop);
  }
  blank(end);
}

}  // namespace firstlight
