#include "orrery/workload/importers/astra_text/text_workload.h"

#include <charconv>
#include <optional>
#include <vector>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/chakra.h"
#include "orrery/workload/importers/astra_text/layers.h"

namespace orrery::workload {
namespace {

using formats::ChakraCollective;
using formats::ChakraNode;
using formats::ChakraNodeType;
using Id = std::uint64_t;

// Nodes of a layer that later ones wait for.
struct Made {
  std::optional<Id> forward, forward_comm;
  std::optional<Id> weight, weight_comm;  // gradients
  std::optional<Id> input, input_comm;
};

class Writer {
 public:
  explicit Writer(const std::vector<TextLayer>& layers) : layers_(layers), made_(layers.size()) {}

  Status Pass(const std::string& policy, std::size_t bottom) {
    if (policy == "MICRO") {
      for (const TextLayer& layer : layers_)
        ORRERY_RETURN_IF_ERROR(Comm(layer, layer.weight_gradient, {}).status());
      return {};
    }
    if (policy == "DATA") return DataPass();
    if (policy.starts_with("HYBRID_DLRM")) return DlrmPass(bottom);
    return ModelPass(policy != "MODEL");
  }
  std::string Release() { return out_.Release(); }

 private:
  using Deps = std::vector<std::optional<Id>>;

  Id Add(const ChakraNode& node, const std::string& name, const Deps& deps) {
    std::vector<Id> ids;
    for (const std::optional<Id>& d : deps) {
      if (d) ids.push_back(*d);
    }
    out_.Add(node, name, "", ids);
    return next_++;
  }
  Id Work(const TextLayer& layer, const char* phase, std::int64_t us, const Deps& deps) {
    ChakraNode node;
    node.id = next_;
    node.type = ChakraNodeType::kCompute;
    node.duration_us = static_cast<std::uint64_t>(us);
    return Add(node, layer.name + "." + phase, deps);
  }
  Result<Id> Comm(const TextLayer& layer, const TextPhase& phase, const Deps& deps) {
    constexpr std::string_view kKinds[] = {"NONE", "ALLREDUCE", "ALLGATHER", "REDUCESCATTER",
                                           "ALLTOALL"};
    ChakraNode node;
    node.id = next_;
    node.type = ChakraNodeType::kCollective;
    node.has = ChakraNode::kCommType | ChakraNode::kCommSize;
    node.comm_size = static_cast<std::uint64_t>(phase.bytes);
    if (phase.comm == "NONE" || phase.comm == "ALLREDUCE") {
      node.collective = ChakraCollective::kAllReduce;
    } else if (phase.comm == "ALLGATHER") {
      node.collective = ChakraCollective::kAllGather;
    } else if (phase.comm == "REDUCESCATTER") {
      node.collective = ChakraCollective::kReduceScatter;
    } else if (phase.comm == "ALLTOALL") {
      node.collective = ChakraCollective::kAllToAll;
    } else {
      return InvalidInput("layer '{}': {}", Printable(layer.name, 60),
                          UnknownName("communication", Printable(phase.comm, 40), kKinds));
    }
    return Add(node, layer.name + "." + phase.comm, deps);
  }

  Status DataPass() {
    std::optional<Id> before;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      before = made_[i].forward =
          Work(layers_[i], "forward", layers_[i].forward.time, {before, made_[i].weight_comm});
    }
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const TextLayer& layer = layers_[i];
      Made& m = made_[i];
      m.weight = Work(layer, "weight_gradient", layer.weight_gradient.time, {before});
      ORRERY_ASSIGN_OR_RETURN(m.weight_comm, Comm(layer, layer.weight_gradient, {m.weight}));
      if (i > 0) before = Work(layer, "input_gradient", layer.input_gradient.time, {m.weight});
    }
    return {};
  }

