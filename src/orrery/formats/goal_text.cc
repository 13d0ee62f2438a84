// GOAL's text form, read and written.
#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <unordered_map>

#include "orrery/base/text.h"
#include "orrery/formats/goal.h"
#include "orrery/formats/goal_forms.h"

namespace orrery::formats {
namespace {

using Kind = GoalSchedule::Kind;

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool IsWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

class TextReader {
 public:
  TextReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Result<GoalSchedule> Read() {
    ORRERY_RETURN_IF_ERROR(SkipLines());
    if (Word() != "num_ranks") return Error("a schedule begins with 'num_ranks N'");
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t ranks, Number("num_ranks", 1, kMaxGoalRanks));
    ranks_ = static_cast<std::uint32_t>(ranks);
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      ORRERY_RETURN_IF_ERROR(SkipLines());
      ORRERY_RETURN_IF_ERROR(ReadRank(rank));
    }
    ORRERY_RETURN_IF_ERROR(SkipLines());
    if (at_ < text_.size()) {
      return Error(fmt::format("more follows the block of the last rank; num_ranks is {}", ranks_));
    }
    Result<GoalSchedule> schedule = builder_.Take(true);
    if (!schedule.ok()) return std::move(schedule).TakeStatus().In(name_);
    return schedule;
  }

 private:
  Status Error(const std::string& what) const {
    return InvalidInput("{}:{}: {}", name_, line_, what);
  }

  // Blanks and comments; of a comment over several lines the lines are counted.
  Status SkipBlanks() {
    while (at_ < text_.size()) {
      if (IsBlank(text_[at_])) {
        ++at_;
      } else if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.substr(at_, 2) == "/*") {
        const std::size_t end = text_.find("*/", at_ + 2);
        if (end == std::string_view::npos) return Error("a comment /* has no end */");
        for (; at_ < end + 2; ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
      } else {
        break;
      }
    }
    return {};
  }
  Status SkipLines() {
    ORRERY_RETURN_IF_ERROR(SkipBlanks());
    while (at_ < text_.size() && text_[at_] == '\n') {
      ++at_;
      ++line_;
      ORRERY_RETURN_IF_ERROR(SkipBlanks());
    }
    return {};
  }
  bool AtEnd() const { return at_ >= text_.size() || text_[at_] == '\n'; }

  std::string_view Word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  // What stands here, for a message.
  std::string Here() const {
    if (AtEnd()) return "the end of the line";
    return fmt::format("'{}'", Printable(text_.substr(at_, text_.find('\n', at_) - at_), 40));
  }

  Result<std::int64_t> Number(std::string_view what, std::int64_t least, std::int64_t most) {
    ORRERY_RETURN_IF_ERROR(SkipBlanks());
    std::int64_t value = 0;
    const char* end = text_.data() + text_.size();
    const auto [stop, error] = std::from_chars(text_.data() + at_, end, value);
    if (error == std::errc::invalid_argument) {
      return Error(fmt::format("{} must be a whole number, not {}", what, Here()));
    }
    if (error != std::errc() || value < least || value > most) {
      const auto digits = static_cast<std::size_t>(stop - text_.data()) - at_;
      return Error(fmt::format("{}: '{}' is outside {} to {}", what,
                               Printable(text_.substr(at_, digits), 40), least, most));
    }
    at_ = static_cast<std::size_t>(stop - text_.data());
    return value;
  }

  Status Expect(std::string_view word) {
    ORRERY_RETURN_IF_ERROR(SkipBlanks());
    if (text_.substr(at_, word.size()) != word) {
      return Error(fmt::format("'{}' expected, found {}", word, Here()));
    }
    at_ += word.size();
    return {};
  }

