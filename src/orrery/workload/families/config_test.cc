// config.json: families against presets and published counts, windows, what is not read, refusals.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include "orrery/workload/families/config.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {
namespace {

class HuggingFace : public testing::Test {
 protected:
  std::string Write(std::string_view text) {
    path_ = testing::TempDir() + "config.json";
    std::ofstream(path_) << text;
    return path_;
  }
  Result<Model> Read(std::string_view text) {
    notes_.clear();
    return ReadConfig(Write(text), families::Families::BuiltIn(), &notes_);
  }
  std::string Error(std::string_view text) { return Bare(Read(text).status().message()); }
  // With the directory taken off.
  static std::string Bare(std::string message) {
    for (auto at = message.find(testing::TempDir()); at != std::string::npos;
         at = message.find(testing::TempDir())) {
      message.erase(at, testing::TempDir().size());
    }
    return message;
  }
  void TearDown() override { std::remove(path_.c_str()); }
  std::string path_;
  std::vector<std::string> notes_;
};

constexpr std::string_view kLlama = R"({
  "model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192,
  "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
  "vocab_size": 128256, "max_position_embeddings": 8192, "hidden_act": "silu",
  "rope_scaling": null, "tie_word_embeddings": false
})";

TEST_F(HuggingFace, LlamaIsThePreset) {
  const Result<Model> m = Read(kLlama);
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->parameters(), 70'553'706'496);
  EXPECT_EQ(m->head_dim, 128);
}

