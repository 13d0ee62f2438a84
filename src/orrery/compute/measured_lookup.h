// Look-up of measured kernels of one device: exact, and interpolated between neighbours.
//
// Samples lie in one flat array sorted by (series, shape). A series is all that must be equal (kind
// of kernel, types, layout, pass, mask, head size, groups); a shape is three sizes that may differ.
//   GEMM          series: dtype, layout, groups                    shape: k, n, m
//   attention     series: kernel, pass, mask, dtype, d             shape: s_q, s_kv, b·h
//   memory-bound  series: operation, pass, half-bytes per element  shape: elements; where the
//                                                                  row length matters rows, cols
//
// Exact: the shape itself (attention: with b, h and kv_heads). Interpolated: the model's time times
// the mean of measured/modelled over the nearest samples, weighted by 1/d², d² = Σ (a-b)²/(a·b)
// over the sizes, which for near shapes is the squared distance of their logarithms without a
// logarithm. The model carries tile and wave steps, the samples its error. Only inside the measured
// range: some sample within a factor 2 in every direction, and the nearest at d² <= 0.5.
//
// `hot` times are multiplied by the mean sustained/hot of the shapes measured in both modes, of the
// series or, where it has none, of all products: a training job runs at the power limit. A shape
// measured in both modes keeps its sustained one. A twin's sample (a board of the same die and
// power) answers like a neighbour, never as measured here.
//
// Cost: exact O(log n), about 50 ns; interpolated O(samples within a factor 2 in every size).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "orrery/compute/device_rates.h"
#include "orrery/graph/kernel.h"

namespace orrery::compute {

using Shape = std::array<std::int64_t, 3>;

struct Sample {
  std::uint64_t series = 0;
  Shape shape{};
  std::uint64_t detail = 0;  // what exact look-up compares besides
  bool sustained = false;
  bool twin = false;  // measured on a twin, brought to this device
  double time_s = 0;
  double spread = 0;     // relative, from the quartiles
  graph::Kernel kernel;  // as the model sees it
};

struct SampleKey {
  std::uint64_t series = 0;
  Shape shape{};
  std::uint64_t detail = 0;
};
// Empty for kernels that are never measured (a trace's) or have no sizes.
std::optional<SampleKey> KeyOf(const graph::Kernel& kernel);

struct Found {
  double time_s = 0, spread = 0;
  bool exact = false;
};

class MeasuredLookup {
 public:
  MeasuredLookup() = default;
  MeasuredLookup(std::vector<Sample> samples, const DeviceRates& device);
  bool empty() const { return points_.empty(); }
  std::size_t size() const { return points_.size(); }
  // `modelled_s` is the model's time of the kernel on the lookup's device.
  std::optional<Found> Find(const SampleKey& key, double modelled_s) const;

 private:
  struct Point {
    Shape shape{};
    std::array<double, 3> inverse{};  // of the sizes
    std::uint64_t detail = 0;
    double time_s = 0, spread = 0;
    double ratio = 1;  // measured / modelled
    bool twin = false;
  };
  struct Series {
    std::uint64_t key = 0;
    std::uint32_t first = 0, last = 0;
  };
  // The first point of [p, end) whose shape is not before `shape`; fast when it is near p.
  static const Point* FirstFrom(const Point* p, const Point* end, const Shape& shape);
  struct Neighbours;
  void Collect(const Series& series, const Shape& shape, Neighbours* found) const;
  std::optional<Found> Interpolate(const Series& series, const Shape& shape,
                                   double modelled_s) const;

  std::vector<Series> series_;  // sorted by key
  std::vector<Point> points_;   // by series, then shape and detail
};

}  // namespace orrery::compute
