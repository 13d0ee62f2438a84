#include "orrery/workload/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace orrery::workload {
namespace {

Model Preset(std::string_view name) {
  Result<Model> model = FindModel(name);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : Model{};
}

// Published counts: the checkpoints' own (sum of tensor sizes on Hugging Face).
TEST(Model, ParameterCountsArePublished) {
  const std::pair<std::string_view, std::int64_t> published[] = {
      {"gpt2", 124'439'808},
      {"gpt2-medium", 354'823'168},
      {"gpt2-large", 774'030'080},
      {"gpt2-xl", 1'557'611'200},
      {"llama2-7b", 6'738'415'616},
      {"llama2-13b", 13'015'864'320},
      {"llama2-70b", 68'976'648'192},
      {"llama3-8b", 8'030'261'248},
      {"llama3-70b", 70'553'706'496},
      {"llama3.1-8b", 8'030'261'248},
      {"llama3.1-70b", 70'553'706'496},
      {"llama3.1-405b", 405'853'388'800},
  };
  for (const auto& [name, count] : published) EXPECT_EQ(Preset(name).parameters(), count) << name;
}

// Moye's Table 9 prints nominal sizes for given heads, layers and hidden; the count follows from
// those: 12·L·h² + 13·L·h for the layers, (V + s)·h for the embeddings, 2·h for the last norm.
TEST(Model, MoyeTable9CountsFollowFromItsShapes) {
  struct Row {
    std::string_view name;
    std::int64_t layers, hidden, heads;
    double printed_billion, tolerance;  // the table rounds, v2 and v4 generously
  };
  const Row rows[] = {
      {"gpt3-13b", 40, 5120, 32, 13, 0.02},     {"gpt3-30b", 40, 7680, 48, 30, 0.05},
      {"gpt3-40b", 40, 9216, 72, 40, 0.04},     {"gpt3-70b", 80, 8192, 64, 70, 0.08},
      {"gpt3-175b", 96, 12288, 96, 175, 0.003}, {"gpt3-485b", 96, 20480, 160, 485, 0.002}};
  for (const Row& row : rows) {
    const Model m = Preset(row.name);
    EXPECT_EQ(m.layers, row.layers);
    EXPECT_EQ(m.hidden, row.hidden);
    EXPECT_EQ(m.heads, row.heads);
    const std::int64_t h = row.hidden;
    EXPECT_EQ(m.parameters(),
              12 * row.layers * h * h + 13 * row.layers * h + (50257 + 2048) * h + 2 * h);
    EXPECT_NEAR(static_cast<double>(m.parameters()) * 1e-9 / row.printed_billion, 1, row.tolerance);
  }
}

TEST(Model, EveryPresetIsValid) {
  for (const ModelPreset& preset : ModelPresets()) {
    const Model m = Preset(preset.name);
    EXPECT_TRUE(Validate(m).ok()) << preset.name;
    EXPECT_EQ(m.head_dim * m.heads, m.hidden) << preset.name;
    EXPECT_FALSE(m.source.empty());
  }
}

// 72·s·L·h²·(1 + s/(12h) + V/(12·L·h)): Narayanan et al. 2021 without recompute, the causal half of
// attention counted (s/12h for their s/6h).
TEST(Model, FlopsAreNarayanansWithCausalAttention) {
  const Model m = Preset("gpt3-175b");
  const double s = 2048, h = 12288, layers = 96, v = 50257;
  const double expected = 72 * s * layers * h * h * (1 + s / (12 * h) + v / (12 * layers * h));
  EXPECT_NEAR(m.flops_per_sequence(2048) / expected, 1, 1e-12);
}

TEST(Model, UnknownNameNamesTheNearest) {
  EXPECT_THAT(FindModel("llama3-70").status().message(),
              testing::HasSubstr("unknown model 'llama3-70'; did you mean 'llama3-70b'"));
}

class HuggingFace : public testing::Test {
 protected:
  std::string Write(std::string_view text) {
    path_ = testing::TempDir() + "config.json";
    std::ofstream(path_) << text;
    return path_;
  }
  // The error with the directory taken off.
  std::string Error(std::string_view text) {
    std::string message = ReadHuggingFaceConfig(Write(text)).status().message();
    for (auto at = message.find(testing::TempDir()); at != std::string::npos;
         at = message.find(testing::TempDir())) {
      message.erase(at, testing::TempDir().size());
    }
    return message;
  }
  void TearDown() override { std::remove(path_.c_str()); }
  std::string path_;
};

constexpr std::string_view kLlama = R"({
  "model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192,
  "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
  "vocab_size": 128256, "max_position_embeddings": 8192, "hidden_act": "silu",
  "rope_scaling": null, "tie_word_embeddings": false
})";

TEST_F(HuggingFace, LlamaIsThePreset) {
  const Result<Model> m = ReadHuggingFaceConfig(Write(kLlama));
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->parameters(), 70'553'706'496);
  EXPECT_EQ(m->head_dim, 128);
}

TEST_F(HuggingFace, Gpt2IsThePreset) {
  const Result<Model> m = ReadHuggingFaceConfig(Write(R"({"model_type": "gpt2", "n_layer": 12,
      "n_embd": 768, "n_head": 12, "n_inner": null, "vocab_size": 50257, "n_positions": 1024,
      "activation_function": "gelu_new", "resid_pdrop": 0.1})"));
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->parameters(), 124'439'808);
  EXPECT_TRUE(m->tied_embeddings);
  EXPECT_DOUBLE_EQ(m->dropout, 0.1);
}

TEST_F(HuggingFace, MistralNeedsFullAttention) {
  const std::string_view text = R"({"model_type": "mistral", "num_hidden_layers": 32,
"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
"intermediate_size": 14336, "vocab_size": 32768, "hidden_act": "silu",
"sliding_window": 4096})";
  EXPECT_EQ(
      Error(text),
      "config.json:4: sliding_window '4096' is not supported; sliding-window attention is not "
      "modelled yet; set it to null for full attention");
  std::string full(text);
  full.replace(full.find("4096}"), 4, "null");
  EXPECT_TRUE(ReadHuggingFaceConfig(Write(full)).ok());
}

TEST_F(HuggingFace, ErrorsNameFileFieldValueAndRemedy) {
  EXPECT_EQ(Error(std::string(kLlama.substr(0, 100))),
            "config.json: the JSON ends in the middle; the file is cut short (the file has 100 "
            "bytes); take the model's whole config.json");
  EXPECT_EQ(
      Error(R"({"model_type": "mixtral"})"),
      "config.json:1: unknown model_type 'mixtral'; did you mean 'mistral'? valid: gpt2, llama, "
      "mistral");
  EXPECT_EQ(Error(R"({"hidden_size": 8})"),
            "config.json: model_type is missing; valid: gpt2, llama, mistral");
  EXPECT_EQ(Error(R"({"model_type": "gpt2"})"),
            "config.json: n_layer is missing; add it, or take the model's whole config.json");
  EXPECT_EQ(Error(R"({"model_type": "gpt2", "n_layer": -3})"),
            "config.json:1: n_layer is -3; write a whole number from 1");
  EXPECT_EQ(Error(R"({"model_type": "gpt2", "n_layer": "12"})"),
            "config.json:1: n_layer is '12'; write a whole number from 1");
  EXPECT_EQ(Error(R"({"model_type": "gpt2", "n_layer": [12]})"),
            "config.json:1: n_layer is a list; write a whole number from 1");
  EXPECT_EQ(Error("[1]"), "config.json: a config.json is one JSON object, this is not");
}

TEST_F(HuggingFace, HeadsMustDivideTheHiddenSize) {
  std::string text(kLlama);
  text.replace(text.find("8192"), 4, "8191");
  EXPECT_EQ(Error(text),
            "config.json: 64 attention heads do not divide the hidden size 8191; give head_dim");
}

TEST(Model, WrongSizesAreNamed) {
  Model m = Preset("llama3-8b");
  m.kv_heads = 5;
  EXPECT_EQ(
      Validate(m).message(),
      "model.kv_heads: 5 does not divide heads (32); every key and value head serves the same "
      "number of query heads: choose a divisor of 32");
  m = Preset("llama3-8b");
  m.hidden = 0;
  EXPECT_EQ(Validate(m).message(),
            "model.hidden: 0 is outside 1 … 1048576; give the model's true size");
}

}  // namespace
}  // namespace orrery::workload
