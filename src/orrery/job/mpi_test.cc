// MPI programs' traces as they run: times derived by hand, algorithms by size, communicators, and
// what a trace can get wrong.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "orrery/job/trace.h"
#include "orrery/workload/importers/mpi/trace.h"

namespace orrery::job {
namespace {

using ::testing::HasSubstr;

// Writes a program's traces call by call, 10 us each.
class Program {
 public:
  explicit Program(int ranks) : text_(static_cast<std::size_t>(ranks), "MPI_Init:-:0:0:1000\n") {}

  // `arguments` between the times; in it @ is the rank's communicator "77,RANK,RANKS".
  void Call(int rank, std::string_view name, std::string arguments, int start = -1, int end = -1) {
    for (std::size_t at; (at = arguments.find('@')) != arguments.npos;) {
      arguments.replace(at, 1, fmt::format("77,{},{}", rank, text_.size()));
    }
    text_[static_cast<std::size_t>(rank)] += fmt::format(
        "MPI_{}:{}:{}:{}\n", name, start < 0 ? 1000 : start, arguments, end < 0 ? 1000 : end);
  }
  template <typename Arguments>
  void All(std::string_view name, const Arguments& arguments) {
    for (int r = 0; r < ranks(); ++r) Call(r, name, arguments(r));
  }
  int ranks() const { return static_cast<int>(text_.size()); }

