#include "orrery/job/chakra_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "orrery/formats/chakra.h"
#include "orrery/job/chakra_texts.h"
#include "orrery/job/importers.h"
#include "orrery/job/trace.h"
#include "orrery/job/writers.h"

namespace orrery::job {
namespace {

// A pipeline of two stages with communicators and messages: what Chakra can say, it brings back to
// the picosecond, on every network.
TEST(ChakraWriter, BringsTheSameFinishTimeBack) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "chakra_writer_test";
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "w.txt").string();
  std::ofstream(path)
      << "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 pp: 2 ga: 3 "
         "all_gpus: 16 pp_comm: 409600\n5\n"
         "grad -1 1 NONE 0 1 NONE 0 1 REDUCESCATTER 4096000 1\n"
         "mlp -1 100123 ALLGATHER 8192000 200456 REDUCESCATTER 8192000 50789 NONE 0 1\n"
         "mlp -1 100123 ALLGATHER 8192000 200456 REDUCESCATTER 8192000 50789 NONE 0 1\n"
         "mlp -1 100123 ALLGATHER 8192000 200456 REDUCESCATTER 8192000 50789 NONE 0 1\n"
         "loss -1 7 ALLREDUCE 64 0 NONE 0 0 NONE 0 1\n";
  const constants::Set constants = constants::Set::Fitted();
  TraceOptions options;
  options.cluster = "h100-ib-400g";
  options.constants = &constants;
  const TraceFiles files = OpenTrace({path});
  const auto importer = FindImporter(files, "");
  ASSERT_TRUE(importer.ok() && *importer != nullptr);
  ASSERT_EQ((*importer)->name, "simai");
  const Status written = WithTrace(**importer, files, options, [&](const engine::Inputs& inputs) {
    const auto out = ExportChakra(inputs, 1);
    if (!out.ok()) return out.status();
    for (std::size_t r = 0; r < out->ranks.size(); ++r) {
      std::ofstream(folder / ("c." + std::to_string(r) + ".et"), std::ios::binary) << out->ranks[r];
    }
    std::ofstream(folder / "c.groups.json") << out->groups;
    return Status();
  });
  ASSERT_TRUE(written.ok()) << written.message();
  for (const char* network : {"analytic", "flow", "links"}) {
    options.network = network;
    options.set = {};
    const auto before = SimulateTrace(**importer, files, options);
    ASSERT_TRUE(before.ok()) << before.status().message();
    const TraceFiles back = OpenTrace({(folder / "c").string()});
    const auto chakra = FindImporter(back, "");
    ASSERT_TRUE(chakra.ok() && *chakra != nullptr);
    const auto after = SimulateTrace(**chakra, back, options);
    ASSERT_TRUE(after.ok()) << after.status().message();
    EXPECT_EQ(after->record.finish_time, before->record.finish_time) << network;
  }
  std::filesystem::remove_all(folder);
}

