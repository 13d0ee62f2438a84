// What changed from one result to another: B less A, to the picosecond.
//
// Both are documents of `simulate --json`. A step's parts tile it, of all ranks together and of
// each stage, so the differences of the parts add up to the difference of the step times; what
// little a step is off its parts (never, so far) stands as a part of its own. Everything is B less
// A in whole picoseconds and bytes: exchanged, every sign turns.
//
// Verdict. Errors that both predictions share (a kernel that is really slower is so in both)
// cancel. What the two may be off against each other follows from the differences of their parts
// and the spreads of the constants: DifferenceWidth. A difference below it is none that can be
// told.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/constants/spreads.h"
#include "orrery/engine/engine.h"

namespace orrery::results {

inline constexpr std::string_view kCompareSchema = "orrery.compare/1";

// One side's step, as DifferenceWidth needs it.
struct StepParts {
  SimTime step = 0;
  engine::Breakdown parts{};
  double compute_spread = 0;
};
// The share of a's step time that a and b may be off against each other (80 %).
double DifferenceWidth(const StepParts& a, const StepParts& b);

struct Difference {
  std::string name;
  std::int64_t a = 0, b = 0;
  std::int64_t change() const { return b - a; }
};
struct StageDifference {
  std::int32_t stage = 0;
  std::vector<Difference> parts;  // those that differ
};
struct TextDifference {
  std::string name, a, b;  // empty: the side does not have it
};

struct Comparison {
  std::string name_a, name_b;
  std::int64_t step_a = 0, step_b = 0;  // ps
  std::vector<double> interval_a, interval_b;
  double width = 0;               // DifferenceWidth
  std::vector<Difference> parts;  // those that differ, largest change first; they sum to change()
  std::vector<StageDifference> stages;  // where both have as many
  std::int64_t stages_a = 0, stages_b = 0;
  // Kernels of a step alone on the GPU, by module, mean over all ranks, ps; largest change first.
  // Not in the results: search::AddModules runs both again. Else why not.
  std::vector<Difference> modules;
  std::string no_modules;
  std::vector<Difference> memory;  // of the fullest program: total and parts, bytes
  bool oom_a = false, oom_b = false;
  std::vector<TextDifference> config;             // keys of the job files
  std::vector<std::string> assumed_a, assumed_b;  // by one side alone

  std::int64_t change() const { return step_b - step_a; }
  bool same() const;      // nothing differs
  bool can_tell() const;  // the difference is larger than the predictions may be off
};

// Texts of two results; names for messages and headings.
Result<Comparison> Compare(std::string_view a, const std::string& name_a, std::string_view b,
                           const std::string& name_b);

std::string ComparisonToJson(const Comparison& comparison);
std::string ComparisonToText(const Comparison& comparison);

}  // namespace orrery::results
