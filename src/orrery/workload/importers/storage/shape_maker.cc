#include "orrery/workload/importers/storage/shape_maker.h"

#include <utility>

namespace orrery::workload {

using Step = graph::Shape::Step;

graph::Shape ShapeMaker::Make(const Key& key) {
  shape_.hosts = 1;
  std::vector<Node> parts;
  for (std::size_t i = 0; i < key.size(); ++part_) {
    if (key[i] == kMount) {
      parts.push_back(Mount());
      break;
    }
    const std::int64_t bytes = key[i + 1];
    if (key[i] == kWrite) {
      parts.push_back(Write(bytes, &key[i + 2]));
      i += static_cast<std::size_t>(s_.replicas);
    } else {
      parts.push_back(Read(bytes, key[i] == kLookupAndRead));
    }
    i += 2;
  }
  Add(Step::kDone, 0, 0, std::move(parts));
  return std::move(shape_);
}

ShapeMaker::Node ShapeMaker::Add(Step step, std::uint32_t host, std::int64_t amount,
                                 std::vector<Node> after) {
  std::erase(after, kNone);
  shape_.nodes.push_back(
      {.step = step, .host = host, .part = part_, .amount = amount, .after = std::move(after)});
  return static_cast<Node>(shape_.nodes.size() - 1);
}

ShapeMaker::Message ShapeMaker::Send(std::uint32_t from, std::uint32_t to, std::int64_t bytes,
                                     Node after, Node expected) {
  Message m;
  m.sent = Add(Step::kSend, from, bytes, {after});
  m.received = Add(Step::kReceive, to, bytes, {expected});
  shape_.nodes[m.sent].other = m.received;
  shape_.nodes[m.received].other = m.sent;
  return m;
}

ShapeMaker::Node ShapeMaker::Work(std::uint32_t host, SimTime time, Node after) {
  return Add(Step::kWork, host, time, {after});
}

// These return the client's node that ends the part. A client expects an answer once it has asked.
ShapeMaker::Node ShapeMaker::Read(std::int64_t bytes, bool lookup) {
  Node known = kNone;
  if (lookup) {
    const std::uint32_t coordinator = shape_.hosts++;
    const Message ask = Send(0, coordinator, s_.request_size, kNone);
    shape_.nodes[ask.sent].begins = true;
    const Node found = Work(coordinator, s_.lookup_time, ask.received);
    known = Send(coordinator, 0, s_.reply_size, found, ask.sent).received;
  }
  const std::uint32_t store = shape_.hosts++;
  const Message ask = Send(0, store, s_.request_size, known);
  shape_.nodes[ask.sent].begins = !lookup;
  const Node read = Work(store, s_.read_latency + TransferTime(bytes, s_.read_Bps), ask.received);
  return Send(store, 0, bytes, read, ask.sent).received;
}

ShapeMaker::Node ShapeMaker::Write(std::int64_t bytes, const std::int64_t* collections) {
  const std::uint32_t coordinator = shape_.hosts++;
  const Message ask = Send(0, coordinator, bytes, kNone);
  shape_.nodes[ask.sent].begins = true;
  const Node kept = Work(coordinator, TransferTime(bytes, s_.journal_Bps), ask.received);
  std::vector<Node> acknowledged;
  for (int replica = 0; replica < s_.replicas; ++replica) {
    const std::uint32_t store = shape_.hosts++;
    const Message copy = Send(coordinator, store, bytes, kept);
    Node written = Work(store, s_.write_latency + TransferTime(bytes, s_.write_Bps), copy.received);
    const Message back = Send(store, coordinator, s_.request_size, written, copy.sent);
    for (std::int64_t i = 0; i < collections[replica]; ++i) {
      written = Work(store, s_.collect_time, written);
    }
    acknowledged.push_back(back.received);
  }
  const Message answer = Send(coordinator, 0, s_.reply_size, kNone, ask.sent);
  shape_.nodes[answer.sent].after = std::move(acknowledged);
  return answer.received;
}

ShapeMaker::Node ShapeMaker::Mount() {
  constexpr std::uint32_t kWay = 4;
  shape_.hosts = kWay;
  Node last = kNone, asked = kNone;
  for (std::uint32_t i = 0; i + 1 < kWay; ++i) {
    const Message m = Send(i, i + 1, s_.reply_size, last);
    if (i == 0) asked = m.sent;
    last = m.received;
  }
  shape_.nodes[asked].begins = true;
  last = Work(kWay - 1, s_.lookup_time, last);
  for (std::uint32_t i = kWay - 1; i > 0; --i) {
    last = Send(i, i - 1, s_.reply_size, last, i == 1 ? asked : kNone).received;
  }
  return last;
}

}  // namespace orrery::workload
