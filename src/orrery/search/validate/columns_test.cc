// Tables under other names, in other units, with a job's keys; and what is wrong with a column.
#include "orrery/search/validate/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "orrery/base/file.h"
#include "orrery/search/validate/configuration.h"
#include "orrery/search/validate/row_tables.h"
#include "orrery/search/validate/validate.h"

namespace orrery::search {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

formats::CsvTable Csv(const std::string& text) {
  auto table = formats::CsvTable::Parse(text, "t.csv");
  EXPECT_TRUE(table.ok()) << table.status().message();
  return *std::move(table);
}

Report Validated(const std::string& text, std::shared_ptr<const RowTables> tables = nullptr) {
  ValidateOptions options;
  options.threads = 1;
  options.tables = std::move(tables);
  auto report = ValidateTable(Csv(text), options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? *std::move(report) : Report{};
}

std::string Added(const std::string& text) {
  Columns columns = Columns::BuiltIn();
  return columns.Add(text, "c.yaml").message();
}

constexpr const char* kOurs =
    "framework_family,model,gpu,gpus,layers,hidden,heads,seq_len,tp,pp,micro_batch,global_batch,"
    "compute_dtype,step_time_s";
constexpr const char* kTheirs =
    "framework_family,model,gpu,world_size,num_layers,hidden_size,num_attention_heads,seq_length,"
    "tensor_model_parallel_size,pipeline_model_parallel_size,micro_batch_size,global_batch_size,"
    "compute_dtype,step_time_ms";
const std::string kCells = "megatron,GPT-1,H100,8,12,1024,16,1024,2,1,4,32,bf16,";

TEST(Columns, OthersNamesAndUnitsAreTheSameRun) {
  const Report ours = Validated(fmt::format("{}\n{}0.25\n", kOurs, kCells));
  const Report theirs = Validated(fmt::format("{}\n{}250\n", kTheirs, kCells));
  ASSERT_TRUE(ours.rows[0].predicted) << ours.rows[0].reason;
  EXPECT_EQ(theirs.rows[0].fingerprint, ours.rows[0].fingerprint);
  EXPECT_EQ(theirs.rows[0].measured, 0.25);
  EXPECT_THAT(ours.warnings, IsEmpty());
  EXPECT_THAT(theirs.warnings.back(),
              HasSubstr("'step_time_ms' is read as step_time_s, times 0.001"));
  const auto twice = Columns::BuiltIn().Read(Csv(std::string(kOurs) + ",world_size\n"));
  EXPECT_THAT(twice.status().message(), HasSubstr("'world_size' is another name of 'gpus'"));
}

// A column called as a key of a job holds over what the rules make of the others.
TEST(Columns, KeysOfAJob) {
  const auto document = [](const std::string& key, const std::string& value) {
    const auto rows = ExportJobs(Csv(fmt::format("{},{}\n{},{}\n", kOurs, key, kCells, value)), {});
    EXPECT_TRUE(rows.ok()) << rows.status().message();
    return rows.ok() && !rows->empty() ? rows->front().yaml : std::string();
  };
  EXPECT_THAT(document("memory.allocator", "expandable_segments:True"),
              HasSubstr("allocator: expandable_segments:True"));
  EXPECT_THAT(document("model.vocab", "32000"), HasSubstr("vocab: 32000"));
  EXPECT_THAT(document("framework_options.host_work", "0"), HasSubstr("host_work: false"));
  const auto reason = [](const std::string& key, const std::string& value) {
    return Validated(fmt::format("{},{}\n{},{}\n", kOurs, key, kCells, value)).rows[0].reason;
  };
  EXPECT_THAT(reason("framework_options.host_work", "2"),
              HasSubstr("framework_options.host_work: '2' is neither true nor false"));
  EXPECT_THAT(Validated(fmt::format("{},training.precison\n{},fp8\n", kOurs, kCells)).warnings,
              ElementsAre(HasSubstr("did you mean 'training.precision'")));
}

// A user's file alone: a name, a unit, a key with a range.
TEST(Columns, OfOnesOwn) {
  const std::string folder = ::testing::TempDir() + "/columns_of_ones_own";
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(WriteFile(folder + "/columns.yaml",
                        "minutes: {means: step_time_s, scale: 60, source: s}\n"
                        "vocabulary: {key: model.vocab, type: integer, min: 1000, max: 999999, "
                        "source: s}\n")
                  .ok());
  const auto tables = ReadRowTables(std::vector<std::string>{folder});
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(tables.ok()) << tables.status().message();
  std::string header(kOurs);
  header.replace(header.rfind("step_time_s"), 11, "vocabulary,minutes");
  const Report report =
      Validated(fmt::format("{0}\n{1}32000,0.5\n{1}10,0.5\n", header, kCells), *tables);
  EXPECT_TRUE(report.rows[0].predicted) << report.rows[0].reason;
  EXPECT_EQ(report.rows[0].measured, 30);
  EXPECT_EQ(report.rows[1].reason,
            "vocabulary=10: not a whole number from 1000 to 999999; correct it or leave it blank");
}

TEST(Columns, SayWhatIsWrong) {
  EXPECT_THAT(Added("c: {means: micro_bach, source: s}\n"),
              HasSubstr("c.yaml: c: unknown column 'micro_bach'; did you mean 'micro_batch'?"));
  EXPECT_THAT(Added("c: {key: training.precison, source: s}\n"),
              HasSubstr("no job has the key 'training.precison'"));
  EXPECT_THAT(Added("c: {tables: trainings, key: training.precision, source: s}\n"),
              HasSubstr("c.yaml:1:13: tables: unknown table 'trainings'"));
  EXPECT_THAT(Added("c: {type: integer, source: s}\n"),
              HasSubstr("c.yaml:1: the column 'c' would not be read"));
  EXPECT_EQ(Added("c: {use: about, source: s}\n"), "");
  EXPECT_THAT(Added("c: {type: whole, source: s}\n"), HasSubstr("integer"));
  EXPECT_THAT(Added("tp: {means: pp, source: s}\n"), HasSubstr("'tp'"));
}

// What a header must have is configuration, and only that is read.
TEST(Columns, OutcomesAreNoConfiguration) {
  for (const TableKind kind : {TableKind::kTraining, TableKind::kCollectives}) {
    const auto table = Columns::BuiltIn().ReadAs(kind, Csv("a\n"));
    ASSERT_TRUE(table.ok());
    for (const MeasuredTable::Place& place : table->configuration) {
      EXPECT_EQ(place.column.use, Column::Use::kConfiguration) << place.column.name;
    }
  }
  for (const Column& column : Columns::BuiltIn().all()) {
    EXPECT_TRUE(column.required.empty() || column.use == Column::Use::kConfiguration);
    EXPECT_NE(column.means.empty(), column.description.empty()) << column.name;
  }
}

}  // namespace
}  // namespace orrery::search
