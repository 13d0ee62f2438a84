#include "orrery/workload/importers/mpi/dumpi.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "orrery/base/text.h"

namespace orrery::workload {
namespace {

constexpr std::string_view kDatatypes[] = {
#include "orrery_data_mpi_datatypes.inc"
};
constexpr std::string_view kEntering = " entering at walltime ",
                           kReturning = " returning at walltime ";
constexpr std::int64_t kMostSeconds = std::int64_t{1} << 33;
constexpr std::int64_t kMostTypeSize = std::int64_t{1} << 31;

bool Whole(std::string_view text, std::int64_t* value) {
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && last == end;
}
// The number that a text begins with: "2 (MPI_COMM_WORLD)".
bool First(std::string_view text, std::int64_t* value) {
  return Whole(text.substr(0, text.find(' ')), value);
}
std::string_view InBrackets(std::string_view text) {  // "9 (MPI_INT)"
  const std::size_t open = text.find('(');
  if (open == text.npos) return {};
  return text.substr(open + 1, text.find(')', open) - open - 1);
}

// "1296777956.739674000, cputime …", in ns.
bool Time(std::string_view text, std::int64_t* ns) {
  text = text.substr(0, text.find(','));
  const std::size_t dot = text.find('.');
  std::int64_t seconds = 0, part = 0;
  constexpr std::size_t kDigits = 9;
  if (dot == text.npos || text.size() - dot - 1 != kDigits) return false;
  if (!Whole(text.substr(0, dot), &seconds) || !Whole(text.substr(dot + 1), &part)) return false;
  if (seconds < 0 || seconds > kMostSeconds || part < 0) return false;
  *ns = seconds * 1'000'000'000 + part;
  return true;
}

// "[1, 2]"; "<IGNORED>" is none.
bool List(std::string_view text, std::vector<std::int64_t>* values) {
  values->clear();
  if (text == "<IGNORED>") return true;
  if (!text.starts_with('[') || !text.ends_with(']')) return false;
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    if (!Whole(text.substr(0, end), &values->emplace_back())) return false;
    text.remove_prefix(std::min(text.size(), end + 2));
  }
  return true;
}

// "Datatype 9 (MPI_INT) has size 4"
bool TypeSize(std::string_view line, std::int64_t* type, std::int64_t* size) {
  constexpr std::string_view kStart = "Datatype ", kHas = " has size ";
  const std::size_t has = line.rfind(kHas);
  return line.starts_with(kStart) && has != line.npos && First(line.substr(kStart.size()), type) &&
         Whole(line.substr(has + kHas.size()), size) && *size >= 0 && *size <= kMostTypeSize;
}

}  // namespace

bool IsDumpiText(std::string_view start) {
  constexpr int kMostHeader = 64;
  for (int i = 0; i < kMostHeader && !start.empty(); ++i) {
    const std::string_view line = start.substr(0, start.find('\n'));
    start.remove_prefix(std::min(start.size(), line.size() + 1));
    if (line.starts_with("MPI_")) return line.find(kEntering) != line.npos;
    if (line.find('=') == line.npos) return false;  // the header has key=value only
  }
  return false;
}

DumpiReader::DumpiReader(std::string_view bytes, std::string name)
    : rest_(bytes), name_(std::move(name)) {
  // Sizes stand at the end, one behind the other.
  while (!bytes.empty()) {
    while (bytes.ends_with('\n') || bytes.ends_with('\r')) bytes.remove_suffix(1);
    const std::size_t before = bytes.rfind('\n');
    const std::string_view line = before == bytes.npos ? bytes : bytes.substr(before + 1);
    std::int64_t type = 0, size = 0;
    if (!TypeSize(line, &type, &size)) break;
    sizes_[type] = size;
    bytes.remove_suffix(line.size());
  }
}

