#include "orrery/graph/binary_form.h"

#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "orrery/base/hash.h"
#include "orrery/graph/byte_reader.h"
#include "orrery/graph/fields.h"
#include "orrery/graph/verify.h"

namespace orrery::graph {
namespace {

using fields::EventField;

constexpr std::size_t kChecksumBytes = 8;
enum GroupForm : std::uint8_t { kListed = 0, kStepped = 1 };

class Writer {
 public:
  explicit Writer(const Graph& graph) : graph_(graph) {}

  std::string Write() {
    bytes_ = kBinaryMagic;
    Byte(kBinaryVersion);
    Varint(graph_.names().size());
    for (const std::string& name : graph_.names()) Text(name);
    Varint(graph_.jobs.size());
    for (const JobInfo& job : graph_.jobs) {
      Text(job.name);
      fields::Visit(*this, job);
    }
    Varint(graph_.blocks.size());
    for (const Block& block : graph_.blocks) WriteBlock(block);
    Varint(graph_.programs.size());
    for (const Program& program : graph_.programs) {
      Text(program.name);
      fields::Visit(*this, program);
      Records(program.prologue);
      Records(program.calls);
    }
    WriteBindings();
    Varint(graph_.groups.size());
    for (std::size_t g = 0; g < graph_.groups.size(); ++g) WriteGroup(GroupId(g));
    Varint(graph_.numbers.size());
    for (const std::int64_t number : graph_.numbers) Signed(number);
    Varint(graph_.shares.size());
    for (const Shares& shares : graph_.shares) {
      Varint(shares.ranks);
      Varint(shares.parts.size());
      for (const std::int64_t part : shares.parts) Signed(part);
    }
    Fixed64(BinaryChecksum(bytes_));
    return std::move(bytes_);
  }

  // The visitor of fields.h.
  template <class T>
  void operator()(std::string_view, const T& value, const T&) {
    if constexpr (std::is_same_v<T, Quantity>) {
      Signed(value.value);
      Signed(value.slot);
    } else if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool>) {
      Byte(static_cast<std::uint8_t>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      Fixed64(std::bit_cast<std::uint64_t>(value));
    } else if constexpr (std::is_integral_v<T>) {
      Signed(static_cast<std::int64_t>(value));
    } else {
      Varint(value.valid() ? std::uint64_t{value.value} + 1 : 0);  // an id
    }
  }
  void operator()(std::string_view, EventField<const std::int16_t> event, std::int16_t) {
    Signed(event.number);
  }

 private:
  void Byte(std::uint8_t byte) { bytes_ += static_cast<char>(byte); }
  void Varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) Byte(static_cast<std::uint8_t>(value | 0x80));
    Byte(static_cast<std::uint8_t>(value));
  }
  void Signed(std::int64_t value) {
    Varint(static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
  }
  void Fixed64(std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) Byte(static_cast<std::uint8_t>(value >> shift));
  }
  void Text(std::string_view text) {
    Varint(text.size());
    bytes_ += text;
  }
  template <class T>
  void Records(const std::vector<T>& records) {
    Varint(records.size());
    for (const T& record : records) fields::Visit(*this, record);
  }

  void WriteBlock(const Block& block) {
    (*this)("name", block.name, NameId());
    Byte(static_cast<std::uint8_t>(block.pass));
    Byte(static_cast<std::uint8_t>(block.launch));
    Varint(block.kernels.size());
    for (const Kernel& kernel : block.kernels) {
      Byte(static_cast<std::uint8_t>(kernel.index()));
      std::visit([this](const auto& k) { fields::Visit(*this, k); }, kernel);
    }
    Varint(block.comms.size());
    for (const Comm& comm : block.comms) {
      Byte(static_cast<std::uint8_t>(comm.collective));
      fields::Visit(*this, comm);
    }
    Records(block.buffers);
    Varint(block.host_ps.size());
    for (const std::int64_t ps : block.host_ps) Signed(ps);
    Varint(block.ops.size());
    for (const Op& op : block.ops) {
      Byte(static_cast<std::uint8_t>(op.kind));
      if (op.kind == OpKind::kWait) {
        Signed(op.event);
      } else if (HasIndex(op.kind)) {
        Varint(op.index);
      }
      (*this)("name", op.name, NameId());
      (*this)("module", op.module, NameId());
    }
  }

