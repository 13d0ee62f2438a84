#include "orrery/interference/learned.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>
#include <variant>

#include "orrery/base/check.h"

namespace orrery::interference {
namespace {

constexpr std::string_view kLines[] = {
#include "orrery_data_slowdown_features.inc"
};

// Base quantities, by the names that the table uses.
enum Base : std::uint8_t {
  kFlops,
  kBytes,
  kTiles,
  kTimeAlone,
  kCtas,
  kBeside,
  kSms,
  kHbm,
  kPeak,
  kMillion,
  kIsProduct,
  kIsAttention,
  kBases
};
constexpr std::array<std::string_view, kBases> kNames = {
    "flops", "bytes",   "tiles",      "alone_s", "ctas",       "beside_Bps",
    "sms",   "hbm_Bps", "peak_flops", "million", "is_product", "is_attention"};

struct Feature {
  std::string name;
  std::vector<Base> over, under;
};

std::vector<Base> ProductOf(std::string_view text) {
  std::vector<Base> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('*'), text.size());
    const auto found = std::ranges::find(kNames, text.substr(0, end));
    ORRERY_CHECK(found != kNames.end(), "data/slowdown/features.csv names base quantities");
    out.push_back(static_cast<Base>(found - kNames.begin()));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

const std::vector<Feature>& Table() {
  static const std::vector<Feature> table = [] {
    std::vector<Feature> rows;
    for (std::size_t i = 1; i < std::size(kLines); ++i) {
      const std::string_view line = kLines[i];
      const std::size_t a = line.find(','), b = line.find(',', a + 1), c = line.find(',', b + 1);
      rows.push_back({std::string(line.substr(0, a)), ProductOf(line.substr(a + 1, b - a - 1)),
                      ProductOf(line.substr(b + 1, c - b - 1))});
    }
    return rows;
  }();
  return table;
}

std::int64_t UpTo(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

using Values = std::array<double, kBases>;

struct Describe {
  Values& of;
  const cluster::DeviceSpec& device;

  void operator()(const graph::Gemm& g) const {
    const double m = static_cast<double>(g.m), n = static_cast<double>(g.n),
                 k = static_cast<double>(g.k), batch = static_cast<double>(g.batch);
    const double out = static_cast<double>(graph::SizeOf(g.out_dtype));
    of[kBytes] = batch * (static_cast<double>(graph::SizeOf(g.dtype)) * (m + n) * k + out * m * n);
    of[kTiles] = batch * static_cast<double>(UpTo(g.m, 128) * UpTo(g.n, 256));
    of[kIsProduct] = 1;
    of[kPeak] = PeakOf(g.dtype);
  }
  void operator()(const graph::Attention& a) const {
    const double q = static_cast<double>(a.heads * a.seq_q);
    const double kv = static_cast<double>(a.kv_heads * a.seq_kv);
    const double tensors = graph::IsBackward(a.pass) ? 4 : 2;
    of[kBytes] =
        static_cast<double>(graph::SizeOf(a.dtype) * a.batch * a.head_dim) * tensors * (q + kv);
    of[kTiles] = static_cast<double>(a.batch * a.heads * UpTo(a.seq_q, 128));
    of[kIsAttention] = 1;
    of[kPeak] = PeakOf(a.dtype);
  }
  void operator()(const graph::MemoryBound& m) const {
    of[kBytes] = static_cast<double>(m.bytes_read + m.bytes_written);
  }
  void operator()(const graph::Timed&) const {}
  void operator()(const graph::Generic& g) const {
    of[kBytes] = static_cast<double>(g.bytes_read + g.bytes_written);
  }
  double PeakOf(graph::DType type) const {
    return graph::SizeOf(type) == 1 && device.fp8_flops > 0 ? device.fp8_flops : device.fp16_flops;
  }
};

// e^x by + - * / alone, so that every machine agrees to the last bit; |x| <= 4, to 1e-13.
double Exp(double x) {
  const double part = x / 64;
  double term = 1, sum = 1;
  for (int i = 1; i <= 8; ++i) {
    term = term * part / i;
    sum += term;
  }
  for (int i = 0; i < 6; ++i) sum *= sum;
  return sum;
}

}  // namespace

const std::vector<std::string>& FeatureNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Feature& f : Table()) out.push_back(f.name);
    return out;
  }();
  return names;
}

std::vector<float> Features(const graph::Kernel& kernel, double alone_s, const Companion& beside,
                            const cluster::DeviceSpec& device) {
  Values of{};
  of[kPeak] = device.fp16_flops;
  std::visit(Describe{of, device}, kernel);
  of[kFlops] = graph::Flops(kernel);
  if (const auto* attention = std::get_if<graph::Attention>(&kernel);
      attention != nullptr && attention->causal) {
    of[kFlops] /= 2;  // the trainer counts what is visited
  }
  of[kTimeAlone] = alone_s;
  of[kCtas] = beside.ctas;
  of[kBeside] = beside.bytes_per_s;
  of[kSms] = device.sms;
  of[kHbm] = static_cast<double>(device.memory_bandwidth_Bps);
  of[kMillion] = 1e6;
  const auto product = [&](const std::vector<Base>& names) {
    double value = 1;
    for (const Base name : names) value *= of[name];
    return value;
  };
  std::vector<float> out;
  for (const Feature& f : Table())
    out.push_back(static_cast<float>(product(f.over) / product(f.under)));
  return out;
}

Result<Learned> Learned::Create(Trees trees, std::uint64_t content) {
  if (trees.features != FeatureNames()) {
    std::string wanted;
    for (const std::string& name : FeatureNames()) wanted += (wanted.empty() ? "" : ", ") + name;
    return InvalidInput("its features are not those of this program ({}): train it again", wanted);
  }
  ORRERY_RETURN_IF_ERROR(trees.Check());
  return Learned(std::move(trees), content);
}

double Learned::Factor(std::span<const float> features) const {
  constexpr float kMost = 4;  // e^4 = 55 times longer
  return Exp(static_cast<double>(std::clamp(trees_.Predict(features), 0.0F, kMost)));
}

double Learned::Factor(const graph::Kernel& kernel, double alone_s, Class concurrent,
                       const cluster::DeviceSpec& device) const {
  if (concurrent == kAlone || alone_s <= 0) return 1;
  if (std::holds_alternative<graph::Timed>(kernel)) {
    return Slowdown(kernel, concurrent, device).compute;
  }
  return Factor(Features(kernel, alone_s, CompanionOf(concurrent, device), device));
}

std::array<SimTime, kClasses> KernelTimes(const graph::Kernel& kernel, double alone_ps,
                                          const cluster::DeviceSpec& device,
                                          const Learned* learned) {
  std::array<SimTime, kClasses> times{};
  for (std::size_t c = 0; c < times.size(); ++c) {
    const auto concurrent = static_cast<Class>(c);
    const double factor = learned == nullptr
                              ? Slowdown(kernel, concurrent, device).compute
                              : learned->Factor(kernel, alone_ps * 1e-12, concurrent, device);
    times[c] = RoundToPs(alone_ps * factor);
  }
  return times;
}

}  // namespace orrery::interference
