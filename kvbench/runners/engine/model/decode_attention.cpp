// Attention of one query row a sequence over paged KV, read where it lies: no gather, no mask, no padding.
//
// Compiled by decode_kernel.py for one model: SCALAR is the type of the KV, REAL what it is summed in, KV_HEADS, GROUP (query heads a
// KV head) and HEAD_DIM its shape. Contexts are cut into pieces of like length, so that a few long sequences, or one, keep every thread
// busy; each piece is a softmax of its own, and a sequence's pieces are merged by their largest score and their sum.

#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace {

using Vec = at::vec::Vectorized<REAL>;

constexpr int64_t HEADS = KV_HEADS * GROUP, ROW = KV_HEADS * HEAD_DIM;
constexpr int64_t LANES = Vec::size(), VECS = (HEAD_DIM + LANES - 1) / LANES;
constexpr int64_t TILE = 16;  // tokens whose scores are held at a time, and how far ahead rows are fetched
constexpr int64_t CACHE_LINE = 64;
constexpr int64_t PIECES_A_THREAD = 4, SHORTEST_PIECE = 64;
constexpr REAL NOTHING = -std::numeric_limits<REAL>::infinity();

constexpr int64_t lanes(int64_t vec) { return std::min(LANES, HEAD_DIM - vec * LANES); }

template <typename T>
Vec load(const T* head, int64_t vec) {
  const auto loaded = at::vec::Vectorized<T>::loadu(head + vec * LANES, lanes(vec));
  if constexpr (std::is_same_v<T, REAL>) {
    return loaded;
  } else {
    return at::vec::convert<REAL>(loaded);
  }
}

template <typename T>
void store(Vec value, T* head, int64_t vec) {
  if constexpr (std::is_same_v<T, REAL>) {
    value.store(head + vec * LANES, lanes(vec));
  } else {
    at::vec::convert<T>(value).store(head + vec * LANES, lanes(vec));
  }
}

void prefetch(const SCALAR* head) {
  for (int64_t d = 0; d < HEAD_DIM; d += CACHE_LINE / sizeof(SCALAR)) __builtin_prefetch(head + d);
}

Vec add(const Vec& a, const Vec& b) { return a + b; }

struct Piece {
  int64_t span, begin, end;  // tokens begin .. end - 1 of a span
};

struct Partial {  // of one piece: largest score, sum of e^(score - largest), and the values weighted so
  REAL top[HEADS], sum[HEADS];
  Vec out[HEADS][VECS];
};

void attend(const Vec (*query)[VECS], const SCALAR* keys, const SCALAR* values, const int64_t* slots, Piece piece, Partial& partial) {
  std::fill_n(partial.top, HEADS, NOTHING);
  std::fill_n(partial.sum, HEADS, REAL(0));
  std::fill_n(&partial.out[0][0], HEADS * VECS, Vec(REAL(0)));
  const auto row = [&](int64_t token) { return slots[std::min(token, piece.end - 1)] * ROW; };
  for (int64_t begin = piece.begin; begin < piece.end; begin += TILE) {
    const int64_t count = std::min(TILE, piece.end - begin);
    for (int64_t kv = 0; kv < KV_HEADS; kv++) {
      const int64_t offset = kv * HEAD_DIM, first = kv * GROUP;
      REAL weight[GROUP][TILE];
      for (int64_t i = 0; i < count; i++) {
        const int64_t ahead = row(begin + TILE + i) + offset;
        prefetch(keys + ahead);
        prefetch(values + ahead);
        const SCALAR* key = keys + row(begin + i) + offset;
        Vec score[GROUP];
        for (int64_t g = 0; g < GROUP; g++) score[g] = Vec(REAL(0));
        for (int64_t v = 0; v < VECS; v++) {
          const Vec part = load(key, v);
          for (int64_t g = 0; g < GROUP; g++) score[g] = at::vec::fmadd(query[first + g][v], part, score[g]);
        }
        for (int64_t g = 0; g < GROUP; g++) weight[g][i] = at::vec::vec_reduce_all<REAL>(add, score[g]);
      }
      for (int64_t g = 0; g < GROUP; g++) {
        REAL& top = partial.top[first + g];
        const REAL before = top;
        top = std::max(before, *std::max_element(weight[g], weight[g] + count));
        at::vec::map<REAL>([top](Vec x) { return (x - Vec(top)).exp_u20(); }, weight[g], weight[g], count);
        const REAL fade = std::exp(before - top);
        partial.sum[first + g] = partial.sum[first + g] * fade + at::vec::reduce_all<REAL>(add, weight[g], count);
        for (int64_t v = 0; v < VECS; v++) partial.out[first + g][v] = partial.out[first + g][v] * Vec(fade);
      }
      for (int64_t v = 0; v < VECS; v++) {
        Vec out[GROUP];
        for (int64_t g = 0; g < GROUP; g++) out[g] = partial.out[first + g][v];
        for (int64_t i = 0; i < count; i++) {
          const Vec part = load(values + row(begin + i) + offset, v);
          for (int64_t g = 0; g < GROUP; g++) out[g] = at::vec::fmadd(Vec(weight[g][i]), part, out[g]);
        }
        for (int64_t g = 0; g < GROUP; g++) partial.out[first + g][v] = out[g];
      }
    }
  }
}

