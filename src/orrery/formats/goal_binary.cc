// GOAL's binary form, read and written. Every offset and index of a file is checked before use.
#include <algorithm>
#include <bit>
#include <cstring>

#include "orrery/base/text.h"
#include "orrery/formats/goal.h"
#include "orrery/formats/goal_forms.h"

namespace orrery::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "the binary form is little endian");

using Kind = GoalSchedule::Kind;

constexpr std::uint64_t kCookie = 4223;
constexpr std::uint64_t kUsed = 2342;  // a destructive run leaves this
constexpr std::size_t kHead = 8;       // of the cookie; offsets count from here
constexpr std::size_t kTable = 14;
constexpr std::size_t kRecord = 39;

template <class T>
T At(std::string_view bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

class BinaryReader {
 public:
  BinaryReader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Result<GoalSchedule> Read() {
    ORRERY_RETURN_IF_ERROR(ReadHead());
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) ORRERY_RETURN_IF_ERROR(ReadRank(rank));
    return Take();
  }
  Status ReadParts(const GoalPart& use) {
    ORRERY_RETURN_IF_ERROR(ReadHead());
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      builder_ = GoalBuilder(rank);
      ORRERY_RETURN_IF_ERROR(ReadRank(rank));
      ORRERY_ASSIGN_OR_RETURN(const GoalSchedule part, Take());
      ORRERY_RETURN_IF_ERROR(use(part, ranks_));
    }
    return {};
  }

 private:
  Status ReadHead() {
    if (bytes_.size() < kTable) return Error(bytes_.size(), "the file ends within its head");
    if (At<std::uint64_t>(bytes_, 0) == kUsed) {
      return Error(0, "a run with --save-mem has used this file up; make it again from the text");
    }
    const auto ranks = At<std::uint32_t>(bytes_, kHead);
    if (ranks == 0 || ranks > kMaxGoalRanks) {
      return Error(kHead, fmt::format("{} ranks; 1 to {} are possible", ranks, kMaxGoalRanks));
    }
    if ((bytes_.size() - kTable) / 16 < ranks) {
      return Error(kHead, fmt::format("{} ranks, but the file ends within their table; it is cut "
                                      "short or no GOAL file",
                                      ranks));
    }
    ranks_ = ranks;
    return {};
  }
  Result<GoalSchedule> Take() {
    Result<GoalSchedule> schedule = builder_.Take(false);
    if (!schedule.ok()) return std::move(schedule).TakeStatus().In(name_);
    schedule->cpus = std::max<int>(schedule->cpus, At<std::uint8_t>(bytes_, 12) + 1);
    schedule->nics = std::max<int>(schedule->nics, At<std::uint8_t>(bytes_, 13) + 1);
    return schedule;
  }

  Status Error(std::size_t offset, const std::string& what) const {
    return InvalidInput("{}: byte {}: {}", name_, offset, what);
  }

  Status ReadRank(std::uint32_t rank) {
    const std::size_t entry = kTable + 16 * std::size_t{rank};
    const auto begin = At<std::uint64_t>(bytes_, entry);
    const auto end = At<std::uint64_t>(bytes_, entry + 8);
    const std::uint64_t size = bytes_.size() - kHead;
    if (begin > end || end > size || end - begin < 8) {
      return Error(entry, fmt::format("the section of rank {} is bytes {} to {} of {}", rank, begin,
                                      end, size));
    }
    // A rank's operations stand once, so that a small file cannot ask for much memory.
    sections_ += end - begin;
    if (sections_ > size) {
      return Error(entry, fmt::format("the section of rank {} overlaps another's", rank));
    }
    section_ = bytes_.substr(kHead + begin, end - begin);
    offset_ = kHead + begin;
    const auto ops = At<std::uint32_t>(section_, 0);
    const auto roots = At<std::uint32_t>(section_, 4);
    const std::uint64_t records = 8 + 4 * std::uint64_t{roots};
    appendix_ = records + kRecord * std::uint64_t{ops};
    if (appendix_ > section_.size()) {
      return Error(offset_, fmt::format("rank {} has {} operations and {} roots, more than its "
                                        "section of {} bytes holds",
                                        rank, ops, roots, section_.size()));
    }
    builder_.BeginRank();
    for (std::uint32_t op = 0; op < ops; ++op) {
      ORRERY_RETURN_IF_ERROR(ReadOp(records + kRecord * std::uint64_t{op}));
    }
    open_.assign(ops, 0);
    edges_ = 0;
    for (std::uint32_t op = 0; op < ops; ++op) {
      const std::size_t record = records + kRecord * std::size_t{op};
      ORRERY_RETURN_IF_ERROR(ReadEdges(op, ops, record + 23, false));
      ORRERY_RETURN_IF_ERROR(ReadEdges(op, ops, record + 31, true));
    }
    for (std::uint32_t op = 0; op < ops; ++op) {
      const std::size_t record = records + kRecord * std::size_t{op};
      const auto open = At<std::uint32_t>(section_, record);
      if (open != open_[op]) {
        return Error(offset_ + record, fmt::format("operation {} of rank {} waits for {} others, "
                                                   "but {} lead to it; the file was changed",
                                                   op, rank, open, open_[op]));
      }
    }
    return {};
  }

  Status ReadOp(std::size_t record) {
    const auto kind = At<std::uint8_t>(section_, record + 4);
    const auto peer = At<std::uint32_t>(section_, record + 5);
    const auto size = At<std::uint64_t>(section_, record + 9);
    const auto tag = At<std::uint32_t>(section_, record + 17);
    if (kind < 1 || kind > 3) {
      return Error(offset_ + record + 4,
                   fmt::format("kind {} is none of 1 (send), 2 (recv), 3 (calc)", kind));
    }
    const bool any = kind == 2 && peer == GoalSchedule::kAny;
    if (kind != 3 && peer >= ranks_ && !any) {
      return Error(offset_ + record + 5,
                   fmt::format("peer {}: ranks are 0 to {}", peer, ranks_ - 1));
    }
    if (size > static_cast<std::uint64_t>(kMaxGoalSize)) {
      return Error(offset_ + record + 9, fmt::format("size {} is beyond {}", size, kMaxGoalSize));
    }
    if (kind == 1 && tag == GoalSchedule::kAny) {
      return Error(offset_ + record + 17, "a send needs a tag; only a receive takes any");
    }
    if (kind != 3 && tag > kMaxGoalTag && tag != GoalSchedule::kAny) {
      return Error(offset_ + record + 17, fmt::format("tag {} is beyond {}", tag, kMaxGoalTag));
    }
    const auto cpu = At<std::uint8_t>(section_, record + 21);
    if (kind == 3) {
      builder_.Add(Kind::kCalc, static_cast<std::int64_t>(size), 0, 0, cpu);
      return {};
    }
    builder_.Add(static_cast<Kind>(kind), static_cast<std::int64_t>(size), peer, tag, cpu,
                 At<std::uint8_t>(section_, record + 22));
    return {};
  }

  Status ReadEdges(std::uint32_t op, std::uint32_t ops, std::size_t field, bool start) {
    const auto count = At<std::uint32_t>(section_, field);
    const auto first = At<std::uint32_t>(section_, field + 4);
    const std::uint64_t entries = (section_.size() - appendix_) / 4;
    if (count > 0 && (first > entries || count > entries - first)) {
      return Error(offset_ + field,
                   fmt::format("{} dependents from entry {} on, but there are {} entries", count,
                               first, entries));
    }
    edges_ += count;
    if (edges_ > entries) {
      return Error(offset_ + field, fmt::format("entries of operation {} are another's, too", op));
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::size_t entry = appendix_ + 4 * (std::size_t{first} + i);
      const auto to = At<std::uint32_t>(section_, entry);
      if (to >= ops) {
        return Error(offset_ + entry, fmt::format("operation {}: the rank has {}", to, ops));
      }
      builder_.Require(to, op, start);
      ++open_[to];
    }
    return {};
  }

  std::string_view bytes_;
  const std::string& name_;
  std::uint32_t ranks_ = 0;
  std::string_view section_;
  std::size_t offset_ = 0;      // of the section, in the file
  std::uint64_t appendix_ = 0;  // in the section
  std::uint64_t sections_ = 0;  // bytes of all sections so far
  std::uint64_t edges_ = 0;     // of the section, so far
  std::vector<std::uint32_t> open_;
  GoalBuilder builder_;
};

