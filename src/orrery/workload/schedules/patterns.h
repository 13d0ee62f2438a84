// Communication patterns by name, as schedules: those of Schedgen (spcl/LogGOPSim), and the loops
// of HPC codes. `orrery traffic NAME` and pattern files (docs/formats/pattern.md) name them.
//
// To add one: a function in its family's file, a row in patterns.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "orrery/base/schema.h"
#include "orrery/base/status.h"
#include "orrery/formats/section.h"
#include "orrery/graph/graph.h"

namespace orrery::workload {

// What a pattern may take besides ranks; the others are refused where it does not.
enum PatternKey : unsigned {
  kPatternSize = 1,
  kPatternRoot = 2,
  kPatternSegment = 4,
  kPatternWays = 8,
  kPatternSteps = 16,
  kPatternCompute = 32,
  kPatternGrid = 64,
};

struct SchedulePattern {
  std::string_view name;
  std::string_view description;  // one sentence
  std::string_view schedgen;     // its name there; empty: it has none
  unsigned keys = 0;             // PatternKey
};
std::span<const SchedulePattern> SchedulePatterns();
bool IsSchedulePattern(std::string_view name);

// Keys of a pattern file below `pattern`, and of --set pattern.KEY.
const OptionTable& PatternOptions();

// A pattern file: YAML whose only key is `pattern`. `name`: of the file, for errors.
Result<formats::Section> ParsePattern(std::string_view text, const std::string& name);

// The graph of the pattern that a section names. Errors name the section's keys.
Result<graph::Graph> MakePattern(const formats::Section& section);

}  // namespace orrery::workload
