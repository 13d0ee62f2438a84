#include "orrery/search/validate/precision.h"

#include "orrery/base/text.h"
#include "orrery/search/validate/config_extra.h"

namespace orrery::search {
namespace {

using workload::Plan;
using workload::Precision;

// What "prec=WORD+…" says; empty: nothing.
std::string_view StatedPrecision(const Configuration& row) {
  const std::string_view stated = Behind(row, "prec=").value_or("");
  return stated.substr(0, stated.find_first_of("+,; "));
}

// TE: Transformer Engine's, whichever; linears and grouped_GEMM: what is converted.
bool IsKnownPrecision(std::string_view word) {
  return word.empty() ||
         IsOneOf(word,
                 "fp8-cs|current_scaling|tensorwise|rowwise|blockwise|TE|linears|grouped_GEMM");
}

// fp8 without more is one scale a tensor: which kind, config_extra or the framework says.
void MapLowPrecision(const Mapping& m, std::string_view dtype) {
  using workload::LowPrecision;
  Plan& plan = m.out->plan;
  const job::FrameworkDefaults& d = m.defaults();
  if (dtype == "mxfp8" || dtype == "nvfp4") {
    plan.precision.low = dtype == "mxfp8" ? LowPrecision::kMxfp8 : LowPrecision::kNvfp4;
  } else if (HasToken(m.row, "fp8-cs") || HasToken(m.row, "current_scaling") ||
             HasToken(m.row, "tensorwise") || m.release.Has("fp8_recipe")) {
    plan.precision.low = LowPrecision::kCurrent;
  } else if (HasToken(m.row, "prec=blockwise")) {
    plan.precision.low = LowPrecision::kBlockwise;
  } else if (HasToken(m.row, "rowwise")) {
    plan.precision.low = LowPrecision::kCurrent;
    m.Assume("prec=rowwise: a scale a row, priced as current scaling");
  } else {
    plan.precision.low = d.fp8_recipe;
    m.AssumeDefault("fp8 recipe", d.fp8_recipe == LowPrecision::kDelayed ? "delayed" : "current");
  }
  if (const std::string_view word = StatedPrecision(m.row); !IsKnownPrecision(word)) {
    m.Assume("prec={} not understood", Printable(word, 40));
  }
  plan.framework.low_precision_gather = dtype != "nvfp4" && d.options.low_precision_gather;
  if (!m.release.Bool("low_precision_gather")) plan.framework.low_precision_gather = false;
  if (HasToken(m.row, "fp8_allgather")) plan.framework.low_precision_gather = true;
  if (HasToken(m.row, "bf16_allgather")) plan.framework.low_precision_gather = false;
  const std::string_view kept = plan.precision.type == Precision::kFp32 ? "fp32" : "bf16";
  m.Assume("parameters gathered in {}", plan.framework.low_precision_gather ? dtype : kept);
  plan.precision.bf16_last_layers = m.release.Integer("bf16_last_layers");
  if (m.release.Has("bf16_modules")) {
    plan.precision.bf16_modules = *workload::ParseBf16Modules(m.release.Text("bf16_modules"));
  }
  if (plan.precision.bf16_last_layers > 0 || plan.precision.bf16_modules != 0) {
    m.Assume("in bf16, as Megatron Bridge's recipes have it: the last {} layers; modules: {}",
             plan.precision.bf16_last_layers,
             workload::Bf16ModulesText(plan.precision.bf16_modules));
  }
  plan.framework.fp8_attention = HasToken(m.row, "fp8_attention");
  // torchtitan converts linear layers and grouped products apart.
  if (m.row.text("arch") == "moe" && HasToken(m.row, "prec=linears")) {
    plan.precision.bf16_modules |= workload::kBf16Experts;
  }
  if (HasToken(m.row, "prec=grouped_GEMM")) {
    plan.precision.bf16_modules |= workload::kBf16Attention | workload::kBf16Mlp;
  }
}

// After the precision, which the default may depend on.
Status MapReduction(const Mapping& m) {
  Plan& plan = m.out->plan;
  const std::string_view reduce = m.row.text("reduce_dtype");
  const job::FrameworkDefaults& d = m.defaults();
  plan.framework.grad_reduce_fp32 = job::ReducesInFp32(d, plan.precision.type);
  if (reduce.empty() && m.release.Has("grad_reduce_fp32")) {
    plan.framework.grad_reduce_fp32 = m.release.Bool("grad_reduce_fp32");
    m.Assume("reduce_dtype={} (blank: the release's recipes)",
             plan.framework.grad_reduce_fp32 ? "fp32" : "bf16");
  } else if (reduce.empty()) {
    m.AssumeDefault("reduce_dtype", plan.framework.grad_reduce_fp32           ? "fp32"
                                    : plan.precision.type == Precision::kFp16 ? "fp16"
                                                                              : "bf16");
  } else if (IsOneOf(reduce, "fp32|bf16|fp16")) {
    plan.framework.grad_reduce_fp32 = reduce == "fp32";
  } else {
    return InvalidInput("reduce_dtype={}: must be fp32, bf16 or fp16", Printable(reduce, 40));
  }
  job::ApplyGradientSums(d, &plan);
  return {};
}

}  // namespace

Status MapPrecision(const Mapping& m) {
  Plan& plan = m.out->plan;
  std::string_view dtype = m.row.text("compute_dtype");
  if (dtype.empty()) {
    const std::string_view text = m.row.text("precision");
    for (const std::string_view known : {"bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4"}) {
      if (text.starts_with(known)) dtype = known;
    }
    if (dtype.empty() && !text.empty()) {
      return InvalidInput("precision={}: must begin with bf16, fp16, fp32, fp8, mxfp8 or nvfp4",
                          Printable(text, 40));
    }
    if (dtype.empty()) return InvalidInput("compute_dtype is blank: name it");
    m.Assume("compute_dtype={} (blank: from precision)", dtype);
  }
  const bool low = IsOneOf(dtype, "fp8|mxfp8|nvfp4");
  // What an 8-bit recipe leaves alone has the type of the parameters.
  const std::string_view kept = low ? m.row.text("param_dtype") : dtype;
  plan.precision.type = kept == "fp16"   ? Precision::kFp16
                        : kept == "fp32" ? Precision::kFp32
                                         : Precision::kBf16;
  if (low) MapLowPrecision(m, dtype);
  return MapReduction(m);
}

void KeepToWhatIsThere(const Mapping& m) {
  Plan& plan = m.out->plan;
  const workload::Model& model = m.out->model;
  const auto drop = [&](workload::Bf16Module part, bool there) {
    if (!there) plan.precision.bf16_modules &= static_cast<std::uint8_t>(~part);
  };
  drop(workload::kBf16Mtp, model.mtp_layers > 0);
  drop(workload::kBf16ExpertLatent, model.experts.latent > 0);
  drop(workload::kBf16Experts, model.experts.count > 0);
  const bool has = plan.framework.attention == workload::AttentionBackend::kCudnn ||
                   plan.framework.attention == workload::AttentionBackend::kFlash3;
  if (!plan.framework.fp8_attention ||
      (has && plan.parallel.cp_exchange != workload::CpExchange::kAllGather))
    return;
  plan.framework.fp8_attention = false;
  m.Assume("attention in 8 bits: not with this kernel or exchange, bf16 attention");
}

}  // namespace orrery::search