template <class T>
void Append(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

void AppendRank(const GoalSchedule& schedule, std::size_t rank, std::string* out) {
  const std::size_t first = schedule.first_op[rank], last = schedule.first_op[rank + 1];
  std::string records;
  std::vector<std::uint32_t> roots, appendix;
  const auto append_edges = [&](std::size_t op, bool start) {
    const auto begin = static_cast<std::uint32_t>(appendix.size());
    for (const std::uint32_t edge : schedule.edges_of(op)) {
      if (((edge & GoalSchedule::kStartEdge) != 0) == start) {
        appendix.push_back(edge & ~GoalSchedule::kStartEdge);
      }
    }
    Append(static_cast<std::uint32_t>(appendix.size()) - begin, &records);
    Append(begin, &records);
  };
  for (std::size_t op = first; op < last; ++op) {
    const GoalSchedule::Op& o = schedule.ops[op];
    if (o.open == 0) roots.push_back(static_cast<std::uint32_t>(op - first));
    Append(o.open, &records);
    Append(static_cast<std::uint8_t>(o.kind), &records);
    Append(o.peer, &records);
    Append(static_cast<std::uint64_t>(o.size), &records);
    Append(o.tag, &records);
    Append(o.cpu, &records);
    Append(o.nic, &records);
    append_edges(op, false);
    append_edges(op, true);
  }
  Append(static_cast<std::uint32_t>(last - first), out);
  Append(static_cast<std::uint32_t>(roots.size()), out);
  for (const std::uint32_t root : roots) Append(root, out);
  *out += records;
  for (const std::uint32_t entry : appendix) Append(entry, out);
}

}  // namespace

