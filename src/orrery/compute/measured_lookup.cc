#include "orrery/compute/measured_lookup.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <tuple>
#include <variant>

#include "orrery/compute/constants.h"
#include "orrery/compute/model.h"

namespace orrery::compute {
namespace {

using graph::MemoryOp;

constexpr std::size_t kNeighbours = 4;
constexpr double kNearest = 0.5;  // (2-1)²/(2·1): a factor 2 in one size

// Three fields of 8 bits and one of 32, the first argument highest.
std::uint64_t Pack(std::uint64_t kind, std::uint64_t a, std::uint64_t b, std::uint64_t wide) {
  return kind << 56 | a << 48 | b << 40 | (wide & 0xFFFFFFFFu);
}

// Whether a kernel's time depends on its row length, not on the number of elements alone.
bool RowsMatter(MemoryOp op) {
  switch (op) {
    case MemoryOp::kLayerNorm:
    case MemoryOp::kRmsNorm:
    case MemoryOp::kRotary:
    case MemoryOp::kScaledMaskSoftmax:
    case MemoryOp::kCrossEntropy:
    case MemoryOp::kEmbedding:
    case MemoryOp::kTranspose:
      return true;
    default:
      return false;
  }
}

// Sizes whose products fit: nothing measured comes near.
bool Usable(std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes) {
    if (size <= 0 || size > std::int64_t{1} << 30) return false;
  }
  return true;
}

struct KeyVisitor {
  std::optional<SampleKey> operator()(const graph::Gemm& g) const {
    // What is measured is one launch alone: no scan, no experts one after the other, no piece.
    const bool one = g.kind == graph::GemmKind::kGrouped && g.batch == 1;
    if (g.kind != graph::GemmKind::kPlain && !one) return {};
    if (!Usable({g.m, g.n, g.k, g.batch})) return {};
    // fp8 operands are always read along k, so every layout runs as kNT. Accumulation and the type
    // of C are details: the model brings their difference to a neighbour without them.
    const auto layout = g.dtype == graph::DType::kFp8 ? graph::GemmLayout::kNT : g.layout;
    return SampleKey{
        .series = Pack(1, static_cast<std::uint64_t>(g.dtype), static_cast<std::uint64_t>(layout),
                       static_cast<std::uint64_t>(g.batch)),
        .shape = {g.k, g.n, g.m},
        .detail = static_cast<std::uint64_t>(g.out_dtype) * 2 + g.accumulate};
  }
  std::optional<SampleKey> operator()(const graph::Attention& a) const {
    if (a.v_head_dim != 0 || a.window != 0) return {};  // nothing measured of such
    if (!Usable({a.batch, a.heads, a.kv_heads, a.seq_q, a.seq_kv, a.head_dim})) return {};
    const std::uint64_t kernel = static_cast<std::uint64_t>(a.kernel) * 4 +
                                 (a.pass == graph::Pass::kForward ? 2 : 0) + (a.causal ? 1 : 0);
    return SampleKey{.series = Pack(2, static_cast<std::uint64_t>(a.dtype), kernel,
                                    static_cast<std::uint64_t>(a.head_dim)),
                     .shape = {a.seq_q, a.seq_kv, a.batch * a.heads},
                     .detail = static_cast<std::uint64_t>(a.heads) << 32 |
                               static_cast<std::uint64_t>(a.kv_heads)};
  }
  std::optional<SampleKey> operator()(const graph::MemoryBound& m) const {
    if (!Usable({m.rows, m.cols})) return {};
    const double elements = static_cast<double>(m.rows) * static_cast<double>(m.cols);
    const double bytes = static_cast<double>(m.bytes_read) + static_cast<double>(m.bytes_written);
    const double half_bytes = std::min(2 * bytes / elements + 0.5, 65535.0);
    return SampleKey{
        .series = Pack(3, static_cast<std::uint64_t>(m.op), static_cast<std::uint64_t>(m.pass),
                       static_cast<std::uint64_t>(half_bytes)),
        .shape = RowsMatter(m.op) ? Shape{m.rows, m.cols, 1} : Shape{m.rows * m.cols, 1, 1}};
  }
  std::optional<SampleKey> operator()(const graph::Timed&) const { return {}; }
  std::optional<SampleKey> operator()(const graph::Generic&) const { return {}; }
};

std::array<double, 3> Inverse(const Shape& shape) {
  return {1 / static_cast<double>(shape[0]), 1 / static_cast<double>(shape[1]),
          1 / static_cast<double>(shape[2])};
}

// Leaves one sample per place, brought to sustained load.
void Sustain(std::vector<Sample>* samples) {
  std::sort(samples->begin(), samples->end(), [](const Sample& a, const Sample& b) {
    return std::tie(a.series, a.shape, a.detail, a.sustained, a.twin) <
           std::tie(b.series, b.shape, b.detail, b.sustained, b.twin);
  });
  const auto same = [](const Sample& a, const Sample& b) {
    return a.series == b.series && a.shape == b.shape && a.detail == b.detail;
  };
  struct Both {
    double hot = 0, sustained = 0;
  };
  std::map<std::uint64_t, Both> of_series;
  Both of_products;
  std::vector<Sample> kept;
  for (const Sample& sample : *samples) {
    if (kept.empty() || !same(kept.back(), sample)) {
      kept.push_back(sample);
      continue;
    }
    if (sample.sustained && !kept.back().sustained) {
      for (Both* both : {&of_series[sample.series], &of_products}) {
        if (both == &of_products && !std::holds_alternative<graph::Gemm>(sample.kernel)) continue;
        both->hot += kept.back().time_s;
        both->sustained += sample.time_s;
      }
      kept.back() = sample;
    }
  }
  for (Sample& sample : kept) {
    if (sample.sustained) continue;
    const auto it = of_series.find(sample.series);
    const bool product = std::holds_alternative<graph::Gemm>(sample.kernel);
    const Both both = it != of_series.end() ? it->second : product ? of_products : Both{};
    if (both.hot > 0) sample.time_s *= both.sustained / both.hot;
  }
  *samples = std::move(kept);
}

}  // namespace