TEST_F(HuggingFace, ExpertFamiliesAreThePresets) {
  const auto count = [&](std::string_view text) {
    const Result<Model> m = Read(text);
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
  const Result<Model> m = Read((R"({"model_type": "gpt2", "n_layer": 12,
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
    const Result<Model> m = Read(text);
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
    const Result<Model> m = Read(text);
    ASSERT_TRUE(m.ok()) << m.status().message();
    EXPECT_NEAR(static_cast<double>(m->parameters()) / count, 1, 1e-4) << text;
  }
}

// In all layers, in all but the last of every three, in none, in any others.
TEST_F(HuggingFace, Windows) {
  const auto read = [&](std::string_view type, std::string_view more) {
    const std::string text =
        Dense(type, fmt::format(R"("num_key_value_heads": 8, "intermediate_size": 14336,
"vocab_size": 32000, "sliding_window": 512{})",
                                more));
    return Read(text);
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
  // In the last layers alone, and in all but the second: a letter a layer.
  EXPECT_EQ(windows(read("qwen2", R"(, "use_sliding_window": true, "max_window_layers": 28)")), 4);
  EXPECT_EQ(read("qwen2", R"(, "use_sliding_window": true, "max_window_layers": 28)")->pattern,
            std::string(28, 'D') + "dddd");
  std::string odd = types(0);
  odd.replace(odd.find("sliding", odd.find("sliding") + 1), 7, "full");
  EXPECT_EQ(windows(read("mistral", odd)), 31);
  odd = types(3);
  odd.replace(odd.find("sliding"), 7, "full");
  EXPECT_EQ(read("mistral", odd)->pattern.substr(0, 6), "DdDddD");
  odd = types(0);
  odd.replace(odd.find("sliding"), 7, "chunked");
  EXPECT_THAT(read("mistral", odd).status().message(),
              testing::HasSubstr("layer_types: 'chunked_attention' of layer 1 is not modelled; "
                                 "valid: full_attention, sliding_attention"));
}

TEST_F(HuggingFace, ErrorsNameFileFieldValueAndRemedy) {
  EXPECT_EQ(Error(std::string(kLlama.substr(0, 100))),
            "config.json: the JSON ends in the middle; the file is cut short (the file has 100 "
            "bytes); take the model's whole config.json");
  EXPECT_EQ(Error(R"({"hidden_size": 8})"),
            "config.json: model_type is missing; add it ('orrery list model-types' has those that "
            "are read)");
  EXPECT_EQ(Error(R"({"model_type": "gpt2"})"),
            "config.json: n_layer is missing; add it, or take the model's whole config.json");
  EXPECT_EQ(Error(R"({"model_type": "gpt2", "n_layer": -3})"),
            "config.json:1: n_layer is -3; write a whole number from 1");
  EXPECT_EQ(Error(R"({"model_type": "gpt2", "n_layer": "12"})"),
            "config.json:1: n_layer is '12'; write a whole number from 1");
  EXPECT_EQ(Error(R"({"model_type": "vit", "image_size": 224, "patch_size": 0})"),
            "config.json:1: patch_size is 0; write a number above 0");
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

std::string File(std::string_view name) {
  std::ostringstream text;
  text << std::ifstream(std::string(ORRERY_SOURCE_DIR) + "/tests/families/" + std::string(name))
              .rdbuf();
  return text.str();
}

// What the generator's tensors hold: every parameter of the model once, but for the vocabulary's
// padding.
std::int64_t GeneratedParameters(const Model& m) {
  Plan plan;
  plan.batch.seq_len = 1024;
  const Shape shape = MakeShape(m, plan);
  std::int64_t total = 0;
  const auto add = [&](const std::vector<std::int64_t>& tensors) {
    for (const std::int64_t elements : tensors) total += elements;
  };
  for (std::int64_t l = 0; l < m.layers; ++l) {
    const Shape layer = OfKind(shape, m.layer_kind(l));
    add(LayerParameters(layer));
    add(ExpertParameters(layer));
  }
  if (m.encoder) total -= shape.vocab - m.vocab;  // a bias of the logits
  add(EmbeddingParameters(shape));
  add(HeadParameters(shape, !m.tied_embeddings));
  return total -
         (shape.vocab - m.vocab) * m.hidden * (m.tied_embeddings || m.patch_values > 0 ? 1 : 2);
}

// tests/families/published.json says where its counts are from.
TEST_F(HuggingFace, FamiliesAreAsPublished) {
  const nlohmann::json rows = nlohmann::json::parse(File("published.json"));
  ASSERT_GT(rows.size(), 70U);
  for (const nlohmann::json& row : rows) {
    const std::string name = row["name"];
    const Result<Model> m = Read(row["config"].dump());
    ASSERT_TRUE(m.ok()) << name << ": " << m.status().message();
    EXPECT_NEAR(static_cast<double>(m->parameters()) / row["parameters"].get<double>(), 1, 1e-3)
        << name << ": " << m->parameters();
    EXPECT_EQ(GeneratedParameters(*m), m->parameters()) << name;
    for (const std::string& note : notes_) {
      EXPECT_THAT(note, testing::Not(testing::HasSubstr("ignored"))) << name;
    }
  }
}

// Every family that is modelled has a row there.
TEST_F(HuggingFace, EveryFamilyIsTried) {
  const nlohmann::json rows = nlohmann::json::parse(File("published.json"));
  std::set<std::string> tried;
  for (const nlohmann::json& row : rows) {
    const nlohmann::json& config = row["config"];
    tried.insert(config["model_type"]);
    if (config.contains("text_config")) tried.insert(config["text_config"]["model_type"]);
  }
  for (const std::string_view type : families::Families::BuiltIn().types()) {
    EXPECT_TRUE(tried.contains(std::string(type))) << type;
  }
}

// Nemotron's searched layers: 2 · 3.1 · 512 / 3 = 1,058 wide, in multiples of 256 1,280; a layer
// without both parts is none.
constexpr std::string_view kSearched =
    R"({"model_type": "nemotron-nas", "num_hidden_layers": 4, "hidden_size": 512,
 "num_attention_heads": 8, "vocab_size": 1000, "block_configs": [
 {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 3.1}},
 {"attention": {"no_op": true}, "ffn": {"ffn_mult": 1.5}},
 {"attention": {"no_op": true}, "ffn": {"no_op": true}},
 {"attention": {"n_heads_in_group": 8}, "ffn": {"no_op": true}}]})";

