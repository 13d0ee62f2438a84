// What a request of Direct Drive does, step by step (storage.h): a shape for all requests of equal
// parts.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/graph/services.h"
#include "orrery/workload/importers/storage/settings.h"

namespace orrery::workload {

class ShapeMaker {
 public:
  // Part by part: one of these, the bytes, of a write how often each replica's store collects
  // garbage behind it. A mount is one word.
  enum Word : std::int64_t { kRead, kLookupAndRead, kWrite, kMount };
  using Key = std::vector<std::int64_t>;

  explicit ShapeMaker(const DirectDriveSettings& settings) : s_(settings) {}

  // The hosts are the client; of a part the coordinator (unless it only reads), then its stores; of
  // a mount a balancer, a gateway and a metadata service.
  graph::Shape Make(const Key& key);

 private:
  using Node = std::uint32_t;
  static constexpr Node kNone = 0xFFFFFFFFu;
  struct Message {
    Node sent = kNone, received = kNone;
  };

  Node Add(graph::Shape::Step step, std::uint32_t host, std::int64_t amount,
           std::vector<Node> after);
  // The receive waits for `expected`.
  Message Send(std::uint32_t from, std::uint32_t to, std::int64_t bytes, Node after,
               Node expected = kNone);
  Node Work(std::uint32_t host, SimTime time, Node after);
  Node Read(std::int64_t bytes, bool lookup);
  Node Write(std::int64_t bytes, const std::int64_t* collections);
  Node Mount();

  const DirectDriveSettings& s_;
  graph::Shape shape_;
  std::uint32_t part_ = 0;
};

}  // namespace orrery::workload
