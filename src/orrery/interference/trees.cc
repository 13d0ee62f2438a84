#include "orrery/interference/trees.h"

#include "orrery/base/check.h"

namespace orrery::interference {

Status Trees::Check() const {
  for (std::size_t t = 0; t < trees.size(); ++t) {
    const std::vector<Tree::Node>& nodes = trees[t].nodes;
    if (nodes.empty()) return InvalidInput("tree {} has no node", t);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const Tree::Node& n = nodes[i];
      const auto behind = [&](std::int32_t child) {
        return child > static_cast<std::int64_t>(i) &&
               child < static_cast<std::int64_t>(nodes.size());
      };
      const bool leaf = n.left < 0 && n.right < 0;
      if (!leaf && !(behind(n.left) && behind(n.right))) {
        return InvalidInput("tree {}, node {}: its children {} and {} are no later nodes of {}", t,
                            i, n.left, n.right, nodes.size());
      }
      if (!leaf && (n.feature < 0 || n.feature >= static_cast<std::int64_t>(features.size()))) {
        return InvalidInput("tree {}, node {}: feature {} of {}", t, i, n.feature, features.size());
      }
    }
  }
  return {};
}

float Trees::Predict(std::span<const float> values) const {
  ORRERY_CHECK(values.size() == features.size(), "a value for each feature");
  float sum = base;
  for (const Tree& tree : trees) {
    std::size_t at = 0;
    while (tree.nodes[at].left >= 0) {
      const Tree::Node& n = tree.nodes[at];
      const bool below = values[static_cast<std::size_t>(n.feature)] < n.value;
      at = static_cast<std::size_t>(below ? n.left : n.right);
    }
    sum += tree.nodes[at].value;
  }
  return sum;
}

}  // namespace orrery::interference
