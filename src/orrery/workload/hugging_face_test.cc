// Hugging Face's config.json: families against presets and published counts, windows, refusals.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "orrery/workload/model.h"

namespace orrery::workload {
namespace {

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

TEST_F(HuggingFace, ExpertFamiliesAreThePresets) {
  const auto count = [&](std::string_view text) {
    const Result<Model> m = ReadHuggingFaceConfig(Write(text));
    EXPECT_TRUE(m.ok()) << m.status().message();
    return m.ok() ? m->parameters() : 0;
  };
  EXPECT_EQ(count(R"({"model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2, "hidden_act": "silu",
    "sliding_window": null})"),
            46'702'792'704);
  EXPECT_EQ(count(R"({"model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "decoder_sparse_step": 1, "vocab_size": 151936})"),
            30'532'122'624);
  EXPECT_EQ(count(R"({"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
    "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "vocab_size": 129280})"),
            671'026'404'352);
  EXPECT_EQ(count(R"({"model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "intermediate_size": 2880, "num_local_experts": 32, "num_experts_per_tok": 4,
    "sliding_window": 128, "vocab_size": 201088})"),
            20'914'757'184);
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

std::string Dense(std::string_view type, std::string_view more) {
  return fmt::format(R"({{"model_type": "{}",
"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, {}}})",
                     type, more);
}

// Published: the presets' own counts are (model_test.cc).
TEST_F(HuggingFace, DenseFamiliesAreThePresets) {
  const std::pair<std::string_view, std::string> rows[] = {
      {"mistral-7b", Dense("mistral", R"("num_key_value_heads": 8, "intermediate_size": 14336,
          "vocab_size": 32000, "sliding_window": 4096)")},
      {"gpt-neox-20b", R"({"model_type": "gpt_neox", "num_hidden_layers": 44,
          "hidden_size": 6144, "num_attention_heads": 64, "intermediate_size": 24576,
          "vocab_size": 50432, "hidden_act": "gelu_fast"})"},
      {"opt-6.7b", Dense("opt", R"("ffn_dim": 16384, "vocab_size": 50272,
          "word_embed_proj_dim": 4096, "activation_function": "relu")")},
      {"bloom-176b", R"({"model_type": "bloom", "n_layer": 70, "n_embed": 14336,
          "num_attention_heads": 112, "vocab_size": 250880})"},
      {"falcon-7b", R"({"model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544,
          "num_attention_heads": 71, "vocab_size": 65024, "multi_query": true})"},
      {"falcon-40b", R"({"model_type": "falcon", "num_hidden_layers": 60, "hidden_size": 8192,
          "num_attention_heads": 128, "num_kv_heads": 8, "vocab_size": 65024,
          "new_decoder_architecture": true})"},
      {"mpt-7b", R"({"model_type": "mpt", "n_layers": 32, "d_model": 4096, "n_heads": 32,
          "vocab_size": 50432, "attn_config": {"alibi": true}})"},
      {"bert-large", R"({"model_type": "bert", "num_hidden_layers": 24, "hidden_size": 1024,
          "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 30522,
          "hidden_act": "gelu", "type_vocab_size": 2})"},
      {"nemotron4-15b", R"({"model_type": "nemotron", "num_hidden_layers": 32,
          "hidden_size": 6144, "num_attention_heads": 48, "num_key_value_heads": 8,
          "intermediate_size": 24576, "vocab_size": 256000, "hidden_act": "relu2"})"}};
  for (const auto& [name, text] : rows) {
    const Result<Model> m = ReadHuggingFaceConfig(Write(text));
    ASSERT_TRUE(m.ok()) << name << ": " << m.status().message();
    const Model preset = *FindModel(name);
    EXPECT_EQ(m->parameters(), preset.parameters()) << name;
    EXPECT_EQ(m->flops_per_sequence(2048), preset.flops_per_sequence(2048)) << name;
    EXPECT_EQ(m->window, preset.window) << name;
    EXPECT_EQ(m->position, preset.position) << name;
    EXPECT_EQ(m->dropout, preset.dropout) << name;
  }
}

