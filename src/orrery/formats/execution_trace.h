// PyTorch's execution trace (ExecutionTraceObserver) of one rank: what it says about communication.
//
// It has operators with their arguments, and no times: a Kineto trace of the same run brings these,
// and "rf_id" joins the two (there "Record function id"). Read are the nodes of communication, with
// the arguments that the Kineto trace may lack, and the table of process groups.
//
// Schemas 1.0.x (attributes beside "name") and 1.1.x, "-chakra.0.0.4" or not (a list "attrs").
// Sources: torch/csrc/profiler/standalone/execution_trace_observer.cpp; files of torch 2.13.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/profile_trace.h"

namespace orrery::formats {

struct ExecutionTrace {
  struct Node {
    std::int64_t record = -1;
    std::string name;
    ProfileTrace::Comm comm;
  };
  std::string schema;
  std::int64_t process = -1;
  std::vector<Node> nodes;  // of communication, by record
  std::vector<ProfileTrace::Group> groups;
  std::size_t operators = 0;  // of the file
};

bool IsExecutionTrace(std::string_view start);

Result<ExecutionTrace> ParseExecutionTrace(std::string text, const std::string& file);

}  // namespace orrery::formats
