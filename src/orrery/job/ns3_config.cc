#include "orrery/job/ns3_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "orrery/base/check.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/network/packet/control.h"

namespace orrery::job {
namespace {

constexpr std::string_view kKeys[] = {
#include "orrery_data_ns3_keys.inc"
};

// A key of the table, with what it becomes.
const std::vector<formats::Field>& Ns3Keys() {
  static const std::vector<formats::Field> keys = [] {
    std::string text;
    for (const std::string_view line : kKeys) text.append(line).push_back('\n');
    Result<formats::Document> document = formats::ParseYaml(text, "data/ns3_keys.yaml");
    ORRERY_CHECK(document.ok(), "data/ns3_keys.yaml was read by the tests");
    return std::move(document->root.fields);
  }();
  return keys;
}

std::string_view TextOf(const formats::Field& row, std::string_view key) {
  const formats::Node* node = row.value.Find(key);
  return node == nullptr ? std::string_view() : std::string_view(node->text);
}

struct ConfigLine {
  std::int32_t number = 0;
  std::string_view key;
  std::vector<std::string_view> values;
};

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < line.size();) {
    const std::size_t begin = line.find_first_not_of(" \t\r", i);
    if (begin == std::string_view::npos || line[begin] == '#') break;
    i = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.push_back(line.substr(begin, i - begin));
  }
  return words;
}

std::optional<double> Number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return {};
  return value;
}

// CC_MODE in HPCC's rdma-hw.cc; any other number sends at line rate there.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kModes = {{
    {"1", "dcqcn-mellanox"},
    {"3", "hpcc"},
    {"7", "timely"},
    {"8", "dctcp"},
    {"10", "pint"},
    {"12", "none"},
}};

class Ns3Reader {
 public:
  Ns3Reader(std::string name, std::int64_t nic_Bps) : name_(std::move(name)), nic_Bps_(nic_Bps) {
    out_.document.sources.push_back(name_);
    out_.document.root.kind = formats::Node::Kind::kMap;
  }

  Result<Ns3Config> Read(std::string_view text) {
    ORRERY_RETURN_IF_ERROR(Split(text));
    ORRERY_RETURN_IF_ERROR(ReadMode());
    for (const ConfigLine& line : lines_) ORRERY_RETURN_IF_ERROR(ReadLine(line));
    SetWindow();
    WriteNotes();
    return std::move(out_);
  }

 private:
  std::string At(const ConfigLine& line) const { return fmt::format("{}:{}", name_, line.number); }

