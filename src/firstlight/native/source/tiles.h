// Attention of many rows of one request: tiles of queries against blocks of keys.
//
// Queries lie in lanes: sixteen of them, rows times heads that share keys, make a panel, as sixteen
// outputs do in a linear layer. Scores are keys times panels of queries, with the keys as memory
// holds them; sums are columns of values times panels of weights. So a maximum or a sum of a softmax
// crosses no lanes. It goes along with the blocks (Milakov and Gimelshein 2018, arXiv:1805.02867),
// in powers of two. Blocks begin at fixed positions of the context, and a lane is computed as if
// alone, so that a row's result does not depend on the rows beside it.
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

constexpr int KEYS = 64;                            // of a block
constexpr int MOST_PANELS = 3;                      // of a tile: with eight rows, 24 accumulators
constexpr int MOST_QUERIES = MOST_PANELS * LANES;   // of a tile

inline std::int64_t tile_rows(std::int64_t group) {
  return std::max<std::int64_t>(1, MOST_QUERIES / group);
}

// Sixteen lanes of 32 bits: floats, or pairs of bfloat16.
struct alignas(64) Line {
  std::uint32_t lanes[LANES];
};

// Memory of a tile; lines of its panels lie beside each other.
struct TileMemory {
  std::vector<Line> q;        // [steps of the key][panels]
  std::vector<Line> keys;     // [KEYS][key_dim], of keys that lie apart
  std::vector<Line> values;   // [steps of KEYS][wide] words
  std::vector<Line> scores;   // [KEYS][panels]
  std::vector<Line> weights;  // [steps of KEYS][panels]
  std::vector<Line> sums;     // [wide][panels]

  void fit(std::int64_t key_dim, std::int64_t wide) {
    grow(q, (key_dim + LANES) * MOST_PANELS);
    grow(keys, KEYS * key_dim / LANES + 1);
    grow(values, KEYS * wide / LANES);
    grow(scores, KEYS * MOST_PANELS);
    grow(weights, KEYS * MOST_PANELS);
    grow(sums, wide * MOST_PANELS);
  }
  static void grow(std::vector<Line>& v, std::int64_t n) {
    if (std::int64_t(v.size()) < n) v.resize(n);
  }
};

// Adds to R times P accumulators: numbers of x, `row` elements from each other for the rows and
// `step` along k, times lines of P panels.
template <class T, int R, int P>
inline void add_products(f32x16 (&acc)[R][P], const T* x, std::int64_t row, std::int64_t step,
                         const Line* panels, std::int64_t steps) {
  using Step = Along<T>;
  for (std::int64_t s = 0; s < steps; ++s) {
    typename Step::Weight w[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) w[p] = load<typename Step::Weight>(panels + s * P + p);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) acc[r][p] = Step::add(acc[r][p], w[p], x + r * row + s * step);
  }
}

inline void put_words(Line* to, f32x16 (&of)[1]) { store(to, of[0]); }
inline void put_words(Line* to, f32x16 (&of)[2]) { store(to, as_pairs(of[0], of[1])); }

// Some rows of one request and heads that share keys, in P panels.
template <class T, int P>
class Tile {
 public:
  // Rows [first, first + rows) of q, `heads` of the group from `head` on.
  Tile(const Attend& attend, TileMemory& memory, std::int64_t first, std::int64_t rows,
       std::int64_t kv, std::int64_t head, std::int64_t heads)
      : a(attend), m(memory), first_(first), kv_(kv), head_(kv * attend.group + head),
        heads_(heads), queries_(rows * heads), wide_(attend.wide()) {
    m.fit(a.key_dim, wide_);
    sight_ = a.sight(first);
    begin_ = sight_.begin;
    for (std::int64_t r = 0; r < rows; ++r) look(r, a.sight(first + r));
  }

  void run() {
    take_queries();
    std::fill_n((char*)m.sums.data(), wide_ * P * sizeof(Line), 0);
    for (int p = 0; p < P; ++p) most_[p] = splat(NONE), total_[p] = f32x16{};
    for (std::int64_t b = begin_ / KEYS * KEYS; b < end_; b += KEYS) {
      std::int64_t low = std::max(b, begin_) - b, high = std::min(b + KEYS, end_) - b;
      score(b, low, high);
      lay_out_values(b, low, high);
      low = low / STEP * STEP, high = (high + STEP - 1) / STEP * STEP;
      bool cut = b < all_see_from_ || all_see_to_ < b + KEYS;
      cut ? soften<true>(b, low, high) : soften<false>(b, low, high);
      add_values(low / STEP, high / STEP);
    }
    put_results();
  }

 private:
  static constexpr int STEP = Along<T>::K;
  static constexpr float NONE = -std::numeric_limits<float>::infinity();

