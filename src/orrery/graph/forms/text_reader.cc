// FromText: one pass over the lines.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "orrery/base/suggest.h"
#include "orrery/graph/forms/fields.h"
#include "orrery/graph/forms/text_form.h"
#include "orrery/graph/forms/text_line.h"
#include "orrery/graph/verify/verify.h"

namespace orrery::graph {
namespace {

template <class T>
std::optional<T> Number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class E>
std::optional<E> Value(std::string_view text, E) {
  using fields::Name;
  using graph::Name;
  for (int i = 0; i < fields::Count(E{}); ++i) {
    if (Name(static_cast<E>(i)) == text) return static_cast<E>(i);
  }
  return std::nullopt;
}

class TextReader {
 public:
  Result<Graph> Read(std::string_view text) {
    std::size_t number = 0;
    for (std::size_t at = 0; at < text.size() || number == 0;) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = text.substr(at, end - at);
      at = end + 1;
      ++number;
      Status status = number == 1 ? Version(line) : Line(line);
      if (!status.ok()) return std::move(status).In(fmt::format("graph text, line {}", number));
    }
    CloseProgram();
    CloseBlock();
    ORRERY_RETURN_IF_ERROR(std::move(error_).In("graph text"));
    for (Block& block : graph_.blocks) block.Seal();
    for (Shares& shares : graph_.shares) shares.Seal();
    ORRERY_RETURN_IF_ERROR(Verify(graph_, VerifyLevel::kRead).In("graph text"));
    return std::move(graph_);
  }

  // The visitor of fields.h.
  template <class T>
  void operator()(std::string_view key, T& field, const T& standard) {
    field = standard;
    const TextLine::Token* token = line_.Field(key);
    if (token == nullptr) return;
    const bool fits = !token->quoted && Parse(token->value, &field);
    if (!fits) Wrong(key, token->value);
  }
  template <fields::Meaning meaning, class Int>
  void operator()(std::string_view key, fields::Field<meaning, Int> field, Int standard) {
    field.number = standard;
    const TextLine::Token* token = line_.Field(key);
    if (token == nullptr) return;
    for (const fields::Word& word : fields::Words(meaning)) {
      if (token->value != word.word) continue;
      field.number = static_cast<Int>(word.number);
      return;
    }
    const auto n = Number<std::int32_t>(token->value);
    if (!n || *n < 0) return Wrong(key, token->value);
    field.number = static_cast<Int>(*n);
  }
  void operator()(std::string_view key, NameId& name, NameId) {
    name = NameId();
    const TextLine::Token* token = line_.Field(key);
    if (token == nullptr) return;
    if (!token->quoted) return Wrong(key, token->value);
    name = graph_.Intern(token->value);
  }

 private:
  static Status Version(std::string_view line) {
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line == kTextVersion || line == kOldTextVersion) return {};
    return InvalidInput("not a graph of version '{}': the first line says so", kTextVersion);
  }

  void Wrong(std::string_view key, std::string_view value) {
    if (!error_.ok()) return;
    error_ = InvalidInput("'{}' is no value for '{}'", value.substr(0, 40), key);
  }