GoalForm SniffGoal(std::string_view start) {
  if (start.size() >= kHead) {
    const auto cookie = At<std::uint64_t>(start, 0);
    if (cookie == kCookie || cookie == kUsed) return GoalForm::kBinary;
  }
  // Comments and blank lines may come first.
  for (std::size_t at = 0; at < start.size();) {
    const std::string_view rest = start.substr(at);
    if (rest.starts_with("num_ranks")) return GoalForm::kText;
    if (rest.front() == ' ' || (rest.front() >= '\t' && rest.front() <= '\r')) {
      ++at;
    } else if (rest.starts_with("//")) {
      at += std::min(rest.find('\n'), rest.size());
    } else if (rest.starts_with("/*")) {
      const std::size_t end = rest.find("*/");
      if (end == std::string_view::npos) break;
      at += end + 2;
    } else {
      break;
    }
  }
  return GoalForm::kNone;
}

Result<GoalSchedule> ParseGoalBinary(std::string_view bytes, const std::string& name) {
  return BinaryReader(bytes, name).Read();
}

Status ParseGoalParts(std::string_view bytes, const std::string& name, const GoalPart& use) {
  const std::string shown = Printable(name);
  if (SniffGoal(bytes) == GoalForm::kBinary) return BinaryReader(bytes, shown).ReadParts(use);
  ORRERY_ASSIGN_OR_RETURN(const GoalSchedule whole, ParseGoalText(bytes, shown));
  return use(whole, static_cast<std::uint32_t>(whole.ranks()));
}

Result<GoalSchedule> ParseGoal(std::string_view bytes, const std::string& name) {
  const std::string shown = Printable(name);
  if (SniffGoal(bytes) == GoalForm::kBinary) return ParseGoalBinary(bytes, shown);
  return ParseGoalText(bytes, shown);
}

std::string GoalToBinary(const GoalSchedule& schedule) {
  std::string out;
  Append(kCookie, &out);
  Append(static_cast<std::uint32_t>(schedule.ranks()), &out);
  Append(static_cast<std::uint8_t>(schedule.cpus - 1), &out);
  Append(static_cast<std::uint8_t>(schedule.nics - 1), &out);
  std::string sections;
  const std::uint64_t begin = kTable - kHead + 16 * schedule.ranks();
  for (std::size_t rank = 0; rank < schedule.ranks(); ++rank) {
    Append(begin + sections.size(), &out);
    AppendRank(schedule, rank, &sections);
    Append(begin + sections.size(), &out);
  }
  return out + sections;
}

}  // namespace orrery::formats
