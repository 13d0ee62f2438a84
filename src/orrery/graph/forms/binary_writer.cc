// ToBinary.
#include <algorithm>
#include <array>
#include <span>
#include <type_traits>
#include <variant>

#include "orrery/graph/forms/binary_form.h"
#include "orrery/graph/forms/binary_parts.h"
#include "orrery/graph/forms/records.h"

namespace orrery::graph {
namespace {

class BinaryWriter {
 public:
  explicit BinaryWriter(const Graph& graph) : graph_(graph) {}

  std::string Write() {
    Varint(graph_.names().size());
    for (const std::string& name : graph_.names()) Text(name);
    Varint(graph_.jobs.size());
    JobInfo job_before;
    for (const JobInfo& job : graph_.jobs) {
      Text(job.name);
      Record(job, job_before);
      job_before = job;
    }
    Records(graph_.streams);
    Records(graph_.routings);
    Varint(graph_.shares.size());
    for (const Shares& shares : graph_.shares) {
      Varint(shares.ranks);
      Varint(shares.parts.size());
      for (const std::int64_t part : shares.parts) Signed(part);
    }
    Varint(graph_.blocks.size());
    for (const Block& block : graph_.blocks) WriteBlock(block);
    Varint(graph_.programs.size());
    for (const Program& program : graph_.programs) {
      Text(program.name);
      Record(program, Program());
      Records(program.prologue);
      Records(program.calls);
      WriteColumns(program.columns);
    }
    Records(graph_.bindings);
    Varint(graph_.groups.size());
    for (std::size_t g = 0; g < graph_.groups.size(); ++g) WriteGroup(GroupId(g));
    Varint(graph_.more_groups.size());
    std::int64_t before = 0;
    for (const GroupId id : graph_.more_groups) {
      const std::int64_t number = id.valid() ? std::int64_t{id.value} + 1 : 0;
      Signed(number - before);
      before = number;
    }
    return BinaryFile(body_, codes_);
  }

