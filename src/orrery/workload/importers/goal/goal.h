// GOAL schedules (formats/goal.h) as graphs.
//
// Ranks of equal structure share a block: kinds, tags, processors, interfaces and dependencies are
// the structure; sizes and peers are numbers. A peer that every such rank counts alike from its own
// number is an offset, so that the 1,024 ranks of a ring are one block; what differs otherwise
// becomes a column. An operation's place in its rank, which GOAL's ties go by, is its place in the
// block. Times become picoseconds.
//
// Cost: O(operations); memory 60 bytes an operation of each distinct structure, 8 a number that
// differs.
#pragma once

#include <memory>
#include <string>

#include "orrery/base/status.h"
#include "orrery/formats/goal.h"
#include "orrery/graph/graph.h"

namespace orrery::workload {

// Takes a schedule part by part, ranks in order; keeps one rank of each structure.
class GoalImporter {
 public:
  GoalImporter();
  ~GoalImporter();
  // `ranks`: of the whole schedule.
  void Add(const formats::GoalSchedule& part, std::uint32_t ranks);
  // A graph of one job, `name`, whose programs run once.
  graph::Graph Take(const std::string& name);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

Result<graph::Graph> ImportGoal(const formats::GoalSchedule& schedule, const std::string& name);

}  // namespace orrery::workload