  Status ReadRank(std::uint32_t rank) {
    if (at_ >= text_.size()) {
      return Error(fmt::format("the file ends before the block of rank {}; is it cut off?", rank));
    }
    ORRERY_RETURN_IF_ERROR(Expect("rank"));
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t number, Number("rank", 0, kMaxGoalRanks));
    if (number != rank) {
      return Error(fmt::format("rank {} stands where rank {} must; blocks ascend", number, rank));
    }
    ORRERY_RETURN_IF_ERROR(SkipLines());
    ORRERY_RETURN_IF_ERROR(Expect("{"));
    builder_.BeginRank();
    labels_.clear();
    const std::uint32_t begin = line_;
    for (;;) {
      ORRERY_RETURN_IF_ERROR(SkipLines());
      if (at_ >= text_.size()) {
        return Error(fmt::format("the block of rank {} (line {}) has no '}}'", rank, begin));
      }
      if (text_[at_] == '}') break;
      ORRERY_RETURN_IF_ERROR(ReadStatement());
    }
    ++at_;
    return {};
  }

  Status ReadStatement() {
    std::string_view word = Word();
    if (word.empty()) return Error(fmt::format("a statement expected, found {}", Here()));
    ORRERY_RETURN_IF_ERROR(SkipBlanks());
    std::string_view label;
    if (at_ < text_.size() && text_[at_] == ':') {
      label = word;
      ++at_;
      ORRERY_RETURN_IF_ERROR(SkipBlanks());
      word = Word();
    }
    builder_.set_line(line_);
    if (word == "send") {
      ORRERY_RETURN_IF_ERROR(ReadMessage(Kind::kSend));
    } else if (word == "recv") {
      ORRERY_RETURN_IF_ERROR(ReadMessage(Kind::kRecv));
    } else if (word == "calc") {
      ORRERY_RETURN_IF_ERROR(ReadCalc());
    } else if (label.empty()) {
      ORRERY_RETURN_IF_ERROR(ReadDependency(word));
    } else {
      return Error(fmt::format("'{}' is no operation; valid: send, recv, calc", Printable(word)));
    }
    if (!label.empty()) {
      if (label.front() >= '0' && label.front() <= '9') {
        return Error(fmt::format("the label '{}' must begin with a letter", Printable(label)));
      }
      const std::uint32_t op = builder_.ops_of_rank() - 1;
      const auto [entry, fresh] = labels_.emplace(label, op);
      if (!fresh) {
        return Error(fmt::format("the label '{}' stands at line {} already; rename one",
                                 Printable(label), builder_.line_of(entry->second)));
      }
    }
    ORRERY_RETURN_IF_ERROR(SkipBlanks());
    if (!AtEnd() && text_[at_] != '}') {
      return Error(fmt::format("the statement ends before {}; one statement a line", Here()));
    }
    return {};
  }

  // "[tag T] [cpu C] [nic I]", in this order.
  Result<std::optional<std::int64_t>> Field(std::string_view name, std::int64_t least,
                                            std::int64_t most) {
    ORRERY_RETURN_IF_ERROR(SkipBlanks());
    const std::size_t end = at_ + name.size();
    if (text_.substr(at_, name.size()) != name || (end < text_.size() && IsWord(text_[end]))) {
      return std::optional<std::int64_t>();
    }
    at_ = end;
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t value, Number(name, least, most));
    return std::optional<std::int64_t>(value);
  }

  Status ReadMessage(Kind kind) {
    const bool receive = kind == Kind::kRecv;
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t bytes, Number("size", 0, kMaxGoalSize));
    ORRERY_RETURN_IF_ERROR(Expect("b"));
    ORRERY_RETURN_IF_ERROR(Expect(receive ? "from" : "to"));
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t peer,
                            Number(receive ? "from" : "to", receive ? -1 : 0, ranks_ - 1));
    // As the binary form holds them: -1 is the largest number.
    ORRERY_ASSIGN_OR_RETURN(const auto tag, Field("tag", receive ? -1 : 0, kMaxGoalTag));
    ORRERY_ASSIGN_OR_RETURN(const auto cpu, Field("cpu", 0, 255));
    ORRERY_ASSIGN_OR_RETURN(const auto nic, Field("nic", 0, 255));
    builder_.Add(
        kind, bytes, static_cast<std::uint32_t>(peer), static_cast<std::uint32_t>(tag.value_or(0)),
        static_cast<std::uint8_t>(cpu.value_or(0)), static_cast<std::uint8_t>(nic.value_or(0)));
    return {};
  }

  Status ReadCalc() {
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t ns, Number("calc", 0, kMaxGoalSize));
    ORRERY_ASSIGN_OR_RETURN(const auto cpu, Field("cpu", 0, 255));
    builder_.Add(Kind::kCalc, ns, 0, 0, static_cast<std::uint8_t>(cpu.value_or(0)));
    return {};
  }

  Result<std::uint32_t> Label(std::string_view label) const {
    const auto entry = labels_.find(label);
    if (entry != labels_.end()) return entry->second;
    return Error(
        fmt::format("no operation of this rank above has the label '{}'", Printable(label)));
  }

  Status ReadDependency(std::string_view first) {
    const std::string_view word = Word();
    if (word != "requires" && word != "irequires") {
      return Error(fmt::format(
          "'{}' is no statement; valid: send, recv, calc, LABEL requires LABEL, LABEL irequires "
          "LABEL",
          Printable(first)));
    }
    ORRERY_RETURN_IF_ERROR(SkipBlanks());
    ORRERY_ASSIGN_OR_RETURN(const std::uint32_t op, Label(first));
    ORRERY_ASSIGN_OR_RETURN(const std::uint32_t other, Label(Word()));
    if (op == other) {
      return Error(fmt::format("'{}' waits for itself; remove this line", Printable(first)));
    }
    builder_.Require(op, other, word == "irequires");
    return {};
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
  std::uint32_t ranks_ = 0;
  GoalBuilder builder_;
  std::unordered_map<std::string_view, std::uint32_t> labels_;
};

