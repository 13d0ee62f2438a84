#include "orrery/graph/forms/binary_form.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "orrery/base/hash.h"
#include "orrery/graph/forms/binary_parts.h"
#include "orrery/graph/forms/byte_reader.h"
#include "orrery/graph/forms/records.h"
#include "orrery/graph/verify/verify.h"
#include "orrery/graph/verify/verify_facts.h"

namespace orrery::graph {
namespace {

class BinaryReader {
 public:
  // `kept`: the codes stay where they are for as long as the graph lives.
  BinaryReader(std::string_view body, std::string_view codes, bool kept, const BinaryLimits& limits)
      : in_(body, limits.memory_bytes, kBinaryHeader), codes_(codes), kept_(kept) {}

  Result<Graph> Read() {
    ReadNames();
    ReadJobs();
    ReadRecords(&graph_.streams);
    ReadRecords(&graph_.routings);
    ReadShares();
    const std::size_t blocks = in_.Count(sizeof(Block));
    for (std::size_t i = 0; i < blocks && in_.ok(); ++i) ReadBlock(&graph_.blocks.emplace_back());
    const std::size_t programs = in_.Count(sizeof(Program));
    for (std::size_t i = 0; i < programs && in_.ok(); ++i) {
      Program& program = graph_.programs.emplace_back();
      program.name = in_.Bytes(in_.Count(1));
      ReadRecord(Program(), &program);
      ReadRecords(&program.prologue);
      ReadRecords(&program.calls);
      ReadColumns(&program.columns);
    }
    ReadRecords(&graph_.bindings);
    ReadGroups();
    ReadMoreGroups();
    if (in_.ok() && in_.left() > 0) in_.Fail("the graph ends here, and bytes follow");
    if (in_.ok() && codes_at_ != codes_.size()) in_.Fail("codes that no column has");
    if (!in_.ok()) return in_.status();
    for (Block& block : graph_.blocks) block.Seal();
    ORRERY_RETURN_IF_ERROR(Verify(graph_, VerifyLevel::kRead));
    return std::move(graph_);
  }

 private:
  template <class T>
  T Fit(std::int64_t value) {
    if (!std::in_range<T>(value)) in_.Fail("a number beyond its field");
    return static_cast<T>(value);
  }
  template <class E>
  E Enum() {
    const std::uint8_t byte = in_.Byte();
    if (byte < fields::Count(E{})) return static_cast<E>(byte);
    in_.Fail("an unknown kind");
    return E{};
  }

  // What differs from `before`. `T` may have members that are no fields; they are left alone.
  template <class T>
  void ReadRecord(const T& before, T* record) {
    Row row = Flatten::Of(before);
    const std::uint64_t mask = in_.Varint();
    if (row.count < 64 && mask >> row.count != 0) in_.Fail("more fields than the record has");
    for (std::size_t i = 0; i < row.count; ++i) {
      if (mask >> i & 1) row.numbers[i] += static_cast<std::uint64_t>(in_.Signed());
    }
    if (const char* fault = Restore::To(row, record)) in_.Fail(fault);
  }
  template <class T>
  void ReadRecords(std::vector<T>* records) {
    const std::size_t count = in_.Count(sizeof(T));
    T before;
    records->reserve(count);
    for (std::size_t i = 0; i < count && in_.ok(); ++i) {
      ReadRecord(before, &before);
      records->push_back(before);
    }
  }

  void ReadNames() {
    const std::size_t names = in_.Count(2 * sizeof(std::string));
    for (std::size_t i = 0; i < names && in_.ok(); ++i) {
      const NameId id = graph_.Intern(in_.Bytes(in_.Count(1)));
      if (in_.ok() && id.index() != i) in_.Fail("a name that was there before");
    }
  }

  void ReadJobs() {
    const std::size_t jobs = in_.Count(sizeof(JobInfo));
    JobInfo before;
    for (std::size_t i = 0; i < jobs && in_.ok(); ++i) {
      before.name = in_.Bytes(in_.Count(1));
      ReadRecord(before, &before);
      graph_.jobs.push_back(before);
    }
  }

