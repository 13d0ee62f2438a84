#include "orrery/base/text.h"
#include "orrery/search/validate/config_extra.h"
#include "orrery/search/validate/mapping.h"

namespace orrery::search {
namespace {

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

void MapReduction(const Mapping& m) {
  const std::string_view reduce = m.row.text("reduce_dtype");
  if (reduce.empty() || m.defaults().ddp) return;
  m.job().Set("framework_options.grad_reduce_fp32", reduce == "fp32");
}

}  // namespace

Status MapPrecision(const Mapping& m) {
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
    m.job().Set("training.precision", dtype);
    m.Assume("compute_dtype={} (blank: from precision)", dtype);
  }
  if (IsOneOf(dtype, "fp8|mxfp8|nvfp4")) {
    // What an 8-bit recipe leaves alone has the type of the parameters.
    const std::string_view kept = m.row.text("param_dtype");
    if (IsOneOf(kept, "fp16|fp32")) m.job().Set("training.param_dtype", kept);
    if (const std::string_view word = StatedPrecision(m.row); !IsKnownPrecision(word)) {
      m.Assume("prec={} not understood", Printable(word, 40));
    }
  }
  MapReduction(m);
  return {};
}

void MapBf16Parts(const Mapping& m) {
  constexpr std::string_view kModules = "training.bf16_modules";
  if (!m.job().Has(kModules)) return;
  const workload::Model& model = m.out->model;
  int modules = *workload::ParseBf16Modules(m.job().Text(kModules));
  if (model.mtp_layers == 0) modules &= ~workload::kBf16Mtp;
  if (model.experts.latent == 0) modules &= ~workload::kBf16ExpertLatent;
  if (model.experts.count == 0) modules &= ~workload::kBf16Experts;
  m.job().Drop(kModules);
  if (modules == 0) return;
  const auto bits = static_cast<std::uint8_t>(modules);
  m.job().Set(kModules, workload::Bf16ModulesText(bits));
}

}  // namespace orrery::search