std::string_view DumpiReader::Line() {
  std::string_view line = TakeLine(&rest_);
  ++line_;
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// What a call's arguments say, by their names.
class DumpiReader::Fields {
 public:
  Fields(const DumpiReader* reader, MpiRecord* record) : reader_(*reader), r_(*record) {}

  // "int count=1"
  Status Add(std::string_view line) {
    const std::size_t equals = line.find('=');
    const std::size_t space = line.find(' ');
    if (equals == line.npos || space > equals) {
      return InvalidInput("'{}' is no argument", Printable(line, 60));
    }
    std::string_view name = line.substr(space + 1, equals - space - 1);
    name = name.substr(0, name.find('['));
    const Status status = One(name, line.substr(equals + 1));
    return status.ok() ? status : Status(status).In(std::string(name));
  }

  std::int64_t comm() const { return static_cast<std::int64_t>(r_.comm.id); }
  std::int64_t group() const { return group_; }
  std::int64_t new_group() const { return new_group_; }
  const std::vector<std::int64_t>& ranks() const { return ranks_; }

  Status Finish() {
    const bool receives = r_.call == MpiCall::kRecv || r_.call == MpiCall::kRecvInit;
    if (receives) std::swap(sent_, received_);
    if (receives) r_.source_tag = r_.tag;
    const bool vector = r_.call == MpiCall::kReduceScatter && !counts_in_.empty();
    if (vector) counts_out_ = std::move(counts_in_);
    ORRERY_RETURN_IF_ERROR(Sum(sent_, counts_out_, &r_.bytes, &r_.out));
    ORRERY_RETURN_IF_ERROR(Sum(received_, counts_in_, &r_.received_bytes, &r_.in));
    r_.count = sent_.count;
    if (vector) {
      for (const std::int64_t count : counts_out_) r_.count += count;
    }
    return Completed();
  }

 private:
  struct Buffer {
    std::int64_t count = 0, size = 0;
  };

  static Status Wrong(std::string_view text) {
    return InvalidInput("'{}' is not what it takes", Printable(text, 60));
  }
  static Status Number(std::string_view text, std::int64_t* value) {
    return First(text, value) ? Status() : Wrong(text);
  }

  Status One(std::string_view name, std::string_view text) {
    if (name == "count") {  // of requests, too
      return Number(text, &sent_.count);
    }
    if (name == "sendcount") return Number(text, &sent_.count);
    if (name == "recvcount") return Number(text, &received_.count);
    if (name == "datatype" || name == "sendtype") return Type(text, &sent_);
    if (name == "recvtype") return Type(text, &received_);
    if (name == "dest") return Number(text, &r_.dest);
    if (name == "source") return Source(text);
    if (name == "tag" || name == "sendtag") return Number(text, &r_.tag);
    if (name == "recvtag") return Number(text, &r_.source_tag);
    if (name == "root") return Number(text, &r_.root);
    if (name == "color") return Number(text, &r_.color);
    if (name == "key") return Number(text, &r_.key);
    if (name == "comm" || name == "oldcomm") return Communicator(text);
    if (name == "newcomm") {
      std::int64_t handle = 0;
      ORRERY_RETURN_IF_ERROR(Number(text, &handle));
      r_.made = static_cast<std::uint64_t>(handle);
      return {};
    }
    if (name == "sendcounts") return List(text, &counts_out_) ? Status() : Wrong(text);
    if (name == "recvcounts") return List(text, &counts_in_) ? Status() : Wrong(text);
    if (name == "request" || name == "requests") return Requests(text);
    if (name == "index") return Number(text, &index_);
    if (name == "indices") return List(text, &indices_) ? Status() : Wrong(text);
    if (name == "flag") return Number(text, &flag_);
    if (name == "group") return Number(text, &group_);
    if (name == "newgroup") return Number(text, &new_group_);
    if (name == "ranks") return List(text, &ranks_) ? Status() : Wrong(text);
    return {};
  }

  Status Type(std::string_view text, Buffer* buffer) {
    ORRERY_ASSIGN_OR_RETURN(buffer->size, reader_.SizeOf(text));
    return {};
  }
  Status Source(std::string_view text) {
    ORRERY_RETURN_IF_ERROR(Number(text, &r_.source));
    constexpr std::int64_t kAny = -1;
    if (r_.source == kAny) {
      r_.source = MpiRecord::kAnySource;
    } else if (r_.source < 0) {
      r_.source = MpiRecord::kNobody;
    }
    return {};
  }
  Status Communicator(std::string_view text) {
    std::int64_t handle = 0;
    ORRERY_RETURN_IF_ERROR(Number(text, &handle));
    const std::string_view is = InBrackets(text);
    r_.has_comm = true;
    r_.comm = {.id = static_cast<std::uint64_t>(handle)};
    r_.comm.known = is == "MPI_COMM_WORLD"  ? MpiComm::Known::kWorld
                    : is == "MPI_COMM_SELF" ? MpiComm::Known::kAlone
                                            : MpiComm::Known::kByHandle;
    return {};
  }
  Status Requests(std::string_view text) {
    std::vector<std::int64_t> numbers;
    if (!List(text, &numbers)) return Wrong(text);
    r_.listed.assign(numbers.begin(), numbers.end());
    r_.has_request = !numbers.empty();
    if (r_.has_request) r_.request = r_.listed.front();
    return {};
  }

  static Status Sum(const Buffer& buffer, const std::vector<std::int64_t>& counts,
                    std::int64_t* bytes, std::vector<std::int64_t>* each) {
    const auto product = [&](std::int64_t count, std::int64_t* out) -> Status {
      if (count < 0 || (buffer.size > 0 && count > kMostCallBytes / buffer.size)) {
        return InvalidInput("{} elements of {} bytes", count, buffer.size);
      }
      *out = count * buffer.size;
      return {};
    };
    if (counts.empty()) return product(buffer.count, bytes);
    for (const std::int64_t count : counts) {
      ORRERY_RETURN_IF_ERROR(product(count, &each->emplace_back()));
      *bytes += each->back();
      if (*bytes > kMostCallBytes) return InvalidInput("more than 1 TiB");
    }
    return {};
  }

  // Which requests a call has found complete: a wait for these.
  Status Completed() {
    const bool tests = r_.call == MpiCall::kTest;
    if (!tests && r_.call != MpiCall::kWaitOne) return {};
    const std::vector<std::uint64_t> all = std::move(r_.listed);
    r_.listed.clear();
    const auto take = [&](std::int64_t index) -> Status {
      if (index < 0) return {};
      if (index >= static_cast<std::int64_t>(all.size())) {
        return InvalidInput("index {} of {} requests", index, all.size());
      }
      r_.listed.push_back(all[static_cast<std::size_t>(index)]);
      return {};
    };
    const bool any = r_.name == "MPI_Waitany" || (r_.name == "MPI_Testany" && flag_ == 1);
    if (any) ORRERY_RETURN_IF_ERROR(take(index_));
    for (const std::int64_t index : indices_) ORRERY_RETURN_IF_ERROR(take(index));
    if ((r_.name == "MPI_Test" || r_.name == "MPI_Testall") && flag_ == 1) r_.listed = all;
    r_.call = r_.listed.empty() ? MpiCall::kLocal : MpiCall::kWait;
    r_.has_request = !r_.listed.empty();
    return {};
  }

  const DumpiReader& reader_;
  MpiRecord& r_;
  Buffer sent_, received_;
  std::vector<std::int64_t> counts_out_, counts_in_, indices_, ranks_;
  std::int64_t index_ = -1, flag_ = 0, group_ = -1, new_group_ = -1;
};

// MPI_Comm_group, MPI_Group_incl. What other calls make of groups is not known.
void DumpiReader::MakeGroup(const Fields& fields, std::string_view name) {
  if (name == "MPI_Comm_group") {
    groups_[fields.group()] = {.comm = fields.comm(), .all = true, .members = {}};
    return;
  }
  const auto known = groups_.find(fields.group());
  if (known == groups_.end()) {
    groups_.erase(fields.new_group());
    return;
  }
  Group made = known->second;
  if (!made.all) {
    std::vector<std::int64_t> members;
    for (const std::int64_t place : fields.ranks()) {
      if (place < 0 || place >= static_cast<std::int64_t>(made.members.size())) continue;
      members.push_back(made.members[static_cast<std::size_t>(place)]);
    }
    made.members = std::move(members);
  } else {
    made.members = fields.ranks();
  }
  made.all = false;
  groups_[fields.new_group()] = std::move(made);
}

// MPI_Comm_create of a known group of its communicator is a split.
void DumpiReader::SplitByGroup(const Fields& fields, MpiRecord* record) const {
  const auto known = groups_.find(fields.group());
  if (known == groups_.end() || known->second.comm != fields.comm()) return;
  if (!known->second.all && known->second.members.empty()) return;
  record->call = MpiCall::kCommSplit;
  if (!known->second.all) record->group = known->second.members;
}

Result<std::int64_t> DumpiReader::SizeOf(std::string_view datatype) const {
  std::int64_t type = 0;
  if (!First(datatype, &type)) {
    return InvalidInput("'{}' is no datatype", Printable(datatype, 60));
  }
  const auto known = sizes_.find(type);
  if (known != sizes_.end()) return known->second;
  const std::string_view name = InBrackets(datatype);
  // Of a call whose root alone has one.
  if (name == "MPI_DATATYPE_ERROR" || name == "MPI_DATATYPE_NULL") return 0;
  for (std::size_t i = 1; i < std::size(kDatatypes) && !name.empty(); ++i) {
    const std::string_view row = kDatatypes[i];
    if (!row.starts_with(name) || row.substr(name.size(), 1) != ",") continue;
    std::int64_t size = 0;
    First(row.substr(name.size() + 1, row.find(',', name.size() + 1) - name.size() - 1), &size);
    return size;
  }
  return InvalidInput(
      "the text does not say how long datatype {} is; dumpi2ascii -a (or -S -X) writes that, too",
      Printable(datatype, 60));
}

// "MPI_Send called 5 times and ignored 2 times"
Status DumpiReader::Ignored(std::string_view line) const {
  constexpr std::string_view kIgnored = " times and ignored ";
  const std::size_t at = line.find(kIgnored);
  std::int64_t number = 0;
  if (!line.starts_with("MPI_") || at == line.npos ||
      !First(line.substr(at + kIgnored.size()), &number) || number <= 0) {
    return {};
  }
  // What takes no part may be left out.
  const std::string_view call = line.substr(0, line.find(' '));
  const MpiCallRow* const row = FindMpiCall(call);
  if (row != nullptr && row->call == MpiCall::kLocal) return {};
  return InvalidInput("{} calls of {} were ignored when the trace was taken: it is not whole",
                      number, Printable(call, 60));
}

Status DumpiReader::Call(std::string_view line, MpiRecord* record) {
  const std::string_view name = line.substr(0, line.find(kEntering));
  *record = MpiRecord{};
  record->name = name;
  record->line = line_;
  const MpiCallRow* const row = FindMpiCall(name);
  if (row == nullptr) return NoSuchCall(name);
  record->call = row->call;
  if (!Time(line.substr(name.size() + kEntering.size()), &record->start_ns)) {
    return InvalidInput("{}: '{}' has no time", name, Printable(line, 100));
  }
  Fields fields(this, record);
  const bool groups = name == "MPI_Comm_group" || name == "MPI_Group_incl";
  const bool skipped = row->call == MpiCall::kLocal && !groups;
  for (;;) {
    if (rest_.empty()) return InvalidInput("{}: the text ends within it; is it cut off?", name);
    line = Line();
    if (line.starts_with(name) && line.substr(name.size()).starts_with(kReturning)) break;
    if (line.find(kEntering) != line.npos) {
      return InvalidInput("{}: another call begins before it returns", name);
    }
    if (line.empty() || line.starts_with("Perfcounters") || skipped) continue;
    const Status added = fields.Add(line);
    if (!added.ok()) return Status(added).In(std::string(name));
  }
  if (!Time(line.substr(name.size() + kReturning.size()), &record->end_ns)) {
    return InvalidInput("{}: '{}' has no time", name, Printable(line, 100));
  }
  if (record->end_ns < record->start_ns) return InvalidInput("{}: it ends before it starts", name);
  if (groups) MakeGroup(fields, name);
  if (name == "MPI_Comm_create") SplitByGroup(fields, record);
  const Status finished = fields.Finish();
  return finished.ok() ? finished : Status(finished).In(std::string(name));
}

Result<bool> DumpiReader::Next(MpiRecord* record) {
  while (!rest_.empty()) {
    const std::string_view line = Line();
    const bool call = line.starts_with("MPI_") && line.find(kEntering) != line.npos;
    const Status status = call ? Call(line, record) : Ignored(line);
    if (!status.ok()) return Status(status).In(fmt::format("{}:{}", Printable(name_), line_));
    if (call) return true;
  }
  return false;
}

}  // namespace orrery::workload