  template <class T>
  void ReadKernel(KernelsBefore* before, std::vector<Kernel>* kernels) {
    T& kernel = std::get<T>(*before);
    ReadRecord(kernel, &kernel);
    kernels->emplace_back(kernel);
  }

  void ReadBlock(Block* block) {
    const std::uint64_t name = in_.Varint();
    if (name > graph_.names().size()) in_.Fail("a name beyond the names");
    block->name.value = static_cast<std::uint32_t>(name) - 1u;
    block->pass = Enum<Pass>();
    block->launch = Enum<Launch>();
    block->issue = Enum<Issue>();
    ReadKernels(block);
    ReadComms(block);
    ReadRecords(&block->buffers);
    const std::size_t hosts = in_.Count(sizeof(std::int64_t));
    std::uint64_t ps = 0;
    for (std::size_t i = 0; i < hosts && in_.ok(); ++i) {
      ps += static_cast<std::uint64_t>(in_.Signed());
      block->host_ps.push_back(static_cast<std::int64_t>(ps));
    }
    ReadRecords(&block->times);
    ReadRecords(&block->holds);
    ReadOps(block);
    ReadRecords(&block->assumed);
    ReadRecords(&block->routed);
  }

  void ReadKernels(Block* block) {
    const std::size_t kernels = in_.Count(sizeof(Kernel));
    block->kernels.reserve(kernels);
    KernelsBefore before;
    for (std::size_t i = 0; i < kernels && in_.ok(); ++i) {
      switch (in_.Byte()) {
        case 0:
          ReadKernel<Gemm>(&before, &block->kernels);
          break;
        case 1:
          ReadKernel<Attention>(&before, &block->kernels);
          break;
        case 2:
          ReadKernel<MemoryBound>(&before, &block->kernels);
          break;
        case 3:
          ReadKernel<Timed>(&before, &block->kernels);
          break;
        case 4:
          ReadKernel<Generic>(&before, &block->kernels);
          break;
        default:
          in_.Fail("an unknown kind of kernel");
      }
    }
  }

  void ReadComms(Block* block) {
    const std::size_t comms = in_.Count(sizeof(Comm));
    block->comms.reserve(comms);
    std::array<Comm, kCollectives> before;
    for (std::size_t i = 0; i < comms && in_.ok(); ++i) {
      const std::uint64_t byte = in_.Byte();
      const std::uint64_t kind = byte & ~kDiffers;
      if (kind >= before.size()) return in_.Fail("an unknown collective");
      Comm& comm = before[kind];
      if ((byte & kDiffers) != 0) ReadRecord(comm, &comm);
      comm.collective = static_cast<Collective>(kind);
      block->comms.push_back(comm);
    }
  }

  void ReadOps(Block* block) {
    const std::size_t ops = in_.Count(sizeof(Op));
    const std::uint8_t depend = in_.Byte();
    if (depend > 1) in_.Fail("a truth value above 1");
    if (depend == 1 && !in_.Take((ops + 1) * sizeof(std::uint32_t))) return;
    block->ops.reserve(ops);
    OpsBefore before;
    for (std::size_t o = 0; o < ops && in_.ok(); ++o) {
      const std::uint64_t byte = in_.Byte();
      const std::uint64_t kind = byte & kOpKindBits;
      if (kind >= kOpKinds) return in_.Fail("an unknown kind of operation");
      Op op = before.Expected(static_cast<OpKind>(kind));
      if ((byte & kOpDiffers) != 0) ReadRecord(op, &op);
      if (HasIndex(op.kind) && op.index >= verify::TableOf(*block, op.kind)) {
        return in_.Fail("an operation whose table has no such entry");
      }
      before.Saw(op);
      block->ops.push_back(op);
      if (depend == 1) block->dep_begin.push_back(static_cast<std::uint32_t>(block->deps.size()));
      const std::uint64_t few = byte >> kDepShift;
      if (few != 0 && depend == 0) in_.Fail("dependencies where there are none");
      ReadDeps(few, o, block);
    }
    if (depend == 1) block->dep_begin.push_back(static_cast<std::uint32_t>(block->deps.size()));
  }

