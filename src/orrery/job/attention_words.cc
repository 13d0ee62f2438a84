#include "orrery/job/attention_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/job/plan_keys.h"

namespace orrery::job {

workload::AttentionBackend AttentionNamed(std::string_view word, const FrameworkDefaults& defaults,
                                          cluster::Arch arch, const workload::Model& model) {
  using workload::AttentionBackend;
  if (word == "sdpa") return AttentionOn(arch, AttentionDefault::kTorch);
  if (word == "te") {
    FrameworkDefaults engine = defaults;
    engine.attention = AttentionDefault::kLibrary;
    engine.libraries.transformer_engine = true;
    return AttentionFor(engine, arch, model);
  }
  if (word == "flash") {
    const bool first = defaults.attention == AttentionDefault::kFlash1;
    return first ? AttentionBackend::kFlash1 : AttentionBackend::kFlash2;
  }
  if (word == "flex") return AttentionBackend::kFlash2;
  return Choose(kAttentions, word);
}

std::string SetWideHeads(const workload::Model& model, bool transformer_engine,
                         workload::FrameworkBehaviour* behaviour) {
  if (model.net != nullptr || model.latent.kv_rank > 0 || behaviour->unfuses_some()) return "";
  std::int64_t widest = 0;
  for (std::int64_t l = 0; l < model.layers; ++l) {
    widest = std::max(widest, model.of_kind(model.layer_kind(l)).head_dim);
  }
  if (widest <= workload::kWidestFusedHead) return "";
  behaviour->unfuses_wide_heads = transformer_engine;
  return fmt::format(
      "attention of heads of {}: {}", widest,
      transformer_engine
          ? "unfused, for Transformer Engine's fused kernels end at 256"
          : "priced as flash attention, whose kernels end at 256; PyTorch takes its "
            "memory-efficient kernel, which is slower by what nobody has measured here");
}

}  // namespace orrery::job
