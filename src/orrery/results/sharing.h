// Several jobs on one cluster: how long each takes beside the others and alone, and who slows whom.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orrery/base/time.h"
#include "orrery/results/requests.h"

namespace orrery::results {

struct SharingRow {
  std::string name;
  std::string kind;         // "training", "GOAL", "pattern"
  std::string description;  // what it runs, in one line; may be empty
  std::string placement;    // "packed"
  std::uint32_t ranks = 0, hosts = 0;
  int priority = 0;
  bool background = false;
  SimTime start = 0, end = 0;  // of its first operation at the earliest, of its last iteration
  int iterations = 0;          // that were over
  // What is compared: from start to end; in the background the mean iteration; where all jobs train
  // without end a step.
  SimTime time = 0;
  std::optional<SimTime> alone;    // the same where no other job runs
  std::optional<std::size_t> job;  // training: its place in RunResult::jobs
  // Of a graph that serves some, once; without RequestResult::each.
  std::optional<RequestResult> requests, requests_alone;

  // 0: not known.
  double slowdown() const;
};

struct Sharing {
  std::vector<SharingRow> rows;  // by name
  bool steps = false;            // all jobs train without end: times are steps
  // matrix[i][j]: how much longer i takes where only j runs beside it; 0 on the diagonal and where
  // i came to no end. Empty: not asked for.
  std::vector<std::vector<double>> matrix;
  std::string no_matrix_because;
  int runs_alone = 0, runs_of_pairs = 0;

  // Jain's index of 1 / slowdown over all jobs whose slowdown is known: 1 where all are slowed
  // alike, 1/n where one alone gets on. 0: not known.
  double jain_index() const;
};

// Tables for the terminal, without heading.
std::string SharingText(const Sharing& sharing);
// "2.4 % longer beside a": sentences that a reader wants first.
std::string SharingSummary(const Sharing& sharing);

}  // namespace orrery::results
