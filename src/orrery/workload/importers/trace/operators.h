// What kernel a PyTorch operator launches, by data/tracing/operators.csv.
//
// Assumes one kernel an operator. Shapes and layouts of matrix products and attention are read from
// the operands; everything else is known by the bytes that it moves (each tensor once, as the trace
// says) and the kind of its access, which sets the fraction of memory bandwidth.
#pragma once

#include <string_view>

#include "orrery/formats/rank_trace.h"
#include "orrery/graph/kernel.h"

namespace orrery::workload {

enum class OperatorPlace : std::uint8_t {
  kNothing,       // launches nothing
  kHost,          // works on the host's tensors alone
  kKernel,        // `kernel` says which
  kCopyToDevice,  // `bytes`
  kCopyToHost,
};

struct OperatorWork {
  OperatorPlace place = OperatorPlace::kNothing;
  graph::Kernel kernel;
  std::int64_t bytes = 0;
  // The table does not know the operator, or its operands do not fit its form: it is priced by
  // bytes and FLOPs.
  bool unknown = false;
};

OperatorWork WorkOf(const formats::TraceSignature& signature, graph::Pass pass);

// PyTorch's element type ("bfloat16") as a kernel or communication sees it. Types that no device
// computes with (bool, int32, float64) are those of a 4-byte float; sizes are told apart.
graph::DType TypeOf(std::string_view torch_type);

}  // namespace orrery::workload
