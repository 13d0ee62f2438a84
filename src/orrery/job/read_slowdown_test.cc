#include "orrery/job/read_slowdown.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "orrery/base/file.h"
#include "orrery/cluster/catalog.h"
#include "orrery/formats/csv.h"
#include "orrery/job/test_support.h"

namespace orrery::job {
namespace {

const std::string kData = ORRERY_SOURCE_DIR "/data/slowdown";

using Fields = std::map<std::string, std::string>;

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == at) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}
std::vector<Fields> Table(const std::string& path) {
  const auto table = formats::CsvTable::Read(path);
  EXPECT_TRUE(table.ok()) << table.status().message();
  if (!table.ok()) return {};
  std::vector<Fields> rows(table->rows());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < table->columns(); ++c) {
      rows[r][table->header()[c]] = table->cell(r, c);
    }
  }
  return rows;
}

// The kernel of a row of the measuring kit's overlap table, as a graph has it.
graph::Kernel KernelOf(Fields& row) {
  std::map<std::string, std::int64_t> n;
  for (const std::string& part : Split(row["shape"], ';')) {
    const std::vector<std::string> pair = Split(part, '=');
    n[pair[0]] = std::stoll(pair[1]);
  }
  const graph::DType type =
      row["dtype"].starts_with("fp8") ? graph::DType::kFp8 : graph::DType::kBf16;
  if (row["subject"] == "gemm") {
    return graph::Gemm{.m = n["m"], .n = n["n"], .k = n["k"], .dtype = type};
  }
  const bool backward = row["kernel"].ends_with("bwd");
  if (row["subject"] == "attention") {
    return graph::Attention{.batch = n["b"],
                            .heads = n["h"],
                            .kv_heads = n["kv_heads"],
                            .seq_q = n["s_q"],
                            .seq_kv = n["s_kv"],
                            .head_dim = n["d"],
                            .causal = n["causal"] != 0,
                            .pass = backward ? graph::Pass::kBackward : graph::Pass::kForward};
  }
  // Only the bytes matter: `memory` is their share of the bandwidth.
  return graph::MemoryBound{};
}

// Features equal those of tools/slowdown, and trees answer what libxgboost answered.
TEST(Slowdown, FeaturesAndAnswersAreThoseOfTheTrainer) {
  const auto text = ReadFile(kData + "/h200.json", 1 << 24);
  ASSERT_TRUE(text.ok());
  const auto trees = ParseTrees(*text, "h200.json");
  ASSERT_TRUE(trees.ok()) << trees.status().message();
  const auto learned = ReadSlowdown(kData + "/h200.json");
  ASSERT_TRUE(learned.ok()) << learned.status().message();
  const auto device = cluster::Catalog::BuiltIn().FindDevice("H200-SXM5-141GB");
  ASSERT_TRUE(device.ok()) << device.status().message();
  const std::vector<std::string>& names = interference::FeatureNames();
  std::vector<Fields> rows = Table(kData + "/h200_check.csv");
  ASSERT_GE(rows.size(), 50U);
  for (Fields& row : rows) {
    const graph::Kernel kernel = KernelOf(row);
    const double alone_s = std::stod(row["alone_us"]) * 1e-6;
    const std::vector<float> found = interference::Features(
        kernel, alone_s, {std::stod(row["ctas"]), std::stod(row["beside_Bps"])}, *device);
    ASSERT_EQ(found.size(), names.size());
    std::vector<float> theirs;
    for (std::size_t i = 0; i < names.size(); ++i) {
      theirs.push_back(std::stof(row[names[i]]));
      if (std::holds_alternative<graph::MemoryBound>(kernel) && names[i] == "memory") continue;
      EXPECT_NEAR(found[i], theirs[i], 2e-6F * std::max(1.0F, std::abs(theirs[i])))
          << names[i] << " of " << row["kernel"] << " " << row["shape"];
    }
    const float answer = std::stof(row["answer"]);
    EXPECT_NEAR(trees->Predict(theirs), answer, 1e-6F);
    EXPECT_NEAR((*learned)->Factor(theirs), std::max(1.0, std::exp(static_cast<double>(answer))),
                2e-6);
  }
}

