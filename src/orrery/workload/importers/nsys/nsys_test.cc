// Small reports, made here: what is read, joined with a log, and refused.
#include "orrery/formats/nsys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <fstream>

#include "orrery/base/file.h"
#include "orrery/base/rng.h"
#include "orrery/graph/verify/verify.h"
#include "orrery/workload/importers/nccl/nccl.h"
#include "orrery/workload/importers/nsys/join_calls.h"
#include "orrery/workload/importers/pytorch/pytorch.h"

namespace orrery::workload {
namespace {

using ::testing::HasSubstr;

// Two processes of one kernel of a product and one of NCCL's each; times in ns.
constexpr const char* kSchema = R"(
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
INSERT INTO StringIds VALUES (1, 'void gemm<128>(int)'),
  (2, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)'),
  (3, 'cudaLaunchKernel_v7000'), (4, 'ncclDevKernel_SendRecv(x)');
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA A100-SXM4-80GB');
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, "end" INTEGER, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER, deviceId INTEGER,
  streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, "end" INTEGER, eventType INTEGER, text TEXT,
  textId INTEGER, globalTid INTEGER);
)";
std::string Process(int pid, std::int64_t late) {
  const std::int64_t id = std::int64_t{pid} << 24;
  return fmt::format(
      "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({0}, {1}, {2}, 1, 3), ({3}, {4}, {2}, 2, 3);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({5}, {6}, 0, 7, 1, {7}, 1), "
      "({8}, 200000, 0, 20, 2, {7}, 2);"
      "INSERT INTO NVTX_EVENTS VALUES ({9}, 210000, 59, 'ProfilerStep#4', NULL, {2});",
      1000 + late, 3000 + late, id + 9, 5000 + late, 7000 + late, 4000 + late, 54000 + late, id,
      60000 + late, 500 + late);
}

class NsysTest : public ::testing::Test {
 protected:
  NsysTest() : path_(fmt::format("{}nsys_{}.sqlite", ::testing::TempDir(), getpid())) {
    unlink(path_.c_str());
  }
  ~NsysTest() override { unlink(path_.c_str()); }

  void Make(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
    sqlite3_close(db);
  }
  std::string Error() { return formats::ReadNsys(path_).status().message(); }

  const std::string path_;
};

// NCCL's log of the same two processes.
std::string Log() {
  std::string text;
  for (const auto& [pid, rank] : {std::pair{70, 1}, {71, 0}}) {
    const std::string who = fmt::format("node1:{}:{} [{}] NCCL INFO ", pid, pid + 1, rank);
    text += who + fmt::format(
                      "ncclCommInitRank comm 0x5{} rank {} nranks 2 cudaDev {} nvmlDev 0 "
                      "busId 7000 commId 0xabc - Init COMPLETE\n",
                      pid, rank, rank);
    text += who + fmt::format(
                      "AllReduce: opCount 1a sendbuff 0x1 recvbuff 0x1 count 4096 datatype 9 "
                      "op 0 root 0 comm 0x5{} [nranks=2] stream 0x77\n",
                      pid);
  }
  return text;
}

TEST_F(NsysTest, ReportsWithALogAreProfiles) {
  Make(std::string(kSchema) + Process(70, 0) + Process(71, 10000));
  Result<std::vector<formats::ProfileTrace>> read = formats::ReadNsys(path_);
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].gpus, std::vector<std::string>{"NVIDIA A100-SXM4-80GB"});
  formats::NcclCalls calls;
  ASSERT_TRUE(formats::ParseNcclCalls(Log(), "nccl.log", &calls).ok());
  const Status joined = JoinCalls(calls, "nccl.log", &*read);
  ASSERT_TRUE(joined.ok()) << joined.message();
  EXPECT_EQ((*read)[0].process, 71);  // rank 0
  std::vector<PyTorchRank> ranks;
  for (formats::ProfileTrace& p : *read) ranks.push_back({"r.sqlite", std::move(p), {}});
  const Result<PyTorchImport> import = ImportPyTorch(std::move(ranks), {}, "r.sqlite");
  ASSERT_TRUE(import.ok()) << import.status().message();
  const graph::Graph& graph = import->graph;
  ASSERT_TRUE(graph::Verify(graph, graph::VerifyLevel::kFull).ok());
  ASSERT_EQ(graph.blocks[0].comms.size(), 1u);
  EXPECT_EQ(graph.blocks[0].comms[0].bytes.value, 8192);  // the log's type, 2 bytes
  EXPECT_EQ(graph.blocks[0].comms[0].dtype, graph::DType::kBf16);
  // From the later start, 70 us, to the end at 200.
  EXPECT_EQ(graph.blocks[0].comms[0].measured.value, 130 * kMicrosecond);
  EXPECT_EQ(import->measured, (210000 - 500) * kNanosecond);
}

TEST_F(NsysTest, WithoutALogSizesAreMissing) {
  Make(std::string(kSchema) + Process(70, 0));
  Result<std::vector<formats::ProfileTrace>> read = formats::ReadNsys(path_);
  ASSERT_TRUE(read.ok()) << read.status().message();
  std::vector<PyTorchRank> ranks;
  ranks.push_back({"r.sqlite", std::move((*read)[0]), {}});
  const Result<PyTorchImport> import = ImportPyTorch(std::move(ranks), {}, "r.sqlite");
  ASSERT_TRUE(import.ok()) << import.status().message();
  EXPECT_THAT(import->missing, ::testing::Contains(HasSubstr("the size of 'ncclDevKernel_AllRed")));
}