TEST_F(HuggingFace, SearchedLayersHaveTheirOwnSizes) {
  const Result<Model> m = Read(kSearched);
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->layers, 3);
  EXPECT_EQ(m->pattern, "D-*");
  EXPECT_EQ(m->kv_heads, 2);
  EXPECT_EQ(m->ffn_hidden, 1280);
  EXPECT_EQ(m->of_kind(m->layer_kind(1)).ffn_hidden, 512);
  EXPECT_EQ(m->of_kind(m->layer_kind(2)).kv_heads, 1);
  std::string text(kSearched);
  text.replace(text.find("\"n_heads_in_group\": 8"), 21, "\"replace_with_linear\": true");
  EXPECT_EQ(Error(text),
            "config.json:6: block_configs: layer 4: attention.replace_with_linear is not modelled");
  text = kSearched;
  text.replace(text.find("\"num_hidden_layers\": 4"), 22, "\"num_hidden_layers\": 5");
  EXPECT_EQ(Error(text), "config.json:2: block_configs names 4 layers of 5; name each");
}

TEST_F(HuggingFace, WhatIsNotReadIsNamed) {
  std::string text(kLlama);
  text.insert(text.rfind('}'), R"(, "rope_thetta": 500000.0, "rope_theta": 500000.0,
      "num_nextn_predict_layers": 1, "final_logit_softcapping": 30.0, "hidden_sizes": null,
      "attn_logit_softcapping": 0})");
  text.pop_back();
  ASSERT_TRUE(Read(text).ok());
  ASSERT_EQ(notes_.size(), 3U);
  EXPECT_EQ(Bare(notes_[0]),
            "config.json:6: rope_thetta is ignored: no key that Orrery knows of llama; did you "
            "mean rope_theta?");
  EXPECT_EQ(Bare(notes_[1]),
            "config.json:7: num_nextn_predict_layers is not counted: modules that predict further "
            "tokens; set model.mtp_layers to train them");
  EXPECT_THAT(notes_[2], testing::HasSubstr("final_logit_softcapping is not counted: a tanh"));
}

TEST_F(HuggingFace, NumbersAsPythonWritesThem) {
  std::string text(kLlama);
  text.insert(text.rfind('}'), R"(, "time_step_limit": [0.0, Infinity], "_name_or_path":
      "NaN \"-Infinity\"", "initializer_range": NaN)");
  const Result<Model> m = Read(text);
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->name, "NaN \"-Infinity\"");
  EXPECT_EQ(Error(R"({"model_type": "gpt2", "n_layer": Infinity})"),
            "config.json:1: n_layer is 'Infinity'; write a whole number from 1");
}

TEST_F(HuggingFace, FilesOfManyMegabytes) {
  std::string labels;
  for (int i = 0; i < 200'000; ++i) labels += fmt::format(R"("{}": "LABEL_{}",)", i, i);
  labels.pop_back();
  std::string text(kLlama);
  text.insert(text.rfind('}'), R"(, "id2label": {)" + labels + "}");
  ASSERT_GT(text.size(), std::size_t{4} << 20);
  const Result<Model> m = Read(text);
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_TRUE(notes_.empty());
}

TEST_F(HuggingFace, WrappersAreTheirTextModel) {
  const Result<Model> m = Read(R"({"model_type": "qwen2_5_vl", "tie_word_embeddings": true,
      "vision_config": {"depth": 32}, "text_config": {"num_hidden_layers": 28, "hidden_size": 3584,
      "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944,
      "vocab_size": 152064, "max_positon": 3}})");
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_TRUE(m->tied_embeddings);
  EXPECT_TRUE(m->attention_bias);
  ASSERT_EQ(notes_.size(), 2U);
  EXPECT_THAT(notes_[0], testing::HasSubstr(
                             "vision_config is not counted: an encoder of images of 631,979,520 "
                             "parameters (qwen2_5_vl_vision)"));
  EXPECT_THAT(notes_[1], testing::HasSubstr("max_positon is ignored"));
}

