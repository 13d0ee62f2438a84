// What a phase does: rings, direct exchanges, halving-doubling, double binary trees, and graphs of
// one's own.
#include <algorithm>
#include <bit>

#include "orrery/astra/machine_state.h"

namespace orrery::astra {
namespace {

constexpr Tick kFastHandOver = 10;                // ASTRA-sim's, within a communicator
constexpr std::uint64_t kMostOnBus = 0x7FFFFFFF;  // MemoryBus::Move

}  // namespace

void Machine::HandOver(std::uint32_t stream, std::uint64_t bytes, bool reduces, Way way) {
  const std::uint32_t rank = streams_[stream].work.rank;
  const bool fast = streams_[stream].work.fast;
  if (system_.bus.shared && !fast) {
    if (bytes > kMostOnBus) {
      return Fail(
          InvalidInput("a hand-over of {} bytes: the memory bus (model-shared-bus) takes "
                       "at most 2^31 - 1; more preferred-dataset-splits make it less",
                       bytes));
    }
    buses_[rank]->Move(way.to_memory, {stream, bytes, reduces}, way.back);
    return;
  }
  Schedule(rank, fast ? kFastHandOver : system_.endpoint_delay,
           {.kind = Local::Kind::kHandOver, .reduces = reduces, .a = stream, .bytes = bytes});
}

void Machine::Init(std::uint32_t stream) {
  Stream& s = streams_[stream];
  s.initialized = true;
  s.work = {};
  s.work.rank = s.rank;
  const Phase& p = s.phase();
  s.work.size = p.ring.size;
  s.work.algorithm = p.implementation.algorithm;
  s.work.type = p.type;
  if (p.custom != nullptr) {
    s.custom_open.clear();
    for (const Node& node : p.custom->nodes) s.custom_open.push_back(node.open);
    s.custom_left = static_cast<std::uint32_t>(p.custom->nodes.size());
    for (std::uint32_t i = 0; i < p.custom->nodes.size(); ++i) {
      if (p.custom->nodes[i].open == 0) CustomIssue(stream, i);
    }
    if (s.custom_running == 0) {
      Fail(InvalidInput("a custom collective's graph in which nothing can begin"));
    }
    return;
  }
  Work& w = s.work;
  const std::int64_t n = p.ring.size;
  const bool reduce = p.type == Collective::kAllReduce;
  w.fast = p.ring.local;
  switch (p.implementation.algorithm) {
    case Algorithm::kDoubleBinaryTree:
      w.tree = TreePlace::Of(p.place, p.ring.size, p.root_last);
      TreeStep(stream, false);
      return;
    case Algorithm::kHalvingDoubling: {
      const std::int64_t rounds = std::countr_zero(p.ring.size);
      w.steps = reduce ? 2 * rounds : rounds;
      const bool gather = p.type == Collective::kAllGather;
      w.insert = gather ? Halving{p.ring.size / 2, 0.5, p.bytes} : Halving{1, 2, p.bytes / 2};
      w.send = w.insert;
      break;
    }
    case Algorithm::kRing:
    case Algorithm::kDirect: {
      w.steps = reduce ? 2 * (n - 1) : n - 1;
      const bool ring = p.implementation.algorithm == Algorithm::kRing;
      if (ring && p.type == Collective::kAllToAll) w.steps = (n - 1) * n / 2;
      w.bytes = p.type == Collective::kAllGather ? p.bytes : p.bytes / p.ring.size;
      if (!ring) {
        const int window = p.implementation.window;
        w.parallel = static_cast<std::uint32_t>(
            window == -1 ? n - 1 : std::min<std::int64_t>(window, n - 1));
      }
      w.send_place = static_cast<std::uint32_t>((p.place + (p.clockwise ? 1 : n - 1)) % n);
      w.receive_place = static_cast<std::uint32_t>((p.place + (p.clockwise ? n - 1 : 1)) % n);
      if (ring) KeepBoxes(stream);
      break;
    }
  }
  for (std::uint32_t i = 0; i < w.parallel; ++i) InsertPacket(stream);
}

// A ring's messages all go to one neighbour and come from one: their boxes are found once. Where
// links are shared, or a receiver asks first, a message needs more than its box.
void Machine::KeepBoxes(std::uint32_t stream) {
  if (in_.network->congestion_aware || in_.run.rendezvous) return;
  const Stream& s = streams_[stream];
  const Phase& p = s.phase();
  Work& w = streams_[stream].work;
  if (w.bytes == 0) return;  // SendNow says so
  const std::uint32_t to = p.ring.At(w.send_place, s.rank, p.place);
  const std::uint32_t from = p.ring.At(w.receive_place, s.rank, p.place);
  const std::uint32_t offset = (std::uint32_t{p.dimension} << 28) + 1;
  w.out = mailbox_.Open(KeyOf(s.rank, to, w.bytes, s.tag, offset));
  w.in = mailbox_.Open(KeyOf(from, s.rank, w.bytes, s.tag, offset));
  mailbox_.delay(w.out) = network_.Delay(s.rank, to, w.bytes);
}

void Machine::DropBoxes(Work* w) {
  if (w->out == kNobody) return;
  mailbox_.Drop(w->out);
  mailbox_.Drop(w->in);
  w->out = w->in = kNobody;
}

// A message to send is handed over: the first of a round from the NPU to memory, others back, with
// a reduction where the phase reduces.
void Machine::InsertPacket(std::uint32_t stream) {
  Work& w = streams_[stream].work;
  const std::int64_t parallel = w.parallel;
  if (w.first_left == 0 && w.later_left == 0) {
    w.first_left = w.parallel;
    w.later_left = w.algorithm == Algorithm::kHalvingDoubling ? std::countr_zero(w.size) - parallel
                   : w.algorithm == Algorithm::kDirect && !w.fast
                       ? parallel
                       : (std::int64_t{w.size} - 1) * parallel;
    w.reducing = !w.reducing;
  }
  const bool halving = w.algorithm == Algorithm::kHalvingDoubling;
  const std::uint64_t bytes = halving ? w.insert.bytes : w.bytes;
  bool reduces = false;
  Way way{.to_memory = w.first_left > 0};
  if (w.first_left > 0) {
    --w.first_left;
  } else {
    way.back = w.later_left > parallel;
    --w.later_left;
    reduces =
        w.type == Collective::kReduceScatter || (w.type == Collective::kAllReduce && w.reducing);
  }
  ++w.packets;
  HandOver(stream, bytes, reduces, way);
  if (halving) Step(streams_[stream].phase(), &w.insert);
}

// Of the next message of halving-doubling: the distance doubles on the way out, and halves on the
// way back.
void Machine::Step(const Phase& phase, Halving* h) {
  const auto scale = [h] {
    h->distance = static_cast<std::uint32_t>(h->distance * h->factor);
    h->bytes = static_cast<std::uint64_t>(static_cast<double>(h->bytes) / h->factor);
  };
  scale();
  if (h->distance == phase.ring.size && phase.type == Collective::kAllReduce) {
    h->factor = 0.5;
    scale();
  }
}

std::uint32_t Machine::Partner(const Stream& s, const Halving& h) const {
  const Phase& p = s.phase();
  if (h.distance == 0) return p.place;
  const std::uint32_t n = p.ring.size;
  const bool forward = (p.place / h.distance) % 2 == 0;
  return forward ? (p.place + h.distance) % n : (p.place + n - h.distance % n) % n;
}

void Machine::SendNext(std::uint32_t stream) {
  Stream& s = streams_[stream];
  Work& w = s.work;
  if (w.packets == 0 || w.steps == 0 || w.free == 0) return;
  if (w.out != kNobody) {
    --w.steps;
    --w.packets;
    --w.free;
    const Handler handler{Handler::Kind::kStream, stream, 0};
    mailbox_.Keep(w.out);
    Transfer(w.out, {});
    Post(mailbox_.Receive(w.in, handler), handler);
    return;
  }
  const Phase& p = s.phase();
  const std::uint32_t n = p.ring.size;
  std::uint32_t to = w.send_place, from = w.receive_place;
  std::uint64_t bytes = w.bytes;
  std::uint32_t sent = 0, received = 0;  // offsets: what is sent and received over one is alike
  if (p.implementation.algorithm == Algorithm::kHalvingDoubling) {
    to = from = Partner(s, w.send);
    bytes = w.send.bytes;
    sent = received = w.send.distance;
    Step(p, &w.send);
  } else {
    sent = (to + n - p.place) % n;
    received = (p.place + n - from) % n;
    if (p.implementation.algorithm == Algorithm::kDirect) {
      const auto next = [&](std::uint32_t place, bool up) {
        place = (place + (up ? 1 : n - 1)) % n;
        return place == p.place ? (place + (up ? 1 : n - 1)) % n : place;
      };
      w.send_place = next(to, p.clockwise);
      w.receive_place = next(from, !p.clockwise);
    }
  }
  const std::uint32_t dimension = std::uint32_t{p.dimension} << 28;
  --w.steps;
  --w.packets;
  --w.free;
  const std::uint32_t rank = s.rank, tag = s.tag, place = p.place;
  const Ring ring = p.ring;
  Send(rank, ring.At(to, rank, place), bytes, tag, dimension + sent, {});
  Receive(rank, ring.At(from, rank, place), bytes, tag, dimension + received,
          {Handler::Kind::kStream, stream, 0});
}

void Machine::EndIfDone(std::uint32_t stream) {
  const Work& w = streams_[stream].work;
  if (w.steps == 0 && w.free == w.parallel) Proceed(stream);
}

void Machine::HandedOver(std::uint32_t stream) {
  Work& w = streams_[stream].work;
  if (w.algorithm == Algorithm::kDoubleBinaryTree) return TreeStep(stream, false);
  ++w.free;
  const std::int64_t half = std::int64_t{w.size} - 1;
  if (w.algorithm == Algorithm::kDirect && w.type == Collective::kAllReduce && w.steps <= half) {
    // The second half begins when all of the first has come.
    if (w.received < half) return;
    for (std::uint32_t i = 0; i < w.parallel; ++i) SendNext(stream);
  } else {
    SendNext(stream);
  }
  EndIfDone(stream);
}

void Machine::Received(std::uint32_t stream) {
  Work& w = streams_[stream].work;
  if (w.algorithm == Algorithm::kDoubleBinaryTree) return TreeStep(stream, true);
  ++w.received;
  InsertPacket(stream);
}

void Machine::TreeSend(const Stream& s, std::int64_t place) {
  const Phase& p = s.phase();
  Send(s.rank, p.ring.At(static_cast<std::uint32_t>(place), s.rank, p.place), p.bytes, s.tag, 0,
       {});
}
void Machine::TreeReceive(std::uint32_t stream, std::int64_t place) {
  const Stream& s = streams_[stream];
  const Phase& p = s.phase();
  Receive(s.rank, p.ring.At(static_cast<std::uint32_t>(place), s.rank, p.place), p.bytes, s.tag, 0,
          {Handler::Kind::kStream, stream, 0});
}

// `received`: a message came; else a hand-over is done, or the phase begins.
void Machine::TreeStep(std::uint32_t stream, bool received) {
  Stream& s = streams_[stream];
  const std::uint64_t bytes = s.phase().bytes;
  Work& w = s.work;
  const TreePlace tree = w.tree;
  const bool inner = !tree.root() && !tree.leaf();
  switch (w.state) {
    case TreeState::kBegin:
      if (tree.leaf()) {
        w.state = TreeState::kToParent;
        return HandOver(stream, bytes, false, {.to_memory = true});
      }
      if (inner) {
        w.state = TreeState::kTwoChildren;
        TreeReceive(stream, tree.left);
        return TreeReceive(stream, tree.right);
      }
      w.state = TreeState::kOneChild;
      return TreeReceive(stream, tree.left >= 0 ? tree.left : tree.right);
    case TreeState::kTwoChildren:
      w.state = TreeState::kOneChild;
      return HandOver(stream, bytes, true, {});
    case TreeState::kOneChild:
      if (inner && !received) {  // what the first child sent is reduced
        w.first_reduced = true;
        return;
      }
      w.state = inner ? TreeState::kToParent : TreeState::kToChildren;
      return HandOver(stream, bytes, true, {.back = true});
    case TreeState::kToParent:
      if (inner && !w.first_reduced) {
        w.first_reduced = true;
        return;
      }
      w.state = TreeState::kFromParent;
      TreeSend(s, tree.parent);
      return TreeReceive(stream, tree.parent);
    case TreeState::kFromParent:
      w.state = inner ? TreeState::kToChildren : TreeState::kEnd;
      return HandOver(stream, bytes, inner, {.back = inner});
    case TreeState::kToChildren:
      if (tree.left >= 0) TreeSend(s, tree.left);
      if (tree.right >= 0) TreeSend(s, tree.right);
      return Proceed(stream);
    case TreeState::kEnd:
      return Proceed(stream);
  }
}

void Machine::CustomIssue(std::uint32_t stream, std::uint32_t node) {
  Stream& s = streams_[stream];
  const Phase& p = s.phase();
  const Node& n = p.custom->nodes[node];
  ++s.custom_running;
  const Handler handler{Handler::Kind::kCustom, stream, node};
  if (n.kind == NodeKind::kTimed) {
    return Schedule(s.rank, n.amount, {.kind = Local::Kind::kCustom, .a = stream, .b = node});
  }
  const std::size_t members = p.ring.members == nullptr ? npus_ : p.ring.members->size();
  if (n.peer >= members) {
    return Fail(InvalidInput("a custom collective's graph names place {}, of {}", n.peer, members));
  }
  const std::uint32_t peer = p.ring.members == nullptr ? n.peer : (*p.ring.members)[n.peer];
  if (peer == s.rank) {
    return Fail(InvalidInput("a custom collective's graph sends from place {} to itself", n.peer));
  }
  if (n.kind == NodeKind::kSend) {
    Send(s.rank, peer, n.amount, n.tag % kCollectiveTag, 0, handler);
  } else {
    Receive(s.rank, peer, n.amount, n.tag % kCollectiveTag, 0, handler);
  }
}

void Machine::CustomEnd(std::uint32_t stream, std::uint32_t node) {
  const Program& program = *streams_[stream].phase().custom;
  --streams_[stream].custom_running;
  --streams_[stream].custom_left;
  for (const std::uint32_t d : program.dependents(node)) {
    if (--streams_[stream].custom_open[d] == 0) CustomIssue(stream, d);
  }
  if (streams_[stream].custom_left == 0) Proceed(stream);
}

}  // namespace orrery::astra
