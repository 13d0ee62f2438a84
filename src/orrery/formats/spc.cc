#include "orrery/formats/spc.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "orrery/base/text.h"

namespace orrery::formats {
namespace {

constexpr std::array<std::string_view, 5> kFields = {"ASU", "LBA", "size", "opcode", "time stamp"};

// The first five fields; how many there are.
std::size_t Split(std::string_view line, std::array<std::string_view, kFields.size()>* fields) {
  for (std::size_t i = 0; i < fields->size(); ++i) {
    const std::size_t comma = line.find(',');
    (*fields)[i] = Trimmed(line.substr(0, comma));
    if (comma == line.npos) return i + 1;
    line.remove_prefix(comma + 1);
  }
  return fields->size();
}

bool Whole(std::string_view text, std::int64_t most, std::int64_t* value) {
  if (text.starts_with('-')) return false;  // "-0", too
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && last == end && *value <= most;
}

bool Seconds(std::string_view text, SimTime* ps) {
  const std::size_t dot = std::min(text.find('.'), text.size());
  std::int64_t seconds = 0;
  if (!Whole(text.substr(0, dot), kMaxDuration / kSecond - 1, &seconds)) return false;
  std::int64_t fraction = 0, unit = kSecond / 10;
  for (std::size_t i = dot + 1; i < text.size(); ++i, unit /= 10) {
    if (text[i] < '0' || text[i] > '9') return false;
    fraction += (text[i] - '0') * unit;
  }
  *ps = seconds * kSecond + fraction;
  return true;
}

// The field that is wrong and what it takes, or empty.
std::string_view Read(const std::array<std::string_view, kFields.size()>& fields,
                      std::size_t* wrong, SpcRequest* request) {
  std::int64_t asu = 0;
  *wrong = 0;
  if (!Whole(fields[0], kMostSpcUnits - 1, &asu)) return "a whole number below 1,048,576";
  request->asu = static_cast<std::uint32_t>(asu);
  *wrong = 1;
  if (!Whole(fields[1], kMostSpcBlocks, &request->lba)) return "a whole number up to 2^42";
  *wrong = 2;
  if (!Whole(fields[2], kMostSpcBytes, &request->bytes)) return "bytes, up to 4 GiB";
  *wrong = 3;
  const std::string_view code = fields[3];
  if (code != "r" && code != "R" && code != "w" && code != "W") return "r or w";
  request->write = code == "w" || code == "W";
  *wrong = 4;
  if (!Seconds(fields[4], &request->at)) return "seconds below 4,000,000, as 12.345678";
  return {};
}

}  // namespace

bool IsSpc(std::string_view start) {
  while (!start.empty()) {
    const bool whole = start.find('\n') != start.npos;
    const std::string_view line = TakeLine(&start);
    if (Trimmed(line).empty()) continue;
    std::array<std::string_view, kFields.size()> fields;
    std::size_t wrong = 0;
    SpcRequest request;
    // A long line may be cut in its last field.
    return Split(line, &fields) == fields.size() &&
           (Read(fields, &wrong, &request).empty() || (!whole && wrong + 1 == fields.size()));
  }
  return false;
}

Result<std::vector<SpcRequest>> ParseSpc(std::string_view text, const std::string& name,
                                         std::size_t most) {
  std::vector<SpcRequest> requests;
  constexpr std::size_t kUsualLine = 28, kLongestLine = 4096, kMostReserved = 1 << 20;
  requests.reserve(std::min({most, text.size() / kUsualLine, kMostReserved}));
  for (std::size_t number = 1; !text.empty() && requests.size() < most; ++number) {
    const std::string_view start = text.substr(0, kLongestLine + 1);
    if (start.size() > kLongestLine && start.find('\n') == start.npos) {
      return InvalidInput(
          "{}:{}: a line of more than {} bytes; a request is ASU,LBA,SIZE,OPCODE,TIMESTAMP",
          Printable(name), number, kLongestLine);
    }
    const std::string_view line = TakeLine(&text);
    if (Trimmed(line).empty()) continue;
    std::array<std::string_view, kFields.size()> fields;
    const std::size_t there = Split(line, &fields);
    if (there < fields.size()) {
      return InvalidInput("{}:{}: {} of the fields ASU,LBA,SIZE,OPCODE,TIMESTAMP; is it cut off?",
                          Printable(name), number, there);
    }
    SpcRequest request;
    std::size_t wrong = 0;
    const std::string_view expected = Read(fields, &wrong, &request);
    if (!expected.empty()) {
      return InvalidInput("{}:{}: {} '{}' is not {}", Printable(name), number, kFields[wrong],
                          Printable(fields[wrong], 40), expected);
    }
    requests.push_back(request);
  }
  if (requests.empty()) return InvalidInput("'{}': no request in it", Printable(name));
  return requests;
}

}  // namespace orrery::formats
