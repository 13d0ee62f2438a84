#include "orrery/search/explain/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "orrery/job/job.h"
#include "orrery/job/simulate.h"
#include "orrery/results/json.h"
#include "orrery/search/explain/fields.h"

namespace orrery::search {
namespace {

using ::testing::HasSubstr;

std::string ResultOf(const std::string& model, const std::string& parallel,
                     const std::string& training, const std::string& more = "") {
  const std::string text = fmt::format(
      "model: {}\ncluster: h100-ib-400g\nnodes: 2\nparallel: {{{}}}\n"
      "training: {{global_batch: 32, seq_len: 1024, {}}}\n{}",
      model, parallel, training, more);
  const auto job = job::ReadJobText(text, "job.yaml", "", {});
  EXPECT_TRUE(job.ok()) << job.status().message() << text;
  const auto result = job::Simulate(*job);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return results::ToJson(*result);
}

std::size_t DeadEnds(const Explanation& e) {
  std::size_t dead = e.parts.empty() && e.ends.empty() ? 1 : 0;
  for (const End& end : e.ends) dead += end.name.empty() || end.source.empty() ? 1 : 0;
  for (const Explanation& part : e.parts) dead += DeadEnds(part);
  return dead;
}

// U6: every numeric field of 20 results ends in constants with sources, inputs, ops or this run.
TEST(Explain, NoDeadEnds) {
  std::vector<std::string> results;
  for (const char* parallel : {"tp: 1", "tp: 2, pp: 2", "tp: 4, sequence_parallel: true", "pp: 4",
                               "tp: 2, pp: 2, vpp: 2"}) {
    for (const char* training : {"recompute: none", "recompute: full, sharding: zero1"}) {
      results.push_back(ResultOf("gpt2", parallel, training));
      results.push_back(ResultOf("llama3.2-1b", parallel, training));
    }
  }
  results[0] = ResultOf("gpt2", "tp: 2", "recompute: none", "network: flow\n");
  results[1] = ResultOf("llama3-8b", "tp: 1", "recompute: none");  // does not fit
  results[2] = ResultOf("gpt2", "tp: 2", "recompute: none, tokens: 1e12",
                        "cost: {region: france}\ngoodput: {spares: 1, straggler_rate: 10}\n");
  ASSERT_EQ(results.size(), 20u);
  for (const std::string& text : results) {
    auto explainer = Explainer::Create(text, "r.json", "");
    ASSERT_TRUE(explainer.ok()) << explainer.status().message();
    for (const std::string& field : explainer->Fields()) {
      const auto explanation = explainer->Explain(field);
      ASSERT_TRUE(explanation.ok()) << field << ": " << explanation.status().message();
      EXPECT_EQ(DeadEnds(*explanation), 0u) << field;
      EXPECT_FALSE(explanation->meaning.empty()) << field;
    }
  }
}

TEST(Explain, TheStepEndsInConstantsWithSources) {
  auto explainer =
      Explainer::Create(ResultOf("llama3.2-1b", "tp: 2", "micro_batch: 2"), "r.json", "");
  ASSERT_TRUE(explainer.ok()) << explainer.status().message();
  const auto summary = explainer->Summarise();
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  const std::string text = SummaryToText(*summary);
  EXPECT_THAT(text, HasSubstr("data/constants/constants.csv"));
  EXPECT_THAT(text, HasSubstr("fc1 of layers.mlp.fc1"));
  EXPECT_THAT(text, HasSubstr("all-reduce of 8.0 MiB in tp"));
  EXPECT_LE(std::ranges::count(text, '\n'), 45);  // one screen
  double shares = 0;
  for (const Narrowing& n : summary->narrowing) shares += n.share;
  EXPECT_NEAR(shares, 1, 1e-9);
  SimTime chain = 0;
  for (const results::StepPath::Part& part : summary->path.parts) chain += part.time;
  EXPECT_EQ(static_cast<double>(chain), summary->step.number);
  EXPECT_LT(summary->purchases.front().change, 0);
}

// Through both stages, and as long as the step to the picosecond.
TEST(Explain, TheCriticalPathIsTheStep) {
  for (const char* network : {"analytic", "flow"}) {
    auto explainer = Explainer::Create(ResultOf("llama3.2-1b", "tp: 2, pp: 2", "micro_batch: 1",
                                                fmt::format("network: {}\n", network)),
                                       "r.json", "");
    ASSERT_TRUE(explainer.ok()) << explainer.status().message();
    const auto summary = explainer->Summarise();
    ASSERT_TRUE(summary.ok()) << summary.status().message();
    SimTime chain = 0;
    for (const results::StepPath::Part& part : summary->path.parts) chain += part.time;
    EXPECT_EQ(static_cast<double>(chain), summary->step.number) << network;
    EXPECT_EQ(summary->path.ranks, 2u) << network;
    EXPECT_GE(summary->path.crossings, 2) << network;
  }
}

// Twice the sequence: every module has more to do, and the parts are what explain has.
TEST(Explain, ResultsAreComparedByModule) {
  const std::string a = ResultOf("llama3.2-1b", "tp: 2", "micro_batch: 2");
  const std::string b = ResultOf("llama3.2-1b", "tp: 2", "micro_batch: 4");
  auto c = results::Compare(a, "a.json", b, "b.json");
  ASSERT_TRUE(c.ok());
  AddModules(a, b, "", &*c);
  EXPECT_EQ(c->no_modules, "");
  const auto fc1 = std::ranges::find(c->modules, "layers.mlp.fc1", &results::Difference::name);
  ASSERT_NE(fc1, c->modules.end());
  const auto explainer = Explainer::Create(a, "a.json", "");
  EXPECT_EQ(explainer->ModuleTimes().at("layers.mlp.fc1"), fc1->a);
  EXPECT_THAT(results::ComparisonToText(*c), HasSubstr("layers.mlp.fc1"));
  AddModules(a, "{}", "", &*c);
  EXPECT_THAT(results::ComparisonToText(*c), HasSubstr("Modules are not compared: b.json: is no"));
}

TEST(Explain, WhatIsWrongIsSaid) {
  EXPECT_THAT(Explainer::Create("{}", "r.json", "").status().message(), HasSubstr("is no result"));
  EXPECT_THAT(
      Explainer::Create(R"({"schema": "orrery.result/1", "config": {}, "step_time_ps": "long"})",
                        "r.json", "")
          .status()
          .message(),
      HasSubstr("is no result of one training job"));
  std::string text = ResultOf("gpt2", "tp: 2", "micro_batch: 2");
  auto explainer = Explainer::Create(text, "r.json", "");
  ASSERT_TRUE(explainer.ok());
  EXPECT_THAT(explainer->Explain("step_tim_s").status().message(),
              HasSubstr("did you mean step_time_s"));
  EXPECT_TRUE(explainer->Explain("memory[0].total_bytes").ok());
  char& digit = text[text.find("\"step_time_ps\": ") + 16];
  digit = digit == '9' ? '8' : '9';
  EXPECT_THAT(Explainer::Create(text, "r.json", "").status().message(),
              HasSubstr("simulate the job again"));
}

TEST(Fields, PatternsMatch) {
  EXPECT_TRUE(Matches("a.*.c_*", "a.0.c_ps"));
  EXPECT_FALSE(Matches("a.*.c_*", "a.0.1.c_ps"));
  EXPECT_TRUE(Matches("a.**.c_*", "a.0.1.c_ps"));
  EXPECT_TRUE(Matches("config.**", "config.model.layers"));
  EXPECT_EQ(FindField("no.such.field"), nullptr);
  for (const FieldRow& row : FieldRows()) EXPECT_FALSE(row.made_of.empty()) << row.pattern;
}

}  // namespace
}  // namespace orrery::search