TEST_F(NsysTest, TablesThatAreNoTablesAreRefused) {
  Make("CREATE TABLE other (a); CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT a FROM other;");
  EXPECT_THAT(Error(), HasSubstr("'CUPTI_ACTIVITY_KIND_KERNEL' is a view"));
  unlink(path_.c_str());
  Make("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, deviceId INTEGER)");
  EXPECT_THAT(Error(), HasSubstr("has no column 'end'"));
  unlink(path_.c_str());
  Make(
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, \"end\", deviceId, streamId, "
      "globalPid AS (zeroblob(100000000)))");
  Make("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 0, 7)");
  EXPECT_FALSE(formats::ReadNsys(path_).ok());  // a function of the schema's
  unlink(path_.c_str());
  Make(
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, \"end\", deviceId, streamId);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 2, 0, 7)");
  EXPECT_THAT(Error(), HasSubstr("an event from 5 to 2 ns"));
  unlink(path_.c_str());
  Make("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, \"end\", deviceId, streamId)");
  EXPECT_THAT(Error(), HasSubstr("no kernels"));
}

// 400 reports with bytes changed, and as many cut: an answer or an error, never a crash.
TEST_F(NsysTest, DamagedFilesEndWithAnAnswer) {
  Make(std::string(kSchema) + Process(70, 0));
  const std::string whole = *ReadFile(path_, 1 << 20);
  for (std::uint64_t i = 0; i < 800; ++i) {
    std::string bytes = whole;
    if (i % 2 == 0) {
      bytes.resize(Mix64(i) % bytes.size());
    } else {
      for (std::uint64_t k = 0; k < 8; ++k) {
        bytes[Mix64(i * 16 + k) % bytes.size()] = static_cast<char>(Mix64(i + k * 977));
      }
    }
    std::ofstream(path_, std::ios::binary) << bytes;
    const auto read = formats::ReadNsys(path_);
    EXPECT_TRUE(read.ok() || read.status().code() == Code::kInvalidInput);
  }
}

TEST(NcclCalls, ALogAloneIsCommunication) {
  formats::NcclCalls calls;
  ASSERT_TRUE(formats::ParseNcclCalls(Log(), "nccl.log", &calls).ok());
  const Result<NcclImport> import = ImportNccl(calls, "nccl.log");
  ASSERT_TRUE(import.ok()) << import.status().message();
  ASSERT_TRUE(graph::Verify(import->graph, graph::VerifyLevel::kFull).ok());
  ASSERT_EQ(import->graph.bindings.size(), 2u);
  EXPECT_EQ(import->graph.blocks[0].comms[0].bytes.value, 8192);
  EXPECT_EQ(import->graph.blocks[0].comms[0].measured.value, -1);
}

TEST(NcclCalls, TheInspectorsRecordsHaveTimes) {
  const auto record = [](int rank, int us) {
    return fmt::format(
        R"({{"header": {{"id": "0x9e", "rank": {}, "n_ranks": 2, "nnodes": 1}}, "metadata": {{"hostname":
"a", "pid": {}}}, "coll_perf": {{"coll": "ReduceScatter", "coll_sn": 3, "coll_msg_size_bytes": 65536,
"coll_exec_time_us": {}}}}})",
        rank, 100 + rank, us);
  };
  std::string text;
  for (const std::string& r : {record(0, 110), record(1, 90)}) {
    for (const char c : r) text += c == '\n' ? ' ' : c;
    text += '\n';
  }
  formats::NcclCalls calls;
  const Status status = formats::ParseNcclCalls(text, "inspector.log", &calls);
  ASSERT_TRUE(status.ok()) << status.message();
  const Result<NcclImport> import = ImportNccl(calls, "inspector.log");
  ASSERT_TRUE(import.ok()) << import.status().message();
  for (const graph::Block& block : import->graph.blocks) {
    EXPECT_EQ(block.comms[0].bytes.value, 131072);  // of both
    EXPECT_EQ(block.comms[0].measured.value, 90 * kMicrosecond);
  }
}

TEST(NcclCalls, BrokenLogsNameTheLine) {
  const auto error = [](const std::string& text) {
    formats::NcclCalls calls;
    const Status status = formats::ParseNcclCalls(text, "n.log", &calls);
    return status.ok() ? ImportNccl(calls, "n.log").status().message() : status.message();
  };
  const std::string log = Log();
  const std::size_t second = log.find("AllReduce");
  std::string unknown = log;
  unknown.replace(second, 9, "AllReduse");
  EXPECT_THAT(error(unknown), HasSubstr("did you mean 'AllReduce'"));
  std::string type = log;
  type.replace(log.find("datatype 9"), 10, "datatype 99");
  EXPECT_THAT(error(type), HasSubstr("n.log:2: datatype 99 is unknown"));
  EXPECT_THAT(error(log.substr(log.find('\n') + 1)), HasSubstr("was never made in this log"));
  EXPECT_THAT(error(log.substr(0, log.find("node1:71"))), HasSubstr("give the logs of all ranks"));
  EXPECT_THAT(error("nothing"), HasSubstr("no call of NCCL"));
}

}  // namespace
}  // namespace orrery::workload
