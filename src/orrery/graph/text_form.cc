#include "orrery/graph/text_form.h"

#include <fmt/format.h>

#include <iterator>

#include "orrery/graph/fields.h"

namespace orrery::graph {
namespace {

using fields::EventField;

constexpr std::size_t kNumbersALine = 16;

class Writer {
 public:
  explicit Writer(const Graph& graph) : graph_(graph) {}

  std::string Write() {
    Put("{}\n", kTextVersion);
    for (const JobInfo& job : graph_.jobs) {
      Put("job");
      String(job.name);
      fields::Visit(*this, job);
      Put("\n");
    }
    for (std::size_t b = 0; b < graph_.blocks.size(); ++b) WriteBlock(b);
    for (std::size_t p = 0; p < graph_.programs.size(); ++p) WriteProgram(p);
    for (const Binding& binding : graph_.bindings) {
      Put("rank");
      fields::Visit(*this, binding);
      Put("\n");
    }
    for (std::size_t g = 0; g < graph_.groups.size(); ++g) WriteGroup(GroupId(g));
    for (std::size_t n = 0; n < graph_.numbers.size(); ++n) {
      Put("{} {}", n % kNumbersALine == 0 ? (n == 0 ? "numbers" : "\nnumbers") : "",
          graph_.numbers[n]);
    }
    if (!graph_.numbers.empty()) Put("\n");
    for (std::size_t s = 0; s < graph_.shares.size(); ++s) WriteShares(s);
    return std::move(text_);
  }

  // The visitor of fields.h.
  template <class T>
  void operator()(std::string_view key, const T& value, const T& standard) {
    if (value == standard) return;
    Put(" {}=", key);
    Value(value);
  }
  void operator()(std::string_view key, EventField<const std::int16_t> event,
                  std::int16_t standard) {
    if (event.number == standard) return;
    if (event.number == kCallEvent) {
      Put(" {}=call", key);
    } else {
      Put(" {}={}", key, event.number);
    }
  }
  void operator()(std::string_view key, NameId name, NameId) {
    if (!name.valid()) return;
    Put(" {}=", key);
    Quoted(graph_.name(name));
  }

 private:
  template <class... Args>
  void Put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  template <class T>
  void Value(const T& value) {
    if constexpr (std::is_same_v<T, Quantity>) {
      if (value.slot >= 0) {
        Put("{}*#{}", value.value, value.slot);
      } else {
        Put("{}", value.value);
      }
    } else if constexpr (std::is_enum_v<T>) {
      using fields::Name;
      using graph::Name;
      Put("{}", Name(value));
    } else if constexpr (std::is_same_v<T, bool>) {
      Put("{}", value ? 1 : 0);
    } else if constexpr (std::is_arithmetic_v<T>) {
      Put("{}", value);
    } else {
      Put("{}", value.value);  // an id
    }
  }

  void Quoted(std::string_view text) {
    text_ += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
        Put("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
      } else {
        text_ += c;
      }
    }
    text_ += '"';
  }
  void String(std::string_view text) {
    text_ += ' ';
    Quoted(text);
  }

  // Descriptors, as an operation or a spare writes them.
  void Descriptor(const Kernel& kernel) {
    Put("{}", fields::kKernelNames[kernel.index()]);
    std::visit([this](const auto& k) { fields::Visit(*this, k); }, kernel);
  }
  void Descriptor(const Comm& comm) {
    Put("{}", Name(comm.collective));
    fields::Visit(*this, comm);
  }
  void Descriptor(const Buffer& buffer) {
    Put("buffer");
    fields::Visit(*this, buffer);
  }
  void Descriptor(std::int64_t host_ps) { Put("host ps={}", host_ps); }

  // The table entry of an operation: the next one in place, earlier ones by number; entries that no
  // operation met in order come before as spares.
  template <class T>
  void Entry(const char* table, const std::vector<T>& entries, std::uint32_t index,
             std::size_t* written) {
    for (; *written < index; ++*written) Spare(entries[*written]);
    Put("  ");
    if (index < *written) {
      Put("{} @{}", table, index);
      return;
    }
    Descriptor(entries[(*written)++]);
  }
  template <class T>
  void Spare(const T& entry) {
    Put("  spare ");
    Descriptor(entry);
    Put("\n");
  }

