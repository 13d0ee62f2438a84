// DUMPI's traces as text: the same programs as liballprof's, with times derived by hand, what the
// format says more (handles, requests that were found), and what can be wrong.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "orrery/job/trace.h"

namespace orrery::job {
namespace {

using ::testing::HasSubstr;

// Ranks' texts, call by call.
class Dumpi {
 public:
  explicit Dumpi(int ranks) : text_(static_cast<std::size_t>(ranks)) {
    for (std::string& text : text_) text = "version=1.0.0\nhostname=h\nmeshsize=[]\n";
  }
  // `arguments`: lines; µs from 1,000 s on.
  void Call(int rank, std::string_view name, std::string_view arguments, int start = 0,
            int end = 0) {
    const auto time = [](int us) { return fmt::format("1000.{:06}000", us); };
    text_[static_cast<std::size_t>(rank)] += fmt::format(
        "MPI_{0} entering at walltime {1}, cputime 0.000000001 seconds in thread 0.\n{2}"
        "MPI_{0} returning at walltime {3}, cputime 0.000000002 seconds in thread 0.\n",
        name, time(start), arguments, time(end));
  }
  void All(std::string_view name, std::string_view arguments) {
    for (std::size_t r = 0; r < text_.size(); ++r) Call(static_cast<int>(r), name, arguments);
  }
  void Line(int rank, std::string_view line) {
    text_[static_cast<std::size_t>(rank)] += fmt::format("{}\n", line);
  }
  std::string& text(int rank) { return text_[static_cast<std::size_t>(rank)]; }

