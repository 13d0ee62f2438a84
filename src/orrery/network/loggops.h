// `loggops`: LogGOPS between end points; a transfer sees its two ends and a latency, no links
// between.
//
// Model. With B wire bytes (wire.h) a transfer from rank s to rank r
//   holds the processor of s for o + B·O, then the port out of s for g + B·G;
//   its first byte arrives o + L after the port began;
//   holds the port into r for g + B·G, then the processor of r for o + B·O;
//   is complete when o + max(B·O, B·G) has passed since its arrival was taken up.
// Each of the four serves one message after the other, first come first served. A port is the NIC's
// link on the path, the GPU's own NVLink inside a domain; GPUs that share a NIC share its port.
//
// Parameters. L and G are what the path gives: G is 1 over its least bandwidth, and L such that
// with o = g = O = 0 a transfer alone takes exactly Uncontended(). Where a job names L or G these
// stand instead, with o, g and O, for transfers that leave their NVLink domain; then packets' heads
// cost nothing and B - 1 bytes count, as in LogGOPS (Alexandrov et al., SPAA'95; Hoefler et al.,
// LSAP'10). Inside a domain the path stays. S plays no part: a chunk of a collective is sent into a
// buffer that waits for it.
//
// Assumptions. The network between the ends is never the bottleneck; unlike engine/general/joint.cc
// a NIC moves bytes without its processor's help, and processor and port are taken one after the
// other.
//
// Determinism. Messages that reach a processor or port at the same time go by (creator, creator's
// sequence). Partitions: a rank's processor and ports belong to its partition; a message crosses as
// its first byte arrives, at the earliest `lookahead` later.
//
// Statistics. Of the links that are ports: wire bytes; busy while held.
//
// Cost. Three events a transfer, two more where processors are held. 80 bytes a message in flight.
#pragma once

#include <vector>

#include "orrery/network/messages.h"
#include "orrery/network/network.h"
#include "orrery/network/path_cache.h"

namespace orrery::network {

class LogGopsNetwork final : public Network {
 public:
  explicit LogGopsNetwork(const LogGopsParameters& parameters) : parameters_(parameters) {}

  std::string_view name() const override { return "loggops"; }
  Status SetupLinks(const cluster::Cluster& cluster,
                    std::span<const std::uint32_t> partition_of_domain,
                    std::uint32_t partition) override;
  void Start(SimTime now, std::span<const Transfer> transfers) override;
  SimTime next_time() const override { return messages_.next_time(); }
  SimTime AdvanceUntil(SimTime t, std::vector<Completion>* done) override;
  void TakeRemote(std::vector<RemoteHop>* out) override { messages_.TakeRemote(out); }
  void Deliver(const RemoteHop& hop) override;
  SimTime lookahead() const override { return lookahead_; }
  std::span<const PortStatistics> statistics() override { return statistics_; }

 private:
  // What a message comes to next.
  enum class Stage : std::uint8_t { kSender, kPortOut, kPortIn, kReceiver, kDone };
  // LogGOPS as one size of message on one path has it.
  struct Path {
    std::uint32_t out = kNone, in = kNone;  // ports, as links; none where a GPU sends to itself
    std::int64_t least_Bps = 0;
    bool named = false;      // the parameters' own, not the path's
    std::int64_t wire = -1;  // size for which these hold
    SimTime flight = 0;      // o + L
    SimTime o = 0, g = 0, bytes_G = 0, bytes_O = 0;
  };
  struct Message {
    Transfer transfer;
    std::uint64_t sequence = 0;
    std::int64_t wire = 0;
    std::uint32_t path = 0;
    Stage stage = Stage::kSender;
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  Status CheckPorts() const;
  std::uint32_t NewMessage(const Transfer& transfer, std::uint64_t sequence);
  void MakePath(const Transfer& transfer, std::uint32_t number);
  void SetTimes(std::uint32_t number, std::int64_t wire);
  void Push(SimTime time, std::uint32_t id, Stage stage);
  void Take(std::uint32_t id);
  void LeavePort(std::uint32_t id, const Path& path);
  SimTime Hold(std::vector<SimTime>* free, std::size_t which, SimTime length) const;

  LogGopsParameters parameters_;
  const cluster::Cluster* cluster_ = nullptr;
  std::uint32_t partition_ = 0;
  std::vector<std::uint32_t> partition_of_domain_;
  SimTime lookahead_ = kNever;
  std::vector<SimTime> processor_;           // free from then on, by device
  std::vector<SimTime> port_out_, port_in_;  // by link
  std::vector<PortStatistics> statistics_;   // by link
  PathCache paths_;
  std::vector<Path> path_;  // by path number
  Messages<Message> messages_;
};

}  // namespace orrery::network
