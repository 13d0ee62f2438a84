#include "orrery/workload/schedule_file.h"

#include <charconv>

#include "orrery/base/text.h"

namespace orrery::workload {
namespace {

constexpr std::string_view kVersion = "orrery.schedule/1";
constexpr std::size_t kMostPasses = 10'000'000;

class Reader {
 public:
  Reader(std::string_view name, std::string_view text) : name_(name), text_(text) {
    out_.name = name;
  }

  Result<GivenSchedule> Read() {
    bool versioned = false;
    while (!text_.empty()) {
      std::string_view line = NextLine();
      line = line.substr(0, line.find('#'));
      std::string_view word = NextWord(&line);
      if (word.empty()) continue;
      if (!versioned) {
        if (word != kVersion) {
          return InvalidInput("{}, line {}: the first word must be {}, not '{}'", name_, line_,
                              kVersion, Printable(word, 40));
        }
        versioned = true;
      } else if (word == "shape") {
        ORRERY_RETURN_IF_ERROR(Shape(NextWord(&line)));
      } else if (word == "match") {
        ORRERY_RETURN_IF_ERROR(Match(NextWord(&line)));
      } else if (word == "stage") {
        ORRERY_RETURN_IF_ERROR(Stage(line));
      } else {
        return InvalidInput("{}, line {}: '{}'; a line begins with shape, match or stage", name_,
                            line_, Printable(word, 40));
      }
    }
    if (out_.stages.empty()) {
      return InvalidInput("{}: no stages; the first line is {}, then a line 'stage 0: F0 B0' each",
                          name_, kVersion);
    }
    return std::move(out_);
  }

 private:
  std::string_view NextLine() {
    ++line_;
    return TakeLine(&text_);
  }
  static std::string_view NextWord(std::string_view* line) {
    const std::size_t begin = std::min(line->find_first_not_of(" \t\r"), line->size());
    line->remove_prefix(begin);
    const std::size_t end = std::min(line->find_first_of(" \t\r"), line->size());
    const std::string_view word = line->substr(0, end);
    line->remove_prefix(end);
    return word;
  }

  Status Shape(std::string_view shape) {
    if (shape != "straight" && shape != "v") {
      return InvalidInput("{}, line {}: shape '{}'; must be straight or v", name_, line_,
                          Printable(shape, 40));
    }
    out_.v_shape = shape == "v";
    return {};
  }

  Status Match(std::string_view rule) {
    if (rule != "order" && rule != "microbatch") {
      return InvalidInput("{}, line {}: match '{}'; must be order or microbatch", name_, line_,
                          Printable(rule, 40));
    }
    out_.by_microbatch = rule == "microbatch";
    return {};
  }

  // "2: F0 F1/1 …": stages come in order.
  Status Stage(std::string_view line) {
    std::string_view word = NextWord(&line);
    const std::string expected = fmt::format("{}:", out_.stages.size());
    if (word != expected) {
      return InvalidInput("{}, line {}: stage '{}'; stages come in order, this is '{}'", name_,
                          line_, Printable(word, 40), expected);
    }
    std::vector<PipelinePass>& passes = out_.stages.emplace_back();
    for (word = NextWord(&line); !word.empty(); word = NextWord(&line)) {
      PipelinePass pass;
      if (!Pass(word, &pass)) {
        return InvalidInput(
            "{}, line {}: '{}'; a pass is F (forward), B (backward), D (data gradients) or W "
            "(weight gradients) with a micro-batch, and /chunk for all but the first: F3, D0/1",
            name_, line_, Printable(word, 40));
      }
      passes.push_back(pass);
      if (++count_ > kMostPasses) {
        return InvalidInput("{}: more than {} passes", name_, kMostPasses);
      }
    }
    return {};
  }

  static bool Pass(std::string_view word, PipelinePass* pass) {
    constexpr std::string_view kLetters = "FBDW";
    const std::size_t kind = kLetters.find(word.front());
    if (kind == std::string_view::npos) return false;
    pass->kind = static_cast<PipelinePass::Kind>(kind);
    word.remove_prefix(1);
    const std::size_t slash = std::min(word.find('/'), word.size());
    if (!Number(word.substr(0, slash), &pass->microbatch)) return false;
    return slash == word.size() || Number(word.substr(slash + 1), &pass->chunk);
  }
  static bool Number(std::string_view digits, int* value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *value);
    return error == std::errc() && end == digits.data() + digits.size() && *value >= 0;
  }

  std::string_view name_, text_;
  std::size_t line_ = 0, count_ = 0;
  GivenSchedule out_;
};

}  // namespace

Result<GivenSchedule> ParseSchedule(std::string_view name, std::string_view text) {
  return Reader(name, text).Read();
}

}  // namespace orrery::workload
