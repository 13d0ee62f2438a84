#include "orrery/workload/importers/mpi/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "orrery/base/text.h"

namespace orrery::workload {
namespace {

constexpr std::int64_t kMostMicroseconds = std::int64_t{1} << 53;

std::string_view Cut(std::string_view* rest, char at) {
  const std::size_t end = std::min(rest->find(at), rest->size());
  const std::string_view cell = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return cell;
}

bool Creates(MpiCall call) { return call >= MpiCall::kCommSplit && call <= MpiCall::kCommUnknown; }

bool WholeOrAddress(std::string_view text, std::int64_t* value) {
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, *value);
  if (error == std::errc() && last == end) return true;
  // Addresses use all 64 bits.
  std::uint64_t address = 0;
  const auto [last2, error2] = std::from_chars(text.data(), end, address);
  *value = static_cast<std::int64_t>(address);
  return error2 == std::errc() && last2 == end;
}

// Microseconds, with a fraction or without, in ns; "-": unknown.
Result<std::int64_t> Time(std::string_view text, std::string_view what) {
  if (text == "-") return MpiRecord::kUnknown;
  const std::size_t dot = std::min(text.find('.'), text.size());
  std::int64_t us = 0;
  if (!WholeOrAddress(text.substr(0, dot), &us) || us < 0 || us > kMostMicroseconds) {
    return InvalidInput("{}: '{}' is no time in us", what, Printable(text, 40));
  }
  std::int64_t ns = 0, unit = 100;
  for (std::size_t i = dot + 1; i < text.size(); ++i, unit /= 10) {
    if (text[i] < '0' || text[i] > '9') {
      return InvalidInput("{}: '{}' is no time in us", what, Printable(text, 40));
    }
    ns += (text[i] - '0') * unit;
  }
  return us * 1000 + ns;
}

// A number of bytes from a count and a type's size.
Result<std::int64_t> Product(std::int64_t count, std::int64_t size, std::string_view what) {
  if (count < 0 || size < 0 || (size > 0 && count > kMostCallBytes / size) ||
      count > kMostCallBytes) {
    return InvalidInput("{}: {} elements of {} bytes", what, count, size);
  }
  return count * size;
}

// The fields of one line's arguments.
class Arguments {
 public:
  Arguments(std::string_view rest, MpiRecord* record) : rest_(rest), r_(*record) {}

  Status Read(std::string_view letters) {
    for (const char letter : letters) {
      if (letter == '*') return Finish(true);
      ORRERY_RETURN_IF_ERROR(One(letter));
    }
    return Finish(false);
  }

 private:
  Result<std::string_view> Field() {
    ++number_;
    const std::size_t end = rest_.find(':');
    if (end == rest_.npos) {
      return InvalidInput("argument {}: the line ends before it; is it cut off?", number_);
    }
    const std::string_view field = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return field;
  }
  Status NoNumber(std::string_view text, std::string_view what) const {
    return InvalidInput("argument {}{}: '{}' is no whole number", number_, what,
                        Printable(text, 40));
  }
  Result<std::int64_t> Number() {
    ORRERY_ASSIGN_OR_RETURN(const std::string_view field, Field());
    std::int64_t value = 0;
    if (!WholeOrAddress(field, &value)) return NoNumber(field, "");
    return value;
  }
  Result<std::int64_t> SizeOfType() {
    ORRERY_ASSIGN_OR_RETURN(std::string_view field, Field());
    Cut(&field, ',');
    const std::string_view size = Cut(&field, ',');
    std::int64_t value = 0;
    if (!WholeOrAddress(size, &value)) return NoNumber(size, ", size of the datatype");
    return value;
  }
  Status Communicator() {
    ORRERY_ASSIGN_OR_RETURN(std::string_view field, Field());
    std::int64_t numbers[3];
    for (std::int64_t& number : numbers) {
      const std::string_view cell = Cut(&field, ',');
      if (!WholeOrAddress(cell, &number)) return NoNumber(cell, ", communicator");
    }
    constexpr std::int64_t kMostRanks = 1 << 24;
    if (numbers[2] < 1 || numbers[2] > kMostRanks || numbers[1] < 0 || numbers[1] >= numbers[2]) {
      return InvalidInput("argument {}, communicator: no rank {} among {}", number_, numbers[1],
                          numbers[2]);
    }
    r_.comm = {static_cast<std::uint64_t>(numbers[0]), static_cast<std::int32_t>(numbers[1]),
               static_cast<std::int32_t>(numbers[2])};
    r_.has_comm = true;
    return {};
  }
  Status Counts(std::vector<std::int64_t>* counts) {
    ORRERY_RETURN_IF_ERROR(Field().status());  // its address
    ORRERY_ASSIGN_OR_RETURN(std::string_view list, Field());
    while (!list.empty()) {
      const std::string_view cell = Cut(&list, ',');
      if (!WholeOrAddress(cell, &counts->emplace_back())) return NoNumber(cell, ", counts");
    }
    return {};
  }

