#include "orrery/engine/straight/periods.h"

namespace orrery::engine {

CallPattern::CallPattern(const std::vector<graph::Call>& calls)
    : calls_(&calls), since_(calls.size()) {
  std::vector<std::size_t> last;  // by event: its last call, counted from 1
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].event < 0) continue;
    const auto event = static_cast<std::size_t>(calls[i].event);
    if (event >= last.size()) last.resize(event + 1);
    if (last[event] > 0) since_[i] = static_cast<std::uint32_t>(i + 1 - last[event]);
    last[event] = i + 1;
  }
  for (const std::size_t call : last) named_.push_back(call > 0);
}

std::optional<CallPattern::Period> CallPattern::FindPeriod() const {
  constexpr std::size_t kRounds = 6, kShare = 4;
  constexpr int kTries = 1024;
  const std::size_t size = since_.size(), middle = size / 2;
  int tries = 0;
  for (std::size_t j = middle + 1; j < size && tries < kTries; ++j) {
    if (!Same(middle, j)) continue;
    ++tries;
    const std::size_t period = j - middle;
    std::size_t begin = middle;
    while (begin > 0 && Same(begin - 1, begin - 1 + period)) --begin;
    const std::size_t end = EndOfPeriods(middle, period);
    if (end - begin >= kRounds * period && end - begin >= size / kShare) {
      return Period{begin, end, period};
    }
  }
  return std::nullopt;
}

std::size_t CallPattern::EndOfPeriods(std::size_t from, std::size_t period) const {
  std::size_t at = from;
  while (at + period < since_.size() && Same(at, at + period)) ++at;
  return at + period;
}

std::uint64_t HashNotes::Repeated(std::uint32_t times, std::uint32_t calls, SimTime later) const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < notes_.size(); ++i) {
    const Note& note = notes_[i];
    if (note.value == 0 && note.growth == 0) continue;
    std::uint64_t value = note.value;
    auto call = static_cast<std::uint32_t>(first_ + i);
    for (std::uint32_t n = 0; n < times; ++n) {
      value += note.growth * static_cast<std::uint64_t>(later);
      call += calls;
      sum += CallWeight(call) * value;
    }
  }
  return sum;
}

}  // namespace orrery::engine
