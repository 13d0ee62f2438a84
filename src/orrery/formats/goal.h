// GOAL: one schedule a rank of sends, receives and local work, with dependencies between them.
// Text and binary form, both ways. How long a schedule takes is the engine's matter
// (engine/general/joint.cc).
//
// Text: "num_ranks N", then for R = 0 to N-1 a block "rank R { ... }" of one statement a line:
//     [label:] send BYTESb to RANK [tag T] [cpu C] [nic I]
//     [label:] recv BYTESb from RANK|-1 [tag T|-1] [cpu C] [nic I]
//     [label:] calc NANOSECONDS [cpu C]
//     LABEL requires LABEL     (may start when the other is done)
//     LABEL irequires LABEL    (may start when the other has started)
// A label is defined before it is used; // and /* */ are comments. A receive from -1, or with tag
// -1, takes any.
//
// Binary (little endian, packed): u64 4223; u32 ranks; u8 highest cpu; u8 highest nic; for each
// rank the u64 start and end of its section, counted from byte 8. A section: u32 operations, u32
// roots, the roots' indices, the operations of 39 bytes (u32 open dependencies, u8 kind, u32 peer,
// u64 size, u32 tag, u8 cpu, u8 nic, u32 dependents, u32 their first index, u32 start-dependents,
// u32 their first index), then the indices that these refer to.
//
// Source: GOAL as spcl/LogGOPSim reads and writes it (Hoefler, Siebert, Lumsdaine, ICPP'09).
//
// Cost: text O(bytes), one hash of a label; memory 32 bytes an operation and 4 a dependency, 4 more
// an operation for lines of a text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::formats {

struct GoalSchedule {
  static constexpr std::uint32_t kAny = 0xFFFFFFFFu;  // rank or tag
  enum class Kind : std::uint8_t { kSend = 1, kRecv = 2, kCalc = 3 };
  struct Op {
    std::int64_t size = 0;  // bytes, or ns of a calc
    std::uint32_t peer = 0, tag = 0;
    std::uint32_t first_edge = 0;  // into edges; up to the next operation's
    std::uint32_t open = 0;        // operations it waits for, start-dependencies included
    Kind kind = Kind::kCalc;
    std::uint8_t cpu = 0, nic = 0;
  };
  // An edge leads from an operation to one that waits for it, a number within the same rank; the
  // top bit is set where it waits for the start only.
  static constexpr std::uint32_t kStartEdge = 0x80000000u;

  std::vector<std::uint32_t> first_op;  // by rank, and one more: the number of operations
  std::vector<Op> ops;                  // and one more, for first_edge
  std::vector<std::uint32_t> edges;
  std::vector<std::uint32_t> lines;  // of a text: by operation
  int cpus = 1, nics = 1;
  std::uint32_t first_rank = 0;  // the number of the first rank here

  std::size_t ranks() const { return first_op.empty() ? 0 : first_op.size() - 1; }
  std::size_t operations() const { return ops.empty() ? 0 : ops.size() - 1; }
  std::span<const std::uint32_t> edges_of(std::size_t op) const {
    return {edges.data() + ops[op].first_edge, ops[op + 1].first_edge - ops[op].first_edge};
  }
  // "line 17" or "operation 3 of rank 2".
  std::string Place(std::size_t op) const;
};
std::string_view Name(GoalSchedule::Kind kind);

enum class GoalForm : std::uint8_t { kNone, kText, kBinary };
// By the first bytes of a file.
GoalForm SniffGoal(std::string_view start);

// Either form. Errors name file, line or byte, and remedy. Checked: peers exist, labels are known,
// sizes are not negative, dependencies of each rank have no cycle.
Result<GoalSchedule> ParseGoal(std::string_view bytes, const std::string& name);
// The same, part by part, so that a file need not stand in memory as a whole: of the binary form a
// rank at a time, in order; the text in one. `ranks` is how many there are in all.
using GoalPart = std::function<Status(const GoalSchedule& part, std::uint32_t ranks)>;
Status ParseGoalParts(std::string_view bytes, const std::string& name, const GoalPart& use);

std::string GoalToText(const GoalSchedule& schedule);
std::string GoalToBinary(const GoalSchedule& schedule);

// Writes schedules from code: operations of rank 0, then of rank 1, and so on.
class GoalBuilder {
 public:
  explicit GoalBuilder(std::uint32_t first_rank = 0) { out_.first_rank = first_rank; }
  void BeginRank();
  // The number within the rank.
  std::uint32_t Add(GoalSchedule::Kind kind, std::int64_t size, std::uint32_t peer = 0,
                    std::uint32_t tag = 0, std::uint8_t cpu = 0, std::uint8_t nic = 0);
  // `op` waits until `other` is done, or has started. REQUIRES: both of the current rank.
  void Require(std::uint32_t op, std::uint32_t other, bool start = false);
  void set_line(std::uint32_t line) { line_ = line; }
  std::uint32_t ops_of_rank() const { return static_cast<std::uint32_t>(out_.ops.size() - base_); }
  std::uint32_t line_of(std::uint32_t op) const { return out_.lines[base_ + op]; }
  // Refuses a cycle, with the line or number of an operation that waits for it.
  Result<GoalSchedule> Take(bool keep_lines);

 private:
  struct Edge {
    std::uint32_t from = 0, to = 0;
  };
  void CloseRank();

  GoalSchedule out_;
  std::vector<Edge> pending_;  // of the current rank
  std::size_t base_ = 0;       // first operation of the current rank
  std::uint32_t line_ = 0;
};

}  // namespace orrery::formats