void merge(const Partial* begin, const Partial* end, SCALAR* output) {
  for (int64_t head = 0; head < HEADS; head++) {
    REAL top = NOTHING, sum = 0;
    for (const Partial* p = begin; p < end; p++) top = std::max(top, p->top[head]);
    for (const Partial* p = begin; p < end; p++) sum += std::exp(p->top[head] - top) * p->sum[head];
    for (int64_t v = 0; v < VECS; v++) {
      Vec out(REAL(0));
      for (const Partial* p = begin; p < end; p++) out = at::vec::fmadd(Vec(std::exp(p->top[head] - top) / sum), p->out[head][v], out);
      store(out, output + head * HEAD_DIM, v);
    }
  }
}

}  // namespace

// keys, values: [slots of the pool, KV_HEADS, HEAD_DIM]. Span s attends from row rows[s] of the query to lengths[s] tokens, at least one,
// token j in slot slots[s * capacity + j]. The query's rows and heads are query_row and query_head elements apart; the output is
// [rows, HEADS, HEAD_DIM].
extern "C" void decode_attention(const SCALAR* query, int64_t query_row, int64_t query_head, const SCALAR* keys, const SCALAR* values,
                                 const int64_t* slots, int64_t capacity, const int64_t* lengths, const int64_t* rows, int64_t spans,
                                 double scaling, SCALAR* output) {
  int64_t tokens = 0;
  for (int64_t s = 0; s < spans; s++) tokens += lengths[s];
  const int64_t wanted = PIECES_A_THREAD * omp_get_max_threads();
  const int64_t longest = std::max(SHORTEST_PIECE, (tokens + wanted - 1) / wanted);
  std::vector<Piece> pieces;
  std::vector<int64_t> first{0};
  for (int64_t s = 0; s < spans; s++) {
    for (int64_t begin = 0; begin < lengths[s]; begin += longest) pieces.push_back({s, begin, std::min(begin + longest, lengths[s])});
    first.push_back(pieces.size());
  }
  std::vector<Partial> partials(pieces.size());
#pragma omp parallel if (pieces.size() > 1)
  {
#pragma omp for schedule(dynamic)
    for (int64_t p = 0; p < first[spans]; p++) {
      const int64_t s = pieces[p].span;
      Vec scaled[HEADS][VECS];
      for (int64_t head = 0; head < HEADS; head++) {
        for (int64_t v = 0; v < VECS; v++) scaled[head][v] = load(query + rows[s] * query_row + head * query_head, v) * Vec(REAL(scaling));
      }
      attend(scaled, keys, values, slots + s * capacity, pieces[p], partials[p]);
    }
#pragma omp for
    for (int64_t s = 0; s < spans; s++) {
      merge(partials.data() + first[s], partials.data() + first[s + 1], output + rows[s] * HEADS * HEAD_DIM);
    }
  }
}