  void look(std::int64_t row, const Attend::Sight& s) {
    begin_ = std::min(begin_, s.begin);
    end_ = std::max(end_, s.end);
    all_see_from_ = std::max(all_see_from_, s.begin);
    all_see_to_ = row == 0 ? s.end : std::min(all_see_to_, s.end);
    for (std::int64_t q = row * heads_; q < (row + 1) * heads_; ++q) {
      from_[q / LANES][q % LANES] = std::int32_t(s.begin);
      to_[q / LANES][q % LANES] = std::int32_t(s.end);
    }
  }

  const T* query(std::int64_t q) const {
    return (const T*)a.i.p[0] + (first_ + q / heads_) * a.i.n[5] + (head_ + q % heads_) * a.i.n[6];
  }

  // Lanes of no query are zero.
  void take_queries() {
    std::int64_t steps = a.key_dim / STEP;
    for (std::int64_t c = 0; c < steps; c += LANES) {
      std::int64_t n = std::min<std::int64_t>(LANES, steps - c);
      for (int p = 0; p < P; ++p) {
        u32x16 words[LANES] = {};
        for (int l = 0; l < LANES && p * LANES + l < queries_; ++l) {
          const T* from = query(p * LANES + l) + c * STEP;
          if (n == LANES) words[l] = load<u32x16>(from);
          else std::memcpy(&words[l], from, n * 4);
        }
        transpose(words);
        for (int s = 0; s < n; ++s) store(&m.q[(c + s) * P + p], words[s]);
      }
    }
  }

  // Scores of the keys [low, high) of block b, in units of a power of two.
  void score(std::int64_t b, std::int64_t low, std::int64_t high) {
    const T* keys = (const T*)a.i.p[1] + kv_ * a.i.n[8] + a.slot_of(sight_, b + low) * a.i.n[7];
    std::int64_t apart = a.i.n[7];
    if (sight_.pages != nullptr) keys = copied_keys(b, low, high), apart = a.key_dim;
    const float scale = float(a.i.f[0] * 1.4426950408889634);
    Linear<T>::several(low, high, [&]<int R>(std::int64_t j) {
      f32x16 acc[R][P] = {};
      add_products<T, R, P>(acc, keys + (j - low) * apart, apart, STEP, m.q.data(),
                            a.key_dim / STEP);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) store(&m.scores[(j + r) * P + p], acc[r][p] * scale);
    });
  }

  const T* copied_keys(std::int64_t b, std::int64_t low, std::int64_t high) {
    const T* pool = (const T*)a.i.p[1] + kv_ * a.i.n[8];
    T* to = (T*)m.keys.data();
    for (std::int64_t j = low; j < high; ++j, to += a.key_dim)
      std::memcpy(to, pool + a.slot_of(sight_, b + j) * a.i.n[7], a.key_dim * sizeof(T));
    return (const T*)m.keys.data();
  }

  // Values of neighbouring keys as the words that meet a pair of weights; zero outside [low, high).
  void lay_out_values(std::int64_t b, std::int64_t low, std::int64_t high) {
    const T* pool = (const T*)a.i.p[2] + kv_ * a.i.n[10];
    for (std::int64_t at = low / STEP * STEP; at < high; at += STEP) {
      const T* of[STEP];
      for (int s = 0; s < STEP; ++s) {
        bool there = at + s >= low && at + s < high;
        of[s] = there ? pool + a.slot_of(sight_, b + at + s) * a.i.n[9] : nullptr;
      }
      auto* to = (std::uint32_t*)m.values.data() + at / STEP * wide_;
      along(a.value_dim, [&](std::int64_t c, int live) { put_values(of, c, live, to + c); });
    }
  }
  static void put_values(const float* const (&of)[1], std::int64_t c, int live, std::uint32_t* to) {
    store(to, take(of[0] + c, live));
  }
  static void put_values(const bf16* const (&of)[2], std::int64_t c, int live, std::uint32_t* to) {
    u32x16 even = (u32x16)(of[0] ? take(of[0] + c, live) : f32x16{});
    u32x16 odd = (u32x16)(of[1] ? take(of[1] + c, live) : f32x16{});
    store(to, even >> 16 | odd);
  }

  // Which lanes of a panel see a position.
  i32x16 seen(int p, std::int64_t position) const {
    auto at = std::int32_t(position);
    return (from_[p] <= at) & (to_[p] > at);
  }

  // Scores become weights; `shrink_` is what earlier sums have to be multiplied by.
  template <bool CUT>
  void soften(std::int64_t b, std::int64_t low, std::int64_t high) {
    f32x16 base[P], total[P];
    for (int p = 0; p < P; ++p) base[p] = most_[p];
    for (std::int64_t j = low; j < high; ++j)
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        f32x16 s = load<f32x16>(&m.scores[j * P + p]);
        if constexpr (CUT) store(&m.scores[j * P + p], s = seen(p, b + j) ? s : splat(NONE));
        base[p] = larger(s, base[p]);
      }
    for (int p = 0; p < P; ++p) {
      f32x16 before = most_[p];
      most_[p] = base[p];
      if constexpr (CUT) base[p] = base[p] == NONE ? f32x16{} : base[p];  // sees no key yet
      shrink_[p] = power_of_two(before - base[p]);
      total[p] = total_[p] * shrink_[p];
    }
    for (std::int64_t j = low; j < high; j += STEP)
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        f32x16 e[STEP];
#pragma GCC unroll 2
        for (int s = 0; s < STEP; ++s) {
          f32x16 score = load<f32x16>(&m.scores[(j + s) * P + p]);
          e[s] = power_of_two(score - base[p]);
          if constexpr (CUT) e[s] = score == NONE ? f32x16{} : e[s];
          total[p] += e[s];
        }
        put_words(&m.weights[j / STEP * P + p], e);
      }
    for (int p = 0; p < P; ++p) total_[p] = total[p];
  }

  void add_values(std::int64_t low, std::int64_t high) {
    const auto* values = (const T*)m.values.data() + low * wide_ * STEP;
    Linear<T>::several(0, a.value_dim, [&]<int R>(std::int64_t c) {
      f32x16 acc[R][P];
      Line* sums = &m.sums[c * P];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) acc[r][p] = load<f32x16>(sums + r * P + p) * shrink_[p];
      add_products<T, R, P>(acc, values + c * STEP, STEP, wide_ * STEP, &m.weights[low * P],
                            high - low);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) store(sums + r * P + p, acc[r][p]);
    });
  }

  void put_results() {
    std::int64_t heads = a.kv_heads * a.group;
    for (int p = 0; p < P; ++p) {
      f32x16 inverse = 1.0f / total_[p];
      for (std::int64_t c = 0; c < a.value_dim; c += LANES) {
        int live = int(std::min<std::int64_t>(LANES, a.value_dim - c));
        f32x16 v[LANES];
        for (int l = 0; l < LANES; ++l) v[l] = load<f32x16>(&m.sums[(c + l) * P + p]) * inverse;
        transpose(v);
        for (int l = 0; l < LANES && p * LANES + l < queries_; ++l) {
          std::int64_t q = p * LANES + l, row = first_ + q / heads_, head = head_ + q % heads_;
          put((T*)a.i.p[7] + (row * heads + head) * a.value_dim + c, v[l], live);
        }
      }
    }
  }

  const Attend& a;
  TileMemory& m;
  std::int64_t first_, kv_, head_, heads_, queries_, wide_;
  Attend::Sight sight_;
  std::int64_t begin_ = 0, end_ = 0;                 // what any row sees
  std::int64_t all_see_from_ = 0, all_see_to_ = 0;   // what every row sees
  i32x16 from_[P] = {}, to_[P] = {};
  f32x16 most_[P], total_[P], shrink_[P];
};

