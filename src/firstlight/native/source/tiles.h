// Attention of many rows of one request: tiles of queries against blocks of keys.
//
// A block of keys is laid out as the weight of a linear layer once for all rows of a tile, and so is
// a block of values; both products then are what linear layers compute. Softmax goes along (Milakov
// and Gimelshein 2018, arXiv:1805.02867). Blocks begin at fixed positions of the context, so that a
// row's result does not depend on the rows beside it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention.h"
#include "codes.h"
#include "linear.h"
#include "vectors.h"

namespace firstlight {

constexpr int KEYS = 64;           // of a block
constexpr int QUERIES = 64;        // rows of a tile times heads that share keys

inline std::int64_t tile_rows(std::int64_t group) {
  return std::max<std::int64_t>(1, QUERIES / group);
}

// Memory of a tile; queries are rows times heads of the group, row by row.
template <class T>
struct TileMemory {
  std::vector<T> q, keys, values, weights;
  std::vector<float> scores, sums, most, total;

  void fit(std::int64_t queries, std::int64_t key_dim, std::int64_t wide) {
    grow(q, queries * key_dim);
    grow(keys, KEYS * key_dim);
    grow(values, KEYS * wide);
    grow(weights, queries * KEYS);
    grow(scores, queries * KEYS);
    grow(sums, queries * wide);
    grow(most, queries);
    grow(total, queries);
  }
  template <class V>
  static void grow(std::vector<V>& v, std::int64_t n) {
    if (std::int64_t(v.size()) < n) v.resize(n);
  }
};

// y[rows, P * 16] (float32) = x[rows, k] times panels of k values each.
template <class T, int P>
inline void product(const T* x, std::int64_t ldx, std::int64_t rows, const T* panels,
                    std::int64_t k, float* y, std::int64_t ldy) {
  Linear<T>::several(0, rows, [&]<int R>(std::int64_t r) {
    f32x16 acc[R][P] = {};
    accumulate<T, R, P>(acc, x + r * ldx, ldx, (const char*)panels, k * LANES * sizeof(T), k);
    for (int i = 0; i < R; ++i)
      for (int p = 0; p < P; ++p) store(y + (r + i) * ldy + p * LANES, acc[i][p]);
  });
}

template <class T>
inline void products(const T* x, std::int64_t ldx, std::int64_t rows, const T* panels,
                     std::int64_t count, std::int64_t k, float* y, std::int64_t ldy) {
  std::int64_t p = 0;
  for (; p + 2 <= count; p += 2)
    product<T, 2>(x, ldx, rows, panels + p * k * LANES, k, y + p * LANES, ldy);
  if (p < count) product<T, 1>(x, ldx, rows, panels + p * k * LANES, k, y + p * LANES, ldy);
}

template <class T>
struct Tile {
  const Attend& a;
  TileMemory<T>& m;
  std::int64_t request_row;  // first row of the tile in q and out
  std::int64_t rows, kv;
  std::int64_t queries, wide;

  Tile(const Attend& attend, TileMemory<T>& memory, std::int64_t first, std::int64_t n,
       std::int64_t head)
      : a(attend), m(memory), request_row(first), rows(n), kv(head), queries(n * attend.group),
        wide(attend.wide()) {
    m.fit(queries, a.key_dim, wide);
  }

  void run() {
    Attend::Sight first = a.sight(request_row);
    std::int64_t begin = first.begin, end = 0;
    for (std::int64_t r = 0; r < rows; ++r) end = std::max(end, a.sight(request_row + r).end);
    take_queries();
    std::fill_n(m.sums.data(), queries * wide, 0.0f);
    std::fill_n(m.total.data(), queries, 0.0f);
    std::fill_n(m.most.data(), queries, -std::numeric_limits<float>::infinity());
    for (std::int64_t b = begin / KEYS * KEYS; b < end; b += KEYS) {
      lay_out(first, b, begin, end);
      products(m.q.data(), a.key_dim, queries, m.keys.data(), KEYS / LANES, a.key_dim,
               m.scores.data(), KEYS);
      soften_block(b);
      add_values();
    }
    put_results();
  }

 private:
  void take_queries() {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t g = 0; g < a.group; ++g) {
        const T* from = (const T*)a.i.p[0] + (request_row + r) * a.i.n[5] +
                        (kv * a.group + g) * a.i.n[6];
        std::copy_n(from, a.key_dim, m.q.data() + (r * a.group + g) * a.key_dim);
      }
  }

  // Keys of positions [b, b + KEYS) as panels over the key's columns, values as panels over keys;
  // what lies outside of [begin, end) is zero.
  void lay_out(const Attend::Sight& s, std::int64_t b, std::int64_t begin, std::int64_t end) {
    constexpr int STEP = Along<T>::K;
    const T* keys = (const T*)a.i.p[1] + kv * a.i.n[8];
    const T* values = (const T*)a.i.p[2] + kv * a.i.n[10];
    std::fill_n((char*)m.keys.data(), KEYS * a.key_dim * sizeof(T), 0);
    for (std::int64_t j = std::max(b, begin); j < std::min(b + KEYS, end); ++j) {
      std::int64_t slot = a.slot_of(s, j), at = j - b;
      const T* key = keys + slot * a.i.n[7];
      T* to = m.keys.data() + at / LANES * a.key_dim * LANES + at % LANES * STEP;
      for (std::int64_t c = 0; c < a.key_dim; c += STEP)
        std::memcpy(to + c * LANES, key + c, STEP * sizeof(T));
    }
    for (std::int64_t at = 0; at < KEYS; at += STEP) {
      const T* rows_of_step[STEP];
      for (int i = 0; i < STEP; ++i) {
        std::int64_t j = b + at + i;
        rows_of_step[i] = j < begin || j >= end ? nullptr : values + a.slot_of(s, j) * a.i.n[9];
      }
      along(a.value_dim, [&](std::int64_t c, int live) {
        put_values(rows_of_step, c, live, m.values.data() + (c / LANES * KEYS + at) * LANES);
      });
    }
  }

