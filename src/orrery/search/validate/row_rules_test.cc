// Do rules of a table say what a row means, a user's before the built-in ones?
#include "orrery/search/validate/row_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/search/validate/test_support.h"

namespace orrery::search {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

RowTables WithRules(std::string_view rules) {
  RowTables tables = BuiltInRowTables();
  const Status added = tables.rules.Add(rules, "row_rules.yaml");
  EXPECT_TRUE(added.ok()) << added.message();
  return tables;
}

std::string RulesError(std::string_view rules) {
  RowTables tables = BuiltInRowTables();
  return tables.rules.Add(rules, "row_rules.yaml").message();
}

// A user's rule holds before those of blanks, which then find the key said.
TEST(RowRules, AUsersRule) {
  const RowTables tables = WithRules(R"(
ours:
  if: $model begins GPT-177B and blank $recompute and $pp > 2
  set: {half: $tp / 2, training.recompute: full, training.micro_batch: $half}
  said: "as our runs: recompute={$training.recompute}, micro_batch={$half} of {$gpus} GPUs"
  source: our runs
)");
  const Mapped m = Map(kGpt175, {{"micro_batch", ""}}, tables);
  ASSERT_EQ(m.error, "");
  EXPECT_EQ(m.run.plan.memory.recompute, workload::Recompute::kFull);
  EXPECT_EQ(m.run.plan.batch.micro_batch, 4);
  EXPECT_THAT(m.assumed, Contains("as our runs: recompute=full, micro_batch=4 of 2304 GPUs"));
}

TEST(RowRules, RefuseARow) {
  const RowTables tables =
      WithRules("ours: {if: $gpus > 2000, refused: 'gpus={$gpus}: too many for us', source: us}\n");
  EXPECT_EQ(Map(kGpt175, {}, tables).error, "gpus=2304: too many for us");
}

// The least divisor of 6 above 3.
TEST(RowRules, SearchANumber) {
  const RowTables tables = WithRules(
      "ours: {least: found, from: 4, to: $pp, where: $pp % $n == 0, refused: 'found {$found}', "
      "source: us}\n");
  EXPECT_EQ(Map(kGpt175, {}, tables).error, "found 6");
}

// A column that is not built in, and what it means, in one row.
TEST(RowRules, AColumnMayBeOne) {
  constexpr std::string_view kRow =
      "half_batch: {type: integer, set: {training.micro_batch: $half_batch / 2}, said: 'half of "
      "{$half_batch}', source: s}\n";
  RowTables tables = BuiltInRowTables();
  ASSERT_TRUE(tables.columns.Add(kRow, "columns.yaml").ok());
  ASSERT_TRUE(tables.rules.AddColumns(kRow, "columns.yaml").ok());
  const Mapped m = Map(kGpt175, {{"micro_batch", ""}, {"half_batch", "4"}}, tables);
  ASSERT_EQ(m.error, "");
  EXPECT_EQ(m.run.plan.batch.micro_batch, 2);
  EXPECT_THAT(m.assumed, Contains("half of 4"));
}

TEST(RowRules, MistakesAreNamed) {
  EXPECT_THAT(RulesError("a: {if: $seq_lenn > 1, said: x, source: s}\n"),
              HasSubstr("unknown name 'seq_lenn'; did you mean 'seq_len'"));
  EXPECT_THAT(RulesError("a: {set: {training.nothing: 1}, source: s}\n"),
              HasSubstr("row_rules.yaml:1:11: training.nothing: no job has the key"));
  EXPECT_THAT(RulesError("a: {drop: [training.nothing], source: s}\n"),
              HasSubstr("no job has the key"));
  EXPECT_THAT(RulesError("a: {said: '{$tp', source: s}\n"), HasSubstr("is not closed"));
  EXPECT_THAT(RulesError("a: {if: $framework.recipe.shading, said: x, source: s}\n"),
              HasSubstr("framework.recipe.shading"));
  EXPECT_THAT(RulesError("a: {least: x, source: s}\n"),
              HasSubstr("least takes from, to and where"));
  EXPECT_THAT(RulesError("a: {sett: {tp: 1}, source: s}\n"), HasSubstr("did you mean 'set'"));
}

}  // namespace
}  // namespace orrery::search