// What holds whatever was learned: nothing beside a kernel costs nothing, more beside it never
// makes it faster, and what a trace timed stays with the constant model.
TEST(Slowdown, BoundsOfPhysicsHold) {
  const auto learned = ReadSlowdown(kData + "/h200.json");
  ASSERT_TRUE(learned.ok());
  const auto device = cluster::Catalog::BuiltIn().FindDevice("H200-SXM5-141GB");
  ASSERT_TRUE(device.ok());
  const interference::Learned& model = **learned;
  for (std::int64_t m = 512; m <= 32768; m *= 2) {
    const graph::Gemm gemm{.m = m, .n = 8192, .k = 4096};
    const double alone_s = graph::Flops(gemm) / 700e12;
    EXPECT_EQ(model.Factor(gemm, alone_s, interference::kAlone, *device), 1);
    double before = 1;
    for (double ctas = 0; ctas <= 32; ctas += 4) {
      const double now =
          model.Factor(interference::Features(gemm, alone_s, {ctas, 30e9 * ctas}, *device));
      EXPECT_GE(now, before) << m << " " << ctas;
      before = now;
    }
    EXPECT_GT(before, 1.2);
  }
  const graph::Timed timed{1'000'000};
  for (const interference::Class c : {interference::kIntraNode, interference::kInterNode}) {
    EXPECT_EQ(model.Factor(timed, 1e-6, c, *device),
              interference::Slowdown(timed, c, *device).compute);
  }
}

// A sweep's jobs come and go while the prices of their cluster stay.
TEST(Slowdown, PricesOutliveTheJobThatReadIt) {
  const std::string text =
      std::string(kSmall) + "simulation: {slowdown: " + kData + "/h200.json}\n";
  Caches caches;
  std::weak_ptr<const interference::Learned> first;
  {
    const Job job = Read(text);
    first = job.engine.slowdown;
    Predict(job, &caches);
  }
  EXPECT_FALSE(first.expired());
  // Other shapes on the same cluster are priced now, with what the first job read.
  const Job other = Read(text, {.set = {"training.seq_len=512"}});
  EXPECT_EQ(Predict(other, &caches).simulation.fingerprint, Predict(other).simulation.fingerprint);
}

TEST(Slowdown, DamagedModelsAreRefused) {
  const auto text = ReadFile(kData + "/h200.json", 1 << 24);
  ASSERT_TRUE(text.ok());
  const auto with = [&](const std::string& a, const std::string& b) {
    std::string changed = *text;
    const std::size_t at = changed.find(a);
    EXPECT_NE(at, std::string::npos) << a;
    if (at != std::string::npos) changed.replace(at, a.size(), b);
    return changed;
  };
  const auto refused = [](const std::string& json) {
    const auto trees = ParseTrees(json, "m.json");
    EXPECT_FALSE(trees.ok());
    return trees.ok() ? "" : trees.status().message();
  };
  const auto says = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("m.json"), std::string::npos) << message;
  };
  says(refused(""), "no model of XGBoost");
  says(refused("[1]"), "no model of XGBoost");
  says(refused("{}"), "learner");
  says(refused(with("reg:squarederror\"", "reg:gamma\"")), "reg:gamma");
  says(refused(with("\"gbtree\"", "\"dart\"")), "gbtree");
  says(refused(with("\"left_children\":[1,", "\"left_children\":[0,")), "node 0");
  says(refused(with("\"left_children\":[1,", "\"left_children\":[99999,")), "node 0");
  says(refused(with("\"left_children\":[1,", "\"left_children\":[1,2,")), "differ in length");
  says(refused(with("\"split_indices\":[", "\"split_indices\":[77,")), "differ in length");
  for (std::size_t length = 0; length < text->size(); length += text->size() / 97) {
    refused(text->substr(0, length));
  }
  auto renamed = ParseTrees(with("\"sms_taken\"", "\"sms\""), "m.json");
  ASSERT_TRUE(renamed.ok());
  const auto learned = interference::Learned::Create(*std::move(renamed));
  ASSERT_FALSE(learned.ok());
  EXPECT_NE(learned.status().message().find("train it again"), std::string::npos);
  EXPECT_FALSE(ReadSlowdown(kData + "/none.json").ok());
}

}  // namespace
}  // namespace orrery::job
