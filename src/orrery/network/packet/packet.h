// A packet, the pool that holds all of them, and the rings of wires and queues.
//
// A packet is one line of the cache and stays where it is from its sender to its receiver; wires
// and queues hold its number. A place that has become free is taken again first, while it is at
// hand. Nothing is allocated once a run has as many packets under way as it will have.
#pragma once

#include <array>
#include <cstddef>
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

inline constexpr std::size_t kSlots = 8;

struct alignas(64) Packet {
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
  // Of its path's first links: which of its sending node's links (Paths::slots).
  std::array<std::uint16_t, kSlots> slots{};
};
static_assert(sizeof(Packet) == 64);

class Pool {
 public:
  // References end.
  std::uint32_t Add(const Packet& packet) {
    if (free_.empty()) {
      packets_.push_back(packet);
      return static_cast<std::uint32_t>(packets_.size() - 1);
    }
    const std::uint32_t number = free_.back();
    free_.pop_back();
    packets_[number] = packet;
    return number;
  }
  Packet& operator[](std::uint32_t number) { return packets_[number]; }
  const Packet& operator[](std::uint32_t number) const { return packets_[number]; }
  // The next packet moves all others.
  bool full() const { return free_.empty() && packets_.size() == packets_.capacity(); }
  void Free(std::uint32_t number) { free_.push_back(number); }
  void FetchAhead(std::uint32_t number) const { __builtin_prefetch(packets_.data() + number); }

 private:
  std::vector<Packet> packets_;
  std::vector<std::uint32_t> free_;
};

// A packet on a link, or, link kNone, a pause.
struct Passing {
  SimTime at = 0;  // at the other end
  std::uint32_t link = 0;
  std::uint32_t packet = 0;  // in the pool; of pauses: which
  std::uint16_t slot = 0;    // of the link that it leaves the other end by
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
  const T& back() const { return items_[(head_ + count_ - 1) & (items_.size() - 1)]; }
  // The i-th from the front.
  T& operator[](std::size_t i) { return items_[(head_ + i) & (items_.size() - 1)]; }
  const T& operator[](std::size_t i) const { return items_[(head_ + i) & (items_.size() - 1)]; }
  // Has the place of the next Push at hand soon.
  void FetchEnd() const {
    __builtin_prefetch(items_.data() + ((head_ + count_) & (items_.size() - 1)));
  }
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
// and the greatest that are in it at once, the first 256 where the set is.
class NumberSet {
 public:
  bool Has(std::uint32_t n) const {
    return n - base_ < words() * 64 && (*Word(n) >> (n & 63) & 1) != 0;
  }
  // REQUIRES: n is not below any number given to Forget.
  void Add(std::uint32_t n) {
    while (n - base_ >= words() * 64) Grow();
    *Word(n) |= std::uint64_t{1} << (n & 63);
    ++count_;
  }
  void Remove(std::uint32_t n) {
    *Word(n) &= ~(std::uint64_t{1} << (n & 63));
    --count_;
  }
  // No number below `n` is asked for or added again; those in the set must have been removed.
  void Forget(std::uint32_t n) { base_ = n & ~63u; }
  bool empty() const { return count_ == 0; }
  std::uint32_t size() const { return count_; }

 private:
  std::size_t words() const { return more_.empty() ? few_.size() : more_.size(); }
  const std::uint64_t* Word(std::uint32_t n) const {
    return &(more_.empty() ? few_.data() : more_.data())[(n >> 6) & (words() - 1)];
  }
  std::uint64_t* Word(std::uint32_t n) {
    return &(more_.empty() ? few_.data() : more_.data())[(n >> 6) & (words() - 1)];
  }
  void Grow() {
    std::vector<std::uint64_t> more(2 * words(), 0);
    for (std::size_t i = 0; i < words(); ++i) {
      const std::uint32_t n = base_ + static_cast<std::uint32_t>(i) * 64;
      more[(n >> 6) & (more.size() - 1)] = *Word(n);
    }
    more_.swap(more);
  }

  std::array<std::uint64_t, 4> few_{};
  std::vector<std::uint64_t> more_;  // in its place
  std::uint32_t base_ = 0, count_ = 0;
};

}  // namespace orrery::network::packet
