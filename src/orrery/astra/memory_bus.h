// ASTRA-sim's memory bus (`model-shared-bus`): what an NPU hands over to its memory, or back, takes
// turns on a bus with LogGP's L, o, g and G, in place of a fixed delay.
//
// A bus has two ends; one sends while the other receives. An end that has sent more than eight
// in a row lets the other go first. What the NPU's end sends or has received crosses a second bus
// of its own first, the inner one, whose G is fixed. Where a movement is reduced the receiving end
// works on one at a time.
//
// Source: astra-sim 518bd51 (its behaviour: which lists there are, in which order events are
// registered, and where a time in double is cut to whole ns). Cost: four events a movement at
// least.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>

#include "orrery/astra/config.h"

namespace orrery::astra {

class MemoryBus {
 public:
  enum class Step : std::uint8_t { kSent, kReceived, kProcessed };
  // What was asked for, handed back when it is done.
  struct Delivery {
    std::uint32_t stream = 0;
    std::uint64_t bytes = 0;
    bool reduces = false;  // here, and three passes over local memory are still to come
  };
  struct Hooks {
    std::function<Tick()> now;
    std::function<void(Tick delay, std::uint8_t end, Step step)> schedule;
    std::function<void(const Delivery&)> done;
  };

  MemoryBus(const BusConfig& config, Hooks hooks);
  MemoryBus(const MemoryBus&) = delete;
  MemoryBus& operator=(const MemoryBus&) = delete;

  // From the NPU to its memory, or back; `back`: it returns over the bus before it is done.
  // REQUIRES: bytes < 2^31.
  void Move(bool to_memory, const Delivery& delivery, bool back);
  // A step that was scheduled is over.
  void Handle(std::uint8_t end, Step step);

 private:
  enum class State : std::uint8_t { kFree, kSending, kReceiving };
  // Where a movement goes on when the inner bus is done with it.
  enum class Then : std::uint8_t { kSend, kProcess, kRetire };
  struct Movement;
  using Movements = std::list<Movement>;
  struct Movement {
    std::int32_t size = 0;
    bool reduces = false, back = false;
    Delivery delivery;        // of the outer bus
    Then then = Then::kSend;  // while on the inner bus
    bool inner = false;       // on the inner bus: `outer` waits for it
    Movements::iterator outer;
  };
  struct End {
    State state = State::kFree, before = State::kFree;
    Tick last = 0;  // a transfer's end
    int sent = 0;   // in a row
    double G = 0;
    bool processing = false;
    Movements sends, receives, in_work;
    Movements on_inner;  // the NPU's: crossing the inner bus
  };
  // The NPU's end and its memory's; the same of the inner bus.
  static constexpr std::uint8_t kNpu = 0, kMemory = 1, kInnerNpu = 2, kInnerMemory = 3;

  void Proceed(std::uint8_t end);
  void SendNext(std::uint8_t end);
  void Received(std::uint8_t end);
  void Processed(std::uint8_t end);
  void CrossInner(std::uint8_t from, Movements* list, Then then);
  void StartProcessing(std::uint8_t end);
  void Finish(const Movement& movement);

  BusConfig config_;
  Hooks hooks_;
  std::array<End, 4> ends_;
};

}  // namespace orrery::astra
