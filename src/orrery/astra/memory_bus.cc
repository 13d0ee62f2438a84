#include "orrery/astra/memory_bus.h"

#include <utility>

namespace orrery::astra {
namespace {

// ASTRA-sim's constants.
constexpr double kInnerG = 0.0038;  // ns a byte
constexpr int kMostInRow = 8;       // sends; beyond them the other end goes first
constexpr Tick kProcessing = 50;    // ns of a reduction, beside those of its bytes

}  // namespace

MemoryBus::MemoryBus(const BusConfig& config, Hooks hooks)
    : config_(config), hooks_(std::move(hooks)) {
  ends_[kNpu].G = ends_[kMemory].G = config.G;
  ends_[kInnerNpu].G = ends_[kInnerMemory].G = kInnerG;
}

void MemoryBus::Move(bool to_memory, const Delivery& delivery, bool back) {
  Movement movement;
  movement.size = static_cast<std::int32_t>(delivery.bytes);
  movement.reduces = delivery.reduces;
  movement.back = back;
  movement.delivery = delivery;
  if (!to_memory) {
    ends_[kMemory].sends.push_back(movement);
    return Proceed(kMemory);
  }
  Movements one;
  one.push_back(movement);
  CrossInner(kInnerMemory, &one, Then::kSend);
}

// The first of a list crosses the inner bus; it reduces nothing there. What reduces or goes back
// turns round at the other end.
void MemoryBus::CrossInner(std::uint8_t from, Movements* list, Then then) {
  Movements& crossing = ends_[kNpu].on_inner;
  crossing.splice(crossing.end(), *list, list->begin());
  Movement& outer = crossing.back();
  outer.then = then;
  Movement inner;
  inner.size = outer.size;
  inner.back = from == kInnerNpu && then != Then::kRetire;
  inner.inner = true;
  inner.outer = std::prev(crossing.end());
  ends_[from].sends.push_back(inner);
  Proceed(from);
}

void MemoryBus::Proceed(std::uint8_t end) {
  End& own = ends_[end];
  if (own.state != State::kFree || own.sends.empty()) return;
  const auto other = static_cast<std::uint8_t>(end ^ 1u);
  if (own.sent > kMostInRow && !ends_[other].sends.empty() && ends_[other].sent <= kMostInRow) {
    return Proceed(other);
  }
  SendNext(end);
}

void MemoryBus::SendNext(std::uint8_t end) {
  End& own = ends_[end];
  const auto other = static_cast<std::uint8_t>(end ^ 1u);
  End& partner = ends_[other];
  Tick wait = config_.o;
  if (own.before == State::kSending) {
    const Tick since = hooks_.now() - own.last;
    if (config_.o + since <= config_.g) wait = config_.g - since;
  }
  const double bytes = own.sends.front().size - 1;
  partner.receives.splice(partner.receives.end(), own.sends, own.sends.begin());
  partner.before = partner.state;
  partner.state = State::kReceiving;
  partner.sent = 0;
  const auto start = static_cast<double>(wait);
  hooks_.schedule(WholeTicks(start + bytes * partner.G + static_cast<double>(config_.L) +
                             static_cast<double>(config_.o)),
                  other, Step::kReceived);
  own.state = State::kSending;
  hooks_.schedule(WholeTicks(start + own.G * bytes), end, Step::kSent);
}

void MemoryBus::Handle(std::uint8_t end, Step step) {
  End& own = ends_[end];
  switch (step) {
    case Step::kSent:
      own.last = hooks_.now();
      own.before = own.state;
      own.state = State::kFree;
      ++own.sent;
      break;
    case Step::kReceived:
      own.last = hooks_.now();
      own.before = own.state;
      if (own.receives.size() < 2) own.state = State::kFree;
      Received(end);
      break;
    case Step::kProcessed:
      Processed(end);
      break;
  }
  Proceed(end);
}

void MemoryBus::StartProcessing(std::uint8_t end) {
  End& own = ends_[end];
  if (own.processing || own.in_work.empty()) return;
  own.processing = true;
  const auto hundreds = static_cast<Tick>(own.in_work.front().size / 100);
  hooks_.schedule(hundreds * config_.reduction_delay + kProcessing, end, Step::kProcessed);
}

void MemoryBus::Received(std::uint8_t end) {
  End& own = ends_[end];
  Movement& first = own.receives.front();
  if (first.reduces) {
    first.reduces = false;
    if (end == kNpu) {
      CrossInner(kInnerNpu, &own.receives, Then::kProcess);
    } else {
      own.in_work.splice(own.in_work.end(), own.receives, own.receives.begin());
    }
    StartProcessing(end);
  } else if (first.back) {
    first.back = false;
    if (end == kNpu) {
      CrossInner(kInnerNpu, &own.receives, Then::kSend);
    } else {
      own.sends.splice(own.sends.end(), own.receives, own.receives.begin());
    }
  } else if (end == kNpu) {
    CrossInner(kInnerNpu, &own.receives, Then::kRetire);
  } else {
    const Movement done = first;
    Finish(done);
    own.receives.pop_front();
  }
}

void MemoryBus::Processed(std::uint8_t end) {
  End& own = ends_[end];
  own.processing = false;
  Movement& first = own.in_work.front();
  if (first.back) {
    first.back = false;
    if (end == kNpu) {
      CrossInner(kInnerNpu, &own.in_work, Then::kSend);
    } else {
      own.sends.splice(own.sends.end(), own.in_work, own.in_work.begin());
    }
  } else if (end == kNpu) {
    CrossInner(kInnerNpu, &own.in_work, Then::kRetire);
  } else {
    const Movement done = first;
    Finish(done);
    own.in_work.pop_front();
  }
  StartProcessing(end);
}

void MemoryBus::Finish(const Movement& movement) {
  if (!movement.inner) return hooks_.done(movement.delivery);
  End& npu = ends_[kNpu];
  const Movements::iterator outer = movement.outer;
  switch (outer->then) {
    case Then::kSend:
      npu.sends.splice(npu.sends.end(), npu.on_inner, outer);
      break;
    case Then::kProcess:
      npu.in_work.splice(npu.in_work.end(), npu.on_inner, outer);
      StartProcessing(kNpu);
      break;
    case Then::kRetire: {
      const Delivery delivery = outer->delivery;
      hooks_.done(delivery);
      npu.on_inner.erase(outer);
      break;
    }
  }
  Proceed(kNpu);
}

}  // namespace orrery::astra
