// Whole tables: what is predicted, what it may depend on, and what a report says.
#include "orrery/search/validate/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "orrery/base/file.h"
#include "orrery/constants/set.h"
#include "orrery/job/simulate.h"
#include "orrery/search/validate/report.h"

namespace orrery::search {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kTableHeader =
    "id,source,source_table,notes,framework_family,framework_version,arch,model,layers,hidden,"
    "heads,"
    "seq_len,gpu,gpus,gpus_per_node,tp,pp,dp,micro_batch,global_batch,recompute,compute_dtype,"
    "attention_kernel,sharding,mem_kind,step_time_s,tflops_per_gpu,mfu_pct,tokens_per_s_per_gpu,"
    "peak_mem_gib\n";
constexpr std::string_view kRows[] = {
    "lab-1,L,T,N,megatron-deepspeed,,dense,GPT-1,12,1024,16,1024,A100-SXM4,2,8,2,1,1,4,16,full,"
    "fp16,"
    "unfused,none,,0.5,100,30,99,\n",
    "lab-2,L,T,N,megatron,HEAD,dense,GPT-1,12,1024,16,1024,H100-SXM5,8,8,1,2,4,4,32,none,bf16,,"
    "zero1,torch_allocated,,,,,7.5\n",
    "other-3,O,T,N,fsdp1,,dense,MPT-1,12,1024,16,1024,K80,8,8,1,1,8,4,32,none,bf16,flash,"
    "zero3,,0.25,,,,\n",
};

formats::CsvTable Table(bool blank_outcomes, std::string_view header = kTableHeader) {
  std::string text(header);
  for (std::string_view row : kRows) {
    std::string line(row.substr(0, row.size() - 1));
    if (blank_outcomes) {
      for (int column = 0; column < 5; ++column) line.resize(line.rfind(','));
      line += ",,,,,";
      for (int column = 0; column < 4; ++column) line.erase(0, line.find(',') + 1);
      line.insert(0, ",,,,");
    }
    text += line + "\n";
  }
  auto table = formats::CsvTable::Parse(text, "t.csv");
  EXPECT_TRUE(table.ok()) << table.status().message();
  return *std::move(table);
}

Report Predict(const formats::CsvTable& table, int threads = 1) {
  ValidateOptions options;
  options.threads = threads;
  auto report = ValidateTable(table, options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? *std::move(report) : Report{};
}

// Sixteen sequences of a replica: small layers go fastest all at once, of long sequences only one
// has room, and of still longer ones none.
TEST(Validate, ABlankMicroBatchIsTheFastestThatFits) {
  for (const int seq_len : {512, 32768, 1 << 20}) {
    const bool large = seq_len > 512;
    std::string text(kTableHeader);
    for (const char* cut : {"1", "2", "4", "8", "16", ""}) {
      text += fmt::format(
          "lab-1,L,,,megatron,HEAD,dense,GPT-1,24,{},16,{},H100-SXM5,8,8,1,1,8,{},128,none,bf16,,"
          "zero1,,1,,,,\n",
          large ? 2048 : 1024, seq_len, cut);
    }
    const auto table = formats::CsvTable::Parse(text, "t.csv");
    ASSERT_TRUE(table.ok());
    const Report report = Predict(*table);
    const auto seconds = [&](std::size_t row) { return report.rows[row].predicted.value_or(0); };
    EXPECT_EQ(seconds(5), seconds(large ? 0 : 4));
    EXPECT_EQ(seconds(4) < seconds(3), true);
    EXPECT_THAT(report.rows[5].assumed,
                Contains(HasSubstr(seq_len > 32768 ? "micro_batch=1 (blank: none fits)"
                                   : large         ? "micro_batch=1 (blank: the fastest"
                                                   : "micro_batch=16 (blank: the fastest")));
  }
}

// What `orrery simulate` makes of an exported row, by fingerprint. Of the given table every tenth
// row; tests/export_test.py does all.
TEST(Validate, AnExportedRowIsTheSameRun) {
  const auto given = formats::CsvTable::Read(ORRERY_SOURCE_DIR "/validation/training_measured.csv");
  ASSERT_TRUE(given.ok()) << given.status().message();
  std::string text = fmt::format("{}\n", fmt::join(given->header(), ","));
  for (std::size_t row = 5; row < given->rows(); row += 10) {
    for (std::size_t column = 0; column < given->columns(); ++column) {
      text +=
          fmt::format("{}{}", column > 0 ? "," : "", formats::CsvField(given->cell(row, column)));
    }
    text += "\n";
  }
  const auto table = formats::CsvTable::Parse(text, "tenth.csv");
  ASSERT_TRUE(table.ok()) << table.status().message();
  std::map<std::string, std::uint64_t> fingerprints;
  for (const Prediction& p : Predict(*table).rows) {
    if (p.fingerprint != 0) fingerprints[p.id] = p.fingerprint;
  }
  const auto jobs = ExportJobs(*table, {});
  ASSERT_TRUE(jobs.ok()) << jobs.status().message();
  std::size_t compared = 0;
  for (const RowDocument& row : *jobs) {
    const auto job = job::ReadJobText(row.yaml, row.id, "", {});
    ASSERT_TRUE(job.ok()) << job.status().message();
    EXPECT_FALSE(job->assumed.empty());  // what the row left open
    const auto at = fingerprints.find(row.id);
    if (at == fingerprints.end()) continue;
    job::Caches caches;
    auto simulation = job::Simulation::Prepare(*job, {.check = false}, &caches);
    ASSERT_TRUE(simulation.ok()) << simulation.status().message();
    const auto run = simulation->Evaluate();
    ASSERT_TRUE(run.ok()) << run.status().message();
    EXPECT_EQ(run->fingerprint, at->second) << row.id;
    ++compared;
  }
  EXPECT_GT(compared, table->rows() / 2);
}

TEST(Validate, AnotherNetwork) {
  ValidateOptions options;
  options.network = "flow";
  const auto flow = ValidateTable(Table(false), options);
  ASSERT_TRUE(flow.ok()) << flow.status().message();
  EXPECT_GT(*flow->rows[0].predicted, 0);
  options.network = "flwo";
  EXPECT_THAT(ValidateTable(Table(false), options).status().message(),
              HasSubstr("--network: unknown network 'flwo'; did you mean 'flow'"));
}

TEST(Validate, QuantitiesOfARow) {
  const Report report = Predict(Table(false));
  // A step time; a memory alone, as its meter is named; a refusal.
  ASSERT_EQ(report.rows.size(), 3U);
  EXPECT_EQ(report.rows[0].quantity, Quantity::kStepTime);
  EXPECT_EQ(report.rows[0].stratum, "one node, small");
  EXPECT_TRUE(report.rows[0].error_pct());
  EXPECT_EQ(report.rows[1].quantity, Quantity::kPeakMemory);
  EXPECT_EQ(report.rows[1].stratum, "memory torch_allocated");
  EXPECT_GT(*report.rows[1].predicted, 0.1);
  EXPECT_TRUE(report.rows[2].refused());
  EXPECT_THAT(report.rows[2].reason, HasSubstr("gpu=K80"));
  EXPECT_EQ(report.rows[0].source, "lab");
}

// A prediction is a function of the configuration: outcomes, names and notes may vanish.
TEST(Validate, BlankingOutcomesChangesNoPrediction) {
  const Report full = Predict(Table(false));
  const Report blank = Predict(Table(true));
  ASSERT_EQ(blank.rows.size(), 6U);  // both quantities of each row
  for (const Prediction& p : blank.rows) EXPECT_FALSE(p.measured);
  EXPECT_EQ(*blank.rows[0].predicted, *full.rows[0].predicted);
  EXPECT_EQ(*blank.rows[3].predicted, *full.rows[1].predicted);
  EXPECT_EQ(blank.rows[3].assumed, full.rows[1].assumed);
  EXPECT_EQ(blank.rows[0].id, "1");  // no id: the row's number
  EXPECT_EQ(blank.rows[2].id, "2");
}

TEST(Validate, ThreadsChangeNothing) {
  const Report one = Predict(Table(false), 1);
  const Report four = Predict(Table(false), 4);
  EXPECT_EQ(ReportToJson(one), ReportToJson(four));
}

TEST(ConfigurationDeathTest, ReadingAnOutcomeIsABug) {
  const auto table = Columns::BuiltIn().Read(Table(false));
  ASSERT_TRUE(table.ok());
  const Configuration row(*table, 0);
  for (const char* outcome : {"step_time_s", "peak_mem_gib", "id", "notes"}) {
    EXPECT_DEATH((void)row.text(outcome), "configuration columns only");
  }
}

TEST(Validate, WrongTables) {
  const auto error = [](std::string_view text) {
    const auto table = formats::CsvTable::Parse(text, "t.csv");
    EXPECT_TRUE(table.ok());
    const auto report = ValidateTable(*table, {});
    EXPECT_FALSE(report.ok());
    return report.status().message();
  };
  EXPECT_THAT(error("a,b\n1,2\n"),
              HasSubstr("neither a table of training runs nor of collectives"));
  EXPECT_THAT(error("tp,pp,gpu\n1,2,x\n"),
              HasSubstr("missing columns: layers, hidden, heads, seq_len, gpus, global_batch"));
  EXPECT_THAT(error("collective,gpu,nodes,gpus_per_node\nx,y,1,8\n"),
              HasSubstr("missing column: size_bytes"));
  std::string text(kTableHeader);
  text += kRows[0];
  text.replace(text.find(",0.5,"), 5, ",fast,");
  EXPECT_THAT(error(text), HasSubstr("t.csv:2: column 'step_time_s': 'fast' is not a positive"));
  EXPECT_THAT(error(kTableHeader), HasSubstr("a header and no rows"));
}

// A required column whose name is mistyped was only said to be missing.
TEST(Validate, MissingColumnsThatStandThereByAnotherName) {
  const auto error = [](std::string_view from, std::string_view to) {
    std::string text(kTableHeader);
    if (!from.empty()) text.replace(text.find(from), from.size(), to);
    for (std::size_t at = 0; to.empty() && (at = text.find(',')) != std::string::npos;) {
      text[at] = ';';
    }
    const auto table = formats::CsvTable::Parse(text, "t.csv");
    EXPECT_TRUE(table.ok());
    return ValidateTable(*table, {}).status().message();
  };
  EXPECT_EQ(
      error("framework_family", "framework_famly"),
      "t.csv:1: missing column: framework_family; rename 'framework_famly' to 'framework_family'");
  EXPECT_THAT(error("gpus,", "GPUs,"), HasSubstr("rename 'GPUs' to 'gpus'"));
  EXPECT_THAT(error("", ""), HasSubstr("t.csv:1: one column, with ';' in its name"));
}

// Without its unit an outcome is no outcome: every row went without an error, and without a word.
TEST(Validate, MistypedOutcomeIsWarnedAbout) {
  std::string header(kTableHeader);
  header.replace(header.find("step_time_s"), 11, "step_times");
  EXPECT_THAT(Predict(Table(false, header)).warnings,
              ElementsAre(HasSubstr("'step_times' is not read; did you mean 'step_time_s'")));
}

// Ids that count nothing made every row a source of its own.
TEST(Validate, IdsWithoutAPrefixLeaveTheSourceToItsColumn) {
  const auto source = [](std::string_view id) {
    std::string text = std::string(kTableHeader) + std::string(kRows[0]);
    text.replace(text.find("lab-1,L"), 7, std::string(id) + ",our cluster");
    return Predict(*formats::CsvTable::Parse(text, "t.csv")).rows[0].source;
  };
  EXPECT_EQ(source("lab-1"), "lab");
  EXPECT_EQ(source("run7"), "our cluster");
}

TEST(Validate, MistypedColumnIsWarnedAbout) {
  std::string header(kTableHeader);
  header.replace(header.find("attention_kernel"), 16, "atention_kernel");
  EXPECT_THAT(Predict(Table(false, header)).warnings,
              ElementsAre(HasSubstr("did you mean 'attention_kernel'")));
}

constexpr std::string_view kNccl =
    "source,system,gpu,nodes,gpus_per_node,nccl_version,network,collective,size_bytes,dtype,"
    "time_us_oop,algbw_GBps,busbw_GBps\n"
    "s,HGX,H100-SXM5-80GB,2,8,2.22.3,IB 8x NDR 400Gbps,all_reduce,1073741824,float,4500,238,447\n"
    "s,HGX,H100-SXM5-80GB,2,8,2.22.3,IB 8x NDR 400Gbps,alltoall,1024,float,40,0,0\n"
    "s,HGX (ALGO=Ring PROTO=Simple),H100-SXM5-80GB,2,8,unknown,IB 8x NDR 400Gbps,all_reduce,1024,"
    "float,40,0,0\n"
    "s,a3,H100-SXM5-80GB,2,8,unknown,GPUDirect-TCPX 4x200Gbps,all_gather,1024,float,40,0,0\n"
    "s,a3,H100-SXM5-80GB,2,8,unknown,GPUDirect-TCPXO 8x200Gbps,all_reduce,16777216,float,40,0,0\n"
    "s,a3,H100-SXM5-80GB,4,8,unknown,GPUDirect-TCPXO "
    "8x200Gbps,all_reduce,17179869184,float,40,0,0\n";

TEST(Validate, Collectives) {
  const auto table = formats::CsvTable::Parse(kNccl, "n.csv");
  ASSERT_TRUE(table.ok());
  const Report report = Predict(*table);
  ASSERT_EQ(report.rows.size(), 6U);
  EXPECT_EQ(report.rows[0].quantity, Quantity::kCollectiveTime);
  EXPECT_EQ(report.rows[0].stratum, "collectives >= 1 MB");
  // NVLSTree: each of 8 NICs of 50 GB/s carries an eighth of the buffer each way, 2,684 us at
  // least; a ring would take 5,033.
  EXPECT_GT(*report.rows[0].predicted, 2684);
  EXPECT_LT(*report.rows[0].predicted, 5033);
  EXPECT_THAT(report.rows[1].assumed, Contains(HasSubstr("planned P2P")));
  EXPECT_THAT(report.rows[2].assumed, Contains(HasSubstr("planned Ring, Simple")));
  EXPECT_EQ(report.rows[2].stratum, "collectives < 1 MB");
  EXPECT_THAT(report.rows[3].reason, HasSubstr("GPUDirect over kernel TCP"));
}

// Tables of one log are left out together.
TEST(Validate, LogsAreLeftOut) {
  const auto text = ReadFile(ORRERY_SOURCE_DIR "/validation/nccl_measured.csv", 1 << 20);
  ASSERT_TRUE(text.ok());
  const auto table = formats::CsvTable::Parse(*text, "nccl_measured.csv");
  ASSERT_TRUE(table.ok());
  const Report report = Predict(*table);
  std::set<std::string> sources, logs;
  for (const Prediction& p : report.rows) {
    sources.insert(p.source);
    logs.insert(p.log);
    constants::Set set;
    EXPECT_TRUE(constants::Set::LeftOut(p.log, &set)) << p.log;
  }
  EXPECT_EQ(sources.size(), 23U);
  EXPECT_EQ(logs.size(), 19U);
  EXPECT_EQ(Predict(Table(false)).rows[0].log, "lab");
}

TEST(Validate, CollectivesByName) {
  const std::string header(kNccl.substr(0, kNccl.find('\n') + 1));
  const auto predict = [&](std::string_view system, std::string_view gpu, std::string_view rest) {
    const std::string row =
        fmt::format("s,{},{},2,8,unknown,IB 8x400Gbps,{},float,40,0,0\n", system, gpu, rest);
    return Predict(*formats::CsvTable::Parse(header + row, "n.csv")).rows[0];
  };
  EXPECT_THAT(predict("HGX", "B200", "barrier,1024").reason,
              HasSubstr("unknown collective 'barrier'"));
  // Four exchanges of 1, 2, 4 and 8 parts of 16, the last of them over NICs; a peer has two
  // channels in the domain, too.
  const auto cube = predict("HGX", "B200", "hypercube,1073741824");
  const auto pair = predict("HGX", "B200", "sendrecv,536870912");
  EXPECT_GT(*cube.predicted, *pair.predicted);
  EXPECT_LT(*cube.predicted, 15.0 / 8 * *pair.predicted);
  EXPECT_THAT(predict("HGX", "B200", "reduce,1024").assumed, Contains(HasSubstr("broadcast")));
  EXPECT_TRUE(predict("HGX", "B200", "gather,1048576").predicted.has_value());
  // NCCL expects twice the overhead of AMD's CPUs for each step of LL, and half the rate.
  EXPECT_THAT(predict("HGX B200", "B200", "reduce_scatter,262144").assumed,
              Contains(HasSubstr("planned Ring, LL,")));
  EXPECT_THAT(predict("Vultr HGX B200", "B200", "reduce_scatter,262144").assumed,
              Contains(HasSubstr("planned Ring, LL128,")));
  // Queue pairs take turns to wait for acknowledgements.
  const auto one = predict("HGX (ALGO=Ring)", "H100", "reduce_scatter,67108864");
  const auto two = predict("HGX (ALGO=Ring QPS=2)", "H100", "reduce_scatter,67108864");
  EXPECT_LT(*two.predicted, 0.95 * *one.predicted);
}

// Switches that reduce, NVLS and NCCL's variables, where a column's words name them.
TEST(Validate, CollectivesByWords) {
  const std::string header(kNccl.substr(0, kNccl.find('\n') + 1));
  const auto predict = [&](std::string_view system, std::string_view version,
                           std::string_view network) {
    const std::string row = fmt::format("s,{},H100,8,8,{},{},all_reduce,268435456,float,40,0,0\n",
                                        system, version, network);
    return Predict(*formats::CsvTable::Parse(header + row, "n.csv")).rows[0];
  };
  EXPECT_THAT(predict("HGX", "2.22.3", "IB 8x400Gbps").assumed,
              Contains("planned NVLSTree, Simple, 16 channels"));
  EXPECT_THAT(predict("HGX", "2.22.3", "IB 8x400Gbps + SHARP").assumed,
              Contains("planned NVLS, Simple, 16 channels"));
  EXPECT_THAT(predict("HGX (no SHARP)", "2.22.3", "IB 8x400Gbps").assumed,
              Contains("planned NVLSTree, Simple, 16 channels"));
  const auto without = predict("HGX (NVLS off NCCL_MIN_CTAS=32 GDR=1)", "v2.22.3", "IB 8x400Gbps");
  EXPECT_THAT(without.assumed, Contains(HasSubstr(", 32 channels")));
  EXPECT_THAT(without.assumed, Contains("NCCL_GDR=1 passed over"));
  for (const std::string& said : without.assumed) {
    EXPECT_THAT(said, Not(HasSubstr("NVLS")));
    EXPECT_THAT(said, Not(HasSubstr("not stated")));
  }
}

// Google's profile: no LL128, no NVLS, steps of 1 MiB, and on two hosts the tree at every size. 16
// MiB are one step of 16 channels, which goes down the chain of 8, over and back: 14 hops of NVLink
// and 2 of the network, each at least a step's copy at 20.7 GB/s. With NCCL's own 512 KiB two
// steps would be under way at a time.
TEST(Validate, TcpxoIsNcclAsGoogleSetsIt) {
  const Report report = Predict(*formats::CsvTable::Parse(kNccl, "n.csv"));
  ASSERT_EQ(report.rows.size(), 6U);
  EXPECT_THAT(report.rows[4].assumed, Contains(HasSubstr("planned Tree, Simple, 16 channels")));
  EXPECT_THAT(report.rows[4].assumed, Contains(HasSubstr("Google's profile")));
  EXPECT_GT(*report.rows[4].predicted, 16 * (1 << 20) / 20.7e3);
  EXPECT_THAT(report.rows[5].assumed, Contains(HasSubstr("planned Ring, Simple")));
}

TEST(Report, JsonHoldsTheContract) {
  const auto json = nlohmann::json::parse(ReportToJson(Predict(Table(false))));
  EXPECT_EQ(json["schema"], "orrery.validation/1");
  ASSERT_EQ(json["rows"].size(), 3U);
  const auto& row = json["rows"][0];
  for (const char* key : {"id", "quantity", "measured", "predicted", "error_pct", "stratum",
                          "status", "reason", "assumed"}) {
    EXPECT_TRUE(row.contains(key)) << key;
  }
  EXPECT_EQ(row["status"], "ok");
  EXPECT_TRUE(row["reason"].is_null());
  EXPECT_EQ(json["rows"][2]["status"], "refused");
  EXPECT_TRUE(json["rows"][2]["predicted"].is_null());
  EXPECT_EQ(json["summary"]["by_stratum"].size(), 3U);
  EXPECT_EQ(json["summary"]["by_source"][0]["rows"], 1);
}

TEST(Report, TextAndPicture) {
  const Report report = Predict(Table(false));
  EXPECT_THAT(ReportToText(report), HasSubstr("coverage"));
  EXPECT_THAT(ReportToText(report), HasSubstr("Refused, and why"));
  EXPECT_THAT(ReportToText(report), HasSubstr("  1  other-3  gpu=K80"));
  EXPECT_THAT(ReportToSvg(report), HasSubstr("Predicted against measured"));
  EXPECT_THAT(ReportToSvg(Predict(Table(true))),
              HasSubstr("No row is both measured and predicted"));
}

}  // namespace
}  // namespace orrery::search
