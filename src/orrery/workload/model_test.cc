#include "orrery/workload/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
      {"mixtral-8x7b", 46'702'792'704},
      {"mixtral-8x22b", 140'620'634'112},
      {"qwen3-8b", 8'190'735'360},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen3-235b-a22b", 235'093'634'560},
      {"deepseek-v2-lite", 15'706'484'224},
      {"deepseek-v2", 235'741'434'880},
      {"gpt-oss-20b", 20'914'757'184},
      {"bert-base", 109'514'298},
      {"bert-large", 335'174'458},
      {"opt-125m", 125'239'296},
      {"opt-1.3b", 1'315'758'080},
      {"opt-6.7b", 6'658'473'984},
      {"opt-13b", 12'853'473'280},
      {"opt-30b", 29'974'540'288},
      {"gpt-neo-125m", 125'198'592},
      {"gpt-neo-1.3b", 1'315'575'808},
      {"gpt-neo-2.7b", 2'651'307'520},
      {"gpt-neox-20b", 20'554'567'680},
      {"falcon-7b", 6'921'720'704},
      {"falcon-40b", 41'303'293'952},
      {"bloom-176b", 176'247'271'424},
      {"llama-7b", 6'738'415'616},
      {"llama-13b", 13'015'864'320},
      {"llama-30b", 32'528'943'616},
      {"llama-65b", 65'285'660'672},
      {"mistral-7b", 7'241'732'096},
      {"qwen2-7b", 7'615'616'512},
      {"qwen2-72b", 72'706'203'648},
      {"gpt-oss-120b", 116'829'156'672},
      {"llama3.2-1b", 1'235'814'400},
      {"llama3.2-3b", 3'212'749'824},
      {"qwen2-0.5b", 494'032'768},
      {"qwen2-1.5b", 1'543'714'304},
      {"qwen3-14b", 14'768'307'200},
      {"qwen3-32b", 32'762'123'264},
      {"falcon-180b", 179'522'565'120},
      {"nemotron-h-8b", 8'100'852'736},
      {"nemotron-3-nano", 31'577'937'344},
      {"deepseek-v3.2", 671'877'929'216},  // as transformers 5.24.0 builds it, as the next
      {"glm-5", 743'911'199'232},
  };
  for (const auto& [name, count] : published) EXPECT_EQ(Preset(name).parameters(), count) << name;
}

// Published as rounded numbers, or with parts that are not the model's: DeepSeek-V3's count has 256
// routing biases a layer, which no gradient reaches; Grok's its two further norms.
TEST(Model, ExpertCountsNearPublished) {
  const std::pair<std::string_view, double> published[] = {
      {"deepseek-v3", 671.026419e9},   {"kimi-k2", 1026.408e9},
      {"grok-1", 315.684e9},           {"mpt-7b", 6.649286656e9},
      {"mpt-30b", 29.957200896e9},     {"llama4-scout", 107.77e9},
      {"llama4-maverick", 400.71e9},   {"qwen2-57b-a14b", 57.41e9},
      {"moonlight-16b-a3b", 15.96e9},  {"glm-4.5-air", 106.85e9},
      {"falcon-h1-7b", 7.585513568e9}, {"falcon-h1-34b", 33.642221312e9},
      {"vit-b16", 86.567656e6},        {"vit-l16", 304.326632e6},
      {"siglip-so400m", 428.2256e6}};
  for (const auto& [name, count] : published) {
    EXPECT_NEAR(static_cast<double>(Preset(name).parameters()) / count, 1, 0.001) << name;
  }
  const std::pair<std::string_view, double> active[] = {
      {"mixtral-8x7b", 12.9e9},
      {"qwen3-235b-a22b", 22e9},
      {"deepseek-v3", 37e9},
      {"nemotron-3-nano", 3.6e9},  // with embeddings, as the next
      {"nemotron-3-super", 12.7e9}};
  for (const auto& [name, count] : active) {
    EXPECT_NEAR(static_cast<double>(Preset(name).active_parameters()) / count, 1, 0.02) << name;
  }
}

// Moye's Table 9 and SimAI's suite print nominal sizes for given heads, layers and hidden; the
// count follows from those: 12·L·h² + 13·L·h for the layers, (V + s)·h for the embeddings, 2·h for
// the last norm.
TEST(Model, MoyeTable9CountsFollowFromItsShapes) {
  struct Row {
    std::string_view name;
    std::int64_t layers, hidden, heads;
    double printed_billion, tolerance;  // the table rounds, v2 and v4 generously
  };
  const Row rows[] = {
      {"gpt3-6.7b", 32, 4096, 32, 6.7, 0.01},   {"gpt3-22b", 48, 6144, 64, 22, 0.005},
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

// OPT's own formula at the sizes that have no checkpoint of one file: V·h + (2,048 + 2)·h + L·(12
// h² + 13 h) + 2 h, V = 50,272. Nemotron-4: V·h·2 + L·(2 h² + 2 h·kv·d + 2 h·f + 4 h) + 2 h, norms
// with bias.
TEST(Model, CountsFromShapesWhereNoneIsPublished) {
  const auto opt = [](std::int64_t layers, std::int64_t h) {
    return 50272 * h + 2050 * h + layers * (12 * h * h + 13 * h) + 2 * h;
  };
  EXPECT_EQ(Preset("opt-66b").parameters(), opt(64, 9216));
  EXPECT_EQ(Preset("opt-175b").parameters(), opt(96, 12288));
  const auto nemotron = [](std::int64_t layers, std::int64_t h, std::int64_t kv, std::int64_t f) {
    return 2 * 256000 * h + layers * (2 * h * h + 2 * h * kv + 2 * h * f + 4 * h) + 2 * h;
  };
  EXPECT_EQ(Preset("nemotron4-15b").parameters(), nemotron(32, 6144, 8 * 128, 24576));
  // Nemotron-4's papers print 15.6 and 341 billion.
  EXPECT_NEAR(static_cast<double>(Preset("nemotron4-15b").parameters()), 15.6e9, 0.05e9);
  EXPECT_EQ(Preset("nemotron4-340b").parameters(), nemotron(96, 18432, 8 * 192, 73728));
  EXPECT_NEAR(static_cast<double>(Preset("nemotron4-340b").parameters()), 341e9, 0.5e9);
  const std::int64_t mixtral = Preset("mixtral-8x7b").parameters();
  const std::int64_t ends = 2 * 32000 * 4096 + 4096, expert = 3 * 4096 * 14336 + 4096;
  EXPECT_EQ(Preset("mixtral-8x1.75b").parameters(), (mixtral - ends) / 4 + ends);
  EXPECT_EQ(Preset("mixtral-16x7b").parameters(), mixtral + 32 * 8 * expert);
  EXPECT_EQ(Preset("mixtral-32x7b").parameters(), mixtral + 32 * 24 * expert);
}

TEST(Model, EveryPresetIsValid) {
  for (const ModelPreset& preset : ModelPresets()) {
    const Model m = Preset(preset.name);
    EXPECT_TRUE(Validate(m).ok()) << preset.name;
    EXPECT_FALSE(m.source.empty());
    if (m.experts.count > 0 || m.qk_norm || m.mamba_beside) continue;
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

// Multiply-adds of a token, three passes of two operations each.
double Flops(double s, double products) { return 6 * s * products; }

// Mixtral: queries and projection h² each, keys and values h·1,024 each, causal scores and context
// s/2·h each; router 8 h, two experts of three matrices; the output layer.
TEST(Model, FlopsOfExpertsCountThoseOfAToken) {
  const double s = 4096, h = 4096;
  const double layer = 2 * h * h + 2 * h * 1024 + s / 2 * 2 * h + 8 * h + 2 * 3 * h * 14336;
  EXPECT_DOUBLE_EQ(Preset("mixtral-8x7b").flops_per_sequence(4096),
                   Flops(s, 32 * layer + 32000 * h));
}

// DeepSeek-V3: queries over rank 1,536 to 128 heads of 192, keys and values over 512 (and 64 of
// rotary) to 128 + 128 a head, values of 128 back; three dense layers, then 256 experts of which 8
// and a shared one run.
TEST(Model, FlopsOfLatentAttention) {
  const double s = 4096, h = 7168;
  const double attention = h * 1536 + 1536.0 * 128 * 192 + h * (512 + 64) + 512.0 * 128 * 256 +
                           128.0 * 128 * h + s / 2 * 128 * (192 + 128);
  const double dense = 3 * h * 18432, experts = 3 * h * 2048 * 9 + 256 * h;
  EXPECT_NEAR(Preset("deepseek-v3").flops_per_sequence(4096) /
                  Flops(s, 61 * attention + 3 * dense + 58 * experts + 129280 * h),
              1, 1e-12);
}

// GPT-OSS 20B: in half of the layers a token sees 128 keys, in the first 128 tokens those before
// it: 128 − 128²/2s on average.
TEST(Model, FlopsOfSlidingWindows) {
  const double s = 4096, h = 2880, q = 64 * 64, kv = 8 * 64;
  const double matrices = 2 * h * q + 2 * h * kv + 32 * h + 4 * 3 * h * 2880;
  const double keys = 12 * (s / 2) + 12 * (128 - 128 * 128 / (2 * s));
  EXPECT_NEAR(Preset("gpt-oss-20b").flops_per_sequence(4096) /
                  Flops(s, 24 * matrices + keys * 2 * q + 201088 * h),
              1, 1e-12);
}

// BERT sees the whole sequence; before its output layer stands one of h².
TEST(Model, FlopsOfAnEncoder) {
  const double s = 512, h = 1024;
  EXPECT_DOUBLE_EQ(Preset("bert-large").flops_per_sequence(512),
                   Flops(s, 24 * (12 * h * h + s * 2 * h) + h * h + 30522 * h));
}

// Nemotron-H 8B: 24 Mamba-2 layers of inner width 8,192 (128 heads of 64, 8 groups of 128 states,
// chunks of 128), 24 feed-forwards of two matrices, four attention layers of 32 heads and 8 kv.
TEST(Model, FlopsOfAHybrid) {
  const double s = 4096, h = 4096, inner = 8192, groups = 8 * 128;
  const double scan = 128 * groups + inner * (64 + 2 * 128);
  const double mamba = h * (2 * inner + 2 * groups + 128) + inner * h + scan;
  const double attention = 2 * h * h + 2 * h * 1024 + s / 2 * 2 * h;
  EXPECT_NEAR(Preset("nemotron-h-8b").flops_per_sequence(4096) /
                  Flops(s, 24 * (mamba + 2 * h * 21504) + 4 * attention + 131072 * h),
              1, 1e-12);
}

TEST(Model, UnknownNameNamesTheNearest) {
  EXPECT_THAT(FindModel("llama3-70").status().message(),
              testing::HasSubstr("unknown model 'llama3-70'; did you mean 'llama3-70b'"));
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
