// `links`: message level; each direction of each cluster link is a FIFO of messages.
//
// Model. A message of B wire bytes (payload and headers, see wire.h) goes hop by hop along the path
// that the cluster gives. It begins on link i at
//     begin_i = max(its head's arrival, the end of the message before it there);
// its head, min(MTU, B) bytes, goes on after head_i = head / bandwidth_i and the link's latency;
// its last byte leaves at
//     end_i = max(begin_i + B / bandwidth_i, arrival of its last byte + head_i),
// so a slow link holds the faster ones behind it (cut-through), and the link is free at end_i. The
// message is delivered at end_last + latency_last. Every quotient is rounded up to a whole ps once.
// Alone on its path a message takes exactly Uncontended().
//
// With adaptive routing a message takes, of 16 paths, the one whose longest queue is shortest when
// it starts, and keeps it; one partition only, and then the order of a batch counts.
//
// On a link that changes during the run (link_schedule.h) the quotients become the times in which
// it serves so many bytes from there on. A message that comes to a link that is down, or that has
// not passed one when it goes down, takes another path from there on (failures.h); all of it, where
// it had begun. One partition only. Where no path is left it waits for the link to return.
//
// Assumptions. Queues are unbounded and nothing is lost; a link serves messages whole, first come
// first served by arrival of the head; messages of one instant go by (creator, creator's sequence).
// Since a FIFO never reorders, a link's whole state is the time at which it becomes free.
//
// Determinism. A creator is the sending rank: its transfers are given in its own order, and all
// that it starts comes from one partition. Batches and their order change nothing else: a GPU's
// outgoing links are first hops only, so a start never meets a head that came to its link at the
// same instant.
//
// Partitions. An instance owns the links whose sending end lies in its partition: a GPU and its
// NVLink switch go with their NVLink domain, a NIC with its GPUs, a leaf with the lowest partition
// under it, spines are dealt round. A message whose next link (or receiver) is elsewhere leaves as
// a RemoteHop, at the earliest one latency after the event that sent it.
//
// Statistics. Bytes are wire bytes; busy is the time that a link's own bandwidth needs for them.
//
// Cost. One event a hop, one more for the delivery: two radix-heap operations and O(1) arithmetic
// without division (a link remembers its last message's size). No allocation per hop: paths are
// cached by (from, to, salt), messages lie in a slab. Memory: 64 bytes a link, 80 a message in
// flight.
#pragma once

#include <map>

#include "orrery/network/failures.h"
#include "orrery/network/link_schedule.h"
#include "orrery/network/messages.h"
#include "orrery/network/network.h"
#include "orrery/network/path_cache.h"

namespace orrery::network {

class Links final : public Network {
 public:
  std::string_view name() const override { return "links"; }
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
  void KeepUseLog(std::size_t steps) override { log_ = UseLog(links_.size(), steps); }
  UseLog* use_log() override { return &log_; }
  Status status() const override { return status_; }

 private:
  struct LinkState {
    std::int64_t bandwidth_Bps = 0;
    SimTime latency = 0;
    SimTime free = 0;             // the last byte of the last message has left
    std::int64_t wire = -1;       // size for which `head` and `whole` hold
    SimTime head = 0, whole = 0;  // time for a head and for a whole message
    std::int32_t mtu_bytes = 0;
    std::uint32_t owner = 0;  // partition
    bool changes = false;     // during the run
  };
  struct Message {
    Transfer transfer;
    std::uint64_t sequence = 0;
    std::int64_t wire = 0;
    SimTime tail = 0;  // arrival of its last byte at the hop to come
    std::uint32_t path = 0;
    std::uint32_t hop = 0;  // the hop to come
  };

  std::uint32_t PathOf(const Transfer& transfer);
  std::uint32_t NewMessage(const Transfer& transfer, std::uint64_t sequence);
  void Arrive(SimTime time, std::uint32_t id);
  SimTime Serve(LinkId id, LinkState* link, const Message& m, SimTime begin);
  bool GoRound(SimTime time, std::uint32_t id);
  void PassOn(SimTime time, std::uint32_t id, std::uint32_t owner);

  const cluster::Cluster* cluster_ = nullptr;
  std::uint32_t partition_ = 0;
  std::vector<std::uint32_t> partition_of_domain_;
  SimTime lookahead_ = kNever;
  bool adaptive_ = false;
  std::vector<LinkState> links_;
  std::vector<PortStatistics> statistics_;
  UseLog log_;  // off unless asked for
  LinkSchedule schedule_;
  Failures failures_;
  Status status_;
  std::map<std::uint32_t, std::uint32_t> detours_;  // now, by the number of the blocked path
  std::vector<LinkId> route_;                       // scratch
  PathCache paths_;
  Messages<Message> messages_;
};

}  // namespace orrery::network
