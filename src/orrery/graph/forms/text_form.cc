#include "orrery/graph/forms/text_form.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>
#include <variant>

#include "orrery/graph/forms/fields.h"

namespace orrery::graph {
namespace {

constexpr std::size_t kNumbersALine = 16;

class TextWriter {
 public:
  explicit TextWriter(const Graph& graph) : graph_(graph) {}

  std::string Write() {
    Put("{}\n", kTextVersion);
    for (const JobInfo& job : graph_.jobs) {
      Put("job");
      String(job.name);
      fields::Visit(*this, job);
      Put("\n");
    }
    for (std::size_t i = 0; i < graph_.streams.size(); ++i) {
      Put("stream {}", i);
      fields::Visit(*this, graph_.streams[i]);
      Put("\n");
    }
    for (std::size_t i = 0; i < graph_.routings.size(); ++i) {
      Put("routing {}", i);
      fields::Visit(*this, graph_.routings[i]);
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
    for (std::size_t i = 0; i < graph_.more_groups.size(); ++i) {
      if (i % kNumbersALine == 0) Put("{}more", i == 0 ? "" : "\n");
      const GroupId id = graph_.more_groups[i];
      if (id.valid()) {
        Put(" {}", id.value);
      } else {
        Put(" -");
      }
    }
    if (!graph_.more_groups.empty()) Put("\n");
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
  template <fields::Meaning meaning, class Int>
  void operator()(std::string_view key, fields::Field<meaning, const Int> field, Int standard) {
    if (field.number == standard) return;
    Put(" {}=", key);
    for (const fields::Word& word : fields::Words(meaning)) {
      if (field.number == word.number) return Put("{}", word.word);
    }
    Put("{}", field.number);
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
    } else if constexpr (std::is_same_v<T, Peer>) {
      if (value.kind == PeerKind::kSlot) {
        Put("{}", Name(value.slot()));
      } else if (value.kind == PeerKind::kAny) {
        Put("any");
      } else {
        Put("{}:{}", Name(value.kind), value.value);
      }
    } else if constexpr (std::is_same_v<T, GroupSlot>) {
      Put("{}", SlotName(value));
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
  void Descriptor(Quantity time) {
    Put("time ps=");
    Value(time);
  }

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
    (*this)("issue", block.issue, Issue::kHost);
    Put("\n");
    for (const Hold& hold : block.holds) {
      Put("  hold");
      fields::Visit(*this, hold);
      Put("\n");
    }
    Written written;
    for (std::size_t o = 0; o < block.ops.size(); ++o) WriteOp(block, o, &written);
    while (written.kernels < block.kernels.size()) Spare(block.kernels[written.kernels++]);
    while (written.comms < block.comms.size()) Spare(block.comms[written.comms++]);
    while (written.buffers < block.buffers.size()) Spare(block.buffers[written.buffers++]);
    while (written.hosts < block.host_ps.size()) Spare(block.host_ps[written.hosts++]);
    while (written.times < block.times.size()) Spare(block.times[written.times++]);
    for (const Routed& routed : block.routed) {
      Put("  routed op={} routing={}\n", routed.op, routed.routing);
    }
    for (const Assumption& assumption : block.assumed) {
      Put("  assumed");
      fields::Visit(*this, assumption);
      Put("\n");
    }
  }

  // How much of a block's tables is written.
  struct Written {
    std::size_t kernels = 0, comms = 0, buffers = 0, hosts = 0, times = 0;
  };
  void WriteOp(const Block& block, std::size_t o, Written* written) {
    const Op& op = block.ops[o];
    switch (op.kind) {
      case OpKind::kKernel:
        Entry("kernel", block.kernels, op.index, &written->kernels);
        break;
      case OpKind::kComm:
        Entry("comm", block.comms, op.index, &written->comms);
        break;
      case OpKind::kHost:
        Entry("host", block.host_ps, op.index, &written->hosts);
        break;
      case OpKind::kTimed:
        Entry("time", block.times, op.index, &written->times);
        break;
      case OpKind::kAlloc:
      case OpKind::kFree:
        WriteBufferOp(op.kind == OpKind::kAlloc ? "alloc" : "free", block, op.index,
                      &written->buffers);
        break;
      case OpKind::kWait:
      case OpKind::kRecord:
        Put("  {}", op.kind == OpKind::kWait ? "wait" : "record");
        break;
      case OpKind::kHostSync:
        Put("  host-sync");
        break;
      case OpKind::kHostPace:
        Put("  host-pace");
        break;
    }
    (*this)("event", fields::EventField(op.event), kNoEvent);
    if (op.kind != OpKind::kComm) (*this)("stream", fields::StreamField(op.stream), kComputeStream);
    (*this)("priority", op.priority, std::int32_t{0});
    if (op.hold != 0) Put(" hold={}", op.hold - 1);
    WriteDeps(block, o);
    (*this)("name", op.name, NameId());
    (*this)("module", op.module, NameId());
    Put("\n");
  }
  // `after=3,5,start:7`
  void WriteDeps(const Block& block, std::size_t o) {
    const char* before = " after=";
    for (const Dep& dep : block.deps_of(o)) {
      Put("{}{}{}", before, dep.on_start ? "start:" : "", std::uint32_t{dep.op});
      before = ",";
    }
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
    for (std::size_t c = 0; c < program.columns.size(); ++c) WriteColumn(program.columns, c);
    for (const Call& call : program.prologue) WriteCall("prologue", call);
    for (const Call& call : program.calls) WriteCall("call", call);
  }
  void WriteCall(const char* word, const Call& call) {
    Put("  {}", word);
    fields::Visit(*this, call);
    Put("\n");
  }

  // A number a row; equal ones in a row as `number x times`, without the blanks.
  void WriteColumn(const Columns& columns, std::size_t column) {
    Put("  column {}", column);
    for (std::size_t row = 0, end = 0, on_line = 0; row < columns.rows(); row = end) {
      const std::int64_t value = columns.at(column, row);
      for (end = row + 1; end < columns.rows() && columns.at(column, end) == value;) ++end;
      if (on_line == kNumbersALine) {
        Put("\n  column {}", column);
        on_line = 0;
      }
      ++on_line;
      Put(" {}", value);
      if (end - row > 1) Put("x{}", end - row);
    }
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

std::string ToText(const Graph& graph) { return TextWriter(graph).Write(); }

}  // namespace orrery::graph