std::optional<SampleKey> KeyOf(const graph::Kernel& kernel) {
  return std::visit(KeyVisitor{}, kernel);
}

MeasuredLookup::MeasuredLookup(std::vector<Sample> samples, const DeviceRates& device) {
  Sustain(&samples);
  points_.reserve(samples.size());
  for (const Sample& s : samples) {
    if (series_.empty() || series_.back().key != s.series) {
      series_.push_back({s.series, static_cast<std::uint32_t>(points_.size()), 0});
    }
    const double modelled = Model(s.kernel, device).total_s();
    points_.push_back(
        {s.shape, Inverse(s.shape), s.detail, s.time_s, s.spread, s.time_s / modelled, s.twin});
    series_.back().last = static_cast<std::uint32_t>(points_.size());
  }
}

std::optional<Found> MeasuredLookup::Find(const SampleKey& key, double modelled_s) const {
  const auto series = std::lower_bound(series_.begin(), series_.end(), key.series,
                                       [](const Series& s, std::uint64_t k) { return s.key < k; });
  if (series == series_.end() || series->key != key.series) return {};
  const auto first = points_.begin() + series->first, last = points_.begin() + series->last;
  const auto at = std::lower_bound(first, last, key, [](const Point& p, const SampleKey& k) {
    return std::tie(p.shape, p.detail) < std::tie(k.shape, k.detail);
  });
  if (at != last && at->shape == key.shape && at->detail == key.detail) {
    if (!at->twin) return Found{.time_s = at->time_s, .spread = at->spread, .exact = true};
    return Found{
        .time_s = at->time_s,
        .spread = std::sqrt(at->spread * at->spread + kSpreadInterpolated * kSpreadInterpolated)};
  }
  return Interpolate(*series, key.shape, modelled_s);
}

const MeasuredLookup::Point* MeasuredLookup::FirstFrom(const Point* p, const Point* end,
                                                       const Shape& shape) {
  std::ptrdiff_t step = 1;
  while (end - p > step && p[step].shape < shape) {
    p += step;
    step *= 2;
  }
  return std::lower_bound(p, p + std::min(step + 1, end - p), shape,
                          [](const Point& q, const Shape& s) { return q.shape < s; });
}