// Counts of the checkpoints on Hugging Face, to 0.1 %; GLM-4.5-Air's, printed as 106B, from its
// shapes: 46 layers of attention 4,096 · (2 · 12,288 + 2 · 1,024) and biases of q, k and v, one of
// 3 · 4,096 · 10,944, 45 of 129 experts of 3 · 4,096 · 1,408 and a router.
TEST_F(HuggingFace, OtherFamiliesAreAsPublished) {
  const double glm = 46.0 * (4096 * (2 * 12288 + 2 * 1024) + 12288 + 2048 + 2 * 4096) +
                     3.0 * 4096 * 10944 + 45 * (129 * 3.0 * 4096 * 1408 + 128 * 4096) +
                     2.0 * 151552 * 4096 + 4096;
  EXPECT_NEAR(glm, 106.85e9, 0.01e9);
  const std::pair<double, std::string> rows[] = {
      {3'821'079'552, R"({"model_type": "phi3", "num_hidden_layers": 32, "hidden_size": 3072,
          "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 8192,
          "vocab_size": 32064, "hidden_act": "silu", "sliding_window": 2047})"},
      {8'537'680'896, R"({"model_type": "gemma", "num_hidden_layers": 28, "hidden_size": 3072,
          "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256,
          "intermediate_size": 24576, "vocab_size": 256000})"},
      {3'030'371'328, R"({"model_type": "starcoder2", "num_hidden_layers": 30,
          "hidden_size": 3072, "num_attention_heads": 24, "num_key_value_heads": 2,
          "intermediate_size": 12288, "vocab_size": 49152, "hidden_act": "gelu_pytorch_tanh",
          "sliding_window": 4096})"},
      {14'315'784'192, R"({"model_type": "qwen2_moe", "num_hidden_layers": 24,
          "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 16,
          "intermediate_size": 5632, "moe_intermediate_size": 1408, "num_experts": 60,
          "num_experts_per_tok": 4, "shared_expert_intermediate_size": 5632,
          "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936,
          "use_sliding_window": false, "sliding_window": 32768})"},
      {glm, R"({"model_type": "glm4_moe", "num_hidden_layers": 46, "hidden_size": 4096,
          "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
          "attention_bias": true, "intermediate_size": 10944, "moe_intermediate_size": 1408,
          "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8,
          "first_k_dense_replace": 1, "vocab_size": 151552, "hidden_act": "silu"})"}};
  for (const auto& [count, text] : rows) {
    const Result<Model> m = ReadHuggingFaceConfig(Write(text));
    ASSERT_TRUE(m.ok()) << m.status().message();
    EXPECT_NEAR(static_cast<double>(m->parameters()) / count, 1, 1e-4) << text;
  }
}

// In all layers, in all but the last of every three, in none; what begins in the middle is refused.
TEST_F(HuggingFace, Windows) {
  const auto read = [&](std::string_view type, std::string_view more) {
    const std::string text =
        Dense(type, fmt::format(R"("num_key_value_heads": 8, "intermediate_size": 14336,
"vocab_size": 32000, "sliding_window": 512{})",
                                more));
    return ReadHuggingFaceConfig(Write(text));
  };
  const auto types = [](int full_every) {
    std::string list = R"(, "layer_types": [)";
    for (int l = 1; l <= 32; ++l) {
      const bool full = full_every > 0 && l % full_every == 0;
      list += fmt::format("{}\"{}_attention\"", l > 1 ? ", " : "", full ? "full" : "sliding");
    }
    return list + "]";
  };
  const auto windows = [](const Result<Model>& m) {
    int count = 0;
    for (std::int64_t l = 0; m.ok() && l < m->layers; ++l) {
      count += (m->layer_kind(l) & kWindowLayer) != 0 ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(windows(read("mistral", "")), 32);
  EXPECT_EQ(windows(read("mistral", types(0))), 32);
  EXPECT_EQ(windows(read("mistral", types(3))), 22);
  EXPECT_EQ(windows(read("mistral", types(1))), 0);
  EXPECT_EQ(windows(read("qwen2", R"(, "use_sliding_window": false)")), 0);
  EXPECT_EQ(windows(read("qwen2", R"(, "use_sliding_window": true, "max_window_layers": 32)")), 0);
  EXPECT_EQ(windows(read("qwen2", R"(, "use_sliding_window": true, "max_window_layers": 0)")), 32);
  EXPECT_THAT(
      read("qwen2", R"(, "use_sliding_window": true, "max_window_layers": 28)").status().message(),
      testing::HasSubstr("max_window_layers '28' is not supported; windows in the last layers "
                         "alone are not modelled; set use_sliding_window to false"));
  std::string odd = types(3);
  odd.replace(odd.find("sliding"), 7, "full");
  EXPECT_THAT(read("mistral", odd).status().message(),
              testing::HasSubstr("layer_types: layer 2 of 32; windows are modelled in all layers, "
                                 "or in all but the last of every so many"));
  odd = types(0);
  odd.replace(odd.find("sliding"), 7, "chunked");
  EXPECT_THAT(read("mistral", odd).status().message(),
              testing::HasSubstr("'chunked_attention' is not modelled; valid: full_attention"));
}

constexpr std::string_view kTypes =
    "gpt2, gpt_neox, opt, bloom, falcon, mpt, bert, nemotron, starcoder2, llama, mistral, phi3, "
    "gemma, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, kimi_k2, "
    "glm4_moe, gpt_oss, nemotron_h";

TEST_F(HuggingFace, ErrorsNameFileFieldValueAndRemedy) {
  EXPECT_EQ(Error(std::string(kLlama.substr(0, 100))),
            "config.json: the JSON ends in the middle; the file is cut short (the file has 100 "
            "bytes); take the model's whole config.json");
  EXPECT_EQ(Error(R"({"model_type": "mixtrak"})"),
            "config.json:1: unknown model_type 'mixtrak'; did you mean 'mixtral' or 'mistral'? "
            "valid: " +
                std::string(kTypes));
  EXPECT_EQ(Error(R"({"hidden_size": 8})"),
            "config.json: model_type is missing; valid: " + std::string(kTypes));
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

}  // namespace
}  // namespace orrery::workload