  void WriteBlock(std::size_t number) {
    const Block& block = graph_.blocks[number];
    Put("block {}", number);
    if (block.name.valid()) String(graph_.name(block.name));
    (*this)("pass", block.pass, Pass::kForward);
    (*this)("launch", block.launch, Launch::kEach);
    Put("\n");
    std::size_t kernels = 0, comms = 0, buffers = 0, hosts = 0;
    for (const Op& op : block.ops) {
      switch (op.kind) {
        case OpKind::kKernel:
          Entry("kernel", block.kernels, op.index, &kernels);
          break;
        case OpKind::kComm:
          Entry("comm", block.comms, op.index, &comms);
          break;
        case OpKind::kHost:
          Entry("host", block.host_ps, op.index, &hosts);
          break;
        case OpKind::kAlloc:
        case OpKind::kFree:
          WriteBufferOp(op.kind == OpKind::kAlloc ? "alloc" : "free", block, op.index, &buffers);
          break;
        case OpKind::kWait:
          Put("  wait");
          (*this)("event", EventField{op.event}, kNoEvent);
          break;
        case OpKind::kHostSync:
          Put("  host-sync");
          break;
        case OpKind::kHostPace:
          Put("  host-pace");
          break;
      }
      (*this)("name", op.name, NameId());
      (*this)("module", op.module, NameId());
      Put("\n");
    }
    while (kernels < block.kernels.size()) Spare(block.kernels[kernels++]);
    while (comms < block.comms.size()) Spare(block.comms[comms++]);
    while (buffers < block.buffers.size()) Spare(block.buffers[buffers++]);
    while (hosts < block.host_ps.size()) Spare(block.host_ps[hosts++]);
  }

  void WriteBufferOp(const char* act, const Block& block, std::uint32_t index,
                     std::size_t* written) {
    for (; *written < index; ++*written) Spare(block.buffers[*written]);
    Put("  {}", act);
    if (index < *written) {
      Put(" @{}", index);
    } else {
      fields::Visit(*this, block.buffers[(*written)++]);
    }
  }

  void WriteProgram(std::size_t number) {
    const Program& program = graph_.programs[number];
    Put("program {}", number);
    String(program.name);
    fields::Visit(*this, program);
    Put("\n");
    for (const Call& call : program.prologue) WriteCall("prologue", call);
    for (const Call& call : program.calls) WriteCall("call", call);
  }
  void WriteCall(const char* word, const Call& call) {
    Put("  {}", word);
    fields::Visit(*this, call);
    Put("\n");
  }

  // Members in steps are first..last or first..last/step.
  void WriteGroup(GroupId id) {
    const auto members = graph_.groups.members(id);
    Put("group {} {}", id.value, Name(graph_.groups.slot(id)));
    const std::size_t n = members.size();
    const std::uint32_t step = n > 1 ? members[1].value - members[0].value : 0;
    bool even = n > 2 && members[1] > members[0];
    for (std::size_t i = 2; even && i < n; ++i) {
      even = members[i] > members[i - 1] && members[i].value - members[i - 1].value == step;
    }
    if (even) {
      Put(" {}..{}", members[0].value, members[n - 1].value);
      if (step != 1) Put("/{}", step);
    } else {
      for (const RankId rank : members) Put(" {}", rank.value);
    }
    Put("\n");
  }

  // A line for all senders, or one a sender.
  void WriteShares(std::size_t number) {
    const Shares& shares = graph_.shares[number];
    for (std::size_t i = 0; i < shares.parts.size(); ++i) {
      if (i % shares.ranks == 0) Put("{}shares {}", i == 0 ? "" : "\n", number);
      Put(" {}", shares.parts[i]);
    }
    Put("\n");
  }

  const Graph& graph_;
  std::string text_;
};

}  // namespace

std::string ToText(const Graph& graph) { return Writer(graph).Write(); }

}  // namespace orrery::graph