  // Each field as its difference to the rank before.
  void WriteBindings() {
    Varint(graph_.bindings.size());
    Binding before;
    const auto id = [this](auto now, auto then) {
      Signed(static_cast<std::int64_t>(now.value + 1u) -
             static_cast<std::int64_t>(then.value + 1u));
    };
    for (const Binding& b : graph_.bindings) {
      id(b.program, before.program);
      id(b.job, before.job);
      Signed(static_cast<std::int64_t>(b.logical_rank) - before.logical_rank);
      for (std::size_t s = 0; s < kGroupSlots; ++s) id(b.groups[s], before.groups[s]);
      for (std::size_t s = 0; s < kPeerSlots; ++s) id(b.peers[s], before.peers[s]);
      Signed(static_cast<std::int64_t>(b.first_number) - before.first_number);
      before = b;
    }
  }

  void WriteGroup(GroupId id) {
    const auto members = graph_.groups.members(id);
    Byte(static_cast<std::uint8_t>(graph_.groups.slot(id)));
    const auto difference = [&](std::size_t i) {
      return std::int64_t{members[i].value} - members[i - 1].value;
    };
    bool stepped = members.size() > 1;
    for (std::size_t i = 2; stepped && i < members.size(); ++i) {
      stepped = difference(i) == difference(1);
    }
    Byte(stepped ? kStepped : kListed);
    Varint(members.size());
    Signed(members[0].value);
    if (stepped) {
      Signed(difference(1));
      return;
    }
    for (std::size_t i = 1; i < members.size(); ++i) Signed(difference(i));
  }

  const Graph& graph_;
  std::string bytes_;
};

class Reader {
 public:
  Reader(std::string_view bytes, const BinaryLimits& limits) : in_(bytes, limits.memory_bytes) {}

  Result<Graph> Read() {
    if (in_.Bytes(kBinaryMagic.size()) != kBinaryMagic) {
      return InvalidInput("not a binary graph: it begins with '{}'", kBinaryMagic);
    }
    if (const int version = in_.Byte(); version != kBinaryVersion) {
      return InvalidInput("a binary graph of version {}; this reads version {}", version,
                          kBinaryVersion);
    }
    ReadNames();
    const std::size_t jobs = in_.Count(sizeof(JobInfo));
    for (std::size_t i = 0; i < jobs && in_.ok(); ++i) {
      JobInfo& job = graph_.jobs.emplace_back();
      job.name = in_.Bytes(in_.Count(1));
      fields::Visit(*this, job);
    }
    const std::size_t blocks = in_.Count(sizeof(Block));
    for (std::size_t i = 0; i < blocks && in_.ok(); ++i) ReadBlock(&graph_.blocks.emplace_back());
    const std::size_t programs = in_.Count(sizeof(Program));
    for (std::size_t i = 0; i < programs && in_.ok(); ++i) {
      Program& program = graph_.programs.emplace_back();
      program.name = in_.Bytes(in_.Count(1));
      fields::Visit(*this, program);
      ReadRecords(&program.prologue);
      ReadRecords(&program.calls);
    }
    ReadBindings();
    ReadGroups();
    const std::size_t numbers = in_.Count(sizeof(std::int64_t));
    for (std::size_t i = 0; i < numbers && in_.ok(); ++i) graph_.numbers.push_back(in_.Signed());
    ReadShares();
    if (in_.ok() && in_.left() > 0) in_.Fail("the graph ends here, and bytes follow");
    if (!in_.ok()) return in_.status();
    for (Block& block : graph_.blocks) block.Seal();
    ORRERY_RETURN_IF_ERROR(Verify(graph_, VerifyLevel::kFull));
    return std::move(graph_);
  }