  Status One(char letter) {
    const auto number = [&](std::int64_t* to) -> Status {
      ORRERY_ASSIGN_OR_RETURN(*to, Number());
      return {};
    };
    switch (letter) {
      case 'n':
        return number(&r_.count);
      case 'N':
        return number(&received_);
      case 't':
        return SetSize(&r_.bytes, r_.count, &r_.out);
      case 'T':
        return SetSize(&r_.received_bytes, received_, &r_.in);
      case 'v':
        return Counts(&r_.out);
      case 'V':
        return Counts(&r_.in);
      case 'x': {
        ORRERY_RETURN_IF_ERROR(Field().status());
        return Field().status();
      }
      case 'd':
        return number(&r_.dest);
      case 'g':
        return number(&r_.tag);
      case 's':
        return number(&r_.source);
      case 'G':
        return number(&r_.source_tag);
      case 'k':
        return number(&r_.root);
      case 'l':
        return number(&r_.color);
      case 'y':
        return number(&r_.key);
      case 'R':
        return number(&r_.requests);
      case 'r': {
        ORRERY_ASSIGN_OR_RETURN(const std::int64_t address, Number());
        r_.request = static_cast<std::uint64_t>(address);
        r_.has_request = true;
        return {};
      }
      case 'c':
        return Communicator();
      default:
        return Field().status();
    }
  }

  Status SetSize(std::int64_t* bytes, std::int64_t count, std::vector<std::int64_t>* list) {
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t size, SizeOfType());
    const std::string_view what = "the buffer";
    for (std::int64_t& item : *list) {
      const std::int64_t count_of_one = item;
      ORRERY_ASSIGN_OR_RETURN(item, Product(count_of_one, size, what));
      *bytes += item;
      if (*bytes > kMostCallBytes) return InvalidInput("{}: more than 1 TiB", what);
      if (&r_.out == list && size > 0) r_.count += count_of_one;
    }
    if (!list->empty()) return {};
    ORRERY_ASSIGN_OR_RETURN(*bytes, Product(count, size, what));
    return {};
  }

  // What is left is the end's time, behind whatever is not read.
  Status Finish(bool skip) {
    if (skip) {
      const std::size_t last = rest_.rfind(':');
      if (last != rest_.npos) rest_.remove_prefix(last + 1);
    }
    if (rest_.find(':') != rest_.npos) {
      return InvalidInput("more arguments than {}, which the call has", number_);
    }
    ORRERY_ASSIGN_OR_RETURN(r_.end_ns, Time(rest_, "the end's time"));
    if (r_.end_ns >= 0 && r_.start_ns > r_.end_ns) return InvalidInput("it ends before it starts");
    return {};
  }

  std::string_view rest_;
  MpiRecord& r_;
  std::int64_t received_ = 0;
  int number_ = 0;
};

}  // namespace

bool IsMpiTrace(std::string_view start) {
  if (IsDumpiText(start)) return true;
  // Comments, and the empty line that liballprof puts between its header and the calls.
  while (start.starts_with('#') || start.starts_with('\n') || start.starts_with("\r\n")) {
    const std::size_t end = start.find('\n');
    if (end == start.npos) return false;
    start.remove_prefix(end + 1);
  }
  return start.starts_with("MPI_") && start.substr(0, start.find('\n')).find(':') != start.npos;
}

MpiTraceReader::MpiTraceReader(std::string_view bytes, std::string name)
    : rest_(bytes), name_(std::move(name)) {
  if (IsDumpiText(bytes)) dumpi_.emplace(bytes, name_);
}

std::string MpiTraceReader::Where(std::uint32_t line) const {
  return fmt::format("{}:{}", Printable(name_), line);
}

std::string_view MpiTraceReader::Line() {
  while (!rest_.empty()) {
    std::string_view line = Cut(&rest_, '\n');
    ++line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && line.front() != '#') return line;
  }
  return {};
}

Result<bool> MpiTraceReader::Next(MpiRecord* record) {
  if (dumpi_) return dumpi_->Next(record);
  const std::string_view line = Line();
  if (line.empty()) return false;
  const Status parsed = Parse(line, record);
  if (!parsed.ok()) return Status(parsed).In(Where(line_));
  return true;
}

Result<bool> MpiTraceReader::NextCreation(MpiRecord* record) {
  for (;;) {
    if (dumpi_) {
      ORRERY_ASSIGN_OR_RETURN(const bool more, dumpi_->Next(record));
      if (!more) return false;
      if (Creates(record->call)) return true;
      continue;
    }
    const std::string_view line = Line();
    if (line.empty()) return false;
    if (!line.starts_with("MPI_C") && !line.starts_with("MPI_Gr")) continue;
    const MpiCallRow* const row = FindMpiCall(line.substr(0, line.find(':')));
    if (row == nullptr || !Creates(row->call)) continue;
    const Status parsed = Parse(line, record);
    if (!parsed.ok()) return Status(parsed).In(Where(line_));
    return true;
  }
}

Status MpiTraceReader::Parse(std::string_view line, MpiRecord* record) const {
  std::vector<std::int64_t> out = std::move(record->out), in = std::move(record->in);
  out.clear();
  in.clear();
  *record = MpiRecord{};
  record->out = std::move(out);
  record->in = std::move(in);
  record->line = line_;
  record->name = Cut(&line, ':');
  const MpiCallRow* const row = FindMpiCall(record->name);
  if (row == nullptr) return NoSuchCall(record->name);
  record->call = row->call;
  ORRERY_ASSIGN_OR_RETURN(record->start_ns, Time(Cut(&line, ':'), "the start's time"));
  const Status read = Arguments(line, record).Read(row->arguments);
  if (!read.ok()) return Status(read).In(std::string(record->name));
  return {};
}

}  // namespace orrery::workload