// By the part's own type where it has one; what no row knows is named all the same. CLIP's base
// model of patches of 32 has 87,456,000, SigLIP's without its head 85,797,120; one output value is
// counted besides, a bias of patches and no class token for CLIP.
TEST_F(HuggingFace, EncodersOfImagesBesideTheTextAreSized) {
  const auto note = [&](std::string_view vision) {
    const Result<Model> m = Read(fmt::format(R"({{"model_type": "gemma3", "vision_config": {},
        "text_config": {{"num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512}}}})",
                                             vision));
    EXPECT_TRUE(m.ok()) << m.status().message();
    return notes_.empty() ? "" : Bare(notes_.front());
  };
  EXPECT_THAT(note(R"({"model_type": "clip_vision_model"})"),
              testing::HasSubstr("of 87,456,768 parameters (clip_vision_model)"));
  EXPECT_THAT(note(R"({"vision_use_head": false})"),
              testing::HasSubstr("of 85,797,888 parameters (siglip_vision_model)"));
  EXPECT_THAT(note(R"({"model_type": "siglip_vision_model", "hidden_size": "wide"})"),
              testing::HasSubstr("vision_config is not counted: an encoder of images or sounds"));
}

// Names like it are listed, but no other architecture is proposed in its place.
TEST_F(HuggingFace, UnknownTypesGetNoSuggestion) {
  for (const std::string_view type : {"mixtrak", "gemma5", "qwen4", "deepseek_v5"}) {
    const std::string error = Error(fmt::format(R"({{"model_type": "{}"}})", type));
    EXPECT_THAT(error, testing::StartsWith(fmt::format(
                           "config.json:1: model_type '{}' is not known, and no other is taken in "
                           "its place; 'orrery list model-types' has the ",
                           type)));
    EXPECT_THAT(error, testing::Not(testing::HasSubstr("did you mean")));
    EXPECT_LT(error.size(), 400U);
  }
  EXPECT_THAT(Error(R"({"model_type": "mixtrak"})"),
              testing::HasSubstr("(names like it: mixtral, mistral, "));
  EXPECT_THAT(Error(R"({"model_type": "zzzzzzzz"})"), testing::HasSubstr(" that are read. If you"));
  EXPECT_THAT(Error(R"({"model_type": "xlstm"})"),
              testing::StartsWith("config.json:1: model_type 'xlstm' is not modelled: recurrent"));
}

// The fifth of every eight layers attends; every second layer has experts, where there are any.
TEST_F(HuggingFace, JambaSaysWhichLayersAttend) {
  const auto text = [](int experts) {
    return fmt::format(R"({{"model_type": "jamba", "num_hidden_layers": 16, "hidden_size": 256,
        "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 512,
        "vocab_size": 1000, "mamba_dt_rank": 16, "num_experts": {}, "num_experts_per_tok": 2}})",
                       experts);
  };
  const Result<Model> m = Read(text(16));
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->pattern, "memeDemememeDeme");
  const Result<Model> dense = Read(text(1));
  ASSERT_TRUE(dense.ok()) << dense.status().message();
  EXPECT_EQ(dense->pattern, "mmmmDmmmmmmmDmmm");
  EXPECT_EQ(dense->experts.count, 0);
}

// transformers ties the output layer by the wrapper's own key where it has one.
TEST_F(HuggingFace, TheWrapperSaysWhetherEmbeddingsAreTied) {
  for (const auto& [outer, inner, tied] :
       {std::tuple{"true", "false", true}, {"false", "true", false}, {"null", "true", true}}) {
    const Result<Model> m = Read(fmt::format(R"({{"model_type": "qianfan_ocr",
        "tie_word_embeddings": {}, "text_config": {{"model_type": "qwen3", "num_hidden_layers": 2,
        "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 512, "vocab_size": 1000, "tie_word_embeddings": {}}}}})",
                                             outer, inner));
    ASSERT_TRUE(m.ok()) << m.status().message();
    EXPECT_EQ(m->tied_embeddings, tied) << outer << ", " << inner;
  }
}

// 80 billion parameters, 79 without embeddings, 3 active without them, as its card says; three
// layers of four with the delta net, whether the file says the interval or each layer.
TEST_F(HuggingFace, Qwen3NextHasDeltaNets) {
  const std::string text = R"({
    "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048, "head_dim": 256,
    "num_attention_heads": 16, "num_key_value_heads": 2, "intermediate_size": 5120,
    "vocab_size": 151936, "hidden_act": "silu", "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_value_head_dim": 128, "num_experts": 512,
    "num_experts_per_tok": 10, "moe_intermediate_size": 512, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "shared_expert_intermediate_size": 512})";
  const Result<Model> m = Read(text);
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->mamba.kind, Mixer::kDeltaNet);
  EXPECT_TRUE(m->attention_gate);
  const double embeddings = 2.0 * 151936 * 2048;
  EXPECT_NEAR(static_cast<double>(m->parameters()), 80e9, 0.5e9);
  EXPECT_NEAR(static_cast<double>(m->parameters()) - embeddings, 79e9, 0.5e9);
  EXPECT_NEAR(static_cast<double>(m->active_parameters()) - embeddings, 3e9, 0.5e9);
  EXPECT_EQ(m->layer_kind(0), kExpertLayer | kMambaLayer);
  EXPECT_EQ(m->layer_kind(3), kExpertLayer);
  std::string listed = text, words;
  for (int l = 0; l < 48; ++l) {
    words += fmt::format("{}\"{}_attention\"", l == 0 ? "" : ", ", l % 4 == 3 ? "full" : "linear");
  }
  listed.replace(listed.find("\"full_attention_interval\": 4"), 28,
                 fmt::format("\"layer_types\": [{}]", words));
  const Result<Model> each = Read(listed);
  ASSERT_TRUE(each.ok()) << each.status().message();
  EXPECT_EQ(each->parameters(), m->parameters());
  EXPECT_EQ(each->pattern.substr(0, 4), "eeeX");
}