  // The visitor of fields.h.
  template <class T>
  void operator()(std::string_view, T& value, const T&) {
    if constexpr (std::is_same_v<T, Quantity>) {
      value.value = in_.Signed();
      value.slot = Fit<std::int16_t>(in_.Signed());
    } else if constexpr (std::is_enum_v<T>) {
      value = Enum<T>();
    } else if constexpr (std::is_same_v<T, bool>) {
      const std::uint8_t byte = in_.Byte();
      if (byte > 1) in_.Fail("a truth value above 1");
      value = byte == 1;
    } else if constexpr (std::is_floating_point_v<T>) {
      value = std::bit_cast<double>(in_.Fixed64());
      if (!std::isfinite(value)) in_.Fail("a number that is not finite");
    } else if constexpr (std::is_integral_v<T>) {
      value = Fit<T>(in_.Signed());
    } else {
      const std::uint64_t id = in_.Varint();  // one more than the id; 0 is none
      if (id > std::numeric_limits<std::uint32_t>::max()) in_.Fail("an id beyond 32 bits");
      value.value = static_cast<std::uint32_t>(id) - 1u;
    }
  }
  void operator()(std::string_view, EventField<std::int16_t> event, std::int16_t) {
    event.number = Fit<std::int16_t>(in_.Signed());
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

  void ReadNames() {
    const std::size_t names = in_.Count(2 * sizeof(std::string));
    for (std::size_t i = 0; i < names && in_.ok(); ++i) {
      const NameId id = graph_.Intern(in_.Bytes(in_.Count(1)));
      if (in_.ok() && id.index() != i) in_.Fail("a name that was there before");
    }
  }

  template <class T>
  void ReadRecords(std::vector<T>* records) {
    const std::size_t count = in_.Count(sizeof(T));
    for (std::size_t i = 0; i < count && in_.ok(); ++i) {
      fields::Visit(*this, records->emplace_back());
    }
  }

  template <class T>
  void ReadKernel(std::vector<Kernel>* kernels) {
    fields::Visit(*this, std::get<T>(kernels->emplace_back(T())));
  }

  void ReadBlock(Block* block) {
    (*this)("name", block->name, NameId());
    block->pass = Enum<Pass>();
    block->launch = Enum<Launch>();
    const std::size_t kernels = in_.Count(sizeof(Kernel));
    for (std::size_t i = 0; i < kernels && in_.ok(); ++i) {
      switch (in_.Byte()) {
        case 0:
          ReadKernel<Gemm>(&block->kernels);
          break;
        case 1:
          ReadKernel<Attention>(&block->kernels);
          break;
        case 2:
          ReadKernel<MemoryBound>(&block->kernels);
          break;
        case 3:
          ReadKernel<Timed>(&block->kernels);
          break;
        default:
          in_.Fail("an unknown kind of kernel");
      }
    }
    const std::size_t comms = in_.Count(sizeof(Comm));
    for (std::size_t i = 0; i < comms && in_.ok(); ++i) {
      Comm& comm = block->comms.emplace_back();
      comm.collective = Enum<Collective>();
      fields::Visit(*this, comm);
    }
    ReadRecords(&block->buffers);
    const std::size_t hosts = in_.Count(sizeof(std::int64_t));
    for (std::size_t i = 0; i < hosts && in_.ok(); ++i) block->host_ps.push_back(in_.Signed());
    const std::size_t ops = in_.Count(sizeof(Op));
    for (std::size_t i = 0; i < ops && in_.ok(); ++i) ReadOp(block);
  }

  void ReadOp(Block* block) {
    Op& op = block->ops.emplace_back();
    op.kind = Enum<OpKind>();
    std::size_t table = 0;
    if (op.kind == OpKind::kKernel) table = block->kernels.size();
    if (op.kind == OpKind::kComm) table = block->comms.size();
    if (op.kind == OpKind::kHost) table = block->host_ps.size();
    if (op.kind == OpKind::kAlloc || op.kind == OpKind::kFree) table = block->buffers.size();
    if (op.kind == OpKind::kWait) {
      op.event = Fit<std::int16_t>(in_.Signed());
    } else if (HasIndex(op.kind)) {
      const std::uint64_t index = in_.Varint();
      if (index >= table) in_.Fail("an operation whose table has no such entry");
      op.index = static_cast<std::uint32_t>(index);
    }
    (*this)("name", op.name, NameId());
    (*this)("module", op.module, NameId());
  }

  void ReadBindings() {
    const std::size_t count = in_.Count(sizeof(Binding));
    Binding b;
    const auto id = [this](auto* value) {
      const auto raw = Fit<std::uint32_t>(Sum(value->value + 1u, in_.Signed()));
      value->value = raw - 1u;
    };
    for (std::size_t i = 0; i < count && in_.ok(); ++i) {
      id(&b.program);
      id(&b.job);
      b.logical_rank = Fit<std::uint32_t>(Sum(b.logical_rank, in_.Signed()));
      for (GroupId& group : b.groups) id(&group);
      for (RankId& peer : b.peers) id(&peer);
      b.first_number = Fit<std::uint32_t>(Sum(b.first_number, in_.Signed()));
      graph_.bindings.push_back(b);
    }
  }
  // -1, out of every field's range, if the sum is beyond 64 bits.
  static std::int64_t Sum(std::uint32_t a, std::int64_t b) {
    std::int64_t sum = 0;
    return __builtin_add_overflow(std::int64_t{a}, b, &sum) ? -1 : sum;
  }

  // A rank has one group a slot: more members than that are damage.
  void ReadGroups() {
    const std::size_t count = in_.Count(sizeof(GroupSlot) + sizeof(std::size_t));
    std::size_t room = graph_.bindings.size() * kGroupSlots;
    std::vector<RankId> members;
    for (std::size_t g = 0; g < count && in_.ok(); ++g) {
      const auto slot = Enum<GroupSlot>();
      const std::uint8_t form = in_.Byte();
      const std::uint64_t size = in_.Varint();
      if (form > kStepped || size == 0 || size > room) {
        in_.Fail("a group of unknown form, or empty, or of more members than ranks have slots");
        return;
      }
      if (!in_.Take(size * sizeof(RankId))) return;
      room -= size;
      members.clear();
      std::int64_t rank = Fit<std::uint32_t>(in_.Signed());
      members.push_back(RankId(static_cast<std::size_t>(rank)));
      const std::int64_t step = form == kStepped ? in_.Signed() : 0;
      for (std::size_t i = 1; i < size && in_.ok(); ++i) {
        const std::int64_t difference = form == kStepped ? step : in_.Signed();
        rank = Fit<std::uint32_t>(Sum(static_cast<std::uint32_t>(rank), difference));
        members.push_back(RankId(static_cast<std::size_t>(rank)));
      }
      if (in_.ok()) graph_.groups.Add(slot, members);
    }
  }

  void ReadShares() {
    const std::size_t count = in_.Count(sizeof(Shares));
    for (std::size_t s = 0; s < count && in_.ok(); ++s) {
      Shares& shares = graph_.shares.emplace_back();
      const std::uint64_t ranks = in_.Varint();
      if (ranks > graph_.bindings.size()) in_.Fail("shares of more members than there are ranks");
      shares.ranks = static_cast<std::uint32_t>(ranks);
      const std::size_t parts = in_.Count(sizeof(std::int64_t));
      for (std::size_t i = 0; i < parts && in_.ok(); ++i) shares.parts.push_back(in_.Signed());
      shares.Seal();
    }
  }

  ByteReader in_;
  Graph graph_;
};

}  // namespace

std::uint64_t BinaryChecksum(std::string_view bytes) { return Hasher().Add(bytes).value(); }

std::string ToBinary(const Graph& graph) { return Writer(graph).Write(); }

Result<Graph> FromBinary(std::string_view bytes, const BinaryLimits& limits) {
  const std::size_t body = bytes.size() - std::min(bytes.size(), kChecksumBytes);
  ByteReader checksum(bytes.substr(body), 0);
  const bool whole = bytes.size() >= kBinaryMagic.size() + 1 + kChecksumBytes;
  if (whole && bytes.starts_with(kBinaryMagic) &&
      checksum.Fixed64() != BinaryChecksum(bytes.substr(0, body))) {
    return InvalidInput("binary graph: the checksum at offset {} does not fit: damaged or cut off",
                        body);
  }
  Result<Graph> graph = Reader(bytes.substr(0, body), limits).Read();
  if (!graph.ok()) return std::move(graph).TakeStatus().In("binary graph");
  return graph;
}

}  // namespace orrery::graph
