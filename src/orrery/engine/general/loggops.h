// Times of LogGOPS' rates: o and g are paid by a message, O and G by each of its bytes but the
// first.
#pragma once

#include <cstdint>

#include "orrery/base/int128.h"
#include "orrery/base/time.h"

namespace orrery::engine::general {

// `rate_as`: 10⁻¹⁸ s a byte; the product is rounded up once, at most kMaxDuration.
inline SimTime BytesTime(std::int64_t size_bytes, std::int64_t rate_as) {
  if (size_bytes <= 1 || rate_as == 0) return 0;
  const Uint128 as = static_cast<Uint128>(size_bytes - 1) * static_cast<Uint128>(rate_as);
  const Uint128 ps = (as + 999'999) / 1'000'000;
  return ps > static_cast<Uint128>(kMaxDuration) ? kMaxDuration : static_cast<SimTime>(ps);
}

}  // namespace orrery::engine::general