 private:
  void Byte(std::uint64_t byte) { body_ += static_cast<char>(byte); }
  void Varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) Byte(value | 0x80);
    Byte(value);
  }
  void Signed(std::int64_t value) {
    Varint(static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
  }
  void Text(std::string_view text) {
    Varint(text.size());
    body_ += text;
  }

  static std::uint64_t Mask(const Row& now, const Row& before) {
    std::uint64_t mask = 0;
    for (std::size_t i = 0; i < now.count; ++i) {
      if (now.numbers[i] != before.numbers[i]) mask |= std::uint64_t{1} << i;
    }
    return mask;
  }
  void Masked(std::uint64_t mask, const Row& now, const Row& before) {
    Varint(mask);
    for (std::size_t i = 0; i < now.count; ++i) {
      if ((mask >> i & 1) == 0) continue;
      Signed(static_cast<std::int64_t>(now.numbers[i] - before.numbers[i]));
    }
  }
  template <class T>
  void Record(const T& now, const T& before) {
    const Row a = Flatten::Of(now), b = Flatten::Of(before);
    Masked(Mask(a, b), a, b);
  }
  template <class T>
  void Records(const std::vector<T>& records) {
    Varint(records.size());
    const T first;
    const T* before = &first;
    for (const T& record : records) {
      Record(record, *before);
      before = &record;
    }
  }

  void WriteBlock(const Block& block) {
    Varint(block.name.valid() ? std::uint64_t{block.name.value} + 1 : 0);
    Byte(static_cast<std::uint64_t>(block.pass));
    Byte(static_cast<std::uint64_t>(block.launch));
    Byte(static_cast<std::uint64_t>(block.issue));
    Varint(block.kernels.size());
    KernelsBefore kernels;
    for (const Kernel& kernel : block.kernels) {
      Byte(kernel.index());
      std::visit(
          [&](const auto& k) {
            auto& before = std::get<std::decay_t<decltype(k)>>(kernels);
            Record(k, before);
            before = k;
          },
          kernel);
    }
    WriteComms(block);
    Records(block.buffers);
    Varint(block.host_ps.size());
    std::int64_t ps = 0;
    for (const std::int64_t host : block.host_ps) {
      Signed(host - ps);
      ps = host;
    }
    Records(block.times);
    Records(block.holds);
    WriteOps(block);
    Records(block.assumed);
    Records(block.routed);
  }

  // A byte of the collective; if its highest bit is set, what differs from the last one of that
  // collective.
  void WriteComms(const Block& block) {
    Varint(block.comms.size());
    std::array<Comm, kCollectives> before;
    for (const Comm& comm : block.comms) {
      const auto kind = static_cast<std::size_t>(comm.collective);
      const Row a = Flatten::Of(comm), b = Flatten::Of(before[kind]);
      const std::uint64_t mask = Mask(a, b);
      Byte(kind | (mask != 0 ? kDiffers : 0));
      if (mask != 0) Masked(mask, a, b);
      before[kind] = comm;
    }
  }

  // A byte of the kind, of whether anything differs from what the last one of that kind lets
  // expect, and of the number of dependencies.
  void WriteOps(const Block& block) {
    Varint(block.ops.size());
    Byte(block.dep_begin.empty() ? 0 : 1);
    OpsBefore before;
    for (std::size_t o = 0; o < block.ops.size(); ++o) {
      const Op& op = block.ops[o];
      const Row a = Flatten::Of(op), b = Flatten::Of(before.Expected(op.kind));
      const std::uint64_t mask = Mask(a, b);
      const std::span<const Dep> deps = block.deps_of(o);
      const std::uint64_t few = std::min<std::uint64_t>(deps.size(), kManyDeps);
      Byte(static_cast<std::uint64_t>(op.kind) | (mask != 0 ? kOpDiffers : 0) | few << kDepShift);
      if (mask != 0) Masked(mask, a, b);
      if (few == kManyDeps) Varint(deps.size());
      for (const Dep& dep : deps) {
        const std::int64_t back = static_cast<std::int64_t>(o) - dep.op;
        Signed(back * 2 + dep.on_start);
      }
      before.Saw(op);
    }
  }

  void WriteColumns(const Columns& columns) {
    Varint(columns.size());
    Varint(columns.rows());
    std::uint64_t end = 0;
    Columns::Column before;
    for (const Columns::Column& c : columns.descriptors()) {
      Signed(static_cast<std::int64_t>(static_cast<std::uint64_t>(c.base) -
                                       static_cast<std::uint64_t>(before.base)));
      Signed(c.unit);
      Byte(c.width);
      Signed(static_cast<std::int64_t>(c.offset - end));
      end = c.offset + c.width * columns.rows();
      before = c;
    }
    const std::span<const std::uint8_t> codes = columns.codes();
    Varint(codes.size());
    codes_.resize(BinaryAligned(codes_.size()));
    codes_.append(reinterpret_cast<const char*>(codes.data()), codes.size());  // NOLINT: bytes
  }

  void WriteGroup(GroupId id) {
    const auto members = graph_.groups.members(id);
    Byte(static_cast<std::uint64_t>(graph_.groups.slot(id)));
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
  std::string body_, codes_;
};

void Fixed64(std::uint64_t value, std::string* to) {
  for (int shift = 0; shift < 64; shift += 8) *to += static_cast<char>(value >> shift);
}

}  // namespace

std::string BinaryFile(std::string_view body, std::string_view codes) {
  std::string file(kBinaryMagic);
  file += static_cast<char>(kBinaryVersion);
  file.resize(16);
  Fixed64(body.size(), &file);
  Fixed64(codes.size(), &file);
  Fixed64(BinaryChecksum(body), &file);
  Fixed64(BinaryChecksum(codes), &file);
  file.reserve(BinaryAligned(file.size() + body.size()) + codes.size());
  file += body;
  if (!codes.empty()) file.resize(BinaryAligned(file.size()));
  file += codes;
  return file;
}

std::string ToBinary(const Graph& graph) { return BinaryWriter(graph).Write(); }

}  // namespace orrery::graph