  Result<results::TraceResult> Simulated(std::vector<std::string> set = {},
                                         TraceOptions options = {}) const {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    const auto folder = std::filesystem::path(::testing::TempDir()) /
                        fmt::format("orrery_mpi_{}_{}", test->name(), getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    for (std::size_t r = 0; r < text_.size(); ++r) {
      std::ofstream(folder / fmt::format("trace-{:03}.txt", r)) << text_[r];
    }
    const TraceFiles files = OpenTrace({folder / "trace-000.txt"});
    const Result<const Importer*> importer = FindImporter(files, "");
    EXPECT_TRUE(importer.ok() && *importer != nullptr && (*importer)->name == "mpi");
    options.set = std::move(set);
    Result<results::TraceResult> result = SimulateTrace(**importer, files, options);
    std::filesystem::remove_all(folder);
    return result;
  }

 private:
  std::vector<std::string> text_;
};

results::TraceResult Predicted(const Program& program, std::vector<std::string> set = {}) {
  Result<results::TraceResult> result = program.Simulated(std::move(set));
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *std::move(result) : results::TraceResult{};
}
std::string ProgramError(const Program& program, std::vector<std::string> set = {}) {
  return program.Simulated(std::move(set)).status().message();
}

// 5 us of work, then o + L + o + 1000 G = 1.5 + 2.5 + 1.5 + 6 us of a message of 1001 bytes.
TEST(MpiTrace, WorkAndAMessage) {
  Program p(2);
  p.Call(0, "Send", "1:1001:13,1,1:1:7:@", 1005, 1010);
  p.Call(1, "Recv", "1:1001:13,1,1:0:7:@:0", 1000, 1030);
  EXPECT_EQ(Predicted(p).record.finish_time, 16'500 * kNanosecond);
  EXPECT_EQ(Predicted(p, {"mpi.compute=2"}).record.finish_time, 21'500 * kNanosecond);
}

// A wait ends what a request began; the work between runs beside the message: 11.5 us of the
// message from 0, but the receiver's processor is at work until 20 us, and takes it in after that
// for 7.5.
TEST(MpiTrace, NonblockingAndPersistent) {
  Program p(2);
  p.Call(0, "Send_init", "1:1001:13,1,1:1:7:@:500");
  p.Call(0, "Startall", "1:500");
  p.Call(0, "Waitall", "1:500:0");
  p.Call(1, "Irecv", "1:1001:13,1,1:0:7:@:900");
  p.Call(1, "Wait", "900:0", 1020, 1021);
  EXPECT_EQ(Predicted(p).record.finish_time, 27'500 * kNanosecond);
}

// A program goes on once a send has started: the second waits for the interface until 7 us and
// holds the processor for 1.5, the 10 us of work come after it.
TEST(MpiTrace, SendsComeBeforeTheWorkBehindThem) {
  Program p(2);
  p.Call(0, "Isend", "1:1001:13,1,1:1:7:@:500");
  p.Call(0, "Isend", "1:1001:13,1,1:1:7:@:508");
  p.Call(0, "Waitall", "2:500:0", 1010, 1010);
  for (int i = 0; i < 2; ++i) p.Call(1, "Recv", "1:1001:13,1,1:0:7:@:0");
  const auto run = Predicted(p);
  EXPECT_EQ(run.record.classes[0].finish_time, 18'500 * kNanosecond);
  EXPECT_EQ(run.record.classes[1].finish_time, 19'000 * kNanosecond);
}

std::string List(int n, const auto& of) {
  std::string list = "9:";
  for (int i = 0; i < n; ++i) list += fmt::format("{}{}", i > 0 ? "," : "", of(i));
  return list;
}

// Every collective of every size on any number of ranks ends, and no message is longer than its
// receive.
// Two hosts of two ranks and one interface each. A message inside a host puts nothing on it; two
// that leave a host share it.
TEST(MpiTrace, RanksOfAHostShareItsInterface) {
  const auto run = [](const char* network, const std::vector<std::pair<int, int>>& messages) {
    Program p(4);
    for (const auto& [from, to] : messages) {
      p.Call(from, "Send", fmt::format("0:1048576:13,1,1:{}:7:@", to));
      p.Call(to, "Recv", fmt::format("0:1048576:13,1,1:{}:7:@:0", from));
    }
    TraceOptions options;
    options.network = network;
    options.cluster = "h100-ib-400g";
    const auto result = p.Simulated({"cluster.gpus_per_node=2", "cluster.gpus_per_nvlink_domain=2",
                                     "cluster.nics_per_node=1", "loggops.o=0"},
                                    options);
    EXPECT_TRUE(result.ok()) << result.status().message();
    std::int64_t nic = 0;
    for (const engine::LinkClassUse& use : result->record.network) {
      if (use.name == "nic-up") nic += use.bytes;
    }
    return std::pair(result->record.finish_time, nic);
  };
  for (const char* network : {"flow", "flow-chunks", "links", "packet"}) {
    const auto near = run(network, {{0, 1}}), far = run(network, {{0, 2}}),
               two = run(network, {{0, 2}, {1, 3}});
    EXPECT_EQ(near.second, 0) << network;
    EXPECT_GT(far.second, 1 << 20) << network;
    EXPECT_EQ(two.second, 2 * far.second) << network;
    EXPECT_LT(near.first, far.first) << network;
    // 50 GB/s of the interface for both.
    const double each_s = 1048576 / 50e9;
    EXPECT_NEAR(ToSeconds(two.first - far.first), each_s, 0.08 * each_s) << network;
  }
}

TEST(MpiTrace, EveryCollectiveEnds) {
  for (const int n : {2, 3, 5, 8, 12, 13}) {
    Program p(n);
    const std::string none = List(n, [](int) { return 0; });
    for (const int size : {0, 1, 100, 1000, 5000, 40000, 1000000}) {
      const std::string b = fmt::format("1:{}:13,1,1", size);
      const std::string counts = List(n, [&](int i) { return size + i; });
      p.All("Barrier", [](int) { return "@"; });
      p.All("Allreduce", [&](int) { return fmt::format("1:2:{}:13,1,1:3:@", size); });
      p.All("Allgather", [&](int) { return b + ":" + b + ":@"; });
      p.All("Alltoall", [&](int) { return b + ":" + b + ":@"; });
      p.All("Scan", [&](int) { return fmt::format("1:2:{}:13,1,1:3:@", size); });
      p.All("Reduce_scatter", [&](int) { return "1:2:" + counts + ":13,1,1:3:@"; });
      p.All("Reduce_scatter_block", [&](int) { return fmt::format("1:2:{}:13,1,1:3:@", size); });
      p.All("Allgatherv", [&](int r) {
        return fmt::format("1:{}:13,1,1:2:{}:{}:13,1,1:@", size + r, counts, none);
      });
      p.All("Alltoallv", [&](int r) {
        return fmt::format("1:{}:{}:13,1,1:2:{}:{}:13,1,1:@",
                           List(n, [&](int i) { return size + (3 * r + 5 * i) % 7; }), none,
                           List(n, [&](int i) { return size + (3 * i + 5 * r) % 7; }), none);
      });
      for (const int root : {0, n / 2, n - 1}) {
        p.All("Bcast", [&](int) { return fmt::format("{}:{}:@", b, root); });
        p.All("Reduce", [&](int) { return fmt::format("1:2:{}:13,1,1:3:{}:@", size, root); });
        p.All("Gather", [&](int) { return fmt::format("{}:{}:{}:@", b, b, root); });
        p.All("Scatter", [&](int) { return fmt::format("{}:{}:{}:@", b, b, root); });
        p.All("Gatherv", [&](int r) {
          return fmt::format("1:{}:13,1,1:2:{}:{}:13,1,1:{}:@", size + r, counts, none, root);
        });
        p.All("Scatterv", [&](int r) {
          return fmt::format("1:{}:{}:13,1,1:2:{}:13,1,1:{}:@", counts, none, size + r, root);
        });
      }
    }
    for (const char* library : {"mpich", "openmpi"}) {
      const auto run = Predicted(p, {std::string("mpi.library=") + library, "mpi.combine=5GB/s"});
      EXPECT_EQ(run.record.messages.truncated, 0u) << n << " ranks, " << library;
      EXPECT_GT(run.record.messages.sent, 0u) << n << " ranks, " << library;
    }
  }
}

// How many messages say which algorithm it was.
TEST(MpiTrace, LibrariesChooseBySize) {
  const auto sent = [](std::string_view call, int size, std::string_view set) {
    Program p(8);
    p.All(call, [&](int) {
      return call == "Bcast" ? fmt::format("1:{}:13,1,1:0:@", size)
                             : fmt::format("1:2:{}:13,1,1:3:@", size);
    });
    return Predicted(p, {std::string(set)}).record.messages.sent;
  };
  EXPECT_EQ(sent("Bcast", 12287, "mpi.library=mpich"), 7u);           // a tree's edges
  EXPECT_EQ(sent("Bcast", 12288, "mpi.library=mpich"), 7u + 8 * 3);   // scatter, doubling
  EXPECT_EQ(sent("Bcast", 524288, "mpi.library=mpich"), 7u + 8 * 7);  // scatter, ring
  EXPECT_EQ(sent("Allreduce", 9999, "mpi.library=openmpi"), 8u * 3);
  EXPECT_EQ(sent("Allreduce", 10000, "mpi.library=openmpi"), 8u * 14);
  EXPECT_EQ(sent("Allreduce", 2048, "mpi.library=mpich"), 8u * 3);
  EXPECT_EQ(sent("Allreduce", 2049, "mpi.library=mpich"), 8u * 6);
  EXPECT_EQ(sent("Allreduce", 8, "mpi.allreduce=ring"), 8u * 14);
}

// Which tree a reduction of Open MPI takes: it ends when the tree of that name does.
TEST(MpiTrace, OpenMpiReducesByTrees) {
  const auto reduced = [](int size, std::vector<std::string> set) {
    Program p(8);
    p.All("Reduce", [&](int) { return fmt::format("1:2:{}:13,1,1:3:0:@", size); });
    return Predicted(p, std::move(set)).record;
  };
  const auto end = [&](int size, std::string_view tree) {
    return reduced(size, {"mpi.library=openmpi", fmt::format("mpi.reduce={}", tree)}).finish_time;
  };
  EXPECT_EQ(end(2047, "auto"), end(2047, "binomial"));
  EXPECT_NE(end(2047, "auto"), end(2047, "binary"));
  EXPECT_EQ(reduced(2048, {"mpi.library=openmpi"}).messages.sent, 7u * 2);  // segments of 1 KiB
  EXPECT_EQ(end(20000, "auto"), end(20000, "binary"));
  EXPECT_NE(end(20000, "auto"), end(20000, "pipeline"));
}

// Rows and columns of a 4 x 4 grid: on the diagonal a rank has one number in both. Columns are made
// last and used first; only what the other ranks do tells.
TEST(MpiTrace, SplitsAreToldApart) {
  Program p(16);
  p.All("Comm_split", [](int r) { return fmt::format("@:{}:{}:0", r / 4, r); });
  p.All("Comm_split", [](int r) { return fmt::format("@:{}:{}:0", r % 4, r); });
  for (int r = 0; r < 16; ++r) {
    const int row = r / 4, column = r % 4;  // in a column a rank's number is its row
    p.Call(r, "Sendrecv",
           fmt::format("1:64:13,1,1:{}:5:2:64:13,1,1:{}:5:801,{},4:0", (row + 1) % 4, (row + 3) % 4,
                       row));
    p.Call(r, "Allreduce", fmt::format("1:2:1:10,8,8:3:800,{},4", column));
  }
  const auto run = Predicted(p);
  // Two agreements of 16 ranks, a message each, four all-reduces of four.
  EXPECT_EQ(run.record.messages.sent, 2u * 16 * 4 + 16 + 4u * 4 * 2);
  EXPECT_TRUE(run.warnings.empty());
}

// Any source and any tag, and a neighbour that is not there; the barrier's messages fit no such
// receive.
TEST(MpiTrace, WildcardsAndNobody) {
  Program p(3);
  for (int i = 0; i < 2; ++i) p.Call(0, "Recv", "1:64:13,1,1:-1:-1:@:0");
  for (const int r : {1, 2}) {
    p.Call(r, "Send", fmt::format("1:64:13,1,1:0:{}:@", 40 + r), 1000 + 30 * r, 1000 + 30 * r);
    p.Call(r, "Send", "1:64:13,1,1:-2:1:@", 1100, 1100);
  }
  p.All("Barrier", [](int) { return "@"; });
  const auto run = Predicted(p);
  EXPECT_EQ(run.record.messages.sent, 2u + 3 * 2);
  EXPECT_THAT(run.warnings, ::testing::ElementsAre(HasSubstr("receives of any tag")));
}

// liballprof's own files have a header and an empty line before the first call.
TEST(MpiTrace, AHeaderMayEndInAnEmptyLine) {
  EXPECT_TRUE(
      workload::IsMpiTrace("# collprof 0.9 output file\n# host: odin071\n\nMPI_Init:-:1:2:3.0\n"));
  EXPECT_TRUE(workload::IsMpiTrace("# collprof\r\n\r\nMPI_Init:-:1:2:3.0\r\n"));
  EXPECT_FALSE(workload::IsMpiTrace("# a job\n\nmodel: gpt3-175b\n"));
}

TEST(MpiTrace, SaysWhatIsWrong) {
  const auto error = [](std::string_view call, std::string_view arguments) {
    Program p(2);
    p.Call(0, call, std::string(arguments));
    return ProgramError(p);
  };
  EXPECT_THAT(error("Put", "1:2"), HasSubstr("trace-000.txt:2: 'MPI_Put' is not among the calls"));
  EXPECT_THAT(error("Send", "1:2:13,1,1:5:0:@"),
              HasSubstr("destination 5: the communicator has 2"));
  EXPECT_THAT(error("Send", "1:2:13,1,1"), HasSubstr("the line ends before it"));
  EXPECT_THAT(error("Send", "1:x:13,1,1:1:0:@"), HasSubstr("argument 2: 'x' is no whole number"));
  EXPECT_THAT(error("Send", "1:-5:13,1,1:1:0:@"), HasSubstr("-5 elements"));
  EXPECT_THAT(error("Barrier", "5,0,9"), HasSubstr("does not say who belongs to it"));
  EXPECT_THAT(error("Barrier", "5,9,9"), HasSubstr("no rank 9 among 9"));
  EXPECT_THAT(error("Bcast", "1:8:13,1,1:2:@"), HasSubstr("root 2: the communicator has 2"));
  EXPECT_THAT(error("Comm_split", "@:0:0:0"), HasSubstr("not all members"));
  EXPECT_THAT(error("Barrier", "@"), HasSubstr("deadlock"));
  Program p(3);
  p.All("Allgather", [](int) { return "1:8:13,1,1:1:8:13,1,1:@"; });
  EXPECT_THAT(ProgramError(p, {"mpi.allgather=recursive-doubling"}),
              HasSubstr("needs a power of two"));
  EXPECT_THAT(ProgramError(p, {"mpi.allgather=brck"}), HasSubstr("bruck"));
}

}  // namespace
}  // namespace orrery::job