  void ReadDeps(std::uint64_t few, std::size_t op, Block* block) {
    const std::size_t count =
        few == kManyDeps ? in_.Count(sizeof(Dep)) : static_cast<std::size_t>(few);
    if (few != kManyDeps && !in_.Take(count * sizeof(Dep))) return;
    for (std::size_t d = 0; d < count && in_.ok(); ++d) {
      const std::int64_t number = in_.Signed();
      std::int64_t on = 0;
      if (__builtin_sub_overflow(static_cast<std::int64_t>(op), number >> 1, &on) || on < 0 ||
          on > std::numeric_limits<std::int32_t>::max()) {
        return in_.Fail("a dependency on no operation");
      }
      Dep dep;
      dep.op = static_cast<std::uint32_t>(on) & 0x7fffffff;
      dep.on_start = (number & 1) != 0 ? 1 : 0;
      block->deps.push_back(dep);
    }
    if (block->deps.size() > std::numeric_limits<std::uint32_t>::max()) {
      in_.Fail("more than 2^32 dependencies in a block");
    }
  }

  void ReadColumns(Columns* columns) {
    const std::size_t count = in_.Count(sizeof(Columns::Column));
    const std::uint64_t rows = in_.Varint();
    if (rows > std::numeric_limits<std::uint32_t>::max()) in_.Fail("more rows than 2^32");
    std::vector<Columns::Column> descriptors(count);
    std::uint64_t base = 0, end = 0, most = 0;
    for (std::size_t c = 0; c < count && in_.ok(); ++c) {
      Columns::Column& column = descriptors[c];
      base += static_cast<std::uint64_t>(in_.Signed());
      column.base = static_cast<std::int64_t>(base);
      column.unit = in_.Signed();
      column.width = in_.Byte();
      column.offset = end + static_cast<std::uint64_t>(in_.Signed());
      if (std::popcount(column.width) > 1 || column.width > 8) in_.Fail("codes of unknown width");
      if (column.offset > codes_.size()) in_.Fail("codes that begin behind all codes");
      end = column.offset + column.width * rows;
      most = std::max(most, end);
    }
    const std::uint64_t size = in_.Varint();
    if (!in_.ok()) return;
    const std::size_t from = BinaryAligned(codes_at_);
    if (from > codes_.size() || size > codes_.size() - from || most > size) {
      return in_.Fail("codes beyond those that there are");
    }
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(codes_.data()) + from;  // NOLINT
    codes_at_ = from + size;
    if (kept_) {
      columns->Adopt(std::move(descriptors), rows, std::span(bytes, size));
    } else if (in_.Take(size)) {
      columns->Own(std::move(descriptors), rows, std::vector<std::uint8_t>(bytes, bytes + size));
    }
  }

  void ReadGroups() {
    const std::size_t count = in_.Count(sizeof(GroupSlot) + sizeof(std::size_t));
    std::vector<RankId> members;
    for (std::size_t g = 0; g < count && in_.ok(); ++g) {
      const std::uint8_t slot = in_.Byte();
      const std::uint8_t form = in_.Byte();
      const std::uint64_t size = in_.Varint();
      if (slot >= kGroupSlots || form > kStepped || size == 0 || size > graph_.bindings.size()) {
        in_.Fail("a group of unknown role or form, or empty, or of more members than ranks");
        return;
      }
      if (!in_.Take(size * sizeof(RankId))) return;
      members.clear();
      std::uint64_t rank = Fit<std::uint32_t>(in_.Signed());
      members.push_back(RankId(static_cast<std::size_t>(rank)));
      const std::int64_t step = form == kStepped ? in_.Signed() : 0;
      for (std::size_t i = 1; i < size && in_.ok(); ++i) {
        rank += static_cast<std::uint64_t>(form == kStepped ? step : in_.Signed());
        members.push_back(RankId(Fit<std::uint32_t>(static_cast<std::int64_t>(rank))));
      }
      if (in_.ok()) graph_.groups.Add(static_cast<GroupSlot>(slot), members);
    }
  }