  Result<results::TraceResult> Simulated() const {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    const auto folder = std::filesystem::path(::testing::TempDir()) /
                        fmt::format("orrery_dumpi_{}_{}", test->name(), getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    for (std::size_t r = 0; r < text_.size(); ++r) {
      std::ofstream(folder / fmt::format("dumpi-{:04}.txt", r)) << text_[r];
    }
    const TraceFiles files = OpenTrace({folder / "dumpi-0000.txt"});
    const Result<const Importer*> importer = FindImporter(files, "");
    EXPECT_TRUE(importer.ok() && *importer != nullptr && (*importer)->name == "mpi");
    Result<results::TraceResult> result = SimulateTrace(**importer, files, {});
    std::filesystem::remove_all(folder);
    return result;
  }
  std::int64_t finish_ns() const {
    const auto run = Simulated();
    EXPECT_TRUE(run.ok()) << run.status().message();
    return run.ok() ? run->record.finish_time / kNanosecond : -1;
  }
  std::string error() const { return Simulated().status().message(); }

 private:
  std::vector<std::string> text_;
};

constexpr std::string_view kWorld = "MPI_Comm comm=2 (MPI_COMM_WORLD)\n";

std::string Message(std::string_view peer, int rank, int count = 1001,
                    std::string_view comm = kWorld) {
  return fmt::format("int count={}\nMPI_Datatype datatype=5 (MPI_BYTE)\nint {}={}\nint tag=7\n{}",
                     count, peer, rank, comm);
}

// 5 us of work, then o + L + o + 1000 G = 1.5 + 2.5 + 1.5 + 6 us of a message of 1,001 bytes.
TEST(DumpiTrace, WorkAndAMessage) {
  Dumpi p(2);
  p.All("Init", "int argc=1\nstring argv[1]=[\"./a = b\"]\n");
  p.Call(0, "Send", Message("dest", 1), 5, 10);
  p.Call(1, "Recv", Message("source", 0) + "MPI_Status status=<IGNORED>\n", 0, 30);
  EXPECT_EQ(p.finish_ns(), 16'500);
}

// Sizes of datatypes are the trace's where it has them; 501 elements of 2 bytes are 1,002.
TEST(DumpiTrace, DatatypesHaveTheTracesSizes) {
  Dumpi p(2);
  const std::string type = "int count=501\nMPI_Datatype datatype=28 (user-defined-datatype)\n";
  p.Call(0, "Send", type + "int dest=1\nint tag=7\n" + std::string(kWorld));
  p.Call(1, "Recv", type + "int source=0\nint tag=7\n" + std::string(kWorld));
  EXPECT_THAT(p.error(), HasSubstr("does not say how long datatype 28 (user-defined-datatype) is"));
  for (const int r : {0, 1}) {
    p.Line(r, "MPI_Send called 1 times and ignored 0 times");
    p.Line(r, "Datatype 27 (MPI_LONG_DOUBLE_INT) has size 20");
    p.Line(r, "Datatype 28 (user-defined-datatype) has size 2");
  }
  EXPECT_EQ(p.finish_ns(), 11'500 + 6);
}

// Waitany says which request it found: the second, whose message is there first; the third call
// waits for it alone, and the send behind it begins then.
TEST(DumpiTrace, RequestsThatWereFound) {
  Dumpi p(3);
  p.Call(0, "Irecv", Message("source", 1, 1) + "MPI_Request request=[4]\n");
  p.Call(0, "Irecv", Message("source", 2, 1) + "MPI_Request request=[9]\n");
  p.Call(0, "Waitany",
         "int count=2\nMPI_Request requests[2]=[4, 9]\nint index=1\n"
         "MPI_Status status=<IGNORED>\n");
  p.Call(0, "Send", Message("dest", 2, 1));
  p.Call(0, "Wait", "MPI_Request request=[4]\nMPI_Status status=<IGNORED>\n");
  p.Call(1, "Init", "", 0, 0);
  p.Call(1, "Send", Message("dest", 0, 1), 100, 100);
  p.Call(2, "Send", Message("dest", 0, 1));
  p.Call(2, "Recv", Message("source", 0, 1));
  // o + L + o, and again, while rank 1 works for 100 us: rank 0 ends behind its message.
  const auto run = p.Simulated();
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->record.classes[2].finish_time, 11'000 * kNanosecond);
  EXPECT_EQ(run->record.finish_time, 105'500 * kNanosecond);
}

// A communicator is known by the handle that its split has returned: two of equal size, the second
// used first.
TEST(DumpiTrace, CommunicatorsByTheirHandles) {
  Dumpi p(4);
  const std::string old = "MPI_Comm oldcomm=2 (MPI_COMM_WORLD)\n";
  for (int r = 0; r < 4; ++r) {
    p.Call(r, "Comm_split",
           fmt::format("{}int color={}\nint key=0\nMPI_Comm newcomm=4 (user-defined-comm)\n", old,
                       r / 2));
    p.Call(r, "Comm_split",
           fmt::format("{}int color={}\nint key={}\nMPI_Comm newcomm=5 (user-defined-comm)\n", old,
                       r % 2, -r));
  }
  // By the second split rank 2 is 0 and rank 0 is 1 of their communicator.
  const std::string_view second = "MPI_Comm comm=5 (user-defined-comm)\n";
  p.Call(0, "Send", Message("dest", 0, 1, second));
  p.Call(2, "Recv", Message("source", 1, 1, second));
  p.Call(0, "Bcast",
         "int count=1\nMPI_Datatype datatype=5 (MPI_BYTE)\nint root=0\n" + std::string(second));
  p.Call(2, "Bcast",
         "int count=1\nMPI_Datatype datatype=5 (MPI_BYTE)\nint root=0\n" + std::string(second));
  const auto run = p.Simulated();
  ASSERT_TRUE(run.ok()) << run.status().message();
  // Two all-reduces of four ranks, 8 messages each, the message and the broadcast's.
  EXPECT_EQ(run->record.messages.sent, 18u);
}

// Groups by their numbers in the world, in their own order; a rank that is in none makes nothing.
TEST(DumpiTrace, CommunicatorsOfGroups) {
  Dumpi p(4);
  for (int r = 0; r < 4; ++r) {
    p.Call(r, "Comm_group",
           "MPI_Comm comm=2 (MPI_COMM_WORLD)\nMPI_Group group=3 (user-defined-group)\n");
    p.Call(r, "Group_incl",
           "MPI_Group group=3 (user-defined-group)\nint count=3\nint ranks[3]=[3, 2, 0]\n"
           "MPI_Group newgroup=4 (user-defined-group)\n");
    p.Call(r, "Group_incl",
           "MPI_Group group=4 (user-defined-group)\nint count=2\nint ranks[2]=[2, 0]\n"
           "MPI_Group newgroup=5 (user-defined-group)\n");
    p.Call(r, "Comm_create",
           "MPI_Comm oldcomm=2 (MPI_COMM_WORLD)\nMPI_Group group=5 (user-defined-group)\n"
           "MPI_Comm newcomm=6 (user-defined-comm)\n");
  }
  // World's rank 0 is 0 of the communicator, its rank 3 is 1.
  const std::string_view of = "MPI_Comm comm=6 (user-defined-comm)\n";
  p.Call(0, "Send", Message("dest", 1, 1, of));
  p.Call(3, "Recv", Message("source", 0, 1, of));
  const auto run = p.Simulated();
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->record.messages.sent, 9u);  // and an all-reduce of four ranks
  p.Call(1, "Barrier", std::string(of));
  EXPECT_THAT(p.Simulated().status().message(),
              HasSubstr("communicator 6: the trace does not say"));
}

TEST(DumpiTrace, WhatIsWrongIsSaid) {
  Dumpi cut(1);
  cut.Line(0, "MPI_Barrier entering at walltime 1000.000000000, cputime 0.0 seconds in thread 0.");
  EXPECT_THAT(cut.error(), HasSubstr("MPI_Barrier: the text ends within it; is it cut off?"));
  Dumpi ignored(1);
  ignored.All("Barrier", kWorld);
  ignored.Line(0, "MPI_Send called 9 times and ignored 4 times");
  EXPECT_THAT(ignored.error(), HasSubstr("4 calls of MPI_Send were ignored"));
  Dumpi put(1);
  put.All("Put", "int x=1\n");
  EXPECT_THAT(put.error(), HasSubstr("0000.txt:4: 'MPI_Put' is not among the calls that are read"));
  Dumpi number(1);
  number.All("Bcast", "int count=x\n");
  EXPECT_THAT(number.error(), HasSubstr("MPI_Bcast: count: 'x' is not what it takes"));
  Dumpi unknown(2);
  unknown.All("Barrier", "MPI_Comm comm=7 (user-defined-comm)\n");
  EXPECT_THAT(unknown.error(), HasSubstr("communicator 7: the trace does not say who belongs"));
}

}  // namespace
}  // namespace orrery::job