// A trace of two replicas run as eight of them: to the picosecond what the workload says of eight,
// read as it is and as a Chakra trace. Without data parallelism copies take what one takes.
TEST(Replicas, RunAsIfAllHadBeenTraced) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "replicas_test";
  std::filesystem::create_directories(folder);
  const constants::Set constants = constants::Set::Fitted();
  TraceOptions options;
  options.cluster = "h100-ib-400g";
  options.constants = &constants;
  const auto run = [&](const std::string& path, const std::vector<std::string>& set) {
    options.set = set;
    const TraceFiles files = OpenTrace({path});
    return SimulateTrace(**FindImporter(files, ""), files, options);
  };
  const auto finish = [&](const std::string& path, const std::vector<std::string>& set) {
    const auto result = run(path, set);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? result->record.finish_time : -1;
  };
  const auto to_chakra = [&](const std::string& path, const std::string& prefix) {
    options.set = {};
    const TraceFiles files = OpenTrace({path});
    return WithTrace(**FindImporter(files, ""), files, options, [&](const engine::Inputs& inputs) {
      const auto out = ExportChakra(inputs, 1);
      if (!out.ok()) return out.status();
      for (std::size_t r = 0; r < out->ranks.size(); ++r) {
        std::ofstream(prefix + "." + std::to_string(r) + ".et", std::ios::binary) << out->ranks[r];
      }
      if (!out->groups.empty()) std::ofstream(prefix + ".groups.json") << out->groups;
      return Status();
    });
  };
  const std::string data = (folder / "data.txt").string(), chakra = (folder / "c").string();
  std::ofstream(data)
      << "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 4 ga: 2 "
         "all_gpus: 8\n4\n"
         "grad -1 1 NONE 0 1 NONE 0 1 REDUCESCATTER 409600000 1\n"
         "mlp -1 100123 ALLGATHER 8192000 200456 REDUCESCATTER 8192000 50789 NONE 0 1\n"
         "mlp -1 100123 ALLGATHER 8192000 200456 REDUCESCATTER 8192000 50789 NONE 0 1\n"
         "loss -1 7 ALLREDUCE 64 0 NONE 0 0 NONE 0 1\n";
  const SimTime eight = finish(data, {"simai.gpus=32"});
  EXPECT_GT(eight, finish(data, {}));
  EXPECT_EQ(finish(data, {"trace.replicas=4"}), eight);
  ASSERT_TRUE(to_chakra(data, chakra).ok());
  const std::string groups = "chakra.comm_groups=" + chakra + ".groups.json";
  EXPECT_EQ(finish(chakra, {groups, "chakra.data_parallel=2-5", "trace.replicas=4"}), eight);
  const auto apart = run(chakra, {groups, "trace.replicas=4"});
  ASSERT_TRUE(apart.ok());
  EXPECT_EQ(apart->record.finish_time, finish(data, {}));
  EXPECT_THAT(apart->warnings, testing::Contains(testing::HasSubstr("replicas never meet")));

  const std::string stages = (folder / "stages.txt").string(), messages = (folder / "m").string();
  std::ofstream(stages)
      << "HYBRID_TRANSFORMER_FWD_IN_BCKWD pp: 4 ga: 3 all_gpus: 4 pp_comm: 409600\n3\n"
         "mlp -1 100123 NONE 0 200456 NONE 0 50789 NONE 0 1\n"
         "mlp -1 100123 NONE 0 200456 NONE 0 50789 NONE 0 1\n"
         "mlp -1 100123 NONE 0 200456 NONE 0 50789 NONE 0 1\n";
  ASSERT_TRUE(to_chakra(stages, messages).ok());
  EXPECT_EQ(finish(messages, {"trace.replicas=2"}), finish(messages, {}));
  EXPECT_EQ(finish(stages, {"trace.replicas=2"}), finish(stages, {}));

  options.cluster = "";
  EXPECT_THAT(run(data, {"trace.replicas=2"}).status().message(), testing::HasSubstr("--cluster"));
  std::filesystem::remove_all(folder);
}

TEST(ChakraWriter, SaysTheSameAsJsonAndAsDot) {
  formats::ChakraWriter writer;
  formats::ChakraNode work;
  work.id = 7;
  work.type = formats::ChakraNodeType::kCompute;
  work.duration_us = 3;
  writer.Add(work, "a \"b\"", "", {});
  formats::ChakraNode reduce;
  reduce.id = 8;
  reduce.type = formats::ChakraNodeType::kCollective;
  reduce.collective = formats::ChakraCollective::kReduceScatter;
  reduce.comm_size = 1 << 20;
  reduce.has = formats::ChakraNode::kCommType | formats::ChakraNode::kCommSize;
  const std::uint64_t deps[] = {7};
  writer.Add(reduce, "c", "2", deps);
  const std::string bytes = writer.Release();
  const auto trace = formats::ParseChakra(bytes, "test", static_cast<std::int64_t>(bytes.size()));
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(ChakraToJson(*trace),
            "{\"version\":\"0.0.4\"}\n"
            R"({"id":"7","name":"a \"b\"","type":"COMP_NODE","durationMicros":"3"})"
            "\n"
            R"({"id":"8","name":"c","type":"COMM_COLL_NODE","dataDeps":["7"],"attr":[)"
            R"({"name":"comm_type","int64Val":"7"},{"name":"comm_size","int64Val":"1048576"},)"
            R"({"name":"pg_name","stringVal":"2"}]})"
            "\n");
  EXPECT_EQ(ChakraToDot(*trace, "rank 0"),
            "digraph \"rank 0\" {\n"
            "  node [fontsize=10]\n"
            "  n7 [shape=box label=\"a \\\"b\\\"\\n3.000 us\"]\n"
            "  n8 [shape=octagon label=\"c\\nREDUCE_SCATTER 1.0 MiB, group 2\"]\n"
            "  n7 -> n8\n"
            "}\n");
}

}  // namespace
}  // namespace orrery::job