// The nearest points seen so far, and on which sides of the wanted shape points were seen.
struct MeasuredLookup::Neighbours {
  struct Near {
    double distance2 = 0;
    const Point* point = nullptr;
  };
  std::array<Near, kNeighbours> near{};
  std::size_t count = 0;
  std::array<bool, 3> below{}, above{};

  bool bracketed() const {
    return below[0] && below[1] && below[2] && above[0] && above[1] && above[2];
  }
  double worst() const { return count == kNeighbours ? near[kNeighbours - 1].distance2 : 1e30; }
  void Mark(const Shape& at, const Shape& wanted) {
    for (std::size_t i = 0; i < 3; ++i) {
      below[i] = below[i] || at[i] <= wanted[i];
      above[i] = above[i] || at[i] >= wanted[i];
    }
  }
  void Add(double distance2, const Point* point) {
    if (distance2 >= worst()) return;
    Near candidate{distance2, point};
    for (std::size_t i = 0; i < count; ++i) {
      if (candidate.distance2 < near[i].distance2) std::swap(candidate, near[i]);
    }
    if (count < kNeighbours) near[count++] = candidate;
  }
};

void MeasuredLookup::Collect(const Series& series, const Shape& shape, Neighbours* found) const {
  const std::array<double, 3> inverse = Inverse(shape);
  const Shape low = {(shape[0] + 1) / 2, (shape[1] + 1) / 2, (shape[2] + 1) / 2};
  const Shape high = {2 * shape[0], 2 * shape[1], 2 * shape[2]};
  const Point* const end = points_.data() + series.last;
  const Point* p = FirstFrom(points_.data() + series.first, end, low);
  while (p != end && p->shape[0] <= high[0]) {
    const Shape at = p->shape;
    const auto gap2 = [&](std::size_t i) {
      const double gap = static_cast<double>(at[i] - shape[i]);
      return gap * gap * (p->inverse[i] * inverse[i]);
    };
    // Points outside the window in the second or third size are jumped over.
    if (at[1] < low[1]) {
      p = FirstFrom(p, end, {at[0], low[1], low[2]});
      continue;
    }
    if (at[2] < low[2] && at[1] <= high[1]) {
      p = FirstFrom(p, end, {at[0], at[1], low[2]});
      continue;
    }
    // So are rows too far by one size, once nothing but the neighbours can change.
    const bool inside = at[1] <= high[1] && at[2] <= high[2];
    if (inside) found->Mark(at, shape);
    const double limit = found->bracketed() ? found->worst() : 1e30;
    const double first = gap2(0);
    if (at[1] > high[1] || first >= limit) {
      p = FirstFrom(p, end, {at[0] + 1, low[1], low[2]});
      continue;
    }
    const double second = first + gap2(1);
    if (at[2] > high[2] || second >= limit) {
      p = FirstFrom(p, end, {at[0], at[1] + 1, low[2]});
      continue;
    }
    found->Add(second + gap2(2), p);
    ++p;
  }
}

std::optional<Found> MeasuredLookup::Interpolate(const Series& series, const Shape& shape,
                                                 double modelled_s) const {
  Neighbours found;
  Collect(series, shape, &found);
  if (!found.bracketed() || found.near[0].distance2 > kNearest) return {};
  double weights = 0, mean = 0, square = 0;
  for (std::size_t i = 0; i < found.count; ++i) {
    // The same shape with another detail counts as very near, not as infinitely so.
    const double weight = 1 / std::max(found.near[i].distance2, 1e-6);
    const double ratio = found.near[i].point->ratio;
    weights += weight;
    mean += weight * ratio;
    square += weight * ratio * ratio;
  }
  mean /= weights;
  const double variance = std::max(square / weights - mean * mean, 0.0) / (mean * mean);
  return Found{.time_s = modelled_s * mean,
               .spread = std::sqrt(kSpreadInterpolated * kSpreadInterpolated + variance),
               .exact = false};
}

}  // namespace orrery::compute
