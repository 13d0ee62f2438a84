// A packet, and the ring that holds packets on wires and in queues.
//
// Packets are values: they move from ring to ring and are never allocated one by one. A ring keeps
// the room it once needed.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/base/time.h"

namespace orrery::network::packet {

// kHeader is a data packet that a switch trimmed. kNack asks for `number` again, by a go-back-N
// receiver (all from there on) or for a trimmed packet (that one). kPull lets its sender send.
enum class Kind : std::uint8_t { kData, kHeader, kAck, kNack, kPull };

// Classes of a port's queues, in strict order of service. Control messages and headers are class 0;
// data of Transfer::priority p is class kClasses - 1 - p.
inline constexpr int kClasses = 4;

inline constexpr std::uint8_t kMarked = 1;    // congestion experienced
inline constexpr std::uint8_t kMarkEcho = 2;  // the acknowledged packet was marked
inline constexpr std::uint8_t kLastOfMessage = 4;
inline constexpr std::uint8_t kAckNow = 8;  // its sender can send no more before it hears

inline constexpr std::uint32_t kNone = 0xFFFFFFFFu;

struct Packet {
  SimTime at = 0;                  // on a wire: when it stands at the other end; queued: since when
  SimTime sent = 0;                // data: by its sender; what answers it echoes the time
  std::uint32_t flow = 0;          // the queue pair
  std::uint32_t number = 0;        // of the data packet; kAck: all below have arrived
  std::uint32_t path = 0;          // its first link, in the table of paths
  std::uint32_t extra = 0;         // kAck: the packet that caused it; kPull: pulls so far
  std::uint32_t note = kNone;      // telemetry record, or PINT's code
  std::int32_t bytes = 0;          // on the wire
  std::uint16_t entropy = 0;       // which of the flow's paths
  std::uint8_t hop = 0, hops = 0;  // the link it is on or waits for, of its path
  Kind kind = Kind::kData;
  std::uint8_t flags = 0;
  std::uint8_t cls = 0;
};

// First in, first out. Amortised O(1); capacity is a power of two and never shrinks.
template <class T>
class Ring {
 public:
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  T& front() { return items_[head_]; }
  const T& front() const { return items_[head_]; }
  T& back() { return items_[(head_ + count_ - 1) & (items_.size() - 1)]; }
  // The i-th from the front.
  T& operator[](std::size_t i) { return items_[(head_ + i) & (items_.size() - 1)]; }
  const T& operator[](std::size_t i) const { return items_[(head_ + i) & (items_.size() - 1)]; }
  void Push(const T& item) {
    if (count_ == items_.size()) Grow();
    items_[(head_ + count_) & (items_.size() - 1)] = item;
    ++count_;
  }
  void Pop() {
    head_ = (head_ + 1) & static_cast<std::uint32_t>(items_.size() - 1);
    --count_;
  }

 private:
  void Grow() {
    std::vector<T> more(items_.empty() ? 4 : 2 * items_.size());
    for (std::size_t i = 0; i < count_; ++i) more[i] = items_[(head_ + i) & (items_.size() - 1)];
    items_.swap(more);
    head_ = 0;
  }

  std::vector<T> items_;
  std::uint32_t head_ = 0, count_ = 0;
};

// A set of packet numbers near each other, as bits. Memory: a bit for each number between the least
// and the greatest that are in it at once.
class NumberSet {
 public:
  bool Has(std::uint32_t n) const {
    return !words_.empty() && n - base_ < words_.size() * 64 && (Word(n) >> (n & 63) & 1) != 0;
  }
  // REQUIRES: n is not below any number given to Forget.
  void Add(std::uint32_t n) {
    while (words_.empty() || n - base_ >= words_.size() * 64) Grow();
    words_[(n >> 6) & (words_.size() - 1)] |= std::uint64_t{1} << (n & 63);
    ++count_;
  }
  void Remove(std::uint32_t n) {
    words_[(n >> 6) & (words_.size() - 1)] &= ~(std::uint64_t{1} << (n & 63));
    --count_;
  }
  // No number below `n` is asked for or added again; those in the set must have been removed.
  void Forget(std::uint32_t n) { base_ = n & ~63u; }
  bool empty() const { return count_ == 0; }

 private:
  std::uint64_t Word(std::uint32_t n) const { return words_[(n >> 6) & (words_.size() - 1)]; }
  void Grow() {
    if (words_.empty()) {
      words_.assign(2, 0);
      return;
    }
    std::vector<std::uint64_t> more(2 * words_.size(), 0);
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const std::uint32_t n = base_ + static_cast<std::uint32_t>(i) * 64;
      more[(n >> 6) & (more.size() - 1)] = Word(n);
    }
    words_.swap(more);
  }

  std::vector<std::uint64_t> words_;
  std::uint32_t base_ = 0, count_ = 0;
};

}  // namespace orrery::network::packet