  void ReadMoreGroups() {
    const std::size_t count = in_.Count(sizeof(GroupId));
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < count && in_.ok(); ++i) {
      number += static_cast<std::uint64_t>(in_.Signed());
      GroupId& id = graph_.more_groups.emplace_back();
      id.value = Fit<std::uint32_t>(static_cast<std::int64_t>(number)) - 1u;
    }
  }

  void ReadShares() {
    const std::size_t count = in_.Count(sizeof(Shares));
    for (std::size_t s = 0; s < count && in_.ok(); ++s) {
      Shares& shares = graph_.shares.emplace_back();
      const std::uint64_t ranks = in_.Varint();
      if (ranks > std::numeric_limits<std::uint32_t>::max()) in_.Fail("a number beyond its field");
      shares.ranks = static_cast<std::uint32_t>(ranks);
      const std::size_t parts = in_.Count(sizeof(std::int64_t));
      for (std::size_t i = 0; i < parts && in_.ok(); ++i) shares.parts.push_back(in_.Signed());
      shares.Seal();
    }
  }

  ByteReader in_;
  std::string_view codes_;
  bool kept_;
  std::size_t codes_at_ = 0;
  Graph graph_;
};

Result<Graph> Read(std::string_view bytes, bool kept, const BinaryLimits& limits) {
  if (!bytes.starts_with(kBinaryMagic)) {
    return InvalidInput("not a binary graph: it begins with '{}'", kBinaryMagic);
  }
  ByteReader header(bytes.substr(0, kBinaryHeader), 0);
  header.Bytes(kBinaryMagic.size());
  if (const int version = header.Byte(); header.ok() && version != kBinaryVersion) {
    return InvalidInput(
        "a binary graph of version {}; this reads version {}: write it anew from its source",
        version, kBinaryVersion);
  }
  for (int i = 0; i < 7; ++i) {
    if (header.Byte() != 0) header.Fail("a byte that is not 0");
  }
  const std::uint64_t body = header.Fixed64(), codes = header.Fixed64();
  const std::uint64_t body_sum = header.Fixed64(), codes_sum = header.Fixed64();
  if (!header.ok()) return header.status();
  const std::size_t rest = bytes.size() - kBinaryHeader;
  const std::size_t codes_at = body > rest  ? 0
                               : codes == 0 ? kBinaryHeader + body
                                            : BinaryAligned(kBinaryHeader + body);
  if (body > rest || codes_at > bytes.size() || codes != bytes.size() - codes_at) {
    return InvalidInput("{} bytes, which is not what the header says: damaged or cut off",
                        bytes.size());
  }
  const std::string_view body_bytes = bytes.substr(kBinaryHeader, body);
  const std::string_view codes_bytes = bytes.substr(codes_at);
  if (BinaryChecksum(body_bytes) != body_sum || BinaryChecksum(codes_bytes) != codes_sum) {
    return InvalidInput("the checksum does not fit: damaged or cut off");
  }
  return BinaryReader(body_bytes, codes_bytes, kept, limits).Read();
}

}  // namespace

std::uint64_t BinaryChecksum(std::string_view bytes) {
  Hasher hash;
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    hash.Add(word);
  }
  return hash.Add(bytes.substr(at)).Add(bytes.size()).value();
}

Result<Graph> FromBinary(std::string_view bytes, const BinaryLimits& limits) {
  Result<Graph> graph = Read(bytes, false, limits);
  if (!graph.ok()) return std::move(graph).TakeStatus().In("binary graph");
  return graph;
}

Result<MappedGraph> MapBinary(const std::string& path, const BinaryLimits& limits) {
  ORRERY_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  Result<Graph> graph = Read(file.bytes(), true, limits);
  if (!graph.ok()) return std::move(graph).TakeStatus().In("binary graph");
  return MappedGraph{std::move(file), *std::move(graph)};
}

}  // namespace orrery::graph