  static bool Parse(std::string_view text, Quantity* value) {
    const std::size_t star = text.find("*#");
    const auto number = Number<std::int64_t>(text.substr(0, star));
    if (!number) return false;
    *value = {*number, -1};
    if (star == std::string_view::npos) return true;
    const auto slot = Number<std::int32_t>(text.substr(star + 2));
    if (!slot || *slot < 0) return false;
    value->slot = *slot;
    return true;
  }
  static bool Parse(std::string_view text, GroupSlot* value) {
    if (text.starts_with('#')) {
      const auto behind = Number<std::uint32_t>(text.substr(1));
      if (!behind || *behind >= (std::uint32_t{1} << 31)) return false;
      *value = static_cast<GroupSlot>(kGroupSlots + *behind);
      return true;
    }
    for (std::size_t s = 0; s < kGroupSlots; ++s) {
      *value = static_cast<GroupSlot>(s);
      if (Name(*value) == text) return true;
    }
    return false;
  }
  static bool Parse(std::string_view text, Peer* value) {
    if (text == "any") {
      *value = {PeerKind::kAny, 0};
      return true;
    }
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) {
      const auto slot = Value(text, PeerSlot());
      if (slot) *value = *slot;
      return slot.has_value();
    }
    const auto kind = Value(text.substr(0, colon), PeerKind());
    const auto number = Number<std::int32_t>(text.substr(colon + 1));
    if (!kind || !number || *kind == PeerKind::kSlot || *kind == PeerKind::kAny) return false;
    *value = {*kind, *number};
    return true;
  }
  template <class Tag>
  static bool Parse(std::string_view text, Id<Tag>* value) {
    const auto number = Number<std::uint32_t>(text);
    if (!number) return false;
    value->value = *number;
    return true;
  }
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) static bool Parse(std::string_view text,
                                                                           T* value) {
    if constexpr (std::is_enum_v<T>) {
      const auto found = Value(text, T{});
      if (found) *value = *found;
      return found.has_value();
    } else if constexpr (std::is_same_v<T, bool>) {
      *value = text == "1";
      return text == "0" || text == "1";
    } else {
      const auto number = Number<T>(text);
      if (!number) return false;
      if constexpr (std::is_floating_point_v<T>) {
        if (!std::isfinite(*number)) return false;
      }
      *value = *number;
      return true;
    }
  }

  Status Line(std::string_view text) {
    ORRERY_RETURN_IF_ERROR(line_.Cut(text));
    if (line_.empty()) return {};
    const TextLine::Token* first = line_.Next();
    if (first == nullptr || first->quoted) return InvalidInput("a line begins with a word");
    ORRERY_RETURN_IF_ERROR(Statement(first->value));
    ORRERY_RETURN_IF_ERROR(error_);
    return line_.Done();
  }

  Status Statement(std::string_view word) {
    if (word == "job") return Job();
    if (word == "block") return OpenBlock();
    if (word == "program") return OpenProgram();
    if (word == "rank") {
      fields::Visit(*this, graph_.bindings.emplace_back());
      return {};
    }
    if (word == "group") return Group();
    if (word == "stream") return OfTable(&graph_.streams);
    if (word == "routing") return OfTable(&graph_.routings);
    if (word == "more") return MoreGroups();
    if (word == "column") return Column();
    if (word == "numbers") {
      return InvalidInput("numeric slots of version 1; they are columns of a program now");
    }
    if (word == "shares") return ReadShares();
    if (word == "prologue" || word == "call") {
      if (!in_program_) return InvalidInput("a call outside a program");
      Program& program = graph_.programs.back();
      std::vector<Call>& calls = word == "call" ? program.calls : program.prologue;
      fields::Visit(*this, calls.emplace_back());
      return {};
    }
    if (!in_block_) return InvalidInput("'{}' outside a block, or unknown", word.substr(0, 40));
    if (word == "spare") return Spare();
    Block& block = graph_.blocks.back();
    if (word == "hold") {
      fields::Visit(*this, block.holds.emplace_back());
    } else if (word == "routed") {
      fields::Visit(*this, block.routed.emplace_back());
    } else if (word == "assumed") {
      fields::Visit(*this, block.assumed.emplace_back());
    } else {
      return Operation(word);
    }
    return {};
  }

  // `stream 3 …`: an entry of a table of the graph.
  template <class T>
  Status OfTable(std::vector<T>* table) {
    const TextLine::Token* number = line_.Next();
    if (number == nullptr || Number<std::size_t>(number->value) != table->size()) {
      return InvalidInput("its number is {}: they count from 0", table->size());
    }
    fields::Visit(*this, table->emplace_back());
    return {};
  }

  // The number and the quoted name after `block` and `program`.
  Status Heading(std::size_t expected, std::string* name, bool* named) {
    const TextLine::Token* number = line_.Next();
    if (number == nullptr || Number<std::size_t>(number->value) != expected) {
      return InvalidInput("its number is {}: they count from 0", expected);
    }
    const TextLine::Token* given = line_.Next();
    *named = given != nullptr;
    if (given == nullptr) return {};
    if (!given->quoted) return InvalidInput("a name stands in quotes");
    *name = given->value;
    return {};
  }

  Status Job() {
    const TextLine::Token* name = line_.Next();
    if (name == nullptr || !name->quoted) return InvalidInput("a job has a name in quotes");
    JobInfo& job = graph_.jobs.emplace_back();
    job.name = name->value;
    fields::Visit(*this, job);
    return {};
  }

  Status OpenBlock() {
    CloseProgram();
    CloseBlock();
    in_block_ = true;
    in_program_ = false;
    std::string name;
    bool named = false;
    ORRERY_RETURN_IF_ERROR(Heading(graph_.blocks.size(), &name, &named));
    Block& block = graph_.blocks.emplace_back();
    if (named) block.name = graph_.Intern(name);
    (*this)("pass", block.pass, Pass::kForward);
    (*this)("launch", block.launch, Launch::kEach);
    (*this)("issue", block.issue, Issue::kHost);
    return {};
  }

  Status OpenProgram() {
    CloseProgram();
    CloseBlock();
    in_block_ = false;
    in_program_ = true;
    std::string name;
    bool named = false;
    ORRERY_RETURN_IF_ERROR(Heading(graph_.programs.size(), &name, &named));
    Program& program = graph_.programs.emplace_back();
    program.name = name;
    fields::Visit(*this, program);
    return {};
  }

  // Adds the descriptor that begins with `word` to its table. False if it is none.
  bool Descriptor(std::string_view word) {
    Block& block = graph_.blocks.back();
    if (word == "gemm") {
      fields::Visit(*this, std::get<Gemm>(block.kernels.emplace_back(Gemm())));
    } else if (word == "attention") {
      fields::Visit(*this, std::get<Attention>(block.kernels.emplace_back(Attention())));
    } else if (word == "memory") {
      fields::Visit(*this, std::get<MemoryBound>(block.kernels.emplace_back(MemoryBound())));
    } else if (word == "timed") {
      fields::Visit(*this, std::get<Timed>(block.kernels.emplace_back(Timed())));
    } else if (word == "generic") {
      fields::Visit(*this, std::get<Generic>(block.kernels.emplace_back(Generic())));
    } else if (word == "host") {
      (*this)("ps", block.host_ps.emplace_back(), std::int64_t{0});
    } else if (word == "time") {
      (*this)("ps", block.times.emplace_back(), Quantity());
    } else if (word == "buffer") {
      fields::Visit(*this, block.buffers.emplace_back());
    } else if (const auto collective = Value(word, Collective())) {
      Comm& comm = block.comms.emplace_back();
      comm.collective = *collective;
      fields::Visit(*this, comm);
    } else {
      return false;
    }
    return true;
  }

  Status Spare() {
    const TextLine::Token* word = line_.Next();
    if (word != nullptr && Descriptor(word->value)) return {};
    return InvalidInput("a spare is a kernel, a collective, a buffer, host work or a time");
  }

  // `@3`: an earlier entry of the table.
  Result<std::uint32_t> Reference(const TextLine::Token& token, std::size_t table) {
    const auto number = token.value.starts_with('@')
                            ? Number<std::uint32_t>(std::string_view(token.value).substr(1))
                            : std::nullopt;
    if (number && *number < table) return *number;
    return InvalidInput("'{}' is no earlier entry; there are {}", token.value.substr(0, 40), table);
  }

  Status Operation(std::string_view word) {
    Block& block = graph_.blocks.back();
    Op op;
    const TextLine::Token* reference = line_.Next();
    std::size_t table = block.kernels.size();
    if (word == "wait") {
      op.kind = OpKind::kWait;
    } else if (word == "record") {
      op.kind = OpKind::kRecord;
    } else if (word == "host-sync") {
      op.kind = OpKind::kHostSync;
    } else if (word == "host-pace") {
      op.kind = OpKind::kHostPace;
    } else if (word == "comm" || Value(word, Collective())) {
      op.kind = OpKind::kComm;
      table = block.comms.size();
    } else if (word == "host") {
      op.kind = OpKind::kHost;
      table = block.host_ps.size();
    } else if (word == "time") {
      op.kind = OpKind::kTimed;
      table = block.times.size();
    } else if (word == "alloc" || word == "free") {
      op.kind = word == "alloc" ? OpKind::kAlloc : OpKind::kFree;
      table = block.buffers.size();
    }
    if (reference != nullptr) {
      ORRERY_ASSIGN_OR_RETURN(op.index, Reference(*reference, table));
    } else if (HasIndex(op.kind)) {
      const bool buffer = op.kind == OpKind::kAlloc || op.kind == OpKind::kFree;
      if (!Descriptor(buffer ? "buffer" : word)) {
        return InvalidInput("unknown operation '{}'", word.substr(0, 40));
      }
      op.index = static_cast<std::uint32_t>(table);
    }
    if (op.kind != OpKind::kComm) {
      (*this)("event", fields::EventField(op.event), kNoEvent);
      (*this)("stream", fields::StreamField(op.stream), kComputeStream);
    }
    (*this)("priority", op.priority, std::int32_t{0});
    if (const TextLine::Token* hold = line_.Field("hold")) {
      const auto number = Number<std::uint16_t>(hold->value);
      if (!number || *number >= block.holds.size() || *number == Hold::kNone) {
        return InvalidInput("'{}' is none of the block's {} holds", hold->value.substr(0, 40),
                            block.holds.size());
      }
      op.hold = static_cast<std::uint16_t>(*number + 1);
    }
    if (const TextLine::Token* after = line_.Field("after")) {
      ORRERY_RETURN_IF_ERROR(Dependencies(after->value, &block));
    }
    (*this)("name", op.name, NameId());
    (*this)("module", op.module, NameId());
    block.ops.push_back(op);
    return {};
  }

  // `3,5,start:7`, of the operation that follows those that are there.
  Status Dependencies(std::string_view text, Block* block) {
    block->dep_begin.resize(block->ops.size(), static_cast<std::uint32_t>(block->deps.size()));
    block->dep_begin.push_back(static_cast<std::uint32_t>(block->deps.size()));
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t comma = std::min(text.find(',', at), text.size());
      std::string_view word = text.substr(at, comma - at);
      at = comma + 1;
      Dep dep;
      if (word.starts_with("start:")) {
        dep.on_start = 1;
        word.remove_prefix(6);
      }
      const auto number = Number<std::uint32_t>(word);
      if (!number || *number >= std::uint32_t{1} << 31) {
        return InvalidInput("'{}' is no operation: 'after' lists numbers and start:number",
                            word.substr(0, 40));
      }
      dep.op = *number & 0x7fffffff;
      block->deps.push_back(dep);
    }
    return {};
  }
  // Completes dep_begin for the operations behind the last one with dependencies.
  void CloseBlock() {
    if (graph_.blocks.empty()) return;
    Block& block = graph_.blocks.back();
    if (block.deps.empty()) return;
    block.dep_begin.resize(block.ops.size() + 1, static_cast<std::uint32_t>(block.deps.size()));
  }

  Status Group() {
    const TextLine::Token* number = line_.Next();
    if (number == nullptr || Number<std::size_t>(number->value) != graph_.groups.size()) {
      return InvalidInput("its number is {}: they count from 0", graph_.groups.size());
    }
    const TextLine::Token* word = line_.Next();
    GroupSlot slot{};
    if (word == nullptr || !Parse(word->value, &slot) || slot >= GroupSlot::kCount) {
      return InvalidInput("a group has a slot: tp, dp, …");
    }
    std::vector<RankId> members;
    while (const TextLine::Token* token = line_.Next()) {
      ORRERY_RETURN_IF_ERROR(Members(token->value, &members));
    }
    if (members.empty()) return InvalidInput("a group has members");
    members_ += members.size();
    graph_.groups.Add(slot, members);
    return {};
  }

  // `5`, `0..7` or `0..56/8`.
  Status Members(std::string_view text, std::vector<RankId>* members) {
    const std::size_t dots = text.find("..");
    const std::size_t slash = text.find('/');
    const auto first = Number<std::uint32_t>(text.substr(0, dots));
    auto last = first;
    std::optional<std::uint32_t> step = 1;
    if (dots != std::string_view::npos) {
      last = Number<std::uint32_t>(text.substr(0, slash).substr(dots + 2));
      if (slash != std::string_view::npos) step = Number<std::uint32_t>(text.substr(slash + 1));
    }
    if (!first || !last || !step || *step == 0 || *last < *first) {
      return InvalidInput("'{}' is no rank, range or range/step", text.substr(0, 40));
    }
    if (*last >= graph_.bindings.size()) {
      return InvalidInput("rank {} of {}: ranks stand before groups", *last,
                          graph_.bindings.size());
    }
    // A few letters, `0..4000000000`, must not fill the memory.
    const std::size_t more = (*last - *first) / *step + 1;
    if (members->size() + more > graph_.bindings.size()) {
      return InvalidInput("the group has more members than there are ranks");
    }
    if (members_ + members->size() + more > kMostMembers) {
      return InvalidInput("the groups have more than {} members", kMostMembers);
    }
    for (std::size_t i = 0; i < more; ++i) members->push_back(RankId(*first + i * *step));
    return {};
  }

  // `5` or `5x1024` a row, over as many lines as it takes.
  Status Column() {
    if (!in_program_) return InvalidInput("a column outside a program");
    const TextLine::Token* token = line_.Next();
    const auto number = token == nullptr ? std::nullopt : Number<std::size_t>(token->value);
    const std::size_t columns = graph_.programs.back().columns.size();
    const bool opens = number && *number == columns + (column_.empty() ? 0 : 1);
    if (!opens && (!number || *number != columns || column_.empty())) {
      return InvalidInput("its number is {}: they count from 0", columns);
    }
    if (opens) ORRERY_RETURN_IF_ERROR(CloseColumn());
    while (const TextLine::Token* value = line_.Next()) {
      const std::string_view text = value->value;
      const std::size_t x = std::min(text.find('x'), text.size());
      const auto first = Number<std::int64_t>(text.substr(0, x));
      const auto times = x == text.size() ? 1 : Number<std::uint32_t>(text.substr(x + 1));
      if (!first || !times || *times == 0) {
        return InvalidInput("'{}' is no number", text.substr(0, 40));
      }
      // A few letters, `5x4000000000`, must not fill the memory.
      if (column_.size() + *times > kMostRows) return InvalidInput("more rows than {}", kMostRows);
      column_.insert(column_.end(), *times, *first);
    }
    return {};
  }
  Status CloseColumn() {
    if (column_.empty()) return {};
    Columns& columns = graph_.programs.back().columns;
    if (!columns.empty() && columns.rows() != column_.size()) {
      return InvalidInput("column {} has {} rows, those before it {}", columns.size(),
                          column_.size(), columns.rows());
    }
    columns.Add(column_);
    column_.clear();
    return {};
  }
  void CloseProgram() {
    if (!in_program_) return;
    if (Status status = CloseColumn(); !status.ok() && error_.ok()) error_ = std::move(status);
  }

  Status MoreGroups() {
    while (const TextLine::Token* token = line_.Next()) {
      const auto number = Number<std::uint32_t>(token->value);
      if (!number && token->value != "-") {
        return InvalidInput("'{}' is no group", token->value.substr(0, 40));
      }
      graph_.more_groups.push_back(number ? GroupId(*number) : GroupId());
    }
    return {};
  }

  // The number of a table: the next one, or the last one's, whose next sender's parts follow.
  Status ReadShares() {
    const TextLine::Token* token = line_.Next();
    const auto number = token == nullptr ? std::nullopt : Number<std::size_t>(token->value);
    const std::size_t count = graph_.shares.size();
    if (!number || (*number != count && *number + 1 != count)) {
      return InvalidInput("its number is {}: they count from 0", count);
    }
    const bool opens = *number == count;
    Shares& shares = opens ? graph_.shares.emplace_back() : graph_.shares.back();
    const std::size_t before = shares.parts.size();
    while (const TextLine::Token* part = line_.Next()) {
      const auto value = Number<std::int64_t>(part->value);
      if (!value) return InvalidInput("'{}' is no number", part->value.substr(0, 40));
      shares.parts.push_back(*value);
    }
    const std::size_t parts = shares.parts.size() - before;
    if (opens) shares.ranks = static_cast<std::uint32_t>(parts);
    if (parts == 0 || parts != shares.ranks) {
      return InvalidInput("{} parts: a sender has one for every member", parts);
    }
    return {};
  }

  static constexpr std::size_t kMostRows = std::size_t{1} << 24;
  static constexpr std::size_t kMostMembers = std::size_t{1} << 28;

  Graph graph_;
  std::vector<std::int64_t> column_;  // the one being read
  TextLine line_;
  Status error_;
  bool in_block_ = false, in_program_ = false;
  std::size_t members_ = 0;
};

}  // namespace

Result<Graph> FromText(std::string_view text) { return TextReader().Read(text); }

}  // namespace orrery::graph
