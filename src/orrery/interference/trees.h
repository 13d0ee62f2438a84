// Gradient-boosted regression trees, evaluated as XGBoost does (float32, in order): equal to
// libxgboost to 1e-6. Trained by tools/slowdown, read by job/read_slowdown.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::interference {

struct Tree {
  struct Node {
    std::int32_t left = -1, right = -1;  // of this tree; a leaf has none
    std::int32_t feature = 0;
    float value = 0;  // left where the feature is below; of a leaf what it adds
  };
  std::vector<Node> nodes;  // 0 is the root; children stand behind their parent
};

struct Trees {
  std::vector<std::string> features;
  std::vector<Tree> trees;
  float base = 0;

  // Children within the tree and behind their parent, features that are named.
  Status Check() const;
  // REQUIRES: Check(), and as many values as features. Cost: the depth of each tree.
  float Predict(std::span<const float> values) const;
};

}  // namespace orrery::interference
