// Names of modules to the products that adapters stand beside.
#include "orrery/recipes/adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::recipes {
namespace {

using testing::HasSubstr;

std::string TargetsOf(const std::vector<std::string>& modules) {
  const Options options;
  Reading reading({}, options, "adapters.yaml");
  SetLoraTargets(modules, "--lora_target_modules", &reading);
  return std::string(reading.draft().Text("training.lora_targets"));
}

TEST(LoraTargets, FromModules) {
  EXPECT_EQ(TargetsOf({"all-linear"}), "all");
  EXPECT_EQ(TargetsOf({"q_proj", "v_proj"}), "qkv");
  EXPECT_EQ(TargetsOf({"q", "v"}), "qkv");  // T5's
  EXPECT_EQ(TargetsOf({"q_proj", "k_proj", "v_proj", "o_proj"}), "attention");
  EXPECT_EQ(TargetsOf({"gate_proj", "down_proj", "up_proj", "q_proj", "v_proj"}), "qkv+fc1+fc2");
  EXPECT_EQ(TargetsOf({"model.layers.0.mlp.down_proj"}), "fc2");
  EXPECT_EQ(TargetsOf({"lm_head"}), "");
}

TEST(LoraTargets, FromPatterns) {
  EXPECT_EQ(
      TargetsOf({"model.language_model.layers.[\\d]+.(mlp|cross_attn|self_attn).(up|down|gate|"
                 "q|k|v|o)_proj"}),
      "all");
  EXPECT_EQ(
      TargetsOf(
          {".*\\.layers\\.(3|7)\\.self_attn\\.(q|k|v|o)_proj|.*\\.mlp\\.(gate|up|down)_proj"}),
      "all");
  EXPECT_EQ(TargetsOf({"layers.[\\d]+.(self_attn.(q_a_proj|kv_b_proj|o_proj)|mlp.(shared_experts.)?"
                       "(gate_proj|up_proj))"}),
            "qkv+projection+fc1");
}

}  // namespace
}  // namespace orrery::recipes
