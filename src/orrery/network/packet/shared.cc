// Windows that threads share: which they are, who takes which switch, and what is handed over.
#include <algorithm>

#include "orrery/network/packet/fabric.h"

namespace orrery::network::packet {
namespace {

// Hops in a window that is worth sharing: a millisecond of work, where to meet costs some
// microseconds, and more where others want the cores, too. That a thread has none is found out.
constexpr std::uint64_t kWorthSharing = 8'000, kMostAsked = 1 << 16;
constexpr std::size_t kLettersAhead = 8;  // nodes whose letters are fetched ahead

}  // namespace

void Fabric::UseThreads(int threads, bool always) {
  asked_ = threads;
  always_ = always;
  worth_ = kWorthSharing;
  for (const Node& node : nodes_) window_ = std::min(window_, node.batch);
  paths_->Share([this] { Settle(); }, settings_.balance == Balance::kAdaptive);
}

// With the first window that is worth it: a small run has no other threads.
void Fabric::StartThreads() {
  workers_.resize(static_cast<std::size_t>(asked_));
  for (Worker& w : workers_) w.outgoing.resize(nodes_.size());
  letters_.resize(nodes_.size() * workers_.size());
  const auto switches = std::ranges::count(nodes_, false, &Node::host);
  taken_ = std::vector<std::atomic<bool>>(static_cast<std::size_t>(switches));
  threads_ = std::make_unique<WindowThreads>(asked_, [this](std::size_t w) { WorkThrough(w); });
}

void Fabric::RunSwitches(SimTime now) {
  if (open_) return CloseWindow();
  if (asked_ > 1 && end_ == kNever && WorthSharing(now)) return OpenWindow(now);
  const Event event = switch_events.Top();
  switch_events.Pop();
  if (TakeWake(event)) Wake(event.target, RunSwitch(&workers_.front(), event.target, now));
}

SimTime Fabric::EndAfter(SimTime now) {
  SimTime longest = 0;
  for (const Node& node : nodes_) {
    if (node.batch < kNever) longest = std::max(longest, node.batch);
  }
  return end_ = now + longest;
}

std::uint64_t Fabric::hops() const {
  std::uint64_t hops = 0;
  for (const Worker& w : workers_) hops += w.totals.hops;
  return hops;
}

// By what the last windows had to do.
bool Fabric::WorthSharing(SimTime now) {
  if (always_) return true;
  const auto windows = static_cast<std::uint64_t>((now - counted_since_) / window_);
  if (windows == 0) return worthwhile_;
  const std::uint64_t all = hops();
  worthwhile_ = all - counted_ >= windows * worth_;
  worth_ = std::max(worth_ - worth_ / 16, kWorthSharing);
  counted_since_ = now;
  counted_ = all;
  return worthwhile_;
}

void Fabric::OpenWindow(SimTime now) {
  if (threads_ == nullptr) StartThreads();
  window_begin_ = now;
  window_end_ = now + window_;
  turns_.clear();
  while (switch_events.NextTime() < window_end_) {
    const Event event = switch_events.Top();
    switch_events.Pop();
    if (TakeWake(event)) turns_.push_back({event.target});
  }
  // A thread has the same switches at hand as in the window before, mostly.
  std::ranges::sort(turns_, {}, &Turn::node);
  for (std::size_t i = 0; i < turns_.size(); ++i) taken_[i].store(false, std::memory_order_relaxed);
  ++totals().windows;
  open_ = true;
  threads_->Open();
}

// The switches that nobody has taken. The owner, who comes last, begins at the other end.
void Fabric::WorkThrough(std::size_t worker) {
  const std::size_t n = turns_.size(), others = workers_.size() - 1;
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t i = worker == 0 ? n - 1 - k : ((worker - 1) * n / others + k) % n;
    if (taken_[i].load(std::memory_order_relaxed)) continue;
    if (taken_[i].exchange(true, std::memory_order_relaxed)) continue;
    turns_[i].next = RunSwitch(&workers_[worker], turns_[i].node, window_begin_);
  }
}

void Fabric::CloseWindow() {
  WorkThrough(0);
  if (!threads_->Close()) worth_ = std::min(worth_ + worth_ / 2, kMostAsked);
  open_ = false;
  for (const Turn& turn : turns_) Wake(turn.node, turn.next);
  for (Worker& w : workers_) Deliver(&w);
}

// Hosts' letters are opened at once, with those that come next fetched ahead: what another thread
// wrote is far away. Those of switches are opened by who takes their turn.
void Fabric::Deliver(Worker* w) {
  const auto number = static_cast<std::size_t>(w - workers_.data());
  const auto window = static_cast<std::uint32_t>(totals().windows);
  const std::vector<std::uint32_t>& addressed = w->addressed;
  for (std::size_t i = 0; i < addressed.size(); ++i) {
    if (i + 2 * kLettersAhead < addressed.size()) {
      __builtin_prefetch(&w->outgoing[addressed[i + 2 * kLettersAhead]]);
      __builtin_prefetch(&nodes_[addressed[i + 2 * kLettersAhead]]);
    }
    if (i + kLettersAhead < addressed.size() && nodes_[addressed[i + kLettersAhead]].host) {
      FetchPackets(w->outgoing[addressed[i + kLettersAhead]]);
    }
    const std::uint32_t to = addressed[i];
    Node& node = nodes_[to];
    Outgoing& out = w->outgoing[to];
    if (node.host) {
      Read(&out, &node);
    } else {
      // Those of an earlier window come first: each link's are in order.
      if (node.letters != window) OpenLetters(to);
      node.letters = window;
      Letters& letters = letters_[to * workers_.size() + number];
      letters.packets.swap(out.packets);
      letters.pauses.swap(out.pauses);
    }
    Wake(to, std::exchange(out.earliest, kNever));
  }
  w->addressed.clear();
  for (const std::uint32_t packet : w->lost) pool_.Free(packet);
  for (const std::uint32_t note : w->unread) telemetry_.Free(note);
  w->lost.clear();
  w->unread.clear();
}

void Fabric::OpenLetters(std::uint32_t number) {
  Node& node = nodes_[number];
  if (node.letters == 0) return;
  node.letters = 0;
  const std::span<Letters> letters(&letters_[number * workers_.size()], workers_.size());
  for (const Letters& from : letters) FetchPackets(from);
  for (Letters& from : letters) Read(&from, &node);
}

void Fabric::Read(Letters* letters, Node* node) {
  const auto& [packets, pauses] = *letters;
  node->inbox.insert(node->inbox.end(), packets.begin(), packets.end());
  node->pauses.insert(node->pauses.end(), pauses.begin(), pauses.end());
  letters->packets.clear();
  letters->pauses.clear();
}

void Fabric::FetchPackets(const Letters& letters) {
  const char* begin = reinterpret_cast<const char*>(letters.packets.data());
  const std::size_t size = letters.packets.size() * sizeof(Passing);
  for (std::size_t at = 0; at < size; at += 64) __builtin_prefetch(begin + at);
}

const PacketCounts& Fabric::Count(SimTime now) {
  PacketTotals& sum = counts_;
  sum = {};
  for (const Worker& w : workers_) sum.Add(w.totals);
  for (PacketPort& p : counts_.ports) {
    if (p.paused_since < 0) continue;
    p.paused += std::max<SimTime>(now - p.paused_since, 0);
    p.paused_since = -1;
  }
  return counts_;
}

}  // namespace orrery::network::packet
