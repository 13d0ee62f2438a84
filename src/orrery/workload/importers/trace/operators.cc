#include "orrery/workload/importers/trace/operators.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/formats/data_cells.h"

namespace orrery::workload {
namespace {

using formats::TraceSignature;
using formats::TraceTensor;
using graph::AttentionKernel;
using graph::DType;
using graph::MemoryOp;
using graph::Pass;

enum class Form : std::uint8_t { kGemm, kGrouped, kAttention, kMemory, kGeneric };

struct Row {
  Form form = Form::kGeneric;
  MemoryOp memory = MemoryOp::kCopy;
  AttentionKernel attention = AttentionKernel::kFlash2;
  std::size_t operand = 0;
};

constexpr std::string_view kLines[] = {
#include "orrery_data_tracing_operators.inc"
};

template <class Enum>
Enum Named(std::string_view name, Enum last) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (graph::Name(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  ORRERY_CHECK(false, "data/tracing/operators.csv names an unknown kernel");
  return last;
}

std::map<std::string, Row, std::less<>> ReadTable() {
  std::map<std::string, Row, std::less<>> table;
  for (const std::vector<std::string>& field : formats::DataRows(kLines, 5)) {
    constexpr std::array<std::string_view, 5> kForms = {"gemm", "grouped", "attention", "memory",
                                                        "generic"};
    const auto form = std::ranges::find(kForms, field[1]);
    ORRERY_CHECK(form != kForms.end(), "data/tracing/operators.csv has an unknown form");
    Row row{.form = static_cast<Form>(form - kForms.begin())};
    if (row.form == Form::kMemory) row.memory = Named(field[2], graph::kLastMemoryOp);
    if (row.form == Form::kAttention) row.attention = Named(field[2], AttentionKernel::kFlash4);
    if (!field[3].empty()) row.operand = static_cast<std::size_t>(field[3][0] - '0');
    table.emplace(field[0], row);
  }
  return table;
}

const Row* Find(std::string_view name) {
  static const std::map<std::string, Row, std::less<>> kTable = ReadTable();
  const auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : &found->second;
}

std::int64_t Dim(const TraceTensor& t, std::size_t from_end) {
  return t.shape.size() < from_end ? 1 : t.shape[t.shape.size() - from_end];
}
std::int64_t Elements(const TraceTensor& t, std::size_t dimensions) {
  return std::accumulate(t.shape.begin(), t.shape.begin() + static_cast<std::ptrdiff_t>(dimensions),
                         std::int64_t{1}, std::multiplies<>());
}
bool IsTransposed(const TraceTensor& t) {
  const std::size_t n = t.strides.size();
  return n >= 2 && t.strides[n - 2] == 1 && t.strides[n - 1] != 1;
}

graph::GemmLayout LayoutOf(const TraceTensor& a, const TraceTensor& b) {
  if (IsTransposed(a)) return graph::GemmLayout::kTN;
  return IsTransposed(b) ? graph::GemmLayout::kNT : graph::GemmLayout::kNN;
}

std::optional<graph::Kernel> GemmOf(const TraceSignature& s, const Row& row) {
  if (s.in.size() < row.operand + 2 || s.out.empty()) return std::nullopt;
  const TraceTensor& a = s.in[row.operand];
  const TraceTensor& b = s.in[row.operand + 1];
  if (a.shape.size() < 2 || b.shape.size() != a.shape.size() || Dim(a, 1) != Dim(b, 2)) {
    return std::nullopt;
  }
  graph::Gemm gemm;
  gemm.m = Dim(a, 2), gemm.n = Dim(b, 1), gemm.k = Dim(a, 1);
  gemm.batch = Elements(a, a.shape.size() - 2);
  gemm.dtype = TypeOf(a.type), gemm.out_dtype = TypeOf(s.out[0].type);
  gemm.layout = LayoutOf(a, b);
  gemm.accumulate = s.name.ends_with('_');
  return gemm;
}

// [tokens, k] by [experts, k, n], or a gradient of weights: [k, tokens] by [tokens, n].
std::optional<graph::Kernel> GroupedOf(const TraceSignature& s, const Row& row) {
  if (s.in.size() < row.operand + 2 || s.out.empty()) return std::nullopt;
  const TraceTensor& a = s.in[row.operand];
  const TraceTensor& b = s.in[row.operand + 1];
  const TraceTensor& out = s.out[0];
  graph::Gemm gemm;
  gemm.kind = graph::GemmKind::kGrouped;
  gemm.dtype = TypeOf(a.type), gemm.out_dtype = TypeOf(out.type);
  gemm.layout = LayoutOf(a, b);
  gemm.m = Dim(a, 2), gemm.n = Dim(b, 1), gemm.k = Dim(a, 1);
  const TraceTensor& of_all = b.shape.size() == 3 ? b : out;
  if (of_all.shape.size() != 3 || of_all.shape[0] == 0) return std::nullopt;
  gemm.batch = of_all.shape[0];
  if (a.shape.size() == 2) (b.shape.size() == 3 ? gemm.m : gemm.k) /= gemm.batch;
  return gemm;
}

std::optional<graph::Kernel> AttentionOf(const TraceSignature& s, const Row& row, Pass pass) {
  if (s.in.size() < row.operand + 3) return std::nullopt;
  const TraceTensor& q = s.in[row.operand];
  const TraceTensor& k = s.in[row.operand + 1];
  const TraceTensor& v = s.in[row.operand + 2];
  if (q.shape.size() != 4 || k.shape.size() != 4 || v.shape.size() != 4) return std::nullopt;
  graph::Attention a;
  a.batch = q.shape[0], a.heads = q.shape[1], a.kv_heads = k.shape[1];
  a.seq_q = q.shape[2], a.seq_kv = k.shape[2], a.head_dim = q.shape[3];
  if (v.shape[3] != a.head_dim) a.v_head_dim = v.shape[3];
  a.dtype = TypeOf(q.type), a.causal = s.causal, a.kernel = row.attention;
  a.pass = s.name.ends_with("_backward") ? Pass::kBackward : pass;
  return a;
}

std::optional<graph::Kernel> KernelOf(const TraceSignature& s, const Row* row, Pass pass) {
  if (row == nullptr) return std::nullopt;
  switch (row->form) {
    case Form::kGemm:
      return GemmOf(s, *row);
    case Form::kGrouped:
      return GroupedOf(s, *row);
    case Form::kAttention:
      return AttentionOf(s, *row, pass);
    case Form::kMemory: {
      const TraceTensor* t = !s.in.empty() ? s.in.data() : s.out.data();
      graph::MemoryBound m;
      m.op = row->memory;
      m.cols = Dim(*t, 1);
      m.rows = t->shape.empty() ? 1 : Elements(*t, t->shape.size() - 1);
      m.bytes_read = s.read, m.bytes_written = s.written;
      m.dtype = TypeOf(t->type), m.pass = pass;
      return m;
    }
    case Form::kGeneric:
      break;
  }
  return std::nullopt;
}

bool OnDevice(const std::vector<TraceTensor>& tensors) {
  return std::ranges::any_of(tensors, &TraceTensor::on_device);
}

}  // namespace

DType TypeOf(std::string_view type) {
  if (type == "bfloat16") return DType::kBf16;
  if (type == "float16") return DType::kFp16;
  if (type.starts_with("float8")) return DType::kFp8;
  if (type.starts_with("float4")) return DType::kFp4;
  if (type == "int64") return DType::kInt64;
  return DType::kFp32;
}

OperatorWork WorkOf(const TraceSignature& s, Pass pass) {
  OperatorWork work;
  if (!s.kernel) return work;
  const bool to_device = OnDevice(s.out), from_device = OnDevice(s.in);
  const bool copies = s.name == "aten::copy_" || s.name == "aten::_to_copy";
  const std::size_t source = s.name == "aten::copy_" ? 1 : 0;
  if (copies && s.in.size() > source && s.in[source].on_device != to_device) {
    work.place = to_device ? OperatorPlace::kCopyToDevice : OperatorPlace::kCopyToHost;
    work.bytes = s.written;
    return work;
  }
  if (!to_device && !from_device) {
    work.place = OperatorPlace::kHost;
    return work;
  }
  work.place = OperatorPlace::kKernel;
  const Row* row = Find(s.name);
  if (const std::optional<graph::Kernel> kernel = KernelOf(s, row, pass)) {
    work.kernel = *kernel;
    return work;
  }
  work.unknown = row == nullptr || row->form != Form::kGeneric;
  const auto& typed = !s.in.empty() ? s.in : s.out;
  work.kernel = graph::Generic{.bytes_read = s.read,
                               .bytes_written = s.written,
                               .flops = s.flops,
                               .dtype = TypeOf(typed.empty() ? "" : typed[0].type),
                               .pass = pass};
  return work;
}

}  // namespace orrery::workload
