#include <vector>

#include "orrery/base/suggest.h"
#include "orrery/workload/conv_net.h"
#include "orrery/workload/model.h"
#include "orrery/workload/presets_dense.h"
#include "orrery/workload/presets_experts.h"
#include "orrery/workload/presets_hybrid.h"

namespace orrery::workload {

std::span<const ModelPreset> ModelPresets() {
  static const std::vector<ModelPreset> presets = [] {
    std::vector<ModelPreset> out;
    for (const auto& more : {DensePresets(), ExpertPresets(), HybridPresets()}) {
      out.insert(out.end(), more.begin(), more.end());
    }
    for (const ConvNet& net : ConvNets()) out.push_back({net.name, net.description});
    return out;
  }();
  return presets;
}

Result<Model> FindModel(std::string_view name) {
  std::vector<std::string_view> valid;
  for (const auto& [presets, build] : {std::pair{DensePresets(), &BuildDensePreset},
                                       std::pair{ExpertPresets(), &BuildExpertPreset},
                                       std::pair{HybridPresets(), &BuildHybridPreset}}) {
    for (const ModelPreset& preset : presets) {
      if (preset.name == name) return build(name);
      valid.push_back(preset.name);
    }
  }
  for (const ConvNet& net : ConvNets()) {
    if (net.name == name) {
      Model m;
      m.name = net.name;
      m.source = net.source;
      m.layers = static_cast<std::int64_t>(net.order.size());
      m.hidden = m.heads = m.kv_heads = m.head_dim = m.ffn_hidden = m.vocab = m.max_position = 1;
      m.position = Position::kNone;
      m.tied_embeddings = false;
      m.net = &net;
      return m;
    }
    valid.push_back(net.name);
  }
  return InvalidInput("{}", UnknownName("model", name, valid));
}

}  // namespace orrery::workload