void WriteOp(const GoalSchedule::Op& op, std::string* out) {
  const auto to = std::back_inserter(*out);
  if (op.kind == Kind::kCalc) {
    fmt::format_to(to, "calc {}", op.size);
  } else {
    const bool receive = op.kind == Kind::kRecv;
    fmt::format_to(to, "{} {}b {} ", Name(op.kind), op.size, receive ? "from" : "to");
    if (op.peer == GoalSchedule::kAny) {
      *out += "-1";
    } else {
      fmt::format_to(to, "{}", op.peer);
    }
    if (op.tag == GoalSchedule::kAny) {
      *out += " tag -1";
    } else if (op.tag != 0) {
      fmt::format_to(to, " tag {}", op.tag);
    }
  }
  if (op.cpu != 0) fmt::format_to(to, " cpu {}", op.cpu);
  if (op.nic != 0) fmt::format_to(to, " nic {}", op.nic);
  *out += '\n';
}

}  // namespace

Result<GoalSchedule> ParseGoalText(std::string_view text, const std::string& name) {
  return TextReader(text, name).Read();
}

std::string GoalToText(const GoalSchedule& schedule) {
  std::string out = fmt::format("num_ranks {}\n", schedule.ranks());
  const auto to = std::back_inserter(out);
  for (std::size_t rank = 0; rank < schedule.ranks(); ++rank) {
    const std::size_t first = schedule.first_op[rank], last = schedule.first_op[rank + 1];
    fmt::format_to(to, "\nrank {} {{\n", rank);
    for (std::size_t op = first; op < last; ++op) {
      fmt::format_to(to, "l{}: ", op - first);
      WriteOp(schedule.ops[op], &out);
    }
    for (std::size_t op = first; op < last; ++op) {
      for (const std::uint32_t edge : schedule.edges_of(op)) {
        const bool start = (edge & GoalSchedule::kStartEdge) != 0;
        fmt::format_to(to, "l{} {} l{}\n", edge & ~GoalSchedule::kStartEdge,
                       start ? "irequires" : "requires", op - first);
      }
    }
    out += "}\n";
  }
  return out;
}

}  // namespace orrery::formats