template <class T>
void attend_tile(const Attend& a, TileMemory& m, std::int64_t first, std::int64_t rows,
                 std::int64_t kv) {
  for (std::int64_t h = 0; h < a.group; h += MOST_QUERIES) {
    std::int64_t heads = std::min<std::int64_t>(MOST_QUERIES, a.group - h);
    switch ((rows * heads + LANES - 1) / LANES) {
      case 1: Tile<T, 1>(a, m, first, rows, kv, h, heads).run(); break;
      case 2: Tile<T, 2>(a, m, first, rows, kv, h, heads).run(); break;
      default: Tile<T, 3>(a, m, first, rows, kv, h, heads).run();
    }
  }
}

template <class T>
void attend_as_tile(const Attend& a, std::int64_t row, std::int64_t kv) {
  static thread_local TileMemory memory;
  attend_tile<T>(a, memory, row, 1, kv);
}

// A piece is a head of keys and the rows of one tile, as far as tiles are for their requests. The
// last rows, which see the most, come first: what is left for the end is short.
template <class T>
void attend_tiles(const Instruction& i, std::uint32_t piece) {
  static thread_local TileMemory memory;
  Attend a(i);
  std::int64_t each = tile_rows(a.group), kv = piece % a.kv_heads;
  std::int64_t tiles = (a.rows + each - 1) / each;
  std::int64_t begin = (tiles - 1 - piece / a.kv_heads) * each, end = std::min(begin + each, a.rows);
  const auto* facts = (const std::int64_t*)i.p[4];
  for (std::int64_t r = 0; r < a.requests && facts[1] != 0; ++r, facts += 4) {
    if (!in_tiles(facts)) continue;
    std::int64_t from = std::max(begin, facts[0]), to = std::min(end, facts[0] + facts[1]);
    if (from < to) attend_tile<T>(a, memory, from, to - from, kv);
  }
}

}  // namespace firstlight