  // `data`: weight gradients are communicated, too.
  Status ModelPass(bool data) {
    std::optional<Id> before;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const TextLayer& layer = layers_[i];
      const std::optional<Id> update = data ? made_[i].weight_comm : made_[i].weight;
      const Id forward = Work(layer, "forward", layer.forward.time, {before, update});
      ORRERY_ASSIGN_OR_RETURN(before, Comm(layer, layer.forward, {forward}));
    }
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const TextLayer& layer = layers_[i];
      Made& m = made_[i];
      const bool top = i + 1 == layers_.size();
      const Deps deps = top ? Deps{before} : Deps{made_[i + 1].weight, made_[i + 1].input_comm};
      m.input = Work(layer, "input_gradient", layer.input_gradient.time, deps);
      if (i > 0) {
        ORRERY_ASSIGN_OR_RETURN(m.input_comm, Comm(layer, layer.input_gradient, {m.input}));
      }
      m.weight = Work(layer, "weight_gradient", layer.weight_gradient.time, {m.input});
      if (data) {
        ORRERY_ASSIGN_OR_RETURN(m.weight_comm, Comm(layer, layer.weight_gradient, {m.weight}));
      }
    }
    return {};
  }

  Status DlrmPass(std::size_t bottom) {
    std::optional<Id> before;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const TextLayer& layer = layers_[i];
      Made& m = made_[i];
      Deps deps = {m.weight_comm ? m.weight_comm : m.weight, before};
      if (i == bottom) deps.push_back(made_[0].forward_comm);
      before = m.forward = Work(layer, "forward", layer.forward.time, deps);
      if (layer.forward.comm != "ALLTOALL") continue;
      ORRERY_ASSIGN_OR_RETURN(m.forward_comm, Comm(layer, layer.forward, {m.forward}));
    }
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const TextLayer& layer = layers_[i];
      Made& m = made_[i];
      const bool top = i + 1 == layers_.size();
      const Deps deps = top ? Deps{before} : Deps{made_[i + 1].input, m.input_comm};
      m.weight = Work(layer, "weight_gradient", layer.weight_gradient.time, deps);
      if (layer.weight_gradient.comm != "NONE") {
        ORRERY_ASSIGN_OR_RETURN(m.weight_comm, Comm(layer, layer.weight_gradient, {m.weight}));
      }
      if (i > 0) m.input = Work(layer, "input_gradient", layer.input_gradient.time, {m.weight});
      if (i == bottom + 1) {
        ORRERY_ASSIGN_OR_RETURN(made_[0].input_comm,
                                Comm(layers_[0], layers_[0].input_gradient, {m.input}));
      }
    }
    return {};
  }

  const std::vector<TextLayer>& layers_;
  std::vector<Made> made_;
  formats::ChakraWriter out_;
  Id next_ = 0;
};

}  // namespace

Result<std::string> ReadTextWorkload(std::string_view text, const std::string& name, int passes) {
  ORRERY_ASSIGN_OR_RETURN(const LayerText parsed, ParseLayerText(text, name));
  const std::string& policy = parsed.header[0];
  std::size_t bottom = 0;
  if (policy.starts_with("HYBRID_DLRM")) {
    if (parsed.layers.size() < 3) {
      return InvalidInput("{}: {} needs at least 3 layers, not {}", Printable(name), policy,
                          parsed.layers.size());
    }
    const std::string word = parsed.header.size() > 1 ? parsed.header[1] : "";
    const auto [at, error] = std::from_chars(word.data(), word.data() + word.size(), bottom);
    if (word.empty() || error != std::errc() || at != word.data() + word.size() || bottom == 0 ||
        bottom + 1 >= parsed.layers.size() || parsed.layers[0].forward.comm != "ALLTOALL") {
      return InvalidInput(
          "{}:1: {} is followed by the number of the last bottom layer, from 1 to {}, and the "
          "first layer's forward communication is ALLTOALL",
          Printable(name), Printable(policy, 40), parsed.layers.size() - 2);
    }
  }
  Writer writer(parsed.layers);
  for (int pass = 0; pass < passes; ++pass) {
    ORRERY_RETURN_IF_ERROR(writer.Pass(policy, bottom).In(Printable(name)));
  }
  return writer.Release();
}

}  // namespace orrery::workload