  Status Split(std::string_view text) {
    std::int32_t number = 0;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t end = std::min(text.find('\n', i), text.size());
      std::vector<std::string_view> words = Words(text.substr(i, end - i));
      i = end + 1;
      ++number;
      if (words.empty()) continue;
      ConfigLine line{number, words.front(), {words.begin() + 1, words.end()}};
      if (line.values.empty()) {
        return InvalidInput("{}: {} has no value", At(line), Printable(std::string(line.key)));
      }
      if (const ConfigLine* other = Find(line.key)) {
        return InvalidInput("{}: {} stands in line {} too", At(line), line.key, other->number);
      }
      lines_.push_back(std::move(line));
    }
    if (lines_.empty()) return InvalidInput("{}: no line has a key and a value", name_);
    return {};
  }
  const ConfigLine* Find(std::string_view key) const {
    const auto it = std::ranges::find(lines_, key, &ConfigLine::key);
    return it == lines_.end() ? nullptr : &*it;
  }

  Status ReadMode() {
    const ConfigLine* line = Find("CC_MODE");
    const std::string_view mode = line == nullptr ? "1" : line->values.front();
    const auto it = std::ranges::find(kModes, mode, &decltype(kModes)::value_type::first);
    if (it == kModes.end()) {
      return InvalidInput(
          "{}: CC_MODE {} is none of 1 (dcqcn-mellanox), 3 (hpcc), 7 (timely), 8 (dctcp), 10 "
          "(pint), 12 (none)",
          At(*line), Printable(std::string(mode)));
    }
    ORRERY_ASSIGN_OR_RETURN(control_, network::packet::FindControl(it->second));
    Set("congestion_control", std::string(it->second), line == nullptr ? 0 : line->number);
    return {};
  }

  void Set(std::string_view key, std::string text, std::int32_t number) {
    formats::Node node;
    node.kind = formats::Node::Kind::kScalar;
    node.text = std::move(text);
    node.line = number;
    out_.document.root.fields.push_back({std::string(key), number, 0, std::move(node)});
  }
  static void Add(const ConfigLine& line, std::string* list) {
    list->append(list->empty() ? "" : ", ").append(line.key);
  }
  void WriteNotes() {
    if (!inert_.empty()) {
      out_.notes.push_back(
          fmt::format("{}: without effect: {} (data/ns3_keys.yaml says why)", name_, inert_));
    }
    if (!unread_.empty()) {
      out_.notes.push_back(fmt::format("{}: {} does not read {}", name_, control_->name, unread_));
    }
  }

  Status ReadLine(const ConfigLine& line) {
    const auto row = std::ranges::find(Ns3Keys(), line.key, &formats::Field::key);
    if (row == Ns3Keys().end()) {
      std::vector<std::string_view> valid;
      for (const formats::Field& known : Ns3Keys()) valid.push_back(known.key);
      return InvalidInput("{}: {}", At(line),
                          UnknownName("key", Printable(std::string(line.key)), valid));
    }
    const std::string_view packet = TextOf(*row, "packet"), only = TextOf(*row, "only");
    const std::string_view why = TextOf(*row, "why");
    if (packet.empty() && only.empty()) {
      Add(line, &inert_);
      return {};
    }
    if (!only.empty()) return CheckOnly(line, only, why);
    if (TextOf(*row, "unit") == "rule") return ReadByRule(line, packet);
    return Convert(line, packet, TextOf(*row, "unit"));
  }

  // One value changes nothing; numbers are compared as such.
  Status CheckOnly(const ConfigLine& line, std::string_view only, std::string_view why) {
    const std::vector<std::string_view> expected = Words(only);
    bool same = expected.size() == line.values.size();
    for (std::size_t i = 0; same && i < expected.size(); ++i) {
      const auto value = Number(line.values[i]);
      same = value.has_value() && value == Number(expected[i]);
    }
    if (same) return {};
    return InvalidInput("{}: {} {} is not built: {}; it may be {}", At(line), line.key,
                        Printable(std::string(line.values.front())), why, only);
  }

  Status Convert(const ConfigLine& line, std::string_view packet, std::string_view unit) {
    constexpr std::string_view kOfAll[] = {"control_first", "buffer"};
    const bool of_all = std::ranges::find(kOfAll, packet) != std::end(kOfAll);
    if (!of_all && !network::packet::ReadsParameter(*control_, packet)) {
      Add(line, &unread_);
      return {};
    }
    const std::string value(line.values.front());
    if (unit == "rate") {
      Set(packet, value, line.number);
      return {};
    }
    const std::optional<double> number = Number(value);
    if (!number.has_value() || *number < 0) {
      return InvalidInput("{}: {}: '{}' is not a number from 0 on", At(line), line.key,
                          Printable(value));
    }
    if (unit == "switch") {
      Set(packet, *number != 0 ? "true" : "false", line.number);
    } else {
      Set(packet, value + std::string(unit == "number" ? "" : unit), line.number);
    }
    return {};
  }

  Status ReadByRule(const ConfigLine& line, std::string_view packet) {
    if (packet == "congestion_control") return {};
    if (packet.starts_with("ecn_")) return ReadMap(line, packet);
    const std::optional<double> number = Number(line.values.front());
    if (!number.has_value() || *number < 0 || *number > 1e9) {
      return InvalidInput("{}: {}: '{}' is not a number from 0 on", At(line), line.key,
                          Printable(std::string(line.values.front())));
    }
    if (packet == "cluster.nic_mtu_bytes") {
      out_.payload_bytes = static_cast<std::int64_t>(*number);
    } else if (packet == "ack_every") {
      const ConfigLine* payload = Find("PACKET_PAYLOAD_SIZE");
      const double bytes = payload == nullptr ? 1000 : Number(payload->values[0]).value_or(1000);
      Set("ack_every", fmt::format("{}", std::max(1.0, std::ceil(*number / bytes))), line.number);
    } else if (line.key == "HAS_WIN") {
      has_window_ = *number != 0;
      window_line_ = line.number;
    } else {
      window_varies_ = *number != 0;
    }
    return {};
  }

  // A map: how many pairs, then a rate in bit/s and its value, each.
  Status ReadMap(const ConfigLine& line, std::string_view packet) {
    if (control_->ecn == nullptr) {
      Add(line, &unread_);
      return {};
    }
    const auto bad = [&] {
      return InvalidInput(
          "{}: {} wants a number of pairs, and as many of a rate in bit/s and a value", At(line),
          line.key);
    };
    std::vector<double> numbers;
    for (const std::string_view word : line.values) {
      const auto number = Number(word);
      if (!number.has_value() || *number < 0) return bad();
      numbers.push_back(*number);
    }
    const double bits = 8 * static_cast<double>(nic_Bps_);
    double best = 0, value = 0;
    if (numbers.size() != 1 + 2 * static_cast<std::size_t>(numbers[0])) return bad();
    for (std::size_t i = 1; i < numbers.size(); i += 2) {
      if (std::abs(numbers[i] - bits) < std::abs(best - bits)) {
        best = numbers[i];
        value = numbers[i + 1];
      }
    }
    // NICs of a calibrated cluster are a little slower than their name says.
    if (std::abs(best - bits) > 0.1 * bits) {
      return InvalidInput("{}: {} names no rate near the NIC's, {:.0f} Gb/s", At(line), line.key,
                          bits * 1e-9);
    }
    Set(packet, packet == "ecn_most" ? fmt::format("{}", value) : fmt::format("{}kB", value),
        line.number);
    return {};
  }

  // A window beside the rate. HPCC and DCTCP have windows of their own.
  void SetWindow() {
    constexpr std::string_view kByRate[] = {"dcqcn-mellanox", "timely", "none"};
    if (!has_window_ || std::ranges::find(kByRate, control_->name) == std::end(kByRate)) return;
    Set("rate_window", window_varies_ ? "varying" : "bdp", window_line_);
  }

  std::string name_;
  std::int64_t nic_Bps_ = 0;
  std::vector<ConfigLine> lines_;
  const network::packet::ControlInfo* control_ = nullptr;
  bool has_window_ = true, window_varies_ = false;  // HPCC's defaults
  std::int32_t window_line_ = 0;
  std::string inert_, unread_;  // keys
  Ns3Config out_;
};

}  // namespace

Result<Ns3Config> ReadNs3Config(std::string_view text, const std::string& name,
                                std::int64_t nic_Bps) {
  return Ns3Reader(name, nic_Bps).Read(text);
}

}  // namespace orrery::job