  // Sixteen columns of one value, or of two neighbours, as a panel holds them; null is zeros.
  static void put_values(const float* const (&from)[1], std::int64_t c, int live, float* to) {
    store16(to, from[0] ? take(from[0] + c, live) : f32x16{});
  }
  static void put_values(const bf16* const (&from)[2], std::int64_t c, int live, bf16* to) {
    u32x16 even = (u32x16)(from[0] ? take(from[0] + c, live) : f32x16{});
    u32x16 odd = (u32x16)(from[1] ? take(from[1] + c, live) : f32x16{});
    store(to, even >> 16 | odd);
  }

  // Scores of a block become weights; what was summed up before shrinks with a new maximum.
  void soften_block(std::int64_t b) {
    for (std::int64_t r = 0; r < rows; ++r) {
      Attend::Sight s = a.sight(request_row + r);
      std::int64_t low = std::clamp<std::int64_t>(s.begin - b, 0, KEYS);
      std::int64_t high = std::clamp<std::int64_t>(s.end - b, 0, KEYS);
      for (std::int64_t g = 0; g < a.group; ++g) soften_row(r * a.group + g, low, high);
    }
  }

  void soften_row(std::int64_t query, std::int64_t low, std::int64_t high) {
    float* scores = m.scores.data() + query * KEYS;
    T* weights = m.weights.data() + query * KEYS;
    if (low >= high) {
      std::fill_n((char*)weights, KEYS * sizeof(T), 0);
      return;
    }
    const float none = -std::numeric_limits<float>::infinity();
    bool cut = low > 0 || high < KEYS;
    f32x16 v[KEYS / LANES], highest = splat(none), total{};
    for (int c = 0; c < KEYS / LANES; ++c) {
      v[c] = load16(scores + c * LANES) * float(a.i.f[0]);
      if (cut) v[c] = seen(c, low, high) ? v[c] : splat(none);
      highest = v[c] > highest ? v[c] : highest;
    }
    float before = m.most[query], most = std::max(before, largest(highest));
    for (int c = 0; c < KEYS / LANES; ++c) {
      f32x16 e = exp(v[c] - most);
      if (cut) e = seen(c, low, high) ? e : f32x16{};
      store16(weights + c * LANES, e);
      total += e;
    }
    m.most[query] = most;
    float shrink = std::exp(before - most);
    m.total[query] = m.total[query] * shrink + sum(total);
    if (shrink == 1.0f) return;
    float* sums = m.sums.data() + query * wide;
    for (std::int64_t c = 0; c < wide; c += LANES) store16(sums + c, load16(sums + c) * shrink);
  }

  // Which lanes of the c-th vector of a block are in [low, high).
  static i32x16 seen(int c, std::int64_t low, std::int64_t high) {
    const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    i32x16 at = lane + c * LANES;
    return (at >= int(low)) & (at < int(high));
  }

  void add_values() {
    std::int64_t panels = wide / LANES;
    for (std::int64_t p = 0; p < panels; ++p) {
      float part[QUERIES * LANES];
      for (std::int64_t q = 0; q < queries; q += QUERIES) {
        std::int64_t n = std::min<std::int64_t>(QUERIES, queries - q);
        product<T, 1>(m.weights.data() + q * KEYS, KEYS, n, m.values.data() + p * KEYS * LANES,
                      KEYS, part, LANES);
        for (std::int64_t r = 0; r < n; ++r) {
          float* sums = m.sums.data() + (q + r) * wide + p * LANES;
          store16(sums, load16(sums) + load16(part + r * LANES));
        }
      }
    }
  }

  void put_results() {
    for (std::int64_t q = 0; q < queries; ++q) {
      std::int64_t head = kv * a.group + q % a.group, row = request_row + q / a.group;
      T* out = (T*)a.i.p[7] + (row * a.kv_heads * a.group + head) * a.value_dim;
      const float* sums = m.sums.data() + q * wide;
      along(a.value_dim, [&](std::int64_t c, int live) {
        put(out + c, load16(sums + c) / m.total[q], live);
      });
    }
  }
};

// A piece is a head of keys and the rows of one tile, as far as they belong to long requests.
template <class T>
void attend_tiles(const Instruction& i, std::uint32_t piece) {
  static thread_local TileMemory<T> memory;
  Attend a(i);
  std::int64_t each = tile_rows(a.group), kv = piece % a.kv_heads;
  std::int64_t begin = piece / a.kv_heads * each, end = std::min(begin + each, a.rows);
  const auto* facts = (const std::int64_t*)i.p[4];
  for (std::int64_t r = 0; r < a.requests && facts[1] != 0; ++r, facts += 4) {
    if (facts[1] < FEWEST_ROWS) continue;
    std::int64_t from = std::max(begin, facts[0]), to = std::min(end, facts[0] + facts[1]);
    if (from < to) Tile<T>(a, memory, from, to - from, kv).run();
  }
}

}  // namespace firstlight
