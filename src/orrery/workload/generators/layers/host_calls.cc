#include "orrery/workload/generators/layers/host_calls.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/formats/data_cells.h"
#include "orrery/workload/generators/layers/lora.h"
#include "orrery/workload/generators/layers/quantized.h"

namespace orrery::workload {

using graph::Pass;

namespace {

struct PartCalls {
  HostCalls forward, backward;
};

constexpr std::string_view kCallLines[] = {
#include "orrery_data_host_calls.inc"
};

double Number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  ORRERY_CHECK(error == std::errc() && end == text.data() + text.size(),
               "data/host_calls.csv holds a count that is no number");
  return value;
}

std::map<std::string, PartCalls, std::less<>> ReadCalls() {
  std::map<std::string, PartCalls, std::less<>> table;
  for (const std::vector<std::string>& cell : formats::DataRows(kCallLines, 10)) {
    const auto pass = [&](std::size_t from) {
      return HostCalls{Number(cell[from]), Number(cell[from + 1]), Number(cell[from + 2]),
                       Number(cell[from + 3])};
    };
    table.emplace(cell[0], PartCalls{pass(1), pass(5)});
  }
  return table;
}

const PartCalls& CallsOf(std::string_view part) {
  static const std::map<std::string, PartCalls, std::less<>> kTable = ReadCalls();
  const auto found = kTable.find(part);
  ORRERY_CHECK(found != kTable.end(), "data/host_calls.csv lacks a part");
  return found->second;
}

class Sum {
 public:
  explicit Sum(Pass pass) : forward_(pass == Pass::kForward) {}
  void Add(std::string_view part, std::int64_t times = 1) {
    const PartCalls& calls = CallsOf(part);
    const HostCalls& c = forward_ ? calls.forward : calls.backward;
    const auto n = static_cast<double>(times);
    sum_.operators += n * c.operators;
    sum_.views += n * c.views;
    sum_.modules += n * c.modules;
    sum_.functions += n * c.functions;
  }
  const HostCalls& sum() const { return sum_; }

 private:
  bool forward_;
  HostCalls sum_;
};

// transformers has a linear layer each for queries, keys, values, gate and up.
std::int64_t AttentionLayers(const Shape& s) {
  if (!s.attends) return 0;
  if (s.latent.kv_rank > 0) return s.latent.q_rank > 0 ? 5 : 4;
  return 2 + (s.borrows_keys ? 0 : s.keys_are_values ? 1 : 2) + (s.attention_gate ? 1 : 0);
}
std::int64_t MlpLayers(const Shape& s) {
  const std::int64_t each = s.activation == Activation::kSwiglu ? 3 : 2;
  if (!s.feeds_forward) return 0;
  if (s.experts.count > 0) return s.experts.shared > 0 ? each : 0;
  return each;
}
std::int64_t Norms(const Shape& s) {
  return (s.mixes() ? 1 : 0) + (s.feeds_forward && !s.shared_norm ? 1 : 0) +
         (s.post_norms ? 2 : 0) + (s.qk_norm && s.attends ? 2 : 0) +
         (s.attends && s.latent.kv_rank > 0 ? (s.latent.q_rank > 0 ? 2 : 1) : 0);
}

void AddWeights(const Shape& s, std::int64_t linears, std::int64_t norms, Sum* sum) {
  if (s.frozen()) return;
  sum->Add("linear_weight", linears);
  sum->Add(s.norm == Norm::kRmsNorm ? "rms_norm_weight" : "layer_norm_weight", norms);
  if (s.autocasts()) sum->Add("weight_autocast", linears);
}

void AddAdapters(const Shape& s, bool again, Sum* sum) {
  if (!s.frozen()) return;
  const auto adapters = static_cast<std::int64_t>(AdapterParameters(s).size() / 2);
  sum->Add("adapter", adapters);
  if (s.autocasts()) sum->Add("adapter_autocast", adapters);
  if (again) sum->Add("adapter_checkpoint", adapters);
}

HostCalls PassCalls(const Shape& s, Pass pass, bool again) {
  Sum sum(pass);
  const std::int64_t attention = AttentionLayers(s), mlp = MlpLayers(s);
  const bool routes = s.feeds_forward && s.experts.count > 0;
  const std::int64_t loops = routes && s.framework.expert_loop ? s.experts.local : 0;
  const std::int64_t each = s.activation == Activation::kSwiglu ? 3 : 2;
  const std::int64_t linears = attention + mlp + loops * each + (loops > 0 ? 1 : 0);
  const std::int64_t norms = Norms(s);
  sum.Add("linear", linears);
  sum.Add(s.norm == Norm::kRmsNorm ? "rms_norm" : "layer_norm", norms);
  if (s.mixes()) sum.Add("attention");
  if (s.attends && !s.flash()) sum.Add("eager_attention");
  if (mlp > 0) sum.Add(mlp == 3 ? "gated_mlp" : "plain_mlp");
  if (loops > 0) {
    sum.Add("looped_router");
    sum.Add("looped_expert", loops);
    sum.Add(each == 3 ? "gated_mlp" : "plain_mlp", loops);
  } else if (routes) {
    sum.Add("experts");
  }
  sum.Add("bias", (s.attends && s.qkv_bias ? attention - 1 : 0) +
                      (s.attends && s.projection_bias ? 1 : 0) + (s.mlp_bias ? mlp : 0));
  AddWeights(s, linears, norms, &sum);
  AddAdapters(s, again, &sum);
  if (IsQuantized(s)) {
    sum.Add(s.base_weights == BaseWeights::kInt8 ? "int8" : "nf4", linears);
    if (s.double_quantization) sum.Add("double_scales", linears);
  }
  if (again) sum.Add("checkpoint");
  return sum.sum();
}

HostCalls operator+(const HostCalls& a, const HostCalls& b) {
  return {a.operators + b.operators, a.views + b.views, a.modules + b.modules,
          a.functions + b.functions};
}

}  // namespace

HostCalls LayerCalls(const Shape& s, Pass pass) {
  if (pass == Pass::kForward) return PassCalls(s, pass, false);
  const bool again = s.recompute == Recompute::kFull;
  const HostCalls backward = PassCalls(s, pass, again);
  return again ? backward + PassCalls(s, Pass::kForward, false) : backward;
}

HostCalls EndCalls(Pass pass) {
  Sum sum(pass);
  sum.Add("model");
  return sum.sum();
}

namespace {

void Write(const Shape& s, BlockWriter* w, const HostCalls& calls, std::size_t first, Pass pass) {
  const CallTimes& times = s.framework.host.calls;
  const auto in = [](double n, std::int64_t ns) { return n * static_cast<double>(ns); };
  const bool forward = pass == Pass::kForward;
  const double beyond = std::max(0.0, calls.operators - static_cast<double>(w->kernels() - first));
  const double ns = in(beyond, forward ? times.operator_forward : times.operator_backward) +
                    in(calls.views, forward ? times.view_forward : times.view_backward) +
                    in(calls.modules, times.module) + in(calls.functions, times.function);
  w->Host("calls", static_cast<std::int64_t>(std::max(0.0, ns) + 0.5));
}

}  // namespace

void WriteLayerCalls(const Shape& s, BlockWriter* w, std::size_t first, Pass pass) {
  if (s.framework.host.calls.any()) Write(s, w, LayerCalls(s, pass), first, pass);
}

void WriteEndCalls(const Shape& s, BlockWriter* w, Pass pass) {
  if (s.framework.host.calls.any()) Write(s, w, EndCalls(pass), 0, pass);
}

}  // namespace orrery::workload