// 456 billion parameters, 45.9 active (MiniMax-01, 2025); seven layers of eight are lightning
// attention.
TEST_F(HuggingFace, MiniMaxHasLightningAttention) {
  std::string types;
  for (int l = 0; l < 80; ++l) types += fmt::format("{}{}", l == 0 ? "" : ", ", l % 8 == 7 ? 1 : 0);
  const Result<Model> m = Read(fmt::format(R"({{
    "model_type": "minimax_m1", "num_hidden_layers": 80, "hidden_size": 6144, "head_dim": 128,
    "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 9216,
    "vocab_size": 200064, "hidden_act": "silu", "num_local_experts": 32, "num_experts_per_tok": 2,
    "shared_intermediate_size": 0, "attn_type_list": [{}]}})",
                                           types));
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->mamba.kind, Mixer::kLightning);
  EXPECT_NEAR(static_cast<double>(m->parameters()), 456e9, 1e9);
  EXPECT_NEAR(static_cast<double>(m->active_parameters()) - 2.0 * 200064 * 6144, 45.9e9, 0.1e9);
}

TEST_F(HuggingFace, WhatComputesOtherwiseIsRefused) {
  std::string text(kLlama);
  text.replace(text.find("silu"), 4, "relu");
  EXPECT_EQ(Error(text), "config.json:4: hidden_act 'relu' is not modelled; valid: silu, swish");
}

// Chunks of 8,192 in three of four layers: half of a chunk's pairs a token.
TEST_F(HuggingFace, Llama4SeesChunks) {
  const Result<Model> m = Read(R"({"model_type": "llama4_text", "num_hidden_layers": 4,
      "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
      "intermediate_size": 256, "intermediate_size_mlp": 512, "num_local_experts": 4,
      "interleave_moe_layer_step": 2, "attention_chunk_size": 8192, "vocab_size": 1000})");
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_TRUE(m->chunked_window);
  EXPECT_EQ(m->layer_kind(0), kWindowLayer);
  EXPECT_EQ(m->layer_kind(1), kWindowLayer | kExpertLayer);
  EXPECT_EQ(m->layer_kind(3), kExpertLayer);
  Model whole = *m;
  whole.window = 0;
  whole.chunked_window = false;
  // A token of a layer meets 4,096 pairs in place of 16,384: 2 · 64 · 4 multiply-adds each.
  EXPECT_DOUBLE_EQ(whole.flops_per_sequence(32768) - m->flops_per_sequence(32768),
                   6.0 * 32768 * 3 * (16384 - 4096) * 512);
  Plan plan;
  plan.batch.seq_len = 32768;
  const Shape chunks = OfKind(MakeShape(*m, plan), kWindowLayer);
  EXPECT_EQ(chunks.packed_len, 8192);
  EXPECT_EQ(chunks.window, 0);
}

}  // namespace
}  // namespace orrery::workload
