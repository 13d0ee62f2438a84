#include "orrery/job/attention_words.h"

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

}  // namespace orrery::job
