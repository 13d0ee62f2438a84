#include "orrery/job/chakra_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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
    options.set = {"chakra.comm_groups=" + (folder / "c.groups.json").string()};
    const auto after = SimulateTrace(**chakra, back, options);
    ASSERT_TRUE(after.ok()) << after.status().message();
    EXPECT_EQ(after->record.finish_time, before->record.finish_time) << network;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace orrery::job
