#include "orrery/memory/repeats.h"

#include <algorithm>

namespace orrery::memory {
namespace {

constexpr std::size_t kLeast = 4;         // periods that are worth a run
constexpr int kTried = 64;                // periods tried at one place
constexpr std::size_t kMaxPeriod = 4096;  // calls

using graph::Call;

// Equal but for the micro-batch, which moves on by the same amount where there is one.
bool Follows(const Call& a, const Call& b, std::int32_t shift) {
  if (a.block != b.block || a.repeat != b.repeat || a.first_layer != b.first_layer ||
      a.chunk != b.chunk) {
    return false;
  }
  if (a.microbatch < 0 || b.microbatch < 0) return a.microbatch == b.microbatch;
  return b.microbatch - a.microbatch == shift;
}

RepeatedRun RunAt(const std::vector<Call>& calls, std::size_t begin, std::size_t period,
                  std::int32_t shift) {
  std::size_t at = begin;
  while (at + period < calls.size() && Follows(calls[at], calls[at + period], shift)) ++at;
  return {begin, period, (at - begin) / period + 1, shift};
}

}  // namespace

std::vector<RepeatedRun> FindRepeats(const std::vector<Call>& calls) {
  std::vector<RepeatedRun> runs;
  for (std::size_t i = 0; i < calls.size();) {
    RepeatedRun best;
    int tried = 0;
    const std::size_t last = std::min(calls.size(), i + kMaxPeriod);
    for (std::size_t j = i + 1; calls[i].microbatch >= 0 && j < last && tried < kTried; ++j) {
      const std::int32_t shift = calls[j].microbatch - calls[i].microbatch;
      if (shift <= 0 || !Follows(calls[i], calls[j], shift)) continue;
      ++tried;
      const RepeatedRun run = RunAt(calls, i, j - i, shift);
      if (run.count >= kLeast && run.count * run.period > best.count * best.period) best = run;
      if (best.begin + best.count * best.period == calls.size()) break;
    }
    if (best.count >= kLeast) {
      runs.push_back(best);
      i += best.count * best.period;
    } else {
      ++i;
    }
  }
  return runs;
}

}  // namespace orrery::memory
